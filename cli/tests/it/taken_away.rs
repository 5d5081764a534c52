//! The data directory lies in a repository, and Git takes it away under a running server.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::program::{Ended, Server, finish, lastword};
use crate::running::wait_for;

fn git(dir: &Path, args: &[&str]) -> String {
    let mut command = Command::new("git");
    command.current_dir(dir).args(["-c", "user.name=t", "-c", "user.email=t@example.org"]).args(args);
    let output = command.env("GIT_CONFIG_GLOBAL", "/dev/null").output().unwrap();
    assert!(output.status.success(), "git {args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn repository() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    git(dir.path(), &["init", "-q"]);
    fs::write(dir.path().join("README.md"), "a project").unwrap();
    git(dir.path(), &["add", "README.md"]);
    git(dir.path(), &["commit", "-q", "-m", "a project"]);
    dir
}

/// A server in a repository, and the operator's token, whose file may be taken away.
struct Work {
    server: Server,
    token: String,
    acknowledged: BTreeSet<String>,
    sent: usize,
}

impl Work {
    fn start() -> Self {
        let server = Server::start_in(repository());
        let token = fs::read_to_string(server.path().join(".lastword/operator.token")).unwrap().trim().to_owned();
        let work = Self { server, token, acknowledged: BTreeSet::new(), sent: 0 };
        work.human(&["agent", "add", "kilo"]).ok();
        work
    }

    fn human(&self, args: &[&str]) -> Ended {
        let mut command = lastword(self.server.path());
        command
            .env("LASTWORD_TOKEN", &self.token)
            .env("LASTWORD_URL", self.server.first_line["listening"].as_str().unwrap());
        finish(command.args(args), "")
    }

    /// Sends a message, and notes it if it is acknowledged.
    fn send(&mut self) -> Ended {
        self.sent += 1;
        let reference = format!("WORK-{}", self.sent);
        let ended = self.human(&["send", "kilo", "hello", "--ref", &reference]);
        if ended.code == 0 {
            self.acknowledged.insert(reference);
        }
        ended
    }

    fn is_ready(&self) -> bool {
        self.human(&["doctor"]).stdout.contains("is ready")
    }

    /// Restarts the server; no message that it acknowledged is missing.
    fn restart(mut self) -> Self {
        let (code, dir) = self.server.terminate();
        assert_eq!(code, 0);
        self.server = Server::start_in(dir);
        let listed: Value = self.human(&["--json", "audit", "--to", "kilo"]).json();
        let items = listed["items"].as_array().unwrap().iter();
        let found: BTreeSet<String> = items.map(|item| item["ref"].as_str().unwrap().to_owned()).collect();
        assert!(self.acknowledged.is_subset(&found), "{:?} of {found:?}", self.acknowledged);
        self
    }
}

#[test]
fn a_data_directory_in_a_repository_ignores_itself() {
    let mut work = Work::start();
    work.send().ok();
    let dir = work.server.path();
    assert_eq!(git(dir, &["status", "--porcelain", "--untracked-files=all"]), "");
    git(dir, &["add", "-A"]);
    git(dir, &["stash", "-u"]);
    git(dir, &["clean", "-fd"]);
    work.send().ok();
    let work = work.restart();
    assert_eq!(work.acknowledged.len(), 2);
}

#[test]
fn a_server_whose_files_git_deletes_takes_nothing_more_and_what_it_acknowledged_is_there_after_a_restart() {
    for command in [["clean", "-fdx"], ["stash", "-u"]] {
        let mut work = Work::start();
        for _ in 0..20 {
            work.send().ok();
        }
        let dir = work.server.path().to_owned();
        // As in a directory of an earlier version, which a stash takes away, too.
        fs::remove_file(dir.join(".lastword/.gitignore")).unwrap();
        git(&dir, &command);
        assert!(!dir.join(".lastword/server.json").exists());
        let refused = work.send();
        assert!(refused.code != 0 && refused.stderr.contains("log_gone"), "{command:?}: {refused:?}");
        let stopped = work.human(&["stop", "--workspace"]);
        assert!(stopped.code != 0 && stopped.stderr.contains("restart the server"), "{command:?}: {stopped:?}");
        assert!(!work.is_ready(), "{command:?}");
        wait_for("the log", || dir.join(".lastword/lastword.db").exists());
        let mut work = work.restart();
        assert_eq!(work.acknowledged.len(), 20);
        assert!(work.is_ready());
        work.send().ok();
        work.restart();
    }
}

#[test]
fn a_server_whose_files_were_moved_goes_on_once_they_are_back() {
    let mut work = Work::start();
    work.send().ok();
    let (here, away) = (work.server.path().join(".lastword"), work.server.path().join("away"));
    fs::rename(&here, &away).unwrap();
    let refused = work.send();
    assert!(refused.stderr.contains("log_gone"), "{refused:?}");
    assert!(!work.is_ready());
    // A copy isn't what the server has open, and what it acknowledged later would not be in it.
    fs::create_dir(&here).unwrap();
    fs::copy(away.join("lastword.db"), here.join("lastword.db")).unwrap();
    assert!(work.send().stderr.contains("log_gone"));
    fs::remove_dir_all(&here).unwrap();
    fs::rename(&away, &here).unwrap();
    wait_for("the server", || work.is_ready());
    work.send().ok();
    let work = work.restart();
    assert_eq!(work.acknowledged.len(), 2);
}
