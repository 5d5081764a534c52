//! The states that people see by name: of a held call, of a question, and of what a human may pause.

use serde::{Deserialize, Serialize};

/// The state of an approval (H2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ApprovalState {
    /// It awaits a decision.
    Pending,
    /// The call was approved and may be made once.
    Approved,
    /// The call was denied.
    Rejected,
    /// The call was denied without being examined.
    Ignored,
    /// No decision was made in time.
    Expired,
    /// The call was made.
    Used,
    /// Its task ended, or its agent was removed, before the call was decided or made.
    Withdrawn,
}

/// The state of an escalation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum EscalationState {
    /// It awaits a human's answer.
    Open,
    /// A human answered it.
    Answered,
    /// The task or the agent that asked has ended.
    Withdrawn,
    /// No human answered it in time.
    Expired,
}

/// Whether a human paused or stopped a workspace, agent or conversation (H4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Running {
    /// It runs normally.
    #[default]
    Active,
    /// Nothing is taken or sent; queued work is kept.
    Paused,
    /// A human stopped it and its open work was cancelled.
    Stopped,
}
