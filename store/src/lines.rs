//! Which facts belong to which conversation: what its history shows beside its messages.
//!
//! A fact names what it is about by its number (a turn, a task, a grant), so the numbers' conversations are kept, too.

use std::collections::HashMap;

use lastword_proto::fact::{Latched, Part, Place, Scope};
use lastword_proto::ids::ConvId;
use lastword_proto::{Fact, Message};
use rusqlite::{CachedStatement, Connection, OptionalExtension as _};

/// Tables of their own, so that the messages' stay as small as they are.
pub(crate) const SCHEMA: &str = "
CREATE TABLE lines (
  conv INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  PRIMARY KEY (conv, seq)
) STRICT, WITHOUT ROWID;
CREATE TABLE places (
  kind INTEGER NOT NULL,
  id INTEGER NOT NULL,
  conv INTEGER NOT NULL,
  PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE refs (ref TEXT PRIMARY KEY, conv INTEGER NOT NULL) STRICT, WITHOUT ROWID;";

/// Deletes what [`SCHEMA`]'s tables hold.
pub(crate) const CLEAR: &str = "DELETE FROM lines; DELETE FROM places; DELETE FROM refs;";

/// What a number counts.
#[derive(Clone, Copy)]
enum Kind {
    Task = 1,
    Turn = 2,
    Grant = 3,
    Escalation = 4,
    Approval = 5,
}

/// Where numbers belong that came lately, so that their facts are not looked up again.
#[derive(Default)]
pub(crate) struct Lately(HashMap<(u8, u64), i64>);

/// Most of them; beyond it all are forgotten, and looked up.
const LATELY_MAX: usize = 50_000;

/// Writes lines, in one transaction.
pub(crate) struct Lines<'a> {
    line: CachedStatement<'a>,
    remember: CachedStatement<'a>,
    place: CachedStatement<'a>,
    refer: CachedStatement<'a>,
    referred: CachedStatement<'a>,
    lately: &'a mut Lately,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(db: &'a Connection, lately: &'a mut Lately) -> rusqlite::Result<Self> {
        Ok(Self {
            line: db.prepare_cached("INSERT INTO lines VALUES (?1, ?2)")?,
            remember: db.prepare_cached("INSERT OR REPLACE INTO places VALUES (?1, ?2, ?3)")?,
            place: db.prepare_cached("SELECT conv FROM places WHERE kind = ?1 AND id = ?2")?,
            refer: db.prepare_cached("INSERT OR REPLACE INTO refs VALUES (?1, ?2)")?,
            referred: db.prepare_cached("SELECT conv FROM refs WHERE ref = ?1")?,
            lately,
        })
    }

    /// Remembers where the numbers of `fact` belong, and lists it where it belongs itself.
    pub(crate) fn index(&mut self, seq: i64, fact: &Fact) -> rusqlite::Result<()> {
        if let Fact::Accepted { message } = fact {
            return self.index_message(message);
        }
        let Some(conv) = self.conversation(fact)? else { return Ok(()) };
        self.line.execute((conv, seq)).map(|_| ())
    }

    fn index_message(&mut self, message: &Message) -> rusqlite::Result<()> {
        match &message.part {
            Part::Request(terms) => self.remember(Kind::Task, terms.task.0, message.conv.0.into()),
            Part::Answer(_) | Part::Plain | Part::Echo | Part::Reply { .. } | Part::Status { .. } => Ok(()),
        }
    }

    fn remember(&mut self, kind: Kind, id: u64, conv: i64) -> rusqlite::Result<()> {
        if self.lately.0.len() >= LATELY_MAX {
            self.lately.0.clear();
        }
        self.lately.0.insert((kind as u8, id), conv);
        self.remember.execute((kind as u8, id.cast_signed(), conv)).map(|_| ())
    }

    fn place(&mut self, kind: Kind, id: u64) -> rusqlite::Result<Option<i64>> {
        match self.lately.0.get(&(kind as u8, id)) {
            Some(conv) => Ok(Some(*conv)),
            None => self.place.query_row((kind as u8, id.cast_signed()), |row| row.get(0)).optional(),
        }
    }

    fn referred(&mut self, reference: &str) -> rusqlite::Result<Option<i64>> {
        self.referred.query_row([reference], |row| row.get(0)).optional()
    }

    /// The conversation, where it is to be known from then on.
    fn known(&mut self, kind: Kind, id: u64, conv: Option<i64>) -> rusqlite::Result<Option<i64>> {
        if let Some(conv) = conv {
            self.remember(kind, id, conv)?;
        }
        Ok(conv)
    }

    /// The conversation to whose history a fact belongs. Those that come with every step and tell nobody anything are left
    /// out, as is what is not about work.
    fn conversation(&mut self, fact: &Fact) -> rusqlite::Result<Option<i64>> {
        match fact {
            Fact::Refused { turn, reference, .. } => match turn {
                Some(turn) => self.place(Kind::Turn, turn.0),
                None => reference.as_ref().map_or(Ok(None), |reference| self.referred(reference.as_str())),
            },
            Fact::ConversationOpened { conv, reference, .. } => {
                self.refer.execute((reference.as_str(), conv.0)).map(|_| of(*conv))
            }
            Fact::GrantOpened { grant, conv, .. } => self.known(Kind::Grant, grant.0, of(*conv)),
            Fact::RootStarted { task, conv, .. } => self.known(Kind::Task, task.0, of(*conv)),
            Fact::TurnOpened { turn, task, .. } => {
                let conv = self.place(Kind::Task, task.0)?;
                self.known(Kind::Turn, turn.0, conv)
            }
            Fact::RootEnded { task, .. } | Fact::Requeued { task, .. } => self.place(Kind::Task, task.0),
            Fact::TurnClosed { turn, .. } | Fact::Late { turn, .. } => self.place(Kind::Turn, turn.0),
            Fact::GrantExtended { grant, .. } | Fact::GrantClosed { grant, .. } | Fact::BudgetWarned { grant, .. } => {
                self.place(Kind::Grant, grant.0)
            }
            Fact::Warned { place, .. } => Ok(place.conversation().and_then(of)),
            Fact::LatchSet { on, .. } | Fact::LatchLifted { on, .. } => match on {
                Latched::Grant(grant) => self.place(Kind::Grant, grant.0),
                Latched::Place(Place::Conversation(conv)) => Ok(of(*conv)),
                Latched::Place(Place::Room(_)) => Ok(None),
            },
            Fact::Controlled { scope, .. } => match scope {
                Scope::Conversation(conv) => Ok(of(*conv)),
                Scope::Workspace | Scope::Agent(_) => Ok(None),
            },
            Fact::EscalationOpened { escalation, conv, .. } => self.known(Kind::Escalation, escalation.0, of(*conv)),
            Fact::EscalationNoted { escalation, .. } => self.place(Kind::Escalation, escalation.0),
            Fact::ApprovalAsked { approval, task, .. } => match task {
                Some(task) => {
                    let conv = self.place(Kind::Task, task.0)?;
                    self.known(Kind::Approval, approval.0, conv)
                }
                None => Ok(None),
            },
            Fact::ApprovalDecided { approval, .. } | Fact::ApprovalUsed { approval } => {
                self.place(Kind::Approval, approval.0)
            }
            Fact::Accepted { .. }
            | Fact::Configured { .. }
            | Fact::PolicyConfigured { .. }
            | Fact::Registered { .. }
            | Fact::Amended { .. }
            | Fact::Rekeyed { .. }
            | Fact::Removed { .. }
            | Fact::Heard { .. }
            | Fact::Observed { .. }
            | Fact::Joined { .. }
            | Fact::Collected { .. }
            | Fact::Renewed { .. }
            | Fact::Noticed { .. }
            | Fact::ApprovalRuled { .. }
            | Fact::EscalationKeyed { .. }
            | Fact::NoticeRead { .. }
            | Fact::Claimed { .. }
            | Fact::Released { .. }
            | Fact::RoomOpened { .. }
            | Fact::Posted { .. }
            | Fact::PostKeyed { .. } => Ok(None),
            Fact::Rearmed { conv, .. } => Ok(of(*conv)),
        }
    }
}

fn of(conv: ConvId) -> Option<i64> {
    Some(conv.0.into())
}
