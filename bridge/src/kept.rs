//! Posts of humans that were refused because of a pause or stop: they are kept, and passed on after a resume (H6).

use lastword_client::ClientError;
use lastword_client::wire::Problem;
use lastword_facts::Code;
use rusqlite::params;

use super::book::{BridgeStore, Kept, lost};
use super::inbound::{Act, Voice};
use super::platform::Spot;
use super::post::Post;

/// A post that is kept, and how often it was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptPost {
    pub(crate) spot: Spot,
    pub(crate) act: Act,
    pub(crate) tries: u32,
}

/// Keeps what a human wanted if only a pause or stop refuses it; returns the hint that says so.
pub(crate) fn keep(book: &BridgeStore, post: &Post, act: &Act, problem: &Problem) -> Result<Option<Act>, ClientError> {
    match act {
        Act::Say { .. } | Act::Submit { voice: Voice::Human(_), .. } => {}
        Act::Submit { .. }
        | Act::Post { .. }
        | Act::Finish { .. }
        | Act::Early { .. }
        | Act::Hint { .. }
        | Act::Late => {
            return Ok(None);
        }
    }
    #[expect(clippy::wildcard_enum_match_arm, reason = "only these pass with a resume")]
    let what = match problem.code {
        Code::Paused => "paused",
        Code::Stopped => "stopped",
        _ => return Ok(None),
    };
    book.keep(post, act).map_err(lost)?;
    let text = format!(
        "{}: kept, because a human has {what} this. It is passed on after `/lastword resume`, unless you delete it.",
        post.author.mention
    );
    Ok(Some(Act::Hint { about: format!("{}:kept", post.id), text }))
}

impl BridgeStore {
    fn keep(&self, post: &Post, act: &Act) -> Kept<()> {
        let text = serde_json::to_string(act).unwrap_or_default();
        self.change(
            "INSERT INTO kept VALUES (?1, ?2, ?3, 0) ON CONFLICT DO UPDATE SET act = ?3, tries = tries + 1",
            params![post.id, post.channel, text],
        )
    }

    /// Returns the kept posts, oldest first.
    pub(crate) fn kept(&self) -> Kept<Vec<KeptPost>> {
        let kept = |row: &rusqlite::Row<'_>| {
            let spot = Spot { post: row.get(0)?, channel: row.get(1)? };
            let (act, tries) = (serde_json::from_str(&row.get::<_, String>(2)?), row.get(3)?);
            Ok(act.ok().map(|act| KeptPost { spot, act, tries }))
        };
        let all = self.all("SELECT post, channel, act, tries FROM kept ORDER BY post", [], kept)?;
        Ok(all.into_iter().flatten().collect())
    }

    /// Drops a kept post, unless it was kept again since.
    pub(crate) fn unkeep(&self, kept: &KeptPost) -> Kept<()> {
        self.change("DELETE FROM kept WHERE post = ?1 AND tries = ?2", params![kept.spot.post, kept.tries])
    }
}

#[cfg(test)]
mod tests {
    use lastword_facts::refusal::Refusal;

    use super::super::den_tests::{ANN, DEN};
    use super::super::post::tests::post;
    use super::*;

    #[test]
    fn a_humans_post_is_kept_while_a_stop_refuses_it_and_no_longer() {
        let book = BridgeStore::in_memory().unwrap();
        let said = post(1_000, DEN, ANN, false, "look");
        let mentions = vec!["kilo".to_owned()];
        let act = Act::Say { user: ANN, mentions, reference: None, opens: false, body: "look".into() };
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
