//! HTTP calls to Discord as one bot: the bot's global rate limit, the buckets' limits, and Discord's clock.
//!
//! twilight's HTTP client retries after a 429 without exposing the demanded pause, which is essential for a bot's
//! global limit. So only its bucket limiter is used, and the calls are made here.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{Request, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use lastword_bridge::settings::Secret;
use lastword_client::Backoff;
use serde_json::Value;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use twilight_http_ratelimiting::{Endpoint, RateLimitHeaders, RateLimiter};

use super::{Method, RestError};

/// Discord's default address.
const API: &str = "https://discord.com";
const VERSION: &str = "/api/v10/";
/// The user agent in the form that Discord demands: the library's address and version, then free text.
const AGENT: &str = concat!("DiscordBot (https://twilight.rs, 0.18) Lastword/", env!("CARGO_PKG_VERSION"));
/// The type of a body without a file.
const JSON: &str = "application/json";
/// The name of an attached text.
const FILE: &str = "answer.md";
/// Time limit of a call.
const ANSWER: Duration = Duration::from_secs(10);
/// Pause after a 429 that names none, first and longest.
const LIMITED_PAUSE_MIN: Duration = Duration::from_secs(1);
const LIMITED_PAUSE_MAX: Duration = Duration::from_secs(60);
/// Longest demanded pause that is obeyed.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3_600);
/// The header that marks a bot's global limit.
const GLOBAL: &str = "x-ratelimit-global";

/// The HTTP client of one bot.
pub(crate) struct BotClient {
    http: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    base: String,
    token: HeaderValue,
    buckets: RateLimiter,
    /// Until when this bot makes no calls: its global limit was hit.
    quiet: Mutex<Option<Instant>>,
    /// Set once Discord rejects the token: further calls would get this address blocked.
    unknown: AtomicBool,
    clock: Clock,
}

/// Discord's clock: the time of its last response, and when that arrived.
#[derive(Debug, Default)]
struct Clock(Mutex<Option<(u64, Instant)>>);

impl Clock {
    fn set_from(&self, headers: &HeaderMap) {
        let date = headers.get(DATE).and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
        let since = date.and_then(|date| date.duration_since(UNIX_EPOCH).ok());
        if let Some(ms) = since.and_then(|since| u64::try_from(since.as_millis()).ok()) {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((ms, Instant::now()));
        }
    }

    /// Returns Unix milliseconds; `None` before the first response.
    fn now_ms(&self) -> Option<u64> {
        let (ms, set_at) = (*self.0.lock().unwrap_or_else(PoisonError::into_inner))?;
        Some(ms.saturating_add(u64::try_from(set_at.elapsed().as_millis()).ok()?))
    }
}

/// A call's body.
struct Payload {
    kind: String,
    bytes: Bytes,
}

/// Builds a form of a message and its file. The boundary is a line that the file doesn't have.
fn form(body: &Value, file: &str) -> Payload {
    let mut boundary = "lastword".to_owned();
    while file.contains(&boundary) {
        boundary.push('x');
    }
    let bytes = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"payload_json\"\r\nContent-Type: {JSON}\r\n\r\n{body}\r\n\
         --{boundary}\r\nContent-Disposition: form-data; name=\"files[0]\"; filename=\"{FILE}\"\r\n\
         Content-Type: text/plain; charset=utf-8\r\n\r\n{file}\r\n--{boundary}--\r\n"
    );
    Payload { kind: format!("multipart/form-data; boundary={boundary}"), bytes: Bytes::from(bytes) }
}

/// The outcome of one try.
enum Tried {
    Answered(Value),
    /// 429: Discord did nothing.
    Limited {
        retry_after: Option<Duration>,
        global: bool,
    },
}

impl BotClient {
    pub(crate) fn new(token: &Secret, api: Option<&str>) -> Result<Self, RestError> {
        let unusable = |error: &dyn std::fmt::Display| RestError::Unreachable(error.to_string());
        let mut value = HeaderValue::try_from(format!("Bot {}", token.reveal()))
            .map_err(|_| unusable(&"the bot token has characters that no token has"))?;
        value.set_sensitive(true);
        let connector = HttpsConnectorBuilder::new().with_native_roots().map_err(|error| unusable(&error))?;
        let connector = connector.https_or_http().enable_http1().build();
        Ok(Self {
            http: Client::builder(TokioExecutor::new()).build(connector),
            base: format!("{}{VERSION}", api.unwrap_or(API).trim_end_matches('/')),
            token: value,
            buckets: RateLimiter::default(),
            quiet: Mutex::default(),
            unknown: AtomicBool::new(false),
            clock: Clock::default(),
        })
    }

    pub(crate) fn is_known(&self) -> bool {
        !self.unknown.load(Ordering::Relaxed)
    }

    /// Returns Discord's time in Unix milliseconds; `None` before the first response.
    pub(crate) fn now_ms(&self) -> Option<u64> {
        self.clock.now_ms()
    }

    /// Makes a call until it isn't rate limited; returns the response as JSON, `null` if it is empty.
    pub(crate) async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, RestError> {
        let body = body.map(|body| Payload { kind: JSON.to_owned(), bytes: Bytes::from(body.to_string()) });
        self.call_with(method, path, body.as_ref()).await
    }

    /// Like [`BotClient::call`], with a text as an attached file.
    pub(crate) async fn call_with_file(
        &self,
        method: Method,
        path: &str,
        body: &Value,
        file: &str,
    ) -> Result<Value, RestError> {
        self.call_with(method, path, Some(&form(body, file))).await
    }

    async fn call_with(&self, method: Method, path: &str, body: Option<&Payload>) -> Result<Value, RestError> {
        let mut pauses = Backoff::new(LIMITED_PAUSE_MIN, LIMITED_PAUSE_MAX);
        loop {
            match self.once(method, path, body).await? {
                Tried::Answered(answer) => return Ok(answer),
                Tried::Limited { retry_after, global } => {
                    let pause = retry_after.map_or_else(|| pauses.grow(), |told| told.min(RETRY_AFTER_MAX));
                    if global {
                        // The limit is the whole bot's, so its other calls wait, too.
                        self.hush(Instant::now() + pause);
                    }
                    sleep(pause).await;
                }
            }
        }
    }

    async fn once(&self, method: Method, path: &str, body: Option<&Payload>) -> Result<Tried, RestError> {
        if self.unknown.load(Ordering::Relaxed) {
            return Err(RestError::Refused { status: 401, code: 0, message: "401: Unauthorized".to_owned() });
        }
        let path_of_bucket = bucket_path(path);
        // Responses to interactions don't count toward the bot's global limit.
        let answers = ["interactions/", "webhooks/"].iter().any(|begin| path.starts_with(begin));
        let permit = self.buckets.acquire(Endpoint { method, path: path_of_bucket }).await;
        if !answers {
            self.hushed().await;
        }
        let answer = timeout(ANSWER, self.fly(method, path, body)).await;
        let answer = answer.unwrap_or_else(|_| Err(RestError::Unreachable("no answer in time".to_owned())));
        let (status, headers, bytes) = match answer {
            Ok(answer) => answer,
            Err(error) => return Err(error),
        };
        permit.complete(bucket(&headers));
        self.clock.set_from(&headers);
        self.unknown.fetch_or(status == StatusCode::UNAUTHORIZED, Ordering::Relaxed);
        read(status, &headers, &bytes)
    }

    async fn fly(
        &self,
        method: Method,
        path: &str,
        body: Option<&Payload>,
    ) -> Result<(StatusCode, HeaderMap, Bytes), RestError> {
        let unsent = |error: hyper::http::Error| RestError::Unreachable(error.to_string());
        let mut request = Request::builder()
            .method(method.name())
            .uri(format!("{}{path}", self.base))
            .header(AUTHORIZATION, self.token.clone())
            .header(USER_AGENT, AGENT);
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, &body.kind);
        }
        let bytes = body.map(|body| body.bytes.clone()).unwrap_or_default();
        let response = self.http.request(request.body(Full::new(bytes)).map_err(unsent)?).await;
        let (head, body) = response.map_err(|error| RestError::Unreachable(innermost(&error)))?.into_parts();
        let body = body.collect().await.map_err(|error| RestError::Unreachable(innermost(&error)))?;
        Ok((head.status, head.headers, body.to_bytes()))
    }

    fn hush(&self, until: Instant) {
        let mut quiet = self.quiet.lock().unwrap_or_else(PoisonError::into_inner);
        *quiet = (*quiet).max(Some(until));
    }

    /// Waits until the bot may make calls again.
    async fn hushed(&self) {
        loop {
            let until = *self.quiet.lock().unwrap_or_else(PoisonError::into_inner);
            match until.filter(|until| *until > Instant::now()) {
                Some(until) => sleep_until(until).await,
                None => return,
            }
        }
    }
}

/// Returns the path under which Discord counts a call: only the ids of a channel, a guild or a webhook have limits of
/// their own, so every other id, and each emoji, is one place. With raw paths, each message would be a bucket of which
/// nothing is known yet.
fn bucket_path(path: &str) -> String {
    let place = path.split('?').next().unwrap_or_default();
    let mut segments = place.split('/');
    let first = segments.next().unwrap_or_default();
    if matches!(first, "interactions" | "webhooks") {
        // An interaction is a place of its own: no answer waits for another one's.
        return place.to_owned();
    }
    let mut out = first.to_owned();
    for (number, segment) in segments.enumerate() {
        let major = number == 0 && matches!(first, "channels" | "guilds");
        let named = !segment.starts_with('%') && !segment.bytes().all(|byte| byte.is_ascii_digit());
        out.push('/');
        out.push_str(if major || named { segment } else { ":id" });
    }
    out
}

fn read(status: StatusCode, headers: &HeaderMap, bytes: &[u8]) -> Result<Tried, RestError> {
    let body: Result<Value, _> = serde_json::from_slice(bytes);
    if status == StatusCode::TOO_MANY_REQUESTS {
        let body = body.unwrap_or_default();
        let told = body["retry_after"].as_f64().or_else(|| number(headers, &RETRY_AFTER));
        let retry_after = told.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let global = headers.contains_key(GLOBAL) || body["global"] == true;
        return Ok(Tried::Limited { retry_after, global });
    }
    if status.is_success() {
        if bytes.is_empty() {
            return Ok(Tried::Answered(Value::Null));
        }
        let none = |error: serde_json::Error| RestError::Unreachable(format!("an answer that is none: {error}"));
        return body.map(Tried::Answered).map_err(none);
    }
    match body {
        // Discord itself answers in JSON, so this comes from a proxy in between, and a retry may succeed.
        Err(_) if !status.is_server_error() => {
            Err(RestError::Unreachable(format!("something before it answers, with {}", status.as_u16())))
        }
        body => {
            let body = body.unwrap_or_default();
            let message = body["message"].as_str().unwrap_or("no reason given").to_owned();
            Err(RestError::Refused {
                status: status.as_u16(),
                code: body["code"].as_u64().unwrap_or_default(),
                message,
            })
        }
    }
}

/// Reads a bucket's state from the response headers; `None` if they are incomplete.
fn bucket(headers: &HeaderMap) -> Option<RateLimitHeaders> {
    let name = |text: &'static str| HeaderName::from_static(text);
    let whole = |text| number(headers, &name(text)).map(|value| value.clamp(0.0, f64::from(u16::MAX)));
    let reset = Duration::try_from_secs_f64(number(headers, &name(RateLimitHeaders::RESET_AFTER))?).ok()?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "both are clamped to 0..=u16::MAX")]
    Some(RateLimitHeaders {
        bucket: headers.get(RateLimitHeaders::BUCKET)?.as_bytes().to_vec(),
        limit: whole(RateLimitHeaders::LIMIT)? as u16,
        remaining: whole(RateLimitHeaders::REMAINING)? as u16,
        reset_at: (Instant::now() + reset.min(RETRY_AFTER_MAX)).into_std(),
    })
}

fn number(headers: &HeaderMap, name: &HeaderName) -> Option<f64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

/// Returns the innermost cause, which is the plainest: "Connection refused".
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        all.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn no_file_ends_its_own_form() {
        let payload = form(&serde_json::json!({ "content": "x" }), "a\r\n--lastword--\r\nb");
        assert_eq!(payload.kind, "multipart/form-data; boundary=lastwordx");
        assert_eq!(String::from_utf8_lossy(&payload.bytes).matches("--lastwordx").count(), 3);
    }

    #[test]
    fn calls_share_a_bucket_unless_their_channel_guild_or_webhook_differs() {
        for (path, bucket) in [
            ("channels/5/messages/77/reactions/%F0%9F%91%80/@me", "channels/5/messages/:id/reactions/:id/@me"),
            ("channels/5/messages/78/reactions/%E2%9C%85/@me", "channels/5/messages/:id/reactions/:id/@me"),
            ("channels/6/messages?after=9&limit=100", "channels/6/messages"),
            ("guilds/3/members/12", "guilds/3/members/:id"),
            ("applications/8/guilds/3/commands", "applications/:id/guilds/:id/commands"),
            ("users/@me", "users/@me"),
            ("webhooks/8/token/messages/@original", "webhooks/8/token/messages/@original"),
            ("interactions/9/token/callback", "interactions/9/token/callback"),
        ] {
            assert_eq!(bucket_path(path), bucket);
        }
    }

    #[test]
    fn how_long_to_wait_is_what_the_body_says_and_else_the_header() {
        let limited = |head: &[(&'static str, &str)], body: &str| match read(
            StatusCode::TOO_MANY_REQUESTS,
            &headers(head),
            body.as_bytes(),
        ) {
            Ok(Tried::Limited { retry_after, global }) => (retry_after.map(|pause| pause.as_millis()), global),
            Ok(Tried::Answered(_)) | Err(_) => panic!("it is none"),
        };
        assert_eq!(limited(&[("retry-after", "3")], r#"{"retry_after":2.5,"global":false}"#), (Some(2_500), false));
        assert_eq!(limited(&[], r#"{"retry_after":2.5,"global":true}"#), (Some(2_500), true));
        assert_eq!(limited(&[("retry-after", "3"), (GLOBAL, "true")], "<html>"), (Some(3_000), true));
        assert_eq!(limited(&[], r#"{"retry_after":-1}"#), (None, false));
    }

    #[test]
    fn a_bucket_is_read_from_every_answer_that_tells_of_one() {
        let all = [
            ("x-ratelimit-bucket", "abc"),
            ("x-ratelimit-limit", "5"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset-after", "1.5"),
        ];
        let read = bucket(&headers(&all)).unwrap();
        assert_eq!((read.bucket.as_slice(), read.limit, read.remaining), (b"abc".as_slice(), 5, 0));
        assert!(bucket(&headers(&all[1..])).is_none());
    }

    #[test]
    fn what_is_refused_in_other_words_than_discords_is_no_refusal_of_its() {
        let read = |status: u16, body: &str| {
            read(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), body.as_bytes()).err().unwrap()
        };
        assert!(read(403, "<html>blocked</html>").may_pass());
        assert!(!read(403, r#"{"code":50013,"message":"Missing Permissions"}"#).may_pass());
        assert!(read(502, "").may_pass());
    }

    #[test]
    fn the_clock_is_that_of_the_answers() {
        let clock = Clock::default();
        clock.set_from(&headers(&[("date", "nonsense")]));
        assert_eq!(clock.now_ms(), None);
        clock.set_from(&headers(&[("date", "Thu, 01 Jan 2026 00:00:01 GMT")]));
        assert!(clock.now_ms().is_some_and(|ms| (1_767_225_601_000..1_767_225_700_000).contains(&ms)));
    }
}
