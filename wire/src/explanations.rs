//! Explanations of a message, a refusal, a held call, a question, an incident, a grant or a conversation.

use serde::{Deserialize, Serialize};

use lastword_facts::envelope::MessageType;
use lastword_facts::stall::StallCause;
use lastword_facts::words;

use crate::{
    ApprovalView, ConversationSummary, Distance, EscalationView, GrantView, HeldBy, IncidentView, Problem,
    StoredMessage,
};

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

words! {
    /// What followed from a message of an exchange that makes no progress (R5).
    ExchangeVerdict {
        /// The requester was warned.
        Warned = "warned",
        /// Further requests were refused from here on.
        Held = "held",
        /// The requester would have been warned: the guard only observed (G7).
        WouldWarn = "would_warn",
        /// Further requests would have been refused from here on: the guard only observed (G7).
        WouldHold = "would_hold",
    }
}

/// An exchange between a task and one delegate, message by message: the numbers by which R5 warns of it or holds it.
/// It is computed from the texts in the log each time that it is asked for.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ExchangeView {
    /// The agent that asks.
    pub asker: String,
    /// The delegate that it asks.
    pub delegate: String,
    /// The numbers in one sentence.
    pub summary: String,
    /// The messages of the exchange, from its last reset on.
    pub messages: u32,
    /// The words and other units that were new in the exchange when they were said.
    pub new_units: u64,
    /// The tokens that were read again: the sum of the contexts of all messages after the first.
    pub read_again_tokens: u64,
    /// The thousandths of messages that brought nothing, after the last message.
    pub dry_millis: u64,
    /// The `dry_millis` at which the requester is warned.
    pub warn_at_millis: u64,
    /// The `dry_millis` at which the exchange is held.
    pub hold_at_millis: u64,
    /// The first messages of the exchange, which are counted but not listed because the list has a maximum.
    pub omitted: u32,
    /// The first messages of the exchange, which can't be read: they moved to the archive, or are too many. If there are
    /// any, the numbers of the lines count from the first message that can be read.
    pub unread: u32,
    /// The messages, oldest first.
    pub lines: Vec<ExchangeLine>,
}

/// One message of an exchange, with the numbers after it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ExchangeLine {
    /// The id of the message, such as `msg-12`.
    pub id: String,
    /// The speaker.
    pub from: String,
    /// The one who reads it.
    pub to: String,
    /// The tokens of the exchange up to this message, which its recipient reads.
    pub context_tokens: u64,
    /// The units that nobody had said before in the exchange.
    pub new_units: u64,
    /// The thousandths of messages that brought nothing, less what new units made up for.
    pub dry_millis: u64,
    /// What the log records of the guard after this message; absent if nothing followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<ExchangeVerdict>,
    /// Why, with a verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<StallCause>,
    /// For a message that added almost nothing: the earlier message that it repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<Repetition>,
    /// The beginning of the text; absent if the caller may not read the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excerpt: Option<String>,
}

/// The earlier message of an exchange that a message repeats: the one that has most of its units.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Repetition {
    /// The id of the earlier message.
    pub id: String,
    /// Whether both texts are the same, apart from white space.
    pub same: bool,
    /// The units of the message that the earlier one has, too.
    pub units: u64,
    /// All units of the message.
    pub of: u64,
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
    /// The exchange that makes no progress: of a refusal `no_progress`, of the broker's question about it, or of one of
    /// its messages (R5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchange: Option<ExchangeView>,
}
