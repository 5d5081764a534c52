//! Rooms and the posts in them.

use serde::{Deserialize, Serialize};

use lastword_facts::names::RequestId;

use crate::StoredMessage;

/// Opens a room, or sets the members of one; `POST /v1/rooms`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewRoom {
    /// The name of the room.
    pub name: String,
    /// The names of the members; replaces the list of a room that exists.
    #[serde(default)]
    pub members: Vec<String>,
    /// The idempotency key, sent in the header `Idempotency-Key` (Q1).
    #[serde(skip)]
    pub key: Option<RequestId>,
}

/// A room and its current state.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RoomView {
    /// The id, such as `room-1`.
    pub id: String,
    /// The name of the room.
    pub name: String,
    /// The names of the members.
    pub members: Vec<String>,
    /// Agent posts since a human last spoke (R1).
    #[serde(alias = "turns")]
    pub agent_messages: u64,
    /// The number of posts in it.
    pub messages: u64,
    /// Whether a latch of the hard limit holds it.
    pub latched: bool,
}

/// Posts to a room; `POST /v1/rooms/{room}/messages`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Post {
    /// The text. An `@name` in a human's post asks that agent.
    pub body: String,
    /// Only for a human's post: the agents to ask, in place of the `@name`s in the body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mentions: Option<Vec<String>>,
    /// Only for a human's post: the work item that it is about. The mentioned agents are asked under it, and the
    /// counters of its conversation and of those above and below it are reset.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// The result of a post.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Posted {
    /// The name of the room.
    pub room: String,
    /// The requests that a human's mentions caused.
    pub items: Vec<StoredMessage>,
}
