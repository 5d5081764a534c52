//! A folder's configuration lets no program act as another agent, and no model as a human.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::program::{Ended, Server, finish, lastword, run};
use crate::running::{Running, ask, fake_acp};

const STOP: &str = r#"{"hook_event_name": "Stop", "session_id": "s-1"}"#;

/// The messages of an MCP client that lists the tools and sends a message.
fn session(server: &Server, args: &[&str], environment: &[(&str, &str)]) -> (Vec<Value>, Ended) {
    let mut command = lastword(server.path());
    command.args(args).envs(environment.iter().copied()).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let client = json!({"name": "t", "version": "1"});
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
    let call =
        json!({"name": "send_agent_message", "arguments": {"target_agent_id": "hive", "message": "x", "ref": "A"}});
    let messages = [
        Some(json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})),
        Some(json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})),
        Some(json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call})),
    ];
    let mut replies = Vec::new();
    for (at, message) in messages.into_iter().flatten().enumerate() {
        // A command that refused has closed its input.
        if writeln!(stdin, "{message}").is_err() {
            break;
        }
        let Some(Ok(line)) = lines.next() else { break };
        replies.push(serde_json::from_str(&line).unwrap());
        if at == 0 {
            writeln!(stdin, "{}", json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).unwrap();
        }
    }
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    (replies, Ended { code: output.status.code().unwrap_or(-1), stdout: String::new(), stderr })
}

fn tools(replies: &[Value]) -> Vec<&str> {
    replies[1]["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

/// Returns the command line of the hook that `init --claude` wrote.
fn hook_line(dir: &Path) -> String {
    let text = fs::read_to_string(dir.join(".claude/settings.local.json")).unwrap();
    let hooks: Value = serde_json::from_str(&text).unwrap();
    hooks["hooks"]["Stop"][0]["hooks"][0]["command"].as_str().unwrap().to_owned()
}

fn shell(server: &Server, line: &str, environment: &[(&str, &str)]) -> Ended {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", line]).env_clear().env("HOME", server.path()).envs(environment.iter().copied());
    finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()), STOP)
}

#[test]
fn a_hook_of_the_folder_gives_another_agent_nothing() {
    let server = Server::start();
    server.agent("kilo");
    server.agent("bob");
    run(server.path(), &["--token-file", "kilo.token", "init", "--claude"]).ok();
    let line = hook_line(server.path());
    server.operator(&["send", "kilo", "for kilo alone", "--ref", "S-1"]).ok();
    let ended = shell(&server, &line, &[("LASTWORD_AGENT", "bob")]);
    assert_eq!((ended.code, ended.stdout.as_str()), (0, ""), "{ended:?}");
    assert!(ended.stderr.contains("bob") && ended.stderr.contains("kilo"), "{ended:?}");
    // The runner delivers to the agent of its own runs.
    let ended = shell(&server, &line, &[("LASTWORD_AGENT", "kilo"), ("LASTWORD_TURN", "t")]);
    assert_eq!((ended.code, ended.stdout.as_str()), (0, ""), "{ended:?}");
    let ended = shell(&server, &line, &[("LASTWORD_AGENT", "kilo")]);
    assert!(ended.stdout.contains("for kilo alone"), "{ended:?}");
}

#[test]
fn a_run_in_the_folder_of_another_agent_takes_none_of_its_messages() {
    let server = Server::start();
    server.agent("kilo");
    run(server.path(), &["--token-file", "kilo.token", "init", "--claude"]).ok();
    let line = hook_line(server.path());
    server.operator(&["send", "kilo", "for kilo alone", "--ref", "S-1"]).ok();
    let script = format!("printf '%s' '{STOP}' | HOME=. {line}; echo done");
    let _bob = Running::start(&server, "bob", &["--", "/usr/bin/env", "-S", "sh", "-c", &script]);
    assert_eq!(ask(&server, "bob", "work")["body"], "done");
    assert!(server.as_agent("kilo", &["inbox"]).ok().contains("for kilo alone"));
}

#[test]
fn an_acp_agent_and_what_it_starts_know_its_name() {
    let server = Server::start();
    let fake = fake_acp();
    let script = format!("echo $LASTWORD_AGENT $LASTWORD_RUN > who; exec '{}'", fake.display());
    let command = ["--driver", "acp", "--", "/usr/bin/env", "-S", "sh", "-c", &script];
    let _bob = Running::start(&server, "bob", &command);
    assert_eq!(fs::read_to_string(server.path().join("who")).unwrap(), "bob 1\n");
}

#[test]
fn the_tools_of_the_folder_are_not_offered_to_another_agent() {
    let server = Server::start();
    server.agent("kilo");
    server.agent("hive");
    let args = ["--token-file", "kilo.token", "mcp"];
    let (replies, ended) = session(&server, &args, &[("LASTWORD_AGENT", "bob")]);
    let said = replies[0]["result"]["instructions"].as_str().unwrap();
    assert!(said.contains("bob") && said.contains("kilo"), "{said}");
    assert!(ended.stderr.contains("bob") && ended.stderr.contains("kilo"), "{ended:?}");
    assert!(tools(&replies).is_empty(), "{replies:?}");
    assert!(replies[2]["error"].is_object(), "{replies:?}");
    assert!(server.as_agent("hive", &["inbox"]).ok().contains("inbox empty"));
    let (replies, _) = session(&server, &args, &[("LASTWORD_AGENT", "kilo")]);
    assert!(tools(&replies).contains(&"send_agent_message"));
    assert!(replies[2]["result"]["structuredContent"]["request_id"].is_string(), "{replies:?}");
}

#[test]
fn a_humans_token_serves_a_model_only_by_name_and_never_sends() {
    let server = Server::start();
    server.agent("hive");
    let operator = ["--token-file", ".lastword/operator.token"];
    let (replies, ended) = session(&server, &[&operator[..], &["mcp"]].concat(), &[]);
    assert!(replies.is_empty() && ended.code == 1, "{replies:?} {ended:?}");
    assert!(ended.stderr.contains("lastword agent add") && ended.stderr.contains("--as-human"), "{ended:?}");
    let (replies, _) = session(&server, &[&operator[..], &["mcp", "--as-human"]].concat(), &[]);
    let offered = tools(&replies);
    assert!(offered.contains(&"resolve_agent_approval") && offered.contains(&"answer_escalation"), "{offered:?}");
    for acting in ["send_agent_message", "escalate_to_user", "next_message", "finish_turn", "claim_resource"] {
        assert!(!offered.contains(&acting), "{offered:?}");
    }
    assert!(replies[2]["error"].is_object(), "{replies:?}");
    assert!(server.as_agent("hive", &["inbox"]).ok().contains("inbox empty"));
    let (_, ended) = session(&server, &["--token-file", "hive.token", "mcp", "--as-human"], &[]);
    assert!(ended.code != 0 && ended.stderr.contains("hive"), "{ended:?}");
}

#[test]
fn init_writes_no_humans_token_unless_it_is_asked_to_by_name() {
    let server = Server::start();
    let dir = server.path();
    let refused = server.operator(&["init", "--claude"]);
    assert!(refused.code == 1 && refused.stderr.contains("lastword agent add"), "{refused:?}");
    assert!(!dir.join(".mcp.json").exists() && !dir.join(".claude").exists());
    let said = server.operator(&["init", "--claude", "--as-human"]).ok();
    assert!(said.contains("operator"), "{said}");
    let text = fs::read_to_string(dir.join(".mcp.json")).unwrap();
    assert!(text.contains("--as-human"), "{text}");
    // A hook delivers an agent's messages; a human's session has none.
    let settings = fs::read_to_string(dir.join(".claude/settings.local.json")).unwrap_or_default();
    assert!(!settings.contains(" hook"), "{settings}");
}

#[test]
fn a_server_starts_without_the_operators_token_that_was_moved_to_a_safe_place() {
    let (code, dir) = Server::start().terminate();
    assert_eq!(code, 0);
    fs::rename(dir.path().join(".lastword/operator.token"), dir.path().join("kept.token")).unwrap();
    let server = Server::start_in(dir);
    let added = run(server.path(), &["--token-file", "kept.token", "agent", "add", "kilo"]);
    assert!(added.ok().starts_with("lw_"));
    assert!(!server.path().join(".lastword/operator.token").exists(), "no other token was made");
}

#[test]
fn a_data_directory_without_its_server_gets_no_token_sent_elsewhere() {
    let server = Server::start_with(tempfile::tempdir().unwrap(), &["--listen", "127.0.0.1:0", "--tls", "auto"]);
    server.agent("kilo");
    let (_, dir) = server.terminate();
    let (dir, elsewhere) = (dir.path(), tempfile::tempdir().unwrap());
    let (data, token) = (dir.join(".lastword"), dir.join("kilo.token"));
    fs::write(elsewhere.path().join("named.toml"), format!("data = {:?}\n", data.display().to_string())).unwrap();
    let ways: [(&std::path::Path, Vec<&str>, Option<&str>); 4] = [
        (elsewhere.path(), vec!["--data", data.to_str().unwrap()], None),
        (elsewhere.path(), vec!["--config", "named.toml"], None),
        (elsewhere.path(), vec![], data.to_str()),
        // The folder's own data directory, which no one names.
        (dir, vec![], None),
    ];
    for (cwd, args, variable) in ways {
        let calls = [
            vec!["inbox"],
            vec!["send", "hive", "hello", "--ref", "A-1"],
            vec!["mcp"],
            vec!["init", "--codex"],
            vec!["sign-in"],
        ];
        for call in calls {
            let mut command = lastword(cwd);
            command.args(&args).args(["--token-file", token.to_str().unwrap()]).args(&call);
            command.env("HOME", elsewhere.path());
            if let Some(variable) = variable {
                command.env("LASTWORD_DATA", variable);
            }
            let ended = finish(&mut command, "");
            assert_eq!(ended.code, 3, "{args:?} {call:?}: {ended:?}");
            assert!(ended.stderr.contains("no server is running on"), "{args:?} {call:?}: {ended:?}");
            assert!(ended.stderr.contains("`lastword serve`") && !ended.stderr.contains("7171"), "{ended:?}");
        }
    }
    let mut doctor = lastword(elsewhere.path());
    let ended = finish(doctor.args(["--data", data.to_str().unwrap(), "doctor"]), "");
    assert!(ended.stdout.contains("no server is running on") && !ended.stdout.contains("7171"), "{ended:?}");
}
