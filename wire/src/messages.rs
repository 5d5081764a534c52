//! Messages as the log stores them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use lastword_facts::envelope::{AnswerStatus, MessageType, Priority};
use lastword_facts::words;

words! {
    /// The delivery state of a message.
    DeliveryState {
        /// It is in the recipient's queue.
        Queued = "queued",
        /// It was taken, and its turn or its task is still open.
        Delivered = "delivered",
        /// A pause, a stop or a latch holds it.
        Parked = "parked",
        /// A REQUEST that was answered, or another message that was delivered.
        Settled = "settled",
        /// It wakes no agent: it is shown with the recipient's next delivery, or in the room.
        Noted = "noted",
    }
}

/// A message as the log stores it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StoredMessage {
    /// The id, such as `msg-12`.
    pub id: String,
    /// Its position in the log.
    pub seq: u64,
    /// The sender; `system` for the broker.
    pub from: String,
    /// Whether the sender is a human.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_human: bool,
    /// The recipient: a name or `all`.
    pub to: String,
    /// The message type.
    #[serde(rename = "type")]
    pub kind: MessageType,
    /// The conversation of the message.
    #[serde(rename = "ref")]
    pub reference: String,
    /// The conversation from which that one was opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_ref: Option<String>,
    /// Its depth in the conversation (D2).
    pub depth: u8,
    /// The hops: delegations from the grant to this message (D4).
    pub hops: u8,
    /// The request that it is, answers or reports on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The action that it asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Structured content: any JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
    /// The text of the message.
    pub body: String,
    /// Members that Lastword doesn't know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
    /// REQUEST: its rank in the recipient's queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// REQUEST: the time at which it times out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// The message that opened the turn in which it was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// The grant that pays for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<String>,
    /// The room in which it was posted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room: Option<String>,
    /// The time at which it was admitted.
    pub created_at: String,
    /// Whether it is queued, delivered, held or settled.
    pub delivery_state: DeliveryState,
    /// Answer: how the request ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<AnswerStatus>,
    /// Answer: whether a human's stop ended the request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
    /// Answer: the reason that the agent gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The message that it answers or refers to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_reply_to: Option<String>,
    /// Answer: the parts that the agent completed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub completed: Vec<String>,
    /// Answer: the parts that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
    /// STATUS: the estimated time until the answer, in ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta_ms: Option<u64>,
    /// STATUS: the recipient has seen the request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub acknowledged: bool,
    /// The escalation that it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalation: Option<String>,
    /// In a delivery, the question of that escalation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// REQUEST: only in the result of its send, that the requests to its recipient make no progress (R5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// What a send with `return=minimal` gives: the ids and the state of the message.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Receipt {
    /// The id, such as `msg-12`.
    pub id: String,
    /// Its position in the log.
    pub seq: u64,
    /// The request that it is, answers or reports on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Whether it is queued, delivered, held or settled.
    pub delivery_state: DeliveryState,
    /// REQUEST: that the requests to its recipient make no progress (R5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

impl StoredMessage {
    /// Returns a message that has only its type; every other member is empty.
    #[must_use]
    pub const fn blank(kind: MessageType) -> Self {
        Self {
            id: String::new(),
            seq: 0,
            from: String::new(),
            from_human: false,
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
            stopped: false,
            reason: None,
            in_reply_to: None,
            completed: Vec::new(),
            failed: Vec::new(),
            eta_ms: None,
            acknowledged: false,
            escalation: None,
            question: None,
            warning: None,
        }
    }
}
