//! Sends messages and waits for the answer (Q8).

use std::time::Duration;

use lastword_broker::clock::Stopwatch;
use lastword_broker::{Handle, Live, Wait};
use lastword_core::state::Agent;
use lastword_core::{Input, Reply, State};
use lastword_facts::names::RequestId;
use lastword_facts::stall::{self, Reading};
use lastword_facts::{Address, Code, Draft, MessageType, Seq};
use lastword_wire::{EscalationView, FieldError, Finished, Receipt, Scope, StoredMessage, text};

use super::{Caller, Context, admitted, agents, escalations, wait_for};
use crate::error::ApiError;
use crate::views::{self, Shown};

/// The outcome of a send. `M` is the form in which the sender gets a message.
pub enum Sent<M = StoredMessage> {
    /// One message, and its answer if the sender waited and it arrived in time.
    One(Box<M>, Option<Box<StoredMessage>>),
    /// One message for each recipient of a list or group.
    Many(Vec<M>),
    /// The RESPONSE finished its task.
    Finished(Finished),
    /// The REQUEST to a human became an escalation.
    Escalated(Box<EscalationView>),
    /// A human's text that no task waited for; it is recorded, not sent.
    Noted,
}

/// A form in which the sender gets its message.
pub trait SentView: Sized {
    /// Returns the form of a stored message; `None` if its fact is none.
    fn of(shown: Shown, warning: Option<String>) -> Option<Self>;
}

impl SentView for StoredMessage {
    fn of(shown: Shown, warning: Option<String>) -> Option<Self> {
        shown.stored().map(|stored| Self { warning, ..stored })
    }
}

impl SentView for Receipt {
    fn of(shown: Shown, warning: Option<String>) -> Option<Self> {
        Some(shown.receipt(warning))
    }
}

/// Sends a message.
pub async fn send<M: SentView>(
    ctx: &Context,
    caller: Caller,
    mut draft: Box<Draft>,
    wait: Option<Duration>,
) -> Result<Sent<M>, ApiError> {
    // An action says what is wanted without a text.
    let says_something = !draft.body.trim().is_empty() || draft.payload.is_some() || draft.action.is_some();
    if draft.kind == MessageType::Request && !says_something && !matches!(draft.to, Address::Action(_)) {
        return Err(ApiError::pointless(&FieldError::new("body", "is empty, so the request asks for nothing")));
    }
    if caller.is_narrowed() {
        caller.may(Some(Box::pin(scope_of(ctx, &draft, caller)).await?))?;
    }
    draft.turn = caller.turn;
    let many = matches!(draft.to, Address::List(_) | Address::Group(_));
    // Only a single REQUEST has an answer to wait for. The core must not count any other send as waiting (Q8).
    let wait = wait.filter(|_| draft.kind == MessageType::Request && !many);
    // A human's message is of no exchange (R5).
    let may_be_judged = matches!(draft.kind, MessageType::Request | MessageType::Response);
    if may_be_judged && !caller.principal.is_human() {
        // On this thread, because the judge's is the one that every send waits for.
        draft.reading = Some(Box::new(Reading::of(&draft.body, draft.payload.as_deref())));
    }
    let note = draft.note.take();
    let replaced = Some(&draft).filter(|draft| draft.kind == MessageType::Response);
    let replaced =
        replaced.and_then(|draft| text::warning([&*draft.body, draft.payload.as_deref().unwrap_or_default()]));
    draft.wait_ms = wait.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
    let input = Input::Send(caller.principal, draft);
    let handle = ctx.handle.clone();
    let then = move |reply: Reply, live: &Live<'_>| {
        // Registered in the same step as the send: the answer can't arrive before it, so none is missed.
        let fresh = matches!(reply, Reply::Sent(_));
        match reply {
            Reply::Sent(seqs) | Reply::Again(seqs) => {
                let waits = wait.and_then(|_| Some(awaited(&handle, caller, *seqs.first()?)));
                let warning = seqs.iter().filter(|_| fresh).find_map(|seq| Some((*seq, warning(live.state, *seq)?)));
                // Usually still in memory, which saves another read of the state.
                Ok((views::shown(live, &seqs).ok_or(seqs), waits, fresh, warning))
            }
            other => Err(other),
        }
    };
    // Boxed are the steps that most sends don't take, so that each send is as small as its usual steps.
    let (shown, waits, fresh, warning) = match ctx.handle.submit_then(input, then).await? {
        Ok((Ok(shown), waits, fresh, warning)) => (shown, waits, fresh, warning),
        Ok((Err(seqs), waits, fresh, warning)) => {
            (Box::pin(views::show(&ctx.handle, seqs)).await?, waits, fresh, warning)
        }
        Err(other) => {
            let all: Vec<&str> = [&note.as_deref(), &replaced.as_deref()].into_iter().copied().flatten().collect();
            let warning = (!all.is_empty()).then(|| all.join(" "));
            return match Box::pin(without_message(ctx, other, warning)).await {
                Err(fault) if fault.0.code == Code::UnknownRecipient => {
                    let missing = fault.0.detail.rsplit_once(": ").map(|(_, missing)| missing.to_owned());
                    Err(Box::pin(agents::with_near(ctx, fault, &missing.unwrap_or_default())).await)
                }
                other => other,
            };
        }
    };
    let view = |shown: Shown| {
        let warned = warning.as_ref().filter(|(seq, _)| *seq == shown.seq).map(|(_, text)| &**text);
        let all: Vec<&str> = note.as_deref().into_iter().chain(warned).collect();
        M::of(shown, (!all.is_empty()).then(|| all.join(" ")))
    };
    if many {
        return Ok(Sent::Many(shown.into_iter().filter_map(view).collect()));
    }
    let shown = shown.into_iter().next().ok_or_else(|| ApiError::internal("nothing was stored"))?;
    let response = match (wait, waits, shown.request_id()) {
        (Some(wait), Some(waits), Some(id)) => {
            let request = RequestId::new(id).map_err(|_| ApiError::internal("a request without a valid id"))?;
            Box::pin(collect_sent(ctx, caller, request, wait, waits, fresh)).await
        }
        _ => None,
    };
    let shown = if response.is_some() { shown.answered() } else { shown };
    let sent = view(shown).ok_or_else(|| ApiError::internal("what was stored is no message"))?;
    Ok(Sent::One(Box::new(sent), response.map(Box::new)))
}

/// Returns the warning that the reply to the request at `seq` carries (R5).
fn warning(state: &State, seq: Seq) -> Option<Box<str>> {
    let (delegate, exchange) = state.warned_at(seq)?;
    Some(stall::warning(state.name_of(delegate), exchange.curve(), exchange.hold().is_some()))
}

async fn without_message<M>(ctx: &Context, reply: Reply, warning: Option<String>) -> Result<Sent<M>, ApiError> {
    match admitted(Ok(reply))? {
        Reply::Finished { answer, open } => {
            Ok(Sent::Finished(Finished { turn: None, open, answer: answer.map(|a| a.to_string()), warning }))
        }
        Reply::Escalated(id) => {
            Ok(Sent::Escalated(Box::new(EscalationView { warning, ..escalations::show(ctx, id).await? })))
        }
        Reply::Done => Ok(Sent::Noted),
        other => Err(ApiError::unexpected(&other)),
    }
}

/// An answer that was collected, with its text if that is still in memory; or what the broker replied instead.
type Collected = Result<(Seq, Option<Vec<Shown>>), Reply>;

fn collected(reply: Reply, live: &Live<'_>) -> Collected {
    match reply {
        // Usually still in memory, which saves another read of the state.
        Reply::Delivery(Some(delivery)) => Ok((delivery.message, views::shown(live, &[delivery.message]))),
        other => Err(other),
    }
}

/// Starts to wait for the answer to the caller's request at `request`.
fn awaited(handle: &Handle, caller: Caller, request: Seq) -> Wait<Collected> {
    Wait::new(handle, caller.principal, request, collected)
}

/// Waits for the answer to a request that was just sent; `None` if it didn't arrive in time, or can't be collected, such
/// as on a disk that got low meanwhile. An error would read as a refused send, but the request is recorded.
async fn collect_sent(
    ctx: &Context,
    caller: Caller,
    request: RequestId,
    wait: Duration,
    waits: Wait<Collected>,
    fresh: bool,
) -> Option<StoredMessage> {
    // A new request has no answer yet. A repeated send (`Again`) may have been answered before the wait was registered.
    let there = if fresh { Ok(None) } else { Box::pin(collect_now(ctx, caller, request.clone())).await };
    let found = match there {
        Ok(None) => collect(ctx, caller, request, wait, waits).await,
        there => there,
    };
    found.unwrap_or_else(|error| {
        tracing::debug!(detail = %error.0.detail, "a sender's answer was not collected");
        None
    })
}

/// Waits for the answer to a request; `None` if it didn't arrive in time and will be delivered as usual.
async fn collect(
    ctx: &Context,
    caller: Caller,
    request: RequestId,
    wait: Duration,
    mut waits: Wait<Collected>,
) -> Result<Option<StoredMessage>, ApiError> {
    let stopwatch = Stopwatch::start();
    loop {
        let left = wait.saturating_sub(stopwatch.elapsed());
        let answered = match wait_for(ctx, waits.answer(), left).await {
            Some(answered) => answered,
            None => match waits.end().await {
                None => return Ok(None),
                answered => answered,
            },
        };
        if let Some(answered) = answered {
            return answer_of(ctx, answered).await;
        }
        // The disk had no room for the answer, so it is given again.
        waits = awaited(&ctx.handle, caller, waits.request());
        match Box::pin(collect_now(ctx, caller, request.clone())).await {
            Err(fault) if matches!(fault.0.code, Code::DiskLow | Code::LogGone) => {}
            Ok(None) => {}
            found => return found,
        }
    }
}

/// Returns the answer to a request if it exists and wasn't delivered as a turn.
async fn collect_now(ctx: &Context, caller: Caller, request: RequestId) -> Result<Option<StoredMessage>, ApiError> {
    answer_of(ctx, ctx.handle.submit_then(Input::Collect(caller.principal, request), collected).await?).await
}

async fn answer_of(ctx: &Context, collected: Collected) -> Result<Option<StoredMessage>, ApiError> {
    match collected {
        Ok((_, Some(shown))) => Ok(shown.into_iter().next().and_then(Shown::stored)),
        Ok((seq, None)) => Box::pin(one(ctx, seq)).await.map(Some),
        Err(other) => match admitted(Ok(other))? {
            Reply::Delivery(None) => Ok(None),
            other => Err(ApiError::unexpected(&other)),
        },
    }
}

/// Returns one message, without checking who may read it.
pub async fn one(ctx: &Context, seq: Seq) -> Result<StoredMessage, ApiError> {
    let shown = views::show(&ctx.handle, vec![seq]).await?;
    shown.into_iter().next().and_then(Shown::stored).ok_or_else(|| ApiError::unknown(&seq.to_string()))
}

/// Returns the scope that a message needs: an answer or a STATUS is a turn's work, and an agent's request to a human is a
/// question.
async fn scope_of(ctx: &Context, draft: &Draft, caller: Caller) -> Result<Scope, ApiError> {
    match draft.kind {
        MessageType::Response | MessageType::Status => Ok(Scope::Work),
        MessageType::Request if !caller.principal.is_human() => {
            let to = draft.to.clone();
            let asks = ctx.handle.query(move |live: &Live<'_>| may_reach_human(live, &to)).await?;
            Ok(if asks { Scope::Ask } else { Scope::Send })
        }
        MessageType::Request | MessageType::Broadcast | MessageType::Info | MessageType::Alert => Ok(Scope::Send),
    }
}

fn may_reach_human(live: &Live<'_>, to: &Address) -> bool {
    let is_human = |wanted: &dyn Fn(&Agent) -> bool| {
        live.state.agents.iter().any(|agent| agent.live && agent.is_human() && wanted(agent))
    };
    match to {
        Address::User | Address::All => true,
        Address::Name(name) => is_human(&|agent| agent.name.as_ref() == Some(name)),
        Address::Group(group) => is_human(&|agent| agent.profile.groups.contains(group)),
        Address::Action(action) => is_human(&|agent| agent.profile.actions.contains(action)),
        Address::List(all) => all.iter().any(|one| may_reach_human(live, one)),
    }
}
