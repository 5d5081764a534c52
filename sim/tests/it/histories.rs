//! Exploration and random adversaries, and the proof that each would notice a rule that is off.

use std::time::Instant;

use lastword_proto::envelope::{Address, Draft};
use lastword_proto::input::Finish;
use lastword_proto::limits::Limits;
use lastword_proto::names::{AgentName, Ref};
use lastword_proto::{Code, Input, MessageType};
use lastword_sim::{World, explore, run};

/// How many times the default work the campaigns do: `LASTWORD_SIM_SCALE=100` for the long run.
fn scale() -> u64 {
    std::env::var_os("LASTWORD_SIM_SCALE").and_then(|s| s.to_str()?.parse().ok()).unwrap_or(1)
}

/// How long the histories are, all of which are played: each letter more is about ten times the work.
fn longer(length: usize) -> usize {
    length + usize::from(scale() > 1) + usize::from(scale() >= 100)
}

#[expect(clippy::disallowed_methods, reason = "a report of speed, not a condition")]
fn timed<T>(what: &str, steps: impl Fn(&T) -> u64, work: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let done = work();
    let (steps, took) = (steps(&done), begin.elapsed().as_secs_f64());
    println!("{what}: {steps} steps in {took:.1} s, {:.0} steps/s", steps as f64 / took);
    done
}

#[test]
fn all_short_histories_keep_every_promise() {
    let length = longer(5);
    let explored = timed("explorer", |e: &lastword_sim::Explored| e.steps, || explore(&Limits::default(), 2, length));
    println!("{} of them changed nothing; most waking messages of a grant {}", explored.idle, explored.most_waking);
    assert_eq!(explored.broken, None);
    assert!(explored.most_waking >= 2, "requests were answered");
}

#[test]
fn all_short_histories_of_three_agents_keep_every_promise() {
    let length = longer(4);
    let explored =
        timed("three agents", |e: &lastword_sim::Explored| e.steps, || explore(&Limits::default(), 3, length));
    assert_eq!(explored.broken, None);
}

#[test]
fn random_adversaries_at_real_parameters_never_pass_the_bound() {
    let seeds = 0..40 * scale();
    let campaign =
        timed("adversaries", |c: &lastword_sim::Campaign| c.steps, || run(&Limits::default(), 8, seeds, 4_000));
    println!("{} facts; refused: {:?}", campaign.facts, campaign.refused);
    println!("most waking {} charged {}", campaign.most_waking, campaign.most_charged);
    assert_eq!(campaign.broken, []);
    assert_eq!(campaign.most_charged, 64, "the bound is reached, or the run shows nothing");
    let expected = [
        Code::DepthCap,
        Code::HopCap,
        Code::Cycle,
        Code::PassiveReply,
        Code::SelfSend,
        Code::RefInUse,
        Code::RefConflict,
        Code::RefRequired,
        Code::PairRate,
        Code::FanOut,
        Code::TurnsSoft,
        Code::TurnClosed,
        Code::LeaseLost,
        Code::UnknownRequest,
        Code::AlreadySettled,
        Code::NotAddressee,
        Code::ReplyNotExpected,
        Code::IdempotencyConflict,
        Code::Stopped,
        Code::Paused,
        Code::Latched,
        Code::GrantMessages,
        Code::ApproverNotAllowed,
        Code::DigestMismatch,
        Code::ApprovalExpired,
        Code::NotApproved,
        Code::EscalationsOpen,
        Code::ClaimHeld,
        Code::DepthMismatch,
        Code::Malformed,
        Code::Forbidden,
    ];
    for code in expected {
        assert!(campaign.refused.contains_key(&code), "no run met {code}");
    }
}

#[test]
fn the_structural_bound_is_reached_exactly_and_never_passed() {
    // Small enough that the structure binds before the totals: K = 1 + 2 + 4, so 2K - 1 = 13.
    let limits = Limits {
        task_requests_max: 2,
        hops_max: 2,
        grant_messages_max: 10_000,
        grant_turns_max: 10_000,
        depth_max: 20,
        ..Limits::default()
    };
    let campaign = run(&limits, 8, 0..60 * scale(), 3_000);
    assert_eq!(campaign.broken, []);
    assert_eq!(campaign.most_waking, 2 * limits.bound_tasks() - 1);
}

#[test]
fn a_seed_run_twice_gives_the_same() {
    let (one, two) = (run(&Limits::default(), 5, 7..9, 2_000), run(&Limits::default(), 5, 7..9, 2_000));
    assert_eq!((one.facts, one.refused, one.most_charged), (two.facts, two.refused, two.most_charged));
}

#[test]
fn a_run_with_a_rule_off_breaks_a_promise() {
    let needed = [
        ("depth_cap", "depth <= cap", 3),
        ("hop_cap", "hops <= cap", 8),
        ("task_requests", "requests per task <= quota", 8),
        ("pair_rate", "windows: per pair", 8),
        ("sender_rate", "windows: per sender", 8),
        ("fan_out", "windows: fan-out", 8),
    ];
    for (guard, promise, agents) in needed {
        // Wide open but for the guard in question, so that nothing else hides its absence.
        let mut limits =
            Limits { task_requests_max: 4, pair_messages_max: 4, sender_messages_max: 6, ..Limits::default() };
        limits.fan_out_targets_max = 3;
        limits.task_requests_max = if guard == "task_requests" { 4 } else { 16 };
        for other in ["turns_soft", "turns_hard", "turn_closed", "root_allowance", "ref_conflict", "ref_in_use"] {
            limits.observed.observe(other);
        }
        let with = run(&limits, agents, 0..6, 3_000);
        assert_eq!(with.broken, [], "{guard} on");
        if guard != "pair_rate" && guard != "sender_rate" {
            limits.pair_messages_max = 100;
            limits.sender_messages_max = 100;
        }
        assert!(limits.observed.observe(guard));
        let without = run(&limits, agents, 0..20, 3_000);
        assert!(
            without.broken.iter().any(|(_, b)| b.promise == promise),
            "{guard} off broke {:?}",
            without.broken.first()
        );
    }
}

#[test]
fn an_acknowledgement_that_is_never_due_leaves_no_timer_behind() {
    let mut world = World::new(&Limits::default(), 1);
    let (human, agent) = (world.human(), world.agent(world.agents()[0]).unwrap());
    let mut draft = Draft::new(MessageType::Request, Address::Name(AgentName::new("a").unwrap()), "take your time");
    draft.reference = Ref::new("SLOW-1").ok();
    draft.timeout_ms = Some(u64::MAX);
    world.give(Input::Send(human, Box::new(draft)));
    assert!(!world.core().state().timers.is_empty());
    world.give(Input::Take(agent, None));
    world.give(Input::Finish(agent, None, Box::new(Finish { body: "done".into(), ..Finish::default() })));
    let state = world.core().state();
    assert!(state.grants.values().all(|grant| grant.end.is_some()));
    assert!(state.timers.is_empty(), "{:?}", state.timers);
}
