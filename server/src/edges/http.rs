//! The HTTP API: `/v1`, and the routes beside it.

mod absent;
pub(crate) mod answers;
mod backup;
pub(crate) mod connections;
mod documents;
pub(crate) mod events;
mod extract;
#[cfg(all(test, feature = "schema"))]
pub(crate) mod grammar;
mod inbox;
pub(crate) mod listen;
mod messages;
mod mount;
#[cfg(all(test, feature = "schema"))]
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
use std::sync::Arc;

use axum::Router;
use axum::http::header::ACCEPT;
use axum::http::{HeaderMap, Method, Uri};
use axum::middleware;
use axum::response::IntoResponse as _;
use axum::routing::{get, post};
use tower_http::catch_panic::CatchPanicLayer;

use lastword_facts::Code;
use lastword_wire::TypedCall as _;
use lastword_wire::calls::{BackUp, SendMessage, SignIn, StreamEvents, TakeDelivery};

use crate::calls::Context;
use crate::error::ApiError;

pub use self::absent::arguments;
pub use self::answers::{AnswerPermit, permitted};
pub use self::connections::{Peer, StreamPermit};
pub use self::documents::{ASYNCAPI, MESSAGE_SCHEMA, OPENAPI};
pub(crate) use self::events::Feed;
pub use self::extract::{MCP_SESSION_HEADER, attempt, authenticate, caller, origin, prove, read, succeeded, too_large};
pub(crate) use self::extract::{
    Representation, authenticate_bearer, bearer_header, client_id, params, parse, parse_answer, parse_wait,
};
pub use self::listen::serve;
pub(crate) use self::messages::{envelope_draft, keyed, sent, text_draft};
pub use self::mount::Mount;
pub use self::pages::Pages;
pub(crate) use self::problem::panicked;
pub use lastword_wire::session::REQUEST_BYTES_MAX;

/// The calls of `/v1`.
fn calls() -> Router<Context> {
    served::routes()
        .route(SendMessage::CALL.path, post(messages::send))
        .route(TakeDelivery::CALL.path, get(inbox::take))
        .route(StreamEvents::CALL.path, get(events::events))
        .route(BackUp::CALL.path, post(backup::make))
        .route(SignIn::CALL.path, get(sign_in::show).post(sign_in::sign_in))
}

/// Returns all routes of the server with these edges and pages, without a socket.
pub fn app(ctx: Context, mounts: &[Mount], pages: Pages) -> Router {
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
    let mounted = mounts.iter().fold(Router::new(), |all, mount| {
        let checked = middleware::from_fn_with_state(mount.parameters, query::check_mounted);
        all.merge((mount.routes)(&ctx).layer(checked))
    });
    let for_programs: Arc<[&str]> = FOR_PROGRAMS.into_iter().chain(mounts.iter().map(|mount| mount.prefix)).collect();
    let page = move |uri: &Uri, headers: &HeaderMap, fault: ApiError| {
        // A browser gets a page, a program a problem.
        let is_page = wants_page(headers) && !for_programs.iter().any(|prefix| uri.path().starts_with(prefix));
        if is_page { (pages.nowhere)(&fault) } else { fault.into_response() }
    };
    let absent = page.clone();
    let path = ctx.path.clone();
    let routes = Router::new()
        .nest("/v1", calls().merge(system).route("/session", session))
        .merge(outside)
        .layer(middleware::from_fn(query::check))
        // After the check of query parameters: the edges have their own, and the pages parse theirs.
        .merge(mounted)
        .merge((pages.routes)(&ctx))
        .fallback(async move |uri: Uri, headers: HeaderMap| absent(&uri, &headers, nothing(&uri)))
        .method_not_allowed_fallback(async move |method: Method, uri: Uri, headers: HeaderMap| {
            page(&uri, &headers, not_that_way(&method, &uri))
        })
        .layer(middleware::from_fn_with_state(ctx.clone(), origins::check))
        .layer(middleware::from_fn(answers::in_lane))
        .layer(CatchPanicLayer::custom(|panic: Box<dyn Any + Send>| panicked(&*panic).into_response()))
        .with_state(ctx);
    path.around(routes)
}

/// The path prefixes for programs, which get problems instead of pages; each mounted edge adds its own.
const FOR_PROGRAMS: [&str; 2] = ["/v1", "/.well-known"];

/// Returns whether a browser asks.
fn wants_page(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accept.contains("text/html")
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
