//! The browsers in which humans switched notifications on, as the console sees them.

use futures_util::future::BoxFuture;
use lastword_facts::Time;
use lastword_facts::ids::AgentId;
use serde::Deserialize;

use crate::error::ApiError;

/// A browser's subscription, as its script sends it.
#[derive(Clone, Debug, Deserialize)]
pub struct Subscription {
    /// The address of its push service.
    pub endpoint: String,
    /// Its public key.
    pub p256dh: String,
    /// Its secret.
    pub auth: String,
    /// What its human calls it.
    #[serde(default)]
    pub name: String,
}

/// A device, as its human sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceView {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The host of its push service.
    pub service: String,
    /// When it was added.
    pub since: Time,
}

/// The devices of a workspace. Each call is for those of one human.
pub trait NotifiedDevices: Send + Sync {
    /// Returns the public key that a browser subscribes with; the first call makes the key.
    fn key(&self) -> BoxFuture<'_, Result<String, ApiError>>;

    /// Adds a device, or replaces the one of the same browser.
    fn add(&self, human: AgentId, new: Subscription) -> BoxFuture<'_, Result<(), ApiError>>;

    /// Lists the devices.
    fn list(&self, human: AgentId) -> BoxFuture<'_, Vec<DeviceView>>;

    /// Removes a device.
    fn remove<'a>(&'a self, human: AgentId, id: &'a str) -> BoxFuture<'a, Result<(), ApiError>>;

    /// Sends a test to a device.
    fn test<'a>(&'a self, human: AgentId, id: &'a str) -> BoxFuture<'a, Result<(), ApiError>>;
}
