//! The check of host and origin before each request.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use lastword_proto::Code;

use crate::calls::Context;
use crate::error::ApiError;

/// Refuses with 403, before anything is parsed.
pub(super) async fn check(State(ctx): State<Context>, request: Request, next: Next) -> Response {
    match ctx.origins.admits(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(why) => {
            ctx.handle.metrics().refuse(Code::Forbidden);
            ApiError::new(Code::Forbidden, why).into_response()
        }
    }
}
