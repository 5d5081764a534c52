//! The channels through which humans are notified, as the console sees them.

use futures_util::future::BoxFuture;

/// A channel through which humans are notified of pending decisions.
pub trait NotifyChannel: Send + Sync {
    /// Returns whether it goes somewhere: one for devices goes nowhere before there is one.
    fn is_listed(&self) -> bool;
    /// Returns its name.
    fn name(&self) -> &str;

    /// Returns the lowest severity that it tells, in a word.
    fn minimum(&self) -> &'static str;

    /// Returns the most notifications of an hour.
    fn hourly_max(&self) -> usize;

    /// Sends a test notification. An error says why the channel didn't accept it.
    fn test(&self) -> BoxFuture<'_, Result<(), String>>;
}
