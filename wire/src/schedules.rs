//! The JSON forms of schedules (D13).

use serde::{Deserialize, Serialize};

use lastword_facts::refusal::Code;

/// Sets a schedule; `POST /v1/schedules`. Replaces a schedule of the same name.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewSchedule {
    /// The name, unique in the workspace.
    pub name: String,
    /// The times of its ticks: a cron expression of five fields (minute, hour, day of the month, month, day of the
    /// week).
    pub cron: String,
    /// The IANA name of the expression's time zone; UTC if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// The recipient: one agent, or `#action`.
    pub to: String,
    /// The text of each tick's request.
    pub body: String,
    /// The REF of each tick, with `{date}` and `{n}` filled in; `NAME-{n}` if omitted.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// A schedule and its current state.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ScheduleView {
    /// The name, unique in the workspace.
    pub name: String,
    /// The times of its ticks, as a cron expression.
    pub cron: String,
    /// The IANA name of the expression's time zone.
    pub time_zone: String,
    /// The recipient: one agent, or `#action`.
    pub to: String,
    /// The text of each tick's request.
    pub body: String,
    /// The REF of each tick, before `{date}` and `{n}` are filled in.
    #[serde(rename = "ref")]
    pub reference: String,
    /// The human who set it, in whose name its ticks send.
    pub by: String,
    /// The time of the next tick.
    pub next_at: String,
    /// The number of ticks that opened a grant.
    pub ticks: u64,
    /// The time at which it last opened a grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_at: Option<String>,
    /// Whether the grant of its last tick is still open; until it closes, ticks open no other.
    pub open: bool,
    /// The time of its last tick, if that opened no grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped_at: Option<String>,
    /// The code of the refusal of that tick; absent if the grant before was still open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<Code>,
}
