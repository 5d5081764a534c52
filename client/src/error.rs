//! Errors of a call, by what the caller can do about them.

use lastword_facts::Code;
use lastword_wire::Problem;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The broker refused the call; the problem's hint says what to do instead.
    #[error("{} ({})", .0.detail, .0.code)]
    Refused(Box<Problem>),
    /// The address doesn't answer.
    #[error("no answer from {url}: {reason}")]
    Unreachable {
        /// The server's address.
        url: String,
        /// The error of the connection, such as "Connection refused".
        reason: String,
    },
    /// The server's certificate isn't accepted; nothing was sent to it.
    #[error("{url} isn't the server that is expected: {reason}")]
    Untrusted {
        /// The server's address.
        url: String,
        /// What is wrong with the certificate; for a pin, both fingerprints.
        reason: String,
    },
    /// The address, the token, or a certificate's pin or authority is malformed.
    #[error("{0}")]
    Unusable(String),
    /// The response isn't from a Lastword server of this version.
    #[error("unexpected answer from {url} (status {status}): {detail}")]
    Unexpected {
        /// The address called.
        url: String,
        /// The HTTP status.
        status: u16,
        /// The start of the response, or the parser's error.
        detail: String,
    },
}

impl ClientError {
    /// Returns the last position that the log shares with the history of a position that it doesn't have, because a
    /// restore went back to before it (L8). Events go on behind it.
    #[must_use]
    pub fn shared_position(&self) -> Option<u64> {
        self.problem().filter(|problem| problem.code == Code::EpochOver)?.limit
    }

    /// Returns the broker's refusal, if the error is one.
    #[must_use]
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Refused(problem) => Some(problem),
            Self::Unreachable { .. } | Self::Untrusted { .. } | Self::Unusable(_) | Self::Unexpected { .. } => None,
        }
    }
}
