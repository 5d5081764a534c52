//! The stored format: once written, bytes must remain readable in every later version.
//!
//! `UPDATE=1` adds new lines to the golden files and never changes an existing one: a variant that changed its shape or
//! its place needs a new variant at the end instead.

mod samples;

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use lastword_facts::fact::{
    ClaimMode, Control, Crossing, Decision, EndReason, EscalationCause, GrantEnd, Kind, Level, Rerun, Role, TurnEnd,
    WriteKind,
};
use lastword_facts::policy::Ruling;
use lastword_facts::stall::StallCause;
use lastword_facts::{AnswerStatus, Code, Fact, FinishStatus, MessageType, Priority};
use lastword_store::format::{decode, encode};

use self::samples::samples;

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name)
}

/// Compares `now` with the golden file. With `UPDATE=1`, lines may only be added at the end.
fn check(name: &str, now: &str) {
    let stored = fs::read_to_string(golden(name)).unwrap_or_default();
    let (stored, now): (Vec<_>, Vec<_>) = (stored.lines().collect(), now.lines().collect());
    for (n, line) in stored.iter().enumerate() {
        assert_eq!(now.get(n), Some(line), "{name}:{}: the stored format changed; add a new variant at the end", n + 1);
    }
    if stored.len() < now.len() {
        assert!(std::env::var_os("UPDATE").is_some(), "{name}: new lines; run with UPDATE=1");
        fs::write(golden(name), now.join("\n") + "\n").unwrap();
    }
}

/// The only sample that is stored by name.
const GROWS: &str = "Configured";

#[test]
fn entries_keep_the_bytes_with_which_they_were_first_stored() {
    let stored = fs::read_to_string(golden("entries.txt")).unwrap_or_default();
    let mut lines = String::new();
    for (name, entry) in samples() {
        // Limits are stored by name: new ones make the sample longer, and the old bytes must still be readable.
        if let Some(before) = stored.lines().find(|line| name == GROWS && line.starts_with(GROWS)) {
            writeln!(lines, "{before}").unwrap();
            continue;
        }
        let mut bytes = Vec::new();
        encode(&mut bytes, &entry).unwrap();
        let hex = bytes.iter().fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x}").unwrap();
            hex
        });
        writeln!(lines, "{name} {hex}").unwrap();
    }
    check("entries.txt", &lines);
}

#[test]
fn entries_stored_by_every_earlier_version_are_read() {
    let stored = fs::read_to_string(golden("entries.txt")).unwrap();
    let samples = samples();
    assert!(!stored.is_empty());
    for (line, (name, entry)) in stored.lines().zip(samples) {
        let (stored_name, hex) = line.rsplit_once(' ').unwrap();
        assert_eq!(stored_name, name);
        let bytes: Vec<u8> =
            (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect();
        assert_eq!(decode(&bytes[4..]).unwrap(), entry, "{name}");
    }
}

#[test]
fn every_fact_has_a_sample() {
    let variant = |fact: &Fact| postcard::to_allocvec(fact).unwrap()[0];
    let mut numbers: Vec<u8> = samples().iter().map(|(_, entry)| variant(&entry.fact)).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let count = u8::try_from(numbers.len()).unwrap();
    assert_eq!(numbers, (0..count).collect::<Vec<u8>>(), "one in the middle has no sample");
    // A variant added after them would be readable.
    let mut next = [0; 64];
    next[0] = count;
    assert!(postcard::from_bytes::<Fact>(&next).is_err(), "the last one has no sample");
}

/// Facts that say the same in two editions, or in two forms, share the kind of their events.
const SHARED_KINDS: [(&str, &str); 7] = [
    ("PolicyConfigured", "configured"),
    ("TokenRotated", "rekeyed"),
    ("TurnFinished", "turn_closed"),
    ("TurnCharged", "turn_closed"),
    ("EscalationAnswered", "escalation_noted"),
    ("AgentRested", "agent_rests"),
    ("AgentRested", "agent_goes_on"),
];

#[test]
fn an_event_has_the_name_of_its_fact() {
    for (_, entry) in samples() {
        let (fact, kind) = (format!("{:?}", entry.fact), entry.fact.about().kind.word());
        let fact = fact.split(|c: char| !c.is_alphanumeric()).next().unwrap();
        let own = kind
            == fact.chars().fold(String::new(), |word, letter| match letter {
                'A'..='Z' if word.is_empty() => letter.to_lowercase().to_string(),
                'A'..='Z' => format!("{word}_{}", letter.to_ascii_lowercase()),
                _ => format!("{word}{letter}"),
            });
        assert!(own || SHARED_KINDS.contains(&(fact, kind)), "{fact} is published as {kind}");
    }
}

#[test]
fn the_numbers_that_stand_for_words_never_change() {
    let mut lines = String::new();
    macro_rules! list {
        ($($kind:ident)*) => {$(
            for value in $kind::ALL {
                let bytes = postcard::to_allocvec(value).unwrap();
                writeln!(lines, "{} {bytes:?} {}", stringify!($kind), value.word()).unwrap();
            }
        )*};
    }
    list!(MessageType Priority AnswerStatus FinishStatus Kind EndReason Rerun TurnEnd GrantEnd Control Crossing Decision);
    list!(ClaimMode EscalationCause Code Ruling Role WriteKind Level StallCause);
    // Each kind has its own part of the file, so that one can grow without moving the others.
    let mut kinds: Vec<&str> = lines.lines().filter_map(|line| line.split_once(' ')).map(|(kind, _)| kind).collect();
    kinds.dedup();
    for kind in kinds {
        let prefix = format!("{kind} ");
        let part: Vec<&str> = lines.lines().filter(|line| line.starts_with(&prefix)).collect();
        check(&format!("words/{kind}.txt"), &part.join("\n"));
    }
}
