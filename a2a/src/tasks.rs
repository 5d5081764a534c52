//! Tasks as their callers see them: requests that came by this edge, of the caller, to the agent of the address.

use std::collections::BTreeMap;
use std::sync::Arc;

use lastword_broker::Live;
use lastword_broker::identity::{TurnSigner, hex, unhex};
use lastword_core::Principal;
use lastword_facts::fact::EscalationOpened;
use lastword_facts::fact::Part as FactPart;
use lastword_facts::ids::{AgentId, EscalationId, TaskId};
use lastword_facts::names::RequestId;
use lastword_facts::{AnswerStatus, Entry, Fact, MessageType, Seq, Time};
use lastword_server::calls::{Caller, audit, escalations, messages};
use lastword_server::{ApiError, Context};
use lastword_store::{Cursor, Filter};
use lastword_wire::{StoredMessage, parse_rfc3339, rfc3339};
use serde_json::{Map, Value, json};

use crate::answer::AnswerParts;
use crate::fault::Fault;
use crate::fold::{Fold, StatusText};
use crate::model::{Artifact, ListTasks, Message, Part, Role, Task, TaskState, TaskStatus};

/// Begins the ids of tasks and contexts, which the edge mints.
pub(crate) const PREFIX: &str = "a2a-";
/// The member of a message's metadata that keeps what the envelope has no member for.
pub(crate) const KEPT: &str = "a2a";
/// The most tasks that a list covers, the newest ones.
const LISTED_MAX: usize = 1_000;
/// Messages per query of the read model.
const SEARCHED: usize = 500;
const PAGE_DEFAULT: usize = 50;
const PAGE_MAX: i32 = 100;

/// The bytes of an id: what tells it from others, and the proof that this edge made it for a caller.
const NAMED_BYTES: usize = 12;
const PROOF_BYTES: usize = 6;
const PROOF: &str = "a2a id";
/// The longest context that a caller chooses.
const CHOSEN_BYTES_MAX: usize = 64;

fn proven(who: AgentId, named: &[u8]) -> Vec<u8> {
    [named, &who.0.to_le_bytes()].concat()
}

/// Returns the id of a caller's task.
pub(crate) fn minted(signer: &TurnSigner, who: AgentId, mac: &[u8; 32]) -> String {
    let named = &mac[..NAMED_BYTES];
    let proof = signer.mac_of(PROOF, &proven(who, named));
    format!("{PREFIX}{}{}", hex(named), hex(&proof[..PROOF_BYTES]))
}

/// Returns whether this edge made an id for a caller. On other surfaces a caller chooses its ids.
pub(crate) fn is_ours(signer: &TurnSigner, who: AgentId, id: &str) -> bool {
    let bytes = id.strip_prefix(PREFIX).and_then(unhex::<{ NAMED_BYTES + PROOF_BYTES }>);
    bytes.is_some_and(|bytes| {
        let (named, proof) = bytes.split_at(NAMED_BYTES);
        signer.is_mac_of(PROOF, &proven(who, named), proof)
    })
}

/// A task at one position of the log.
#[derive(Clone, Debug)]
pub(crate) struct TaskSnapshot {
    pub(crate) id: RequestId,
    pub(crate) context: String,
    /// The position of its request.
    pub(crate) request: Seq,
    /// The position at which it was looked up.
    pub(crate) at: Seq,
    pub(crate) fold: Fold,
    /// The time of its last change, and how it ended.
    updated: Time,
    ended: Option<AnswerStatus>,
    /// The positions of the questions whose texts are still missing.
    unread: Vec<(EscalationId, Seq)>,
    /// The position of the last answer or decision, whose time is still missing.
    decided: Option<Seq>,
    /// The messages that came to it besides the answers of its own requests: some are answers to its questions.
    heard: Vec<Seq>,
    /// The human in whose seat the caller answers.
    seat: Option<AgentId>,
}

/// Returns the context of a conversation: the REF without what this edge adds for each further task, and for a context that
/// the caller chose.
pub(crate) fn context_of(reference: &str) -> &str {
    let context = reference.split_once('/').map_or(reference, |(context, _)| context);
    let chosen = context.strip_prefix(PREFIX).and_then(|rest| rest.split_once('.'));
    chosen.filter(|(mac, _)| unhex::<NAMED_BYTES>(mac).is_some()).map_or(context, |(_, chosen)| chosen)
}

/// Returns the REF of a context that a caller chose, which is another one for each caller. `None` if it is in no form to
/// choose: those that this edge makes begin otherwise.
pub(crate) fn chosen(signer: &TurnSigner, who: AgentId, context: &str) -> Option<String> {
    let is_one = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
    if context.starts_with(PREFIX) || context.len() > CHOSEN_BYTES_MAX || !context.bytes().all(is_one) {
        return None;
    }
    let mac = signer.mac_of("a2a chosen context", &proven(who, context.as_bytes()));
    Some(format!("{PREFIX}{}.{context}", hex(&mac[..NAMED_BYTES])))
}

fn looked_up(
    live: &Live<'_>,
    signer: &TurnSigner,
    caller: AgentId,
    agent: &str,
    id: &str,
) -> Option<(TaskId, TaskSnapshot)> {
    let (number, task) = live.state.task_of(id).filter(|_| is_ours(signer, caller, id))?;
    let request = task.request.as_ref().filter(|_| task.asker.agent() == Some(caller))?;
    // By its number: a successor of the same name is another agent.
    let served = task.tried().next() == live.state.agent_of(agent);
    let reference = live.state.ref_of(task.conv).filter(|_| served)?;
    let turns = task.turns.iter().filter_map(|turn| live.state.turns.get(turn));
    // The answers of its own requests are no change to its caller.
    let answers =
        turns.clone().flat_map(|turn| &turn.delivered).chain(&task.ready).filter(|ready| ready.child.is_none());
    let heard: Vec<Seq> = answers.map(|ready| ready.message).collect();
    let decided = heard.iter().copied().chain(turns.clone().filter_map(|turn| turn.decided.get())).max();
    let mut fold = Fold::new(number, false);
    fold.taken = !task.turns.is_empty() || task.status_at.get().is_some();
    fold.settled = request.answer.get();
    let held = task.approvals.iter().filter_map(|id| Some((*id, live.state.approvals.get(id)?)));
    fold.held = held.map(|(id, known)| (id, known.tool.clone())).collect();
    let asked = task.escalations.iter().filter_map(|id| Some((*id, live.state.escalations.get(id)?)));
    let unread: Vec<(EscalationId, Seq)> = asked.clone().map(|(id, known)| (id, known.asked)).collect();
    fold.asked = unread.iter().map(|(id, _)| (*id, Box::default())).collect();
    let waits = fold.held.keys().filter_map(|id| live.state.approvals.get(id)).map(|known| known.at);
    let updated = [Some(task.created_at), task.status_at.get()].into_iter().flatten();
    let updated = updated.chain(turns.map(|turn| turn.progress_at.get().unwrap_or(turn.opened_at))).chain(waits);
    let updated = updated.chain(asked.map(|(_, known)| known.at)).max().unwrap_or(task.created_at);
    let context = context_of(reference.as_str()).to_owned();
    let (request, at) = (request.message, live.state.seq);
    let id = RequestId::new(id).ok()?;
    Some((
        number,
        TaskSnapshot { id, context, request, at, fold, updated, ended: None, unread, decided, heard, seat: None },
    ))
}

/// Looks up a task of the caller; another's looks like none.
pub(crate) async fn find(ctx: &Context, caller: Caller, agent: &str, id: &str) -> Result<TaskSnapshot, Fault> {
    let (who, named, wanted) = (caller.principal.agent(), agent.to_owned(), id.to_owned());
    let handle = ctx.handle.clone();
    let look = move |live: &Live<'_>| looked_up(live, handle.signer(), who, &named, &wanted);
    let found = ctx.handle.query(look).await.map_err(ApiError::from)?;
    let (_, mut known) = found.ok_or_else(|| Fault::unknown_task(id))?;
    known.sit(escalations::seated(ctx, caller).await?);
    read_details(ctx, &mut known).await?;
    Ok(known)
}

/// Reads what the state leaves to the log: the texts of open questions, and when something was last answered or decided.
async fn read_details(ctx: &Context, known: &mut TaskSnapshot) -> Result<(), Fault> {
    let unread: BTreeMap<Seq, EscalationId> = known.unread.drain(..).map(|(id, at)| (at, id)).collect();
    let decided = known.decided.take();
    let wanted = unread.keys().copied().chain(decided).collect();
    for (seq, entry) in ctx.handle.entries(wanted).await.map_err(ApiError::from)? {
        if decided == Some(seq) {
            known.updated = known.updated.max(entry.at);
        }
        if let (Fact::EscalationOpened(EscalationOpened { body, .. }), Some(id)) = (&entry.fact, unread.get(&seq)) {
            known.fold.asked.insert(*id, body.clone());
        }
    }
    Ok(())
}

impl TaskSnapshot {
    /// Notes the human in whose seat the caller answers.
    fn sit(&mut self, seat: Option<Principal>) {
        self.fold.seated = seat.is_some();
        self.seat = seat.map(Principal::agent);
    }

    /// Returns the state.
    pub(crate) async fn state(&self, ctx: &Context) -> Result<TaskState, Fault> {
        match self.fold.settled {
            None => Ok(self.fold.standing().0),
            Some(answer) => Ok(state_of(messages::one(ctx, answer).await?.status)),
        }
    }

    /// Returns the state of a task that was listed.
    fn listed(&self) -> TaskState {
        if self.fold.settled.is_some() { state_of(self.ended) } else { self.fold.standing().0 }
    }

    /// Returns the task in its wire form, with at most so many messages of its history.
    pub(crate) async fn shown(&self, ctx: &Context, history: Option<i32>, artifacts: bool) -> Result<Task, Fault> {
        let (id, context) = (self.id.to_string(), self.context.clone());
        let (artifact, status) = match self.fold.settled {
            Some(answer) => outcome(&messages::one(ctx, answer).await?, &id, &context),
            None => {
                let (state, said) = self.fold.standing();
                (None, status(&id, &context, state, said, self.updated))
            }
        };
        let history = match history {
            Some(0) => Vec::new(),
            Some(_) | None => self.history(ctx, history).await?,
        };
        let artifacts = artifacts.then(|| artifact.into_iter().collect());
        Ok(Task { id, context_id: context, status, artifacts, history })
    }

    /// Returns the answer as a message, if the agent says that it needs no task.
    pub(crate) async fn replied(&self, ctx: &Context) -> Result<Option<Message>, Fault> {
        let Some(answer) = self.fold.settled else { return Ok(None) };
        let answer = messages::one(ctx, answer).await?;
        let AnswerParts { parts, as_message } = AnswerParts::of(&answer);
        let is_message = as_message && state_of(answer.status) == TaskState::Completed;
        let (task_id, context_id) = (self.id.to_string(), self.context.clone());
        let message =
            Message { message_id: answer.id, task_id, context_id, role: Role::Agent, parts, ..Message::default() };
        Ok(is_message.then_some(message))
    }

    /// Returns the newest messages of its history, oldest first: the request, and the questions that were answered in the
    /// caller's seat with their answers. What anybody else says to the agent is none of the caller's.
    async fn history(&self, ctx: &Context, length: Option<i32>) -> Result<Vec<Message>, Fault> {
        let (id, context) = (self.id.as_str(), self.context.as_str());
        let mut said = BTreeMap::new();
        said.insert(self.request, asked(&messages::one(ctx, self.request).await?, id, context));
        let heard = if self.seat.is_some() { self.heard.clone() } else { Vec::new() };
        let mut questions = Vec::new();
        for (seq, entry) in ctx.handle.entries(heard).await.map_err(ApiError::from)? {
            if let Fact::Accepted { message } = &entry.fact
                && let FactPart::Reply { escalation: Some(_), .. } = &message.part
                && Some(message.from) == self.seat
            {
                questions.extend(message.in_reply_to);
                said.insert(
                    seq,
                    Message { role: Role::User, ..words(format!("{id}-{seq}"), id, context, message.body.to_string()) },
                );
            }
        }
        for (seq, entry) in ctx.handle.entries(questions).await.map_err(ApiError::from)? {
            if let Fact::EscalationOpened(EscalationOpened { escalation, body, .. }) = &entry.fact {
                said.insert(seq, words(format!("{id}-{escalation}"), id, context, body.to_string()));
            }
        }
        let length = length.and_then(|length| usize::try_from(length).ok()).unwrap_or(usize::MAX);
        let older = said.len().saturating_sub(length);
        Ok(said.into_values().skip(older).collect())
    }
}

/// Returns the status of a task without an answer.
pub(crate) fn status(id: &str, context: &str, state: TaskState, said: Option<StatusText>, at: Time) -> TaskStatus {
    let message = said.map(|StatusText { about, text }| words(format!("{id}-{about}"), id, context, text));
    TaskStatus { state, message, timestamp: rfc3339(at) }
}

/// Returns a message of the agent.
fn words(message_id: String, task: &str, context: &str, text: String) -> Message {
    Message {
        message_id,
        task_id: task.to_owned(),
        context_id: context.to_owned(),
        role: Role::Agent,
        parts: vec![Part::text(text)],
        ..Message::default()
    }
}

/// Returns the caller's message, as far as it was kept.
fn asked(request: &StoredMessage, task: &str, context: &str) -> Message {
    let kept = request.metadata.as_ref().and_then(|metadata| metadata.get(KEPT));
    let kept = kept.and_then(|kept| serde_json::from_value::<Message>(kept.clone()).ok()).unwrap_or_default();
    let text = Some(&request.body).filter(|body| !body.is_empty()).map(Part::text);
    let parts = text.into_iter().chain(request.payload.clone().map(Part::data)).collect();
    Message { task_id: task.to_owned(), context_id: context.to_owned(), role: Role::User, parts, ..kept }
}

/// Returns the state in which an answer leaves its task.
const fn state_of(answer: Option<AnswerStatus>) -> TaskState {
    match answer {
        Some(AnswerStatus::Completed | AnswerStatus::Partial) => TaskState::Completed,
        Some(AnswerStatus::Rejected) => TaskState::Rejected,
        Some(AnswerStatus::Cancelled) => TaskState::Canceled,
        Some(AnswerStatus::Failed | AnswerStatus::TimedOut | AnswerStatus::Exhausted) | None => TaskState::Failed,
    }
}

/// Returns the artifact and the status that an answer makes. What failed says why, and leaves no artifact.
pub(crate) fn outcome(answer: &StoredMessage, task: &str, context: &str) -> (Option<Artifact>, TaskStatus) {
    let state = state_of(answer.status);
    let timestamp = answer.created_at.clone();
    if state == TaskState::Completed {
        let parts = AnswerParts::of(answer).parts;
        let mut metadata = Map::new();
        if answer.status == Some(AnswerStatus::Partial) {
            metadata.insert(KEPT.into(), json!({ "completed": answer.completed, "failed": answer.failed }));
        }
        let artifact = Artifact { artifact_id: "answer".into(), name: "answer".into(), parts, metadata };
        return (Some(artifact), TaskStatus { state, message: None, timestamp });
    }
    let said: Vec<&str> = answer
        .reason
        .iter()
        .map(String::as_str)
        .chain([answer.body.as_str()])
        .filter(|text| !text.is_empty())
        .collect();
    let message = (!said.is_empty()).then(|| words(answer.id.clone(), task, context, said.join("\n\n")));
    (None, TaskStatus { state, message, timestamp })
}

/// Returns one page of the caller's tasks at an agent, newest change first.
pub(crate) async fn list(ctx: &Context, caller: Caller, agent: &str, wanted: ListTasks) -> Result<Value, Fault> {
    let size = match wanted.page_size {
        None => PAGE_DEFAULT,
        Some(size @ 1..=PAGE_MAX) => usize::try_from(size).unwrap_or(PAGE_DEFAULT),
        Some(size) => return Err(Fault::field("pageSize", format!("is {size}, and can be from 1 to {PAGE_MAX}"))),
    };
    checked_history(wanted.history_length)?;
    let wrong = |text| Fault::field("statusTimestampAfter", format!("is {text:?}, and no time in RFC 3339"));
    let after = wanted.status_timestamp_after.as_deref();
    let after = after.map(|text| parse_rfc3339(text).ok_or_else(|| wrong(text))).transpose()?;
    let behind = match wanted.page_token.as_str() {
        "" => None,
        token => {
            let wrong = || Fault::field("pageToken", "is not one of ours");
            let (time, id) = token.split_once('~').ok_or_else(wrong)?;
            Some((Time(time.parse().map_err(|_| wrong())?), id.to_owned()))
        }
    };
    let state = wanted.status.filter(|state| *state != TaskState::Unspecified);
    let seat = escalations::seated(ctx, caller).await?;
    let mut found = all(ctx, caller, agent, seat).await?;
    found.retain(|known| {
        (wanted.context_id.is_empty() || known.context == wanted.context_id)
            && state.is_none_or(|state| known.listed() == state)
            && after.is_none_or(|after| known.updated >= after)
    });
    let key = |known: &TaskSnapshot| (known.updated, known.id.to_string());
    found.sort_by_key(|known| std::cmp::Reverse(key(known)));
    let total = found.len();
    if let Some(behind) = behind {
        found.retain(|known| key(known) < behind);
    }
    let (mut tasks, mut bytes, mut next) = (Vec::new(), 0, None);
    let mut found = found.into_iter().peekable();
    while let Some(mut known) = found.next() {
        read_details(ctx, &mut known).await?;
        let task = json!(known.shown(ctx, wanted.history_length, wanted.include_artifacts).await?);
        bytes += task.to_string().len();
        tasks.push(task);
        // A page ends by its bytes as well, as every page does.
        if tasks.len() == size || bytes > audit::PAGE_BYTES_MAX {
            next = found.peek().map(|_| format!("{}~{}", known.updated.0, known.id));
            break;
        }
    }
    Ok(json!({
        "tasks": tasks, "nextPageToken": next.unwrap_or_default(), "pageSize": size, "totalSize": total,
    }))
}

/// Refuses a negative length of a history.
pub(crate) fn checked_history(length: Option<i32>) -> Result<(), Fault> {
    match length.filter(|length| *length < 0) {
        None => Ok(()),
        Some(length) => Err(Fault::field("historyLength", format!("is {length}, and can't be negative"))),
    }
}

/// Returns the newest tasks of the caller at an agent, as far as the state still knows them.
async fn all(ctx: &Context, caller: Caller, agent: &str, seat: Option<Principal>) -> Result<Vec<TaskSnapshot>, Fault> {
    let (who, named) = (caller.principal.agent(), agent.to_owned());
    let to = ctx.handle.query(move |live: &Live<'_>| live.state.agent_of(&named)).await.map_err(ApiError::from)?;
    let Some(to) = to else { return Ok(Vec::new()) };
    let (mut found, mut before) = (Vec::new(), None);
    while found.len() < LISTED_MAX {
        let cursor = Cursor { before, limit: SEARCHED, ..Cursor::default() };
        let kind = Some(MessageType::Request);
        let filter = Filter { from: Some(who), to: Some(to), kind, cursor, ..Filter::default() };
        let page = audit::search(ctx, filter).await?;
        before = page.iter().min().copied();
        let last = page.len() < SEARCHED;
        found.extend(page);
        if last {
            break;
        }
    }
    let mut ids = Vec::new();
    let note = |_: Seq, entry: &Arc<Entry>| {
        if let Fact::Accepted { message } = &entry.fact
            && let FactPart::Request(terms) = &message.part
        {
            ids.push(terms.request.clone());
        }
    };
    ctx.handle.visit(found, note).await.map_err(ApiError::from)?;
    let named = agent.to_owned();
    let handle = ctx.handle.clone();
    let look = move |live: &Live<'_>| -> Vec<TaskSnapshot> {
        ids.iter()
            .filter_map(|id| looked_up(live, handle.signer(), who, &named, id.as_str()))
            .map(|(_, known)| known)
            .collect()
    };
    let mut known = ctx.handle.query(look).await.map_err(ApiError::from)?;
    let last: Vec<Seq> = known.iter().filter_map(|known| known.fold.settled.or(known.decided)).collect();
    let mut changes = BTreeMap::new();
    let note = |seq: Seq, entry: &Arc<Entry>| {
        let ended = if let Fact::Accepted { message } = &entry.fact
            && let FactPart::Answer(answer) = &message.part
        {
            Some(answer.status)
        } else {
            None
        };
        changes.insert(seq, (entry.at, ended));
    };
    ctx.handle.visit(last, note).await.map_err(ApiError::from)?;
    for known in &mut known {
        known.sit(seat);
        let decided = known.decided.take();
        if let Some((at, ended)) = known.fold.settled.or(decided).and_then(|last| changes.get(&last)) {
            // The answer is the last change, whatever was reported behind it.
            known.updated = if ended.is_some() { *at } else { known.updated.max(*at) };
            known.ended = *ended;
        }
    }
    Ok(known)
}
