//! The log of facts, which is the whole truth of a workspace, and a read model beside it, which is not.
//!
//! [`Log`] is one contract with one conformance suite: [`SqliteLog`] keeps it on disk, [`MemoryLog`] for
//! tests and the simulator. A [`Reader`] reads either from other threads. [`Index`] follows the log outside
//! the acknowledging transaction and can be deleted at any time; [`verify()`] proves that nothing was altered
//! or removed, and the [`witness`] recounts what the facts amount to.

mod agent_index;
mod aggregates;
mod chain;
mod conversation_index;
mod dir;
mod frame;
mod index;
mod log;
mod memory;
mod packed;
mod pool;
mod query;
mod reader;
mod snapshot;
mod sqlite;
mod verify;
pub mod witness;

pub use crate::aggregates::{CodeCount, Count, Peak, Sums};
pub use crate::dir::{
    DirLock, FILE_DATABASE, FILE_HEAD, FILE_INDEX, FILE_LOCK, FILE_SNAPSHOT, INDEX_VERSION, LOG_VERSION,
};
pub use crate::index::{Index, IndexError};
pub use crate::log::{AppendError, Log, OpenError, ReadError, SnapshotError};
pub use crate::memory::{InjectedFault, MemoryLog};
pub use crate::query::{Cursor, Filter, IndexReader, PostFilter, RefusalFilter};
pub use crate::reader::Reader;
pub use crate::snapshot::{load as load_snapshot, save as save_snapshot};
pub use crate::sqlite::SqliteLog;
pub use crate::verify::{Anchor, Broken, Problem, Verified, VerifyError, verify};

/// The framing of a batch, public for the stored-format test and for tools that read a row by themselves.
pub mod format {
    pub use crate::frame::{FrameError, decode, encode};
}
