//! `lastword end-program`: ends a launched program when its launcher is gone, however that ended. Not for users.
//!
//! The launcher writes the program's process id, and a second line once the program has ended. An end without that line is
//! the launcher's own.

use std::fs;
use std::io::{Read as _, Write as _, stderr, stdin, stdout};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, getpgid, getppid, kill_process};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};

use super::launch::this_program;
use crate::failure::Failure;

/// Follows the process id of a program with a terminal of its own.
const OWN: &str = " own";
/// Grace period before the program is killed, and the pause between two checks.
const GRACE: Duration = Duration::from_secs(3);
const CHECK: Duration = Duration::from_millis(20);
/// Linux's table of processes; elsewhere `ps` tells of them.
const PROCESSES: &str = "/proc";
/// Starts the guard without the signals by which a terminal ends or stops a program.
const DEAF: &str = r#"trap '' HUP INT QUIT TERM TSTP TTIN TTOU; exec "$@""#;
/// Leaves the modes of a terminal that a killed program had no time to leave: the other screen, the hidden cursor, the
/// mouse, pasting, reports of focus, the other keyboard.
const LEAVE: &str =
    "\x1b[?1049l\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1004l\x1b[<u\x1b[0m\r\n";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Read the process groups of runners instead
    #[arg(long)]
    groups: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if args.groups {
        return Ok(lastword_programs::guard_groups(stdin().lock())?);
    }
    let Some(launcher) = getppid() else { return Ok(()) };
    let terminal = Modes::of(stderr(), launcher);
    // From here on the program may change the terminal.
    writeln!(stdout())?;
    let mut lines = stdin().lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    let own = first.ends_with(OWN);
    let Some(program) = first.trim_end_matches(OWN).parse().ok().and_then(Pid::from_raw) else { return Ok(()) };
    if lines.next().is_none() && (end_tree(program) || own) {
        terminal.restore(stderr());
    }
    Ok(())
}

/// The guard of a launcher's program.
pub(super) struct Guard(Child);

impl Guard {
    /// Starts the guard, before the program may change the terminal.
    pub(super) fn start() -> Result<Self, Failure> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", DEAF, "sh", &this_program()?, "end-program"]).env_clear().process_group(0);
        let terminal = stdin().as_fd().try_clone_to_owned()?;
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(terminal).spawn()?;
        if let Some(mut out) = child.stdout.take() {
            // An end without a byte shows as a failed write of the process id.
            let _ready = out.read(&mut [0])?;
        }
        Ok(Self(child))
    }

    /// Tells it the program's process id, and whether the program has a terminal of its own, so that it leaves the person's
    /// as the launcher set it.
    pub(super) fn watch(&mut self, program: Pid, own: bool) -> Result<(), Failure> {
        let mark = if own { OWN } else { "" };
        let said = self.say(&format!("{}{mark}", program.as_raw_nonzero()));
        said.map_err(|error| Failure::unavailable(format!("the guard of the program did not start: {error}")))
    }

    /// Tells it that the program has ended.
    pub(super) fn release(mut self) {
        // A guard that is gone ends nothing.
        let _gone = self.say("ended").and_then(|()| self.0.wait());
    }

    fn say(&mut self, line: &str) -> std::io::Result<()> {
        self.0.stdin.as_mut().map_or(Ok(()), |stdin| writeln!(stdin, "{line}"))
    }
}

/// The modes of a terminal before a program changed them.
pub(super) struct Modes {
    before: Option<Termios>,
    /// The process group of the launcher.
    group: Option<Pid>,
}

impl Modes {
    pub(super) fn of(terminal: impl AsFd, launcher: Pid) -> Self {
        Self { before: tcgetattr(terminal).ok(), group: getpgid(Some(launcher)).ok() }
    }

    /// Restores them after a program that had no time to, unless a shell has taken the terminal back: it restores them
    /// itself, and then reads keys in modes of its own.
    pub(super) fn restore(&self, terminal: impl AsFd) {
        let Some(before) = &self.before else { return };
        if tcgetpgrp(&terminal).is_err() || tcgetpgrp(&terminal).ok() == self.group {
            // A terminal that is gone needs nothing.
            let _gone = tcsetattr(&terminal, OptionalActions::Now, before);
        }
        let _gone = rustix::io::write(&terminal, LEAVE.as_bytes());
    }
}

/// Terminates a process and its descendants, and kills what is left after the grace period. Returns whether the process
/// itself was killed.
pub(super) fn end_tree(root: Pid) -> bool {
    let mut tree = table().below(root);
    // It may have ended by now.
    let _gone = kill_process(root, Signal::TERM);
    for _ in 0..GRACE.as_millis() / CHECK.as_millis() {
        let now = table();
        if !tree.first().is_some_and(|program| now.runs(program)) {
            break;
        }
        // What it has started meanwhile.
        let more = now.below(root).into_iter().filter(|process| !tree.contains(process)).collect::<Vec<_>>();
        tree.extend(more);
        std::thread::sleep(CHECK);
    }
    let now = table();
    let left: Vec<&Process> = tree.iter().filter(|process| now.runs(process)).collect();
    for process in &left {
        let _gone = kill_process(process.id, Signal::KILL);
    }
    left.first().is_some_and(|process| process.id == root)
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Process {
    id: Pid,
    parent: Option<Pid>,
    /// Its start time, which tells it from a later process with the same id.
    since: String,
}

/// The running processes.
struct Processes(Vec<Process>);

/// Reads the running processes; zombies aren't among them.
fn table() -> Processes {
    let process = |id: &str, state: &str, parent: &str, since: String| {
        let id = Pid::from_raw(id.parse().ok()?)?;
        (!state.starts_with('Z')).then_some(Process { id, parent: Pid::from_raw(parent.parse().ok()?), since })
    };
    if let Ok(entries) = fs::read_dir(PROCESSES) {
        let each = entries.flatten().filter_map(|entry| {
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            // The program's name stands before, and may hold anything.
            let rest: Vec<&str> = stat.rsplit(") ").next()?.split(' ').collect();
            process(entry.file_name().to_str()?, rest.first()?, rest.get(1)?, (*rest.get(19)?).to_owned())
        });
        return Processes(each.collect());
    }
    let listed = Command::new("/bin/ps").args(["-A", "-o", "pid=,state=,ppid=,lstart="]).output();
    let listed = listed.map(|listed| String::from_utf8_lossy(&listed.stdout).into_owned()).unwrap_or_default();
    let each = listed.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        process(words.first()?, words.get(1)?, words.get(2)?, words.get(3..)?.join(" "))
    });
    Processes(each.collect())
}

impl Processes {
    fn runs(&self, process: &Process) -> bool {
        self.0.iter().any(|known| known.id == process.id && known.since == process.since)
    }

    /// Returns a process, and behind it all that it started.
    fn below(&self, root: Pid) -> Vec<Process> {
        let mut found: Vec<Process> = self.0.iter().filter(|process| process.id == root).cloned().collect();
        let mut at = 0;
        while let Some(parent) = found.get(at).map(|process| process.id) {
            found.extend(self.0.iter().filter(|process| process.parent == Some(parent)).cloned());
            at += 1;
        }
        found
    }
}
