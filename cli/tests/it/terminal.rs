//! The output at the terminal: `tail`, `tree`, `explain`, `limits diff`, `top`, and the kept demo.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::program::{Server, finish, lastword, run};
use crate::running::{runs, wait_for};

/// Creates a conversation in which `coder` was refused, because it sent a request back to its requester.
fn refused_in(server: &Server) -> Value {
    for name in ["lead", "coder"] {
        server.agent(name);
    }
    server.operator(&["ask", "lead", "Ship it", "--ref", "SHIP-1", "--wait", "0s"]).ok();
    server.as_agent("lead", &["inbox"]).ok();
    server.as_agent("lead", &["send", "coder", "Build it"]).ok();
    server.as_agent("coder", &["inbox"]).ok();
    let refused = server.as_agent("coder", &["--json", "send", "lead", "You first"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    serde_json::from_str::<Value>(&refused.stderr).unwrap()["error"].clone()
}

#[test]
fn a_refusal_names_its_record_and_that_is_explained_with_the_chain_from_the_grant_down() {
    let server = Server::start();
    let refused = refused_in(&server);
    let record = refused["record"].as_str().unwrap();
    let told = server.operator(&["explain", record, "--json"]).json();
    assert_eq!(told["subject"], "refusal");
    assert_eq!(told["refused"]["problem"]["code"], refused["code"]);
    assert_eq!(told["refused"]["problem"]["hint"], refused["hint"]);
    let chain: Vec<_> = told["chain"].as_array().unwrap().iter().map(|link| link["to"].as_str().unwrap()).collect();
    assert_eq!(chain, ["lead", "coder"], "{told}");
    assert_eq!(told["grant"]["giver"], "operator");

    let words = server.operator(&["explain", record]).ok();
    for part in [record, "(D5)", "from the grant down", "operator → lead", "lead → coder", "what to do"] {
        assert!(words.contains(part), "{part}: {words}");
    }
    assert!(server.as_agent("coder", &["explain", record]).ok().contains(record), "its own");
    let other = server.as_agent("lead", &["explain", record]);
    assert!(other.code == 1 && other.stderr.contains(record), "somebody else's is as unknown as none: {other:?}");
    let said = server.as_agent("coder", &["send", "lead", "Please"]);
    assert!(said.stderr.contains("\ndetails: lastword explain refused-"), "{said:?}");
}

#[test]
fn a_message_a_held_call_and_a_question_are_explained() {
    let server = Server::start();
    refused_in(&server);
    let asked = server.as_agent("coder", &["send", "user", "which colour?"]).ok();
    assert!(asked.contains("esc-1"), "{asked}");
    let question = server.operator(&["explain", "esc-1"]).ok();
    assert!(question.contains("which colour?") && question.contains("lastword answer esc-1"), "{question}");
    let found = server.operator(&["audit", "Build", "--json"]).json();
    let id = found["items"][0]["id"].as_str().unwrap();
    server.operator(&["pause", "SHIP-1"]).ok();
    let told = server.operator(&["explain", id]).ok();
    for part in ["hop 1: the work was delegated once", "task_requests_max 1/16", "conversation SHIP-1 is paused"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(told.contains("lastword resume SHIP-1"), "{told}");
    let none = server.operator(&["explain", "msg-9999"]);
    assert!(none.code == 1 && none.stderr.contains("msg-9999"), "{none:?}");
    assert_eq!(server.operator(&["explain", "nonsense"]).code, 2);
}

#[test]
fn a_tree_shows_what_each_request_took_and_what_was_refused_on_the_way() {
    let server = Server::start();
    let record = refused_in(&server)["record"].as_str().unwrap().to_owned();
    // Whoever took it holds it.
    let inbox = server.as_agent("coder", &["inbox"]).ok();
    let turn = server.operator(&["agent", "show", "coder", "--json"]).json()["turns"][0].as_str().unwrap().to_owned();
    assert!(inbox.contains("inbox empty") && inbox.contains(&format!("{turn} is open")), "{inbox}");
    server.as_agent("coder", &["finish", &turn, "Built."]).ok();
    let tree = server.operator(&["tree", "SHIP-1", "--json"]).json();
    let asked = &tree["tree"][0]["children"][0];
    let tokens = asked["tokens"].as_u64().unwrap();
    assert!(tokens > 0 && asked["turns"] == 1, "{tree}");
    assert_eq!(asked["refusals"][0]["problem"]["record"], record);
    assert!(asked["duration_ms"].is_u64());
    let words = server.operator(&["tree", "SHIP-1"]).ok();
    assert!(words.contains(&format!("✗ {record} coder → lead REQUEST passive_reply")), "{words}");
    assert!(words.contains(&format!("1 turn  {tokens} tokens")) && words.contains("depth 0 hop 1"), "{words}");
    assert!(!words.contains('\u{1b}'), "no colours in a pipe: {words:?}");
}

/// `lastword tail`, with its lines read as JSON.
struct Tail {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Tail {
    fn start(dir: &Path, args: &[&str]) -> Self {
        let mut command = lastword(dir);
        command.args(["--token-file", ".lastword/operator.token", "--json", "tail"]).args(args);
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    fn body(&mut self) -> String {
        let event: Value = serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap();
        event["message"]["body"].as_str().unwrap_or_default().to_owned()
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        // It may already have ended.
        let _gone = self.child.kill().and_then(|()| self.child.wait());
    }
}

#[test]
fn tail_goes_on_after_a_restart_of_the_server_without_loss_or_doubles() {
    let server = Server::start();
    server.agent("hive");
    server.operator(&["send", "hive", "zero"]).ok();
    server.operator(&["send", "hive", "one"]).ok();
    let mut tail = Tail::start(server.path(), &["-f", "-n", "1", "--type", "request", "--to", "hive"]);
    assert_eq!(tail.body(), "one", "the last one");
    server.operator(&["send", "hive", "two"]).ok();
    assert_eq!(tail.body(), "two");
    let (_, dir) = server.terminate();
    // Events from before the watcher is back aren't lost, even though the server listens on another port.
    let server = Server::start_in(dir);
    server.operator(&["send", "hive", "three"]).ok();
    server.operator(&["send", "hive", "four"]).ok();
    assert_eq!((tail.body(), tail.body()), ("three".to_owned(), "four".to_owned()));
}

#[test]
fn tail_shows_the_last_lines_that_pass_the_filters_and_ends() {
    let server = Server::start();
    let record = refused_in(&server)["record"].as_str().unwrap().to_owned();
    let bodies = |args: &[&str]| {
        let told = server.operator(&[&["--json", "tail"], args].concat()).ok();
        let events = told.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        events.map(|event| event["message"]["body"].as_str().unwrap_or("-").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(bodies(&["-n", "9", "--messages"]), ["Ship it", "Build it"]);
    assert_eq!(bodies(&["-n", "1", "--messages"]), ["Build it"]);
    assert_eq!(bodies(&["-n", "9", "--from", "lead", "--messages"]), ["Build it"]);
    assert_eq!(bodies(&["-n", "9", "--ref", "SHIP-1", "--depth", "0"]), ["Ship it", "Build it"]);
    assert_eq!(bodies(&["-n", "9", "--type", "response"]), [] as [String; 0]);
    let words = server.operator(&["tail", "-n", "9", "--type", "request", "--from", "coder"]).ok();
    assert!(
        words.contains(&format!("✗ {record} coder → lead REQUEST")) && words.contains("passive_reply (D5)"),
        "{words}"
    );
    assert_eq!(server.operator(&["tail", "-n", "1", "--type", "letter"]).code, 2);
}

#[test]
fn limits_diff_says_what_differs_where_it_was_set_and_what_a_restart_changes() {
    let dir = tempfile::tempdir().unwrap();
    let write = |text: &str| fs::write(dir.path().join("lastword.toml"), text).unwrap();
    write("[limits]\nhops_max = 2\n");
    let offline = run(dir.path(), &["limits", "diff"]).ok();
    assert!(offline.contains("lastword.toml:2") && !offline.contains("restart"), "{offline}");
    let server = Server::start_in(dir);
    let same = server.operator(&["limits", "diff"]).ok();
    assert!(same.contains("a restart changes nothing"), "{same}");
    let other = server.path().join("other.toml");
    fs::write(&other, "observe = [\"pair_rate\"]\n\n[limits]\ngrant_messages_max = 20\n").unwrap();
    let diff = server.operator(&["limits", "diff", "--config", "other.toml", "--json"]).json();
    assert_eq!(diff["restart_changes"], true);
    let item = |name: &str| {
        let items = diff["items"].as_array().unwrap();
        items.iter().find(|item| item["name"] == name).unwrap_or_else(|| panic!("{name}: {diff}")).clone()
    };
    let messages = item("grant_messages_max");
    assert_eq!(
        (messages["default"].as_str(), messages["server"].as_str(), messages["config"].as_str()),
        (Some("64"), Some("64"), Some("20"))
    );
    assert_eq!(messages["set_at"], "other.toml:4");
    assert_eq!(item("hops_max")["config"], "3", "the other file says nothing of it");
    assert_eq!(item("guard pair_rate")["set_at"], "other.toml:1");
    assert_eq!(diff["bound_messages"]["config"], "20");
}

#[test]
fn top_needs_a_terminal_and_says_what_does_without() {
    let server = Server::start();
    let refused = server.operator(&["top"]);
    assert!(refused.code == 2 && refused.stderr.contains("needs a terminal"), "{refused:?}");
    assert!(refused.stderr.contains("lastword tail"), "{refused:?}");
    assert!(!refused.stdout.contains('\u{1b}'), "{refused:?}");
    assert_eq!(server.operator(&["top", "--json"]).code, 2);
}

#[test]
fn the_demo_that_is_kept_has_something_of_everything_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = lastword(dir.path());
    let mut child = command.args(["demo", "--keep", "--json"]).env("TMPDIR", dir.path()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let rows: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    let kept: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    let (data, token) = (kept["data"].as_str().unwrap(), kept["operator_token_file"].as_str().unwrap());
    let ask = |args: &[&str]| {
        let mut command = lastword(dir.path());
        finish(command.args(["--data", data, "--token-file", token, "--json"]).args(args), "").json()
    };
    for row in rows.as_array().unwrap() {
        let reference = format!("{}-1", row["incident"].as_str().unwrap());
        assert_eq!(ask(&["tree", &reference])["ref"], reference);
    }
    assert_eq!(ask(&["escalations"])["items"][0]["state"], "open");
    assert_eq!(ask(&["approvals"])["items"][0]["state"], "pending");
    let scopes = ask(&["incidents"]);
    assert!(scopes["items"].as_array().unwrap().iter().any(|item| item["scope"] == "grant"), "{scopes}");

    // The pending matters are decided, and the work continues to its end.
    let held = ask(&["approvals"])["items"][0].clone();
    let (id, digest) = (held["id"].as_str().unwrap(), held["digest"].as_str().unwrap());
    ask(&["approve", id, "--digest", digest, "--yes"]);
    wait_for("the use of the approval", || ask(&["explain", id])["approval"]["state"] == "used");

    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(!runs(&pid));
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}
