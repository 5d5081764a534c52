//! Posts to the receiver, for all signals.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use lastword_server::{cause, http_client};
use prost::bytes::Bytes;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Client, StatusCode};

use crate::counts::Counts;
use crate::{ExportSettings, Signal};

/// How long one post may take.
const POST_MAX: Duration = Duration::from_secs(10);
/// The pauses between two attempts of a post.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_mins(1);
/// The longest pause that a receiver may ask for.
const ASKED_PAUSE_MAX: Duration = Duration::from_mins(10);

/// Why a post was not taken.
pub(crate) enum Failed {
    /// It may be taken later; at the earliest after this pause, if the receiver names one.
    Later(String, Option<Duration>),
    /// It never will be.
    Never(String),
}

/// A client of the receiver.
pub(crate) struct Poster {
    http: Client,
    headers: HeaderMap,
    base: String,
    pub(crate) counts: Arc<Counts>,
}

impl Poster {
    /// Returns a client. It blocks while it reads the system's certificates.
    pub(crate) fn new(settings: &ExportSettings, counts: Arc<Counts>) -> io::Result<Self> {
        let http = http_client(settings.endpoint.starts_with("https:"), POST_MAX).map_err(io::Error::other)?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        for (name, value) in &settings.headers {
            let name = HeaderName::try_from(name).map_err(io::Error::other)?;
            let mut value = HeaderValue::try_from(value).map_err(io::Error::other)?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(Self { http, headers, base: settings.endpoint.trim_end_matches('/').to_owned(), counts })
    }

    /// Posts until the receiver takes it, or refuses it for good: then this many records are lost.
    pub(crate) async fn post(&self, signal: Signal, records: usize, body: Vec<u8>) {
        let body = Bytes::from(body);
        let mut pause = PAUSE_MIN;
        loop {
            match self.try_post(signal, records, body.clone()).await {
                Ok(()) => return,
                Err(Failed::Never(reason)) => {
                    self.counts.lost(signal, records as u64);
                    tracing::error!(%signal, records, reason, "telemetry is lost: the receiver refuses it");
                    return;
                }
                Err(Failed::Later(reason, asked)) => {
                    tracing::warn!(%signal, reason, "telemetry is not exported; it is tried again");
                    tokio::time::sleep(asked.unwrap_or(pause).clamp(PAUSE_MIN, ASKED_PAUSE_MAX)).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    /// Posts once.
    pub(crate) async fn try_post(&self, signal: Signal, records: usize, body: impl Into<Bytes>) -> Result<(), Failed> {
        let tried = self.send(signal, body.into()).await;
        match &tried {
            Ok(()) => self.counts.exported(signal, records as u64),
            Err(_) => self.counts.failed(signal),
        }
        tried
    }

    async fn send(&self, signal: Signal, body: Bytes) -> Result<(), Failed> {
        let url = format!("{}/v1/{signal}", self.base);
        let request = self.http.post(url).headers(self.headers.clone()).body(body);
        // The address may have a secret in it.
        let sent = request.send().await.map_err(|error| Failed::Later(cause(&error.without_url()), None))?;
        let status = sent.status();
        if status.is_success() {
            return Ok(());
        }
        let asked = sent.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let retried = [
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::BAD_GATEWAY,
            StatusCode::SERVICE_UNAVAILABLE,
            StatusCode::GATEWAY_TIMEOUT,
        ];
        if retried.contains(&status) {
            return Err(Failed::Later(status.to_string(), asked.map(Duration::from_secs)));
        }
        Err(Failed::Never(status.to_string()))
    }
}
