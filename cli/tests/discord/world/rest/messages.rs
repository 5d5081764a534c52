//! Messages of channels and threads.

use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use serde::Deserialize;
use serde_json::{Value, json};

use super::channels::place;
use super::{Answer, Caller, Discord, No, Reply, file, number, payload};
use crate::world::Shared;
use crate::world::form;
use crate::world::json as object;
use crate::world::model::{Id, Message, PUBLIC_THREAD, intent, kind, may};
use crate::world::posting::Draft;

/// The page of messages to return.
#[derive(Debug, Deserialize)]
pub(crate) struct Page {
    before: Option<Id>,
    after: Option<Id>,
    around: Option<Id>,
    limit: Option<usize>,
}

/// Returns the message's id if the bot sees it.
pub(crate) fn seen(discord: &Discord, bot: Id, channel: &str, message: &str, what: u64) -> Result<Id, No> {
    let (channel, message) = (number(channel)?, number(message)?);
    place(discord, bot, channel, what)?;
    let found = discord.in_channel(channel).into_iter().find(|m| m.id == message);
    found.map(|m| m.id).ok_or_else(|| No::unknown(10008, "Message"))
}

/// Returns a message as the REST interface shows it: with all that the application may read, whatever its session's
/// intents.
pub(crate) fn shown(discord: &Discord, id: Id, bot: Id) -> Value {
    discord.messages.get(&id).map_or(Value::Null, |m| object::message(discord, m, bot, intent::CONTENT))
}

pub(crate) async fn one(
    State(shared): State<Shared>,
    Caller(bot): Caller,
    Path((channel, message)): Path<(String, String)>,
) -> Answer {
    shared.with(|discord| {
        let id = seen(discord, bot, &channel, &message, may::HISTORY)?;
        Ok(Reply(shown(discord, id, bot)))
    })
}

/// Lists messages newest first, like Discord; with `after`, the oldest of those, newest first.
pub(crate) async fn list(
    State(shared): State<Shared>,
    Caller(bot): Caller,
    Path(channel): Path<String>,
    Query(page): Query<Page>,
) -> Answer {
    let channel = number(&channel)?;
    let limit = page.limit.unwrap_or(50);
    if !(1..=100).contains(&limit) {
        return Err(No::form("limit", "NUMBER_TYPE_MAX", "int value should be between 1 and 100."));
    }
    shared.with(|discord| {
        place(discord, bot, channel, may::VIEW)?;
        // Without the permission for the history the list is empty, without an error.
        if discord.permissions(bot, channel) & may::HISTORY == 0 {
            return Ok(Reply(json!([])));
        }
        let all = discord.in_channel(channel);
        let mut part: Vec<&Message> = match (page.after, page.before, page.around) {
            (Some(after), _, _) => all.into_iter().filter(|m| m.id > after).take(limit).collect(),
            (None, Some(before), _) => newest(all.into_iter().filter(|m| m.id < before).collect(), limit),
            (None, None, Some(id)) => {
                let place = all.iter().take_while(|m| m.id < id).count();
                all.into_iter().skip(place.saturating_sub(limit / 2)).take(limit).collect()
            }
            (None, None, None) => newest(all, limit),
        };
        part.reverse();
        Ok(Reply(part.into_iter().map(|m| object::message(discord, m, bot, intent::CONTENT)).collect()))
    })
}

fn newest(mut all: Vec<&Message>, limit: usize) -> Vec<&Message> {
    let from = all.len().saturating_sub(limit);
    all.split_off(from)
}

pub(crate) async fn create(
    State(shared): State<Shared>,
    Caller(bot): Caller,
    Path(channel): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let channel = number(&channel)?;
    let file = file(&headers, &body);
    let body = payload(&headers, &body)?;
    shared.with(|discord| {
        let thread = discord.channels.get(&channel).is_some_and(|c| c.kind == PUBLIC_THREAD);
        place(discord, bot, channel, if thread { may::SEND_IN_THREADS } else { may::SEND })?;
        if discord.channels.get(&channel).is_some_and(|c| c.locked) {
            return Err(No::new(400, 50083, "Thread is archived"));
        }
        if file.is_some() {
            place(discord, bot, channel, may::ATTACH)?;
        }
        let author = discord.users.get(&bot).cloned().ok_or_else(No::access)?;
        let mut draft = form::draft(author, channel, &body)?;
        draft.attachments.extend(file);
        let known = |id: &Id| discord.in_channel(channel).iter().any(|m| m.id == *id);
        if draft.reply_to.is_some_and(|id| !known(&id)) {
            if body["message_reference"]["fail_if_not_exists"] != false {
                return Err(No::form("message_reference", "REPLIES_UNKNOWN_MESSAGE", "Unknown message"));
            }
            draft.reply_to = None;
        }
        let id = discord.post(draft);
        Ok(Reply(shown(discord, id, bot)))
    })
}

pub(crate) async fn edit(
    State(shared): State<Shared>,
    Caller(bot): Caller,
    Path((channel, message)): Path<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let body = payload(&headers, &body)?;
    shared.with(|discord| {
        let id = seen(discord, bot, &channel, &message, may::VIEW)?;
        let ours = discord.messages.get(&id).is_some_and(|m| m.author.id == bot && m.webhook.is_none());
        if !ours {
            return Err(No::new(403, 50005, "Cannot edit a message authored by another user"));
        }
        change(discord, id, &body)?;
        Ok(Reply(shown(discord, id, bot)))
    })
}

/// Changes the given members.
pub(crate) fn change(discord: &mut Discord, id: Id, body: &Value) -> Result<(), No> {
    form::check(body)?;
    let given = |member: &str| body.get(member).filter(|value| !value.is_null());
    discord.edit(id, given("content").and_then(Value::as_str), given("embeds"), given("components"));
    Ok(())
}

pub(crate) async fn remove(
    State(shared): State<Shared>,
    Caller(bot): Caller,
    Path((channel, message)): Path<(String, String)>,
) -> Answer {
    shared.with(|discord| {
        let id = seen(discord, bot, &channel, &message, may::VIEW)?;
        let ours = discord.messages.get(&id).is_some_and(|m| m.author.id == bot);
        if !ours {
            seen(discord, bot, &channel, &message, may::MANAGE_MESSAGES)?;
        }
        discord.delete(id);
        Ok(Reply(Value::Null))
    })
}

pub(crate) async fn pin(
    State(shared): State<Shared>,
    Caller(bot): Caller,
    Path((channel, message)): Path<(String, String)>,
) -> Answer {
    shared.with(|discord| {
        let id = seen(discord, bot, &channel, &message, may::MANAGE_MESSAGES)?;
        pinned(discord, id, bot);
        Ok(Reply(Value::Null))
    })
}

/// Pins a message and announces it by a system message.
pub(crate) fn pinned(discord: &mut Discord, id: Id, by: Id) {
    let Some(message) = discord.messages.get_mut(&id) else { return };
    message.pinned = true;
    let channel = message.channel;
    discord.tell_message("MESSAGE_UPDATE", id);
    let author = discord.users.get(&by).cloned();
    if let Some(author) = author {
        discord.post(Draft { kind: kind::PIN, ..Draft::of(author, channel, "") });
    }
}
