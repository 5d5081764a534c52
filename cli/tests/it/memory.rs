//! What the agent that a runner starts can read of the runner's own process.

#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::program::Server;
use crate::running::{Running, ask};

/// `nobody`: a user without root's right to read every process.
const NOBODY: u32 = 65_534;
/// Says which files of a process can be opened: its own environment, its memory, and where that is.
const LOOK: &str = r#"for file in environ mem maps; do
    if (exec 3<"/proc/$1/$file") 2>/dev/null; then echo "$2 $file opens"; else echo "$2 $file is refused"; fi
done"#;

/// Returns a copy of the program that every user may read: the kernel closes a process whose file its user can't read.
fn readable_copy(dir: &Path) -> PathBuf {
    let copy = dir.join("lastword");
    fs::copy(env!("CARGO_BIN_EXE_lastword"), &copy).unwrap();
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
