//! Looking back: messages by every field, and conversations.

use std::time::Duration;

use lastword_proto::ids::{AgentId, ConvId};
use lastword_proto::wire::{ConversationSummary, FieldError, Page, StoredMessage, parse_rfc3339};
use lastword_proto::{MessageType, Principal, Seq, Time};
use lastword_store::{Cursor, Filter, ReadError};
use serde::Deserialize;

use super::{Caller, Context};
use crate::broker::Live;
use crate::edges::ApiError;
use crate::views::{self, Shown};

const PAGE_DEFAULT: usize = 50;
const PAGE_MAX: usize = 500;
/// How long an audit waits for the read model to come up to the moment of the question.
const FRESH_WAIT: Duration = Duration::from_secs(2);

/// The parameters of `GET /v1/messages`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditParams {
    #[serde(rename = "ref")]
    pub(crate) reference: Option<String>,
    pub(crate) from: Option<String>,
    pub(crate) to: Option<String>,
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) depth: Option<u8>,
    pub(crate) since: Option<String>,
    pub(crate) until: Option<String>,
    pub(crate) q: Option<String>,
    pub(crate) limit: Option<usize>,
    pub(crate) cursor: Option<String>,
}

/// The messages that pass every filter and that `caller` may read, newest first.
pub(crate) async fn messages(
    ctx: &Context,
    caller: Caller,
    params: AuditParams,
) -> Result<Page<StoredMessage>, ApiError> {
    let limit = params.limit.unwrap_or(PAGE_DEFAULT).clamp(1, PAGE_MAX);
    let mut seqs = Vec::new();
    for filter in filters(ctx, caller.principal, &params, limit).await? {
        seqs.extend(search(ctx, filter).await?);
    }
    seqs.sort_unstable_by(|a, b| b.cmp(a));
    seqs.dedup();
    seqs.truncate(limit);
    let next = if seqs.len() == limit { seqs.last().map(|seq| seq.0.to_string()) } else { None };
    let shown = readable(ctx, caller.principal, views::show(&ctx.handle, seqs).await?).await?;
    let mut items: Vec<StoredMessage> = shown.into_iter().filter_map(Shown::stored).collect();
    name_forgotten(ctx, &mut items).await?;
    Ok(Page { items, next })
}

/// Gives messages of conversations that the state forgot their REFs, which the read model keeps.
async fn name_forgotten(ctx: &Context, items: &mut [StoredMessage]) -> Result<(), ApiError> {
    let forgotten: Vec<ConvId> = items.iter().filter_map(|item| ConvId::parse(&item.reference)).collect();
    if forgotten.is_empty() {
        return Ok(());
    }
    let index = ctx.index.clone();
    let run = move || index.refs(&forgotten).map_err(|e| ReadError::Unavailable { reason: e.to_string() });
    let names = crate::broker::off_thread(run).await?;
    for item in items {
        let conv = ConvId::parse(&item.reference);
        if let Some((_, name)) = names.iter().find(|(known, _)| Some(*known) == conv) {
            item.reference.clone_from(name);
        }
    }
    Ok(())
}

/// The filters for what a human or an agent asks: a human's cover every incarnation of a name and every conversation
/// that ever had the REF, an agent's those of now (§1).
async fn filters(ctx: &Context, who: Principal, params: &AuditParams, limit: usize) -> Result<Vec<Filter>, ApiError> {
    if !who.is_human() {
        return Ok(filter(ctx, params, limit).await?.into_iter().collect());
    }
    let unnamed = AuditParams { reference: None, from: None, to: None, ..params.clone() };
    let Some(mut filter) = filter(ctx, &unnamed, limit).await? else { return Ok(Vec::new()) };
    if let Some(reference) = params.reference.clone() {
        filter.convs = Some(convs_named(ctx, reference).await?);
    }
    let (from, to) = (params.from.clone(), params.to.clone());
    let look = move |live: &Live<'_>| (incarnations(live, from.as_deref()), incarnations(live, to.as_deref()));
    let (from, to) = ctx.handle.query(look).await?;
    let pairs = from.iter().flat_map(|from| to.iter().map(move |to| (*from, *to)));
    Ok(pairs.map(|(from, to)| Filter { from, to, ..filter.clone() }).collect())
}

/// Every conversation that ever had a REF, with all below it.
async fn convs_named(ctx: &Context, reference: String) -> Result<Vec<ConvId>, ApiError> {
    fresh(ctx).await;
    let (index, wanted) = (ctx.index.clone(), reference.clone());
    let run = move || index.named(&wanted).map_err(|e| ReadError::Unavailable { reason: e.to_string() });
    let mut convs = crate::broker::off_thread(run).await?;
    let below = move |live: &Live<'_>| live.state.conv_of(&reference).map(|conv| live.state.lineage_below(conv));
    convs.extend(ctx.handle.query(below).await?.unwrap_or_default());
    convs.sort_unstable();
    convs.dedup();
    Ok(convs)
}

/// The numbers of all who ever had a name; one that asks for nobody in particular where there is none.
fn incarnations(live: &Live<'_>, name: Option<&str>) -> Vec<Option<AgentId>> {
    match name {
        None => vec![None],
        Some("system") => vec![Some(lastword_proto::fact::SYSTEM)],
        Some(name) => {
            let same = live.state.agents.iter().enumerate().skip(1).filter(|(_, agent)| agent.name() == name);
            same.filter_map(|(id, _)| u32::try_from(id).ok()).map(|id| Some(AgentId(id))).collect()
        }
    }
}

/// One message.
pub(crate) async fn message(ctx: &Context, caller: Caller, id: &str) -> Result<StoredMessage, ApiError> {
    let unknown = || ApiError::unknown(id);
    let seq = Seq::parse(id).ok_or_else(unknown)?;
    let shown = views::show(&ctx.handle, vec![seq]).await?;
    let shown = readable(ctx, caller.principal, shown).await?;
    shown.into_iter().next().and_then(Shown::stored).ok_or_else(unknown)
}

/// Those of them that `who` may read.
pub(super) async fn readable(ctx: &Context, who: Principal, shown: Vec<Shown>) -> Result<Vec<Shown>, ApiError> {
    if who.is_human() {
        return Ok(shown);
    }
    let look = move |live: &Live<'_>| {
        let may = |shown: &Shown| shown.message().is_some_and(|m| views::may_read(live.state, who, m));
        shown.into_iter().filter(may).collect()
    };
    Ok(ctx.handle.query(look).await?)
}

/// Conversations, sender and recipient; each absent where it is not asked for.
type Numbers = (Option<Vec<ConvId>>, Option<AgentId>, Option<AgentId>);

/// The filter in the numbers of the log; `None` where a name is nobody's, which nothing can match.
pub(super) async fn filter(ctx: &Context, params: &AuditParams, limit: usize) -> Result<Option<Filter>, ApiError> {
    let kind = |text: &str| MessageType::from_word(text).ok_or_else(|| FieldError::new("type", "is none of the six"));
    let filter = Filter {
        kind: params.kind.as_deref().map(kind).transpose()?,
        depth: params.depth,
        since: moment("since", params.since.as_deref())?,
        until: moment("until", params.until.as_deref())?,
        text: params.q.clone(),
        cursor: Cursor { before: position(params.cursor.as_deref())?, limit, ..Cursor::default() },
        ..Filter::default()
    };
    let (reference, from, to) = (params.reference.clone(), params.from.clone(), params.to.clone());
    let look = move |live: &Live<'_>| -> Option<Numbers> {
        let agent = |name: Option<String>| match name.as_deref() {
            None => Some(None),
            Some("system") => Some(Some(lastword_proto::fact::SYSTEM)),
            Some(name) => live.state.names.get(name).copied().map(Some),
        };
        let convs = match reference.as_deref() {
            None => None,
            Some(text) => Some(live.state.lineage_below(live.state.conv_of(text)?)),
        };
        Some((convs, agent(from)?, agent(to)?))
    };
    let numbers = ctx.handle.query(look).await?;
    Ok(numbers.map(|(convs, from, to)| Filter { convs, from, to, ..filter }))
}

fn moment(field: &'static str, text: Option<&str>) -> Result<Option<Time>, FieldError> {
    let parse = |text| parse_rfc3339(text).ok_or_else(|| FieldError::new(field, "isn't an RFC 3339 time"));
    text.map(parse).transpose()
}

fn position(text: Option<&str>) -> Result<Option<Seq>, FieldError> {
    let parse = |text: &str| text.parse().map(Seq).map_err(|_| FieldError::new("cursor", "is not one of ours"));
    text.map(parse).transpose()
}

/// Waits until the read model is up to this moment.
pub(super) async fn fresh(ctx: &Context) {
    let now = *ctx.handle.committed().borrow();
    let mut indexed = ctx.indexed.clone();
    if *indexed.borrow() < now {
        ctx.hurry.notify_one();
    }
    // An audit that is a moment behind is better than none: what is there is shown when the wait is over.
    if tokio::time::timeout(FRESH_WAIT, indexed.wait_for(|seq| *seq >= now)).await.is_err() {
        tracing::warn!("the read model is behind the log");
    }
}

/// The positions of the messages that pass the filter, from a read model that is up to date.
pub(super) async fn search(ctx: &Context, filter: Filter) -> Result<Vec<Seq>, ApiError> {
    fresh(ctx).await;
    let index = ctx.index.clone();
    let run = move || index.messages(&filter).map_err(|e| ReadError::Unavailable { reason: e.to_string() });
    Ok(crate::broker::off_thread(run).await?)
}

/// Whether `who` may look into a conversation.
fn may_look(live: &Live<'_>, who: Principal, conv: ConvId) -> bool {
    who.is_human() || live.state.conversations.get(&conv).is_some_and(|c| c.has_part(who.agent()))
}

/// The parameters of `GET /v1/conversations`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    pub(crate) limit: Option<usize>,
    pub(crate) cursor: Option<String>,
}

/// The conversations that `caller` may see, newest first.
pub(crate) async fn conversations(
    ctx: &Context,
    caller: Caller,
    params: ListParams,
) -> Result<Page<ConversationSummary>, ApiError> {
    let limit = params.limit.unwrap_or(PAGE_DEFAULT).clamp(1, PAGE_MAX);
    let parse = |text: &str| ConvId::parse(text).ok_or_else(|| FieldError::new("cursor", "is not one of ours"));
    let before = params.cursor.as_deref().map(parse).transpose()?.unwrap_or(ConvId(u32::MAX));
    let who = caller.principal;
    let look = move |live: &Live<'_>| {
        let seen = live.state.conversations.range(..before).rev().filter(|(id, _)| may_look(live, who, *id));
        let page: Vec<_> = seen.take(limit).map(|(id, conv)| (id, views::summary(live.state, conv))).collect();
        let next = if page.len() == limit { page.last().map(|(id, _)| id.to_string()) } else { None };
        Page { items: page.into_iter().map(|(_, summary)| summary).collect(), next }
    };
    Ok(ctx.handle.query(look).await?)
}

/// The number of a conversation that `caller` may see.
pub(crate) async fn find(ctx: &Context, caller: Caller, reference: &str) -> Result<ConvId, ApiError> {
    let (wanted, who) = (reference.to_owned(), caller.principal);
    let look = move |live: &Live<'_>| {
        let conv = live.state.conv_of(&wanted)?;
        may_look(live, who, conv).then_some(conv)
    };
    ctx.handle.query(look).await?.ok_or_else(|| ApiError::unknown(reference))
}
