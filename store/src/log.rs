//! The contract of a log, and its errors by what the caller can do.

use std::path::PathBuf;
use std::sync::Arc;

use lastword_proto::{Entry, Seq};

use crate::reader::Reader;

/// An append-only list of entries, numbered from 1 without gaps.
///
/// What `append` acknowledged survives the loss of power. One leader writes at a time: it takes an epoch,
/// names it with every append, and states the last entry that it knows, so that a leader that was replaced
/// can't write, and one that missed something learns it.
pub trait Log: Send {
    /// Takes the leadership: from here on appends of every earlier epoch are refused. Gives the new epoch.
    ///
    /// # Errors
    /// The store can't write; [`AppendError::Full`] and [`AppendError::Unavailable`] only.
    fn begin_epoch(&mut self) -> Result<u64, AppendError>;

    /// Appends `entries` behind `expect`, the last entry already in the log (`Seq(0)` when it is empty):
    /// all of them durably, or none. Gives the position of the last one.
    ///
    /// # Errors
    /// See [`AppendError`]; each variant says whether something was written.
    fn append(&mut self, epoch: u64, expect: Seq, entries: &[Arc<Entry>]) -> Result<Seq, AppendError>;

    /// The position of the last entry, `Seq(0)` when there is none.
    ///
    /// # Errors
    /// The store can't be read.
    fn last(&self) -> Result<Seq, ReadError>;

    /// Up to `max` entries from the position `from` on; fewer where they are long, none only at the end.
    ///
    /// # Errors
    /// The store can't be read, or is damaged there.
    fn read(&self, from: Seq, max: usize) -> Result<Vec<(Seq, Entry)>, ReadError>;

    /// Keeps `state`, the fold of everything up to `at`, in place of an earlier snapshot. A cache: losing
    /// it costs time, never data.
    ///
    /// # Errors
    /// The store can't write it; the earlier one is still there.
    fn save_snapshot(&mut self, at: Seq, state: &[u8]) -> Result<(), SnapshotError>;

    /// The snapshot, where there is one that is whole and not ahead of the log.
    ///
    /// # Errors
    /// The store can't be read. A damaged snapshot is no error but none.
    fn load_snapshot(&self) -> Result<Option<(Seq, Vec<u8>)>, SnapshotError>;

    /// A reader of the same log for other threads.
    fn reader(&self) -> Reader;
}

/// Why an append was not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The log ends elsewhere; nothing was written. Rebuild from the log and judge again.
    #[error("the log ends at {} and not where the append expected it", actual.0)]
    Conflict {
        /// Where it ends.
        actual: Seq,
    },
    /// A newer leader took over; nothing was written, and nothing ever will be. Step down.
    #[error("epoch {epoch} has taken over")]
    Fenced {
        /// The epoch in force.
        epoch: u64,
    },
    /// Nobody knows whether it was written. Read the log's tail before doing anything else.
    #[error("unknown whether the batch was written: {reason}")]
    Ambiguous {
        /// What happened.
        reason: String,
    },
    /// No room; nothing was written. Refuse what writes, go on reading, try again later.
    #[error("no room left for the log: {reason}")]
    Full {
        /// What is full and what to do.
        reason: String,
    },
    /// The store failed and takes no more appends. Stop: a restart finds out what was written.
    #[error("the log can't be written: {reason}")]
    Unavailable {
        /// What happened and what to do.
        reason: String,
    },
}

impl AppendError {
    /// Whether there was no room.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        matches!(self, Self::Full { .. })
    }
}

/// Why a log can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// What is stored there is not what was written. `lastword verify` tells how far the damage goes.
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
        /// What happened.
        reason: String,
    },
}

/// Why a snapshot was not saved or loaded.
#[derive(Debug, thiserror::Error)]
#[error("the snapshot {path}: {source}")]
pub struct SnapshotError {
    /// The file.
    pub path: PathBuf,
    /// What happened.
    pub source: std::io::Error,
}

/// Why a data directory can't be opened; each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error(
        "the data directory {dir} is in use by process {pid}: stop that server, or give this one another directory \
         with --data"
    )]
    Locked {
        /// The directory.
        dir: PathBuf,
        /// The process, as it wrote it down itself, or `unknown`.
        pid: String,
    },
    /// A newer Lastword wrote it.
    #[error(
        "{path} has format {found} and this version knows formats up to {known}: run the newer lastword that wrote it"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The newest format known.
        known: i64,
    },
    /// It is something else, or damaged beyond opening.
    #[error(
        "{path} is no Lastword log, or damaged ({problem}): restore it from a backup, or move it away to start anew"
    )]
    NotALog {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Entries that were acknowledged are gone.
    #[error(
        "{path} ends at {}, but {} was acknowledged: restore lastword.db together with lastword.db-wal; only to accept \
         that loss, delete lastword.head",
        ends.0, acknowledged.0
    )]
    Lost {
        /// The file.
        path: PathBuf,
        /// The last entry there is.
        ends: Seq,
        /// The last entry that was acknowledged.
        acknowledged: Seq,
    },
    /// There is no log.
    #[error("there is no Lastword log at {path}: `lastword serve --data DIR` makes one")]
    Missing {
        /// Where it should be.
        path: PathBuf,
    },
    /// The file system or the disk refused.
    #[error("{path}: {source}: {}", advice(source))]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
}

fn advice(error: &std::io::Error) -> &'static str {
    use std::io::ErrorKind;
    let kinds = [
        (ErrorKind::StorageFull, "make room there, then restart"),
        (ErrorKind::QuotaExceeded, "make room there, then restart"),
        (ErrorKind::PermissionDenied, "make it the server's own, then restart"),
        (ErrorKind::ReadOnlyFilesystem, "mount it for writing, or name another directory with --data"),
    ];
    let found = kinds.iter().find(|(kind, _)| *kind == error.kind());
    found.map_or("look at the disk and the room on it, then restart", |(_, advice)| advice)
}
