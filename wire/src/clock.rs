//! The broker's clock compared with the machine's.

use serde::{Deserialize, Serialize};

/// How the broker's time relates to the wall clock's (L6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ClockState {
    /// They differ by at most a minute.
    InStep,
    /// The wall clock is ahead: the broker makes up at most 1 s in 10 s.
    CatchingUp,
    /// The wall clock is more than 30 days ahead: the broker doesn't follow until a human accepts the jump.
    Waiting,
    /// The wall clock is behind: the broker runs at half speed until they meet.
    HalfSpeed,
}

/// The broker's clock (L6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ClockView {
    /// The broker's time.
    pub broker: String,
    /// The wall clock's time.
    pub wall: String,
    /// The wall clock's time minus the broker's, in ms.
    pub difference_ms: i64,
    /// How the broker's time relates to the wall clock's.
    pub state: ClockState,
    /// Explains a difference of more than a minute and says what to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Whether the server admits calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadyView {
    /// `true` if the server admits calls.
    pub ready: bool,
    /// The broker's clock, compared with the wall clock.
    pub clock: ClockView,
    /// The free space on the disk of the data directory.
    #[serde(default)]
    pub disk: DiskSpace,
    /// The facts by which the read model is behind the log: searches and lists don't cover them yet.
    #[serde(default)]
    pub read_model_behind: u64,
    /// What the last reading of the whole log found; absent before the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scrub: Option<Scrub>,
    /// In a cluster, the servers that should store the log and don't: `lastword doctor --cluster` names them.
    #[serde(default)]
    pub stores_lagging: usize,
}

/// A reading of the whole log that checked the hash of each row (L5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Scrub {
    /// The time at which it ended.
    pub at: String,
    /// The last position that was read.
    pub upto: u64,
    /// What it found wrong; absent if nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<ScrubFault>,
}

/// A part of the log that has changed on the disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ScrubFault {
    /// The position of its first entry.
    pub at: u64,
    /// The fault, as a sentence.
    pub problem: String,
}

/// The free space on a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskSpace {
    /// There is enough space: everything is admitted.
    #[default]
    Enough,
    /// Space is low: calls that start or prolong work are refused as `disk_low`.
    Low,
    /// An append found no space: everything but controls is refused as `disk_low`, and no timer runs.
    Full,
}
