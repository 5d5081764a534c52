//! What was issued before a restore, and is not in this log any more (L8).

use lastword_broker::Live;
use lastword_core::state::{Epochs, Number as _, Numbered, RequestNumber};
use lastword_facts::ids::{ApprovalId, ClaimId, EscalationId, GrantId, IncidentId, TurnId};
use lastword_facts::{Code, Refusal, Seq};

use super::Context;
use crate::error::{ApiError, record_of};

/// Refuses a position that this log doesn't have: it is ahead of the log, or a restore went back to before it. The
/// refusal's limit is the last position that this log shares with the history of that one.
pub async fn check_position(ctx: &Context, position: Seq) -> Result<(), ApiError> {
    let last = *ctx.handle.committed().borrow();
    let look = move |live: &Live<'_>| live.state.epochs.shared(position);
    let shared = ctx.handle.query(look).await?.map_or(last, |end| end.min(last));
    if shared >= position {
        return Ok(());
    }
    let refusal = Refusal::new(Code::EpochOver).about(format_args!("position {}", position.0));
    Err(ApiError::from(refusal.numbers(shared.0, position.0)))
}

/// Returns what was found under an id, or the refusal of the id.
pub(crate) async fn found<T>(ctx: &Context, id: &str, found: Option<T>) -> Result<T, ApiError> {
    match found {
        Some(found) => Ok(found),
        None => Err(unknown(ctx, id).await),
    }
}

/// Returns the refusal of an id that is not in this log: it was issued before a restore, or is unknown.
pub async fn unknown(ctx: &Context, id: &str) -> ApiError {
    let text = id.to_owned();
    match ctx.handle.query(move |live: &Live<'_>| is_over(&live.state.epochs, &text)).await {
        Ok(true) => ApiError::from(Refusal::new(Code::EpochOver).about(id)),
        Ok(false) | Err(_) => ApiError::unknown(id),
    }
}

fn is_over(epochs: &Epochs, id: &str) -> bool {
    let numbered = [
        (Numbered::Position, Seq::parse(id).or_else(|| record_of(id)).map(|id| id.0)),
        (Numbered::Turn, TurnId::parse(id).map(|id| id.0)),
        (Numbered::Request, RequestNumber::of(id).map(RequestNumber::value)),
        (Numbered::Escalation, EscalationId::parse(id).map(|id| id.0)),
        (Numbered::Approval, ApprovalId::parse(id).map(|id| id.0)),
        (Numbered::Claim, ClaimId::parse(id).map(|id| id.0)),
        (Numbered::Grant, GrantId::parse(id).map(|id| id.0)),
        (Numbered::Incident, IncidentId::parse(id).map(|id| id.0)),
    ];
    numbered.into_iter().any(|(kind, number)| number.is_some_and(|number| epochs.is_over(kind, number)))
}
