//! The archive of a data directory: the table `segments` of the log, and a file for each in the folder `archive`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use lastword_facts::{Entry, Seq, Time};
use rusqlite::{Connection, OptionalExtension as _};
use serde::{Deserialize, Serialize};

use crate::data_dir::{self, FILE_BASE, FILE_DATABASE, FOLDER_ARCHIVE};
use crate::log::archive::{Archive, ArchiveError, Base, Segment};
use crate::log::chain::{GENESIS, Hash};
use crate::log::snapshot::SnapshotFile;
use crate::log::sqlite_reader::SqliteReader;
use crate::log::verify::Anchor;
use crate::log::{SnapshotError, Snapshots as _, frame, sqlite};
use crate::pool::Pool;
use crate::rows::{RowReader, RowWriter, RowsError};

const MAGIC: &[u8; 8] = b"LWsegm01";
/// What the name of a file ends with until it is complete and known to the log.
const DRAFT: &str = "part";

pub(crate) const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS segments (
  first_seq INTEGER PRIMARY KEY,
  last_seq INTEGER NOT NULL,
  -- The time of its last entry, in ms since the Unix epoch.
  until INTEGER NOT NULL,
  hash BLOB NOT NULL,
  file TEXT NOT NULL
) STRICT;";

/// What precedes a segment's rows.
#[derive(Serialize, Deserialize)]
struct Header {
    /// The position before its first entry, and the hash there.
    behind: u64,
    hash: Hash,
}

/// A row of the table `segments`, as backups carry it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sealed {
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) until: u64,
    pub(crate) hash: Hash,
    pub(crate) file: String,
}

impl Sealed {
    pub(crate) const fn end(&self) -> Anchor {
        Anchor { at: Seq(self.last), hash: self.hash }
    }

    fn segment(&self, folder: &Path) -> Segment {
        let bytes = found(folder, &self.file).map(|file| file.len());
        Segment { first: Seq(self.first), end: self.end(), until: Time(self.until), file: self.file.clone(), bytes }
    }

    pub(crate) fn insert(&self, db: &Connection) -> rusqlite::Result<()> {
        let numbers = [self.first, self.last, self.until].map(u64::cast_signed);
        let mut statement = db.prepare_cached("INSERT INTO segments VALUES (?1, ?2, ?3, ?4, ?5)")?;
        statement.execute((numbers[0], numbers[1], numbers[2], self.hash.as_slice(), &self.file)).map(|_| ())
    }
}

/// Returns the segments of a log, oldest first. Logs of earlier versions have no such table.
pub(crate) fn sealed(db: &Connection) -> rusqlite::Result<Vec<Sealed>> {
    let table = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'segments'";
    if db.prepare_cached(table)?.query_row([], |_| Ok(())).optional()?.is_none() {
        return Ok(Vec::new());
    }
    let mut statement =
        db.prepare_cached("SELECT first_seq, last_seq, until, hash, file FROM segments ORDER BY first_seq")?;
    let rows = statement.query_map([], |row| {
        let [first, last, until] = [row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?].map(i64::cast_unsigned);
        Ok(Sealed { first, last, until, hash: row.get(3)?, file: row.get(4)? })
    })?;
    rows.collect()
}

/// Returns the place before the first row of a log: its start, or the end of the last segment.
pub(crate) fn behind(db: &Connection) -> rusqlite::Result<Anchor> {
    Ok(sealed(db)?.last().map_or(Anchor { at: Seq(0), hash: GENESIS }, Sealed::end))
}

/// Returns the paths at which a segment's file may be, in the order to try them. A crash may have left it under its
/// draft's name, complete; a running server may rename it at any time.
fn places(folder: &Path, file: &str) -> [PathBuf; 3] {
    let path = folder.join(file);
    [path.clone(), draft(&path), path]
}

fn found(folder: &Path, file: &str) -> Option<fs::Metadata> {
    places(folder, file).into_iter().find_map(|path| path.metadata().ok())
}

/// Returns whether the file of a segment is there.
pub(crate) fn is_there(dir: &Path, sealed: &Sealed) -> bool {
    found(&dir.join(FOLDER_ARCHIVE), &sealed.file).is_some()
}

/// Returns segments, oldest first, each with what precedes it.
#[cfg(feature = "cluster")]
pub(crate) fn chained(segments: &[Sealed]) -> impl Iterator<Item = (&Sealed, Anchor)> {
    let before = segments.iter().map(Sealed::end);
    segments.iter().zip(std::iter::once(Anchor { at: Seq(0), hash: GENESIS }).chain(before))
}

/// Returns the bytes of a segment's file.
#[cfg(feature = "cluster")]
pub(crate) fn file_of(dir: &Path, sealed: &Sealed) -> Result<Vec<u8>, ArchiveError> {
    let mut read = places(&dir.join(FOLDER_ARCHIVE), &sealed.file).into_iter().map(fs::read);
    let is_missing = |read: &io::Result<Vec<u8>>| read.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
    match read.find(|read| !is_missing(read)) {
        Some(read) => Ok(read?),
        None => Err(ArchiveError::Missing { file: sealed.file.clone() }),
    }
}

/// Checks the bytes of a segment that another node sealed, and writes its file.
#[cfg(feature = "cluster")]
pub(crate) fn receive(dir: &Path, sealed: &Sealed, behind: Anchor, bytes: &[u8]) -> Result<(), ArchiveError> {
    let folder = dir.join(FOLDER_ARCHIVE);
    data_dir::make_dir(&folder)?;
    let failed = |source: RowsError| ArchiveError::File { file: sealed.file.clone(), source };
    let place = |header: &Header| Anchor { at: Seq(header.behind), hash: header.hash };
    let (header, mut rows) = RowReader::begin(bytes, MAGIC, place).map_err(failed)?;
    while rows.next().map_err(failed)?.is_some() {}
    if (place(&header), rows.reached().end) != (behind, sealed.end()) {
        return Err(ArchiveError::Other { file: sealed.file.clone() });
    }
    Ok(data_dir::replace(&folder.join(&sealed.file), &[bytes])?)
}

fn draft(path: &Path) -> PathBuf {
    path.with_added_extension(DRAFT)
}

/// Opens the file of a segment and compares its start with the log's. `None` if the file isn't there.
pub(crate) fn open(
    dir: &Path,
    sealed: &Sealed,
    behind: Anchor,
) -> Result<Option<RowReader<BufReader<File>>>, ArchiveError> {
    let failed = |source: RowsError| ArchiveError::File { file: sealed.file.clone(), source };
    let mut opened = places(&dir.join(FOLDER_ARCHIVE), &sealed.file).into_iter().map(File::open);
    let is_missing = |file: &io::Result<File>| file.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
    let Some(file) = opened.find(|file| !is_missing(file)) else { return Ok(None) };
    let file = file.map_err(|error| failed(error.into()))?;
    let place = |header: &Header| Anchor { at: Seq(header.behind), hash: header.hash };
    let (header, rows) = RowReader::begin(BufReader::new(file), MAGIC, place).map_err(failed)?;
    if place(&header) == behind { Ok(Some(rows)) } else { Err(ArchiveError::Other { file: sealed.file.clone() }) }
}

/// The archive of a data directory.
pub(crate) struct SqliteArchive {
    dir: PathBuf,
    readers: Pool,
    one: Mutex<()>,
}

impl From<rusqlite::Error> for ArchiveError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Log(error.to_string())
    }
}

impl SqliteArchive {
    pub(crate) fn new(dir: &Path, readers: Pool) -> Self {
        Self { dir: dir.to_owned(), readers, one: Mutex::default() }
    }

    fn folder(&self) -> PathBuf {
        self.dir.join(FOLDER_ARCHIVE)
    }

    fn base_file(&self) -> SnapshotFile {
        SnapshotFile::named(&self.dir, FILE_BASE, SqliteReader::new(self.readers.clone()))
    }

    fn writer(&self) -> rusqlite::Result<Connection> {
        let db = sqlite::open_database(&self.dir.join(FILE_DATABASE))?;
        sqlite::configure(&db)?;
        Ok(db)
    }

    /// Writes the rows up to `end` to a file, and reads it back.
    fn write(&self, behind: Anchor, end: Seq, draft: &Path) -> Result<Anchor, RowsError> {
        let header = Header { behind: behind.at.0, hash: behind.hash };
        let file = data_dir::create_private(draft)?;
        let written = self.readers.with(|db| {
            let mut rows = RowWriter::begin(BufWriter::new(&file), MAGIC, &header, behind)?;
            rows.copy(db, end, &mut |_, _| {})?;
            rows.finish().map(|(reached, _)| reached.end)
        })?;
        file.sync_all()?;
        let place = |header: &Header| Anchor { at: Seq(header.behind), hash: header.hash };
        let (_, mut rows) = RowReader::begin(BufReader::new(File::open(draft)?), MAGIC, place)?;
        while rows.next()?.is_some() {}
        if rows.reached().end == written {
            return Ok(written);
        }
        Err(RowsError::Damaged("what was written reads as something else".to_owned()))
    }

    /// Removes what a crash left of files that no segment has.
    fn remove_drafts(&self, folder: &Path) -> Result<(), ArchiveError> {
        let known: BTreeSet<PathBuf> =
            self.readers.with(sealed)?.iter().map(|sealed| folder.join(&sealed.file)).collect();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == DRAFT) && !known.contains(&path.with_extension(""))
            {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// Reads the rows of a segment, all of them.
    fn each_row(
        &self,
        sealed: &Sealed,
        behind: Anchor,
        each: &mut dyn FnMut(crate::log::chain::Row<'_>, Hash) -> Result<(), RowsError>,
    ) -> Result<(), ArchiveError> {
        let failed = |source: RowsError| ArchiveError::File { file: sealed.file.clone(), source };
        let missing = || ArchiveError::Missing { file: sealed.file.clone() };
        let mut rows = open(&self.dir, sealed, behind)?.ok_or_else(missing)?;
        while let Some((row, hash)) = rows.next().map_err(failed)? {
            each(row, hash).map_err(failed)?;
        }
        if rows.reached().end == sealed.end() { Ok(()) } else { Err(ArchiveError::Other { file: sealed.file.clone() }) }
    }
}

impl Archive for SqliteArchive {
    fn segments(&self) -> Result<Vec<Segment>, ArchiveError> {
        let folder = self.folder();
        let sealed = self.readers.with(sealed)?;
        Ok(sealed.iter().map(|sealed| sealed.segment(&folder)).collect())
    }

    fn bytes(&self) -> Result<u64, ArchiveError> {
        let sum = "SELECT ifnull(sum(length(blob)), 0) FROM log";
        Ok(self.readers.with(|db| db.query_row(sum, [], |row| row.get::<_, i64>(0)))?.cast_unsigned())
    }

    fn seal(&self, upto: Seq, bytes_max: u64, base: Base<'_>) -> Result<Option<(Segment, u64)>, ArchiveError> {
        let _one = self.one.lock().unwrap_or_else(PoisonError::into_inner);
        let (behind, end) = self.readers.with(|db| {
            let behind = behind(db)?;
            end_of(db, behind.at, upto.min(base.at), bytes_max).map(|end| (behind, end))
        })?;
        let Some(NextSegment { first, last, until, bytes }) = end else { return Ok(None) };
        let folder = self.folder();
        data_dir::make_dir(&folder)?;
        self.remove_drafts(&folder)?;
        let file = format!("{}-{}.segment", first.0, last.0);
        let path = folder.join(&file);
        let draft = draft(&path);
        let failed = |source: RowsError| ArchiveError::File { file: file.clone(), source };
        let written = self.write(behind, last, &draft).map_err(|source| {
            // Only what the failure left; the failure itself is what counts.
            let _gone = fs::remove_file(&draft);
            failed(source)
        })?;
        data_dir::sync_dir(&folder)?;
        self.base_file().save(base.at, base.state)?;
        let sealed = Sealed { first: first.0, last: last.0, until: until.0, hash: written.hash, file };
        let mut db = self.writer()?;
        let change = db.transaction()?;
        sealed.insert(&change)?;
        // Within the transaction: the file may be another log's by now.
        if hash_at(&change, last)? != Some(written.hash) {
            return Err(ArchiveError::Log(format!("position {} is not what was copied", last.0)));
        }
        change.execute("DELETE FROM log WHERE first_seq <= ?1", [last.0.cast_signed()])?;
        change.commit()?;
        // The log knows the file by now: a draft that stays behind is found as well.
        fs::rename(&draft, &path).and_then(|()| data_dir::sync_dir(&folder))?;
        Ok(Some((sealed.segment(&folder), bytes)))
    }

    fn save_base(&self, at: Seq, state: &[u8]) -> Result<(), SnapshotError> {
        let _one = self.one.lock().unwrap_or_else(PoisonError::into_inner);
        self.base_file().save(at, state)
    }

    fn base(&self) -> Result<Option<(Seq, Vec<u8>)>, SnapshotError> {
        self.base_file().load()
    }

    fn walk(&self, each: &mut dyn FnMut(Seq, &Entry)) -> Result<(), ArchiveError> {
        let mut behind = Anchor { at: Seq(0), hash: GENESIS };
        for sealed in self.readers.with(sealed)? {
            self.each_row(&sealed, behind, &mut |row, _| {
                let (mut batch, mut at) = (row.blob, row.first);
                while let Some(bytes) = frame::split(&mut batch) {
                    let entry = bytes.and_then(frame::decode).map_err(|error| RowsError::Damaged(error.to_string()))?;
                    each(at, &entry);
                    at.0 += 1;
                }
                Ok(())
            })?;
            behind = sealed.end();
        }
        Ok(())
    }

    fn put_back(&self) -> Result<Option<Segment>, ArchiveError> {
        let _one = self.one.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = self.readers.with(sealed)?;
        let Some(last) = all.pop() else { return Ok(None) };
        let behind = all.last().map_or(Anchor { at: Seq(0), hash: GENESIS }, Sealed::end);
        let mut db = self.writer()?;
        let change = db.transaction()?;
        self.each_row(&last, behind, &mut |row, hash| Ok(sqlite::insert(&change, row, &hash)?))?;
        change.execute("DELETE FROM segments WHERE first_seq = ?1", [last.first.cast_signed()])?;
        change.commit()?;
        // Or the WAL would hold all segments at once.
        db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        Ok(Some(last.segment(&self.folder())))
    }
}

/// Returns the hash of the row that ends at `last`.
pub(crate) fn hash_at(db: &Connection, last: Seq) -> rusqlite::Result<Option<Hash>> {
    let sql = "SELECT hash FROM log WHERE first_seq = (SELECT max(first_seq) FROM log WHERE first_seq <= ?1)
               AND first_seq + count - 1 = ?1";
    db.query_row(sql, [last.0.cast_signed()], |row| row.get(0)).optional()
}

/// The part of the log that moves next.
struct NextSegment {
    first: Seq,
    last: Seq,
    /// The time of its last entry.
    until: Time,
    /// The length of its batches.
    bytes: u64,
}

/// Returns the next segment: whole batches behind `behind` and up to `upto`, at most about `bytes_max` bytes.
fn end_of(db: &Connection, behind: Seq, upto: Seq, bytes_max: u64) -> Result<Option<NextSegment>, rusqlite::Error> {
    // `length` of a blob reads no more of it than its header.
    let mut statement = db.prepare_cached(
        "SELECT first_seq, first_seq + count - 1, length(blob) FROM log
         WHERE first_seq > ?1 AND first_seq + count - 1 <= ?2 AND first_seq < (SELECT max(first_seq) FROM log)
         ORDER BY first_seq",
    )?;
    let mut rows = statement.query([behind.0.cast_signed(), upto.0.cast_signed()])?;
    let (mut first, mut last, mut bytes) = (None, Seq(0), 0);
    while let Some(row) = rows.next()? {
        let [row_first, row_last, length] = [row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?].map(i64::cast_unsigned);
        first = first.or(Some(Seq(row_first)));
        last = Seq(row_last);
        bytes += length;
        if bytes >= bytes_max {
            break;
        }
    }
    let Some(first) = first else { return Ok(None) };
    let blob = "SELECT blob FROM log WHERE first_seq <= ?1 ORDER BY first_seq DESC LIMIT 1";
    let blob: Vec<u8> = db.query_row(blob, [last.0.cast_signed()], |row| row.get(0))?;
    let (mut batch, mut until) = (blob.as_slice(), Time(0));
    while let Some(Ok(bytes)) = frame::split(&mut batch) {
        until = frame::decode(bytes).map_or(until, |entry| entry.at);
    }
    Ok(Some(NextSegment { first, last, until, bytes }))
}
