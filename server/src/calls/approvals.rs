//! Calls on approvals: held tool calls and the decisions on them (H2, H3).

use std::time::Duration;

use lastword_broker::clock::Stopwatch;
use lastword_broker::identity::unhex;
use lastword_broker::{Live, off_thread};
use lastword_core::state::Approval;
use lastword_core::{Input, Principal, Reply, input};
use lastword_facts::Code;
use lastword_facts::fact::{Decision, Digest, Key, Role};
use lastword_facts::ids::{ApprovalId, TaskId};
use lastword_facts::status::ApprovalState;
use lastword_wire::{ApprovalView, Arguments, DecideApproval, FieldError, HeldCall, Page, UseApproval};

use super::audit::{PAGE_BYTES_MAX, PAGE_MAX, PageParams};
use super::canonical::{digest, subjects};
use super::{Caller, Context, admitted, check_sizes, epochs, humans, wait_for};
use crate::error::ApiError;
use crate::views;

/// Holds a tool call until it is decided.
pub async fn hold(ctx: &Context, caller: Caller, call: HeldCall) -> Result<ApprovalView, ApiError> {
    if call.tool.trim().is_empty() {
        return Err(FieldError::new("tool", "is empty").into());
    }
    check_sizes(ctx, [("reason", call.reason.as_ref().map_or(0, String::len))])?;
    let arguments = call.arguments.clone();
    // A long script takes a while to read: not on a thread that serves others, nor on a human's.
    let subjects = off_thread(move || Ok(subjects(&arguments))).await?;
    let (tool, arguments) = (call.tool.clone(), call.arguments.clone());
    let digest = ctx.handle.query(move |live| digest_of(live, caller, &tool, &arguments)).await?;
    let held = input::HeldCall {
        tool: call.tool.into(),
        arguments: call.arguments.as_str().into(),
        subjects,
        reason: call.reason.map(Into::into),
        digest,
        key: call.key,
    };
    let input = Input::AskApproval(caller.principal, caller.turn, Box::new(held));
    match admitted(ctx.handle.submit(input).await)? {
        Reply::Held(id) => show(ctx, caller, id, Duration::ZERO).await,
        other => Err(ApiError::unexpected(&other)),
    }
}

/// Returns the digest that the call would have if the caller made it now.
pub fn digest_of(live: &Live<'_>, caller: Caller, tool: &str, arguments: &Arguments) -> Digest {
    let (agent, task) = asker(live, caller);
    digest(tool, arguments, &agent, task.map(|t| t.to_string()).as_deref())
}

/// Returns the caller's name and its task: that of the named turn, or of its only open one.
fn asker(live: &Live<'_>, caller: Caller) -> (String, Option<TaskId>) {
    let agent = caller.principal.agent();
    let open = live.state.agent(agent).map_or(&[][..], |a| a.turns.as_slice());
    let turn = caller.turn.or(if let [only] = open { Some(*only) } else { None });
    let task = turn.and_then(|turn| live.state.turns.get(&turn)).map(|turn| turn.task);
    (live.state.name_of(agent).to_owned(), task)
}

/// Returns one approval. With a wait, returns once it is decided or the wait is over.
pub async fn show(ctx: &Context, caller: Caller, id: ApprovalId, wait: Duration) -> Result<ApprovalView, ApiError> {
    let stopwatch = Stopwatch::start();
    loop {
        let mut ring = std::pin::pin!(ctx.handle.approvals().notified());
        // Listen before reading: a decision between the read and the wait still rings.
        ring.as_mut().enable();
        let who = caller.principal;
        let look = move |live: &Live<'_>| {
            let known = live.state.approvals.get(&id)?;
            let seen = sees(live, known, who) || takes_part(live, known.task, who);
            views::approval(live.state, id).filter(|_| seen)
        };
        let view = epochs::found(ctx, &id.to_string(), ctx.handle.query(look).await?).await?;
        let left = wait.saturating_sub(stopwatch.elapsed());
        if view.state != ApprovalState::Pending || left.is_zero() || wait_for(ctx, ring, left).await.is_none() {
            return Ok(view);
        }
    }
}

/// Returns whether `who` may see an approval: its requester, its decider, and those who may decide it (H3).
fn sees(live: &Live<'_>, approval: &Approval, who: Principal) -> bool {
    let agent = who.agent();
    let own = approval.agent == agent || approval.by == Some(agent);
    who.is_human() || own || live.state.may_decide(agent, approval)
}

/// Returns whether an agent takes part in the conversation of the call's task, and may therefore read the approval by
/// its id.
fn takes_part(live: &Live<'_>, task: Option<TaskId>, who: Principal) -> bool {
    let task = task.and_then(|task| live.state.tasks.get(&task));
    task.is_some_and(|t| live.state.conversations.get(&t.conv).is_some_and(|c| c.has_part(who.agent())))
}

/// Lists the approvals that `caller` may see, newest first, behind the one that the cursor names.
pub(crate) async fn list(ctx: &Context, caller: Caller, params: &PageParams) -> Result<Page<ApprovalView>, ApiError> {
    let who = caller.principal;
    let before = params.behind(ApprovalId::parse)?;
    let limit = params.limit();
    let all = move |live: &Live<'_>| {
        let known = live.state.approvals.iter().rev().filter(|(id, _)| before.is_none_or(|before| **id < before));
        let mine = known.filter(|(_, a)| sees(live, a, who));
        page(limit, mine.filter_map(|(id, known)| Some((known.arguments.len(), views::approval(live.state, *id)?))))
    };
    let (items, more) = ctx.handle.query(all).await?;
    let next = items.last().map(|last| last.id.clone()).filter(|_| more);
    Ok(Page { items, next, behind: 0 })
}

/// Takes views, each with the bytes of its arguments, until they fill a page; returns whether there are more.
fn page(limit: usize, views: impl Iterator<Item = (usize, ApprovalView)>) -> (Vec<ApprovalView>, bool) {
    let (mut items, mut bytes) = (Vec::new(), 0);
    for (length, view) in views {
        bytes += length;
        if items.len() == limit || (bytes > PAGE_BYTES_MAX && !items.is_empty()) {
            return (items, true);
        }
        items.push(view);
    }
    (items, false)
}

/// Returns those of these approvals that `caller` may see.
pub async fn by_ids(ctx: &Context, caller: Caller, ids: Vec<ApprovalId>) -> Result<Vec<ApprovalView>, ApiError> {
    let who = caller.principal;
    let all = move |live: &Live<'_>| {
        let seen = |id: &ApprovalId| live.state.approvals.get(id).is_some_and(|a| sees(live, a, who));
        ids.into_iter().filter(seen).filter_map(|id| views::approval(live.state, id)).collect()
    };
    Ok(ctx.handle.query(all).await?)
}

/// Lists the held calls that `caller` may decide and that are still pending, oldest first.
pub async fn to_decide(ctx: &Context, caller: Caller) -> Result<Vec<ApprovalView>, ApiError> {
    let who = caller.principal;
    let all = move |live: &Live<'_>| {
        let waits = |known: &Approval| {
            let may = who.is_human() || live.state.may_decide(who.agent(), known);
            known.state == ApprovalState::Pending && may
        };
        let mine = live.state.approvals.iter().filter(|(_, known)| waits(known));
        page(PAGE_MAX, mine.filter_map(|(id, known)| Some((known.arguments.len(), views::approval(live.state, *id)?))))
            .0
    };
    Ok(ctx.handle.query(all).await?)
}

/// Decides an approval, once under its key (Q1). A caller that was shown the call in full may omit its digest (H2).
pub async fn decide(
    ctx: &Context,
    caller: Caller,
    id: ApprovalId,
    mut decision: DecideApproval,
    key: Option<Key>,
) -> Result<ApprovalView, ApiError> {
    if matches!(decision.decision, Decision::Approve | Decision::Edit) {
        caller.allows(ctx)?;
    }
    let unnamed = decision.decision == Decision::Approve && decision.digest.is_none();
    if unnamed {
        decision.digest = ctx.shown.digest(caller.principal.agent(), id);
    }
    let unseen = unnamed && decision.digest.is_none();
    decide_named(ctx, caller, id, decision, key).await.map_err(|mut fault| {
        // The core only says that the digest is missing; the caller needs the step that supplies one.
        if unseen && fault.0.code == Code::Malformed {
            fault
                .0
                .detail
                .push_str(&format!(". Read all of {id} first, so that the broker knows which call you reviewed"));
        }
        fault
    })
}

async fn decide_named(
    ctx: &Context,
    caller: Caller,
    id: ApprovalId,
    decision: DecideApproval,
    key: Option<Key>,
) -> Result<ApprovalView, ApiError> {
    let edited = decision.input.as_ref().map_or(0, |input| input.as_str().len());
    check_sizes(ctx, [("comment", decision.comment.as_ref().map_or(0, String::len)), ("input", edited)])?;
    let bad_digest = || FieldError::new("digest", "isn't a SHA-256 in hexadecimal");
    let named = decision.digest.map(|text| unhex::<32>(&text).ok_or_else(bad_digest)).transpose()?;
    let edited = match decision.input {
        Some(input) if decision.decision == Decision::Edit => Some(edit(ctx, id, input).await?),
        Some(_) | None => None,
    };
    let verdict = input::Verdict {
        decision: decision.decision,
        comment: decision.comment.map(Into::into),
        digest: named,
        edited,
        key,
    };
    admitted(ctx.handle.submit(Input::Decide(caller.principal, id, Box::new(verdict))).await)?;
    show(ctx, caller, id, Duration::ZERO).await
}

async fn edit(
    ctx: &Context,
    id: ApprovalId,
    arguments: Arguments,
) -> Result<(lastword_facts::envelope::JsonText, Digest), ApiError> {
    let call = ctx.handle.query(move |live| held(live, id)).await?;
    let (tool, agent, task) = epochs::found(ctx, &id.to_string(), call).await?;
    Ok((arguments.as_str().into(), digest(&tool, &arguments, &agent, task.as_deref())))
}

fn held(live: &Live<'_>, id: ApprovalId) -> Option<(String, String, Option<String>)> {
    let known = live.state.approvals.get(&id)?;
    let agent = live.state.name_of(known.agent).to_owned();
    Some((known.tool.to_string(), agent, known.task.map(|t| t.to_string())))
}

/// Uses up an approval, for exactly the call that was approved.
pub async fn spend(ctx: &Context, caller: Caller, id: ApprovalId, call: UseApproval) -> Result<ApprovalView, ApiError> {
    if caller.principal.is_human() {
        // Before anything is looked up.
        humans::require(ctx, caller, Role::Operator).await?;
    }
    let known = ctx.handle.query(move |live| held(live, id)).await?;
    let (_, agent, task) = epochs::found(ctx, &id.to_string(), known).await?;
    let digest = digest(&call.tool, &call.arguments, &agent, task.as_deref());
    admitted(ctx.handle.submit(Input::Use(caller.principal, id, digest, call.key)).await)?;
    show(ctx, caller, id, Duration::ZERO).await
}
