//! Turns: what a delivery brings, and what reports on it and ends it.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::StoredMessage;
use crate::envelope::{FinishStatus, words};

/// One delivery; `GET /v1/inbox`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Delivery {
    /// Its id, the same when the same message is delivered again for the same attempt.
    pub delivery: String,
    /// The turn that it opened or joined; null for a human.
    pub turn: Option<TurnView>,
    /// The message.
    pub message: StoredMessage,
    /// What rides along and wakes no one.
    pub notices: Vec<Notice>,
}

/// An open turn, as its agent sees it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TurnView {
    /// Its id, `turn-3`.
    pub id: String,
    /// Names it in the header `Lastword-Turn`; valid for this agent and turn only.
    pub token: String,
    /// When its lease ends, unless it is renewed.
    pub deadline: String,
    /// The attempt at the task, from 1.
    pub attempt: u32,
}

words! {
    /// What a notice is.
    NoticeKind {
        /// A STATUS on one of your requests.
        Status = "status",
        /// An INFO.
        Info = "info",
        /// An ALERT.
        Alert = "alert",
        /// A BROADCAST.
        Broadcast = "broadcast",
        /// An answer that came too late to count (Q7).
        Late = "late",
        /// A warning of the broker: turns, budget, a latch or a cancellation.
        Warning = "warning",
    }
}

/// Something to know that wakes no one.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Notice {
    /// Its id.
    pub id: String,
    /// What it is.
    #[serde(rename = "type")]
    pub kind: NoticeKind,
    /// Who caused it.
    pub from: String,
    /// The conversation that it is about.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The request that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Its text.
    pub body: String,
    /// Its structured content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
    /// How long it will take, in ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta_ms: Option<u64>,
    /// When.
    pub created_at: String,
}

/// How a turn ends; `POST /v1/turns/{id}/finish`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Finish {
    /// The answer, routed to the requester.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub answer: String,
    /// `completed`, `partial`, `rejected`, `failed` or `waiting`. Left out: `waiting` while requests of
    /// this task are in flight, else `completed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<FinishStatus>,
    /// Structured content of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
    /// The parts done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub completed: Vec<String>,
    /// The parts failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the turn spent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// What a turn spent (B1).
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Tokens read.
    #[serde(default)]
    pub input_tokens: u64,
    /// Tokens written.
    #[serde(default)]
    pub output_tokens: u64,
    /// Money, in dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

/// What came of a finish.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Finished {
    /// The turn, where it was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
    /// Whether the task goes on: it waits, or the request is run again.
    pub open: bool,
    /// The RESPONSE, once the request is settled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
}

/// A report of progress; `POST /v1/turns/{id}/progress`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// What is going on.
    #[serde(default)]
    pub note: String,
    /// How long it will still take, in ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta_ms: Option<u64>,
}

/// A lease that was renewed.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Renewed {
    /// When it ends.
    pub deadline: String,
}
