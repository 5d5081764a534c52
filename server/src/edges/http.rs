//! The HTTP API: `/v1`, and the routes beside it.

pub(crate) mod absent;
mod agents;
pub(crate) mod answers;
mod approvals;
mod archives;
mod backup;
mod checkpoints;
mod claims;
mod clock;
pub(crate) mod connections;
mod conversations;
mod documents;
mod escalations;
pub(crate) mod events;
mod explanations;
mod extract;
#[cfg(test)]
pub(crate) mod grammar;
mod humans;
mod inbox;
mod incidents;
mod limits;
pub(crate) mod listen;
mod messages;
#[cfg(test)]
pub(crate) mod openapi;
mod origins;
mod pages;
mod problem;
mod query;
mod requests;
mod rooms;
mod schedules;
mod sign_in;
mod stall;
mod system;
mod tokens;

use axum::Router;
use axum::http::header::ACCEPT;
use axum::http::{HeaderMap, Method, Uri};
use axum::middleware;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{delete, get, patch, post};
use tower_http::catch_panic::CatchPanicLayer;

use lastword_facts::Code;

use crate::calls::Context;
use crate::edges::mcp::AnonymousMcp;
use crate::error::ApiError;

pub use self::connections::Peer;
pub use self::documents::{ASYNCAPI, MESSAGE_SCHEMA, OPENAPI};
pub(crate) use self::events::Feed;
pub(crate) use self::extract::{
    CLIENT_HEADER, Representation, authenticate, authenticate_bearer, bearer_header, caller, client_id, parse,
    parse_answer, parse_wait, too_large,
};
pub use self::extract::{attempt, prove, read, succeeded};
pub use self::listen::serve;
pub(crate) use self::messages::{envelope_draft, keyed, sent, text_draft};
pub use self::pages::Pages;
pub(crate) use self::problem::PROBLEM;
pub(crate) use lastword_wire::session::REQUEST_BYTES_MAX;

/// The calls of `/v1`.
fn calls() -> Router<Context> {
    Router::new()
        .merge(work())
        .merge(people())
        .merge(desk())
        .route("/events", get(events::events))
        .route("/sign-in", get(sign_in::show).post(sign_in::sign_in))
        .route("/sign-in/link", post(sign_in::link))
        .route("/token", post(tokens::narrow).delete(tokens::end))
        .route("/clock", get(clock::show))
        .route("/clock/accept", post(clock::accept))
        .route("/limits", get(limits::show))
        .route("/archives", get(archives::show).post(archives::move_now))
        .route("/backup", post(backup::make))
        .route("/checkpoint", get(checkpoints::sign))
}

/// Returns the routes that serve the calls of sessions.
fn session_calls(ctx: Context) -> Router {
    Router::new()
        .nest("/v1", calls())
        .route("/mcp", super::mcp::route(&ctx, None))
        .layer(middleware::from_fn(query::check))
        .fallback(async |uri: Uri| nothing(&uri))
        .layer(CatchPanicLayer::custom(problem::panicked))
        .with_state(ctx)
}

/// Returns all routes of the server with these pages, without a socket.
pub fn app(ctx: Context, pages: Pages, anonymous_mcp: Option<AnonymousMcp>) -> Router {
    let session = super::session::route(&ctx, session_calls);
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
        .nest("/v1", calls().layer(middleware::from_fn(answers::count)).merge(system).route("/session", session))
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
        .layer(CatchPanicLayer::custom(problem::panicked))
        .with_state(ctx);
    path.around(routes)
}

fn work() -> Router<Context> {
    Router::new()
        .route("/messages", post(messages::send).get(messages::list))
        .route("/messages/{id}", get(messages::show))
        .route("/inbox", get(inbox::take))
        .route("/turns/{id}/finish", post(inbox::finish))
        .route("/turns/{id}/progress", post(inbox::progress))
        .route("/conversations", get(conversations::list))
        .route("/conversations/{ref}", get(conversations::show))
        .route("/conversations/{ref}/{verb}", post(conversations::control))
        .route("/workspace/{verb}", post(conversations::control_all))
        .route("/requests/{id}", get(requests::show))
        .route("/requests/{id}/cancel", post(requests::cancel))
        .route("/explanations/{id}", get(explanations::show))
        .route("/incidents", get(incidents::list))
}

fn people() -> Router<Context> {
    Router::new()
        .route("/agents", get(agents::list).post(agents::add))
        .route("/agents/{name}", get(agents::show).patch(agents::amend).delete(agents::remove))
        .route("/agents/{name}/grant", post(agents::grant))
        .route("/agents/{name}/prompt", post(agents::prompt))
        .route("/agents/{name}/unavailable", post(agents::unavailable))
        .route("/agents/{name}/{verb}", post(agents::verb))
        .route("/humans", get(humans::list).post(humans::add))
        .route("/humans/{name}", patch(humans::amend))
        .route("/rooms", get(rooms::list).post(rooms::open))
        .route("/rooms/{room}/messages", post(rooms::post))
        .route("/schedules", get(schedules::list).post(schedules::set))
        .route("/schedules/{id}", delete(schedules::remove))
        .route("/schedules/{id}/run", post(schedules::run))
        .route("/claims", get(claims::list).post(claims::take))
        .route("/claims/{id}", delete(claims::release))
}

fn desk() -> Router<Context> {
    Router::new()
        .route("/escalations", get(escalations::list).post(escalations::escalate))
        .route("/escalations/{id}", get(escalations::show))
        .route("/escalations/{id}/answer", post(escalations::answer))
        .route("/approvals", get(approvals::list).post(approvals::hold))
        .route("/approvals/{id}", get(approvals::show))
        .route("/approvals/{id}/decision", post(approvals::decide))
        .route("/approvals/{id}/use", post(approvals::spend))
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
