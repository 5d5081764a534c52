//! A child process in its own process group, which is ended as a whole.

use std::ffi::OsString;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use lastword_client::RetryingClient;

use crate::guard::Guard;
use crate::settings::{OWN_VARIABLES, Settings};

/// Most bytes kept of an agent's standard error: its end.
const STDERR_BYTES_MAX: usize = 4096;
/// Longest line of machine output that is read: a program may print a tool's whole result in one line.
const LINE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Pause between two checks whether a signalled group has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Time to drain the pipes of a process that has ended.
pub(crate) const DRAIN: Duration = Duration::from_secs(2);

/// Builds the agent's command: in its directory and its own process group, with the environment that it may see.
///
/// `LASTWORD_*` variables of the runner's environment are removed, above all a human's token.
pub(crate) fn command(settings: &Settings) -> Command {
    let mut command = Command::new(&settings.program);
    scrub(command.as_std_mut());
    command
        .envs(&settings.env)
        // Hooks of the program stay silent: the runner delivers, and finishes the turn.
        .env("LASTWORD_RUN", "1")
        .current_dir(&settings.cwd)
        .process_group(0)
        .kill_on_drop(true)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Removes this process's own variables from the environment of one that it starts: a human's token, above all.
pub fn scrub(command: &mut std::process::Command) {
    let ours = |(name, _): &(OsString, OsString)| name.as_encoded_bytes().starts_with(OWN_VARIABLES.as_bytes());
    for (name, _) in std::env::vars_os().filter(ours) {
        command.env_remove(name);
    }
}

/// Passes on the agent's own token and the address of its broker, for tools that the agent calls.
pub(crate) fn equip(command: &mut Command, broker: &RetryingClient) {
    for (name, value) in broker.client().endpoint().variables() {
        // Those that are unset are none of the agent's either: `command` has removed them.
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    command.env("LASTWORD_TOKEN", broker.token().reveal());
}

/// The process group of a child started with [`command`]. Dropping it kills the rest of the group, and so does the guard
/// if this process is killed.
#[derive(Debug)]
pub(crate) struct Group(Option<Pid>, &'static Guard);

impl Group {
    pub(crate) fn of(child: &Child, guard: &'static Guard) -> Self {
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(group) = group {
            guard.watch(group);
        }
        Self(group, guard)
    }

    /// From here on the number may be reused by another process, which must not be signalled.
    fn forget(&mut self) {
        if let Some(group) = self.0.take() {
            self.1.forget(group);
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.0 {
            // The group may already be gone.
            let _gone = kill_process_group(group, signal);
        }
    }

    fn is_alive(&self) -> bool {
        self.0.is_some_and(|group| test_kill_process_group(group).is_ok())
    }

    /// Ends the rest of the group: SIGTERM, then SIGKILL after `grace`.
    pub(crate) async fn end(mut self, grace: Duration) {
        self.signal(Signal::TERM);
        let over = async {
            while self.is_alive() {
                sleep(LOOK_AGAIN).await;
            }
        };
        let ended = timeout(grace, over).await;
        if ended.is_err() {
            self.signal(Signal::KILL);
        }
        self.forget();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        self.forget();
    }
}

/// Ends a child and its group: SIGTERM, then SIGKILL after `grace`.
pub(crate) async fn end(child: &mut Child, group: Group, grace: Duration) -> io::Result<ExitStatus> {
    group.signal(Signal::TERM);
    if let Ok(status) = timeout(grace, child.wait()).await {
        // The child is gone; what it started gets no further grace.
        group.end(Duration::ZERO).await;
        return status;
    }
    group.signal(Signal::KILL);
    let status = child.wait().await;
    group.end(Duration::ZERO).await;
    status
}

/// Describes how a process ended: its exit code or signal.
pub(crate) fn ending(status: &io::Result<ExitStatus>) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("killed by signal {signal}"),
            (None, None) => "it ended".to_owned(),
        },
        Err(error) => format!("it can't be waited for: {error}"),
    }
}

/// Reads a stream to its end and passes on each line; returns its first `bytes_max` bytes and its total length.
pub(crate) async fn head(
    mut from: impl AsyncRead + Unpin,
    bytes_max: usize,
    mut each: impl FnMut(&[u8]),
) -> (Vec<u8>, u64) {
    let (mut kept, mut total, mut buffer, mut lines) = (Vec::new(), 0_u64, [0; 8192], Lines::default());
    loop {
        match from.read(&mut buffer).await {
            Ok(0) | Err(_) => {
                lines.push(b"\n", &mut each);
                return (kept, total);
            }
            Ok(n) => {
                lines.push(&buffer[..n], &mut each);
                // Keep reading past the limit: a process whose pipe is full would block.
                let room = bytes_max.saturating_sub(kept.len()).min(n);
                kept.extend_from_slice(&buffer[..room]);
                total = total.saturating_add(n as u64);
            }
        }
    }
}

/// Splits a stream into lines. A line longer than `LINE_BYTES_MAX` is skipped.
#[derive(Default)]
struct Lines {
    line: Vec<u8>,
    skips: bool,
}

impl Lines {
    fn push(&mut self, bytes: &[u8], each: &mut impl FnMut(&[u8])) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.skips |= self.line.len() + part.len() > LINE_BYTES_MAX;
            if !self.skips {
                self.line.extend_from_slice(part);
            }
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                if !std::mem::take(&mut self.skips) {
                    each(&line);
                }
            }
        }
    }
}

/// Reads a stream to its end and passes its last `STDERR_BYTES_MAX` bytes to `keep` as it grows.
pub(crate) async fn tail(mut from: impl AsyncRead + Unpin, keep: impl Fn(&str)) {
    let (mut kept, mut buffer) = (Vec::new(), [0; 2048]);
    loop {
        match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(n) => {
                kept.extend_from_slice(&buffer[..n]);
                let over = kept.len().saturating_sub(STDERR_BYTES_MAX);
                kept.drain(..over);
                keep(String::from_utf8_lossy(&kept).trim());
            }
        }
    }
}

/// Appends the last line of the standard error: "exit code 3: no such file".
pub(crate) fn with_tail(what: &str, said: &str) -> String {
    let last = said.lines().rev().map(str::trim).find(|line| !line.is_empty());
    last.map_or_else(|| what.to_owned(), |last| format!("{what}: {last}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_passed_on_whole_and_one_that_is_too_long_is_skipped() {
        let (mut lines, mut seen) = (Lines::default(), Vec::new());
        let mut each = |line: &[u8]| seen.push(line.len());
        for part in [b"ab".as_slice(), b"c\nde\n", &vec![b'x'; LINE_BYTES_MAX], b"y\nf", b"\n"] {
            lines.push(part, &mut each);
        }
        assert_eq!(seen, [4, 3, 2]);
    }
}
