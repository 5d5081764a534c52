//! Webhooks: messages under any display name.

use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use serde::Deserialize;
use serde_json::{Value, json};

use super::channels::place;
use super::interactions::follow_up;
use super::messages::shown;
use super::{Answer, Caller, No, Reply, number, payload};
use crate::world::Shared;
use crate::world::form;
use crate::world::model::{User, Webhook, may};

/// Whether the response should contain the message.
#[derive(Debug, Deserialize)]
pub(crate) struct Wanted {
    wait: Option<bool>,
}

fn shape(webhook: &Webhook) -> Value {
    json!({
        "id": webhook.id.to_string(), "type": 1, "channel_id": webhook.channel.to_string(), "name": webhook.name,
        "avatar": null, "application_id": null, "token": webhook.token,
    })
}

pub(crate) async fn list(State(shared): State<Shared>, Caller(bot): Caller, Path(channel): Path<String>) -> Answer {
    let channel = number(&channel)?;
    shared.with(|discord| {
        place(discord, bot, channel, may::VIEW)?;
        Ok(Reply(discord.webhooks.values().filter(|w| w.channel == channel).map(shape).collect()))
    })
}

pub(crate) async fn create(
    State(shared): State<Shared>,
    Caller(bot): Caller,
    Path(channel): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let channel = number(&channel)?;
    let name = payload(&headers, &body)?["name"].as_str().unwrap_or_default().to_owned();
    shared.with(|discord| {
        place(discord, bot, channel, may::VIEW)?;
        let id = discord.webhook(channel, &name);
        Ok(Reply(discord.webhooks.get(&id).map(shape).unwrap_or_default()))
    })
}

/// Posts a webhook's message, or a further message to an interaction: both use this address.
pub(crate) async fn execute(
    State(shared): State<Shared>,
    Path((id, token)): Path<(String, String)>,
    Query(wanted): Query<Wanted>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let id = number(&id)?;
    let body = payload(&headers, &body)?;
    shared.with(|discord| {
        if discord.bots.values().any(|bot| bot.application == id) {
            return follow_up(discord, id, &token, &body);
        }
        let webhook = discord.webhooks.get(&id).filter(|w| w.token == token).cloned();
        let webhook = webhook.ok_or_else(|| No::unknown(10015, "Webhook"))?;
        let name = body["username"].as_str().unwrap_or(&webhook.name).to_owned();
        let mut draft = form::draft(User { id, name, bot: true }, webhook.channel, &body)?;
        draft.webhook = Some(id);
        let message = discord.post(draft);
        let back = wanted.wait == Some(true);
        Ok(Reply(if back { shown(discord, message, id) } else { Value::Null }))
    })
}
