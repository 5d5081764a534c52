//! The one error of this program: a sentence for a person.

use std::process::ExitCode;

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failed {
    reason: String,
    code: u8,
}

impl Failed {
    /// Something is not as it must be.
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), code: 1 }
    }

    /// The command line is none of `usage`.
    pub(crate) fn usage(usage: &str) -> Self {
        Self { reason: format!("usage:\n{usage}"), code: 2 }
    }

    /// Prints the reason and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        eprintln!("{}", self.reason);
        ExitCode::from(self.code)
    }
}

impl<E: std::error::Error> From<E> for Failed {
    fn from(error: E) -> Self {
        Self::new(error.to_string())
    }
}
