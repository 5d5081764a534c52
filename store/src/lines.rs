//! Which facts belong to which conversation: what its history shows beside its messages.
//!
//! A fact names what it is about by its number (a turn, a task, a grant), so the numbers' conversations are kept, too.

use lastword_proto::fact::{Latched, Part, Place, Scope};
use lastword_proto::ids::ConvId;
use lastword_proto::{Fact, Message};
use rusqlite::{Connection, OptionalExtension as _};

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

/// Remembers where the numbers of `fact` belong, and lists it where it belongs itself.
pub(crate) fn index(db: &Connection, seq: i64, fact: &Fact) -> rusqlite::Result<()> {
    if let Fact::Accepted { message } = fact {
        return index_message(db, message);
    }
    let Some(conv) = conversation(db, fact)? else { return Ok(()) };
    db.prepare_cached("INSERT INTO lines VALUES (?1, ?2)")?.execute((conv, seq)).map(|_| ())
}

fn index_message(db: &Connection, message: &Message) -> rusqlite::Result<()> {
    match &message.part {
        Part::Request(terms) => remember(db, Kind::Task, terms.task.0, message.conv.0.into()),
        Part::Answer(_) | Part::Plain | Part::Echo | Part::Reply { .. } | Part::Status { .. } => Ok(()),
    }
}

fn remember(db: &Connection, kind: Kind, id: u64, conv: i64) -> rusqlite::Result<()> {
    let mut insert = db.prepare_cached("INSERT OR REPLACE INTO places VALUES (?1, ?2, ?3)")?;
    insert.execute((kind as u8, id.cast_signed(), conv)).map(|_| ())
}

fn place(db: &Connection, kind: Kind, id: u64) -> rusqlite::Result<Option<i64>> {
    let mut look = db.prepare_cached("SELECT conv FROM places WHERE kind = ?1 AND id = ?2")?;
    look.query_row((kind as u8, id.cast_signed()), |row| row.get(0)).optional()
}

/// The conversation, where it is to be known from then on.
fn known(db: &Connection, kind: Kind, id: u64, conv: Option<i64>) -> rusqlite::Result<Option<i64>> {
    if let Some(conv) = conv {
        remember(db, kind, id, conv)?;
    }
    Ok(conv)
}

fn of(conv: ConvId) -> Option<i64> {
    Some(conv.0.into())
}

/// The conversation to whose history a fact belongs. Those that come with every step and tell nobody anything are left
/// out, as is what is not about work.
fn conversation(db: &Connection, fact: &Fact) -> rusqlite::Result<Option<i64>> {
    match fact {
        Fact::Refused { turn, reference, .. } => match turn {
            Some(turn) => place(db, Kind::Turn, turn.0),
            None => reference.as_ref().map_or(Ok(None), |reference| referred(db, reference.as_str())),
        },
        Fact::ConversationOpened { conv, reference, .. } => {
            let mut insert = db.prepare_cached("INSERT OR REPLACE INTO refs VALUES (?1, ?2)")?;
            insert.execute((reference.as_str(), conv.0)).map(|_| of(*conv))
        }
        Fact::GrantOpened { grant, conv, .. } => known(db, Kind::Grant, grant.0, of(*conv)),
        Fact::RootStarted { task, conv, .. } => known(db, Kind::Task, task.0, of(*conv)),
        Fact::TurnOpened { turn, task, .. } => known(db, Kind::Turn, turn.0, place(db, Kind::Task, task.0)?),
        Fact::RootEnded { task, .. } | Fact::Requeued { task, .. } => place(db, Kind::Task, task.0),
        Fact::TurnClosed { turn, .. } | Fact::Late { turn, .. } => place(db, Kind::Turn, turn.0),
        Fact::GrantExtended { grant, .. } | Fact::GrantClosed { grant, .. } | Fact::BudgetWarned { grant, .. } => {
            place(db, Kind::Grant, grant.0)
        }
        Fact::Warned { place, .. } => Ok(place.conversation().and_then(of)),
        Fact::LatchSet { on, .. } | Fact::LatchLifted { on, .. } => match on {
            Latched::Grant(grant) => place(db, Kind::Grant, grant.0),
            Latched::Place(Place::Conversation(conv)) => Ok(of(*conv)),
            Latched::Place(Place::Room(_)) => Ok(None),
        },
        Fact::Controlled { scope, .. } => match scope {
            Scope::Conversation(conv) => Ok(of(*conv)),
            Scope::Workspace | Scope::Agent(_) => Ok(None),
        },
        Fact::EscalationOpened { escalation, conv, .. } => known(db, Kind::Escalation, escalation.0, of(*conv)),
        Fact::EscalationNoted { escalation, .. } => place(db, Kind::Escalation, escalation.0),
        Fact::ApprovalAsked { approval, task, .. } => match task {
            Some(task) => known(db, Kind::Approval, approval.0, place(db, Kind::Task, task.0)?),
            None => Ok(None),
        },
        Fact::ApprovalDecided { approval, .. } | Fact::ApprovalUsed { approval } => {
            place(db, Kind::Approval, approval.0)
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

fn referred(db: &Connection, reference: &str) -> rusqlite::Result<Option<i64>> {
    let mut look = db.prepare_cached("SELECT conv FROM refs WHERE ref = ?1")?;
    look.query_row([reference], |row| row.get(0)).optional()
}
