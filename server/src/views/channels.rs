//! The channels through which humans are notified, as the console sees them.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::error::ApiError;

/// A channel through which humans are notified of pending decisions.
pub trait NotifyChannel: Send + Sync {
    /// Returns whether it goes somewhere: one for devices goes nowhere before there is one.
    fn is_listed(&self) -> bool;
    /// Returns its name.
    fn name(&self) -> &str;

    /// Returns where it goes, in words without a secret.
    fn destination(&self) -> String;

    /// Returns the lowest severity that it tells, in a word.
    fn minimum(&self) -> &'static str;

    /// Returns the most notifications of an hour.
    fn hourly_max(&self) -> usize;

    /// Sends a test notification. An error says why the channel didn't accept it.
    fn test(&self) -> BoxFuture<'_, Result<(), String>>;
}

/// A webhook that a human adds.
#[derive(Clone, Debug)]
pub struct NewWebhook {
    /// The name of its channel.
    pub name: String,
    /// The URL that is called.
    pub url: String,
    /// The secret that signs each call; `None` generates one.
    pub secret: Option<String>,
    /// The word of the lowest severity that it tells.
    pub minimum: String,
}

/// A channel, and where it was set.
#[derive(Clone)]
pub struct ListedChannel {
    /// The channel.
    pub channel: Arc<dyn NotifyChannel>,
    /// Whether a human added it in the console, who can also remove it there.
    pub is_added: bool,
}

/// The channels of a workspace: those of the configuration, and webhooks that humans added.
pub trait NotifyChannels: Send + Sync {
    /// Lists the channels.
    fn list(&self) -> Vec<ListedChannel>;

    /// Adds a webhook; returns the secret that signs its calls.
    fn add(&self, new: NewWebhook) -> BoxFuture<'_, Result<String, ApiError>>;

    /// Removes a webhook that a human added.
    fn remove<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), ApiError>>;
}
