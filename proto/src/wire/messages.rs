//! Messages as they are stored.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::envelope::{AnswerStatus, MessageType, Priority, words};

words! {
    /// Where a message stands on its way.
    DeliveryState {
        /// It waits in the recipient's queue.
        Queued = "queued",
        /// It was taken, and its turn is open or its task goes on.
        Delivered = "delivered",
        /// It is parked by a pause, a stop or a latch.
        Parked = "parked",
        /// A REQUEST that was answered, or another message that was handed over.
        Settled = "settled",
        /// It wakes no one: shown with the recipient's next delivery, or in the room.
        Noted = "noted",
    }
}

/// A stored message.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StoredMessage {
    /// Its id, `msg-12`.
    pub id: String,
    /// Its position in the log.
    pub seq: u64,
    /// Who sent it; `system` for the broker.
    pub from: String,
    /// Whom it is for: a name or `all`.
    pub to: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: MessageType,
    /// Its conversation.
    #[serde(rename = "ref")]
    pub reference: String,
    /// The conversation from which that one was opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_ref: Option<String>,
    /// Its depth in the conversation (D2).
    pub depth: u8,
    /// Hops, the delegations from the grant (D4).
    pub hops: u8,
    /// The request that it is, answers or reports on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The action asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Structured content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
    /// Text content.
    pub body: String,
    /// Members that Lastword doesn't know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
    /// REQUEST: its place in the recipient's queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// REQUEST: when it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// The message that opened the turn in which it was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// The grant that caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<String>,
    /// The room in which it was posted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room: Option<String>,
    /// When it was admitted.
    pub created_at: String,
    /// Where it stands on its way.
    pub delivery_state: DeliveryState,
    /// Answer: how the request ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<AnswerStatus>,
    /// Answer: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The message that it answers or comments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_reply_to: Option<String>,
    /// Answer: the parts done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub completed: Vec<String>,
    /// Answer: the parts failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
    /// STATUS: how long it will take, in ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta_ms: Option<u64>,
    /// STATUS: the request was seen.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub acknowledged: bool,
    /// The escalation that it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalation: Option<String>,
}

impl StoredMessage {
    /// A message of which nothing is known but its type.
    #[must_use]
    pub const fn blank(kind: MessageType) -> Self {
        Self {
            id: String::new(),
            seq: 0,
            from: String::new(),
            to: String::new(),
            kind,
            reference: String::new(),
            parent_ref: None,
            depth: 0,
            hops: 0,
            request_id: None,
            action: None,
            payload: None,
            body: String::new(),
            metadata: None,
            priority: None,
            deadline: None,
            cause: None,
            grant: None,
            room: None,
            created_at: String::new(),
            delivery_state: DeliveryState::Noted,
            status: None,
            reason: None,
            in_reply_to: None,
            completed: Vec::new(),
            failed: Vec::new(),
            eta_ms: None,
            acknowledged: false,
            escalation: None,
        }
    }
}
