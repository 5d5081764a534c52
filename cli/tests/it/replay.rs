//! `lastword replay`: what a recording is read as, and what the report says of it.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::program::run;

const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sim/tests/data/recorded.jsonl");

/// Writes a configuration of the profile `long`.
fn long(dir: &Path) -> String {
    let path = dir.join("long.toml");
    fs::write(&path, "profile = \"long\"\n").unwrap();
    path.to_str().unwrap().to_owned()
}

/// Returns each conversation that is cut: the code, the message, and how often a human lets it go on.
fn cuts(report: &Value) -> Vec<(&str, &str, u64, u64)> {
    let mut found = Vec::new();
    for cut in report["cuts"].as_array().into_iter().flatten() {
        let [conversation, code] = ["conversation", "code"].map(|name| cut[name].as_str().unwrap());
        let [at, lifts] = ["at_message", "lifts"].map(|name| cut[name].as_u64().unwrap());
        found.push((conversation, code, at, lifts));
    }
    found
}

#[test]
fn a_recording_is_replayed_under_the_configuration_that_the_command_has() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("lastword.toml"), "[limits]\ndepth_max = 9\n").unwrap();
    let report = run(dir.path(), &["--json", "replay", RECORDED, "--list"]).json();
    assert!(cuts(&report).contains(&("review", "depth_cap", 10, 5)), "{report}");
    let long = run(dir.path(), &["--json", "replay", RECORDED, "--list", "--config", &long(dir.path())]).json();
    assert_eq!(cuts(&long), [("thanks", "no_progress", 8, 3)]);
    let shown = run(dir.path(), &["replay", RECORDED, "--list"]).ok();
    assert!(shown.contains("review (useful): depth_cap at 10 of"), "{shown}");
    let unlisted = run(dir.path(), &["--json", "replay", RECORDED]).json();
    assert_eq!((&unlisted["classes"], cuts(&unlisted)), (&report["classes"], Vec::new()));
}

/// Outside every turn an agent goes on in the conversation that it began with a colleague: nothing is refused, so
/// nothing closes for too many refusals (F5).
#[test]
fn an_agent_that_asks_a_colleague_again_and_again_outside_every_turn_is_not_cut() {
    let dir = tempfile::tempdir().unwrap();
    let mut messages = vec![json!({ "from": "lead", "to": "writer", "text": "An article on clouds, please." })];
    for topic in ["cirrus", "stratus", "nimbus", "cumulus", "fog", "mist", "haze", "contrails"] {
        messages.push(json!({ "from": "checker", "to": "picker", "text": format!("Who writes about {topic}?") }));
        messages.push(json!({ "from": "picker", "to": "checker", "text": format!("The {topic} expert does.") }));
    }
    let recorded = json!({ "conversation_id": "picks", "messages": messages }).to_string();
    fs::write(dir.path().join("picks.jsonl"), recorded).unwrap();
    let report = run(dir.path(), &["--json", "replay", "picks.jsonl", "--list", "--config", &long(dir.path())]).json();
    assert_eq!(cuts(&report), [], "{report}");
}

/// Notices of idle teammates look like requests of theirs, unless they are marked.
#[test]
fn a_team_with_idle_notices_that_are_marked_is_not_cut() {
    let dir = tempfile::tempdir().unwrap();
    let replayed = |kind: Option<&str>| {
        let say = |from: &str, to: &str, text: String| json!({ "from": from, "to": to, "text": text });
        let mut messages = vec![json!({ "from": "user", "to": "lead", "text": "Ship it." })];
        for part in [
            "lexer", "parser", "types", "checker", "lowering", "linker", "cache", "driver", "docs", "tests", "ci",
            "site",
        ] {
            messages.push(say("lead", "coder", format!("Write the {part}.")));
            let mut notice = say("coder", "lead", r#"{"type":"idle_notification","from":"coder"}"#.to_owned());
            if let Some(kind) = kind {
                notice["kind"] = json!(kind);
            }
            // A teammate may go idle before it reports, and again after.
            messages.push(notice.clone());
            messages.push(say("coder", "lead", format!("The {part} is written.")));
            messages.push(say("lead", "reviewer", format!("Review the {part}.")));
            messages.push(notice);
            messages.push(say("reviewer", "lead", format!("The {part} is good.")));
        }
        let recorded = json!({ "conversation_id": "team", "class": "useful", "messages": messages }).to_string();
        fs::write(dir.path().join("team.jsonl"), recorded).unwrap();
        run(dir.path(), &["--json", "replay", "team.jsonl", "--list", "--config", &long(dir.path())]).json()
    };
    assert_eq!(cuts(&replayed(Some("notice"))), []);
    assert_ne!(cuts(&replayed(None)), [], "else the mark is for nothing");
}
