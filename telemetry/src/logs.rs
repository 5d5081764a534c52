//! The server's log by OTLP: a layer of `tracing` keeps records in memory until they are posted.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lastword_broker::clock::wall;
use prost::Message;
use tokio::sync::Notify;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use crate::Signal;
use crate::otlp::{AnyValue, KeyValue, Resource, SCHEMA_URL, Scope, Value, attribute, nanoseconds};
use crate::post::Poster;

/// The most records that wait; beyond it, the oldest is lost.
const WAITING_MAX: usize = 4_096;
/// Records in quick succession are posted together.
const PACE: Duration = Duration::from_secs(1);
/// What is logged by the export itself: to post it would be logged again.
const OWN_TARGETS: [&str; 5] = ["lastword_telemetry", "reqwest", "hyper", "rustls", "h2"];

/// The records of the process, of which there is one log.
static RECORDS: Records =
    Records { waiting: Mutex::new(Waiting { records: VecDeque::new(), lost: 0 }), grown: Notify::const_new() };

struct Records {
    waiting: Mutex<Waiting>,
    grown: Notify,
}

struct Waiting {
    records: VecDeque<LogRecord>,
    lost: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LogsData {
    #[prost(message, repeated, tag = "1")]
    pub(crate) resource_logs: Vec<ResourceLogs>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResourceLogs {
    #[prost(message, optional, tag = "1")]
    pub(crate) resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) scope_logs: Vec<ScopeLogs>,
    #[prost(string, tag = "3")]
    pub(crate) schema_url: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ScopeLogs {
    #[prost(message, optional, tag = "1")]
    pub(crate) scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) records: Vec<LogRecord>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LogRecord {
    #[prost(fixed64, tag = "1")]
    pub(crate) time_unix_nano: u64,
    #[prost(int32, tag = "2")]
    pub(crate) severity_number: i32,
    #[prost(string, tag = "3")]
    pub(crate) severity_text: String,
    #[prost(message, optional, tag = "5")]
    pub(crate) body: Option<AnyValue>,
    #[prost(message, repeated, tag = "6")]
    pub(crate) attributes: Vec<KeyValue>,
}

/// Keeps what is logged, for an exporter of the same process.
#[derive(Debug)]
pub struct LogLayer;

impl<S: Subscriber> Layer<S> for LogLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        if OWN_TARGETS.iter().any(|own| metadata.target().starts_with(own)) {
            return;
        }
        let mut record = LogRecord {
            time_unix_nano: nanoseconds(wall()),
            severity_number: severity(*metadata.level()),
            severity_text: metadata.level().to_string(),
            body: None,
            attributes: vec![attribute("code.namespace", metadata.target())],
        };
        event.record(&mut record);
        let mut waiting = RECORDS.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.records.len() == WAITING_MAX {
            waiting.records.pop_front();
            waiting.lost += 1;
        }
        waiting.records.push_back(record);
        drop(waiting);
        RECORDS.grown.notify_one();
    }
}

/// Returns the number that OpenTelemetry gives a level.
fn severity(level: Level) -> i32 {
    match level {
        Level::TRACE => 1,
        Level::DEBUG => 5,
        Level::INFO => 9,
        Level::WARN => 13,
        Level::ERROR => 17,
    }
}

impl LogRecord {
    fn keep(&mut self, field: &Field, value: Value) {
        if field.name() == "message" {
            self.body = Some(AnyValue { value: Some(value) });
        } else {
            self.attributes.push(attribute(field.name(), value));
        }
    }
}

impl Visit for LogRecord {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.keep(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.keep(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.keep(field, value.into());
    }
}

/// Posts what is logged, for ever.
pub(crate) async fn run(poster: &Arc<Poster>) {
    loop {
        RECORDS.grown.notified().await;
        tokio::time::sleep(PACE).await;
        let (records, lost) = {
            let mut waiting = RECORDS.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            (waiting.records.drain(..).collect::<Vec<_>>(), std::mem::take(&mut waiting.lost))
        };
        poster.counts.lost(Signal::Logs, lost);
        if records.is_empty() {
            continue;
        }
        poster.post(Signal::Logs, records.len(), data(records).encode_to_vec()).await;
    }
}

/// Returns records by OTLP.
pub(crate) fn data(records: Vec<LogRecord>) -> LogsData {
    let scope_logs = vec![ScopeLogs { scope: Some(Scope::own()), records }];
    let resource = Some(Resource::own());
    let of = ResourceLogs { resource, scope_logs, schema_url: SCHEMA_URL.to_owned() };
    LogsData { resource_logs: vec![of] }
}
