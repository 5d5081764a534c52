//! Ends the programs of runners whose process is killed. A separate process reads their groups from a pipe, and ends those
//! that are left when the pipe closes.

use std::io::{BufRead, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

/// Grace period before a group is killed, and the pause between two checks.
const GRACE: Duration = Duration::from_secs(3);
const CHECK: Duration = Duration::from_millis(20);

/// The pipe to the guard process; `None` if that didn't start.
#[derive(Debug)]
pub(crate) struct Guard(Mutex<Option<ChildStdin>>);

impl Guard {
    /// Returns the guard of this process, which the first runner starts. Programs run without it, too, and then outlive a
    /// killed runner.
    pub(crate) fn of_this_process(lastword: &Path) -> &'static Self {
        static GUARD: OnceLock<Guard> = OnceLock::new();
        let start = || {
            let mut command = Command::new(lastword);
            command.args(["end-program", "--groups"]).env_clear().process_group(0);
            let piped = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
            Self(Mutex::new(piped.spawn().ok().and_then(|mut guard| guard.stdin.take())))
        };
        GUARD.get_or_init(start)
    }

    pub(crate) fn watch(&self, group: Pid) {
        self.say('+', group);
    }

    pub(crate) fn forget(&self, group: Pid) {
        self.say('-', group);
    }

    fn say(&self, sign: char, group: Pid) {
        let mut pipe = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(out) = pipe.as_mut() {
            // A guard that is gone ends nothing.
            let _gone = writeln!(out, "{sign}{}", group.as_raw_nonzero());
        }
    }
}

/// Reads process groups, `+17` for one that began and `-17` for one that ended, and ends those that are left at the end of
/// the input.
///
/// # Errors
/// The input can't be read.
pub fn guard_groups(from: impl BufRead) -> std::io::Result<()> {
    let mut groups: Vec<Pid> = Vec::new();
    for line in from.lines() {
        let line = line?;
        let group = line.get(1..).and_then(|id| id.parse().ok()).and_then(Pid::from_raw);
        match (line.chars().next(), group) {
            (Some('+'), Some(group)) => groups.push(group),
            (Some('-'), Some(group)) => groups.retain(|known| *known != group),
            _ => {}
        }
    }
    let signal = |groups: &[Pid], signal| {
        for group in groups {
            let _gone = kill_process_group(*group, signal);
        }
    };
    signal(&groups, Signal::TERM);
    for _ in 0..GRACE.as_millis() / CHECK.as_millis() {
        groups.retain(|group| test_kill_process_group(*group).is_ok());
        if groups.is_empty() {
            break;
        }
        std::thread::sleep(CHECK);
    }
    signal(&groups, Signal::KILL);
    Ok(())
}
