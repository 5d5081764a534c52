//! How runs of a request begin and end (F1, F4).

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::Spend;
use crate::envelope::{FinishStatus, JsonText, words};
use crate::ids::{AgentId, GrantId, Seq, TaskId, Time, TurnId};
use crate::names::RequestId;

words! {
    /// What caused an answer.
    EndReason {
        /// The agent answered.
        Answered = "answered",
        /// The agent's answer was empty (F4).
        Empty = "empty",
        /// The request was not acknowledged in time, twice (Q3).
        NotAcknowledged = "not_acknowledged",
        /// The lease was lost, twice (F4).
        LeaseLost = "lease_lost",
        /// The request's deadline passed (F4).
        Deadline = "deadline",
        /// The grant expired (D8).
        GrantExpired = "grant_expired",
        /// No agent is left that serves the action (Q6).
        NobodyLeft = "nobody_left",
        /// The requester or a human cancelled the request (Q9).
        Cancelled = "cancelled",
        /// The request above it ended (F3, Q9).
        AskerEnded = "asker_ended",
        /// A human stopped the agent, conversation or workspace (H4).
        Stopped = "stopped",
        /// The recipient was removed (L3).
        RecipientGone = "recipient_gone",
        /// No human answered its question in time (H1).
        Unanswered = "unanswered",
    }
}

words! {
    /// Why a request runs again on the same task.
    Rerun {
        /// The request was not acknowledged in time (Q3).
        AckTimeout = "ack_timeout",
        /// The lease was lost (F4).
        LeaseLost = "lease_lost",
        /// The agent rejected it, and another agent serves the action (Q4).
        Rejected = "rejected",
        /// The agent completed a part of it: the failed parts run again (Q5).
        Partial = "partial",
    }
}

words! {
    /// How a turn ended.
    TurnEnd {
        /// The agent finished it.
        Finished = "finished",
        /// Its lease was lost.
        LeaseLost = "lease_lost",
        /// Its request was settled in another way.
        Withdrawn = "withdrawn",
    }
}

/// The result of the first run of a request that was completed in part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartialResult {
    /// The text of the result.
    pub body: Box<str>,
    /// The parts of the request that the first run completed.
    pub completed: Vec<Box<str>>,
    /// The parts of the request that run again.
    pub failed: Vec<Box<str>>,
}

impl EndReason {
    /// Whether the agent that serves the request has to learn that it ended without its answer (Q9).
    #[must_use]
    pub const fn concerns_server(self) -> bool {
        match self {
            Self::Cancelled
            | Self::AskerEnded
            | Self::Stopped
            | Self::Deadline
            | Self::GrantExpired
            | Self::Unanswered => true,
            Self::Answered
            | Self::Empty
            | Self::NotAcknowledged
            | Self::LeaseLost
            | Self::NobodyLeft
            | Self::RecipientGone => false,
        }
    }
}

/// The opening of a turn (F1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnOpened {
    /// The next number.
    pub turn: TurnId,
    /// The task that the turn serves.
    pub task: TaskId,
    /// The attempt at the task, from 1.
    pub attempt: u32,
    /// The position of the delivered message.
    pub message: Seq,
    /// The end of the lease, unless activity renews it.
    pub lease_until: Time,
}

/// The end of a turn (F2), as the first edition wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnClosed {
    /// The turn that ended.
    pub turn: TurnId,
    /// Whether it finished, lost its lease or was withdrawn.
    pub end: TurnEnd,
    /// The status that the agent finished with; `None` if the agent did not finish the turn.
    pub status: Option<FinishStatus>,
    /// The tokens and the cost that are charged for the turn.
    pub spend: Spend,
}

/// Another attempt at a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requeued {
    /// The task of the request.
    pub task: TaskId,
    /// The agent that serves the next attempt; another one after a rejection (Q4).
    pub agent: AgentId,
    /// The reason for another attempt.
    pub why: Rerun,
    /// The new time to acknowledge, in ms.
    pub ack_ms: u64,
    /// For `partial`: the result of the first run.
    pub result: Option<Box<PartialResult>>,
}

/// The finish of a turn (F2), without a word on estimates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnFinished {
    /// The turn that the agent finished.
    pub turn: TurnId,
    /// The status of the finish as the broker resolved it.
    pub status: FinishStatus,
    /// The tokens and the cost that are charged for the turn.
    pub spend: Spend,
    /// The fingerprint of the finish, to recognise a retry of it (F6).
    pub said: u64,
}

/// The finish of a turn, with its charge (F2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnCharged {
    /// The turn that the agent finished.
    pub turn: TurnId,
    /// The status of the finish as the broker resolved it.
    pub status: FinishStatus,
    /// The tokens and the cost of the whole turn, including those that [`Fact::Spent`](super::Fact::Spent) charged before.
    pub spend: Spend,
    /// Whether the tokens are estimated from the length of the text.
    pub estimated: bool,
    /// The fingerprint of the finish, to recognise a retry of it (F6).
    pub said: u64,
}

/// Work of a program after its turn, which is charged to the grant of the turn (H4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkedOutside {
    /// The turn after which it worked: the agent's last one.
    pub turn: TurnId,
    /// The agent.
    pub agent: AgentId,
    /// The grant of the turn.
    pub grant: GrantId,
    /// What the program used beyond its turns.
    pub spend: Spend,
}

/// The result of a step of work (F7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepKept {
    /// The task that the step belongs to.
    pub task: TaskId,
    /// The agent that works on it.
    pub agent: AgentId,
    /// The key of the step, one for the task.
    pub key: RequestId,
    /// The result, as JSON.
    pub result: JsonText,
}
