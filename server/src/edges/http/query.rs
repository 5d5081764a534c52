//! Query parameters: those that a call doesn't have are refused by name, so that a misspelt filter is never
//! taken for no filter.

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use lastword_proto::Code;

use super::openapi::CALLS;
use crate::edges::Fault;

pub(super) async fn check(request: Request, next: Next) -> Response {
    if let Some(query) = request.uri().query() {
        let path = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
        let known = known(request.method().as_str(), path);
        let mut names = query.split('&').map(|pair| pair.split('=').next().unwrap_or_default());
        if let Some(unknown) = names.find(|name| !name.is_empty() && !known.contains(name)) {
            let text = format!("there is no query parameter `{unknown}` here; there are: {}", known.join(", "));
            return Fault::new(Code::Malformed, text).into_response();
        }
    }
    next.run(request).await
}

fn known(method: &str, path: &str) -> Vec<&'static str> {
    let path = path.strip_prefix("/v1").unwrap_or(path);
    let row = CALLS.iter().find(|row| row.0.eq_ignore_ascii_case(method) && row.1 == path);
    row.map_or_else(Vec::new, |row| row.3.split_whitespace().collect())
}
