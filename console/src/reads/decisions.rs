//! The decisions that wait for a human, those that expire first at the top, with the work that they hold up.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use lastword_broker::{Live, off_thread};
use lastword_core::State;
use lastword_core::state::{Approval, Escalation, Incident, IncidentOn, Task};
use lastword_facts::fact::{EscalationCause, Latched, Place, Role};
use lastword_facts::ids::{AgentId, ApprovalId, ConvId, EscalationId, IncidentId, TaskId};
use lastword_facts::status::ApprovalState;
use lastword_facts::status::{EscalationState, Running};
use lastword_facts::{Code, Priority, Seq, Time};
use lastword_server::calls::audit::PAGE_BYTES_MAX;
use lastword_server::calls::{Caller, approvals, epochs, escalations, subjects};
use lastword_server::views::{self, Shown};
use lastword_server::{ApiError, Context};
use lastword_wire::{ApprovalView, EscalationView, IncidentView, Notice};

use super::risk::{self, Alike, Approved, Look, Reached, Risk};
use super::work_state::PausedScope;

/// The most settled decisions in the list.
const SETTLED_MAX: usize = 20;
/// The most requests that are shown of those that a tripped limit holds.
const HELD_MAX: usize = 12;
/// The most pending decisions in a list, and the most bytes of their held calls.
const WAITING_MAX: usize = 50;
const WAITING_BYTES_MAX: usize = 512 << 10;
/// The most bytes of calls that are judged for a list; those that expire later are listed without it.
const JUDGED_BYTES_MAX: usize = 2 << 20;
/// The most unread messages in the list.
const UNREAD_MAX: usize = 50;

/// What waits for a human, or waited.
pub(crate) enum Asked {
    /// An agent's question, or a request that timed out for good.
    Question(Box<EscalationView>),
    /// A held tool call.
    Call(Box<ApprovalView>),
    /// A tripped limit that holds work.
    Latch(Box<IncidentView>),
}

impl Asked {
    /// Returns its id, such as `apr-1`.
    pub(crate) fn id(&self) -> &str {
        match self {
            Self::Question(asked) => &asked.id,
            Self::Call(held) => &held.id,
            Self::Latch(incident) => &incident.id,
        }
    }
}

/// A request that timed out for good, with what a human can do about it.
pub(crate) struct TimedOut {
    /// The name of the agent that was asked last.
    pub(crate) agent: String,
    /// The names of the other agents, which could be asked instead.
    pub(crate) others: Vec<String>,
    /// The first line of the request.
    pub(crate) subject: String,
    /// The position of the request.
    pub(crate) message: Seq,
}

/// A pending or settled decision, and the work that it belongs to.
pub(crate) struct Decision {
    /// The question or held call.
    pub(crate) asked: Asked,
    /// The time at which it is settled without a human, withdrawn, or at which the work that it holds ends, whichever is
    /// first; `None` if it waits as long as it takes.
    pub(crate) due: Option<Time>,
    /// For a held call or an agent's question: when its turn's lease ends unless it is renewed, which withdraws it.
    pub(crate) lease_until: Option<Time>,
    /// For a held call: that its agent is paused or stopped, or the workspace.
    pub(crate) agent_state: Option<(PausedScope, Running)>,
    /// The priority of the request that it holds up.
    pub(crate) priority: Priority,
    /// The requests that led to it, from the root on.
    pub(crate) chain: Vec<RequestLink>,
    /// The text of the last of these requests, on whose behalf the agent calls or asks, and its position.
    pub(crate) request: Option<(Seq, String)>,
    /// The request, if one timed out.
    pub(crate) timed_out: Option<TimedOut>,
    /// For a tripped limit: the oldest requests that it holds, each with the begin of its text.
    pub(crate) held: Vec<(RequestLink, String)>,
    /// What sets a held call apart.
    pub(crate) risk: Option<Risk>,
    /// The pending decisions that are like this one, and that a list doesn't show.
    pub(crate) alike: Vec<Alike>,
}

/// One request on the way from the root.
#[derive(Clone, Debug)]
pub(crate) struct RequestLink {
    /// The requester's name; `None` if an agent started the work on its own.
    pub(crate) from: Option<String>,
    /// The recipient's name.
    pub(crate) to: String,
    /// The REF of its conversation.
    pub(crate) reference: String,
    /// Its position; `None` for a task without a request.
    pub(crate) message: Option<Seq>,
}

/// The lists of the console's inbox.
pub(crate) struct Decisions {
    /// The pending decisions.
    pub(crate) waiting: Waiting,
    /// The decisions settled last, newest first.
    pub(crate) settled: Vec<Decision>,
    /// The newest messages and notices to the caller that it has not taken yet, newest first.
    pub(crate) unread: Vec<Unread>,
    /// The number of all that it has not taken yet.
    pub(crate) unread_all: usize,
}

/// A message or notice to a human that it has not taken yet.
pub(crate) struct Unread {
    /// The id of the message or line of the log.
    pub(crate) id: String,
    /// Its type, in one word.
    pub(crate) kind: &'static str,
    /// The name of its sender; `system` for the broker.
    pub(crate) from: String,
    /// The REF of its conversation, or the name of its room.
    pub(crate) reference: Option<String>,
    /// Its text.
    pub(crate) body: String,
    /// Its time.
    pub(crate) created_at: String,
}

/// The id of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DecisionId {
    /// A question, or a request that timed out.
    Question(EscalationId),
    /// A held call.
    Call(ApprovalId),
    /// A tripped limit.
    Latch(IncidentId),
}

impl std::fmt::Display for DecisionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Question(id) => id.fmt(f),
            Self::Call(id) => id.fmt(f),
            Self::Latch(id) => id.fmt(f),
        }
    }
}

impl DecisionId {
    /// Parses an id such as `esc-1`, `apr-1` or `inc-1`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let question = EscalationId::parse(text).map(Self::Question);
        let call = || ApprovalId::parse(text).map(Self::Call);
        question.or_else(call).or_else(|| IncidentId::parse(text).map(Self::Latch))
    }
}

/// A decision with the values that order the list, and its chain of requests.
pub(super) struct DecisionRow {
    pub(super) id: DecisionId,
    pub(super) task: Option<TaskId>,
    conv: Option<ConvId>,
    due: Option<Time>,
    lease_until: Option<Time>,
    agent_state: Option<(PausedScope, Running)>,
    priority: Priority,
    at: Time,
    chain: Vec<RequestLink>,
    held: Vec<RequestLink>,
    risk: Option<Risk>,
    pub(super) alike: Vec<Alike>,
}

/// The pending decisions as they are read of the state.
struct Pending {
    /// Those that aren't alike, each with what is judged of its call.
    rows: Vec<(DecisionRow, Option<Look>)>,
    /// The arguments of approved calls that may name hosts, or change rows.
    reaching: Vec<Box<str>>,
    /// All, also those that are alike.
    all: Vec<DecisionId>,
    /// The time at which the first of all expires.
    due: Option<Time>,
}

/// The pending decisions that a page shows first, and what it has to say of the others.
pub(crate) struct Waiting {
    /// What destroys or reaches further first, then what expires first.
    pub(crate) first: Vec<Decision>,
    /// All, also those that are alike.
    pub(crate) all: Vec<DecisionId>,
    /// The time at which the first of all expires.
    pub(crate) due: Option<Time>,
}

impl Waiting {
    /// Returns how many of them a human with this role is asked to make: a lift isn't an approver's (H7).
    pub(crate) fn count(&self, role: Role) -> usize {
        count(&self.all, role)
    }

    /// Returns how many decisions are beyond the first ones, those that hold an agent's work by their kinds; empty for none.
    pub(crate) fn beyond(&self, first: usize) -> String {
        let shown = self
            .first
            .iter()
            .take(first)
            .flat_map(|one| one.alike.iter().map(|alike| alike.id.to_string()).chain([one.asked.id().to_owned()]));
        let shown: BTreeSet<String> = shown.collect();
        let hidden: Vec<_> = self.all.iter().filter(|id| !shown.contains(&id.to_string())).collect();
        let of =
            |kind: fn(&DecisionId) -> bool, one: &str, many: &str| match hidden.iter().filter(|id| kind(id)).count() {
                0 => None,
                1 => Some(format!("1 {one}")),
                n => Some(format!("{n} {many}")),
            };
        let kinds = [
            of(|id| matches!(id, DecisionId::Call(_)), "held call", "held calls"),
            of(|id| matches!(id, DecisionId::Question(_)), "question", "questions"),
            of(|id| matches!(id, DecisionId::Latch(_)), "tripped limit", "tripped limits"),
        ];
        match hidden.len() {
            0 => String::new(),
            n => format!("{n} more: {}", kinds.into_iter().flatten().collect::<Vec<_>>().join(", ")),
        }
    }
}

/// Returns the number of decisions that wait for a human with this role.
pub(crate) async fn waiting(ctx: &Context, role: Role) -> Result<usize, ApiError> {
    Ok(count(&ctx.handle.query(|live| open(live.state)).await?, role))
}

fn count(all: &[DecisionId], role: Role) -> usize {
    all.iter().filter(|id| role != Role::Approver || !matches!(id, DecisionId::Latch(_))).count()
}

/// Returns the pending decisions with the times at which they end, so that a change can be noticed by comparing.
pub(crate) fn expiring(state: &State) -> Vec<(DecisionId, Option<Time>)> {
    open(state).into_iter().filter_map(|id| Some((id, row(state, id)?.due))).collect()
}

/// Returns the ids of all pending decisions. What timed out is among what went wrong: no agent waits for it.
fn open(state: &State) -> Vec<DecisionId> {
    let asks = |known: &Escalation| known.state == EscalationState::Open && known.cause != EscalationCause::TimedOut;
    let open = || state.escalations.iter().filter(|(_, known)| asks(known));
    let offers = |known: &Escalation| known.lifts.as_ref().is_some_and(|lifts| lifts.met.code == Code::NoProgress);
    let asked: BTreeSet<Option<TaskId>> = open()
        .filter(|(_, known)| known.cause == EscalationCause::Asked && offers(known))
        .map(|(_, one)| one.task)
        .collect();
    // An agent that asks about its hold asks for the same lift as the broker: one decision.
    let twice = |known: &Escalation| known.cause == EscalationCause::NoProgress && asked.contains(&known.task);
    let questions = open().filter(|(_, known)| !twice(known));
    let calls = state.approvals.iter().filter(|(_, known)| known.state == ApprovalState::Pending);
    let latches = state.incidents.iter().filter(|(_, known)| holds(known));
    let questions = questions.map(|(id, _)| DecisionId::Question(*id));
    let calls = calls.map(|(id, _)| DecisionId::Call(*id));
    questions.chain(calls).chain(latches.map(|(id, _)| DecisionId::Latch(*id))).collect()
}

/// Returns whether an incident holds work until a human lifts it. One about an agent is information only.
pub(super) fn holds(incident: &Incident) -> bool {
    incident.lifted.is_none() && matches!(incident.on, IncidentOn::Latch(_))
}

/// Lists the pending decisions, those settled last, and the caller's unread messages.
pub(crate) async fn list(ctx: &Context, caller: Caller) -> Result<Decisions, ApiError> {
    caller.human()?;
    let agent = caller.principal.agent();
    let look =
        move |live: &Live<'_>| (pending_of(live.state, |_| true), settled(live.state), unread(live.state, agent));
    let (pending, settled, unread) = ctx.handle.query(look).await?;
    let unread_all = unread.len();
    Ok(Decisions {
        waiting: first_pending(ctx, caller, pending).await?,
        settled: filled(ctx, caller, settled).await?,
        unread: worded(ctx, unread.into_iter().rev().take(UNREAD_MAX).collect(), agent).await?,
        unread_all,
    })
}

/// Returns the positions of all that a human has not taken yet, oldest first.
pub(super) fn unread(state: &State, human: AgentId) -> Vec<Seq> {
    let notices = state.agent(human).map(|human| &human.notices);
    notices.into_iter().flatten().map(|(seq, _)| *seq).collect()
}

/// Returns messages and notices with their texts, newest first.
async fn worded(ctx: &Context, seqs: Vec<Seq>, reader: AgentId) -> Result<Vec<Unread>, ApiError> {
    let messages = views::show(&ctx.handle, seqs.clone()).await?;
    let is_message = |seq: &Seq| messages.iter().any(|message| message.seq == *seq);
    let others: Vec<Seq> = seqs.into_iter().filter(|seq| !is_message(seq)).collect();
    let reader = views::Reader { agent: Some(reader), has_shell: false };
    let others = views::notices(&ctx.handle, others, reader).await?.into_iter().map(|worded| worded.notice);
    let mut unread: Vec<Unread> = others
        .map(|Notice { id, kind, from, reference, body, created_at, .. }| Unread {
            id,
            kind: kind.word(),
            from,
            reference,
            body,
            created_at,
        })
        .collect();
    unread.extend(messages.into_iter().filter_map(Shown::stored).map(|message| Unread {
        id: message.id,
        kind: message.kind.word(),
        from: message.from,
        reference: Some(message.reference),
        body: message.body,
        created_at: message.created_at,
    }));
    unread.sort_by_key(|one| Reverse(Seq::parse(&one.id)));
    Ok(unread)
}

/// Lists the pending decisions.
pub(crate) async fn pending_list(ctx: &Context, caller: Caller) -> Result<Waiting, ApiError> {
    caller.human()?;
    let pending = ctx.handle.query(|live| pending_of(live.state, |_| true)).await?;
    first_pending(ctx, caller, pending).await
}

async fn first_pending(
    ctx: &Context,
    caller: Caller,
    Pending { rows, reaching, all, due }: Pending,
) -> Result<Waiting, ApiError> {
    let rows = off_thread(move || Ok(ordered(rows, &Reached::of(&reaching)))).await?;
    Ok(Waiting { first: filled(ctx, caller, rows).await?, all, due })
}

/// Reads the pending decisions, with what is judged of held calls outside of the state.
fn pending_of(state: &State, wanted: impl Fn(&DecisionRow) -> bool) -> Pending {
    let mut rows = pending(state);
    rows.retain(wanted);
    let (mut bytes, approved) = (0, Approved::of(state));
    let (all, due) = (rows.iter().map(|row| row.id).collect(), rows.first().and_then(|row| row.due));
    let read = |row: DecisionRow| {
        let known = if let DecisionId::Call(id) = row.id { state.approvals.get(&id) } else { None };
        bytes += known.map_or(0, |known| known.arguments.len());
        let look = known.filter(|_| bytes <= JUDGED_BYTES_MAX).map(|known| approved.look(known));
        (row, look)
    };
    let rows = risk::folded(state, rows).into_iter().map(read).collect();
    Pending { rows, reaching: approved.reaching(), all, due }
}

/// Returns the pending decisions that are shown first, as many as a page has.
fn ordered(rows: Vec<(DecisionRow, Option<Look>)>, reached: &Reached) -> Vec<DecisionRow> {
    let mut lengths = BTreeMap::new();
    let judge = |(mut row, look): (DecisionRow, Option<Look>)| {
        if let Some(look) = look {
            lengths.insert(row.id, look.bytes());
            row.risk = Some(look.risk(reached));
        }
        row
    };
    let mut rows: Vec<DecisionRow> = rows.into_iter().map(judge).collect();
    rows.sort_by_key(|row| row.risk.as_ref().map_or(risk::unjudged(row.id), Risk::order));
    let mut bytes = 0;
    let fits = |row: &&DecisionRow| {
        bytes += lengths.get(&row.id).copied().unwrap_or_default();
        bytes <= WAITING_BYTES_MAX
    };
    // One is shown however long it is.
    let fitting = rows.iter().take(WAITING_MAX).take_while(fits).count().max(1);
    rows.truncate(fitting);
    rows
}

/// Lists the pending decisions that hold up work in any of these conversations.
pub(super) async fn in_conversations(ctx: &Context, caller: Caller, convs: Vec<ConvId>) -> Result<Waiting, ApiError> {
    let within = move |row: &DecisionRow| row.conv.is_some_and(|conv| convs.contains(&conv));
    let pending = ctx.handle.query(move |live| pending_of(live.state, within)).await?;
    first_pending(ctx, caller, pending).await
}

/// Returns the pending decision that is listed first.
pub(crate) async fn next(ctx: &Context, caller: Caller) -> Result<Option<Decision>, ApiError> {
    caller.human()?;
    let Pending { rows, reaching, .. } = ctx.handle.query(|live| pending_of(live.state, |_| true)).await?;
    let mut first = off_thread(move || Ok(ordered(rows, &Reached::of(&reaching)))).await?;
    first.truncate(1);
    Ok(filled(ctx, caller, first).await?.pop())
}

/// Returns one decision, pending or settled.
pub(crate) async fn one(ctx: &Context, caller: Caller, id: &str) -> Result<Decision, ApiError> {
    caller.human()?;
    let wanted = DecisionId::parse(id).ok_or_else(|| ApiError::unknown(id))?;
    let look = move |live: &Live<'_>| {
        let (approved, row) = (Approved::of(live.state), row(live.state, wanted)?);
        let pending = |known: &&Approval| known.state == ApprovalState::Pending;
        let known = if let DecisionId::Call(id) = wanted { live.state.approvals.get(&id) } else { None };
        Some((row, known.filter(pending).map(|known| (approved.look(known), approved.reaching()))))
    };
    let found = ctx.handle.query(look).await?;
    let judge = move || {
        Ok(found.map(|(mut row, look)| {
            row.risk = look.map(|(look, reaching)| look.risk(&Reached::of(&reaching)));
            row
        }))
    };
    let row = off_thread(judge).await?;
    let found = filled(ctx, caller, row.into_iter().collect()).await?.into_iter().next();
    match found {
        Some(decision) => Ok(decision),
        None => Err(epochs::unknown(ctx, id).await),
    }
}

fn pending(state: &State) -> Vec<DecisionRow> {
    let mut rows: Vec<DecisionRow> = open(state).into_iter().filter_map(|id| row(state, id)).collect();
    // What has no end comes last.
    rows.sort_by_key(|row| (row.due.unwrap_or(Time(u64::MAX)), row.priority, Reverse(row.at), row.id));
    rows
}

/// Returns the decisions settled last, newest first. Lifted latches are listed among the incidents.
fn settled(state: &State) -> Vec<DecisionRow> {
    let questions = state.escalations.iter().rev().filter(|(_, known)| known.state != EscalationState::Open);
    let calls = state.approvals.iter().rev().filter(|(_, known)| known.state != ApprovalState::Pending);
    // Only the newest settled decisions of each kind can be among the newest of both.
    let questions = questions.map(|(id, _)| DecisionId::Question(*id)).take(SETTLED_MAX);
    let ids = questions.chain(calls.map(|(id, _)| DecisionId::Call(*id)).take(SETTLED_MAX));
    let mut rows: Vec<DecisionRow> = ids.filter_map(|id| row(state, id)).collect();
    rows.sort_by_key(|row| (Reverse(row.at), row.id));
    rows.truncate(SETTLED_MAX);
    rows
}

fn row(state: &State, id: DecisionId) -> Option<DecisionRow> {
    let (task, conv, due, at) = match id {
        DecisionId::Question(id) => {
            let known = state.escalations.get(&id)?;
            (known.task, Some(known.conv), known.expires_at.get(), known.at)
        }
        DecisionId::Call(id) => {
            let known = state.approvals.get(&id)?;
            let conv = known.task.and_then(|task| state.tasks.get(&task)).map(|task| task.conv);
            (known.task, conv, Some(known.expires_at), known.at)
        }
        DecisionId::Latch(id) => {
            let known = state.incidents.get(&id)?;
            (None, latched_conv(state, known), closes_at(state, known), known.at)
        }
    };
    let priority = task.map_or(Priority::Normal, |task| priority(state, task));
    // What an agent waits for in its turn ends with the turn.
    let waits = match id {
        DecisionId::Question(id) => state.escalations.get(&id).is_some_and(|one| one.cause == EscalationCause::Asked),
        DecisionId::Call(_) => true,
        DecisionId::Latch(_) => false,
    };
    let lease_until = task.filter(|_| waits).and_then(|task| views::lease_until(state, task));
    let due = due.into_iter().chain(lease_until).min();
    let caller = if let DecisionId::Call(id) = id { state.approvals.get(&id) } else { None };
    let caller = caller.and_then(|known| state.agent(known.agent));
    let agent_state = caller.and_then(|agent| {
        let scopes = [(PausedScope::Workspace, state.running), (PausedScope::Agent, agent.running)];
        scopes.into_iter().find(|(_, running)| *running != Running::Active)
    });
    let held = match id {
        DecisionId::Question(_) | DecisionId::Call(_) => Vec::new(),
        DecisionId::Latch(id) => views::held_tasks(state, state.incidents.get(&id)?),
    };
    let chain = chain(state, task.or_else(|| held.first().copied()));
    let held = held.iter().take(HELD_MAX).filter_map(|task| Some(link(state, state.tasks.get(task)?))).collect();
    Some(DecisionRow {
        id,
        task,
        conv,
        due,
        lease_until,
        agent_state,
        priority,
        at,
        chain,
        held,
        risk: None,
        alike: Vec::new(),
    })
}

/// Returns the time at which work that an open incident holds ends, if no human lifts it (D8).
fn closes_at(state: &State, incident: &Incident) -> Option<Time> {
    match incident.on {
        IncidentOn::Latch(on) if incident.lifted.is_none() => state.held_work_ends_at(on),
        IncidentOn::Latch(_) | IncidentOn::Agent(_) => None,
    }
}

/// Returns the conversation whose resume lifts a latch.
fn latched_conv(state: &State, incident: &Incident) -> Option<ConvId> {
    match incident.on {
        IncidentOn::Latch(Latched::Grant(grant)) => state.grants.get(&grant).map(|grant| grant.conv),
        IncidentOn::Latch(Latched::Place(Place::Conversation(conv))) => Some(conv),
        IncidentOn::Latch(Latched::Place(Place::Room(_))) | IncidentOn::Agent(_) => None,
    }
}

fn priority(state: &State, task: TaskId) -> Priority {
    let request = state.tasks.get(&task).and_then(|task| task.request.as_ref());
    request.map_or(Priority::Normal, |request| request.priority)
}

/// Returns the requests that led to a task, from the root on; at most as many as the hop limit allows (D4).
pub(super) fn chain(state: &State, task: Option<TaskId>) -> Vec<RequestLink> {
    let first = task.and_then(|task| state.tasks.get(&task));
    let above = std::iter::successors(first, |task| match task.asker {
        lastword_core::state::Asker::Task { task, .. } => state.tasks.get(&task),
        lastword_core::state::Asker::Nobody | lastword_core::state::Asker::Human(_) => None,
    });
    let mut links: Vec<RequestLink> = above.map(|task| link(state, task)).collect();
    links.reverse();
    links
}

fn link(state: &State, task: &Task) -> RequestLink {
    RequestLink {
        from: task.asker.agent().map(|agent| state.name_of(agent).to_owned()),
        to: state.name_of(task.agent).to_owned(),
        reference: state.ref_of(task.conv).map_or_else(String::new, ToString::to_string),
        message: task.request.as_ref().map(|request| request.message),
    }
}

async fn filled(ctx: &Context, caller: Caller, rows: Vec<DecisionRow>) -> Result<Vec<Decision>, ApiError> {
    let ids: Vec<(DecisionId, Option<TaskId>)> = rows.iter().map(|row| (row.id, row.task)).collect();
    let questions = ids.iter().filter_map(|(id, _)| if let DecisionId::Question(id) = id { Some(*id) } else { None });
    let (questions, _) = escalations::within(ctx, questions.collect(), PAGE_BYTES_MAX).await?;
    let calls = ids.iter().filter_map(|(id, _)| if let DecisionId::Call(id) = id { Some(*id) } else { None });
    let calls = approvals::by_ids(ctx, caller, calls.collect()).await?;
    let look = move |live: &Live<'_>| {
        let latches = ids.iter().filter_map(|(id, _)| if let DecisionId::Latch(id) = id { Some(*id) } else { None });
        let latches = latches.filter_map(|id| Some(views::incident(live.state, id, live.state.incidents.get(&id)?)));
        let timed_out = ids.iter().filter_map(|(id, task)| timed_out(live.state, *id, (*task)?));
        (latches.collect::<Vec<_>>(), timed_out.collect::<Vec<_>>())
    };
    let (latches, timed_out) = ctx.handle.query(look).await?;
    let requests =
        rows.iter().flat_map(|row| row.chain.last().into_iter().chain(&row.held)).filter_map(|link| link.message);
    let texts = subjects::texts(ctx, requests.chain(timed_out.iter().map(|one| one.message)).collect()).await?;
    let mut asked: BTreeMap<String, Asked> = questions
        .into_iter()
        .map(|view| Asked::Question(Box::new(view)))
        .chain(calls.into_iter().map(|view| Asked::Call(Box::new(view))))
        .chain(latches.into_iter().map(|view| Asked::Latch(Box::new(view))))
        .map(|asked| (asked.id().to_owned(), asked))
        .collect();
    let mut timed_out: BTreeMap<String, TimedOut> =
        timed_out.into_iter().map(|one| (one.escalation.to_string(), one.told(&texts))).collect();
    let decision = |row: DecisionRow| {
        let id = row.id.to_string();
        let seq = row.chain.last().and_then(|link| link.message);
        let request = seq.and_then(|seq| Some((seq, texts.get(&seq)?.clone())));
        let (asked, timed_out) = (asked.remove(&id)?, timed_out.remove(&id));
        let text = |link: &RequestLink| link.message.and_then(|seq| texts.get(&seq).cloned()).unwrap_or_default();
        let held = row.held.iter().map(|link| (link.clone(), text(link))).collect();
        let DecisionRow { due, lease_until, agent_state, priority, chain, risk, alike, .. } = row;
        Some(Decision { asked, due, lease_until, agent_state, priority, chain, request, timed_out, held, risk, alike })
    };
    Ok(rows.into_iter().filter_map(decision).collect())
}

/// A request that timed out, before its text is read.
struct TimeOut {
    escalation: EscalationId,
    agent: String,
    others: Vec<String>,
    message: Seq,
}

impl TimeOut {
    fn told(self, texts: &BTreeMap<Seq, String>) -> TimedOut {
        let subject = texts.get(&self.message).map(|text| subjects::first_line(text)).unwrap_or_default();
        TimedOut { agent: self.agent, others: self.others, subject, message: self.message }
    }
}

fn timed_out(state: &State, id: DecisionId, task: TaskId) -> Option<TimeOut> {
    let DecisionId::Question(escalation) = id else { return None };
    let known: &Escalation = state.escalations.get(&escalation)?;
    let task = state.tasks.get(&task).filter(|_| known.cause == EscalationCause::TimedOut)?;
    let other = |id: &AgentId| *id != task.agent && state.agent(*id).is_some_and(|agent| !agent.is_human());
    let others = state.live_by_name().into_iter().filter(other).map(|id| state.name_of(id).to_owned()).collect();
    let agent = state.name_of(task.agent).to_owned();
    Some(TimeOut { escalation, agent, others, message: task.request.as_ref()?.message })
}
