//! The writer of the read model: messages by conversation, sender, recipient and word; posts, questions and held calls by
//! word.
//!
//! It follows the log outside the acknowledging transaction, stores no bodies, and can be deleted at any time:
//! [`Index::catch_up`] rebuilds it from the log.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use lastword_facts::fact::{Answer, EscalationCause, Part, Recipient, Refused, WriteRefused};
use lastword_facts::ids::AgentId;
use lastword_facts::{Entry, Fact, Message, Seq};
use rusqlite::{CachedStatement, Connection, ErrorCode, OpenFlags, Transaction};

use crate::data_dir::{self, APPLICATION_ID, FILE_DATABASE, FILE_INDEX, INDEX_VERSION};
use crate::log::{LogReader, OpenError, ReadError};
use crate::pool::{BUSY, Pool};
use crate::read_model::agent_index;
use crate::read_model::aggregates::{self, Adding, Written};
use crate::read_model::conversation_index::{self, Lately, Lines};
use crate::read_model::query::IndexReader;
use crate::read_model::spend_index::{self, Charging, Serving};

/// Entries indexed in one transaction while catching up.
const ENTRIES_PER_COMMIT: usize = 16_384;
/// Rows that are deleted in one transaction.
const ROWS_PER_TRIM: usize = 8_192;
/// Entries in memory at once: few, so that the allocator reuses the same memory.
const ENTRIES_PER_READ: usize = 256;
/// Pages in the WAL that trigger a checkpoint. High, because each checkpoint syncs the disk that the log uses.
const CHECKPOINT_PAGES: i64 = 4000;

/// Bytes of texts that wait for their place in the full-text index.
const TEXTS_BYTES: usize = 1 << 20;

/// Page cache of the writer, in KiB: it rewrites the last pages of its indexes all the time.
const CACHE_KIB: i64 = 8 * 1024;
/// Cached statements: all that the writer uses.
const STATEMENTS: usize = 40;

const SCHEMA: &str = "
CREATE TABLE messages (
  seq INTEGER PRIMARY KEY,
  from_id INTEGER NOT NULL,
  to_id INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  conv INTEGER NOT NULL,
  depth INTEGER NOT NULL,
  at INTEGER NOT NULL
) STRICT;
CREATE INDEX messages_by_conv ON messages (conv);
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
  at INTEGER NOT NULL,
  conv INTEGER
) STRICT;
CREATE INDEX refusals_by_agent ON refusals (agent);
CREATE INDEX refusals_by_conv ON refusals (conv) WHERE conv IS NOT NULL;
CREATE VIRTUAL TABLE words USING fts5 (body, content='', columnsize=0);
CREATE TABLE progress (id INTEGER PRIMARY KEY CHECK (id = 1), last INTEGER NOT NULL) STRICT;
INSERT INTO progress VALUES (1, 0);";

/// The value of `to_id` for [`Recipient::All`]; no recipient has this id.
pub(crate) const TO_ALL: u32 = 0;

/// The reason why the read model doesn't follow the log. The log is unaffected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// The disk is full; nothing was written. Make room, then catch up.
    #[error("the read model {reason}: make room there")]
    Full {
        /// The file and the failure.
        reason: String,
    },
    /// The file can't be used. It may be deleted.
    #[error("the read model {reason}; it may be deleted, `lastword reindex` builds it again")]
    Unusable {
        /// The file and the failure.
        reason: String,
    },
    /// The log can't be read.
    #[error(transparent)]
    Log(#[from] ReadError),
}

impl IndexError {
    fn sqlite(path: &Path, error: &rusqlite::Error) -> Self {
        let reason = format!("{}: {error}", path.display());
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full { reason },
            Some(_) | None => Self::Unusable { reason },
        }
    }

    /// Returns whether the disk is full.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        matches!(self, Self::Full { .. })
    }
}

/// The only writer of a read model.
pub struct Index {
    db: Connection,
    path: PathBuf,
    readers: Pool,
    last: Seq,
    /// What is before this position is not indexed any more.
    first: Seq,
    memory: Memory,
}

/// The writer's caches: a subset of the file's content.
#[derive(Default)]
struct Memory {
    lately: Lately,
    written: Written,
    serving: Serving,
}

impl Index {
    /// Opens the read model of `dir`; replaces a missing, damaged or outdated file by an empty one.
    ///
    /// # Errors
    /// The file can't be created.
    pub fn open(dir: &Path) -> Result<Self, IndexError> {
        let path = dir.join(FILE_INDEX);
        let (db, last) = match open_existing(&path) {
            Ok(opened) => opened,
            Err(_) => create(&path)?,
        };
        Ok(Self { readers: Pool::new(path.clone()), db, path, last, first: Seq(1), memory: Memory::default() })
    }

    /// Removes the read model of `dir`.
    ///
    /// # Errors
    /// The file can't be removed.
    pub fn discard(dir: &Path) -> Result<(), IndexError> {
        remove(&dir.join(FILE_INDEX))
    }

    /// Refuses a log that ends before this read model: it lost its end.
    ///
    /// # Errors
    /// [`OpenError::Lost`].
    pub fn check(&self, log: &dyn LogReader) -> Result<(), OpenError> {
        let unread = |error: ReadError| OpenError::Io { place: FILE_DATABASE.to_owned(), reason: error.to_string() };
        let (ends, acknowledged) = (log.last().map_err(unread)?, self.last);
        if acknowledged <= ends {
            return Ok(());
        }
        let place = self.path.with_file_name(FILE_DATABASE).display().to_string();
        Err(OpenError::Lost { place, ends, by: FILE_INDEX, acknowledged })
    }

    /// Returns the position up to which the log is indexed.
    #[must_use]
    pub const fn last(&self) -> Seq {
        self.last
    }

    /// Returns a reader for other threads.
    #[must_use]
    pub fn reader(&self) -> IndexReader {
        IndexReader::new(self.readers.clone())
    }

    /// Indexes the entries behind [`Index::last`], all or none; skips earlier ones.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn apply(&mut self, entries: &[(Seq, &Entry)]) -> Result<(), IndexError> {
        let last = self.last;
        let fresh = entries.iter().skip_while(|(seq, _)| *seq <= last);
        self.write(|writing| {
            let mut reached = last;
            for (seq, entry) in fresh {
                writing.entry(*seq, entry).map_err(IndexFailure::Sqlite)?;
                reached = *seq;
            }
            Ok(reached)
        })
    }

    /// Runs `work` in one transaction; it returns the position it reached.
    fn write(&mut self, work: impl FnOnce(&mut Writing<'_>) -> Result<Seq, IndexFailure>) -> Result<(), IndexError> {
        let done = write(&mut self.db, &mut self.memory, self.last, work);
        if done.is_err() {
            // The caches may hold what the failed transaction didn't write.
            self.memory = Memory::default();
        }
        self.last = done.map_err(|failed| match failed {
            IndexFailure::Sqlite(error) => IndexError::sqlite(&self.path, &error),
            IndexFailure::Log(error) => IndexError::Log(error),
        })?;
        Ok(())
    }

    /// Indexes all entries that the log has behind [`Index::last`] now. `progress` receives the position reached and
    /// the log's end. An index that is ahead of the log belongs to another log and is rebuilt.
    ///
    /// # Errors
    /// The log can't be read or the file can't be written.
    pub fn catch_up(&mut self, log: &dyn LogReader, progress: &mut dyn FnMut(Seq, Seq)) -> Result<(), IndexError> {
        let end = log.last()?;
        if self.last > end {
            self.clear()?;
        }
        loop {
            let behind = self.last;
            self.step(log)?;
            if self.last > behind {
                progress(self.last, end.max(self.last));
            }
            // Entries that came meanwhile are left for the next call: following a busy log to its very end would mean
            // many tiny commits.
            if self.last >= end || self.last == behind {
                return Ok(());
            }
        }
    }

    /// Indexes up to [`ENTRIES_PER_COMMIT`] entries in one transaction.
    fn step(&mut self, log: &dyn LogReader) -> Result<(), IndexError> {
        let mut last = self.last;
        self.write(|writing| {
            for _ in 0..ENTRIES_PER_COMMIT / ENTRIES_PER_READ {
                let entries = log.read(Seq(last.0 + 1), ENTRIES_PER_READ).map_err(IndexFailure::Log)?;
                for (seq, entry) in &entries {
                    writing.entry(*seq, entry).map_err(IndexFailure::Sqlite)?;
                    last = *seq;
                }
                // Long entries come in short reads: only an empty one is the end.
                if entries.is_empty() {
                    break;
                }
            }
            Ok(last)
        })
    }

    /// Lets go of what was indexed of entries before `first`, the first one that is still in the log. Words of theirs stay
    /// in the full-text index until the read model is built again, and match nothing.
    ///
    /// # Errors
    /// The file can't be written; what was let go of is gone.
    pub fn trim(&mut self, first: Seq) -> Result<(), IndexError> {
        if first <= self.first {
            return Ok(());
        }
        let trim = |db: &Connection| -> rusqlite::Result<()> {
            for table in ["messages", "posts", "refusals"] {
                let sql = format!(
                    "DELETE FROM {table} WHERE seq IN (SELECT seq FROM {table} WHERE seq < ?1 LIMIT {ROWS_PER_TRIM})"
                );
                while db.execute(&sql, [first.0.cast_signed()])? > 0 {}
            }
            for table in ["lines", "sent", "received"] {
                db.execute(&format!("DELETE FROM {table} WHERE last < ?1"), [first.0.cast_signed()])?;
            }
            spend_index::trim(db)
        };
        trim(&self.db).map_err(|error| IndexError::sqlite(&self.path, &error))?;
        self.first = first;
        Ok(())
    }

    /// Rebuilds the read model of `dir` from the log.
    ///
    /// # Errors
    /// The log can't be read or the file can't be written.
    pub fn reindex(dir: &Path, log: &dyn LogReader, progress: &mut dyn FnMut(Seq, Seq)) -> Result<Self, IndexError> {
        let mut index = Self::open(dir)?;
        index.clear()?;
        index.catch_up(log, progress)?;
        Ok(index)
    }

    fn clear(&mut self) -> Result<(), IndexError> {
        let clear = format!(
            "BEGIN IMMEDIATE;
            DELETE FROM messages; DELETE FROM posts; DELETE FROM refusals; {} {} {} {}
            INSERT INTO words (words) VALUES ('delete-all');
            UPDATE progress SET last = 0; COMMIT",
            conversation_index::CLEAR,
            agent_index::CLEAR,
            aggregates::CLEAR,
            spend_index::CLEAR
        );
        (self.last, self.memory) = (Seq(0), Memory::default());
        self.db.execute_batch(&clear).map_err(|error| IndexError::sqlite(&self.path, &error))
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

fn io_failed(path: &Path, error: &io::Error) -> IndexError {
    IndexError::Unusable { reason: format!("{}: {error}", path.display()) }
}

/// Removes the file and what SQLite keeps beside it.
fn remove(path: &Path) -> Result<(), IndexError> {
    for suffix in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        match fs::remove_file(PathBuf::from(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io_failed(path, &error)),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

fn create(path: &Path) -> Result<(Connection, Seq), IndexError> {
    remove(path)?;
    data_dir::open_private(path).map_err(|error| io_failed(path, &error))?;
    let (lines, parties) = (conversation_index::SCHEMA, agent_index::SCHEMA);
    let (sums, spends) = (aggregates::SCHEMA, spend_index::SCHEMA);
    let make = || {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(path, flags)?;
        configure(&db)?;
        let pragmas = format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {INDEX_VERSION};");
        db.execute_batch(&format!("BEGIN IMMEDIATE; {SCHEMA} {lines} {parties} {sums} {spends} {pragmas} COMMIT"))?;
        Ok(db)
    };
    make().map(|db| (db, Seq(0))).map_err(|error| IndexError::sqlite(path, &error))
}

fn configure(db: &Connection) -> rusqlite::Result<()> {
    db.busy_timeout(BUSY)?;
    db.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    // NORMAL leaves the file consistent after a power cut; it may be behind, and catches up.
    db.pragma_update(None, "synchronous", "NORMAL")?;
    db.set_prepared_statement_cache_capacity(STATEMENTS);
    db.pragma_update(None, "cache_size", -CACHE_KIB)?;
    db.pragma_update_and_check(None, "wal_autocheckpoint", CHECKPOINT_PAGES, |_| Ok(()))
}

enum IndexFailure {
    Sqlite(rusqlite::Error),
    Log(ReadError),
}

/// Returns JSON with a space for each escape, which would be a letter of the word behind it.
fn unescaped(json: &str) -> String {
    let mut letters = json.chars();
    let mut text = String::with_capacity(json.len());
    while let Some(letter) = letters.next() {
        if letter == '\\' && letters.next() == Some('u') {
            letters.by_ref().take(4).for_each(drop);
        }
        text.push(if letter == '\\' { ' ' } else { letter });
    }
    text
}

/// Runs `work` in one transaction behind `last`; returns the position it reached.
fn write(
    db: &mut Connection,
    memory: &mut Memory,
    last: Seq,
    work: impl FnOnce(&mut Writing<'_>) -> Result<Seq, IndexFailure>,
) -> Result<Seq, IndexFailure> {
    let transaction = db.transaction().map_err(IndexFailure::Sqlite)?;
    let mut writing = Writing::new(&transaction, memory).map_err(IndexFailure::Sqlite)?;
    let reached = work(&mut writing)?;
    writing.flush().map_err(IndexFailure::Sqlite)?;
    drop(writing);
    if reached > last {
        commit(transaction, reached).map_err(IndexFailure::Sqlite)?;
    }
    Ok(reached)
}

fn commit(transaction: Transaction<'_>, last: Seq) -> rusqlite::Result<()> {
    let last = last.0.cast_signed();
    agent_index::list(&transaction, last)?;
    transaction.prepare_cached("UPDATE progress SET last = ?1")?.execute([last])?;
    transaction.commit()
}

/// The prepared statements of one transaction, so that no entry looks one up.
struct Writing<'a> {
    lines: Lines<'a>,
    sums: Adding<'a>,
    message: CachedStatement<'a>,
    words: CachedStatement<'a>,
    post: CachedStatement<'a>,
    refusal: CachedStatement<'a>,
    spends: Charging<'a>,
    texts: Vec<(i64, String)>,
    texts_bytes: usize,
}

impl<'a> Writing<'a> {
    fn new(db: &'a Connection, memory: &'a mut Memory) -> rusqlite::Result<Self> {
        Ok(Self {
            lines: Lines::new(db, &mut memory.lately)?,
            sums: Adding::new(db, &mut memory.written)?,
            message: db.prepare_cached("INSERT INTO messages VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?,
            words: db.prepare_cached("INSERT INTO words (rowid, body) VALUES (?1, ?2)")?,
            post: db.prepare_cached("INSERT INTO posts VALUES (?1, ?2, ?3, ?4)")?,
            refusal: db.prepare_cached("INSERT INTO refusals VALUES (?1, ?2, ?3, ?4, ?5)")?,
            spends: Charging::new(db, &mut memory.serving)?,
            texts: Vec::new(),
            texts_bytes: 0,
        })
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "most facts are no messages and have nothing to look up here")]
    fn entry(&mut self, seq: Seq, entry: &Entry) -> rusqlite::Result<()> {
        let (seq, at) = (seq.0.cast_signed(), entry.at.0.cast_signed());
        let conv = self.lines.index(seq, &entry.fact)?;
        self.sums.index(seq, entry.at, &entry.fact)?;
        self.spends.index(entry, conv)?;
        match &entry.fact {
            Fact::Accepted { message } => self.message(seq, at, message),
            Fact::Posted { room, from, body } => {
                self.post.execute((seq, room.0, from.0, at))?;
                self.text(seq, body)
            }
            Fact::Refused(Refused { agent, refusal, .. }) | Fact::WriteRefused(WriteRefused { agent, refusal, .. }) => {
                self.refusal.execute((seq, agent.0, refusal.code.word(), at, conv)).map(|_| ())
            }
            Fact::ApprovalAsked(asked) => {
                let why = asked.reason.as_deref().unwrap_or_default();
                self.text(seq, &format!("{} {} {why}", asked.tool, unescaped(&asked.arguments)))
            }
            // The one about a request that timed out has a sentence of the broker, of names alone.
            Fact::EscalationOpened(asked) if asked.cause != EscalationCause::TimedOut => self.text(seq, &asked.body),
            _ => Ok(()),
        }
    }

    fn message(&mut self, seq: i64, at: i64, message: &Message) -> rusqlite::Result<()> {
        let to = match message.to {
            Recipient::One(AgentId(id)) => id,
            Recipient::All => TO_ALL,
        };
        let (from, kind, conv) = (message.from.0, message.kind as u8, message.conv.0);
        self.message.execute((seq, from, to, kind, conv, message.depth, at))?;
        if let Part::Answer(Answer { reason: Some(reason), .. }) = &message.part {
            return self.text(seq, &format!("{}\n{reason}", message.body));
        }
        self.text(seq, &message.body)
    }

    /// Keeps a text until the others are written. A statement that may fail halfway makes the full-text index write what
    /// it has collected, so texts between such statements cost a segment each.
    fn text(&mut self, seq: i64, body: &str) -> rusqlite::Result<()> {
        self.texts_bytes += body.len();
        self.texts.push((seq, body.to_owned()));
        if self.texts_bytes >= TEXTS_BYTES { self.index_texts() } else { Ok(()) }
    }

    fn index_texts(&mut self) -> rusqlite::Result<()> {
        self.texts_bytes = 0;
        self.texts.drain(..).try_for_each(|(seq, body)| self.words.execute((seq, body)).map(|_| ()))
    }

    /// Writes what was collected.
    fn flush(&mut self) -> rusqlite::Result<()> {
        self.lines.flush()?;
        self.spends.flush()?;
        self.index_texts()
    }
}
