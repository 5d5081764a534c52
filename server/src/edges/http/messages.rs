//! The calls under `/v1/messages`.

use std::time::Duration;

use axum::Json as Out;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use lastword_facts::names::RequestId;
use lastword_facts::{Code, Draft, MessageType, TraceContext, header};
use lastword_wire::{
    Envelope, EscalationView, FieldError, Finished, Page, Problem, Receipt, StoredMessage, TRACEPARENT, TRACESTATE,
    TRACESTATE_BYTES_MAX, canonical, text,
};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::extract::{
    Params, Representation, SendParams, content_type, idempotency_key, parse, parse_answer, parse_within, read,
};
use crate::calls::messages::{self, Sent, SentView};
use crate::calls::{Caller, Context, agents};
use crate::error::ApiError;

/// The result of a send, as its reply has it.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum SentBody<M = StoredMessage> {
    /// A sent message, and its answer if the sender waited and it arrived in time.
    Message {
        #[serde(flatten)]
        message: Box<M>,
        #[serde(skip_serializing_if = "Option::is_none")]
        response: Option<Box<StoredMessage>>,
    },
    Messages(Page<M>),
    Finished(Finished),
    Escalation(Box<EscalationView>),
}

/// Returns the body of the reply to a send; `None` for one without a body.
pub(crate) fn sent<M>(sent: Sent<M>) -> Option<SentBody<M>> {
    Some(match sent {
        Sent::One(message, response) => SentBody::Message { message, response },
        Sent::Many(items) => SentBody::Messages(Page::whole(items)),
        Sent::Finished(finished) => SentBody::Finished(finished),
        Sent::Escalated(escalation) => SentBody::Escalation(escalation),
        Sent::Noted => return None,
    })
}

/// The most messages of one list.
pub(super) const LIST_MAX: usize = 256;

/// The result of one message of a list: what the reply would have been, had it been sent alone.
#[derive(Serialize)]
struct MessageOutcome<M> {
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<SentBody<M>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<Box<Problem>>,
}

pub(super) async fn send(
    State(ctx): State<Context>,
    caller: Caller,
    Params(params): Params<SendParams>,
    request: Request,
) -> Result<Response, ApiError> {
    let wait = params.wait()?.filter(|wait| !wait.is_zero());
    match params.representation {
        Representation::Whole => Box::pin(sent_as::<StoredMessage>(&ctx, caller, wait, request)).await,
        Representation::Minimal => Box::pin(sent_as::<Receipt>(&ctx, caller, wait, request)).await,
    }
}

async fn sent_as<M: SentView + Serialize>(
    ctx: &Context,
    caller: Caller,
    wait: Option<Duration>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let bytes = read(&parts, body).await?;
    let json = matches!(content_type(&parts.headers).as_deref(), Some("application/json") | None);
    if json && bytes.trim_ascii_start().first() == Some(&b'[') {
        return send_list::<M>(ctx, caller, wait, &bytes, &parts.headers).await;
    }
    let draft = match draft(&bytes, &parts.headers) {
        Ok(draft) => draft,
        Err(fault) => {
            ctx.handle.metrics().refuse(fault.0.code);
            return Err(Box::pin(agents::by_display_name(ctx, fault)).await);
        }
    };
    Ok(match sent(messages::send::<M>(ctx, caller, Box::new(draft), wait).await?) {
        Some(body) => (StatusCode::CREATED, Out(body)).into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    })
}

/// Sends a list of messages. Each is judged for itself, in the order of the list.
async fn send_list<M: SentView + Serialize>(
    ctx: &Context,
    caller: Caller,
    wait: Option<Duration>,
    bytes: &[u8],
    headers: &HeaderMap,
) -> Result<Response, ApiError> {
    if idempotency_key(headers)?.is_some() {
        let text = "is for one message: give each message of a list a `request_id`";
        return Err(ApiError::pointless(&FieldError::new("Idempotency-Key", text)));
    }
    let list: Vec<&RawValue> = parse_within(bytes)?;
    if list.is_empty() || list.len() > LIST_MAX {
        let text = format!("a list has from 1 to {LIST_MAX} messages; this one has {}", list.len());
        return Err(ApiError::new(Code::Malformed, text));
    }
    // All are read before one is sent: a list with a malformed message sends nothing.
    let drafts = list.into_iter().enumerate().map(|(at, envelope)| {
        envelope_draft(envelope.get().as_bytes()).map(|draft| traced(draft, headers)).map_err(|fault| {
            ctx.handle.metrics().refuse(fault.0.code);
            ApiError::new(Code::Malformed, format!("message {at}, counted from 0: {}", fault.0.detail))
        })
    });
    let drafts = drafts.collect::<Result<Vec<Draft>, _>>()?;
    // Submitted together, so that one append makes all of them durable.
    let sends = drafts.into_iter().map(|draft| async move {
        match messages::send::<M>(ctx, caller, Box::new(draft), wait).await.map(sent) {
            Ok(body) => MessageOutcome { status: if body.is_some() { 201 } else { 204 }, body, problem: None },
            Err(fault) => MessageOutcome { status: fault.0.status, body: None, problem: Some(fault.0) },
        }
    });
    Ok(Out(Page::whole(join_all(sends).await)).into_response())
}

fn draft(bytes: &[u8], headers: &HeaderMap) -> Result<Draft, ApiError> {
    let draft = match content_type(headers).as_deref() {
        Some("text/plain") => {
            let flaw = text::no_utf8(bytes);
            let draft = text_draft(&String::from_utf8_lossy(bytes));
            match flaw {
                Some(flaw) if !draft.as_ref().is_ok_and(|draft| draft.kind == MessageType::Response) => {
                    return Err(ApiError::new(Code::MalformedHeader, flaw.to_string()));
                }
                Some(_) | None => draft?,
            }
        }
        Some("application/json") | None => envelope_draft(bytes)?,
        Some(other) => {
            let text = format!("Content-Type {other} is neither application/json nor text/plain");
            return Err(ApiError::new(Code::Malformed, text));
        }
    };
    Ok(traced(keyed(draft, idempotency_key(headers)?), headers))
}

/// Takes the trace context of the headers for a message that has none of its own. An invalid one is ignored, as W3C
/// requires.
fn traced(mut draft: Draft, headers: &HeaderMap) -> Draft {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let Some(context) = text(TRACEPARENT).and_then(TraceContext::parse).filter(|_| draft.trace.is_none()) else {
        return draft;
    };
    let kept = draft.metadata.take();
    let mut kept: Map<String, Value> = kept.and_then(|kept| serde_json::from_str(&kept).ok()).unwrap_or_default();
    let state = text(TRACESTATE).filter(|text| text.len() <= TRACESTATE_BYTES_MAX);
    for (name, value) in [(TRACEPARENT, Some(context.to_string())), (TRACESTATE, state.map(str::to_owned))] {
        kept.extend(value.map(|value| (name.to_owned(), Value::String(value))));
    }
    draft.metadata = Some(canonical(Value::Object(kept)));
    draft.trace = Some(context);
    draft
}

/// Parses the JSON form of a message. An answer isn't refused for text that isn't well-formed (F6).
pub(crate) fn envelope_draft(bytes: &[u8]) -> Result<Draft, ApiError> {
    let envelope = parse::<Envelope>(bytes).or_else(|fault| {
        let mended = text::flaw(bytes).and_then(|_| parse_answer::<Envelope>(bytes).ok());
        mended.filter(|envelope| envelope.kind == MessageType::Response).ok_or(fault)
    });
    Ok(envelope?.draft()?)
}

/// Parses the text form: the header, then the body unchanged (E1).
pub(crate) fn text_draft(text: &str) -> Result<Draft, ApiError> {
    let (header, body) = header::parse(text)?;
    let mut draft = Draft::new(header.kind, header.to, body.trim_start());
    draft.from = Some(header.from);
    draft.reference = Some(header.reference);
    draft.depth = Some(header.depth);
    draft.request_id = header.id;
    Ok(draft)
}

/// Uses the idempotency key as `request_id` if that is missing; it then names no work item (Q1). Not for
/// answers and statuses, whose `request_id` is another message's.
pub(crate) fn keyed(mut draft: Draft, key: Option<RequestId>) -> Draft {
    let about_another = matches!(draft.kind, MessageType::Response | MessageType::Status);
    let key = key.filter(|_| !about_another && draft.request_id.is_none());
    if key.is_some() {
        draft.request_id = key;
        draft.key_only = true;
    }
    draft
}
