//! Reading the log from other threads than the one that writes it.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use lastword_proto::{Entry, Seq};
use rusqlite::{Connection, OptionalExtension as _};

use crate::dir::FILE_DATABASE;
use crate::frame;
use crate::log::{OpenError, ReadError};
use crate::memory::MemoryEntries;
use crate::pool::Pool;
use crate::sqlite;

/// Bytes after which one read gives what it has, so that long entries in large numbers stay out of memory.
const READ_BYTES_MAX: usize = 16 << 20;

/// A reader of a log. Clones share its connections, and any thread may use one.
#[derive(Clone)]
pub struct Reader(Source);

#[derive(Clone)]
enum Source {
    Sqlite(Pool),
    Memory(Arc<Mutex<MemoryEntries>>),
}

impl Reader {
    /// Opens the log of `dir` for reading only; a server may be running on it.
    ///
    /// # Errors
    /// There is no log, or none that this version reads.
    pub fn open(dir: &Path) -> Result<Self, OpenError> {
        let path = dir.join(FILE_DATABASE);
        if !path.exists() {
            return Err(OpenError::Missing { path });
        }
        let pool = Pool::new(path.clone());
        pool.with(|db| sqlite::check_format(db, &path).map_err(Unopened))
            .map_err(|Unopened(error)| error)
            .map(|()| Self(Source::Sqlite(pool)))
    }

    pub(crate) const fn sqlite(pool: Pool) -> Self {
        Self(Source::Sqlite(pool))
    }

    pub(crate) const fn memory(shared: Arc<Mutex<MemoryEntries>>) -> Self {
        Self(Source::Memory(shared))
    }

    /// The position of the last entry, `Seq(0)` when there is none.
    ///
    /// # Errors
    /// The store can't be read.
    pub fn last(&self) -> Result<Seq, ReadError> {
        match &self.0 {
            Source::Sqlite(pool) => pool.with(sqlite_last),
            Source::Memory(shared) => Ok(lock(shared).last()),
        }
    }

    /// The entry at `seq`; `None` when the log ends before it.
    ///
    /// # Errors
    /// The store can't be read, or is damaged there.
    pub fn entry(&self, seq: Seq) -> Result<Option<Entry>, ReadError> {
        match &self.0 {
            Source::Sqlite(pool) => pool.with(|db| sqlite_entry(db, seq)),
            Source::Memory(shared) => Ok(lock(shared).entry(seq).cloned()),
        }
    }

    /// Up to `max` entries from the position `from` on; fewer where they are long, none only at the end.
    ///
    /// # Errors
    /// The store can't be read, or is damaged there.
    pub fn read(&self, from: Seq, max: usize) -> Result<Vec<(Seq, Entry)>, ReadError> {
        match &self.0 {
            Source::Sqlite(pool) => pool.with(|db| sqlite_read(db, from, max)),
            Source::Memory(shared) => Ok(lock(shared).read(from, max)),
        }
    }
}

fn lock(shared: &Mutex<MemoryEntries>) -> std::sync::MutexGuard<'_, MemoryEntries> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Carries an [`OpenError`] through the pool, whose own failures are SQLite's.
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

fn sqlite_last(db: &Connection) -> Result<Seq, ReadError> {
    let mut statement = db.prepare_cached("SELECT first_seq + count - 1 FROM log ORDER BY first_seq DESC LIMIT 1")?;
    let last: Option<i64> = statement.query_row([], |row| row.get(0)).optional()?;
    Ok(Seq(last.map_or(0, i64::cast_unsigned)))
}

fn sqlite_entry(db: &Connection, seq: Seq) -> Result<Option<Entry>, ReadError> {
    let mut statement =
        db.prepare_cached("SELECT first_seq, blob FROM log WHERE first_seq <= ?1 ORDER BY first_seq DESC LIMIT 1")?;
    let mut rows = statement.query([seq.0.cast_signed()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let first: i64 = row.get(0)?;
    let mut batch = blob(row, 1, seq)?;
    let mut at = first.cast_unsigned();
    while let Some(bytes) = frame::next(&mut batch) {
        let bytes = bytes.map_err(|error| damaged(Seq(at), &error))?;
        if at == seq.0 {
            return frame::decode(bytes).map(Some).map_err(|error| damaged(seq, &error));
        }
        at += 1;
    }
    Ok(None)
}

fn sqlite_read(db: &Connection, from: Seq, max: usize) -> Result<Vec<(Seq, Entry)>, ReadError> {
    let mut statement = db.prepare_cached(
        "SELECT first_seq, blob FROM log WHERE first_seq >=
         ifnull((SELECT first_seq FROM log WHERE first_seq <= ?1 ORDER BY first_seq DESC LIMIT 1), 0)
         ORDER BY first_seq",
    )?;
    let mut rows = statement.query([from.0.cast_signed()])?;
    let mut out = Vec::new();
    let mut bytes_read = 0;
    while out.len() < max && (bytes_read < READ_BYTES_MAX || out.is_empty()) {
        let Some(row) = rows.next()? else { break };
        let first: i64 = row.get(0)?;
        let mut at = first.cast_unsigned();
        let mut batch = blob(row, 1, Seq(at))?;
        bytes_read += batch.len();
        while out.len() < max {
            let Some(bytes) = frame::next(&mut batch) else { break };
            let bytes = bytes.map_err(|error| damaged(Seq(at), &error))?;
            if at >= from.0 {
                out.push((Seq(at), frame::decode(bytes).map_err(|error| damaged(Seq(at), &error))?));
            }
            at += 1;
        }
    }
    Ok(out)
}

fn blob<'a>(row: &'a rusqlite::Row<'_>, column: usize, at: Seq) -> Result<&'a [u8], ReadError> {
    row.get_ref(column)?.as_blob().map_err(|error| damaged(at, &error))
}

fn damaged(at: Seq, problem: &dyn std::error::Error) -> ReadError {
    ReadError::Damaged { at, problem: problem.to_string() }
}
