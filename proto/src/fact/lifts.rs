//! The limits that a task meets, and the steps that lift them (H6).

use serde::{Deserialize, Serialize};

use crate::ids::{ConvId, GrantId, RoomId};

/// A limit that a task met, with the numbers that its escalation shows (H6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Met {
    /// The code of the refusal.
    pub code: crate::refusal::Code,
    /// The limit at the time.
    pub limit: u64,
    /// The value that the refused message would have reached.
    pub current: u64,
    /// The conversation, for a limit that belongs to one; otherwise `None`.
    pub conv: Option<ConvId>,
    /// The grant that the task belongs to.
    pub grant: GrantId,
    /// How often a human extended that grant or conversation before.
    pub extended: u64,
}

/// One step that lifts a limit (H6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lift {
    /// More rounds in the conversation, of two messages each.
    Rounds(u64),
    /// More waking messages in the grant.
    Messages(u64),
    /// More turns in the grant.
    Turns(u64),
    /// More requests of the task that asks.
    Requests(u64),
    /// More distinct agents in the grant.
    Agents(u64),
    /// More tokens in the grant.
    Tokens(u64),
    /// More cost in the grant, in millionths of a dollar.
    CostMicroUsd(u64),
    /// More time for the grant, in ms.
    TimeMs(u64),
    /// Resets the counters of the conversation to 0.
    Rearm,
    /// Resets the counter of a room to 0: the human's yes is a post of theirs in it.
    RearmRoom(RoomId),
}
