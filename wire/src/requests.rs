//! Requests and their history.

use serde::{Deserialize, Serialize};

use lastword_facts::envelope::{AnswerStatus, Priority};
use lastword_facts::fsm::RequestState;

use crate::{HeldBy, StoredMessage};

/// One step in the history of a request.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HistoryItem {
    /// The time of the step.
    pub at: String,
    /// `sent`, `taken`, `partial` or `settled`.
    pub event: String,
    /// The agent or human that took the step, or that it concerns.
    pub agent: String,
    /// The attempt, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
}

/// A request and its current state; `GET /v1/requests/{id}`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RequestView {
    /// The id, minted or chosen by its sender.
    pub request_id: String,
    /// Its state in the request's state machine (Q1).
    pub state: RequestState,
    /// The number of attempts begun or queued.
    pub attempts: u32,
    /// The time at which it times out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// The agent or human that sent the request.
    pub from: String,
    /// The agent that serves it now.
    pub to: String,
    /// The agents that had it, in order.
    pub tried: Vec<String>,
    /// The conversation of the request.
    #[serde(rename = "ref")]
    pub reference: String,
    /// The id of the REQUEST, such as `msg-12`.
    pub message: String,
    /// Its rank in the recipient's queue.
    pub priority: Priority,
    /// The number of deliveries before it in the recipient's queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_position: Option<u64>,
    /// How the request ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<AnswerStatus>,
    /// The answer, once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<StoredMessage>,
    /// The latches, pauses and stops that hold it, or work that it caused, until a human acts (R3).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_by: Vec<HeldBy>,
    /// The steps so far, oldest first.
    pub history: Vec<HistoryItem>,
}
