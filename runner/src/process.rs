//! A child in a process group of its own, which ends as a whole.

use std::ffi::OsString;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::settings::{OWN_VARIABLES, Settings};

/// How much of what an agent writes on standard error is kept.
const STDERR_BYTES_MAX: usize = 4096;
/// How often a group that was asked to end is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Time for what is left in the pipes of a process that has ended.
pub(crate) const DRAIN: Duration = Duration::from_secs(2);

/// The command of an agent: in its directory, in a group of its own, with the variables that it may see.
///
/// What the runner's own environment has of `LASTWORD_*` is taken out, above all a human's token.
pub(crate) fn command(settings: &Settings) -> Command {
    let mut command = Command::new(&settings.program);
    let ours = |(name, _): &(OsString, OsString)| name.as_encoded_bytes().starts_with(OWN_VARIABLES.as_bytes());
    for (name, _) in std::env::vars_os().filter(ours) {
        command.env_remove(name);
    }
    command
        .envs(&settings.env)
        .current_dir(&settings.cwd)
        .process_group(0)
        .kill_on_drop(true)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// The group of a child that was started with [`command`]. What is left of it is killed with this value.
#[derive(Debug)]
pub(crate) struct Group(Option<Pid>);

impl Group {
    pub(crate) fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw))
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.0 {
            // It may have ended by itself.
            let _gone = kill_process_group(group, signal);
        }
    }

    fn is_alive(&self) -> bool {
        self.0.is_some_and(|group| test_kill_process_group(group).is_ok())
    }

    /// Ends what is left of the group: asks, waits for the time given, and kills.
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
        // From here on the number may be somebody else's.
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// Ends a child and its group: asks, waits for the time given, and kills.
pub(crate) async fn end(child: &mut Child, group: Group, grace: Duration) -> io::Result<ExitStatus> {
    group.signal(Signal::TERM);
    if let Ok(status) = timeout(grace, child.wait()).await {
        group.end(Duration::ZERO).await;
        return status;
    }
    group.signal(Signal::KILL);
    let status = child.wait().await;
    group.end(Duration::ZERO).await;
    status
}

/// How a process ended, in words.
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

/// The first `bytes_max` bytes of a stream, which is read to its end, and how many there were.
pub(crate) async fn head(mut from: impl AsyncRead + Unpin, bytes_max: usize) -> (Vec<u8>, u64) {
    let (mut kept, mut total, mut buffer) = (Vec::new(), 0_u64, [0; 8192]);
    loop {
        match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return (kept, total),
            Ok(n) => {
                let room = bytes_max.saturating_sub(kept.len()).min(n);
                kept.extend_from_slice(&buffer[..room]);
                total = total.saturating_add(n as u64);
            }
        }
    }
}

/// The last part of a stream, which is read to its end and given to `keep` as it grows.
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

/// "exit code 3: what it said last".
pub(crate) fn with_tail(what: &str, said: &str) -> String {
    if said.is_empty() { what.to_owned() } else { format!("{what}: {said}") }
}
