//! Runs the programs of others.

use std::path::Path;
use std::process::Command;

use crate::Failed;

/// Runs a command to its end; fails if it does.
pub(crate) fn command(program: &str, args: &[&str]) -> Result<(), Failed> {
    passed(Command::new(program).args(args))
}

/// Runs a command in a folder.
pub(crate) fn command_in(folder: &Path, program: &str, args: &[&str]) -> Result<(), Failed> {
    passed(Command::new(program).args(args).current_dir(folder))
}

/// Runs a command to its end; fails if it does.
pub(crate) fn passed(command: &mut Command) -> Result<(), Failed> {
    let status = command.status().map_err(|error| Failed::new(format!("{command:?}: {error}")))?;
    if status.success() { Ok(()) } else { Err(Failed::new(format!("{command:?}: {status}"))) }
}
