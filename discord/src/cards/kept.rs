//! Stores the posted cards in the bridge's file.

use rusqlite::{OptionalExtension as _, params};

use super::Card;
use crate::book::{BridgeStore, Kept};

const SCHEMA: &str = "
-- Cards: the post with the buttons, and the Discord user who settled it, where it was done there.
CREATE TABLE IF NOT EXISTS cards (
  id TEXT PRIMARY KEY,
  channel INTEGER NOT NULL,
  -- Not known while it is being posted.
  post INTEGER,
  -- As it is posted: a second try after a restart posts, or finds, the same.
  card TEXT NOT NULL,
  settled INTEGER NOT NULL DEFAULT 0,
  user INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS cards_open ON cards (settled) WHERE settled = 0;";

/// A card that was posted or is about to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Posted {
    pub(crate) channel: u64,
    /// The message with the buttons; `None` until it is posted.
    pub(crate) post: Option<u64>,
    pub(crate) settled: bool,
    pub(crate) user: Option<u64>,
}

impl BridgeStore {
    /// Creates the table for cards.
    pub(super) fn prepare_cards(&self) -> Kept<()> {
        self.db().execute_batch(SCHEMA)
    }

    /// Returns the card of an escalation or a held call.
    pub(crate) fn card(&self, id: &str) -> Kept<Option<Posted>> {
        let db = self.db();
        let mut look = db.prepare_cached("SELECT channel, post, settled, user FROM cards WHERE id = ?1")?;
        let posted = |row: &rusqlite::Row<'_>| {
            Ok(Posted {
                channel: row.get::<_, i64>(0)?.cast_unsigned(),
                post: row.get::<_, Option<i64>>(1)?.map(i64::cast_unsigned),
                settled: row.get(2)?,
                user: row.get::<_, Option<i64>>(3)?.map(i64::cast_unsigned),
            })
        };
        look.query_row([id], posted).optional()
    }

    /// Returns the ids of cards that have buttons.
    pub(super) fn open_cards(&self) -> Kept<Vec<String>> {
        let db = self.db();
        let mut all = db.prepare_cached("SELECT id FROM cards WHERE settled = 0")?;
        all.query_map([], |row| row.get(0))?.collect()
    }

    /// Notes that a card is about to be posted, and returns it as first noted: a retry after a restart posts the same
    /// text.
    pub(super) fn begin_card(&self, id: &str, channel: u64, card: &Card) -> Kept<Option<Card>> {
        let text = serde_json::to_string(card).unwrap_or_default();
        let db = self.db();
        let mut add = db.prepare_cached("INSERT OR IGNORE INTO cards (id, channel, card) VALUES (?1, ?2, ?3)")?;
        add.execute(params![id, channel.cast_signed(), text])?;
        let mut look = db.prepare_cached("SELECT card FROM cards WHERE id = ?1")?;
        let text: String = look.query_row([id], |row| row.get(0))?;
        Ok(serde_json::from_str(&text).ok())
    }

    pub(super) fn post_card(&self, id: &str, post: u64) -> Kept<()> {
        let db = self.db();
        let mut set = db.prepare_cached("UPDATE cards SET post = ?2 WHERE id = ?1")?;
        set.execute(params![id, post.cast_signed()]).map(|_| ())
    }

    /// Notes the Discord user whose click settled the matter.
    pub(crate) fn sign_card(&self, id: &str, user: u64) -> Kept<()> {
        let db = self.db();
        let mut set = db.prepare_cached("UPDATE cards SET user = ?2 WHERE id = ?1")?;
        set.execute(params![id, user.cast_signed()]).map(|_| ())
    }

    pub(super) fn settle_card(&self, id: &str) -> Kept<()> {
        self.db().prepare_cached("UPDATE cards SET settled = 1 WHERE id = ?1")?.execute([id]).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_posted_once_signed_and_settled() {
        let book = BridgeStore::in_memory().unwrap();
        book.prepare_cards().unwrap();
        assert_eq!(book.card("esc-1").unwrap(), None);
        let card = |text: &str| Card { parts: vec![text.to_owned()], rows: serde_json::json!([]), settled: false };
        book.begin_card("esc-1", 5, &card("one")).unwrap();
        assert_eq!(book.card("esc-1").unwrap().unwrap().post, None);
        assert_eq!(book.begin_card("esc-1", 5, &card("two")).unwrap(), Some(card("one")), "it may be there already");
        book.post_card("esc-1", 6).unwrap();
        assert_eq!(book.open_cards().unwrap(), ["esc-1"]);
        book.sign_card("esc-1", 8).unwrap();
        book.settle_card("esc-1").unwrap();
        let settled = Posted { channel: 5, post: Some(6), settled: true, user: Some(8) };
        assert_eq!((book.card("esc-1").unwrap(), book.open_cards().unwrap().len()), (Some(settled), 0));
    }
}
