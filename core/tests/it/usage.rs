//! Whatever a turn reports, a human's grant lifts what the report holds (H6): over the whole range of numbers, and in a log
//! that was written before reports had a limit.

use lastword_core::Core;
use lastword_facts::fact::{Fact, Spend, TurnCharged};
use proptest::prelude::*;

use crate::script::{Broker, World, play};

const EDGES: [u64; 9] = [0, 1, 999, 1_000, 1_000_000_000_000, 1_000_000_000_001, 1 << 63, u64::MAX - 1, u64::MAX];

/// A delegate reports; the asker's grant has 1,000 tokens.
fn held_by(used: u64) -> World {
    let script = format!(
        "limit grant_tokens_max=1000\nlimit agent_day_tokens_max=0\nhuman uma\nagent a\nagent b\n\
         uma: send a T-1 do it\na: take\na: send b - part\nb: take\nb: finish tokens={used} one\na: finish waiting\n"
    );
    play(&script, Broker::Whole).1
}

fn lifts(world: &mut World, given: u64) -> Result<(), TestCaseError> {
    let granted = world.line(&format!("uma: grant T-1 tokens={given}"));
    let taken = world.line("a: take");
    let sent = world.line("a: send b - more");
    prop_assert!(sent.iter().any(|line| line.contains("a -> b REQUEST")), "{granted:?} {taken:?} {sent:?}");
    Ok(())
}

/// An agent reports; its day has 1,000 tokens.
fn resting_by(used: u64) -> World {
    let script = format!(
        "limit agent_day_tokens_max=1000\nlimit grant_tokens_max=0\nhuman uma\nagent a\n\
         uma: send a T-1 do it\na: take\na: finish tokens={used} one\numa: send a T-2 go on\n"
    );
    play(&script, Broker::Whole).1
}

fn wakes(world: &mut World, given: u64) -> Result<(), TestCaseError> {
    let granted = world.line(&format!("uma: grant-agent a tokens={given}"));
    let taken = world.line("a: take");
    prop_assert!(taken.iter().any(|line| line.contains("in turn-2")), "{granted:?} {taken:?}");
    Ok(())
}

/// Returns the world with these tokens in each report of its log, as an earlier version recorded them.
fn recorded(mut world: World, used: u64) -> World {
    let mut core = Core::default();
    for entry in &mut world.log {
        if let Fact::TurnCharged(TurnCharged { spend, .. }) = &mut entry.fact
            && spend.tokens > 100_000
        {
            *spend = Spend { tokens: used, cost_microusd: used };
        }
        core.replay(entry).unwrap();
    }
    world.core = core;
    world
}

#[test]
fn a_humans_grant_lifts_whatever_was_reported_and_however_little_is_given() {
    for used in EDGES {
        for given in EDGES.into_iter().filter(|given| *given > 0) {
            lifts(&mut held_by(used), given).unwrap();
            wakes(&mut resting_by(used), given).unwrap();
        }
    }
}

#[test]
fn a_humans_grant_lifts_what_an_old_log_has_of_impossible_reports() {
    for used in [1_000_000_000_001, 1 << 63, u64::MAX] {
        for given in [1, 1_000, u64::MAX] {
            lifts(&mut recorded(held_by(1_000_000_000_000), used), given).unwrap();
            wakes(&mut recorded(resting_by(1_000_000_000_000), used), given).unwrap();
        }
    }
}

proptest! {
    #[test]
    fn any_report_is_lifted_by_any_grant(used: u64, given in 1_u64..) {
        lifts(&mut held_by(used), given)?;
        wakes(&mut resting_by(used), given)?;
    }
}

/// The turns of two agents under one grant of 1,000 tokens. Returns what the first one's reports are answered with.
fn running(reports: &[u64]) -> (World, Vec<String>) {
    let script = "limit grant_tokens_max=1000\nlimit agent_day_tokens_max=0\nlimit progress_interval_ms=0\nhuman uma\n\
                  agent a\numa: send a T-1 do it\na: take\n";
    let (_, mut world) = play(script, Broker::Whole);
    let said = reports.iter().map(|used| world.line(&format!("a: progress tokens={used}")).join(" | ")).collect();
    (world, said)
}

#[test]
fn a_turn_is_asked_to_finish_at_its_budget_and_ended_a_quarter_later() {
    let (_, said) = running(&[999, 1_000, 1_249, 1_250]);
    let told = |line: &String| (line.contains("finish: budget"), line.contains("end now: budget"));
    let told: Vec<(bool, bool)> = said.iter().map(told).collect();
    assert_eq!(told, [(false, false), (true, false), (true, false), (false, true)], "{said:?}");
}

#[test]
fn what_a_budget_ended_goes_on_with_what_it_had_written_once_a_human_gives_more() {
    let (mut world, _) = running(&[1_250]);
    let held = world.line("a: finish held half of it");
    assert_eq!(held.last().map(String::as_str), Some("the task goes on"), "{held:?}");
    let waits = world.line("a: take");
    assert!(!waits.iter().any(|line| line.contains("turn-2")), "{waits:?}");
    world.line("uma: grant T-1 tokens=2000");
    let taken = world.line("a: take").join("\n");
    assert!(taken.contains("turn-2") && held[0].contains("half of it"), "{taken}");
    let done = world.line("a: finish all of it").join("\n");
    assert!(done.contains("all of it"), "{done}");
}

#[test]
fn a_turn_that_no_budget_ended_is_held_by_nothing() {
    let (mut world, _) = running(&[900]);
    let failed = world.line("a: finish held half of it").join("\n");
    assert!(failed.contains("failed") && failed.contains("half of it"), "it would go on for ever: {failed}");
    assert!(failed.contains("because the run was ended for a budget that isn't used up; ask again"), "{failed}");
}
