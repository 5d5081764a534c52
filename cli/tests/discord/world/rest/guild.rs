//! The guild, its members, and the applications.

use axum::extract::{Path, Query, State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Answer, Caller, No, Reply, number};
use crate::world::Shared;
use crate::world::json as object;
use crate::world::model::{Channel, PUBLIC_THREAD, may};

pub(crate) async fn gateway(State(shared): State<Shared>) -> Answer {
    let url = shared.with(|discord| format!("ws://{}", discord.address));
    let limit = json!({"total": 1000, "remaining": 999, "reset_after": 0, "max_concurrency": 1});
    Ok(Reply(json!({"url": url, "shards": 1, "session_start_limit": limit})))
}

pub(crate) async fn me(State(shared): State<Shared>, Caller(bot): Caller) -> Answer {
    shared.with(|discord| Ok(Reply(discord.users.get(&bot).map(object::current_user).unwrap_or_default())))
}

pub(crate) async fn mine(State(shared): State<Shared>, Caller(bot): Caller) -> Answer {
    shared.with(|discord| {
        let permissions = discord.bots.get(&bot).map_or(0, |bot| bot.permissions).to_string();
        Ok(Reply(json!([{
            "id": discord.guild.to_string(), "name": "A guild", "icon": null, "owner": false, "permissions": permissions,
            "features": [],
        }])))
    })
}

pub(crate) async fn user(State(shared): State<Shared>, _: Caller, Path(user): Path<String>) -> Answer {
    let id = number(&user)?;
    let found = shared.with(|discord| discord.users.get(&id).map(object::user));
    found.map(Reply).ok_or_else(|| No::unknown(10013, "User"))
}

pub(crate) async fn application(State(shared): State<Shared>, Caller(bot): Caller) -> Answer {
    shared.with(|discord| {
        let bot = discord.bots.get(&bot);
        Ok(Reply(bot.map(|bot| object::application(discord, bot)).unwrap_or_default()))
    })
}

/// Answers for the only guild.
fn in_guild(shared: &Shared, guild: &str, answer: impl FnOnce(&super::Discord) -> Value) -> Answer {
    let id = number(guild)?;
    shared.with(
        |discord| {
            if id == discord.guild { Ok(Reply(answer(discord))) } else { Err(No::unknown(10004, "Guild")) }
        },
    )
}

pub(crate) async fn guild(State(shared): State<Shared>, _: Caller, Path(guild): Path<String>) -> Answer {
    in_guild(&shared, &guild, object::guild)
}

pub(crate) async fn roles(State(shared): State<Shared>, _: Caller, Path(guild): Path<String>) -> Answer {
    in_guild(&shared, &guild, |discord| json!(object::roles(discord)))
}

/// Lists every channel, hidden ones included: only their content is hidden.
pub(crate) async fn channels(State(shared): State<Shared>, Caller(bot): Caller, Path(guild): Path<String>) -> Answer {
    in_guild(&shared, &guild, |discord| {
        let all = discord.channels.values().filter(|c| c.kind != PUBLIC_THREAD);
        json!(all.map(|c| object::channel(discord, c.id, Some(bot))).collect::<Vec<_>>())
    })
}

pub(crate) async fn active_threads(
    State(shared): State<Shared>,
    Caller(bot): Caller,
    Path(guild): Path<String>,
) -> Answer {
    in_guild(&shared, &guild, |discord| {
        let open = |c: &&Channel| c.kind == PUBLIC_THREAD && !c.archived;
        let seen = |c: &&Channel| discord.permissions(bot, c.id) & may::VIEW != 0;
        let threads: Vec<Value> = discord
            .channels
            .values()
            .filter(open)
            .filter(seen)
            .map(|c| object::channel(discord, c.id, Some(bot)))
            .collect();
        json!({"threads": threads, "members": []})
    })
}

pub(crate) async fn member(
    State(shared): State<Shared>,
    _: Caller,
    Path((guild, user)): Path<(String, String)>,
) -> Answer {
    let id = number(&user)?;
    let found = in_guild(&shared, &guild, |discord| {
        discord.users.get(&id).map(|user| object::full_member(discord, user)).unwrap_or_default()
    })?;
    if found.0.is_null() { Err(No::unknown(10007, "Member")) } else { Ok(found) }
}

#[derive(Deserialize)]
pub(crate) struct Search {
    query: String,
    limit: usize,
}

/// Lists members whose name begins with the query.
pub(crate) async fn search(
    State(shared): State<Shared>,
    _: Caller,
    Path(guild): Path<String>,
    Query(search): Query<Search>,
) -> Answer {
    in_guild(&shared, &guild, |discord| {
        let found =
            discord.users.values().filter(|user| user.name.to_lowercase().starts_with(&search.query.to_lowercase()));
        json!(found.take(search.limit).map(|user| object::full_member(discord, user)).collect::<Vec<_>>())
    })
}
