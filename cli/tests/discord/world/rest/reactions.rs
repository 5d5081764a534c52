//! Reactions to messages.

use axum::extract::{Path, State};
use serde_json::{Value, json};

use super::messages::seen;
use super::{Answer, Caller, Discord, Reply};
use crate::world::Shared;
use crate::world::json as object;
use crate::world::model::{Id, intent, may};

/// Adds or removes a reaction, and sends the event.
pub(crate) fn reacts(discord: &mut Discord, message: Id, user: Id, emoji: &str, on: bool) {
    let Some(of) = discord.messages.get_mut(&message) else { return };
    let (channel, author) = (of.channel, of.author.id);
    let by = of.reactions.entry(emoji.to_owned()).or_default();
    let changed = if on { by.insert(user) } else { by.remove(&user) };
    of.reactions.retain(|_, by| !by.is_empty());
    if !changed {
        return;
    }
    let name = if on { "MESSAGE_REACTION_ADD" } else { "MESSAGE_REACTION_REMOVE" };
    let guild = discord.guild.to_string();
    let emoji = emoji.to_owned();
    discord.tell(name, Some(channel), intent::REACTIONS, |discord, _, _| {
        Some(json!({
            "user_id": user.to_string(), "channel_id": channel.to_string(), "message_id": message.to_string(),
            "guild_id": guild, "emoji": {"id": null, "name": emoji}, "burst": false, "type": 0,
            "message_author_id": author.to_string(),
            "member": discord.users.get(&user).map(|user| object::full_member(discord, user)),
        }))
    });
}

pub(crate) async fn set(
    State(shared): State<Shared>,
    Caller(bot): Caller,
    Path((channel, message, emoji)): Path<(String, String, String)>,
) -> Answer {
    shared.with(|discord| {
        let id = seen(discord, bot, &channel, &message, may::ADD_REACTIONS | may::HISTORY)?;
        reacts(discord, id, bot, &emoji, true);
        Ok(Reply(Value::Null))
    })
}

pub(crate) async fn unset(
    State(shared): State<Shared>,
    Caller(bot): Caller,
    Path((channel, message, emoji)): Path<(String, String, String)>,
) -> Answer {
    shared.with(|discord| {
        let id = seen(discord, bot, &channel, &message, may::HISTORY)?;
        reacts(discord, id, bot, &emoji, false);
        Ok(Reply(Value::Null))
    })
}

pub(crate) async fn list(
    State(shared): State<Shared>,
    Caller(bot): Caller,
    Path((channel, message, emoji)): Path<(String, String, String)>,
) -> Answer {
    shared.with(|discord| {
        let id = seen(discord, bot, &channel, &message, may::HISTORY)?;
        let by = discord.messages.get(&id).and_then(|m| m.reactions.get(&emoji));
        let users = by.into_iter().flatten().filter_map(|id| discord.users.get(id));
        Ok(Reply(users.map(object::user).collect()))
    })
}
