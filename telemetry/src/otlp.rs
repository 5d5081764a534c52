//! The parts of OTLP that are sent, as `opentelemetry-proto` 1.10 numbers them.

use lastword_facts::Time;
use prost::Message;

/// The version of the conventions that the attributes are of.
pub(crate) const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.45.0";
/// The kinds of a span.
pub(crate) const INTERNAL: i32 = 1;
pub(crate) const PRODUCER: i32 = 4;
pub(crate) const CONSUMER: i32 = 5;
/// The status of a span that failed.
const ERROR: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TracesData {
    #[prost(message, repeated, tag = "1")]
    pub(crate) resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    pub(crate) resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) scope_spans: Vec<ScopeSpans>,
    #[prost(string, tag = "3")]
    pub(crate) schema_url: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub(crate) attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    pub(crate) scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) spans: Vec<Span>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Scope {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) version: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Span {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    pub(crate) parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    pub(crate) name: String,
    #[prost(int32, tag = "6")]
    pub(crate) kind: i32,
    #[prost(fixed64, tag = "7")]
    pub(crate) start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    pub(crate) end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    pub(crate) attributes: Vec<KeyValue>,
    #[prost(message, repeated, tag = "11")]
    pub(crate) events: Vec<Event>,
    #[prost(message, repeated, tag = "13")]
    pub(crate) links: Vec<Link>,
    #[prost(message, optional, tag = "15")]
    pub(crate) status: Option<Status>,
    #[prost(fixed32, tag = "16")]
    pub(crate) flags: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Event {
    #[prost(fixed64, tag = "1")]
    pub(crate) time_unix_nano: u64,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
    #[prost(message, repeated, tag = "3")]
    pub(crate) attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Link {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) span_id: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Status {
    #[prost(string, tag = "2")]
    pub(crate) message: String,
    #[prost(int32, tag = "3")]
    pub(crate) code: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyValue {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 3")]
    pub(crate) value: Option<Value>,
}

/// The value of an attribute.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Count(i64),
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u64> for Value {
    fn from(count: u64) -> Self {
        Self::Count(i64::try_from(count).unwrap_or(i64::MAX))
    }
}

/// Returns an attribute.
pub(crate) fn attribute(key: &str, value: impl Into<Value>) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value.into()) }) }
}

/// Returns a time as OTLP counts it.
pub(crate) const fn nanoseconds(time: Time) -> u64 {
    time.0.saturating_mul(1_000_000)
}

impl Resource {
    /// Returns what everything is exported of.
    pub(crate) fn own() -> Self {
        let version = attribute("service.version", env!("CARGO_PKG_VERSION"));
        Self { attributes: vec![attribute("service.name", "lastword"), version] }
    }
}

impl Scope {
    pub(crate) fn own() -> Self {
        Self { name: "lastword".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }
    }
}

impl Span {
    /// Adds an attribute.
    pub(crate) fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.attributes.push(attribute(key, value));
    }

    /// Adds an attribute if there is a value.
    pub(crate) fn set_some(&mut self, key: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.set(key, value);
        }
    }

    /// Marks it as failed, by a word that has few values.
    pub(crate) fn fail(&mut self, kind: &str, message: &str) {
        self.set("error.type", kind);
        self.status = Some(Status { message: message.to_owned(), code: ERROR });
    }

    /// Adds an event.
    pub(crate) fn happen(&mut self, at: Time, name: &str, attributes: Vec<KeyValue>) {
        self.events.push(Event { time_unix_nano: nanoseconds(at), name: name.to_owned(), attributes });
    }

    /// Ends it, and returns it.
    pub(crate) fn ended(mut self, at: Time) -> Self {
        self.end_time_unix_nano = nanoseconds(at).max(self.start_time_unix_nano);
        self
    }
}
