//! One value from a job to the task that waits for it. A job of any type is then one of the same type to the queue, so
//! that what runs jobs is compiled once.

use std::sync::{Arc, Mutex, PoisonError};

/// The end that takes the value in.
pub(crate) struct PutEnd<T>(Arc<Mutex<Option<T>>>);

/// The end that gives it out.
pub(crate) struct TakeEnd<T>(Arc<Mutex<Option<T>>>);

/// Returns both ends.
pub(crate) fn handed_over<T>() -> (PutEnd<T>, TakeEnd<T>) {
    let value = Arc::default();
    (PutEnd(Arc::clone(&value)), TakeEnd(value))
}

impl<T> PutEnd<T> {
    pub(crate) fn set(self, value: T) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
    }
}

impl<T> TakeEnd<T> {
    /// Returns the value; `None` if the job did not run to its end.
    pub(crate) fn take(self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
