//! Notices: facts and messages that are attached to a delivery and wake no agent.

use std::collections::BTreeMap;
use std::sync::Arc;

use lastword_broker::{Handle, Live};
use lastword_core::State;
use lastword_core::state::Agent;
use lastword_facts::fact::{
    ApprovalDecided, Crossing, Digest, EscalationOpened, IncidentNoted, Lift, Place, SYSTEM, TurnClosed, hex,
};
use lastword_facts::ids::{AgentId, ApprovalId, EscalationId, GrantId, HOUR_MS, TurnId};
use lastword_facts::status::ApprovalState;
use lastword_facts::{Entry, Fact, Message, MessageType, Seq, visible};
use lastword_wire::quote::quoted;
use lastword_wire::{Notice, NoticeKind, amount, rfc3339};

use super::fitting;
use super::incidents::counts_cost;
use super::messages::{label, stored};
use super::words;
use crate::error::ApiError;

/// The most bytes of entries that are read at once.
const STEP_BYTES_MAX: usize = 1 << 20;

/// For whom a notice is worded.
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    /// The agent or human; `None` if it is for whoever is notified.
    pub agent: Option<AgentId>,
    /// Whether the steps are commands. The console leads to its own pages.
    pub has_shell: bool,
}

impl Reader {
    /// Returns a reader who has a shell, or whose program calls the broker.
    pub(crate) const fn with_shell(agent: AgentId) -> Self {
        Self { agent: Some(agent), has_shell: true }
    }
}

/// A notice with its text, before it is fitted into a delivery with others.
pub struct Worded {
    /// The notice as it is sent.
    pub notice: Notice,
    /// The held call that it shows in full, with its digest (H2).
    pub(crate) call: Option<(ApprovalId, Digest)>,
}

/// Returns notices by position, as this reader is told of them.
pub async fn notices(handle: &Handle, seqs: Vec<Seq>, reader: Reader) -> Result<Vec<Worded>, ApiError> {
    if seqs.is_empty() {
        return Ok(Vec::new());
    }
    let (mut all, mut left) = (Vec::with_capacity(seqs.len()), seqs);
    let each = usize::try_from(handle.limits().notice_bytes_max).unwrap_or(usize::MAX);
    // In steps, each cut before the next is read: many long messages don't fill the memory.
    loop {
        let (entries, more) = handle.entries_within(left.clone(), STEP_BYTES_MAX).await?;
        let last = entries.last().map(|(seq, _)| *seq);
        let alerts: Vec<Seq> = entries.iter().filter_map(|(_, entry)| alert(&entry.fact)).collect();
        let alerts: BTreeMap<Seq, Arc<Entry>> = handle.entries(alerts).await?.into_iter().collect();
        let worded = move |live: &Live<'_>| -> Vec<Worded> {
            let worded = entries.iter().filter_map(|(seq, entry)| notice(live.state, *seq, entry, &alerts, reader));
            worded.map(|worded| fitting::cut(worded, each)).collect()
        };
        all.extend(handle.query(worded).await?);
        let Some(last) = last.filter(|_| more) else { return Ok(all) };
        let read = left.iter().position(|seq| *seq == last).map_or(left.len(), |at| at + 1);
        left.drain(..read);
    }
}

/// Returns the message of an ALERT that is shown to the humans; `None` for other facts.
pub(crate) const fn alert(fact: &Fact) -> Option<Seq> {
    if let Fact::AlertRaised { message, .. } = fact { Some(*message) } else { None }
}

fn notice(
    state: &State,
    seq: Seq,
    entry: &Arc<Entry>,
    alerts: &BTreeMap<Seq, Arc<Entry>>,
    reader: Reader,
) -> Option<Worded> {
    let of = alert(&entry.fact).and_then(|message| Some((message, alerts.get(&message)?)));
    // A raised ALERT is shown as the message itself, under the message's id.
    let (seq, entry) = of.unwrap_or((seq, entry));
    if let Fact::Accepted { message } = &entry.fact {
        return Some(Worded { notice: of_message(state, seq, entry, message), call: None });
    }
    let (kind, from, reference, body) = told(state, &entry.fact, reader)?;
    let notice = Notice {
        id: seq.to_string(),
        kind,
        from: state.name_of(from).to_owned(),
        from_human: is_human(state, from),
        reference,
        request_id: late_request(state, &entry.fact),
        body,
        payload: None,
        eta_ms: None,
        created_at: rfc3339(entry.at),
    };
    let offered = if let Fact::ApprovalOffered { approval, .. } = &entry.fact { Some(*approval) } else { None };
    let call = offered.and_then(|id| Some((id, state.approvals.get(&id)?.digest)));
    Some(Worded { notice, call })
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
        from_human: stored.from_human,
        reference: Some(stored.reference),
        request_id: stored.request_id,
        body: stored.body,
        payload: stored.payload,
        eta_ms: stored.eta_ms,
        created_at: stored.created_at,
    }
}

type FactNotice = (NoticeKind, AgentId, Option<String>, String);

/// Returns the text of a fact that becomes a notice without being a message.
fn told(state: &State, fact: &Fact, reader: Reader) -> Option<FactNotice> {
    told_of_work(state, fact)
        .or_else(|| told_of_limits(state, fact, reader.has_shell))
        .or_else(|| told_of_decisions(state, fact, reader))
}

fn is_human(state: &State, agent: AgentId) -> bool {
    state.agent(agent).is_some_and(Agent::is_human)
}

#[expect(clippy::wildcard_enum_match_arm, reason = "most facts are never a notice; the core chooses which are")]
fn told_of_work(state: &State, fact: &Fact) -> Option<FactNotice> {
    let reference = |conv| state.ref_of(conv).map(ToString::to_string);
    Some(match fact {
        Fact::Late { turn, agent, body } => {
            let conv = conv_of(state, *turn).and_then(reference);
            (NoticeKind::Late, *agent, conv, body.to_string())
        }
        Fact::Controlled { control, by, .. } => {
            let text = format!("{} ordered: {control}.", state.name_of(*by));
            (NoticeKind::Warning, SYSTEM, None, text)
        }
        Fact::TurnClosed(TurnClosed { turn, .. }) => {
            let text = format!("{turn} has ended: its request was settled another way. Stop working on it.");
            (NoticeKind::Warning, SYSTEM, conv_of(state, *turn).and_then(reference), text)
        }
        Fact::GrantExtended { by, .. } => {
            let text = format!("{} extended this grant.", state.name_of(*by));
            (NoticeKind::Info, SYSTEM, None, text)
        }
        Fact::Posted { room, from, body } => {
            let name = room_name(state, Place::Room(*room));
            (NoticeKind::Info, *from, name, body.to_string())
        }
        _ => return None,
    })
}

#[expect(clippy::wildcard_enum_match_arm, reason = "most facts are never a notice; the core chooses which are")]
fn told_of_limits(state: &State, fact: &Fact, has_shell: bool) -> Option<FactNotice> {
    let reference = |conv| state.ref_of(conv).map(ToString::to_string);
    Some(match fact {
        Fact::Warned { place, crossing, agent_messages } => {
            let what = match crossing {
                Crossing::Soft => "stop sending here; finish with what you have, or escalate to the user",
                Crossing::Hard => "nothing more can be sent here until a human writes",
            };
            let conv = place.conversation().and_then(reference).or_else(|| room_name(state, *place));
            (
                NoticeKind::Warning,
                SYSTEM,
                conv,
                format!("{agent_messages} agent messages without a human message: {what}."),
            )
        }
        Fact::BudgetWarned { percent, .. } => {
            let text = format!("{percent} % of this grant's budget is used up. Finish soon.");
            (NoticeKind::Warning, SYSTEM, None, text)
        }
        Fact::GrantAged { grant, percent } => {
            let (name, text) = aged(state, *grant, *percent, has_shell);
            (NoticeKind::Warning, SYSTEM, name, text)
        }
        Fact::IncidentNoted(IncidentNoted { incident, agent, code, limit, current }) => {
            let numbers = [*limit, *current].map(|n| amount(counts_cost(state, *incident), n));
            let text = format!("{incident}: {}", words::noted(state, *agent, *code, numbers, has_shell));
            (NoticeKind::Warning, SYSTEM, None, text)
        }
        Fact::Unattended { percent } => (NoticeKind::Warning, SYSTEM, None, words::unattended(*percent, has_shell)),
        _ => return None,
    })
}

/// Returns the notice that most of a grant's time is used up, with the step that extends it.
fn aged(state: &State, id: GrantId, percent: u64, has_shell: bool) -> (Option<String>, String) {
    let conv = state.grants.get(&id).map(|grant| grant.conv);
    let reference = conv.and_then(|conv| state.ref_of(conv)).map(ToString::to_string);
    let hours = match Lift::of(lastword_facts::Code::GrantExpired, 0, 0) {
        Some(lift) => lift.extension().time_ms / HOUR_MS,
        None => 1,
    };
    let step = reference.as_deref().map(|name| match has_shell {
        true => format!(" `lastword grant {name} --time {hours}h` extends it."),
        false => format!(" *More budget* on the page of {name} extends it."),
    });
    let text = format!(
        "{percent} % of the time of {id} is used up. At its end the work is held until a human extends it.{}",
        step.unwrap_or_default()
    );
    (reference, text)
}

#[expect(clippy::wildcard_enum_match_arm, reason = "most facts are never a notice; the core chooses which are")]
fn told_of_decisions(state: &State, fact: &Fact, reader: Reader) -> Option<FactNotice> {
    let reference = |conv| state.ref_of(conv).map(ToString::to_string);
    Some(match fact {
        Fact::EscalationNoted { escalation, by, body } => {
            (NoticeKind::Info, *by, None, format!("Answer to {escalation}: {body}"))
        }
        Fact::EscalationOpened(EscalationOpened { escalation, task, agent, conv, cause, body, .. }) => {
            let body = words::question(state, *task, *cause, body, reader.agent);
            let text = format!("{escalation}: {body}{}", offered_lifts(state, *escalation, reader.has_shell));
            (NoticeKind::Alert, *agent, reference(*conv), text)
        }
        Fact::EscalationLifts { escalation, .. } => {
            let conv = state.escalations.get(escalation).and_then(|known| reference(known.conv));
            (
                NoticeKind::Info,
                SYSTEM,
                conv,
                format!("{escalation}:{}", offered_lifts(state, *escalation, reader.has_shell)),
            )
        }
        Fact::ApprovalDecided(ApprovalDecided { approval, by, decision, comment, .. }) => {
            let by = match *by {
                Some(SYSTEM) => " by the policy".to_owned(),
                Some(by) if is_human(state, by) => format!(" by the human {}", state.name_of(by)),
                Some(by) => format!(" by the agent {}", state.name_of(by)),
                None => String::new(),
            };
            let comment = comment.as_deref().map(|comment| format!(" Comment: {}", quoted(comment)));
            let text = format!("{approval}: {decision}{by}.{}", comment.unwrap_or_default());
            (NoticeKind::Info, SYSTEM, None, text)
        }
        Fact::ApprovalOffered { approval, .. } => {
            let (conv, text) = offered(state, *approval)?;
            (NoticeKind::Info, SYSTEM, conv, text)
        }
        _ => return None,
    })
}

/// Returns the broker's sentence about a question that a limit caused, and its lifts, each with its step (H6).
fn offered_lifts(state: &State, id: EscalationId, has_shell: bool) -> String {
    let Some(lifts) = state.escalations.get(&id).and_then(|known| known.lifts.as_ref()) else { return String::new() };
    let mut text = format!("\n{} A text answer extends nothing.", words::met(lifts));
    for (lift, number) in lifts.lifts.iter().zip(1..) {
        let lift = words::lift(state, *lift);
        text.push_str(&format!("\nlift-{number}: {lift}"));
        if has_shell {
            text.push_str(&format!(" (`lastword answer {id} --lift lift-{number}`)"));
        }
    }
    text
}

/// Returns all of a call that the reader may decide (H3).
fn offered(state: &State, id: ApprovalId) -> Option<(Option<String>, String)> {
    let known = state.approvals.get(&id).filter(|known| known.state == ApprovalState::Pending)?;
    let conv = known.task.and_then(|task| state.tasks.get(&task)).map(|task| task.conv);
    let reason = known.reason.as_ref().map(|reason| format!("\nReason: {}", quoted(reason))).unwrap_or_default();
    // The agent's own words are JSON, so that none of them can pass for the broker's.
    let text = format!(
        "{id}: {} asks to call a tool, and you may decide it with resolve_agent_approval, until {}.\n\
         Tool: {}\nArguments: {}{reason}\nDigest: {}",
        state.name_of(known.agent),
        rfc3339(known.expires_at),
        quoted(&known.tool),
        visible::escape_json(&known.arguments),
        hex(&known.digest),
    );
    Some((conv.and_then(|conv| state.ref_of(conv)).map(ToString::to_string), text))
}

fn room_name(state: &State, place: Place) -> Option<String> {
    match place {
        Place::Conversation(_) => None,
        Place::Room(room) => state.rooms.get(&room).map(|r| r.name.to_string()),
    }
}

fn conv_of(state: &State, turn: TurnId) -> Option<lastword_facts::ids::ConvId> {
    let task = state.turns.get(&turn)?.task;
    state.tasks.get(&task).map(|task| task.conv)
}

fn late_request(state: &State, fact: &Fact) -> Option<String> {
    let Fact::Late { turn, .. } = fact else { return None };
    let task = state.turns.get(turn)?.task;
    Some(state.tasks.get(&task)?.request.as_ref()?.id.to_string())
}
