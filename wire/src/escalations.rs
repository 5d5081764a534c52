//! Questions to humans (H1).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use lastword_facts::fact::EscalationCause;
use lastword_facts::names::RequestId;
use lastword_facts::status::EscalationState;

/// Asks a human; `POST /v1/escalations`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewEscalation {
    /// The text of the question.
    pub message: String,
    /// Answers that the human can choose from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Outside a turn: the conversation that the question is about.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The idempotency key, sent in the header `Idempotency-Key` (Q1).
    #[serde(skip)]
    pub key: Option<RequestId>,
}

/// Answers an escalation; `POST /v1/escalations/{id}/answer`. Text extends no limit; only a lift does (H6).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct EscalationAnswer {
    /// The text of the answer; may be omitted with a lift.
    #[serde(default)]
    pub answer: String,
    /// The lift that is chosen, such as `lift-1`: it extends the limit and resumes the task in one act. Without a text it
    /// leaves the question open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lift: Option<String>,
}

/// A step that lifts the limit which caused an escalation (H6).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LiftView {
    /// The id, such as `lift-1`; name it in the answer to choose it.
    pub id: String,
    /// The extension, such as `2 more rounds`.
    pub text: String,
    /// The same extension, as the body of `POST /v1/conversations/{ref}/grant`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<Value>,
    /// Whether a human chose it.
    #[serde(default)]
    pub chosen: bool,
}

/// A question to a human and its current state.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct EscalationView {
    /// The id, such as `esc-1`.
    pub id: String,
    /// The position of the question in the log.
    pub seq: u64,
    /// Whether the question is open, and how it ended.
    pub state: EscalationState,
    /// Whether an agent asked, or a request that timed out caused it.
    pub cause: EscalationCause,
    /// The agent that asked, or the sender of the request that timed out.
    pub agent: String,
    /// The conversation that the question is about.
    #[serde(rename = "ref")]
    pub reference: String,
    /// The request whose task waits for the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The text of the question.
    pub message: String,
    /// Answers that the human can choose from.
    pub options: Vec<String>,
    /// The broker's own sentence, if a limit caused the question: which limit, and how often it was extended (H6).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// The broker's own steps that lift that limit (H6).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lifts: Vec<LiftView>,
    /// The time at which the question was asked.
    pub created_at: String,
    /// The human who answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<String>,
    /// The text of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// The time of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_at: Option<String>,
    /// In the response to a send alone: the members of the message that mean nothing to Lastword.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

impl EscalationView {
    /// Returns the lifts that a human can still choose: none once one was chosen, or after the question.
    pub fn offered(&self) -> impl Iterator<Item = &LiftView> {
        let over = self.state != EscalationState::Open || self.lifts.iter().any(|lift| lift.chosen);
        self.lifts.iter().filter(move |_| !over)
    }
}
