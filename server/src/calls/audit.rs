//! Searches of messages by any of their fields.

use lastword_broker::Live;
use lastword_core::Principal;
use lastword_facts::ids::{AgentId, ConvId};
use lastword_facts::names::SYSTEM_NAME;
use lastword_facts::{MessageType, Seq, Time};
use lastword_store::{Cursor, Filter};
use lastword_wire::{FieldError, Page, StoredMessage, parse_rfc3339};
use serde::Deserialize;

use super::read_model::{ask, ask_fresh, fresh};
use super::{Caller, Context, epochs};
use crate::error::ApiError;
use crate::views;
use crate::views::Shown;

/// Items per page when the caller sets no limit.
pub const PAGE_DEFAULT: usize = 50;

/// The most items per page.
pub(super) const PAGE_MAX: usize = 500;

/// The most bytes of texts per page; a longer item is on a page alone.
pub const PAGE_BYTES_MAX: usize = 1 << 20;

/// The parameters of `GET /v1/messages`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditParams {
    /// The REF of a conversation; those below it count, too.
    #[serde(rename = "ref")]
    pub reference: Option<String>,
    /// The sender's name.
    pub from: Option<String>,
    /// The recipient's name.
    pub to: Option<String>,
    /// The type of the message.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// How deep the message is below a human's request.
    pub depth: Option<u8>,
    /// The earliest moment, in RFC 3339.
    pub since: Option<String>,
    /// The latest moment, in RFC 3339.
    pub until: Option<String>,
    /// Words in the text.
    pub q: Option<String>,
    /// The most items of the page.
    pub limit: Option<usize>,
    /// Where the page before this one ended.
    pub cursor: Option<String>,
}

/// The parameters of a list of decisions.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageParams {
    limit: Option<usize>,
    cursor: Option<String>,
}

impl PageParams {
    /// Returns the most items of the page.
    pub(super) fn limit(&self) -> usize {
        self.limit.unwrap_or(PAGE_MAX).clamp(1, PAGE_MAX)
    }

    /// Returns the id behind which the page begins.
    pub(super) fn behind<T>(&self, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>, FieldError> {
        let parse = |text| parse(text).ok_or_else(|| FieldError::new("cursor", "is not one of ours"));
        self.cursor.as_deref().map(parse).transpose()
    }
}

/// Returns the messages that pass every filter and that `caller` may read, newest first.
pub(crate) async fn messages(
    ctx: &Context,
    caller: Caller,
    params: AuditParams,
) -> Result<Page<StoredMessage>, ApiError> {
    let limit = params.limit.unwrap_or(PAGE_DEFAULT).clamp(1, PAGE_MAX);
    let behind = fresh(ctx).await;
    let mut seqs = Vec::new();
    for filter in filters(ctx, caller.principal, &params, limit).await? {
        seqs.extend(ask(ctx, move |index| index.messages(&filter)).await?);
    }
    seqs.sort_unstable_by(|a, b| b.cmp(a));
    seqs.dedup();
    seqs.truncate(limit);
    // Before hiding what the caller may not read, or a page of hidden messages would end the list.
    let end = if seqs.len() == limit { seqs.last().copied() } else { None };
    let (shown, cut) = views::show_within(&ctx.handle, seqs, PAGE_BYTES_MAX).await?;
    let next = cut.or(end).map(|seq| seq.0.to_string());
    let shown = readable(ctx, caller.principal, shown).await?;
    let mut items: Vec<StoredMessage> = shown.into_iter().filter_map(Shown::stored).collect();
    name_forgotten(ctx, &mut items).await?;
    Ok(Page { items, next, behind })
}

/// Fills in the REFs of conversations that the state has forgotten; the read model keeps them.
async fn name_forgotten(ctx: &Context, items: &mut [StoredMessage]) -> Result<(), ApiError> {
    let forgotten: Vec<ConvId> = items.iter().filter_map(|item| ConvId::parse(&item.reference)).collect();
    if forgotten.is_empty() {
        return Ok(());
    }
    let names = ask(ctx, move |index| index.refs(&forgotten)).await?;
    for item in items {
        let conv = ConvId::parse(&item.reference);
        if let Some((_, name)) = names.iter().find(|(known, _)| Some(*known) == conv) {
            item.reference.clone_from(name);
        }
    }
    Ok(())
}

/// Builds the read model's filters. A human's search covers every incarnation of a name and every conversation that
/// ever had the REF; an agent's covers the current ones (§1).
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

/// Returns every conversation that ever had a REF, with all conversations below it.
async fn convs_named(ctx: &Context, reference: String) -> Result<Vec<ConvId>, ApiError> {
    let wanted = reference.clone();
    let mut convs = ask_fresh(ctx, move |index| index.named(&wanted)).await?;
    let below = move |live: &Live<'_>| live.state.conv_of(&reference).map(|conv| live.state.lineage_below(conv));
    convs.extend(ctx.handle.query(below).await?.unwrap_or_default());
    convs.sort_unstable();
    convs.dedup();
    Ok(convs)
}

/// Returns the numbers of all agents that ever had a name. Without a name, a single `None`: no filter by agent.
fn incarnations(live: &Live<'_>, name: Option<&str>) -> Vec<Option<AgentId>> {
    match name {
        None => vec![None],
        Some(SYSTEM_NAME) => vec![Some(lastword_facts::fact::SYSTEM)],
        Some(name) => {
            // Number 0 is the broker itself.
            let same = live.state.agents.iter().enumerate().skip(1).filter(|(_, agent)| agent.name() == name);
            same.filter_map(|(id, _)| u32::try_from(id).ok()).map(|id| Some(AgentId(id))).collect()
        }
    }
}

/// Returns one message that `caller` may read.
pub(crate) async fn message(ctx: &Context, caller: Caller, id: &str) -> Result<StoredMessage, ApiError> {
    let seq = Seq::parse(id).ok_or_else(|| ApiError::unknown(id))?;
    let shown = views::show(&ctx.handle, vec![seq]).await?;
    let shown = readable(ctx, caller.principal, shown).await?;
    epochs::found(ctx, id, shown.into_iter().next().and_then(Shown::stored)).await
}

/// Keeps those messages that `who` may read.
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

/// Conversations, sender and recipient; each `None` where the search has no such filter.
type Numbers = (Option<Vec<ConvId>>, Option<AgentId>, Option<AgentId>);

/// Translates the filter's names into the log's numbers; `None` if a name is unknown, so that no message can match.
pub async fn filter(ctx: &Context, params: &AuditParams, limit: usize) -> Result<Option<Filter>, ApiError> {
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
            Some(SYSTEM_NAME) => Some(Some(lastword_facts::fact::SYSTEM)),
            Some(name) => live.state.agent_of(name).map(Some),
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

/// Returns the positions of the messages that pass the filter, after the read model has caught up.
pub async fn search(ctx: &Context, filter: Filter) -> Result<Vec<Seq>, ApiError> {
    ask_fresh(ctx, move |index| index.messages(&filter)).await
}
