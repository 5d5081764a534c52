//! Golden transcripts: the worked examples and the incidents, and the proof that each guard is needed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use lastword_core::Core;
use lastword_core::rules::{Off, Rule};
use lastword_facts::guards::GUARDS;

use crate::script::{Broker, play};
use crate::tables::check;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/transcripts")
}

pub(crate) fn transcripts() -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "txt"))
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(&path).unwrap()))
        .collect();
    found.sort();
    assert!(found.len() > 10, "the transcripts are there");
    found
}

/// Returns the names that a transcript needs, from its lines `# needs: NAME … (what happens without)`.
fn needs(script: &str) -> Vec<&str> {
    let lines = script.lines().filter_map(|l| l.strip_prefix("# needs:"));
    lines.flat_map(|l| l.split('(').next().unwrap_or_default().split_whitespace()).collect()
}

fn off(name: &str) -> Off {
    Off::named(name).unwrap_or_else(|| panic!("no rule or guard is called {name}"))
}

/// Returns the inputs of a played transcript, each with its outcome. A message's number is replaced by its ends and its
/// text, so that one fact more or less before it makes no difference.
pub(crate) fn exchanges(played: &str) -> Vec<(String, Vec<String>)> {
    let mut said: BTreeMap<&str, String> = BTreeMap::new();
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for line in played.lines() {
        match (line.strip_prefix("  "), found.last_mut()) {
            (None, _) => found.push((line.to_owned(), Vec::new())),
            (Some(effect), Some((_, effects))) if !effect.starts_with("observed:") => {
                if let Some((number, message)) = effect.split_once(' ').filter(|(n, _)| n.starts_with("msg-")) {
                    let ends = message.splitn(4, ' ').take(3).collect::<Vec<_>>().join(" ");
                    let words = message.find('"').map_or("", |at| &message[at..]);
                    said.insert(number, format!("({ends} {words})"));
                    effects.push(message.to_owned());
                } else {
                    effects.push(effect.split(' ').map(|w| numberless(w, &said)).collect::<Vec<_>>().join(" "));
                }
            }
            (Some(_), _) => {}
        }
    }
    found
}

fn numberless(word: &str, said: &BTreeMap<&str, String>) -> String {
    let Some(start) = word.find("msg-") else { return word.to_owned() };
    let end = word[start + 4..].find(|c: char| !c.is_ascii_digit()).map_or(word.len(), |n| start + 4 + n);
    let message = said.get(&word[start..end]).map_or("(what was not shown)", String::as_str);
    format!("{}{message}{}", &word[..start], &word[end..])
}

/// The most inputs with another outcome that are shown; they are enough to see what happens.
const SHOWN_MAX: usize = 6;

/// Returns the first inputs with another outcome: the expected one (`<`) and the actual one (`>`).
pub(crate) fn otherwise(expected: &str, actual: &str) -> Option<String> {
    let pairs = exchanges(expected).into_iter().zip(exchanges(actual));
    let different: Vec<_> = pairs.filter(|(with, without)| with != without).collect();
    let mut text = String::new();
    for ((input, with), (_, without)) in different.iter().take(SHOWN_MAX) {
        writeln!(text, "{input}").unwrap();
        for (mark, effects, others) in [('<', with, without), ('>', without, with)] {
            let nothing = effects.is_empty().then_some("-");
            for effect in effects.iter().filter(|e| !others.contains(e)).map(String::as_str).chain(nothing) {
                writeln!(text, "  {mark} {effect}").unwrap();
            }
        }
    }
    if different.len() > SHOWN_MAX {
        writeln!(text, "and {} more", different.len() - SHOWN_MAX).unwrap();
    }
    (!text.is_empty()).then_some(text)
}

#[test]
fn every_transcript_plays_as_written() {
    let mut wrong = Vec::new();
    for (name, expected) in transcripts() {
        let (actual, _) = play(&expected, Broker::Whole);
        if actual != expected {
            if std::env::var_os("UPDATE").is_some() {
                std::fs::write(folder().join(format!("{name}.txt")), &actual).unwrap();
                continue;
            }
            wrong.push(format!("{name}:\n{}", first_difference(&expected, &actual)));
        }
    }
    assert!(wrong.is_empty(), "UPDATE=1 rewrites them, if that is what should happen:\n{}", wrong.join("\n"));
}

pub(crate) fn first_difference(expected: &str, actual: &str) -> String {
    let mut lines = expected.lines().zip(actual.lines()).enumerate();
    match lines.find(|(_, (e, a))| e != a) {
        Some((i, (e, a))) => format!("line {}\n  expected {e}\n  actual   {a}", i + 1),
        None => "one ends before the other".into(),
    }
}

/// One file shows why each rule is needed: the inputs of each transcript whose outcome changes when a rule that the
/// transcript needs is off.
#[test]
fn a_transcript_changes_when_a_rule_that_it_needs_is_off() {
    let mut table = String::new();
    for (name, script) in transcripts() {
        // Played, not as it is written: a run that rewrites both files needs no second one.
        let (expected, _) = play(&script, Broker::Whole);
        for need in needs(&expected) {
            let (actual, _) = play(&expected, Broker::Without(off(need)));
            let instead = otherwise(&expected, &actual).unwrap_or_else(|| panic!("{name} doesn't need {need}"));
            writeln!(table, "{name} without {need}\n{instead}").unwrap();
        }
    }
    check("rules-off.txt", &table);
}

#[test]
fn a_transcript_changes_when_a_guard_that_it_needs_only_observes() {
    let observable = |name: &str| GUARDS.iter().any(|g| g.name == name && g.observable);
    for (name, expected) in transcripts() {
        for guard in needs(&expected).into_iter().filter(|n| observable(n)) {
            let (actual, _) = play(&expected, Broker::Observing(guard));
            assert!(otherwise(&expected, &actual).is_some(), "{name} doesn't need {guard}");
        }
    }
}

#[test]
fn every_rule_and_every_guard_is_needed_by_a_transcript() {
    let all = transcripts();
    let names = GUARDS.iter().map(|g| g.name).chain(Rule::ALL.iter().map(|r| r.word()));
    let unneeded: Vec<&str> =
        names.filter(|name| !all.iter().any(|(_, script)| needs(script).contains(name))).collect();
    assert!(unneeded.is_empty(), "no transcript needs {unneeded:?}");
}

#[test]
fn every_incident_needs_a_rule_and_says_what_happens_without_it() {
    for (name, script) in transcripts().iter().filter(|(name, _)| name.starts_with("incident-")) {
        let lines: Vec<&str> = script.lines().filter(|l| l.starts_with("# needs:")).collect();
        assert!(!lines.is_empty(), "{name} names no rule that closes it");
        assert!(lines.iter().all(|l| l.contains('(')), "{name} doesn't say what happens without it");
    }
}

#[test]
fn facts_alone_rebuild_the_state() {
    for (name, script) in transcripts() {
        let (_, world) = play(&script, Broker::Whole);
        let mut replayed = Core::default();
        for entry in &world.log {
            replayed.replay(entry).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
        assert!(replayed.state() == world.core.state(), "{name}: the facts amount to another state");
        let bytes = postcard::to_allocvec(world.core.state()).unwrap();
        let restored: lastword_core::State = postcard::from_bytes(&bytes).unwrap();
        assert!(&restored == world.core.state(), "{name}: a snapshot loses something");
    }
}

/// Plays every transcript once more with time passing between its lines and closed records forgotten at once: nothing
/// forgotten is looked up, and the facts still rebuild the state.
#[test]
fn nothing_forgotten_is_looked_up_however_time_walks() {
    const MINUTE: u64 = 60_000;
    const DAY: u64 = 86_400_000;
    for (retention_ms, step_ms) in [(1, 2), (1_000, 5_000), (MINUTE, 10 * MINUTE), (DAY, 3 * DAY), (7 * DAY, 30 * DAY)]
    {
        for (name, script) in transcripts() {
            let (_, world) = play(&script, Broker::Walking { retention_ms, step_ms });
            let mut replayed = Core::default();
            for entry in &world.log {
                replayed.replay(entry).unwrap_or_else(|e| panic!("{name}: {e}"));
            }
            assert!(replayed.state() == world.core.state(), "{name}: the facts amount to another state");
        }
    }
}

/// Only decisions can be switched off: the fold has no rule that could be.
#[test]
fn facts_alone_rebuild_the_state_whatever_rule_is_off() {
    for (name, script) in transcripts() {
        for need in needs(&script) {
            let (_, world) = play(&script, Broker::Without(off(need)));
            let mut replayed = Core::default();
            for entry in &world.log {
                replayed.replay(entry).unwrap_or_else(|e| panic!("{name} without {need}: {e}"));
            }
            assert!(replayed.state() == world.core.state(), "{name} without {need}: the facts amount to another state");
        }
    }
}
