//! How a platform names and writes things, and what it has room for.

use serde_json::Value;

use super::cards::Label;
use super::ids::{ChannelId, PostId, RoleId, UserId};

/// How a platform names and writes things, and what it has room for. The bridge words its texts in Markdown, in which a
/// line behind `-# ` is small print; the platform translates what it writes otherwise.
#[derive(Debug)]
pub struct Dialect {
    /// The platform's name in keys, rooms and the configuration.
    pub name: &'static str,
    /// The platform's name for people.
    pub title: &'static str,
    /// The agent in whose name posts of unknown bots and webhooks are counted.
    pub guest: &'static str,
    /// Prefix of the REF of a conversation that began with a post.
    pub reference: &'static str,
    /// Mentions a user.
    pub user: fn(UserId) -> String,
    /// Names a role.
    pub role: fn(RoleId) -> String,
    /// Links to a channel.
    pub channel: fn(ChannelId) -> String,
    /// Shows a time, in Unix seconds, as a distance from now.
    pub time: fn(u64) -> String,
    /// Cuts a text into posts, of which each has room for so many more characters. None but the first begins like a
    /// header, and none has half a code block.
    pub split: fn(&str, usize) -> Vec<String>,
    /// Writes buttons as the platform posts them; a card keeps that.
    pub buttons: fn(&[Label]) -> Value,
    /// Most buttons under a post.
    pub buttons_max: usize,
    /// Longest text of a button.
    pub label_chars_max: usize,
    /// Longest name of a thread.
    pub thread_chars_max: usize,
}

impl Dialect {
    /// Returns the room in which posts of a channel or thread count.
    pub(crate) fn room(&self, channel: ChannelId) -> String {
        format!("{}:{channel}", self.name)
    }

    /// Returns the channel or thread of a room.
    pub(crate) fn channel_of(&self, room: &str) -> Option<ChannelId> {
        self.unprefixed(room)?.parse().ok()
    }

    /// Returns the idempotency key of the calls that come from a post, or from an interaction with this id.
    pub(crate) fn key(&self, id: impl std::fmt::Display) -> String {
        format!("{}:{id}", self.name)
    }

    /// Returns the idempotency key of a message with a header: its post counts under [`Dialect::key`], too.
    pub(crate) fn message_key(&self, post: PostId) -> String {
        format!("{}.0", self.key(post))
    }

    /// Returns the post that a request came from, by the request's id.
    pub(crate) fn post_of(&self, request: &str) -> Option<PostId> {
        self.unprefixed(request)?.split('.').next()?.parse().ok()
    }

    /// Returns the REF of the conversation that begins with a post; the same for every reader of the post.
    pub(crate) fn reference_of(&self, post: PostId) -> String {
        format!("{}{}", self.reference, post.short())
    }

    fn unprefixed<'a>(&self, text: &'a str) -> Option<&'a str> {
        text.strip_prefix(self.name)?.strip_prefix(':')
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// Characters of a post of the tests' platform.
    pub(crate) const POST_CHARS_MAX: usize = 2_000;

    /// A platform of tests: posts are cut anywhere, and each button is an object.
    pub(crate) static PLAIN: Dialect = Dialect {
        name: "chat",
        title: "Chat",
        guest: "chat-guest",
        reference: "C-",
        user: |user| format!("<@{user}>"),
        role: |role| format!("<&{role}>"),
        channel: |channel| format!("<#{channel}>"),
        time: |seconds| format!("<t:{seconds}>"),
        split: |text, spare| {
            let all: Vec<char> = text.chars().collect();
            let parts: Vec<String> = all.chunks(POST_CHARS_MAX - spare).map(|part| part.iter().collect()).collect();
            if parts.is_empty() { vec![String::new()] } else { parts }
        },
        buttons: |labels| labels.iter().map(|one| json!({ "id": one.button, "text": one.text })).collect(),
        buttons_max: 25,
        label_chars_max: 80,
        thread_chars_max: 100,
    };

    #[test]
    fn names_lead_back_to_what_they_were_made_from() {
        let post = PostId::new(77);
        assert_eq!(PLAIN.post_of(&format!("{}.2", PLAIN.key(post))), Some(post));
        assert_eq!((PLAIN.post_of("req-0001"), PLAIN.post_of("chat:x")), (None, None));
        assert_eq!(PLAIN.reference_of(PostId::new(175_928_847_299_117_063)), "C-4W86BB0G4007");
        assert_eq!(PLAIN.channel_of(&PLAIN.room(ChannelId::new(5))), Some(ChannelId::new(5)));
        assert_eq!(PLAIN.channel_of("other:5"), None);
    }
}
