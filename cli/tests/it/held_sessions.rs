//! Who decides on the calls of a session that a launcher started: its user, or any human of the team.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::closed::closed_folder;
use crate::launch::{fake_program, happens};
use crate::program::{Ended, PATH, Server, finish, lastword};
use crate::running::wait_for;

fn launch(server: &Server, args: &[&str]) -> std::process::Command {
    let dir = server.path();
    let bin = fake_program(dir, args[0]);
    let mut command = lastword(dir);
    command.args(["--token-file", ".lastword/operator.token"]).args(args);
    command.env("PATH", format!("{}:{PATH}", bin.display())).env("XDG_STATE_HOME", dir.join("state"));
    command.env("HOME", dir);
    command
}

/// A session of the fake Claude Code as the agent kilo.
struct Session {
    server: Server,
    launcher: Child,
}

impl Session {
    fn start(args: &[&str]) -> Self {
        let server = Server::start();
        let mut command = launch(&server, &[&["claude", "--as", "kilo"], args].concat());
        let launcher = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_for("the program", || server.path().join("env.kilo").exists());
        Self { server, launcher }
    }

    fn happens(&self, name: &str, more: &Value) -> String {
        happens(self.server.path(), "kilo", "s-1", name, more)
    }

    /// Has a human decide on a held call, which waits `meanwhile`. Returns the decision that the hook gives the program.
    fn decision(&self, call: &Value, decide: &[&str], meanwhile: impl FnOnce()) -> Value {
        std::thread::scope(|scope| {
            let hook = scope.spawn(|| self.happens("PermissionRequest", call));
            let pending = || self.server.operator(&["--json", "approvals"]).json()["items"][0].clone();
            wait_for("the held call", || pending().is_object());
            let held = pending();
            assert_eq!(held["arguments"], call["tool_input"]);
            meanwhile();
            let (id, digest) = (held["id"].as_str().unwrap(), held["digest"].as_str().unwrap());
            let digest = if decide[0] == "approve" { vec!["--digest", digest] } else { vec![] };
            self.server.operator(&[&[decide[0], id, "--yes"], &digest[..], &decide[1..]].concat()).ok();
            let said: Value = serde_json::from_str(&hook.join().unwrap()).unwrap();
            said["hookSpecificOutput"]["decision"].clone()
        })
    }

    fn settings(&self) -> Value {
        let args = fs::read_to_string(self.server.path().join("args.kilo")).unwrap();
        serde_json::from_str(args.lines().find_map(|line| line.strip_prefix("--settings=")).unwrap()).unwrap()
    }

    /// Sends a request that the session takes at the end of its turn.
    fn asked(&self, reference: &str) {
        self.server.operator(&["send", "kilo", "do it", "--ref", reference]).ok();
        assert!(self.happens("Stop", &json!({ "last_assistant_message": "ready" })).contains("do it"));
    }

    /// Kills the broker, and starts it again at its address once something has happened.
    fn without_broker(&mut self, happens: impl FnOnce(&Path)) {
        let address = self.server.first_line["listening"].as_str().unwrap().trim_start_matches("http://").to_owned();
        assert!(Command::new("kill").args(["-KILL", &self.server.id().to_string()]).status().unwrap().success());
        self.server.wait();
        let dir = self.server.take_dir();
        happens(dir.path());
        self.server = Server::start_with(dir, &["--listen", &address]);
    }

    fn shows_dialog(&self) -> [bool; 4] {
        let shows = |args: &[&str], words: &str| self.server.operator(args).ok().contains(words);
        [
            shows(&["agent", "show", "kilo"], "waits for its user"),
            shows(&["agent", "list"], "waits for its user"),
            shows(&["ls"], "waits for its user"),
            // The note to who asked is in the tree as well.
            shows(&["tree", "P-1"], "kilo waits for its user"),
        ]
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ended = fs::write(self.server.path().join("end"), "").and_then(|()| self.launcher.wait());
    }
}

#[test]
fn a_dialog_is_seen_until_the_next_tool_result_or_the_end_of_its_turn() {
    let session = Session::start(&[]);
    let dialog = json!({ "message": "Claude needs your permission to use Bash" });
    session.happens("Notification", &dialog);
    session.asked("P-1");
    assert_eq!(session.shows_dialog(), [false; 4], "a dialog of its user's own work is none of the team's");
    session.happens("Notification", &dialog);
    assert_eq!(session.shows_dialog(), [true; 4]);
    session.happens("PostToolUse", &json!({}));
    wait_for("the end of the dialog", || {
        // A report behind another one within a second is refused.
        session.happens("PostToolUse", &json!({}));
        session.shows_dialog() == [false; 4]
    });
    wait_for("the next dialog", || {
        session.happens("Notification", &dialog);
        session.shows_dialog() == [true; 4]
    });
    session.happens("Stop", &json!({ "last_assistant_message": "done" }));
    assert_eq!(session.shows_dialog(), [false; 4]);
}

#[test]
fn claude_asks_for_what_its_user_and_the_project_allow() {
    let server = Server::start();
    let folder = server.path().join(".claude");
    fs::create_dir(&folder).unwrap();
    let rules =
        json!({ "permissions": { "allow": ["Read", "Bash(npm test:*)", "mcp__github__push", "mcp__lastword"] } });
    fs::write(folder.join("settings.json"), rules.to_string()).unwrap();
    let asks = |args: &[&str]| {
        let _gone = fs::remove_file(server.path().join("env.kilo"));
        fs::write(server.path().join("end"), "").unwrap();
        finish(&mut launch(&server, &[&["claude", "--as", "kilo"], args].concat()), "");
        let args = fs::read_to_string(server.path().join("args.kilo")).unwrap();
        let settings: Vec<&str> = args.lines().filter_map(|line| line.strip_prefix("--settings=")).collect();
        let [settings] = settings.as_slice() else { panic!("{args}") };
        let settings: Value = serde_json::from_str(settings).unwrap();
        (settings["permissions"]["ask"].clone(), settings["hooks"]["PermissionRequest"].is_array())
    };
    let all = json!(["Bash", "Edit", "NotebookEdit", "WebFetch", "Write", "mcp__github__push"]);
    assert_eq!(asks(&[]), (all.clone(), false));
    assert_eq!(asks(&["--held"]), (all, true));
    assert_eq!(asks(&["--unheld"]), (json!([]), false));
    let linked = server.path().join("linked");
    let main = server.path().join("repo");
    for path in [main.join(".git/worktrees/linked"), main.join(".claude"), linked.clone()] {
        fs::create_dir_all(path).unwrap();
    }
    fs::write(linked.join(".git"), format!("gitdir: {}\n", main.join(".git/worktrees/linked").display())).unwrap();
    fs::write(main.join(".git/worktrees/linked/commondir"), "../..\n").unwrap();
    let local = main.join(".claude/settings.local.json");
    fs::write(&local, json!({ "permissions": { "allow": ["WebSearch"] } }).to_string()).unwrap();
    let in_linked = || {
        let mut command = lastword(&linked);
        command.args([
            "--data",
            "../.lastword",
            "--token-file",
            "../.lastword/operator.token",
            "claude",
            "--as",
            "kilo",
        ]);
        let path = format!("{}:{PATH}", server.path().join("bin").display());
        finish(command.env("PATH", path).env("HOME", server.path()), "")
    };
    in_linked();
    let args = fs::read_to_string(server.path().join("args.kilo")).unwrap();
    assert!(args.contains("\"WebSearch\""), "what the main worktree allows: {args}");
    fs::write(&local, json!({ "hooks": { "PermissionRequest": [{ "hooks": [] }] } }).to_string()).unwrap();
    let refused = in_linked();
    assert!(refused.code == 1 && refused.stderr.contains("settings.local.json"), "a hook that decides: {refused:?}");
    let own = r#"{"permissions":{"ask":["Read"]}}"#;
    assert_eq!(asks(&["--unheld", "--settings", own]), (json!(["Read"]), false));
    let both = finish(&mut launch(&server, &["claude", "--held", "--unheld"]), "");
    assert_eq!(both.code, 2, "{both:?}");
}

#[test]
fn a_session_whose_agent_is_stopped_says_how_it_works_again_and_what_a_request_to_it_meets() {
    let server = Server::start();
    server.agent("kilo");
    server.operator(&["stop", "--agent", "kilo"]).ok();
    fs::write(server.path().join("end"), "").unwrap();
    let said = |server: &Server| finish(&mut launch(server, &["claude", "--as", "kilo"]), "").stderr;
    let stopped = said(&server);
    assert!(stopped.contains("kilo is stopped, so no message reaches it: `lastword resume --agent kilo`"), "{stopped}");
    assert!(stopped.contains("a request to it waits until its time is over, and `--as kilo`"), "{stopped}");
    server.operator(&["resume", "--agent", "kilo", "--yes"]).ok();
    assert!(!said(&server).contains("no message reaches it"));
}

#[test]
fn a_held_session_waits_for_a_human_of_the_team_where_a_message_asked() {
    let session = Session::start(&["--held"]);
    assert_eq!(session.settings()["hooks"]["PermissionRequest"][0]["hooks"][0]["type"], "command");
    let call = json!({ "tool_name": "Bash", "tool_input": { "command": "make deploy" } });
    assert_eq!(session.happens("PermissionRequest", &call), "", "what its user asked for is its user's to decide");
    session.asked("P-1");
    let decision = |decide: &[&str]| session.decision(&call, decide, || ());
    let rejected = decision(&["reject", "--comment", "not on a Friday"]);
    assert_eq!(rejected["behavior"], "deny");
    assert!(rejected["message"].as_str().unwrap().contains("not on a Friday"), "{rejected}");
    assert_eq!(decision(&["approve"]), json!({ "behavior": "allow" }));
    let edited = decision(&["approve", "--edit", r#"{"command":"make test"}"#]);
    assert_eq!(edited, json!({ "behavior": "allow", "updatedInput": { "command": "make test" } }));
}

#[test]
fn a_held_call_of_git_keeps_its_tree_from_others_only_once_it_is_approved() {
    let session = Session::start(&["--held"]);
    session.server.agent("hive");
    session.asked("P-1");
    let work = session.server.path().join("work");
    let init = Command::new("git").args(["init", "-q"]).arg(&work).status().unwrap();
    assert!(init.success());
    let stash = json!({ "tool_name": "Bash", "tool_input": { "command": "git stash" }, "cwd": work });
    let file = work.join("a.rs").display().to_string();
    let claims = || session.server.operator(&["claims", "--json"]).json()["items"].as_array().unwrap().len();
    assert_eq!((session.happens("PreToolUse", &stash).as_str(), claims()), ("", 1));
    let denied = session.decision(&stash, &["approve"], || {
        assert_eq!(claims(), 0, "others go on while it waits");
        session.server.as_agent("hive", &["claim", &file]).ok();
    });
    assert_eq!(denied["behavior"], "deny");
    assert!(denied["message"].as_str().unwrap().contains("- a.rs: hive"), "{denied}");
    session.server.operator(&["release", &file]).ok();
    assert_eq!(session.decision(&stash, &["approve"], || ()), json!({ "behavior": "allow" }));
    assert_eq!(claims(), 1);
    session.happens("PostToolUse", &stash);
    assert_eq!(claims(), 0);
}

#[test]
fn a_dialog_that_its_user_answers_is_no_ones_to_decide_any_more() {
    let session = Session::start(&["--held"]);
    session.asked("P-1");
    let call = |command: &str| json!({ "tool_name": "Bash", "tool_input": { "command": command } });
    let all = || session.server.operator(&["--json", "approvals", "--all"]).json()["items"].clone();
    let states = || all().as_array().unwrap().iter().map(|held| held["state"].clone()).collect::<Vec<_>>();
    std::thread::scope(|scope| {
        let session = &session;
        let hooks = ["make test", "make deploy"].map(|command| {
            let held = states().len();
            let hook = scope.spawn(move || session.happens("PermissionRequest", &call(command)));
            wait_for("the held call", || states().len() > held);
            hook
        });
        session.happens("PostToolUse", &call("ls"));
        assert_eq!(states(), ["pending", "pending"], "another call");
        session.happens("PostToolUse", &call("make test"));
        let mut after = states();
        after.sort_by_key(ToString::to_string);
        assert_eq!(after, ["ignored", "pending"]);
        let sub_agent = json!([{ "id": "1", "type": "subagent", "status": "running", "description": "x" }]);
        session.happens("Stop", &json!({ "last_assistant_message": "it works on", "background_tasks": sub_agent }));
        assert_eq!(states().iter().filter(|state| *state == "pending").count(), 1, "it may be the sub-agent's");
        // What waits for a decision would keep the turn open.
        session.happens("Stop", &json!({ "last_assistant_message": "it is done" }));
        assert_eq!(states(), ["ignored", "ignored"]);
        assert_eq!(all()[0]["by"], "kilo");
        for hook in hooks {
            assert_eq!(hook.join().unwrap(), "", "its dialog is gone");
        }
    });
    let answered = session.server.operator(&["--json", "inbox", "--wait", "30s"]).json();
    assert_eq!(
        (&answered["message"]["status"], &answered["message"]["body"]),
        (&json!("completed"), &json!("it is done"))
    );
}

#[test]
fn a_dialog_that_its_user_answers_while_the_broker_is_away_is_no_ones_to_decide_once_it_is_back() {
    let mut session = Session::start(&["--held"]);
    session.asked("P-1");
    let call = json!({ "tool_name": "Bash", "tool_input": { "command": "make test" } });
    let state = |session: &Session| {
        session.server.operator(&["--json", "approvals", "--all"]).json()["items"][0]["state"].clone()
    };
    let dir = session.server.path().to_owned();
    std::thread::scope(|scope| {
        let hook = scope.spawn(|| happens(&dir, "kilo", "s-1", "PermissionRequest", &call));
        wait_for("the held call", || state(&session) == "pending");
        session.without_broker(|dir| assert_eq!(happens(dir, "kilo", "s-1", "PostToolUse", &call), ""));
        assert_eq!(state(&session), "pending");
        session.happens("PostToolUse", &json!({ "tool_name": "Read", "tool_input": {} }));
        assert_eq!(state(&session), "ignored");
        assert_eq!(hook.join().unwrap(), "", "its dialog is gone");
    });
}

#[test]
fn a_turn_whose_sub_agents_work_on_ends_with_them() {
    let session = Session::start(&[]);
    session.asked("P-1");
    let stop = |said: &str, kind: &str| {
        let tasks = json!([{ "id": "1", "type": kind, "status": "running", "description": "x" }]);
        session.happens("Stop", &json!({ "last_assistant_message": said, "background_tasks": tasks }))
    };
    session.server.operator(&["send", "kilo", "and this", "--ref", "P-2"]).ok();
    assert_eq!(stop("it works on", "subagent"), "", "and no other message comes between");
    assert_eq!(session.shows_dialog(), [false; 4]);
    session.happens("Notification", &json!({ "message": "Claude needs your permission to use Bash" }));
    wait_for("the dialog of its sub-agent", || session.shows_dialog() == [true; 4]);
    assert!(stop("it is done", "shell").contains("and this"), "a server of the shell may run for ever");
    let answered = session.server.operator(&["--json", "inbox", "--wait", "30s"]).json();
    assert_eq!(answered["message"]["body"], "it is done");
}

#[test]
fn what_no_layer_overrides_is_refused_by_name_and_runs_unheld() {
    let server = Server::start();
    let dir = server.path();
    let refused = |args: &[&str], words: &str| {
        let ended: Ended = finish(&mut launch(&server, args), "");
        assert!(ended.code == 1 && ended.stderr.contains(words), "{args:?} {ended:?}");
    };
    refused(&["gemini", "--held"], "Gemini CLI lets no other program answer its dialogs");
    for mode in ["--yolo", "-sdanger-full-access", "--ask-for-approval=never"] {
        refused(&["codex", "--as", "kilo", mode], &format!("{mode} lets Codex decide"));
    }
    let rules = dir.join(".codex/rules/mine.rules");
    fs::create_dir_all(dir.join("work/.codex/rules")).unwrap();
    fs::create_dir_all(rules.parent().unwrap()).unwrap();
    let project = dir.join("work/.codex/rules/ours.rules");
    for file in [&rules, &project] {
        fs::write(file, r#"prefix_rule(pattern=["touch"], decision="allow")"#).unwrap();
    }
    let ended = finish(launch(&server, &["codex", "--as", "kilo"]).current_dir(dir.join("work")), "");
    assert!(ended.code == 1 && ended.stderr.contains("ours.rules lets Codex run commands unasked"), "{ended:?}");
    assert_eq!(server.operator(&["agent", "show", "kilo"]).code, 1, "no agent is registered for nothing");
    fs::write(dir.join("end"), "").unwrap();
    let home = |args: &[&str]| {
        finish(
            launch(&server, &[&["codex", "--as", "kilo"], args].concat()).env("LASTWORD_DATA", dir.join(".lastword")),
            "",
        );
        let environment = fs::read_to_string(dir.join("env.kilo")).unwrap();
        environment.lines().find_map(|line| line.strip_prefix("CODEX_HOME=").map(str::to_owned))
    };
    assert!(home(&[]).is_some_and(|home| home.contains("lastword-")), "a home of its own, without the user's rules");
    assert_eq!(home(&["--unheld", "--yolo"]), None);
}

/// Writes a Codex that says this on standard error and ends, and returns what the launcher says.
fn codex_that_fails(server: &Server, said: &str, args: &[&str]) -> (Ended, String) {
    let dir = server.path();
    let mut command = launch(server, &[&["codex", "--as", "kilo"], args].concat());
    let script = format!("#!/bin/sh\nprintf '%s\\n' \"$@\" > '{}/args'\necho '{said}' >&2\nexit 1\n", dir.display());
    fs::write(dir.join("bin/codex"), script).unwrap();
    let ended = finish(command.env("LASTWORD_DATA", dir.join(".lastword")), "");
    (ended, fs::read_to_string(dir.join("args")).unwrap())
}

#[test]
fn codex_that_does_not_start_is_told_in_its_own_words() {
    let server = Server::start();
    let (ended, _) = codex_that_fails(&server, "Error: no such model provider", &[]);
    assert!(ended.code == 3 && ended.stderr.contains("did not start: Error: no such model provider"), "{ended:?}");
    assert!(ended.stderr.contains("codex doctor"), "{ended:?}");
}

#[test]
fn codex_gets_lastwords_tools_in_the_form_that_the_project_has_and_asks_for_those_of_other_servers() {
    let server = Server::start();
    let folder = server.path().join(".codex");
    fs::create_dir(&folder).unwrap();
    let settings = |config: &str, args: &[&str]| {
        fs::write(folder.join("config.toml"), config).unwrap();
        let args = codex_that_fails(&server, "no", args).1;
        let own = args.lines().find(|arg| arg.starts_with("mcp_servers.lastword=")).unwrap().to_owned();
        let asks = args.contains("\nmcp_servers.files.default_tools_approval_mode=\"prompt\"\n");
        (own.contains("url="), own.contains("command="), asks, args.contains("\nfeatures.hooks=false\n"))
    };
    let files = "[mcp_servers.files]\ncommand = \"x\"\ndefault_tools_approval_mode = \"approve\"\n";
    assert_eq!(settings(files, &[]), (true, false, true, true));
    assert_eq!(settings(files, &["--unheld"]), (true, false, false, false));
    assert_eq!(settings("mcp_servers.lastword.command = \"lastword\"\n", &[]), (false, true, false, true));
    assert_eq!(settings("mcp_servers.lastword.url = \"http://127.0.0.1:1/mcp\"\n", &[]), (true, false, false, true));
}

#[test]
fn gemini_cli_trusts_no_server_of_its_user_or_the_project() {
    let server = Server::start();
    let dir = server.path();
    let state = closed_folder();
    fs::create_dir_all(dir.join("work/.gemini")).unwrap();
    fs::create_dir_all(dir.join(".gemini")).unwrap();
    std::os::unix::fs::symlink(dir.join(".lastword"), dir.join("work/.lastword")).unwrap();
    let files = |file: &str, servers: Value| {
        fs::write(dir.join(file), json!({ "mcpServers": servers }).to_string()).unwrap();
    };
    let (own, other) = (json!({ "command": "own", "trust": true }), json!({ "command": "other", "trust": true }));
    files(".gemini/settings.json", json!({ "a": own, "b": own, "c": { "command": "own" } }));
    files("work/.gemini/settings.json", json!({ "b": other, "d": other }));
    let servers = |args: &[&str]| {
        let mut command = launch(&server, &[&["gemini", "--as", "kilo"], args].concat());
        let script = "#!/bin/sh\ncp \"$GEMINI_CLI_SYSTEM_SETTINGS_PATH\" \"$HOME/given\"\n";
        fs::write(dir.join("bin/gemini"), script).unwrap();
        command.current_dir(dir.join("work")).env("XDG_STATE_HOME", state.path());
        command.env("LASTWORD_DATA", dir.join(".lastword"));
        let ended = finish(&mut command, "");
        assert_eq!(ended.code, 0, "{ended:?}");
        let mut given: Value = serde_json::from_str(&fs::read_to_string(dir.join("given")).unwrap()).unwrap();
        let lastword = given["mcpServers"].as_object_mut().unwrap().remove("lastword").unwrap();
        assert_eq!(lastword["trust"], true);
        given["mcpServers"].clone()
    };
    let (own, other) = (json!({ "command": "own" }), json!({ "command": "other" }));
    assert_eq!(servers(&[]), json!({ "a": own, "b": other, "d": other }), "as they are, but not trusted");
    assert_eq!(servers(&["--unheld"]), json!({}));
}
