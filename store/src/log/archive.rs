//! The archive: the oldest part of a log, in compressed files beside it.
//!
//! ```text
//!   before   log 1 ─────────────────────────────────────► last
//!   after    segment 1 … 800   segment 801 … 1500   log 1501 ──► last
//!            a file each                            the hash chain goes on from the last segment's end
//! ```
//!
//! What the log keeps of a segment is its place and the hash at its end. So a walk over the log proves the rest without
//! the files, and the whole with them. A base, the state at some position behind the last segment, replaces the entries
//! that left.

use std::io;

use lastword_facts::{Entry, Seq, Time};

use crate::log::SnapshotError;
use crate::log::verify::Anchor;
use crate::rows::RowsError;

/// A part of the log that left it, in a file of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The position of its first entry.
    pub first: Seq,
    /// Its last entry, and the hash of the chain there.
    pub end: Anchor,
    /// The time of its last entry.
    pub until: Time,
    /// The name of its file in the archive's folder.
    pub file: String,
    /// The file's length in bytes; `None` if it isn't there.
    pub bytes: Option<u64>,
}

/// Why the archive can't be read or extended.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The file of a segment isn't there.
    #[error("{file} is not in the folder `archive` of the data directory: put it back there")]
    Missing {
        /// Its name.
        file: String,
    },
    /// A segment's file can't be read or written.
    #[error("{file}: {source}")]
    File {
        /// Its name.
        file: String,
        /// What is wrong with it.
        source: RowsError,
    },
    /// A segment's file holds another part than the log says.
    #[error("{file} holds another part of a log than the one that left this log")]
    Other {
        /// Its name.
        file: String,
    },
    /// The log can't be read or written.
    #[error("the log: {0}")]
    Log(String),
    /// What the nodes share can't be read or written.
    #[error("the archive in NATS: {0}")]
    Shared(String),
    /// The base can't be saved.
    #[error("the base: {0}")]
    Base(#[from] SnapshotError),
    /// The folder of the archive can't be used.
    #[error("the folder `archive` of the data directory: {0}")]
    Folder(#[from] io::Error),
}

/// The state from which the log is read after its first entries left it.
#[derive(Clone, Copy, Debug)]
pub struct Base<'a> {
    /// The position of the state.
    pub at: Seq,
    /// The encoded state.
    pub state: &'a [u8],
}

/// The part of a log that left it. One thread seals at a time.
pub trait Archive: Send + Sync {
    /// Returns the segments, oldest first.
    ///
    /// # Errors
    /// The log can't be read.
    fn segments(&self) -> Result<Vec<Segment>, ArchiveError>;

    /// Returns the length of the log's batches, without those in the archive, in bytes.
    ///
    /// # Errors
    /// The log can't be read.
    fn bytes(&self) -> Result<u64, ArchiveError>;

    /// Moves entries from the start of the log to a new segment: those up to `upto` that are whole batches, at most
    /// about `bytes_max` bytes, and never the last batch. `base` is the state at a position behind `upto`; it is durable
    /// before any entry leaves the log. Returns the segment and the bytes by which [`Archive::bytes`] shrinks; `None` if
    /// there is nothing to move.
    ///
    /// # Errors
    /// The file or the log can't be written; no entry has left the log then.
    fn seal(&self, upto: Seq, bytes_max: u64, base: Base<'_>) -> Result<Option<(Segment, u64)>, ArchiveError>;

    /// Stores what left this log where every node of a cluster finds it, and lets it leave what they share. A log on one
    /// machine has nothing to do. Repeat it after a failure: nothing is lost.
    ///
    /// # Errors
    /// The store can't be written or read.
    fn publish(&self) -> Result<(), ArchiveError> {
        Ok(())
    }

    /// Returns the newest base; `None` if there is none, or if it is damaged.
    ///
    /// # Errors
    /// The store can't be read.
    fn base(&self) -> Result<Option<(Seq, Vec<u8>)>, SnapshotError>;

    /// Replaces the base: the state at a position behind the last segment.
    ///
    /// # Errors
    /// The store can't be written; the base before it stays.
    fn save_base(&self, at: Seq, state: &[u8]) -> Result<(), SnapshotError>;

    /// Passes each entry of the segments to `each`, in order.
    ///
    /// # Errors
    /// A file is missing or damaged.
    fn walk(&self, each: &mut dyn FnMut(Seq, &Entry)) -> Result<(), ArchiveError>;

    /// Puts the entries of the last segment back into the log; its file stays. Returns the segment; `None` if there is
    /// none.
    ///
    /// # Errors
    /// The file is missing or damaged, or the log can't be written; nothing has changed then.
    fn put_back(&self) -> Result<Option<Segment>, ArchiveError>;
}
