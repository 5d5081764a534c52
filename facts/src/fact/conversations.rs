//! Conversations, and the root tasks that work in them.

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, ConvId, GrantId, TaskId};
use crate::names::Ref;

/// The opening of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConversationOpened {
    /// The next number.
    pub conv: ConvId,
    /// The REF that names the conversation.
    pub reference: Ref,
    /// The conversation of the task that opened it; `None` for one without a task above.
    pub parent: Option<ConvId>,
    /// The agent or human that opened it.
    pub opener: AgentId,
}

/// The start of a root task (D7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootStarted {
    /// The next task number.
    pub task: TaskId,
    /// The agent that starts and serves the root.
    pub agent: AgentId,
    /// The conversation that the root works in.
    pub conv: ConvId,
    /// The grant that was opened for the root.
    pub grant: GrantId,
    /// The depth at which the root continues an existing conversation; `None` in a new one.
    pub received: Option<u8>,
}
