//! Sums over the log: messages, spending, refusals, and the daily peak of each limit.

use std::collections::HashMap;

use lastword_facts::{Code, Fact, Seq, Time};
use rusqlite::{CachedStatement, Connection};

use crate::log::ReadError;
use crate::read_model::query::{IndexReader, first_at};

/// A peak is one row per day and limit, however much happens.
pub(crate) const SCHEMA: &str = "
CREATE TABLE observations (
  seq INTEGER PRIMARY KEY,
  code TEXT NOT NULL,
  at INTEGER NOT NULL
) STRICT;
CREATE TABLE peaks (
  name TEXT NOT NULL,
  day INTEGER NOT NULL,
  value INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  PRIMARY KEY (name, day)
) STRICT, WITHOUT ROWID;";

/// Deletes what [`SCHEMA`]'s tables hold.
pub(crate) const CLEAR: &str = "DELETE FROM observations; DELETE FROM peaks;";

const HOUR_MS: u64 = 3_600_000;

/// The day's peaks that are known to be written, so that lower values need no query.
#[derive(Default)]
pub(crate) struct Written(HashMap<(&'static str, u64), u64>);

/// Entries of [`Written`]; at the maximum it is cleared and peaks are written once more.
const WRITTEN_MAX: usize = 1_000;

/// Adds facts to the sums within one transaction.
pub(crate) struct Adding<'a> {
    observation: CachedStatement<'a>,
    peak: CachedStatement<'a>,
    written: &'a mut Written,
}

impl<'a> Adding<'a> {
    pub(crate) fn new(db: &'a Connection, written: &'a mut Written) -> rusqlite::Result<Self> {
        let peak = db.prepare_cached(
            "INSERT INTO peaks VALUES (?1, ?2, ?3, ?4) ON CONFLICT (name, day) DO UPDATE \
             SET value = excluded.value, seq = excluded.seq WHERE excluded.value > value",
        )?;
        Ok(Self { observation: db.prepare_cached("INSERT INTO observations VALUES (?1, ?2, ?3)")?, peak, written })
    }

    /// Adds a fact.
    #[expect(clippy::wildcard_enum_match_arm, reason = "most facts have no number that is watched here")]
    pub(crate) fn index(&mut self, seq: i64, at: Time, fact: &Fact) -> rusqlite::Result<()> {
        match fact {
            Fact::Accepted { message } => {
                self.peak(seq, at, "depth_max", message.depth.into())?;
                self.peak(seq, at, "hops_max", message.hops.into())
            }
            Fact::Heard { agent_messages: turns, .. } => {
                self.peak(seq, at, "turns_soft_max", *turns)?;
                self.peak(seq, at, "turns_hard_max", *turns)
            }
            Fact::Observed { refusal, .. } => {
                self.observation.execute((seq, refusal.code.word(), at.0.cast_signed())).map(|_| ())
            }
            _ => Ok(()),
        }
    }

    fn peak(&mut self, seq: i64, at: Time, name: &'static str, value: u64) -> rusqlite::Result<()> {
        let key = (name, at.day());
        if self.written.0.get(&key).is_some_and(|written| *written >= value) {
            return Ok(());
        }
        if self.written.0.len() >= WRITTEN_MAX {
            self.written.0.clear();
        }
        self.written.0.insert(key, value);
        self.peak.execute((name, at.day().cast_signed(), value.cast_signed(), seq)).map(|_| ())
    }
}

/// A sum over the whole log and over its part since a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Over the whole log.
    pub all: u64,
    /// Since the requested moment.
    pub since: u64,
}

/// The number of refusals with one code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeCount {
    /// The code of these refusals.
    pub code: Code,
    /// Their number, over the log and since a moment.
    pub count: Count,
    /// The position of the last one.
    pub last: Seq,
}

/// The highest value that the usage of a limit reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peak {
    /// The limit's name.
    pub name: String,
    /// The value, in the limit's unit.
    pub value: u64,
    /// The position at which it was first reached.
    pub seq: Seq,
}

/// Sums of the whole log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Accepted messages, over the log and since a moment.
    pub messages: Count,
    /// Messages per hour since that moment, as the hour's start and a count; hours without messages are left out.
    pub hours: Vec<(Time, u64)>,
    /// Tokens that turns spent.
    pub tokens: Count,
    /// Money that turns spent, in millionths of a dollar.
    pub cost_microusd: Count,
    /// Refusals by their code, the most frequent first.
    pub refused: Vec<CodeCount>,
    /// Refusals that guards in observe mode would have given, by code.
    pub observed: Vec<CodeCount>,
}

impl IndexReader {
    /// Returns all sums, with the part since `since`.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn sums(&self, since: Time) -> Result<Sums, ReadError> {
        self.with(|db| {
            let from = first_at(db, "messages", since)?;
            let all = number(db, "SELECT count(*) FROM messages", [])?;
            let recent = number(db, "SELECT count(*) FROM messages WHERE seq >= ?1", [from])?;
            let (tokens, cost_microusd) = spent(db, since)?;
            Ok(Sums {
                messages: Count { all, since: recent },
                hours: hours(db, from)?,
                tokens,
                cost_microusd,
                refused: codes(db, "refusals", since)?,
                observed: codes(db, "observations", since)?,
            })
        })
    }

    /// Returns refusals by code, the most frequent since `since` first.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn refused(&self, since: Time) -> Result<Vec<CodeCount>, ReadError> {
        self.with(|db| codes(db, "refusals", since))
    }

    /// Returns the peaks since the start of the day of `since`.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn peaks(&self, since: Time) -> Result<Vec<Peak>, ReadError> {
        self.with(|db| {
            // With max(), SQLite takes the other columns from the row that has it.
            let sql = "SELECT name, max(value), seq FROM peaks WHERE day >= ?1 GROUP BY name";
            let mut statement = db.prepare_cached(sql)?;
            let rows = statement.query_map([since.day().cast_signed()], |row| {
                let (value, seq): (i64, i64) = (row.get(1)?, row.get(2)?);
                Ok(Peak { name: row.get(0)?, value: value.cast_unsigned(), seq: Seq(seq.cast_unsigned()) })
            })?;
            rows.collect()
        })
    }
}

fn number(db: &Connection, sql: &str, params: impl rusqlite::Params) -> rusqlite::Result<u64> {
    db.prepare_cached(sql)?.query_row(params, |row| row.get::<_, i64>(0)).map(i64::cast_unsigned)
}

fn hours(db: &Connection, from: i64) -> rusqlite::Result<Vec<(Time, u64)>> {
    let sql = "SELECT at / ?1 AS hour, count(*) FROM messages WHERE seq >= ?2 GROUP BY hour ORDER BY hour";
    let mut statement = db.prepare_cached(sql)?;
    let rows = statement.query_map((HOUR_MS.cast_signed(), from), |row| Ok((row.get::<_, i64>(0)?, row.get(1)?)))?;
    rows.map(|row| row.map(|(hour, n): (i64, i64)| (Time(hour.cast_unsigned() * HOUR_MS), n.cast_unsigned()))).collect()
}

fn spent(db: &Connection, since: Time) -> rusqlite::Result<(Count, Count)> {
    // What `sum` fails at, `total` adds up, and the cast bounds it.
    let sql = "SELECT CAST(total(tokens) AS INTEGER), CAST(total(tokens) FILTER (WHERE at >= ?1) AS INTEGER), \
               CAST(total(cost_microusd) AS INTEGER), CAST(total(cost_microusd) FILTER (WHERE at >= ?1) AS INTEGER) \
               FROM spends";
    let count = |row: &rusqlite::Row<'_>, at: usize| -> rusqlite::Result<Count> {
        let (all, since): (i64, i64) = (row.get(at)?, row.get(at + 1)?);
        Ok(Count { all: all.cast_unsigned(), since: since.cast_unsigned() })
    };
    let moment = i64::try_from(since.0).unwrap_or(i64::MAX);
    db.prepare_cached(sql)?.query_row([moment], |row| Ok((count(row, 0)?, count(row, 2)?)))
}

/// Codes that this version doesn't know are skipped.
fn codes(db: &Connection, table: &'static str, since: Time) -> rusqlite::Result<Vec<CodeCount>> {
    let from = first_at(db, table, since)?;
    let sql = format!(
        "SELECT code, count(*), count(*) FILTER (WHERE seq >= ?1) AS recent, max(seq) FROM {table} \
         GROUP BY code ORDER BY recent DESC, 2 DESC, code"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let rows = statement.query_map([from], |row| {
        let (word, all, since, last): (String, i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
        let count = Count { all: all.cast_unsigned(), since: since.cast_unsigned() };
        let code = Code::ALL.iter().copied().find(|code| code.word() == word);
        Ok(code.map(|code| CodeCount { code, count, last: Seq(last.cast_unsigned()) }))
    })?;
    rows.filter_map(Result::transpose).collect()
}
