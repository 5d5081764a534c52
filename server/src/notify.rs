//! Notifies humans of pending decisions when no page is open.
//!
//! A follower of the committed log, beside the broker and never on its path. `plan` decides what to send and when, with
//! time as a parameter; `follow` reads the log and checks in the state that it is still pending; `compose` puts
//! notifications together; `command`, `webhook` and `devices` send. The file `notify.json` records the sent notifications. It may be deleted: everything pending is then
//! sent once more.

mod book;
mod channel;
mod channels;
mod cloud_event;
mod command;
mod compose;
mod devices;
mod follow;
mod plan;
mod push;
mod target;
mod webhook;
mod words;

use std::io;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use lastword_broker::files::Files;
use lastword_broker::identity::{hex, random};
use lastword_broker::{Handle, clock};
use lastword_facts::Time;

pub use self::channel::{Channel, Command, Format, HOURLY_MAX, Means, STALE, Severity, Target, WINDOW, Webhook};
pub(crate) use self::channels::Channels;
pub use self::devices::Devices;
pub(crate) use self::follow::Follower;
use self::words::Notification;
use crate::console::ConsoleSettings;
use crate::views::NotifyChannel;

/// Opens the devices of a workspace, unless they are off. Their channel is there without being configured.
///
/// # Errors
/// The file of the devices can't be read.
pub(crate) fn open(
    notify: &mut Vec<Channel>,
    console: &ConsoleSettings,
    handle: &Handle,
    files: &Files,
) -> io::Result<Option<Arc<Devices>>> {
    let is_to_devices = |channel: &Channel| matches!(channel.means, Means::Devices { .. });
    if !console.push {
        notify.retain(|channel| !is_to_devices(channel));
    } else if !notify.iter().any(is_to_devices) {
        notify.push(Channel::to_devices());
    }
    let mut opened = None;
    for channel in notify {
        if let Means::Devices { allow_private, devices } = &mut channel.means {
            let address = console.address.as_deref();
            opened = Some(Arc::new(Devices::open(handle.clone(), files.clone(), address, *allow_private)?));
            devices.clone_from(&opened);
        }
    }
    Ok(opened)
}

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

    fn is_listed(&self) -> bool {
        !self.means.is_idle()
    }

    fn destination(&self) -> String {
        match &self.means {
            Means::Command(command) => format!("runs {}", command.program.display()),
            Means::Devices { .. } => "notifies browsers".to_owned(),
            Means::Webhook(hook) => format!("calls {}", hook.host()),
        }
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
        Means::Devices { devices: Some(devices), .. } => devices.notify(told).await,
        Means::Devices { devices: None, .. } => Err("each device is tested in the console, at /devices".to_owned()),
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
fn fresh_id() -> io::Result<String> {
    Ok(format!("ntf-{}", &hex(&random()?)[..32]))
}
