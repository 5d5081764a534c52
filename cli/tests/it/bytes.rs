//! Text that isn't well-formed, and text that is too long, at the program's own edges: standard input, arguments, MCP over
//! standard input and output, and what agents print.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::program::{Server, lastword};
use crate::running::{Running, ask, send};

/// "café" in Latin-1.
const LATIN: &[u8] = b"caf\xe9";

/// Runs the program as an agent with this standard input; returns its exit code, output and errors.
fn fed(server: &Server, who: &str, args: &[&OsStr], input: &[u8]) -> (i32, Value, String) {
    let mut command = lastword(server.path());
    command.args(["--json", "--token-file", &format!("{who}.token")]).args(args).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A program that is refused ends without reading its input.
    let _unread = child.stdin.take().unwrap().write_all(input);
    let output = child.wait_with_output().unwrap();
    let said = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.code().unwrap_or(-1), said, String::from_utf8(output.stderr).unwrap())
}

fn words<'a>(args: &[&'a str]) -> Vec<&'a OsStr> {
    args.iter().map(|arg| OsStr::new(*arg)).collect()
}

/// Gives the agent a turn; returns its id.
fn turn(server: &Server, who: &str, reference: &str) -> String {
    send(server, who, reference, "go");
    let taken = server.as_agent(who, &["--json", "inbox", "--wait", "30s"]).json();
    taken["turn"]["id"].as_str().unwrap().to_owned()
}

#[test]
fn an_answer_in_another_encoding_is_taken_from_input_and_arguments_with_a_warning() {
    let server = Server::start();
    server.agent("kilo");
    let latin = OsStr::from_bytes(LATIN);
    for (n, by_argument) in [false, true].into_iter().enumerate() {
        let turn = turn(&server, "kilo", &format!("T-{n}"));
        let answer = if by_argument { latin } else { OsStr::new("-") };
        let args = [&words(&["finish", &turn])[..], &[answer, OsStr::new("--reason"), latin]].concat();
        let (code, finished, errors) = fed(&server, "kilo", &args, LATIN);
        assert_eq!(code, 0, "{errors}");
        assert!(finished["warning"].as_str().unwrap().contains("U+FFFD"), "{finished}");
        let answer = server.operator(&["--json", "inbox", "--wait", "30s"]).json();
        assert_eq!(answer["message"]["body"], "caf\u{fffd}", "{answer}");
    }
    let turn = turn(&server, "kilo", "T-9");
    let finished = server.as_agent("kilo", &["finish", &turn, "café \u{fffd}"]).ok();
    assert!(finished.contains("warning: the answer has U+FFFD"), "{finished}");
}

#[test]
fn a_request_in_another_encoding_is_refused_and_the_place_is_named() {
    let server = Server::start();
    server.agent("kilo");
    server.agent("hive");
    let latin = OsStr::from_bytes(LATIN);
    let message = [b"[FROM:kilo][TO:hive][TYPE:REQUEST][REF:T-1][DEPTH:0] ", LATIN].concat();
    for (args, input, named) in [
        (words(&["send", "hive", "-", "--ref", "T-1"]), LATIN, "standard input: no UTF-8 at byte 3 (0xe9)"),
        (words(&["send", "--text"]), &message, "standard input: no UTF-8 at byte 56 (0xe9)"),
        (
            [&words(&["send", "hive", "--ref", "T-1"])[..], &[latin]].concat(),
            b"",
            "the text: no UTF-8 at byte 3 (0xe9)",
        ),
        ([&words(&["send", "hive", "x", "--ref"])[..], &[latin]].concat(), b"", "no UTF-8 at byte 3 (0xe9)"),
    ] {
        let (code, _, errors) = fed(&server, "kilo", &args, input);
        assert_eq!(code, 2, "{errors}");
        assert!(errors.contains(named), "{errors}");
    }
    assert_eq!(server.operator(&["--json", "audit"]).json()["items"], json!([]));
}

#[test]
fn what_a_model_says_over_standard_input_is_answered_whatever_its_bytes_and_length() {
    let server = Server::start();
    server.agent("kilo");
    server.agent("hive");
    turn(&server, "kilo", "T-1");
    let mut command = lastword(server.path());
    command.args(["--token-file", "kilo.token", "mcp"]).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut said = |line: &[u8], id: Option<u64>| -> Value {
        stdin.write_all(&[line, b"\n"].concat()).unwrap();
        // A notification has no answer.
        let Some(id) = id else { return Value::Null };
        loop {
            let message: Value = serde_json::from_str(&lines.next().expect("it answers").unwrap()).unwrap();
            if message["id"] == id {
                return message["result"].clone();
            }
        }
    };
    let call = |id: u64, method: &str, params: Value| {
        json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
    };
    let hello =
        json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    said(call(1, "initialize", hello).as_bytes(), Some(1));
    said(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, None);
    let tool =
        |id: u64, name: &str, arguments: Value| call(id, "tools/call", json!({ "name": name, "arguments": arguments }));
    let with = |text: String, bytes: &[u8]| {
        let (before, after) = text.split_once("BYTES").unwrap();
        [before.as_bytes(), bytes, after.as_bytes()].concat()
    };
    let message = json!({ "target_agent_id": "hive", "message": "BYTES" });
    for (n, (bytes, named)) in [(LATIN, "0xe9"), (br"x\ud83d".as_slice(), "\\ud83d")].into_iter().enumerate() {
        let id = 10 + n as u64;
        let refused = said(&with(tool(id, "send_agent_message", message.clone()), bytes), Some(id));
        let refused = &refused["structuredContent"];
        assert_eq!(refused["code"], "malformed", "{refused}");
        assert!(refused["detail"].as_str().unwrap().contains(named), "{refused}");
    }
    let read = said(&with(call(20, "resources/read", json!({ "uri": "lastword://BYTES" })), LATIN), Some(20));
    assert_eq!(read, Value::Null, "an error, but an answer");
    for (id, length) in [(21, 300_000), (22, 900_000), (23, 20_000_000)] {
        let long = json!({ "target_agent_id": "hive", "message": "x".repeat(length) });
        let refused = said(tool(id, "send_agent_message", long).as_bytes(), Some(id))["structuredContent"].clone();
        assert_eq!(refused["code"], "too_large", "{refused}");
        let limit = if length < 600_000 { "262144" } else { "655360" };
        assert!(refused["detail"].as_str().unwrap().contains(limit), "{refused}");
    }
    let finished = said(&with(tool(30, "finish_turn", json!({ "answer": "BYTES" })), LATIN), Some(30));
    assert!(finished["structuredContent"]["warning"].as_str().unwrap().contains("U+FFFD"), "{finished}");
    drop(stdin);
    assert!(child.wait().unwrap().success());
    let answer = server.operator(&["--json", "inbox", "--wait", "30s"]).json();
    assert_eq!(answer["message"]["body"], "caf\u{fffd}", "{answer}");
}

#[test]
fn a_character_that_an_acp_agent_cuts_in_two_is_joined_and_a_half_is_replaced() {
    let server = Server::start();
    let mut agent = Running::acp(&server, "fake", &[], &[]);
    let whole = ask(&server, "fake", "chunk It is fine \\ud83d\nchunk \\ude00 indeed\nsay .");
    assert_eq!(whole["body"], "It is fine 😀 indeed.");
    let half = ask(&server, "fake", "chunk half \\ud83d\nsay , then\nchunk \\ude00\nchunk  end \\ud83d");
    assert_eq!(half["body"], "half \u{fffd}, then\u{fffd} end \u{fffd}");
    // The first one is about its modes.
    while !agent.until("warning")["message"].as_str().unwrap().contains("U+FFFD") {}
    assert_eq!(ask(&server, "fake", "latin caf")["body"], "caf\u{fffd}");
    let denied = ask(&server, "fake", "halved rm\nsay done");
    assert_eq!(denied["body"], "reject_oncedone");
    let told = agent.until("approval_answered");
    assert!(told["reason"].as_str().unwrap().contains("half a character"), "{told}");
    assert_eq!(
        server.operator(&["--json", "approvals"]).json()["items"],
        json!([]),
        "what is shown would not be the call"
    );
}

#[test]
fn what_a_program_prints_is_its_answer_whatever_its_bytes() {
    let server = Server::start();
    let mut agent = Running::start(&server, "old", &["--", "printf", "caf\\351"]);
    assert_eq!(ask(&server, "old", "go")["body"], "caf\u{fffd}");
    assert!(agent.until("warning")["message"].as_str().unwrap().contains("U+FFFD"));
    let gemini = server.path().join("gemini");
    let part = |text: &str| format!(r#"{{"type":"message","role":"assistant","content":"{text}","delta":true}}"#);
    let script = format!("#!/bin/sh\ncat <<'E'\n{}\n{}\nE\n", part("fine \\ud83d"), part("\\ude00 \\ud83d"));
    std::fs::write(&gemini, script).unwrap();
    std::fs::set_permissions(&gemini, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let _agent = Running::start(&server, "gem", &["--", gemini.to_str().unwrap(), "-p", "x"]);
    assert_eq!(ask(&server, "gem", "go")["body"], "fine 😀 \u{fffd}");
}

#[test]
fn what_an_acp_agent_shows_beside_its_text_is_named_in_its_answer() {
    let server = Server::start();
    let _agent = Running::acp(&server, "fake", &[], &[]);
    let link = r#"{"type":"resource_link","uri":"file:///x","name":"report.md"}"#;
    let image = format!(r#"{{"type":"image","mimeType":"image/png","data":"{}"}}"#, "A".repeat(16_000));
    let said = ask(&server, "fake", &format!("say See:\nblock {image}\nblock {link}\nsay Done."));
    assert_eq!(said["body"], "See:\n\n[image: image/png, 12 kB]\n\n[resource: file:///x report.md]\n\nDone.");
    assert_eq!(ask(&server, "fake", &format!("block {link}"))["body"], "[resource: file:///x report.md]");
}

#[test]
fn a_sub_sessions_call_waits_for_a_human_like_the_turns_own() {
    let server = Server::start();
    let mut agent = Running::acp(&server, "fake", &[], &[]);
    for (n, verdict) in ["approve", "reject"].into_iter().enumerate() {
        send(&server, "fake", &format!("T-{n}"), "sub rm -r build\nsay done");
        let id = agent.until("approval_asked")["approval"].as_str().unwrap().to_owned();
        let held = server.operator(&["--json", "approvals"]).json()["items"][0].clone();
        assert_eq!(held["arguments"]["input"]["command"], "rm -r build", "{held}");
        let digest = ["--digest", held["digest"].as_str().unwrap()];
        let shown = if verdict == "approve" { &digest[..] } else { &[] };
        server.operator(&[&[verdict, &id, "--yes"][..], shown].concat()).ok();
        let answer = server.operator(&["--json", "inbox", "--wait", "30s"]).json();
        let said = answer["message"]["body"].as_str().unwrap();
        assert!(said.contains(["allow_oncedone", "reject_once"][n]), "{said}");
    }
}
