//! The JSON forms of schedules (D13).

use alloc::string::String;
use serde::{Deserialize, Serialize};

use crate::refusal::Code;

/// A schedule to be set; `POST /v1/schedules`. One that has this name is replaced.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewSchedule {
    /// Its name.
    pub name: String,
    /// When it ticks: a cron expression of five fields (minute, hour, day of the month, month, day of the week).
    pub cron: String,
    /// The time zone of the expression, by its IANA name; UTC where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// One agent, or `#action`.
    pub to: String,
    /// What is asked at each tick.
    pub body: String,
    /// The REF of each tick; `{date}` and `{n}` are filled in. `NAME-{n}` where it is left out.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// A schedule, as it stands.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ScheduleView {
    /// Its name.
    pub name: String,
    /// When it ticks.
    pub cron: String,
    /// The time zone of the expression.
    pub time_zone: String,
    /// One agent, or `#action`.
    pub to: String,
    /// What is asked at each tick.
    pub body: String,
    /// The REF of each tick, before `{date}` and `{n}` are filled in.
    #[serde(rename = "ref")]
    pub reference: String,
    /// The human who set it, in whose name its ticks are.
    pub by: String,
    /// When it ticks next.
    pub next_at: String,
    /// Ticks that made a grant.
    pub ticks: u64,
    /// When it made a grant last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_at: Option<String>,
    /// Whether the grant of its last tick is still open: until it is closed, ticks make none.
    pub open: bool,
    /// When its last tick made no grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped_at: Option<String>,
    /// What refused that tick; absent where the grant before was still open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<Code>,
}
