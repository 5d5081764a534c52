//! Humans: the forms that register one and set a role (H7).

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::NewAgent;
use crate::fact::{Kind, Role};

/// Sets the role of a human; `PATCH /v1/humans/{name}` (H7).
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HumanPatch {
    /// `owner`, `operator`, `approver` or `viewer`.
    pub role: Role,
}

/// Registers a human; `POST /v1/humans` (H7).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewHuman {
    /// The name, unique among live agents and humans.
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
