//! The REST interface: what applies to every call.

mod channels;
mod guild;
mod interactions;
mod messages;
mod reactions;
mod webhooks;

pub(crate) use messages::pinned;
pub(crate) use reactions::reacts;

use std::time::{Duration, UNIX_EPOCH};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, patch, post, put};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Shared;
use super::faults::{Call, Mishap};
use super::gateway;
use super::model::{Discord, Id};

/// A refusal in Discord's words.
#[derive(Debug)]
pub(crate) struct No {
    status: u16,
    body: Value,
}

impl No {
    pub(crate) fn new(status: u16, code: u64, message: &str) -> Self {
        Self { status, body: json!({"code": code, "message": message}) }
    }

    /// Builds a 400 that names the faulty member.
    pub(crate) fn form(member: &str, code: &str, message: &str) -> Self {
        let errors = json!({member: {"_errors": [{"code": code, "message": message}]}});
        Self { status: 400, body: json!({"code": 50035, "message": "Invalid Form Body", "errors": errors}) }
    }

    pub(crate) fn unknown(code: u64, what: &str) -> Self {
        Self::new(404, code, &format!("Unknown {what}"))
    }

    pub(crate) fn access() -> Self {
        Self::new(403, 50001, "Missing Access")
    }

    pub(crate) fn permissions() -> Self {
        Self::new(403, 50013, "Missing Permissions")
    }
}

impl IntoResponse for No {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, axum::Json(self.body)).into_response()
    }
}

/// The result of a call: a body, or 204 if it is null.
pub(crate) type Answer = Result<Reply, No>;

/// A body, or 204 if it is null.
#[derive(Debug)]
pub(crate) struct Reply(pub(crate) Value);

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        if self.0.is_null() { StatusCode::NO_CONTENT.into_response() } else { axum::Json(self.0).into_response() }
    }
}

/// The calling bot, by its token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller(pub(crate) Id);

impl axum::extract::FromRequestParts<Shared> for Caller {
    type Rejection = No;

    async fn from_request_parts(parts: &mut axum::http::request::Parts, shared: &Shared) -> Result<Self, No> {
        let bot = shared.with(|discord| caller(discord, &parts.headers));
        bot.map(Self).ok_or_else(|| No::new(401, 0, "401: Unauthorized"))
    }
}

fn caller(discord: &Discord, headers: &HeaderMap) -> Option<Id> {
    let token = headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bot ")?;
    discord.by_token(token).map(|bot| bot.id)
}

/// Parses an id in a path.
pub(crate) fn number(text: &str) -> Result<Id, No> {
    text.parse().map_err(|_| No::form("id", "NUMBER_TYPE_COERCE", &format!("Value \"{text}\" is not snowflake.")))
}

/// Returns a body's JSON: the body itself, or `payload_json` of a form with files.
pub(crate) fn payload(headers: &HeaderMap, body: &Bytes) -> Result<Value, No> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let bad = |_| No::new(400, 50109, "The request body contains invalid JSON.");
    let Some((_, boundary)) = kind.split_once("boundary=").filter(|_| kind.starts_with("multipart/form-data")) else {
        return serde_json::from_slice(body).map_err(bad);
    };
    let text = String::from_utf8_lossy(body);
    let part = text.split(&format!("--{boundary}")).find(|part| part.contains("name=\"payload_json\""));
    let json = part.and_then(|part| part.split_once("\r\n\r\n")).map(|(_, rest)| rest.trim_end());
    serde_json::from_str(json.unwrap_or_default()).map_err(bad)
}

/// Returns the file of a form, as an attachment with its text.
pub(crate) fn file(headers: &HeaderMap, body: &Bytes) -> Option<Value> {
    let kind = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    let (_, boundary) = kind.split_once("boundary=")?;
    let text = String::from_utf8_lossy(body);
    let part = text.split(&format!("--{boundary}")).find(|part| part.contains("name=\"files[0]\""))?;
    let (head, content) = part.split_once("\r\n\r\n")?;
    let name = head.split("filename=\"").nth(1)?.split('"').next()?;
    Some(json!({"id": "1", "filename": name, "url": "https://cdn.invalid/1", "text": content.trim_end_matches("\r\n")}))
}

/// Routes everything under `/api/v10`, and the gateway.
pub(crate) fn router(shared: Shared) -> Router {
    let api = guild_routes().merge(channel_routes()).merge(interaction_routes());
    let api = api.fallback(async || No::new(404, 0, "404: Not Found"));
    let api = api.layer(from_fn_with_state(shared.clone(), pass));
    Router::new().route("/", get(gateway::connect)).nest("/api/v10", api).with_state(shared)
}

fn guild_routes() -> Router<Shared> {
    Router::new()
        .route("/gateway", get(guild::gateway))
        .route("/gateway/bot", get(guild::gateway))
        .route("/users/@me", get(guild::me))
        .route("/users/@me/guilds", get(guild::mine))
        .route("/users/{user}", get(guild::user))
        .route("/applications/@me", get(guild::application))
        .route("/guilds/{guild}", get(guild::guild))
        .route("/guilds/{guild}/channels", get(guild::channels))
        .route("/guilds/{guild}/roles", get(guild::roles))
        .route("/guilds/{guild}/threads/active", get(guild::active_threads))
        .route("/guilds/{guild}/members/search", get(guild::search))
        .route("/guilds/{guild}/members/{user}", get(guild::member))
}

fn channel_routes() -> Router<Shared> {
    let message = get(messages::one).patch(messages::edit).delete(messages::remove);
    Router::new()
        .route("/channels/{channel}", get(channels::one).patch(channels::change))
        .route("/channels/{channel}/messages", get(messages::list).post(messages::create))
        .route("/channels/{channel}/messages/{message}", message)
        .route("/channels/{channel}/messages/{message}/threads", post(channels::thread_from))
        .route("/channels/{channel}/threads", post(channels::thread))
        .route("/channels/{channel}/threads/archived/public", get(channels::archived))
        .route("/channels/{channel}/thread-members/@me", put(channels::join).delete(channels::leave))
        .route("/channels/{channel}/typing", post(channels::typing))
        .route("/channels/{channel}/webhooks", get(webhooks::list).post(webhooks::create))
        .route("/channels/{channel}/pins/{message}", put(messages::pin))
        .route("/channels/{channel}/messages/pins/{message}", put(messages::pin))
        .route("/channels/{channel}/messages/{message}/reactions/{emoji}", get(reactions::list))
        .route(
            "/channels/{channel}/messages/{message}/reactions/{emoji}/@me",
            put(reactions::set).delete(reactions::unset),
        )
}

fn interaction_routes() -> Router<Shared> {
    let original = get(interactions::original).patch(interactions::edit_original).delete(interactions::no_original);
    Router::new()
        .route("/applications/{app}/commands", get(interactions::commands).put(interactions::register))
        .route(
            "/applications/{app}/guilds/{guild}/commands",
            get(interactions::commands_in).put(interactions::register_in),
        )
        .route("/interactions/{id}/{token}/callback", post(interactions::callback))
        .route("/webhooks/{id}/{token}", post(webhooks::execute))
        .route("/webhooks/{id}/{token}/messages/@original", original)
        .route("/webhooks/{id}/{token}/messages/{message}", patch(interactions::edit_followup))
        .route("/webhooks/{id}/{token}/messages/{message}", delete(interactions::remove_followup))
}

/// Wraps every call: records it, holds it, injects a fault, and applies its rate limit.
async fn pass(State(shared): State<Shared>, matched: Option<MatchedPath>, request: Request, next: Next) -> Response {
    let method = request.method().as_str().to_owned();
    let path = request.uri().path().trim_start_matches("/api/v10").to_owned();
    let bot = shared.with(|discord| caller(discord, request.headers()));
    held(&shared, &method, &path).await;
    let mishap = shared.with(|discord| discord.mishap(&method, &path, bot));
    let route = matched.map(|matched| matched.as_str().to_owned()).unwrap_or_default();
    let limited = shared.with(|discord| room(discord, &method, &path, &route, bot));
    let mut response = match (&mishap, &limited) {
        (Some(Mishap::Limited { retry_after_ms, global }), _) => slow_down(*retry_after_ms, *global),
        (Some(Mishap::Refused(status)), _) => No::new(*status, 0, "by the test").into_response(),
        (_, Err((wait_ms, _))) => slow_down(*wait_ms, false),
        (Some(Mishap::Lost | Mishap::BadGateway) | None, Ok(_)) => next.run(request).await,
    };
    // A response with the bot's global limit names no bucket.
    if !response.headers().contains_key("x-ratelimit-global") {
        let bucket = limited.unwrap_or_else(|(_, bucket)| bucket);
        response.headers_mut().extend(bucket.into_iter().map(|(name, value)| (HeaderName::from_static(name), value)));
    }
    let now = UNIX_EPOCH + Duration::from_millis(shared.with(|discord| discord.now_ms));
    if let Ok(date) = HeaderValue::try_from(httpdate::fmt_http_date(now)) {
        response.headers_mut().insert(header::DATE, date);
    }
    let status = response.status().as_u16();
    shared.with(|discord| discord.calls.push(Call { method, path, bot, status, at: Instant::now() }));
    match mishap {
        Some(Mishap::Lost) => broken(),
        Some(Mishap::BadGateway) => StatusCode::BAD_GATEWAY.into_response(),
        Some(Mishap::Limited { .. } | Mishap::Refused(_)) | None => response,
    }
}

/// Waits while the test holds matching calls.
async fn held(shared: &Shared, method: &str, path: &str) {
    let count = |by: i32| {
        shared.with(|discord| match discord.hold(method, path) {
            Some(hold) => {
                hold.waiting = hold.waiting.saturating_add_signed(by);
                true
            }
            None => false,
        })
    };
    if !count(1) {
        return;
    }
    while shared.with(|discord| discord.hold(method, path).is_some()) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns a response of which only the head arrives.
fn broken() -> Response {
    let cut = futures_util::stream::iter([Err::<Bytes, _>(std::io::Error::other("cut by the test"))]);
    Response::new(Body::from_stream(cut))
}

fn slow_down(retry_after_ms: u64, global: bool) -> Response {
    let seconds = Duration::from_millis(retry_after_ms).as_secs_f64();
    let body = json!({"message": "You are being rate limited.", "retry_after": seconds, "global": global});
    let mut response = (StatusCode::TOO_MANY_REQUESTS, axum::Json(body)).into_response();
    let headers = response.headers_mut();
    // The header has whole seconds, rounded up; the body is exact.
    headers.insert(header::RETRY_AFTER, HeaderValue::from(retry_after_ms.div_ceil(1000)));
    headers.insert("x-ratelimit-scope", HeaderValue::from_static(if global { "global" } else { "user" }));
    if global {
        headers.insert("x-ratelimit-global", HeaderValue::from_static("true"));
    }
    response
}

/// A bucket and its remaining calls, as headers.
type Bucket = Vec<(&'static str, HeaderValue)>;

/// Returns the bucket's headers after this call, or how long to wait.
fn room(
    discord: &mut Discord,
    method: &str,
    path: &str,
    route: &str,
    bot: Option<Id>,
) -> Result<Bucket, (u64, Bucket)> {
    let reaction = method == "PUT" && route.contains("/reactions/");
    let (most, window_ms) = if reaction { discord.reactions_per_window } else { discord.posts_per_window };
    let place = path.split('/').nth(2).unwrap_or_default();
    let bucket = format!("{method}-{route}-{place}-{}", bot.unwrap_or_default());
    let window = Duration::from_millis(window_ms);
    let now = Instant::now();
    let counted = reaction || (method == "POST" && route.ends_with("/messages"));
    let made = discord.windows.entry(bucket.clone()).or_default();
    made.retain(|at| *at + window > now);
    let reset = made.front().map_or(window, |first| (*first + window).saturating_duration_since(now));
    let full = counted && made.len() >= most as usize;
    if counted && !full {
        made.push_back(now);
    }
    let left = u64::from(most) - made.len() as u64;
    let text = |value: String| HeaderValue::from_str(&value).unwrap_or(HeaderValue::from_static("0"));
    let bucket = vec![
        ("x-ratelimit-limit", text(most.to_string())),
        ("x-ratelimit-remaining", text(left.to_string())),
        ("x-ratelimit-reset-after", text(format!("{:.3}", reset.as_secs_f64()))),
        ("x-ratelimit-bucket", text(bucket.replace(['/', '{', '}', '@'], "_"))),
    ];
    if full { Err((u64::try_from(reset.as_millis()).unwrap_or(window_ms) + 1, bucket)) } else { Ok(bucket) }
}
