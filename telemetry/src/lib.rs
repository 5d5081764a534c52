//! OpenTelemetry: the spans of a workspace's work, from its log.
//!
//! A follower of the committed log, beside the broker and never on its path. `projection` folds facts into spans, with
//! the log's own times; `follow` reads the log, posts what has ended by OTLP over HTTP, and records in `telemetry.state`
//! how far it is. While the receiver is down the log keeps everything.

mod follow;
mod otlp;
mod projection;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use lastword_server::{Companion, Context};
use reqwest::Url;
use reqwest::header::{HeaderName, HeaderValue};

/// Where spans go, and what they tell.
#[derive(Clone)]
pub struct Settings {
    /// The base address of the receiver; traces go to `/v1/traces` below it.
    pub endpoint: String,
    /// Headers of each request, such as an access key.
    pub headers: Vec<(String, String)>,
    /// Whether spans have the texts of messages, questions and arguments.
    pub include_text: bool,
}

/// Returns the exporter of spans, to run beside the broker.
#[must_use]
pub fn companion(settings: Settings) -> Companion {
    let run = move |ctx: &Context| -> BoxFuture<'static, io::Result<()>> {
        Box::pin(follow::run(ctx.clone(), settings.clone()))
    };
    Companion { run: Arc::new(run) }
}

/// Returns whether a text is the base address of a receiver: a secret belongs into a header, and not into the address.
#[must_use]
pub fn is_endpoint(text: &str) -> bool {
    let plain = |url: Url| url.query().is_none() && url.username().is_empty() && url.password().is_none();
    Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && plain(url))
}

/// Reads headers in the form of the variable `OTEL_EXPORTER_OTLP_HEADERS`; a value may be secret, so that no error has one.
///
/// # Errors
/// The header that is none, by its number.
pub fn headers(text: &str) -> Result<Vec<(String, String)>, String> {
    let parts = text.split([',', '\n']).map(str::trim).filter(|part| !part.is_empty());
    let read = |(at, part): (usize, &str)| {
        let wrong = || format!("header {} isn't of the form name=value", at + 1);
        let (name, value) = part.split_once('=').ok_or_else(wrong)?;
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
        let fits = HeaderName::try_from(&name).is_ok() && HeaderValue::try_from(value).is_ok();
        if fits { Ok((name, value.to_owned())) } else { Err(wrong()) }
    };
    parts.enumerate().map(read).collect()
}
