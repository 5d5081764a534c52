//! The gateway: receives Discord's events. The library handles heartbeats, RESUME, reconnects and lost sessions.

use std::collections::BTreeSet;

use futures_util::StreamExt as _;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::mpsc::Sender;
use tokio::sync::watch;
use twilight_gateway::{CloseFrame, ConfigBuilder, Intents, Message, Shard, ShardId};

use super::interactions;
use super::model::{Person, Post};
use super::settings::Secret;
use crate::event::{Event, EventSink};

#[derive(Deserialize)]
struct Frame {
    op: u8,
    #[serde(default)]
    t: Option<String>,
    #[serde(default)]
    d: Value,
}

/// Which events a bot listens for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// All posts and interactions.
    Reader,
    /// Only clicks on its own posts; the connection shows the bot as online.
    Present,
}

/// The queues that received events go to.
pub(crate) struct GatewayQueues {
    /// Posts, in order of arrival.
    pub(crate) posts: Sender<Post>,
    /// Interactions, apart from posts so that they don't wait behind them.
    pub(crate) interactions: Sender<Value>,
    /// Interactions of people who aren't known, whose only answer is that they may not.
    pub(crate) strangers: Sender<Value>,
    /// The Discord users who may act as humans.
    pub(crate) humans: BTreeSet<u64>,
    /// The roles of the server whose members may.
    pub(crate) roles: BTreeSet<u64>,
    /// Incremented when posts may have been missed.
    pub(crate) missed: watch::Sender<u64>,
}

impl GatewayQueues {
    /// Returns whether a person may be one of those who act.
    fn knows(&self, person: &Person) -> bool {
        self.humans.contains(&person.user) || !self.roles.is_disjoint(&person.roles)
    }
}

/// Stays connected; returns a reason only if Discord refuses for good.
pub(crate) async fn listen(
    token: &Secret,
    url: Option<&str>,
    role: Role,
    queues: &GatewayQueues,
    report: &EventSink,
) -> String {
    let intents = match role {
        Role::Reader => Intents::GUILDS | Intents::GUILD_MESSAGES | Intents::MESSAGE_CONTENT,
        Role::Present => Intents::empty(),
    };
    let mut config = ConfigBuilder::new(token.reveal().to_owned(), intents);
    if let Some(url) = url {
        config = config.proxy_url(url.to_owned());
    }
    let mut shard = Shard::with_config(ShardId::ONE, config.build());
    let mut last = None;
    while let Some(item) = shard.next().await {
        match item {
            Ok(Message::Text(text)) => dispatch(&text, role, queues, report),
            Ok(Message::Close(frame)) => last = frame,
            Err(error) => {
                let message = format!("the gateway: {error}");
                report.emit(&Event::Waiting { reason: message });
            }
        }
    }
    closed(last.as_ref())
}

/// Sorts one frame into the queues.
pub(crate) fn dispatch(text: &str, role: Role, queues: &GatewayQueues, report: &EventSink) {
    let Ok(frame) = serde_json::from_str::<Frame>(text) else {
        return report.emit(&Event::Warning { message: "the gateway sent something that isn't an event".to_owned() });
    };
    if frame.op != 0 {
        return;
    }
    match frame.t.as_deref() {
        // A new session: events from before it are never sent.
        Some("READY" | "MESSAGE_CREATE") if role == Role::Present => {}
        Some("READY") => queues.missed.send_modify(|count| *count += 1),
        Some("MESSAGE_CREATE") => match serde_json::from_value::<Post>(frame.d) {
            // A full queue loses nothing: missed posts are read from their channel.
            Ok(post) => {
                if queues.posts.try_send(post).is_err() {
                    queues.missed.send_modify(|count| *count += 1);
                }
            }
            Err(error) => {
                report
                    .emit(&Event::Warning { message: format!("the gateway sent a post that can't be read: {error}") });
                queues.missed.send_modify(|count| *count += 1);
            }
        },
        // Cards, forms and commands belong to the broker's bot. The holder of an agent's token could make a form that
        // looks like one of ours.
        Some("INTERACTION_CREATE") if role == Role::Present && !interactions::is_harmless(&frame.d) => {}
        // Looked up before queueing: whoever isn't known must not fill the queue of a human's stop. A stranger whose
        // interaction is dropped sees that it failed.
        Some("INTERACTION_CREATE")
            if !interactions::person_of(&frame.d).is_some_and(|person| queues.knows(&person)) =>
        {
            let _served = queues.strangers.try_send(frame.d).is_ok();
        }
        Some("INTERACTION_CREATE") => {
            if queues.interactions.try_send(frame.d).is_err() {
                report.emit(&Event::Warning { message: "more clicks than can be served: one was dropped".to_owned() });
            }
        }
        Some(_) | None => {}
    }
}

fn closed(frame: Option<&CloseFrame<'static>>) -> String {
    match frame.map(|frame| (frame.code, frame.reason.as_ref())) {
        Some((4004, _)) => "Discord does not know this bot token".to_owned(),
        Some((4013 | 4014, _)) => "Discord does not allow the intents: switch on MESSAGE CONTENT INTENT for the \
                                   broker's bot in the developer portal"
            .to_owned(),
        Some((code, reason)) => format!("Discord closed the gateway for good: {reason} ({code})"),
        None => "the gateway ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::sync::mpsc;

    use super::*;

    #[test]
    fn who_may_act_by_list_or_role_never_queues_behind_strangers() {
        let (posts, _read) = mpsc::channel(1);
        let (interactions, mut known) = mpsc::channel(2);
        let (strangers, mut others) = mpsc::channel(1);
        let missed = watch::Sender::new(0);
        let queues = GatewayQueues { posts, interactions, strangers, humans: [7].into(), roles: [50].into(), missed };
        let quiet = EventSink::new(|_| ());
        for (user, roles) in [("9", json!([])), ("8", json!(["51"])), ("8", json!(["51", "50"])), ("7", json!([]))] {
            let member = json!({ "user": { "id": user, "username": user }, "roles": roles });
            let frame = json!({ "op": 0, "t": "INTERACTION_CREATE", "d": { "member": member } });
            dispatch(&frame.to_string(), Role::Reader, &queues, &quiet);
        }
        let user = |value: Value| value["member"]["user"]["id"].as_str().map(str::to_owned);
        assert_eq!(known.try_recv().ok().and_then(user).as_deref(), Some("8"), "by its role");
        assert_eq!(known.try_recv().ok().and_then(user).as_deref(), Some("7"), "by the list");
        assert_eq!(others.try_recv().ok().and_then(user).as_deref(), Some("9"), "the other one found no place");
        assert!(others.try_recv().is_err() && known.try_recv().is_err());
    }
}
