//! The locks, channels and threads of the broker. They are those of `std`; with the feature `interleavings`, which only
//! tests have, they are those of a scheduler that decides which thread runs after each of their operations.

#[cfg(feature = "interleavings")]
pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard, mpsc};
#[cfg(feature = "interleavings")]
pub use shuttle::thread;
#[cfg(not(feature = "interleavings"))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, mpsc};
#[cfg(not(feature = "interleavings"))]
pub use std::thread;
