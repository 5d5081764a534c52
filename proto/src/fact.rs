//! Facts: what happened. The log is a list of them, and folding the list gives the whole state.
//!
//! A variant is never changed once released: another form is another variant at the end, so that every
//! log ever written can be read (`store/tests` holds a sample of each).

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::envelope::{Address, AnswerStatus, FinishStatus, JsonText, MessageType, Priority, words};
use crate::ids::{
    AgentId, ApprovalId, ClaimId, ConvId, EscalationId, GrantId, IncidentId, RoomId, Seq, TaskId, Time, TurnId,
};
use crate::limits::Limits;
use crate::names::{AgentName, Label, Ref, RequestId, Resource};
use crate::refusal::{Code, Refusal};

/// One record of the log: when, of which grant with which potential, and what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// When the shell's clock said it happened; never decreases.
    pub at: Time,
    /// The grant that it belongs to, and that grant's Φ after it: the waking messages that it can still
    /// cause. Only an opening, an extension or a new configuration raises Φ.
    pub grant: Option<(GrantId, u64)>,
    /// What happened.
    pub fact: Fact,
}

/// A SHA-256 of a bearer token.
pub type Credential = [u8; 32];
/// A SHA-256 of a held call: tool, canonical arguments, agent and task (H2).
pub type Digest = [u8; 32];

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
    pub cause: Outcome,
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
    Outcome {
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

/// Everything that can have happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fact {
    /// The numbers in force, from here on.
    Configured {
        /// All of them.
        limits: Box<Limits>,
    },
    /// An agent or human joined, or joined again under a name that was free.
    Registered {
        /// Its number: the next one, or its old one.
        agent: AgentId,
        /// Its name.
        name: AgentName,
        /// What it is.
        kind: Kind,
        /// Grows at each registration of the name.
        incarnation: u32,
        /// What it may do.
        profile: Profile,
        /// The hash of its token.
        credential: Credential,
    },
    /// Its profile changed.
    Amended {
        /// Who.
        agent: AgentId,
        /// The new profile.
        profile: Profile,
    },
    /// Its token was replaced.
    Rekeyed {
        /// Who.
        agent: AgentId,
        /// The hash of the new token.
        credential: Credential,
    },
    /// It left.
    Removed {
        /// Who.
        agent: AgentId,
    },
    /// An agent message was counted, before any rule was asked (R1).
    Heard {
        /// Who sent it.
        agent: AgentId,
        /// Where it counts.
        place: Place,
        /// The count since a human spoke, with it.
        turns: u64,
    },
    /// The one warning of a crossing (R2); shown, never delivered or counted.
    Warned {
        /// Where.
        place: Place,
        /// Which threshold.
        crossing: Crossing,
        /// The count.
        turns: u64,
    },
    /// A message was refused.
    Refused {
        /// Whose.
        agent: AgentId,
        /// In which turn.
        turn: Option<TurnId>,
        /// Its type.
        kind: MessageType,
        /// Its address, as given.
        to: Address,
        /// Its REF, as given or as it would have been.
        reference: Option<Ref>,
        /// Why.
        refusal: Refusal,
    },
    /// A guard that only observes would have refused a message (G7).
    Observed {
        /// Whose.
        agent: AgentId,
        /// Why.
        refusal: Refusal,
    },
    /// A grant: work may start from here (D7, D9).
    GrantOpened {
        /// Its number.
        grant: GrantId,
        /// Who gave it: a human, or the agent whose own root it is.
        giver: AgentId,
        /// Where it starts.
        conv: ConvId,
        /// When it ends.
        expires_at: Time,
    },
    /// A human gave more (D9).
    GrantExtended {
        /// To which.
        grant: GrantId,
        /// Who.
        by: AgentId,
        /// How much.
        extension: Extension,
    },
    /// Nothing more comes of it.
    GrantClosed {
        /// Which.
        grant: GrantId,
        /// Why.
        end: GrantEnd,
    },
    /// A REF became a conversation.
    ConversationOpened {
        /// Its number: the next one.
        conv: ConvId,
        /// Its REF.
        reference: Ref,
        /// The conversation of the task that opened it.
        parent: Option<ConvId>,
        /// Who opened it.
        opener: AgentId,
    },
    /// An agent's own root task began (D7).
    RootStarted {
        /// The task.
        task: TaskId,
        /// Whose.
        agent: AgentId,
        /// In which conversation.
        conv: ConvId,
        /// Under which grant.
        grant: GrantId,
        /// The depth that goes on, where the conversation is continued.
        received: Option<u8>,
    },
    /// A root task ended; it finishes to nobody.
    RootEnded {
        /// Which.
        task: TaskId,
        /// How.
        status: AnswerStatus,
    },
    /// A message was admitted. A REQUEST creates its task, an answer settles its task.
    Accepted {
        /// The message.
        message: Box<Message>,
    },
    /// A delivery opened a turn (F1).
    TurnOpened {
        /// Its number.
        turn: TurnId,
        /// The task that it serves.
        task: TaskId,
        /// The attempt at the task.
        attempt: u32,
        /// The message delivered.
        message: Seq,
        /// When the lease ends.
        lease_until: Time,
    },
    /// An answer joined the task's open turn (F1).
    Joined {
        /// The turn.
        turn: TurnId,
        /// The answer.
        message: Seq,
        /// When the lease ends, renewed.
        lease_until: Time,
    },
    /// A sender that waited for the answer got it with its send; no turn is opened for it (Q8).
    Collected {
        /// The task that asked.
        task: TaskId,
        /// The answer.
        message: Seq,
    },
    /// A lease was renewed.
    Renewed {
        /// The turn.
        turn: TurnId,
        /// When the lease ends.
        lease_until: Time,
    },
    /// A turn ended (F2).
    TurnClosed {
        /// The turn.
        turn: TurnId,
        /// How.
        end: TurnEnd,
        /// What its agent said of it.
        status: Option<FinishStatus>,
        /// What it spent.
        spend: Spend,
    },
    /// A finish came for a turn that was over; shown to the asker, wakes nobody (F6).
    Late {
        /// The turn.
        turn: TurnId,
        /// Whose.
        agent: AgentId,
        /// The answer.
        body: Box<str>,
    },
    /// A request is run again, on the same task.
    Requeued {
        /// The task.
        task: TaskId,
        /// Who runs it now.
        agent: AgentId,
        /// Why.
        why: Rerun,
        /// Time to acknowledge, in ms.
        ack_ms: u64,
        /// For `partial`: what the first run gave.
        result: Option<Box<PartialResult>>,
    },
    /// Notices were read up to here.
    Noticed {
        /// By whom.
        agent: AgentId,
        /// The last one read.
        through: Seq,
    },
    /// A grant nears a budget limit; its agent is told once (B1).
    BudgetWarned {
        /// The grant.
        grant: GrantId,
        /// The agent.
        agent: AgentId,
        /// The share used, in percent.
        percent: u64,
    },
    /// A limit tripped and holds until a human lifts it (R3).
    LatchSet {
        /// Its number.
        incident: IncidentId,
        /// What it holds.
        on: Latched,
        /// Which limit.
        code: Code,
        /// The limit.
        limit: u64,
        /// The value.
        current: u64,
    },
    /// A latch was lifted.
    LatchLifted {
        /// What it held.
        on: Latched,
        /// By whom.
        by: AgentId,
    },
    /// A human paused, resumed or stopped something (H4).
    Controlled {
        /// What.
        scope: Scope,
        /// How.
        control: Control,
        /// By whom.
        by: AgentId,
    },
    /// A question to a human (H1).
    EscalationOpened {
        /// Its number.
        escalation: EscalationId,
        /// The task that waits for it.
        task: Option<TaskId>,
        /// Whose task or request it is about.
        agent: AgentId,
        /// In which conversation.
        conv: ConvId,
        /// Why it is there.
        cause: EscalationCause,
        /// The question.
        body: Box<str>,
        /// Answers to choose from.
        options: Vec<Box<str>>,
    },
    /// An escalation about no waiting task was answered.
    EscalationNoted {
        /// Which.
        escalation: EscalationId,
        /// By whom.
        by: AgentId,
        /// The answer.
        body: Box<str>,
    },
    /// A tool call was held (H2).
    ApprovalAsked {
        /// Its number.
        approval: ApprovalId,
        /// The task in which it would be made.
        task: Option<TaskId>,
        /// Who would make it.
        agent: AgentId,
        /// The tool.
        tool: Box<str>,
        /// Its arguments: a canonical JSON text.
        arguments: JsonText,
        /// Why it is needed.
        reason: Option<Box<str>>,
        /// The digest of the call.
        digest: Digest,
        /// When it is denied by itself.
        expires_at: Time,
    },
    /// It was decided, or expired; once.
    ApprovalDecided {
        /// Which.
        approval: ApprovalId,
        /// By whom; nobody when it expired.
        by: Option<AgentId>,
        /// How.
        decision: Decision,
        /// In which words.
        comment: Option<Box<str>>,
        /// For `edit`: the arguments and digest that are approved instead.
        edited: Option<(JsonText, Digest)>,
    },
    /// The approved call was made.
    ApprovalUsed {
        /// Which.
        approval: ApprovalId,
    },
    /// A lease on a resource (C1).
    Claimed {
        /// Its number, which is its fence.
        claim: ClaimId,
        /// Who holds it.
        agent: AgentId,
        /// For which task.
        task: Option<TaskId>,
        /// The resource.
        resource: Resource,
        /// How it is shared.
        mode: ClaimMode,
        /// When it ends.
        expires_at: Time,
    },
    /// It ended.
    Released {
        /// Which.
        claim: ClaimId,
    },
    /// A room was opened, or its members changed.
    RoomOpened {
        /// Its number.
        room: RoomId,
        /// Its name.
        name: Ref,
        /// Who takes part.
        members: Vec<AgentId>,
    },
    /// A post without an envelope, in a room.
    Posted {
        /// Where.
        room: RoomId,
        /// Who.
        from: AgentId,
        /// What.
        body: Box<str>,
    },
}

/// What the first run of a partly done request gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartialResult {
    /// Its text.
    pub body: Box<str>,
    /// Parts done.
    pub completed: Vec<Box<str>>,
    /// Parts to be done again.
    pub failed: Vec<Box<str>>,
}

impl Answer {
    /// An answer that the broker gives itself.
    #[must_use]
    pub const fn outcome(task: TaskId, status: AnswerStatus, cause: Outcome) -> Self {
        Self { task, status, cause, reason: None, completed: Vec::new(), failed: Vec::new(), earlier: None }
    }
}

impl Place {
    /// The conversation, if it is one.
    #[must_use]
    pub const fn conversation(self) -> Option<ConvId> {
        match self {
            Self::Conversation(conv) => Some(conv),
            Self::Room(_) => None,
        }
    }
}

/// A digest or credential in lower-case hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8; 32]) -> String {
    bytes.iter().fold(String::with_capacity(64), |mut out, byte| {
        for nibble in [byte >> 4, byte & 15] {
            out.push(char::from(b"0123456789abcdef"[usize::from(nibble)]));
        }
        out
    })
}
