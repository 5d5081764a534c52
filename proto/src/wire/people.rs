//! What humans set of agents and of each other (B1, H7).

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use super::views::NewAgent;
use crate::fact::{Kind, Role};

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

/// What a human may do; `PATCH /v1/humans/{name}` (H7).
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HumanPatch {
    /// `owner`, `operator`, `approver` or `viewer`.
    pub role: Role,
}

/// A human to register; `POST /v1/humans` (H7).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewHuman {
    /// The name.
    pub name: String,
    /// `owner`, `operator`, `approver` or `viewer`.
    pub role: Role,
}

impl From<NewHuman> for NewAgent {
    fn from(new: NewHuman) -> Self {
        Self {
            name: new.name,
            actions: Vec::new(),
            groups: Vec::new(),
            kind: Kind::Human,
            turns_max: 0,
            role: Some(new.role),
            key: None,
        }
    }
}
