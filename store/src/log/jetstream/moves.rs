//! Copies an ordinary log into a stream, and a stream into an ordinary log. The rows stay as they are, with their hashes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lastword_facts::Seq;
use rusqlite::Connection;

use super::archive::{Bucket, FetchError, Start};
use super::claim::{claim, retry};
use super::leader::{Lease, Publisher};
use super::nats::{Extent, Nats, NatsError, StreamNames};
use super::record::{EpochStart, PART_BYTES_MAX, SetAside, StoredRow};
use super::tail::{Commit, Step, Tail};
use crate::data_dir::{self, FILE_BASE, FILE_DATABASE};
use crate::log::sqlite::{self, SqliteLog};
use crate::log::verify::Anchor;
use crate::log::{AppendError, Log as _, OpenError, ReadError};

/// Attempts without an answer after which a move gives up; about half a minute at least.
const ATTEMPTS_MAX: u32 = 300;
/// Rows that are read from the log at once.
const ROWS_PER_READ: i64 = 64;
/// The node that is named by the epochs of a copy.
const NODE: &str = "move-in";

/// What was copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The number of rows.
    pub rows: u64,
    /// The end of the log, and its hash; position 0 for an empty log.
    pub end: Anchor,
}

/// Why a log can't be copied.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// The log in the directory can't be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// NATS can't be used.
    #[error(transparent)]
    Nats(#[from] NatsError),
    /// The stream can't be written.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The log in the directory can't be read or written.
    #[error("the log in the directory: {0}")]
    Log(String),
    /// A part of the log is in its archive.
    #[error(
        "the log begins at position {}, and what precedes it is in the archive: put all of it back first with \
         `lastword archive restore`",
        first.0
    )]
    Archived {
        /// The first position in the log.
        first: Seq,
    },
    /// The destination has a log.
    #[error("{place} has a log already")]
    Taken {
        /// The stream or the directory.
        place: String,
    },
    /// A log is being copied into the stream.
    #[error(
        "{stream} isn't whole: a log is being copied into it, or the copy was interrupted; run `lastword move-in` again"
    )]
    Unfinished {
        /// The stream.
        stream: String,
    },
    /// The stream isn't what was written.
    #[error("{stream} is damaged at message {at}: {problem}")]
    Damaged {
        /// The stream.
        stream: String,
        /// The sequence of the message.
        at: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// The stream holds a part of another log.
    #[error("{stream} holds a part of another log than this one: delete the stream, then try again")]
    Other {
        /// The stream.
        stream: String,
    },
}

impl From<rusqlite::Error> for MoveError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Log(error.to_string())
    }
}

impl From<ReadError> for MoveError {
    fn from(error: ReadError) -> Self {
        Self::Log(error.to_string())
    }
}

/// A lease that ends after [`ATTEMPTS_MAX`] attempts in a row that got nothing.
#[derive(Clone, Default)]
struct Patience(Arc<AtomicU32>);

impl Patience {
    fn lease(&self) -> Lease {
        let attempts = Arc::clone(&self.0);
        Arc::new(move || attempts.fetch_add(1, Ordering::Relaxed) < ATTEMPTS_MAX)
    }

    fn renew(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Copies the log of the data directory `dir` into the stream of a workspace, which must be empty, and reads it back. No
/// server may run on the directory; the log in it stays. An interrupted copy goes on where it ended, and until it is whole
/// nobody can lead the workspace. `progress` receives the position reached and the last one.
///
/// # Errors
/// See [`MoveError`].
pub async fn move_in(
    nats: &Nats,
    workspace: &str,
    dir: &Path,
    progress: &mut dyn FnMut(Seq, Seq),
) -> Result<Moved, MoveError> {
    let names = StreamNames::of(workspace)?;
    if !dir.join(FILE_DATABASE).exists() {
        return Err(OpenError::Missing { place: dir.join(FILE_DATABASE).display().to_string() }.into());
    }
    // Checks the log's end, and keeps servers out until the end.
    let log = SqliteLog::open(dir)?;
    let first = log.reader().first()?;
    if first > Seq(1) {
        return Err(MoveError::Archived { first });
    }
    let db = sqlite::open_database(&dir.join(FILE_DATABASE))?;
    let (end, hash) = sqlite::tail(&db)?;
    let patience = Patience::default();
    let mut tail = Tail::default();
    let there = unfinished(nats, &names).await?;
    read(whole(nats, &names, there), &mut tail, &patience, &mut |_| Ok(())).await?;
    if tail.last > Seq(0) && hash_at(&db, tail.last)? != Some(tail.hash) {
        return Err(MoveError::Other { stream: names.stream });
    }
    let epoch = sqlite::epoch_of(&db)?.max(tail.epoch) + 1;
    let mut start = EpochStart { epoch, node: NODE.to_owned(), attempt: nats.client().new_inbox(), importing: true };
    let at = claim(nats, &names, &start, 0, &patience.lease()).await?;
    read(whole(nats, &names, at), &mut tail, &patience, &mut |_| Ok(())).await?;
    let (nats, lease) = (nats.clone(), patience.lease());
    let mut publisher = Publisher { nats, names, lease, epoch, epoch_at: at, at, batch: 0, dropped: 0 };
    let mut reached = tail.last;
    while reached < end {
        let rows = next_commit(&db, reached)?;
        let Some(last) = rows.last() else { break };
        reached = last.last();
        publisher.publish(&rows).await?;
        patience.renew();
        progress(reached, end);
    }
    // What was acknowledged is read back before anybody may lead.
    let Publisher { nats, names, at, .. } = publisher;
    let (mut rows, mut copied) = (0, Tail::default());
    read(whole(&nats, &names, at), &mut copied, &patience, &mut |commit| {
        rows += commit.rows.len() as u64;
        Ok(())
    })
    .await?;
    if (copied.last, copied.hash) != (end, hash) {
        return Err(MoveError::Other { stream: names.stream });
    }
    (start.epoch, start.importing, start.attempt) = (epoch + 1, false, nats.client().new_inbox());
    claim(&nats, &names, &start, 0, &patience.lease()).await?;
    Ok(Moved { rows, end: Anchor { at: end, hash } })
}

/// Copies the stream of a workspace into a new data directory, as the ordinary log that it is. The stream stays; stop the
/// nodes first, or what they append meanwhile is missing. What is set `aside` of the stream doesn't count. `progress` receives
/// the position reached.
///
/// # Errors
/// See [`MoveError`].
pub async fn move_out(
    nats: &Nats,
    workspace: &str,
    aside: &[SetAside],
    dir: &Path,
    progress: &mut dyn FnMut(Seq),
) -> Result<Moved, MoveError> {
    let names = StreamNames::of(workspace)?;
    let Extent { last, created, .. } = nats.extent(&names).await?;
    if newest(nats, &names).await?.is_some_and(|start| start.importing) {
        return Err(MoveError::Unfinished { stream: names.stream });
    }
    let log = SqliteLog::open(dir)?;
    if log.reader().last()? > Seq(0) {
        return Err(MoveError::Taken { place: dir.display().to_string() });
    }
    let mut db = sqlite::open_database(&dir.join(FILE_DATABASE))?;
    sqlite::configure(&db)?;
    // One transaction: a copy that is interrupted leaves an empty log, not a short one.
    let writing = db.transaction()?;
    let (mut rows, mut tail, mut behind) = (0, Tail::default(), Seq(0));
    let start = archived(nats, &names, dir).await?;
    if let Some(start) = &start {
        start.segments.iter().try_for_each(|sealed| sealed.insert(&writing))?;
        (tail, behind) = (Tail::from_mark(&start.mark), start.end());
    }
    let aside = Aside { stream_id: &created, all: aside };
    read(StreamPart { nats, names: &names, last, aside }, &mut tail, &Patience::default(), &mut |commit| {
        // A start's mark may be a little before the end of its segments.
        for row in commit.rows.iter().filter(|row| row.first > behind) {
            sqlite::insert(&writing, row.row(), &row.hash)?;
            rows += 1;
            progress(row.last());
        }
        Ok(())
    })
    .await?;
    writing.execute("UPDATE leader SET epoch = ?1", [tail.epoch.cast_signed()])?;
    if let Some(start) = start {
        let path = dir.join(FILE_BASE);
        data_dir::replace(&path, &[&start.base]).map_err(|error| OpenError::io(&path, &error))?;
    }
    writing.commit()?;
    drop((db, log));
    // Opening it checks its end, and notes and syncs its head.
    let end = Anchor { at: tail.last, hash: tail.hash };
    let written = SqliteLog::open(dir)?.reader().last()?;
    if written == end.at { Ok(Moved { rows, end }) } else { Err(MoveError::Log("it ends elsewhere".to_owned())) }
}

/// Fetches what left a stream into the archive of a data directory.
async fn archived(nats: &Nats, names: &StreamNames, dir: &Path) -> Result<Option<Start>, MoveError> {
    let Some(bucket) = Bucket::open(nats, names).await? else { return Ok(None) };
    let extent = nats.extent(names).await?;
    let Some(start) = bucket.newest(&bucket.starts().await?, &extent.created).await? else { return Ok(None) };
    bucket.fetch(dir, &start.segments).await.map_err(|error| match error {
        FetchError::Nats(error) => error.into(),
        FetchError::File(error) => MoveError::Log(error.to_string()),
    })?;
    Ok(Some(start))
}

/// Returns the newest start of an epoch.
async fn newest(nats: &Nats, names: &StreamNames) -> Result<Option<EpochStart>, MoveError> {
    let Some(found) = nats.last_epoch(names).await? else { return Ok(None) };
    let damaged = |problem| MoveError::Damaged { stream: names.stream.clone(), at: found.at, problem };
    EpochStart::parse(&found.payload).map(Some).map_err(damaged)
}

/// Returns the last message of a stream that is empty, or holds an interrupted copy.
async fn unfinished(nats: &Nats, names: &StreamNames) -> Result<u64, MoveError> {
    let extent = nats.extent(names).await?;
    if extent.last > 0 && !newest(nats, names).await?.is_some_and(|start| start.importing) {
        return Err(MoveError::Taken { place: names.stream.clone() });
    }
    Ok(extent.last)
}

/// What is set aside of a stream.
#[derive(Default)]
struct Aside<'a> {
    stream_id: &'a str,
    all: &'a [SetAside],
}

/// A part of a stream that is read.
struct StreamPart<'a> {
    nats: &'a Nats,
    names: &'a StreamNames,
    /// The last message of it.
    last: u64,
    aside: Aside<'a>,
}

/// A stream up to a message, of which nothing is set aside.
fn whole<'a>(nats: &'a Nats, names: &'a StreamNames, last: u64) -> StreamPart<'a> {
    StreamPart { nats, names, last, aside: Aside::default() }
}

/// Reads the stream from behind `tail` on, and passes each commit that counts on.
async fn read(
    part: StreamPart<'_>,
    tail: &mut Tail,
    patience: &Patience,
    each: &mut dyn FnMut(Commit) -> Result<(), MoveError>,
) -> Result<(), MoveError> {
    let StreamPart { nats, names, last, aside } = part;
    let lease = patience.lease();
    while tail.at < last {
        let mut messages = match nats.messages(names, tail.at).await {
            Ok((messages, _)) => messages,
            Err(error) => {
                retry(&lease, &error.to_string()).await?;
                continue;
            }
        };
        while tail.at < last {
            let Some((message, _)) = messages.next().await else { break };
            let at = message.at;
            if at <= tail.at {
                continue;
            }
            let damaged = |at, problem| MoveError::Damaged { stream: names.stream.clone(), at, problem };
            let subject = names.subject(&message.subject);
            let subject = subject.ok_or_else(|| damaged(at, format!("its subject is {}", message.subject)))?;
            let is_aside = aside.all.iter().any(|it| it.names(aside.stream_id, at, &message.payload));
            let step = tail.feed_or_skip(at, subject, &message.payload, is_aside);
            let step = step.map_err(|found| damaged(found.at, found.problem))?;
            if let Step::Commit(commit) = step {
                each(commit)?;
            }
            patience.renew();
        }
        if tail.at < last {
            retry(&lease, "the stream gives no more messages").await?;
        }
    }
    Ok(())
}

/// Returns the rows behind a position that fit into one message, or a single longer one.
fn next_commit(db: &Connection, behind: Seq) -> rusqlite::Result<Vec<StoredRow>> {
    let sql = "SELECT first_seq, count, epoch, blob, hash FROM log WHERE first_seq > ?1 ORDER BY first_seq LIMIT ?2";
    let mut statement = db.prepare_cached(sql)?;
    let mut found = statement.query([behind.0.cast_signed(), ROWS_PER_READ])?;
    let (mut rows, mut bytes): (Vec<StoredRow>, usize) = (Vec::new(), 0);
    while let Some(row) = found.next()? {
        let [first, count, epoch] = [row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?].map(i64::cast_unsigned);
        let row = StoredRow { first: Seq(first), count, epoch, blob: row.get(3)?, hash: row.get(4)? };
        bytes += row.stored_bytes();
        if bytes > PART_BYTES_MAX && !rows.is_empty() {
            break;
        }
        rows.push(row);
    }
    Ok(rows)
}

/// Returns the hash of the row that ends at a position.
fn hash_at(db: &Connection, at: Seq) -> rusqlite::Result<Option<[u8; 32]>> {
    let sql =
        "SELECT hash FROM log WHERE first_seq <= ?1 AND first_seq + count - 1 = ?1 ORDER BY first_seq DESC LIMIT 1";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query([at.0.cast_signed()])?;
    rows.next()?.map(|row| row.get(0)).transpose()
}
