//! The frames of a session: one WebSocket that carries every call of a principal, and what is pushed to it.
//!
//! A frame is one JSON object in one text message. The client numbers its calls; the reply to a call has its number, and
//! replies come in any order. The shapes of bodies and problems are those of the HTTP surface.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::{Delivery, Event};

/// The path of the WebSocket.
pub const PATH: &str = "/v1/session";
/// The subprotocol that client and server agree on.
pub const SUBPROTOCOL: &str = "lastword.v1";
/// The reason with which a server ends a session that it has answered: a call without a reply was not carried out.
pub const MOVED: &str = "the server shuts down or hands the workspace over: connect again";
/// The call with which a session authenticates that sent no `Authorization` header.
pub const HELLO: &str = "hello";
/// The call that starts the pushes.
pub const WATCH: &str = "watch";
/// The call that acknowledges deliveries.
pub const ACK: &str = "ack";
/// The most bytes of a call's body, over HTTP as in a session: the largest body, the largest payload and the envelope.
pub const REQUEST_BYTES_MAX: usize = 640 << 10;
/// The most unacknowledged deliveries, unless `watch` asks for fewer.
pub const WINDOW_MAX: u32 = 256;

/// A call from the client.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SessionCall<'a> {
    /// The number of the call, which its reply repeats.
    pub id: u64,
    /// The name of the call.
    #[serde(borrow)]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub call: Cow<'a, str>,
    /// What the call is about: the id, name or REF that its HTTP path has.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub path: Option<Cow<'a, str>>,
    /// The query parameters, by name.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub query: Map<String, Value>,
    /// The idempotency key: a retry with the same key returns the first result.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub key: Option<Cow<'a, str>>,
    /// The token of the turn that the call belongs to.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub turn: Option<Cow<'a, str>>,
    /// The body, as HTTP takes it. A string is the text form of a message.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Object>))]
    pub body: Option<&'a RawValue>,
}

/// The reply to a call.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SessionReply<'a> {
    /// The number of the call; 0 if the call's own can't be read.
    pub id: u64,
    /// The status, as HTTP has it.
    pub status: u16,
    /// The result; absent for status 204.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Object>))]
    pub body: Option<&'a RawValue>,
    /// Why the call was refused; present if the status is 400 or more.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::Problem>))]
    pub problem: Option<&'a RawValue>,
}

/// A delivery that the server pushes.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PushedDelivery {
    /// The number of this push in the session, to acknowledge it by.
    pub cursor: u64,
    /// The delivery.
    pub delivery: Delivery,
}

/// Tells a session that watches its deliveries that one of its turns is over, other than by its `finish`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PushedEnd {
    /// The turn.
    pub ended: EndedTurn,
}

/// A turn that is over: a human stopped it, its request was settled or cancelled, or its lease was lost. Stop working on it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct EndedTurn {
    /// The id, such as `turn-3`.
    pub turn: String,
}

/// An event that the server pushes.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PushedEvent {
    /// The event. A session that begins again watches after its `seq`.
    pub event: Event,
}

/// The body of `hello`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// The token of the agent or human.
    pub token: String,
}

/// The body of the reply to `hello`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Welcome {
    /// Whose session it is.
    pub name: String,
    /// The most calls that may wait for their replies; the server reads no further ones.
    pub calls_max: u32,
    /// The longest frame, in bytes.
    pub frame_bytes_max: u64,
    /// The time after which the server pings a silent client, in ms. It closes the session if another such time passes in
    /// silence.
    pub heartbeat_ms: u64,
}

/// The body of `watch`: what is pushed from now on. It replaces what an earlier call asked for.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Watch {
    /// Push deliveries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliveries: Option<WatchDeliveries>,
    /// Push events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<WatchEvents>,
}

/// How deliveries are pushed.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct WatchDeliveries {
    /// The most deliveries that may be unacknowledged, from 1; at most 256, which is the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u32>,
    /// The open turns that the client still works on. The deliveries of other open turns are pushed once more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub working: Vec<String>,
}

/// Which events are pushed.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct WatchEvents {
    /// Start after this position of the log. Without it, new events only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
}

/// The body of the reply to `watch`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Watching {
    /// The position at which the log ended.
    pub position: u64,
}

/// The body of `ack`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Ack {
    /// Every delivery up to this cursor is acknowledged. The end of a turn acknowledges its deliveries, too.
    pub cursor: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> =
            crate::CALLS.iter().filter_map(|call| call.name).chain([HELLO, WATCH, ACK]).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
