//! Sending, and waiting for the answer (Q8).

use std::time::Duration;

use lastword_proto::names::RequestId;
use lastword_proto::wire::{EscalationView, Finished, StoredMessage};
use lastword_proto::{Address, Draft, Input, MessageType, Reply, Seq};

use super::{Caller, Context, admitted, escalations, wait_for};
use crate::broker::{Live, Wait};
use crate::error::ApiError;
use crate::views::{self, Shown};

/// What came of a send.
pub(crate) enum Sent {
    /// One message, and its answer where the sender waited for it and it came.
    One(Box<StoredMessage>, Option<Box<StoredMessage>>),
    /// One for each of a list or group.
    Many(Vec<StoredMessage>),
    /// A RESPONSE was the finish of its task.
    Finished(Finished),
    /// A REQUEST to a human became an escalation.
    Escalated(Box<EscalationView>),
    /// A human's words that no task waited for.
    Noted,
}

/// Sends a message.
pub(crate) async fn send(
    ctx: &Context,
    caller: Caller,
    mut draft: Draft,
    wait: Option<Duration>,
) -> Result<Sent, ApiError> {
    draft.turn = caller.turn;
    let many = matches!(draft.to, Address::List(_) | Address::Group(_));
    // Where nothing waits, nothing may count as waiting either (Q8).
    let wait = wait.filter(|_| draft.kind == MessageType::Request && !many);
    draft.wait_ms = wait.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
    let input = Input::Send(caller.principal, Box::new(draft));
    let handle = ctx.handle.clone();
    let then = move |reply: Reply, live: &Live<'_>| {
        // From the moment of the send: no answer can come before, and none is missed.
        let fresh = matches!(reply, Reply::Sent(_));
        match reply {
            Reply::Sent(seqs) | Reply::Again(seqs) => {
                let waits = wait.and_then(|_| Some(Wait::new(&handle, *seqs.first()?)));
                Ok((views::shown(live, &seqs).ok_or(seqs), waits, fresh))
            }
            other => Err(other),
        }
    };
    let (shown, waits, fresh) = match ctx.handle.submit_then(input, then).await? {
        Ok((Ok(shown), waits, fresh)) => (shown, waits, fresh),
        Ok((Err(seqs), waits, fresh)) => (views::show(&ctx.handle, seqs).await?, waits, fresh),
        Err(other) => return without_message(ctx, other).await,
    };
    if many {
        return Ok(Sent::Many(shown.into_iter().filter_map(Shown::stored).collect()));
    }
    let shown = shown.into_iter().next().ok_or_else(|| ApiError::internal("nothing was stored"))?;
    let response = match (wait, waits, shown.request_id()) {
        (Some(wait), Some(waits), Some(id)) => {
            let request = RequestId::new(id).map_err(|_| ApiError::internal("a request without a valid id"))?;
            // What was sent just now has no answer yet.
            let there = if fresh { None } else { collect_now(ctx, caller, request.clone()).await? };
            if there.is_some() { there } else { collect(ctx, caller, request, wait, waits).await? }
        }
        _ => None,
    };
    let stored = shown.stored().ok_or_else(|| ApiError::internal("what was stored is no message"))?;
    Ok(Sent::One(Box::new(stored), response.map(Box::new)))
}

async fn without_message(ctx: &Context, reply: Reply) -> Result<Sent, ApiError> {
    match admitted(Ok(reply))? {
        Reply::Finished { answer, open } => {
            Ok(Sent::Finished(Finished { turn: None, open, answer: answer.map(|a| a.to_string()) }))
        }
        Reply::Escalated(id) => Ok(Sent::Escalated(Box::new(escalations::show(ctx, id).await?))),
        Reply::Done => Ok(Sent::Noted),
        other => Err(ApiError::unexpected(&other)),
    }
}

/// Waits for the answer to a request; `None` when none came in time, and then it is delivered as usual.
async fn collect(
    ctx: &Context,
    caller: Caller,
    request: RequestId,
    wait: Duration,
    mut answer: Wait,
) -> Result<Option<StoredMessage>, ApiError> {
    if !wait_for(ctx, answer.rings(), wait).await {
        return Ok(None);
    }
    collect_now(ctx, caller, request).await
}

/// The answer to a request, where it is there and not on its way as a turn.
async fn collect_now(ctx: &Context, caller: Caller, request: RequestId) -> Result<Option<StoredMessage>, ApiError> {
    match admitted(ctx.handle.submit(Input::Collect(caller.principal, request)).await)? {
        Reply::Delivery(Some(delivery)) => one(ctx, delivery.message).await.map(Some),
        Reply::Delivery(None) => Ok(None),
        other => Err(ApiError::unexpected(&other)),
    }
}

/// One message, whoever may read it.
pub(crate) async fn one(ctx: &Context, seq: Seq) -> Result<StoredMessage, ApiError> {
    let shown = views::show(&ctx.handle, vec![seq]).await?;
    shown.into_iter().next().and_then(Shown::stored).ok_or_else(|| ApiError::unknown(&seq.to_string()))
}
