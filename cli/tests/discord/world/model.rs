//! Discord's state: one server ("guild"), its users and bots, channels and messages.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::Value;

use super::faults::{Call, Hold, InjectedError};
use super::gateway::Session;

/// A snowflake.
pub(crate) type Id = u64;

/// Discord's epoch, in milliseconds of Unix time.
pub(crate) const EPOCH_MS: u64 = 1_420_070_400_000;

/// The start of virtual time: 2026-01-01, in Unix milliseconds.
const START_MS: u64 = 1_767_225_600_000;

/// Permission bits.
pub(crate) mod may {
    pub(crate) const ADD_REACTIONS: u64 = 1 << 6;
    pub(crate) const VIEW: u64 = 1 << 10;
    pub(crate) const SEND: u64 = 1 << 11;
    pub(crate) const MANAGE_MESSAGES: u64 = 1 << 13;
    pub(crate) const EMBED: u64 = 1 << 14;
    pub(crate) const ATTACH: u64 = 1 << 15;
    pub(crate) const HISTORY: u64 = 1 << 16;
    pub(crate) const MENTION_EVERYONE: u64 = 1 << 17;
    pub(crate) const MANAGE_THREADS: u64 = 1 << 34;
    pub(crate) const CREATE_THREADS: u64 = 1 << 35;
    pub(crate) const SEND_IN_THREADS: u64 = 1 << 38;
    /// The permissions of a test's bot by default.
    pub(crate) const USUAL: u64 =
        ADD_REACTIONS | VIEW | SEND | EMBED | ATTACH | HISTORY | CREATE_THREADS | SEND_IN_THREADS;
    pub(crate) const ALL: u64 = USUAL | MANAGE_MESSAGES | MENTION_EVERYONE | MANAGE_THREADS;
}

/// Intent bits.
pub(crate) mod intent {
    pub(crate) const GUILDS: u64 = 1;
    pub(crate) const MEMBERS: u64 = 1 << 1;
    pub(crate) const PRESENCES: u64 = 1 << 8;
    pub(crate) const MESSAGES: u64 = 1 << 9;
    pub(crate) const REACTIONS: u64 = 1 << 10;
    pub(crate) const TYPING: u64 = 1 << 11;
    pub(crate) const CONTENT: u64 = 1 << 15;
    pub(crate) const PRIVILEGED: u64 = MEMBERS | PRESENCES | CONTENT;
}

/// Types of channels.
pub(crate) const TEXT: u8 = 0;
pub(crate) const PUBLIC_THREAD: u8 = 11;

/// Types of messages.
pub(crate) mod kind {
    pub(crate) const REGULAR: u8 = 0;
    pub(crate) const PIN: u8 = 6;
    pub(crate) const JOIN: u8 = 7;
    pub(crate) const THREAD_CREATED: u8 = 18;
    pub(crate) const REPLY: u8 = 19;
    pub(crate) const COMMAND: u8 = 20;
    pub(crate) const THREAD_STARTER: u8 = 21;
}

/// A named author: a human, a bot, or a webhook's display name.
#[derive(Clone, Debug)]
pub(crate) struct User {
    pub(crate) id: Id,
    pub(crate) name: String,
    pub(crate) bot: bool,
}

/// An application with its bot user, which has another id, as that of an old bot.
#[derive(Clone, Debug)]
pub(crate) struct Bot {
    pub(crate) id: Id,
    /// The application's id.
    pub(crate) application: Id,
    pub(crate) token: String,
    /// The privileged intents that its developer has enabled.
    pub(crate) privileged: u64,
    /// The permissions of its role in the guild.
    pub(crate) permissions: u64,
    /// The role's id.
    pub(crate) role: Id,
}

/// A channel, or a thread below one.
#[derive(Clone, Debug)]
pub(crate) struct Channel {
    pub(crate) id: Id,
    pub(crate) kind: u8,
    pub(crate) name: String,
    pub(crate) parent: Option<Id>,
    pub(crate) owner: Id,
    pub(crate) archived: bool,
    /// When it was last archived or reopened.
    pub(crate) archive_ms: u64,
    pub(crate) locked: bool,
    /// The members of a thread.
    pub(crate) members: BTreeSet<Id>,
    /// The permissions that are denied here, by user.
    pub(crate) denied: BTreeMap<Id, u64>,
    pub(crate) messages: Vec<Id>,
}

/// A message in its current state.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) id: Id,
    pub(crate) channel: Id,
    pub(crate) author: User,
    pub(crate) kind: u8,
    pub(crate) content: String,
    /// The users that it pings.
    pub(crate) mentions: Vec<Id>,
    pub(crate) mention_roles: Vec<Id>,
    pub(crate) mention_everyone: bool,
    pub(crate) reply_to: Option<Id>,
    pub(crate) webhook: Option<Id>,
    pub(crate) nonce: Option<Value>,
    pub(crate) embeds: Vec<Value>,
    pub(crate) components: Vec<Value>,
    pub(crate) attachments: Vec<Value>,
    pub(crate) flags: u64,
    pub(crate) edited_ms: Option<u64>,
    pub(crate) pinned: bool,
    pub(crate) deleted: bool,
    /// The users who set each emoji.
    pub(crate) reactions: BTreeMap<String, BTreeSet<Id>>,
    /// The only user that sees it, if it is an ephemeral reply to an interaction.
    pub(crate) only_for: Option<Id>,
}

impl Channel {
    /// Archives or reopens a thread.
    pub(crate) fn archive(&mut self, archived: bool, now_ms: u64) {
        if self.archived != archived {
            (self.archived, self.archive_ms) = (archived, now_ms);
        }
    }
}

impl Message {
    /// Returns its buttons' ids, in reading order.
    pub(crate) fn buttons(&self) -> Vec<String> {
        self.walk("custom_id")
    }

    /// Returns its buttons' labels.
    pub(crate) fn labels(&self) -> Vec<String> {
        self.walk("label")
    }

    fn walk(&self, member: &str) -> Vec<String> {
        let rows = self.components.iter().flat_map(|row| row["components"].as_array().into_iter().flatten());
        rows.filter(|part| part["type"] == 2).filter_map(|part| part[member].as_str().map(str::to_owned)).collect()
    }
}

/// A webhook of a channel.
#[derive(Clone, Debug)]
pub(crate) struct Webhook {
    pub(crate) id: Id,
    pub(crate) token: String,
    pub(crate) channel: Id,
    pub(crate) name: String,
}

/// A user's interaction with an application: a command, a click or a form.
#[derive(Clone, Debug)]
pub(crate) struct Interaction {
    pub(crate) id: Id,
    pub(crate) token: String,
    pub(crate) bot: Id,
    pub(crate) user: Id,
    pub(crate) channel: Id,
    /// Whether it was a command.
    pub(crate) is_command: bool,
    /// The message whose button was pressed.
    pub(crate) message: Option<Id>,
    /// Its first response: the type and the data.
    pub(crate) answered: Option<(u64, Value)>,
    /// The first message of the reply.
    pub(crate) original: Option<Id>,
    pub(crate) since: tokio::time::Instant,
}

/// The whole state.
#[derive(Debug)]
pub(crate) struct Discord {
    /// The time of which snowflakes are made; tests move it.
    pub(crate) now_ms: u64,
    /// The address on which it listens.
    pub(crate) address: String,
    ids: u64,
    pub(crate) guild: Id,
    pub(crate) users: BTreeMap<Id, User>,
    pub(crate) bots: BTreeMap<Id, Bot>,
    /// The guild's roles besides those of bots, by id: their names.
    pub(crate) roles: BTreeMap<Id, String>,
    /// The roles that each user has.
    pub(crate) appointed: BTreeMap<Id, BTreeSet<Id>>,
    pub(crate) channels: BTreeMap<Id, Channel>,
    pub(crate) messages: BTreeMap<Id, Message>,
    pub(crate) webhooks: BTreeMap<Id, Webhook>,
    pub(crate) interactions: BTreeMap<Id, Interaction>,
    /// The registered commands, by application.
    pub(crate) commands: BTreeMap<Id, Vec<Value>>,
    pub(crate) sessions: BTreeMap<String, Session>,
    /// Bots whose connections are currently refused.
    pub(crate) severed: BTreeSet<Id>,
    /// How often each bot has identified.
    pub(crate) identified: BTreeMap<Id, u32>,
    pub(crate) resumed: BTreeMap<Id, u32>,
    pub(crate) heartbeat_ms: u64,
    /// Whether heartbeats are ignored.
    pub(crate) deaf: bool,
    /// Every call to the REST interface.
    pub(crate) calls: Vec<Call>,
    pub(crate) faults: VecDeque<InjectedError>,
    pub(crate) holds: Vec<Hold>,
    /// Most posts of one bot in one channel, and the window in milliseconds.
    pub(crate) posts_per_window: (u32, u64),
    /// Most reactions of one bot in one channel, and the window in milliseconds: Discord's own limit.
    pub(crate) reactions_per_window: (u32, u64),
    /// The times of posts and reactions, by bucket.
    pub(crate) windows: BTreeMap<String, VecDeque<tokio::time::Instant>>,
}

impl Discord {
    pub(crate) fn new() -> Self {
        let mut new = Self {
            now_ms: START_MS,
            address: String::new(),
            ids: 0,
            guild: 0,
            users: BTreeMap::new(),
            bots: BTreeMap::new(),
            roles: BTreeMap::new(),
            appointed: BTreeMap::new(),
            channels: BTreeMap::new(),
            messages: BTreeMap::new(),
            webhooks: BTreeMap::new(),
            interactions: BTreeMap::new(),
            commands: BTreeMap::new(),
            sessions: BTreeMap::new(),
            severed: BTreeSet::new(),
            identified: BTreeMap::new(),
            resumed: BTreeMap::new(),
            heartbeat_ms: 41_250,
            deaf: false,
            calls: Vec::new(),
            faults: VecDeque::new(),
            holds: Vec::new(),
            posts_per_window: (1000, 1000),
            reactions_per_window: (1, 250),
            windows: BTreeMap::new(),
        };
        new.guild = new.id();
        new
    }

    /// Returns a new snowflake, a millisecond after the last.
    pub(crate) fn id(&mut self) -> Id {
        self.now_ms += 1;
        self.ids += 1;
        ((self.now_ms - EPOCH_MS) << 22) | (self.ids & 0xfff)
    }

    /// Returns the bot with this token.
    pub(crate) fn by_token(&self, token: &str) -> Option<&Bot> {
        self.bots.values().find(|bot| bot.token == token)
    }

    /// Returns a user's permissions in a channel; humans have all.
    pub(crate) fn permissions(&self, user: Id, channel: Id) -> u64 {
        let Some(bot) = self.bots.get(&user) else { return may::ALL };
        let place = self.channels.get(&channel).and_then(|c| c.parent).unwrap_or(channel);
        let denied = self.channels.get(&place).and_then(|c| c.denied.get(&user)).copied().unwrap_or(0);
        let left = bot.permissions & !denied;
        if left & may::VIEW == 0 { 0 } else { left }
    }

    /// Returns a channel's messages that everyone sees, oldest first.
    pub(crate) fn in_channel(&self, channel: Id) -> Vec<&Message> {
        let ids = self.channels.get(&channel).map(|c| c.messages.as_slice()).unwrap_or_default();
        let all = ids.iter().filter_map(|id| self.messages.get(id));
        all.filter(|message| !message.deleted && message.only_for.is_none()).collect()
    }

    /// Returns the thread started from a message, which has the message's id.
    pub(crate) fn thread_of(&self, message: Id) -> Option<&Channel> {
        self.channels.get(&message)
    }
}

/// Returns a snowflake's time, in Unix milliseconds.
pub(crate) fn time_ms(id: Id) -> u64 {
    (id >> 22) + EPOCH_MS
}
