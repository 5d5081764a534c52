//! Messages, and the part that each message type adds to the envelope.

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{EndReason, Fact};
use crate::envelope::{Address, AnswerStatus, JsonText, MessageType, Priority};
use crate::ids::{AgentId, ConvId, EscalationId, GrantId, RoomId, Seq, TaskId, Time, TurnId};
use crate::names::{Label, Ref, RequestId};
use crate::refusal::Refusal;

/// The broker as a sender.
pub const SYSTEM: AgentId = AgentId(0);

/// The recipient of a message after its address is resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Recipient {
    /// One agent or human.
    One(AgentId),
    /// Every agent and human, for a BROADCAST.
    All,
}

/// A message as the log stores it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The sender; [`SYSTEM`] for outcomes that the broker decides.
    pub from: AgentId,
    /// The agent, human or group of all that it is addressed to.
    pub to: Recipient,
    /// One of the six message types (E4).
    pub kind: MessageType,
    /// The conversation that the message belongs to.
    pub conv: ConvId,
    /// Its depth in the conversation (D2).
    pub depth: u8,
    /// The hops: delegations from the grant to this message (D4).
    pub hops: u8,
    /// The grant that pays for it; `None` for a message that belongs to no grant.
    pub grant: Option<GrantId>,
    /// The task in which it was sent; `None` for a human's message.
    pub sender_task: Option<TaskId>,
    /// The message that opened the turn in which it was sent; `None` outside every turn.
    pub cause: Option<Seq>,
    /// The message that it answers or refers to.
    pub in_reply_to: Option<Seq>,
    /// The key by which a retry is recognised; `None` if the sender gave none.
    pub key: Option<Key>,
    /// The action that a REQUEST asks for; `None` if it names an agent instead.
    pub action: Option<Label>,
    /// Structured content, as JSON text.
    pub payload: Option<JsonText>,
    /// Text content; may be empty.
    pub body: Box<str>,
    /// Members that Lastword does not interpret, as a JSON object.
    pub metadata: Option<JsonText>,
    /// The part that only this message type has.
    pub part: Part,
}

impl Message {
    /// Whether agents say it to each other in an exchange: a request, or an answer that the broker didn't make (R5).
    #[must_use]
    pub fn is_in_exchange(&self) -> bool {
        match self.part {
            Part::Request(_) => self.sender_task.is_some(),
            Part::Answer(_) => self.from != SYSTEM,
            Part::Plain | Part::Reply { .. } | Part::Status { .. } | Part::Echo => false,
        }
    }

    /// Whether the sender says something with it: it has content and isn't an echo of one of our own messages (R4,
    /// D10).
    #[must_use]
    pub fn is_said(&self) -> bool {
        (!self.body.is_empty() || self.payload.is_some()) && self.part != Part::Echo
    }
}

/// An idempotency key (Q1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// The key as the client sent it.
    pub id: RequestId,
    /// A hash of the content that was sent with the key: the same key with other content is refused.
    pub fingerprint: u64,
}

/// The result of a write with an idempotency key (Q1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Made {
    /// A question to a human was opened.
    Escalation(EscalationId),
    /// A tool call was held.
    Approval(crate::ids::ApprovalId),
    /// A claim was granted.
    Claim(crate::ids::ClaimId),
    /// A room was opened.
    Room(RoomId),
    /// An agent or human was registered.
    Agent(AgentId),
}

/// The part that each message type adds to the envelope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// INFO, ALERT and BROADCAST add nothing.
    Plain,
    /// A REQUEST adds the task that it creates and its terms.
    Request(Terms),
    /// The one terminal answer to a task's request.
    Answer(Answer),
    /// A human's answer to an escalation, or the outcome of an approval, for a task.
    Reply {
        /// The task that asked the question or the approval.
        task: TaskId,
        /// The answered escalation; `None` for the outcome of an approval.
        escalation: Option<EscalationId>,
    },
    /// A STATUS on a task.
    Status {
        /// The task that it reports on.
        task: TaskId,
        /// Whether the recipient has seen the request.
        acknowledged: bool,
        /// The estimated time until the answer, in ms.
        eta_ms: Option<u64>,
    },
    /// A message from outside that one of our own messages caused: it does not count as a human's message (D10).
    Echo,
}

impl Part {
    /// Whether the message is a REQUEST.
    #[must_use]
    pub const fn is_request(&self) -> bool {
        matches!(self, Self::Request(_))
    }
}

/// The terms of a REQUEST: its task, its priority and its times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// The task that it creates.
    pub task: TaskId,
    /// The id by which the requester and the agent refer to the request.
    pub request: RequestId,
    /// Its rank in the recipient's queue.
    pub priority: Priority,
    /// Time to acknowledge, in ms.
    pub ack_ms: u64,
    /// The time at which the whole request times out; `None` without a deadline.
    pub deadline: Option<Time>,
    /// The time until which the send blocks for the answer; `None` if it does not wait.
    pub wait_until: Option<Time>,
}

/// The terms of an answer: how the request ended, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The task that it settles.
    pub task: TaskId,
    /// How the request ended.
    pub status: AnswerStatus,
    /// What caused the end: the agent's answer or a decision of the broker.
    pub cause: EndReason,
    /// The reason that the agent gave.
    pub reason: Option<Box<str>>,
    /// The parts of the request that the agent completed.
    pub completed: Vec<Box<str>>,
    /// The parts of the request that failed.
    pub failed: Vec<Box<str>>,
    /// The position of an earlier partial result, whose body belongs before this one.
    pub earlier: Option<Seq>,
}

impl Fact {
    /// Returns the position of what the message in this fact isn't understood without: the partial result that an answer
    /// goes on from, or the question that a human answers.
    #[must_use]
    pub fn earlier(&self) -> Option<Seq> {
        let Self::Accepted { message } = self else { return None };
        match &message.part {
            Part::Answer(answer) => answer.earlier,
            Part::Reply { escalation: Some(_), .. } => message.in_reply_to,
            // What an agent asked outside a turn is answered by a human's request, which nothing caused.
            Part::Request(_) if message.cause.is_none() => message.in_reply_to,
            Part::Reply { .. } | Part::Plain | Part::Echo | Part::Request(_) | Part::Status { .. } => None,
        }
    }
}

impl Answer {
    /// Returns an answer that the broker gives in place of the agent.
    #[must_use]
    pub const fn outcome(task: TaskId, status: AnswerStatus, cause: EndReason) -> Self {
        Self { task, status, cause, reason: None, completed: Vec::new(), failed: Vec::new(), earlier: None }
    }
}

/// The refusal of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The agent that sent the refused message.
    pub agent: AgentId,
    /// The turn in which it was sent; `None` outside every turn.
    pub turn: Option<TurnId>,
    /// The type of the refused message.
    pub kind: MessageType,
    /// The address as the sender gave it.
    pub to: Address,
    /// The REF that the sender gave, or the one that the message would have had.
    pub reference: Option<Ref>,
    /// The code, numbers and hint that the sender gets.
    pub refusal: Refusal,
}

/// The key of a post (Q1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PostKeyed {
    /// The room of the post.
    pub room: RoomId,
    /// The author of the post.
    pub agent: AgentId,
    /// The key of the post.
    pub key: Key,
    /// Whether the post was admitted. If so, it is the next fact.
    pub admitted: bool,
}
