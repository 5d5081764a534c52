//! The contract of a log, checked against every store: of this crate's tests, those of the log on JetStream, or those of the others.

use std::sync::Arc;

use lastword_facts::Seq;
use lastword_store::{AppendError, Base, Log};

use crate::sample::{long, note, notes};
use crate::stores::each_store;

/// A store under test, initially empty. A new store implements this and joins a list of [`each_store`].
pub(crate) trait Conforms {
    /// Opens the log; opening it again after dropping the first one is a restart.
    fn open(&self) -> Box<dyn Log>;
}

/// Runs `check` on an empty log of every store.
fn each(check: impl Fn(&mut dyn Log)) {
    each_store(|store| check(store.open().as_mut()));
}

#[test]
fn a_new_log_is_empty() {
    each(|log| {
        assert_eq!(log.reader().last().unwrap(), Seq(0));
        assert_eq!(log.reader().read(Seq(1), 10).unwrap(), []);
        assert_eq!(log.reader().entry(Seq(1)).unwrap(), None);
        assert!(log.snapshots().load().unwrap().is_none());
    });
}

#[test]
fn what_was_appended_is_read_in_order_from_anywhere() {
    each(|log| {
        let epoch = log.begin_epoch().unwrap();
        assert_eq!(log.append(epoch, Seq(0), &notes(1..=3)).unwrap(), Seq(3));
        assert_eq!(log.append(epoch, Seq(3), &notes(4..=4)).unwrap(), Seq(4));
        assert_eq!(log.append(epoch, Seq(4), &notes(5..=9)).unwrap(), Seq(9));
        for from in 0..=10 {
            for max in [0, 1, 3, 100] {
                let expected: Vec<_> = (from.max(1)..=9).take(max).map(|n| (Seq(n), note(n))).collect();
                assert_eq!(log.reader().read(Seq(from), max).unwrap(), expected, "from {from}, {max}");
                assert_eq!(log.reader().read(Seq(from), max).unwrap(), expected, "from {from}, {max}");
            }
        }
    });
}

#[test]
fn a_single_entry_is_read_from_within_a_batch() {
    each(|log| {
        let epoch = log.begin_epoch().unwrap();
        log.append(epoch, Seq(0), &notes(1..=100)).unwrap();
        log.append(epoch, Seq(100), &notes(101..=101)).unwrap();
        let reader = log.reader();
        for n in [1, 57, 100, 101] {
            assert_eq!(reader.entry(Seq(n)).unwrap(), Some(note(n)));
        }
        assert_eq!(reader.entry(Seq(0)).unwrap(), None);
        assert_eq!(reader.entry(Seq(102)).unwrap(), None);
    });
}

#[test]
fn an_append_that_expects_another_end_conflicts_and_writes_nothing() {
    each(|log| {
        let epoch = log.begin_epoch().unwrap();
        log.append(epoch, Seq(0), &notes(1..=2)).unwrap();
        for wrong in [Seq(0), Seq(1), Seq(3)] {
            assert_eq!(log.append(epoch, wrong, &notes(9..=9)), Err(AppendError::Conflict { actual: Seq(2) }));
        }
        assert_eq!(log.reader().last().unwrap(), Seq(2));
        assert_eq!(log.append(epoch, Seq(2), &notes(3..=3)).unwrap(), Seq(3), "a conflict ends nothing");
    });
}

#[test]
fn an_older_epoch_is_fenced_and_writes_nothing() {
    each(|log| {
        let old = log.begin_epoch().unwrap();
        log.append(old, Seq(0), &notes(1..=1)).unwrap();
        let new = log.begin_epoch().unwrap();
        assert!(new > old);
        assert_eq!(log.append(old, Seq(1), &notes(2..=2)), Err(AppendError::Fenced { epoch: new }));
        assert_eq!(log.append(new, Seq(1), &notes(2..=2)).unwrap(), Seq(2));
        assert_eq!(log.append(old, Seq(2), &notes(3..=3)), Err(AppendError::Fenced { epoch: new }));
        assert_eq!(log.reader().last().unwrap(), Seq(2));
    });
}

#[test]
fn nobody_appends_without_having_taken_an_epoch() {
    each(|log| {
        let epoch = log.begin_epoch().unwrap();
        assert_eq!(log.append(epoch + 1, Seq(0), &notes(1..=1)), Err(AppendError::Fenced { epoch }));
    });
}

#[test]
fn an_empty_append_changes_nothing() {
    each(|log| {
        let epoch = log.begin_epoch().unwrap();
        assert_eq!(log.append(epoch, Seq(0), &[]).unwrap(), Seq(0));
        log.append(epoch, Seq(0), &notes(1..=1)).unwrap();
        assert_eq!(log.append(epoch, Seq(1), &[]).unwrap(), Seq(1));
    });
}

#[test]
fn a_large_batch_and_long_bodies_are_appended_whole() {
    each(|log| {
        let epoch = log.begin_epoch().unwrap();
        assert_eq!(log.append(epoch, Seq(0), &notes(1..=5000)).unwrap(), Seq(5000));
        let large: Vec<_> = (5001..=5010).map(long).map(Arc::new).collect();
        assert_eq!(log.append(epoch, Seq(5000), &large).unwrap(), Seq(5010));
        assert_eq!(log.append(epoch, Seq(5010), &notes(5011..=5011)).unwrap(), Seq(5011));
        let reader = log.reader();
        assert_eq!(reader.entry(Seq(4999)).unwrap(), Some(note(4999)));
        assert_eq!(reader.entry(Seq(5007)).unwrap(), Some(long(5007)));
        // Long entries come in several reads.
        let mut read = 0;
        loop {
            let some = reader.read(Seq(read + 1), 10_000).unwrap();
            let Some((last, _)) = some.last() else { break };
            assert_eq!(last.0, read + some.len() as u64, "none is left out");
            read = last.0;
        }
        assert_eq!(read, 5011);
    });
}

#[test]
fn a_reader_in_another_thread_sees_what_was_appended_after_it_was_made() {
    each(|log| {
        let reader = log.reader();
        let epoch = log.begin_epoch().unwrap();
        log.append(epoch, Seq(0), &notes(1..=3)).unwrap();
        let clone = Arc::clone(&reader);
        let seen = std::thread::spawn(move || (clone.last().unwrap(), clone.entry(Seq(2)).unwrap()));
        assert_eq!(seen.join().unwrap(), (Seq(3), Some(note(2))));
        assert_eq!(reader.read(Seq(3), 5).unwrap(), [(Seq(3), note(3))]);
    });
}

#[test]
fn the_last_snapshot_counts_and_one_ahead_of_the_log_does_not() {
    each(|log| {
        let epoch = log.begin_epoch().unwrap();
        log.append(epoch, Seq(0), &notes(1..=3)).unwrap();
        log.snapshots().save(Seq(2), b"two").unwrap();
        log.snapshots().save(Seq(3), b"three").unwrap();
        assert_eq!(log.snapshots().load().unwrap(), Some((Seq(3), b"three".to_vec())));
        log.snapshots().save(Seq(4), b"of another log").unwrap();
        assert_eq!(log.snapshots().load().unwrap(), None);
    });
}

#[test]
fn everything_is_there_after_a_restart() {
    each_store(|store| {
        let mut log = store.open();
        let first = log.begin_epoch().unwrap();
        log.append(first, Seq(0), &notes(1..=300)).unwrap();
        log.snapshots().save(Seq(300), b"state").unwrap();
        drop(log);
        let mut log = store.open();
        assert_eq!(log.reader().last().unwrap(), Seq(300));
        assert_eq!(log.snapshots().load().unwrap(), Some((Seq(300), b"state".to_vec())));
        let second = log.begin_epoch().unwrap();
        assert!(second > first, "an epoch is taken once, over all restarts");
        assert_eq!(log.append(second, Seq(300), &notes(301..=301)).unwrap(), Seq(301));
        assert_eq!(log.reader().entry(Seq(300)).unwrap(), Some(note(300)));
    });
}

#[test]
fn what_moves_to_the_archive_is_read_there_and_put_back() {
    each(|log| {
        let epoch = log.begin_epoch().unwrap();
        for range in [1..=3, 4..=4, 5..=7, 8..=9] {
            log.append(epoch, Seq(range.start() - 1), &notes(range)).unwrap();
        }
        let (archive, reader) = (log.archive(), log.reader());
        assert_eq!((archive.segments().unwrap(), archive.base().unwrap()), (Vec::new(), None));
        let base = |at| Base { at: Seq(at), state: b"state" };
        assert!(archive.seal(Seq(0), u64::MAX, base(9)).unwrap().is_none(), "nothing to move");
        let all = archive.bytes().unwrap();
        let (segment, bytes) = archive.seal(Seq(4), u64::MAX, base(9)).unwrap().unwrap();
        assert_eq!((segment.first, segment.end.at, segment.until), (Seq(1), Seq(4), note(4).at));
        assert!(bytes > 0 && archive.bytes().unwrap() == all - bytes);
        assert_eq!((reader.first().unwrap(), reader.last().unwrap()), (Seq(5), Seq(9)));
        assert_eq!(reader.entry(Seq(4)).unwrap(), None);
        assert_eq!(reader.entry(Seq(5)).unwrap(), Some(note(5)));
        assert_eq!(reader.read(Seq(1), 2).unwrap(), [(Seq(5), note(5)), (Seq(6), note(6))]);
        assert_eq!(archive.base().unwrap(), Some((Seq(9), b"state".to_vec())));
        // Neither the last batch nor what is behind the base leaves the log.
        assert_eq!(archive.seal(Seq(9), u64::MAX, base(7)).unwrap().unwrap().0.end.at, Seq(7));
        archive.save_base(Seq(8), b"newer").unwrap();
        assert_eq!(archive.base().unwrap(), Some((Seq(8), b"newer".to_vec())));
        assert!(archive.seal(Seq(9), u64::MAX, base(9)).unwrap().is_none_or(|(s, _)| s.end.at < Seq(9)));
        let mut read = Vec::new();
        archive.walk(&mut |seq, entry| read.push((seq, entry.clone()))).unwrap();
        assert!(read.len() >= 7);
        assert!(read.iter().enumerate().all(|(n, (seq, entry))| seq.0 == n as u64 + 1 && *entry == note(seq.0)));
        log.append(epoch, Seq(9), &notes(10..=10)).unwrap();
        while archive.put_back().unwrap().is_some() {}
        assert_eq!((reader.first().unwrap(), archive.bytes().unwrap() > all), (Seq(1), true));
        assert_eq!(reader.read(Seq(1), 20).unwrap(), (1..=10).map(|n| (Seq(n), note(n))).collect::<Vec<_>>());
    });
}
