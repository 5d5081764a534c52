//! An agent elsewhere that speaks A2A 1.0, by JSON-RPC.

use futures_util::StreamExt as _;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Response, StatusCode, Url};
use serde_json::{Value, json};
use std::time::Duration;

use crate::endpoint::Endpoint;
use crate::error::ClientError;
use crate::events::{Bytes, Parser};
use crate::http::{Client, Token};

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

/// Why an agent elsewhere did not do what was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RemoteError {
    /// It can't be used: its card, or the address.
    #[error("{0}")]
    Unusable(String),
    /// No answer came, or none that is one; a retry may help.
    #[error("{0}")]
    Unreachable(String),
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
            let text = format!("{at} answered {}", response.status());
            let passing = response.status().is_server_error();
            return Err(if passing { RemoteError::Unreachable(text) } else { unusable(text) });
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
        let status = response.status();
        let bytes = whole(response).await?;
        result(serde_json::from_slice(&bytes).map_err(|_| without_answer(status))?)
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
            result(serde_json::from_slice(&whole(response).await?).map_err(|_| without_answer(status))?)?;
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
                return result(answer).map(Some);
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

/// Returns the error of a response that has no answer of JSON-RPC. What a retry can't change is final.
fn without_answer(status: StatusCode) -> RemoteError {
    let passing = status.is_success() || status.is_server_error() || matches!(status.as_u16(), 408 | 429);
    let text = format!("it answered {status}, and no JSON");
    if passing { RemoteError::Unreachable(text) } else { RemoteError::Unusable(text) }
}

fn result(mut answer: Value) -> Result<Value, RemoteError> {
    if let Some(error) = answer.get("error") {
        let message = error["message"].as_str().unwrap_or_default();
        let details = error["data"].as_array().map(Vec::as_slice).unwrap_or_default();
        let hints = details.iter().filter_map(|detail| detail["metadata"]["hint"].as_str());
        let message = [message].into_iter().chain(hints).collect::<Vec<_>>().join(". ");
        return Err(RemoteError::Refused { code: error["code"].as_i64().unwrap_or_default(), message });
    }
    match answer.get_mut("result") {
        Some(result) => Ok(result.take()),
        None => Err(RemoteError::Unreachable("an answer without a result".to_owned())),
    }
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
}
