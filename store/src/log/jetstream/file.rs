//! The file of a mirror: an ordinary log, and how far of the stream is in it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lastword_proto::Seq;
use rusqlite::{Connection, OptionalExtension as _};

use super::record::StoredRow;
use crate::data_dir::{self, DirLock, FILE_BASE, FILE_DATABASE, FILE_HEAD, FILE_INDEX, FILE_SNAPSHOT, FOLDER_ARCHIVE};
use crate::log::chain::Hash;
use crate::log::snapshot::SnapshotFile;
use crate::log::sqlite::{self};
use crate::log::sqlite_archive::SqliteArchive;
use crate::log::sqlite_reader::SqliteReader;
use crate::log::{Archive, LogReader, OpenError, Snapshots};
use crate::pool::Pool;

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
) STRICT;";

/// How far of which stream is in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Applied {
    pub(crate) stream_id: String,
    pub(crate) at: u64,
    pub(crate) epoch: u64,
    pub(crate) batch: u64,
    pub(crate) row_at: u64,
}

/// The file of a mirror, open for writing. It has the lock of its directory.
pub(crate) struct MirrorFile {
    lock: DirLock,
    db: Connection,
    readers: Pool,
    wal_bytes: usize,
}

/// The end of a mirror's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
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
    pub(crate) fn open(dir: &Path) -> Result<(Self, Applied, End), OpenError> {
        let lock = DirLock::take(dir)?;
        if dir.join(FILE_HEAD).exists() {
            return Err(own_log(dir));
        }
        match open_database(dir) {
            Ok((db, applied, end)) => Ok((Self::over(lock, db), applied, end)),
            // It is a cache: what is damaged is fetched again.
            Err(OpenError::NotALog { .. } | OpenError::DamagedEnd { .. }) => Self::anew(lock),
            Err(error) => Err(error),
        }
    }

    /// Moves the mirror aside and begins an empty one.
    pub(crate) fn replace(self) -> Result<(Self, Applied, End), OpenError> {
        let Self { lock, db, .. } = self;
        drop(db);
        Self::anew(lock)
    }

    fn anew(lock: DirLock) -> Result<(Self, Applied, End), OpenError> {
        let dir = lock.dir().to_owned();
        move_aside(&dir).map_err(|error| OpenError::io(&dir, &error))?;
        let (db, applied, end) = open_database(&dir)?;
        Ok((Self::over(lock, db), applied, end))
    }

    fn over(lock: DirLock, db: Connection) -> Self {
        let readers = Pool::new(lock.dir().join(FILE_DATABASE));
        Self { lock, db, readers, wal_bytes: CHECKPOINT_BYTES }
    }

    /// Writes rows, and how far of the stream is in the file then, in one transaction.
    pub(crate) fn apply<'a>(
        &mut self,
        rows: impl IntoIterator<Item = &'a StoredRow>,
        applied: &Applied,
    ) -> rusqlite::Result<()> {
        self.db.execute_batch("BEGIN IMMEDIATE")?;
        let written = self.write(rows, applied).and_then(|bytes| self.db.execute_batch("COMMIT").map(|()| bytes));
        match written {
            Ok(bytes) => {
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

    fn write<'a>(&self, rows: impl IntoIterator<Item = &'a StoredRow>, applied: &Applied) -> rusqlite::Result<usize> {
        let mut bytes = 2 * sqlite::PAGE_BYTES;
        for row in rows {
            sqlite::insert(&self.db, row.row(), &row.hash)?;
            bytes += row.blob.len() + sqlite::PAGE_BYTES;
        }
        let [at, epoch, batch, row_at] =
            [applied.at, applied.epoch, applied.batch, applied.row_at].map(u64::cast_signed);
        self.db.prepare_cached("INSERT OR REPLACE INTO mirror VALUES (1, ?1, ?2, ?3, ?4, ?5)")?.execute((
            &applied.stream_id,
            at,
            epoch,
            batch,
            row_at,
        ))?;
        // What a backup of the mirror carries.
        self.db.prepare_cached("UPDATE leader SET epoch = ?1 WHERE epoch <> ?1")?.execute([epoch])?;
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

    pub(crate) fn archive(&self) -> Arc<dyn Archive> {
        Arc::new(SqliteArchive::new(self.lock.dir(), self.readers.clone()))
    }

    pub(crate) fn snapshots(&self) -> Arc<dyn Snapshots> {
        Arc::new(SnapshotFile::new(self.lock.dir(), SqliteReader::new(self.readers.clone())))
    }

    /// The directory.
    pub(crate) fn dir(&self) -> &Path {
        self.lock.dir()
    }
}

/// The refusal of a directory with a log that no stream has.
fn own_log(dir: &Path) -> OpenError {
    let place = dir.join(FILE_DATABASE).display().to_string();
    let reason = "it is a log of its own and not a mirror: use another directory, or copy it into NATS with \
                  `lastword move-in`";
    OpenError::Io { place, reason: reason.to_owned() }
}

fn open_database(dir: &Path) -> Result<(Connection, Applied, End), OpenError> {
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
    let end = End { last, hash, epoch: epoch.map_or(0, i64::cast_unsigned) };
    Ok((db, applied, end))
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
