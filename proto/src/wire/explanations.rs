//! Explanations of a message, a refusal, a held call, a question, an incident, a grant or a conversation.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use super::{
    ApprovalView, ConversationSummary, Distance, EscalationView, GrantView, HeldBy, IncidentView, Problem,
    StoredMessage,
};
use crate::envelope::{MessageType, words};

words! {
    /// The kind of thing that is explained.
    Subject {
        /// A message that was admitted.
        Message = "message",
        /// A message that was refused.
        Refusal = "refusal",
        /// A message that was admitted although a guard under observation would have refused it (G7).
        Observed = "observed",
        /// A tool call that was held.
        Approval = "approval",
        /// A question to a human.
        Escalation = "escalation",
        /// A limit that tripped.
        Incident = "incident",
        /// A grant.
        Grant = "grant",
        /// A conversation.
        Conversation = "conversation",
    }
}

/// A message in the chain from the grant down to the subject.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CausalLink {
    /// The id of the message, such as `msg-12`.
    pub id: String,
    /// The sender of the message.
    pub from: String,
    /// The recipient of the message, or `all`.
    pub to: String,
    /// The message type.
    #[serde(rename = "type")]
    pub kind: MessageType,
    /// The conversation of the message.
    #[serde(rename = "ref")]
    pub reference: String,
    /// Its depth in that conversation (D2).
    pub depth: u8,
    /// The hops: delegations from the grant to this message (D4).
    pub hops: u8,
    /// The request that the message is or answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// A refused message, as the log records it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RefusedSend {
    /// The sender of the refused message.
    pub from: String,
    /// The recipient as the sender gave it; absent if the log records only a guard's finding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The message type.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<MessageType>,
    /// The REF that the sender gave, or the one that the message would have had.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The turn in which it was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
    /// The refusal that the sender got.
    pub problem: Problem,
}

/// A pause, stop or latch that holds a message.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Hold {
    /// The scope that is held: `workspace`, `agent`, `conversation` or `grant`.
    pub scope: String,
    /// The name, REF or id of the held scope.
    pub on: String,
    /// `paused`, `stopped` or `latched`.
    pub state: String,
    /// The incident, for a latch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incident: Option<String>,
}

/// Explains a message, refusal, held call, question, incident, grant or conversation; `GET /v1/explanations/{id}`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Explanation {
    /// The id that was asked for.
    pub id: String,
    /// The kind of thing that the id names.
    pub subject: Subject,
    /// The time of the fact that is explained.
    pub at: String,
    /// The admitted message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<StoredMessage>,
    /// The refused message, with the refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<RefusedSend>,
    /// The held call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalView>,
    /// Who may decide or answer: `human`, `asker` (the requester), or agents by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deciders: Vec<String>,
    /// The question to a human.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalation: Option<EscalationView>,
    /// The incident.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incident: Option<IncidentView>,
    /// The conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<ConversationSummary>,
    /// The pauses, stops and latches that hold it now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<Hold>,
    /// All that holds it, and the work that it caused, until a human acts: each with the step that lifts it (H6).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_by: Vec<HeldBy>,
    /// The messages that led to it, from the grant down; those that the caller may not read are left out.
    pub chain: Vec<CausalLink>,
    /// The current distance to the limits of its task and conversation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<Distance>,
    /// The current state of the grant that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<GrantView>,
}
