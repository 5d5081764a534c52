//! Runs of posts by one author that form one answer: a platform limits a post, so bots split long answers.

use super::ids::{ChannelId, PostId};
use super::inbound::looks_like_header;
use super::post::{Mention, Post};

/// Least length of a part that another may follow; no bot splits earlier.
const PART_CHARS_MIN: usize = 1_000;
/// Longest time between two parts, by the platform's clock.
const GAP_MS_MAX: u64 = 3_000;
/// Most parts of one answer, so that a bot that posts only long messages is still counted.
const PARTS_MAX: usize = 10;

/// The parts of one answer, at least one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run(Vec<Post>);

impl Run {
    pub(crate) fn of(post: Post) -> Self {
        Self(vec![post])
    }

    pub(crate) fn first(&self) -> Option<&Post> {
        self.0.first()
    }

    /// Returns the id of the last part.
    pub(crate) fn last_id(&self) -> PostId {
        self.0.last().map_or_else(PostId::default, |post| post.id)
    }

    /// Returns the text of all parts.
    pub(crate) fn text(&self) -> String {
        self.0.iter().map(Post::text).collect::<Vec<_>>().join("\n")
    }

    /// Returns the mentions of all parts.
    pub(crate) fn mentions(&self) -> impl Iterator<Item = &Mention> {
        self.0.iter().flat_map(|post| &post.mentions)
    }

    /// Returns the channels that the parts link to.
    pub(crate) fn links(&self) -> impl Iterator<Item = ChannelId> {
        self.0.iter().flat_map(|post| post.links.iter().copied())
    }

    /// Returns whether another part may follow.
    pub(crate) fn may_go_on(&self) -> bool {
        let long = |post: &Post| post.content.chars().count() >= PART_CHARS_MIN;
        self.0.len() < PARTS_MAX
            && self.0.last().is_some_and(|post| post.is_written() && post.is_automatic() && long(post))
    }

    /// Adds the next part; returns the post if it doesn't continue the run.
    pub(crate) fn go_on(&mut self, post: Post) -> Result<(), Box<Post>> {
        let Some(last) = self.0.last() else { return Err(Box::new(post)) };
        let same = last.channel == post.channel
            && last.author.id == post.author.id
            && last.author.webhook == post.author.webhook
            && post.is_written()
            // A message begins with its header, and a continuation never does.
            && !looks_like_header(&post.content);
        if same && self.may_go_on() && post.at_ms.saturating_sub(last.at_ms) <= GAP_MS_MAX {
            self.0.push(post);
            return Ok(());
        }
        Err(Box::new(post))
    }
}

/// How long to wait for the next part.
pub(crate) const GAP: std::time::Duration = std::time::Duration::from_millis(GAP_MS_MAX);

#[cfg(test)]
mod tests {
    use super::super::ids::UserId;
    use super::super::post::tests;
    use super::*;

    fn post(at_ms: u64, channel: u64, author: u64, bot: bool, content: &str) -> Post {
        tests::post(at_ms, ChannelId::new(channel), UserId::new(author), bot, content)
    }

    #[test]
    fn parts_follow_a_long_part_at_once_and_by_the_same_author() {
        let long = "x".repeat(PART_CHARS_MIN);
        let cases = [
            (post(2_000, 1, 5, true, "the end"), true, "the next part"),
            (post(5_000, 1, 5, true, "later"), false, "too late"),
            (post(2_000, 1, 6, true, "another"), false, "another author"),
            (post(2_000, 2, 5, true, "elsewhere"), false, "another channel"),
            (post(2_000, 1, 5, true, "[FROM:hive][TO:lima]"), false, "a message of its own"),
        ];
        for (next, goes_on, why) in cases {
            let mut run = Run::of(post(1_000, 1, 5, true, &long));
            assert_eq!(run.go_on(next).is_ok(), goes_on, "{why}");
        }
        let mut short = Run::of(post(1_000, 1, 5, true, "ok"));
        assert!(short.go_on(post(1_001, 1, 5, true, "ok")).is_err(), "nobody cuts there");
        let human = Run::of(post(1_000, 1, 5, false, &long));
        assert!(!human.may_go_on(), "a human's posts are one each");
    }

    #[test]
    fn long_posts_without_end_are_no_one_answer() {
        let long = "x".repeat(PART_CHARS_MIN);
        let mut run = Run::of(post(0, 1, 5, true, &long));
        let parts = (1..100).take_while(|n| run.go_on(post(*n, 1, 5, true, &long)).is_ok()).count();
        assert_eq!(parts + 1, PARTS_MAX);
    }
}
