//! Errors of a measurement, by exit code.

use std::fmt::Display;

use lastword_client::ClientError;
use lastword_server::StartError;
use lastword_store::{AppendError, OpenError, ReadError, SnapshotError};

/// A measurement that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code, as for `lastword`: 1 refused, 2 usage, 3 unavailable, 70 a bug.
    pub(crate) exit: u8,
    /// A sentence without a full stop.
    pub(crate) message: String,
    /// The next step for the user, if there is one.
    pub(crate) hint: Option<String>,
}

impl Failure {
    fn new(exit: u8, message: impl Display) -> Self {
        Self { exit, message: message.to_string(), hint: None }
    }

    /// Returns a failure: the broker refused an input of the measurement.
    pub(crate) fn refused(message: impl Display) -> Self {
        Self::new(1, message)
    }

    /// Returns a failure: the command line is wrong.
    pub(crate) fn usage(message: impl Display) -> Self {
        Self::new(2, message)
    }

    /// Returns a failure: a server, file or program can't be used.
    pub(crate) fn unavailable(message: impl Display) -> Self {
        Self::new(3, message)
    }

    /// Returns a failure: a response that the protocol rules out.
    pub(crate) fn bug(message: impl Display) -> Self {
        Self::new(70, message)
    }

    /// Says of whom it is.
    pub(crate) fn of(mut self, whom: &str) -> Self {
        self.message = format!("{whom}: {}", self.message);
        self
    }

    /// Adds the next step for the user.
    pub(crate) fn hint(mut self, hint: impl Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Refused(_) => Self::refused(error),
            ClientError::Unreachable { .. } | ClientError::Untrusted { .. } => Self::unavailable(error),
            ClientError::Unusable(_) => Self::usage(error),
            ClientError::Unexpected { .. } => Self::bug(error),
        }
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        Self::unavailable(error)
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        Self::unavailable(error)
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        Self::unavailable(error)
    }
}

impl From<AppendError> for Failure {
    fn from(error: AppendError) -> Self {
        Self::unavailable(error)
    }
}

impl From<SnapshotError> for Failure {
    fn from(error: SnapshotError) -> Self {
        Self::unavailable(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::unavailable(error)
    }
}
