//! Refusals as `application/problem+json`.

use std::any::Any;

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use crate::error::ApiError;

/// The content type of a refusal.
pub(crate) const PROBLEM: &str = "application/problem+json";

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let problem = *self.0;
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM));
        if let Some(ms) = problem.retry_after_ms {
            headers.insert(RETRY_AFTER, HeaderValue::from(ms.div_ceil(1_000)));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// Returns the answer to a call whose function panicked, which is a bug; the panic's message goes only to the log.
pub(crate) fn panicked(panic: &(dyn Any + Send)) -> ApiError {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(panic = text.unwrap_or("?"), "a handler panicked");
    ApiError::internal("an internal error")
}
