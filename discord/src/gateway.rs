//! The gateway: receives Discord's events. The library handles heartbeats, RESUME, reconnects and lost sessions.

use futures_util::StreamExt as _;
use lastword_bridge::event::Event;
use lastword_bridge::platform::Inlet;
use lastword_bridge::settings::Secret;
use serde::Deserialize;
use serde_json::Value;
use twilight_gateway::{CloseFrame, ConfigBuilder, Intents, Message, Shard, ShardId};

use super::interactions;
use super::model::Message as Sent;

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

/// Stays connected; returns a reason only if Discord refuses for good.
pub(crate) async fn listen(token: &Secret, url: Option<&str>, role: Role, inlet: &Inlet) -> String {
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
            Ok(Message::Text(text)) => dispatch(&text, role, inlet),
            Ok(Message::Close(frame)) => last = frame,
            Err(error) => {
                let message = format!("the gateway: {error}");
                inlet.report.emit(&Event::Waiting { reason: message });
            }
        }
    }
    closed(last.as_ref())
}

/// Passes on what one frame holds.
pub(crate) fn dispatch(text: &str, role: Role, inlet: &Inlet) {
    let warn = |message: String| inlet.report.emit(&Event::Warning { message });
    let Ok(frame) = serde_json::from_str::<Frame>(text) else {
        return warn("the gateway sent something that isn't an event".to_owned());
    };
    if frame.op != 0 {
        return;
    }
    match frame.t.as_deref() {
        Some("READY" | "MESSAGE_CREATE") if role == Role::Present => {}
        // A new session: events from before it are never sent.
        Some("READY") => inlet.miss(),
        Some("MESSAGE_CREATE") => match serde_json::from_value::<Sent>(frame.d) {
            Ok(post) => inlet.post(post.into()),
            Err(error) => {
                warn(format!("the gateway sent a post that can't be read: {error}"));
                inlet.miss();
            }
        },
        // Cards, forms and commands belong to the broker's bot. The holder of an agent's token could make a form that
        // looks like one of ours.
        Some("INTERACTION_CREATE") if role == Role::Reader || interactions::is_harmless(&frame.d) => {
            if let Some(interaction) = interactions::read(&frame.d) {
                inlet.interaction(interaction);
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
