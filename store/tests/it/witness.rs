//! The witness on logs that were written before its rules.

use std::fs;
use std::path::PathBuf;

use lastword_core::Core;
use lastword_facts::{Entry, Fact};
use lastword_store::format::decode;
use lastword_witness::Witness;

/// Returns the first 500 entries of a random history, as written by the last version of the first edition.
fn first_edition() -> Vec<Entry> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/first_edition.log");
    let bytes = fs::read(path).unwrap();
    let mut rest = &bytes[..];
    let mut entries = Vec::new();
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let (entry, behind) = behind.split_at(u32::from_le_bytes(*length) as usize);
        entries.push(decode(entry).unwrap());
        rest = behind;
    }
    entries
}

#[test]
fn a_log_of_the_first_edition_is_recounted_by_its_own_rules() {
    let entries = first_edition();
    assert_eq!(entries.len(), 500);
    let (mut witness, mut core) = (Witness::default(), Core::default());
    for entry in &entries {
        witness.see(entry);
        assert_eq!(core.replay(entry), Ok(()), "the fold reads it as it was folded");
    }
    assert_eq!(witness.broken(), []);
    assert!(witness.peaks().waking > 2, "there was work");
}

#[test]
fn a_root_of_an_agent_that_no_human_attends_is_noticed() {
    // Without the humans' inputs no agent acts, and the log continues for months.
    for (days, kept) in [(0, true), (15, false)] {
        let mut witness = Witness::default();
        let mut entries = first_edition();
        let root = |entry: &Entry| matches!(entry.fact, Fact::RootStarted(_));
        let place = entries.iter().position(root).unwrap();
        for entry in &mut entries[place - 2..] {
            entry.at = entry.at.plus(days * 86_400_000);
        }
        for entry in &entries[..=place] {
            witness.see(entry);
        }
        let unattended = |broken: &str| broken == "agents start nothing where no human acted for long";
        assert_eq!(!witness.broken().iter().any(|broken| unattended(broken.promise)), kept, "{days} days");
    }
}
