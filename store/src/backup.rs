//! Backups: a consistent copy of the log in one compressed file, made while a server runs, and the way back.
//!
//! A file of rows (see `rows`). Its header has the small files of the data directory, and what the log keeps of its archive.

use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;

use lastword_facts::Seq;
use serde::{Deserialize, Serialize};

use crate::data_dir::{self, FILE_BASE, FILE_DATABASE};
use crate::log::OpenError;
use crate::log::chain::GENESIS;
use crate::log::sqlite::{self, SqliteLog};
use crate::log::sqlite_archive::{self, Sealed};
use crate::log::verify::{Anchor, VerifyError};
use crate::pool::Pool;
use crate::rows::{RowReader, RowWriter, RowsError};

const MAGIC: &[u8; 8] = b"LWback02";

/// A small file of the data directory that a backup carries, such as the key of the turn tokens.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptFile {
    /// Its name within the data directory.
    pub name: String,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// What a backup holds, or what was restored from one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackedUp {
    /// The end of the log in it, and its hash.
    pub end: Anchor,
    /// The number of rows.
    pub rows: u64,
}

/// Why a backup can't be made or restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The log can't be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The log can't be read, or the new one can't be written.
    #[error("the database: {0}")]
    Database(rusqlite::Error),
    /// The file can't be written or read.
    #[error("the backup: {0}")]
    File(#[from] io::Error),
    /// The file isn't a backup of this version, or not a whole one.
    #[error("this isn't a whole backup of Lastword: {0}")]
    Damaged(String),
    /// The restored log doesn't prove itself.
    #[error("the backup's log is damaged: {0}")]
    Unproven(#[from] VerifyError),
}

impl From<RowsError> for BackupError {
    fn from(error: RowsError) -> Self {
        match error {
            RowsError::Database(error) => Self::Database(error),
            RowsError::File(error) => Self::File(error),
            moved @ RowsError::Moved => Self::File(io::Error::other(moved)),
            RowsError::Damaged(problem) => Self::Damaged(problem),
        }
    }
}

impl From<rusqlite::Error> for BackupError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}

#[derive(Serialize, Deserialize)]
struct Header {
    /// The epoch of the leader that wrote the last row.
    leader: u64,
    files: Vec<KeptFile>,
    /// The segments that left the log before its first row, oldest first. Their files are not in the backup.
    segments: Vec<Sealed>,
}

impl Header {
    fn behind(&self) -> Anchor {
        self.segments.last().map_or(Anchor { at: Seq(0), hash: GENESIS }, Sealed::end)
    }
}

/// See [`DataDir::back_up`](crate::DataDir::back_up).
pub(crate) fn back_up(
    dir: &Path,
    files: &[&str],
    to: &mut dyn Write,
    progress: &mut dyn FnMut(Seq, Seq),
) -> Result<BackedUp, BackupError> {
    let path = dir.join(FILE_DATABASE);
    if !path.exists() {
        return Err(OpenError::Missing { place: path.display().to_string() }.into());
    }
    Pool::new(path.clone()).with(|db| {
        sqlite::check_format(db, &path)?;
        // In this order: a server that moves a segment meanwhile leaves a base that is behind these segments and within the
        // log that is copied.
        let segments = sqlite_archive::sealed(db)?;
        let base = (!segments.is_empty()).then_some(FILE_BASE);
        let files = files.iter().copied().chain(base).filter_map(|name| match fs::read(dir.join(name)) {
            Ok(bytes) => Some(Ok(KeptFile { name: name.to_owned(), bytes })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => Some(Err(error)),
        });
        let header = Header { leader: sqlite::epoch_of(db)?, files: files.collect::<Result<_, _>>()?, segments };
        // Only the end of the log changes, so what lies before this one is one consistent state.
        let (last, _) = sqlite::tail(db)?;
        let mut rows = RowWriter::begin(to, MAGIC, &header, header.behind())?;
        rows.copy(db, last, progress)?;
        let (copied, _) = rows.finish()?;
        Ok(BackedUp { end: copied.end, rows: copied.rows })
    })
}

/// See [`DataDir::restore`](crate::DataDir::restore).
pub(crate) fn restore(
    from: &mut dyn Read,
    dir: &Path,
    progress: &mut dyn FnMut(Seq),
) -> Result<(BackedUp, Vec<KeptFile>), BackupError> {
    let (header, mut rows) = RowReader::begin(from, MAGIC, Header::behind)?;
    // Makes an empty log with the right schema; the rows keep the hashes that they had.
    drop(SqliteLog::open(dir)?);
    let mut db = sqlite::open_database(&dir.join(FILE_DATABASE))?;
    let writing = db.transaction()?;
    for sealed in &header.segments {
        sealed.insert(&writing)?;
    }
    while let Some((row, hash)) = rows.next()? {
        sqlite::insert(&writing, row, &hash)?;
        progress(Seq(row.first.0 + row.count.saturating_sub(1)));
    }
    writing.execute("UPDATE leader SET epoch = ?1", [header.leader.cast_signed()])?;
    writing.commit()?;
    drop(db);
    for file in &header.files {
        if Path::new(&file.name).components().count() != 1 || file.name.starts_with('.') {
            return Err(BackupError::Damaged(format!("it holds a file named {:?}", file.name)));
        }
        data_dir::replace(&dir.join(&file.name), &[&file.bytes])?;
    }
    let copied = rows.reached();
    Ok((BackedUp { end: copied.end, rows: copied.rows }, header.files))
}
