//! Requests, and what happened to each.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{HeldBy, StoredMessage};
use crate::envelope::{AnswerStatus, Priority};
use crate::fsm::RequestState;

/// One step of a request.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HistoryItem {
    /// When.
    pub at: String,
    /// What: `sent`, `taken`, `partial`, `settled`.
    pub event: String,
    /// By whom, or with whom.
    pub agent: String,
    /// The attempt, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
}

/// A request, as it stands; `GET /v1/requests/{id}`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RequestView {
    /// Its id.
    pub request_id: String,
    /// Its state (Q1).
    pub state: RequestState,
    /// Attempts begun or queued.
    pub attempts: u32,
    /// When it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// Who asked.
    pub from: String,
    /// Who serves it now.
    pub to: String,
    /// Who had it, in order.
    pub tried: Vec<String>,
    /// Its conversation.
    #[serde(rename = "ref")]
    pub reference: String,
    /// The REQUEST.
    pub message: String,
    /// Its order in the recipient's queue.
    pub priority: Priority,
    /// How many deliveries stand before it in the recipient's queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_position: Option<u64>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<AnswerStatus>,
    /// The answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<StoredMessage>,
    /// What holds it, or work that it led to, until a human acts (R3).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_by: Vec<HeldBy>,
    /// What happened so far.
    pub history: Vec<HistoryItem>,
}
