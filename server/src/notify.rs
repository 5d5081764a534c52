//! Notifies humans of pending decisions when no page is open.
//!
//! A follower of the committed log, beside the broker and never on its path. `plan` decides what to send and when, with
//! time as a parameter; `follow` reads the log and checks in the state that it is still pending; `compose` puts
//! notifications together; `command` and `webhook` send. The file `notify.json` records the sent notifications. It may be deleted: everything pending is then
//! sent once more.

mod book;
mod channel;
mod cloud_event;
mod command;
mod compose;
mod follow;
mod plan;
mod target;
mod webhook;
mod words;

use futures_util::future::BoxFuture;
use lastword_broker::clock;
use lastword_broker::identity::{hex, random};
use lastword_facts::Time;

pub use self::channel::{Channel, Command, Format, Means, Severity, Target, Webhook};
pub(crate) use self::follow::Follower;
use self::words::Notification;
use crate::views::NotifyChannel;

/// Sends a test notification through a channel.
///
/// # Errors
/// The channel didn't accept it; the text says why.
pub fn test(channel: &Channel) -> BoxFuture<'_, Result<(), String>> {
    Box::pin(async {
        let id = fresh_id().map_err(|error| error.to_string())?;
        send(channel, &Notification::test(id, channel, wall_time())).await
    })
}

impl NotifyChannel for Channel {
    fn name(&self) -> &str {
        &self.name
    }

    fn minimum(&self) -> &'static str {
        self.minimum.word()
    }

    fn hourly_max(&self) -> usize {
        self.hourly_max
    }

    fn test(&self) -> BoxFuture<'_, Result<(), String>> {
        test(self)
    }
}

/// Sends one notification, without retries.
async fn send(channel: &Channel, told: &Notification) -> Result<(), String> {
    match &channel.means {
        Means::Command(command) => command::run(command, told, &told.json()?).await,
        Means::Webhook(hook) => {
            let (headers, body) = cloud_event::formed(hook.format, told)?;
            webhook::post(hook, &told.id, headers, body, wall_time(), &target::System).await
        }
    }
}

/// Returns the wall clock's time, because a receiver compares it with its own clock. The broker's time may differ.
fn wall_time() -> Time {
    clock::wall()
}

/// Generates the id by which a receiver recognizes a notification that it gets twice.
fn fresh_id() -> std::io::Result<String> {
    Ok(format!("ntf-{}", &hex(&random()?)[..32]))
}
