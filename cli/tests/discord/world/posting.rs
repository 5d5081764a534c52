//! How messages and threads are created and changed.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::json;
use super::model::{Channel, Discord, Id, Message, PUBLIC_THREAD, User, intent, kind, may, time_ms};

/// How long Discord remembers a nonce: "a few minutes".
const NONCE_MS: u64 = 300_000;

/// Which users a message may ping.
#[derive(Clone, Debug)]
pub(crate) enum Pings {
    /// Everyone whom its text names or whom it replies to.
    All,
    /// As its `allowed_mentions` say.
    As(Value),
}

/// A message about to be posted.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) author: User,
    pub(crate) channel: Id,
    pub(crate) kind: u8,
    pub(crate) content: String,
    pub(crate) pings: Pings,
    pub(crate) reply_to: Option<Id>,
    pub(crate) webhook: Option<Id>,
    pub(crate) nonce: Option<Value>,
    /// Whether the same nonce returns the same message (`enforce_nonce`).
    pub(crate) once: bool,
    pub(crate) embeds: Vec<Value>,
    pub(crate) components: Vec<Value>,
    pub(crate) attachments: Vec<Value>,
    pub(crate) flags: u64,
    pub(crate) only_for: Option<Id>,
}

impl Draft {
    pub(crate) fn of(author: User, channel: Id, content: &str) -> Self {
        Self {
            author,
            channel,
            kind: kind::REGULAR,
            content: content.to_owned(),
            pings: Pings::All,
            reply_to: None,
            webhook: None,
            nonce: None,
            once: false,
            embeds: Vec::new(),
            components: Vec::new(),
            attachments: Vec::new(),
            flags: 0,
            only_for: None,
        }
    }
}

impl Discord {
    /// Posts it, or returns the message that the same nonce created.
    pub(crate) fn post(&mut self, draft: Draft) -> Id {
        if let Some(same) = self.posted_before(&draft) {
            return same;
        }
        let (mentions, mention_roles, mention_everyone) = self.pinged(&draft);
        let id = self.id();
        let message = Message {
            id,
            channel: draft.channel,
            author: draft.author,
            kind: if draft.reply_to.is_some() { kind::REPLY } else { draft.kind },
            content: draft.content,
            mentions,
            mention_roles,
            mention_everyone,
            reply_to: draft.reply_to,
            webhook: draft.webhook,
            nonce: draft.nonce,
            embeds: draft.embeds,
            components: draft.components,
            attachments: draft.attachments,
            flags: draft.flags,
            edited_ms: None,
            pinned: false,
            deleted: false,
            reactions: BTreeMap::new(),
            only_for: draft.only_for,
        };
        if let Some(channel) = self.channels.get_mut(&message.channel) {
            channel.messages.push(id);
            channel.archive(false, time_ms(id));
            if channel.kind == PUBLIC_THREAD {
                channel.members.insert(message.author.id);
            }
        }
        let hidden = message.only_for.is_some();
        self.messages.insert(id, message);
        if !hidden {
            self.tell_message("MESSAGE_CREATE", id);
        }
        id
    }

    fn posted_before(&self, draft: &Draft) -> Option<Id> {
        let nonce = draft.nonce.as_ref().filter(|_| draft.once)?;
        let channel = self.channels.get(&draft.channel)?;
        let ours = |id: &&Id| {
            let message = self.messages.get(id);
            message.is_some_and(|m| m.author.id == draft.author.id && m.nonce.as_ref() == Some(nonce))
        };
        let recent = |id: &&Id| time_ms(**id) + NONCE_MS > self.now_ms;
        channel.messages.iter().rev().take_while(recent).find(ours).copied()
    }

    /// Returns whom the message pings: users, roles, everyone.
    fn pinged(&self, draft: &Draft) -> (Vec<Id>, Vec<Id>, bool) {
        let named = |from: &str| -> Vec<Id> {
            let parts = draft.content.split(from).skip(1);
            let ids = parts.filter_map(|part| part.split_once('>')?.0.trim_start_matches('!').parse().ok());
            ids.collect::<BTreeSet<Id>>().into_iter().collect()
        };
        let loud = draft.content.contains("@everyone") || draft.content.contains("@here");
        let loud = loud && self.permissions(draft.author.id, draft.channel) & may::MENTION_EVERYONE != 0;
        let mut users: Vec<Id> = named("<@").into_iter().filter(|id| self.users.contains_key(id)).collect();
        let mut roles: Vec<Id> = named("<@&");
        let replied = draft.reply_to.and_then(|id| self.messages.get(&id)).map(|m| m.author.id);
        let Pings::As(allowed) = &draft.pings else {
            users.extend(replied.filter(|id| !users.contains(id)));
            return (users, roles, loud);
        };
        let listed = |what: &str, id: Id| {
            let list = allowed[what].as_array();
            list.is_some_and(|list| list.iter().any(|entry| json::id(entry) == Some(id)))
        };
        let parsed = |what: &str| allowed["parse"].as_array().is_some_and(|parse| parse.iter().any(|p| p == what));
        users.retain(|id| parsed("users") || listed("users", *id));
        roles.retain(|id| parsed("roles") || listed("roles", *id));
        if allowed["replied_user"] == true {
            users.extend(replied.filter(|id| !users.contains(id)));
        }
        (users, roles, loud && parsed("everyone"))
    }

    /// Starts a thread: from a message, whose id it takes, or without one.
    pub(crate) fn open_thread(&mut self, parent: Id, from: Option<Id>, name: &str, owner: Id) -> Id {
        let id = from.unwrap_or_else(|| self.id());
        let thread = Channel {
            id,
            kind: PUBLIC_THREAD,
            name: name.to_owned(),
            parent: Some(parent),
            owner,
            archived: false,
            archive_ms: self.now_ms,
            locked: false,
            members: BTreeSet::from([owner]),
            denied: BTreeMap::new(),
            messages: Vec::new(),
        };
        self.channels.insert(id, thread);
        self.tell("THREAD_CREATE", Some(id), intent::GUILDS, |discord, bot, _| {
            let mut value = json::channel(discord, id, Some(bot));
            value["newly_created"] = json!(true);
            Some(value)
        });
        // Discord announces the thread by a system message in the channel or in the thread.
        let opener = self.users.get(&owner).cloned();
        if let Some(author) = opener {
            let (place, kind) =
                if from.is_some() { (id, kind::THREAD_STARTER) } else { (parent, kind::THREAD_CREATED) };
            let content = if from.is_some() { "" } else { name };
            self.post(Draft { kind, ..Draft::of(author, place, content) });
        }
        id
    }

    /// Changes a message's text and components, if given.
    pub(crate) fn edit(&mut self, id: Id, content: Option<&str>, embeds: Option<&Value>, components: Option<&Value>) {
        let now = self.now_ms;
        let Some(message) = self.messages.get_mut(&id) else { return };
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        if let Some(content) = content {
            content.clone_into(&mut message.content);
        }
        if let Some(embeds) = embeds {
            message.embeds = list(embeds);
        }
        if let Some(components) = components {
            message.components = list(components);
        }
        message.edited_ms = Some(now);
        if message.only_for.is_none() {
            self.tell_message("MESSAGE_UPDATE", id);
        }
    }

    /// Deletes a message.
    pub(crate) fn delete(&mut self, id: Id) {
        let Some(message) = self.messages.get_mut(&id) else { return };
        message.deleted = true;
        let (channel, guild) = (message.channel, self.guild);
        self.tell("MESSAGE_DELETE", Some(channel), intent::MESSAGES, |_, _, _| {
            Some(json!({"id": id.to_string(), "channel_id": channel.to_string(), "guild_id": guild.to_string()}))
        });
    }
}
