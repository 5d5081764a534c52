//! Stores the posted cards in the bridge's file.

use rusqlite::params;

use super::Card;
use crate::book::{BridgeStore, Kept};
use crate::ids::{ChannelId, PostId, UserId};

const SCHEMA: &str = "
-- Cards: the post with the buttons, and the user who settled it, where it was done there.
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
    pub(crate) channel: ChannelId,
    /// The message with the buttons; `None` until it is posted.
    pub(crate) post: Option<PostId>,
    pub(crate) settled: bool,
    pub(crate) user: Option<UserId>,
}

impl BridgeStore {
    /// Creates the table for cards.
    pub(super) fn prepare_cards(&self) -> Kept<()> {
        self.db().execute_batch(SCHEMA)
    }

    /// Returns the card of an escalation or a held call.
    pub(crate) fn card(&self, id: &str) -> Kept<Option<Posted>> {
        let posted = |row: &rusqlite::Row<'_>| {
            Ok(Posted { channel: row.get(0)?, post: row.get(1)?, settled: row.get(2)?, user: row.get(3)? })
        };
        self.first("SELECT channel, post, settled, user FROM cards WHERE id = ?1", [id], posted)
    }

    /// Returns the ids of cards that have buttons.
    pub(super) fn open_cards(&self) -> Kept<Vec<String>> {
        self.all("SELECT id FROM cards WHERE settled = 0", [], |row| row.get(0))
    }

    /// Notes that a card is about to be posted, and returns it as first noted: a retry after a restart posts the same
    /// text.
    pub(super) fn begin_card(&self, id: &str, channel: ChannelId, card: &Card) -> Kept<Option<Card>> {
        let text = serde_json::to_string(card).unwrap_or_default();
        self.change("INSERT OR IGNORE INTO cards (id, channel, card) VALUES (?1, ?2, ?3)", params![id, channel, text])?;
        let text: Option<String> = self.first("SELECT card FROM cards WHERE id = ?1", [id], |row| row.get(0))?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }

    pub(super) fn post_card(&self, id: &str, post: PostId) -> Kept<()> {
        self.change("UPDATE cards SET post = ?2 WHERE id = ?1", params![id, post])
    }

    /// Notes the user whose click settled the matter.
    pub(crate) fn sign_card(&self, id: &str, user: UserId) -> Kept<()> {
        self.change("UPDATE cards SET user = ?2 WHERE id = ?1", params![id, user])
    }

    pub(super) fn settle_card(&self, id: &str) -> Kept<()> {
        self.change("UPDATE cards SET settled = 1 WHERE id = ?1", [id])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_posted_once_signed_and_settled() {
        let book = BridgeStore::in_memory().unwrap();
        book.prepare_cards().unwrap();
        let (channel, post, user) = (ChannelId::new(5), PostId::new(6), UserId::new(8));
        assert_eq!(book.card("esc-1").unwrap(), None);
        let card = |text: &str| Card { parts: vec![text.to_owned()], rows: serde_json::json!([]), settled: false };
        book.begin_card("esc-1", channel, &card("one")).unwrap();
        assert_eq!(book.card("esc-1").unwrap().unwrap().post, None);
        assert_eq!(
            book.begin_card("esc-1", channel, &card("two")).unwrap(),
            Some(card("one")),
            "it may be there already"
        );
        book.post_card("esc-1", post).unwrap();
        assert_eq!(book.open_cards().unwrap(), ["esc-1"]);
        book.sign_card("esc-1", user).unwrap();
        book.settle_card("esc-1").unwrap();
        let settled = Posted { channel, post: Some(post), settled: true, user: Some(user) };
        assert_eq!((book.card("esc-1").unwrap(), book.open_cards().unwrap().len()), (Some(settled), 0));
    }
}
