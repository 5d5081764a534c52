//! The parts of OTLP that are sent, as `opentelemetry-proto` 1.10 numbers them.

use lastword_facts::Time;
use prost::bytes::{Buf, BufMut};
use prost::encoding::{
    DecodeContext, WireType, bytes, encode_key, encode_varint, encoded_len_varint, fixed32, fixed64, int32, message,
    skip_field, uint64,
};
use prost::{DecodeError, Message};

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

/// A span in its encoding. Fields of Protobuf come in any order, so that what is set is appended; ids and start are first.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Span(Vec<u8>);

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SpanEvent {
    #[prost(fixed64, tag = "1")]
    pub(crate) time_unix_nano: u64,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
    #[prost(message, repeated, tag = "3")]
    pub(crate) attributes: Vec<KeyValue>,
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

/// The value of an attribute that is encoded at once.
#[derive(Clone, Copy)]
pub(crate) enum Scalar<'a> {
    Text(&'a str),
    Count(u64),
}

impl<'a> From<&'a str> for Scalar<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a String> for Scalar<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Scalar<'_> {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

/// Room for a span without texts.
const SPAN_BYTES: usize = 640;
/// Where the start is in the encoding: after a trace of 16 bytes, an id of 8, and the tags.
const START: usize = 29;

impl Span {
    /// Begins a span; `parent` is empty if there is none.
    pub(crate) fn begin(trace: &[u8], id: [u8; 8], parent: &[u8], kind: i32, at: Time) -> Self {
        let mut wire = Vec::with_capacity(SPAN_BYTES);
        put_bytes(1, trace, &mut wire);
        put_bytes(2, &id, &mut wire);
        fixed64::encode(7, &nanoseconds(at), &mut wire);
        if !parent.is_empty() {
            put_bytes(4, parent, &mut wire);
        }
        int32::encode(6, &kind, &mut wire);
        fixed32::encode(16, &1, &mut wire);
        Self(wire)
    }

    /// Returns its trace, its id and its start in nanoseconds.
    pub(crate) fn head(&self) -> Option<([u8; 16], [u8; 8], u64)> {
        let (head, start) = self.0.split_at_checked(START)?;
        let known = head[..2] == [0x0a, 16] && head[18..20] == [0x12, 8] && head[28] == 0x39;
        let (trace, id, start) = (head[2..].first_chunk()?, head[20..].first_chunk()?, start.first_chunk()?);
        known.then(|| (*trace, *id, u64::from_le_bytes(*start)))
    }

    /// Names it, once.
    pub(crate) fn name(&mut self, name: &str) {
        put_bytes(5, name.as_bytes(), &mut self.0);
    }

    /// Adds an attribute.
    pub(crate) fn set<'a>(&mut self, key: &str, value: impl Into<Scalar<'a>>) {
        let value = value.into();
        let value_len = match value {
            Scalar::Text(text) => bytes_len(text.len()),
            Scalar::Count(count) => 1 + encoded_len_varint(count),
        };
        let wire = &mut self.0;
        encode_key(9, WireType::LengthDelimited, wire);
        encode_varint((bytes_len(key.len()) + bytes_len(value_len)) as u64, wire);
        put_bytes(1, key.as_bytes(), wire);
        encode_key(2, WireType::LengthDelimited, wire);
        encode_varint(value_len as u64, wire);
        match value {
            Scalar::Text(text) => put_bytes(1, text.as_bytes(), wire),
            Scalar::Count(count) => {
                encode_key(3, WireType::Varint, wire);
                encode_varint(count, wire);
            }
        }
    }

    /// Marks it as failed, by a word that has few values.
    pub(crate) fn fail(&mut self, kind: &str, message: &str) {
        self.set("error.type", kind);
        message::encode(15, &Status { message: message.to_owned(), code: ERROR }, &mut self.0);
    }

    /// Adds an event.
    pub(crate) fn happen(&mut self, at: Time, name: &str, attributes: Vec<KeyValue>) {
        let event = SpanEvent { time_unix_nano: nanoseconds(at), name: name.to_owned(), attributes };
        message::encode(11, &event, &mut self.0);
    }

    /// Links it to another span.
    pub(crate) fn link(&mut self, trace: &[u8], id: [u8; 8]) {
        let wire = &mut self.0;
        encode_key(13, WireType::LengthDelimited, wire);
        encode_varint((bytes_len(trace.len()) + bytes_len(id.len())) as u64, wire);
        put_bytes(1, trace, wire);
        put_bytes(2, &id, wire);
    }

    /// Ends it, and returns it.
    pub(crate) fn ended(mut self, at: Time) -> Self {
        let start = self.head().map_or(0, |(_, _, start)| start);
        fixed64::encode(8, &nanoseconds(at).max(start), &mut self.0);
        self
    }
}

/// Returns the length of a field of bytes, with a tag below 16.
fn bytes_len(len: usize) -> usize {
    1 + encoded_len_varint(len as u64) + len
}

fn put_bytes(tag: u32, bytes: &[u8], wire: &mut Vec<u8>) {
    encode_key(tag, WireType::LengthDelimited, wire);
    encode_varint(bytes.len() as u64, wire);
    wire.extend_from_slice(bytes);
}

impl Message for Span {
    fn encode_raw(&self, wire: &mut impl BufMut) {
        wire.put_slice(&self.0);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        kind: WireType,
        from: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        // Kept as it came.
        let wire = &mut self.0;
        match kind {
            WireType::Varint => {
                let mut value = 0;
                uint64::merge(kind, &mut value, from, ctx)?;
                uint64::encode(tag, &value, wire);
            }
            WireType::SixtyFourBit => {
                let mut value = 0;
                fixed64::merge(kind, &mut value, from, ctx)?;
                fixed64::encode(tag, &value, wire);
            }
            WireType::ThirtyTwoBit => {
                let mut value = 0;
                fixed32::merge(kind, &mut value, from, ctx)?;
                fixed32::encode(tag, &value, wire);
            }
            WireType::LengthDelimited => {
                let mut value = Vec::new();
                bytes::merge(kind, &mut value, from, ctx)?;
                bytes::encode(tag, &value, wire);
            }
            WireType::StartGroup | WireType::EndGroup => skip_field(kind, tag, from, ctx)?,
        }
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        self.0.len()
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}
