//! The pages that are served beside the API. Another crate has them: the server knows only where they hang.

use axum::Router;
use axum::response::{IntoResponse as _, Response};

use crate::calls::Context;
use crate::error::ApiError;

/// Pages for browsers. The default is none: a browser gets what a program gets.
#[derive(Clone, Copy, Debug)]
pub struct Pages {
    /// Returns the routes of the pages of a workspace.
    pub routes: fn(&Context) -> Router<Context>,
    /// Returns the answer to a browser whose address or method the server doesn't have.
    pub nowhere: fn(&ApiError) -> Response,
}

impl Default for Pages {
    fn default() -> Self {
        Self { routes: |_| Router::new(), nowhere: |fault| fault.clone().into_response() }
    }
}
