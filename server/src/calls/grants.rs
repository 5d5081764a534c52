//! Extensions that humans give to grants and conversations (D9).

use lastword_broker::Live;
use lastword_core::Input;
use lastword_facts::fact::Extension;
use lastword_facts::ids::{ConvId, GrantId};
use lastword_wire::{Extend, Extended, FieldError, microusd};

use super::{Caller, Context, admitted};
use crate::error::ApiError;
use crate::views;

/// Extends the grants of a conversation, or one of them, and its rounds; returns what still holds them.
pub async fn extend(ctx: &Context, caller: Caller, conv: ConvId, more: Extend) -> Result<Extended, ApiError> {
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
    let still_held = move |live: &Live<'_>| {
        let grants = live.state.grants.iter().filter(|(_, grant)| grant.conv == conv && grant.end.is_none());
        let extended = grants.filter(|(id, _)| only.is_none_or(|only| only == *id));
        extended.filter_map(|(id, _)| views::latch_of(live.state, id)).collect()
    };
    Ok(Extended { held_by: ctx.handle.query(still_held).await? })
}
