//! The read model: which messages there are, by conversation, sender, recipient and word.
//!
//! It follows the log outside the acknowledging transaction, holds no bodies, and can be deleted at any
//! time: [`Index::catch_up`] builds it again from the log.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use lastword_proto::fact::{Part, Recipient};
use lastword_proto::ids::{AgentId, TaskId};
use lastword_proto::{Entry, Fact, Message, Seq};
use rusqlite::{Connection, OpenFlags, Transaction, params};

use crate::dir::{self, APPLICATION_ID, FILE_INDEX, INDEX_VERSION};
use crate::lines;
use crate::log::ReadError;
use crate::pool::{BUSY, Pool};
use crate::query::IndexReader;
use crate::reader::Reader;
use crate::sums;

/// Entries indexed in one transaction while catching up.
const ENTRIES_PER_COMMIT: usize = 4096;
/// Entries in memory at once: few, so that they use the same memory again.
const ENTRIES_PER_READ: usize = 256;
/// Pages in the index's WAL before they are copied: rarely, for each copying syncs beside the log.
const CHECKPOINT_PAGES: i64 = 4000;

const SCHEMA: &str = "
CREATE TABLE messages (
  seq INTEGER PRIMARY KEY,
  from_id INTEGER NOT NULL,
  to_id INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  conv INTEGER NOT NULL,
  depth INTEGER NOT NULL,
  at INTEGER NOT NULL,
  grant_id INTEGER,
  task INTEGER
) STRICT;
CREATE INDEX messages_by_conv ON messages (conv);
CREATE INDEX messages_by_from ON messages (from_id);
CREATE INDEX messages_by_to ON messages (to_id);
CREATE TABLE posts (
  seq INTEGER PRIMARY KEY,
  room INTEGER NOT NULL,
  from_id INTEGER NOT NULL,
  at INTEGER NOT NULL
) STRICT;
CREATE INDEX posts_by_room ON posts (room);
CREATE TABLE refusals (
  seq INTEGER PRIMARY KEY,
  agent INTEGER NOT NULL,
  code TEXT NOT NULL,
  at INTEGER NOT NULL
) STRICT;
CREATE INDEX refusals_by_agent ON refusals (agent);
CREATE TABLE spends (
  turn INTEGER PRIMARY KEY,
  tokens INTEGER NOT NULL,
  cost_microusd INTEGER NOT NULL,
  at INTEGER NOT NULL
) STRICT;
CREATE VIRTUAL TABLE words USING fts5 (body, content='', columnsize=0);
CREATE TABLE progress (id INTEGER PRIMARY KEY CHECK (id = 1), last INTEGER NOT NULL) STRICT;
INSERT INTO progress VALUES (1, 0);";

/// What stands for [`Recipient::All`] in `to_id`; no agent has this number as a recipient.
pub(crate) const TO_ALL: u32 = 0;

/// Why the read model is not up to date. The log is untouched by it.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The file can't be used. It may be deleted.
    #[error("the read model {path}: {source}; it may be deleted, `lastword reindex` builds it again")]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What happened.
        source: rusqlite::Error,
    },
    /// The file can't be replaced.
    #[error("the read model {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// The log can't be read.
    #[error(transparent)]
    Log(#[from] ReadError),
}

/// The one writer of a read model.
pub struct Index {
    db: Connection,
    path: PathBuf,
    readers: Pool,
    last: Seq,
}

impl Index {
    /// Opens the read model of `dir`; makes an empty one where it is missing, damaged or of another format.
    ///
    /// # Errors
    /// The file can't be made.
    pub fn open(dir: &Path) -> Result<Self, IndexError> {
        let path = dir.join(FILE_INDEX);
        let (db, last) = match open_existing(&path) {
            Ok(opened) => opened,
            Err(_) => create(&path)?,
        };
        Ok(Self { readers: Pool::new(path.clone()), db, path, last })
    }

    /// The position up to which the log is indexed.
    #[must_use]
    pub const fn last(&self) -> Seq {
        self.last
    }

    /// A reader for other threads.
    #[must_use]
    pub fn reader(&self) -> IndexReader {
        IndexReader::new(self.readers.clone())
    }

    /// Indexes the entries behind [`Index::last`], all or none; earlier ones are passed over.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn apply(&mut self, entries: &[(Seq, &Entry)]) -> Result<(), IndexError> {
        let last = self.last;
        let fresh = entries.iter().skip_while(|(seq, _)| *seq <= last);
        let result = apply(&mut self.db, fresh.map(|&(seq, entry)| (seq, entry)));
        match result {
            Ok(None) => Ok(()),
            Ok(Some(last)) => {
                self.last = last;
                Ok(())
            }
            Err(source) => Err(IndexError::Sqlite { path: self.path.clone(), source }),
        }
    }

    /// Indexes what the log has beyond [`Index::last`]. `progress` hears the position reached and the
    /// log's end. An index that is ahead belongs to another log and is built anew.
    ///
    /// # Errors
    /// The log can't be read or the file can't be written.
    pub fn catch_up(&mut self, log: &Reader, progress: &mut dyn FnMut(Seq, Seq)) -> Result<(), IndexError> {
        let mut end = log.last()?;
        if self.last > end {
            self.clear()?;
        }
        loop {
            let behind = self.last;
            self.step(log)?;
            if self.last == behind {
                return Ok(());
            }
            end = end.max(self.last);
            progress(self.last, end);
        }
    }

    /// One commit of what the log has beyond [`Index::last`].
    fn step(&mut self, log: &Reader) -> Result<(), IndexError> {
        let failed = |source| IndexError::Sqlite { path: self.path.clone(), source };
        let mut last = self.last;
        let transaction = self.db.transaction().map_err(failed)?;
        for _ in 0..ENTRIES_PER_COMMIT / ENTRIES_PER_READ {
            let entries = log.read(Seq(last.0 + 1), ENTRIES_PER_READ)?;
            for (seq, entry) in &entries {
                index_entry(&transaction, *seq, entry).map_err(failed)?;
                last = *seq;
            }
            if entries.len() < ENTRIES_PER_READ {
                break;
            }
        }
        if last > self.last {
            commit(transaction, last).map_err(failed)?;
            self.last = last;
        }
        Ok(())
    }

    /// Builds the read model of `dir` anew from the log.
    ///
    /// # Errors
    /// The log can't be read or the file can't be written.
    pub fn reindex(dir: &Path, log: &Reader, progress: &mut dyn FnMut(Seq, Seq)) -> Result<Self, IndexError> {
        let mut index = Self::open(dir)?;
        index.clear()?;
        index.catch_up(log, progress)?;
        Ok(index)
    }

    fn clear(&mut self) -> Result<(), IndexError> {
        let clear = format!(
            "BEGIN IMMEDIATE;
            DELETE FROM messages; DELETE FROM posts; DELETE FROM refusals; DELETE FROM spends; {} {}
            INSERT INTO words (words) VALUES ('delete-all');
            UPDATE progress SET last = 0; COMMIT",
            lines::CLEAR,
            sums::CLEAR
        );
        self.last = Seq(0);
        self.db.execute_batch(&clear).map_err(|source| IndexError::Sqlite { path: self.path.clone(), source })
    }
}

fn open_existing(path: &Path) -> rusqlite::Result<(Connection, Seq)> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags)?;
    configure(&db)?;
    let version: i64 = db.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if version != INDEX_VERSION {
        return Err(rusqlite::Error::InvalidQuery);
    }
    let last: i64 = db.query_row("SELECT last FROM progress", [], |row| row.get(0))?;
    Ok((db, Seq(last.cast_unsigned())))
}

fn create(path: &Path) -> Result<(Connection, Seq), IndexError> {
    let io_failed = |source| IndexError::Io { path: path.to_owned(), source };
    for suffix in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        match fs::remove_file(PathBuf::from(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io_failed(error)),
            Ok(()) | Err(_) => {}
        }
    }
    dir::open_private(path).map_err(io_failed)?;
    let (lines, sums) = (lines::SCHEMA, sums::SCHEMA);
    let make = || {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(path, flags)?;
        configure(&db)?;
        let pragmas = format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {INDEX_VERSION};");
        db.execute_batch(&format!("BEGIN IMMEDIATE; {SCHEMA} {lines} {sums} {pragmas} COMMIT"))?;
        Ok(db)
    };
    make().map(|db| (db, Seq(0))).map_err(|source| IndexError::Sqlite { path: path.to_owned(), source })
}

fn configure(db: &Connection) -> rusqlite::Result<()> {
    db.busy_timeout(BUSY)?;
    db.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    // Consistent after a power cut, and perhaps behind, which catching up mends.
    db.pragma_update(None, "synchronous", "NORMAL")?;
    db.pragma_update_and_check(None, "wal_autocheckpoint", CHECKPOINT_PAGES, |_| Ok(()))
}

fn apply<'a>(db: &mut Connection, entries: impl Iterator<Item = (Seq, &'a Entry)>) -> rusqlite::Result<Option<Seq>> {
    let transaction = db.transaction()?;
    let mut last = None;
    for (seq, entry) in entries {
        index_entry(&transaction, seq, entry)?;
        last = Some(seq);
    }
    if let Some(last) = last {
        commit(transaction, last)?;
    }
    Ok(last)
}

fn commit(transaction: Transaction<'_>, last: Seq) -> rusqlite::Result<()> {
    transaction.prepare_cached("UPDATE progress SET last = ?1")?.execute([last.0.cast_signed()])?;
    transaction.commit()
}

#[expect(clippy::wildcard_enum_match_arm, reason = "most facts are no messages and have nothing to look up here")]
fn index_entry(db: &Connection, seq: Seq, entry: &Entry) -> rusqlite::Result<()> {
    let (seq, at) = (seq.0.cast_signed(), entry.at.0.cast_signed());
    lines::index(db, seq, &entry.fact)?;
    sums::index(db, seq, entry.at, &entry.fact)?;
    match &entry.fact {
        Fact::Accepted { message } => index_message(db, seq, at, message),
        Fact::Posted { room, from, body } => {
            db.prepare_cached("INSERT INTO posts VALUES (?1, ?2, ?3, ?4)")?.execute((seq, room.0, from.0, at))?;
            index_words(db, seq, body)
        }
        Fact::Refused { agent, refusal, .. } => {
            let mut insert = db.prepare_cached("INSERT INTO refusals VALUES (?1, ?2, ?3, ?4)")?;
            insert.execute((seq, agent.0, refusal.code.word(), at)).map(|_| ())
        }
        Fact::TurnClosed { turn, spend, .. } if spend.tokens > 0 || spend.cost_microusd > 0 => {
            // A turn closes once; a log that was written otherwise is `verify`'s to tell.
            let mut insert = db.prepare_cached("INSERT OR REPLACE INTO spends VALUES (?1, ?2, ?3, ?4)")?;
            let (tokens, cost) = (spend.tokens.cast_signed(), spend.cost_microusd.cast_signed());
            insert.execute((turn.0.cast_signed(), tokens, cost, at)).map(|_| ())
        }
        _ => Ok(()),
    }
}

fn index_message(db: &Connection, seq: i64, at: i64, message: &Message) -> rusqlite::Result<()> {
    let to = match message.to {
        Recipient::One(AgentId(id)) => id,
        Recipient::All => TO_ALL,
    };
    let grant = message.grant.map(|grant| grant.0.cast_signed());
    let task = task_of(message).map(|task| task.0.cast_signed());
    let mut insert = db.prepare_cached("INSERT INTO messages VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)")?;
    insert.execute(params![
        seq,
        message.from.0,
        to,
        message.kind as u8,
        message.conv.0,
        message.depth,
        at,
        grant,
        task
    ])?;
    index_words(db, seq, &message.body)
}

/// The task that a message creates, settles or is about.
const fn task_of(message: &Message) -> Option<TaskId> {
    match &message.part {
        Part::Plain | Part::Echo => message.sender_task,
        Part::Request(terms) => Some(terms.task),
        Part::Answer(answer) => Some(answer.task),
        Part::Reply { task, .. } | Part::Status { task, .. } => Some(*task),
    }
}

fn index_words(db: &Connection, seq: i64, body: &str) -> rusqlite::Result<()> {
    db.prepare_cached("INSERT INTO words (rowid, body) VALUES (?1, ?2)")?.execute((seq, body)).map(|_| ())
}
