//! Messages, deliveries, turns, escalations, approvals and refusals.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::envelope::{AnswerStatus, FinishStatus, MessageType, Priority, words};
use crate::fact::{Decision, EscalationCause};
use crate::names::RequestId;
use crate::refusal::{Code, Refusal};
use crate::state::{ApprovalState, EscalationState};

use super::lift::LiftStep;

/// A list, and where to go on.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Page<T> {
    /// This part of the list.
    pub items: Vec<T>,
    /// The `cursor` of the next part; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// A list that is complete.
    #[must_use]
    pub const fn whole(items: Vec<T>) -> Self {
        Self { items, next: None }
    }
}

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

/// A tool call to be held; `POST /v1/approvals`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HeldCall {
    /// The tool.
    pub tool: String,
    /// Its arguments.
    #[serde(default)]
    pub arguments: Value,
    /// Why it is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The idempotency key, which comes in the header `Idempotency-Key` (Q1).
    #[serde(skip)]
    pub key: Option<RequestId>,
}

/// A decision; `POST /v1/approvals/{id}/decision`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DecideApproval {
    /// `approve`, `reject`, `respond`, `ignore` or `edit`.
    pub decision: Decision,
    /// In which words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// For `edit`: the arguments to use instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// The digest of the call that was looked at, in hexadecimal; required to approve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// The call for which an approval is used up; `POST /v1/approvals/{id}/use`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct UseApproval {
    /// The tool.
    pub tool: String,
    /// Its arguments.
    #[serde(default)]
    pub arguments: Value,
}

/// A held call, as it stands.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ApprovalView {
    /// Its id, `apr-1`.
    pub id: String,
    /// The digest of the call that may be made, in hexadecimal.
    pub digest: String,
    /// Where it stands.
    pub state: ApprovalState,
    /// When it is denied by itself.
    pub expires_at: String,
    /// Who would make the call.
    pub agent: String,
    /// The tool.
    pub tool: String,
    /// The arguments that may be used.
    pub arguments: Value,
    /// Why it is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The conversation of the task in which it would be made.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The request of that task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// When it was asked.
    pub created_at: String,
    /// The decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// Who decided; `policy` where a rule of it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The rule of the policy that is about the call, such as `Bash(rm *)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The tier of that rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// In which words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

/// A refusal, as `application/problem+json`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Problem {
    /// A URI for the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// What is wrong, in a few words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// The stable code.
    pub code: Code,
    /// What is wrong here: the member, the name, the numbers.
    pub detail: String,
    /// The rule that it enforces.
    pub rule: String,
    /// The limit that was met.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The value that would have been, or the count that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<u64>,
    /// When trying again may work, in ms from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// What to do instead.
    pub hint: String,
    /// The one step by which a human lifts it, where there is one (H6).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lift: Option<LiftStep>,
    /// The record of the refusal, where it is on record: `GET /v1/explanations/{id}` says more of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<String>,
}

impl Problem {
    /// The problem that a refusal is, worded.
    #[must_use]
    pub fn new(refusal: &Refusal) -> Self {
        Self::detailed(refusal, detail(refusal))
    }

    /// The same with a detail that names more, such as the member that is wrong.
    #[must_use]
    pub fn detailed(refusal: &Refusal, detail: String) -> Self {
        let code = refusal.code;
        Self {
            kind: alloc::format!("urn:lastword:{code}"),
            title: code.title().into(),
            status: code.http_status(),
            code,
            detail,
            rule: code.rule().into(),
            limit: refusal.limit,
            current: refusal.current,
            retry_after_ms: refusal.retry_after_ms,
            hint: code.hint().into(),
            lift: None,
            record: None,
        }
    }
}

fn detail(refusal: &Refusal) -> String {
    let mut text = String::from(refusal.code.title());
    if let Some(subject) = &refusal.subject {
        text.push_str(": ");
        text.push_str(subject);
    }
    if let (Some(limit), Some(current)) = (refusal.limit, refusal.current) {
        text.push_str(&alloc::format!(" (limit {limit}, would be {current})"));
    }
    text
}
