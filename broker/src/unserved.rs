//! Why the broker did not serve an input, and why it stopped.

use std::sync::Arc;

use lastword_facts::{Code, Refusal};
use lastword_store::{AppendError, ReadError};

/// How long a caller should wait before it retries when the queue is full, in ms.
const SATURATED_RETRY_MS: u64 = 250;
/// The same when the disk is low, in ms. Longer, because a human has to make room.
const DISK_RETRY_MS: u64 = 10_000;

/// Why the broker did not judge an input, or can't say whether it did.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unserved {
    /// The broker's queue is full.
    #[error("the broker's queue is full")]
    Saturated,
    /// The disk has too little room for this input; nothing was written.
    #[error("the disk is {}, so that nothing new is taken", if *full { "full" } else { "low" })]
    DiskLow {
        /// Whether an append found no room, rather than the free space being below the watermark.
        full: bool,
    },
    /// The log's files are no longer at their path; what was written isn't found by the next start.
    #[error("the log is no longer at its path, so that nothing is taken")]
    LogGone,
    /// The broker has stopped; whether the input was made durable is unknown.
    #[error("the broker has stopped: {0}")]
    Down(Arc<str>),
}

impl Unserved {
    /// Returns the refusal that every edge reports for it, with the delay after which to retry.
    #[must_use]
    pub fn refusal(&self) -> Refusal {
        match self {
            Self::DiskLow { .. } => Refusal::new(Code::DiskLow).retry_after(DISK_RETRY_MS),
            Self::LogGone => Refusal::new(Code::LogGone).retry_after(DISK_RETRY_MS),
            Self::Saturated | Self::Down(_) => Refusal::new(Code::Saturated).retry_after(SATURATED_RETRY_MS),
        }
    }
}

/// Why the broker stopped before it was shut down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerFailure {
    /// What happened and what to do about it, in one sentence.
    pub reason: Arc<str>,
    /// Whether the cause is a bug in the broker rather than the log or its disk.
    pub bug: bool,
}

impl BrokerFailure {
    /// A failed append to the log.
    pub(crate) fn append(error: &AppendError) -> Self {
        let advice = match error {
            AppendError::Fenced { .. } => "another server leads this workspace now",
            AppendError::Conflict { .. }
            | AppendError::Ambiguous { .. }
            | AppendError::Full { .. }
            | AppendError::Fatal { .. } => "restart the server: it reads what was written",
        };
        Self { reason: format!("{error}; {advice}").into(), bug: false }
    }

    /// A failed read of the log.
    pub(crate) fn unread(error: &ReadError) -> Self {
        Self { reason: format!("{error}; run `lastword verify`").into(), bug: false }
    }

    /// A panic on the judge's or the writer's thread.
    pub(crate) fn bug(panic: &str) -> Self {
        let reason = format!("the broker panicked: {panic}; restart the server: it reads what was written");
        Self { reason: reason.into(), bug: true }
    }
}
