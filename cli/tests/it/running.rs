//! A runner under test, and the fake agent that it runs.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::Value;

use crate::program::{Ended, PATH, Server, lastword};

/// Longest wait; no test needs nearly as long.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest time between two looks at a condition.
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// `lastword run`, with its events read; killed when the test ends.
pub(crate) struct Running {
    child: Child,
    events: Receiver<Value>,
    seen: Vec<Value>,
}

impl Running {
    /// Runs an agent with this name, using the operator's token.
    pub(crate) fn start(server: &Server, name: &str, args: &[&str]) -> Self {
        let mut command = lastword(server.path());
        command.args(["--token-file", ".lastword/operator.token", "--json", "run", "--as", name]);
        for (flag, time) in [("--grace", "300ms"), ("--backoff", "10ms")] {
            if !args.contains(&flag) {
                command.args([flag, time]);
            }
        }
        Self::of(command.args(["--progress", "0ms"]).args(args)).ready()
    }

    /// Runs the fake ACP agent.
    pub(crate) fn acp(server: &Server, name: &str, args: &[&str], flags: &[&str]) -> Self {
        let fake = fake_acp();
        let before = [&["--driver", "acp"], args, &["--", fake.to_str().unwrap()]].concat();
        Self::start(server, name, &[before.as_slice(), flags].concat())
    }

    pub(crate) fn of(command: &mut Command) -> Self {
        Self::under(command, PATH)
    }

    /// Like [`Running::of`], with this `PATH`.
    pub(crate) fn under(command: &mut Command, path: &str) -> Self {
        let mut child = command.env("PATH", path).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (tell, events) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                // The test may have ended.
                let _gone = tell.send(serde_json::from_str(&line).unwrap());
            }
        });
        Self { child, events, seen: Vec::new() }
    }

    pub(crate) fn ready(mut self) -> Self {
        self.until("ready");
        self
    }

    /// Waits for the next event with this name.
    pub(crate) fn until(&mut self, name: &str) -> Value {
        loop {
            let Ok(event) = self.events.recv_timeout(PATIENCE) else {
                let _killed = self.child.kill();
                let mut said = String::new();
                self.child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut said));
                panic!("no {name} after {:#?} {said}", self.seen)
            };
            self.seen.push(event.clone());
            if event["event"] == name {
                return event;
            }
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap().success());
    }

    /// Waits until it ends; returns its remaining events and its result.
    #[allow(dead_code, reason = "the tests of the bridge to Discord use it, too")]
    pub(crate) fn rest(mut self) -> (Vec<Value>, Ended) {
        while let Ok(event) = self.events.recv_timeout(PATIENCE) {
            self.seen.push(event);
        }
        (std::mem::take(&mut self.seen), self.wait())
    }

    /// Waits until it ends; returns its result.
    pub(crate) fn wait(mut self) -> Ended {
        let code = self.child.wait().unwrap().code().unwrap_or(-1);
        let mut stderr = String::new();
        self.child.stderr.take().map(|mut errors| errors.read_to_string(&mut stderr));
        Ended { code, stdout: String::new(), stderr }
    }

    /// Asks it to end; returns its exit code.
    pub(crate) fn terminate(mut self) -> i32 {
        self.signal("-TERM");
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may already have ended; with SIGTERM it also ends its agent. A test may have stopped it.
        for signal in ["-TERM", "-CONT"] {
            let _asked = Command::new("kill").args([signal, &self.child.id().to_string()]).output();
        }
        let _ended = self.child.wait();
    }
}

/// Returns the example beside the test's folder; `cargo test` builds it, except with a filter.
pub(crate) fn fake_acp() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().and_then(Path::parent).unwrap().join("examples/fake_acp");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/fake_acp.rs");
    let changed = |path: &Path| path.metadata().and_then(|file| file.modified()).ok();
    assert!(changed(&path) >= changed(&source), "cargo build -p lastword-cli --example fake_acp");
    path
}

/// Sends the operator's request and waits for the answer.
pub(crate) fn ask(server: &Server, name: &str, body: &str) -> Value {
    let answer = server.operator(&["--json", "ask", name, body, "--wait", "30s"]);
    let response = answer.json()["response"].clone();
    assert_eq!(answer.code == 0, response["status"] == "completed", "{answer:?}");
    response
}

/// Sends the operator's request without waiting.
pub(crate) fn send(server: &Server, name: &str, reference: &str, body: &str) -> Value {
    server.operator(&["--json", "ask", name, body, "--ref", reference, "--wait", "0s"]).json()
}

/// Returns the operator's next answer.
pub(crate) fn answer(server: &Server) -> Value {
    let taken: Ended = server.operator(&["--json", "inbox", "--wait", "30s"]);
    taken.json()["message"].clone()
}

/// Waits for a condition that another process brings about.
pub(crate) fn wait_for(what: &str, condition: impl FnMut() -> bool) {
    assert!(comes(condition), "{what} never came");
}

/// Waits for a condition that another process brings about; returns whether it did.
pub(crate) fn comes(mut condition: impl FnMut() -> bool) -> bool {
    // Many conditions start the program, which costs as much as what they wait for: the longer it takes, the rarer it is asked.
    let (mut pause, mut waited) = (Duration::from_millis(10), Duration::ZERO);
    while waited < PATIENCE {
        if condition() {
            return true;
        }
        std::thread::sleep(pause);
        waited += pause;
        pause = PAUSE_MAX.min(pause * 3 / 2);
    }
    false
}

/// Returns the text of a file, once a process has written it.
pub(crate) fn text_in(path: &Path) -> String {
    let mut text = String::new();
    // The file is there before its text is.
    wait_for(&path.display().to_string(), || {
        text = std::fs::read_to_string(path).unwrap_or_default();
        !text.is_empty()
    });
    text
}

/// Returns the process id in this file, once it was written.
pub(crate) fn process_in(path: &Path) -> String {
    text_in(path).trim().to_owned()
}

/// Returns whether the process runs; a zombie doesn't.
pub(crate) fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}
