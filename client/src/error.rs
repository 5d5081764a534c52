//! Why a call gave nothing, by what the caller can do.

use lastword_proto::wire::Problem;

/// Why a call gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The broker said no, and what to do instead.
    #[error("{} ({})", .0.detail, .0.code)]
    Refused(Box<Problem>),
    /// Nobody answers at that address.
    #[error("no answer from {url}: {reason}")]
    Unreachable {
        /// The server's address.
        url: String,
        /// What happened.
        reason: String,
    },
    /// The address or the token can't be used at all.
    #[error("{0}")]
    Unusable(String),
    /// Something answered that is no Lastword server of this version.
    #[error("unexpected answer from {url} (status {status}): {detail}")]
    Unexpected {
        /// The address called.
        url: String,
        /// The HTTP status.
        status: u16,
        /// The start of what it said, or what is wrong with it.
        detail: String,
    },
}

impl ClientError {
    /// The refusal, if it is one.
    #[must_use]
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Refused(problem) => Some(problem),
            Self::Unreachable { .. } | Self::Unusable(_) | Self::Unexpected { .. } => None,
        }
    }
}
