//! OpenTelemetry: the spans of a workspace's work, from its log.
//!
//! A follower of the committed log, beside the broker and never on its path. `projection` folds facts into spans, with
//! the log's own times; `follow` reads the log, posts what has ended by OTLP over HTTP, and records in `telemetry.state`
//! how far it is. While the receiver is down the log keeps everything.

mod counts;
mod follow;
mod logs;
mod metrics;
mod otlp;
mod post;
mod projection;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures_util::future::BoxFuture;
use lastword_broker::priority;
use lastword_facts::{Seq, Time};
use lastword_server::{Companion, Context, ended};
use prost::Message as _;
use reqwest::Url;
use reqwest::header::{HeaderName, HeaderValue};
use tokio::sync::oneshot;

pub use self::logs::LogLayer;

use self::counts::Counts;
use self::follow::Exporter;
use self::post::{Failed, Poster};

/// What is exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Spans of the workspace's work.
    Traces,
    /// The server's metrics.
    Metrics,
    /// The server's log, of the whole process.
    Logs,
}

impl Signal {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Traces, Self::Metrics, Self::Logs];
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Traces => "traces",
            Self::Metrics => "metrics",
            Self::Logs => "logs",
        })
    }
}

/// Where telemetry goes, and what it tells.
#[derive(Clone)]
pub struct ExportSettings {
    /// The base address of the receiver; traces go to `/v1/traces` below it, and so on.
    pub endpoint: String,
    /// Headers of each request, such as an access key.
    pub headers: Vec<(String, String)>,
    /// What is exported. Logs need the [`LogLayer`].
    pub signals: Vec<Signal>,
    /// The time between two exports of metrics.
    pub metrics_every: Duration,
    /// Whether spans have the texts of messages, questions and arguments.
    pub include_text: bool,
}

/// Returns the exporter, to run beside the broker.
#[must_use]
pub fn companion(settings: ExportSettings) -> Companion {
    let run = move |ctx: &Context| -> BoxFuture<'static, io::Result<()>> {
        // What comes while the exporter starts is exported as well.
        let begin = *ctx.handle.committed().borrow();
        Box::pin(run(ctx.clone(), settings.clone(), begin))
    };
    Companion { run: Arc::new(run) }
}

/// Exports until the server shuts down, on a thread that leaves the processors to messages: what isn't exported yet is in
/// the log.
async fn run(ctx: Context, settings: ExportSettings, begin: Seq) -> io::Result<()> {
    let (done, ended) = oneshot::channel();
    let exporting = move || {
        priority::lower(priority::AFTER_OTHERS);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        _ = done.send(runtime.and_then(|runtime| runtime.block_on(export(ctx, settings, begin))));
    };
    thread::Builder::new().name("telemetry".to_owned()).spawn(exporting)?;
    ended.await.map_err(io::Error::other)?
}

async fn export(ctx: Context, settings: ExportSettings, begin: Seq) -> io::Result<()> {
    let exports = |signal| settings.signals.contains(&signal);
    let counts = Arc::new(Counts::new(exports(Signal::Traces).then(|| ctx.handle.committed())));
    let (configured, counted) = (settings.clone(), Arc::clone(&counts));
    let poster =
        tokio::task::spawn_blocking(move || Poster::new(&configured, counted)).await.map_err(io::Error::other)?;
    let poster = match poster {
        Ok(poster) => Arc::new(poster),
        Err(error) => {
            tracing::error!(%error, "no telemetry is exported");
            return Ok(());
        }
    };
    ctx.handle.metrics().extend(move || counts.families());
    let mut stopping = ctx.stopping.clone();
    let mut exporter = Exporter::new(ctx.clone(), Arc::clone(&poster), settings.include_text, begin);
    tokio::select! {
        () = ended(&mut stopping) => {}
        () = exporter.follow(), if exports(Signal::Traces) => {}
        () = metrics::run(&ctx, &poster, settings.metrics_every), if exports(Signal::Metrics) => {}
        () = logs::run(&poster), if exports(Signal::Logs) => {}
    }
    // A post that was cut off is made again after the next start, with the same ids.
    if exports(Signal::Traces) {
        exporter.save().await;
    }
    Ok(())
}

/// Posts an empty list of each signal that is exported.
///
/// # Errors
/// The signal that the receiver doesn't take, and why.
pub async fn check(settings: ExportSettings) -> Result<(), String> {
    let counts = Arc::new(Counts::new(None));
    let signals = settings.signals.clone();
    let poster = tokio::task::spawn_blocking(move || Poster::new(&settings, counts)).await;
    let poster = poster.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
    for signal in signals {
        let body = match signal {
            Signal::Traces => follow::traces(Vec::new()).encode_to_vec(),
            Signal::Metrics => metrics::data(&[], Time(0), Time(0)).encode_to_vec(),
            Signal::Logs => logs::data(Vec::new()).encode_to_vec(),
        };
        if let Err(Failed::Later(reason, _) | Failed::Never(reason)) = poster.try_post(signal, 0, body).await {
            return Err(format!("{signal}: {reason}"));
        }
    }
    Ok(())
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
