//! What turns spent, by turn and by model.

use std::collections::BTreeMap;

use lastword_facts::fact::{
    ModelSpend, Requeued, Rerun, Spend, TurnCharged, TurnClosed, TurnFinished, TurnOpened, WorkedOutside,
};
use lastword_facts::ids::{AgentId, ConvId, GrantId, Seq, TaskId, TurnId};
use lastword_facts::{Entry, Fact, Time};
use rusqlite::{CachedStatement, Connection, OptionalExtension as _};

use crate::log::ReadError;
use crate::read_model::query::IndexReader;

pub(crate) const SCHEMA: &str = "
CREATE TABLE spends (
  turn INTEGER PRIMARY KEY,
  tokens INTEGER NOT NULL,
  cost_microusd INTEGER NOT NULL,
  at INTEGER NOT NULL,
  estimated INTEGER NOT NULL,
  conv INTEGER,
  grant_id INTEGER,
  agent INTEGER
) STRICT;
CREATE INDEX spends_by_conv ON spends (conv);
CREATE INDEX spends_by_at ON spends (at);
CREATE TABLE spent_on (
  turn INTEGER NOT NULL,
  model TEXT NOT NULL,
  tokens INTEGER NOT NULL,
  cost_microusd INTEGER NOT NULL,
  PRIMARY KEY (turn, model)
) STRICT, WITHOUT ROWID;
-- The agents of open turns.
CREATE TABLE serving (turn INTEGER PRIMARY KEY, agent INTEGER NOT NULL) STRICT;
-- The agents of requests that were reassigned: their messages name the first one.
CREATE TABLE reassigned (task INTEGER PRIMARY KEY, agent INTEGER NOT NULL) STRICT;";

/// Deletes what [`SCHEMA`]'s tables hold.
pub(crate) const CLEAR: &str = "DELETE FROM spends; DELETE FROM spent_on; DELETE FROM serving; DELETE FROM reassigned;";

/// The writer's cache: the agents of turns that opened in this transaction. Most close in it.
#[derive(Default)]
pub(crate) struct Serving(BTreeMap<TurnId, u32>);

/// Records spending within one transaction; [`Charging::flush`] writes the turns that are still open.
pub(crate) struct Charging<'a> {
    spend: CachedStatement<'a>,
    spend_more: CachedStatement<'a>,
    forget_models: CachedStatement<'a>,
    model: CachedStatement<'a>,
    agent: CachedStatement<'a>,
    serve: CachedStatement<'a>,
    served: CachedStatement<'a>,
    close: CachedStatement<'a>,
    reassign: CachedStatement<'a>,
    serving: &'a mut Serving,
}

impl<'a> Charging<'a> {
    pub(crate) fn new(db: &'a Connection, serving: &'a mut Serving) -> rusqlite::Result<Self> {
        Ok(Self {
            // Each report covers the whole turn and replaces the one before.
            spend: db.prepare_cached("INSERT OR REPLACE INTO spends VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?,
            spend_more: db.prepare_cached(
                "INSERT INTO spends VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO UPDATE
                 SET tokens = tokens + excluded.tokens, cost_microusd = cost_microusd + excluded.cost_microusd",
            )?,
            forget_models: db.prepare_cached("DELETE FROM spent_on WHERE turn = ?1")?,
            model: db.prepare_cached("INSERT INTO spent_on VALUES (?1, ?2, ?3, ?4)")?,
            // The message that opens a turn is addressed to its agent.
            agent: db.prepare_cached(
                "SELECT coalesce((SELECT agent FROM reassigned WHERE task = ?1), to_id) FROM messages WHERE seq = ?2",
            )?,
            serve: db.prepare_cached("INSERT OR REPLACE INTO serving VALUES (?1, ?2)")?,
            served: db.prepare_cached("SELECT agent FROM serving WHERE turn = ?1")?,
            close: db.prepare_cached("DELETE FROM serving WHERE turn = ?1 RETURNING agent")?,
            reassign: db.prepare_cached("INSERT OR REPLACE INTO reassigned VALUES (?1, ?2)")?,
            serving,
        })
    }

    /// Adds a fact of this conversation.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the other facts spend nothing")]
    pub(crate) fn index(&mut self, entry: &Entry, conv: Option<i64>) -> rusqlite::Result<()> {
        match &entry.fact {
            Fact::Requeued(Requeued { task, agent, why: Rerun::Rejected, .. }) => self.reassigned(*task, *agent),
            Fact::TurnOpened(TurnOpened { turn, task, message, .. }) => self.opened(*turn, *task, *message),
            Fact::SpentOn { turn, models, .. } => self.spent_on(*turn, models),
            Fact::WorkedOutside(WorkedOutside { turn, agent, grant, spend }) => {
                let (tokens, cost) = (bounded(spend.tokens), bounded(spend.cost_microusd));
                let (turn, at, grant) = (turn.0.cast_signed(), entry.at.0.cast_signed(), grant.0.cast_signed());
                self.spend_more.execute((turn, tokens, cost, at, false, conv, grant, agent.0)).map(|_| ())
            }
            Fact::Spent { turn, spend }
            | Fact::TurnClosed(TurnClosed { turn, spend, .. })
            | Fact::TurnFinished(TurnFinished { turn, spend, .. })
            | Fact::TurnCharged(TurnCharged { turn, spend, .. }) => self.spent(*turn, spend.counted(), entry, conv),
            _ => Ok(()),
        }
    }

    fn reassigned(&mut self, task: TaskId, agent: AgentId) -> rusqlite::Result<()> {
        self.reassign.execute((task.0.cast_signed(), agent.0)).map(|_| ())
    }

    fn opened(&mut self, turn: TurnId, task: TaskId, message: Seq) -> rusqlite::Result<()> {
        let of = (task.0.cast_signed(), message.0.cast_signed());
        let agent: Option<u32> = self.agent.query_row(of, |row| row.get(0)).optional()?;
        self.serving.0.extend(agent.map(|agent| (turn, agent)));
        Ok(())
    }

    /// Writes the agents of the turns that are still open.
    pub(crate) fn flush(&mut self) -> rusqlite::Result<()> {
        let open = std::mem::take(&mut self.serving.0);
        open.into_iter().try_for_each(|(turn, agent)| self.serve.execute((turn.0.cast_signed(), agent)).map(|_| ()))
    }

    fn spent_on(&mut self, turn: TurnId, models: &[ModelSpend]) -> rusqlite::Result<()> {
        let turn = turn.0.cast_signed();
        self.forget_models.execute([turn])?;
        for ModelSpend { model, spend } in models {
            let (tokens, cost) = (bounded(spend.tokens), bounded(spend.cost_microusd));
            self.model.execute((turn, model.as_str(), tokens, cost))?;
        }
        Ok(())
    }

    /// Records what a turn spent so far, or in all if the fact ends it.
    fn spent(&mut self, turn: TurnId, spend: Spend, entry: &Entry, conv: Option<i64>) -> rusqlite::Result<()> {
        let (known, stored) = if matches!(entry.fact, Fact::Spent { .. }) {
            (self.serving.0.get(&turn).copied(), &mut self.served)
        } else {
            (self.serving.0.remove(&turn), &mut self.close)
        };
        let agent: Option<u32> = match known {
            Some(agent) => Some(agent),
            None => stored.query_row([turn.0.cast_signed()], |row| row.get(0)).optional()?,
        };
        if spend == Spend::default() {
            return Ok(());
        }
        let estimated =
            matches!(entry.fact, Fact::TurnClosed(_) | Fact::TurnCharged(TurnCharged { estimated: true, .. }));
        let (tokens, cost) = (bounded(spend.tokens), bounded(spend.cost_microusd));
        let grant = entry.grant.map(|(grant, _)| grant.0.cast_signed());
        let at = entry.at.0.cast_signed();
        self.spend.execute((turn.0.cast_signed(), tokens, cost, at, estimated, conv, grant, agent)).map(|_| ())
    }
}

/// Returns an amount as SQLite holds it; a larger one as the largest.
fn bounded(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

/// Lets go of turns that ended before every message that is still there.
pub(crate) fn trim(db: &Connection) -> rusqlite::Result<()> {
    // A turn of a message that is still there ended after it.
    db.execute("DELETE FROM spends WHERE at < (SELECT min(at) FROM messages)", [])?;
    db.execute("DELETE FROM spent_on WHERE turn < (SELECT min(turn) FROM spends)", []).map(|_| ())
}

/// What one turn spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpentTurn {
    /// The turn.
    pub turn: TurnId,
    /// The tokens.
    pub tokens: u64,
    /// The cost, in millionths of a dollar.
    pub cost_microusd: u64,
    /// The time of its last report.
    pub at: Time,
    /// Whether the tokens are estimated from the length of the text, at least in part.
    pub estimated: bool,
    /// The conversation of its task.
    pub conv: Option<ConvId>,
    /// The grant that was charged.
    pub grant: Option<GrantId>,
    /// Its agent; `None` if the log no longer has the message that opened the turn.
    pub agent: Option<AgentId>,
}

/// What several turns spent together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpentIn {
    /// The tokens.
    pub tokens: u64,
    /// The cost, in millionths of a dollar.
    pub cost_microusd: u64,
    /// Whether the tokens are estimated from the length of the text, at least in part.
    pub estimated: bool,
}

impl SpentIn {
    /// Adds another sum; saturates.
    pub const fn add(&mut self, more: Self) {
        self.tokens = self.tokens.saturating_add(more.tokens);
        self.cost_microusd = self.cost_microusd.saturating_add(more.cost_microusd);
        self.estimated |= more.estimated;
    }
}

/// What was spent on each model, by agent and by the model's name; without an agent as in [`SpentTurn`].
pub type SpentOnModels = BTreeMap<Option<AgentId>, BTreeMap<String, SpentIn>>;

/// The newest turns that reported since a moment, at most some.
const NEWEST: &str = "FROM spends WHERE at >= ?1 ORDER BY at DESC, turn DESC LIMIT ?2";

fn number(row: &rusqlite::Row<'_>, at: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(at).map(i64::cast_unsigned)
}

fn window(since: Time, max: usize) -> (i64, i64) {
    (i64::try_from(since.0).unwrap_or(i64::MAX), i64::try_from(max).unwrap_or(i64::MAX))
}

impl IndexReader {
    /// Returns the turns that reported since a moment, the newest report first, at most `max`.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn spent_since(&self, since: Time, max: usize) -> Result<Vec<SpentTurn>, ReadError> {
        self.with(|db| {
            let sql = format!("SELECT turn, tokens, cost_microusd, at, estimated, conv, grant_id, agent {NEWEST}");
            let mut statement = db.prepare_cached(&sql)?;
            let rows = statement.query_map(window(since, max), |row| {
                Ok(SpentTurn {
                    turn: TurnId(number(row, 0)?),
                    tokens: number(row, 1)?,
                    cost_microusd: number(row, 2)?,
                    at: Time(number(row, 3)?),
                    estimated: row.get(4)?,
                    conv: row.get::<_, Option<u32>>(5)?.map(ConvId),
                    grant: row.get::<_, Option<i64>>(6)?.map(|grant| GrantId(grant.cast_unsigned())),
                    agent: row.get::<_, Option<u32>>(7)?.map(AgentId),
                })
            })?;
            rows.collect()
        })
    }

    /// Returns what the same turns spent on each model that they named, by agent and by the model's name.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn spent_on_models(&self, since: Time, max: usize) -> Result<SpentOnModels, ReadError> {
        self.with(|db| {
            let sql = format!(
                "SELECT model, spent_on.tokens, spent_on.cost_microusd, estimated, agent FROM (SELECT turn, estimated, agent \
                 {NEWEST}) AS newest JOIN spent_on ON spent_on.turn = newest.turn"
            );
            let mut statement = db.prepare_cached(&sql)?;
            let mut rows = statement.query(window(since, max))?;
            let mut sums = SpentOnModels::new();
            // Added up here, because SQLite's sum fails where this one saturates.
            while let Some(row) = rows.next()? {
                let part = SpentIn { tokens: number(row, 1)?, cost_microusd: number(row, 2)?, estimated: row.get(3)? };
                let model = row.get_ref(0)?.as_str()?;
                let of_agent = sums.entry(row.get::<_, Option<u32>>(4)?.map(AgentId)).or_default();
                match of_agent.get_mut(model) {
                    Some(sum) => sum.add(part),
                    None => drop(of_agent.insert(model.to_owned(), part)),
                }
            }
            Ok(sums)
        })
    }

    /// Returns what the turns of each of these conversations spent; those that spent nothing are left out.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn spent_in(&self, convs: &[ConvId]) -> Result<Vec<(ConvId, SpentIn)>, ReadError> {
        self.with(|db| {
            // What `sum` fails at, `total` adds up, and the cast bounds it.
            let sql = "SELECT CAST(total(tokens) AS INTEGER), CAST(total(cost_microusd) AS INTEGER), max(estimated) \
                       FROM spends WHERE conv = ?1 HAVING count(*) > 0";
            let mut statement = db.prepare_cached(sql)?;
            let sum = |conv: &ConvId| -> rusqlite::Result<Option<(ConvId, SpentIn)>> {
                let found = statement.query_row([conv.0], |row| {
                    Ok(SpentIn { tokens: number(row, 0)?, cost_microusd: number(row, 1)?, estimated: row.get(2)? })
                });
                found.optional().map(|found| found.map(|spent| (*conv, spent)))
            };
            convs.iter().map(sum).filter_map(Result::transpose).collect()
        })
    }
}
