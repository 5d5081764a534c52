//! Wrong orders that `interleavings_tests.rs` puts into the broker, to show that its models notice them.
//!
//! In the shipped program [`injected`] is `false` at compile time.

/// A wrong order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The queue wakes the judge before the command is queued.
    WakeBeforePush,
    /// The queue asks whether the judge waits for the writer before it marks the writer as idle.
    AskBeforeIdle,
    /// A writer becomes idle without a wake.
    IdleWithoutWake,
    /// The replies of a batch are released before it is appended.
    ReleaseBeforeAppend,
    /// The writer is marked as idle before the batch is appended.
    IdleBeforeAppend,
    /// A failure is recorded without waking a judge that waits for the writer.
    FailWithoutWake,
}

/// Returns whether a fault is injected.
#[cfg(not(all(test, feature = "interleavings")))]
pub(crate) const fn injected(_: Fault) -> bool {
    false
}

#[cfg(all(test, feature = "interleavings"))]
pub(crate) use testing::{injected, with};

#[cfg(all(test, feature = "interleavings"))]
mod testing {
    use std::cell::Cell;

    use crate::faults::Fault;

    thread_local! {
        // The scheduler runs all threads of a model on one thread of the system.
        static INJECTED: Cell<Option<Fault>> = const { Cell::new(None) };
    }

    pub(crate) fn injected(fault: Fault) -> bool {
        INJECTED.get() == Some(fault)
    }

    /// Runs a model with a fault.
    pub(crate) fn with<T>(fault: Fault, run: impl FnOnce() -> T) -> T {
        INJECTED.set(Some(fault));
        let result = run();
        INJECTED.set(None);
        result
    }
}
