//! The entry over HTTP: which callers reach which surface, and how a client without a token finds out how to get one.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Json, Router};
use futures_util::future::BoxFuture;
use lastword_server::edges::http::{authenticate, origin};
use lastword_server::{ApiError, Context, Mount, url};
use rmcp::ServerHandler;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::human;
use super::sessions::Sessions;
use super::wire::{Wire, Within};
use super::{Offer, Surface, listing};

/// The paths at which the server describes itself as a protected resource (RFC 9728), without and with the resource's
/// path.
const METADATA_PATHS: [&str; 2] =
    ["/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"];

/// Returns the edge: `/mcp`, and its description as a protected resource.
#[must_use]
pub fn mount() -> Mount {
    mounted(false, |ctx| routes(ctx, None))
}

/// Returns the edge with a surface for callers without a token, for conformance suites: the handler that `make` returns.
/// It gets nothing of the broker but a receiver that turns `true` when the server stops.
pub fn mount_with_anonymous<H: ServerHandler + Clone>(
    make: impl Fn(watch::Receiver<bool>) -> H + Send + Sync + 'static,
) -> Mount {
    let surface = move |stopping: watch::Receiver<bool>| -> Arc<dyn Serves> {
        let handler = make(stopping.clone());
        // Sessions of their own: an anonymous caller must never reach an agent's.
        Arc::new(Wire::new(Arc::default(), Within::Calls, stopping, move || handler.clone()))
    };
    mounted(true, move |ctx| routes(ctx, Some(surface(ctx.stopping.clone()))))
}

fn mounted(anonymous: bool, routes: impl Fn(&Context) -> Router<Context> + Send + Sync + 'static) -> Mount {
    Mount { prefix: "/mcp", parameters: &[listing::PARAMETER], anonymous, routes: Arc::new(routes) }
}

fn routes(ctx: &Context, anonymous: Option<Arc<dyn Serves>>) -> Router<Context> {
    let door = Arc::new(Door::new(ctx.clone(), anonymous));
    let described = METADATA_PATHS.into_iter().fold(Router::new(), |all, path| all.route(path, get(metadata)));
    described.route("/mcp", any(move |request: Request| async move { door.enter(request).await }))
}

/// A surface on the wire, whatever handles it.
trait Serves: Send + Sync {
    fn serve(self: Arc<Self>, request: Request) -> BoxFuture<'static, Response>;
}

impl<H: ServerHandler> Serves for Wire<H> {
    fn serve(self: Arc<Self>, request: Request) -> BoxFuture<'static, Response> {
        Box::pin(async move { self.handle(None, request).await })
    }
}

struct Door {
    ctx: Context,
    agents: Wire<Surface>,
    humans: Wire<Surface>,
    anonymous: Option<Arc<dyn Serves>>,
}

impl Door {
    fn new(ctx: Context, anonymous: Option<Arc<dyn Serves>>) -> Self {
        let stopping = ctx.stopping.clone();
        let [agents, humans] = [Offer::Agent, Offer::Human].map(|offer| {
            let sessions = Arc::new(Sessions::of(&ctx.handle));
            let local = (ctx.clone(), Arc::clone(&sessions));
            Wire::new(sessions, Within::Changes, stopping.clone(), move || {
                Surface::local(local.0.clone(), local.1.clone(), offer)
            })
        });
        Self { ctx, agents, humans, anonymous }
    }

    /// Routes an agent to the agents' surface, a human who asks for it to the humans' surface, and a caller without a
    /// token to the anonymous surface, if there is one.
    async fn enter(&self, mut request: Request) -> Response {
        for (_, value) in request.headers_mut().iter_mut().filter(|(name, _)| *name == AUTHORIZATION) {
            // Keeps the token out of logs of the request.
            value.set_sensitive(true);
        }
        let presented = request.headers().contains_key(AUTHORIZATION);
        if let Some(anonymous) = self.anonymous.as_ref().filter(|_| !presented) {
            return Arc::clone(anonymous).serve(request).await;
        }
        match authenticate(&self.ctx, request.headers(), request.extensions()) {
            Ok(caller) => {
                let surface = match (caller.principal.is_human(), human::asked(request.headers())) {
                    (false, _) => &self.agents,
                    (true, true) => &self.humans,
                    (true, false) => return human::refused().into_response(),
                };
                surface.handle(Some(caller.principal.agent()), request).await
            }
            Err(fault) => challenged(&self.ctx, request.headers(), presented, fault),
        }
    }
}

/// Converts a refusal to a response. If a token is missing or invalid, the response says where the server's description
/// is.
fn challenged(ctx: &Context, headers: &HeaderMap, presented: bool, fault: ApiError) -> Response {
    let mut response = fault.into_response();
    if response.status() == StatusCode::UNAUTHORIZED
        && let Some(origin) = origin(ctx, headers)
    {
        // RFC 6750: no error code for a request without credentials.
        let error = if presented { r#"error="invalid_token", "# } else { "" };
        let challenge = format!(r#"Bearer {error}resource_metadata="{origin}{}""#, url(METADATA_PATHS[1]));
        if let Ok(challenge) = HeaderValue::from_str(&challenge) {
            response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
    }
    response
}

/// Returns the description of `/mcp` as a protected resource. It names no authorization server: the operator issues the
/// tokens, and no OAuth grant yields one.
async fn metadata(State(ctx): State<Context>, headers: HeaderMap) -> Json<Value> {
    Json(json!({
        "resource": format!("{}{}", origin(&ctx, &headers).unwrap_or_default(), url("/mcp")),
        "resource_name": "Lastword",
        "bearer_methods_supported": ["header"],
        "scopes_supported": [],
    }))
}
