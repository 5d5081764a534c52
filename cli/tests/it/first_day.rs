//! What goes wrong on the first day: scripts, files of other systems, text that looks like a flag.

use std::fs;
use std::process::Stdio;

use serde_json::Value;

use crate::program::{Ended, Server, finish, lastword};
use crate::running::Running;

/// Ends as the text says that it gets.
const BY_TEXT: &str = r#"text=$(cat); case "$text" in reject) exit 75;; fail) exit 1;; *) echo "$text";; esac"#;

fn agent(server: &Server, name: &str) -> Vec<u8> {
    server.operator(&["agent", "add", name]).ok().into_bytes()
}

/// Runs the program with the token in this file.
fn with(server: &Server, file: &str, args: &[&str]) -> Ended {
    finish(lastword(server.path()).args(["--token-file", file]).args(args), "")
}

#[test]
fn the_exit_code_says_whether_the_work_is_done() {
    let server = Server::start();
    let _worker = Running::start(&server, "worker", &["--", "sh", "-c", BY_TEXT]);
    fs::write(server.path().join("ci.token"), agent(&server, "ci")).unwrap();
    agent(&server, "absent");
    for (n, (body, code, status)) in
        [("do", 0, "completed"), ("fail", 4, "failed"), ("reject", 4, "rejected")].into_iter().enumerate()
    {
        let asked = server.operator(&["--json", "ask", "worker", body, "--wait", "30s"]);
        assert_eq!((asked.code, &asked.json()["response"]["status"]), (code, &Value::from(status)), "{asked:?}");
        let sent =
            with(&server, "ci.token", &["--json", "send", "worker", body, "--ref", &format!("A-{n}"), "--wait", "30s"]);
        assert_eq!((sent.code, &sent.json()["response"]["status"]), (code, &Value::from(status)), "{sent:?}");
        with(&server, "ci.token", &["send", "worker", body, "--ref", &format!("B-{n}")]).ok();
        let taken = with(&server, "ci.token", &["--json", "inbox", "--wait", "30s"]);
        assert_eq!((taken.code, &taken.json()["message"]["status"]), (code, &Value::from(status)), "{taken:?}");
    }
    let asked = server.operator(&["ask", "absent", "?", "--wait", "100ms"]);
    assert_eq!(asked.code, 5, "{asked:?}");
    assert!(asked.stderr.contains("absent is not connected") && asked.stderr.contains("Ctrl-C leaves"), "{asked:?}");
    let asked = server.operator(&["--json", "ask", "absent", "?", "--wait", "100ms"]);
    assert!(asked.code == 5 && asked.json()["request_id"].is_string() && !asked.stderr.contains("Ctrl-C"), "{asked:?}");
    let sent = with(&server, "ci.token", &["send", "absent", "?", "--ref", "C-1", "--wait", "100ms"]);
    assert_eq!(sent.code, 5, "{sent:?}");
    let taken = with(&server, "ci.token", &["inbox", "--wait", "10ms"]);
    assert_eq!((taken.code, with(&server, "ci.token", &["inbox"]).code), (5, 0), "{taken:?}");
}

#[test]
fn the_commands_of_the_jobs_work_job_after_job() {
    let server = Server::start();
    let _reviewer = Running::start(&server, "reviewer", &["--", "cat"]);
    let _builder = Running::start(&server, "builder", &["--", "sed", "s/^/built: /"]);
    fs::write(server.path().join("ci.token"), agent(&server, "ci")).unwrap();
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/ci.md")).unwrap();
    let blocks = text.split("```").skip(1).step_by(2);
    let commands: Vec<String> = blocks
        .flat_map(str::lines)
        .filter_map(|line| Some(line[line.find("lastword ")?..].replace("\\%", "%")))
        .collect();
    assert!(commands.len() > 4, "{commands:?}");
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_lastword")).parent().unwrap();
    for job in ["1", "2"] {
        for command in &commands {
            let mut shell = std::process::Command::new("sh");
            shell.current_dir(server.path()).env_clear().stdout(Stdio::piped()).stderr(Stdio::piped());
            shell.env("PATH", format!("{}:{}", program.display(), crate::program::PATH));
            shell.env("LASTWORD_TOKEN_FILE", "ci.token");
            for variable in ["GITHUB_SHA", "GITHUB_RUN_ID", "GITHUB_RUN_ATTEMPT", "CI_COMMIT_SHA", "CI_JOB_ID"] {
                shell.env(variable, job);
            }
            // The nightly job runs once a day.
            let command = command.replace("NIGHT-", &format!("NIGHT-{job}-"));
            let ended = finish(shell.args(["-c", &command]), "");
            assert_eq!(ended.code, 0, "{command}: {ended:?}");
            if command.contains("inbox") {
                assert!(ended.stdout.contains(&format!("built: Build {job}")), "{ended:?}");
            }
        }
    }
}

#[test]
fn text_that_begins_with_a_dash_is_text() {
    let server = Server::start();
    let _echo = Running::start(&server, "echo", &["--", "cat"]);
    fs::write(server.path().join("kilo.token"), agent(&server, "kilo")).unwrap();
    for text in ["- fix a", "--- a/f\n+++ b/f", "-hello", "--force push is wrong"] {
        let asked = server.operator(&["ask", "echo", text, "--json", "--wait", "30s"]);
        assert_eq!(asked.json()["response"]["body"], text, "{asked:?}");
        server.operator(&["send", "kilo", text]).ok();
        let taken = with(&server, "kilo.token", &["--json", "inbox", "--wait", "30s"]).json();
        assert_eq!(taken["message"]["body"], text);
        let turn = taken["turn"]["id"].as_str().unwrap();
        with(&server, "kilo.token", &["finish", turn, text, "--status", "partial", "--reason", text]).ok();
        let answer = server.operator(&["--json", "inbox", "--wait", "30s"]).json();
        assert_eq!((&answer["message"]["body"], &answer["message"]["reason"]), (&text.into(), &text.into()));
    }
    assert_eq!(server.operator(&["ask", "echo", "x", "--no-such-flag"]).code, 2, "where no text may stand");
}

#[test]
fn a_token_is_read_whatever_wrote_its_file() {
    let server = Server::start();
    let token = agent(&server, "kilo");
    let text = String::from_utf8(token.clone()).unwrap();
    let wide = |order: fn(u16) -> [u8; 2]| -> Vec<u8> {
        std::iter::once(0xfeff).chain(text.encode_utf16()).flat_map(order).collect()
    };
    let marked = [b"\xef\xbb\xbf".as_slice(), &token].concat();
    for (n, bytes) in [marked, wide(u16::to_le_bytes), wide(u16::to_be_bytes)].into_iter().enumerate() {
        let file = format!("kilo-{n}.token");
        fs::write(server.path().join(&file), bytes).unwrap();
        with(&server, &file, &["inbox"]).ok();
    }
    fs::write(server.path().join("bare.token"), wide(u16::to_le_bytes).split_off(2)).unwrap();
    let failed = with(&server, "bare.token", &["inbox"]);
    assert!(failed.code == 1 && failed.stderr.contains("save it as UTF-8"), "{failed:?}");
}

#[test]
fn init_changes_all_of_its_files_or_none() {
    let server = Server::start();
    fs::write(server.path().join("kilo.token"), agent(&server, "kilo")).unwrap();
    let file = |name: &str| server.path().join(name);
    fs::create_dir(file(".claude")).unwrap();
    for settings in [r#"{"hooks":{"Stop":"echo"}}"#, r#"{"hooks":[]}"#, r#"{"permissions":{"allow":1}}"#, "{"] {
        fs::write(file(".claude/settings.local.json"), settings).unwrap();
        let failed = with(&server, "kilo.token", &["init", "--codex", "--claude"]);
        assert_eq!(failed.code, 1, "{failed:?}");
        assert!(!file(".mcp.json").exists() && !file(".codex").exists(), "{settings}");
        assert_eq!(fs::read_to_string(file(".claude/settings.local.json")).unwrap(), settings);
    }
    fs::write(file(".claude/settings.local.json"), "\u{feff}{}").unwrap();
    with(&server, "kilo.token", &["init", "--codex", "--claude"]).ok();
    assert!(file(".mcp.json").exists() && file(".codex/config.toml").exists());
}

#[test]
fn a_refusal_that_a_human_can_lift_names_the_step_to_an_agent_too() {
    let data = tempfile::tempdir().unwrap();
    fs::write(data.path().join("lastword.toml"), "[limits]\nroots_per_hour_max = 1\n").unwrap();
    let server = Server::start_in(data);
    fs::write(server.path().join("kilo.token"), agent(&server, "kilo")).unwrap();
    agent(&server, "hive");
    with(&server, "kilo.token", &["send", "hive", "a", "--ref", "R-1"]).ok();
    let refused = with(&server, "kilo.token", &["send", "hive", "b", "--ref", "R-2"]);
    let json = with(&server, "kilo.token", &["--json", "send", "hive", "b", "--ref", "R-2"]);
    let problem: Value = serde_json::from_str(&json.stderr).unwrap();
    let step = problem["error"]["lift"]["cli"].as_str().unwrap();
    assert!(refused.stderr.contains(step), "{step}: {refused:?}");
}
