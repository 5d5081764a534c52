//! The messages that each agent sent and received, as lists of positions.
//!
//! Updating the lists with every message would dirty the last page of every agent's list every few messages, and each
//! page is written twice. So the lists are updated rarely, and a query scans the messages that came since.

use std::collections::BTreeMap;

use lastword_facts::Seq;
use lastword_facts::ids::{AgentId, ConvId};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, params_from_iter};

use crate::read_model::packed;
use crate::read_model::query::Cursor;

pub(crate) const SCHEMA: &str = "
CREATE TABLE sent (
  agent INTEGER NOT NULL,
  -- The last of some messages.
  last INTEGER NOT NULL,
  -- Those before it: how far each is before the next.
  earlier BLOB,
  PRIMARY KEY (agent, last)
) STRICT, WITHOUT ROWID;
CREATE TABLE received (
  agent INTEGER NOT NULL,
  last INTEGER NOT NULL,
  earlier BLOB,
  PRIMARY KEY (agent, last)
) STRICT, WITHOUT ROWID;
CREATE TABLE listed (id INTEGER PRIMARY KEY CHECK (id = 1), last INTEGER NOT NULL) STRICT;
INSERT INTO listed VALUES (1, 0);";

/// Empties the tables of [`SCHEMA`].
pub(crate) const CLEAR: &str = "DELETE FROM sent; DELETE FROM received; UPDATE listed SET last = 0;";

/// Facts between two updates of the lists; also the most positions that one row spans.
const SPAN: i64 = 32_768;

/// One of an agent's two lists.
#[derive(Clone, Copy)]
pub(crate) enum MessageList {
    /// The messages that it sent.
    Sender(AgentId),
    /// The messages addressed to it.
    Recipient(AgentId),
}

impl MessageList {
    const fn table(self) -> &'static str {
        match self {
            Self::Sender(_) => "sent",
            Self::Recipient(_) => "received",
        }
    }

    const fn agent(self) -> u32 {
        match self {
            Self::Sender(AgentId(id)) | Self::Recipient(AgentId(id)) => id,
        }
    }
}

/// Updates the lists if [`SPAN`] facts have passed, in the transaction that indexed the messages up to `reached`.
pub(crate) fn list(db: &Connection, reached: i64) -> rusqlite::Result<()> {
    let mut last: i64 = db.prepare_cached("SELECT last FROM listed")?.query_row([], |row| row.get(0))?;
    while reached - last >= SPAN {
        // Positions jump where an epoch begins (L8): nothing is between the ends of the gap.
        let next = "SELECT ifnull(min(seq) - 1, ?2) FROM messages WHERE seq > ?1 AND seq <= ?2";
        let behind: i64 = db.prepare_cached(next)?.query_row([last, reached], |row| row.get(0))?;
        if behind - last >= SPAN {
            last = behind;
        } else {
            add(db, last, last + SPAN)?;
            last += SPAN;
        }
        db.prepare_cached("UPDATE listed SET last = ?1")?.execute([last])?;
    }
    Ok(())
}

/// Adds the messages behind `after`, up to `until`.
fn add(db: &Connection, after: i64, until: i64) -> rusqlite::Result<()> {
    let (mut sent, mut received) = (BTreeMap::<u32, Vec<i64>>::new(), BTreeMap::<u32, Vec<i64>>::new());
    let sql = "SELECT seq, from_id, to_id FROM messages WHERE seq > ?1 AND seq <= ?2 ORDER BY seq";
    let mut messages = db.prepare_cached(sql)?;
    let mut rows = messages.query([after, until])?;
    while let Some(row) = rows.next()? {
        let seq = row.get(0)?;
        sent.entry(row.get(1)?).or_default().push(seq);
        received.entry(row.get(2)?).or_default().push(seq);
    }
    for (table, lists) in [("sent", sent), ("received", received)] {
        let mut insert = db.prepare_cached(&format!("INSERT INTO {table} VALUES (?1, ?2, ?3)"))?;
        for (agent, seqs) in lists {
            for (last, earlier) in packed::rows(&seqs, SPAN) {
                insert.execute((agent, last, earlier))?;
            }
        }
    }
    Ok(())
}

/// Receives a message and its conversation; returns whether it wants more.
pub(crate) type Show<'a> = dyn FnMut(Seq, ConvId) -> bool + 'a;

/// Walks over the messages of a list in order. Runs in a transaction, so that the list and the messages that came since
/// are of one moment.
pub(crate) struct Walk<'a> {
    pub(crate) db: &'a Connection,
    pub(crate) party: MessageList,
    /// SQL conditions on the messages, each starting with ` AND `.
    pub(crate) conditions: &'a str,
    pub(crate) values: &'a [Value],
    /// The window; its `limit` is ignored.
    pub(crate) cursor: Cursor,
}

impl Walk<'_> {
    /// Passes each message to `show` until it wants no more; returns whether it still wants more.
    pub(crate) fn run(&self, show: &mut Show<'_>) -> rusqlite::Result<bool> {
        let listed: i64 = self.db.prepare_cached("SELECT last FROM listed")?.query_row([], |row| row.get(0))?;
        // Listed messages are older than unlisted ones, so the order of the window decides which part comes first.
        for in_list in [self.cursor.ascending, !self.cursor.ascending] {
            let more = if in_list { self.listed(show)? } else { self.unlisted(listed, show)? };
            if !more {
                return Ok(false);
            }
        }
        Ok(true)
    }

    const fn order(&self) -> &'static str {
        if self.cursor.ascending { "ASC" } else { "DESC" }
    }

    fn listed(&self, show: &mut Show<'_>) -> rusqlite::Result<bool> {
        let (after, before) = self.cursor.bounds();
        let sql = format!(
            "SELECT last, earlier FROM {} WHERE agent = ?1 AND last > ?2 AND last < ?3 ORDER BY last {}",
            self.party.table(),
            self.order()
        );
        let mut lists = self.db.prepare_cached(&sql)?;
        // A row that starts inside the window may end behind it.
        let mut rows = lists.query((self.party.agent(), after, before.saturating_add(SPAN)))?;
        let at = self.values.len() + 1;
        let sql = format!("SELECT conv FROM messages WHERE seq = ?{at}{}", self.conditions);
        let mut message = self.db.prepare_cached(&sql)?;
        let mut seqs = Vec::new();
        while let Some(row) = rows.next()? {
            seqs.clear();
            packed::unpack(row.get(0)?, row.get_ref(1)?.as_blob_or_null()?, &mut seqs)?;
            if self.cursor.ascending {
                seqs.reverse();
            }
            seqs.retain(|seq| (after + 1..before).contains(&seq.0.cast_signed()));
            for seq in &seqs {
                let values = self.values.iter().cloned().chain([seq.0.cast_signed().into()]);
                let conv: Option<u32> = message.query_row(params_from_iter(values), |row| row.get(0)).optional()?;
                if conv.is_some_and(|conv| !show(*seq, ConvId(conv))) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn unlisted(&self, listed: i64, show: &mut Show<'_>) -> rusqlite::Result<bool> {
        let (after, before) = self.cursor.bounds();
        let at = self.values.len();
        let sql = format!(
            "SELECT seq, conv FROM messages WHERE seq > ?{} AND seq < ?{}{} ORDER BY seq {}",
            at + 1,
            at + 2,
            self.conditions,
            self.order()
        );
        let mut messages = self.db.prepare_cached(&sql)?;
        let window = [after.max(listed).into(), before.into()];
        let mut rows = messages.query(params_from_iter(self.values.iter().cloned().chain(window)))?;
        while let Some(row) = rows.next()? {
            let seq: i64 = row.get(0)?;
            if !show(Seq(seq.cast_unsigned()), ConvId(row.get(1)?)) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt as _, SeedableRng as _};

    use super::*;

    /// A message: its position, sender, recipient, conversation and depth.
    type Message = (i64, u32, u32, u32, u8);

    /// Writes random messages: some are in lists, some came since.
    fn messages(db: &Connection, rng: &mut StdRng) -> Vec<Message> {
        db.execute_batch("CREATE TABLE messages (seq INTEGER PRIMARY KEY, from_id, to_id, conv, depth);").unwrap();
        db.execute_batch(SCHEMA).unwrap();
        let (mut all, mut seq) = (Vec::new(), 0);
        let mut insert = db.prepare("INSERT INTO messages VALUES (?1, ?2, ?3, ?4, ?5)").unwrap();
        while seq < 3 * SPAN {
            seq += if rng.random_bool(0.0002) { rng.random_range(1..SPAN) } else { rng.random_range(1..9) };
            // The first agent sends half of all, the last one hardly any.
            let from = if rng.random_bool(0.5) { 1 } else { rng.random_range(1..7) };
            let message = (seq, from, rng.random_range(0..7), rng.random_range(1..400), u8::from(rng.random_bool(0.3)));
            insert.execute(message).unwrap();
            all.push(message);
            if rng.random_bool(0.002) {
                list(db, seq).unwrap();
            }
        }
        all
    }

    #[test]
    fn every_window_on_the_messages_of_an_agent_is_that_on_all_messages() {
        let db = Connection::open_in_memory().unwrap();
        let mut rng = StdRng::seed_from_u64(11);
        let all = messages(&db, &mut rng);
        let listed: i64 = db.query_row("SELECT last FROM listed", [], |row| row.get(0)).unwrap();
        assert!(listed > 0 && all.last().unwrap().0 > listed, "there are both kinds");
        for round in 0..400 {
            let agent = rng.random_range(1..9);
            let (party, column) = match round % 2 {
                0 => (MessageList::Sender(AgentId(agent)), "from_id"),
                _ => (MessageList::Recipient(AgentId(agent)), "to_id"),
            };
            let deep = rng.random_bool(0.3);
            let mut edge = || rng.random_bool(0.6).then(|| Seq(rng.random_range(0..4 * SPAN.cast_unsigned())));
            let (after, before) = (edge(), edge());
            let cursor = Cursor { after, before, ascending: rng.random_bool(0.5), limit: 0 };
            let limit = if rng.random_bool(0.2) { usize::MAX } else { rng.random_range(1..3_000) };

            let mut expected: Vec<(Seq, ConvId)> = all
                .iter()
                .filter(|(_, from, to, ..)| if round % 2 == 0 { *from == agent } else { *to == agent })
                .filter(|(.., depth)| !deep || *depth == 1)
                .map(|(seq, .., conv, _)| (Seq(seq.cast_unsigned()), ConvId(*conv)))
                .filter(|(seq, _)| after.is_none_or(|a| *seq > a) && before.is_none_or(|b| *seq < b))
                .collect();
            if !cursor.ascending {
                expected.reverse();
            }
            expected.truncate(limit);

            let conditions = format!(" AND {column} = ?1{}", if deep { " AND depth = ?2" } else { "" });
            let mut values: Vec<Value> = vec![agent.into()];
            values.extend(deep.then(|| Value::from(1)));
            let walk = Walk { db: &db, party, conditions: &conditions, values: &values, cursor };
            let mut found = Vec::new();
            let more = walk.run(&mut |seq, conv| {
                found.push((seq, conv));
                found.len() < limit
            });
            assert_eq!(found, expected, "{cursor:?} agent {agent}, at most {limit}");
            assert_eq!(more.unwrap(), found.len() < limit);
        }
    }
}
