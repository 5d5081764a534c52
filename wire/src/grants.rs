//! Grants, and the form that extends one (D8, D9).

use serde::{Deserialize, Serialize};

use lastword_facts::words;

use crate::{Distance, HeldBy};

words! {
    /// How a grant was given (D7, D9, D13, H8).
    #[derive(Default)]
    GrantKind {
        /// By a human's message.
        #[default]
        Message = "message",
        /// By a prompt that a human typed into an agent's session.
        Typed = "typed",
        /// By a tick of a human's schedule.
        Schedule = "schedule",
        /// By an agent to itself: its own root.
        Root = "root",
    }
}

/// A grant and its current state (D8).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct GrantView {
    /// The id, such as `grant-3`.
    pub id: String,
    /// The human who gave it, or the agent whose root it is.
    pub giver: String,
    /// How it was given.
    #[serde(default)]
    pub kind: GrantKind,
    /// The time at which it expires.
    pub expires_at: String,
    /// Whether it is open.
    pub open: bool,
    /// The incident whose latch holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latched: Option<String>,
    /// An upper bound of the waking messages that it can still cause.
    pub can_still_cause: u64,
    /// The distance to each of its totals.
    pub limits: Vec<Distance>,
    /// The id of the trace that its work is recorded in, 32 hexadecimal digits; in a conversation's view.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// The address of that trace, by the template of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_url: Option<String>,
}

impl GrantView {
    /// Returns how many messages it leaves, such as `58 of 64 messages left`; `None` without a limit on them.
    #[must_use]
    pub fn messages_left(&self) -> Option<String> {
        let limit = self.limits.iter().find(|limit| limit.name == "grant_messages_max" && limit.limit > 0)?;
        Some(format!("{} of {} messages left", limit.left, limit.limit))
    }
}

/// Extends grants; `POST /v1/conversations/{ref}/grant` (D9).
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Extend {
    /// The grant to extend, such as `grant-3`; each open grant of the conversation if omitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant: Option<String>,
    /// Waking messages to add.
    pub messages: u64,
    /// Turns to add, whichever task they serve.
    pub turns: u64,
    /// Distinct agents to add.
    pub agents: u64,
    /// Requests to add to the grant's root task.
    pub requests: u64,
    /// Tokens to add, input and output together.
    pub tokens: u64,
    /// Cost to add, in dollars.
    pub cost_usd: f64,
    /// Time to add, in ms.
    pub time_ms: u64,
    /// Rounds to add to the conversation, of two messages each, with the messages, turns and requests that they need
    /// (D2).
    pub rounds: u64,
}

/// What an extension doesn't lift; `POST /v1/conversations/{ref}/grant` (D9).
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Extended {
    /// The latches that still hold the extended grants, each with the step that lifts it (H6).
    pub held_by: Vec<HeldBy>,
}
