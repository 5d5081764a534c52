//! Six agents change files of one repository at once: they edit, rename, delete, generate, check out and stash, while the
//! broker and a holder are killed and the clock jumps. No change that was made is lost.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, RwLock};
use std::thread;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};

use crate::preload::Control;
use crate::program::{Ended, PATH, Server, finish, lastword};

/// Agents in the main tree, and in a worktree on a branch of its own.
const AGENTS: [&str; 4] = ["ann", "bob", "cid", "dee"];
const ASIDE: [&str; 2] = ["eve", "fay"];
const FILES: usize = 4;
const HOUR: i64 = 3_600;
/// Only bounds a failure.
const LOOKS_MAX: usize = 1_000;

/// Returns how many tasks each agent has; `LASTWORD_EDITS=200` for a long run.
fn tasks() -> usize {
    std::env::var_os("LASTWORD_EDITS").and_then(|n| n.to_str()?.parse().ok()).unwrap_or(6)
}

/// What the agents know together: the lines that each file has to have, under its name.
type Expected = Mutex<BTreeMap<PathBuf, Vec<String>>>;

/// An agent's interactive session.
struct Session<'a> {
    home: &'a Path,
    tree: &'a Path,
    name: &'static str,
}

impl Session<'_> {
    fn hook(&self, event: &str, more: &Value) -> Ended {
        let mut occasion = json!({ "hook_event_name": event, "session_id": self.name, "cwd": self.tree });
        occasion.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        let mut command = lastword(self.home);
        command.args(["--token-file", &format!("{}.token", self.name), "hook"]);
        command.env("XDG_STATE_HOME", self.home.join("state")).env("PATH", PATH);
        finish(&mut command, &occasion.to_string())
    }

    /// Asks for a call; whether it may be made under a claim. A careful agent makes no call that isn't claimed.
    fn may(&self, call: &Value) -> bool {
        let ended = self.hook("PreToolUse", call);
        ended.code == 0 && ended.stdout.is_empty()
    }

    /// Takes the next task; `false` while the broker is away.
    fn takes(&self) -> bool {
        let ended = self.hook("Stop", &json!({ "last_assistant_message": "nothing asked", "stop_hook_active": false }));
        ended.code == 0 && ended.stdout.contains("\"block\"")
    }

    /// Ends its task, and with it what is claimed for it.
    fn ends(&self) {
        self.hook("Stop", &json!({ "last_assistant_message": "done", "stop_hook_active": true }));
    }

    fn shell(&self, line: &str) -> bool {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", line]).current_dir(self.tree).output().is_ok_and(|ended| ended.status.success())
    }

    /// Adds a line as an edit tool does: reads the file, takes a while, and writes it as a whole.
    fn edit(&self, file: &str, line: &str, rng: &mut StdRng, expected: &Expected) -> bool {
        let path = self.tree.join(file);
        let call = json!({ "tool_name": "Edit", "tool_input": { "file_path": path } });
        // After a refusal it is refused once more if the file has changed, and reads it then.
        if !self.may(&call) && !self.may(&call) {
            return false;
        }
        let before = fs::read_to_string(&path).unwrap_or_default();
        thread::sleep(Duration::from_millis(rng.random_range(0..30)));
        fs::write(&path, format!("{before}{line}\n")).unwrap();
        expected.lock().unwrap().entry(path).or_default().push(line.to_owned());
        self.hook("PostToolUse", &call);
        true
    }

    /// Makes one call; whether it was made.
    fn acts(&self, line: &str, rng: &mut StdRng, expected: &Expected) -> bool {
        let file = format!("src/{}.txt", rng.random_range(0..FILES));
        let to = format!("src/{}.txt", rng.random_range(0..FILES));
        let script = match rng.random_range(0..10) {
            0..6 => return self.edit(&file, line, rng, expected),
            6 => format!("git mv -f {file} {to}"),
            7 => format!("rm -f {file}"),
            8 => format!("git checkout -- {file}"),
            // All over the tree.
            _ => "git stash".to_owned(),
        };
        let call = json!({ "tool_name": "Bash", "tool_input": { "command": script } });
        if !self.may(&call) {
            return false;
        }
        let mut lines = expected.lock().unwrap();
        let (from, to) = (self.tree.join(&file), self.tree.join(&to));
        match script.split(' ').nth(1) {
            Some("mv") if from != to && self.shell(&script) => {
                let moved = lines.remove(&from).unwrap_or_default();
                lines.insert(to, moved);
            }
            Some("-f") if self.shell(&script) => _ = lines.remove(&from),
            // What was committed is there again, and nothing else.
            Some("checkout") if self.shell(&script) => _ = lines.remove(&from),
            Some("stash") => return false,
            _ => {}
        }
        true
    }
}

fn git(dir: &Path, args: &[&str]) {
    let mut git = std::process::Command::new("git");
    let own = ["-c", "user.name=x", "-c", "user.email=x@example.com"];
    let ended = git.arg("-C").arg(dir).args(own).args(args).output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
}

fn serve(dir: tempfile::TempDir, control: Option<&Control>) -> Server {
    let mut command = lastword(dir.path());
    command.args(["serve", "--json", "--listen", "127.0.0.1:0"]).env("PATH", PATH);
    if let Some(control) = control {
        control.preload(&mut command, &dir.path().join(".lastword"));
    }
    Server::start_by(dir, command)
}

#[test]
fn six_agents_in_one_repository_lose_no_change() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().to_path_buf();
    let control = Control::new("six agents in one repository", &home);
    let (main, aside) = (home.join("work"), home.join("aside"));
    fs::create_dir_all(main.join("src")).unwrap();
    git(&main, &["init", "-q", "--initial-branch=main"]);
    (0..FILES).for_each(|n| fs::write(main.join(format!("src/{n}.txt")), "").unwrap());
    git(&main, &["add", "."]);
    git(&main, &["commit", "-q", "-m", "x"]);
    git(&main, &["worktree", "add", "-q", "../aside", "-b", "aside"]);
    let server = serve(dir, control.as_ref());
    AGENTS.iter().chain(&ASIDE).for_each(|name| _ = server.agent(name));

    let expected = Expected::default();
    let (made, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    // Read while an agent works; written while the broker is killed and started again.
    let server = RwLock::new(Some(server));
    thread::scope(|scope| {
        for (seed, name) in AGENTS.into_iter().chain(ASIDE).enumerate() {
            let tree = if ASIDE.contains(&name) { &aside } else { &main };
            let (expected, made, refused, server, home) = (&expected, &made, &refused, &server, &home);
            scope.spawn(move || {
                let session = Session { home, tree, name };
                let mut rng = StdRng::seed_from_u64(seed as u64);
                for task in 0..tasks() {
                    {
                        let running = server.read().unwrap();
                        let reference = format!("{}-{task}", name.to_uppercase());
                        running.as_ref().unwrap().operator(&["send", name, "Edit", "--ref", &reference]).ok();
                    }
                    // The broker may be killed from here on, at any moment.
                    let mut looks = 0;
                    while !session.takes() {
                        looks += 1;
                        assert!(looks < LOOKS_MAX, "{name} gets no task");
                        thread::sleep(Duration::from_millis(5));
                    }
                    let done = session.acts(&format!("{name}-{task}"), &mut rng, expected);
                    if done { made } else { refused }.fetch_add(1, Ordering::Relaxed);
                    session.ends();
                }
            });
        }
        for _ in 0..2 {
            thread::sleep(Duration::from_millis(900));
            let mut running = server.write().unwrap();
            let dir = running.take().unwrap().kill();
            *running = Some(serve(dir, control.as_ref()));
        }
    });

    for (path, lines) in &*expected.lock().unwrap() {
        let found = fs::read_to_string(path).unwrap_or_default();
        let found: Vec<&str> = found.lines().collect();
        assert_eq!(&found, lines, "{}", path.display());
    }
    let (made, refused) = (made.into_inner(), refused.into_inner());
    println!("{made} calls were made, {refused} were refused");
    assert!(made > refused / 4, "{made} calls were made, {refused} were refused");

    // A holder that is gone keeps its file until its lease ends, which no jump of the clock brings nearer.
    let server = server.into_inner().unwrap().unwrap();
    let file = main.join("src/9.txt");
    server.as_agent("ann", &["claim", file.to_str().unwrap(), "--for", "3s"]).ok();
    let next = Session { home: &home, tree: &main, name: "bob" };
    let call = json!({ "tool_name": "Edit", "tool_input": { "file_path": file } });
    if let Some(control) = control {
        control.wall(HOUR);
    }
    assert!(!next.may(&call));
    let mut looks = 0;
    while !next.may(&call) {
        looks += 1;
        assert!(looks < LOOKS_MAX, "{}", server.operator(&["claims"]).ok());
        thread::sleep(Duration::from_millis(50));
    }
}
