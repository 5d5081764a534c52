//! The list of conversations with its filters, and the history of one conversation.

use std::sync::Arc;

use lastword_proto::ids::{ConvId, TaskId};
use lastword_proto::state::Conversation;
use lastword_proto::wire::{ConversationStatus, ConversationView, Event, FieldError, Problem, RefusedSend};
use lastword_proto::{Entry, Fact, Principal, Seq, State};
use lastword_store::{Cursor, Filter, RefusalFilter};
use serde::Deserialize;

use super::audit::{self, AuditParams};
use super::decisions::{self, RequestLink};
use super::read_model::{ask, ask_fresh};
use super::{Caller, Context, conversations};
use crate::broker::Live;
use crate::error::ApiError;
use crate::views;

/// Conversations per page of the list.
const PAGE: usize = audit::PAGE_DEFAULT;
/// The most entries of a history; beyond that only the last ones are shown.
const LINES_MAX: usize = 2_000;

/// The filters of the list. A conversation must pass all of them; empty ones are ignored.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    /// A part of its REF, in any case.
    #[serde(rename = "ref", default)]
    pub(crate) reference: String,
    /// The name of a sender of one of its messages.
    #[serde(default)]
    pub(crate) from: String,
    /// The name of a recipient of one of its messages.
    #[serde(default)]
    pub(crate) to: String,
    /// The type of one of its messages.
    #[serde(rename = "type", default)]
    pub(crate) kind: String,
    /// The depth of one of its messages.
    #[serde(default)]
    pub(crate) depth: String,
    /// Its status: `active`, `idle`, `paused`, `stopped` or `latched`.
    #[serde(default)]
    pub(crate) state: String,
    /// Words in one of its messages.
    #[serde(default)]
    pub(crate) q: String,
    /// The cursor that the previous page returned.
    #[serde(default)]
    pub(crate) cursor: String,
}

/// One page of the list.
pub(crate) struct Listed {
    /// The conversations with participants and limits, without their trees; the most recently active first.
    pub(crate) items: Vec<ConversationView>,
    /// The cursor of the next page; `None` on the last.
    pub(crate) next: Option<String>,
}

/// Lists the conversations that pass the filters, by their last activity. With a filter on messages, that is the last
/// message that passes it.
pub(crate) async fn list(ctx: &Context, caller: Caller, params: ListParams) -> Result<Listed, ApiError> {
    caller.human()?;
    let said = !(params.from.is_empty()
        && params.to.is_empty()
        && params.kind.is_empty()
        && params.depth.is_empty()
        && params.q.trim().is_empty());
    let before = cursor(&params.cursor)?;
    let wanted = Wanted::of(&params)?;
    if !said {
        return Ok(ctx.handle.query(move |live| by_activity(live.state, &wanted, before)).await?);
    }
    let Some(filter) = audit::filter(ctx, &asked(&params)?, PAGE + 1).await? else {
        return Ok(Listed { items: Vec::new(), next: None });
    };
    let limited = wanted.limits();
    let candidates = move |live: &Live<'_>| -> Option<Vec<ConvId>> {
        let all = live.state.conversations.range(..);
        limited.then(|| all.filter(|(_, conv)| wanted.admits(live.state, conv)).map(|(id, _)| id).collect())
    };
    let convs = ctx.handle.query(candidates).await?;
    let before = before.map(|(position, _)| Seq(position));
    let filter = Filter { convs, cursor: Cursor { before, limit: PAGE + 1, ..Cursor::default() }, ..filter };
    let mut found = ask_fresh(ctx, move |index| index.conversations(&filter)).await?;
    let more = found.len() > PAGE;
    found.truncate(PAGE);
    let next = found.last().filter(|_| more).map(|(conv, seq)| format!("{}-{}", seq.0, conv.0));
    let look = move |live: &Live<'_>| {
        let known = found.iter().filter_map(|(id, _)| live.state.conversations.get(id));
        known.map(|conv| views::listed(live.state, conv)).collect()
    };
    Ok(Listed { items: ctx.handle.query(look).await?, next })
}

/// The cursor: a time or position, and the conversation that had it.
type Position = (u64, u32);

fn cursor(text: &str) -> Result<Option<Position>, FieldError> {
    if text.is_empty() {
        return Ok(None);
    }
    let parts = text.split_once('-').and_then(|(at, conv)| Some((at.parse().ok()?, conv.parse().ok()?)));
    parts.map(Some).ok_or_else(|| FieldError::new("cursor", "is not one of ours"))
}

/// Returns the part of the filters that concerns messages.
fn asked(params: &ListParams) -> Result<AuditParams, FieldError> {
    let filled = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
    let depth = filled(&params.depth).map(|text| text.parse().map_err(|_| FieldError::new("depth", "is no number")));
    Ok(AuditParams {
        from: filled(&params.from),
        to: filled(&params.to),
        kind: filled(&params.kind),
        depth: depth.transpose()?,
        q: filled(&params.q),
        ..AuditParams::default()
    })
}

/// The part of the filters that concerns the conversations themselves.
struct Wanted {
    reference: String,
    state: Option<ConversationStatus>,
}

impl Wanted {
    fn of(params: &ListParams) -> Result<Self, FieldError> {
        let state = match params.state.as_str() {
            "" => None,
            asked => match ConversationStatus::ALL.into_iter().find(|standing| standing.word() == asked) {
                None => {
                    let words = ConversationStatus::ALL.map(ConversationStatus::word).join(", ");
                    return Err(FieldError::new("state", format!("{asked:?} is none of {words}")));
                }
                known => known,
            },
        };
        Ok(Self { reference: params.reference.trim().to_ascii_lowercase(), state })
    }

    const fn limits(&self) -> bool {
        !self.reference.is_empty() || self.state.is_some()
    }

    fn admits(&self, state: &State, conv: &Conversation) -> bool {
        let named = self.reference.is_empty() || conv.reference.as_str().to_ascii_lowercase().contains(&self.reference);
        named && self.state.is_none_or(|wanted| wanted == views::standing(state, conv))
    }
}

/// Returns one page by last activity. Keeps no more than a page while scanning, to hold up the broker as little as
/// possible.
fn by_activity(state: &State, wanted: &Wanted, before: Option<Position>) -> Listed {
    let mut page = std::collections::BinaryHeap::with_capacity(PAGE + 2);
    for (id, conv) in state.conversations.range(..) {
        let position = (conv.last_at.0, id.0);
        let worse = page.len() > PAGE && page.peek().is_some_and(|std::cmp::Reverse(least)| position < *least);
        if worse || before.is_some_and(|before| position >= before) || !wanted.admits(state, conv) {
            continue;
        }
        page.push(std::cmp::Reverse(position));
        if page.len() > PAGE + 1 {
            page.pop();
        }
    }
    let mut page: Vec<Position> = page.into_sorted_vec().into_iter().map(|std::cmp::Reverse(at)| at).collect();
    let more = page.len() > PAGE;
    page.truncate(PAGE);
    let next = page.last().filter(|_| more).map(|(at, conv)| format!("{at}-{conv}"));
    let known = page.iter().filter_map(|(_, id)| state.conversations.get(&ConvId(*id)));
    Listed { items: known.map(|conv| views::listed(state, conv)).collect(), next }
}

/// One event in a conversation's history.
pub(crate) struct HistoryEntry {
    /// The event as the stream sends it.
    pub(crate) event: Event,
    /// The refusal, if the event is a refused message.
    pub(crate) refusal: Option<Problem>,
    /// The requests that led to a message refused in a turn, from the root on; empty for other events.
    pub(crate) chain: Vec<RequestLink>,
    /// The fact that the event is derived from.
    pub(crate) entry: Arc<Entry>,
}

/// A conversation, its descendants, and all their events.
pub(crate) struct History {
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
        Some((views::conversation(live.state, conv, known), live.state.lineage_below(conv)))
    };
    let (view, convs) = ctx.handle.query(look).await?.ok_or_else(|| ApiError::unknown(reference))?;
    // Newest first: if there are too many entries, the last ones matter.
    let cursor = Cursor { limit: LINES_MAX + 1, ..Cursor::default() };
    let mut seqs = ask_fresh(ctx, move |index| index.history(&convs, cursor)).await?;
    let cut = seqs.len() > LINES_MAX;
    seqs.truncate(LINES_MAX);
    seqs.reverse();
    let entries = ctx.handle.entries(seqs).await?;
    Ok(History { conv, view, lines: told(ctx, caller, entries).await?, cut })
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

/// Returns the requests that led to a refused message.
fn led_to(state: &State, fact: &Fact) -> Vec<RequestLink> {
    let Fact::Refused { turn: Some(turn), .. } = fact else { return Vec::new() };
    decisions::chain(state, state.turns.get(turn).map(|turn| turn.task))
}
