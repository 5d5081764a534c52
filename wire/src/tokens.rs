//! Narrowed tokens: some of what their owner may do, for a while.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A part of what a token's owner may do. Each call needs one, which the OpenAPI document names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Read messages, conversations, requests, events and everything else that the owner sees.
    Read,
    /// Send messages, post to rooms, cancel requests, claim resources.
    Send,
    /// Take deliveries, report progress, finish turns.
    Work,
    /// Ask humans, hold tool calls, use approvals.
    Ask,
    /// Answer questions and decide held calls.
    Decide,
    /// Pause, resume, stop, extend budgets; rooms, schedules and the clock.
    Control,
    /// Agents, humans, their tokens and limits; backups and the archive.
    Manage,
}

impl Scope {
    /// All scopes.
    pub const ALL: [Self; 7] =
        [Self::Read, Self::Send, Self::Work, Self::Ask, Self::Decide, Self::Control, Self::Manage];

    /// Returns the name as the wire has it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Send => "send",
            Self::Work => "work",
            Self::Ask => "ask",
            Self::Decide => "decide",
            Self::Control => "control",
            Self::Manage => "manage",
        }
    }

    /// Returns the scope with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == name)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Makes a narrowed token for the caller; `POST /v1/token`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// What it may do: at least one scope.
    pub scopes: Vec<Scope>,
    /// How long it is valid, in ms, at most 366 days.
    pub expires_in_ms: u64,
}

/// A narrowed token. It is shown only once.
#[derive(Clone, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct NarrowedToken {
    /// The agent or human in whose name it acts.
    pub name: String,
    /// What it may do.
    pub scopes: Vec<Scope>,
    /// The bearer token, for the header `Authorization`.
    pub token: String,
    /// When it expires, RFC 3339 in UTC.
    pub expires_at: String,
}
