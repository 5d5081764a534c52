//! Exploration and random adversaries, and the proof that each notices a rule that is off.

use std::time::Instant;

use lastword_core::input::Finish;
use lastword_core::rules::Off;
use lastword_core::state::Timer;
use lastword_core::{Core, Input};
use lastword_facts::envelope::{Address, Draft};
use lastword_facts::ids::DAY_MS;
use lastword_facts::limits::Limits;
use lastword_facts::names::{AgentName, Ref};
use lastword_facts::{Code, MessageType};
use lastword_sim::{Campaign, Explored, Pace, Setting, Style, World, explore, run};

/// The factor by which the campaigns are longer than by default: `LASTWORD_SIM_SCALE=200` for the long run.
fn scale() -> u64 {
    std::env::var_os("LASTWORD_SIM_SCALE").and_then(|s| s.to_str()?.parse().ok()).unwrap_or(1)
}

/// Returns the length of the histories that are all played; each further letter is about ten times the work.
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

/// Both paces of the clock; every campaign runs at each.
const PACES: [Pace; 2] = [Pace::Hours, Pace::Months];

#[track_caller]
fn assert_kept(what: &str, campaign: &Campaign) {
    println!("{what}: {} facts over at most {} days", campaign.facts, campaign.longest_ms / DAY_MS);
    println!("{what}: {:?}; the witness holds {} records", campaign.peaks, campaign.records);
    println!("{what}: refused {:?}", campaign.refused);
    assert_eq!(campaign.broken, [], "{what}");
}

/// Asserts that a campaign met these codes: it proves nothing about a code that it never met.
#[track_caller]
fn assert_met(what: &str, campaign: &Campaign, expected: &[Code]) {
    for code in expected {
        assert!(campaign.refused.contains_key(code), "{what}: no run met {code}");
    }
}

fn campaign(what: &str, setting: &Setting, seeds: u64) -> Campaign {
    let work = || run(setting, 0..seeds * scale());
    let done = timed(what, |c: &Campaign| c.steps, work);
    assert_kept(what, &done);
    done
}

#[test]
fn all_short_histories_keep_every_promise() {
    for pace in PACES {
        let play = || explore(&Limits::default(), 2, longer(4), pace);
        let explored = timed(&format!("explorer, {pace:?}"), |e: &Explored| e.steps, play);
        println!("{} of them changed nothing; most waking messages of a grant {}", explored.idle, explored.most_waking);
        assert_eq!(explored.broken, None);
        assert!(explored.most_waking >= 2, "requests were answered");
    }
}

#[test]
fn all_short_histories_of_three_agents_keep_every_promise() {
    for pace in PACES {
        let play = || explore(&Limits::default(), 3, longer(4), pace);
        let explored = timed(&format!("three agents, {pace:?}"), |e: &Explored| e.steps, play);
        assert_eq!(explored.broken, None);
    }
}

/// The codes that agents meet at any pace.
const MET: [Code; 35] = [
    Code::DepthCap,
    Code::HopCap,
    Code::Cycle,
    Code::PassiveReply,
    Code::SelfSend,
    Code::RefInUse,
    Code::RefConflict,
    Code::RefRequired,
    Code::TaskRequests,
    Code::RootAllowance,
    Code::PairRate,
    Code::SenderRate,
    Code::TurnClosed,
    Code::TurnRequired,
    Code::TurnsOpen,
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
    Code::ApprovalExpired,
    Code::EscalationsOpen,
    Code::TaskQuestions,
    Code::ClaimHeld,
    Code::DepthMismatch,
    Code::Malformed,
    Code::Forbidden,
    Code::CausedByRefused,
    Code::RefusedTooOften,
];

#[test]
fn random_adversaries_at_real_parameters_never_pass_the_bound() {
    let setting = Setting::new(Limits::default(), 8, 4_000, Pace::Hours);
    let done = campaign("adversaries", &setting, 20);
    assert_eq!(done.peaks.charged, 64, "the bound is reached, or the run shows nothing");
    assert_met("adversaries", &done, &MET);
    assert_met("adversaries", &done, &[Code::FanOut, Code::TurnsSoft, Code::TurnsHard, Code::NotApproved]);
}

#[test]
fn random_adversaries_over_months_never_pass_the_bound() {
    let setting = Setting::new(Limits::default(), 8, 4_000, Pace::Months);
    let done = campaign("adversaries over months", &setting, 40);
    assert_eq!(done.peaks.charged, 64, "the bound is reached, or the run shows nothing");
    assert!(done.longest_ms > 365 * DAY_MS, "{} days", done.longest_ms / DAY_MS);
    assert_met("adversaries over months", &done, &MET);
    assert_met("adversaries over months", &done, &[Code::Unattended]);
}

/// Totals and allowances so small that each is reached.
fn small_totals() -> Limits {
    Limits {
        grant_messages_max: 24,
        grant_turns_max: 14,
        grant_agents_max: 3,
        grant_tokens_max: 100_000,
        agent_day_tokens_max: 150_000,
        grant_age_ms: 600_000,
        root_messages_per_day_max: 12,
        turns_soft_max: 8,
        turns_hard_max: 14,
        task_questions_max: 3,
        task_requests_max: 4,
        unattended_ms: 7_200_000,
        ..Limits::default()
    }
}

#[test]
fn random_adversaries_at_small_totals_meet_each_of_them() {
    for pace in PACES {
        let what = format!("small totals, {pace:?}");
        let done = campaign(&what, &Setting::new(small_totals(), 6, 3_000, pace), 30);
        assert_eq!((done.peaks.charged, done.peaks.turns), (24, 14), "{what}: the totals are reached");
        let expected = [
            Code::GrantMessages,
            Code::GrantTurns,
            Code::GrantAgents,
            Code::Budget,
            Code::RootAllowance,
            Code::TurnsSoft,
            Code::TurnsHard,
            Code::TaskQuestions,
            Code::Unattended,
        ];
        assert_met(&what, &done, &expected);
    }
}

#[test]
fn the_structural_bound_is_reached_exactly_and_never_passed() {
    // Small enough that the structural bound is below the totals: K = 1 + 2 + 4, so 2K - 1 = 13.
    let limits = Limits {
        task_requests_max: 2,
        hops_max: 2,
        grant_messages_max: 10_000,
        grant_turns_max: 10_000,
        grant_tokens_max: 0,
        depth_max: 20,
        ..Limits::default()
    };
    for pace in PACES {
        let done = campaign(&format!("structure, {pace:?}"), &Setting::new(limits.clone(), 8, 3_000, pace), 20);
        assert_eq!(done.peaks.waking, 2 * limits.bound_tasks() - 1);
    }
}

#[test]
fn the_bound_of_turns_is_reached_and_never_passed() {
    // For one request and one hop. The bound lets every wake run A times. What can happen is A runs of each request,
    // one turn for each answer and each question, and one more where a lease with such a delivery is lost.
    for (runs, questions, bound, reached) in [(2, 0, 6, 6), (2, 1, 10, 9), (4, 0, 12, 10), (4, 2, 28, 14)] {
        let limits = Limits {
            runs_max: runs,
            task_questions_max: questions,
            task_requests_max: 1,
            hops_max: 1,
            grant_messages_max: 10_000,
            grant_turns_max: 10_000,
            depth_max: 20,
            ..Limits::default()
        };
        assert_eq!(limits.bound_turns(), bound);
        for pace in PACES {
            let setting = Setting { style: Style::Spenders, ..Setting::new(limits.clone(), 5, 3_000, pace) };
            let done = campaign(&format!("turns, A = {runs}, C = {questions}, {pace:?}"), &setting, 30);
            assert!((reached..=bound).contains(&done.peaks.turns), "{} of {bound}", done.peaks.turns);
        }
    }
}

#[test]
fn a_seed_run_twice_gives_the_same() {
    for pace in PACES {
        let setting = Setting::new(Limits::default(), 5, 2_000, pace);
        let (one, two) = (run(&setting, 7..9), run(&setting, 7..9));
        assert_eq!((one.facts, one.refused, one.peaks), (two.facts, two.refused, two.peaks));
    }
}

#[test]
fn what_the_witness_holds_does_not_grow_with_the_log() {
    let setting = |steps| Setting::new(Limits::default(), 6, steps, Pace::Months);
    let (short, long) = (run(&setting(20_000), 1..2), run(&setting(80_000), 1..2));
    assert_eq!((short.broken, long.broken), (vec![], vec![]));
    let facts = [short.facts, long.facts];
    assert!(long.facts > 3 * short.facts, "{facts:?}");
    println!("the witness holds {} and {} records of {facts:?}", short.records, long.records);
    assert!(long.records as u64 * 100 < long.facts, "{} records of {facts:?}", long.records);
}

/// Whether one of so many runs breaks a promise. Those after it aren't played.
fn breaks(setting: &Setting, seeds: u64, promise: &str) -> bool {
    (0..seeds).any(|seed| run(setting, seed..seed + 1).broken.iter().any(|(_, broken)| broken.promise == promise))
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
        // All limits are wide except that of the guard in question, so that no other guard hides its absence.
        let mut limits =
            Limits { task_requests_max: 4, pair_messages_max: 4, sender_messages_max: 6, ..Limits::default() };
        limits.fan_out_targets_max = 3;
        limits.task_requests_max = if guard == "task_requests" { 4 } else { 16 };
        for other in ["turns_soft", "turns_hard", "turn_closed", "ref_conflict", "ref_in_use"] {
            limits.observed.observe(other);
        }
        let watched = |limits: &Limits| {
            let setting = Setting::new(limits.clone(), agents, 3_000, Pace::Hours);
            Setting { looks_at: Some(guard), ..setting }
        };
        assert_eq!(run(&watched(&limits), 0..6).broken, [], "{guard} on");
        if guard != "pair_rate" && guard != "sender_rate" {
            limits.pair_messages_max = 100;
            limits.sender_messages_max = 100;
        }
        assert!(limits.observed.observe(guard));
        assert!(breaks(&watched(&limits), 20, promise), "without {guard} every run kept that {promise}");
        let told = Setting { looks_at: None, ..watched(&limits) };
        assert_eq!(run(&told, 0..6).broken, [], "a guard that observes is told of in the log");
    }
}

#[test]
fn a_run_of_a_core_that_lacks_a_rule_breaks_a_promise() {
    let needed = [
        ("grant_messages", "messages per grant <= bound"),
        ("grant_turns", "turns per grant <= bound"),
        ("grant_agents", "agents per grant <= bound"),
        ("budget", "no request past the budget"),
        ("latched", "nothing is admitted where a human or a latch holds"),
        ("unattended", "agents start nothing where no human acted for long"),
        ("root_allowance", "waking messages a day of an agent's own roots"),
        ("turns_soft", "nothing is admitted past a threshold of agent messages"),
        ("warned_once", "at most one warning per crossing"),
        ("forwarding", "a finish settles"),
        ("answers_deepen", "depth is that of what was received, and one"),
        ("authority", "an approval is decided by who may"),
    ];
    for (rule, promise) in needed {
        let core = Core::without(Off::named(rule).unwrap());
        let broken = PACES.into_iter().any(|pace| {
            let setting = Setting { core: core.clone(), ..Setting::new(small_totals(), 6, 3_000, pace) };
            breaks(&setting, 24, promise)
        });
        assert!(broken, "without {rule} every run kept that {promise}");
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
    assert_eq!(state.timers.len(), 1, "{:?}", state.timers);
    assert!(matches!(state.timers.first(), Some((_, Timer::Unattended))), "{:?}", state.timers);
}
