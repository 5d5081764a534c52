//! Every limit of the table is reached: the outcome of a transcript changes when the limit is one higher, and when it
//! is one lower.

use std::path::Path;

use lastword_facts::limits::LIMITS;

use crate::script::{Broker, play};
use crate::transcripts::{otherwise, transcripts};

/// Limits that the shell enforces: each with the file of the workspace, and the test there, that reaches it.
const OF_THE_SHELL: [(&str, &str, &str); 6] = [
    ("holder_ms", "broker/src/holders.rs", "a_turn_of_a_silent_client_is_free_at_just_the_limit"),
    ("notice_bytes_max", "server/src/views/fitting.rs", "a_notice_of_just_the_limit_is_whole"),
    ("notices_bytes_max", "server/src/views/fitting.rs", "notices_of_just_the_sum_are_all_there"),
    ("schedule_interval_ms", "server/src/cron.rs", "ticks_that_are_too_close_are_refused"),
    ("bound_warning_messages", "cli/src/commands/bound.rs", "the_warning_and_the_ceiling_begin_one_above_their_limits"),
    ("bound_ceiling_messages", "cli/src/commands/bound.rs", "the_warning_and_the_ceiling_begin_one_above_their_limits"),
];

/// Removes the limits, shares and waits that a transcript prints: a limit is reached when something else happens, not
/// when another number is shown.
fn without_numbers(played: &str) -> String {
    let mut lines = Vec::new();
    for line in played.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let shown = words.iter().enumerate().map(|(i, word)| {
            let after = |key: &str| i > 0 && words[i - 1].trim_start_matches('(') == key;
            let numbered = after("limit") || after("after") || words.get(i + 1) == Some(&"%");
            if line.starts_with("  ") && numbered { "N" } else { word }
        });
        lines.push(shown.collect::<Vec<_>>().join(" "));
    }
    lines.join("\n")
}

fn reaches(script: &str, limit: &str) -> bool {
    let expected = without_numbers(script);
    let differs = |by| otherwise(&expected, &without_numbers(&play(script, Broker::OneOff { limit, by }).0)).is_some();
    differs(1) && differs(-1)
}

#[test]
fn every_limit_is_reached_by_a_transcript_that_changes_when_it_is_one_off() {
    let all = transcripts();
    let of_the_shell = |name: &str| OF_THE_SHELL.iter().any(|(limit, ..)| *limit == name);
    let core = LIMITS.iter().map(|row| row.name).filter(|name| !of_the_shell(name));
    let missed: Vec<&str> = core.filter(|name| !all.iter().any(|(_, script)| reaches(script, name))).collect();
    assert!(missed.is_empty(), "no transcript reaches {missed:?}");
}

#[test]
fn every_limit_of_the_shell_names_a_test_that_exists() {
    for (limit, file, test) in OF_THE_SHELL {
        assert!(LIMITS.iter().any(|row| row.name == limit), "no limit is called {limit}");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
        let source = std::fs::read_to_string(path).unwrap();
        assert!(source.contains(&format!("fn {test}(")), "{file} has no test {test}");
    }
}

#[test]
fn the_budget_of_a_grant_is_reported_as_used_up_when_its_sends_are_refused() {
    let (_, script) = transcripts().into_iter().find(|(name, _)| name == "bound-grant-budget").unwrap();
    let state = play(&script, Broker::Whole).1.core.state().clone();
    let grants: Vec<_> = state.grants.values().map(|grant| (state.budget_used_up(grant), grant)).collect();
    assert!(grants.len() > 1 && grants.iter().all(|(refusal, grant)| refusal.is_some() == grant.latched.is_some()));
    let refusal = grants[0].0.clone().unwrap();
    assert_eq!((refusal.limit, refusal.current), (Some(1_000), Some(1_001)));
}
