//! Why a command failed, and its exit code.

use std::fmt::Display;
use std::process::ExitCode;

use lastword_broker::checkpoint::CheckpointError;
use lastword_client::ClientError;
use lastword_facts::Code;
use lastword_programs::LaunchError;
use lastword_server::backup::RestoreError;
use lastword_store::{
    AppendError, ArchiveError, BackupError, Broken, IndexError, OpenError, Problem as Mismatch, ReadError, VerifyError,
};
use lastword_wire::Problem;

use crate::token_source::TokenSource;

/// The exit codes, one for each kind of end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The command succeeded.
    Done = 0,
    /// The broker or a check of this program refused.
    Refused = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// A server or data is missing.
    Unavailable = 3,
    /// The request was answered, but not completed: rejected, failed, timed out, cancelled, or in part.
    NotCompleted = 4,
    /// There is no answer yet, or nothing came.
    NoAnswer = 5,
    /// A state that should be impossible.
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
    /// The exit code of the process.
    pub(crate) exit: Exit,
    /// What happened: a sentence without a full stop.
    pub(crate) message: String,
    /// The next step for the user.
    pub(crate) hint: Option<String>,
    /// The broker's refusal, if that is the cause.
    pub(crate) problem: Option<Box<Problem>>,
}

impl Failure {
    fn new(exit: Exit, message: impl Display) -> Self {
        Self { exit, message: message.to_string(), hint: None, problem: None }
    }

    /// Returns a failure of a check by this program.
    pub(crate) fn refused(message: impl Display) -> Self {
        Self::new(Exit::Refused, message)
    }

    /// Returns a failure for a wrong command line or configuration.
    pub(crate) fn usage(message: impl Display) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Returns a failure for a missing server, file or program.
    pub(crate) fn unavailable(message: impl Display) -> Self {
        Self::new(Exit::Unavailable, message)
    }

    /// Returns the end of a wait that brought an answer other than `completed`.
    pub(crate) fn not_completed(message: impl Display) -> Self {
        Self::new(Exit::NotCompleted, message)
    }

    /// Returns the end of a wait that brought no answer.
    pub(crate) fn no_answer(message: impl Display) -> Self {
        Self::new(Exit::NoAnswer, message)
    }

    /// Returns a failure for a state that should be impossible.
    pub(crate) fn bug(message: impl Display) -> Self {
        Self::new(Exit::Bug, message).hint("this is a bug in lastword, or the server runs another version")
    }

    /// Adds the next step for the user.
    pub(crate) fn hint(mut self, hint: impl Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }
}

#[cfg(feature = "cluster")]
impl From<lastword_cluster::NodeError> for Failure {
    fn from(error: lastword_cluster::NodeError) -> Self {
        Self::unavailable(error)
    }
}

/// What hints name for models and programs, each with what a user of the shell does instead.
const TOOLS: [(&str, &str); 4] = [
    ("list_agents", "`lastword agent list`"),
    ("escalate_to_user", "`lastword send user`"),
    ("Fix the field named in `detail`, then resend", "Fix what the error names, then run the command again"),
    ("Send a valid token in the header `Authorization: Bearer TOKEN`", "Name a valid token with --token-file FILE"),
];

impl Failure {
    /// Names the source of a token that the server doesn't accept.
    pub(crate) fn proven_by(mut self, source: &TokenSource) -> Self {
        if self.problem.as_ref().is_some_and(|problem| problem.code == Code::Unauthenticated) {
            self = self.in_token(source);
            let is_path = matches!(source, TokenSource::Text(text) if std::path::Path::new(text.trim()).is_file());
            if is_path {
                self = self.hint("LASTWORD_TOKEN is the token itself; name its file in LASTWORD_TOKEN_FILE");
            }
        }
        self
    }

    /// Names the source of a token that is none.
    pub(crate) fn in_token(mut self, source: &TokenSource) -> Self {
        self.message = format!("{source}: {}", self.message);
        self
    }

    /// Names the team in which a recipient was looked for: another folder may have another one.
    pub(crate) fn looked_in(mut self, team: &str) -> Self {
        if self.problem.as_ref().is_some_and(|problem| problem.code == Code::UnknownRecipient)
            && let Some(hint) = &mut self.hint
        {
            let path = std::path::absolute(team).ok().filter(|_| !team.contains("://"));
            let team = path.map_or_else(|| team.to_owned(), |path| path.display().to_string());
            hint.push_str(&format!("\nlooked for in the team of {team}"));
        }
        self
    }
}

/// Words a hint for the shell.
fn at_the_shell(hint: &str) -> String {
    TOOLS.iter().fold(hint.to_owned(), |hint, (tool, command)| hint.replace(tool, command))
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
                let hint = format!("{}{parts}", at_the_shell(&problem.hint));
                Self { exit, message, hint: Some(hint), problem: Some(problem) }
            }
            // The error itself names the address to use.
            ClientError::Unreachable { reason, .. } if reason.contains("begins with http://") => {
                Self::unavailable(message)
            }
            ClientError::Unreachable { .. } => Self::unavailable(message)
                .hint("start a server with `lastword serve`, or name a running one with --url"),
            ClientError::Untrusted { .. } => Self::refused(message).hint(
                "if its certificate was changed on purpose, name the fingerprint that `lastword serve` prints with \
                 --tls-pin (LASTWORD_TLS_PIN); otherwise something else answers at this address",
            ),
            ClientError::Unusable(_) => Self::usage(message),
            ClientError::Unexpected { .. } => Self::bug(message),
        }
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        // The error's text already says what to do.
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
            VerifyError::Broken(broken @ Broken { problem: Mismatch::Replaced { first, .. }, .. }) => {
                Self::refused(format!("the log is broken at {broken}")).hint(format!(
                    "if you restored a backup then, name that restore: --restored {}; if not, the log was cut off",
                    first.0
                ))
            }
            VerifyError::Broken(broken) => Self::refused(format!("the log is broken at {broken}"))
                .hint("keep the files unchanged, and restore lastword.db from a backup"),
        }
    }
}

impl From<ArchiveError> for Failure {
    fn from(error: ArchiveError) -> Self {
        // The error's text says which file it is about.
        Self::unavailable(error).hint("nothing has changed; `lastword archive` lists the segments")
    }
}

impl From<CheckpointError> for Failure {
    fn from(error: CheckpointError) -> Self {
        match error {
            CheckpointError::Open(error) => error.into(),
            CheckpointError::Read(error) => error.into(),
            CheckpointError::NoKey(_) => Self::unavailable(error).hint("start `lastword serve` once"),
            CheckpointError::Note(_) | CheckpointError::Text(_) | CheckpointError::Origin { .. } => {
                Self::refused(error)
                    .hint("`lastword checkpoint --key` prints the key of a log, on its server's machine")
            }
            CheckpointError::File { .. } => Self::unavailable(error),
        }
    }
}

impl From<BackupError> for Failure {
    fn from(error: BackupError) -> Self {
        match error {
            BackupError::Open(error) => error.into(),
            BackupError::Damaged(_) | BackupError::Unproven(_) => {
                Self::refused(error).hint("take another backup; the data directory is as before")
            }
            BackupError::Database(_) | BackupError::File(_) => Self::unavailable(error),
        }
    }
}

impl From<RestoreError> for Failure {
    fn from(error: RestoreError) -> Self {
        match error {
            RestoreError::Backup(error) => error.into(),
            RestoreError::Boot(_) | RestoreError::Checkpoints(_) | RestoreError::File { .. } => {
                Self::unavailable(error)
            }
        }
    }
}

impl From<LaunchError> for Failure {
    fn from(error: LaunchError) -> Self {
        match error {
            LaunchError::Refused { problem, hint } => Self { hint: hint.map(str::to_owned), ..Self::refused(problem) },
            LaunchError::Unreadable(problem) => Self::usage(problem),
            LaunchError::File(error) => error.into(),
        }
    }
}

impl From<rustix::io::Errno> for Failure {
    fn from(error: rustix::io::Errno) -> Self {
        std::io::Error::from(error).into()
    }
}

/// Maps a failed write to standard output.
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            // The reader closed the pipe and needs no more, as `head` does.
            return Self::new(Exit::Done, "");
        }
        Self::unavailable(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_hint_at_the_shell_names_a_tool_of_models() {
        let tools =
            include_str!("../../docs/mcp.md").lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        let tools: Vec<&str> = tools.filter(|name| name.contains('_')).collect();
        let named = |hint: &str| tools.iter().any(|tool| hint.contains(tool));
        assert!(Code::ALL.iter().any(|code| named(code.hint())), "else this looks at nothing");
        for code in Code::ALL {
            let hint = at_the_shell(code.hint());
            assert!(!named(&hint), "{code}: {hint}");
        }
    }
}
