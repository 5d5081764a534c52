//! Posts of humans that were refused because of a pause or stop: they are kept, and passed on after a resume (H6).

use lastword_client::ClientError;
use lastword_client::wire::Problem;
use lastword_facts::Code;
use rusqlite::params;

use super::book::{BridgeStore, Kept, lost};
use super::inbound::{Act, Voice};
use super::model::Post;

/// A post that is kept, and how often it was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptPost {
    pub(crate) post: u64,
    pub(crate) channel: u64,
    pub(crate) act: Act,
    pub(crate) tries: u32,
}

/// Keeps what a human wanted if only a pause or stop refuses it; returns the hint that says so.
pub(crate) fn keep(book: &BridgeStore, post: &Post, act: &Act, problem: &Problem) -> Result<Option<Act>, ClientError> {
    let user = match act {
        Act::Say { user, .. } | Act::Submit { voice: Voice::Human(user), .. } => user,
        Act::Submit { .. }
        | Act::Post { .. }
        | Act::Finish { .. }
        | Act::Early { .. }
        | Act::Hint { .. }
        | Act::Late => {
            return Ok(None);
        }
    };
    #[expect(clippy::wildcard_enum_match_arm, reason = "only these pass with a resume")]
    let what = match problem.code {
        Code::Paused => "paused",
        Code::Stopped => "stopped",
        _ => return Ok(None),
    };
    book.keep(post, act).map_err(lost)?;
    let text = format!(
        "<@{user}>: kept, because a human has {what} this. It is passed on after `/lastword resume`, unless you delete it."
    );
    Ok(Some(Act::Hint { about: format!("{}:kept", post.id), text }))
}

impl BridgeStore {
    fn keep(&self, post: &Post, act: &Act) -> Kept<()> {
        let text = serde_json::to_string(act).unwrap_or_default();
        let db = self.db();
        let mut add = db.prepare_cached(
            "INSERT INTO kept VALUES (?1, ?2, ?3, 0) ON CONFLICT DO UPDATE SET act = ?3, tries = tries + 1",
        )?;
        add.execute(params![post.id.cast_signed(), post.channel.cast_signed(), text]).map(|_| ())
    }

    /// Returns the kept posts, oldest first.
    pub(crate) fn kept(&self) -> Kept<Vec<KeptPost>> {
        let db = self.db();
        let mut all = db.prepare_cached("SELECT post, channel, act, tries FROM kept ORDER BY post")?;
        let row = |row: &rusqlite::Row<'_>| {
            let (post, channel): (i64, i64) = (row.get(0)?, row.get(1)?);
            Ok((post.cast_unsigned(), channel.cast_unsigned(), row.get::<_, String>(2)?, row.get(3)?))
        };
        let rows: Kept<Vec<_>> = all.query_map([], row)?.collect();
        let read = |(post, channel, text, tries): (u64, u64, String, u32)| {
            Some(KeptPost { post, channel, act: serde_json::from_str(&text).ok()?, tries })
        };
        Ok(rows?.into_iter().filter_map(read).collect())
    }

    /// Drops a kept post, unless it was kept again since.
    pub(crate) fn unkeep(&self, kept: &KeptPost) -> Kept<()> {
        let db = self.db();
        let mut drop = db.prepare_cached("DELETE FROM kept WHERE post = ?1 AND tries = ?2")?;
        drop.execute(params![kept.post.cast_signed(), kept.tries]).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use lastword_facts::refusal::Refusal;

    use super::super::den::{ANN, DEN};
    use super::super::model::tests::post;
    use super::*;

    #[test]
    fn a_humans_post_is_kept_while_a_stop_refuses_it_and_no_longer() {
        let book = BridgeStore::in_memory().unwrap();
        let said = post(1_000, DEN, ANN, false, "look");
        let mentions = vec!["kilo".to_owned()];
        let act = Act::Say { user: ANN, mentions, about: None, opens: false, body: "look".into() };
        let problem = |code| Problem::new(&Refusal::new(code));
        assert!(keep(&book, &said, &act, &problem(Code::Forbidden)).unwrap().is_none());
        let first = keep(&book, &said, &act, &problem(Code::Stopped)).unwrap();
        assert!(matches!(&first, Some(Act::Hint { text, .. }) if text.contains("stopped")), "{first:?}");
        let kept = book.kept().unwrap();
        assert_eq!(kept.len(), 1);
        assert_eq!(keep(&book, &said, &act, &problem(Code::Stopped)).unwrap(), first, "the same hint, given once");
        book.unkeep(&kept[0]).unwrap();
        assert_eq!(book.kept().unwrap().len(), 1, "it was kept again");
        book.unkeep(&book.kept().unwrap()[0]).unwrap();
        assert_eq!(book.kept().unwrap(), []);
    }
}
