//! The HTTP API: `/v1`, and the routes beside it.

pub(crate) mod absent;
pub(crate) mod answers;
mod backup;
pub(crate) mod connections;
mod documents;
pub(crate) mod events;
mod extract;
#[cfg(test)]
pub(crate) mod grammar;
mod inbox;
pub(crate) mod listen;
mod messages;
#[cfg(test)]
pub(crate) mod openapi;
mod origins;
mod pages;
mod problem;
pub(crate) mod query;
mod served;
mod sign_in;
mod stall;
mod system;

use std::any::Any;

use axum::Router;
use axum::http::header::ACCEPT;
use axum::http::{HeaderMap, Method, Uri};
use axum::middleware;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use tower_http::catch_panic::CatchPanicLayer;

use lastword_facts::Code;
use lastword_wire::TypedCall as _;
use lastword_wire::calls::{BackUp, SendMessage, SignIn, StreamEvents, TakeDelivery};

use crate::calls::Context;
use crate::edges::mcp::AnonymousMcp;
use crate::error::ApiError;

pub use self::connections::Peer;
pub use self::documents::{ASYNCAPI, MESSAGE_SCHEMA, OPENAPI};
pub(crate) use self::events::Feed;
pub(crate) use self::extract::{
    Representation, authenticate, authenticate_bearer, bearer_header, caller, client_id, params, parse, parse_answer,
    parse_wait, too_large,
};
pub use self::extract::{attempt, prove, read, succeeded};
pub use self::listen::serve;
pub(crate) use self::messages::{envelope_draft, keyed, sent, text_draft};
pub use self::pages::Pages;
pub(crate) use self::problem::panicked;
pub(crate) use lastword_wire::session::REQUEST_BYTES_MAX;

/// The calls of `/v1`.
fn calls() -> Router<Context> {
    served::routes()
        .route(SendMessage::CALL.path, post(messages::send))
        .route(TakeDelivery::CALL.path, get(inbox::take))
        .route(StreamEvents::CALL.path, get(events::events))
        .route(BackUp::CALL.path, post(backup::make))
        .route(SignIn::CALL.path, get(sign_in::show).post(sign_in::sign_in))
}

/// Returns all routes of the server with these pages, without a socket.
pub fn app(ctx: Context, pages: Pages, anonymous_mcp: Option<AnonymousMcp>) -> Router {
    let session = super::session::route(&ctx);
    let outside = Router::new()
        .route("/healthz", get(system::healthz))
        .route("/readyz", get(system::readyz))
        .route("/metrics", get(system::metrics))
        .route("/openapi.json", get(system::openapi))
        .route("/asyncapi.json", get(system::asyncapi))
        .route("/schema/message.json", get(system::message_schema));
    let system = Router::new()
        .route("/healthz", get(system::healthz))
        .route("/readyz", get(system::readyz))
        .route("/metrics", get(system::metrics));
    let described = super::mcp::METADATA_PATHS.into_iter();
    let described = described.fold(Router::new(), |all, path| all.route(path, get(super::mcp::metadata)));
    let path = ctx.path.clone();
    let routes = Router::new()
        .nest("/v1", calls().merge(system).route("/session", session))
        .merge(outside)
        .merge(described)
        .route("/mcp", super::mcp::route(&ctx, anonymous_mcp))
        .layer(middleware::from_fn(query::check))
        // After the check of query parameters: the pages parse their own.
        .merge((pages.routes)(&ctx))
        .fallback(async move |uri: Uri, headers: HeaderMap| absent_to(&pages, &uri, &headers, nothing(&uri)))
        .method_not_allowed_fallback(async move |method: Method, uri: Uri, headers: HeaderMap| {
            absent_to(&pages, &uri, &headers, not_that_way(&method, &uri))
        })
        .layer(middleware::from_fn_with_state(ctx.clone(), origins::check))
        .layer(middleware::from_fn(answers::in_lane))
        .layer(CatchPanicLayer::custom(|panic: Box<dyn Any + Send>| panicked(&*panic).into_response()))
        .with_state(ctx);
    path.around(routes)
}

/// The path prefixes for programs, which get problems instead of pages.
const FOR_PROGRAMS: [&str; 3] = ["/v1", "/mcp", "/.well-known"];

/// Returns whether a browser asks for a page.
fn wants_page(uri: &Uri, headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accept.contains("text/html") && !FOR_PROGRAMS.iter().any(|prefix| uri.path().starts_with(prefix))
}

/// Returns a fault as a page to a browser, and as a problem to a program.
fn absent_to(pages: &Pages, uri: &Uri, headers: &HeaderMap, fault: ApiError) -> Response {
    if wants_page(uri, headers) { (pages.nowhere)(&fault) } else { fault.into_response() }
}

fn nothing(uri: &Uri) -> ApiError {
    ApiError::new(Code::UnknownRequest, format!("There is nothing at {}", uri.path()))
        .hinted("Check the path: `/openapi.json` has all of them, most below `/v1`.")
}

fn not_that_way(method: &Method, uri: &Uri) -> ApiError {
    let mut fault = ApiError::new(Code::Malformed, format!("{} has no {method}", uri.path()))
        .hinted("Use a method that the header `Allow` of this response names.");
    fault.0.status = 405;
    fault
}
