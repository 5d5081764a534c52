//! What a human pauses, resumes and stops (H4).

use serde::{Deserialize, Serialize};

use crate::envelope::words;
use crate::ids::{AgentId, ConvId};

words! {
    /// What a human does to an agent, a conversation or the workspace (H4).
    Control {
        /// Nothing is taken and nothing sent until it is resumed.
        Pause = "pause",
        /// Lifts a pause, a stop or a latch.
        Resume = "resume",
        /// Ends what runs; nothing more is admitted.
        Stop = "stop",
    }
}

/// What is paused, resumed or stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Scope {
    /// Everything.
    Workspace,
    /// One agent.
    Agent(AgentId),
    /// One conversation.
    Conversation(ConvId),
}
