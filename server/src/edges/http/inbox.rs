//! `GET /v1/inbox`: takes the next delivery.

use axum::Json as Out;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use super::extract::{InboxParams, Params};
use crate::calls::taking::Taking;
use crate::calls::{Caller, Context, inbox};
use crate::error::ApiError;

/// The header of an empty answer if another client holds what the agent has.
const HELD_HEADER: HeaderName = HeaderName::from_static("lastword-held-by");

pub(super) async fn take(
    State(ctx): State<Context>,
    caller: Caller,
    Params(params): Params<InboxParams>,
) -> Result<Response, ApiError> {
    let wait = params.wait()?.unwrap_or_default();
    Ok(match inbox::take(&ctx, caller, params.consumer(&caller), wait).await? {
        Taking::Delivery(delivery) => Out(delivery).into_response(),
        Taking::Nothing { held } => {
            let mut response = StatusCode::NO_CONTENT.into_response();
            if held {
                response.headers_mut().insert(HELD_HEADER, HeaderValue::from_static("other-client"));
            }
            response
        }
    })
}
