//! Questions to humans (H1).

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fact::EscalationCause;
use crate::names::RequestId;
use crate::state::EscalationState;

/// A question to a human; `POST /v1/escalations`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewEscalation {
    /// The question.
    pub message: String,
    /// Answers to choose from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Outside a turn: the conversation that it is about.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The idempotency key, which comes in the header `Idempotency-Key` (Q1).
    #[serde(skip)]
    pub key: Option<RequestId>,
}

/// The answer to an escalation; `POST /v1/escalations/{id}/answer`. Words extend nothing; a lift does (H6).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct EscalationAnswer {
    /// The answer; may be left out beside a lift.
    #[serde(default)]
    pub answer: String,
    /// The lift that is chosen, `lift-1`: it extends and resumes the task in one act.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lift: Option<String>,
}

/// A step that lifts the limit which caused an escalation (H6).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LiftView {
    /// Its id, `lift-1`; choose it in the answer.
    pub id: String,
    /// What it gives, such as `2 more rounds`.
    pub text: String,
    /// The same, as `POST /v1/conversations/{ref}/grant` takes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<Value>,
    /// Whether a human chose it.
    #[serde(default)]
    pub chosen: bool,
}

/// A question to a human, as it stands.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct EscalationView {
    /// Its id, `esc-1`.
    pub id: String,
    /// Where it stands.
    pub state: EscalationState,
    /// Why it is there.
    pub cause: EscalationCause,
    /// Whose it is.
    pub agent: String,
    /// Its conversation.
    #[serde(rename = "ref")]
    pub reference: String,
    /// The request whose task waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The question.
    pub message: String,
    /// Answers to choose from.
    pub options: Vec<String>,
    /// The broker's own sentence, where a limit caused the question: which limit, and how often it was extended (H6).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// The broker's own steps that lift that limit (H6).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lifts: Vec<LiftView>,
    /// When it was asked.
    pub created_at: String,
    /// Who answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<String>,
    /// The answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
}
