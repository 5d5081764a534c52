//! Messages, and what each type of them has besides the envelope.

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::EndReason;
use crate::envelope::{AnswerStatus, JsonText, MessageType, Priority};
use crate::ids::{AgentId, ConvId, EscalationId, GrantId, RoomId, Seq, TaskId, Time};
use crate::names::{Label, RequestId};

/// The broker itself, as a sender.
pub const SYSTEM: AgentId = AgentId(0);

/// What a message is for, once its address was resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Recipient {
    /// One agent or human.
    One(AgentId),
    /// Everybody.
    All,
}

/// A stored message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who sent it; [`SYSTEM`] for the broker's own outcomes.
    pub from: AgentId,
    /// Whom it is for.
    pub to: Recipient,
    /// Its type.
    pub kind: MessageType,
    /// Its conversation.
    pub conv: ConvId,
    /// Its depth in the conversation (D2).
    pub depth: u8,
    /// Hops, the delegations from the grant (D4).
    pub hops: u8,
    /// The grant that caused it.
    pub grant: Option<GrantId>,
    /// The task in which its sender sent it.
    pub sender_task: Option<TaskId>,
    /// The message that opened the turn in which it was sent.
    pub cause: Option<Seq>,
    /// The message that it answers or comments.
    pub in_reply_to: Option<Seq>,
    /// The key under which a retry of it is recognised.
    pub key: Option<Key>,
    /// The action asked for.
    pub action: Option<Label>,
    /// Structured content, a JSON text.
    pub payload: Option<JsonText>,
    /// Text content.
    pub body: Box<str>,
    /// Unknown members, a JSON object.
    pub metadata: Option<JsonText>,
    /// What a REQUEST, an answer or a STATUS has besides.
    pub part: Part,
}

impl Message {
    /// Whether somebody says something with it: it has content, and is no echo of ours (R4, D10).
    #[must_use]
    pub fn is_said(&self) -> bool {
        (!self.body.is_empty() || self.payload.is_some()) && self.part != Part::Echo
    }
}

/// An idempotency key (Q1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// The key as the client gave it.
    pub id: RequestId,
    /// The content that it stands for.
    pub fingerprint: u64,
}

/// What was made under an idempotency key (Q1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Made {
    /// An escalation.
    Escalation(EscalationId),
    /// A held call.
    Approval(crate::ids::ApprovalId),
    /// A claim.
    Claim(crate::ids::ClaimId),
    /// A room.
    Room(RoomId),
    /// An agent or human.
    Agent(AgentId),
}

/// What each type of message has besides the envelope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// INFO, ALERT and BROADCAST.
    Plain,
    /// A REQUEST: the task that it creates and its terms.
    Request(Terms),
    /// The one terminal answer to a task's request.
    Answer(Answer),
    /// A human's answer to an escalation, or the outcome of an approval, for a task.
    Reply {
        /// The task that asked.
        task: TaskId,
        /// The escalation, if it is the answer to one.
        escalation: Option<EscalationId>,
    },
    /// A STATUS on a task.
    Status {
        /// The task.
        task: TaskId,
        /// The recipient has seen the request.
        acknowledged: bool,
        /// How long it will take, in ms.
        eta_ms: Option<u64>,
    },
    /// What came from outside and was caused by one of ours: no word of a human (D10).
    Echo,
}

impl Part {
    /// Whether it is a REQUEST's.
    #[must_use]
    pub const fn is_request(&self) -> bool {
        matches!(self, Self::Request(_))
    }
}

/// The terms of a REQUEST.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// The task that it creates.
    pub task: TaskId,
    /// Its id.
    pub request: RequestId,
    /// Order in the recipient's queue.
    pub priority: Priority,
    /// Time to acknowledge, in ms.
    pub ack_ms: u64,
    /// When the whole request ends.
    pub deadline: Option<Time>,
    /// Until when the sender blocks for the answer.
    pub wait_until: Option<Time>,
}

/// The terms of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The task that it settles.
    pub task: TaskId,
    /// How the request ended.
    pub status: AnswerStatus,
    /// Why, where the broker decided it.
    pub cause: EndReason,
    /// The reason that the agent gave.
    pub reason: Option<Box<str>>,
    /// Parts done.
    pub completed: Vec<Box<str>>,
    /// Parts failed.
    pub failed: Vec<Box<str>>,
    /// The position of the earlier partial result that belongs before this body.
    pub earlier: Option<Seq>,
}

impl Answer {
    /// An answer that the broker gives itself.
    #[must_use]
    pub const fn outcome(task: TaskId, status: AnswerStatus, cause: EndReason) -> Self {
        Self { task, status, cause, reason: None, completed: Vec::new(), failed: Vec::new(), earlier: None }
    }
}
