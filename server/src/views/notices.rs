//! What rides along with a delivery and wakes no one.

use std::sync::Arc;

use lastword_proto::MessageType;
use lastword_proto::fact::{Crossing, Place};
use lastword_proto::ids::TurnId;
use lastword_proto::wire::{Notice, NoticeKind, rfc3339};
use lastword_proto::{Entry, Fact, Message, Seq, State};

use super::messages::{label, stored};
use crate::broker::{Handle, Live};
use crate::edges::Fault;

/// Notices by position.
pub(crate) async fn notices(handle: &Handle, seqs: Vec<Seq>) -> Result<Vec<Notice>, Fault> {
    if seqs.is_empty() {
        return Ok(Vec::new());
    }
    let entries = handle.entries(seqs).await?;
    let worded = move |live: &Live<'_>| -> Vec<Notice> {
        entries.iter().filter_map(|(seq, entry)| notice(live.state, *seq, entry)).collect()
    };
    Ok(handle.query(worded).await?)
}

fn notice(state: &State, seq: Seq, entry: &Arc<Entry>) -> Option<Notice> {
    if let Fact::Accepted { message } = &entry.fact {
        return Some(of_message(state, seq, entry, message));
    }
    let (kind, from, reference, body) = told(state, &entry.fact)?;
    Some(Notice {
        id: seq.to_string(),
        kind,
        from,
        reference,
        request_id: late_request(state, &entry.fact),
        body,
        payload: None,
        eta_ms: None,
        created_at: rfc3339(entry.at),
    })
}

fn of_message(state: &State, seq: Seq, entry: &Entry, message: &Message) -> Notice {
    let kind = match message.kind {
        MessageType::Status => NoticeKind::Status,
        MessageType::Alert => NoticeKind::Alert,
        MessageType::Broadcast => NoticeKind::Broadcast,
        MessageType::Info | MessageType::Request => NoticeKind::Info,
        MessageType::Response => NoticeKind::Late,
    };
    let stored = stored(seq, entry, message, None, label(state, seq, message));
    Notice {
        id: stored.id,
        kind,
        from: stored.from,
        reference: Some(stored.reference),
        request_id: stored.request_id,
        body: stored.body,
        payload: stored.payload,
        eta_ms: stored.eta_ms,
        created_at: stored.created_at,
    }
}

type Told = (NoticeKind, String, Option<String>, String);

/// The facts that are told to an agent though they are no messages.
#[expect(clippy::wildcard_enum_match_arm, reason = "most facts are never a notice; the core chooses which are")]
fn told(state: &State, fact: &Fact) -> Option<Told> {
    let system = || "system".to_owned();
    let reference = |conv| state.ref_of(conv).map(ToString::to_string);
    Some(match fact {
        Fact::Late { turn, agent, body } => {
            let conv = conv_of(state, *turn).and_then(reference);
            (NoticeKind::Late, state.name_of(*agent).to_owned(), conv, body.to_string())
        }
        Fact::Warned { place, crossing, turns } => {
            let what = match crossing {
                Crossing::Soft => "stop sending here; finish with what you have, or escalate to the user",
                Crossing::Hard => "nothing more can be sent here until a human speaks",
            };
            let conv = place.conversation().and_then(reference).or_else(|| room_name(state, *place));
            (NoticeKind::Warning, system(), conv, format!("{turns} agent messages and no human has spoken: {what}."))
        }
        Fact::BudgetWarned { percent, .. } => {
            let text = format!("{percent} % of the budget of this work is used up. Come to an end soon.");
            (NoticeKind::Warning, system(), None, text)
        }
        Fact::LatchSet { code, limit, .. } => {
            let text = format!("{} (limit {limit}). {}", code.title(), code.hint());
            (NoticeKind::Warning, system(), None, text)
        }
        Fact::Controlled { control, by, .. } => {
            let text = format!("{} ordered: {control}.", state.name_of(*by));
            (NoticeKind::Warning, system(), None, text)
        }
        Fact::TurnClosed { turn, .. } => {
            let text = format!("{turn} has ended: its request was settled otherwise. Stop working on it.");
            (NoticeKind::Warning, system(), conv_of(state, *turn).and_then(reference), text)
        }
        Fact::GrantExtended { by, .. } => {
            let text = format!("{} granted more for this work.", state.name_of(*by));
            (NoticeKind::Info, system(), None, text)
        }
        Fact::EscalationNoted { escalation, by, body } => {
            (NoticeKind::Info, state.name_of(*by).to_owned(), None, format!("Answer to {escalation}: {body}"))
        }
        Fact::ApprovalDecided { approval, decision, comment, .. } => {
            let text = format!("{approval}: {decision}. {}", comment.as_deref().unwrap_or_default());
            (NoticeKind::Info, system(), None, text)
        }
        Fact::EscalationOpened { escalation, agent, conv, body, .. } => {
            let text = format!("{escalation}: {body}");
            (NoticeKind::Alert, state.name_of(*agent).to_owned(), reference(*conv), text)
        }
        Fact::Posted { room, from, body } => {
            let name = room_name(state, Place::Room(*room));
            (NoticeKind::Info, state.name_of(*from).to_owned(), name, body.to_string())
        }
        _ => return None,
    })
}

fn room_name(state: &State, place: Place) -> Option<String> {
    match place {
        Place::Conversation(_) => None,
        Place::Room(room) => state.rooms.get(&room).map(|r| r.name.to_string()),
    }
}

fn conv_of(state: &State, turn: TurnId) -> Option<lastword_proto::ids::ConvId> {
    let task = state.turns.get(&turn)?.task;
    state.tasks.get(&task).map(|task| task.conv)
}

fn late_request(state: &State, fact: &Fact) -> Option<String> {
    let Fact::Late { turn, .. } = fact else { return None };
    let task = state.turns.get(turn)?.task;
    Some(state.tasks.get(&task)?.request.as_ref()?.id.to_string())
}
