//! A conversation as a tree: its messages, the cost of each request, and the refusals and questions on the way.

use std::collections::BTreeMap;
use std::sync::Arc;

use lastword_broker::Live;
use lastword_core::Principal;
use lastword_facts::fact::Part;
use lastword_facts::ids::{ConvId, EscalationId, TaskId, TurnId};
use lastword_facts::{Entry, Message, Seq, Time};
use lastword_store::{Cursor, Filter, RefusalFilter, TurnTokens};
use lastword_wire::{ConversationView, EscalationView, RefusedSend, TreeNode};

use super::audit::{PAGE_BYTES_MAX, readable};
use super::conversations::find;
use super::read_model::{ask, fresh};
use super::{Caller, Context, escalations};
use crate::error::ApiError;
use crate::views::{self, Shown};

/// The most messages in one tree.
const TREE_MAX: usize = 2_000;
/// The most refusals in a conversation's tree; beyond that only the last ones are shown.
const REFUSALS_MAX: usize = 2_000;
/// The most bytes of texts in the tree for a model, which reads all of it.
pub const MODEL_BYTES_MAX: usize = 64 << 10;

/// Returns a conversation as a tree, including its children: its first messages, with at most this many bytes.
pub async fn conversation(
    ctx: &Context,
    caller: Caller,
    reference: &str,
    bytes_max: usize,
) -> Result<ConversationView, ApiError> {
    let conv = find(ctx, caller, reference).await?;
    let here = ctx.clone();
    let look = move |live: &Live<'_>| {
        let known = live.state.conversations.get(&conv)?;
        Some((
            views::conversation(&here.traces, here.handle.signer(), live.state, conv, known),
            live.state.lineage_below(conv),
        ))
    };
    let found = ctx.handle.query(look).await?;
    let (mut view, convs) = found.ok_or_else(|| ApiError::unknown(reference))?;
    let cursor = Cursor { ascending: true, limit: TREE_MAX, ..Cursor::default() };
    view.behind = fresh(ctx).await;
    let filter = Filter { convs: Some(convs.clone()), cursor, ..Filter::default() };
    let seqs = ask(ctx, move |index| index.messages(&filter)).await?;
    let all = seqs.len();
    let (shown, cut) = views::show_within(&ctx.handle, seqs, bytes_max).await?;
    view.left_out = if cut.is_some() { (all - shown.len()) as u64 } else { 0 };
    let shown = readable(ctx, caller.principal, shown).await?;
    let mut served = served(ctx, &shown).await?;
    let refused = refusals(ctx, caller.principal, convs.clone()).await?;
    view.tree = views::tree(shown.into_iter().filter_map(Shown::stored).collect());
    for (task, refusal) in refused {
        match task.and_then(|task| served.get_mut(&task)) {
            Some(served) => served.refusals.push(refusal),
            // Refused outside of a task shown here, so it belongs to the conversation as a whole.
            None => view.refusals.push(refusal),
        }
    }
    for (task, question) in questions(ctx, caller, convs).await? {
        match task.and_then(|task| served.get_mut(&task)) {
            Some(served) => served.questions.push(question),
            None => view.questions.push(question),
        }
    }
    let mut by_message = served.into_values().map(|served| (served.message.to_string(), served)).collect();
    annotate(&mut view.tree, &mut by_message);
    Ok(view)
}

/// What one request took until it was answered.
struct Served {
    message: Seq,
    turns: Vec<TurnId>,
    tokens: u64,
    estimated: bool,
    duration_ms: Option<u64>,
    refusals: Vec<RefusedSend>,
    questions: Vec<EscalationView>,
}

/// Returns the questions to humans in these conversations, oldest first, each with the task that asked. An agent sees
/// its own.
async fn questions(
    ctx: &Context,
    caller: Caller,
    convs: Vec<ConvId>,
) -> Result<Vec<(Option<TaskId>, EscalationView)>, ApiError> {
    let who = caller.principal;
    let look = move |live: &Live<'_>| -> Vec<(EscalationId, Option<TaskId>)> {
        let mine = live.state.escalations.iter().filter(|(_, known)| who.is_human() || known.agent == who.agent());
        let asked = mine.filter(|(_, known)| convs.contains(&known.conv));
        asked.map(|(id, known)| (*id, known.task)).collect()
    };
    let (ids, tasks): (Vec<_>, Vec<_>) = ctx.handle.query(look).await?.into_iter().unzip();
    let known: BTreeMap<String, Option<TaskId>> = ids.iter().map(ToString::to_string).zip(tasks).collect();
    let (views, _) = escalations::within(ctx, ids, PAGE_BYTES_MAX).await?;
    Ok(views.into_iter().map(|view| (known.get(&view.id).copied().flatten(), view)).collect())
}

/// Returns the refusals in these conversations, each with the task in which the send was tried.
async fn refusals(
    ctx: &Context,
    who: Principal,
    convs: Vec<ConvId>,
) -> Result<Vec<(Option<TaskId>, RefusedSend)>, ApiError> {
    // Newest first: if there are too many, the last ones matter.
    let cursor = Cursor { limit: REFUSALS_MAX, ..Cursor::default() };
    let agent = (!who.is_human()).then(|| who.agent());
    let filter = RefusalFilter { convs: Some(convs), agent, cursor, ..RefusalFilter::default() };
    let mut seqs = ask(ctx, move |index| index.refusals(&filter)).await?;
    seqs.reverse();
    let entries = ctx.handle.entries(seqs).await?;
    let look = move |live: &Live<'_>| {
        let state = live.state;
        let one = |(seq, entry): &(Seq, Arc<Entry>)| {
            let (_, turn, refusal) = views::refused(state, *seq, &entry.fact)?;
            let task = turn.and_then(|turn| state.turns.get(&turn)).map(|turn| turn.task);
            Some((task, refusal))
        };
        entries.iter().filter_map(one).collect()
    };
    Ok(ctx.handle.query(look).await?)
}

/// Returns what each request among the messages took, by task.
async fn served(ctx: &Context, shown: &[Shown]) -> Result<BTreeMap<TaskId, Served>, ApiError> {
    let sent: Vec<(Seq, Time, TaskId)> = shown.iter().filter_map(requested).collect();
    let answered: BTreeMap<TaskId, Time> = shown.iter().filter_map(answered).collect();
    let look = move |live: &Live<'_>| -> BTreeMap<TaskId, Served> {
        let one = |(message, at, task): (Seq, Time, TaskId)| {
            let turns = live.state.tasks.get(&task).map_or_else(Vec::new, |task| task.turns.to_vec());
            let duration_ms = answered.get(&task).map(|end| end.since(at));
            let (refusals, questions) = (Vec::new(), Vec::new());
            (task, Served { message, turns, tokens: 0, estimated: false, duration_ms, refusals, questions })
        };
        sent.into_iter().map(one).collect()
    };
    let mut served = ctx.handle.query(look).await?;
    let turns: Vec<TurnId> = served.values().flat_map(|served| served.turns.iter().copied()).collect();
    let spent: BTreeMap<TurnId, TurnTokens> = ask(ctx, move |index| index.spends(&turns)).await?.into_iter().collect();
    for one in served.values_mut() {
        for turn in one.turns.iter().filter_map(|turn| spent.get(turn)) {
            one.tokens = one.tokens.saturating_add(turn.tokens);
            one.estimated |= turn.estimated;
        }
    }
    Ok(served)
}

fn requested(shown: &Shown) -> Option<(Seq, Time, TaskId)> {
    let message: &Message = shown.message()?;
    if let Part::Request(terms) = &message.part { Some((shown.seq, shown.at(), terms.task)) } else { None }
}

fn answered(shown: &Shown) -> Option<(TaskId, Time)> {
    let message: &Message = shown.message()?;
    if let Part::Answer(answer) = &message.part { Some((answer.task, shown.at())) } else { None }
}

/// Adds to each node what its request took. The recursion is bounded by the tree's nesting.
fn annotate(nodes: &mut [TreeNode], served: &mut BTreeMap<String, Served>) {
    for node in nodes {
        if let Some(found) = served.remove(&node.message.id) {
            node.turns = found.turns.len() as u64;
            node.tokens = found.tokens;
            node.estimated = found.estimated;
            node.duration_ms = found.duration_ms;
            node.refusals = found.refusals;
            node.questions = found.questions;
        }
        annotate(&mut node.children, served);
    }
}
