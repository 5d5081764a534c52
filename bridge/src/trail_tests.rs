//! The bug trail of a broker on a chat platform (openab): each bug's scenario, and what is right in it.

use lastword_facts::fact::Fact;

use super::den_tests::{ANN, BOB, BROKER, DEN, HIVE, KILO, OUTSIDE, STRANGER, THREAD, TestChannel};
use super::dialect::tests::PLAIN;
use super::inbound::{Act, Thread};
use super::platform::Poster;
use super::post::PostKind::{Note, Said};
use super::post::tests::reply_to;
use super::runs::Run;
use super::settings::BotPolicy;

const ENVELOPE: &str = "[FROM:hive][TO:kilo][TYPE:INFO][REF:X-1][DEPTH:0] once more";

#[test]
fn bug_466_own_posts_count_in_an_alternation() {
    let mut den = TestChannel::new();
    for n in 0..12 {
        // Another program posts with the token of one of our bots.
        den.posts(KILO, &format!("ping {n}"));
        den.posts(HIVE, &format!("pong {n}"));
    }
    assert_eq!((den.turns(), den.warned.len()), (24, 1));
}

#[test]
fn bug_473_a_human_word_unlocks_what_the_hard_limit_locked() {
    let mut den = TestChannel::new();
    for n in 0..105 {
        den.posts(HIVE, &format!("message {n}"));
    }
    den.posts(ANN, "go on");
    den.posts(HIVE, "at last");
    assert_eq!(den.turns(), 1);
}

#[test]
fn bug_473_a_human_word_in_its_thread_unlocks_a_conversation() {
    let mut den = TestChannel::new();
    den.thread = Some(Thread { reference: "X-1".into(), agent: None });
    for _ in 0..105 {
        // Slow enough for the windows of a pair (G1) and of refusals (G2), in which refused messages don't count.
        den.now_ms += 6_000;
        den.sends(HIVE, ENVELOPE);
    }
    let stopped = |den: &TestChannel| den.facts.iter().any(|fact| matches!(fact, Fact::LatchSet(_)));
    assert!(stopped(&den) && den.turns_on("X-1") > 100, "it was never locked: {}", den.turns_on("X-1"));
    den.hear_as(ANN, THREAD, "go on", false);
    den.facts.clear();
    den.hear_as(HIVE, THREAD, ENVELOPE, false);
    let passed_on = den.facts.iter().any(|fact| matches!(fact, Fact::Accepted { .. }));
    assert!(passed_on && den.turns_on("X-1") == 1);
}

#[test]
fn bug_481_what_a_policy_keeps_out_is_counted_before() {
    let mut den = TestChannel::new();
    den.policy = BotPolicy::Off;
    (0..20).for_each(|_| drop(den.posts(HIVE, ENVELOPE)));
    assert_eq!((den.turns(), den.warned.len()), (20, 1));
}

#[test]
fn bug_483_what_a_list_of_trusted_bots_keeps_out_is_counted_before() {
    let mut den = TestChannel::new();
    den.trusted = [KILO].into();
    for n in 0..10 {
        den.posts(HIVE, &format!("ping {n}"));
        den.posts(STRANGER, &format!("pong {n}"));
    }
    assert_eq!((den.turns(), den.warned.len()), (20, 1));
}

#[test]
fn posts_with_and_without_a_header_count_together_where_people_see_them() {
    let mut den = TestChannel::new();
    for n in 0..15 {
        // Slow enough for the windows of a pair and of a sender (G1).
        den.now_ms += 10_000;
        den.posts(HIVE, &format!("plain {n}"));
        den.posts(HIVE, ENVELOPE);
    }
    let passed_on = den.facts.iter().filter(|fact| matches!(fact, Fact::Accepted { .. })).count();
    assert!(den.turns() == 30 && den.warned.len() == 1 && passed_on < 10);
}

#[test]
fn bug_484_there_is_one_warning_and_not_one_a_message() {
    let mut den = TestChannel::new();
    (0..30).for_each(|n| drop(den.posts(HIVE, &format!("message {n}"))));
    assert_eq!(den.warned.len(), 1);
    let mut den = TestChannel::new();
    (0..30).for_each(|n| drop(den.posts(HIVE, &format!("message {n}"))));
    assert_eq!(den.turns(), 30);
}

#[test]
fn bug_497_pins_joins_and_whoever_may_not_speak_reset_nothing() {
    let mut den = TestChannel::new();
    for round in 0..4 {
        (0..20).for_each(|n| drop(den.posts(HIVE, &format!("message {round} {n}"))));
        // A pin, a join, "thread created", an empty post, and a user who isn't listed.
        for (author, kind, text) in
            [(ANN, Note, "pinned"), (ANN, Note, ""), (ANN, Note, "thread"), (ANN, Said, " "), (BOB, Said, "hi")]
        {
            let mut post = den.draft(author, text);
            post.kind = kind;
            den.receive(&Run::of(post), false);
        }
    }
    assert_eq!((den.turns(), den.warned.len()), (80, 1));
}

#[test]
fn bug_528_nothing_is_posted_where_the_bridge_takes_no_part() {
    let mut den = TestChannel::new();
    (0..25).for_each(|n| drop(den.hear_as(HIVE, OUTSIDE, &format!("message {n}"), false)));
    assert!(den.warned.is_empty());
    // Such a channel may still have a room, whose limit is crossed without a post there.
    let mut den = TestChannel::new();
    (0..25).for_each(|n| den.says_in_room("kilo", OUTSIDE, &format!("message {n}")));
    assert!(den.facts.iter().any(|fact| matches!(fact, Fact::Warned { .. })) && den.warned.is_empty());
}

#[test]
fn bug_530_the_brokers_bot_warns_and_no_other() {
    let mut den = TestChannel::new();
    (0..20).for_each(|n| drop(den.posts(HIVE, &format!("message {n}"))));
    assert!(matches!(den.warned.as_slice(), [(Poster::Broker, DEN, _)]));
}

#[test]
fn bug_556_a_turn_is_looked_up_under_the_id_under_which_it_was_noted() {
    let mut den = TestChannel::new();
    den.shows_turn("hive", THREAD, "turn-1");
    let acts = den.hear_as(HIVE, THREAD, "done", false);
    assert!(matches!(acts.as_slice(), [Act::Finish { turn, .. }] if turn == "turn-1"));
}

#[test]
fn bug_604_the_list_of_humans_keeps_no_bot_out() {
    let mut den = TestChannel::new();
    den.posts(HIVE, "hello");
    assert_eq!(den.admitted("hive"), 1);
}

#[test]
fn bug_727_a_notice_makes_nobody_a_participant() {
    let mut den = TestChannel::new();
    (0..20).for_each(|n| drop(den.posts(HIVE, &format!("message {n}"))));
    let answer = den.draft(ANN, "thanks for the warning");
    let acts = den.receive(&Run::of(reply_to(answer, BROKER)), false);
    assert!(matches!(acts.as_slice(), [Act::Say { mentions, .. }] if mentions.is_empty()));
}

#[test]
fn bug_843_a_warning_says_the_number_that_holds() {
    let mut den = TestChannel::new();
    (0..100).for_each(|n| drop(den.posts(HIVE, &format!("message {n}"))));
    let numbers = [lastword_facts::Limits::default().turns_soft_max, lastword_facts::Limits::default().turns_hard_max];
    assert!(
        den.warned
            .iter()
            .map(|(_, _, text)| text.clone())
            .zip(numbers)
            .all(|(text, n)| text.contains(&format!(" {n} ")))
    );
}

#[test]
fn bug_1011_a_replys_ping_is_no_mention_by_a_bot() {
    let mut den = TestChannel::new();
    den.policy = BotPolicy::Mentions;
    let answer = den.draft(HIVE, ENVELOPE);
    let acts = den.receive(&Run::of(reply_to(answer, KILO)), false);
    assert!(!acts.iter().any(|act| matches!(act, Act::Submit { .. })));
}

#[test]
fn what_was_posted_long_ago_asks_nobody_and_counts() {
    let mut den = TestChannel::new();
    den.old = true;
    den.posts(ANN, &format!("<@{KILO}> deploy"));
    den.posts(HIVE, ENVELOPE);
    let asked = den.facts.iter().any(|fact| matches!(fact, Fact::Accepted { .. }));
    assert!(!asked && den.turns() == 1);
}

#[test]
fn a_long_answer_in_parts_counts_once() {
    let mut den = TestChannel::new();
    let long = "x".repeat(1_900);
    let mut run = Run::of(den.draft(HIVE, &long));
    for part in [long.as_str(), "the end"] {
        let next = den.draft(HIVE, part);
        if let Err(next) = run.go_on(next) {
            den.receive(&std::mem::replace(&mut run, Run::of(*next)), false);
        }
    }
    den.receive(&run, false);
    assert_eq!(den.turns(), 1);
}

#[test]
fn a_post_that_comes_twice_is_one() {
    let mut den = TestChannel::new();
    let post = den.draft(HIVE, "hello");
    (0..3).for_each(|_| drop(den.receive(&Run::of(post.clone()), false)));
    assert_eq!((den.turns(), den.admitted("hive")), (1, 1));
    assert!(PLAIN.key(post.id).starts_with("chat:"));
}
