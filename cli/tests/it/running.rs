//! A runner under test, and the fake agent that it runs.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::Value;

use crate::program::{Ended, PATH, Server, lastword};

/// Longest wait for anything; nothing here takes near as long.
const PATIENCE: Duration = Duration::from_secs(30);

/// `lastword run`, whose events are read; killed when the test ends.
pub(crate) struct Running {
    child: Child,
    events: Receiver<Value>,
    seen: Vec<Value>,
}

impl Running {
    /// Runs an agent of this name with the operator's token.
    pub(crate) fn start(server: &Server, name: &str, args: &[&str]) -> Self {
        let mut command = lastword(server.path());
        command.args(["--token-file", ".lastword/operator.token", "--json", "run", "--as", name]);
        if !args.contains(&"--grace") {
            command.args(["--grace", "300ms"]);
        }
        Self::of(command.args(["--progress", "0ms", "--backoff", "10ms"]).args(args)).ready()
    }

    /// Runs the fake ACP agent.
    pub(crate) fn acp(server: &Server, name: &str, args: &[&str], flags: &[&str]) -> Self {
        let fake = fake_acp();
        let before = [&["--driver", "acp"], args, &["--", fake.to_str().unwrap()]].concat();
        Self::start(server, name, &[before.as_slice(), flags].concat())
    }

    pub(crate) fn of(command: &mut Command) -> Self {
        let mut child = command.env("PATH", PATH).spawn().unwrap();
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

    /// The next event of this name.
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

    /// All of its events, and what came of it, once it has ended by itself.
    #[allow(dead_code, reason = "the tests of the bridge to Discord use it, too")]
    pub(crate) fn rest(mut self) -> (Vec<Value>, Ended) {
        while let Ok(event) = self.events.recv_timeout(PATIENCE) {
            self.seen.push(event);
        }
        (std::mem::take(&mut self.seen), self.wait())
    }

    /// What came of it, once it has ended by itself.
    pub(crate) fn wait(mut self) -> Ended {
        let code = self.child.wait().unwrap().code().unwrap_or(-1);
        let mut stderr = String::new();
        self.child.stderr.take().map(|mut errors| errors.read_to_string(&mut stderr));
        Ended { code, stdout: String::new(), stderr }
    }

    /// Asks it to end; gives its exit code.
    pub(crate) fn terminate(mut self) -> i32 {
        self.signal("-TERM");
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself; asked to end, it takes its agent with it.
        let _asked = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).output();
        let _ended = self.child.wait();
    }
}

/// The example beside the test's own folder, which `cargo test` builds, but not where it is given a filter.
pub(crate) fn fake_acp() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().and_then(Path::parent).unwrap().join("examples/fake_acp");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/fake_acp.rs");
    let changed = |path: &Path| path.metadata().and_then(|file| file.modified()).ok();
    assert!(changed(&path) >= changed(&source), "cargo build -p lastword-cli --example fake_acp");
    path
}

/// Asks as the operator and waits for the answer.
pub(crate) fn ask(server: &Server, name: &str, body: &str) -> Value {
    let answer = server.operator(&["--json", "ask", name, body, "--wait", "30s"]);
    assert_eq!(answer.code, 0, "{answer:?}");
    answer.json()["response"].clone()
}

/// Asks as the operator and goes on.
pub(crate) fn send(server: &Server, name: &str, reference: &str, body: &str) -> Value {
    server.operator(&["--json", "ask", name, body, "--ref", reference, "--wait", "0s"]).json()
}

/// The operator's next answer.
pub(crate) fn answer(server: &Server) -> Value {
    let taken: Ended = server.operator(&["--json", "inbox", "--wait", "30s"]);
    taken.json()["message"].clone()
}

/// Waits for a condition that some other process brings about.
pub(crate) fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let pause = Duration::from_millis(10);
    for _ in 0..PATIENCE.as_millis() / pause.as_millis() {
        if condition() {
            return;
        }
        std::thread::sleep(pause);
    }
    panic!("{what} never came")
}

/// The process that wrote its number into this file, once it has.
pub(crate) fn process_in(path: &Path) -> String {
    wait_for("a process", || path.exists());
    std::fs::read_to_string(path).unwrap().trim().to_owned()
}

/// Whether the process runs: one that has ended and that nobody waits for does not.
pub(crate) fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}
