//! Sending, and waiting for the answer (Q8).

use std::time::Duration;

use lastword_proto::names::RequestId;
use lastword_proto::wire::{EscalationView, Finished, StoredMessage};
use lastword_proto::{Address, Draft, Input, MessageType, Reply, Seq};

use super::{Caller, Context, admitted, desk, rang};
use crate::broker::{Live, Subscription};
use crate::clock::Stopwatch;
use crate::edges::Fault;
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
) -> Result<Sent, Fault> {
    draft.turn = caller.turn;
    let many = matches!(draft.to, Address::List(_) | Address::Group(_));
    // Where nothing waits, nothing may count as waiting either (Q8).
    let wait = wait.filter(|_| draft.kind == MessageType::Request && !many);
    draft.wait_ms = wait.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
    // Before the send, so that no wake can come between it and the wait.
    let subscription = wait.map(|_| Subscription::new(&ctx.handle, caller.principal.agent()));
    let input = Input::Send(caller.principal, Box::new(draft));
    let then = |reply: Reply, live: &Live<'_>| match reply {
        Reply::Sent(seqs) | Reply::Again(seqs) => Ok(views::shown(live, &seqs).ok_or(seqs)),
        other => Err(other),
    };
    let shown = match ctx.handle.submit_then(input, then).await? {
        Ok(Ok(shown)) => shown,
        Ok(Err(seqs)) => views::show(&ctx.handle, seqs).await?,
        Err(other) => return without_message(ctx, other).await,
    };
    if many {
        return Ok(Sent::Many(shown.into_iter().filter_map(Shown::stored).collect()));
    }
    let shown = shown.into_iter().next().ok_or_else(|| Fault::internal("nothing was stored"))?;
    let response = match (wait, subscription, shown.request_id()) {
        (Some(wait), Some(subscription), Some(id)) => collect(ctx, caller, id, wait, &subscription).await?,
        _ => None,
    };
    let stored = shown.stored().ok_or_else(|| Fault::internal("what was stored is no message"))?;
    Ok(Sent::One(Box::new(stored), response.map(Box::new)))
}

async fn without_message(ctx: &Context, reply: Reply) -> Result<Sent, Fault> {
    match admitted(Ok(reply))? {
        Reply::Finished { answer, open } => {
            Ok(Sent::Finished(Finished { turn: None, open, answer: answer.map(|a| a.to_string()) }))
        }
        Reply::Escalated(id) => Ok(Sent::Escalated(Box::new(desk::escalation(ctx, id).await?))),
        Reply::Done => Ok(Sent::Noted),
        other => Err(Fault::unexpected(&other)),
    }
}

/// Waits for the answer to a request; `None` when none came in time, and then it is delivered as usual.
async fn collect(
    ctx: &Context,
    caller: Caller,
    id: &str,
    wait: Duration,
    subscription: &Subscription,
) -> Result<Option<StoredMessage>, Fault> {
    let request = RequestId::new(id).map_err(|_| Fault::internal("a request without a valid id"))?;
    let stopwatch = Stopwatch::start();
    let bell = subscription.bell();
    loop {
        let mut ring = std::pin::pin!(bell.notified());
        ring.as_mut().enable();
        let reply = ctx.handle.submit(Input::Collect(caller.principal, request.clone())).await;
        match admitted(reply)? {
            Reply::Delivery(Some(delivery)) => return one(ctx, delivery.message).await.map(Some),
            Reply::Delivery(None) => {}
            other => return Err(Fault::unexpected(&other)),
        }
        if !rang(ctx, ring, wait.saturating_sub(stopwatch.elapsed())).await {
            return Ok(None);
        }
    }
}

/// One message, whoever may read it.
pub(crate) async fn one(ctx: &Context, seq: Seq) -> Result<StoredMessage, Fault> {
    let shown = views::show(&ctx.handle, vec![seq]).await?;
    shown.into_iter().next().and_then(Shown::stored).ok_or_else(|| Fault::unknown(&seq.to_string()))
}
