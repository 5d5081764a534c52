//! Random streams of leaders that know nothing of each other, read by the state machine and by a naive model.

use std::sync::Arc;

use lastword_facts::ids::{AgentId, TurnId};
use lastword_facts::{Entry, Fact, Seq, Time};
use proptest::prelude::*;

use super::*;
use crate::log::chain::Row;

/// What happens next in the stream.
#[derive(Clone, Debug)]
enum Event {
    /// A leader claims an epoch that is this much above (or not above) the newest.
    Claim(i64),
    /// The leader of the n-th newest claim writes a commit of so many entries in so many parts, all but the last few.
    Commit { leader: usize, entries: u64, parts: u16, missing: u16 },
    /// The leader of the n-th newest claim writes its last commit again.
    Again { leader: usize },
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        1 => (-2_i64..4).prop_map(Event::Claim),
        4 => (0_usize..3, 1_u64..5, 1_u16..5, 0_u16..3)
            .prop_map(|(leader, entries, parts, missing)| Event::Commit { leader, entries, parts, missing }),
        1 => (0_usize..3).prop_map(|leader| Event::Again { leader }),
    ];
    prop::collection::vec(event, 0..40)
}

/// A leader as it knows itself. An old one goes on from what it knew when it was replaced.
#[derive(Clone)]
struct Leader {
    epoch: u64,
    batch: u64,
    last: Seq,
    hash: Hash,
    wrote: Vec<Vec<u8>>,
}

fn entry(n: u64, epoch: u64) -> Entry {
    let fact = Fact::Late { turn: TurnId(n), agent: AgentId(1), body: format!("{n} of epoch {epoch}").into() };
    Entry { at: Time(n), grant: None, fact }
}

impl Leader {
    /// Returns the parts of its next commit, a row per entry, and the entries.
    fn commit(&self, entries: u64, parts: u16) -> (Vec<Vec<u8>>, Vec<(Seq, Entry)>, Hash) {
        let (mut rows, mut all, mut hash) = (Vec::new(), Vec::new(), self.hash);
        for n in self.last.0 + 1..=self.last.0 + entries {
            let entry = entry(n, self.epoch);
            let mut blob = Vec::new();
            frame::encode(&mut blob, &Arc::new(entry.clone())).unwrap();
            hash = Row { first: Seq(n), count: 1, epoch: self.epoch, blob: &blob }.hash(&hash);
            rows.push(StoredRow { first: Seq(n), count: 1, epoch: self.epoch, hash, blob });
            all.push((Seq(n), entry));
        }
        let bytes = record::commit(&rows).unwrap();
        let size = bytes.len().div_ceil(usize::from(parts));
        let chunks: Vec<_> = bytes.chunks(size).collect();
        let parts = u16::try_from(chunks.len()).unwrap();
        let (first, last) = (Seq(self.last.0 + 1), Seq(self.last.0 + entries));
        let head = |part| Head { epoch: self.epoch, batch: self.batch + 1, part, parts, first, last, hash };
        ((0..parts).zip(chunks).map(|(part, chunk)| head(part).message(chunk)).collect(), all, hash)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_counts_of_two_leaders_commits_is_what_a_model_says(events in events()) {
        // The model: the newest claim's leader alone adds to the log, and only by whole commits, each once.
        let mut stream: Vec<(Subject, Vec<u8>)> = Vec::new();
        let mut model: Vec<(Seq, Entry)> = Vec::new();
        let mut leaders: Vec<Leader> = Vec::new();
        for event in events {
            match event {
                Event::Claim(above) => {
                    let newest = leaders.last().map_or(0, |leader| leader.epoch);
                    let epoch = newest.saturating_add_signed(above);
                    let start = EpochStart { epoch, node: "n".into(), attempt: "a".into(), importing: false };
                    stream.push((Subject::Epoch, start.message().unwrap()));
                    if epoch > newest {
                        let (last, hash) = leaders.last().map_or((Seq(0), GENESIS), |leader| (leader.last, leader.hash));
                        leaders.push(Leader { epoch, batch: 0, last, hash, wrote: Vec::new() });
                    }
                }
                Event::Commit { leader: nth, entries, parts, missing } => {
                    let Some(at) = leaders.len().checked_sub(nth + 1) else { continue };
                    let (messages, all, hash) = leaders[at].commit(entries, parts);
                    let there = messages.len().saturating_sub(usize::from(missing));
                    stream.extend(messages.iter().take(there).map(|message| (Subject::Log, message.clone())));
                    let leader = &mut leaders[at];
                    leader.batch += 1;
                    if there == messages.len() {
                        (leader.last, leader.hash, leader.wrote) = (Seq(leader.last.0 + entries), hash, messages);
                        if nth == 0 {
                            model.extend(all);
                        }
                    }
                }
                Event::Again { leader: nth } => {
                    let Some(at) = leaders.len().checked_sub(nth + 1) else { continue };
                    stream.extend(leaders[at].wrote.iter().map(|message| (Subject::Log, message.clone())));
                }
            }
        }
        let (mut tail, mut read, mut counted) = (Tail::default(), Vec::new(), 0);
        let mut settled = Vec::new();
        for (at, (subject, message)) in (1..).zip(&stream) {
            match tail.feed(at, *subject, message).unwrap() {
                Step::Commit(commit) => {
                    read.extend(commit.entries);
                    counted += 1;
                }
                Step::Began(_) | Step::Part | Step::Dropped => {}
            }
            settled.push((tail.clone(), tail.settled(), read.len()));
        }
        prop_assert_eq!(&read, &model);
        prop_assert!(counted <= stream.len());
        // A mirror that is opened again goes on from what was settled, with the same result.
        for (Tail { epoch, batch, last, hash, row_epoch, .. }, from, so_far) in settled {
            let mut again = Tail { at: from, epoch, batch, last, hash, row_epoch, ..Tail::default() };
            let mut read = model[..so_far].to_vec();
            for (at, (subject, message)) in (from + 1..).zip(&stream[usize::try_from(from).unwrap()..]) {
                if let Step::Commit(commit) = again.feed(at, *subject, message).unwrap() {
                    read.extend(commit.entries);
                }
            }
            prop_assert_eq!(&read, &model);
        }
    }

    #[test]
    fn a_changed_bit_is_an_error_or_a_message_that_does_not_count(entries in 1_u64..4, parts in 1_u16..4, bit in any::<prop::sample::Index>()) {
        let start = EpochStart { epoch: 3, node: "n".into(), attempt: "a".into(), importing: false };
        let leader = Leader { epoch: 3, batch: 0, last: Seq(0), hash: GENESIS, wrote: Vec::new() };
        let (mut messages, _, _) = leader.commit(entries, parts);
        let bits: usize = messages.iter().map(|message| message.len() * 8).sum();
        let mut bit = bit.index(bits);
        for message in &mut messages {
            if bit < message.len() * 8 {
                message[bit / 8] ^= 1 << (bit % 8);
                break;
            }
            bit -= message.len() * 8;
        }
        let mut tail = Tail::default();
        tail.feed(1, Subject::Epoch, &start.message().unwrap()).unwrap();
        for (at, message) in (2..).zip(&messages) {
            match tail.feed(at, Subject::Log, message) {
                // A greater batch number changes nothing of what counts.
                Ok(Step::Commit(commit)) => prop_assert_eq!(commit.entries.len() as u64, entries),
                Ok(Step::Part | Step::Dropped) => {}
                Ok(Step::Began(start)) => prop_assert!(false, "{start:?}"),
                Err(_) => return Ok(()),
            }
        }
    }

    #[test]
    fn no_bytes_make_it_panic(messages in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..90)), 0..8)) {
        let mut tail = Tail::default();
        for (at, (epoch, mut message)) in (1..).zip(messages) {
            if let Some(first) = message.first_mut() {
                *first = 1;
            }
            let subject = if epoch { Subject::Epoch } else { Subject::Log };
            if tail.feed(at, subject, &message).is_err() {
                return Ok(());
            }
        }
    }
}

#[test]
fn a_message_that_is_missing_is_an_error() {
    let mut tail = Tail::default();
    let start = EpochStart { epoch: 1, node: "n".into(), attempt: "a".into(), importing: false }.message().unwrap();
    assert_eq!(tail.feed(2, Subject::Epoch, &start).unwrap_err().at, 2);
    tail.feed(1, Subject::Epoch, &start).unwrap();
    let leader = Leader { epoch: 1, batch: 0, last: Seq(0), hash: GENESIS, wrote: Vec::new() };
    let (parts, ..) = leader.commit(3, 3);
    assert_eq!(tail.feed(2, Subject::Log, &parts[0]), Ok(Step::Part));
    let refused = tail.feed(3, Subject::Log, &parts[2]).unwrap_err();
    assert!(refused.problem.contains("part 1 of batch 1"), "{refused:?}");
    // Of an epoch that nobody claimed.
    let leader = Leader { epoch: 2, ..leader };
    let refused = tail.feed(3, Subject::Log, &leader.commit(1, 1).0[0]).unwrap_err();
    assert!(refused.problem.contains("has not begun"), "{refused:?}");
}
