//! Agents: the forms that register and change one, and its view.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use lastword_facts::fact::{Kind, Role};
use lastword_facts::names::RequestId;
use lastword_facts::status::Running;

use crate::{Distance, HeldBy};

const fn agent() -> Kind {
    Kind::Agent
}

/// Registers an agent or human; `POST /v1/agents`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewAgent {
    /// The name, unique among live agents and humans.
    pub name: String,
    /// The actions that it serves; a request to `#action` may be routed to it.
    #[serde(default)]
    pub actions: Vec<String>,
    /// The groups that it belongs to; a message to `@group` reaches it.
    #[serde(default)]
    pub groups: Vec<String>,
    /// `agent` or `human`; `agent` by default.
    #[serde(default = "agent")]
    pub kind: Kind,
    /// The number of turns that it may have open at once; the workspace's default if omitted.
    #[serde(default)]
    pub turns_max: u64,
    /// The role of a human; `owner` if omitted (H7).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// The name that humans and models read beside `name`, in any script: 1 to 64 characters on one line. No other agent's
    /// or human's name or display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// The idempotency key, sent in the header `Idempotency-Key` (Q1).
    #[serde(skip)]
    pub key: Option<RequestId>,
}

/// The members of an agent to change; `PATCH /v1/agents/{name}`. Omitted members keep their value.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AgentPatch {
    /// The actions that it serves; replaces the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actions: Option<Vec<String>>,
    /// The groups that it belongs to; replaces the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<String>>,
    /// The number of turns that it may have open at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns_max: Option<u64>,
    /// Limits of its own in place of the workspace's, by name; 0 removes one (§1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<BTreeMap<String, u64>>,
    /// The name that humans and models read beside its own; its own name removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
}

/// A new token. It is shown only once.
#[derive(Clone, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AgentToken {
    /// The agent or human that the token authenticates.
    pub name: String,
    /// The bearer token, for the header `Authorization`.
    pub token: String,
    /// The number of times the name was registered.
    pub incarnation: u32,
    /// When it expires, RFC 3339 in UTC; omitted if it doesn't.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

/// How long a new token and the one before it are valid; `POST /v1/agents/{name}/token`.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct TokenTerms {
    /// How long the new token is valid, in ms, at most ten years; it doesn't expire if omitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
    /// How long the token before it stays valid, in ms, at most 30 days; it is revoked at once if omitted.
    pub overlap_ms: u64,
}

/// An agent or human and its current state.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AgentView {
    /// The registered name.
    pub name: String,
    /// The name that humans and models read beside it; messages are addressed to `name` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// `agent` or `human`.
    pub kind: Kind,
    /// The actions that it serves.
    pub actions: Vec<String>,
    /// The groups that it belongs to.
    pub groups: Vec<String>,
    /// The number of times the name was registered.
    pub incarnation: u32,
    /// Whether a human paused or stopped it.
    pub state: Running,
    /// Whether it has a connection open, and so is woken instead of polling (Q2).
    pub connected: bool,
    /// The number of clients that wait for its deliveries or hold one. One works on each delivery, whatever their number
    /// (F1).
    #[serde(default)]
    pub clients: u64,
    /// The reason why its program can't work, as its runner told when it failed; gone once the agent connects anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
    /// The number of turns that it may have open at once.
    pub turns_max: u64,
    /// The ids of its open turns.
    pub turns: Vec<String>,
    /// Whether a dialog of its program is open in one of them, which only the program's own user can answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits_for_user: bool,
    /// The number of deliveries queued for it.
    pub queued: u64,
    /// The number of notices queued for it.
    pub notices: u64,
    /// The tokens that it spent in the current UTC day.
    pub tokens_today: u64,
    /// Whether those tokens are estimated from the length of the text, at least in part (B1).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tokens_estimated: bool,
    /// The cost that it reported in the current UTC day, in millionths of a dollar (B1).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cost_today_microusd: u64,
    /// The end of its rest, if it used up its budget of the day (B1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rests_until: Option<String>,
    /// What lets it rest, with the step that extends its budget (H6).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_by: Vec<HeldBy>,
    /// The role of a human (H7).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Limits of its own in place of the workspace's, by name (§1).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, u64>,
    /// The distance to the limits of its sliding windows (G1) and of the work that it may start itself (D7).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<Distance>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Reports a prompt in an agent's session; `POST /v1/agents/{name}/prompt` (H8).
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Prompt {
    /// Whether the caller typed it. If not, a prompt began that nobody typed, or the work on the last one ended.
    pub typed: bool,
}

/// Tells why an agent's program can't work; `POST /v1/agents/{name}/unavailable`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Unavailable {
    /// The reason, for those who ask the agent. The first 500 characters are kept; an empty one takes the last one back.
    pub reason: String,
}

/// Extends an agent's budget for the current UTC day; `POST /v1/agents/{name}/grant` (B1).
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct AgentGrant {
    /// Tokens to add, input and output together.
    pub tokens: u64,
    /// Cost to add, in dollars.
    pub cost_usd: f64,
}
