//! The check of host and origin before each request.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use lastword_facts::Code;

use crate::calls::Context;
use crate::error::ApiError;

/// Refuses with 403, before anything is parsed.
pub(super) async fn check(State(ctx): State<Context>, request: Request, next: Next) -> Response {
    match ctx.origins.admits(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(why) => {
            ctx.handle.metrics().refuse(Code::Forbidden);
            let mut fault = ApiError::new(Code::Forbidden, why)
                .hinted("Allow the host with `lastword serve --host NAME`, or call the server by a name that it has.");
            // Nobody's token was looked at.
            fault.0.title = "The request names a host or a site that isn't allowed".into();
            fault.into_response()
        }
    }
}
