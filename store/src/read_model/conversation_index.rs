//! The facts of each conversation, for its history.
//!
//! Most facts name a turn, a task or a grant instead of a conversation, so the index also maps those ids to
//! conversations.

use std::collections::{BTreeMap, HashMap};

use lastword_facts::fact::{
    ApprovalAsked, ConversationOpened, EscalationOpened, GrantOpened, Part, Refused, RootStarted, TurnOpened,
};
use lastword_facts::ids::ConvId;
use lastword_facts::{Fact, Message, Seq};
use rusqlite::{CachedStatement, Connection, OptionalExtension as _};

use crate::read_model::packed;
use crate::read_model::query::{Cursor, numbers};

/// Separate tables, which keep the message table small.
pub(crate) const SCHEMA: &str = "
CREATE TABLE lines (
  conv INTEGER NOT NULL,
  -- The last of a few lines that came soon after each other.
  last INTEGER NOT NULL,
  -- Those before it: how far each is before the next.
  earlier BLOB,
  PRIMARY KEY (conv, last)
) STRICT, WITHOUT ROWID;
CREATE TABLE places (
  kind INTEGER NOT NULL,
  -- The last of some numbers of that kind.
  last INTEGER NOT NULL,
  -- Those up to it, from the last one back: how far each is before the next, and its conversation.
  convs BLOB NOT NULL,
  PRIMARY KEY (kind, last)
) STRICT, WITHOUT ROWID;
-- A REF that is used again after it was forgotten has several.
CREATE TABLE refs (ref TEXT NOT NULL, conv INTEGER NOT NULL, PRIMARY KEY (ref, conv)) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX refs_by_conv ON refs (conv);";

/// Deletes what [`SCHEMA`]'s tables hold.
pub(crate) const CLEAR: &str = "DELETE FROM lines; DELETE FROM places; DELETE FROM refs;";

/// The most facts that one row of lines spans.
const SPAN: i64 = 4096;

/// The kind of an id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum IdKind {
    Task,
    Turn,
    Grant,
    Escalation,
    Approval,
}

/// The writer's cache.
#[derive(Default)]
pub(crate) struct Lately {
    /// The conversations of recent ids, which saves a lookup for each of their facts.
    places: HashMap<(IdKind, u64), i64>,
    /// The entries of `places` that aren't written yet.
    unwritten: BTreeMap<(IdKind, u64), i64>,
    /// Lines that aren't written yet, ascending, by conversation.
    lines: BTreeMap<i64, Vec<i64>>,
    /// The position of the first unwritten line.
    first: i64,
}

/// Entries of `places`; at the maximum the cache is cleared and ids are looked up again.
const LATELY_MAX: usize = 50_000;

/// Collects lines within one transaction; [`Lines::flush`] writes them.
pub(crate) struct Lines<'a> {
    line: CachedStatement<'a>,
    remember: CachedStatement<'a>,
    find: CachedStatement<'a>,
    refer: CachedStatement<'a>,
    referred: CachedStatement<'a>,
    lately: &'a mut Lately,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(db: &'a Connection, lately: &'a mut Lately) -> rusqlite::Result<Self> {
        Ok(Self {
            line: db.prepare_cached("INSERT INTO lines VALUES (?1, ?2, ?3)")?,
            remember: db.prepare_cached("INSERT OR IGNORE INTO places VALUES (?1, ?2, ?3)")?,
            // Ids of a kind ascend and are stored in order, so their rows don't overlap.
            find: db.prepare_cached(
                "SELECT last, convs FROM places WHERE kind = ?1 AND last >= ?2 ORDER BY last LIMIT 1",
            )?,
            refer: db.prepare_cached("INSERT OR REPLACE INTO refs VALUES (?1, ?2)")?,
            referred: db.prepare_cached("SELECT max(conv) FROM refs WHERE ref = ?1 HAVING max(conv) IS NOT NULL")?,
            lately,
        })
    }

    /// Records the ids that `fact` introduces, adds it to its conversation's lines, and returns that conversation.
    pub(crate) fn index(&mut self, seq: i64, fact: &Fact) -> rusqlite::Result<Option<i64>> {
        if let Fact::Accepted { message } = fact {
            self.index_message(message)?;
            return Ok(None);
        }
        let conv = self.conversation(fact)?;
        if let Some(conv) = conv {
            self.list(conv, seq)?;
        }
        Ok(conv)
    }

    fn list(&mut self, conv: i64, seq: i64) -> rusqlite::Result<()> {
        if seq - self.lately.first >= SPAN {
            self.flush()?;
        }
        if self.lately.lines.is_empty() {
            self.lately.first = seq;
        }
        self.lately.lines.entry(conv).or_default().push(seq);
        Ok(())
    }

    /// Writes the collected lines and ids.
    pub(crate) fn flush(&mut self) -> rusqlite::Result<()> {
        for (conv, seqs) in std::mem::take(&mut self.lately.lines) {
            for (last, earlier) in packed::rows(&seqs, SPAN) {
                self.line.execute((conv, last, earlier))?;
            }
        }
        let mut unwritten = std::mem::take(&mut self.lately.unwritten).into_iter().peekable();
        while let Some(((kind, first), conv)) = unwritten.next() {
            let mut numbers = vec![(first, conv)];
            while numbers.len() < packed::NUMBERS
                && let Some(((_, id), conv)) = unwritten.next_if(|((next, _), _)| *next == kind)
            {
                numbers.push((id, conv));
            }
            if let Some((last, convs)) = packed::numbers(&numbers) {
                self.remember.execute((kind as u8, last, convs))?;
            }
        }
        Ok(())
    }

    fn index_message(&mut self, message: &Message) -> rusqlite::Result<()> {
        match &message.part {
            Part::Request(terms) => self.remember(IdKind::Task, terms.task.0, message.conv.0.into()),
            Part::Answer(_) | Part::Plain | Part::Echo | Part::Reply { .. } | Part::Status { .. } => Ok(()),
        }
    }

    fn remember(&mut self, kind: IdKind, id: u64, conv: i64) -> rusqlite::Result<()> {
        if self.lately.places.len() >= LATELY_MAX {
            self.lately.places.clear();
        }
        self.lately.places.insert((kind, id), conv);
        self.lately.unwritten.entry((kind, id)).or_insert(conv);
        Ok(())
    }

    fn place(&mut self, kind: IdKind, id: u64) -> rusqlite::Result<Option<i64>> {
        let lately = self.lately.places.get(&(kind, id)).or_else(|| self.lately.unwritten.get(&(kind, id)));
        if let Some(conv) = lately {
            return Ok(Some(*conv));
        }
        let row = self.find.query_row((kind as u8, id.cast_signed()), |row| {
            packed::conversation(row.get(0)?, row.get_ref(1)?.as_blob()?, id)
        });
        row.optional().map(Option::flatten)
    }

    fn referred(&mut self, reference: &str) -> rusqlite::Result<Option<i64>> {
        self.referred.query_row([reference], |row| row.get(0)).optional()
    }

    /// Returns the conversation to whose history a fact belongs; `None` for bookkeeping facts and those outside of
    /// work.
    fn conversation(&mut self, fact: &Fact) -> rusqlite::Result<Option<i64>> {
        if let Fact::Refused(Refused { turn: None, reference, .. }) = fact {
            return reference.as_ref().map_or(Ok(None), |reference| self.referred(reference.as_str()));
        }
        if let Fact::ConversationOpened(ConversationOpened { conv, reference, .. }) = fact {
            self.refer.execute((reference.as_str(), conv.0))?;
        }
        let about = fact.about();
        if !about.in_history {
            return Ok(None);
        }
        // An opened turn or question, or a held call, has no place yet.
        let named = [
            about.task.map(|task| (IdKind::Task, task.0)),
            about.turn.map(|turn| (IdKind::Turn, turn.0)),
            about.escalation.map(|escalation| (IdKind::Escalation, escalation.0)),
            about.approval.map(|approval| (IdKind::Approval, approval.0)),
            about.grant.map(|grant| (IdKind::Grant, grant.0)),
        ];
        let conv = match about.conv.and_then(of) {
            Some(conv) => Some(conv),
            None => match named.into_iter().flatten().next() {
                Some((kind, id)) => self.place(kind, id)?,
                None => None,
            },
        };
        if let (Some((kind, id)), Some(conv)) = (opened(fact), conv) {
            self.remember(kind, id, conv)?;
        }
        Ok(conv)
    }
}

/// Returns what a fact gives a number to, if later facts name only that number.
#[expect(clippy::wildcard_enum_match_arm, reason = "no other fact opens something")]
const fn opened(fact: &Fact) -> Option<(IdKind, u64)> {
    Some(match fact {
        Fact::GrantOpened(GrantOpened { grant, .. }) => (IdKind::Grant, grant.0),
        Fact::RootStarted(RootStarted { task, .. }) => (IdKind::Task, task.0),
        Fact::TurnOpened(TurnOpened { turn, .. }) => (IdKind::Turn, turn.0),
        Fact::EscalationOpened(EscalationOpened { escalation, .. }) => (IdKind::Escalation, escalation.0),
        Fact::ApprovalAsked(ApprovalAsked { approval, .. }) => (IdKind::Approval, approval.0),
        _ => return None,
    })
}

fn of(conv: ConvId) -> Option<i64> {
    Some(conv.0.into())
}

/// Returns the lines of these conversations in a window, in its order.
pub(crate) fn of_conversations(db: &Connection, convs: &[ConvId], cursor: Cursor) -> rusqlite::Result<Vec<Seq>> {
    let list = numbers(convs.iter().map(|conv| conv.0));
    let (after, before) = cursor.bounds();
    let order = if cursor.ascending { "ASC" } else { "DESC" };
    // Rows overlap the window's edges by less than their span, so reading two spans more than the limit finds every
    // line.
    let limit = i64::try_from(cursor.limit).unwrap_or(i64::MAX).saturating_add(2 * SPAN);
    let sql = format!(
        "SELECT last, earlier FROM lines WHERE conv IN ({}) AND last > ?1 AND last < ?2 ORDER BY last {order} LIMIT {limit}",
        list
    );
    let mut statement = db.prepare(&sql)?;
    let mut rows = statement.query((after, before.saturating_add(SPAN)))?;
    let mut seqs = Vec::new();
    while let Some(row) = rows.next()? {
        packed::unpack(row.get(0)?, row.get_ref(1)?.as_blob_or_null()?, &mut seqs)?;
    }
    seqs.retain(|seq| (after + 1..before).contains(&seq.0.cast_signed()));
    Ok(seqs)
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt as _, SeedableRng as _};

    use super::*;

    #[test]
    fn every_window_on_packed_lines_is_that_on_the_lines() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(SCHEMA).unwrap();
        let mut rng = StdRng::seed_from_u64(7);
        let (mut all, mut seq) = (Vec::new(), 0_i64);
        let mut lately = Lately::default();
        for _ in 0..40 {
            let mut lines = Lines::new(&db, &mut lately).unwrap();
            for _ in 0..rng.random_range(0..300) {
                seq += rng.random_range(1..40);
                let conv = rng.random_range(1..5);
                lines.list(conv, seq).unwrap();
                all.push((u32::try_from(conv).unwrap(), Seq(seq.cast_unsigned())));
            }
            lines.flush().unwrap();
        }
        let rows: u32 = db.query_row("SELECT count(*) FROM lines", [], |row| row.get(0)).unwrap();
        assert!(rows > 100 && (rows as usize) < all.len() / 4, "{rows} rows for {} lines", all.len());
        for round in 0..2_000 {
            let convs: &[u32] = [&[1][..], &[2, 4], &[1, 2, 3, 4], &[9]][round % 4];
            let mut edge = || rng.random_bool(0.7).then(|| Seq(rng.random_range(0..seq.cast_unsigned() + 10)));
            let (after, before) = (edge(), edge());
            let cursor = Cursor { after, before, ascending: rng.random_bool(0.5), limit: rng.random_range(0..50) };
            let inside = |(conv, seq): &&(u32, Seq)| {
                convs.contains(conv) && after.is_none_or(|a| *seq > a) && before.is_none_or(|b| *seq < b)
            };
            let mut expected: Vec<Seq> = all.iter().filter(inside).map(|(_, seq)| *seq).collect();
            let convs: Vec<ConvId> = convs.iter().copied().map(ConvId).collect();
            let mut found = of_conversations(&db, &convs, cursor).unwrap();
            found.sort_unstable();
            if !cursor.ascending {
                expected.reverse();
                found.reverse();
            }
            expected.truncate(cursor.limit);
            found.truncate(cursor.limit);
            assert_eq!(found, expected, "{cursor:?} {convs:?}");
        }
    }
}
