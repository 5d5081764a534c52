//! A post, its author and its channel, as the platform reads them for the bridge.

use std::collections::BTreeSet;

use super::ids::{ChannelId, PostId, RoleId, ServerId, UserId};

/// A post.
#[derive(Clone, Debug)]
pub struct Post {
    /// Its id.
    pub id: PostId,
    /// The channel or thread that it is in.
    pub channel: ChannelId,
    /// Who made it.
    pub author: Author,
    /// Whether it is a message.
    pub kind: PostKind,
    /// When it was made, in Unix milliseconds by the platform's clock.
    pub at_ms: u64,
    /// Its text, as it was written.
    pub content: String,
    /// Its files, each by name and address.
    pub files: Vec<String>,
    /// The nonce that it was sent with, if the platform tells it.
    pub nonce: Option<String>,
    /// The users that the text itself mentions, in its order; the ping of a reply is none.
    pub mentions: Vec<Mention>,
    /// The channels that the text links to.
    pub links: Vec<ChannelId>,
    /// The post that it replies to.
    pub replied: Option<Replied>,
    /// The author's roles on the server; `None` if they weren't sent with the post.
    pub roles: Option<BTreeSet<RoleId>>,
}

/// A post's author.
#[derive(Clone, Debug)]
pub struct Author {
    /// Its user.
    pub id: UserId,
    /// The user name, which is unique on the platform.
    pub name: String,
    /// A mention of the user.
    pub mention: String,
    /// Whether the user is a bot.
    pub bot: bool,
    /// The webhook through which the post was made.
    pub webhook: Option<String>,
}

/// What a post is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostKind {
    /// A message or a reply.
    Said,
    /// A bot's response to a command.
    Response,
    /// The platform's own note, about a pin, a join or a thread.
    Note,
}

/// A mention in a post's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mention {
    /// The user.
    pub user: UserId,
    /// How the text writes it.
    pub written: String,
}

/// The post that another one replies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replied {
    /// Its id.
    pub post: PostId,
    /// Its author.
    pub author: UserId,
}

/// A person who acts; never a bot or webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    /// Its user.
    pub user: UserId,
    /// The user name.
    pub name: String,
    /// The roles on the server.
    pub roles: BTreeSet<RoleId>,
}

/// A channel or thread.
#[derive(Clone, Debug)]
pub struct Channel {
    /// Its name.
    pub name: Option<String>,
    /// A thread's channel; `None` for anything but a thread.
    pub parent: Option<ChannelId>,
    /// The server that it is on.
    pub server: Option<ServerId>,
}

/// A thread in a list of threads.
#[derive(Clone, Debug)]
pub struct ThreadState {
    /// Its id.
    pub id: ChannelId,
    /// Its channel.
    pub parent: ChannelId,
    /// A post behind which all of its posts come.
    pub since: PostId,
    /// Its last post, which may be deleted; `None` if the platform doesn't tell.
    pub last: Option<PostId>,
    /// When it was last archived or reopened, as an RFC 3339 text that sorts by time.
    pub archived: String,
}

impl Post {
    /// Returns whether a program made the post.
    pub(crate) const fn is_automatic(&self) -> bool {
        self.author.bot || self.author.webhook.is_some()
    }

    /// Returns the author, unless it is a bot or webhook.
    pub(crate) fn person(&self) -> Option<Person> {
        let roles = self.roles.clone().unwrap_or_default();
        (!self.is_automatic()).then(|| Person { user: self.author.id, name: self.author.name.clone(), roles })
    }

    /// Returns whether a human wrote the post.
    pub(crate) const fn is_said(&self) -> bool {
        matches!(self.kind, PostKind::Said)
    }

    /// Returns whether a bot wrote the post; a bot may also respond to a command.
    pub(crate) const fn is_written(&self) -> bool {
        matches!(self.kind, PostKind::Said | PostKind::Response)
    }

    /// Returns the text, with each file on a line of its own.
    pub(crate) fn text(&self) -> String {
        let text = Some(&self.content).filter(|content| !content.is_empty());
        text.into_iter().chain(&self.files).map(String::as_str).collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.content.trim().is_empty() && self.files.is_empty()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::dialect::tests::PLAIN;
    use super::*;

    /// Returns a post made at a time in milliseconds.
    pub(crate) fn post(at_ms: u64, channel: ChannelId, author: UserId, bot: bool, content: &str) -> Post {
        let users = content.split("<@").skip(1).filter_map(|rest| rest.split_once('>')?.0.parse().ok());
        Post {
            id: PostId::new((at_ms << 8) | author.number()),
            channel,
            author: Author { id: author, name: String::new(), mention: (PLAIN.user)(author), bot, webhook: None },
            kind: PostKind::Said,
            at_ms,
            content: content.into(),
            files: Vec::new(),
            nonce: None,
            mentions: users.map(|user| Mention { user, written: (PLAIN.user)(user) }).collect(),
            links: Vec::new(),
            replied: None,
            roles: None,
        }
    }

    pub(crate) fn reply_to(mut post: Post, author: UserId) -> Post {
        post.replied = Some(Replied { post: PostId::new(9), author });
        post
    }

    #[test]
    fn a_text_names_its_files() {
        let mut said = post(1, ChannelId::new(2), UserId::new(3), false, "hi");
        said.files.push("[file a.txt] https://x/a".into());
        assert_eq!(said.text(), "hi\n[file a.txt] https://x/a");
        said.content = " ".into();
        assert!(!said.is_empty());
        said.files.clear();
        assert!(said.is_empty());
    }

    #[test]
    fn only_a_person_acts_as_one() {
        let mut said = post(1, ChannelId::new(2), UserId::new(3), false, "hi");
        said.roles = Some([RoleId::new(8)].into());
        let person = Person { user: UserId::new(3), name: String::new(), roles: [RoleId::new(8)].into() };
        assert_eq!(said.person(), Some(person));
        said.author.webhook = Some("4".into());
        assert_eq!(said.person(), None);
        (said.author.webhook, said.author.bot) = (None, true);
        assert_eq!(said.person(), None);
    }
}
