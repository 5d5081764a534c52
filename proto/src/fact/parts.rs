//! What facts are made of: messages and their parts, and the words for what happened.

use alloc::boxed::Box;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::envelope::{AnswerStatus, JsonText, MessageType, Priority, words};
use crate::ids::{AgentId, ConvId, EscalationId, GrantId, RoomId, Seq, TaskId, Time};
use crate::names::{Label, RequestId};

words! {
    /// What kind of principal a name is (§1).
    Kind {
        /// A program that serves and sends requests.
        Agent = "agent",
        /// A person, who grants, resumes and decides.
        Human = "human",
    }
}

/// Where agent messages are counted (R1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Place {
    /// A conversation.
    Conversation(ConvId),
    /// A room.
    Room(RoomId),
}

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
    /// Delegation edges from the grant (D4).
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

impl Part {
    /// Whether it is a REQUEST's.
    #[must_use]
    pub const fn is_request(&self) -> bool {
        matches!(self, Self::Request(_))
    }
}

impl Message {
    /// Whether somebody says something with it: it has content, and is no echo of ours (R4, D10).
    #[must_use]
    pub fn is_said(&self) -> bool {
        (!self.body.is_empty() || self.payload.is_some()) && self.part != Part::Echo
    }
}

/// The broker itself, as a sender.
pub const SYSTEM: AgentId = AgentId(0);

/// An idempotency key (Q1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// The key as the client gave it.
    pub id: RequestId,
    /// The content that it stands for.
    pub fingerprint: u64,
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

words! {
    /// What brought an answer about.
    EndReason {
        /// The agent answered.
        Answered = "answered",
        /// The agent's answer was empty (F4).
        Empty = "empty",
        /// Nobody acknowledged in time, twice (Q3).
        NotAcknowledged = "not_acknowledged",
        /// The lease was lost, twice (F4).
        LeaseLost = "lease_lost",
        /// The request's deadline passed (F4).
        Deadline = "deadline",
        /// The grant expired (D8).
        GrantExpired = "grant_expired",
        /// No agent is left that could do it (Q6).
        NobodyLeft = "nobody_left",
        /// The asker or a human cancelled it (Q9).
        Cancelled = "cancelled",
        /// The request above it ended (F3, Q9).
        AskerEnded = "asker_ended",
        /// A human stopped the agent, conversation or workspace (H4).
        Stopped = "stopped",
        /// The recipient was removed (L3).
        RecipientGone = "recipient_gone",
        /// No human answered its question in time (H1).
        Unanswered = "unanswered",
    }
}

words! {
    /// Why a request is run again on the same task.
    Rerun {
        /// Nobody acknowledged in time (Q3).
        AckTimeout = "ack_timeout",
        /// The lease was lost (F4).
        LeaseLost = "lease_lost",
        /// Rejected, and another agent serves the action (Q4).
        Rejected = "rejected",
        /// Partly done: the failed parts again (Q5).
        Partial = "partial",
    }
}

words! {
    /// How a turn ended.
    TurnEnd {
        /// The agent finished it.
        Finished = "finished",
        /// Its lease was lost.
        LeaseLost = "lease_lost",
        /// Its request was settled otherwise.
        Withdrawn = "withdrawn",
    }
}

words! {
    /// Why a grant closed.
    GrantEnd {
        /// Its root task finished, and no task is open.
        Finished = "finished",
        /// Its time was over.
        Expired = "expired",
        /// A human stopped it.
        Stopped = "stopped",
    }
}

words! {
    /// What a human does to an agent, a conversation or the workspace (H4).
    Control {
        /// Nothing is taken and nothing sent until it is resumed.
        Pause = "pause",
        /// Lifts a pause, a stop or a latch.
        Resume = "resume",
        /// Ends what runs; nothing more is admitted.
        Stop = "stop",
    }
}

/// What is paused, resumed or stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Scope {
    /// Everything.
    Workspace,
    /// One agent.
    Agent(AgentId),
    /// One conversation.
    Conversation(ConvId),
}

/// What a latch holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Latched {
    /// All work of a grant.
    Grant(GrantId),
    /// All work in a conversation, or all posts in a room.
    Place(Place),
}

words! {
    /// A threshold of the turn tracker (R1).
    Crossing {
        /// Warns.
        Soft = "soft",
        /// Latches.
        Hard = "hard",
    }
}

words! {
    /// A decision on an approval (H2).
    Decision {
        /// The call may be made, once.
        Approve = "approve",
        /// It may not.
        Reject = "reject",
        /// It may not, and here is what to do instead.
        Respond = "respond",
        /// It may not, and nobody looks into it.
        Ignore = "ignore",
        /// Not this call, but the edited one.
        Edit = "edit",
        /// Nobody decided in time.
        Expire = "expire",
    }
}

words! {
    /// How a claim shares its resource (C1).
    ClaimMode {
        /// Nobody else.
        Exclusive = "exclusive",
        /// Other shared claims.
        Shared = "shared",
    }
}

words! {
    /// Why an escalation is in the human's inbox.
    EscalationCause {
        /// An agent asked (H1).
        Asked = "asked",
        /// A request timed out for good (Q3).
        TimedOut = "timed_out",
    }
}

/// Tokens and money.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spend {
    /// Input and output tokens.
    pub tokens: u64,
    /// Millionths of a dollar.
    pub cost_microusd: u64,
}

impl Spend {
    /// Adds another one to it.
    pub const fn add(&mut self, more: Self) {
        self.tokens = self.tokens.saturating_add(more.tokens);
        self.cost_microusd = self.cost_microusd.saturating_add(more.cost_microusd);
    }
}

/// What more a human gives to a grant (D9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extension {
    /// Waking messages.
    pub messages: u64,
    /// Turns.
    pub turns: u64,
    /// Distinct agents.
    pub agents: u64,
    /// Requests of the grant's root task.
    pub requests: u64,
    /// Tokens.
    pub tokens: u64,
    /// Money, in millionths of a dollar.
    pub cost_microusd: u64,
    /// Time, in ms.
    pub time_ms: u64,
}

impl Extension {
    /// Nothing more.
    pub const NONE: Self =
        Self { messages: 0, turns: 0, agents: 0, requests: 0, tokens: 0, cost_microusd: 0, time_ms: 0 };

    /// Adds another one to it.
    pub fn add(&mut self, more: &Self) {
        let pairs = [
            (&mut self.messages, more.messages),
            (&mut self.turns, more.turns),
            (&mut self.agents, more.agents),
            (&mut self.requests, more.requests),
            (&mut self.tokens, more.tokens),
            (&mut self.cost_microusd, more.cost_microusd),
            (&mut self.time_ms, more.time_ms),
        ];
        for (sum, value) in pairs {
            *sum = sum.saturating_add(value);
        }
    }
}

/// What an agent is and may do; what `POST` and `PATCH /v1/agents` set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// Actions that it can serve.
    pub actions: Vec<Label>,
    /// Groups that it belongs to.
    pub groups: Vec<Label>,
    /// Open turns that it may have at once; 0 is the workspace's default.
    pub turns_max: u64,
}

/// Limits of one agent in place of the workspace's (§1); 0 is none of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(Box<str>, u64)>", into = "Vec<(Box<str>, u64)>")]
pub struct AgentLimits {
    /// Messages to one recipient in any window (G1).
    pub pair_messages_max: u64,
    /// Messages in any window (G1).
    pub sender_messages_max: u64,
    /// Roots in any hour (D7).
    pub roots_per_hour_max: u64,
    /// Open turns at once (F1).
    pub agent_turns_max: u64,
    /// Time to acknowledge, in ms (Q2).
    pub ack_ms: u64,
    /// Tokens in a UTC day (B1).
    pub agent_day_tokens_max: u64,
    /// Money in a UTC day, in millionths of a dollar (B1).
    pub agent_day_cost_microusd_max: u64,
}

impl AgentLimits {
    /// The names, in the order of the fields.
    pub const NAMES: [&'static str; 7] = [
        "pair_messages_max",
        "sender_messages_max",
        "roots_per_hour_max",
        "agent_turns_max",
        "ack_ms",
        "agent_day_tokens_max",
        "agent_day_cost_microusd_max",
    ];

    /// No limit of its own.
    pub const NONE: Self = Self {
        pair_messages_max: 0,
        sender_messages_max: 0,
        roots_per_hour_max: 0,
        agent_turns_max: 0,
        ack_ms: 0,
        agent_day_tokens_max: 0,
        agent_day_cost_microusd_max: 0,
    };

    /// The limits by their names.
    #[must_use]
    pub fn values(&self) -> [(&'static str, u64); 7] {
        let values = [
            self.pair_messages_max,
            self.sender_messages_max,
            self.roots_per_hour_max,
            self.agent_turns_max,
            self.ack_ms,
            self.agent_day_tokens_max,
            self.agent_day_cost_microusd_max,
        ];
        core::array::from_fn(|i| (Self::NAMES[i], values[i]))
    }

    /// Sets the limit called `name`; `false` when there is no such limit.
    pub fn set(&mut self, name: &str, value: u64) -> bool {
        let fields = [
            &mut self.pair_messages_max,
            &mut self.sender_messages_max,
            &mut self.roots_per_hour_max,
            &mut self.agent_turns_max,
            &mut self.ack_ms,
            &mut self.agent_day_tokens_max,
            &mut self.agent_day_cost_microusd_max,
        ];
        let named = Self::NAMES.iter().zip(fields).find(|(known, _)| **known == name);
        named.map(|(_, field)| *field = value).is_some()
    }
}

/// The stored form is by name, so that a limit may join.
impl From<AgentLimits> for Vec<(Box<str>, u64)> {
    fn from(limits: AgentLimits) -> Self {
        limits.values().into_iter().filter(|(_, value)| *value > 0).map(|(name, value)| (name.into(), value)).collect()
    }
}

impl From<Vec<(Box<str>, u64)>> for AgentLimits {
    fn from(stored: Vec<(Box<str>, u64)>) -> Self {
        let mut limits = Self::default();
        for (name, value) in &stored {
            limits.set(name, *value);
        }
        limits
    }
}

words! {
    /// What an agent writes that is no message (G1, G4).
    WriteKind {
        /// A post in a room.
        Post = "post",
        /// A question to a human.
        Escalation = "escalation",
        /// A tool call held for a decision.
        Approval = "approval",
        /// A lease on a resource.
        Claim = "claim",
    }
}

words! {
    /// What a human may do (H7); each role may do what the one after it may.
    Role {
        /// Everything.
        Owner = "owner",
        /// Stop, pause, resume, grant, ask, and what an approver may.
        Operator = "operator",
        /// Answer questions and decide approvals, and look.
        Approver = "approver",
        /// Look.
        Viewer = "viewer",
    }
}

/// A limit that a task met, as its escalation tells it (H6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Met {
    /// Which limit.
    pub code: crate::refusal::Code,
    /// The limit.
    pub limit: u64,
    /// The value that would have been.
    pub current: u64,
    /// Where: the conversation, for limits of one.
    pub conv: Option<ConvId>,
    /// The grant that it is about.
    pub grant: GrantId,
    /// How often a human extended that grant or conversation before.
    pub extended: u64,
}

/// One step that lifts a limit (H6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lift {
    /// More rounds in the conversation.
    Rounds(u64),
    /// More waking messages.
    Messages(u64),
    /// More turns.
    Turns(u64),
    /// More requests of the task that asks.
    Requests(u64),
    /// More distinct agents.
    Agents(u64),
    /// More tokens.
    Tokens(u64),
    /// More money, in millionths of a dollar.
    CostMicroUsd(u64),
    /// More time, in ms.
    TimeMs(u64),
    /// The counters of the conversation begin again.
    Rearm,
}

/// A schedule: a request that a human's clock sends (D13).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// Its name.
    pub name: Label,
    /// When it ticks, as a cron expression of five fields; the shell reads it.
    pub cron: Box<str>,
    /// The time zone of the expression, by its IANA name.
    pub time_zone: Box<str>,
    /// One agent, or an action.
    pub to: crate::envelope::Address,
    /// What is asked.
    pub body: Box<str>,
    /// The REF of each tick, in which `{date}` and `{n}` are filled in; `NAME-{n}` where there is none.
    pub reference: Option<Box<str>>,
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
