//! Extensions that humans give to grants and conversations (D9).

use lastword_proto::Input;
use lastword_proto::fact::Extension;
use lastword_proto::ids::{ConvId, GrantId};
use lastword_proto::wire::{Extend, FieldError, HeldBy, microusd};

use super::{Caller, Context, admitted};
use crate::broker::Live;
use crate::error::ApiError;
use crate::views;

/// Extends the grants of a conversation, or one of them, and its rounds.
pub(crate) async fn extend(ctx: &Context, caller: Caller, conv: ConvId, more: Extend) -> Result<(), ApiError> {
    caller.human()?;
    let named = |id: &str| {
        let text = format!("{id:?} isn't a grant id such as grant-3");
        GrantId::parse(id).ok_or_else(|| FieldError::new("grant", text))
    };
    let only = more.grant.as_deref().map(named).transpose()?;
    if more.cost_usd < 0.0 {
        return Err(FieldError::new("cost_usd", "is below 0: a grant can't be reduced").into());
    }
    let extension = Extension {
        messages: more.messages,
        turns: more.turns,
        agents: more.agents,
        requests: more.requests,
        tokens: more.tokens,
        cost_microusd: microusd(more.cost_usd),
        time_ms: more.time_ms,
    };
    if extension == Extension::NONE && more.rounds == 0 {
        let text = "is missing, and no other amount is given: nothing would be granted";
        return Err(ApiError::pointless(&FieldError::new("messages", text)));
    }
    if more.rounds > 0 {
        admitted(ctx.handle.submit(Input::ExtendRounds(caller.principal, conv, more.rounds)).await)?;
    }
    if extension != Extension::NONE {
        admitted(ctx.handle.submit(Input::Extend(caller.principal, conv, only, extension)).await)?;
    }
    Ok(())
}

/// Returns what still holds the grants of a conversation, or one of them, after an extension, and what lifts it.
pub(crate) async fn still_held(ctx: &Context, conv: ConvId, only: Option<String>) -> Result<Option<HeldBy>, ApiError> {
    let only = only.as_deref().and_then(GrantId::parse);
    let look = move |live: &Live<'_>| {
        let of =
            live.state.grants.iter().filter(|(id, grant)| grant.conv == conv && only.is_none_or(|only| only == *id));
        of.filter(|(_, grant)| grant.end.is_none()).find_map(|(id, _)| views::latch_of(live.state, id))
    };
    Ok(ctx.handle.query(look).await?)
}
