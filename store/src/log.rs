//! The contract of a log, and its errors by what the caller can do.
//!
//! ```text
//!             append(epoch, expect, entries)                     read(from, max)
//!  writer ───────────────────────────────────►  1  2  3 … last  ─────────────────►  readers, any thread
//!             Ok(last): durable, in order                         sees acknowledged entries, in order
//!
//!  a new leader:  begin_epoch() = n ──► replay up to last ──► append(n, last, …)
//!                 every append of an epoch below n is refused (Fenced)
//! ```
//!
//! What a store guarantees, and the conformance suite checks:
//! - Positions start at 1 and have no gaps, except before an entry that begins an epoch of the history (L8). An
//!   acknowledged entry never changes and survives a power cut.
//! - An append is all or nothing. After [`AppendError::Ambiguous`] the tail tells which.
//! - Of two leaders only the one with the newest epoch can append; `expect` makes a leader notice what it missed.
//! - A snapshot is a cache. Losing it costs time; one that is ahead of the log is ignored.

pub(crate) mod archive;
pub(crate) mod chain;
pub(crate) mod frame;
#[cfg(feature = "cluster")]
pub(crate) mod jetstream;
pub(crate) mod memory;
pub(crate) mod snapshot;
pub(crate) mod sqlite;
pub(crate) mod sqlite_archive;
pub(crate) mod sqlite_reader;
pub(crate) mod verify;

use std::io;
use std::path::Path;
use std::sync::Arc;

use lastword_facts::{Entry, Fact, Seq};

pub use self::archive::{Archive, ArchiveError, Base, Segment};

/// An append-only list of entries with one writer, the leader.
pub trait Log: Send {
    /// Takes the leadership and returns the new epoch. Appends of earlier epochs are refused from then on.
    ///
    /// # Errors
    /// [`AppendError::Full`] and [`AppendError::Fatal`] only.
    fn begin_epoch(&mut self) -> Result<u64, AppendError>;

    /// Appends `entries` after position `expect` (`Seq(0)` for an empty log), all of them durably or none. Returns the
    /// position of the last one. An empty batch writes nothing.
    ///
    /// # Errors
    /// See [`AppendError`]; each variant says whether anything was written.
    fn append(&mut self, epoch: u64, expect: Seq, entries: &[Arc<Entry>]) -> Result<Seq, AppendError>;

    /// Makes room for entries that must be written, where a limit refused them and no lack of space: just enough for them.
    /// Returns whether the limit was raised.
    fn make_room(&mut self, entries: &[Arc<Entry>]) -> bool {
        let _nothing_limits_it = entries;
        false
    }

    /// Returns whether its files are at their path, so that the next start finds what was appended (L1).
    fn is_in_place(&self) -> bool {
        true
    }

    /// Writes the log anew if its files were deleted while it is open; `false` if there is nothing to write, because they
    /// are there or were moved. What is appended afterwards doesn't get into the new file.
    ///
    /// # Errors
    /// The log can't be read, or the file can't be written.
    fn write_back(&mut self) -> Result<bool, OpenError> {
        Ok(false)
    }

    /// Returns a reader of the same log for other threads.
    fn reader(&self) -> Arc<dyn LogReader>;

    /// Returns the archive of the same log for other threads.
    fn archive(&self) -> Arc<dyn Archive>;

    /// Returns the snapshots of the same log for other threads.
    fn snapshots(&self) -> Arc<dyn Snapshots>;
}

/// Reads a log from any thread while its leader appends.
pub trait LogReader: Send + Sync {
    /// Returns the position from which the log has its entries: 1, or behind the last segment of the archive.
    ///
    /// # Errors
    /// The store can't be read.
    fn first(&self) -> Result<Seq, ReadError>;

    /// Returns the position of the last entry, `Seq(0)` for an empty log.
    ///
    /// # Errors
    /// The store can't be read.
    fn last(&self) -> Result<Seq, ReadError>;

    /// Returns the entry at `seq`, `None` after the end of the log and in the archive.
    ///
    /// # Errors
    /// The store can't be read, or is damaged there.
    fn entry(&self, seq: Seq) -> Result<Option<Entry>, ReadError>;

    /// Returns up to `max` entries from position `from` on: fewer if they are long, none only at the end.
    ///
    /// # Errors
    /// The store can't be read, or is damaged there.
    fn read(&self, from: Seq, max: usize) -> Result<Vec<(Seq, Entry)>, ReadError>;
}

/// Returns the position of the first of these entries behind `last`. An entry that begins an epoch of the history is at
/// the position that it names (L8); it must be the first of its append.
pub(crate) fn first_of(last: Seq, entries: &[Arc<Entry>]) -> Seq {
    match entries.first().map(|entry| &entry.fact) {
        Some(Fact::EpochBegan { first }) if *first > last => *first,
        Some(_) | None => Seq(last.0 + 1),
    }
}

/// The newest snapshot of a log's fold. One thread saves at a time.
pub trait Snapshots: Send + Sync {
    /// Saves `state`, the fold of all entries up to `at`, in place of the earlier snapshot.
    ///
    /// # Errors
    /// The store can't write it; the earlier snapshot remains.
    fn save(&self, at: Seq, state: &[u8]) -> Result<(), SnapshotError>;

    /// Returns the snapshot and its position; `None` if it is missing, damaged or ahead of the log.
    ///
    /// # Errors
    /// The store can't be read.
    fn load(&self) -> Result<Option<(Seq, Vec<u8>)>, SnapshotError>;

    /// Deletes the snapshot: the next start replays the whole log.
    ///
    /// # Errors
    /// The store can't delete it.
    fn delete(&self) -> Result<(), SnapshotError>;
}

/// The reason why an append was not acknowledged, by what the leader can do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The log ends at another position; nothing was written. Rebuild from the log and judge again.
    #[error("the log ends at {} and not where the append expected it", actual.0)]
    Conflict {
        /// The log's last position.
        actual: Seq,
    },
    /// A newer leader took over; nothing was written, and no later append will be. Step down.
    #[error("epoch {epoch} has taken over")]
    Fenced {
        /// The epoch in force.
        epoch: u64,
    },
    /// The batch may have been written or not. Read the log's tail before any other append.
    #[error("unknown whether the batch was written: {reason}")]
    Ambiguous {
        /// The failure; the batch may be in the log.
        reason: String,
    },
    /// The disk or a quota is full; nothing was written. Refuse writes, serve reads, retry later.
    #[error("no room left for the log: {reason}")]
    Full {
        /// What is full and what to do.
        reason: String,
    },
    /// The store failed and takes no more appends. Stop: a restart finds what was written.
    #[error("the log can't be written: {reason}")]
    Fatal {
        /// The failure, and what to do.
        reason: String,
    },
}

impl AppendError {
    /// Returns whether the store is full.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        matches!(self, Self::Full { .. })
    }
}

/// The reason why a log can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The stored bytes aren't the written ones. `lastword verify` shows the extent of the damage.
    #[error("the log is damaged at position {}: {problem}", at.0)]
    Damaged {
        /// The first position that can't be read.
        at: Seq,
        /// What is wrong there.
        problem: String,
    },
    /// The store failed.
    #[error("the log can't be read: {reason}")]
    Unavailable {
        /// The failure, as the store reports it.
        reason: String,
    },
}

/// The reason why a snapshot was not saved, loaded or deleted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a snapshot operation failed: {reason}")]
pub struct SnapshotError {
    /// The failure, with the place of the snapshot.
    pub reason: String,
}

/// The reason why a store can't be opened; each message says what to do. `place` names the file or directory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open for writing.
    #[error(
        "the data directory {place} is in use by process {holder}: stop that server, or give this one another directory \
         with --data"
    )]
    Locked {
        /// The data directory.
        place: String,
        /// The id of the process that holds the lock, or `unknown`.
        holder: String,
    },
    /// A newer Lastword wrote it.
    #[error(
        "{place} has format {found} and this version knows formats up to {known}: run {needs}, or restore a backup from \
         before the upgrade"
    )]
    Newer {
        /// The file of the newer version.
        place: String,
        /// The format number in the file.
        found: i64,
        /// The newest format that this version reads.
        known: i64,
        /// The program that reads it.
        needs: String,
    },
    /// It isn't a log, or is damaged beyond opening.
    #[error(
        "{place} isn't a Lastword log, or is damaged ({problem}): restore it from a backup, or move it away to start \
         anew"
    )]
    NotALog {
        /// The file that isn't a usable log.
        place: String,
        /// The mismatch that was found.
        problem: String,
    },
    /// Acknowledged entries are missing.
    #[error(
        "{place} ends at {}, but {by} knows position {}: put lastword.db and lastword.db-wal back, or restore a backup; \
         only to accept the loss, run `lastword doctor --accept-loss`",
        ends.0, acknowledged.0
    )]
    Lost {
        /// The log file that lost its end.
        place: String,
        /// The last entry in it.
        ends: Seq,
        /// The file that knows of a later entry.
        by: &'static str,
        /// The last entry that was acknowledged.
        acknowledged: Seq,
    },
    /// The log is gone, and files that were derived from it are still there.
    #[error(
        "{place} is missing, but {left} is there: put lastword.db back, or restore a backup; to start anew, use another \
         directory"
    )]
    Gone {
        /// The log file that is missing.
        place: String,
        /// A file that is derived from it.
        left: &'static str,
    },
    /// The record of the last acknowledged position is missing or damaged.
    #[error(
        "{place} is {problem}, so nothing says whether the log lost its end: put the file back, or restore a backup; to \
         accept the log as it is, run `lastword doctor --accept-loss`"
    )]
    NoHead {
        /// The file.
        place: String,
        /// Whether it is missing or damaged.
        problem: &'static str,
    },
    /// The end of the log isn't what was written.
    #[error(
        "{place} is damaged at its end, in the row at {}: keep the files, and restore a backup; `lastword verify` shows \
         what is damaged",
        at.0
    )]
    DamagedEnd {
        /// The log file.
        place: String,
        /// The first position of the damaged row.
        at: Seq,
    },
    /// There is no log yet.
    #[error("there is no Lastword log at {place}: `lastword serve --data DIR` makes one")]
    Missing {
        /// The file that is missing.
        place: String,
    },
    /// The file system or the disk refused.
    #[error("{place}: {reason}")]
    Io {
        /// The file or directory.
        place: String,
        /// The failure, and what to do.
        reason: String,
    },
}

impl OpenError {
    /// A failure of the file system at `path`.
    pub(crate) fn io(path: &Path, error: &io::Error) -> Self {
        Self::Io { place: path.display().to_string(), reason: format!("{error}: {}", advice(error)) }
    }
}

/// The next step after a failure of the file system.
fn advice(error: &io::Error) -> &'static str {
    let kinds = [
        (io::ErrorKind::StorageFull, "make room there, then restart"),
        (io::ErrorKind::QuotaExceeded, "make room there, then restart"),
        (io::ErrorKind::PermissionDenied, "give the server's user ownership of it, then restart"),
        (io::ErrorKind::ReadOnlyFilesystem, "mount it for writing, or name another directory with --data"),
    ];
    let found = kinds.iter().find(|(kind, _)| *kind == error.kind());
    found.map_or("check the disk and its free space, then restart", |(_, advice)| advice)
}
