//! Messages in the form that callers see, with their names.

use std::collections::BTreeMap;
use std::sync::Arc;

use lastword_broker::{Handle, Live};
use lastword_core::state::{Agent, Asker};
use lastword_core::{Principal, State};
use lastword_facts::fact::{Answer, EndReason, EscalationOpened, Part, Recipient, Requeued, SYSTEM};
use lastword_facts::fsm::RequestState;
use lastword_facts::ids::{AgentId, TaskId};
use lastword_facts::{Entry, Fact, Message, Seq};
use lastword_wire::{DeliveryState, Receipt, StoredMessage, rfc3339};

use super::words::{self, json};
use crate::error::ApiError;

/// A message, with the names that only the state knows.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Its position in the log.
    pub seq: Seq,
    entry: Arc<Entry>,
    earlier: Option<Arc<Entry>>,
    labels: Labels,
}

/// The parts of a message's wire form that come from the state.
#[derive(Clone, Debug)]
pub(crate) struct Labels {
    from: Box<str>,
    from_human: bool,
    to: Box<str>,
    /// Whether a human reads it.
    to_human: bool,
    reference: Box<str>,
    parent_ref: Option<Box<str>>,
    request_id: Option<Box<str>>,
    delivery_state: DeliveryState,
    /// For a REQUEST that is run again for its failed parts (Q5): the completed parts and the failed ones.
    again: Option<(Vec<String>, Vec<String>)>,
}

/// Returns messages by position, with texts from memory or from the log. Positions of other facts are left out.
pub async fn show(handle: &Handle, seqs: Vec<Seq>) -> Result<Vec<Shown>, ApiError> {
    named(handle, handle.entries(seqs).await?).await
}

/// Returns messages as [`show`] does, until they have this many bytes, and the position after which it stopped if there
/// are more.
pub(crate) async fn show_within(
    handle: &Handle,
    seqs: Vec<Seq>,
    bytes_max: usize,
) -> Result<(Vec<Shown>, Option<Seq>), ApiError> {
    let (entries, more) = handle.entries_within(seqs, bytes_max).await?;
    let last = entries.last().map(|(seq, _)| *seq).filter(|_| more);
    Ok((named(handle, entries).await?, last))
}

/// Adds the names that the state knows to entries.
async fn named(handle: &Handle, entries: Vec<(Seq, Arc<Entry>)>) -> Result<Vec<Shown>, ApiError> {
    let earlier: Vec<Seq> = entries.iter().filter_map(|(_, entry)| entry.fact.earlier()).collect();
    let earlier: BTreeMap<Seq, Arc<Entry>> = handle.entries(earlier).await?.into_iter().collect();
    let shown = move |live: &Live<'_>| {
        let with_names = |(seq, entry): (Seq, Arc<Entry>)| {
            let labels = label(live.state, seq, message_of(&entry)?);
            let earlier = entry.fact.earlier().and_then(|at| earlier.get(&at).cloned());
            Some(Shown { seq, entry, earlier, labels })
        };
        entries.into_iter().filter_map(with_names).collect()
    };
    Ok(handle.query(shown).await?)
}

/// Returns messages that are all still in memory; `None` if [`show`] has to read the log.
pub(crate) fn shown(live: &Live<'_>, seqs: &[Seq]) -> Option<Vec<Shown>> {
    let one = |&seq: &Seq| {
        let entry = live.entry(seq)?;
        let earlier = match entry.fact.earlier() {
            Some(at) => Some(live.entry(at)?),
            None => None,
        };
        let labels = label(live.state, seq, message_of(&entry)?);
        Some(Shown { seq, entry, earlier, labels })
    };
    seqs.iter().map(one).collect()
}

fn message_of(entry: &Entry) -> Option<&Message> {
    if let Fact::Accepted { message } = &entry.fact { Some(message) } else { None }
}

/// Returns whether `who` may read `message`: humans read all, agents those of their conversations.
pub(crate) fn may_read(state: &State, who: Principal, message: &Message) -> bool {
    who.is_human()
        || message.from == who.agent()
        || message.to == Recipient::One(who.agent())
        || message.to == Recipient::All
        || state.conversations.get(&message.conv).is_some_and(|c| c.has_part(who.agent()))
}

impl Labels {
    /// Returns the same for this reader: what the broker adds for a model is left out for a human.
    pub(crate) fn read_by(self, who: Principal) -> Self {
        Self { to_human: self.to_human || who.is_human(), ..self }
    }
}

/// Reads a message's names and delivery state from the state.
pub(crate) fn label(state: &State, seq: Seq, message: &Message) -> Labels {
    let conv = state.conversations.get(&message.conv);
    let parent = conv.and_then(|c| c.parent).and_then(|p| state.ref_of(p));
    let to = match message.to {
        Recipient::One(agent) => state.name_of(agent),
        Recipient::All => "all",
    };
    let is_human = |agent| state.agent(agent).is_some_and(Agent::is_human);
    Labels {
        from: state.name_of(message.from).into(),
        from_human: is_human(message.from),
        to: to.into(),
        to_human: matches!(message.to, Recipient::One(agent) if is_human(agent)),
        reference: conv.map_or_else(|| message.conv.to_string().into(), |c| c.reference.as_str().into()),
        parent_ref: parent.map(|p| p.as_str().into()),
        request_id: request_id(state, message),
        delivery_state: delivery_state(state, seq, message),
        again: again(state, message),
    }
}

fn request_id(state: &State, message: &Message) -> Option<Box<str>> {
    let of = |task: TaskId| Some(state.tasks.get(&task)?.request.as_ref()?.id.as_str().into());
    match &message.part {
        Part::Plain | Part::Echo => message.key.as_ref().map(|key| key.id.as_str().into()),
        Part::Request(terms) => Some(terms.request.as_str().into()),
        Part::Answer(answer) => of(answer.task),
        Part::Reply { task, .. } | Part::Status { task, .. } => of(*task),
    }
}

fn again(state: &State, message: &Message) -> Option<(Vec<String>, Vec<String>)> {
    let Part::Request(terms) = &message.part else { return None };
    let request = state.tasks.get(&terms.task)?.request.as_ref()?;
    let partial = request.partial.as_deref()?;
    Some((texts(&partial.completed), texts(&partial.failed)))
}

fn texts(parts: &[Box<str>]) -> Vec<String> {
    parts.iter().map(ToString::to_string).collect()
}

fn delivery_state(state: &State, seq: Seq, message: &Message) -> DeliveryState {
    match &message.part {
        Part::Request(terms) => request_state(state, terms.task),
        Part::Answer(answer) => match state.tasks.get(&answer.task).map(|task| task.asker) {
            Some(Asker::Task { task, .. }) => ready_state(state, task, seq),
            Some(Asker::Human(human)) => unread_state(state, human, seq),
            Some(Asker::Nobody) | None => DeliveryState::Settled,
        },
        Part::Reply { task, .. } => ready_state(state, *task, seq),
        Part::Plain | Part::Echo | Part::Status { .. } => DeliveryState::Noted,
    }
}

fn request_state(state: &State, task: TaskId) -> DeliveryState {
    let Some(task) = state.tasks.get(&task) else { return DeliveryState::Settled };
    match task.request.as_ref().map(|request| request.state) {
        Some(RequestState::RequestSent) if state.is_parked(task) => DeliveryState::Parked,
        Some(RequestState::RequestSent) => DeliveryState::Queued,
        Some(RequestState::Waiting) => DeliveryState::Delivered,
        Some(RequestState::ResponseReceived | RequestState::Idle) | None => DeliveryState::Settled,
    }
}

fn ready_state(state: &State, task: TaskId, seq: Seq) -> DeliveryState {
    let Some(task) = state.tasks.get(&task) else { return DeliveryState::Settled };
    let ready = task.ready.iter().any(|ready| ready.message == seq);
    match (ready, state.is_parked(task)) {
        (true, true) => DeliveryState::Parked,
        (true, false) => DeliveryState::Queued,
        (false, _) => DeliveryState::Settled,
    }
}

fn unread_state(state: &State, human: AgentId, seq: Seq) -> DeliveryState {
    // Notices are in the order of the log, so a binary search finds the position.
    let unread = state.agent(human).is_some_and(|h| h.notices.binary_search_by_key(&seq, |(at, _)| *at).is_ok());
    if unread { DeliveryState::Queued } else { DeliveryState::Settled }
}

impl Shown {
    /// Returns the time at which it was admitted.
    pub fn at(&self) -> lastword_facts::Time {
        self.entry.at
    }

    /// Returns the message as the log has it.
    pub fn message(&self) -> Option<&Message> {
        message_of(&self.entry)
    }

    /// Returns the request as it is once its answer has come.
    pub(crate) fn answered(mut self) -> Self {
        self.labels.delivery_state = DeliveryState::Settled;
        self
    }

    /// Returns the id of the request that it is, answers or reports on.
    pub(crate) fn request_id(&self) -> Option<&str> {
        self.labels.request_id.as_deref()
    }

    /// Converts it to a receipt for its sender.
    pub(crate) fn receipt(self, warning: Option<String>) -> Receipt {
        let Self { seq, labels, .. } = self;
        let (id, delivery_state) = (seq.to_string(), labels.delivery_state);
        Receipt { id, seq: seq.0, request_id: labels.request_id.map(Into::into), delivery_state, warning }
    }

    /// Converts it to its wire form for its recipient, with the question that it answers.
    pub(crate) fn delivered(self) -> Option<StoredMessage> {
        let earlier = self.earlier.clone();
        let mut out = self.stored()?;
        if let Some(Fact::EscalationOpened(EscalationOpened { escalation, body, .. })) =
            earlier.as_deref().map(|entry| &entry.fact)
        {
            out.escalation = Some(escalation.to_string());
            out.question = Some(body.to_string());
        }
        Some(out)
    }

    /// Converts it to its wire form. What an agent asked a human is for no other agent of the conversation.
    pub fn stored(self) -> Option<StoredMessage> {
        let Self { seq, entry, earlier, labels } = self;
        let earlier = earlier.as_deref();
        message_of(&entry).map(|message| stored(seq, &entry, message, earlier, labels))
    }
}

/// Converts a message to its wire form, with its names.
pub(crate) fn stored(
    seq: Seq,
    entry: &Entry,
    message: &Message,
    earlier: Option<&Entry>,
    labels: Labels,
) -> StoredMessage {
    let (completed, failed) = labels.again.unwrap_or_default();
    let mut out = StoredMessage {
        id: seq.to_string(),
        seq: seq.0,
        from: labels.from.into(),
        from_human: labels.from_human,
        to: labels.to.into(),
        reference: labels.reference.into(),
        parent_ref: labels.parent_ref.map(Into::into),
        depth: message.depth,
        hops: message.hops,
        request_id: labels.request_id.map(Into::into),
        action: message.action.as_ref().map(ToString::to_string),
        payload: message.payload.as_deref().map(json),
        body: message.body.to_string(),
        metadata: message.metadata.as_deref().map(json),
        cause: message.cause.map(|seq| seq.to_string()),
        grant: message.grant.map(|grant| grant.to_string()),
        created_at: rfc3339(entry.at),
        delivery_state: labels.delivery_state,
        in_reply_to: message.in_reply_to.map(|seq| seq.to_string()),
        completed,
        failed,
        ..StoredMessage::blank(message.kind)
    };
    fill_part(&mut out, message, earlier, labels.to_human);
    out
}

fn fill_part(out: &mut StoredMessage, message: &Message, earlier: Option<&Entry>, to_human: bool) {
    match &message.part {
        Part::Plain | Part::Echo => {}
        Part::Request(terms) => {
            out.priority = Some(terms.priority);
            out.deadline = terms.deadline.map(rfc3339);
        }
        Part::Answer(answer) => {
            fill_answer(out, message, answer, to_human);
            join_attempts(out, answer, earlier);
        }
        Part::Reply { escalation, .. } => out.escalation = escalation.map(|id| id.to_string()),
        Part::Status { acknowledged, eta_ms, .. } => {
            out.acknowledged = *acknowledged;
            out.eta_ms = *eta_ms;
        }
    }
}

fn fill_answer(out: &mut StoredMessage, message: &Message, answer: &Answer, to_human: bool) {
    out.status = Some(answer.status);
    out.stopped = answer.cause == EndReason::Stopped;
    // An answer without a text of the agent has only the broker's reason to show.
    let by_broker = message.from == SYSTEM || message.body.is_empty();
    let reason = answer.reason.as_deref().or_else(|| by_broker.then(|| answer.cause.word()));
    out.reason = reason.map(Into::into);
    out.completed = texts(&answer.completed);
    out.failed = texts(&answer.failed);
    if message.body.is_empty() && message.payload.is_none() {
        // What to do now is advice for a model.
        let told = if to_human { words::outcome_for_human } else { words::outcome };
        told(answer.status, answer.cause).clone_into(&mut out.body);
    }
}

/// Makes one answer of two: the second attempt did only the failed parts (Q5).
fn join_attempts(out: &mut StoredMessage, answer: &Answer, earlier: Option<&Entry>) {
    if let Some(Fact::Requeued(Requeued { result: Some(first), .. })) = earlier.map(|entry| &entry.fact) {
        out.body = format!("{}\n\n{}", first.body, out.body);
        let missing = first.completed.iter().filter(|part| !answer.completed.contains(part));
        let mut completed: Vec<String> = missing.map(ToString::to_string).collect();
        completed.append(&mut out.completed);
        out.completed = completed;
    }
}
