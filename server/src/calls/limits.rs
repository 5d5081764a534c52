//! Calls on the limits in force.

use std::collections::BTreeMap;

use lastword_core::Input;
use lastword_facts::Code;
use lastword_facts::fact::Role;
use lastword_facts::limits::may_be;
use lastword_wire::LimitsView;

use super::{Caller, Context, admitted, config_edits, humans};
use crate::error::ApiError;

/// Returns the limits and the policy in force.
pub async fn in_force(ctx: &Context) -> Result<LimitsView, ApiError> {
    Ok(ctx.handle.query(|live| LimitsView::of(&live.state.limits, &live.state.policy)).await?)
}

/// Sets limits, by name, from now on, and in the configuration file. Returns those that differ, with the value before.
pub async fn change(
    ctx: &Context,
    caller: Caller,
    mut wanted: BTreeMap<String, u64>,
) -> Result<BTreeMap<String, u64>, ApiError> {
    caller.gives_rights(ctx)?;
    humans::require(ctx, caller, Role::Owner).await?;
    let file = ctx.config.editable()?;
    let _turn = ctx.config.turn().await;
    let limits = ctx.handle.query(|live| live.state.limits.clone()).await?;
    let mut before = BTreeMap::new();
    for name in wanted.keys() {
        let value = limits.value(name).ok_or_else(|| malformed(format!("No limit is called {name:?}")))?;
        before.insert(name.clone(), value);
    }
    wanted.retain(|name, value| before.get(name) != Some(value));
    before.retain(|name, _| wanted.contains_key(name));
    if wanted.is_empty() {
        return Ok(before);
    }
    let mut changed = limits.clone();
    for (name, value) in &wanted {
        if !may_be(name, *value) {
            return Err(malformed(format!("{name} is 0, and a time has to be longer")));
        }
        changed.set(name, *value);
    }
    let (messages, ceiling) = (changed.bound_messages(), changed.bound_ceiling_messages);
    if messages > ceiling {
        let words = format!("A grant could cause {messages} waking messages then, and {ceiling} is the ceiling");
        return Err(malformed(words).hinted("Lower another limit of a grant, or raise bound_ceiling_messages first."));
    }
    put(ctx, caller, &wanted).await?;
    let comment = format!("Set by {}", config_edits::author(ctx, caller).await?);
    let written = config_edits::write(move || file.set_limits(&wanted, &comment)).await?;
    match written {
        Ok(places) => ctx.config.now_set_at(places),
        // A change is in force only with the file: otherwise a restart would undo it without a word.
        Err(reason) => {
            put(ctx, caller, &before).await?;
            return Err(malformed(reason));
        }
    }
    Ok(before)
}

async fn put(ctx: &Context, caller: Caller, limits: &BTreeMap<String, u64>) -> Result<(), ApiError> {
    let named = limits.iter().map(|(name, value)| (name.as_str().into(), *value)).collect();
    admitted(ctx.handle.submit(Input::ChangeLimits(caller.principal, named)).await)?;
    Ok(())
}

fn malformed(words: String) -> ApiError {
    ApiError::new(Code::Malformed, words)
}
