//! Proof that nothing in the log was altered or removed (L5): a walk over the hash chain from its start.

use std::path::Path;

use lastword_facts::{Entry, Fact, Seq};
use rusqlite::{Connection, OptionalExtension as _};

use crate::data_dir::{FILE_DATABASE, FILE_HEAD, HeadFound, head_of};
use crate::log::OpenError;
use crate::log::archive::ArchiveError;
use crate::log::chain::{GENESIS, Hash, Row};
use crate::log::frame::{self, FrameError};
use crate::log::sqlite;
use crate::log::sqlite_archive::{self, Sealed};
use crate::pool::Pool;

/// Rows per read: a longer read transaction would keep a running server from recycling its WAL.
const ROWS_PER_READ: i64 = 64;

/// A position and its hash, noted at an earlier verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// The last entry of a row.
    pub at: Seq,
    /// The hash of that row.
    pub hash: [u8; 32],
}

/// What a log must contain besides intact hashes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// Positions and hashes that were noted earlier, in any order.
    pub anchors: Vec<Anchor>,
    /// Such positions that are counted and not compared if they are in a part of the archive that isn't there.
    pub kept: Vec<Anchor>,
    /// The first positions of epochs that a human knows to be restores. Anchors in the part of the history that such a
    /// restore replaced are counted and not compared.
    pub restored: Vec<Seq>,
}

impl From<Option<Anchor>> for Expected {
    fn from(anchor: Option<Anchor>) -> Self {
        Self { anchors: anchor.into_iter().collect(), ..Self::default() }
    }
}

/// The result of a walk over an intact log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The number of entries in the log.
    pub entries: u64,
    /// The number of rows in the log.
    pub rows: u64,
    /// The last position in a segment of the archive whose file isn't there. Up to it, the chain is proven by the hash at
    /// each segment's end, and the entries themselves are not; nothing was passed on to be checked.
    pub unread: Option<Seq>,
    /// The number of [`Expected::kept`], and of the acknowledged end, within such a segment, which were not compared.
    pub uncompared: u64,
    /// The log's end and its hash: store it elsewhere and pass it to the next verification.
    pub end: Anchor,
    /// The number of expected anchors that a known restore replaced ([`Expected::restored`]).
    pub replaced: u64,
}

/// The first position at which the log differs from what was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("position {}: {problem}", at.0)]
pub struct Broken {
    /// The first position that can't be trusted.
    pub at: Seq,
    /// The mismatch found there.
    pub problem: Problem,
}

/// A mismatch between the log and what was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Rows are missing, doubled or out of order.
    #[error("the next row starts at {}: rows were removed or inserted", found.0)]
    Gap {
        /// The first position of the row found there.
        found: Seq,
    },
    /// The row's hash doesn't match its content.
    #[error("the hash of the row does not match: it was altered, or a row before it was replaced")]
    Hash,
    /// The row holds another number of entries than it states.
    #[error("the row holds {found} entries and says {stated}")]
    Count {
        /// The number of entries in the row.
        found: u64,
        /// The number that the row states.
        stated: u64,
    },
    /// An entry can't be decoded.
    #[error("{0}")]
    Entry(FrameError),
    /// A later row has an earlier epoch: a leader that was replaced wrote it.
    #[error("epoch {found} stands behind epoch {before}")]
    Epoch {
        /// The epoch of this row.
        found: u64,
        /// The epoch of the row before it.
        before: u64,
    },
    /// The row at a known position has another hash: the history was replaced.
    #[error("the history up to {} is another one than the one whose hash was noted", noted.0)]
    Anchor {
        /// The known position.
        noted: Seq,
    },
    /// The log jumps over a known position: it was cut off before it, and an epoch began behind it.
    #[error("position {} was noted, and the log jumps over it to {}: a restore replaced that part", noted.0, first.0)]
    Replaced {
        /// The known position.
        noted: Seq,
        /// The first position of the epoch.
        first: Seq,
    },
    /// The log ends before a position that was acknowledged.
    #[error("the log ends here, but {} was acknowledged", acknowledged.0)]
    Truncated {
        /// The last acknowledged position.
        acknowledged: Seq,
    },
    /// A noted position is in a segment whose file isn't there.
    #[error("{} was noted, but can't be compared: {file} is not in the folder `archive`", noted.0)]
    Uncompared {
        /// The noted position.
        noted: Seq,
        /// The segment's file.
        file: String,
    },
    /// A part of the log moved to the archive during the walk.
    #[error("a part of the log moved to the archive meanwhile: verify again")]
    Moved,
    /// A segment of the archive can't be used.
    #[error("{0}")]
    Segment(String),
    /// The file can't be read at this position.
    #[error("the file can't be read: {0}")]
    File(String),
    /// The caller's own check failed.
    #[error("{0}")]
    Check(String),
}

/// The reason why a verification failed.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The log can't be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The log differs from what was written.
    #[error(transparent)]
    Broken(#[from] Broken),
}

/// See [`DataDir::verify`](crate::DataDir::verify).
pub(crate) fn verify(
    dir: &Path,
    expected: Expected,
    check: &mut dyn FnMut(Seq, Entry) -> Result<(), String>,
    progress: &mut dyn FnMut(Seq, Seq),
) -> Result<Verified, VerifyError> {
    let path = dir.join(FILE_DATABASE);
    if !path.exists() {
        return Err(OpenError::Missing { place: path.display().to_string() }.into());
    }
    // Read before the walk, so that appends of a running server during the walk don't count.
    let head = match head_of(dir).map_err(|source| OpenError::io(&dir.join(FILE_HEAD), &source))? {
        HeadFound::Noted(at, hash) => Some(Anchor { at, hash }),
        HeadFound::Missing | HeadFound::Damaged => None,
    };
    let Expected { anchors, kept, restored } = expected;
    let anchors = anchors.into_iter().map(|anchor| (anchor, true));
    // A power cut may take the head back to an earlier one, which may have left the log since.
    let anchors = anchors.chain(kept.into_iter().chain(head).map(|anchor| (anchor, false))).collect();
    let pool = Pool::new(path.clone());
    pool.with(|db| {
        sqlite::check_format(db, &path)?;
        let mut walk = Walk::from(Anchor { at: Seq(0), hash: GENESIS }, anchors, &restored, check)?;
        let end = last(db).map_err(|error| walk.broken(Problem::File(error.to_string())))?;
        let segments = sqlite_archive::sealed(db).map_err(|error| walk.broken(Problem::File(error.to_string())))?;
        // A recount can't begin in the middle: a missing file ends it before it begins.
        let whole = segments.iter().all(|sealed| sqlite_archive::is_there(dir, sealed));
        walk.checked = whole;
        for sealed in &segments {
            walk.segment(dir, sealed)?;
            progress(walk.state.end.at, end.max(walk.state.end.at));
        }
        let archived = walk.state.end;
        while walk.chunk(db, archived)? {
            progress(walk.state.end.at, end.max(walk.state.end.at));
        }
        walk.finish()
    })
}

impl From<rusqlite::Error> for VerifyError {
    fn from(error: rusqlite::Error) -> Self {
        sqlite::unopened(FILE_DATABASE.as_ref(), &error).into()
    }
}

struct Walk<'a> {
    /// The anchors that the walk hasn't reached, in descending order, and whether each has to be compared.
    anchors: Vec<(Anchor, bool)>,
    restored: &'a [Seq],
    check: &'a mut dyn FnMut(Seq, Entry) -> Result<(), String>,
    state: Verified,
    epoch: u64,
    /// Rows of the log itself were read.
    begun: bool,
    /// Entries are passed on to be checked.
    checked: bool,
}

impl<'a> Walk<'a> {
    /// A walk that begins behind `start`, where the chain starts.
    fn from(
        start: Anchor,
        mut anchors: Vec<(Anchor, bool)>,
        restored: &'a [Seq],
        check: &'a mut dyn FnMut(Seq, Entry) -> Result<(), String>,
    ) -> Result<Self, Broken> {
        anchors.sort_unstable_by_key(|(anchor, _)| std::cmp::Reverse(anchor.at));
        let state = Verified { entries: 0, rows: 0, unread: None, uncompared: 0, end: start, replaced: 0 };
        let mut walk = Self { anchors, restored, check, state, epoch: 0, begun: false, checked: true };
        walk.anchored(start.at, start)?;
        Ok(walk)
    }

    /// Walks up to [`ROWS_PER_READ`] rows; returns `false` at the end. The archive ended at `archived` before the walk.
    fn chunk(&mut self, db: &Connection, archived: Anchor) -> Result<bool, Broken> {
        self.rows(db).map_err(|stop| match stop {
            // A running server may have moved rows to the archive before they were read.
            VerifyStop::Broken(_) if sqlite_archive::behind(db).is_ok_and(|behind| behind != archived) => {
                self.broken(Problem::Moved)
            }
            VerifyStop::Broken(broken) => broken,
            VerifyStop::File(error) => self.broken(Problem::File(error.to_string())),
        })
    }

    /// Walks over a segment: over its rows if its file is there, and else from its start to its end.
    fn segment(&mut self, dir: &Path, sealed: &Sealed) -> Result<(), Broken> {
        if sealed.first <= self.state.end.at.0 || sealed.last < sealed.first {
            return Err(self.broken(Problem::Gap { found: Seq(sealed.first) }));
        }
        let unusable = |walk: &Self, error: ArchiveError| walk.broken(Problem::Segment(error.to_string()));
        let rows = sqlite_archive::open(dir, sealed, self.state.end).map_err(|error| unusable(self, error))?;
        let Some(mut rows) = rows else {
            while let Some((anchor, required)) = self.anchors.pop_if(|(anchor, _)| anchor.at.0 < sealed.last) {
                if required {
                    return Err(self.broken(Problem::Uncompared { noted: anchor.at, file: sealed.file.clone() }));
                }
                self.state.uncompared += 1;
            }
            self.anchored(Seq(sealed.first), sealed.end())?;
            self.state = Verified { end: sealed.end(), unread: Some(Seq(sealed.last)), ..self.state };
            return Ok(());
        };
        let file = |source| ArchiveError::File { file: sealed.file.clone(), source };
        while let Some((row, hash)) = rows.next().map_err(|error| unusable(self, file(error)))? {
            self.row(row, hash)?;
        }
        if self.state.end == sealed.end() {
            return Ok(());
        }
        let problem = format!("{} ends elsewhere than the log says", sealed.file);
        Err(self.broken(Problem::Segment(problem)))
    }

    fn rows(&mut self, db: &Connection) -> Result<bool, VerifyStop> {
        // The first read starts below 0, so that an inserted row with a position before the first one is found.
        let behind =
            if std::mem::replace(&mut self.begun, true) { self.state.end.at.0.cast_signed() } else { i64::MIN };
        let mut statement = db.prepare_cached(
            "SELECT first_seq, count, epoch, blob, hash FROM log WHERE first_seq > ?1 ORDER BY first_seq LIMIT ?2",
        )?;
        let mut rows = statement.query([behind, ROWS_PER_READ])?;
        let mut any = false;
        while let Some(row) = rows.next()? {
            any = true;
            let [first, count, epoch] = [row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?].map(i64::cast_unsigned);
            let blob = row.get_ref(3)?.as_blob().map_err(rusqlite::Error::from)?;
            let hash: Hash = row.get(4)?;
            self.row(Row { first: Seq(first), count, epoch, blob }, hash)?;
        }
        Ok(any)
    }

    fn row(&mut self, row: Row<'_>, hash: Hash) -> Result<(), Broken> {
        let next = Seq(self.state.end.at.0 + 1);
        if row.first != next && !begins_epoch(row, next) {
            return Err(self.broken(Problem::Gap { found: row.first }));
        }
        if row.hash(&self.state.end.hash) != hash {
            return Err(self.broken(Problem::Hash));
        }
        if row.epoch < self.epoch {
            return Err(self.broken(Problem::Epoch { found: row.epoch, before: self.epoch }));
        }
        self.epoch = row.epoch;
        let found = self.entries(row)?;
        if found != row.count || found == 0 {
            return Err(self.broken(Problem::Count { found, stated: row.count }));
        }
        let end = Anchor { at: Seq(row.first.0 + found - 1), hash };
        self.anchored(row.first, end)?;
        let Verified { entries, rows, .. } = self.state;
        self.state = Verified { entries: entries + found, rows: rows + 1, end, ..self.state };
        Ok(())
    }

    /// Compares the anchors up to the row that starts at `first`. Anchors are ends of rows; an anchor inside a row
    /// belongs to another history, and one before the row is in a gap that an epoch left.
    fn anchored(&mut self, first: Seq, end: Anchor) -> Result<(), Broken> {
        while let Some((anchor, _)) = self.anchors.pop_if(|(anchor, _)| anchor.at <= end.at) {
            if anchor.at < first {
                if !self.restored.contains(&first) {
                    return Err(self.broken(Problem::Replaced { noted: anchor.at, first }));
                }
                self.state.replaced += 1;
            } else if anchor != end {
                return Err(self.broken(Problem::Anchor { noted: anchor.at }));
            }
        }
        Ok(())
    }

    fn entries(&mut self, row: Row<'_>) -> Result<u64, Broken> {
        let mut batch = row.blob;
        let mut at = row.first;
        while let Some(bytes) = frame::split(&mut batch) {
            let entry = bytes.and_then(frame::decode).map_err(|error| Broken { at, problem: Problem::Entry(error) })?;
            if self.checked {
                (self.check)(at, entry).map_err(|problem| Broken { at, problem: Problem::Check(problem) })?;
            }
            at.0 += 1;
        }
        Ok(at.0 - row.first.0)
    }

    fn finish(self) -> Result<Verified, VerifyError> {
        match self.anchors.last() {
            Some((anchor, _)) => Err(self.broken(Problem::Truncated { acknowledged: anchor.at }).into()),
            None => Ok(self.state),
        }
    }

    /// The mismatch at the position behind the rows walked so far.
    const fn broken(&self, problem: Problem) -> Broken {
        Broken { at: Seq(self.state.end.at.0 + 1), problem }
    }
}

enum VerifyStop {
    Broken(Broken),
    File(rusqlite::Error),
}

impl From<Broken> for VerifyStop {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken)
    }
}

impl From<rusqlite::Error> for VerifyStop {
    fn from(error: rusqlite::Error) -> Self {
        Self::File(error)
    }
}

/// Whether positions may jump from `next` to this row: only an entry that begins an epoch may say so (L8).
pub(crate) fn begins_epoch(mut row: Row<'_>, next: Seq) -> bool {
    let entry = frame::split(&mut row.blob).and_then(Result::ok).map(frame::decode);
    let began = |entry: &Entry| matches!(entry.fact, Fact::EpochBegan { first } if first == row.first);
    row.first > next && matches!(&entry, Some(Ok(entry)) if began(entry))
}

fn last(db: &Connection) -> rusqlite::Result<Seq> {
    let sql = "SELECT first_seq + count - 1 FROM log ORDER BY first_seq DESC LIMIT 1";
    let last: Option<i64> = db.query_row(sql, [], |row| row.get(0)).optional()?;
    Ok(Seq(last.map_or(0, i64::cast_unsigned)))
}
