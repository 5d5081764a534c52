//! The broker's clock beside the machine's.

use alloc::string::String;
use serde::{Deserialize, Serialize};

/// How the broker's time stands to the wall clock's (L6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ClockState {
    /// They differ by a minute at most.
    InStep,
    /// The wall clock is ahead: the broker makes up for at most 1 s in 10 s.
    CatchingUp,
    /// The wall clock is more than 30 days ahead: the broker doesn't follow until a human accepts it.
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
    /// The wall clock's time less the broker's.
    pub difference_ms: i64,
    /// How the broker's time stands to the wall clock's.
    pub state: ClockState,
    /// A difference of more than a minute: what it is, and what to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Whether the server takes calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadyView {
    /// It does.
    pub ready: bool,
    /// Its clock.
    pub clock: ClockView,
    /// The room on the disk of its data directory.
    #[serde(default)]
    pub disk: DiskSpace,
}

/// The room on a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskSpace {
    /// Everything is taken.
    #[default]
    Enough,
    /// What starts or prolongs work is refused as `disk_low`.
    Low,
    /// An append found no room: everything but controls is refused as `disk_low`, and no timer runs.
    Full,
}
