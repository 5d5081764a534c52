//! Deliveries as their readers get them: with the message, its notices and the results of earlier steps.

use std::sync::Arc;

use lastword_broker::Parcel;
use lastword_core::input;
use lastword_facts::fact::StepKept;
use lastword_facts::names::SYSTEM_NAME;
use lastword_facts::{Entry, Fact, MessageType, Seq};
use lastword_wire::quote::quoted;
use lastword_wire::{Delivery, Notice, NoticeKind, StepResult, StoredMessage, TurnView, rfc3339};

use super::{Caller, Context};
use crate::error::ApiError;
use crate::views::{self, Fitted, Shown, Worded};

/// Returns a delivery in its wire form.
pub(crate) async fn packed(
    ctx: &Context,
    caller: Caller,
    parcel: Parcel,
    shown: Option<Vec<Shown>>,
) -> Result<Option<(Parcel, Delivery)>, ApiError> {
    let Some(taken) = parcel.delivery() else { return Ok(None) };
    let delivery = worded(ctx, caller, taken, shown).await?;
    Ok(Some((parcel, delivery)))
}

async fn worded(
    ctx: &Context,
    caller: Caller,
    taken: &input::Delivery,
    shown: Option<Vec<Shown>>,
) -> Result<Delivery, ApiError> {
    let shown = match shown {
        Some(shown) => shown,
        None => Box::pin(views::show(&ctx.handle, vec![taken.message])).await?,
    };
    let message = match shown.into_iter().next().and_then(Shown::delivered) {
        Some(message) => message,
        None => Box::pin(noted(ctx, caller, taken)).await?,
    };
    let mut worded = Box::pin(views::notices(
        &ctx.handle,
        taken.notices.clone(),
        views::Reader::with_shell(caller.principal.agent()),
    ))
    .await?;
    worded.extend(again(&message).map(|notice| Worded { notice, call: None }));
    let notices = fit(ctx, caller, worded);
    let attempt = taken.turn.map_or(0, |turn| turn.attempt);
    let steps = Box::pin(kept(ctx, &taken.steps)).await?;
    let turn = taken.turn.map(|turn| TurnView {
        id: turn.turn.to_string(),
        token: ctx.handle.signer().sign(turn.turn, caller.principal.agent()),
        deadline: rfc3339(turn.lease_until),
        attempt: turn.attempt,
        steps,
        traceparent: ctx.traces.of_turn(ctx.handle.signer(), &turn).map(|context| context.to_string()),
    });
    Ok(Delivery { delivery: format!("dlv-{}.{attempt}", message.seq), turn, message, notices })
}

/// Returns the results of steps at these positions.
async fn kept(ctx: &Context, positions: &[Seq]) -> Result<Vec<StepResult>, ApiError> {
    let mut steps = Vec::new();
    if positions.is_empty() {
        return Ok(steps);
    }
    let read = |_, entry: &Arc<Entry>| {
        let Fact::StepKept(StepKept { key, result, .. }) = &entry.fact else { return };
        let result = serde_json::from_str(result).unwrap_or_default();
        steps.push(StepResult { key: key.to_string(), result });
    };
    ctx.handle.visit(positions.to_vec(), read).await?;
    Ok(steps)
}

/// Returns the notice for a request that is run again for its failed parts (Q5).
fn again(message: &StoredMessage) -> Option<Notice> {
    if message.kind != MessageType::Request || message.failed.is_empty() {
        return None;
    }
    let failed: Vec<String> = message.failed.iter().map(|part| quoted(part)).collect();
    Some(Notice {
        id: message.id.clone(),
        kind: NoticeKind::Warning,
        from: SYSTEM_NAME.into(),
        from_human: false,
        reference: Some(message.reference.clone()),
        request_id: message.request_id.clone(),
        body: format!("Only these parts failed and are to be done again: {}.", failed.join(", ")),
        payload: None,
        eta_ms: None,
        created_at: message.created_at.clone(),
    })
}

/// Shows a fact that is not a message, such as an escalation, to a human in the form of a message.
async fn noted(ctx: &Context, caller: Caller, taken: &input::Delivery) -> Result<StoredMessage, ApiError> {
    let reader = caller.principal.agent();
    let worded =
        views::notices(&ctx.handle, vec![taken.message], views::Reader::with_shell(reader)).await?.into_iter().next();
    let Worded { notice, .. } = worded.ok_or_else(|| ApiError::internal("a delivery of nothing"))?;
    let to = ctx.handle.query(move |live| live.state.name_of(reader).to_owned()).await?;
    let kind = match notice.kind {
        NoticeKind::Alert => MessageType::Alert,
        NoticeKind::Status => MessageType::Status,
        NoticeKind::Broadcast => MessageType::Broadcast,
        NoticeKind::Info | NoticeKind::Late | NoticeKind::Warning => MessageType::Info,
    };
    Ok(StoredMessage {
        id: notice.id,
        seq: taken.message.0,
        from: notice.from,
        from_human: notice.from_human,
        to,
        reference: notice.reference.unwrap_or_default(),
        request_id: notice.request_id,
        body: notice.body,
        payload: notice.payload,
        created_at: notice.created_at,
        ..StoredMessage::blank(kind)
    })
}

/// Fits the notices of a delivery into their size limit (L3). A held call that they show in full counts as shown to the
/// reader (H2).
pub(super) fn fit(ctx: &Context, caller: Caller, worded: Vec<Worded>) -> Vec<Notice> {
    let Fitted { notices, calls } = views::fitted(worded, &ctx.handle.limits());
    for (id, digest) in calls {
        ctx.shown.remember(caller.principal.agent(), id, digest);
    }
    notices
}
