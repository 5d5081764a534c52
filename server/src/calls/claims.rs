//! Calls on claims: leases on resources (C1).

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lastword_broker::Live;
use lastword_broker::clock::Stopwatch;
use lastword_core::input::ClaimDraft;
use lastword_core::state::{Claim, ClaimHolder};
use lastword_core::{Input, Reply, State};
use lastword_facts::fact::ClaimMode;
use lastword_facts::ids::ClaimId;
use lastword_facts::names::Resource;
use lastword_facts::{Code, Refusal};
use lastword_wire::{ClaimRule, ClaimView, FieldError, NewClaim, Page, PathMode, Pattern};

use super::{Caller, Context, WAIT_MAX, admitted, checked, fault_of, wait_for};
use crate::error::ApiError;
use crate::views;

/// What a workspace knows of claims beside the state.
pub(crate) struct Claims {
    /// Who may claim certain paths, and how: the first rule that has the path counts.
    rules: Vec<ClaimRule>,
    waits: Waits,
}

impl Claims {
    pub(crate) fn by(rules: Vec<ClaimRule>) -> Self {
        Self { rules, waits: Waits::default() }
    }

    /// Returns what holds for a path. A rule for humans counts for each pattern that it shares a path with, but not for all of a
    /// tree: git decides on what changes there, and a human's files are as it has them.
    fn rule(&self, resource: &Resource) -> Option<PathMode> {
        let has = |rule: &&ClaimRule| {
            rule.paths.iter().any(|Pattern(own)| match rule.mode {
                PathMode::Human if !resource.is_tree() => own.overlaps(resource),
                PathMode::Human | PathMode::Shared => own.covers(resource),
            })
        };
        self.rules.iter().find(has).map(|rule| rule.mode)
    }
}

/// The waits for the end of claims.
type Waits = Arc<Mutex<Vec<ClaimWait>>>;

/// A holder that waits for another one.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ClaimWait {
    waiter: ClaimHolder,
    of: ClaimHolder,
}

/// Claims a resource (C1). With a wait, waits for the end of claims that conflict.
pub async fn take(ctx: &Context, caller: Caller, new: NewClaim) -> Result<ClaimView, ApiError> {
    let resource = checked("resource", &new.resource, Resource::new)?;
    let mode = match ctx.claims.rule(&resource) {
        Some(PathMode::Human) if !caller.principal.is_human() => {
            let detail = format!("{resource} is a human's here ([[claim]] in the configuration)");
            return Err(
                ApiError::new(Code::Forbidden, detail).hinted("Ask your user to change it, or to say how to go on.")
            );
        }
        Some(PathMode::Shared) => ClaimMode::Shared,
        Some(PathMode::Human) | None => new.mode,
    };
    let ttl_ms = match new.ttl_ms {
        Some(0) => return Err(FieldError::new("ttl_ms", "is 0, so the claim would have ended already").into()),
        Some(ttl_ms) => ttl_ms,
        None => ctx.handle.query(|live| live.state.limits.claim_ms_max).await?,
    };
    if let Some(wait_ms) = new.wait_ms {
        let wanted = resource.clone();
        let against =
            move |state: &State, me: ClaimHolder| state.claim_against(me, &wanted, mode).map(|(_, held)| held.holder());
        wait_while(ctx, caller, Duration::from_millis(wait_ms).min(WAIT_MAX), against).await?;
    }
    let then = |reply: Reply, live: &Live<'_>| match reply {
        Reply::Claimed(id) => Ok(views::claim(live.state, id)),
        other => Err(other),
    };
    let claim = ClaimDraft { resource, mode, ttl_ms, key: new.key };
    let input = Input::Claim(caller.principal, caller.turn, Box::new(claim));
    match ctx.handle.submit_then(input, then).await? {
        Ok(claim) => claim.ok_or_else(|| ApiError::unknown(&new.resource)),
        Err(other) => Err(fault_of(other)),
    }
}

/// Waits until a claim has ended, and returns it if it hasn't by then.
pub async fn until_ended(
    ctx: &Context,
    caller: Caller,
    id: ClaimId,
    wait: Duration,
) -> Result<Option<ClaimView>, ApiError> {
    wait_while(ctx, caller, wait, move |state, _| state.claims.get(&id).map(Claim::holder)).await?;
    Ok(ctx.handle.query(move |live| views::claim(live.state, id)).await?)
}

/// Waits until no holder stands in the way, or the wait is over. Two holders that wait for each other would do so until then, so
/// the second is refused (Q8).
async fn wait_while(
    ctx: &Context,
    caller: Caller,
    wait: Duration,
    in_the_way: impl Fn(&State, ClaimHolder) -> Option<ClaimHolder> + Clone + Send + 'static,
) -> Result<(), ApiError> {
    let stopwatch = Stopwatch::start();
    loop {
        let mut ring = pin!(ctx.handle.claims().notified());
        // Listen before reading: a release between the read and the wait still rings.
        ring.as_mut().enable();
        let (in_the_way, waits) = (in_the_way.clone(), Arc::clone(&ctx.claims.waits));
        let look = move |live: &Live<'_>| {
            let me = holder(live.state, caller);
            let of = in_the_way(live.state, me).filter(|of| *of != me)?;
            let mut waits = waits.lock().unwrap_or_else(PoisonError::into_inner);
            if waits_for(&waits, of, me) || live.state.blocks_on(live.state.at, of.agent, me.agent) {
                return Some(Err(live.state.name_of(of.agent).to_owned()));
            }
            let wait = ClaimWait { waiter: me, of };
            waits.push(wait);
            Some(Ok(wait))
        };
        let waiting = match ctx.handle.query(look).await? {
            None => return Ok(()),
            Some(Err(name)) => return Err(Refusal::new(Code::MutualWait).about(name).into()),
            Some(Ok(wait)) => ListedWait { waits: Arc::clone(&ctx.claims.waits), wait },
        };
        let left = wait.saturating_sub(stopwatch.elapsed());
        let rang = !left.is_zero() && wait_for(ctx, ring, left).await.is_some();
        drop(waiting);
        if !rang {
            return Ok(());
        }
    }
}

/// A wait that is listed until it ends.
struct ListedWait {
    waits: Waits,
    wait: ClaimWait,
}

impl Drop for ListedWait {
    fn drop(&mut self) {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = waits.iter().position(|wait| *wait == self.wait) {
            waits.swap_remove(at);
        }
    }
}

/// Returns the holder that a claim of this caller would have.
fn holder(state: &State, caller: Caller) -> ClaimHolder {
    let agent = caller.principal.agent();
    let only = match state.agent(agent).map_or(&[][..], |agent| agent.turns.as_slice()) {
        [only] => Some(*only),
        _ => None,
    };
    let turn = caller.turn.or(only).and_then(|turn| state.turns.get(&turn));
    ClaimHolder { agent, task: turn.map(|turn| turn.task) }
}

/// Returns whether a holder waits for another one, directly or through others.
fn waits_for(waits: &[ClaimWait], from: ClaimHolder, goal: ClaimHolder) -> bool {
    let (mut seen, mut next) = (Vec::new(), vec![from]);
    while let Some(holder) = next.pop() {
        if holder == goal {
            return true;
        }
        if !seen.contains(&holder) {
            seen.push(holder);
            next.extend(waits.iter().filter(|wait| wait.waiter == holder).map(|wait| wait.of));
        }
    }
    false
}

/// Lists all claims. Every agent may see them, to learn which resources are taken.
pub async fn list(ctx: &Context) -> Result<Page<ClaimView>, ApiError> {
    let all = |live: &Live<'_>| live.state.claims.keys().filter_map(|id| views::claim(live.state, *id)).collect();
    Ok(Page::whole(ctx.handle.query(all).await?))
}

/// Releases a claim.
pub async fn release(ctx: &Context, caller: Caller, id: ClaimId) -> Result<(), ApiError> {
    admitted(ctx.handle.submit(Input::Release(caller.principal, id)).await).map(|_| ())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_rule_that_has_a_path_counts_and_a_command_over_a_tree_is_held_by_none_of_its_parts() {
        let rules = json!([
            { "paths": ["CHANGELOG.md", "infra/news/*"], "mode": "shared" },
            { "paths": ["infra/**", ".github"], "mode": "human" },
        ]);
        let claims = Claims::by(serde_json::from_value(rules).unwrap());
        let rule = |name: &str| claims.rule(&Resource::new(name).unwrap());
        for (name, mode) in [
            ("acme/app@main:CHANGELOG.md", Some(PathMode::Shared)),
            ("acme/app@main:infra/news/1", Some(PathMode::Shared)),
            ("acme/app@main:infra/main.tf", Some(PathMode::Human)),
            ("acme/app@main:infra", Some(PathMode::Human)),
            (".github/workflows", Some(PathMode::Human)),
            ("acme/app@main:src", None),
            ("acme/app@main:**", None),
            ("repo:**", Some(PathMode::Human)),
        ] {
            assert_eq!(rule(name), mode, "{name}");
        }
    }
}
