//! The runner charges what the programs themselves report. Each fake program prints a recorded stream of the real one.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::program::Server;
use crate::running::{Running, ask, send};

fn recorded(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

/// Writes a program called `name` that runs `script`, in which `$F` is its recorded stream. It keeps its arguments in
/// `args`.
fn fake(server: &Server, name: &str, script: &str) -> String {
    let stream = recorded(&format!("{name}.jsonl"));
    let file = server.path().join(name);
    let text = format!("#!/bin/sh\nprintf '%s\\n' \"$@\" > args\nF='{}'\n{script}\n", stream.display());
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    file.to_str().unwrap().to_owned()
}

/// Returns the program's arguments, without those that turn off its channels past the broker.
fn args(server: &Server) -> String {
    let text = fs::read_to_string(server.path().join("args")).unwrap().replace("-c\nfeatures.", "features.");
    let channels =
        |word: &&str| ["--disallowedTools=", "--settings=", "features."].iter().any(|begin| word.starts_with(begin));
    text.lines().filter(|word| !channels(word)).collect::<Vec<_>>().join(" ")
}

fn tokens_today(server: &Server) -> u64 {
    server.operator(&["--json", "agent", "show", "kilo"]).json()["tokens_today"].as_u64().unwrap()
}

fn node(server: &Server, reference: &str) -> Value {
    server.operator(&["--json", "tree", reference]).json()["tree"][0].clone()
}

/// Returns the models that the last report named, with their tokens.
fn models(server: &Server) -> Vec<(String, u64)> {
    let events = server.operator(&["--json", "tail", "-n", "500"]).ok();
    let mut events = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let named = events.rfind(|event| event["type"] == "spent_on");
    let parts = named.iter().flat_map(|event| event["data"]["models"].as_array().unwrap());
    parts.map(|part| (part["model"].as_str().unwrap().to_owned(), part["tokens"].as_u64().unwrap())).collect()
}

#[test]
fn a_known_program_is_asked_for_its_figures_and_its_answer_is_the_text() {
    for (name, flags, asked, answer, tokens, model) in [
        (
            "claude",
            "-p",
            "--output-format stream-json --verbose -p",
            "done: 42",
            // 70,202 were read from a cache, 11,696 written to one.
            35_110 + 7_021 + 14_620 + 1_348,
            Some("claude-opus-5-5"),
        ),
        ("codex", "exec", "exec --json", "all done: 42", 16_044 + 2_407 + 80, None),
        ("opencode", "run", "run --format json --title REF", "all done: 42", 12_422 + 1_863 + 74, None),
        ("gemini", "-y", "-o stream-json -y", "all done: 42", 9_441 + 1_416 + 53, Some("mock")),
    ] {
        let server = Server::start();
        let program = fake(&server, name, "cat \"$F\"");
        let _kilo = Running::start(&server, "kilo", &["--", &program, flags]);
        let said = ask(&server, "kilo", "go");
        assert_eq!((said["body"].as_str(), said["status"].as_str()), (Some(answer), Some("completed")), "{name}");
        let reference = said["ref"].as_str().unwrap();
        assert_eq!(args(&server), asked.replace("REF", reference));
        assert_eq!(tokens_today(&server), tokens, "{name}");
        let node = node(&server, reference);
        assert_eq!((node["tokens"].as_u64(), node["estimated"].as_bool()), (Some(tokens), None), "{name}: {node}");
        let named: Vec<_> = model.map(|model| (model.to_owned(), tokens)).into_iter().collect();
        assert_eq!(models(&server), named, "{name}");
    }
}

#[test]
fn what_no_program_reports_is_estimated_and_said_to_be() {
    for (flags, usage) in [(["-p", "--output-format", "text"], "program"), (["-p", "-p", "-p"], "text")] {
        let server = Server::start();
        let program = fake(&server, "claude", "echo done");
        let command = ["--usage", usage, "--", &program, flags[0], flags[1], flags[2]];
        let _kilo = Running::start(&server, "kilo", &command);
        let said = ask(&server, "kilo", "go");
        assert_eq!((said["body"].as_str(), args(&server)), (Some("done"), flags.join(" ")));
        let node = node(&server, said["ref"].as_str().unwrap());
        assert_eq!((node["tokens"].as_u64(), node["estimated"].as_bool()), (Some(2), Some(true)), "{node}");
        let tree = server.operator(&["tree", said["ref"].as_str().unwrap()]).ok();
        assert!(tree.contains("2 tokens (estimated)"), "{tree}");
    }
}

#[test]
fn a_format_that_the_user_chose_is_the_answer_and_its_figures_count() {
    let server = Server::start();
    let program = fake(&server, "codex", "cat \"$F\"");
    let _kilo = Running::start(&server, "kilo", &["--", &program, "exec", "--json"]);
    let said = ask(&server, "kilo", "go");
    assert_eq!(said["body"].as_str().unwrap(), fs::read_to_string(recorded("codex.jsonl")).unwrap().trim_end());
    assert_eq!((args(&server).as_str(), tokens_today(&server)), ("exec --json", 18_531));
}

#[test]
fn a_program_that_fails_gives_its_own_reason_and_what_it_spent() {
    let server = Server::start();
    let program = fake(
        &server,
        "codex",
        r#"head -2 "$F"; echo '{"type":"turn.failed","error":{"message":"no such model"}}'; tail -1 "$F"; exit 1"#,
    );
    let _kilo = Running::start(&server, "kilo", &["--", &program, "exec"]);
    let said = ask(&server, "kilo", "go");
    assert_eq!(
        (said["status"].as_str(), said["reason"].as_str()),
        (Some("failed"), Some("exit code 1: no such model"))
    );
    assert_eq!(tokens_today(&server), 18_531);
}

#[test]
fn the_price_table_gives_the_money_that_a_program_does_not() {
    let dir = TempDir::new().unwrap();
    let prices =
        "[limits]\ngrant_cost_microusd_max = 1000000\n[prices.mine]\ninput = 10.0\noutput = 50.0\ncache_read = 1.0\n";
    fs::write(dir.path().join("lastword.toml"), prices).unwrap();
    let server = Server::start_in(dir);
    let program = fake(&server, "codex", "cat \"$F\"");
    let _kilo = Running::start(&server, "kilo", &["--", &program, "exec", "-m", "mine"]);
    let said = ask(&server, "kilo", "go");
    let view = server.operator(&["--json", "tree", said["ref"].as_str().unwrap()]).json();
    let limits = view["grants"][0]["limits"].clone();
    let money = limits.as_array().unwrap().iter().find(|one| one["name"] == "grant_cost_microusd_max");
    // 16,044 tokens at 10 dollars a million, 24,061 at 1, 80 at 50.
    assert_eq!(money.unwrap()["current"], 160_440 + 24_061 + 4_000, "{limits}");
    assert_eq!(models(&server), [("mine".to_owned(), 18_531)], "as the arguments name it");
}

#[test]
fn a_budget_holds_a_turn_in_the_middle_and_a_grant_goes_on_with_it() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("lastword.toml"), "[limits]\ngrant_tokens_max = 13000\nprogress_interval_ms = 1\n")
        .unwrap();
    let server = Server::start_in(dir);
    // The first request's 9,448 are within the budget; with the second's they are a quarter more. Then it says no more.
    let script = "cat > prompt.$(ls prompt.* 2>/dev/null | wc -l)\n\
                  [ -e prompt.1 ] && { tail -1 \"$F\"; exit; }\n\
                  echo '{\"type\":\"assistant\",\"message\":{\"id\":\"m\",\"content\":[{\"text\":\"three so far\"}]}}'\n\
                  head -3 \"$F\"; sleep 60; tail -1 \"$F\"";
    let program = fake(&server, "claude", script);
    let mut kilo = Running::start(&server, "kilo", &["--", &program, "-p"]);
    send(&server, "kilo", "BIG-1", "count the sheep");
    let finished = kilo.until("finished");
    assert_eq!(finished["status"], "held");
    assert!(finished["reason"].as_str().unwrap().starts_with("the budget is used up"), "{finished}");
    assert_eq!(node(&server, "BIG-1")["tokens"], 16_927, "charged once");
    let waits = server.operator(&["--json", "incidents"]).json();
    assert_eq!((&waits["items"][0]["code"], &waits["items"][0]["current"]), (&"budget".into(), &16_927.into()));
    server.operator(&["grant", "BIG-1", "--tokens", "100000", "--yes"]).ok();
    assert_eq!(kilo.until("finished")["status"], "completed");
    let prompt = fs::read_to_string(server.path().join("prompt.1")).unwrap();
    assert!(prompt.contains("count the sheep") && prompt.contains("the budget was used up"), "{prompt}");
    assert!(prompt.contains("three so far"), "{prompt}");
    assert_eq!(server.operator(&["--json", "incidents"]).json()["items"], json!([]));
}
