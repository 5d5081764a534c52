//! Reads the SQLite log from any thread.

use std::path::Path;

use lastword_facts::{Entry, Seq};
use rusqlite::{Connection, OptionalExtension as _};

use crate::data_dir::FILE_DATABASE;
use crate::log::chain::{Hash, Row};
use crate::log::sqlite_archive::SqliteArchive;
use crate::log::verify::Anchor;
use crate::log::{LogReader, OpenError, ReadError, frame, sqlite, sqlite_archive};
use crate::pool::Pool;

/// Bytes after which a read returns early, so that many long entries don't fill the memory.
const READ_BYTES_MAX: usize = 1 << 20;

/// A reader of the log in a data directory. Clones share its connections.
#[derive(Clone)]
pub(crate) struct SqliteReader(Pool);

impl SqliteReader {
    /// Opens the log of `dir` for reading only; a server may be running on it.
    pub(crate) fn open(dir: &Path) -> Result<Self, OpenError> {
        let path = dir.join(FILE_DATABASE);
        if !path.exists() {
            return Err(OpenError::Missing { place: path.display().to_string() });
        }
        let pool = Pool::new(path.clone());
        pool.with(|db| sqlite::check_format(db, &path).map_err(Unopened))
            .map_err(|Unopened(error)| error)
            .map(|()| Self(pool))
    }

    /// Returns the archive of the same log.
    pub(crate) fn archive(&self, dir: &Path) -> SqliteArchive {
        SqliteArchive::new(dir, self.0.clone())
    }

    /// Returns the hash at the end of the row that ends at `seq`, or of the last row.
    pub(crate) fn anchor(&self, seq: Option<Seq>) -> Result<Option<Anchor>, ReadError> {
        // Every committed row is synced before another connection sees it, so nothing here can be lost.
        self.0.with(|db| anchor(db, seq))
    }

    /// Reads over the connections of `pool`.
    pub(crate) const fn new(pool: Pool) -> Self {
        Self(pool)
    }
}

impl LogReader for SqliteReader {
    fn first(&self) -> Result<Seq, ReadError> {
        Ok(self.0.with(|db| sqlite_archive::behind(db).map(|behind| Seq(behind.at.0 + 1)))?)
    }

    fn last(&self) -> Result<Seq, ReadError> {
        self.0.with(last)
    }

    fn entry(&self, seq: Seq) -> Result<Option<Entry>, ReadError> {
        self.0.with(|db| entry(db, seq))
    }

    fn read(&self, from: Seq, max: usize) -> Result<Vec<(Seq, Entry)>, ReadError> {
        self.0.with(|db| read(db, from, max))
    }
}

/// Carries an [`OpenError`] through the pool, whose own errors are SQLite's.
struct Unopened(OpenError);

impl From<rusqlite::Error> for Unopened {
    fn from(error: rusqlite::Error) -> Self {
        Self(sqlite::unopened(FILE_DATABASE.as_ref(), &error))
    }
}

impl From<rusqlite::Error> for ReadError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Unavailable { reason: error.to_string() }
    }
}

fn last(db: &Connection) -> Result<Seq, ReadError> {
    let mut statement = db.prepare_cached("SELECT first_seq + count - 1 FROM log ORDER BY first_seq DESC LIMIT 1")?;
    let last: Option<i64> = statement.query_row([], |row| row.get(0)).optional()?;
    Ok(Seq(last.map_or(0, i64::cast_unsigned)))
}

fn anchor(db: &Connection, seq: Option<Seq>) -> Result<Option<Anchor>, ReadError> {
    let mut statement = db.prepare_cached(
        "SELECT first_seq + count - 1, hash FROM log WHERE first_seq <= ?1 ORDER BY first_seq DESC LIMIT 1",
    )?;
    // Positions are below i64::MAX; a greater one that a caller names has no row.
    let upto = seq.map_or(i64::MAX, |seq| i64::try_from(seq.0).unwrap_or(i64::MAX));
    let mut rows = statement.query([upto])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let at = Seq(row.get::<_, i64>(0)?.cast_unsigned());
    let hash = row.get(1).map_err(|error| damaged(at, &error))?;
    Ok(seq.is_none_or(|seq| seq == at).then_some(Anchor { at, hash }))
}

fn entry(db: &Connection, seq: Seq) -> Result<Option<Entry>, ReadError> {
    // One state of the file: a segment may leave the log meanwhile.
    let db = db.unchecked_transaction()?;
    let mut statement = db.prepare_cached(
        "SELECT first_seq, count, epoch, blob, hash FROM log WHERE first_seq <= ?1 ORDER BY first_seq DESC LIMIT 1",
    )?;
    let mut rows = statement.query([seq.0.cast_signed()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let mut chain = Chain { db: &db, previous: None };
    let (mut at, mut batch) = chain.checked(row)?;
    while let Some(bytes) = frame::split(&mut batch) {
        let bytes = bytes.map_err(|error| damaged(Seq(at), &error))?;
        if at == seq.0 {
            return frame::decode(bytes).map(Some).map_err(|error| damaged(seq, &error));
        }
        at += 1;
    }
    Ok(None)
}

fn read(db: &Connection, from: Seq, max: usize) -> Result<Vec<(Seq, Entry)>, ReadError> {
    let db = db.unchecked_transaction()?;
    let mut statement = db.prepare_cached(
        "SELECT first_seq, count, epoch, blob, hash FROM log WHERE first_seq >=
         ifnull((SELECT first_seq FROM log WHERE first_seq <= ?1 ORDER BY first_seq DESC LIMIT 1), 0)
         ORDER BY first_seq",
    )?;
    let mut rows = statement.query([from.0.cast_signed()])?;
    let mut chain = Chain { db: &db, previous: None };
    let mut out = Vec::new();
    let mut bytes_read = 0;
    while out.len() < max && (bytes_read < READ_BYTES_MAX || out.is_empty()) {
        let Some(row) = rows.next()? else { break };
        let (mut at, mut batch) = chain.checked(row)?;
        while out.len() < max && (bytes_read < READ_BYTES_MAX || out.is_empty()) {
            let Some(bytes) = frame::split(&mut batch) else { break };
            let bytes = bytes.map_err(|error| damaged(Seq(at), &error))?;
            if at >= from.0 {
                bytes_read += bytes.len();
                out.push((Seq(at), frame::decode(bytes).map_err(|error| damaged(Seq(at), &error))?));
            }
            at += 1;
        }
    }
    Ok(out)
}

/// Checks the hashes of consecutive rows, so that what has changed on the disk is never delivered (L5).
struct Chain<'a> {
    db: &'a Connection,
    /// The hash of the row before; `None` before the first row.
    previous: Option<Hash>,
}

impl Chain<'_> {
    /// Returns the position of a row's first entry and its framed entries.
    fn checked<'r>(&mut self, row: &'r rusqlite::Row<'_>) -> Result<(u64, &'r [u8]), ReadError> {
        let [first, count, epoch] = [row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?].map(i64::cast_unsigned);
        let at = Seq(first);
        let blob = row.get_ref(3)?.as_blob().map_err(|error| damaged(at, &error))?;
        let stored: Hash = row.get(4).map_err(|error| damaged(at, &error))?;
        let previous = match self.previous {
            Some(previous) => previous,
            None => hash_before(self.db, at)?,
        };
        if (Row { first: at, count, epoch, blob }).hash(&previous) != stored {
            let problem = "the hash of the row doesn't match: the disk changed it".to_owned();
            return Err(ReadError::Damaged { at, problem });
        }
        self.previous = Some(stored);
        Ok((first, blob))
    }
}

/// Returns the hash of the row before the one that begins at `first`, which may be in the archive.
fn hash_before(db: &Connection, first: Seq) -> Result<Hash, ReadError> {
    let mut statement =
        db.prepare_cached("SELECT hash FROM log WHERE first_seq < ?1 ORDER BY first_seq DESC LIMIT 1")?;
    let found = statement.query_row([first.0.cast_signed()], |row| row.get(0)).optional()?;
    Ok(match found {
        Some(hash) => hash,
        None => sqlite_archive::behind(db)?.hash,
    })
}

fn damaged(at: Seq, problem: &dyn std::error::Error) -> ReadError {
    ReadError::Damaged { at, problem: problem.to_string() }
}
