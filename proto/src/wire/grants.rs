//! Grants, and what gives more to one (D8, D9).

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::Distance;

/// A grant, as it stands (D8).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct GrantView {
    /// Its id.
    pub id: String,
    /// Who gave it.
    pub giver: String,
    /// When it ends.
    pub expires_at: String,
    /// Whether it is open.
    pub open: bool,
    /// The incident that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latched: Option<String>,
    /// Waking messages that it can still cause, at most.
    pub can_still_cause: u64,
    /// How far it is to each of its totals.
    pub limits: Vec<Distance>,
}

/// What more a human gives; `POST /v1/conversations/{ref}/grant` (D9).
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Extend {
    /// The one grant that gets it, as `grant-3`; without it each open grant of the conversation does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant: Option<String>,
    /// Waking messages.
    pub messages: u64,
    /// Turns.
    pub turns: u64,
    /// Distinct agents.
    pub agents: u64,
    /// Requests of the grant's root task.
    pub requests: u64,
    /// Tokens.
    pub tokens: u64,
    /// Money, in dollars.
    pub cost_usd: f64,
    /// Time, in ms.
    pub time_ms: u64,
    /// Rounds of the conversation, of two messages each, with what they need (D2).
    pub rounds: u64,
}
