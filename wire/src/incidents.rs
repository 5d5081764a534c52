//! Incidents: latches that tripped, and other records of limits that a human has to know of.

use serde::{Deserialize, Serialize};

use lastword_facts::refusal::Code;

use crate::amount;

/// The record of a limit that tripped; `GET /v1/incidents` (R3).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct IncidentView {
    /// The id, such as `inc-1`.
    pub id: String,
    /// The subject of the incident: a grant's id, a REF, or the name of a room or agent.
    pub on: String,
    /// The kind of subject: `grant`, `conversation`, `room` or `agent`.
    pub scope: String,
    /// The conversation whose `resume` lifts the latch; absent for a room or an agent.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The code of the limit that tripped.
    pub code: Code,
    /// Whether the two numbers are money, in millionths of a dollar; absent if they aren't.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cost: bool,
    /// The value of the limit.
    pub limit: u64,
    /// The value that tripped it: for messages, turns and agents of a grant, the value that the next one would have
    /// reached; otherwise the value that was reached.
    pub current: u64,
    /// The time at which the limit tripped.
    pub at: String,
    /// The time at which a human lifted the latch, or its grant closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifted_at: Option<String>,
    /// The human who lifted the latch; absent if its grant closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifted_by: Option<String>,
    /// The requests that the latch holds; empty once it is lifted.
    pub parked: Vec<String>,
}

impl IncidentView {
    /// Returns the value that tripped the limit, and the limit, each in its unit.
    #[must_use]
    pub fn amounts(&self) -> [String; 2] {
        [self.current, self.limit].map(|n| amount(self.is_cost, n))
    }
}
