//! The history of one conversation.

use std::sync::Arc;

use lastword_proto::ids::{ConvId, TaskId};
use lastword_proto::wire::{ConversationView, Event, Problem, RefusedSend};
use lastword_proto::{Entry, Fact, Principal, Seq, State};
use lastword_store::{Cursor, RefusalFilter, SpentIn};

use super::decisions::{self, Decision, RequestLink};
use super::read_model::{ask, ask_fresh};
use super::{Caller, Context, conversations, subjects};
use crate::broker::Live;
use crate::error::ApiError;
use crate::views;

/// The most entries of a history; beyond that only the last ones are shown.
const LINES_MAX: usize = 2_000;

/// Adds up what several conversations spent.
pub(super) fn add_up(all: impl Iterator<Item = SpentIn>) -> SpentIn {
    all.fold(SpentIn::default(), |mut sum, one| {
        sum.add(one);
        sum
    })
}

/// One event in a conversation's history.
pub(crate) struct HistoryEntry {
    /// The event as the stream sends it.
    pub(crate) event: Event,
    /// The refusal, if the event is a refused message.
    pub(crate) refusal: Option<Problem>,
    /// The requests that led to a message or write refused in a turn, from the root on; empty for other events.
    pub(crate) chain: Vec<RequestLink>,
    /// The fact that the event is derived from.
    pub(crate) entry: Arc<Entry>,
}

/// A conversation, its descendants, and all their events.
pub(crate) struct History {
    /// The first line of its first message.
    pub(crate) subject: String,
    /// What its turns and those of its descendants spent.
    pub(crate) spent: SpentIn,
    /// The messages in it and its descendants.
    pub(crate) messages: u64,
    /// The open requests in it and its descendants.
    pub(crate) open_tasks: u64,
    /// The pending decisions that hold up its work, those that expire first at the top.
    pub(crate) waiting: Vec<Decision>,
    /// The conversation's number.
    pub(crate) conv: ConvId,
    /// Its participants, limits and status.
    pub(crate) view: ConversationView,
    /// The events of it and its descendants, oldest first.
    pub(crate) lines: Vec<HistoryEntry>,
    /// Whether earlier events were left out.
    pub(crate) cut: bool,
}

/// Returns the history of a conversation.
pub(crate) async fn of(ctx: &Context, caller: Caller, reference: &str) -> Result<History, ApiError> {
    caller.human()?;
    let conv = conversations::find(ctx, caller, reference).await?;
    let look = move |live: &Live<'_>| {
        let known = live.state.conversations.get(&conv)?;
        let convs = live.state.lineage_below(conv);
        let all = || convs.iter().filter_map(|conv| live.state.conversations.get(conv));
        let counts = (all().map(|conv| conv.messages).sum(), all().map(|conv| conv.open_tasks.len() as u64).sum());
        Some((views::conversation(live.state, conv, known), convs, counts))
    };
    let found = ctx.handle.query(look).await?;
    let (view, convs, (messages, open_tasks)) = found.ok_or_else(|| ApiError::unknown(reference))?;
    let waiting = decisions::in_conversations(ctx, caller, convs.clone()).await?;
    let subject = subjects::of(ctx, vec![conv]).await?.remove(&conv).unwrap_or_default();
    let below = convs.clone();
    let spent = add_up(ask_fresh(ctx, move |index| index.spent_in(&below)).await?.into_iter().map(|(_, spent)| spent));
    // Newest first: if there are too many entries, the last ones matter.
    let cursor = Cursor { limit: LINES_MAX + 1, ..Cursor::default() };
    let mut seqs = ask_fresh(ctx, move |index| index.history(&convs, cursor)).await?;
    let cut = seqs.len() > LINES_MAX;
    seqs.truncate(LINES_MAX);
    seqs.reverse();
    let entries = ctx.handle.entries(seqs).await?;
    let lines = told(ctx, caller, entries).await?;
    Ok(History { subject, spent, messages, open_tasks, waiting, conv, view, lines, cut })
}

/// Returns one event by its position, for example a message or a refusal.
pub(crate) async fn line(ctx: &Context, caller: Caller, id: &str) -> Result<HistoryEntry, ApiError> {
    caller.human()?;
    let seq = Seq::parse(id).ok_or_else(|| ApiError::unknown(id))?;
    let entries = ctx.handle.entries(vec![seq]).await?;
    told(ctx, caller, entries).await?.into_iter().next().ok_or_else(|| ApiError::unknown(id))
}

/// Returns the refusals in these conversations, each with the task in which the send was tried.
pub(super) async fn refusals(
    ctx: &Context,
    who: Principal,
    convs: Vec<ConvId>,
) -> Result<Vec<(Option<TaskId>, RefusedSend)>, ApiError> {
    // Newest first: if there are too many, the last ones matter.
    let cursor = Cursor { limit: LINES_MAX, ..Cursor::default() };
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

async fn told(ctx: &Context, caller: Caller, entries: Vec<(Seq, Arc<Entry>)>) -> Result<Vec<HistoryEntry>, ApiError> {
    let who = caller.principal;
    let look = move |live: &Live<'_>| -> Vec<_> {
        let draft = |(seq, entry): (Seq, Arc<Entry>)| {
            Some((views::event(live.state, who, seq, &entry)?, led_to(live.state, &entry.fact), entry))
        };
        entries.into_iter().filter_map(draft).collect()
    };
    let drafts = ctx.handle.query(look).await?;
    let line = |(draft, chain, entry): (views::EventDraft, Vec<RequestLink>, Arc<Entry>)| {
        let refusal = if let Fact::Refused { refusal, .. } = &entry.fact { Some(Problem::new(refusal)) } else { None };
        HistoryEntry { event: draft.finish(), refusal, chain, entry }
    };
    Ok(drafts.into_iter().map(line).collect())
}

/// Returns the requests that led to a refused message or write.
fn led_to(state: &State, fact: &Fact) -> Vec<RequestLink> {
    let (Fact::Refused { turn: Some(turn), .. } | Fact::WriteRefused { turn: Some(turn), .. }) = fact else {
        return Vec::new();
    };
    decisions::chain(state, state.turns.get(turn).map(|turn| turn.task))
}
