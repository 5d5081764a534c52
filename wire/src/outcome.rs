//! How work ended, in one of six words that are the same on every surface that humans read.

use serde::{Deserialize, Serialize};

use lastword_facts::envelope::AnswerStatus;
use lastword_facts::words;

use crate::StoredMessage;

words! {
    /// How a request or a conversation ended.
    Outcome {
        /// The agent completed it.
        Completed = "completed",
        /// The agent completed a part of it.
        Partial = "partial",
        /// The agent declined or failed, or every agent that serves the action did.
        Failed = "failed",
        /// Nobody took it or finished it in time.
        TimedOut = "timed_out",
        /// Its requester or a human cancelled it, or the request above it ended.
        Cancelled = "cancelled",
        /// A human stopped its agent, its conversation or the workspace.
        Stopped = "stopped",
    }
}

impl Outcome {
    /// Returns the outcome of a request from its status, and from whether a human's stop ended it.
    #[must_use]
    pub const fn of(status: AnswerStatus, stopped: bool) -> Self {
        match status {
            _ if stopped => Self::Stopped,
            AnswerStatus::Completed => Self::Completed,
            AnswerStatus::Partial => Self::Partial,
            AnswerStatus::Rejected | AnswerStatus::Failed | AnswerStatus::Exhausted => Self::Failed,
            AnswerStatus::TimedOut => Self::TimedOut,
            AnswerStatus::Cancelled => Self::Cancelled,
        }
    }

    /// Returns the word that a human reads.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::TimedOut => "timed out",
            Self::Completed | Self::Partial | Self::Failed | Self::Cancelled | Self::Stopped => self.word(),
        }
    }
}

impl StoredMessage {
    /// Returns how the request that it answers ended; `None` if it is no answer.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        Some(Outcome::of(self.status?, self.stopped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_has_one_of_six_words() {
        let told = |stopped| AnswerStatus::ALL.iter().map(move |status| Outcome::of(*status, stopped).label());
        let words = ["completed", "partial", "failed", "failed", "timed out", "failed", "cancelled"];
        assert_eq!(told(false).collect::<Vec<_>>(), words);
        assert!(told(true).all(|word| word == "stopped"));
    }
}
