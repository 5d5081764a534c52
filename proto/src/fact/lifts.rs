//! The limits that a task meets, and the steps that lift them (H6).

use serde::{Deserialize, Serialize};

use crate::ids::{ConvId, GrantId};

/// A limit that a task met, as its escalation tells it (H6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Met {
    /// Which limit.
    pub code: crate::refusal::Code,
    /// The limit.
    pub limit: u64,
    /// The value that would have been.
    pub current: u64,
    /// Where: the conversation, for limits of one.
    pub conv: Option<ConvId>,
    /// The grant that it is about.
    pub grant: GrantId,
    /// How often a human extended that grant or conversation before.
    pub extended: u64,
}

/// One step that lifts a limit (H6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lift {
    /// More rounds in the conversation.
    Rounds(u64),
    /// More waking messages.
    Messages(u64),
    /// More turns.
    Turns(u64),
    /// More requests of the task that asks.
    Requests(u64),
    /// More distinct agents.
    Agents(u64),
    /// More tokens.
    Tokens(u64),
    /// More money, in millionths of a dollar.
    CostMicroUsd(u64),
    /// More time, in ms.
    TimeMs(u64),
    /// The counters of the conversation begin again.
    Rearm,
}
