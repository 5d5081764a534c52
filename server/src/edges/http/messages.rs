//! The calls under `/v1/messages`.

use axum::Json as Out;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use lastword_proto::wire::{Envelope, FieldError, Page, StoredMessage};
use lastword_proto::{Code, Draft, MessageType, header};
use serde::Serialize;

use super::extract::{Params, WaitParams, content_type, idempotency_key, parse, read};
use crate::calls::audit::{self, AuditParams};
use crate::calls::messages::{self, Sent};
use crate::calls::{Caller, Context};
use crate::error::ApiError;

/// A sent message, and its answer if the sender waited and it arrived in time.
#[derive(Serialize)]
struct WithResponse {
    #[serde(flatten)]
    message: StoredMessage,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<StoredMessage>,
}

pub(super) async fn send(
    State(ctx): State<Context>,
    caller: Caller,
    Params(params): Params<WaitParams>,
    request: Request,
) -> Result<Response, ApiError> {
    let wait = params.wait()?.filter(|wait| !wait.is_zero());
    let draft = draft(request).await.inspect_err(|fault| ctx.handle.metrics().refuse(fault.0.code))?;
    Ok(match messages::send(&ctx, caller, draft, wait).await? {
        Sent::One(message, response) => {
            let body = WithResponse { message: *message, response: response.map(|r| *r) };
            (StatusCode::CREATED, Out(body)).into_response()
        }
        Sent::Many(items) => (StatusCode::CREATED, Out(Page::whole(items))).into_response(),
        Sent::Finished(finished) => (StatusCode::CREATED, Out(finished)).into_response(),
        Sent::Escalated(escalation) => (StatusCode::CREATED, Out(*escalation)).into_response(),
        Sent::Noted => StatusCode::NO_CONTENT.into_response(),
    })
}

async fn draft(request: Request) -> Result<Draft, ApiError> {
    let (parts, body) = request.into_parts();
    let bytes = read(&parts, body).await?;
    let draft = match content_type(&parts.headers).as_deref() {
        Some("text/plain") => text_draft(&bytes)?,
        Some("application/json") | None => parse::<Envelope>(&bytes)?.draft()?,
        Some(other) => {
            let text = format!("Content-Type {other} is neither application/json nor text/plain");
            return Err(ApiError::new(Code::Malformed, text));
        }
    };
    keyed(draft, &parts.headers)
}

/// Parses the text form: the header, then the body unchanged (E1).
fn text_draft(bytes: &[u8]) -> Result<Draft, ApiError> {
    let text = std::str::from_utf8(bytes)
        .map_err(|e| ApiError::new(Code::MalformedHeader, format!("no UTF-8 at byte {}", e.valid_up_to())))?;
    let (header, body) = header::parse(text)?;
    let mut draft = Draft::new(header.kind, header.to, body.trim_start());
    draft.from = Some(header.from);
    draft.reference = Some(header.reference);
    draft.depth = Some(header.depth);
    draft.request_id = header.id;
    Ok(draft)
}

/// Uses the header `Idempotency-Key` as `request_id` if that is missing; it then names no work item (Q1). Not for
/// answers and statuses, whose `request_id` is another message's.
fn keyed(mut draft: Draft, headers: &HeaderMap) -> Result<Draft, ApiError> {
    let about_another = matches!(draft.kind, MessageType::Response | MessageType::Status);
    let key = idempotency_key(headers)?.filter(|_| !about_another && draft.request_id.is_none());
    if key.is_some() {
        draft.request_id = key;
        draft.key_only = true;
    }
    Ok(draft)
}

pub(super) async fn list(
    State(ctx): State<Context>,
    caller: Caller,
    Params(params): Params<AuditParams>,
) -> Result<Out<Page<StoredMessage>>, ApiError> {
    if params.q.as_ref().is_some_and(|words| words.trim().is_empty()) {
        return Err(ApiError::pointless(&FieldError::new("q", "is empty: leave it out, or give words to search for")));
    }
    audit::messages(&ctx, caller, params).await.map(Out)
}

pub(super) async fn show(
    State(ctx): State<Context>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Out<StoredMessage>, ApiError> {
    audit::message(&ctx, caller, &id).await.map(Out)
}
