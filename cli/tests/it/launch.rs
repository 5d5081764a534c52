//! Idle sessions wake, and one command starts a program as an agent.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::program::{Ended, PATH, Server, finish, lastword};
use crate::running::{process_in, runs, wait_for};
use crate::screen::Terminal;

/// An interactive session whose hooks are called by hand.
struct Session<'a> {
    server: &'a Server,
    id: &'a str,
}

impl Session<'_> {
    fn command(&self, action: &[&str]) -> Command {
        let mut command = lastword(self.server.path());
        command.args(["--token-file", "kilo.token", "hook"]).args(action);
        command.env("XDG_STATE_HOME", self.server.path().join("state"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn event(&self, name: &str, more: &Value) -> String {
        let mut event = json!({ "hook_event_name": name, "session_id": self.id });
        event.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        event.to_string()
    }

    fn hook(&self, name: &str, more: &Value) -> String {
        let ended = finish(&mut self.command(&[]), &self.event(name, more));
        assert_eq!(ended.code, 0, "{ended:?}");
        ended.stdout
    }

    /// Starts a waiter and returns once it holds the session's lock.
    fn waiter(&self) -> Child {
        let mut child = self.command(&["wait"]).spawn().unwrap();
        child.stdin.take().unwrap().write_all(self.event("Stop", &json!({})).as_bytes()).unwrap();
        let file = self.server.path().join(format!("state/lastword/hooks/{}.wait", self.id));
        wait_for("the waiter's lock", || {
            fs::File::open(&file).is_ok_and(|file| matches!(file.try_lock(), Err(fs::TryLockError::WouldBlock)))
        });
        child
    }
}

fn woken(waiter: Child) -> Ended {
    let output = waiter.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ended { code: output.status.code().unwrap_or(-1), stdout: text(&output.stdout), stderr: text(&output.stderr) }
}

fn answer(server: &Server) -> String {
    let delivery = server.operator(&["inbox", "--json", "--wait", "60s"]).json();
    delivery["message"]["body"].as_str().unwrap_or_else(|| panic!("{delivery}")).to_owned()
}

#[test]
fn a_message_wakes_an_idle_session_and_its_next_text_is_the_answer() {
    let server = Server::start();
    server.agent("kilo");
    let session = Session { server: &server, id: "s-1" };
    session.hook("SessionStart", &json!({}));
    let waiter = session.waiter();
    let second = woken(
        session
            .command(&["wait"])
            .spawn()
            .map(|mut child| {
                child.stdin.take().unwrap().write_all(session.event("Stop", &json!({})).as_bytes()).unwrap();
                child
            })
            .unwrap(),
    );
    assert_eq!((second.code, second.stderr.as_str()), (0, ""), "one waiter a session");
    server.operator(&["send", "kilo", "is the parser fast?", "--ref", "P-1"]).ok();
    let first = woken(waiter);
    assert_eq!(first.code, 2, "the code that wakes: {first:?}");
    let line = "the human operator asks about P-1 (turn-1):";
    assert_eq!(first.stderr.lines().next(), Some(line), "what the person at the session looks for");
    assert!(first.stderr.contains("\nis the parser fast?\n") && first.stderr.contains("[REF:P-1]"), "{first:?}");
    // The program passes the text on as a prompt, which no user typed.
    let prompt = format!("<task-notification>\n{}</task-notification>", first.stderr);
    let shown: Value = serde_json::from_str(&session.hook("UserPromptSubmit", &json!({ "prompt": prompt }))).unwrap();
    let announced = line.trim_end_matches(':');
    assert_eq!(shown, json!({ "systemMessage": announced }), "the program itself shows only that a message came");
    session.hook("PostToolUse", &json!({}));
    assert_eq!(session.hook("Stop", &json!({ "last_assistant_message": "very fast" })), "");
    assert_eq!(answer(&server), "very fast");
}

#[test]
fn a_message_that_arrives_while_the_model_works_for_its_user_is_finished_by_the_model_alone() {
    let server = Server::start();
    server.agent("kilo");
    let session = Session { server: &server, id: "s-1" };
    let waiter = session.waiter();
    session.hook("UserPromptSubmit", &json!({ "prompt": "what is the weather?" }));
    server.operator(&["send", "kilo", "count the tests", "--ref", "P-1"]).ok();
    let text = woken(waiter).stderr;
    assert!(text.contains("count the tests") && text.contains("finish_turn"), "{text}");
    let said = session.hook("Stop", &json!({ "last_assistant_message": "sunny" }));
    assert!(said.contains("still open"), "the weather is no answer to the team: {said}");
}

#[test]
fn a_waiter_ends_with_its_session() {
    let server = Server::start();
    server.agent("kilo");
    let session = Session { server: &server, id: "s-1" };
    let event = session.event("Stop", &json!({}));
    let waiter = session.command(&["wait"]);
    let line = format!("echo $$ > pid; echo '{event}' | {} {} & sleep 60", shell(&waiter), "");
    let mut program = Command::new("/bin/sh");
    program.args(["-c", &line]).current_dir(server.path()).env("XDG_STATE_HOME", server.path().join("state"));
    let mut program = program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let lock = server.path().join("state/lastword/hooks/s-1.wait");
    let held = || fs::File::open(&lock).is_ok_and(|file| matches!(file.try_lock(), Err(fs::TryLockError::WouldBlock)));
    wait_for("the waiter's lock", held);
    program.kill().unwrap();
    program.wait().unwrap();
    wait_for("the waiter's end", || !held());
    server.operator(&["send", "kilo", "who is there?", "--ref", "P-1"]).ok();
    let next = server.as_agent("kilo", &["inbox", "--wait", "10s"]).ok();
    assert!(next.contains("who is there?"), "a waiter without a session takes nothing: {next}");
}

fn shell(command: &Command) -> String {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    words.map(|word| format!("'{}'", word.to_str().unwrap())).collect::<Vec<_>>().join(" ")
}

/// Writes a program that notes its arguments and environment, and then waits for a file.
pub(crate) fn fake_program(dir: &Path, name: &str) -> PathBuf {
    let bin = dir.join("bin");
    fs::create_dir_all(&bin).unwrap();
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && exit\nprintf '%s\\n' \"$@\" > \"{0}/args.$LASTWORD_AGENT\"\nenv > \"{0}/env.$LASTWORD_AGENT.new\"\n\
         mv \"{0}/env.$LASTWORD_AGENT.new\" \"{0}/env.$LASTWORD_AGENT\"\n\
         while [ ! -e \"{0}/end\" ]; do sleep 0.05; done\nexit 7\n",
        dir.display()
    );
    fs::write(bin.join(name), script).unwrap();
    fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    bin
}

#[test]
fn claude_joins_for_one_run_and_a_second_one_gets_a_name_of_its_own() {
    let server = Server::start();
    let dir = server.path();
    let bin = fake_program(dir, "claude");
    let launch = |args: &[&str]| {
        let mut command = lastword(dir);
        command.args(["--token-file", ".lastword/operator.token", "claude"]).args(args);
        command.env("PATH", format!("{}:{PATH}", bin.display())).stdin(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    };
    let mut first = launch(&["--model", "x"]);
    wait_for("the first program", || dir.join("env.claude").exists());
    let mut second = launch(&[]);
    wait_for("the second program", || dir.join("env.claude-2").exists());
    let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
    let args = read("args.claude");
    assert!(args.contains("--permission-mode=manual") && args.ends_with("--model\nx\n"), "{args}");
    let settings = args.lines().find_map(|line| line.strip_prefix("--settings=")).unwrap();
    let settings: Value = serde_json::from_str(settings).unwrap();
    assert!(settings["permissions"]["deny"].as_array().unwrap().contains(&json!("SendMessage")), "{settings}");
    assert_eq!(settings["hooks"]["Stop"][0]["hooks"][1]["asyncRewake"], true, "{settings}");
    let token = |text: &str| text.lines().find_map(|line| line.strip_prefix("LASTWORD_TOKEN=").map(str::to_owned));
    let (one, two) = (token(&read("env.claude")).unwrap(), token(&read("env.claude-2")).unwrap());
    assert!(one != two && !args.contains(&one), "a token is in no argument");
    let mut third = lastword(dir);
    third.args(["--token-file", ".lastword/operator.token", "claude", "--as", "claude"]);
    let taken = finish(third.env("PATH", format!("{}:{PATH}", bin.display())), "");
    assert!(taken.code == 1 && taken.stderr.contains("another session"), "{taken:?}");
    assert!(!dir.join(".mcp.json").exists() && !dir.join(".claude").exists(), "no file of the user is changed");
    fs::write(dir.join("end"), "").unwrap();
    assert_eq!(first.wait().unwrap().code(), Some(7), "the program's own exit code");
    second.wait().unwrap();
}

/// Tells the hook of an agent's session of the fake Claude Code that its user typed.
fn types(dir: &Path, agent: &str, session: &str) {
    happens(dir, agent, session, "UserPromptSubmit", &json!({ "prompt": "hello" }));
}

/// Calls the hook of an agent's session of the fake Claude Code, and returns what it prints.
pub(crate) fn happens(dir: &Path, agent: &str, session: &str, name: &str, more: &Value) -> String {
    let ended = tries(dir, agent, session, name, more);
    assert_eq!(ended.code, 0, "{ended:?}");
    ended.stdout
}

fn tries(dir: &Path, agent: &str, session: &str, name: &str, more: &Value) -> Ended {
    let read = |name: &str| fs::read_to_string(dir.join(format!("{name}.{agent}"))).unwrap();
    let settings = read("args").lines().find_map(|line| line.strip_prefix("--settings=").map(str::to_owned)).unwrap();
    let settings: Value = serde_json::from_str(&settings).unwrap();
    let hook = settings["hooks"]["UserPromptSubmit"][0]["hooks"][0]["command"].as_str().unwrap().to_owned();
    let environment = read("env");
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &hook]).envs(environment.lines().filter_map(|line| line.split_once('=')));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut event = json!({ "hook_event_name": name, "session_id": session });
    event.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
    finish(&mut command, &event.to_string())
}

#[test]
fn an_answer_that_was_given_while_the_broker_was_away_is_handed_in_once_it_is_back() {
    let server = Server::start();
    let address = server.first_line["listening"].as_str().unwrap().trim_start_matches("http://").to_owned();
    let bin = fake_program(server.path(), "claude");
    let mut command = lastword(server.path());
    command.args(["--token-file", ".lastword/operator.token", "claude", "--as", "kilo"]);
    command.env("PATH", format!("{}:{PATH}", bin.display()));
    let mut launcher = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("the program", || server.path().join("env.kilo").exists());
    server.operator(&["send", "kilo", "is it done?", "--ref", "P-1"]).ok();
    let stop = json!({ "last_assistant_message": "ready" });
    assert!(happens(server.path(), "kilo", "s-1", "Stop", &stop).contains("is it done?"));
    let dir = server.kill();
    let failed = tries(dir.path(), "kilo", "s-1", "Stop", &json!({ "last_assistant_message": "it is" }));
    assert!(failed.code != 0 && failed.stderr.contains("no answer from"), "{failed:?}");
    let server = Server::start_with(dir, &["--listen", &address]);
    assert_eq!(answer(&server), "it is");
    fs::write(server.path().join("end"), "").unwrap();
    launcher.wait().unwrap();
}

#[test]
fn a_turn_keeps_its_lease_while_its_session_works_and_ends_once_its_user_broke_it_off() {
    let data = tempfile::tempdir().unwrap();
    fs::write(data.path().join("lastword.toml"), "[limits]\nlease_ms = 3000\nprogress_interval_ms = 1\n").unwrap();
    let server = Server::start_in(data);
    let dir = server.path();
    let bin = fake_program(dir, "claude");
    let mut command = lastword(dir);
    command.args(["--token-file", ".lastword/operator.token", "claude", "--as", "kilo"]);
    command.env("PATH", format!("{}:{PATH}", bin.display())).env("XDG_STATE_HOME", dir.join("state"));
    let mut launcher = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("the program", || dir.join("env.kilo").exists());
    let transcript = dir.join("transcript.jsonl");
    fs::write(&transcript, "{\"type\":\"user\"}\n").unwrap();
    let stop = |said: &str| {
        let line = json!({ "type": "assistant", "message": { "content": [{ "type": "text", "text": said }] } });
        fs::write(&transcript, format!("{}{line}\n", fs::read_to_string(&transcript).unwrap())).unwrap();
        let more = json!({ "transcript_path": transcript, "last_assistant_message": said });
        happens(dir, "kilo", "s-1", "Stop", &more)
    };
    let events = |kind: &str| {
        let said = server.operator(&["--json", "tail", "-n", "200"]).ok();
        said.lines().filter(|line| line.contains(&format!("\"type\":\"{kind}\""))).count()
    };
    server.operator(&["send", "kilo", "is it done?", "--ref", "P-1"]).ok();
    assert!(stop("ready").contains("is it done?"));
    // No hook is called while a dialog is open, or while one tool runs.
    wait_for("more renewals than one lease has", || events("renewed") > 4);
    stop("it is");
    assert_eq!(answer(&server), "it is");
    assert_eq!(events("turn_opened"), 1, "in its first attempt");
    server.operator(&["send", "kilo", "and this?", "--ref", "P-2"]).ok();
    assert!(stop("ready").contains("and this?"));
    let text = "[Request interrupted by user for tool use]";
    let line = json!({ "type": "user", "message": { "content": [{ "type": "text", "text": text }] } });
    let notes = "{\"type\":\"last-prompt\"}\n{\"type\":\"mode\",\"mode\":\"normal\"}\n{\"type\":\"cost-state\"}\n";
    fs::write(&transcript, format!("{}{line}\n{notes}", fs::read_to_string(&transcript).unwrap())).unwrap();
    assert!(answer(&server).contains("tried and failed"), "who asked hears of it at once");
    fs::write(dir.join("end"), "").unwrap();
    launcher.wait().unwrap();
}

#[test]
fn an_agent_continues_its_own_session_and_none_that_is_open_as_another() {
    let server = Server::start();
    let dir = server.path();
    let bin = fake_program(dir, "claude");
    let command = |args: &[&str]| {
        let mut command = lastword(dir);
        command.args(["--token-file", ".lastword/operator.token", "claude", "--as"]).args(args);
        command.env("PATH", format!("{}:{PATH}", bin.display()));
        command
    };
    // Starts the program, calls its hook, and returns the program's own arguments.
    let sits = |args: &[&str], session: &str| {
        let agent = args[0];
        let _gone = fs::remove_file(dir.join(format!("env.{agent}")));
        let child = command(args).stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_for("the program", || dir.join(format!("env.{agent}")).exists());
        types(dir, agent, session);
        let args = fs::read_to_string(dir.join(format!("args.{agent}"))).unwrap();
        (child, args.lines().skip_while(|arg| *arg != "--permission-mode=manual").skip(1).collect::<Vec<_>>().join(" "))
    };
    let leaves = |children: Vec<Child>| {
        fs::write(dir.join("end"), "").unwrap();
        for mut child in children {
            child.wait().unwrap();
        }
        fs::remove_file(dir.join("end")).unwrap();
    };
    leaves(vec![sits(&["planner"], "s-planner").0]);
    leaves(vec![sits(&["coder"], "s-coder").0]);
    let (planner, args) = sits(&["planner", "--continue"], "s-planner");
    assert_eq!(args, "--resume s-planner", "not the folder's last session, which is the coder's");
    let shared = finish(&mut command(&["coder", "--resume", "s-planner"]), "");
    assert!(shared.code == 1 && shared.stderr.contains("session s-planner is open as planner"), "{shared:?}");
    let (coder, args) = sits(&["coder", "--resume", "s-old"], "s-old");
    assert_eq!(args, "--resume s-old", "any other session is its user's to choose");
    leaves(vec![planner, coder]);
    let (coder, args) = sits(&["coder", "--resume", "s-planner"], "s-planner");
    assert_eq!(args, "--resume s-planner", "it is open no more");
    leaves(vec![coder]);
    let none = finish(&mut command(&["tester", "-c"]), "");
    assert!(none.code == 1 && none.stderr.contains("tester has no session of Claude Code in"), "{none:?}");
}

#[test]
fn a_program_that_is_not_installed_is_named() {
    let server = Server::start();
    let ended = server.operator(&["claude"]);
    assert!(ended.code == 3 && ended.stderr.contains("claude is not in PATH"), "{ended:?}");
    assert_eq!(server.operator(&["agent", "show", "claude"]).code, 1, "no agent is registered for nothing");
}

#[test]
fn a_broker_is_started_where_none_runs() {
    let dir = tempfile::tempdir().unwrap();
    let bin = fake_program(dir.path(), "claude");
    fs::write(dir.path().join("end"), "").unwrap();
    let mut command = lastword(dir.path());
    command.args(["--token-file", ".lastword/operator.token", "claude", "--as", "kilo"]);
    command.env("PATH", format!("{}:{PATH}", bin.display()));
    let ended = finish(&mut command, "");
    let noted = fs::read(dir.path().join(".lastword/server.json")).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    let pid = serde_json::from_slice::<Value>(&noted).unwrap()["pid"].to_string();
    assert!(ended.code == 7 && ended.stderr.contains("started a broker"), "{ended:?}");
    assert!(ended.stderr.contains("kilo is an agent of the team"), "{ended:?}");
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success(), "it outlives the session");
    wait_for("the broker's end", || !dir.path().join(".lastword/server.json").exists());
}

/// Writes a program that takes the terminal for itself, starts another one, and ends at nothing but a kill.
fn stubborn_program(dir: &Path, name: &str) -> String {
    let bin = dir.join("bin");
    fs::create_dir_all(&bin).unwrap();
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && exit\ntrap '' TERM HUP INT\nstty raw -echo\nprintf '\\033[?1049h\\033[?25lat work'\n\
         (trap '' TERM HUP INT; while :; do sleep 1; done) &\necho $! > \"{0}/child.new\"; mv \"{0}/child.new\" \"{0}/child\"\n\
         echo $$ > \"{0}/pid.new\"; mv \"{0}/pid.new\" \"{0}/pid\"\nwhile :; do sleep 1; done\n",
        dir.display()
    );
    fs::write(bin.join(name), script).unwrap();
    fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:{PATH}", bin.display())
}

#[test]
fn however_a_launcher_ends_its_program_ends_and_the_terminal_is_given_back() {
    for signal in ["-KILL", "-HUP", "-TERM"] {
        let server = Server::start();
        let dir = server.path();
        let path = stubborn_program(dir, "claude");
        let args = ["--token-file", ".lastword/operator.token", "claude"];
        let terminal = Terminal::run(dir, &args, &[("PATH", &path)]);
        terminal.shows(&["at work"]);
        let processes = [process_in(&dir.join("pid")), process_in(&dir.join("child"))];
        let launcher = terminal.child.id().to_string();
        assert!(Command::new("kill").args([signal, &launcher]).status().unwrap().success());
        terminal.ended();
        for pid in &processes {
            wait_for(&format!("the end of the program after {signal}"), || !runs(pid));
        }
        let again = server.operator(&["agent", "show", "claude"]);
        assert_eq!(again.code, 0, "the agent stays: {again:?}");
    }
}

#[test]
fn a_private_folder_of_a_killed_launcher_is_gone_at_the_next_start() {
    let server = Server::start();
    let dir = server.path();
    let path = stubborn_program(dir, "opencode");
    let folder = dir.join("tmp");
    fs::create_dir(&folder).unwrap();
    let args = ["--token-file", ".lastword/operator.token", "opencode"];
    let launch = || Terminal::run(dir, &args, &[("PATH", &path), ("TMPDIR", folder.to_str().unwrap())]);
    let folders = || {
        let entries = fs::read_dir(&folder).unwrap().flatten();
        entries.map(|entry| entry.file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    let mut first = launch();
    first.shows(&["at work"]);
    let (left, pid) = (folders(), process_in(&dir.join("pid")));
    assert!(!left.is_empty());
    first.child.kill().unwrap();
    first.ended();
    wait_for("the end of the program", || !runs(&pid));
    let second = launch();
    second.shows(&["at work"]);
    assert!(folders().iter().all(|folder| !left.contains(folder)), "{left:?} {:?}", folders());
}

#[test]
fn a_folder_of_another_user_is_named_with_what_to_do() {
    const NOBODY: u32 = 65_534;
    let server = Server::start();
    let dir = server.path();
    let path = stubborn_program(dir, "claude");
    let open = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let mut command = lastword(dir);
    if rustix::process::geteuid().is_root() {
        // To root nothing is closed.
        command.uid(NOBODY);
        open(dir, 0o755);
    }
    let data = dir.join(".lastword");
    open(&data, 0o555);
    let ended = finish(command.arg("claude").env("PATH", path), "");
    open(&data, 0o755);
    let owner = fs::metadata(&data).unwrap().uid();
    let named = format!("may not write to {}, which belongs to user {owner}", data.display());
    assert!(ended.code == 3 && ended.stderr.contains(&named) && ended.stderr.contains("chown"), "{ended:?}");
}

#[test]
fn a_launcher_whose_terminal_is_gone_cleans_up_behind_its_program() {
    let server = Server::start();
    let dir = server.path();
    let path = stubborn_program(dir, "opencode");
    let folder = dir.join("tmp");
    fs::create_dir(&folder).unwrap();
    let mut command = lastword(dir);
    command.args(["--token-file", ".lastword/operator.token", "opencode"]).env("PATH", path).env("TMPDIR", &folder);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut launcher = command.spawn().unwrap();
    let pid = process_in(&dir.join("pid"));
    drop(launcher.stderr.take());
    assert!(Command::new("kill").args(["-HUP", &launcher.id().to_string()]).status().unwrap().success());
    assert_eq!(launcher.wait().unwrap().code(), Some(1), "no panic");
    assert!(!runs(&pid) && fs::read_dir(&folder).unwrap().next().is_none());
}

/// Writes a program that asks bob for each line at its terminal, as its user's prompt.
fn fake_session(dir: &Path, name: &str) -> PathBuf {
    let bin = dir.join("bin");
    fs::create_dir_all(&bin).unwrap();
    let program = env!("CARGO_BIN_EXE_lastword");
    let script = format!(
        "#!/bin/sh\n\
         event() {{ printf '{{\"hook_event_name\":\"%s\",\"session_id\":\"s-1\",\"prompt\":\"%s\"}}' \"$1\" \"$2\" | '{program}' hook; }}\n\
         env > env.seen\n\
         event UserPromptSubmit unasked && '{program}' send bob --ref UNASKED-1 'by itself' >/dev/null; event Stop\n\
         echo ready\n\
         while read -r line; do\n\
         event UserPromptSubmit \"$line\"\n\
         '{program}' send bob --ref \"$line\" 'as typed' >/dev/null && echo \"asked under $line\"\n\
         event Stop\n\
         done\n\
         exit 7\n"
    );
    fs::write(bin.join(name), script).unwrap();
    fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    bin
}

fn kind_of_grant(server: &Server, reference: &str) -> (String, String) {
    let tree = server.operator(&["tree", reference, "--json"]).json();
    let grant = tree["grants"].as_array().unwrap().last().unwrap();
    (grant["kind"].as_str().unwrap().to_owned(), grant["giver"].as_str().unwrap().to_owned())
}

#[test]
fn what_is_typed_at_the_terminal_of_a_session_is_the_humans_word_and_nothing_else_is() {
    let server = Server::start();
    let dir = server.path();
    server.operator(&["agent", "add", "bob"]);
    let bin = fake_session(dir, "claude");
    let path = format!("{}:{PATH}", bin.display());
    let state = dir.join("state").display().to_string();
    let args = ["--token-file", ".lastword/operator.token", "claude"];
    let variables = [("PATH", path.as_str()), ("XDG_STATE_HOME", state.as_str()), ("TMUX", "/tmp/tmux-1/default,1,0")];
    let mut terminal = Terminal::run(dir, &args, &variables);
    terminal.shows(&["ready"]);
    // Without Ctrl-Z, which would discard the line or stop the program for good.
    terminal.keys("TYP\u{1a}ED-1\r");
    terminal.shows(&["asked under TYPED-1"]);
    assert_eq!(kind_of_grant(&server, "UNASKED-1"), ("root".to_owned(), "claude".to_owned()));
    assert_eq!(kind_of_grant(&server, "TYPED-1"), ("typed".to_owned(), "operator".to_owned()));
    let seen = fs::read_to_string(dir.join("env.seen")).unwrap();
    let human = fs::read_to_string(dir.join(".lastword/operator.token")).unwrap();
    assert!(!seen.contains(human.trim()) && !seen.contains("TMUX="), "{seen}");
    terminal.keys("\u{4}");
    assert_eq!(terminal.ended(), 7, "the program's own exit code, and the terminal as it was");
}

#[test]
fn a_prompt_is_the_agents_own_where_typed_prompts_are_off() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("lastword.toml"), "[sessions]\ntyped = \"off\"\n").unwrap();
    let server = Server::start_in(dir);
    let dir = server.path();
    server.operator(&["agent", "add", "bob"]);
    let bin = fake_session(dir, "claude");
    let path = format!("{}:{PATH}", bin.display());
    let args = ["--token-file", ".lastword/operator.token", "claude"];
    let mut terminal = Terminal::run(dir, &args, &[("PATH", path.as_str()), ("XDG_STATE_HOME", dir.to_str().unwrap())]);
    terminal.shows(&["ready"]);
    terminal.keys("TYPED-1\r");
    terminal.shows(&["asked under TYPED-1"]);
    assert_eq!(kind_of_grant(&server, "TYPED-1"), ("root".to_owned(), "claude".to_owned()));
}

#[test]
fn a_program_reaches_the_broker_without_a_proxy() {
    let server = Server::start();
    let dir = server.path();
    let bin = fake_program(dir, "claude");
    fs::write(dir.join("end"), "").unwrap();
    let hosts = |set: &[(&str, &str)]| {
        let mut command = lastword(dir);
        command.args(["--token-file", ".lastword/operator.token", "claude", "--as", "kilo"]);
        command.env("PATH", format!("{}:{PATH}", bin.display())).env_remove("NO_PROXY").env_remove("no_proxy");
        finish(command.env("HTTP_PROXY", "http://127.0.0.1:9").envs(set.iter().copied()), "");
        let environment = fs::read_to_string(dir.join("env.kilo")).unwrap();
        let read = |name| environment.lines().find_map(|line| Some(line.strip_prefix(name)?.to_owned())).unwrap();
        [read("NO_PROXY="), read("no_proxy=")]
    };
    assert_eq!(hosts(&[]), ["127.0.0.1", "127.0.0.1"]);
    assert_eq!(hosts(&[("NO_PROXY", "a.example")]), ["a.example,127.0.0.1", "a.example,127.0.0.1"]);
    assert_eq!(hosts(&[("NO_PROXY", "a"), ("no_proxy", "b")]), ["a,127.0.0.1", "b,127.0.0.1"]);
}

#[test]
fn an_option_of_lastword_among_the_programs_arguments_is_refused_and_starts_nothing() {
    let server = Server::start();
    let dir = server.path();
    fs::write(dir.join("end"), "").unwrap();
    for program in ["claude", "codex", "opencode", "gemini"] {
        let bin = fake_program(dir, program);
        for ours in ["--as", "--as=planner", "--held", "--unheld", "--wake"] {
            let mut command = lastword(dir);
            command.args(["--token-file", ".lastword/operator.token", program, "--model", "x", ours, "planner"]);
            command.env("PATH", format!("{}:{PATH}", bin.display()));
            let refused = finish(&mut command, "");
            assert!(refused.code == 2 && refused.stderr.contains(&format!("{ours} stands among")), "{refused:?}");
        }
        assert_eq!(server.operator(&["agent", "show", program]).code, 1, "no agent is registered for nothing");
    }
    let mut command = lastword(dir);
    command.args(["--token-file", ".lastword/operator.token", "claude", "--as", "kilo", "-p", "--", "--held"]);
    finish(command.env("PATH", format!("{}:{PATH}", dir.join("bin").display())), "");
    let args = fs::read_to_string(dir.join("args.kilo")).unwrap();
    assert!(args.ends_with("-p\n--\n--held\n"), "a prompt: {args}");
    assert!(!dir.join("args.claude").exists(), "no other started");
}
