//! Checks of who may act: the people and roles of the settings, and the lists of single channels.

use std::collections::{BTreeMap, BTreeSet};

use lastword_bridge::ids::{ChannelId, UserId};
use lastword_bridge::settings::{Settings, Speaker};
use lastword_client::wire::AgentView;
use lastword_facts::fact::Role;
use serde_json::Value;

use super::super::rest::{Method, Rest};
use super::{Report, text};

/// Checks that the bridge's token may make the humans that the settings want made.
pub(super) fn makes_humans(settings: &Settings, me: &AgentView, report: &mut Report) {
    let enrolls = settings.humans.values().any(|speaker| matches!(speaker, Speaker::Enrolled(_)));
    if (enrolls || !settings.roles.is_empty()) && me.role != Some(Role::Owner) {
        let what = format!("{} isn't an owner, and so can't make the humans of `enroll` and [[discord.role]]", me.name);
        report.bad("lastword", what, "give the bridge an owner's token with --token-file");
    }
}

/// Checks that a listed user is a person.
pub(super) async fn person(broker: &Rest, user: UserId, report: &mut Report) {
    match broker.call(Method::Get, &format!("users/{user}"), None).await {
        Ok(found) if found["bot"] == true => {
            let what = format!("{} is a bot and can't speak as a human", text(&found["username"]));
            report.bad(&user.to_string(), what, "remove it from humans; list a bot as [[discord.bot]]");
        }
        Ok(found) => report.good(text(&found["username"]), format!("may speak as a human ({user})")),
        Err(error) => report.bad(&user.to_string(), error.to_string(), "copy the id again: Copy User ID on the person"),
    }
}

/// Checks that the servers of the channels have the roles; `guilds` holds each server's.
pub(super) fn roles(settings: &Settings, guilds: &BTreeMap<String, Value>, report: &mut Report) {
    if guilds.values().all(Value::is_null) {
        // No server could be read, which is reported.
        return;
    }
    for (role, given) in &settings.roles {
        let id = role.to_string();
        let found = guilds.values().flat_map(each).find(|found| found["id"] == id.as_str());
        match found.map(|found| text(&found["name"])) {
            Some(_) if guilds.contains_key(&id) => {
                report.bad("@everyone", "nobody is given this role", "list another role as [[discord.role]]");
            }
            Some(name) => report.good(&format!("@{name}"), format!("its members act as {given}s ({id})")),
            None => {
                let hint = "copy the id again: Server Settings, Roles, Copy Role ID on the role";
                report.bad(&format!("role {id}"), "the server has no such role", hint);
            }
        }
    }
}

/// Checks a channel's own lists of people and roles; `roles` are its server's.
pub(super) fn lists(settings: &Settings, channel: ChannelId, about: &str, roles: &Value, report: &mut Report) {
    let own = settings.own(channel);
    let humans: Option<&BTreeSet<UserId>> = own.and_then(|own| own.humans.as_ref());
    let (heard, unknown): (Vec<UserId>, Vec<UserId>) =
        humans.into_iter().flatten().partition(|user| settings.humans.contains_key(user));
    for user in unknown {
        let what = format!("{user} is listed here, but isn't one of `humans`, and so may do nothing");
        report.bad(about, what, "add it to `humans` of [discord], too");
    }
    for role in own.and_then(|own| own.roles.as_ref()).into_iter().flatten() {
        let id = role.to_string();
        // The server may not have been readable.
        if roles.is_array() && !each(roles).any(|known| known["id"] == id.as_str()) {
            let what = format!("the role {id} is listed here, but the channel's server doesn't have it");
            report.bad(about, what, "copy the id again: Server Settings, Roles, Copy Role ID on the role");
        }
    }
    let listed = if humans.is_some() { !heard.is_empty() } else { !settings.humans.is_empty() };
    if !listed && settings.roles_in(channel).next().is_none() {
        let what = "nobody may speak here; only a human's `/lastword stop` is taken".to_owned();
        report.note(about, what, "add people to `humans`, or roles to `roles`, of the channel");
    }
}

fn each(roles: &Value) -> impl Iterator<Item = &Value> {
    roles.as_array().into_iter().flatten()
}
