//! Tells people of what waits for them, even though no page is open.
//!
//! A follower of the committed log, beside the broker and never on its path: `plan` decides what to tell and when, with time
//! as a parameter; `follow` reads the log and asks the state what of it still waits; `command` and `webhook` send. The file
//! `notify.json` says what was told. It may be deleted: then what waits is told once more.

mod book;
mod channel;
mod command;
mod follow;
mod plan;
mod target;
mod webhook;
mod words;

use lastword_proto::Time;

pub use self::channel::{Channel, Command, Means, Severity, Webhook};
pub(crate) use self::follow::Follower;
use self::words::Notification;
use crate::clock;
use crate::identity::{hex, random};

/// Sends a test notification through a channel.
///
/// # Errors
/// Why it did not arrive, in words.
pub async fn test(channel: &Channel) -> Result<(), String> {
    let id = fresh_id().map_err(|error| error.to_string())?;
    send(channel, &Notification::test(id, channel, wall_time())).await
}

/// Sends one notification, once.
async fn send(channel: &Channel, told: &Notification) -> Result<(), String> {
    let body = told.json()?;
    match &channel.means {
        Means::Command(command) => command::run(command, told, &body).await,
        Means::Webhook(hook) => webhook::post(hook, &told.id, body, wall_time(), &target::System).await,
    }
}

/// The time that a receiver compares with its own clock; that of the log may be ahead of it.
fn wall_time() -> Time {
    clock::wall()
}

/// By which a receiver tells one that comes twice.
fn fresh_id() -> std::io::Result<String> {
    Ok(format!("ntf-{}", &hex(&random()?)[..32]))
}
