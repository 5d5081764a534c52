//! Why something is as it is: a message, a refusal, a held call or a question, with the chain that led to it.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use super::{ApprovalView, Distance, EscalationView, GrantView, Problem, StoredMessage};
use crate::envelope::{MessageType, words};

words! {
    /// What is explained.
    Subject {
        /// A message that was admitted.
        Message = "message",
        /// A message that was refused.
        Refusal = "refusal",
        /// A message that was admitted though a guard that only observes would have refused it (G7).
        Observed = "observed",
        /// A tool call that was held.
        Approval = "approval",
        /// A question to a human.
        Escalation = "escalation",
    }
}

/// A message of the chain from the grant down to what is explained.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CausalLink {
    /// Its id.
    pub id: String,
    /// Who sent it.
    pub from: String,
    /// Whom it is for.
    pub to: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: MessageType,
    /// Its conversation.
    #[serde(rename = "ref")]
    pub reference: String,
    /// Its depth in that conversation (D2).
    pub depth: u8,
    /// Hops, the delegations from the grant (D4).
    pub hops: u8,
    /// The request that it is or answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// A message that was refused, as the log has it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RefusedSend {
    /// Who sent it.
    pub from: String,
    /// Whom it was for, as given; absent where only a guard's finding is on record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Its type.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<MessageType>,
    /// Its REF, as given or as it would have been.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The turn in which it was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
    /// Why.
    pub problem: Problem,
}

/// What holds a message back.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Hold {
    /// What is held: `workspace`, `agent`, `conversation` or `grant`.
    pub scope: String,
    /// Which.
    pub on: String,
    /// How: `paused`, `stopped` or `latched`.
    pub state: String,
    /// The incident, for a latch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incident: Option<String>,
}

/// Why something is as it is; `GET /v1/explanations/{id}`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Explanation {
    /// What was asked about.
    pub id: String,
    /// What that is.
    pub subject: Subject,
    /// When.
    pub at: String,
    /// The message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<StoredMessage>,
    /// The message that was refused, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<RefusedSend>,
    /// The held call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalView>,
    /// Who may decide or answer it: `human`, `asker`, or agents by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deciders: Vec<String>,
    /// The question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalation: Option<EscalationView>,
    /// What holds it back now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<Hold>,
    /// The messages that led to it, from the grant down; those that the caller may not read are left out.
    pub chain: Vec<CausalLink>,
    /// How far it is to the limits of its task and conversation, now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<Distance>,
    /// The grant that it belongs to, as it stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<GrantView>,
}
