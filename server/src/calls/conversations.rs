//! Calls on the conversations that a caller may see.

use std::collections::BTreeMap;

use lastword_broker::Live;
use lastword_core::Principal;
use lastword_facts::ids::ConvId;
use lastword_wire::{ConversationSummary, FieldError, Page};
use serde::Deserialize;

use super::audit::{PAGE_DEFAULT, PAGE_MAX};
use super::read_model::ask;
use super::{Caller, Context, subjects};
use crate::error::ApiError;
use crate::views;

/// Returns whether `who` may see a conversation: humans and its participants.
fn may_look(live: &Live<'_>, who: Principal, conv: ConvId) -> bool {
    who.is_human() || live.state.conversations.get(&conv).is_some_and(|c| c.has_part(who.agent()))
}

/// The parameters of `GET /v1/conversations`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    pub(crate) limit: Option<usize>,
    pub(crate) cursor: Option<String>,
    /// Only conversations with open requests.
    #[serde(default)]
    pub(crate) open: bool,
}

/// Lists the conversations that `caller` may see, newest first.
pub(crate) async fn list(
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
        let seen = seen.filter(|(_, conv)| !params.open || !conv.open_tasks.is_empty());
        seen.take(limit).map(|(id, conv)| (id, views::summary(live.state, conv))).collect::<Vec<_>>()
    };
    let page = ctx.handle.query(look).await?;
    let next = if page.len() == limit { page.last().map(|(id, _)| id.to_string()) } else { None };
    let convs: Vec<ConvId> = page.iter().map(|(id, _)| *id).collect();
    let mut subjects = subjects::of(ctx, convs.clone()).await?;
    let spent: BTreeMap<_, _> = ask(ctx, move |index| index.spent_in(&convs)).await?.into_iter().collect();
    let filled = |(id, summary): (ConvId, ConversationSummary)| {
        let spent = spent.get(&id).copied().unwrap_or_default();
        let subject = subjects.remove(&id).unwrap_or_default();
        ConversationSummary { subject, tokens: spent.tokens, cost_microusd: spent.cost_microusd, ..summary }
    };
    Ok(Page { items: page.into_iter().map(filled).collect(), next, behind: 0 })
}

/// Returns the number of a conversation that `caller` may see.
pub async fn find(ctx: &Context, caller: Caller, reference: &str) -> Result<ConvId, ApiError> {
    let (wanted, who) = (reference.to_owned(), caller.principal);
    let look = move |live: &Live<'_>| {
        let conv = live.state.conv_of(&wanted)?;
        may_look(live, who, conv).then_some(conv)
    };
    ctx.handle.query(look).await?.ok_or_else(|| ApiError::unknown(reference))
}
