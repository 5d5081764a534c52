//! How runs of a request begin and end (F1, F4).

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::envelope::words;

words! {
    /// What brought an answer about.
    EndReason {
        /// The agent answered.
        Answered = "answered",
        /// The agent's answer was empty (F4).
        Empty = "empty",
        /// Nobody acknowledged in time, twice (Q3).
        NotAcknowledged = "not_acknowledged",
        /// The lease was lost, twice (F4).
        LeaseLost = "lease_lost",
        /// The request's deadline passed (F4).
        Deadline = "deadline",
        /// The grant expired (D8).
        GrantExpired = "grant_expired",
        /// No agent is left that could do it (Q6).
        NobodyLeft = "nobody_left",
        /// The asker or a human cancelled it (Q9).
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
    /// Why a request is run again on the same task.
    Rerun {
        /// Nobody acknowledged in time (Q3).
        AckTimeout = "ack_timeout",
        /// The lease was lost (F4).
        LeaseLost = "lease_lost",
        /// Rejected, and another agent serves the action (Q4).
        Rejected = "rejected",
        /// Partly done: the failed parts again (Q5).
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
        /// Its request was settled otherwise.
        Withdrawn = "withdrawn",
    }
}

/// What the first run of a partly done request gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartialResult {
    /// Its text.
    pub body: Box<str>,
    /// Parts done.
    pub completed: Vec<Box<str>>,
    /// Parts to be done again.
    pub failed: Vec<Box<str>>,
}
