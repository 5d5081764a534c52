//! A log in memory, for tests and the simulator, with injected faults.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lastword_facts::{Entry, Seq};

use crate::log::chain::GENESIS;
use crate::log::verify::Anchor;
use crate::log::{
    AppendError, Archive, ArchiveError, Base, Log, LogReader, ReadError, Segment, SnapshotError, Snapshots, first_of,
};

/// A fault of the next append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// As if another leader had appended; nothing is written.
    Conflict,
    /// The outcome is unknown, and nothing was written.
    AmbiguousLost,
    /// The outcome is unknown, and everything was written.
    AmbiguousWritten,
    /// The store is full; nothing is written.
    Full,
    /// The store fails; nothing is written.
    Fatal,
}

/// A log in memory. Clones are handles to the same log, like several brokers on one store.
#[derive(Clone, Default)]
pub struct MemoryLog(Arc<Mutex<MemoryEntries>>);

/// Entries with their positions, in order.
type Entries = Vec<(Seq, Arc<Entry>)>;

/// The log that the handles share.
#[derive(Default)]
struct MemoryEntries {
    /// In the order of their positions.
    entries: Entries,
    epoch: u64,
    snapshot: Option<(Seq, Vec<u8>)>,
    /// The segments that left, with their entries.
    sealed: Vec<(Segment, Entries)>,
    base: Option<(Seq, Vec<u8>)>,
    faults: VecDeque<InjectedFault>,
}

impl MemoryLog {
    /// Creates an empty log.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Injects `fault` into the next append; several calls queue up.
    pub fn fail_next(&self, fault: InjectedFault) {
        self.shared().faults.push_back(fault);
    }

    fn shared(&self) -> MutexGuard<'_, MemoryEntries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryEntries {
    fn last(&self) -> Seq {
        self.entries.last().map_or(Seq(0), |(seq, _)| *seq)
    }

    fn entry(&self, seq: Seq) -> Option<&Entry> {
        let at = self.entries.binary_search_by_key(&seq, |(seq, _)| *seq).ok()?;
        self.entries.get(at).map(|(_, entry)| entry.as_ref())
    }

    fn read(&self, from: Seq, max: usize) -> Vec<(Seq, Entry)> {
        let skipped = self.entries.partition_point(|(seq, _)| *seq < from);
        self.entries.iter().skip(skipped).map(|(seq, entry)| (*seq, Entry::clone(entry))).take(max).collect()
    }

    fn extend(&mut self, entries: &[Arc<Entry>]) {
        let first = first_of(self.last(), entries);
        self.entries.extend((first.0..).map(Seq).zip(entries.iter().cloned()));
    }
}

impl Log for MemoryLog {
    fn begin_epoch(&mut self) -> Result<u64, AppendError> {
        let mut shared = self.shared();
        shared.epoch += 1;
        Ok(shared.epoch)
    }

    fn append(&mut self, epoch: u64, expect: Seq, entries: &[Arc<Entry>]) -> Result<Seq, AppendError> {
        let mut shared = self.shared();
        if epoch != shared.epoch {
            return Err(AppendError::Fenced { epoch: shared.epoch });
        }
        if expect != shared.last() {
            return Err(AppendError::Conflict { actual: shared.last() });
        }
        let reason = || "injected by the test".to_owned();
        match shared.faults.pop_front() {
            None => {}
            Some(InjectedFault::Conflict) => return Err(AppendError::Conflict { actual: shared.last() }),
            Some(InjectedFault::AmbiguousLost) => return Err(AppendError::Ambiguous { reason: reason() }),
            Some(InjectedFault::Full) => return Err(AppendError::Full { reason: reason() }),
            Some(InjectedFault::Fatal) => return Err(AppendError::Fatal { reason: reason() }),
            Some(InjectedFault::AmbiguousWritten) => {
                shared.extend(entries);
                return Err(AppendError::Ambiguous { reason: reason() });
            }
        }
        shared.extend(entries);
        Ok(shared.last())
    }

    fn reader(&self) -> Arc<dyn LogReader> {
        Arc::new(self.clone())
    }

    fn archive(&self) -> Arc<dyn Archive> {
        Arc::new(self.clone())
    }

    fn snapshots(&self) -> Arc<dyn Snapshots> {
        Arc::new(self.clone())
    }
}

impl LogReader for MemoryLog {
    fn first(&self) -> Result<Seq, ReadError> {
        Ok(self.shared().sealed.last().map_or(Seq(1), |(segment, _)| Seq(segment.end.at.0 + 1)))
    }

    fn last(&self) -> Result<Seq, ReadError> {
        Ok(self.shared().last())
    }

    fn entry(&self, seq: Seq) -> Result<Option<Entry>, ReadError> {
        Ok(self.shared().entry(seq).cloned())
    }

    fn read(&self, from: Seq, max: usize) -> Result<Vec<(Seq, Entry)>, ReadError> {
        Ok(self.shared().read(from, max))
    }
}

impl Archive for MemoryLog {
    fn segments(&self) -> Result<Vec<Segment>, ArchiveError> {
        Ok(self.shared().sealed.iter().map(|(segment, _)| segment.clone()).collect())
    }

    fn bytes(&self) -> Result<u64, ArchiveError> {
        let length =
            |(_, entry): &(Seq, Arc<Entry>)| postcard::experimental::serialized_size(entry.as_ref()).unwrap_or(0);
        Ok(self.shared().entries.iter().map(length).sum::<usize>() as u64)
    }

    fn seal(&self, upto: Seq, _bytes_max: u64, base: Base<'_>) -> Result<Option<(Segment, u64)>, ArchiveError> {
        let before = self.bytes()?;
        let mut shared = self.shared();
        let upto = upto.min(base.at).min(Seq(shared.last().0.saturating_sub(1)));
        let count = shared.entries.partition_point(|(seq, _)| *seq <= upto);
        let entries: Vec<_> = shared.entries.drain(..count).collect();
        let (Some((first, _)), Some((last, entry))) = (entries.first(), entries.last()) else { return Ok(None) };
        let end = Anchor { at: *last, hash: GENESIS };
        let file = format!("{}-{}.segment", first.0, last.0);
        let segment = Segment { first: *first, end, until: entry.at, file, bytes: Some(0) };
        shared.base = Some((base.at, base.state.to_vec()));
        shared.sealed.push((segment.clone(), entries));
        drop(shared);
        Ok(Some((segment, before - self.bytes()?)))
    }

    fn base(&self) -> Result<Option<(Seq, Vec<u8>)>, SnapshotError> {
        Ok(self.shared().base.clone())
    }

    fn save_base(&self, at: Seq, state: &[u8]) -> Result<(), SnapshotError> {
        self.shared().base = Some((at, state.to_vec()));
        Ok(())
    }

    fn walk(&self, each: &mut dyn FnMut(Seq, &Entry)) -> Result<(), ArchiveError> {
        self.shared().sealed.iter().flat_map(|(_, entries)| entries).for_each(|(seq, entry)| each(*seq, entry));
        Ok(())
    }

    fn put_back(&self) -> Result<Option<Segment>, ArchiveError> {
        let mut shared = self.shared();
        let Some((segment, entries)) = shared.sealed.pop() else { return Ok(None) };
        shared.entries.splice(..0, entries);
        Ok(Some(segment))
    }
}

impl Snapshots for MemoryLog {
    fn save(&self, at: Seq, state: &[u8]) -> Result<(), SnapshotError> {
        self.shared().snapshot = Some((at, state.to_vec()));
        Ok(())
    }

    fn load(&self) -> Result<Option<(Seq, Vec<u8>)>, SnapshotError> {
        let shared = self.shared();
        Ok(shared.snapshot.clone().filter(|(at, _)| *at <= shared.last()))
    }

    fn delete(&self) -> Result<(), SnapshotError> {
        self.shared().snapshot = None;
        Ok(())
    }
}
