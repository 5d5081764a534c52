//! The stores that need no server of NATS, as the suite sees them, and the faults of the one in memory.

use lastword_facts::Seq;
use lastword_store::{AppendError, DataDir, InjectedFault, Log, MemoryLog};
use tempfile::TempDir;

use crate::conformance::Conforms;
use crate::sample::notes;

impl Conforms for MemoryLog {
    fn open(&self) -> Box<dyn Log> {
        Box::new(self.clone())
    }
}

impl Conforms for TempDir {
    fn open(&self) -> Box<dyn Log> {
        DataDir::at(self.path()).open().unwrap()
    }
}

/// Runs `check` on every store.
pub(crate) fn each_store(check: impl Fn(&dyn Conforms)) {
    check(&MemoryLog::new());
    check(&tempfile::tempdir().unwrap());
}

#[test]
fn an_unknown_outcome_is_found_out_by_reading_the_tail() {
    for (fault, written) in [(InjectedFault::AmbiguousWritten, 2), (InjectedFault::AmbiguousLost, 1)] {
        let mut log = MemoryLog::new();
        let epoch = log.begin_epoch().unwrap();
        log.append(epoch, Seq(0), &notes(1..=1)).unwrap();
        log.fail_next(fault);
        assert!(matches!(log.append(epoch, Seq(1), &notes(2..=2)), Err(AppendError::Ambiguous { .. })));
        assert_eq!(log.reader().last().unwrap(), Seq(written));
        assert_eq!(log.append(epoch, Seq(written), &notes(3..=3)).unwrap(), Seq(written + 1));
    }
}

#[test]
fn injected_faults_come_one_append_each() {
    let mut log = MemoryLog::new();
    let epoch = log.begin_epoch().unwrap();
    log.fail_next(InjectedFault::Conflict);
    log.fail_next(InjectedFault::Full);
    log.fail_next(InjectedFault::Fatal);
    assert!(matches!(log.append(epoch, Seq(0), &notes(1..=1)), Err(AppendError::Conflict { .. })));
    assert!(matches!(log.append(epoch, Seq(0), &notes(1..=1)), Err(AppendError::Full { .. })));
    assert!(matches!(log.append(epoch, Seq(0), &notes(1..=1)), Err(AppendError::Fatal { .. })));
    assert_eq!(log.append(epoch, Seq(0), &notes(1..=1)).unwrap(), Seq(1));
}
