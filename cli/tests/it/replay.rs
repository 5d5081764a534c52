//! `lastword replay`: what a recording is read as, and what the report says of it.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::program::run;

const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/replay.jsonl");

fn replay(dir: &Path, args: &[&str]) -> Value {
    run(dir, &[&["--json", "replay", RECORDED][..], args].concat()).json()["reports"].clone()
}

/// The codes at which conversations are cut, by rules and conversation.
fn cuts(reports: &Value) -> Vec<(&str, &str, &str, u64, u64)> {
    let mut found = Vec::new();
    for report in reports.as_array().unwrap() {
        for cut in report["cuts"].as_array().into_iter().flatten() {
            let text = |name: &str| cut[name].as_str().unwrap();
            let number = |name: &str| cut[name].as_u64().unwrap();
            let rules = report["rules"].as_str().unwrap();
            found.push((rules, text("conversation"), text("code"), number("at_message"), number("lifts")));
        }
    }
    found
}

#[test]
fn a_loop_is_cut_and_a_review_of_many_rounds_goes_on_in_the_profile_long() {
    let dir = tempfile::tempdir().unwrap();
    let compared = "strict,long,structure,identical,alternating,messages-20";
    let reports = replay(dir.path(), &["--compare", compared, "--list"]);
    assert_eq!(
        cuts(&reports),
        [
            ("strict", "thanks", "depth_cap", 6, 5),
            ("strict", "review", "depth_cap", 6, 5),
            ("strict", "no-texts", "depth_cap", 6, 1),
            ("long", "thanks", "no_progress", 8, 3),
            ("identical", "thanks", "identical", 7, 0),
            ("alternating", "thanks", "alternating", 8, 0),
            ("messages-20", "thanks", "messages-20", 20, 0),
            ("messages-20", "review", "messages-20", 20, 0),
        ]
    );
    let of = |rules: usize, class: &str, member: &str| reports[rules]["classes"][class][member].clone();
    assert_eq!((of(0, "loop", "cut_after_onset"), of(0, "loop", "cut_before_onset")), (json!(1), json!(0)));
    assert_eq!((of(0, "loop", "held"), of(2, "loop", "held")), (json!(1), json!(1)), "what R5 would hold is counted");
    assert_eq!(of(1, "useful", "lifts"), 0);
    assert_eq!((of(1, "useful", "conversations"), of(1, "unknown", "held")), (json!(4), json!(0)));
    // Two in a row to the same recipient are one.
    assert_eq!(of(0, "loop", "messages"), 26);
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
    let reports = run(dir.path(), &["--json", "replay", "picks.jsonl", "--compare", "long", "--list"]).json();
    assert_eq!(cuts(&reports["reports"]), [], "{reports}");
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
        run(dir.path(), &["--json", "replay", "team.jsonl", "--compare", "long", "--list"]).json()["reports"].clone()
    };
    assert_eq!(cuts(&replayed(Some("notice"))), []);
    assert_ne!(cuts(&replayed(None)), [], "else the mark is for nothing");
}

#[test]
fn a_configuration_file_is_compared_and_a_wrong_name_is_refused_with_the_right_ones() {
    let dir = tempfile::tempdir().unwrap();
    let own = dir.path().join("own.toml");
    fs::write(&own, "[limits]\ndepth_max = 3\n").unwrap();
    fs::write(dir.path().join("lastword.toml"), "[limits]\ndepth_max = 9\n").unwrap();
    let own = own.to_str().unwrap();
    let reports = replay(dir.path(), &["--compare", &format!("config,{own}"), "--list"]);
    let depths = cuts(&reports);
    assert!(depths.contains(&("config", "review", "depth_cap", 10, 5)), "{depths:?}");
    assert!(depths.contains(&(own, "review", "depth_cap", 4, 5)), "{depths:?}");
    let wrong = run(dir.path(), &["replay", RECORDED, "--compare", "long,lnog"]);
    assert!(wrong.code == 2 && wrong.stderr.contains("\"lnog\"") && wrong.stderr.contains("structure"), "{wrong:?}");
}

#[test]
fn the_page_shows_each_conversation_and_no_markup_of_a_recording() {
    let dir = tempfile::tempdir().unwrap();
    let evil = r#"{"conversation_id":"<b>x</b>","messages":[{"from":"a","to":"b","text":"\"><script>alert(1)</script>\u202e"}]}"#;
    fs::write(dir.path().join("evil.jsonl"), evil).unwrap();
    let page = dir.path().join("page.html");
    let args = ["replay", RECORDED, "evil.jsonl", "--compare", "long,strict", "--html", page.to_str().unwrap()];
    run(dir.path(), &args).ok();
    let page = fs::read_to_string(page).unwrap();
    for shown in
        ["review", "thanks", "no-texts", "long: no_progress at 8, a human says yes 3 times", "strict: depth_cap at 6"]
    {
        assert!(page.contains(shown), "{shown}");
    }
    assert!(page.contains("&lt;b&gt;x") && !page.contains("<script") && !page.contains('\u{202e}'));
    assert_eq!(page.matches("title=\"onset\"").count(), 1);
}
