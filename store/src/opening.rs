//! A data directory of this machine: opening its log, backing it up, verifying it.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lastword_facts::{Entry, Seq};

use crate::backup::{self, BackedUp, BackupError, KeptFile};
use crate::data_dir::DirLock;
use crate::log::sqlite::{self, SqliteLog};
use crate::log::sqlite_reader::SqliteReader;
use crate::log::verify::{self, Anchor, Expected, Verified, VerifyError};
use crate::log::{Archive, Log, LogReader, OpenError, ReadError};

/// A data directory with a log in one SQLite file. One process at a time has it open for writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataDir(PathBuf);

/// The right to write to a data directory, without opening its log. Dropping it gives the right back.
#[derive(Debug)]
pub struct DataDirLock {
    _lock: DirLock,
}

/// Reads the hashes of a log from any thread, up to what is durable. Clones share their connections.
#[derive(Clone)]
pub struct ChainReader(SqliteReader);

impl ChainReader {
    /// Returns the end of the log and its hash; `None` for an empty log.
    ///
    /// # Errors
    /// The log can't be read.
    pub fn end(&self) -> Result<Option<Anchor>, ReadError> {
        self.0.anchor(None)
    }

    /// Returns the hash at `seq`; `None` if no row ends there, so that the chain has no hash for it.
    ///
    /// # Errors
    /// The log can't be read.
    pub fn at(&self, seq: Seq) -> Result<Option<Anchor>, ReadError> {
        self.0.anchor(Some(seq))
    }
}

impl DataDir {
    /// The data directory at `dir`, made (mode 0700) where it is missing.
    #[must_use]
    pub fn at(dir: &Path) -> Self {
        Self(dir.to_owned())
    }

    /// Opens the log for writing; makes an empty one where there is none.
    ///
    /// # Errors
    /// See [`OpenError`]; each variant says what to do.
    pub fn open(&self) -> Result<Box<dyn Log>, OpenError> {
        Ok(Box::new(SqliteLog::open(&self.0)?))
    }

    /// Opens a log that may have lost its end, as it is. What followed its end is lost for good; begin an epoch (L8).
    ///
    /// # Errors
    /// As for [`DataDir::open`], but for a lost end.
    pub fn open_as_it_is(&self) -> Result<Box<dyn Log>, OpenError> {
        Ok(Box::new(SqliteLog::open_as_it_is(&self.0)?))
    }

    /// Opens the log for reading. A server may be running on it.
    ///
    /// # Errors
    /// There is no log, or this version can't read it.
    pub fn open_reader(&self) -> Result<Arc<dyn LogReader>, OpenError> {
        Ok(Arc::new(SqliteReader::open(&self.0)?))
    }

    /// Opens the hash chain for reading. A server may be running on it.
    ///
    /// # Errors
    /// There is no log, or this version can't read it.
    pub fn open_chain(&self) -> Result<ChainReader, OpenError> {
        Ok(ChainReader(SqliteReader::open(&self.0)?))
    }

    /// Takes the right to write, for maintenance while no server runs.
    ///
    /// # Errors
    /// [`OpenError::Locked`] while a server runs, and [`OpenError::Io`].
    pub fn lock(&self) -> Result<DataDirLock, OpenError> {
        Ok(DataDirLock { _lock: DirLock::take(&self.0)? })
    }

    /// Writes a backup: the log up to its present end, and those of the small `files` of the data directory that exist.
    /// A server may be running on it. `progress` receives the position reached and the last one.
    ///
    /// # Errors
    /// The log can't be read, or `to` can't be written.
    pub fn back_up(
        &self,
        files: &[&str],
        to: &mut dyn Write,
        progress: &mut dyn FnMut(Seq, Seq),
    ) -> Result<BackedUp, BackupError> {
        backup::back_up(&self.0, files, to, progress)
    }

    /// Makes the log from a backup, and returns what the backup held. There must be no log yet. `progress` receives the
    /// position reached. The log ends where the backup does; begin an epoch before anything else is appended (L8).
    ///
    /// # Errors
    /// The backup is damaged, or the directory can't be written; what was made is of no use then.
    pub fn restore(
        &self,
        from: &mut dyn Read,
        progress: &mut dyn FnMut(Seq),
    ) -> Result<(BackedUp, Vec<KeptFile>), BackupError> {
        backup::restore(from, &self.0, progress)
    }

    /// Returns the archive of the log. A server may be running on it, as long as only one of them seals.
    ///
    /// # Errors
    /// There is no log, or this version can't read it.
    pub fn archive(&self) -> Result<Arc<dyn Archive>, OpenError> {
        Ok(Arc::new(SqliteReader::open(&self.0)?.archive(&self.0)))
    }

    /// Gives the room of entries that left the log back to the disk. No server may be running, and the disk needs room for
    /// another copy of the log meanwhile.
    ///
    /// # Errors
    /// The log can't be opened or written.
    pub fn compact(&self) -> Result<(), OpenError> {
        sqlite::compact(&self.0)
    }

    /// Walks the log's hash chain from its start (L5), with the segments of the archive whose files are there. A server may
    /// be running on it.
    ///
    /// `expect` has the positions and hashes noted earlier, which the log must still have. `check` receives every entry in
    /// order and may object. `progress` receives the position reached and the last one, every few rows.
    ///
    /// # Errors
    /// The first place at which the log is broken, or the reason why it can't be opened.
    pub fn verify(
        &self,
        expect: impl Into<Expected>,
        check: &mut dyn FnMut(Seq, Entry) -> Result<(), String>,
        progress: &mut dyn FnMut(Seq, Seq),
    ) -> Result<Verified, VerifyError> {
        verify::verify(&self.0, expect.into(), check, progress)
    }
}
