//! Golden transcripts: the worked examples and the incidents, and the proof that each guard is needed.

use std::path::{Path, PathBuf};

use lastword_proto::Core;
use lastword_proto::guards::GUARDS;

use crate::script::play;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/transcripts")
}

fn transcripts() -> Vec<(String, String)> {
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

/// Guards that a transcript says it needs, in lines `# needs: GUARD …`.
fn needs(script: &str) -> Vec<&str> {
    script.lines().filter_map(|l| l.strip_prefix("# needs:")).flat_map(str::split_whitespace).collect()
}

#[test]
fn every_transcript_plays_as_written() {
    let mut wrong = Vec::new();
    for (name, expected) in transcripts() {
        let (actual, _) = play(&expected, &[]);
        if actual != expected {
            if std::env::var_os("UPDATE").is_some() {
                std::fs::write(folder().join(format!("{name}.txt")), &actual).unwrap();
            }
            wrong.push(format!("{name}:\n{}", first_difference(&expected, &actual)));
        }
    }
    assert!(wrong.is_empty(), "UPDATE=1 rewrites them, if that is what should happen:\n{}", wrong.join("\n"));
}

fn first_difference(expected: &str, actual: &str) -> String {
    let mut lines = expected.lines().zip(actual.lines()).enumerate();
    match lines.find(|(_, (e, a))| e != a) {
        Some((i, (e, a))) => format!("line {}\n  expected {e}\n  actual   {a}", i + 1),
        None => "one ends before the other".into(),
    }
}

#[test]
fn a_transcript_changes_when_a_rule_that_it_needs_is_off() {
    for (name, expected) in transcripts() {
        for guard in needs(&expected) {
            let (actual, _) = play(&expected, &[guard]);
            let observed = |line: &&str| !line.trim_start().starts_with("observed:");
            let without: Vec<&str> = actual.lines().filter(observed).collect();
            assert_ne!(without, expected.lines().collect::<Vec<_>>(), "{name} doesn't need {guard}");
        }
    }
}

#[test]
fn every_guard_that_can_be_off_is_needed_by_a_transcript() {
    let all = transcripts();
    for guard in GUARDS.iter().filter(|g| g.observable) {
        assert!(
            all.iter().any(|(_, script)| needs(script).contains(&guard.name)),
            "no transcript needs {}",
            guard.name
        );
    }
}

#[test]
fn facts_alone_rebuild_the_state() {
    for (name, script) in transcripts() {
        let (_, world) = play(&script, &[]);
        let mut replayed = Core::default();
        for entry in &world.log {
            replayed.replay(entry).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
        assert!(replayed.state() == world.core.state(), "{name}: the facts amount to another state");
        let bytes = postcard::to_allocvec(world.core.state()).unwrap();
        let restored: lastword_proto::State = postcard::from_bytes(&bytes).unwrap();
        assert!(&restored == world.core.state(), "{name}: a snapshot loses something");
    }
}
