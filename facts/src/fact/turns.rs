//! How runs of a request begin and end (F1, F4).

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::envelope::words;

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
