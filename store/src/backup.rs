//! Backups: a consistent copy of the log in one compressed file, made while a server runs, and the way back.
//!
//! ```text
//! "LWback01", then one gzip stream of:
//!   length, Header      the place before the first row, the small files of the data directory
//!   length, RowHead, blob   for each row of the log
//!   length 0, length, End   the end of the log
//! ```
//!
//! Lengths are `u32`, little-endian; the rest is postcard. Rows have their hashes, so a restored log proves itself.

use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use lastword_proto::Seq;
use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use crate::data_dir::{self, FILE_DATABASE};
use crate::log::OpenError;
use crate::log::chain::{GENESIS, Hash, Row};
use crate::log::sqlite::{self, SqliteLog};
use crate::log::verify::{Anchor, VerifyError};
use crate::pool::Pool;

const MAGIC: &[u8; 8] = b"LWback01";
/// Rows per read: a longer read transaction would keep a running server from recycling its WAL.
const ROWS_PER_READ: i64 = 64;
/// The longest part that is read from a backup: a row is split far below it.
const PART_BYTES_MAX: usize = 1 << 30;

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
    Database(#[from] rusqlite::Error),
    /// The file can't be written or read.
    #[error("the backup: {0}")]
    File(#[from] io::Error),
    /// The file isn't a backup, or not a whole one.
    #[error("this isn't a whole backup of Lastword: {0}")]
    Damaged(String),
    /// The restored log doesn't prove itself.
    #[error("the backup's log is damaged: {0}")]
    Unproven(#[from] VerifyError),
}

#[derive(Serialize, Deserialize)]
struct Header {
    /// The epoch of the leader that wrote the last row.
    leader: u64,
    files: Vec<KeptFile>,
}

#[derive(Serialize, Deserialize)]
struct RowHead {
    first: u64,
    count: u64,
    epoch: u64,
    hash: Hash,
    bytes: u32,
}

#[derive(Serialize, Deserialize)]
struct End {
    at: u64,
    hash: Hash,
    rows: u64,
}

/// See [`Store::back_up`](crate::Store::back_up).
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
    let files = files.iter().filter_map(|name| match fs::read(dir.join(name)) {
        Ok(bytes) => Some(Ok(KeptFile { name: (*name).to_owned(), bytes })),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => Some(Err(error)),
    });
    let files = files.collect::<Result<Vec<_>, _>>()?;
    Pool::new(path.clone()).with(|db| {
        sqlite::check_format(db, &path)?;
        // The log only grows, so what lies before this end is one consistent state.
        let (last, hash) = sqlite::tail(db)?;
        to.write_all(MAGIC)?;
        let mut out = GzEncoder::new(to, Compression::default());
        put(&mut out, &Header { leader: sqlite::epoch_of(db)?, files })?;
        let mut copied = BackedUp { end: Anchor { at: Seq(0), hash: GENESIS }, rows: 0 };
        while copied.end.at < last {
            copy(db, last, &mut copied, &mut out)?;
            progress(copied.end.at, last);
        }
        out.write_all(&0_u32.to_le_bytes())?;
        put(&mut out, &End { at: last.0, hash, rows: copied.rows })?;
        out.finish()?.flush()?;
        Ok(copied)
    })
}

/// Copies the next rows, up to the one that ends at `last`.
fn copy(db: &Connection, last: Seq, copied: &mut BackedUp, out: &mut dyn Write) -> Result<(), BackupError> {
    let mut statement = db.prepare_cached(
        "SELECT first_seq, count, epoch, blob, hash FROM log WHERE first_seq > ?1 AND first_seq <= ?2
         ORDER BY first_seq LIMIT ?3",
    )?;
    let mut rows = statement.query([copied.end.at.0.cast_signed(), last.0.cast_signed(), ROWS_PER_READ])?;
    let mut any = false;
    while let Some(row) = rows.next()? {
        any = true;
        let [first, count, epoch] = [row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?].map(i64::cast_unsigned);
        let blob = row.get_ref(3)?.as_blob().map_err(rusqlite::Error::from)?;
        let hash: Hash = row.get(4)?;
        let bytes = u32::try_from(blob.len()).map_err(io::Error::other)?;
        put(out, &RowHead { first, count, epoch, hash, bytes })?;
        out.write_all(blob)?;
        copied.end = Anchor { at: Seq(first + count - 1), hash };
        copied.rows += 1;
    }
    if any { Ok(()) } else { Err(BackupError::Damaged(format!("the log has no row behind {}", copied.end.at))) }
}

/// See [`Store::restore`](crate::Store::restore).
pub(crate) fn restore(
    from: &mut dyn Read,
    dir: &Path,
    progress: &mut dyn FnMut(Seq),
) -> Result<(BackedUp, Vec<KeptFile>), BackupError> {
    let mut magic = [0; MAGIC.len()];
    from.read_exact(&mut magic).map_err(ends_early)?;
    if magic != *MAGIC {
        return Err(BackupError::Damaged("it doesn't begin like one".to_owned()));
    }
    let mut from = GzDecoder::new(from);
    let header: Header = take(&mut from)?.ok_or_else(|| BackupError::Damaged("it has no header".to_owned()))?;
    // Makes an empty log with the right schema; the rows keep the hashes that they had.
    drop(SqliteLog::open(dir)?);
    let mut db = sqlite::open_database(&dir.join(FILE_DATABASE))?;
    let writing = db.transaction()?;
    let mut copied = BackedUp { end: Anchor { at: Seq(0), hash: GENESIS }, rows: 0 };
    let mut blob = Vec::new();
    while let Some(head) = take::<RowHead>(&mut from)? {
        blob.resize(usize::try_from(head.bytes).unwrap_or(usize::MAX).min(PART_BYTES_MAX), 0);
        from.read_exact(&mut blob).map_err(ends_early)?;
        let row = Row { first: Seq(head.first), count: head.count, epoch: head.epoch, blob: &blob };
        if row.hash(&copied.end.hash) != head.hash {
            return Err(BackupError::Damaged(format!("the hash of the row at {} doesn't match", head.first)));
        }
        sqlite::insert(&writing, row, &head.hash)?;
        copied.end = Anchor { at: Seq(head.first + head.count.saturating_sub(1)), hash: head.hash };
        copied.rows += 1;
        progress(copied.end.at);
    }
    let end: End = take(&mut from)?.ok_or_else(|| BackupError::Damaged("it has no end".to_owned()))?;
    // Reads the stream's own checksum.
    if from.read(&mut [0]).map_err(ends_early)? > 0 {
        return Err(BackupError::Damaged("it goes on behind its end".to_owned()));
    }
    if (end.at, end.hash, end.rows) != (copied.end.at.0, copied.end.hash, copied.rows) {
        return Err(BackupError::Damaged("its rows don't amount to its end".to_owned()));
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
    Ok((copied, header.files))
}

fn put(out: &mut dyn Write, part: &impl Serialize) -> Result<(), BackupError> {
    let bytes = postcard::to_allocvec(part).map_err(io::Error::other)?;
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    out.write_all(&length.to_le_bytes())?;
    Ok(out.write_all(&bytes)?)
}

/// Reads the next part; `None` at a length of 0.
fn take<T: for<'de> Deserialize<'de>>(from: &mut dyn Read) -> Result<Option<T>, BackupError> {
    let mut length = [0; 4];
    from.read_exact(&mut length).map_err(ends_early)?;
    let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    if length == 0 {
        return Ok(None);
    }
    if length > PART_BYTES_MAX {
        return Err(BackupError::Damaged(format!("a part of it is said to have {length} bytes")));
    }
    let mut bytes = Vec::new();
    // Grows with what is there, not with what the length claims.
    if from.take(length as u64).read_to_end(&mut bytes).map_err(ends_early)? < length {
        return Err(BackupError::Damaged("it ends early".to_owned()));
    }
    postcard::from_bytes(&bytes).map(Some).map_err(|error| BackupError::Damaged(error.to_string()))
}

fn ends_early(error: io::Error) -> BackupError {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        BackupError::Damaged("it ends early".to_owned())
    } else if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) {
        BackupError::Damaged(error.to_string())
    } else {
        BackupError::File(error)
    }
}
