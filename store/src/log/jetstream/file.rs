//! The file of a mirror: an ordinary log, and how far of the stream is in it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lastword_facts::Seq;
use rusqlite::{Connection, OptionalExtension as _};
use serde::{Deserialize, Serialize};

use super::archive::Start;
use super::record::StoredRow;
use crate::data_dir::{self, DirLock, FILE_BASE, FILE_DATABASE, FILE_HEAD, FILE_INDEX, FILE_SNAPSHOT, FOLDER_ARCHIVE};
use crate::log::chain::Hash;
use crate::log::snapshot::{self, SnapshotFile};
use crate::log::sqlite::{self};
use crate::log::sqlite_archive::{self, SqliteArchive};
use crate::log::sqlite_reader::SqliteReader;
use crate::log::{LogReader, OpenError, Snapshots};
use crate::pool::Pool;
use crate::rows::RowsError;

/// Bytes in the WAL that trigger a checkpoint, the only time at which a mirror syncs.
const CHECKPOINT_BYTES: usize = 8 << 20;

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS mirror (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  -- The stream, by the time when it was made.
  stream_id TEXT NOT NULL,
  -- The sequence of the last message that is in the file, or was dropped.
  at INTEGER NOT NULL,
  -- The epoch in force there, and the number of its last commit.
  epoch INTEGER NOT NULL,
  batch INTEGER NOT NULL,
  -- The sequence of the last message that brought a row; 0 before the first.
  row_at INTEGER NOT NULL
) STRICT;
-- Places of the stream from behind which a node can read on.
CREATE TABLE IF NOT EXISTS marks (
  at INTEGER PRIMARY KEY,
  epoch INTEGER NOT NULL,
  batch INTEGER NOT NULL,
  last_seq INTEGER NOT NULL,
  hash BLOB NOT NULL,
  row_epoch INTEGER NOT NULL
) STRICT;";
/// The messages between two marks.
const MARK_EVERY: u64 = 64;

/// How far of which stream is in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Applied {
    pub(crate) stream_id: String,
    pub(crate) at: u64,
    pub(crate) epoch: u64,
    pub(crate) batch: u64,
    pub(crate) row_at: u64,
}

/// A place of the stream between two commits, and the end of the log there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    /// The sequence of the last message before it.
    pub(crate) at: u64,
    /// The epoch in force, and the number of its last commit.
    pub(crate) epoch: u64,
    pub(crate) batch: u64,
    /// The position of the last entry, the hash and the epoch of its row.
    pub(crate) last: Seq,
    pub(crate) hash: Hash,
    pub(crate) row_epoch: u64,
}

impl Mark {
    const fn end(&self) -> MirrorEnd {
        MirrorEnd { last: self.last, hash: self.hash, epoch: self.row_epoch }
    }

    fn insert(&self, db: &Connection) -> rusqlite::Result<()> {
        let Self { at, epoch, batch, last, hash, row_epoch } = self;
        let [at, epoch, batch, last, row_epoch] = [*at, *epoch, *batch, last.0, *row_epoch].map(u64::cast_signed);
        let mut statement = db.prepare_cached("INSERT OR REPLACE INTO marks VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
        statement.execute((at, epoch, batch, last, hash.as_slice(), row_epoch)).map(|_| ())
    }
}

/// The file of a mirror, open for writing. It has the lock of its directory.
pub(crate) struct MirrorFile {
    lock: DirLock,
    db: Connection,
    readers: Pool,
    wal_bytes: usize,
    /// The last position in the archive when it was opened, or left the log since.
    behind: Seq,
    /// The sequence of the newest mark.
    marked: u64,
}

/// The end of a mirror's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MirrorEnd {
    pub(crate) last: Seq,
    pub(crate) hash: Hash,
    /// The epoch of the last row.
    pub(crate) epoch: u64,
}

impl MirrorFile {
    /// Opens the mirror of `dir`, and creates it where it is missing. A damaged one is moved aside.
    ///
    /// # Errors
    /// The directory is in use or holds a log of its own, or the file system refuses.
    pub(crate) fn open(dir: &Path) -> Result<(Self, Applied, MirrorEnd), OpenError> {
        let lock = DirLock::take(dir)?;
        if dir.join(FILE_HEAD).exists() {
            return Err(own_log(dir));
        }
        match open_database(dir) {
            Ok((db, applied, end)) => Self::over(lock, db).map(|file| (file, applied, end)),
            // It is a cache: what is damaged is fetched again.
            Err(OpenError::NotALog { .. } | OpenError::DamagedEnd { .. }) => Self::anew(lock),
            Err(error) => Err(error),
        }
    }

    /// Moves the mirror aside and begins an empty one.
    pub(crate) fn replace(self) -> Result<(Self, Applied, MirrorEnd), OpenError> {
        let Self { lock, db, .. } = self;
        drop(db);
        Self::anew(lock)
    }

    fn anew(lock: DirLock) -> Result<(Self, Applied, MirrorEnd), OpenError> {
        let dir = lock.dir().to_owned();
        move_aside(&dir).map_err(|error| OpenError::io(&dir, &error))?;
        let (db, applied, end) = open_database(&dir)?;
        Self::over(lock, db).map(|file| (file, applied, end))
    }

    fn over(lock: DirLock, db: Connection) -> Result<Self, OpenError> {
        let path = lock.dir().join(FILE_DATABASE);
        let unopened = |error: rusqlite::Error| sqlite::unopened(&path, &error);
        let behind = sqlite_archive::behind(&db).map_err(unopened)?.at;
        let marked = "SELECT ifnull(max(at), 0) FROM marks";
        let marked: i64 = db.query_row(marked, [], |row| row.get(0)).map_err(unopened)?;
        let readers = Pool::new(path);
        Ok(Self { lock, db, readers, wal_bytes: CHECKPOINT_BYTES, behind, marked: marked.cast_unsigned() })
    }

    /// Begins an empty mirror where a start says.
    pub(crate) fn begin(mut self, start: &Start) -> Result<(Self, Applied, MirrorEnd), OpenError> {
        let path = self.dir().join(FILE_BASE);
        data_dir::replace(&path, &[&start.base]).map_err(|error| OpenError::io(&path, &error))?;
        let mark = start.mark;
        let (stream_id, at, epoch, batch) = (start.stream_id.clone(), mark.at, mark.epoch, mark.batch);
        let applied = Applied { stream_id, at, epoch, batch, row_at: 0 };
        let begun = self.transaction(|db| {
            start.segments.iter().try_for_each(|sealed| sealed.insert(db))?;
            mark.insert(db)?;
            note(db, &applied)
        });
        begun.map_err(|error| sqlite::unopened(&path, &error))?;
        (self.behind, self.marked) = (start.end(), mark.at);
        Ok((self, applied, mark.end()))
    }

    /// Lets go of the rows that a start has in its segments, if the mirror agrees with it and has all up to its base.
    pub(crate) fn let_go(&mut self, start: &Start) -> Result<(), RowsError> {
        let Some(last) = start.segments.last() else { return Ok(()) };
        let (end, _) = sqlite::tail(&self.db)?;
        let agrees = sqlite_archive::hash_at(&self.db, Seq(last.last))? == Some(last.hash);
        // The last row stays: it is what the mirror's end is compared by.
        if !agrees || end <= Seq(last.last) {
            return Ok(());
        }
        data_dir::replace(&self.dir().join(FILE_BASE), &[&start.base])?;
        self.transaction(|db| {
            db.execute("DELETE FROM segments", [])?;
            start.segments.iter().try_for_each(|sealed| sealed.insert(db))?;
            db.execute("DELETE FROM log WHERE first_seq <= ?1", [last.last.cast_signed()])?;
            remove_marks(db, start.mark.at)
        })?;
        self.behind = Seq(last.last);
        Ok(())
    }

    fn transaction(&mut self, change: impl FnOnce(&Connection) -> rusqlite::Result<()>) -> rusqlite::Result<()> {
        let transaction = self.db.transaction()?;
        change(&transaction)?;
        transaction.commit()
    }

    /// The position of the base; 0 without one.
    pub(crate) fn base_at(&self) -> Seq {
        snapshot::position(self.dir(), FILE_BASE).unwrap_or(Seq(0))
    }

    /// The last position in the archive.
    pub(crate) const fn behind(&self) -> Seq {
        self.behind
    }

    /// Writes rows, and how far of the stream is in the file then, in one transaction. `mark` is the same place.
    pub(crate) fn apply(&mut self, rows: &[StoredRow], applied: &Applied, mark: &Mark) -> rusqlite::Result<()> {
        // Before the end of the archive nothing is written: a mirror that is opened there begins at the start's mark.
        if mark.last <= self.behind {
            return Ok(());
        }
        self.db.execute_batch("BEGIN IMMEDIATE")?;
        let marks = mark.at >= self.marked + MARK_EVERY;
        let written = self.write(rows, applied, marks.then_some(mark));
        let written = written.and_then(|bytes| self.db.execute_batch("COMMIT").map(|()| bytes));
        match written {
            Ok(bytes) => {
                self.marked = if marks { mark.at } else { self.marked };
                self.wal_bytes += bytes;
                self.checkpoint()
            }
            Err(error) => {
                // The failure itself is what counts; a connection that can't roll back is dropped with the mirror.
                let _undone = self.db.execute_batch("ROLLBACK");
                Err(error)
            }
        }
    }

    fn write(&self, rows: &[StoredRow], applied: &Applied, mark: Option<&Mark>) -> rusqlite::Result<usize> {
        let mut bytes = 2 * sqlite::PAGE_BYTES;
        // Those before are in the archive: a start's mark may be a little before the end of its segments.
        for row in rows.iter().filter(|row| row.first > self.behind) {
            sqlite::insert(&self.db, row.row(), &row.hash)?;
            bytes += row.blob.len() + sqlite::PAGE_BYTES;
        }
        note(&self.db, applied)?;
        mark.map_or(Ok(()), |mark| mark.insert(&self.db))?;
        Ok(bytes)
    }

    fn checkpoint(&mut self) -> rusqlite::Result<()> {
        if self.wal_bytes < CHECKPOINT_BYTES {
            return Ok(());
        }
        self.wal_bytes = 0;
        self.db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
    }

    pub(crate) fn reader(&self) -> Arc<dyn LogReader> {
        Arc::new(SqliteReader::new(self.readers.clone()))
    }

    pub(crate) fn archive(&self) -> SqliteArchive {
        SqliteArchive::new(self.lock.dir(), self.readers.clone())
    }

    pub(crate) fn readers(&self) -> Pool {
        self.readers.clone()
    }

    pub(crate) fn snapshots(&self) -> Arc<dyn Snapshots> {
        Arc::new(SnapshotFile::new(self.lock.dir(), SqliteReader::new(self.readers.clone())))
    }

    /// The directory.
    pub(crate) fn dir(&self) -> &Path {
        self.lock.dir()
    }
}

/// Writes how far of the stream is in the file.
fn note(db: &Connection, applied: &Applied) -> rusqlite::Result<()> {
    let [at, epoch, batch, row_at] = [applied.at, applied.epoch, applied.batch, applied.row_at].map(u64::cast_signed);
    let mut statement = db.prepare_cached("INSERT OR REPLACE INTO mirror VALUES (1, ?1, ?2, ?3, ?4, ?5)")?;
    statement.execute((&applied.stream_id, at, epoch, batch, row_at))?;
    // What a backup of the mirror carries.
    db.prepare_cached("UPDATE leader SET epoch = ?1 WHERE epoch <> ?1")?.execute([epoch])?;
    Ok(())
}

/// Returns the newest mark that isn't behind `end`.
pub(crate) fn newest_mark(db: &Connection, end: Seq) -> rusqlite::Result<Option<Mark>> {
    mark_where(db, "last_seq <= ?1 ORDER BY at DESC", end.0)
}

fn mark_where(db: &Connection, condition: &str, value: u64) -> rusqlite::Result<Option<Mark>> {
    let sql = format!("SELECT at, epoch, batch, last_seq, hash, row_epoch FROM marks WHERE {condition} LIMIT 1");
    let read = |row: &rusqlite::Row<'_>| {
        let [at, epoch, batch, last, row_epoch] =
            [row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(5)?].map(i64::cast_unsigned);
        Ok(Mark { at, epoch, batch, last: Seq(last), hash: row.get(4)?, row_epoch })
    };
    db.prepare_cached(&sql)?.query_row([value.cast_signed()], read).optional()
}

/// Removes the marks before a message.
pub(crate) fn remove_marks(db: &Connection, before: u64) -> rusqlite::Result<()> {
    db.execute("DELETE FROM marks WHERE at < ?1", [before.cast_signed()]).map(|_| ())
}

/// The refusal of a directory with a log that no stream has.
fn own_log(dir: &Path) -> OpenError {
    let place = dir.join(FILE_DATABASE).display().to_string();
    let reason = "it is a log of its own and not a mirror: use another directory, or copy it into NATS with \
                  `lastword move-in`";
    OpenError::Io { place, reason: reason.to_owned() }
}

fn open_database(dir: &Path) -> Result<(Connection, Applied, MirrorEnd), OpenError> {
    let path = dir.join(FILE_DATABASE);
    let unopened = |error: rusqlite::Error| sqlite::unopened(&path, &error);
    data_dir::open_private(&path).map_err(|error| OpenError::io(&path, &error))?;
    let db = sqlite::open_database(&path).map_err(unopened)?;
    sqlite::prepare_format(&db, &path)?;
    sqlite::configure(&db).map_err(unopened)?;
    // What a power cut takes is in the stream.
    db.pragma_update(None, "synchronous", "NORMAL").map_err(unopened)?;
    let (last, hash) = sqlite::tail(&db).map_err(unopened)?;
    let mirror = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'mirror'";
    let is_mirror = db.query_row(mirror, [], |_| Ok(())).optional().map_err(unopened)?.is_some();
    if !is_mirror && last > Seq(0) {
        return Err(own_log(dir));
    }
    db.execute_batch(SCHEMA).map_err(unopened)?;
    sqlite::check_end(&db, &path)?;
    let applied = applied(&db).map_err(unopened)?;
    let epoch = "SELECT epoch FROM log ORDER BY first_seq DESC LIMIT 1";
    let epoch: Option<i64> = db.query_row(epoch, [], |row| row.get(0)).optional().map_err(unopened)?;
    // Without rows it begins where a start said.
    let begun = if epoch.is_none() { mark_where(&db, "at = ?1", applied.at).map_err(unopened)? } else { None };
    let end = MirrorEnd { last, hash, epoch: epoch.map_or(0, i64::cast_unsigned) };
    Ok((db, applied, begun.map_or(end, |mark| mark.end())))
}

fn applied(db: &Connection) -> rusqlite::Result<Applied> {
    let row = db.query_row("SELECT stream_id, at, epoch, batch, row_at FROM mirror", [], |row| {
        let [at, epoch, batch, row_at] =
            [row.get::<_, i64>(1)?, row.get(2)?, row.get(3)?, row.get(4)?].map(i64::cast_unsigned);
        Ok(Applied { stream_id: row.get(0)?, at, epoch, batch, row_at })
    });
    Ok(row.optional()?.unwrap_or_default())
}

/// Moves the files of a mirror, and those that are derived from it, to a folder `aside-<n>` of the directory.
fn move_aside(dir: &Path) -> io::Result<()> {
    let database = [FILE_DATABASE, FILE_INDEX];
    let database = database.iter().flat_map(|name| ["", "-wal", "-shm"].map(|suffix| format!("{name}{suffix}")));
    let names = database.chain([FILE_SNAPSHOT, FILE_BASE, FOLDER_ARCHIVE].map(str::to_owned));
    let aside = (1..).map(|n| dir.join(format!("aside-{n}"))).find(|path: &PathBuf| !path.exists());
    let aside = aside.unwrap_or_else(|| dir.join("aside"));
    data_dir::make_dir(&aside)?;
    for name in names {
        match fs::rename(dir.join(&name), aside.join(&name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    data_dir::sync_dir(dir)
}
