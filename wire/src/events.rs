//! Events: facts as clients see them, one event for each fact.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::StoredMessage;

/// A fact on the event stream; `GET /v1/events`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Event {
    /// Its position in the log; the `id` of the server-sent event.
    pub seq: u64,
    /// The kind of fact, such as `accepted` or `turn_opened`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The time of the fact.
    pub at: String,
    /// The agent that the fact is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The conversation that the fact is about.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The request that the fact is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// For `accepted`: the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<StoredMessage>,
    /// The other members of the fact; they differ by kind.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub data: Map<String, Value>,
}
