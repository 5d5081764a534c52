//! Rooms and the posts in them.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::StoredMessage;
use crate::names::RequestId;

/// A room to open; `POST /v1/rooms`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewRoom {
    /// Its name.
    pub name: String,
    /// Who takes part.
    #[serde(default)]
    pub members: Vec<String>,
    /// The idempotency key, which comes in the header `Idempotency-Key` (Q1).
    #[serde(skip)]
    pub key: Option<RequestId>,
}

/// A room, as it stands.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RoomView {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Who takes part.
    pub members: Vec<String>,
    /// Agent messages since a human spoke (R1).
    #[serde(alias = "turns")]
    pub agent_messages: u64,
    /// Posts in it.
    pub messages: u64,
    /// Whether the hard limit holds it.
    pub latched: bool,
}

/// A post to a room; `POST /v1/rooms/{room}/messages`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Post {
    /// What. A human's `@name` asks that agent.
    pub body: String,
    /// A human's: the agents that are asked, in place of the `@name`s of the body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mentions: Option<Vec<String>>,
    /// A human's: the work item that it is about. Those who are mentioned are asked under it, and the counters of its
    /// conversation and of those that came of it begin again.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// What came of a post.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Posted {
    /// The room.
    pub room: String,
    /// The requests that a human's mentions became.
    pub items: Vec<StoredMessage>,
}
