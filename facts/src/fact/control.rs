//! Pause, resume and stop, and what they apply to (H4).

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
