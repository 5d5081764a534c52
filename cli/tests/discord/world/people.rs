//! What tests do as users: creates them, and acts for them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::TestDiscord;
use super::json as object;
use super::model::{Bot, Channel, Discord, Id, Interaction, TEXT, User, Webhook, intent, kind, may};
use super::posting::Draft;
use super::rest::{pinned, reacts};

impl Discord {
    fn user(&mut self, name: &str, bot: bool) -> Id {
        let id = self.id();
        self.users.insert(id, User { id, name: name.to_owned(), bot });
        id
    }

    pub(crate) fn webhook(&mut self, channel: Id, name: &str) -> Id {
        let id = self.id();
        let webhook = Webhook { id, token: format!("hook-{id}"), channel, name: name.to_owned() };
        self.webhooks.insert(id, webhook);
        id
    }

    /// Creates an interaction and sends it to the application.
    fn interact(&mut self, bot: Id, user: Id, channel: Id, message: Option<Id>, kind: u8, data: &Value) -> Id {
        let id = self.id();
        let token = format!("interaction-{id}");
        let since = tokio::time::Instant::now();
        let of = Interaction {
            id,
            token: token.clone(),
            bot,
            user,
            channel,
            is_command: kind == 2,
            message,
            answered: None,
            original: None,
            since,
        };
        self.interactions.insert(id, of);
        let mut member = self.users.get(&user).map(|of| object::full_member(self, of)).unwrap_or_default();
        member["permissions"] = json!(may::ALL.to_string());
        let mut value = json!({
            "id": id.to_string(), "application_id": self.bots[&bot].application.to_string(), "type": kind, "data": data, "token": token,
            "version": 1, "guild_id": self.guild.to_string(), "channel_id": channel.to_string(),
            "channel": object::channel(self, channel, Some(bot)), "member": member, "locale": "en-US",
            "guild_locale": "en-US", "entitlements": [], "context": 0, "attachment_size_limit": 10_485_760,
            "authorizing_integration_owners": {"0": self.guild.to_string()},
            "app_permissions": self.permissions(bot, channel).to_string(),
            "guild": {"id": self.guild.to_string(), "locale": "en-US", "features": []},
        });
        if let Some(message) = message.and_then(|id| self.messages.get(&id)) {
            value["message"] = object::message(self, message, bot, intent::CONTENT);
        }
        self.tell("INTERACTION_CREATE", None, 0, |_, to, _| Some(value.clone()).filter(|_| to == bot));
        id
    }
}

/// Creates users, bots and channels.
impl TestDiscord {
    /// Creates a human.
    pub(crate) fn human(&self, name: &str) -> Id {
        self.with(|discord| discord.user(name, false))
    }

    /// Creates a bot with every privileged intent and the usual permissions; its token is `token-NAME`.
    pub(crate) fn bot(&self, name: &str) -> Id {
        self.with(|discord| {
            let id = discord.user(name, true);
            let role = discord.id();
            let token = format!("token-{name}");
            let application = discord.id();
            let bot = Bot { id, application, token, privileged: intent::PRIVILEGED, permissions: may::USUAL, role };
            discord.bots.insert(id, bot);
            id
        })
    }

    /// Creates a role of the guild.
    pub(crate) fn role(&self, name: &str) -> Id {
        self.with(|discord| {
            let id = discord.id();
            discord.roles.insert(id, name.to_owned());
            id
        })
    }

    /// Gives a user a role.
    pub(crate) fn appoints(&self, user: Id, role: Id) {
        self.with(|discord| discord.appointed.entry(user).or_default().insert(role));
    }

    /// Takes every role from a user.
    pub(crate) fn dismisses(&self, user: Id) {
        self.with(|discord| discord.appointed.remove(&user));
    }

    /// Takes a privileged intent from a bot, as on its developer's page.
    pub(crate) fn without_intent(&self, bot: Id, intent: u64) {
        self.with(|discord| discord.bots.get_mut(&bot).unwrap().privileged &= !intent);
    }

    /// Takes a permission from a bot in a channel.
    pub(crate) fn deny(&self, bot: Id, channel: Id, what: u64) {
        self.with(|discord| *discord.channels.get_mut(&channel).unwrap().denied.entry(bot).or_default() |= what);
    }

    /// Invalidates a bot's token and ends its sessions.
    pub(crate) fn revoke(&self, bot: Id) {
        self.with(|discord| discord.bots.get_mut(&bot).unwrap().token = "another".to_owned());
        self.close(bot, 4004);
    }

    /// Creates a text channel.
    pub(crate) fn channel(&self, name: &str) -> Id {
        self.with(|discord| {
            let id = discord.id();
            let channel = Channel {
                id,
                kind: TEXT,
                name: name.to_owned(),
                parent: None,
                owner: 1,
                archived: false,
                archive_ms: 0,
                locked: false,
                members: BTreeSet::new(),
                denied: BTreeMap::new(),
                messages: Vec::new(),
            };
            discord.channels.insert(id, channel);
            id
        })
    }

    /// Creates a webhook of a channel.
    pub(crate) fn webhook(&self, channel: Id, name: &str) -> Id {
        self.with(|discord| discord.webhook(channel, name))
    }
}

/// Acts as users.
impl TestDiscord {
    /// Posts as a human or a foreign bot.
    pub(crate) fn posts(&self, user: Id, channel: Id, content: &str) -> Id {
        self.post(user, channel, |_| {}, content)
    }

    /// Posts a reply, which pings its recipient.
    pub(crate) fn replies(&self, user: Id, to: Id, content: &str) -> Id {
        let channel = self.with(|discord| discord.messages[&to].channel);
        self.post(user, channel, |draft| draft.reply_to = Some(to), content)
    }

    /// Posts a picture as a human, with or without text.
    pub(crate) fn posts_file(&self, user: Id, channel: Id, content: &str, name: &str) -> Id {
        let address = &self.http();
        let file = json!({
            "id": "1", "filename": name, "size": 1, "url": format!("{address}/{name}"),
            "proxy_url": format!("{address}/{name}"), "content_type": "image/png", "height": 1, "width": 1,
        });
        self.post(user, channel, |draft| draft.attachments.push(file), content)
    }

    /// Posts a message of the system: a join, a pin, a thread's start.
    pub(crate) fn system(&self, user: Id, channel: Id, kind: u8) -> Id {
        assert!(kind != kind::REGULAR && kind != kind::REPLY, "such a message somebody writes");
        self.post(user, channel, |draft| draft.kind = kind, "")
    }

    fn post(&self, user: Id, channel: Id, with: impl FnOnce(&mut Draft), content: &str) -> Id {
        self.with(|discord| {
            assert!(discord.permissions(user, channel) & may::VIEW != 0, "it does not see the channel");
            let mut draft = Draft::of(discord.users[&user].clone(), channel, content);
            with(&mut draft);
            discord.post(draft)
        })
    }

    /// Posts through a webhook under a display name.
    pub(crate) fn hook_posts(&self, webhook: Id, guise: &str, content: &str) -> Id {
        self.with(|discord| {
            let channel = discord.webhooks[&webhook].channel;
            let author = User { id: webhook, name: guise.to_owned(), bot: true };
            discord.post(Draft { webhook: Some(webhook), ..Draft::of(author, channel, content) })
        })
    }

    /// Posts a copy of a message, buttons included.
    pub(crate) fn copies(&self, message: Id) -> Id {
        self.with(|discord| {
            let of = discord.messages[&message].clone();
            let draft = Draft::of(of.author, of.channel, &of.content);
            discord.post(Draft { components: of.components, ..draft })
        })
    }

    /// Edits a message.
    pub(crate) fn edits(&self, message: Id, content: &str) {
        self.with(|discord| discord.edit(message, Some(content), None, None));
    }

    /// Deletes a message.
    pub(crate) fn deletes(&self, message: Id) {
        self.with(|discord| discord.delete(message));
    }

    /// Pins a message.
    pub(crate) fn pins(&self, user: Id, message: Id) {
        self.with(|discord| pinned(discord, message, user));
    }

    /// Reacts to a message.
    pub(crate) fn reacts(&self, user: Id, message: Id, emoji: &str) {
        self.with(|discord| reacts(discord, message, user, emoji, true));
    }

    /// Starts a thread from a message.
    pub(crate) fn opens_thread(&self, user: Id, message: Id, name: &str) -> Id {
        self.with(|discord| {
            let parent = discord.messages[&message].channel;
            discord.open_thread(parent, Some(message), name, user)
        })
    }

    /// Archives a thread.
    pub(crate) fn archives(&self, thread: Id) {
        self.with(|discord| {
            let now = discord.now_ms;
            discord.channels.get_mut(&thread).unwrap().archive(true, now);
        });
    }

    /// Presses a button; returns the interaction.
    pub(crate) fn clicks(&self, user: Id, message: Id, button: &str) -> Id {
        self.with(|discord| {
            let of = &discord.messages[&message];
            assert!(of.buttons().iter().any(|id| id == button), "no button {button} in {:?}", of.buttons());
            let (bot, channel) = (of.author.id, of.channel);
            let data = json!({"custom_id": button, "component_type": 2});
            discord.interact(bot, user, channel, Some(message), 3, &data)
        })
    }

    /// Submits the form that answered an interaction; returns the new interaction.
    pub(crate) fn submits(&self, opened_by: Id, fields: &[(&str, &str)]) -> Id {
        self.with(|discord| {
            let of = discord.interactions[&opened_by].clone();
            let Some((9, form)) = &of.answered else { panic!("answered with {:?}, no form", of.answered) };
            let asked = form.to_string();
            let missing = fields.iter().find(|(id, _)| !asked.contains(&format!("\"custom_id\":\"{id}\"")));
            assert!(missing.is_none(), "the form has no {missing:?}: {asked}");
            let input = |(id, value): &(&str, &str)| json!({"type": 4, "id": 1, "custom_id": id, "value": value});
            let rows = fields.iter().map(|field| json!({"type": 1, "id": 1, "components": [input(field)]}));
            let data = json!({"custom_id": form["custom_id"], "components": rows.collect::<Vec<_>>()});
            discord.interact(of.bot, of.user, of.channel, of.message, 5, &data)
        })
    }

    /// Gives a bot's command, such as `lastword status`, with options; returns the interaction.
    pub(crate) fn commands(&self, user: Id, bot: Id, channel: Id, command: &str, options: &[(&str, &str)]) -> Id {
        self.with(|discord| {
            let (name, sub) = command.split_once(' ').unwrap_or((command, ""));
            let registered = discord.commands.get(&bot).into_iter().flatten().find(|c| c["name"] == name);
            let registered = registered.unwrap_or_else(|| panic!("{name} is not registered")).clone();
            let options: Vec<Value> =
                options.iter().map(|(name, value)| json!({"type": 3, "name": name, "value": value})).collect();
            let options = if sub.is_empty() {
                options
            } else {
                let subs = registered["options"].as_array().unwrap();
                assert!(subs.iter().any(|s| s["name"] == sub), "{name} has no {sub}");
                vec![json!({"type": 1, "name": sub, "options": options})]
            };
            let data = json!({
                "id": registered["id"], "name": name, "type": 1, "options": options,
                "guild_id": discord.guild.to_string(),
            });
            discord.interact(bot, user, channel, None, 2, &data)
        })
    }
}
