//! The parts of Discord's objects that the bridge reads.

use std::collections::BTreeSet;

use serde::Deserialize;

/// Bits below a snowflake's timestamp, which is in milliseconds.
const SNOWFLAKE_TIME_SHIFT: u32 = 22;
/// The epoch of snowflakes, in Unix milliseconds.
const EPOCH_MS: u64 = 1_420_070_400_000;

/// A post, as Discord sends it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Post {
    #[serde(deserialize_with = "snowflake")]
    pub(crate) id: u64,
    #[serde(rename = "channel_id", deserialize_with = "snowflake")]
    pub(crate) channel: u64,
    pub(crate) author: Author,
    #[serde(default)]
    pub(crate) webhook_id: Option<String>,
    #[serde(rename = "type", default)]
    pub(crate) kind: u16,
    #[serde(default)]
    pub(crate) content: String,
    #[serde(default)]
    pub(crate) attachments: Vec<Attachment>,
    #[serde(default)]
    nonce: Option<Nonce>,
    #[serde(default)]
    referenced_message: Option<Box<Referenced>>,
    /// The author in the server; only the gateway sends it.
    #[serde(default)]
    pub(crate) member: Option<GuildMember>,
}

/// A post's author.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Author {
    #[serde(deserialize_with = "snowflake")]
    pub(crate) id: u64,
    #[serde(default)]
    pub(crate) bot: bool,
    /// The user name, which is unique on Discord.
    #[serde(default)]
    pub(crate) username: String,
}

/// A user as a member of a server.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct GuildMember {
    #[serde(default)]
    roles: Vec<String>,
}

impl GuildMember {
    /// Returns the ids of the member's roles, without `@everyone`.
    pub(crate) fn roles(&self) -> BTreeSet<u64> {
        self.roles.iter().filter_map(|role| role.parse().ok()).collect()
    }
}

/// A person of Discord who acts; never a bot or webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Person {
    pub(crate) user: u64,
    /// The user name.
    pub(crate) name: String,
    /// The roles in the server.
    pub(crate) roles: BTreeSet<u64>,
}

/// An attached file.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Attachment {
    #[serde(default)]
    filename: String,
    #[serde(default)]
    url: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Referenced {
    #[serde(deserialize_with = "snowflake")]
    id: u64,
    author: Author,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Nonce {
    Text(String),
    Number(i64),
}

/// A channel or thread.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Channel {
    #[serde(deserialize_with = "snowflake")]
    pub(crate) id: u64,
    #[serde(default)]
    guild_id: Option<String>,
    #[serde(default)]
    pub(crate) name: Option<String>,
    #[serde(default)]
    parent_id: Option<String>,
    #[serde(rename = "type", default)]
    kind: u16,
    #[serde(default)]
    last_message_id: Option<String>,
    #[serde(default)]
    thread_metadata: Option<Metadata>,
}

#[derive(Clone, Debug, Deserialize)]
struct Metadata {
    #[serde(default)]
    archive_timestamp: String,
}

impl Channel {
    /// Returns the id of the last post, which may be deleted; `None` if Discord doesn't send it.
    pub(crate) fn last(&self) -> Option<u64> {
        self.last_message_id.as_ref()?.parse().ok()
    }

    /// Returns when a thread was last archived or reopened, as an RFC 3339 text that sorts by time.
    pub(crate) fn put_away(&self) -> &str {
        self.thread_metadata.as_ref().map_or("", |known| &known.archive_timestamp)
    }

    pub(crate) fn guild(&self) -> Option<u64> {
        self.guild_id.as_ref()?.parse().ok()
    }

    /// Returns a thread's channel; `None` for anything but a thread.
    pub(crate) fn parent(&self) -> Option<u64> {
        // 10 to 12: threads. Other channels' parent is their category.
        matches!(self.kind, 10..=12).then(|| self.parent_id.as_ref()?.parse().ok()).flatten()
    }
}

impl Post {
    /// Returns the author, unless it is a bot or webhook.
    pub(crate) fn person(&self) -> Option<Person> {
        let is_person = !self.author.bot && self.webhook_id.is_none();
        let roles = self.member.as_ref().map(GuildMember::roles).unwrap_or_default();
        is_person.then(|| Person { user: self.author.id, name: self.author.username.clone(), roles })
    }

    /// Returns whether a human wrote the post; false for Discord's own notes about pins, joins or threads.
    pub(crate) const fn is_said(&self) -> bool {
        // 0: an ordinary message; 19: a reply.
        matches!(self.kind, 0 | 19)
    }

    /// Returns whether a bot wrote the post; a bot may also respond to a command.
    pub(crate) const fn is_written(&self) -> bool {
        // 20 and 23: responses to a slash command and to a context menu command.
        matches!(self.kind, 0 | 19 | 20 | 23)
    }

    /// Returns the post's time in milliseconds since Discord's epoch.
    pub(crate) const fn at_ms(&self) -> u64 {
        self.id >> SNOWFLAKE_TIME_SHIFT
    }

    /// Returns the post's time in Unix milliseconds.
    pub(crate) const fn unix_ms(&self) -> u64 {
        moment(self.id)
    }

    /// Returns the text, with each file as its name and URL.
    pub(crate) fn text(&self) -> String {
        let mut text = self.content.clone();
        for file in &self.attachments {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&format!("[file {}] {}", file.filename, file.url));
        }
        text
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.content.trim().is_empty() && self.attachments.is_empty()
    }

    /// Returns the nonce that the post was sent with, if it came over the gateway.
    pub(crate) fn nonce(&self) -> Option<String> {
        Some(match self.nonce.as_ref()? {
            Nonce::Text(text) => text.clone(),
            Nonce::Number(number) => number.to_string(),
        })
    }

    /// Returns the author of the message that the post replies to.
    pub(crate) fn replies_to(&self) -> Option<u64> {
        Some(self.referenced_message.as_ref()?.author.id)
    }

    /// Returns the id of the post that it replies to.
    pub(crate) fn replied_post(&self) -> Option<u64> {
        Some(self.referenced_message.as_ref()?.id)
    }

    /// Returns whether the text mentions a user with a literal `<@id>`; the ping of a reply doesn't count.
    pub(crate) fn mentions(&self, user: u64) -> bool {
        self.content.contains(&format!("<@{user}>")) || self.content.contains(&format!("<@!{user}>"))
    }
}

/// Returns an id's time in Unix milliseconds.
pub(crate) const fn moment(id: u64) -> u64 {
    (id >> SNOWFLAKE_TIME_SHIFT) + EPOCH_MS
}

/// Returns the first id of a Unix time in milliseconds.
pub(crate) const fn first_id(unix_ms: u64) -> u64 {
    unix_ms.saturating_sub(EPOCH_MS) << SNOWFLAKE_TIME_SHIFT
}

/// Parses an id; Discord sends ids as text.
fn snowflake<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map_err(|_| serde::de::Error::custom(format!("{text:?} isn't a snowflake")))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a post made at a time in milliseconds since Discord's epoch.
    pub(crate) fn post(at_ms: u64, channel: u64, author: u64, bot: bool, content: &str) -> Post {
        Post {
            id: (at_ms << SNOWFLAKE_TIME_SHIFT) | author,
            channel,
            author: Author { id: author, bot, username: String::new() },
            webhook_id: None,
            kind: 0,
            content: content.into(),
            attachments: Vec::new(),
            nonce: None,
            referenced_message: None,
            member: None,
        }
    }

    pub(crate) fn reply_to(mut post: Post, author: u64) -> Post {
        post.kind = 19;
        post.referenced_message =
            Some(Box::new(Referenced { id: 9, author: Author { id: author, bot: true, username: String::new() } }));
        post
    }

    #[test]
    fn a_post_is_read_as_discord_writes_it() {
        let text = r#"{"id":"175928847299117063","channel_id":"2","type":19,"content":"hi <@!5>","nonce":7,
            "author":{"id":"3","username":"x","bot":true},"attachments":[{"id":"1","filename":"a.txt","url":"https://x/a"}],
            "referenced_message":{"id":"9","author":{"id":"5","username":"y"}},"something":{"else":1}}"#;
        let post: Post = serde_json::from_str(text).unwrap();
        assert_eq!((post.id, post.channel, post.author.id, post.author.bot), (175_928_847_299_117_063, 2, 3, true));
        assert_eq!((post.nonce().as_deref(), post.replies_to()), (Some("7"), Some(5)));
        assert_eq!(post.replied_post(), Some(9));
        assert!(post.mentions(5) && !post.mentions(3) && post.is_said());
        assert_eq!(post.text(), "hi <@!5>\n[file a.txt] https://x/a");
        assert_eq!(post.at_ms(), 41_944_705_796);
        assert_eq!(first_id(post.unix_ms()), post.id & !0x3f_ffff);
    }

    #[test]
    fn only_a_person_has_roles_that_count() {
        let text = r#"{"id":"1","channel_id":"2","author":{"id":"3","username":"ann"},"member":{"roles":["8","9"],"nick":"x"}}"#;
        let mut post: Post = serde_json::from_str(text).unwrap();
        assert_eq!(post.person(), Some(Person { user: 3, name: "ann".into(), roles: [8, 9].into() }));
        post.webhook_id = Some("4".into());
        assert_eq!(post.person(), None);
        (post.webhook_id, post.author.bot) = (None, true);
        assert_eq!(post.person(), None);
    }

    #[test]
    fn only_a_thread_has_a_parent() {
        let parent = |kind: u16| {
            serde_json::from_str::<Channel>(&format!(r#"{{"id":"1","type":{kind},"parent_id":"4"}}"#)).unwrap().parent()
        };
        assert_eq!((parent(0), parent(11)), (None, Some(4)), "a channel's parent is its category");
    }
}
