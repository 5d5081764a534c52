//! Agents: what registers and changes one, and what it looks like.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::Distance;
use crate::fact::{Kind, Role};
use crate::names::RequestId;
use crate::state::Running;

const fn agent() -> Kind {
    Kind::Agent
}

/// An agent or human to register; `POST /v1/agents`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewAgent {
    /// Its name.
    pub name: String,
    /// Actions that it can serve.
    #[serde(default)]
    pub actions: Vec<String>,
    /// Groups that it belongs to.
    #[serde(default)]
    pub groups: Vec<String>,
    /// `agent` or `human`; `agent` by default.
    #[serde(default = "agent")]
    pub kind: Kind,
    /// Open turns that it may have at once; the workspace's default where it is left out.
    #[serde(default)]
    pub turns_max: u64,
    /// What a human may do; everything where it is left out (H7).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// The idempotency key, which comes in the header `Idempotency-Key` (Q1).
    #[serde(skip)]
    pub key: Option<RequestId>,
}

/// What to change of an agent; `PATCH /v1/agents/{name}`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AgentPatch {
    /// Actions that it can serve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actions: Option<Vec<String>>,
    /// Groups that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<String>>,
    /// Open turns that it may have at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns_max: Option<u64>,
    /// Limits of its own in place of the workspace's, by name; 0 takes one away (§1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<BTreeMap<String, u64>>,
}

/// A token, shown this once.
#[derive(Clone, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AgentToken {
    /// Whose.
    pub name: String,
    /// The token.
    pub token: String,
    /// How often the name was registered.
    pub incarnation: u32,
}

/// An agent or human, as it stands.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AgentView {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Actions that it can serve.
    pub actions: Vec<String>,
    /// Groups that it belongs to.
    pub groups: Vec<String>,
    /// How often the name was registered.
    pub incarnation: u32,
    /// Whether it runs.
    pub state: Running,
    /// Whether it has a connection open, and so is woken rather than polling (Q2).
    pub connected: bool,
    /// Open turns that it may have at once.
    pub turns_max: u64,
    /// Its open turns.
    pub turns: Vec<String>,
    /// Deliveries that wait for it.
    pub queued: u64,
    /// Notices that wait for it.
    pub notices: u64,
    /// Tokens that it spent today.
    pub tokens_today: u64,
    /// Until when it rests, because its budget of the day is used up (B1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rests_until: Option<String>,
    /// What it may do, where it is a human (H7).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Limits of its own in place of the workspace's, by name (§1).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, u64>,
    /// How far it is to the limits of its sliding windows (G1) and of the work that it may start itself (D7).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<Distance>,
}

/// More for an agent, for today; `POST /v1/agents/{name}/grant` (B1).
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct AgentGrant {
    /// Tokens.
    pub tokens: u64,
    /// Money, in dollars.
    pub cost_usd: f64,
}
