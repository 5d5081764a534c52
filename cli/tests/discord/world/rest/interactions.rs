//! Interactions: commands, clicks and forms, and their responses.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use serde_json::{Value, json};

use super::messages::{change, shown};
use super::{Answer, Caller, Discord, No, Reply, number, payload};
use crate::world::Shared;
use crate::world::form;
use crate::world::model::{Id, Interaction, kind};

/// Time in which an interaction must be answered, or it fails.
const PATIENCE: Duration = Duration::from_secs(3);

/// Message flag: only the interaction's user sees it.
const EPHEMERAL: u64 = 1 << 6;

/// Types of a first response.
const MESSAGE: u64 = 4;
const MESSAGE_LATER: u64 = 5;
const UPDATE_LATER: u64 = 6;
const UPDATE: u64 = 7;
const MODAL: u64 = 9;

pub(crate) async fn commands(State(shared): State<Shared>, Caller(bot): Caller, Path(app): Path<String>) -> Answer {
    let bot = shared.with(|discord| own(discord, bot, &app))?;
    shared.with(|discord| Ok(Reply(json!(discord.commands.get(&bot).cloned().unwrap_or_default()))))
}

pub(crate) async fn commands_in(shared: State<Shared>, bot: Caller, Path((app, _)): Path<(String, String)>) -> Answer {
    commands(shared, bot, Path(app)).await
}

/// Returns the bot if the application is its own.
fn own(discord: &Discord, bot: Id, app: &str) -> Result<Id, No> {
    let app = number(app)?;
    if discord.bots[&bot].application == app { Ok(bot) } else { Err(No::access()) }
}

pub(crate) async fn register(
    State(shared): State<Shared>,
    Caller(bot): Caller,
    Path(app): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    shared.with(|discord| own(discord, bot, &app))?;
    let body = payload(&headers, &body)?;
    let list = body.as_array().ok_or_else(|| No::form("body", "LIST_TYPE_CONVERT", "Only iterables may be used"))?;
    list.iter().try_for_each(form::check_command)?;
    shared.with(|discord| {
        let guild = discord.guild.to_string();
        let mut made = list.clone();
        for command in &mut made {
            command["id"] = json!(discord.id().to_string());
            command["application_id"] = json!(app);
            command["version"] = command["id"].clone();
            command["guild_id"] = json!(guild);
            command["default_member_permissions"] = command["default_member_permissions"].clone();
        }
        discord.commands.insert(bot, made.clone());
        Ok(Reply(json!(made)))
    })
}

pub(crate) async fn register_in(
    shared: State<Shared>,
    bot: Caller,
    Path((app, _)): Path<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    register(shared, bot, Path(app), headers, body).await
}

/// Takes the first response, which must come within three seconds, and only once.
pub(crate) async fn callback(
    State(shared): State<Shared>,
    Path((id, token)): Path<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let id = number(&id)?;
    let body = payload(&headers, &body)?;
    shared.with(|discord| {
        let known = discord.interactions.get(&id).filter(|i| i.token == token).cloned();
        let interaction = known.ok_or_else(|| No::unknown(10062, "interaction"))?;
        if interaction.answered.is_some() {
            return Err(No::new(400, 40060, "Interaction has already been acknowledged."));
        }
        if interaction.since.elapsed() > PATIENCE {
            return Err(No::unknown(10062, "interaction"));
        }
        let original = answer(discord, &interaction, &body)?;
        if let Some(interaction) = discord.interactions.get_mut(&id) {
            interaction.answered = Some((body["type"].as_u64().unwrap_or_default(), body["data"].clone()));
            interaction.original = original;
        }
        Ok(Reply(Value::Null))
    })
}

/// Applies the response; returns the message that it creates or announces.
fn answer(discord: &mut Discord, interaction: &Interaction, body: &Value) -> Result<Option<Id>, No> {
    let clicked = || interaction.message.ok_or_else(|| No::form("type", "INTERACTION_TYPE", "no message to update"));
    match body["type"].as_u64() {
        Some(MESSAGE) => post(discord, interaction, &body["data"]).map(Some),
        Some(MESSAGE_LATER) => Ok(None),
        Some(UPDATE_LATER) => clicked().map(Some),
        Some(UPDATE) => {
            let message = clicked()?;
            change(discord, message, &body["data"])?;
            Ok(Some(message))
        }
        Some(MODAL) => form::check_modal(&body["data"]).map(|()| None),
        Some(_) | None => Err(No::form("type", "BASE_TYPE_CHOICES", "no kind of an answer")),
    }
}

/// Posts a message as the application, to the user alone or to everyone.
fn post(discord: &mut Discord, interaction: &Interaction, data: &Value) -> Result<Id, No> {
    let author = discord.users.get(&interaction.bot).cloned().ok_or_else(No::access)?;
    let mut draft = form::draft(author, interaction.channel, data)?;
    // Like Discord: by the bot, through the application's own webhook.
    draft.webhook = Some(interaction.bot);
    if interaction.is_command {
        draft.kind = kind::COMMAND;
    }
    let deferred = interaction.answered.as_ref().map_or(0, |(_, data)| data["flags"].as_u64().unwrap_or(0));
    if (draft.flags | deferred) & EPHEMERAL != 0 {
        draft.only_for = Some(interaction.user);
    }
    Ok(discord.post(draft))
}

fn by_token(discord: &Discord, app: &str, token: &str) -> Result<Interaction, No> {
    let app = number(app)?;
    let of = |i: &&Interaction| discord.bots[&i.bot].application == app && i.token == token;
    let known = discord.interactions.values().find(of);
    known.cloned().ok_or_else(|| No::new(401, 50027, "Invalid Webhook Token"))
}

/// Posts a further message.
pub(crate) fn follow_up(discord: &mut Discord, app: Id, token: &str, body: &Value) -> Answer {
    let interaction = by_token(discord, &app.to_string(), token)?;
    if interaction.answered.is_none() {
        return Err(No::unknown(10015, "Webhook"));
    }
    let id = post(discord, &interaction, body)?;
    // The first one after a deferred response replaces the original.
    if let Some(known) = discord.interactions.get_mut(&interaction.id).filter(|i| i.original.is_none()) {
        known.original = Some(id);
    }
    Ok(Reply(shown(discord, id, interaction.bot)))
}

fn original_of(discord: &Discord, app: &str, token: &str) -> Result<(Interaction, Id), No> {
    let interaction = by_token(discord, app, token)?;
    let id = interaction.original.ok_or_else(|| No::unknown(10008, "Message"))?;
    Ok((interaction, id))
}

pub(crate) async fn original(State(shared): State<Shared>, Path((app, token)): Path<(String, String)>) -> Answer {
    shared.with(|discord| {
        let (interaction, id) = original_of(discord, &app, &token)?;
        Ok(Reply(shown(discord, id, interaction.bot)))
    })
}

/// Edits the first message; after a deferred response, creates it.
pub(crate) async fn edit_original(
    State(shared): State<Shared>,
    Path((app, token)): Path<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let body = payload(&headers, &body)?;
    shared.with(|discord| {
        let interaction = by_token(discord, &app, &token)?;
        let awaited = interaction.answered.as_ref().is_some_and(|(kind, _)| *kind == MESSAGE_LATER);
        if interaction.original.is_none() && awaited {
            return follow_up(discord, number(&app)?, &token, &body);
        }
        let (interaction, id) = original_of(discord, &app, &token)?;
        change(discord, id, &body)?;
        Ok(Reply(shown(discord, id, interaction.bot)))
    })
}

pub(crate) async fn no_original(State(shared): State<Shared>, Path((app, token)): Path<(String, String)>) -> Answer {
    shared.with(|discord| {
        let (_, id) = original_of(discord, &app, &token)?;
        discord.delete(id);
        Ok(Reply(Value::Null))
    })
}

pub(crate) async fn edit_followup(
    State(shared): State<Shared>,
    Path((app, token, message)): Path<(String, String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let (id, body) = (number(&message)?, payload(&headers, &body)?);
    shared.with(|discord| {
        let interaction = by_token(discord, &app, &token)?;
        change(discord, id, &body)?;
        Ok(Reply(shown(discord, id, interaction.bot)))
    })
}

pub(crate) async fn remove_followup(
    State(shared): State<Shared>,
    Path((app, token, message)): Path<(String, String, String)>,
) -> Answer {
    let id = number(&message)?;
    shared.with(|discord| {
        by_token(discord, &app, &token)?;
        discord.delete(id);
        Ok(Reply(Value::Null))
    })
}
