//! Queries to the read model. They return positions; the entries come from the log.

use std::collections::HashSet;
use std::fmt::Write as _;

use lastword_facts::ids::{AgentId, ConvId, RoomId, TurnId};
use lastword_facts::{Code, MessageType, Seq, Time};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, params_from_iter};

use crate::log::ReadError;
use crate::pool::Pool;
use crate::read_model::agent_index::{MessageList, Show, Walk};
use crate::read_model::conversation_index;

/// A window on a list ordered by position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Only positions behind this one.
    pub after: Option<Seq>,
    /// Only positions before this one.
    pub before: Option<Seq>,
    /// Oldest first; otherwise newest first.
    pub ascending: bool,
    /// Most results; 0 returns none.
    pub limit: usize,
}

impl Cursor {
    /// Returns the window as exclusive bounds.
    pub(crate) fn bounds(self) -> (i64, i64) {
        let number = |seq: Seq| i64::try_from(seq.0).unwrap_or(i64::MAX);
        (self.after.map_or(-1, number), self.before.map_or(i64::MAX, number))
    }
}

/// Selects messages; an absent member matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// In one of these conversations; an empty list admits nothing.
    pub convs: Option<Vec<ConvId>>,
    /// The agent or human that sent it.
    pub from: Option<AgentId>,
    /// The recipient; messages to all don't match.
    pub to: Option<AgentId>,
    /// The message type.
    pub kind: Option<MessageType>,
    /// The exact depth.
    pub depth: Option<u8>,
    /// Not before this moment.
    pub since: Option<Time>,
    /// Not after this moment.
    pub until: Option<Time>,
    /// With all these words in the body, or in the reason of an answer; any text is allowed.
    pub text: Option<String>,
    /// The part of the list to return.
    pub cursor: Cursor,
}

/// Selects posts in rooms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PostFilter {
    /// The room that holds the posts.
    pub room: Option<RoomId>,
    /// With all these words in the body; any text is allowed.
    pub text: Option<String>,
    /// The part of the list to return.
    pub cursor: Cursor,
}

/// Selects refusals; an absent member matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusalFilter {
    /// In the history of any of these conversations.
    pub convs: Option<Vec<ConvId>>,
    /// The sender of the refused message.
    pub agent: Option<AgentId>,
    /// The refusal's code.
    pub code: Option<Code>,
    /// Not before this moment.
    pub since: Option<Time>,
    /// Not after this moment.
    pub until: Option<Time>,
    /// The part of the list to return.
    pub cursor: Cursor,
}

/// A reader of the read model for any thread. Clones share its connections.
#[derive(Clone)]
pub struct IndexReader(Pool);

impl IndexReader {
    pub(crate) const fn new(pool: Pool) -> Self {
        Self(pool)
    }

    pub(crate) fn with<T>(&self, read: impl FnOnce(&Connection) -> Result<T, rusqlite::Error>) -> Result<T, ReadError> {
        Ok(self.0.with(read)?)
    }

    /// The position up to which the log is indexed.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn last(&self) -> Result<Seq, ReadError> {
        self.with(|db| {
            let last: i64 = db.prepare_cached("SELECT last FROM progress")?.query_row([], |row| row.get(0))?;
            Ok(Seq(last.cast_unsigned()))
        })
    }

    /// Returns the positions of the messages that match the filter.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn messages(&self, filter: &Filter) -> Result<Vec<Seq>, ReadError> {
        self.with(|db| {
            let select = Select::filtered(db, filter)?;
            let Some(party) = select.party(filter) else { return select.run(db, filter.cursor) };
            let mut seqs = Vec::new();
            select.walk(db, party, filter.cursor, &mut |seq, _| {
                seqs.push(seq);
                seqs.len() < filter.cursor.limit
            })?;
            Ok(seqs)
        })
    }

    /// Returns the conversations with matching messages and the last such message of each, ordered by that message. The
    /// filter's window applies to those last messages.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn conversations(&self, filter: &Filter) -> Result<Vec<(ConvId, Seq)>, ReadError> {
        self.with(|db| {
            let select = Select::filtered(db, filter)?;
            if let Some(party) = select.party(filter) {
                return select.conversations(db, party, filter.cursor);
            }
            let (key, source) = (select.key(), select.source());
            let before = filter.cursor.before.map_or(i64::MAX, |seq| seq.0.cast_signed());
            let limit = i64::try_from(filter.cursor.limit).unwrap_or(i64::MAX);
            let sql = format!(
                "SELECT conv, max({key}) AS last FROM {source} WHERE true{} GROUP BY conv HAVING last < {before} \
                 ORDER BY last DESC LIMIT {limit}",
                select.conditions
            );
            let mut statement = db.prepare_cached(&sql)?;
            let rows = statement.query_map(params_from_iter(select.values), |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.map(|row| row.map(|(conv, seq): (u32, i64)| (ConvId(conv), Seq(seq.cast_unsigned())))).collect()
        })
    }

    /// Returns the positions of all facts in the history of these conversations, messages included, in log order.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn history(&self, convs: &[ConvId], cursor: Cursor) -> Result<Vec<Seq>, ReadError> {
        self.with(|db| {
            let mut select = Select::new("messages");
            select.one_of("conv", convs.iter().map(|conv| conv.0));
            let mut seqs = select.run(db, cursor)?;
            seqs.extend(conversation_index::of_conversations(db, convs, cursor)?);
            seqs.sort_unstable();
            if !cursor.ascending {
                seqs.reverse();
            }
            seqs.truncate(cursor.limit);
            Ok(seqs)
        })
    }

    /// Returns the position of the first message of each of these conversations; those without messages are left out.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn first_messages(&self, convs: &[ConvId]) -> Result<Vec<(ConvId, Seq)>, ReadError> {
        self.with(|db| {
            let mut statement = db.prepare_cached("SELECT min(seq) FROM messages WHERE conv = ?1")?;
            let first = |conv: &ConvId| -> rusqlite::Result<Option<(ConvId, Seq)>> {
                let seq: Option<i64> = statement.query_row([conv.0], |row| row.get(0))?;
                Ok(seq.map(|seq| (*conv, Seq(seq.cast_unsigned()))))
            };
            convs.iter().map(first).filter_map(Result::transpose).collect()
        })
    }

    /// Returns all conversations that ever had this REF or one below it, oldest first, including forgotten ones.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn named(&self, reference: &str) -> Result<Vec<ConvId>, ReadError> {
        self.with(|db| {
            // `0` is the character after `/`, so this range is the REFs that start with `REF/`.
            let sql = "SELECT conv FROM refs WHERE ref = ?1 OR (ref > ?1 || '/' AND ref < ?1 || '0') ORDER BY conv";
            let mut statement = db.prepare_cached(sql)?;
            let rows = statement.query_map([reference], |row| row.get(0).map(ConvId))?;
            rows.collect()
        })
    }

    /// Returns the REFs of these conversations, including forgotten ones.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn refs(&self, convs: &[ConvId]) -> Result<Vec<(ConvId, String)>, ReadError> {
        self.with(|db| {
            let mut statement = db.prepare_cached("SELECT ref FROM refs WHERE conv = ?1")?;
            let name = |conv: &ConvId| -> rusqlite::Result<Option<(ConvId, String)>> {
                let found = statement.query_row([conv.0], |row| row.get(0)).optional()?;
                Ok(found.map(|reference| (*conv, reference)))
            };
            convs.iter().map(name).filter_map(Result::transpose).collect()
        })
    }

    /// Returns the positions of the posts that match the filter.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn posts(&self, filter: &PostFilter) -> Result<Vec<Seq>, ReadError> {
        self.with(|db| {
            let mut select = Select::new("posts");
            select.equal("room", filter.room.map(|room| room.0.into()));
            select.words(filter.text.as_deref());
            select.run(db, filter.cursor)
        })
    }

    /// Returns the positions of the newest messages, posts, questions and held calls in which words begin with each of these:
    /// `max` at most.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn beginning_with(&self, text: &str, max: usize) -> Result<Vec<Seq>, ReadError> {
        let Some(query) = quoted(text, "*") else { return Ok(Vec::new()) };
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        self.with(|db| {
            // Words of what was let go of stay in the index.
            let sql = "SELECT rowid FROM words WHERE words MATCH ?1 \
                       AND rowid >= (SELECT ifnull(min(seq), 0) FROM messages) ORDER BY rowid DESC LIMIT ?2";
            let mut statement = db.prepare_cached(sql)?;
            let rows = statement.query_map((query, max), |row| row.get(0).map(|seq: i64| Seq(seq.cast_unsigned())))?;
            rows.collect()
        })
    }

    /// Returns the tokens that each of these turns spent; open turns are left out.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn spends(&self, turns: &[TurnId]) -> Result<Vec<(TurnId, TurnTokens)>, ReadError> {
        self.with(|db| {
            let mut found = Vec::new();
            for some in turns.chunks(TURNS_PER_QUERY) {
                found.extend(spends_of(db, some)?);
            }
            Ok(found)
        })
    }

    /// Returns the positions of the refusals that match the filter.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn refusals(&self, filter: &RefusalFilter) -> Result<Vec<Seq>, ReadError> {
        self.with(|db| {
            let mut select = Select::new("refusals");
            if let Some(convs) = &filter.convs {
                select.one_of("conv", convs.iter().map(|conv| conv.0));
            }
            select.equal("agent", filter.agent.map(|agent| agent.0.into()));
            select.equal("code", filter.code.map(|code| code.word().to_owned().into()));
            select.between(db, filter.since, filter.until)?;
            select.run(db, filter.cursor)
        })
    }
}

impl IndexReader {
    /// Returns how many messages and writes were refused in each of these conversations; those without any are left out.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn refused_in(&self, convs: &[ConvId]) -> Result<Vec<(ConvId, u64)>, ReadError> {
        self.with(|db| {
            let mut statement = db.prepare_cached("SELECT count(*) FROM refusals WHERE conv = ?1")?;
            let count = |conv: &ConvId| -> rusqlite::Result<(ConvId, u64)> {
                Ok((*conv, statement.query_row([conv.0], |row| row.get::<_, i64>(0))?.cast_unsigned()))
            };
            let counts: rusqlite::Result<Vec<_>> = convs.iter().map(count).collect();
            Ok(counts?.into_iter().filter(|(_, refused)| *refused > 0).collect())
        })
    }
}

/// The tokens of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnTokens {
    /// The tokens charged so far.
    pub tokens: u64,
    /// Whether they are estimated from the length of the text, at least in part.
    pub estimated: bool,
}

/// Turns per statement: SQLite bounds its length.
const TURNS_PER_QUERY: usize = 500;

fn spends_of(db: &Connection, turns: &[TurnId]) -> rusqlite::Result<Vec<(TurnId, TurnTokens)>> {
    let list: Vec<String> = turns.iter().map(|turn| turn.0.to_string()).collect();
    let sql = format!("SELECT turn, tokens, estimated FROM spends WHERE turn IN ({})", list.join(","));
    let mut statement = db.prepare(&sql)?;
    let row = |row: &rusqlite::Row<'_>| {
        let (turn, tokens) = (row.get::<_, i64>(0)?.cast_unsigned(), row.get::<_, i64>(1)?.cast_unsigned());
        Ok((TurnId(turn), TurnTokens { tokens, estimated: row.get(2)? }))
    };
    let rows = statement.query_map([], row)?;
    rows.collect()
}

/// Returns numbers as a list of SQL.
pub(crate) fn numbers(all: impl Iterator<Item = u32>) -> String {
    all.map(|number| number.to_string()).collect::<Vec<_>>().join(",")
}

/// A query under construction: a table with the columns `seq` and `at`.
struct Select {
    table: &'static str,
    text: bool,
    conditions: String,
    values: Vec<Value>,
    /// The positions that the time conditions translate to.
    after: Option<Seq>,
    before: Option<Seq>,
}

impl Select {
    const fn new(table: &'static str) -> Self {
        Self { table, text: false, conditions: String::new(), values: Vec::new(), after: None, before: None }
    }

    /// Builds the query for the filter's conditions, without its window.
    fn filtered(db: &Connection, filter: &Filter) -> rusqlite::Result<Self> {
        let mut select = Self::new("messages");
        if let Some(convs) = &filter.convs {
            select.one_of("conv", convs.iter().map(|conv| conv.0));
        }
        select.equal("from_id", filter.from.map(|agent| agent.0.into()));
        select.equal("to_id", filter.to.map(|agent| agent.0.into()));
        select.equal("kind", filter.kind.map(|kind| i64::from(kind as u8).into()));
        select.equal("depth", filter.depth.map(|depth| i64::from(depth).into()));
        select.words(filter.text.as_deref());
        select.between(db, filter.since, filter.until)?;
        Ok(select)
    }

    fn condition(&mut self, left: &str, value: Value) {
        self.values.push(value);
        // Writing to a String can't fail.
        let _ok = write!(self.conditions, " AND {left} ?{}", self.values.len());
    }

    fn equal(&mut self, column: &str, value: Option<Value>) {
        if let Some(value) = value {
            self.condition(&format!("{column} ="), value);
        }
    }

    fn one_of(&mut self, column: &str, numbers: impl Iterator<Item = u32>) {
        let list: Vec<String> = numbers.map(|number| number.to_string()).collect();
        // Writing to a String can't fail.
        let _ok = write!(self.conditions, " AND {column} IN ({})", list.join(","));
    }

    fn words(&mut self, text: Option<&str>) {
        if let Some(query) = text.and_then(|text| quoted(text, "")) {
            self.text = true;
            self.condition("words MATCH", query.into());
        }
    }

    /// Translates moments into positions: time grows along the log, so it needs no index.
    fn between(&mut self, db: &Connection, since: Option<Time>, until: Option<Time>) -> rusqlite::Result<()> {
        if let Some(since) = since {
            let from = first_at(db, self.table, since)?;
            self.condition(&format!("{} >=", self.key()), from.into());
            self.after = u64::try_from(from - 1).ok().map(Seq);
        }
        if let Some(until) = until {
            let behind = first_at(db, self.table, until.plus(1))?;
            self.condition(&format!("{} <", self.key()), behind.into());
            self.before = Some(Seq(behind.cast_unsigned()));
        }
        Ok(())
    }

    /// Returns the position's column: in a text search the rowid, which FTS5 walks in order.
    const fn key(&self) -> &'static str {
        if self.text { "words.rowid" } else { "seq" }
    }

    fn source(&self) -> String {
        let table = self.table;
        if self.text { format!("words CROSS JOIN {table} ON seq = words.rowid") } else { table.to_owned() }
    }

    /// Returns the agent's list that contains all matching messages, unless another condition is more selective.
    fn party(&self, filter: &Filter) -> Option<MessageList> {
        if self.text || filter.convs.is_some() || filter.cursor.limit == 0 {
            return None;
        }
        filter.from.map(MessageList::Sender).or_else(|| filter.to.map(MessageList::Recipient))
    }

    fn walk(
        &self,
        db: &Connection,
        party: MessageList,
        mut cursor: Cursor,
        show: &mut Show<'_>,
    ) -> rusqlite::Result<()> {
        let one = db.unchecked_transaction()?;
        // Positions outside of the time window are skipped.
        cursor.after = cursor.after.max(self.after);
        cursor.before = cursor.before.into_iter().chain(self.before).min();
        let walk = Walk { db: &one, party, conditions: &self.conditions, values: &self.values, cursor };
        walk.run(show).map(|_| ())
    }

    /// See [`IndexReader::conversations`]: in descending order the first message of a conversation is its newest.
    fn conversations(
        &self,
        db: &Connection,
        party: MessageList,
        cursor: Cursor,
    ) -> rusqlite::Result<Vec<(ConvId, Seq)>> {
        let (mut met, mut found) = (HashSet::new(), Vec::new());
        let newest_first = Cursor { after: None, before: None, ascending: false, limit: cursor.limit };
        self.walk(db, party, newest_first, &mut |seq, conv| {
            if met.insert(conv) && cursor.before.is_none_or(|before| seq < before) {
                found.push((conv, seq));
            }
            found.len() < cursor.limit
        })?;
        Ok(found)
    }

    fn run(mut self, db: &Connection, cursor: Cursor) -> rusqlite::Result<Vec<Seq>> {
        let key = self.key();
        if let Some(after) = cursor.after {
            self.condition(&format!("{key} >"), after.0.cast_signed().into());
        }
        if let Some(before) = cursor.before {
            self.condition(&format!("{key} <"), before.0.cast_signed().into());
        }
        let source = self.source();
        let order = if cursor.ascending { "ASC" } else { "DESC" };
        let limit = i64::try_from(cursor.limit).unwrap_or(i64::MAX);
        let conditions = &self.conditions;
        let sql = format!("SELECT {key} FROM {source} WHERE true{conditions} ORDER BY {key} {order} LIMIT {limit}");
        let mut statement = db.prepare_cached(&sql)?;
        let rows = statement.query_map(params_from_iter(self.values), |row| row.get::<_, i64>(0))?;
        rows.map(|row| row.map(|seq| Seq(seq.cast_unsigned()))).collect()
    }
}

/// Returns an FTS5 query for all words of a text, each with this sign behind it; `None` if it has no words.
///
/// Each word is quoted, so that no text is a syntax error or an operator. Characters that the tokenizer drops are
/// removed: a quoted word without a token would match nothing.
fn quoted(text: &str, sign: &str) -> Option<String> {
    let words: Vec<String> = text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(|word| format!("\"{word}\"{sign}"))
        .collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// Returns the first position in `table` at or after `time`, by binary search; the end of the table if there is none.
pub(crate) fn first_at(db: &Connection, table: &str, time: Time) -> rusqlite::Result<i64> {
    let end: Option<i64> = db.query_row(&format!("SELECT max(seq) FROM {table}"), [], |row| row.get(0))?;
    let time = i64::try_from(time.0).unwrap_or(i64::MAX);
    let mut next = db.prepare_cached(&format!("SELECT seq, at FROM {table} WHERE seq >= ?1 ORDER BY seq LIMIT 1"))?;
    let (mut low, mut high) = (0, end.map_or(0, |end| end + 1));
    while low < high {
        let middle = low + (high - low) / 2;
        let found: Option<(i64, i64)> = next.query_row([middle], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        match found {
            Some((seq, at)) if at < time => low = seq + 1,
            Some(_) | None => high = middle,
        }
    }
    Ok(low)
}
