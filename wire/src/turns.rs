//! Turns: deliveries, and the calls that report on a turn and end it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use lastword_facts::envelope::FinishStatus;
use lastword_facts::refusal::Code;
use lastword_facts::words;

use crate::{StoredMessage, Usage};

/// One delivery; `GET /v1/inbox`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Delivery {
    /// The id; the same when the same message is delivered again for the same attempt.
    pub delivery: String,
    /// The turn that the delivery opened or joined; null for a human.
    pub turn: Option<TurnView>,
    /// The delivered message.
    pub message: StoredMessage,
    /// Notices attached to the delivery; they wake no agent.
    pub notices: Vec<Notice>,
}

/// An open turn, as its agent sees it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TurnView {
    /// The id, such as `turn-3`.
    pub id: String,
    /// The token that names the turn in the header `Lastword-Turn`; valid only for this agent and turn.
    pub token: String,
    /// The time at which the lease expires, unless it is renewed.
    pub deadline: String,
    /// The attempt at the task, from 1.
    pub attempt: u32,
    /// The results that earlier turns of the task kept, oldest first (F7).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepResult>,
    /// The W3C trace context in which the turn's work is, if it is in a trace: pass it on as `traceparent`, or to a
    /// program as the variable `TRACEPARENT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

/// The result of a step of an agent's work, which the broker keeps until the task ends (F7).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StepResult {
    /// The key of the step, one for the task.
    pub key: String,
    /// The result: any JSON.
    pub result: Value,
}

words! {
    /// The kind of a notice.
    NoticeKind {
        /// A STATUS on one of your requests.
        Status = "status",
        /// An INFO that another agent or a human sent.
        Info = "info",
        /// An ALERT that an agent sent.
        Alert = "alert",
        /// A BROADCAST to all.
        Broadcast = "broadcast",
        /// An answer that came too late to count (Q7).
        Late = "late",
        /// A warning of the broker: agent messages, budget, a latch or a cancellation.
        Warning = "warning",
    }
}

/// Information that is attached to the next delivery and wakes no agent.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Notice {
    /// The id of the fact that the notice shows.
    pub id: String,
    /// The kind of notice.
    #[serde(rename = "type")]
    pub kind: NoticeKind,
    /// The agent or human that caused it; `system` for the broker.
    pub from: String,
    /// Whether a human caused it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_human: bool,
    /// The conversation that it is about.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The request that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The text of the notice.
    pub body: String,
    /// The structured content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
    /// The estimated time until the answer, in ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta_ms: Option<u64>,
    /// The time of the fact that the notice shows.
    pub created_at: String,
}

/// Finishes a turn; `POST /v1/turns/{id}/finish`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Finish {
    /// The answer, routed to the requester.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub answer: String,
    /// `completed`, `partial`, `rejected`, `failed` or `waiting`. If omitted: `waiting` while requests of this task are
    /// in flight, otherwise `completed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<FinishStatus>,
    /// Structured content of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
    /// The parts that the agent completed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub completed: Vec<String>,
    /// The parts that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
    /// The reason for the status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The tokens and the cost of the turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// The result of a finish.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Finished {
    /// The turn, if the call named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
    /// Whether the task is still open: it waits, or the request runs again.
    pub open: bool,
    /// The id of the RESPONSE, once the request is settled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// What to know of the answer that was taken, such as characters that were replaced because they weren't text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// Reports progress; `POST /v1/turns/{id}/progress`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// A short text that describes the current work.
    #[serde(default)]
    pub note: String,
    /// The estimated remaining time, in ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta_ms: Option<u64>,
    /// The tokens and the cost of the turn so far, which are charged at once. Each report replaces the one before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Whether the agent goes on in a new session, without the memory of the one before: what it said and heard in this
    /// task counts as unsaid, at most twice a task (R5).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub new_session: bool,
    /// Whether the turn is over and the agent's program works by itself, such as by a goal or a schedule of its own. `usage` is
    /// then what it used since the turn or the last such report; it is charged to the turn's grant, and an incident tells
    /// humans, once an hour (H4).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outside: bool,
    /// Whether a dialog of the agent's program is open, which only the program's own user can answer. It lasts until a report
    /// doesn't say so, or the turn ends; the grant's clock stands still meanwhile, as for a question (D8).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits_for_user: bool,
    /// The result of a step to keep: each later turn of the task gets it, should this one be lost. The first result of a key
    /// is kept. Those of a task take at most `body_bytes_max` together (F7).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<StepResult>,
}

/// The result of a renewed lease.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Renewed {
    /// The time at which the lease now expires.
    pub deadline: String,
    /// Why the agent is asked to finish its turn: `budget` once the budget of its grant or of its day is used up (B1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish: Option<Code>,
    /// Why the agent has to end its turn now: `budget` once it has used a quarter more than that budget (B1, R3). Finish it
    /// as `held`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Code>,
}
