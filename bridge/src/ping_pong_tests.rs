//! Two bots of ours and a foreign one in a channel without humans, in virtual time and against the real core.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use lastword_facts::fact::{Crossing, Fact};

use super::den_tests::{ANN, HIVE, KILO, LIMA, TestChannel};
use super::platform::Poster;

/// Lets each bot answer the last post until no post is admitted; returns the number of posts.
fn left_alone(den: &mut TestChannel) -> usize {
    let mut said = 0;
    let mut recorded = true;
    let mut turn = 0;
    while recorded && said < 1_000 {
        let bot = [KILO, LIMA, HIVE][turn % 3];
        turn += 1;
        let before = den.facts.len();
        if bot == HIVE {
            den.posts(HIVE, &format!("I agree with that, for the {turn}. time"));
        } else {
            den.speaks(bot, &format!("As I said, for the {turn}. time"));
        }
        said += 1;
        recorded = den.facts[before..].iter().any(|fact| matches!(fact, Fact::Posted { .. }));
    }
    said
}

#[test]
fn twenty_messages_one_warning_and_silence_until_a_human_speaks() {
    let mut den = TestChannel::new();
    den.posts(ANN, "What do you think?");
    for round in 1..=3 {
        assert_eq!(left_alone(&mut den), 20, "round {round}");
        assert_eq!(den.turns(), 20);
        assert_eq!(den.warned.len(), round, "one warning a crossing");
        assert!(den.warned.iter().all(|(by, _, text)| *by == Poster::Broker && text.contains(" 20 ")));
        den.posts(ANN, "Go on.");
        assert_eq!(den.turns(), 0);
    }
}

#[test]
fn whoever_goes_on_all_the_same_is_stopped_at_a_hundred_and_a_human_lifts_it() {
    let mut den = TestChannel::new();
    for n in 0..150 {
        den.posts(HIVE, &format!("still here, {n}"));
    }
    let crossings: Vec<Crossing> = den
        .facts
        .iter()
        .filter_map(|fact| if let Fact::Warned { crossing, .. } = fact { Some(*crossing) } else { None })
        .collect();
    assert_eq!(crossings, [Crossing::Soft, Crossing::Hard]);
    assert_eq!((den.warned.len(), den.admitted("hive")), (2, 19));
    assert_eq!(den.facts.iter().filter(|fact| matches!(fact, Fact::LatchSet(_))).count(), 1);
    assert!(!den.speaks(KILO, "and I?"), "it is stopped for everybody");
    den.posts(ANN, "Quiet, please. Go on.");
    assert!(den.speaks(KILO, "thank you"));
}

#[test]
fn the_table_of_the_tracker_is_as_written() {
    let mut den = TestChannel::new();
    let mut table =
        String::from("# turns since a human spoke: what becomes of the post, and what is posted beside it\n");
    let mut from = 1;
    let mut last = String::new();
    for turn in 1..=121 {
        if turn == 120 {
            writeln!(table, "{from}-{}: {last}", turn - 1).unwrap();
            den.posts(ANN, "a human speaks");
            writeln!(table, "a human speaks: {} turns", den.turns()).unwrap();
            (from, last) = (1, String::new());
        }
        let (warned, before) = (den.warned.len(), den.facts.len());
        den.posts(HIVE, &format!("message {turn}"));
        let new = &den.facts[before..];
        let passed =
            if new.iter().any(|fact| matches!(fact, Fact::Posted { .. })) { "passed on" } else { "not passed on" };
        let warning = den.warned[warned..].iter().map(|(_, _, text)| format!(", {text}")).collect::<String>();
        let latched = if new.iter().any(|fact| matches!(fact, Fact::LatchSet(_))) { ", latched" } else { "" };
        let now = format!("{passed}{latched}{warning}");
        if turn < 120 && now != last {
            if !last.is_empty() {
                writeln!(table, "{from}-{}: {last}", turn - 1).unwrap();
            }
            (from, last) = (turn, now);
        } else if turn >= 120 {
            writeln!(table, "{}: {now}", den.turns()).unwrap();
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/tracker.txt");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &table).unwrap();
    }
    assert_eq!(table, fs::read_to_string(path).unwrap(), "UPDATE=1 rewrites it, if that is what should be");
}
