//! Conversations, found by what was said in them, and the whole history of one.

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

/// Conversations on one page of the list.
const PAGE: usize = audit::PAGE_DEFAULT;
/// Lines of a history at once, the last ones.
const LINES_MAX: usize = 2_000;

/// The filters of the list, all of which a conversation has to pass.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    /// A part of its REF.
    #[serde(rename = "ref", default)]
    pub(crate) reference: String,
    /// Somebody who said something in it.
    #[serde(default)]
    pub(crate) from: String,
    /// Somebody to whom something was said in it.
    #[serde(default)]
    pub(crate) to: String,
    /// A type of message.
    #[serde(rename = "type", default)]
    pub(crate) kind: String,
    /// A depth of a message.
    #[serde(default)]
    pub(crate) depth: String,
    /// How it stands: `active`, `idle`, `paused`, `stopped` or `latched`.
    #[serde(default)]
    pub(crate) state: String,
    /// Words of a message.
    #[serde(default)]
    pub(crate) q: String,
    /// Where the page before ended.
    #[serde(default)]
    pub(crate) cursor: String,
}

/// One page of the list.
pub(crate) struct Listed {
    /// Its conversations, with participants and limits and without a tree; the one of the last activity first.
    pub(crate) items: Vec<ConversationView>,
    /// The cursor of the next page.
    pub(crate) next: Option<String>,
}

/// The conversations that pass the filters, by their last activity. With a filter on messages, that is the last message
/// which passes it.
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

/// The cursor: a moment or position, and the conversation that had it.
type Position = (u64, u32);

fn cursor(text: &str) -> Result<Option<Position>, FieldError> {
    if text.is_empty() {
        return Ok(None);
    }
    let parts = text.split_once('-').and_then(|(at, conv)| Some((at.parse().ok()?, conv.parse().ok()?)));
    parts.map(Some).ok_or_else(|| FieldError::new("cursor", "is not one of ours"))
}

/// What is asked of the messages.
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

/// What is asked of the conversations themselves.
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

/// Only as many as the page has are kept while looking through, so that the broker is not held up.
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

/// One thing that happened in a conversation.
pub(crate) struct HistoryEntry {
    /// What.
    pub(crate) event: Event,
    /// Why a message was refused.
    pub(crate) refusal: Option<Problem>,
    /// Refused in a turn: the requests that led to it, from the root on.
    pub(crate) chain: Vec<RequestLink>,
    /// Its fact.
    pub(crate) entry: Arc<Entry>,
}

/// A conversation, those opened from it, and what happened in them.
pub(crate) struct History {
    /// Its number.
    pub(crate) conv: ConvId,
    /// How it stands.
    pub(crate) view: ConversationView,
    /// What happened, oldest first.
    pub(crate) lines: Vec<HistoryEntry>,
    /// Whether there was more before it.
    pub(crate) cut: bool,
}

/// The history of a conversation.
pub(crate) async fn of(ctx: &Context, caller: Caller, reference: &str) -> Result<History, ApiError> {
    caller.human()?;
    let conv = conversations::find(ctx, caller, reference).await?;
    let look = move |live: &Live<'_>| {
        let known = live.state.conversations.get(&conv)?;
        Some((views::conversation(live.state, conv, known), live.state.lineage_below(conv)))
    };
    let (view, convs) = ctx.handle.query(look).await?.ok_or_else(|| ApiError::unknown(reference))?;
    // Where there is too much, the end is what matters.
    let cursor = Cursor { limit: LINES_MAX + 1, ..Cursor::default() };
    let mut seqs = ask_fresh(ctx, move |index| index.history(&convs, cursor)).await?;
    let cut = seqs.len() > LINES_MAX;
    seqs.truncate(LINES_MAX);
    seqs.reverse();
    let entries = ctx.handle.entries(seqs).await?;
    Ok(History { conv, view, lines: told(ctx, caller, entries).await?, cut })
}

/// One thing that happened, by its position; a message or a refusal, for instance.
pub(crate) async fn line(ctx: &Context, caller: Caller, id: &str) -> Result<HistoryEntry, ApiError> {
    caller.human()?;
    let seq = Seq::parse(id).ok_or_else(|| ApiError::unknown(id))?;
    let entries = ctx.handle.entries(vec![seq]).await?;
    told(ctx, caller, entries).await?.into_iter().next().ok_or_else(|| ApiError::unknown(id))
}

/// What was refused in these conversations, each with the task that tried.
pub(super) async fn refusals(
    ctx: &Context,
    who: Principal,
    convs: Vec<ConvId>,
) -> Result<Vec<(Option<TaskId>, RefusedSend)>, ApiError> {
    // Where there are too many, the last ones matter.
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

/// How it came to what was refused.
fn led_to(state: &State, fact: &Fact) -> Vec<RequestLink> {
    let Fact::Refused { turn: Some(turn), .. } = fact else { return Vec::new() };
    decisions::chain(state, state.turns.get(turn).map(|turn| turn.task))
}
