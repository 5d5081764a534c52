//! Questions to humans (H1).

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::envelope::words;
use crate::ids::{AgentId, ConvId, EscalationId, TaskId};

words! {
    /// Why an escalation was opened.
    EscalationCause {
        /// An agent asked a question (H1).
        Asked = "asked",
        /// A request timed out and is not tried again (Q3).
        TimedOut = "timed_out",
        /// The requests of a task to one delegate are held because they make no progress (R5).
        NoProgress = "no_progress",
    }
}

/// A question to a human (H1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EscalationOpened {
    /// The next number.
    pub escalation: EscalationId,
    /// The task that asked and waits, or the task of the request that timed out; `None` for a question outside
    /// every turn.
    pub task: Option<TaskId>,
    /// The agent whose task or request the question is about.
    pub agent: AgentId,
    /// The conversation that the question is about.
    pub conv: ConvId,
    /// Whether an agent asked, or a request that timed out caused it.
    pub cause: EscalationCause,
    /// The text of the question.
    pub body: Box<str>,
    /// The answers that the human can choose from; empty for a free-text answer.
    pub options: Vec<Box<str>>,
}
