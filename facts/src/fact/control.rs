//! Pause, resume and stop, and what they apply to (H4).

use alloc::boxed::Box;

use serde::{Deserialize, Serialize};

use crate::envelope::words;
use crate::ids::{AgentId, ConvId};

words! {
    /// What a human does to an agent, a conversation or the workspace (H4).
    Control {
        /// Delivers and admits nothing until it is resumed.
        Pause = "pause",
        /// Lifts a pause, a stop or a latch.
        Resume = "resume",
        /// Cancels open work and admits nothing more.
        Stop = "stop",
    }
}

/// The part of the workspace that a control applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Scope {
    /// All agents and conversations.
    Workspace,
    /// One agent and the work that it serves.
    Agent(AgentId),
    /// One conversation and every conversation below it.
    Conversation(ConvId),
}

/// A limit that a human changed while the broker runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitChanged {
    /// Its name.
    pub limit: Box<str>,
    /// Its value before.
    pub before: u64,
    /// Its value from now on.
    pub value: u64,
    /// The human who changed it.
    pub by: AgentId,
}
