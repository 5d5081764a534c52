//! The decisions that wait for a human, in the order of their urgency, with the work that they hold up.

use std::cmp::Reverse;

use lastword_proto::ids::{ApprovalId, EscalationId, TaskId};
use lastword_proto::state::{ApprovalState, EscalationState};
use lastword_proto::wire::{ApprovalView, EscalationView, StoredMessage};
use lastword_proto::{Priority, Seq, State, Time};

use super::{Caller, Context, approvals, escalations};
use crate::broker::Live;
use crate::error::ApiError;
use crate::views::{self, Shown};

/// The most settled decisions in the list.
const SETTLED_MAX: usize = 20;
/// The most unread messages in the list.
const UNREAD_MAX: usize = 50;

/// A question or a held call.
pub(crate) enum Asked {
    /// An agent's question, or a request that timed out for good.
    Question(Box<EscalationView>),
    /// A held tool call.
    Call(Box<ApprovalView>),
}

/// A pending or settled decision, and the work that it belongs to.
pub(crate) struct Decision {
    /// The question or held call.
    pub(crate) asked: Asked,
    /// The priority of the request that it holds up.
    pub(crate) priority: Priority,
    /// The requests that led to it, from the root on.
    pub(crate) chain: Vec<RequestLink>,
    /// The body of the first of these requests.
    pub(crate) root: Option<String>,
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
    /// Its depth in that conversation; `None` for a task without a request.
    pub(crate) depth: Option<u8>,
    message: Option<Seq>,
}

/// The lists of the console's inbox.
pub(crate) struct Decisions {
    /// The pending decisions: by priority, and within a priority the newest first.
    pub(crate) waiting: Vec<Decision>,
    /// The decisions settled last, newest first.
    pub(crate) settled: Vec<Decision>,
    /// The messages to the caller that it has not taken yet, newest first.
    pub(crate) unread: Vec<StoredMessage>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Id {
    Question(EscalationId),
    Call(ApprovalId),
}

/// A decision with the values that order the list: its priority, its time, and its chain of requests.
type Row = (Id, Priority, Time, Vec<RequestLink>);

/// Returns the number of decisions that wait for a human.
pub(crate) async fn waiting(ctx: &Context) -> Result<usize, ApiError> {
    Ok(ctx.handle.query(|live| open(live.state)).await?.len())
}

/// Returns the ids of all pending decisions (`true` marks a question), so that a change can be noticed by comparing.
pub(crate) fn open(state: &State) -> Vec<(bool, u64)> {
    let questions = state.escalations.iter().filter(|(_, known)| known.state == EscalationState::Open);
    let calls = state.approvals.iter().filter(|(_, known)| known.state == ApprovalState::Pending);
    let questions = questions.map(|(id, _)| (true, id.0));
    questions.chain(calls.map(|(id, _)| (false, id.0))).collect()
}

/// Lists the pending decisions, those settled last, and the caller's unread messages.
pub(crate) async fn list(ctx: &Context, caller: Caller) -> Result<Decisions, ApiError> {
    caller.human()?;
    let agent = caller.principal.agent();
    let look = move |live: &Live<'_>| {
        let notices = live.state.agent(agent).map(|human| &human.notices);
        let unread: Vec<Seq> = notices.into_iter().flatten().rev().map(|(seq, _)| *seq).take(UNREAD_MAX).collect();
        (rows(live.state, true), rows(live.state, false), unread)
    };
    let (waiting, mut settled, unread) = ctx.handle.query(look).await?;
    settled.truncate(SETTLED_MAX);
    let shown = views::show(&ctx.handle, unread).await?;
    Ok(Decisions {
        waiting: filled(ctx, caller, waiting).await?,
        settled: filled(ctx, caller, settled).await?,
        unread: shown.into_iter().filter_map(Shown::stored).collect(),
    })
}

fn rows(state: &State, waiting: bool) -> Vec<Row> {
    let questions = state.escalations.iter().rev();
    let questions = questions.filter(|(_, known)| (known.state == EscalationState::Open) == waiting);
    let questions = questions.map(|(id, known)| (Id::Question(*id), known.task, known.at));
    let calls = state.approvals.iter().rev();
    let calls = calls.filter(|(_, known)| (known.state == ApprovalState::Pending) == waiting);
    let calls = calls.map(|(id, known)| (Id::Call(*id), known.task, known.at));
    // Only the newest settled decisions of each kind can be among the newest of both.
    let max = if waiting { usize::MAX } else { SETTLED_MAX };
    let mut rows: Vec<Row> = questions
        .take(max)
        .chain(calls.take(max))
        .map(|(id, task, at)| (id, task.map_or(Priority::Normal, |task| priority(state, task)), at, chain(state, task)))
        .collect();
    // A settled decision's priority no longer matters: those are ordered by time alone.
    rows.sort_by_key(|(id, priority, at, _)| (waiting.then_some(*priority), Reverse(*at), *id));
    rows
}

fn priority(state: &State, task: TaskId) -> Priority {
    let request = state.tasks.get(&task).and_then(|task| task.request.as_ref());
    request.map_or(Priority::Normal, |request| request.priority)
}

/// Returns the requests that led to a task, from the root on; at most as many as the hop limit allows (D4).
pub(super) fn chain(state: &State, task: Option<TaskId>) -> Vec<RequestLink> {
    let first = task.and_then(|task| state.tasks.get(&task));
    let above = std::iter::successors(first, |task| match task.asker {
        lastword_proto::state::Asker::Task { task, .. } => state.tasks.get(&task),
        lastword_proto::state::Asker::Nobody | lastword_proto::state::Asker::Human(_) => None,
    });
    let mut links: Vec<RequestLink> = above
        .map(|task| RequestLink {
            from: task.asker.agent().map(|agent| state.name_of(agent).to_owned()),
            to: state.name_of(task.agent).to_owned(),
            reference: state.ref_of(task.conv).map_or_else(String::new, ToString::to_string),
            depth: task.request.as_ref().map(|request| request.depth),
            message: task.request.as_ref().map(|request| request.message),
        })
        .collect();
    links.reverse();
    links
}

async fn filled(ctx: &Context, caller: Caller, rows: Vec<Row>) -> Result<Vec<Decision>, ApiError> {
    let questions = rows.iter().filter_map(|row| if let Id::Question(id) = row.0 { Some(id) } else { None }).collect();
    let questions = escalations::by_ids(ctx, questions).await?;
    let calls = rows.iter().filter_map(|row| if let Id::Call(id) = row.0 { Some(id) } else { None }).collect();
    let calls = approvals::by_ids(ctx, caller, calls).await?;
    let mut roots: Vec<Seq> = rows.iter().filter_map(|row| row.3.first()?.message).collect();
    roots.sort_unstable();
    roots.dedup();
    let roots = views::show(&ctx.handle, roots).await?;
    let text = |seq: Option<Seq>| {
        let shown = roots.iter().find(|shown| Some(shown.seq()) == seq)?;
        shown.message().map(|message| message.body.to_string())
    };
    let (mut questions, mut calls) = (questions.into_iter(), calls.into_iter());
    let decisions = rows.into_iter().filter_map(|(id, priority, _, chain)| {
        let asked = match id {
            Id::Question(_) => Asked::Question(Box::new(questions.next()?)),
            Id::Call(_) => Asked::Call(Box::new(calls.next()?)),
        };
        let root = chain.first().and_then(|link| text(link.message));
        Some(Decision { asked, priority, chain, root })
    });
    Ok(decisions.collect())
}
