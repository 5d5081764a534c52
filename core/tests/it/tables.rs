//! Tables printed as golden files, so that a change to one shows in a diff.

use std::fmt::Write as _;
use std::path::Path;

use lastword_facts::fsm::{RequestEvent, RequestState, next};

use crate::transcripts::first_difference;

/// Compares `actual` with a file under `testdata`; `UPDATE=1` rewrites the file.
pub(crate) fn check(file: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(file);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, actual).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    let difference = first_difference(&expected, actual);
    assert!(actual == expected, "{file}: UPDATE=1 rewrites it, if that is what should be\n{difference}");
}

#[test]
fn the_request_fsm_is_the_table_that_was_agreed() {
    let mut table = String::from("state | event | next\n--- | --- | ---\n");
    for state in RequestState::ALL {
        for event in RequestEvent::ALL {
            let next = next(*state, *event).map_or("-", RequestState::word);
            writeln!(table, "{state} | {event} | {next}").unwrap();
        }
    }
    check("fsm.txt", &table);
}

#[test]
fn the_turn_tracker_is_the_table_that_was_agreed() {
    let script =
        "human uma\nagent a\nagent b\numa: room r a b\n".to_owned() + &"a: post r hi\nb: post r hi\n".repeat(51);
    let (played, _) = crate::script::play(&script, crate::script::Broker::Whole);
    let mut table = String::from("agent post | what happens\n--- | ---\n");
    let mut posts = 0;
    let mut lines = played.lines().peekable();
    while let Some(line) = lines.next() {
        if line.contains(": post") {
            posts += 1;
            let mut effects = Vec::new();
            while let Some(effect) = lines.next_if(|l| l.starts_with("  ")) {
                effects.push(effect.trim().split_once("msg-").map_or(effect.trim(), |_| "posted"));
            }
            writeln!(table, "{posts} | {}", effects.join(" · ")).unwrap();
        }
    }
    check("tracker.txt", &table);
}
