//! A log in memory, for tests and the simulator, with injected faults.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lastword_proto::{Entry, Seq};

use crate::log::{AppendError, Log, LogReader, ReadError, SnapshotError, Snapshots};

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

/// The log that the handles share.
#[derive(Default)]
struct MemoryEntries {
    entries: Vec<Arc<Entry>>,
    epoch: u64,
    snapshot: Option<(Seq, Vec<u8>)>,
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
        Seq(self.entries.len() as u64)
    }

    fn entry(&self, seq: Seq) -> Option<&Entry> {
        self.entries.get(usize::try_from(seq.0.checked_sub(1)?).ok()?).map(Arc::as_ref)
    }

    fn read(&self, from: Seq, max: usize) -> Vec<(Seq, Entry)> {
        let from = from.0.max(1);
        let skipped = usize::try_from(from - 1).unwrap_or(usize::MAX);
        (from..).map(Seq).zip(self.entries.iter().skip(skipped).map(|entry| Entry::clone(entry))).take(max).collect()
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
                shared.entries.extend_from_slice(entries);
                return Err(AppendError::Ambiguous { reason: reason() });
            }
        }
        shared.entries.extend_from_slice(entries);
        Ok(shared.last())
    }

    fn reader(&self) -> Arc<dyn LogReader> {
        Arc::new(self.clone())
    }

    fn snapshots(&self) -> Arc<dyn Snapshots> {
        Arc::new(self.clone())
    }
}

impl LogReader for MemoryLog {
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
