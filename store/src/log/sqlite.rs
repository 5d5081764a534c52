//! The log in one SQLite file: WAL, `synchronous=FULL`, a batch as one row.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;

use lastword_facts::{Entry, Seq};
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _};

use crate::data_dir::{self, APPLICATION_ID, DirLock, FILE_DATABASE, FileId, Head, HeadFound, LOG_VERSION};
use crate::log::chain::{GENESIS, Hash, Row};
use crate::log::snapshot::{self, SnapshotFile};
use crate::log::sqlite_archive::{self, SqliteArchive};
use crate::log::sqlite_reader::SqliteReader;
use crate::log::{AppendError, Archive, Log, LogReader, OpenError, Snapshots, first_of, frame};
use crate::pool::{BUSY, Pool};

/// A batch is split into rows of about this size, which bounds the cost of reading a single entry. An append of several
/// rows is still one transaction.
pub(crate) const ROW_BYTES_TARGET: usize = 1 << 17;
/// Bytes in the WAL that trigger a checkpoint. Each costs two syncs: rare enough to be cheap, frequent enough that no
/// append waits long for one.
const CHECKPOINT_BYTES: usize = 2 << 20;
/// Page size of a new file. Larger than SQLite's default: a batch fills several pages, and each costs two writes.
pub(crate) const PAGE_BYTES: usize = 16 << 10;
/// Pages that an append writes besides its blob: the rest of the leaf and an inner page.
const PAGES_PER_APPEND: usize = 2;
/// Capacity above which the encode buffer is freed after an append.
const BUFFER_BYTES_KEPT: usize = 4 << 20;

/// SQLite's write-ahead log.
const FILE_WAL: &str = "lastword.db-wal";

const SCHEMA: &str = "
CREATE TABLE log (
  first_seq INTEGER PRIMARY KEY,
  count INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  blob BLOB NOT NULL,
  hash BLOB NOT NULL
) STRICT;
CREATE TABLE leader (id INTEGER PRIMARY KEY CHECK (id = 1), epoch INTEGER NOT NULL) STRICT;
INSERT INTO leader VALUES (1, 0);";

/// The log of a data directory. One process has it at a time.
pub(crate) struct SqliteLog {
    lock: DirLock,
    db: Connection,
    readers: Pool,
    head: Head,
    epoch: u64,
    last: Seq,
    hash: Hash,
    buffer: Vec<u8>,
    wal_bytes: usize,
    /// The file of the log, and its WAL once there is one.
    files: [Option<FileId>; 2],
    /// The failure after which every append is refused.
    failed: Option<String>,
}

impl SqliteLog {
    /// Opens the log of `dir`, and creates it if it is missing. Refuses a log that lost its end, or whose end is damaged.
    pub(crate) fn open(dir: &Path) -> Result<Self, OpenError> {
        Self::open_by(dir, Trust::Checked)
    }

    /// Opens a log although it may have lost its end.
    pub(crate) fn open_as_it_is(dir: &Path) -> Result<Self, OpenError> {
        Self::open_by(dir, Trust::AsItIs)
    }

    fn open_by(dir: &Path, trust: Trust) -> Result<Self, OpenError> {
        let lock = DirLock::take(dir)?;
        let path = dir.join(FILE_DATABASE);
        if !path.exists()
            && let Some(left) = data_dir::derived(dir)
        {
            return Err(OpenError::Gone { place: path.display().to_string(), left });
        }
        let failed = |source| OpenError::io(&path, &source);
        // SQLite would create the file with the umask's mode; created here, it and its WAL are private from the start.
        data_dir::open_private(&path).and_then(|_| data_dir::sync_dir(dir)).map_err(failed)?;
        let unopened = |error: rusqlite::Error| unopened(&path, &error);
        let db = open_database(&path).map_err(unopened)?;
        prepare_format(&db, &path)?;
        data_dir::note_version(dir);
        configure(&db).map_err(unopened)?;
        let (last, hash) = tail(&db).map_err(unopened)?;
        let epoch = epoch_of(&db).map_err(unopened)?;
        check_end(&db, &path)?;
        if trust == Trust::Checked {
            check_head(dir, last, &hash, &path)?;
            check_snapshot(dir, last, &path)?;
        } else if snapshot::position(dir, data_dir::FILE_BASE).is_some_and(|base| base > last) {
            // It knows of entries that are lost, and the next epoch's positions are beyond its own.
            let base = dir.join(data_dir::FILE_BASE);
            std::fs::remove_file(&base).map_err(|source| OpenError::io(&base, &source))?;
        }
        let head = Head::open(dir).map_err(failed)?;
        // It may be behind, after a crash between the two writes. Synced this once: a power cut must not leave a log
        // without its head, which would stop the next start.
        let noted = head.note(last, &hash).and_then(|()| head.sync()).and_then(|()| data_dir::sync_dir(dir));
        noted.map_err(|source| OpenError::io(&dir.join(data_dir::FILE_HEAD), &source))?;
        let files = [FileId::at(&path).ok(), None];
        let (readers, buffer, wal_bytes) = (Pool::new(path), Vec::new(), CHECKPOINT_BYTES);
        Ok(Self { lock, db, readers, head, epoch, last, hash, buffer, wal_bytes, files, failed: None })
    }

    fn admit(&self, epoch: u64, expect: Seq) -> Result<(), AppendError> {
        if let Some(reason) = &self.failed {
            return Err(AppendError::Fatal { reason: reason.clone() });
        }
        if epoch != self.epoch {
            return Err(AppendError::Fenced { epoch: self.epoch });
        }
        if expect != self.last {
            return Err(AppendError::Conflict { actual: self.last });
        }
        Ok(())
    }

    /// Writes the batch in one transaction; returns the new last position and its hash.
    fn write(&mut self, epoch: u64, entries: &[Arc<Entry>]) -> Result<(Seq, Hash), WriteFailure> {
        self.buffer.clear();
        let mut rest = self.fill(entries)?;
        let behind = Seq(first_of(self.last, entries).0 - 1);
        if rest.is_empty() {
            // A single statement is its own transaction and needs no BEGIN and COMMIT.
            return self.insert(epoch, behind, &self.hash, entries.len());
        }
        self.db.execute_batch("BEGIN IMMEDIATE")?;
        let mut end = (behind, self.hash);
        let mut count = entries.len() - rest.len();
        loop {
            end = self.insert(epoch, end.0, &end.1, count)?;
            if rest.is_empty() {
                break;
            }
            self.buffer.clear();
            let before = rest.len();
            rest = self.fill(rest)?;
            count = before - rest.len();
        }
        self.db.execute_batch("COMMIT")?;
        Ok(end)
    }

    /// Encodes entries until a row is full; returns the rest.
    fn fill<'a>(&mut self, entries: &'a [Arc<Entry>]) -> Result<&'a [Arc<Entry>], WriteFailure> {
        for (i, entry) in entries.iter().enumerate() {
            if self.buffer.len() >= ROW_BYTES_TARGET {
                return Ok(&entries[i..]);
            }
            frame::encode(&mut self.buffer, entry)?;
        }
        Ok(&[])
    }

    fn insert(&self, epoch: u64, behind: Seq, previous: &Hash, count: usize) -> Result<(Seq, Hash), WriteFailure> {
        let count = count as u64;
        let row = Row { first: Seq(behind.0 + 1), count, epoch, blob: &self.buffer };
        let hash = row.hash(previous);
        insert(&self.db, row, &hash)?;
        Ok((Seq(behind.0 + count), hash))
    }

    /// Copies the WAL into the database. SQLite's automatic checkpoint would swallow a failed sync, and the next
    /// checkpoint would assume pages to be on disk that the system has dropped.
    fn checkpoint(&mut self) {
        self.wal_bytes = 0;
        let result = self.db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        if let Err(error) = result
            && error.sqlite_error_code() != Some(ErrorCode::DiskFull)
        {
            self.failed = Some(explain(&error));
        }
    }

    /// Rolls back a failed append. If the rollback fails, or the cause isn't a full disk, no further append is
    /// accepted: only a restart can find out what is on disk.
    fn fail(&mut self, failure: WriteFailure) -> AppendError {
        let undone = self.db.is_autocommit() || self.db.execute_batch("ROLLBACK").is_ok();
        match failure {
            WriteFailure::Sqlite(error) if undone && error.sqlite_error_code() == Some(ErrorCode::DiskFull) => {
                AppendError::Full { reason: explain(&error) }
            }
            WriteFailure::Sqlite(error) => self.stop(explain(&error)),
            WriteFailure::Encode(error) => self.stop(format!("an entry can't be encoded: {error}")),
        }
    }

    fn stop(&mut self, reason: String) -> AppendError {
        self.failed = Some(reason.clone());
        AppendError::Fatal { reason }
    }
}

impl Log for SqliteLog {
    fn begin_epoch(&mut self) -> Result<u64, AppendError> {
        self.admit(self.epoch, self.last)?;
        let epoch = self.epoch + 1;
        match self.db.execute("UPDATE leader SET epoch = ?1", [epoch.cast_signed()]) {
            Ok(_) => {
                self.epoch = epoch;
                Ok(epoch)
            }
            Err(error) => Err(self.fail(WriteFailure::Sqlite(error))),
        }
    }

    fn append(&mut self, epoch: u64, expect: Seq, entries: &[Arc<Entry>]) -> Result<Seq, AppendError> {
        self.admit(epoch, expect)?;
        if entries.is_empty() {
            return Ok(self.last);
        }
        let (last, hash) = match self.write(epoch, entries) {
            Ok(end) => end,
            Err(failure) => return Err(self.fail(failure)),
        };
        (self.last, self.hash) = (last, hash);
        if self.files[1].is_none() {
            self.files[1] = FileId::at(&self.lock.dir().join(FILE_WAL)).ok();
        }
        if let Err(error) = self.head.note(last, &hash) {
            // The batch itself is durable, so it is acknowledged; the next one is refused.
            self.failed = Some(format!("{}: {error}", data_dir::FILE_HEAD));
        }
        self.wal_bytes += self.buffer.len() + PAGES_PER_APPEND * PAGE_BYTES;
        if self.buffer.capacity() > BUFFER_BYTES_KEPT {
            self.buffer = Vec::new();
        }
        if self.wal_bytes >= CHECKPOINT_BYTES {
            self.checkpoint();
        }
        Ok(last)
    }

    fn is_in_place(&self) -> bool {
        let paths = [FILE_DATABASE, FILE_WAL].map(|name| self.lock.dir().join(name));
        self.files
            .iter()
            .zip(paths)
            .all(|(file, path)| file.is_none_or(|file| FileId::at(&path).is_ok_and(|at| at == file)))
    }

    fn write_back(&mut self) -> Result<bool, OpenError> {
        let (dir, path) = (self.lock.dir().to_owned(), self.lock.dir().join(FILE_DATABASE));
        if path.exists() || !self.files[0].is_some_and(FileId::is_deleted) {
            return Ok(false);
        }
        let draft = path.with_added_extension("new");
        let failed = |source| OpenError::io(&draft, &source);
        data_dir::make_dir(&dir).map_err(failed)?;
        let file = data_dir::create_private(&draft).map_err(failed)?;
        // Through the connection, which has the deleted files open.
        let copied = self.db.execute("VACUUM INTO ?1", [draft.to_string_lossy()]);
        copied.map_err(|error| unopened(&draft, &error))?;
        file.sync_all().and_then(|()| fs::rename(&draft, &path)).map_err(failed)?;
        let head = Head::open(&dir).and_then(|head| head.note(self.last, &self.hash).and_then(|()| head.sync()));
        head.and_then(|()| data_dir::sync_dir(&dir)).map_err(failed)?;
        Ok(true)
    }

    fn reader(&self) -> Arc<dyn LogReader> {
        Arc::new(SqliteReader::new(self.readers.clone()))
    }

    fn archive(&self) -> Arc<dyn Archive> {
        Arc::new(SqliteArchive::new(self.lock.dir(), self.readers.clone()))
    }

    fn snapshots(&self) -> Arc<dyn Snapshots> {
        Arc::new(SnapshotFile::new(self.lock.dir(), SqliteReader::new(self.readers.clone())))
    }
}

enum WriteFailure {
    Sqlite(rusqlite::Error),
    Encode(postcard::Error),
}

impl From<rusqlite::Error> for WriteFailure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<postcard::Error> for WriteFailure {
    fn from(error: postcard::Error) -> Self {
        Self::Encode(error)
    }
}

fn explain(error: &rusqlite::Error) -> String {
    let advice = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => "make room there",
        Some(ErrorCode::ReadOnly) => "the data directory is read-only; check its mount and its owner",
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => "another program holds lastword.db; end it",
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => "the file is damaged; run `lastword verify`",
        // SQLite's list of codes is open; for the others its own message is the best advice.
        Some(_) | None => "check the disk and its free space, then restart; what was acknowledged is safe",
    };
    format!("{error} ({advice})")
}

/// Inserts a row with its hash.
pub(crate) fn insert(db: &Connection, row: Row<'_>, hash: &Hash) -> rusqlite::Result<()> {
    let mut statement =
        db.prepare_cached("INSERT INTO log (first_seq, count, epoch, blob, hash) VALUES (?1, ?2, ?3, ?4, ?5)")?;
    let numbers = [row.first.0, row.count, row.epoch].map(u64::cast_signed);
    statement.execute((numbers[0], numbers[1], numbers[2], row.blob, hash.as_slice())).map(|_| ())
}

pub(crate) fn open_database(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags)?;
    db.busy_timeout(BUSY)?;
    Ok(db)
}

pub(crate) fn configure(db: &Connection) -> rusqlite::Result<()> {
    db.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    db.pragma_update(None, "synchronous", "FULL")?;
    // See `SqliteLog::checkpoint`.
    db.pragma_update_and_check(None, "wal_autocheckpoint", 0, |_| Ok(()))
}

/// Replaces the file of `dir` by a copy without free pages. Nothing else may have it open.
pub(crate) fn compact(dir: &Path) -> Result<(), OpenError> {
    let path = dir.join(FILE_DATABASE);
    let copy = path.with_added_extension("copy");
    let unopened = |error: rusqlite::Error| unopened(&path, &error);
    let io = |source: io::Error| OpenError::io(&copy, &source);
    let db = open_database(&path).map_err(unopened)?;
    check_format(&db, &path)?;
    configure(&db).map_err(unopened)?;
    // What an earlier attempt left.
    match fs::remove_file(&copy) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io(error)),
        Ok(()) | Err(_) => {}
    }
    drop(data_dir::create_private(&copy).map_err(io)?);
    let name = copy.to_str().ok_or_else(|| io(io::Error::other("the path isn't valid UTF-8")))?;
    let copied = db.execute("VACUUM INTO ?1", [name]).map_err(unopened).and_then(|_| {
        // Or rows in the WAL would be taken for later ones of the copy.
        let busy: i64 = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).map_err(unopened)?;
        if busy == 0 {
            return File::open(&copy).and_then(|file| file.sync_all()).map_err(io);
        }
        Err(io(io::Error::other("another program is reading the log: end it, then compact again")))
    });
    let copied = copied.and_then(|()| db.close().map_err(|(_, error)| unopened(error)));
    if let Err(error) = copied {
        // Only what the failure left; the failure itself is what counts.
        let _gone = fs::remove_file(&copy);
        return Err(error);
    }
    fs::rename(&copy, &path).and_then(|()| data_dir::sync_dir(dir)).map_err(io)
}

/// Creates the tables of a new file; checks the format of an existing one.
pub(crate) fn prepare_format(db: &Connection, path: &Path) -> Result<(), OpenError> {
    let unopened = |error: rusqlite::Error| unopened(path, &error);
    let tables: i64 = db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(unopened)?;
    let (id, _) = format_of(db).map_err(unopened)?;
    if tables == 0 && id == 0 {
        let segments = sqlite_archive::SCHEMA;
        let schema = format!(
            "PRAGMA page_size = {PAGE_BYTES}; BEGIN IMMEDIATE; {SCHEMA} {segments} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {LOG_VERSION}; COMMIT"
        );
        return db.execute_batch(&schema).map_err(unopened);
    }
    check_format(db, path)?;
    // Earlier versions can't read entries written from here on. The raised version makes them say so instead of
    // reporting damage.
    let (_, found) = format_of(db).map_err(unopened)?;
    if found < LOG_VERSION {
        let segments = sqlite_archive::SCHEMA;
        let raise = format!("BEGIN IMMEDIATE; {segments} PRAGMA user_version = {LOG_VERSION}; COMMIT");
        db.execute_batch(&raise).map_err(unopened)?;
    }
    Ok(())
}

/// Refuses a file of another program or of a newer version.
pub(crate) fn check_format(db: &Connection, path: &Path) -> Result<(), OpenError> {
    let place = path.display().to_string();
    match format_of(db) {
        Ok((APPLICATION_ID, 1..=LOG_VERSION)) => Ok(()),
        Ok((APPLICATION_ID, found)) if found > LOG_VERSION => {
            let needs = path.parent().and_then(data_dir::newest_version);
            let needs = needs
                .map_or("the newer lastword that wrote it".to_owned(), |needs| format!("lastword {needs} or newer"));
            Err(OpenError::Newer { place, found, known: LOG_VERSION, needs })
        }
        Ok((id, found)) => {
            Err(OpenError::NotALog { place, problem: format!("application_id {id:#x}, user_version {found}") })
        }
        Err(error) => Err(unopened(path, &error)),
    }
}

/// Classifies a failed open: a failing disk isn't a damaged file, and its advice differs.
pub(crate) fn unopened(path: &Path, error: &rusqlite::Error) -> OpenError {
    let kind = match error.sqlite_error_code() {
        Some(ErrorCode::SystemIoFailure) => io::ErrorKind::Other,
        Some(ErrorCode::DiskFull) => io::ErrorKind::StorageFull,
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen) => io::ErrorKind::PermissionDenied,
        // SQLite's list of codes is open; the others concern the file's content.
        Some(_) | None => return OpenError::NotALog { place: path.display().to_string(), problem: error.to_string() },
    };
    OpenError::io(path, &io::Error::new(kind, error.to_string()))
}

fn format_of(db: &Connection) -> rusqlite::Result<(i64, i64)> {
    let id = db.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    let version = db.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    Ok((id, version))
}

pub(crate) fn tail(db: &Connection) -> rusqlite::Result<(Seq, Hash)> {
    let row = db
        .query_row("SELECT first_seq + count - 1, hash FROM log ORDER BY first_seq DESC LIMIT 1", [], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, Hash>(1)?))
        })
        .optional()?;
    Ok(row.map_or((Seq(0), GENESIS), |(last, hash)| (Seq(last.cast_unsigned()), hash)))
}

pub(crate) fn epoch_of(db: &Connection) -> rusqlite::Result<u64> {
    db.query_row("SELECT epoch FROM leader WHERE id = 1", [], |row| row.get(0)).map(i64::cast_unsigned)
}

/// Whether a log is opened only if it is whole, as far as the files beside it tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trust {
    Checked,
    AsItIs,
}

/// Rows at the end of the log whose hashes are checked when it is opened.
const ROWS_CHECKED: i64 = 32;

/// Checks the hashes of the last rows: a crash or a bad disk damages those first.
pub(crate) fn check_end(db: &Connection, path: &Path) -> Result<(), OpenError> {
    let unopened = |error: rusqlite::Error| unopened(path, &error);
    // One row more, for the hash before the first one that is checked.
    let sql = "SELECT first_seq, count, epoch, blob, hash FROM log ORDER BY first_seq DESC LIMIT ?1";
    let mut statement = db.prepare(sql).map_err(unopened)?;
    let mut rows = statement.query([ROWS_CHECKED + 1]).map_err(unopened)?;
    let mut later: Option<(Seq, u64, u64, Vec<u8>, Hash)> = None;
    let damaged = |at: Seq| OpenError::DamagedEnd { place: path.display().to_string(), at };
    let mut seen = 0;
    loop {
        let row = rows.next().map_err(unopened)?;
        let Some(row) = row else { break };
        seen += 1;
        let read = || -> rusqlite::Result<_> {
            let [first, count, epoch] = [row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?].map(i64::cast_unsigned);
            Ok((Seq(first), count, epoch, row.get::<_, Vec<u8>>(3)?, row.get::<_, Hash>(4)?))
        };
        let found = read().map_err(|_| damaged(later.as_ref().map_or(Seq(0), |(first, ..)| *first)))?;
        if let Some((first, count, epoch, blob, hash)) = later.take()
            && (Row { first, count, epoch, blob: &blob }).hash(&found.4) != hash
        {
            return Err(damaged(first));
        }
        later = Some(found);
    }
    // The first row of the log follows the archive, or nothing.
    match later {
        Some((first, count, epoch, blob, hash)) if seen <= ROWS_CHECKED => {
            let behind = sqlite_archive::behind(db).map_err(unopened)?;
            let whole = (Row { first, count, epoch, blob: &blob }).hash(&behind.hash) == hash;
            if whole { Ok(()) } else { Err(damaged(first)) }
        }
        Some(_) | None => Ok(()),
    }
}

/// Compares the log's end with the noted head.
fn check_head(dir: &Path, last: Seq, hash: &Hash, path: &Path) -> Result<(), OpenError> {
    let place = || dir.join(data_dir::FILE_HEAD).display().to_string();
    match data_dir::head_of(dir).map_err(|source| OpenError::io(&dir.join(data_dir::FILE_HEAD), &source))? {
        HeadFound::Noted(acknowledged, noted) if acknowledged > last || (acknowledged == last && noted != *hash) => {
            let (place, by) = (path.display().to_string(), data_dir::FILE_HEAD);
            Err(OpenError::Lost { place, ends: last, by, acknowledged })
        }
        HeadFound::Noted(..) => Ok(()),
        // A log that was just made has none yet.
        HeadFound::Missing if last == Seq(0) => Ok(()),
        HeadFound::Missing => Err(OpenError::NoHead { place: place(), problem: "missing" }),
        HeadFound::Damaged => Err(OpenError::NoHead { place: place(), problem: "damaged" }),
    }
}

/// Refuses a log that ends before its snapshot.
fn check_snapshot(dir: &Path, last: Seq, path: &Path) -> Result<(), OpenError> {
    match snapshot::position(dir, data_dir::FILE_SNAPSHOT).filter(|position| *position > last) {
        Some(acknowledged) => {
            let (place, by) = (path.display().to_string(), data_dir::FILE_SNAPSHOT);
            Err(OpenError::Lost { place, ends: last, by, acknowledged })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use lastword_facts::ids::AgentId;
    use lastword_facts::{Fact, Time};

    use super::*;

    fn entries(count: u64) -> Vec<Arc<Entry>> {
        let entry = |n| Entry {
            at: Time(n),
            grant: None,
            fact: Fact::Late { turn: lastword_facts::ids::TurnId(n), agent: AgentId(1), body: "x".repeat(1000).into() },
        };
        (0..count).map(entry).map(Arc::new).collect()
    }

    #[test]
    fn a_full_disk_refuses_whole_batches_and_appends_go_on_once_there_is_room() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = SqliteLog::open(dir.path()).unwrap();
        let epoch = log.begin_epoch().unwrap();
        log.append(epoch, Seq(0), &entries(3)).unwrap();
        log.db.query_row("PRAGMA max_page_count = 8", [], |_| Ok(())).unwrap();
        for large in [100, 1000] {
            // In one row, and in several of one transaction.
            let refused = log.append(epoch, Seq(3), &entries(large));
            assert!(matches!(&refused, Err(AppendError::Full { reason }) if reason.contains("full")), "{refused:?}");
            assert_eq!(log.reader().last().unwrap(), Seq(3), "all or nothing");
        }
        assert_eq!(log.append(epoch, Seq(3), &entries(1)), Ok(Seq(4)), "a small one still fits");
        log.db.query_row("PRAGMA max_page_count = 100000", [], |_| Ok(())).unwrap();
        assert_eq!(log.append(epoch, Seq(4), &entries(1000)), Ok(Seq(1004)));
        let walked = crate::DataDir::at(dir.path()).verify(None, &mut |_, _| Ok(()), &mut |_, _| {});
        assert_eq!(walked.unwrap().entries, 1004);
    }

    #[test]
    fn after_any_other_failure_nothing_is_appended_any_more() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = SqliteLog::open(dir.path()).unwrap();
        let epoch = log.begin_epoch().unwrap();
        log.append(epoch, Seq(0), &entries(3)).unwrap();
        log.db.pragma_update(None, "query_only", true).unwrap();
        let refused = log.append(epoch, Seq(3), &entries(1));
        assert!(matches!(&refused, Err(AppendError::Fatal { reason }) if reason.contains("read-only")), "{refused:?}");
        log.db.pragma_update(None, "query_only", false).unwrap();
        assert!(matches!(log.append(epoch, Seq(3), &entries(1)), Err(AppendError::Fatal { .. })));
        assert!(matches!(log.begin_epoch(), Err(AppendError::Fatal { .. })));
        assert_eq!(log.reader().last().unwrap(), Seq(3), "reading goes on");
    }

    #[test]
    fn the_wal_is_copied_and_used_again_instead_of_growing() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = SqliteLog::open(dir.path()).unwrap();
        let epoch = log.begin_epoch().unwrap();
        let mut last = Seq(0);
        for _ in 0..300 {
            last = log.append(epoch, last, &entries(20)).unwrap();
        }
        let size = |name: &str| std::fs::metadata(dir.path().join(name)).unwrap().len();
        assert!(size("lastword.db") > 5_000_000, "most of it is in the database");
        assert!(size("lastword.db-wal") < 3_000_000, "{}", size("lastword.db-wal"));
    }
}
