//! The stores there are, and how to open each.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lastword_proto::{Entry, Seq};

use crate::data_dir::DirLock;
use crate::log::sqlite::SqliteLog;
use crate::log::sqlite_reader::SqliteReader;
use crate::log::verify::{self, Anchor, Verified, VerifyError};
use crate::log::{Log, LogReader, OpenError};

/// A store, by what it takes to open it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Store {
    /// One SQLite file in a data directory of this machine. One process at a time has it open for writing.
    Sqlite {
        /// The data directory, made (mode 0700) where it is missing.
        dir: PathBuf,
    },
}

/// The right to write to a store, without opening it. Dropping it gives the right back.
#[derive(Debug)]
pub struct StoreLock {
    _lock: DirLock,
}

impl Store {
    /// The SQLite store in `dir`.
    #[must_use]
    pub fn sqlite(dir: &Path) -> Self {
        Self::Sqlite { dir: dir.to_owned() }
    }

    /// Opens the log for writing; makes an empty one where there is none.
    ///
    /// # Errors
    /// See [`OpenError`]; each variant says what to do.
    pub fn open(&self) -> Result<Box<dyn Log>, OpenError> {
        match self {
            Self::Sqlite { dir } => Ok(Box::new(SqliteLog::open(dir)?)),
        }
    }

    /// Opens the log for reading. A server may be running on it.
    ///
    /// # Errors
    /// There is no log, or this version can't read it.
    pub fn open_reader(&self) -> Result<Arc<dyn LogReader>, OpenError> {
        match self {
            Self::Sqlite { dir } => Ok(Arc::new(SqliteReader::open(dir)?)),
        }
    }

    /// Takes the right to write, for maintenance while no server runs.
    ///
    /// # Errors
    /// [`OpenError::Locked`] while a server runs, and [`OpenError::Io`].
    pub fn lock(&self) -> Result<StoreLock, OpenError> {
        match self {
            Self::Sqlite { dir } => Ok(StoreLock { _lock: DirLock::take(dir)? }),
        }
    }

    /// Walks the log's hash chain from its start (L5). A server may be running on it.
    ///
    /// `expect` is a position and hash noted earlier, which the log must still have. `check` receives every entry in
    /// order and may object. `progress` receives the position reached and the last one, every few rows.
    ///
    /// # Errors
    /// The first place at which the log is broken, or the reason why it can't be opened.
    pub fn verify(
        &self,
        expect: Option<Anchor>,
        check: &mut dyn FnMut(Seq, Entry) -> Result<(), String>,
        progress: &mut dyn FnMut(Seq, Seq),
    ) -> Result<Verified, VerifyError> {
        match self {
            Self::Sqlite { dir } => verify::verify(dir, expect, check, progress),
        }
    }
}
