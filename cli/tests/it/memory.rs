//! What an agent can read of the process that started it, a runner or a launcher, and of its files.

#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::closed::closed_folder;
use crate::program::{PATH, Server};
use crate::running::{Running, ask, wait_for};

/// `nobody`: a user without root's right to read every process.
const NOBODY: u32 = 65_534;
/// Says which files of a process can be opened: its own environment, its memory, and where that is.
const LOOK: &str = r#"for file in environ mem maps; do
    if (exec 3<"/proc/$1/$file") 2>/dev/null; then echo "$2 $file opens"; else echo "$2 $file is refused"; fi
done"#;

/// Returns a copy of the program that every user may read: the kernel closes a process whose file its user can't read.
fn readable_copy(dir: &Path) -> PathBuf {
    let copy = dir.join("lastword");
    // Written by another process: a child that another test starts meanwhile would keep the file open, and it couldn't run.
    assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_lastword")).arg(&copy).status().unwrap().success());
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    copy
}

#[test]
fn an_agent_reads_neither_the_memory_nor_the_environment_of_its_runner() {
    let server = Server::start();
    let home = tempfile::tempdir().unwrap();
    let mut runner = Command::new(readable_copy(home.path()));
    if rustix::process::geteuid().is_root() {
        chown(home.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        runner.uid(NOBODY).gid(NOBODY);
    }
    runner.current_dir(home.path()).env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    runner.env("LASTWORD_URL", server.first_line["listening"].as_str().unwrap());
    let token = fs::read_to_string(server.path().join(".lastword/operator.token")).unwrap();
    runner.env("LASTWORD_TOKEN", token.trim());
    runner.args(["--json", "run", "--as", "looker", "--grace", "300ms", "--", "sh"]);
    let _runner = Running::of(&mut runner).ready();

    // The agent looks at the runner and, in the same way, at a process of the same user that isn't closed.
    let script = format!("look='{LOOK}'; sh -c \"$look\" look $PPID runner; sh -c \"$look\" look $$ shell");
    let said = ask(&server, "looker", &script);
    let lines: Vec<&str> = said["body"].as_str().unwrap().lines().collect();
    for file in ["environ", "mem", "maps"] {
        assert!(lines.contains(&format!("runner {file} is refused").as_str()), "{lines:?}");
        assert!(lines.contains(&format!("shell {file} opens").as_str()), "nothing can be read here anyway: {lines:?}");
    }
}

/// A user's folder with a copy of the program and the user's commands, and one for the launchers' state.
struct Home(tempfile::TempDir, tempfile::TempDir);

impl Home {
    fn new() -> Self {
        let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        readable_copy(home.path());
        let state = closed_folder();
        if rustix::process::geteuid().is_root() {
            chown(home.path(), Some(NOBODY), Some(NOBODY)).unwrap();
            chown(state.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        Self(home, state)
    }

    /// Writes a program that says, to the file `said`, what it can read of the processes that started it, the mode of
    /// the folder that an argument or a variable names, and its environment; then it does `then`.
    fn program(&self, name: &str, then: &str) {
        let script = format!(
            "#!/bin/sh\nlook() {{ {LOOK}\n}}\npid=$$\nexec 4>>\"$HOME/said\"\n\
             while [ \"$pid\" -gt 1 ]; do\n\
                 case \"$(tr '\\0' ' ' < /proc/$pid/cmdline)\" in *\"$HOME/lastword {name}\"*) look $pid parent >&4; break;; esac\n\
                 pid=$(sed 's/.*) . //; s/ .*//' /proc/$pid/stat)\n\
             done\n\
             look $$ self >&4\n\
             for folder in \"$HOME\"/tmp/lastword-* '{state}'/lastword/hooks/gemini-*; do\n\
                 [ -d \"$folder\" ] && echo \"folder $(stat -c %a \"$folder\")\" >&4\n\
             done\n\
             env >&4; [ \"$1\" = --version ] && exit 0; echo end >&4\n{then}\n",
            state = self.1.path().display(),
        );
        let bin = self.0.path().join("bin");
        fs::create_dir_all(&bin).unwrap();
        fs::write(bin.join(name), script).unwrap();
        fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn launch(&self, server: &Server, program: &str) -> Command {
        let mut command = Command::new(self.0.path().join("lastword"));
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        let tmp = self.0.path().join("tmp");
        fs::create_dir_all(&tmp).unwrap();
        if rustix::process::geteuid().is_root() {
            chown(&tmp, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        command.current_dir(self.0.path()).env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // The folder lies in a repository, whose team isn't meant.
        command.env("LASTWORD_DATA", self.0.path().join(".lastword"));
        command.env("HOME", self.0.path()).env("TMPDIR", tmp).env("XDG_STATE_HOME", self.1.path());
        command.env("PATH", format!("{}:{PATH}", self.0.path().join("bin").display()));
        command.env("LASTWORD_URL", server.first_line["listening"].as_str().unwrap());
        let token = fs::read_to_string(server.path().join(".lastword/operator.token")).unwrap();
        command.env("LASTWORD_TOKEN", token.trim()).env("LASTWORD_CANARY", "canary");
        command.arg(program);
        command
    }

    fn said(&self) -> String {
        fs::read_to_string(self.0.path().join("said")).unwrap_or_default()
    }
}

#[test]
fn a_program_in_a_session_reads_nothing_of_its_launcher_and_the_launchers_folder_is_the_users_alone() {
    let server = Server::start();
    let operator = fs::read_to_string(server.path().join(".lastword/operator.token")).unwrap();
    for program in ["claude", "codex", "opencode", "gemini"] {
        let home = Home::new();
        home.program(program, "exit 0");
        home.launch(&server, program).status().unwrap();
        let said = home.said();
        for file in ["environ", "mem", "maps"] {
            assert!(said.contains(&format!("parent {file} is refused")), "{program}: {said}");
            assert!(said.contains(&format!("self {file} opens")), "nothing can be read here anyway: {said}");
        }
        assert!(!said.contains(operator.trim()) && !said.contains("canary"), "{program}: {said}");
        assert!(said.contains("folder 700"), "{program}: {said}");
        assert!(said.lines().all(|line| !line.starts_with("folder ") || line == "folder 700"), "{program}: {said}");
    }
}

#[test]
fn the_folder_of_a_launcher_that_was_killed_is_removed_at_the_next_start() {
    let server = Server::start();
    for program in ["claude", "opencode", "gemini"] {
        let home = Home::new();
        let parent = if program == "gemini" { home.1.path().join("lastword/hooks") } else { home.0.path().join("tmp") };
        home.program(program, "exec sleep 30");
        let folders = || {
            let names = fs::read_dir(&parent).into_iter().flatten().flatten();
            names.filter(|entry| entry.path().join("lock").exists()).map(|entry| entry.path()).collect::<Vec<_>>()
        };
        let mut killed = home.launch(&server, program).spawn().unwrap();
        wait_for("the program", || home.said().contains("\nend\n"));
        let left = folders();
        assert_eq!(left.len(), 1, "{program}: {left:?}");
        killed.kill().unwrap();
        killed.wait().unwrap();
        assert!(left[0].exists(), "a killed process removes nothing");
        home.program(program, "exit 0");
        home.launch(&server, program).args(["--as", "next"]).status().unwrap();
        assert_eq!(folders(), Vec::<PathBuf>::new(), "{program}");
    }
}
