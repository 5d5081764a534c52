//! Decisions on held calls (H2).

use alloc::boxed::Box;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::envelope::{JsonText, words};
use crate::ids::{AgentId, ApprovalId, TaskId, Time};

words! {
    /// A decision on an approval (H2).
    Decision {
        /// The agent may make the call, once.
        Approve = "approve",
        /// The agent may not make the call.
        Reject = "reject",
        /// The agent may not make the call; the comment says what to do instead.
        Respond = "respond",
        /// The agent may not make the call; the human did not examine it.
        Ignore = "ignore",
        /// The agent may make the edited call, once, in place of the one that it asked for.
        Edit = "edit",
        /// No decision was made in time.
        Expire = "expire",
    }
}

/// A tool call that is held for a decision (H2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalAsked {
    /// The next number.
    pub approval: ApprovalId,
    /// The task in which the agent would make the call; `None` outside every turn.
    pub task: Option<TaskId>,
    /// The agent that would make the call.
    pub agent: AgentId,
    /// The name of the tool.
    pub tool: Box<str>,
    /// The arguments, as canonical JSON.
    pub arguments: JsonText,
    /// The agent's reason for the call, if it gave one.
    pub reason: Option<Box<str>>,
    /// The digest of tool, arguments, agent and task.
    pub digest: Digest,
    /// The time at which the call is denied if no decision is made.
    pub expires_at: Time,
}

/// The decision on a held call, or its expiry (H2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalDecided {
    /// The approval that was decided.
    pub approval: ApprovalId,
    /// The human or agent who decided, or [`SYSTEM`](super::SYSTEM) for a rule of the policy; `None` when it expired.
    pub by: Option<AgentId>,
    /// The decision on the call.
    pub decision: Decision,
    /// The comment that came with the decision, if any.
    pub comment: Option<Box<str>>,
    /// For `edit`: the arguments and digest that are approved instead.
    pub edited: Option<(JsonText, Digest)>,
}
