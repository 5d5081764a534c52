//! The check of query parameters. Unknown ones are refused by name, so that a misspelled filter isn't ignored.

use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use lastword_facts::Code;
use lastword_wire::CALLS;

use crate::error::ApiError;

/// Refuses a query parameter that the call doesn't have.
pub(super) async fn check(request: Request, next: Next) -> Response {
    if let Some(query) = request.uri().query() {
        let path = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
        // The router reports a method that the path doesn't have.
        let Some(known) = known(request.method(), path) else { return next.run(request).await };
        if let Err(fault) = allowed(query, known) {
            return fault.into_response();
        }
    }
    next.run(request).await
}

/// Refuses a query parameter that a mounted edge doesn't have.
pub(super) async fn check_mounted(
    State(known): State<&'static [&'static str]>,
    request: Request,
    next: Next,
) -> Response {
    match request.uri().query().map_or(Ok(()), |query| allowed(query, known)) {
        Ok(()) => next.run(request).await,
        Err(fault) => fault.into_response(),
    }
}

/// Refuses a query with another parameter than the known ones.
pub(crate) fn allowed(query: &str, known: &[&str]) -> Result<(), ApiError> {
    let mut names = query.split('&').map(|pair| pair.split('=').next().unwrap_or_default());
    let Some(unknown) = names.find(|name| !name.is_empty() && !known.contains(name)) else { return Ok(()) };
    let text = format!("unknown query parameter `{unknown}`; known: {}", known.join(", "));
    Err(ApiError::new(Code::Malformed, text))
}

/// Returns the parameters of a call; `None` if the path exists, but not with this method.
fn known(method: &Method, path: &str) -> Option<&'static [&'static str]> {
    let path = path.strip_prefix("/v1").unwrap_or(path);
    let method = if *method == Method::HEAD { &Method::GET } else { method };
    let mut calls = CALLS.iter().filter(|call| call.path == path).peekable();
    if calls.peek().is_none() {
        return Some(&[]);
    }
    calls.find(|call| call.method == method.as_str()).map(|call| call.query)
}
