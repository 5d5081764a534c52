//! Rows of the log in a compressed file: what backups and archived segments share.
//!
//! ```text
//! magic, then one gzip stream of:
//!   length, header              of the kind of file
//!   length, RowHead, blob       for each row
//!   length 0, length, RowsEnd   the end of the rows
//! ```
//!
//! Lengths are `u32`, little-endian; the rest is postcard. Rows have their hashes, so the file proves itself.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use lastword_facts::Seq;
use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use crate::log::chain::{Hash, Row};
use crate::log::sqlite_archive;
use crate::log::verify::Anchor;

/// Rows per read: a longer read transaction would keep a running server from recycling its WAL.
const ROWS_PER_READ: i64 = 64;
/// The longest part that is read: a row is split far below it.
const PART_BYTES_MAX: usize = 1 << 30;

/// Why rows can't be copied to a file or read from one.
#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    /// The log can't be read or written.
    #[error("the database: {0}")]
    Database(#[from] rusqlite::Error),
    /// The file can't be written or read.
    #[error("{0}")]
    File(#[from] io::Error),
    /// A part of the log left for the archive before it was copied.
    #[error("a part of the log moved to the archive before it was copied; try again")]
    Moved,
    /// The file isn't one of this kind, or not a whole one.
    #[error("{0}")]
    Damaged(String),
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
struct RowsEnd {
    at: u64,
    hash: Hash,
    rows: u64,
}

/// Where a file's rows begin or end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    /// The position before the first row, or of the last one's last entry, and the hash there.
    pub(crate) end: Anchor,
    /// The number of rows so far.
    pub(crate) rows: u64,
}

/// Writes a file of rows.
pub(crate) struct RowWriter<W: Write> {
    out: GzEncoder<W>,
    reached: Reached,
}

impl<W: Write> RowWriter<W> {
    /// Begins a file whose rows follow `behind`.
    pub(crate) fn begin(mut to: W, magic: &[u8], header: &impl Serialize, behind: Anchor) -> Result<Self, RowsError> {
        to.write_all(magic)?;
        let mut out = GzEncoder::new(to, Compression::default());
        put(&mut out, header)?;
        Ok(Self { out, reached: Reached { end: behind, rows: 0 } })
    }

    /// Copies the rows up to the one that ends at `last`.
    pub(crate) fn copy(
        &mut self,
        db: &Connection,
        last: Seq,
        progress: &mut dyn FnMut(Seq, Seq),
    ) -> Result<(), RowsError> {
        while self.reached.end.at < last {
            self.chunk(db, last)?;
            progress(self.reached.end.at, last);
        }
        Ok(())
    }

    fn chunk(&mut self, db: &Connection, last: Seq) -> Result<(), RowsError> {
        let mut statement = db.prepare_cached(
            "SELECT first_seq, count, epoch, blob, hash FROM log WHERE first_seq > ?1 AND first_seq <= ?2
             ORDER BY first_seq LIMIT ?3",
        )?;
        let mut rows = statement.query([self.reached.end.at.0.cast_signed(), last.0.cast_signed(), ROWS_PER_READ])?;
        let (before, behind) = (self.reached.rows, self.reached.end.at);
        while let Some(row) = rows.next()? {
            let [first, count, epoch] = [row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?].map(i64::cast_unsigned);
            let blob = row.get_ref(3)?.as_blob().map_err(rusqlite::Error::from)?;
            let hash: Hash = row.get(4)?;
            // A gap is told of below. A copy of what has changed on the disk would replace the good one.
            let follows = first == self.reached.end.at.0 + 1;
            if follows && (Row { first: Seq(first), count, epoch, blob }).hash(&self.reached.end.hash) != hash {
                return Err(RowsError::Damaged(format!("the hash of the log's row at {first} doesn't match")));
            }
            let bytes = u32::try_from(blob.len()).map_err(io::Error::other)?;
            put(&mut self.out, &RowHead { first, count, epoch, hash, bytes })?;
            self.out.write_all(blob)?;
            self.reached = Reached { end: Anchor { at: Seq(first + count - 1), hash }, rows: self.reached.rows + 1 };
        }
        // A server may have moved a segment to the archive since the last chunk.
        if sqlite_archive::behind(db)?.at > behind {
            return Err(RowsError::Moved);
        }
        if self.reached.rows > before {
            return Ok(());
        }
        Err(RowsError::Damaged(format!("the log has no row behind {}", self.reached.end.at)))
    }

    /// Writes the end of the rows.
    pub(crate) fn finish(mut self) -> Result<(Reached, W), RowsError> {
        self.out.write_all(&0_u32.to_le_bytes())?;
        let Reached { end, rows } = self.reached;
        put(&mut self.out, &RowsEnd { at: end.at.0, hash: end.hash, rows })?;
        let mut to = self.out.finish()?;
        to.flush()?;
        Ok((self.reached, to))
    }
}

/// Reads a file of rows, and checks each row's hash.
pub(crate) struct RowReader<R: Read> {
    from: GzDecoder<R>,
    reached: Reached,
    blob: Vec<u8>,
}

impl<R: Read> RowReader<R> {
    /// Reads the header; `behind` tells from it what the first row follows.
    pub(crate) fn begin<H: for<'de> Deserialize<'de>>(
        mut from: R,
        magic: &[u8],
        behind: impl FnOnce(&H) -> Anchor,
    ) -> Result<(H, Self), RowsError> {
        let mut found = vec![0; magic.len()];
        from.read_exact(&mut found).map_err(ends_early)?;
        if found != magic {
            return Err(RowsError::Damaged("it doesn't begin like one".to_owned()));
        }
        let mut from = GzDecoder::new(from);
        let header: H = take(&mut from)?.ok_or_else(|| RowsError::Damaged("it has no header".to_owned()))?;
        let reached = Reached { end: behind(&header), rows: 0 };
        Ok((header, Self { from, reached, blob: Vec::new() }))
    }

    /// Returns the next row and its hash; `None` once all were read and amount to the file's end.
    pub(crate) fn next(&mut self) -> Result<Option<(Row<'_>, Hash)>, RowsError> {
        let Some(head) = take::<RowHead>(&mut self.from)? else {
            self.finish()?;
            return Ok(None);
        };
        let length = usize::try_from(head.bytes).unwrap_or(usize::MAX);
        if length > PART_BYTES_MAX {
            return Err(RowsError::Damaged(format!("a row of it is said to have {length} bytes")));
        }
        self.blob.clear();
        // Grows with what is there, not with what the length claims.
        if (&mut self.from).take(length as u64).read_to_end(&mut self.blob).map_err(ends_early)? < length {
            return Err(RowsError::Damaged("it ends early".to_owned()));
        }
        let row = Row { first: Seq(head.first), count: head.count, epoch: head.epoch, blob: &self.blob };
        if row.hash(&self.reached.end.hash) != head.hash {
            return Err(RowsError::Damaged(format!("the hash of the row at {} doesn't match", head.first)));
        }
        let end = Anchor { at: Seq(head.first.saturating_add(head.count).saturating_sub(1)), hash: head.hash };
        self.reached = Reached { end, rows: self.reached.rows + 1 };
        Ok(Some((row, head.hash)))
    }

    /// How far it was read.
    pub(crate) const fn reached(&self) -> Reached {
        self.reached
    }

    fn finish(&mut self) -> Result<(), RowsError> {
        let end: RowsEnd = take(&mut self.from)?.ok_or_else(|| RowsError::Damaged("it has no end".to_owned()))?;
        // Reads the stream's own checksum.
        if self.from.read(&mut [0]).map_err(ends_early)? > 0 {
            return Err(RowsError::Damaged("it goes on behind its end".to_owned()));
        }
        let Reached { end: found, rows } = self.reached;
        if (end.at, end.hash, end.rows) != (found.at.0, found.hash, rows) {
            return Err(RowsError::Damaged("its rows don't amount to its end".to_owned()));
        }
        Ok(())
    }
}

fn put(out: &mut dyn Write, part: &impl Serialize) -> Result<(), RowsError> {
    let bytes = postcard::to_allocvec(part).map_err(io::Error::other)?;
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    out.write_all(&length.to_le_bytes())?;
    Ok(out.write_all(&bytes)?)
}

/// Reads the next part; `None` at a length of 0.
fn take<T: for<'de> Deserialize<'de>>(from: &mut dyn Read) -> Result<Option<T>, RowsError> {
    let mut length = [0; 4];
    from.read_exact(&mut length).map_err(ends_early)?;
    let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    if length == 0 {
        return Ok(None);
    }
    if length > PART_BYTES_MAX {
        return Err(RowsError::Damaged(format!("a part of it is said to have {length} bytes")));
    }
    let mut bytes = Vec::new();
    // Grows with what is there, not with what the length claims.
    if from.take(length as u64).read_to_end(&mut bytes).map_err(ends_early)? < length {
        return Err(RowsError::Damaged("it ends early".to_owned()));
    }
    postcard::from_bytes(&bytes).map(Some).map_err(|error| RowsError::Damaged(error.to_string()))
}

fn ends_early(error: io::Error) -> RowsError {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        RowsError::Damaged("it ends early".to_owned())
    } else if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) {
        RowsError::Damaged(error.to_string())
    } else {
        RowsError::File(error)
    }
}
