//! Channels and threads.

use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Answer, Caller, Discord, No, Reply, number, payload};
use crate::world::Shared;
use crate::world::json as object;
use crate::world::model::{Channel, Id, PUBLIC_THREAD, TEXT, intent, may};

/// Checks that the channel exists and the bot has these permissions in it.
pub(crate) fn place(discord: &Discord, bot: Id, channel: Id, what: u64) -> Result<(), No> {
    if !discord.channels.contains_key(&channel) {
        return Err(No::unknown(10003, "Channel"));
    }
    let held = discord.permissions(bot, channel);
    if held & may::VIEW == 0 {
        return Err(No::access());
    }
    if held & what == what { Ok(()) } else { Err(No::permissions()) }
}

pub(crate) async fn one(State(shared): State<Shared>, Caller(bot): Caller, Path(channel): Path<String>) -> Answer {
    let id = number(&channel)?;
    shared.with(|discord| {
        place(discord, bot, id, may::VIEW)?;
        Ok(Reply(object::channel(discord, id, Some(bot))))
    })
}

/// Archives, reopens or renames a thread.
pub(crate) async fn change(
    State(shared): State<Shared>,
    Caller(bot): Caller,
    Path(channel): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let id = number(&channel)?;
    let change = payload(&headers, &body)?;
    shared.with(|discord| {
        let own = discord.channels.get(&id).is_some_and(|c| c.owner == bot);
        place(discord, bot, id, if own { may::VIEW } else { may::MANAGE_THREADS })?;
        let now = discord.now_ms;
        if let Some(channel) = discord.channels.get_mut(&id) {
            channel.archive(change["archived"].as_bool().unwrap_or(channel.archived), now);
            channel.locked = change["locked"].as_bool().unwrap_or(channel.locked);
            if let Some(name) = change["name"].as_str() {
                name.clone_into(&mut channel.name);
            }
        }
        discord.tell("THREAD_UPDATE", Some(id), intent::GUILDS, |discord, bot, _| {
            Some(object::channel(discord, id, Some(bot)))
        });
        Ok(Reply(object::channel(discord, id, Some(bot))))
    })
}

/// Parses a thread's name: 1 to 100 characters.
fn name(body: &Value) -> Result<String, No> {
    let name = body["name"].as_str().unwrap_or_default().trim();
    match name.chars().count() {
        1..=100 => Ok(name.to_owned()),
        0 => Err(No::form("name", "BASE_TYPE_REQUIRED", "This field is required")),
        _ => Err(No::form("name", "BASE_TYPE_BAD_LENGTH", "Must be between 1 and 100 in length.")),
    }
}

pub(crate) async fn thread_from(
    State(shared): State<Shared>,
    Caller(bot): Caller,
    Path((channel, message)): Path<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let (parent, from) = (number(&channel)?, number(&message)?);
    let name = name(&payload(&headers, &body)?)?;
    shared.with(|discord| {
        place(discord, bot, parent, may::CREATE_THREADS)?;
        if !discord.in_channel(parent).iter().any(|m| m.id == from) {
            return Err(No::unknown(10008, "Message"));
        }
        if discord.channels.get(&parent).is_some_and(|c| c.kind != TEXT) {
            return Err(No::new(400, 50024, "Cannot execute action on this channel type"));
        }
        if discord.thread_of(from).is_some() {
            return Err(No::new(400, 160_004, "A thread has already been created for this message"));
        }
        let id = discord.open_thread(parent, Some(from), &name, bot);
        Ok(Reply(object::channel(discord, id, Some(bot))))
    })
}

pub(crate) async fn thread(
    State(shared): State<Shared>,
    Caller(bot): Caller,
    Path(channel): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let parent = number(&channel)?;
    let body = payload(&headers, &body)?;
    let name = name(&body)?;
    if body["type"] != PUBLIC_THREAD {
        return Err(No::form("type", "BASE_TYPE_CHOICES", "This world has public threads only."));
    }
    shared.with(|discord| {
        place(discord, bot, parent, may::CREATE_THREADS)?;
        let id = discord.open_thread(parent, None, &name, bot);
        Ok(Reply(object::channel(discord, id, Some(bot))))
    })
}

/// The page of archived threads to return.
#[derive(Debug, Deserialize)]
pub(crate) struct Page {
    before: Option<String>,
    limit: Option<usize>,
}

/// Lists archived threads, the last archived first.
pub(crate) async fn archived(
    State(shared): State<Shared>,
    Caller(bot): Caller,
    Path(channel): Path<String>,
    Query(page): Query<Page>,
) -> Answer {
    let parent = number(&channel)?;
    shared.with(|discord| {
        place(discord, bot, parent, may::HISTORY)?;
        let earlier = |c: &&Channel| {
            page.before.as_ref().is_none_or(|before| object::time(c.archive_ms).as_str() < before.as_str())
        };
        let closed = discord.channels.values().filter(|c| c.parent == Some(parent) && c.archived);
        let mut closed: Vec<&Channel> = closed.filter(earlier).collect();
        closed.sort_by_key(|c| std::cmp::Reverse(c.archive_ms));
        let most = page.limit.unwrap_or(50);
        let threads: Vec<Value> = closed.iter().take(most).map(|c| object::channel(discord, c.id, Some(bot))).collect();
        Ok(Reply(json!({"threads": threads, "members": [], "has_more": closed.len() > most})))
    })
}

pub(crate) async fn join(State(shared): State<Shared>, Caller(bot): Caller, Path(channel): Path<String>) -> Answer {
    membership(&shared, bot, &channel, true)
}

pub(crate) async fn leave(State(shared): State<Shared>, Caller(bot): Caller, Path(channel): Path<String>) -> Answer {
    membership(&shared, bot, &channel, false)
}

fn membership(shared: &Shared, bot: Id, channel: &str, inside: bool) -> Answer {
    let id = number(channel)?;
    shared.with(|discord| {
        place(discord, bot, id, may::VIEW)?;
        let thread = discord.channels.get_mut(&id).filter(|c| c.kind == PUBLIC_THREAD);
        let thread = thread.ok_or_else(|| No::new(400, 50024, "Cannot execute action on this channel type"))?;
        if inside {
            thread.members.insert(bot)
        } else {
            thread.members.remove(&bot)
        };
        Ok(Reply(Value::Null))
    })
}

pub(crate) async fn typing(State(shared): State<Shared>, Caller(bot): Caller, Path(channel): Path<String>) -> Answer {
    let id = number(&channel)?;
    shared.with(|discord| {
        place(discord, bot, id, may::SEND)?;
        let (guild, at) = (discord.guild, discord.now_ms / 1000);
        discord.tell("TYPING_START", Some(id), intent::TYPING, |discord, _, _| {
            Some(json!({
                "channel_id": id.to_string(), "guild_id": guild.to_string(), "user_id": bot.to_string(), "timestamp": at,
                "member": discord.users.get(&bot).map(|user| object::full_member(discord, user)),
            }))
        });
        Ok(Reply(Value::Null))
    })
}
