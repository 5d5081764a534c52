//! Notifications that were given up, and sending again.

use serde::{Deserialize, Serialize};

/// A notification that was given up after its last attempt; `GET /v1/notifications`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct FailedNotification {
    /// Its id, such as `ntf-5f0c1d…`.
    pub id: String,
    /// Its channel.
    pub channel: String,
    /// The time of the last attempt.
    pub failed_at: String,
    /// Why that attempt failed.
    pub reason: String,
    /// The ids of its items, such as `esc-1`, most urgent first.
    pub items: Vec<String>,
}

/// Sends a channel what began after a position and is pending; `POST /v1/notifications`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// The channel.
    pub channel: String,
    /// The position.
    pub after: u64,
}

/// What came of sending a notification again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Resent {
    /// The notification's id.
    pub id: String,
    /// Its channel.
    pub channel: String,
    /// The number of its items: what is pending, as it is now. Without any, nothing is sent.
    pub items: usize,
    /// The number of items that were left out because they are settled.
    pub settled: usize,
    /// Why it didn't arrive; absent if it did, or if nothing was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}
