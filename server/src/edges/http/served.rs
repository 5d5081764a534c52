//! The routes of the table of calls.

use axum::Router;
use axum::extract::{FromRequestParts as _, RawPathParams, Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodFilter, on};
use lastword_wire::TypedCall as _;
use lastword_wire::calls::SignCheckpoint;

use super::answers;
use super::connections::Peer;
use super::extract::{idempotency_key, object};
use crate::calls::{Caller, Context};
use crate::edges::table::{Incoming, SERVED, Served};
use crate::error::ApiError;

/// Returns the routes of all calls that the table serves.
pub(super) fn routes() -> Router<Context> {
    SERVED.iter().fold(Router::new(), |routes, served| {
        let method = match served.call.method {
            "GET" => MethodFilter::GET,
            "PATCH" => MethodFilter::PATCH,
            "DELETE" => MethodFilter::DELETE,
            _ => MethodFilter::POST,
        };
        let work = async move |State(ctx): State<Context>, request: Request| answered(served, ctx, request).await;
        routes.route(served.call.path, on(method, work))
    })
}

async fn answered(served: &'static Served, ctx: Context, request: Request) -> Result<Response, ApiError> {
    let (mut parts, body) = request.into_parts();
    let caller = Caller::from_request_parts(&mut parts, &ctx).await?;
    let query = parts.uri.query().unwrap_or_default().to_owned();
    let permit = match parts.extensions.get::<Peer>() {
        Some(peer) => answers::enter(served.call, &query, peer).await?,
        None => None,
    };
    // The router has decoded it.
    let open = RawPathParams::from_request_parts(&mut parts, &ctx).await;
    let open = open.map_err(|rejection| ApiError::new(lastword_facts::Code::Malformed, rejection.body_text()))?;
    let part = open.iter().next().map(|(_, part)| part.to_owned()).unwrap_or_default();
    let key = idempotency_key(&parts.headers)?;
    let body = if served.call.body.is_some() { object(&parts, body).await? } else { axum::body::Bytes::new() };
    let authorization = parts.headers.get(AUTHORIZATION).cloned().unwrap_or(HeaderValue::from_static(""));
    let Some(json) = served.carry_out(Incoming { ctx, caller, authorization, part, query, key, body }).await? else {
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    if served.call == SignCheckpoint::CALL {
        // In plain text, the form in which a signed note is kept.
        return Ok(serde_json::from_slice::<String>(&json).unwrap_or_default().into_response());
    }
    let status = StatusCode::from_u16(served.call.status).unwrap_or(StatusCode::OK);
    let kind = (CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok((status, [kind], answers::permitted(json, permit)).into_response())
}
