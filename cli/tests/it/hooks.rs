//! Deliveries reach an interactive session through hooks.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread;

use serde_json::{Value, json};

use crate::program::{Ended, PATH, Server, finish, lastword};
use crate::running::Running;

/// An interactive session of an agent program.
pub(crate) struct Session<'a> {
    pub(crate) server: &'a Server,
    pub(crate) id: &'a str,
    pub(crate) token: &'a str,
}

impl Session<'_> {
    /// Returns the hook's output for an event; null if there is none.
    pub(crate) fn hook(&self, event: &str, more: &Value) -> Value {
        let ended = self.ended(event, more);
        assert_eq!(ended.code, 0, "{ended:?}");
        if ended.stdout.is_empty() { Value::Null } else { ended.json() }
    }

    fn ended(&self, event: &str, more: &Value) -> Ended {
        let mut occasion = json!({
            "hook_event_name": event, "session_id": self.id, "transcript_path": "/nowhere", "cwd": "/", "later": 1,
        });
        occasion.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        let mut command = lastword(self.server.path());
        command.args(["--token-file", self.token, "hook"]).env("XDG_STATE_HOME", self.server.path().join("state"));
        finish(command.env("PATH", PATH), &occasion.to_string())
    }

    /// Like [`Self::hook`], below a launcher.
    fn under(&self, launcher: &Path, event: &str, more: &Value) -> Value {
        let occasion = json!({ "hook_event_name": event, "session_id": self.id, "prompt": more["prompt"] });
        let mut command = lastword(self.server.path());
        command.args(["--token-file", self.token, "hook"]).env("XDG_STATE_HOME", self.server.path().join("state"));
        let ended = finish(command.env("LASTWORD_LAUNCHER", launcher), &occasion.to_string());
        assert_eq!(ended.code, 0, "{ended:?}");
        if ended.stdout.is_empty() { Value::Null } else { ended.json() }
    }

    pub(crate) fn stop(&self, said: &str) -> Value {
        self.hook("Stop", &json!({ "last_assistant_message": said, "stop_hook_active": false }))
    }

    fn typed(&self, prompt: &str) -> Value {
        self.hook("UserPromptSubmit", &json!({ "prompt": prompt }))
    }
}

fn context(said: &Value) -> &str {
    said["hookSpecificOutput"]["additionalContext"].as_str().unwrap_or_else(|| panic!("{said}"))
}

pub(crate) fn reason(said: &Value) -> &str {
    assert_eq!(said["decision"], "block", "{said}");
    said["reason"].as_str().unwrap()
}

/// Returns the body of the next answer in the human's inbox.
fn answer(server: &Server) -> String {
    let delivery = server.operator(&["inbox", "--json", "--wait", "10s"]).json();
    delivery["message"]["body"].as_str().unwrap_or_else(|| panic!("{delivery}")).to_owned()
}

#[test]
fn a_delivery_comes_when_a_turn_ends_and_the_next_end_is_its_answer() {
    let server = Server::start();
    server.agent("kilo");
    let session = Session { server: &server, id: "s-1", token: "kilo.token" };
    assert!(context(&session.hook("SessionStart", &json!({ "source": "startup" }))).contains("Lastword"));
    assert_eq!(session.stop("nothing asked"), Value::Null, "what is the user's stays the user's");
    server.operator(&["send", "kilo", "is the parser fast?", "--ref", "P-1"]).ok();
    let said = session.stop("done with the user's work");
    assert!(reason(&said).contains("is the parser fast?") && reason(&said).contains("[REF:P-1]"), "{said}");
    server.operator(&["send", "kilo", "and the lexer?", "--ref", "P-2"]).ok();
    let next =
        session.hook("Stop", &json!({ "last_assistant_message": "as fast as it gets", "stop_hook_active": true }));
    assert_eq!(answer(&server), "as fast as it gets");
    assert!(reason(&next).contains("and the lexer?"), "{next}");
    assert_eq!(session.stop("faster"), Value::Null);
    assert_eq!(answer(&server), "faster");
    assert_eq!(session.stop("something else"), Value::Null, "nothing is answered twice");
    assert!(server.as_agent("kilo", &["inbox"]).ok().contains("inbox empty"));
}

#[test]
fn what_a_turn_uses_is_read_from_the_sessions_transcript_and_its_budget_holds_it() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("lastword.toml"), "[limits]\ngrant_tokens_max = 20000\nprogress_interval_ms = 1\n")
        .unwrap();
    let server = Server::start_in(dir);
    server.agent("kilo");
    let session = Session { server: &server, id: "s-1", token: "kilo.token" };
    let transcript = server.path().join("transcript.jsonl");
    let request = |id: &str, input: u64, cached: u64| {
        let usage = json!({ "input_tokens": input, "cache_read_input_tokens": cached, "output_tokens": 100 });
        let content = json!([{ "type": "text", "text": format!("{id} so far") }]);
        let message = json!({ "id": id, "model": "claude-opus-5-5", "content": content, "usage": usage });
        let line = format!("{}\n", json!({ "type": "assistant", "message": message }));
        let known = fs::read_to_string(&transcript).unwrap_or_default();
        // Each block of a message repeats its usage.
        fs::write(&transcript, format!("{known}{line}{line}")).unwrap();
    };
    let at = |event: &str| session.hook(event, &json!({ "transcript_path": transcript, "tool_name": "Bash" }));
    request("before", 90_000, 0);
    server.operator(&["send", "kilo", "is the parser fast?", "--ref", "P-1"]).ok();
    assert!(reason(&at("Stop")).contains("is the parser fast?"));
    session.hook("Notification", &json!({ "message": "Claude needs your permission to use Bash" }));
    let told = server.operator(&["--json", "audit", "waits for its user at the terminal"]).json();
    assert_eq!(told["items"][0]["type"], "status", "who asked sees it: {told}");
    request("one", 2_900, 10_000);
    assert_eq!(at("PostToolUse"), Value::Null);
    let tokens = |reference| server.operator(&["--json", "tree", reference]).json()["tree"][0]["tokens"].clone();
    assert_eq!(tokens("P-1"), 2_900 + 1_000 + 100, "of this turn, while it runs");
    request("two", 16_900, 10_000);
    assert!(context(&at("PostToolUse")).starts_with("The budget of this work is used up. Finish now"));
    request("three", 6_900, 10_000);
    let held = at("PostToolUse");
    assert_eq!(held["continue"], false, "{held}");
    assert_eq!(tokens("P-1"), 4_000 + 18_000 + 8_000);
    assert_eq!(session.stop("never said"), Value::Null, "the turn is over");
    server.operator(&["grant", "P-1", "--tokens", "100000", "--yes"]).ok();
    let again = at("Stop");
    assert!(reason(&again).contains("three so far"), "it goes on with what it had written: {again}");
    request("four", 900, 0);
    at("Stop");
    assert_eq!(answer(&server), "four so far");
}

#[test]
fn a_program_that_goes_on_by_itself_after_an_answer_is_kept_from_it() {
    let server = Server::start();
    server.agent("kilo");
    let session = Session { server: &server, id: "s-1", token: "kilo.token" };
    let socket = server.path().join("launcher");
    // A launcher that saw who typed each of three prompts.
    let launcher = UnixListener::bind(&socket).unwrap();
    let sees = thread::spawn(move || {
        for said in ["typed", "untyped", "untyped", "untyped", "typed", "untyped"] {
            let (mut hook, _) = launcher.accept().unwrap();
            let mut line = String::new();
            BufReader::new(&hook).read_line(&mut line).unwrap();
            assert_eq!(line, "prompt\n");
            writeln!(hook, "{said} ").unwrap();
        }
    });
    let prompt = |text: &str| session.under(&socket, "UserPromptSubmit", &json!({ "prompt": text }));
    assert_eq!(prompt("look at the lexer"), Value::Null, "the user's own");
    assert_eq!(prompt("a task of the user's has ended"), Value::Null, "the program goes on for its user");
    server.operator(&["send", "kilo", "is the parser fast?", "--ref", "P-1"]).ok();
    assert!(reason(&session.stop("done with the user's work")).contains("is the parser fast?"));
    assert_eq!(session.stop("it is"), Value::Null);
    assert_eq!(answer(&server), "it is");
    assert_eq!(prompt("a task has ended"), Value::Null, "which the user may have started before");
    assert!(reason(&prompt("the monitor saw a change")).contains("by itself"));
    let incident = server.operator(&["--json", "incidents"]).json()["items"][0].clone();
    assert_eq!((&incident["on"], &incident["code"]), (&json!("kilo"), &json!("turn_closed")));
    assert_eq!(prompt("go on"), Value::Null, "the user is back");
    assert_eq!(prompt("the monitor saw a change"), Value::Null, "for the user who is there");
    sees.join().unwrap();
}

#[test]
fn a_turn_in_which_somebody_typed_is_finished_by_the_model_alone() {
    let server = Server::start();
    server.agent("kilo");
    let session = Session { server: &server, id: "s-1", token: "kilo.token" };
    server.operator(&["send", "kilo", "count the tests", "--ref", "P-1"]).ok();
    session.stop("ready");
    let said = session.typed("what is the weather?");
    assert!(context(&said).contains("finish_turn"), "{said}");
    let said = session.stop("sunny");
    assert!(reason(&said).contains("still open"), "told once: {said}");
    assert_eq!(
        session.hook("Stop", &json!({ "last_assistant_message": "sunny", "stop_hook_active": true })),
        Value::Null
    );
    let agent = server.operator(&["agent", "show", "kilo", "--json"]).json();
    let turn = agent["turns"][0].as_str().unwrap_or_else(|| panic!("{agent}")).to_owned();
    server.as_agent("kilo", &["finish", &turn, "41"]).ok();
    assert_eq!(answer(&server), "41", "and not the weather");
    assert_eq!(session.stop("41 tests"), Value::Null);
}

#[test]
fn the_answer_to_a_sessions_own_request_needs_no_finish() {
    let server = Server::start();
    server.agent("kilo");
    server.agent("hive");
    let session = Session { server: &server, id: "s-1", token: "kilo.token" };
    session.typed("ask hive which port");
    server.as_agent("kilo", &["send", "hive", "which port?", "--ref", "P-1"]).ok();
    let taken = server.as_agent("hive", &["inbox", "--json"]).json();
    server.as_agent("hive", &["finish", taken["turn"]["id"].as_str().unwrap(), "5432"]).ok();
    let said = session.typed("and what is the weather?");
    assert!(context(&said).contains("5432") && !context(&said).contains("finish_turn"), "{said}");
    assert_eq!(session.typed("in Rome?"), Value::Null, "nobody waits for it");
    assert_eq!(session.stop("5432, and sunny"), Value::Null, "and no reminder");
    let agent = server.operator(&["agent", "show", "kilo", "--json"]).json();
    assert_eq!(agent["turns"], json!([]), "{agent}");
}

#[test]
fn what_waits_comes_with_what_is_typed_and_wants_a_finish() {
    let server = Server::start();
    server.agent("kilo");
    let session = Session { server: &server, id: "s-1", token: "kilo.token" };
    server.operator(&["send", "kilo", "count the tests", "--ref", "P-1"]).ok();
    assert!(context(&session.hook("SessionStart", &json!({}))).contains("1 queued"));
    let said = session.typed("good morning");
    assert!(context(&said).contains("count the tests") && context(&said).contains("finish_turn"), "{said}");
    let resumed = session.hook("SessionStart", &json!({ "source": "resume" }));
    assert!(context(&resumed).contains("still open"), "{resumed}");
    let other = Session { server: &server, id: "s-2", token: "kilo.token" };
    assert!(!context(&other.hook("SessionStart", &json!({}))).contains("still open"), "another session has none");
}

#[test]
fn what_goes_wrong_never_holds_the_agent_up() {
    let server = Server::start();
    server.agent("kilo");
    let session = Session { server: &server, id: "../s", token: "kilo.token" };
    let bad = session.ended("Stop", &json!({}));
    assert_eq!((bad.code, bad.stdout.as_str()), (1, ""), "{bad:?}");
    let mut command = lastword(server.path());
    let bad = finish(command.args(["--token-file", "kilo.token", "hook"]).env("HOME", server.path()), "no JSON");
    assert!(bad.code == 1 && bad.stderr.contains("init --claude"), "exit code 2 would make the agent go on: {bad:?}");
    let human = Session { server: &server, id: "s-1", token: ".lastword/operator.token" };
    let bad = human.ended("Stop", &json!({}));
    assert!(bad.code != 0 && bad.code != 2, "{bad:?}");
    let url = "http://127.0.0.1:9";
    let mut command = lastword(server.path());
    command.args(["--url", url, "--token-file", "kilo.token", "hook"]).env("HOME", server.path());
    let down = finish(&mut command, r#"{"hook_event_name": "Stop", "session_id": "s"}"#);
    assert!(down.code != 0 && down.code != 2 && down.stdout.is_empty(), "{down:?}");
}

#[test]
fn gemini_cli_has_the_same_hooks_under_other_names() {
    let server = Server::start();
    server.agent("kilo");
    let session = Session { server: &server, id: "s-1", token: "kilo.token" };
    let ends = |said: &str| session.hook("AfterAgent", &json!({ "prompt_response": said }));
    session.hook("BeforeAgent", &json!({ "prompt": "good morning" }));
    server.operator(&["send", "kilo", "is the parser fast?", "--ref", "P-1"]).ok();
    let said = ends("hello");
    assert!(reason(&said).contains("is the parser fast?"), "{said}");
    // The text that continues the turn comes back as a prompt, and the answer behind what was said to the user.
    assert_eq!(session.hook("BeforeAgent", &json!({ "prompt": reason(&said) })), Value::Null);
    server.operator(&["send", "kilo", "and the lexer?", "--ref", "P-2"]).ok();
    let said = ends("hello\nvery fast");
    assert_eq!(answer(&server), "very fast");
    assert!(reason(&said).contains("and the lexer?"), "{said}");
    ends("[no response text]");
    let delivery = server.operator(&["inbox", "--json", "--wait", "10s"]).json();
    assert_eq!(delivery["message"]["status"], "failed", "{delivery}");
    server.operator(&["send", "kilo", "count the tests", "--ref", "P-3"]).ok();
    let said = session.hook("BeforeAgent", &json!({ "prompt": "and the weather?" }));
    assert_eq!(said["hookSpecificOutput"]["hookEventName"], "BeforeAgent", "{said}");
    assert!(context(&said).contains("count the tests"), "{said}");
}

#[test]
fn doctor_says_what_each_agent_program_lacks() {
    let server = Server::start();
    let dir = server.path();
    let bin = tempfile::tempdir().unwrap();
    for program in ["claude", "codex"] {
        fs::write(bin.path().join(program), "").unwrap();
    }
    let doctor = || {
        let mut command = lastword(dir);
        command.args(["doctor", "--json"]).env("PATH", bin.path()).env("HOME", dir);
        let ended = finish(&mut command, "");
        let checks: Value = serde_json::from_str(ended.stdout.lines().next().unwrap()).unwrap();
        let of = |name: &str| {
            let check = checks.as_array().unwrap().iter().find(|check| check["what"] == name).unwrap();
            (check["grade"].as_str().unwrap().to_owned(), check["finding"].as_str().unwrap().to_owned())
        };
        (ended.code, of("Claude Code"), of("Codex"), of("opencode"))
    };
    let (code, claude, codex, opencode) = doctor();
    assert_eq!(code, 0, "what is not set up is no failure");
    assert!(claude.1.contains("init --claude") && codex.1.contains("init --codex"), "{claude:?} {codex:?}");
    assert!(opencode.1.contains("no `opencode` on PATH"), "{opencode:?}");
    server.agent("kilo");
    let mut init = lastword(dir);
    init.args(["--token-file", "kilo.token", "init", "--claude", "--codex", "--opencode"]).env("HOME", dir);
    finish(&mut init, "").ok();
    let private = |mode| fs::set_permissions(dir.join("kilo.token"), fs::Permissions::from_mode(mode)).unwrap();
    private(0o644);
    let (code, claude, ..) = doctor();
    assert!(code == 0 && claude.0 == "warning" && claude.1.contains("chmod 600"), "{claude:?}");
    private(0o600);
    let spaced = dir.join("my team");
    fs::create_dir(&spaced).unwrap();
    fs::copy(dir.join("kilo.token"), spaced.join("kilo.token")).unwrap();
    let replace = |token: &Path| {
        let mut init = lastword(dir);
        init.arg("--token-file").arg(token).args(["init", "--claude", "--replace"]).env("HOME", dir);
        finish(&mut init, "").ok();
    };
    replace(&spaced.join("kilo.token"));
    fs::write(spaced.join("kilo.token"), "none").unwrap();
    let quoted = format!("> '{}'`", spaced.join("kilo.token").display());
    let (_, claude, ..) = doctor();
    assert!(claude.1.contains(&quoted), "a command for a shell: {claude:?}");
    replace(&dir.join("kilo.token"));
    let (_, claude, codex, opencode) = doctor();
    assert_eq!((claude.1.as_str(), codex.1.as_str()), ("set up as kilo", "set up as kilo"));
    assert_eq!(opencode.0, "warning", "{opencode:?}");
    fs::remove_file(dir.join(".claude/settings.local.json")).unwrap();
    fs::write(bin.path().join("claude"), "#!/bin/sh\necho '99.0.1 (Claude Code)'\n").unwrap();
    fs::set_permissions(bin.path().join("claude"), fs::Permissions::from_mode(0o755)).unwrap();
    let ended = finish(lastword(dir).arg("doctor").env("PATH", bin.path()).env("HOME", dir), "").stdout;
    assert!(ended.contains("channels past the broker are on: ListAgents, SendMessage"), "{ended}");
    assert!(!ended.contains("features.multi_agent"), "init turned it off: {ended}");
    assert!(ended.contains("99.0.1 (newer)"), "{ended}");
    server.operator(&["agent", "token", "kilo"]).ok();
    let (code, claude, ..) = doctor();
    assert!(code == 1 && claude.0 == "failed" && claude.1.contains("lastword agent token NAME"), "{claude:?}");
    fs::copy(dir.join(".lastword/operator.token"), dir.join("kilo.token")).unwrap();
    let (_, claude, ..) = doctor();
    assert!(claude.0 == "failed" && claude.1.contains("human's token"), "{claude:?}");
}

#[test]
fn a_program_newer_than_the_tried_one_is_told_of_once_for_each_version() {
    let server = Server::start();
    let (bin, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let program = bin.path().join("claude");
    let install = |version: &str| {
        fs::remove_file(&program).ok();
        fs::write(&program, format!("#!/bin/sh\n[ \"$1\" = --version ] && echo '{version} (Claude Code)'\nexit 0\n"))
            .unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    };
    let told = |args: &[&str]| {
        let mut command = lastword(server.path());
        command.args(args).env("PATH", bin.path()).env("XDG_STATE_HOME", state.path());
        finish(&mut command, "").stderr.contains("newer than the 2.1.332 that was tried")
    };
    let launch = || told(&["--token-file", ".lastword/operator.token", "claude", "--as", "kilo"]);
    install("2.1.332");
    assert!(!launch(), "it was tried");
    install("99.0.1");
    assert_eq!([launch(), launch()], [true, false], "once, and not in each run");
    install("99.0.1");
    assert!(!launch(), "the same version, installed again");
    install("99.0.2");
    let mut runner = lastword(server.path());
    runner.args(["--json", "--token-file", ".lastword/operator.token", "run", "--as", "hive", "--", "claude", "-p"]);
    runner.env("XDG_STATE_HOME", state.path());
    let path = format!("{}:{PATH}", bin.path().display());
    let mut running = Running::under(&mut runner, &path);
    let warning = running.until("warning")["message"].as_str().unwrap().to_owned();
    assert!(warning.starts_with("claude is 99.0.2, which is newer than"), "{warning}");
    assert!(!launch(), "the runner told it");
    let mut doctor = lastword(server.path());
    let table = finish(doctor.arg("doctor").env("PATH", bin.path()), "").stdout;
    let row = |name: &str| {
        let row = table.lines().find(|line| line.split_whitespace().next() == Some(name)).unwrap();
        row.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row("claude"), "claude 99.0.2 (newer) 2.1.332 with `--permission-prompt-tool`");
    assert_eq!(row("claude-agent-acp"), "claude-agent-acp - 0.101.0 yes");
}
