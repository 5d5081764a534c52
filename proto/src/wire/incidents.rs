//! Incidents: what latched, and what else a human has to know.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::refusal::Code;

/// A latch that tripped; `GET /v1/incidents` (R3).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct IncidentView {
    /// Its id.
    pub id: String,
    /// What it holds: a grant's id, a REF or a room's name.
    pub on: String,
    /// Which kind of thing that is: `grant`, `conversation` or `room`.
    pub scope: String,
    /// The conversation whose `resume` lifts it; a room has none.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// Which limit tripped.
    pub code: Code,
    /// The limit.
    pub limit: u64,
    /// The value that tripped it: for messages, turns and agents of a grant the one that the next would have made,
    /// else the one that was reached.
    pub current: u64,
    /// When.
    pub at: String,
    /// When it was lifted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifted_at: Option<String>,
    /// By whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifted_by: Option<String>,
    /// The requests that are parked by it.
    pub parked: Vec<String>,
}
