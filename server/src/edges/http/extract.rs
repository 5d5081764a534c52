//! The parts of a request: its caller, its parameters and its body. Errors name the wrong part.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequestParts, Query};
use axum::http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{Extensions, HeaderMap, HeaderValue, Method, Uri};
use lastword_broker::ReadLane;
use lastword_core::input::Consumer;
use lastword_facts::envelope::nesting_above;
use lastword_facts::names::RequestId;
use lastword_facts::{Code, Refusal};
use lastword_wire::{Call, FieldError, text, with_nearest};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::connections::Peer;
use super::{REQUEST_BYTES_MAX, absent};
use crate::calls::{Caller, Context, WAIT_MAX};
use crate::error::ApiError;

/// The deepest nesting of a JSON body that is parsed, whatever `payload_depth_max` allows, because the parser recurses.
const JSON_DEPTH_MAX: u64 = 120;
/// The time limit for sending a body.
const BODY_TIME_MAX: Duration = Duration::from_secs(30);
/// The header with the id that a client gives itself (F1).
const CLIENT_HEADER: &str = "lastword-client";
/// The header with the session of a client of MCP.
pub const MCP_SESSION_HEADER: &str = "mcp-session-id";
/// The header with a turn's token.
pub(super) const TURN_HEADER: &str = "lastword-turn";

impl FromRequestParts<Context> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, ctx: &Context) -> Result<Self, ApiError> {
        let caller = authenticate(ctx, &parts.headers, &parts.extensions)?;
        ReadLane::of(caller.principal.is_human()).enter();
        if !caller.is_narrowed() {
            return Ok(caller);
        }
        let method = if parts.method == Method::HEAD { &Method::GET } else { &parts.method };
        let (call, _) = Call::find(method.as_str(), parts.uri.path()).ok_or_else(|| {
            ApiError::new(Code::Forbidden, "A narrowed token may make the calls of the OpenAPI document alone")
        })?;
        caller.may(call.scope).inspect_err(|fault| ctx.handle.metrics().refuse(fault.0.code))?;
        Ok(caller)
    }
}

/// Counts the request's connection as the caller's. Without a socket there is none.
pub fn prove(extensions: &Extensions, caller: Caller) -> Result<(), ApiError> {
    extensions.get::<Peer>().map_or(Ok(()), |peer| peer.prove(caller.principal))
}

/// Authenticates the caller by the request's headers, and counts the request's connection as its own. A wrong token
/// counts against the address that it came from.
pub fn authenticate(ctx: &Context, headers: &HeaderMap, extensions: &Extensions) -> Result<Caller, ApiError> {
    match caller(ctx, headers) {
        Ok(caller) => prove(extensions, caller).map(|()| caller),
        // Without a token nothing was tried.
        Err(fault) if fault.0.code == Code::Unauthenticated && headers.contains_key(AUTHORIZATION) => {
            attempt(ctx, extensions)?;
            Err(fault)
        }
        Err(fault) => Err(fault),
    }
}

/// Authenticates the caller of a session by an `Authorization` header, as [`authenticate`] does.
pub(crate) fn authenticate_bearer(ctx: &Context, authorization: &HeaderValue, peer: &Peer) -> Result<Caller, ApiError> {
    let (mut headers, mut extensions) = (HeaderMap::with_capacity(1), Extensions::new());
    headers.insert(AUTHORIZATION, authorization.clone());
    extensions.insert(peer.clone());
    authenticate(ctx, &headers, &extensions)
}

/// Returns the header that authenticates a request.
pub(crate) fn bearer_header(headers: &HeaderMap) -> Option<HeaderValue> {
    headers.get(AUTHORIZATION).cloned()
}

/// Returns the id that the client of a request gives itself.
pub(crate) fn client_id(headers: &HeaderMap) -> Option<HeaderValue> {
    headers.get(CLIENT_HEADER).filter(|id| id.to_str().is_ok_and(|id| !id.is_empty() && !id.contains(' '))).cloned()
}

/// Counts a failed authentication, or an attempt that costs something, against the address of the request; refuses it if
/// there were too many.
pub fn attempt(ctx: &Context, extensions: &Extensions) -> Result<(), ApiError> {
    let Some(peer) = extensions.get::<Peer>() else { return Ok(()) };
    ctx.attempts.count(peer.address(), ctx.handle.now()).map_err(|wait_ms| {
        ctx.handle.metrics().refuse(Code::AuthRate);
        let max = ctx.attempts.max();
        Refusal::new(Code::AuthRate).numbers(max, max + 1).retry_after(wait_ms).into()
    })
}

/// Takes an attempt back that succeeded.
pub fn succeeded(ctx: &Context, extensions: &Extensions) {
    if let Some(peer) = extensions.get::<Peer>() {
        ctx.attempts.succeeded(peer.address());
    }
}

/// Returns the address under which the client reached the server. A proxy that terminates TLS says so in
/// `X-Forwarded-Proto`.
pub fn origin(ctx: &Context, headers: &HeaderMap) -> Option<String> {
    let host: Authority = headers.get(HOST)?.to_str().ok()?.parse().ok()?;
    let forwarded = headers.get("x-forwarded-proto").is_some_and(|proto| proto == "https");
    Some(format!("{}://{host}", if forwarded { "https" } else { ctx.transport.scheme() }))
}

/// Authenticates the caller by the request's headers.
pub fn caller(ctx: &Context, headers: &HeaderMap) -> Result<Caller, ApiError> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if headers.get_all(AUTHORIZATION).iter().nth(1).is_some() {
        // A proxy and the server could read different ones.
        return Err(ApiError::new(Code::Malformed, "the request has two Authorization headers"));
    }
    let Some(token) = bearer(headers) else {
        ctx.handle.metrics().refuse(Code::Unauthenticated);
        let what = match headers.contains_key(AUTHORIZATION) {
            true => "The header Authorization doesn't begin with `Bearer `",
            false => "The header Authorization is missing",
        };
        return Err(ApiError::new(Code::Unauthenticated, what));
    };
    let proven = Caller::prove(&ctx.handle, token, text(TURN_HEADER));
    let caller = proven.inspect_err(|fault| ctx.handle.metrics().refuse(fault.0.code))?;
    // A session of MCP is a client of its own, unless its client says which one it is.
    Ok(caller.by(text(CLIENT_HEADER).or_else(|| text(MCP_SESSION_HEADER))))
}

/// Returns the bearer token among the headers.
pub(super) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// Returns the key by which a retry is recognized as the same call (Q1).
pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<Option<RequestId>, ApiError> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    let wrong = |what: &dyn std::fmt::Display| FieldError::new("Idempotency-Key", what);
    let text = key.to_str().map_err(|e| wrong(&e))?;
    // Quotes around it are those of a structured field; quotes alone are a key like any other.
    let bare = Some(text.trim_matches('"')).filter(|bare| !bare.is_empty());
    Ok(Some(RequestId::new(bare.unwrap_or(text)).map_err(|e| wrong(&e))?))
}

/// The query's parameters; unknown ones are refused by name, and empty ones are absent.
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<Context> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _ctx: &Context) -> Result<Self, ApiError> {
        params(parts.uri.query().unwrap_or_default()).map(Self)
    }
}

/// Parses query parameters as an address has them.
pub(crate) fn params<T: DeserializeOwned>(query: &str) -> Result<T, ApiError> {
    let wrong = |error: &dyn std::fmt::Display| ApiError::new(Code::Malformed, format!("the query: {error}"));
    let given: Vec<&str> = query.split('&').filter(|one| !one.is_empty() && !one.ends_with('=')).collect();
    let uri = Uri::try_from(format!("/?{}", given.join("&"))).map_err(|error| wrong(&error))?;
    Query::try_from_uri(&uri).map(|Query(params)| params).map_err(|rejection| wrong(&rejection.body_text()))
}

/// The parameters of the inbox.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InboxParams {
    wait: Option<String>,
    /// Whether the client works in turns, also with the answer to a root.
    #[serde(default)]
    turns: bool,
}

impl InboxParams {
    pub(super) fn wait(&self) -> Result<Option<Duration>, FieldError> {
        self.wait.as_deref().map(parse_wait).transpose()
    }

    /// Returns how this caller takes deliveries. One that has an id works in turns.
    pub(super) const fn consumer(&self, caller: &Caller) -> Consumer {
        if self.turns || caller.client.is_some() { Consumer::InTurns } else { Consumer::OneShot }
    }
}

/// How much of the message the reply to a send contains; the names are those of RFC 7240.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
pub(crate) enum Representation {
    /// All of it.
    #[default]
    #[serde(rename = "representation")]
    Whole,
    /// Its ids and its state.
    #[serde(rename = "minimal")]
    Minimal,
}

/// The parameters of a send.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SendParams {
    wait: Option<String>,
    #[serde(default, rename = "return")]
    pub(super) representation: Representation,
}

impl SendParams {
    pub(super) fn wait(&self) -> Result<Option<Duration>, FieldError> {
        self.wait.as_deref().map(parse_wait).transpose()
    }
}

/// Parses `30s`, `500ms`, `2m` or plain seconds; longer waits are shortened to `WAIT_MAX`.
pub(crate) fn parse_wait(text: &str) -> Result<Duration, FieldError> {
    let wrong = || FieldError::new("wait", format!("{text:?} isn't a duration such as 30s, 500ms or 2m"));
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let wait = match &text[digits..] {
        "ms" => Duration::from_millis(number),
        "" | "s" => Duration::from_secs(number),
        "m" => Duration::from_secs(number.saturating_mul(60)),
        _ => return Err(wrong()),
    };
    Ok(wait.min(WAIT_MAX))
}

/// Reads the body of a request, which is a JSON object.
pub(super) async fn object(parts: &Parts, body: Body) -> Result<axum::body::Bytes, ApiError> {
    let kind = content_type(&parts.headers);
    if !matches!(kind.as_deref(), None | Some("application/json")) {
        let text = "Content-Type has to be application/json";
        return Err(ApiError::new(Code::Malformed, text));
    }
    let bytes = read(parts, body).await?;
    // Serde reads a list as a struct, member by member; the OpenAPI document allows only objects.
    if bytes.trim_ascii_start().first() == Some(&b'[') {
        return Err(ApiError::new(Code::Malformed, "the body is a list; send a JSON object"));
    }
    // A call whose members are all optional accepts an empty body.
    Ok(if bytes.is_empty() { axum::body::Bytes::from_static(b"{}") } else { bytes })
}

/// Returns the media type without its parameters, in lower case.
pub(super) fn content_type(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    Some(value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
}

/// Reads the whole body within the limits of size and time.
pub async fn read(parts: &Parts, body: Body) -> Result<axum::body::Bytes, ApiError> {
    let length = parts.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let length = length.unwrap_or(REQUEST_BYTES_MAX).min(REQUEST_BYTES_MAX);
    // Held while the peer sends, which may take all of the time limit.
    let _permit = parts.extensions.get::<Peer>().map(|peer| peer.body(length)).transpose()?;
    let late = |_| ApiError::new(Code::Malformed, "the body did not come in time");
    let read = tokio::time::timeout(BODY_TIME_MAX, axum::body::to_bytes(body, REQUEST_BYTES_MAX));
    read.await.map_err(late)?.map_err(|error| {
        tracing::debug!(%error, "a body was not read");
        too_large().into()
    })
}

/// Returns the refusal of a request that is too long to be read.
pub fn too_large() -> Refusal {
    Refusal::new(Code::TooLarge).about(format_args!("a request of more than {REQUEST_BYTES_MAX} bytes"))
}

/// Parses JSON; an error names the wrong member.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    if nesting_above(bytes, JSON_DEPTH_MAX).is_none()
        && let Some(parsed) = absent::parse(bytes)
    {
        return Ok(parsed);
    }
    parse_within(bytes)
}

/// Parses the JSON of an answer. U+FFFD takes the place of what isn't well-formed text.
pub(crate) fn parse_answer<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    match text::flaw(bytes) {
        Some(_) => parse(text::mended(bytes).as_bytes()),
        None => parse(bytes),
    }
}

/// Parses JSON into a value that borrows from it; an error names the wrong member.
pub(super) fn parse_within<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, ApiError> {
    // Counted without recursion, before the recursive parser sees it.
    if nesting_above(bytes, JSON_DEPTH_MAX).is_some() {
        return Err(ApiError::new(Code::Malformed, format!("the JSON is nested deeper than {JSON_DEPTH_MAX}")));
    }
    // Knowing the path of every member costs more than parsing, so only what is wrong is parsed with it.
    serde_json::from_slice(bytes).map_err(|error| located::<T>(bytes).unwrap_or_else(|| malformed(bytes, &error)))
}

/// Returns the error of JSON that can't be parsed, with the path of the member that is wrong.
fn located<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<ApiError> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let error = serde_path_to_error::deserialize::<_, T>(&mut json).err()?;
    let path = error.path().to_string();
    let at = if path == "." { String::new() } else { format!("`{path}`: ") };
    Some(ApiError::new(Code::Malformed, format!("{at}{}", malformed(bytes, error.inner()).0.detail)))
}

fn malformed(bytes: &[u8], error: &serde_json::Error) -> ApiError {
    let flaw = text::flaw(bytes).filter(|_| error.is_syntax());
    ApiError::new(Code::Malformed, flaw.map_or_else(|| with_nearest(error.to_string()), |flaw| flaw.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_around_a_key_are_no_part_of_it_and_quotes_alone_are_one() {
        let key = |text: &'static str| {
            let headers = HeaderMap::from_iter([("idempotency-key".parse().unwrap(), HeaderValue::from_static(text))]);
            idempotency_key(&headers).map(|key| key.map(|key| key.as_str().to_owned()))
        };
        assert_eq!(key("k-1").unwrap().as_deref(), Some("k-1"));
        assert_eq!(key("\"k-1\"").unwrap().as_deref(), Some("k-1"));
        assert_eq!(key("\"\"").unwrap().as_deref(), Some("\"\""));
        assert!(key("").is_err());
    }

    #[test]
    fn brackets_in_strings_do_not_nest() {
        let text = br#"{"a":"[[[\"[","b":[1,{"c":2}]}"#;
        assert_eq!((nesting_above(text, 2), nesting_above(text, 3)), (Some(3), None));
        assert_eq!((nesting_above(b"[[[[", 3), nesting_above(b"[[[[", 4)), (Some(4), None));
    }

    #[test]
    fn waits_have_units_and_an_end() {
        assert_eq!(parse_wait("30s").unwrap(), Duration::from_secs(30));
        assert_eq!(parse_wait("5").unwrap(), Duration::from_secs(5));
        assert_eq!(parse_wait("500ms").unwrap(), Duration::from_millis(500));
        assert_eq!(parse_wait("999h").unwrap_err().field, "wait");
        assert_eq!(parse_wait("99999m").unwrap(), WAIT_MAX);
    }
}
