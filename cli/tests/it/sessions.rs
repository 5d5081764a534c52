//! Messages enter the session of a program that the launcher runs beside: Codex and opencode, played by the test.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{self, Message, WebSocket};

use crate::closed::closed_folder;
use crate::program::{PATH, Server, lastword};
use crate::running::wait_for;
use crate::screen::Terminal;

/// Writes a program of this name, which runs this script.
fn program(dir: &Path, name: &str, script: &str) -> PathBuf {
    let bin = dir.join("bin");
    fs::create_dir_all(&bin).unwrap();
    fs::write(bin.join(name), format!("#!/bin/sh\n{script}")).unwrap();
    fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    bin
}

/// Starts `lastword PROGRAM` in the server's folder, with the operator's token.
fn launch(server: &Server, bin: &Path, args: &[&str]) -> Child {
    let mut command = lastword(server.path());
    command.args(["--token-file", ".lastword/operator.token"]).args(args);
    command.env("PATH", format!("{}:{PATH}", bin.display())).stdin(Stdio::null());
    command.env("TMPDIR", server.path());
    command.spawn().unwrap()
}

fn answer(server: &Server) -> Value {
    server.operator(&["inbox", "--json", "--wait", "10s"]).json()["message"].clone()
}

/// Codex's app-server, at one connection.
struct AppServer(WebSocket<UnixStream>);

impl AppServer {
    /// Waits for a call and replies to it; returns its parameters.
    fn called(&mut self, method: &str, result: &Value) -> Value {
        self.replies(method, &json!({ "result": result }))
    }

    /// Waits for a call and refuses it.
    fn refuses(&mut self, method: &str) {
        self.replies(method, &json!({ "error": { "message": "busy" } }));
    }

    fn replies(&mut self, method: &str, reply: &Value) -> Value {
        loop {
            let Message::Text(text) = self.0.read().unwrap() else { continue };
            let call: Value = serde_json::from_str(&text).unwrap();
            if call["method"] == "initialized" {
                continue;
            }
            assert_eq!(call["method"], method, "{call}");
            let mut reply = reply.clone();
            reply["id"] = call["id"].clone();
            self.say(&reply);
            return call["params"].clone();
        }
    }

    fn say(&mut self, message: &Value) {
        self.0.send(Message::text(message.to_string())).unwrap();
    }

    fn notify(&mut self, method: &str, params: &Value) {
        let mut params = params.clone();
        params["threadId"] = json!("t-1");
        self.say(&json!({ "method": method, "params": params }));
    }

    fn begins(&mut self, turn: &str) {
        self.notify("turn/started", &json!({ "turn": { "id": turn } }));
    }

    fn ends(&mut self, turn: &str, status: &str, said: &str) {
        self.notify("item/completed", &json!({ "item": { "type": "agentMessage", "text": said } }));
        self.notify("turn/completed", &json!({ "turn": { "id": turn, "status": status } }));
    }

    /// Waits until a message wakes the session; returns its text.
    fn woken(&mut self, turn: &str) -> String {
        let started = self.called("turn/start", &json!({ "turn": { "id": turn } }));
        let text = started["input"][0]["text"].as_str().unwrap().to_owned();
        self.begins(turn);
        // Shown to the user, but not typed by them.
        let own = json!({ "type": "userMessage", "content": [{ "type": "text", "text": text }] });
        self.notify("item/completed", &json!({ "item": own }));
        text
    }
}

#[test]
fn a_message_that_codex_refuses_is_handed_over_again() {
    let server = Server::start();
    let (child, mut app) = codex(&server);
    server.operator(&["send", "kilo", "is the parser fast?", "--ref", "P-1"]).ok();
    app.refuses("turn/start");
    assert!(app.woken("P-1").contains("is the parser fast?"));
    app.ends("P-1", "completed", "very fast");
    assert_eq!(answer(&server)["body"], "very fast");
    finish(&server, child);
}

#[test]
fn codex_that_goes_on_on_its_own_is_interrupted_charged_and_then_ended() {
    let server = Server::start();
    let dir = server.path();
    let (bin, listener) = played_codex(dir);
    let (path, tmp) = (format!("{}:{PATH}", bin.display()), dir.display().to_string());
    let args = ["--token-file", ".lastword/operator.token", "codex", "--as", "kilo"];
    let terminal = Terminal::run(dir, &args, &[("PATH", &path), ("TMPDIR", &tmp)]);
    let mut app = join(&listener);
    server.operator(&["send", "kilo", "is the parser fast?", "--ref", "P-1"]).ok();
    app.woken("P-1");
    app.ends("P-1", "completed", "very fast");
    assert_eq!(answer(&server)["body"], "very fast");
    let used = || {
        let grant = server.operator(&["--json", "tree", "P-1"]).json()["grants"][0].clone();
        let tokens = |limit: &&Value| limit["name"] == "grant_tokens_max";
        grant["limits"].as_array().unwrap().iter().find(tokens).unwrap_or_else(|| panic!("{grant}"))["current"].as_u64()
    };
    let before = used().unwrap();
    for (turn, tokens) in [("own-1", 2_000), ("own-2", 4_000)] {
        app.begins(turn);
        app.notify("item/started", &json!({ "item": { "type": "reasoning" } }));
        assert_eq!(app.called("turn/interrupt", &json!({}))["turnId"], turn);
        let last =
            json!({ "inputTokens": 1_900, "cachedInputTokens": 0, "cacheWriteInputTokens": 0, "outputTokens": 100 });
        app.notify("thread/tokenUsage/updated", &json!({ "tokenUsage": { "last": last } }));
        app.ends(turn, "interrupted", "");
        wait_for("the charge", || used() >= Some(before + tokens));
    }
    assert_eq!(server.operator(&["--json", "incidents"]).json()["items"][0]["code"], "turn_closed");
    assert_ne!(terminal.ended(), 7, "it did not end of its own accord");
}

/// Starts `lastword codex`, with an app-server that this test plays.
fn codex(server: &Server) -> (Child, AppServer) {
    let (bin, listener) = played_codex(server.path());
    let child = launch(server, &bin, &["codex", "--as", "kilo", "-c", "model=\"x\""]);
    (child, join(&listener))
}

/// Writes a Codex whose app-server is this socket; returns its folder.
fn played_codex(dir: &Path) -> (PathBuf, UnixListener) {
    let listener = UnixListener::bind(dir.join("app.sock")).unwrap();
    let script = format!(
        "case \"$1\" in\napp-server) printf '%s\\n' \"$@\" > \"{0}/server.args\"; ln -s \"{0}/app.sock\" \"${{3#unix://}}\"\n\
         exec sleep 60 ;;\n\
         *) printf '%s\\n' \"$@\" > \"{0}/args\"; while [ ! -e \"{0}/end\" ]; do sleep 0.05; done; exit 7 ;;\nesac\n",
        dir.display()
    );
    (program(dir, "codex", &script), listener)
}

/// Waits until the launcher has joined the session.
fn join(listener: &UnixListener) -> AppServer {
    let (stream, _) = listener.accept().unwrap();
    let mut app = AppServer(tungstenite::accept(stream).unwrap());
    app.called("initialize", &json!({}));
    app.notify("thread/started", &json!({ "thread": { "id": "sub", "parentThreadId": "t-1" } }));
    app.notify("thread/started", &json!({ "thread": { "id": "t-1", "parentThreadId": null, "ephemeral": false } }));
    let primer = app.called("thread/inject_items", &json!({}));
    assert!(primer.to_string().contains("You work in a team"), "{primer}");
    app.called("thread/resume", &json!({}));
    app
}

fn finish(server: &Server, mut child: Child) {
    fs::write(server.path().join("end"), "").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(7), "the program's own exit code");
}

#[test]
fn an_idle_session_of_codex_wakes_and_its_last_text_is_the_answer() {
    let server = Server::start();
    let (child, mut app) = codex(&server);
    for (reference, said) in [("P-1", "very fast"), ("P-2", "fast as well")] {
        server.operator(&["send", "kilo", "is the parser fast?", "--ref", reference]).ok();
        let text = app.woken(reference);
        let line = text.lines().next().unwrap();
        assert!(line.starts_with(&format!("the human operator asks about {reference} (turn-")), "{text}");
        assert!(text.contains("\nis the parser fast?\n") && text.contains(&format!("[REF:{reference}]")), "{text}");
        app.ends(reference, "completed", said);
        assert_eq!(answer(&server)["body"], said);
    }
    let read = |name: &str| fs::read_to_string(server.path().join(name)).unwrap();
    let (args, server_args) = (read("args"), read("server.args"));
    assert!(args.contains("--remote\nunix://") && args.contains("-c\nsandbox_mode=\"read-only\""), "{args}");
    assert!(server_args.contains("-c\nfeatures.goals=false") && server_args.contains("model=\"x\""), "{server_args}");
    assert!(!server_args.contains("lw_"), "a token is in no argument");
    finish(&server, child);
}

#[test]
fn an_interrupted_turn_of_codex_fails_its_request() {
    let server = Server::start();
    let (child, mut app) = codex(&server);
    server.operator(&["send", "kilo", "count to a million", "--ref", "P-1"]).ok();
    app.woken("u-1");
    app.ends("u-1", "interrupted", "one, two");
    let answer = answer(&server);
    assert_eq!(answer["status"], "failed", "{answer}");
    assert!(answer["reason"].as_str().unwrap().contains("interrupted"), "{answer}");
    finish(&server, child);
}

#[test]
fn a_message_that_arrives_while_codex_works_for_its_user_joins_the_turn() {
    let server = Server::start();
    let (child, mut app) = codex(&server);
    app.begins("u-1");
    let typed = json!({ "type": "userMessage", "content": [{ "type": "text", "text": "what is the weather?" }] });
    app.notify("item/completed", &json!({ "item": typed }));
    // Nothing shows from outside that the prompt was noted, so the message waits until a file does.
    let state = || {
        let folders = fs::read_dir(server.path()).unwrap().flatten();
        folders
            .map(|folder| folder.path().join("session.json"))
            .any(|file| fs::read_to_string(file).is_ok_and(|text| text.contains("\"busy\":true")))
    };
    wait_for("the noted prompt", state);
    server.operator(&["send", "kilo", "count the tests", "--ref", "P-1"]).ok();
    let steered = app.called("turn/steer", &json!({}));
    assert_eq!(steered["expectedTurnId"], "u-1", "{steered}");
    let text = steered["input"][0]["text"].as_str().unwrap().to_owned();
    assert!(text.contains("count the tests") && text.contains("finish_turn"), "{text}");
    let own = json!({ "type": "userMessage", "content": [{ "type": "text", "text": text }] });
    app.notify("item/completed", &json!({ "item": own }));
    app.ends("u-1", "completed", "sunny");
    let text = app.woken("u-2");
    assert!(text.contains("still open"), "the weather is no answer to the team: {text}");
    finish(&server, child);
}

#[test]
fn the_app_server_ends_with_a_launcher_that_is_killed() {
    let server = Server::start();
    let (mut child, mut app) = codex(&server);
    child.kill().unwrap();
    child.wait().unwrap();
    let args = fs::read_to_string(server.path().join("server.args")).unwrap();
    let pattern = format!("--listen {}", args.lines().nth(2).unwrap());
    let runs = || {
        let ended = Command::new("ps").args(["-eo", "args"]).output().unwrap();
        String::from_utf8_lossy(&ended.stdout).contains(&pattern)
    };
    wait_for("the app-server's end", || !runs());
    assert!(app.0.read().is_err(), "its connection is closed");
    fs::write(server.path().join("end"), "").unwrap();
}

#[test]
fn a_launcher_that_is_terminated_ends_its_program_and_leaves_nothing() {
    let server = Server::start();
    let (mut child, _app) = codex(&server);
    wait_for("the program", || server.path().join("args").exists());
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(1), "the program was ended by a signal");
    let left = fs::read_dir(server.path()).unwrap().flatten();
    assert!(left.into_iter().all(|entry| !entry.file_name().to_string_lossy().starts_with("lastword-")));
}

#[test]
fn opencode_joins_for_one_run_and_asks_before_it_acts() {
    let server = Server::start();
    let dir = server.path();
    let script = format!("printf '%s\\n' \"$@\" > \"{0}/args\"; env > \"{0}/env\"; exit 7\n", dir.display());
    let bin = program(dir, "opencode", &script);
    let mut child = launch(&server, &bin, &["opencode", "--as", "kilo", "--print-logs"]);
    assert_eq!(child.wait().unwrap().code(), Some(7), "the program's own exit code");
    let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
    let (args, env) = (read("args"), read("env"));
    assert!(args.starts_with("--port\n") && args.ends_with("--print-logs\n"), "{args}");
    let set = |name: &str| env.lines().find_map(|line| line.strip_prefix(&format!("{name}="))).unwrap();
    assert!(set("OPENCODE_SERVER_PASSWORD").len() == 32 && set("LASTWORD_AGENT") == "kilo", "{env}");
    let config: Value = serde_json::from_str(set("OPENCODE_CONFIG_CONTENT")).unwrap();
    assert_eq!((&config["permission"]["*"], &config["permission"]["task"]), (&json!("ask"), &json!("deny")));
    assert!(config["mcp"]["lastword"]["url"].as_str().unwrap().ends_with("/mcp"), "{config}");
    assert!(!args.contains(set("OPENCODE_SERVER_PASSWORD")) && !dir.join("opencode.json").exists());
}

#[test]
fn gemini_joins_for_one_run_by_settings_of_its_own() {
    let server = Server::start();
    let dir = server.path();
    let script = format!(
        "cp \"$GEMINI_CLI_SYSTEM_SETTINGS_PATH\" \"{0}/settings\"; printf '%s\\n' \"$@\" > \"{0}/args\"\n",
        dir.display()
    );
    let bin = program(dir, "gemini", &script);
    // The folder of the server is below /tmp.
    let state = closed_folder();
    let run = |args: &[&str]| {
        let mut command = lastword(dir);
        command.args(["--token-file", ".lastword/operator.token", "gemini", "--as", "kilo"]).args(args);
        command.env("PATH", format!("{}:{PATH}", bin.display())).env("XDG_STATE_HOME", state.path());
        let said = crate::program::finish(&mut command, "");
        assert_eq!(said.code, 0, "{said:?}");
        let settings = fs::read_to_string(dir.join("settings")).unwrap();
        (said.stderr, serde_json::from_str::<Value>(&settings).unwrap())
    };
    let (said, settings) = run(&["-m", "x"]);
    assert!(said.contains("an idle session isn't woken") && said.contains("lastword run"), "{said}");
    assert_eq!(settings["tools"]["exclude"], json!(["invoke_agent"]));
    assert!(settings["mcpServers"]["lastword"]["httpUrl"].as_str().unwrap().ends_with("/mcp"), "{settings}");
    let args = fs::read_to_string(dir.join("args")).unwrap();
    assert!(args.starts_with("--admin-policy\n") && args.ends_with("\n--approval-mode=default\n-m\nx\n"), "{args}");
    let (said, settings) = run(&["--unheld", "--wake", "--yolo"]);
    let line = settings["hooks"]["AfterAgent"][0]["hooks"][0]["command"].as_str().unwrap().to_owned();
    assert!(!said.contains("isn't woken") && line.ends_with(" wait"), "{line}");
    assert_eq!(fs::read_to_string(dir.join("args")).unwrap(), "--yolo\n", "the user's own mode");
    assert_eq!(fs::read_dir(state.path().join("lastword/hooks")).unwrap().count(), 0, "the settings are removed");
    let open = launch(&server, &bin, &["--data", ".lastword", "gemini"]).wait_with_output().unwrap();
    assert_eq!(open.status.code(), Some(1), "no settings below a folder to which others may write");
}
