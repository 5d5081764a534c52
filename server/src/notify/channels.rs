//! The channels of a workspace: those of the configuration, and webhooks that humans add while it runs, in
//! `channels.json` of the data directory.

use std::io;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use lastword_broker::files::Files;
use lastword_broker::identity::{Secret, hex, random};
use lastword_facts::names::Label;
use lastword_facts::{Code, Refusal};
use lastword_wire::FieldError;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, watch};

use super::channel::{Channel, HOURLY_MAX, Means, STALE, Severity, Target, WINDOW, Webhook};
use super::target::OWN_RECEIVER;
use crate::backup::FILE_CHANNELS;
use crate::error::ApiError;
use crate::kept;
use crate::views::{ListedChannel, NewWebhook, NotifyChannels};

const VERSION: u32 = 1;
/// The most webhooks that humans add to a workspace.
const ADDED_MAX: usize = 16;

#[derive(Clone, Serialize, Deserialize)]
struct Added {
    name: String,
    url: String,
    secret: String,
    minimum: Severity,
}

impl Added {
    fn channel(&self, allow_private: bool) -> Result<Channel, String> {
        Ok(Channel {
            name: self.name.clone(),
            means: Means::Webhook(Webhook::new(&self.url, Secret::new(self.secret.clone()), allow_private)?),
            minimum: self.minimum,
            window: WINDOW,
            hourly_max: HOURLY_MAX,
            stale: STALE,
            include_arguments: false,
            console: None,
        })
    }
}

#[derive(Clone, Default, Serialize, Deserialize)]
struct Book {
    webhooks: Vec<Added>,
}

/// The channels of a workspace.
pub(crate) struct Channels {
    files: Files,
    allow_private: bool,
    configured: Vec<Arc<Channel>>,
    /// Held over a write of the file, so that what is acted on is what a restart knows.
    book: Mutex<Book>,
    in_force: watch::Sender<Vec<Arc<Channel>>>,
}

impl Channels {
    /// Reads the webhooks that humans added. `allow_private` allows them on this machine and its network.
    pub(crate) fn open(configured: Vec<Channel>, files: Files, allow_private: bool) -> io::Result<Self> {
        let book: Book = kept::read(&files, FILE_CHANNELS, VERSION)?;
        let configured = configured.into_iter().map(Arc::new).collect();
        let channels = Self {
            files,
            allow_private,
            configured,
            book: Mutex::new(book.clone()),
            in_force: watch::channel(vec![]).0,
        };
        channels.in_force.send_replace(channels.with(&book.webhooks));
        Ok(channels)
    }

    /// Returns the channels in force, and hears when they change.
    pub(crate) fn in_force(&self) -> watch::Receiver<Vec<Arc<Channel>>> {
        self.in_force.subscribe()
    }

    /// Returns the channels of the configuration, and these. One that can't be used is left out, and stays in the file.
    fn with(&self, webhooks: &[Added]) -> Vec<Arc<Channel>> {
        let unused = |added: &Added, why: &str| tracing::warn!(channel = added.name, why, "a webhook is not used");
        let usable = webhooks.iter().filter_map(|added| {
            if self.is_configured(&added.name) {
                unused(added, "lastword.toml has a channel of this name");
                return None;
            }
            added.channel(self.allow_private).map(Arc::new).inspect_err(|why| unused(added, why)).ok()
        });
        self.configured.iter().cloned().chain(usable).collect()
    }

    fn is_configured(&self, name: &str) -> bool {
        self.configured.iter().any(|channel| channel.name == name)
    }

    async fn add(&self, new: NewWebhook) -> Result<String, ApiError> {
        let NewWebhook { name, url, secret, minimum } = new;
        Label::new(&name).map_err(|error| FieldError::new("name", format!("{name:?} {error}")))?;
        let minimum = Severity::from_word(&minimum)
            .ok_or_else(|| FieldError::new("minimum", format!("{minimum:?} is no severity: low, normal or urgent")))?;
        let internal = |error: io::Error| ApiError::internal(&error.to_string());
        let secret = secret.map_or_else(|| random().map(|bytes| hex(&bytes)).map_err(internal), Ok)?;
        let added = Added { name, url, secret, minimum };
        // Who adds a webhook here doesn't have the configuration.
        const ASK: &str = "ask whoever runs the server to allow receivers in its own network";
        let of_url =
            |why: String| FieldError::new("url", why.trim_start_matches("webhook ").replace(OWN_RECEIVER, ASK));
        Target::new(&added.url, self.allow_private).map_err(of_url)?;
        // The address is good, so what is wrong is the secret.
        added.channel(self.allow_private).map_err(|why| FieldError::new("secret", why))?;
        let secret = added.secret.clone();
        self.change(|webhooks| {
            if self.is_configured(&added.name) || webhooks.iter().any(|known| known.name == added.name) {
                return Err(FieldError::new("name", format!("{:?} is the name of another channel", added.name)).into());
            }
            if webhooks.len() >= ADDED_MAX {
                let refusal = Refusal::new(Code::Saturated).about("channels");
                return Err(refusal.numbers(ADDED_MAX as u64, webhooks.len() as u64 + 1).into());
            }
            webhooks.push(added);
            Ok(())
        })
        .await?;
        Ok(secret)
    }

    async fn remove(&self, name: &str) -> Result<(), ApiError> {
        self.change(|webhooks| {
            let at = webhooks.iter().position(|known| known.name == name).ok_or_else(|| ApiError::unknown(name))?;
            webhooks.remove(at);
            Ok(())
        })
        .await
    }

    /// Changes the webhooks, in the file first.
    async fn change(&self, change: impl FnOnce(&mut Vec<Added>) -> Result<(), ApiError>) -> Result<(), ApiError> {
        let mut book = self.book.lock().await;
        let mut next = book.clone();
        change(&mut next.webhooks)?;
        kept::write(&self.files, FILE_CHANNELS, VERSION, &next).await?;
        self.in_force.send_replace(self.with(&next.webhooks));
        *book = next;
        Ok(())
    }
}

impl NotifyChannels for Channels {
    fn list(&self) -> Vec<ListedChannel> {
        let channels = self.in_force.borrow().clone();
        let listed = |channel: Arc<Channel>| ListedChannel { is_added: !self.is_configured(&channel.name), channel };
        channels.into_iter().map(listed).collect()
    }

    fn add(&self, new: NewWebhook) -> BoxFuture<'_, Result<String, ApiError>> {
        Box::pin(Self::add(self, new))
    }

    fn remove<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(Self::remove(self, name))
    }
}
