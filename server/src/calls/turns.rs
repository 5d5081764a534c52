//! The calls that end or renew turns.

use lastword_core::input;
use lastword_core::{Input, Reply};
use lastword_facts::fact::ModelSpend;
use lastword_facts::ids::TurnId;
use lastword_facts::names::RequestId;
use lastword_facts::stall::Reading;
use lastword_wire::{FieldError, Finish, Finished, Progress, Renewed, Usage, rfc3339, text};

use super::{Caller, Context, admitted, check_sizes, checked, nests, total};
use crate::error::ApiError;

/// Finishes a turn (F2).
pub async fn finish(
    ctx: &Context,
    caller: Caller,
    turn: Option<TurnId>,
    finish: Box<Finish>,
) -> Result<Finished, ApiError> {
    let turn = turn.or(caller.turn);
    let payload = finish.payload.filter(|p| !p.is_null()).map(|p| p.to_string());
    let lengths = [
        ("answer", finish.answer.len()),
        ("payload", payload.as_ref().map_or(0, String::len)),
        ("completed", total(&finish.completed)),
        ("failed", total(&finish.failed)),
        ("reason", finish.reason.as_ref().map_or(0, String::len)),
    ];
    check_sizes(ctx, lengths)?;
    nests(ctx, payload.as_deref())?;
    let texts = [&finish.answer, payload.as_deref().unwrap_or_default(), finish.reason.as_deref().unwrap_or_default()];
    let warning =
        text::warning(texts.into_iter().chain(finish.completed.iter().chain(&finish.failed).map(String::as_str)));
    let boxed = |parts: Vec<String>| parts.into_iter().map(Into::into).collect();
    // On this thread, because the judge's is the one that every finish waits for.
    let reading = Some(Box::new(Reading::of(&finish.answer, payload.as_deref())));
    let finish = input::Finish {
        status: finish.status,
        body: finish.answer.into(),
        payload: payload.map(Into::into),
        completed: boxed(finish.completed),
        failed: boxed(finish.failed),
        reason: finish.reason.map(Into::into),
        spend: finish.usage.as_ref().map(Usage::spend),
        models: models(finish.usage.as_ref())?,
        estimated: finish.usage.is_some_and(|usage| usage.estimated),
        request: None,
        reading,
    };
    let reply = ctx.handle.submit(Input::Finish(caller.principal, turn, Box::new(finish))).await;
    match admitted(reply)? {
        Reply::Finished { answer, open } => {
            let (turn, answer) = (turn.map(|turn| turn.to_string()), answer.map(|seq| seq.to_string()));
            Ok(Finished { turn, open, answer, warning })
        }
        other => Err(ApiError::unexpected(&other)),
    }
}

/// Returns the parts of a report by model.
fn models(usage: Option<&Usage>) -> Result<Vec<ModelSpend>, ApiError> {
    usage.map_or(Ok(Vec::new()), Usage::by_model).map_err(|error| ApiError::pointless(&error))
}

/// Reports progress, which renews the lease.
pub async fn progress(
    ctx: &Context,
    caller: Caller,
    turn: Option<TurnId>,
    report: Progress,
) -> Result<Renewed, ApiError> {
    let step = report.step.map(|step| Ok((checked("step.key", &step.key, RequestId::new)?, step.result.to_string())));
    let step = step.transpose().map_err(|error: FieldError| ApiError::from(error))?;
    let result = step.as_ref().map(|(_, result)| result.as_str());
    check_sizes(ctx, [("note", report.note.len()), ("step.result", result.map_or(0, str::len))])?;
    nests(ctx, result)?;
    let report = input::Progress {
        note: report.note.into(),
        eta_ms: report.eta_ms,
        spend: report.usage.as_ref().map(Usage::spend),
        models: models(report.usage.as_ref())?,
        new_session: report.new_session,
        outside: report.outside,
        waits_for_user: report.waits_for_user,
        step: step.map(|(key, result)| (key, result.into())),
    };
    if let Some(turn) = turn.or(caller.turn) {
        ctx.handle.holders().seen(turn, ctx.handle.now());
    }
    let reply = ctx.handle.submit(Input::Progress(caller.principal, turn.or(caller.turn), report)).await;
    match admitted(reply)? {
        Reply::Renewed { lease_until, finish, end } => Ok(Renewed { deadline: rfc3339(lease_until), finish, end }),
        other => Err(ApiError::unexpected(&other)),
    }
}
