//! An agent elsewhere that speaks A2A 1.0, by JSON-RPC.

use futures_util::StreamExt as _;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Method, Response, StatusCode, Url};
use serde_json::{Value, json};
use std::time::Duration;

use crate::endpoint::Endpoint;
use crate::error::ClientError;
use crate::events::{Bytes, Parser};
use crate::http::Client;
use crate::token::Token;

const CARD: &str = ".well-known/agent-card.json";
const VERSION: &str = "1.0";
const BINDING: &str = "JSONRPC";
const VERSION_HEADER: HeaderName = HeaderName::from_static("a2a-version");
const EXTENSIONS_HEADER: HeaderName = HeaderName::from_static("a2a-extensions");
const TRACEPARENT_HEADER: HeaderName = HeaderName::from_static("traceparent");
/// The most bytes of a card or an answer.
const ANSWER_BYTES_MAX: usize = 8 << 20;
/// How long a card, or the answer to a call that doesn't wait, may take.
const ANSWER_MAX: Duration = Duration::from_mins(1);

/// The longest pause that an agent elsewhere gets for the asking: one that asks for more has refused.
const RETRY_AFTER_MAX: Duration = Duration::from_mins(5);
const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";
/// The domain of the refusals of a Lastword elsewhere.
const OURS: &str = "lastword";

/// Why an agent elsewhere did not do what was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RemoteError {
    /// It can't be used: its card, or the address.
    #[error("{0}")]
    Unusable(String),
    /// No answer came, or none that is one; a retry may help.
    #[error("{0}")]
    Unreachable(String),
    /// It refuses for now, and says when a retry may help.
    #[error("it answered {message:?}")]
    Busy {
        /// The text of the error.
        message: String,
        /// The pause that it asks for, at most 5 minutes.
        wait: Duration,
    },
    /// It answered with an error.
    #[error("it answered {message:?} ({code})")]
    Refused {
        /// The code of JSON-RPC.
        code: i64,
        /// The text of the error.
        message: String,
    },
}

/// What leaves with a request to another system: the extension with the causality, and the trace.
#[derive(Clone, Debug, serde::Deserialize)]
pub struct Leaving {
    /// The URI of the extension.
    pub uri: String,
    /// Its data, for the metadata of the message.
    pub value: Value,
    /// The header with the trace.
    pub traceparent: String,
}

/// An agent elsewhere, as its card describes it.
#[derive(Clone, Debug)]
pub struct RemoteAgent {
    http: reqwest::Client,
    url: Url,
    headers: HeaderMap,
    /// Whether it streams.
    pub streaming: bool,
}

/// The events of a task elsewhere, until the agent ends the stream or the connection breaks.
pub struct RemoteEvents {
    bytes: Bytes,
    parser: Parser,
}

impl Client {
    /// Returns what leaves with a request that serves this client's turn.
    pub async fn leaving(&self) -> Result<Leaving, ClientError> {
        self.json(self.request(Method::GET, "/a2a/.lastword/causality")).await
    }
}

impl RemoteAgent {
    /// Reads the card of the agent at this address. It may name no other origin: a card is what a stranger wrote, and must
    /// not choose where a token and a task go.
    ///
    /// # Errors
    /// The address or the card can't be used, or the agent doesn't answer.
    pub async fn open(address: &str, token: Option<&Token>) -> Result<Self, RemoteError> {
        let unusable = |text: String| RemoteError::Unusable(text);
        let with_slash = if address.ends_with('/') { address.to_owned() } else { format!("{address}/") };
        let base =
            Url::parse(&with_slash).map_err(|error| unusable(format!("{address:?} isn't an address: {error}")))?;
        let http = Endpoint::new(&with_slash).http().map_err(|error| unusable(error.to_string()))?;
        let mut headers = HeaderMap::new();
        headers.insert(VERSION_HEADER, HeaderValue::from_static(VERSION));
        if let Some(token) = token {
            headers.insert(AUTHORIZATION, token.header());
        }
        let at = base.join(CARD).map_err(|error| unusable(error.to_string()))?;
        // The card is public, so the token stays here.
        let asked = http.get(at.clone()).header(VERSION_HEADER, VERSION).timeout(ANSWER_MAX).send();
        let response = asked.await.map_err(|error| unreachable(&at, &error))?;
        if response.status().is_redirection() {
            return Err(unusable(format!("{at} redirects, which is not followed: name the address that it leads to")));
        }
        if !response.status().is_success() {
            return Err(Head::of(&response).error(format!("{at} answered {}", response.status())));
        }
        let card: Value = serde_json::from_slice(&whole(response).await?)
            .map_err(|error| unusable(format!("the card at {at} isn't JSON: {error}")))?;
        let url = interface(&base, &card).map_err(RemoteError::Unusable)?;
        let streaming = card["capabilities"]["streaming"].as_bool().unwrap_or(false);
        Ok(Self { http, url, headers, streaming })
    }

    /// Adds what leaves with a request.
    #[must_use]
    pub fn with(mut self, leaving: &Leaving) -> Self {
        for (name, text) in [(EXTENSIONS_HEADER, &leaving.uri), (TRACEPARENT_HEADER, &leaving.traceparent)] {
            if let Ok(value) = HeaderValue::from_str(text) {
                self.headers.insert(name, value);
            }
        }
        self
    }

    /// Makes a call and returns its result.
    ///
    /// # Errors
    /// The agent refuses, or doesn't answer.
    pub async fn call(&self, method: &str, params: &Value) -> Result<Value, RemoteError> {
        let response = self.post(method, params, Some(ANSWER_MAX)).await?;
        answered(response).await
    }

    /// Makes a call whose result is a stream.
    ///
    /// # Errors
    /// The agent refuses, or doesn't answer.
    pub async fn stream(&self, method: &str, params: &Value) -> Result<RemoteEvents, RemoteError> {
        let response = self.post(method, params, None).await?;
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.starts_with("text/event-stream") {
            let status = response.status();
            answered(response).await?;
            return Err(RemoteError::Unreachable(format!("{status} with no stream in it")));
        }
        let bytes = response.bytes_stream().map(|chunk| chunk.map(|bytes| bytes.to_vec()));
        Ok(RemoteEvents { bytes: Box::pin(bytes), parser: Parser::default() })
    }

    async fn post(&self, method: &str, params: &Value, time: Option<Duration>) -> Result<Response, RemoteError> {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let mut request = self.http.post(self.url.clone()).headers(self.headers.clone()).json(&body);
        request = match time {
            Some(time) => request.timeout(time),
            None => request.header(ACCEPT, "text/event-stream"),
        };
        // Of a stream, the head alone.
        let late = |_| RemoteError::Unreachable(format!("{} doesn't answer", self.url));
        let sent = tokio::time::timeout(ANSWER_MAX, request.send()).await.map_err(late)?;
        sent.map_err(|error| unreachable(&self.url, &error))
    }
}

impl RemoteEvents {
    /// Returns the next event; `None` once the stream has ended, by whomever.
    ///
    /// # Errors
    /// The agent ended the stream with an error.
    pub async fn next(&mut self) -> Result<Option<Value>, RemoteError> {
        loop {
            if let Some(data) = self.parser.event() {
                let Ok(answer) = serde_json::from_str(&data) else { return Ok(None) };
                return result(answer, None).map(Some);
            }
            match self.bytes.next().await {
                Some(Ok(bytes)) if self.parser.push(&bytes) => {}
                Some(Ok(_) | Err(_)) | None => return Ok(None),
            }
        }
    }
}

/// Returns the address of the first interface that speaks JSON-RPC of this version, on the same origin as the card.
fn interface(base: &Url, card: &Value) -> Result<Url, String> {
    let all = card["supportedInterfaces"].as_array().map(Vec::as_slice).unwrap_or_default();
    let fits = |one: &&Value| {
        let version = one["protocolVersion"].as_str().unwrap_or_default();
        one["protocolBinding"] == BINDING && (version == VERSION || version.starts_with("1.0."))
    };
    let Some(found) = all.iter().find(fits) else {
        let named: Vec<String> =
            all.iter().map(|one| format!("{} {}", one["protocolBinding"], one["protocolVersion"])).collect();
        return Err(format!(
            "the agent speaks {}, and this driver JSONRPC {VERSION}",
            if named.is_empty() { "nothing of A2A 1.0".to_owned() } else { named.join(", ") }
        ));
    };
    let text = found["url"].as_str().unwrap_or_default();
    let url = base.join(text).map_err(|error| format!("the card names {text:?}, which isn't an address: {error}"))?;
    if url.origin() != base.origin() {
        return Err(format!(
            "the card at {base} names {text}, which is elsewhere: run the driver with that address if you trust it"
        ));
    }
    Ok(url)
}

/// What a response says before its body.
struct Head {
    status: StatusCode,
    /// The pause that it asks for.
    wait: Option<Duration>,
}

impl Head {
    fn of(response: &Response) -> Self {
        let status = response.status();
        let later = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        // A date is not read: the clocks of two systems differ.
        let seconds = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        Self { status, wait: seconds.filter(|_| later).map(Duration::from_secs) }
    }

    /// Returns the error of a response that has no answer of JSON-RPC. What a retry can't change is final.
    fn error(&self, message: String) -> RemoteError {
        if let Some(wait) = self.wait {
            return RemoteError::Busy { message, wait: wait.min(RETRY_AFTER_MAX) };
        }
        let passing = self.status.is_success()
            || self.status.is_server_error()
            || matches!(self.status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
        if passing { RemoteError::Unreachable(message) } else { RemoteError::Unusable(message) }
    }
}

/// Returns the result in a response.
async fn answered(response: Response) -> Result<Value, RemoteError> {
    let head = Head::of(&response);
    match serde_json::from_slice::<Value>(&whole(response).await?) {
        Ok(answer) if answer.get("error").or(answer.get("result")).is_some() => result(answer, head.wait),
        Ok(_) | Err(_) => Err(head.error(format!("it answered {}, and nothing of JSON-RPC", head.status))),
    }
}

/// Returns the result of an answer of JSON-RPC, whose response may ask for a pause.
fn result(mut answer: Value, wait: Option<Duration>) -> Result<Value, RemoteError> {
    if let Some(error) = answer.get("error") {
        let message = error["message"].as_str().unwrap_or_default();
        let details = error["data"].as_array().map(Vec::as_slice).unwrap_or_default();
        let hints = details.iter().filter_map(|detail| detail["metadata"]["hint"].as_str());
        let message = [message].into_iter().chain(hints).collect::<Vec<_>>().join(". ");
        let wait = details.iter().find_map(asked_pause).or(wait);
        return Err(match wait.filter(|wait| *wait <= RETRY_AFTER_MAX) {
            Some(wait) => RemoteError::Busy { message, wait },
            None => RemoteError::Refused { code: error["code"].as_i64().unwrap_or_default(), message },
        });
    }
    match answer.get_mut("result") {
        Some(result) => Ok(result.take()),
        None => Err(RemoteError::Unreachable("an answer without a result".to_owned())),
    }
}

/// Returns the pause that a detail of an error asks for.
fn asked_pause(detail: &Value) -> Option<Duration> {
    if detail["@type"] == RETRY_INFO {
        let seconds = detail["retryDelay"].as_str()?.strip_suffix('s')?.parse().ok()?;
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let ours = Some(detail).filter(|detail| detail["domain"] == OURS)?;
    ours["metadata"]["retryAfterMs"].as_str()?.parse().ok().map(Duration::from_millis)
}

/// Reads a whole answer, up to a size.
async fn whole(mut response: Response) -> Result<Vec<u8>, RemoteError> {
    let mut bytes = Vec::new();
    let url = response.url().clone();
    while let Some(chunk) = response.chunk().await.map_err(|error| unreachable(&url, &error))? {
        if bytes.len() + chunk.len() > ANSWER_BYTES_MAX {
            return Err(RemoteError::Unusable(format!("{url} sent more than {ANSWER_BYTES_MAX} bytes")));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

fn unreachable(url: &Url, error: &reqwest::Error) -> RemoteError {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    RemoteError::Unreachable(format!("{url}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(base: &str, card: &Value) -> Result<String, String> {
        interface(&Url::parse(base).unwrap(), card).map(String::from)
    }

    #[test]
    fn a_card_chooses_no_other_origin_binding_or_version() {
        let card = |url: &str, binding: &str, version: &str| json!({ "supportedInterfaces": [{ "url": url, "protocolBinding": binding, "protocolVersion": version }] });
        let base = "https://partner.example/a2a/";
        let own = "https://partner.example/rpc";
        assert_eq!(found(base, &card(own, "JSONRPC", "1.0")), Ok(own.to_owned()));
        for (url, binding, version) in [
            ("https://elsewhere.example/rpc", "JSONRPC", "1.0"),
            ("http://partner.example/rpc", "JSONRPC", "1.0"),
            ("https://partner.example:444/rpc", "JSONRPC", "1.0"),
            ("http://169.254.169.254/latest", "JSONRPC", "1.0"),
            (own, "GRPC", "1.0"),
            (own, "JSONRPC", "0.3"),
        ] {
            assert!(found(base, &card(url, binding, version)).is_err(), "{url} {binding} {version}");
        }
        assert!(found(base, &json!({})).is_err());
    }

    #[test]
    fn a_pause_that_is_asked_for_is_kept_up_to_a_bound() {
        let retry_info = |delay: &str| json!([{ "@type": RETRY_INFO, "retryDelay": delay }]);
        let ours = |ms: &str| json!([{ "domain": OURS, "metadata": { "retryAfterMs": ms } }]);
        let seconds = |seconds: u64| Some(Duration::from_secs(seconds));
        let asked = |error| if let RemoteError::Busy { wait, .. } = error { Some(wait) } else { None };
        for (data, header, expected) in [
            (ours("1500"), None, Some(Duration::from_millis(1_500))),
            (ours("1500"), seconds(9), Some(Duration::from_millis(1_500))),
            (retry_info("2.5s"), None, Some(Duration::from_millis(2_500))),
            (json!([]), seconds(9), seconds(9)),
            (ours("300000"), None, seconds(300)),
            (ours("300001"), None, None),
            (ours("x"), None, None),
            (retry_info("-1s"), None, None),
            (retry_info("1e300s"), None, None),
            (json!([{ "domain": "example.com", "metadata": { "retryAfterMs": "1" } }]), None, None),
            (json!(null), None, None),
        ] {
            let refused = result(json!({ "error": { "code": -32000, "message": "no", "data": data } }), header);
            assert_eq!(asked(refused.unwrap_err()), expected, "{data}");
        }
        let wait = |status: u16, later: &str| {
            let response = http::Response::builder().status(status).header(RETRY_AFTER, later).body("").unwrap();
            asked(Head::of(&response.into()).error("no".to_owned()))
        };
        assert_eq!(wait(503, "7"), seconds(7));
        assert_eq!(wait(429, "86400"), Some(RETRY_AFTER_MAX));
        assert_eq!(wait(503, "Sat, 28 Nov 2026 17:00:00 GMT"), None);
        assert_eq!(wait(404, "7"), None);
    }
}
