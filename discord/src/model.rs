//! The parts of Discord's objects that the bridge reads, and what they are to it.

use std::collections::BTreeSet;
use std::str::FromStr;

use lastword_bridge::ids::{ChannelId, PostId, RoleId, UserId};
use lastword_bridge::post::{Author, Channel, Mention, Post, PostKind, Replied, ThreadState};
use serde::Deserialize;

/// Bits below a snowflake's timestamp, which is in milliseconds.
const SNOWFLAKE_TIME_SHIFT: u32 = 22;
/// The epoch of snowflakes, in Unix milliseconds.
const EPOCH_MS: u64 = 1_420_070_400_000;

/// A message, as Discord sends it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Message {
    #[serde(deserialize_with = "snowflake")]
    pub(crate) id: PostId,
    #[serde(rename = "channel_id", deserialize_with = "snowflake")]
    channel: ChannelId,
    author: Sender,
    #[serde(default)]
    webhook_id: Option<String>,
    #[serde(rename = "type", default)]
    kind: u16,
    #[serde(default)]
    content: String,
    #[serde(default)]
    attachments: Vec<Attachment>,
    #[serde(default)]
    nonce: Option<Nonce>,
    #[serde(default)]
    referenced_message: Option<Box<Referenced>>,
    /// The author in the server; only the gateway sends it.
    #[serde(default)]
    member: Option<GuildMember>,
}

/// A message's author.
#[derive(Clone, Debug, Deserialize)]
struct Sender {
    #[serde(deserialize_with = "snowflake")]
    id: UserId,
    #[serde(default)]
    bot: bool,
    /// The user name, which is unique on Discord.
    #[serde(default)]
    username: String,
}

/// A user as a member of a server.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct GuildMember {
    #[serde(default)]
    roles: Vec<String>,
}

impl GuildMember {
    /// Returns the ids of the member's roles, without `@everyone`.
    pub(crate) fn roles(&self) -> BTreeSet<RoleId> {
        self.roles.iter().filter_map(|role| role.parse().ok()).collect()
    }
}

/// An attached file.
#[derive(Clone, Debug, Deserialize)]
struct Attachment {
    #[serde(default)]
    filename: String,
    #[serde(default)]
    url: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Referenced {
    #[serde(deserialize_with = "snowflake")]
    id: PostId,
    author: Sender,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Nonce {
    Text(String),
    Number(i64),
}

/// A channel or thread, as Discord sends it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ChannelObject {
    #[serde(deserialize_with = "snowflake")]
    id: ChannelId,
    #[serde(default)]
    guild_id: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    parent_id: Option<String>,
    #[serde(rename = "type", default)]
    kind: u16,
    #[serde(default)]
    last_message_id: Option<String>,
    #[serde(default)]
    thread_metadata: Option<ThreadMetadata>,
}

#[derive(Clone, Debug, Deserialize)]
struct ThreadMetadata {
    #[serde(default)]
    archive_timestamp: String,
}

impl ChannelObject {
    /// Returns a thread's channel; `None` for anything but a thread.
    fn parent(&self) -> Option<ChannelId> {
        // 10 to 12: threads. Other channels' parent is their category.
        matches!(self.kind, 10..=12).then(|| self.parent_id.as_ref()?.parse().ok()).flatten()
    }

    /// Returns the state of a thread; `None` for anything but a thread.
    pub(crate) fn thread(self) -> Option<ThreadState> {
        let parent = self.parent()?;
        // A thread has the id of the post that it was started from, or one made later than that.
        let since = PostId::new(self.id.number());
        let last = self.last_message_id.and_then(|id| id.parse().ok());
        let archived = self.thread_metadata.map(|known| known.archive_timestamp).unwrap_or_default();
        Some(ThreadState { id: self.id, parent, since, last, archived })
    }
}

impl From<ChannelObject> for Channel {
    fn from(place: ChannelObject) -> Self {
        let parent = place.parent();
        Self { name: place.name, parent, server: place.guild_id.and_then(|id| id.parse().ok()) }
    }
}

impl From<Message> for Post {
    fn from(sent: Message) -> Self {
        let Sender { id, bot, username } = sent.author;
        let files = sent.attachments.into_iter().map(|file| format!("[file {}] {}", file.filename, file.url));
        Self {
            id: sent.id,
            channel: sent.channel,
            author: Author { id, name: username, mention: format!("<@{id}>"), bot, webhook: sent.webhook_id },
            kind: match sent.kind {
                // 0: an ordinary message; 19: a reply.
                0 | 19 => PostKind::Said,
                // Responses to a slash command and to a context menu command.
                20 | 23 => PostKind::Response,
                _ => PostKind::Note,
            },
            at_ms: moment(sent.id),
            files: files.collect(),
            nonce: sent.nonce.map(|nonce| match nonce {
                Nonce::Text(text) => text,
                Nonce::Number(number) => number.to_string(),
            }),
            mentions: mentions(&sent.content),
            links: links(&sent.content),
            content: sent.content,
            replied: sent.referenced_message.map(|other| Replied { post: other.id, author: other.author.id }),
            roles: sent.member.as_ref().map(GuildMember::roles),
        }
    }
}

/// Returns what a text mentions with a literal `<@id>` or `<@!id>`.
fn mentions(content: &str) -> Vec<Mention> {
    let found = content.split("<@").skip(1).filter_map(|rest| {
        let (inner, _) = rest.split_once('>')?;
        let digits = inner.strip_prefix('!').unwrap_or(inner);
        let user: UserId = digits.parse().ok()?;
        // Discord writes an id in one way.
        (user.to_string() == digits).then(|| Mention { user, written: format!("<@{inner}>") })
    });
    found.collect()
}

/// Returns the channels that a text links to.
fn links(content: &str) -> Vec<ChannelId> {
    content.split("<#").skip(1).filter_map(|rest| rest.split_once('>')?.0.parse().ok()).collect()
}

/// Returns a post's time in Unix milliseconds.
pub(crate) const fn moment(post: PostId) -> u64 {
    (post.number() >> SNOWFLAKE_TIME_SHIFT) + EPOCH_MS
}

/// Returns the first id of a Unix time in milliseconds.
pub(crate) const fn first_id(unix_ms: u64) -> PostId {
    PostId::new(unix_ms.saturating_sub(EPOCH_MS) << SNOWFLAKE_TIME_SHIFT)
}

/// Parses an id; Discord sends ids as text.
fn snowflake<'de, Id: FromStr, D: serde::Deserializer<'de>>(from: D) -> Result<Id, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map_err(|_| serde::de::Error::custom(format!("{text:?} isn't a snowflake")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Post {
        serde_json::from_str::<Message>(text).unwrap().into()
    }

    #[test]
    fn a_post_is_read_as_discord_writes_it() {
        let post = read(
            r#"{"id":"175928847299117063","channel_id":"2","type":19,"content":"hi <@!5> in <#12>, <#x>","nonce":7,
            "author":{"id":"3","username":"x","bot":true},"attachments":[{"id":"1","filename":"a.txt","url":"https://x/a"}],
            "referenced_message":{"id":"9","author":{"id":"6","username":"y"}},"something":{"else":1}}"#,
        );
        let (id, channel, author) = (post.id.number(), post.channel.number(), post.author.id.number());
        assert_eq!((id, channel, author, post.author.bot), (175_928_847_299_117_063, 2, 3, true));
        assert_eq!((post.nonce.as_deref(), post.roles.is_none()), (Some("7"), true));
        assert_eq!(post.replied, Some(Replied { post: PostId::new(9), author: UserId::new(6) }));
        assert_eq!(
            post.mentions,
            [Mention { user: UserId::new(5), written: "<@!5>".into() }],
            "a reply's ping is none"
        );
        assert_eq!(post.links, [ChannelId::new(12)]);
        assert_eq!(post.files, ["[file a.txt] https://x/a"]);
        assert_eq!(post.at_ms, 1_462_015_105_796);
        assert_eq!(first_id(post.at_ms).number(), id & !0x3f_ffff);
    }

    #[test]
    fn a_mention_is_one_that_discord_writes() {
        let users = |text| mentions(text).iter().map(|one| one.user.number()).collect::<Vec<_>>();
        assert_eq!(users("<@3> and <@!2> and <@3>"), [3, 2, 3]);
        assert_eq!(users("<@&8> <@+3> <@03> <@> <@ 3> <@3"), [0; 0]);
    }

    #[test]
    fn a_message_or_reply_is_said_and_the_rest_are_responses_and_notes() {
        let kind =
            |kind: u16| read(&format!(r#"{{"id":"1","channel_id":"2","type":{kind},"author":{{"id":"3"}}}}"#)).kind;
        assert_eq!([0, 19, 20, 23].map(kind), [PostKind::Said, PostKind::Said, PostKind::Response, PostKind::Response]);
        // A pin, a join, "thread created".
        assert_eq!([6, 7, 18].map(kind), [PostKind::Note; 3]);
    }

    #[test]
    fn the_gateway_sends_an_authors_roles() {
        let text = r#"{"id":"1","channel_id":"2","author":{"id":"3","username":"ann"},"member":{"roles":["8","9"],"nick":"x"}}"#;
        assert_eq!(read(text).roles, Some([8, 9].map(RoleId::new).into()));
    }

    #[test]
    fn only_a_thread_has_a_parent() {
        let place = |kind: u16| {
            let text = format!(r#"{{"id":"1","type":{kind},"parent_id":"4","last_message_id":"6","guild_id":"5"}}"#);
            serde_json::from_str::<ChannelObject>(&text).unwrap()
        };
        assert!(place(0).thread().is_none() && Channel::from(place(0)).parent.is_none(), "its parent is its category");
        let thread = place(11).thread().unwrap();
        assert_eq!(
            (thread.parent, thread.since, thread.last),
            (ChannelId::new(4), PostId::new(1), Some(PostId::new(6)))
        );
        assert_eq!(Channel::from(place(11)).server.map(|server| server.number()), Some(5));
    }
}
