//! The JSON envelope (E2), and its conversion to a [`Draft`].

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;

use lastword_facts::TraceContext;
use lastword_facts::envelope::{Address, Draft, FinishStatus, JsonText, MessageType, Priority};
use lastword_facts::ids::Seq;
use lastword_facts::names::{AgentName, Label, NameError, Ref, RequestId, corrected};

use crate::near::nearest;

/// Members that only the broker sets; a message that has one is refused (E3).
const MINTED: [&str; 4] = ["hops", "cause", "grant", "conversation"];
/// The members of an envelope that mean something.
const MEMBERS: [&str; 18] = [
    "type",
    "from",
    "to",
    "ref",
    "depth",
    "request_id",
    "action",
    "payload",
    "body",
    "priority",
    "timeout_ms",
    "deadline_ms",
    "metadata",
    "in_reply_to",
    "caused_by",
    "status",
    "acknowledged",
    "eta_ms",
];
/// The members of its metadata that do.
const OPTIONS: [&str; 3] = ["priority", "timeout_ms", "deadline_ms"];
/// The member of its metadata with the W3C trace context of the sender's work.
pub const TRACEPARENT: &str = "traceparent";
/// The member of its metadata with what the systems of its trace add to that.
pub const TRACESTATE: &str = "tracestate";
/// The longest `tracestate` that is kept, in bytes; W3C requires at least this.
pub const TRACESTATE_BYTES_MAX: usize = 512;
/// The most members that a warning names.
const NAMED_MAX: usize = 5;

/// A message as its sender submits it; `POST /v1/messages`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Envelope {
    /// One of `request`, `response`, `status`, `alert`, `info`, `broadcast`.
    #[serde(rename = "type")]
    pub kind: MessageType,
    /// The claimed sender; may be omitted. Refused if it isn't the token's owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// A name, a list of names, `@group`, `#action`, `all` or `user`. A RESPONSE or STATUS may omit it: it goes to the
    /// requester.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<To>,
    /// The REF of the work item; may be omitted inside a turn.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The claimed depth; may be omitted. Refused if it differs from the actual depth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u8>,
    /// The idempotency key of a REQUEST, or the request that a RESPONSE or STATUS belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The action that the message asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Structured content: any JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
    /// The text of the message.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub body: String,
    /// As `metadata.priority`, which wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// As `metadata.timeout_ms`, which wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1))]
    pub timeout_ms: Option<u64>,
    /// As `metadata.deadline_ms`, which wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1))]
    pub deadline_ms: Option<u64>,
    /// Delivery options, and members that Lastword only passes on.
    #[serde(default, skip_serializing_if = "Metadata::is_empty")]
    pub metadata: Metadata,
    /// The message (such as `msg-12`) that this one answers or refers to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_reply_to: Option<String>,
    /// A message of this workspace that caused this one from outside (D10); such a message opens no grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caused_by: Option<String>,
    /// RESPONSE: the result. If omitted: `waiting` while requests of the task are in flight, otherwise `completed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<FinishStatus>,
    /// STATUS: the recipient has seen the request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub acknowledged: bool,
    /// STATUS: the estimated time until the answer, in ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta_ms: Option<u64>,
    /// Members that Lastword doesn't know; kept with `metadata`. Members that only the broker sets are refused.
    #[serde(flatten)]
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub unknown: Map<String, Value>,
}

/// Delivery options of a message, and members that its sender wants to pass on.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Metadata {
    /// Rank in the recipient's queue; `normal` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// Time to acknowledge, in ms (Q2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1))]
    pub timeout_ms: Option<u64>,
    /// Time for the whole request, in ms (Q2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1))]
    pub deadline_ms: Option<u64>,
    /// All other members, passed on unchanged.
    #[serde(flatten)]
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub unknown: Map<String, Value>,
}

impl Metadata {
    /// Whether no member is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.priority.is_none() && self.timeout_ms.is_none() && self.deadline_ms.is_none() && self.unknown.is_empty()
    }
}

/// One address or a list of addresses.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum To {
    /// A name, `@group`, `#action`, `all` or `user`.
    One(String),
    /// Several addresses; each recipient gets a message of its own.
    Many(Vec<String>),
}

/// An invalid member and the problem with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The name of the member.
    pub field: &'static str,
    /// The problem, as the rest of a sentence that begins with the member.
    pub problem: String,
}

impl FieldError {
    /// Returns the error for the member `field` with the given problem.
    #[must_use]
    pub fn new(field: &'static str, problem: impl fmt::Display) -> Self {
        Self { field, problem: problem.to_string() }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` {}", self.field, self.problem)
    }
}

impl std::error::Error for FieldError {}

impl Envelope {
    /// Returns an envelope with only type, recipient and body.
    #[must_use]
    pub fn new(kind: MessageType, to: &str, body: &str) -> Self {
        Self {
            kind,
            from: None,
            to: Some(To::One(to.into())),
            reference: None,
            depth: None,
            request_id: None,
            action: None,
            payload: None,
            body: body.into(),
            priority: None,
            timeout_ms: None,
            deadline_ms: None,
            metadata: Metadata::default(),
            in_reply_to: None,
            caused_by: None,
            status: None,
            acknowledged: false,
            eta_ms: None,
            unknown: Map::new(),
        }
    }

    /// Checks every member and converts the envelope to a draft.
    ///
    /// # Errors
    /// Returns the first member that is invalid.
    pub fn draft(self) -> Result<Draft, FieldError> {
        if let Some(member) = MINTED.into_iter().find(|member| self.unknown.contains_key(*member)) {
            return Err(FieldError::new(member, "is minted by the broker: leave it out"));
        }
        let to = self.address()?;
        let mut draft = Draft::new(self.kind, to, &self.body);
        draft.note = self.note();
        draft.from = name("from", self.from.as_deref(), AgentName::new)?;
        draft.reference = name("ref", self.reference.as_deref(), Ref::new)?;
        draft.depth = self.depth;
        draft.request_id = name("request_id", self.request_id.as_deref(), RequestId::new)?;
        draft.action = name("action", self.action.as_deref(), Label::new)?;
        draft.payload = self.payload.filter(|p| !p.is_null()).map(canonical);
        draft.priority = self.metadata.priority.or(self.priority).unwrap_or(Priority::Normal);
        draft.timeout_ms = time("timeout_ms", self.metadata.timeout_ms.or(self.timeout_ms))?;
        draft.deadline_ms = time("deadline_ms", self.metadata.deadline_ms.or(self.deadline_ms))?;
        draft.in_reply_to = position("in_reply_to", self.in_reply_to.as_deref())?;
        draft.caused_by = position("caused_by", self.caused_by.as_deref())?;
        draft.status = self.status;
        draft.acknowledged = self.acknowledged;
        draft.eta_ms = self.eta_ms;
        let traceparent = self.metadata.unknown.get(TRACEPARENT).and_then(Value::as_str);
        draft.trace = traceparent.and_then(TraceContext::parse);
        draft.metadata = passed_on(self.metadata.unknown, self.unknown);
        Ok(draft)
    }

    /// Returns a warning that names the members that mean nothing to Lastword, each with the one that was probably meant.
    /// Metadata is for members of the sender's own, so of those only near misses are named.
    fn note(&self) -> Option<Box<str>> {
        let quote = |member: &String| match nearest(member, MEMBERS) {
            Some(near) => format!("`{member}` (did you mean `{near}`?)"),
            None => format!("`{member}`"),
        };
        let missed = self.metadata.unknown.keys().filter(|member| nearest(member, OPTIONS).is_some());
        let mut named: Vec<String> = self.unknown.keys().chain(missed).map(quote).collect();
        if named.is_empty() {
            return None;
        }
        let more = named.len().saturating_sub(NAMED_MAX);
        named.truncate(NAMED_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        Some(format!("Passed on, but without a meaning to Lastword: {}{more}.", named.join(", ")).into())
    }

    fn address(&self) -> Result<Address, FieldError> {
        let one = |text: &str| {
            let is_right = |text: &str| Address::parse(text).is_ok();
            Address::parse(text).map_err(|error| {
                let several = text.contains(',') && text.split(',').all(|one| is_right(one.trim()));
                let list = || format!("{text:?} names several: send a list of them, or a message to each");
                FieldError::new("to", if several { list() } else { misnamed(text, &error, is_right) })
            })
        };
        match &self.to {
            Some(To::One(text)) => one(text),
            Some(To::Many(list)) if list.is_empty() => Err(FieldError::new("to", "is an empty list")),
            Some(To::Many(list)) => list.iter().map(|text| one(text)).collect::<Result<_, _>>().map(Address::List),
            _ if matches!(self.kind, MessageType::Broadcast) => Ok(Address::All),
            _ if matches!(self.kind, MessageType::Response | MessageType::Status) => Ok(Address::User),
            _ => match self.unknown.keys().next() {
                Some(other) => Err(FieldError::new("to", format!("is missing, and `{other}` is no member"))),
                None => Err(FieldError::new("to", "is missing")),
            },
        }
    }
}

fn name<T>(
    field: &'static str,
    text: Option<&str>,
    check: impl Fn(&str) -> Result<T, NameError>,
) -> Result<Option<T>, FieldError> {
    let wrong = |text, error| FieldError::new(field, misnamed(text, &error, |text| check(text).is_ok()));
    let one = |text| check(text).map_err(|error| wrong(text, error));
    text.filter(|text| !text.is_empty()).map(one).transpose()
}

/// Words an error about a name: the name, what is wrong, and one that is right, if it can be told.
#[must_use]
pub fn misnamed(text: &str, error: &NameError, is_right: impl Fn(&str) -> bool) -> String {
    match corrected(text).into_iter().find(|text| is_right(text)) {
        Some(right) => format!("{text:?} {error}; for example `{right}`"),
        None => format!("{text:?} {error}"),
    }
}

/// Refuses a time that would be over at once, with a human called and nothing done.
fn time(field: &'static str, ms: Option<u64>) -> Result<Option<u64>, FieldError> {
    if ms == Some(0) { Err(FieldError::new(field, "is 0, so the time would be over already")) } else { Ok(ms) }
}

fn position(field: &'static str, text: Option<&str>) -> Result<Option<Seq>, FieldError> {
    let parse = |text| Seq::parse(text).ok_or_else(|| FieldError::new(field, "isn't a message id such as msg-12"));
    text.filter(|text| !text.is_empty()).map(parse).transpose()
}

fn passed_on(mut kept: Map<String, Value>, mut unknown: Map<String, Value>) -> Option<Box<str>> {
    kept.append(&mut unknown);
    if kept.is_empty() { None } else { Some(canonical(Value::Object(kept))) }
}

/// Formats a value with its members in one order, so that a retry has the same text however it orders them.
#[must_use]
pub fn canonical(mut value: Value) -> JsonText {
    value.sort_all_objects();
    value.to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_members_are_kept_and_delivery_terms_are_read() {
        let json = r##"{"type":"request","to":"#review","ref":"E-1","trace":"t1",
            "metadata":{"priority":"high","timeout_ms":400,"team":"red"},"payload":{"b":1,"a":{"d":2,"c":3}}}"##;
        let envelope: Envelope = serde_json::from_str(json).unwrap();
        let draft = envelope.draft().unwrap();
        assert_eq!((draft.priority, draft.timeout_ms), (Priority::High, Some(400)));
        assert_eq!(draft.metadata.as_deref(), Some(r#"{"team":"red","trace":"t1"}"#));
        assert_eq!(
            draft.payload.as_deref(),
            Some(r#"{"a":{"c":3,"d":2},"b":1}"#),
            "in one order, whatever the sender's"
        );
        assert!(matches!(draft.to, Address::Action(_)));
    }

    #[test]
    fn a_number_stays_the_same_number_however_often_it_is_passed_on() {
        for number in ["1.5e-300", "0.1", "1.1844674407370957e+20", "2.2250738585072014e-308"] {
            let json = format!(r#"{{"type":"info","to":"hive","payload":[{number}]}}"#);
            let draft = serde_json::from_str::<Envelope>(&json).unwrap().draft().unwrap();
            assert_eq!(draft.payload.as_deref(), Some(&*format!("[{number}]")));
        }
    }

    #[test]
    fn delivery_terms_may_stand_in_the_envelope_itself() {
        let draft = |json: &str| serde_json::from_str::<Envelope>(json).unwrap().draft();
        let own = draft(r#"{"type":"request","to":"hive","ref":"E-1","priority":"high","timeout_ms":400}"#).unwrap();
        assert_eq!((own.priority, own.timeout_ms, own.metadata), (Priority::High, Some(400), None));
        let both = draft(r#"{"type":"request","to":"hive","deadline_ms":400,"metadata":{"deadline_ms":500}}"#).unwrap();
        assert_eq!(both.deadline_ms, Some(500), "the one in `metadata`");
    }

    #[test]
    fn a_wrong_member_is_named() {
        for (json, field) in [
            (r#"{"type":"request"}"#, "to"),
            (r#"{"type":"request","to":"Hive"}"#, "to"),
            (r#"{"type":"request","to":[]}"#, "to"),
            (r#"{"type":"request","to":"hive","ref":"x]"}"#, "ref"),
            (r#"{"type":"info","to":"hive","in_reply_to":"12"}"#, "in_reply_to"),
            (r#"{"type":"request","to":"hive","timeout_ms":0}"#, "timeout_ms"),
            (r#"{"type":"request","to":"hive","metadata":{"deadline_ms":0}}"#, "deadline_ms"),
            (r#"{"type":"info","to":"hive","hops":0}"#, "hops"),
            (r#"{"type":"info","to":"hive","cause":"msg-1"}"#, "cause"),
            (r#"{"type":"info","to":"hive","grant":"grt-1"}"#, "grant"),
            (r#"{"type":"info","to":"hive","conversation":"cnv-1"}"#, "conversation"),
        ] {
            let envelope: Envelope = serde_json::from_str(json).unwrap();
            assert_eq!(envelope.draft().unwrap_err().field, field, "{json}");
        }
    }
}
