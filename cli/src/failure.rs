//! Why a command failed: for whom, and with which exit code.

use std::fmt::Display;
use std::process::ExitCode;

use lastword_client::ClientError;
use lastword_proto::wire::Problem;
use lastword_store::{AppendError, IndexError, OpenError, ReadError, VerifyError};

/// The exit codes, one for each kind of end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It was done.
    Done = 0,
    /// The broker, or a check of ours, said no.
    Refused = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// No server, or no data, to do it with.
    Unavailable = 3,
    /// Something that should be impossible.
    Bug = 70,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// With which code to exit.
    pub(crate) exit: Exit,
    /// What happened, in a sentence without a full stop.
    pub(crate) message: String,
    /// What to do next.
    pub(crate) hint: Option<String>,
    /// The broker's refusal, if it is one.
    pub(crate) problem: Option<Box<Problem>>,
}

impl Failure {
    fn new(exit: Exit, message: impl Display) -> Self {
        Self { exit, message: message.to_string(), hint: None, problem: None }
    }

    /// A check of ours said no.
    pub(crate) fn refused(message: impl Display) -> Self {
        Self::new(Exit::Refused, message)
    }

    /// The command line or the configuration is wrong.
    pub(crate) fn usage(message: impl Display) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Nothing to do it with.
    pub(crate) fn unavailable(message: impl Display) -> Self {
        Self::new(Exit::Unavailable, message)
    }

    /// Something that should be impossible.
    pub(crate) fn bug(message: impl Display) -> Self {
        Self::new(Exit::Bug, message).hint("this is a bug in lastword, or the server runs another version")
    }

    /// Adds what to do next.
    pub(crate) fn hint(mut self, hint: impl Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let message = error.to_string();
        match error {
            ClientError::Refused(problem) => {
                let exit = if problem.status == 503 { Exit::Unavailable } else { Exit::Refused };
                let retry = problem.retry_after_ms.map(|ms| format!(" (retry after {ms} ms)"));
                let lift = problem.lift.as_ref().map(|lift| format!("\na human can lift it: {}", lift.cli));
                let more = problem.record.as_ref().map(|record| format!("\ndetails: lastword explain {record}"));
                let parts = [retry, lift, more].map(Option::unwrap_or_default).concat();
                let hint = format!("{}{parts}", problem.hint);
                Self { exit, message, hint: Some(hint), problem: Some(problem) }
            }
            ClientError::Unreachable { .. } => Self::unavailable(message)
                .hint("start a server with `lastword serve`, or name a running one with --url"),
            ClientError::Unusable(_) => Self::usage(message),
            ClientError::Unexpected { .. } => Self::bug(message),
        }
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        // Its text says what to do.
        Self::unavailable(error)
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        Self::unavailable(error).hint("run `lastword verify`")
    }
}

impl From<AppendError> for Failure {
    fn from(error: AppendError) -> Self {
        Self::unavailable(error)
    }
}

impl From<IndexError> for Failure {
    fn from(error: IndexError) -> Self {
        Self::unavailable(error)
    }
}

impl From<VerifyError> for Failure {
    fn from(error: VerifyError) -> Self {
        match error {
            VerifyError::Open(error) => error.into(),
            VerifyError::Broken(broken) => Self::refused(format!("the log is broken at {broken}"))
                .hint("keep the files unchanged, and restore lastword.db from a backup"),
        }
    }
}

/// A failed write to standard output.
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            // Whoever read our output has seen enough.
            return Self::new(Exit::Done, "");
        }
        Self::unavailable(error)
    }
}
