//! What goes into the core and what comes out: [`Input`], [`Effect`] and the [`Reply`] that each input gets.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::envelope::{Draft, FinishStatus, JsonText};
use crate::fact::{
    AgentLimits, ClaimMode, Control, Credential, Decision, Digest, Entry, Extension, Kind, Latched, Profile, Role,
    Schedule, Scope, Spend,
};
use crate::ids::{AgentId, ApprovalId, ClaimId, ConvId, EscalationId, GrantId, RoomId, Seq, TaskId, Time, TurnId};
use crate::limits::Limits;
use crate::names::{AgentName, Label, Ref, RequestId, Resource};
use crate::policy::Policy;
use crate::refusal::Refusal;
use crate::state::Principal;

/// An imperative to the core. Every input but [`Input::Tick`] gets exactly one [`Reply`].
#[derive(Clone, Debug)]
pub enum Input {
    /// Put these numbers into force. From the shell itself, at its start.
    Configure(Box<Limits>),
    /// Put this policy of held calls into force. From the shell itself, at its start.
    ConfigurePolicy(Box<Policy>),
    /// Register the workspace's first human. From the shell itself; refused once there is one.
    Bootstrap(Registration),
    /// Register an agent or a human.
    Register(Principal, Registration),
    /// Change an agent's profile.
    Amend(Principal, AgentId, Profile),
    /// Replace an agent's token.
    Rekey(Principal, AgentId, Credential),
    /// Remove an agent.
    Remove(Principal, AgentId),
    /// Send a message.
    Send(Principal, Box<Draft>),
    /// Take the next delivery; inside a turn, the next answer to its task.
    Take(Principal, Option<TurnId>),
    /// Take the answer for which a send waited.
    Collect(Principal, RequestId),
    /// End a turn.
    Finish(Principal, Option<TurnId>, Box<Finish>),
    /// Report progress, which renews the lease.
    Progress(Principal, Option<TurnId>, Progress),
    /// Cancel a request.
    Cancel(Principal, RequestId),
    /// Pause, resume or stop.
    Control(Principal, Scope, Control),
    /// Give more to the open grants of a conversation, or to one of them, and lift what their limits latched.
    Extend(Principal, ConvId, Option<GrantId>, Extension),
    /// Ask a human.
    Escalate(Principal, Option<TurnId>, Question),
    /// Answer an escalation.
    Answer(Principal, EscalationId, Box<str>),
    /// Hold a tool call for a decision.
    AskApproval(Principal, Option<TurnId>, Box<HeldCall>),
    /// Decide an approval.
    Decide(Principal, ApprovalId, Box<Verdict>),
    /// Use an approval up for the call with this digest.
    Use(Principal, ApprovalId, Digest),
    /// Lease a resource.
    Claim(Principal, Option<TurnId>, Box<ClaimDraft>),
    /// End a lease on a resource.
    Release(Principal, ClaimId),
    /// Open a room, or set its members.
    OpenRoom(Principal, Ref, Vec<AgentName>, Option<RequestId>),
    /// Post to a room, without an envelope; a human's mentions are grants.
    Post(Principal, RoomId, Box<RoomPost>),
    /// An agent's connection opened or closed; makes no fact (Q2).
    Attach(AgentId, bool),
    /// Time has passed.
    Tick,
    /// Give a conversation more rounds (D2).
    ExtendRounds(Principal, ConvId, u64),
    /// Choose a lift of an escalation by its number, from 1, with words for who asked (H6).
    ChooseLift(Principal, EscalationId, u32, Option<Box<str>>),
    /// Set the limits of one agent (§1).
    LimitAgent(Principal, AgentId, Box<AgentLimits>),
    /// Give an agent more for today (B1).
    GrantAgent(Principal, AgentId, Spend),
    /// Set what a human may do (H7).
    SetRole(Principal, AgentId, Role),
    /// A human signed in or opened a page (D12).
    Act(Principal),
    /// Record from here on by the rules of this edition. From the shell itself, at its start.
    Upgrade(u32),
    /// Set a schedule that ticks first at this moment, which the shell reads off its expression (D13).
    SetSchedule(Principal, Box<Schedule>, Time),
    /// Take a schedule away.
    RemoveSchedule(Principal, Label),
    /// Let a schedule run now, under this REF; an act of a human.
    RunSchedule(Principal, Label, Ref),
    /// A schedule is due. From the shell.
    TickSchedule(Box<ScheduleTick>),
    /// The broker didn't run for so many ms, which end now (L6). From the shell; with a proof, a human accepts it.
    Idled(Option<Principal>, u64),
}

/// A new agent or human.
#[derive(Clone, Debug)]
pub struct Registration {
    /// Its name.
    pub name: AgentName,
    /// What it is.
    pub kind: Kind,
    /// What it may do.
    pub profile: Profile,
    /// The hash of its token.
    pub credential: Credential,
    /// What a human may do; none is everything (H7).
    pub role: Option<Role>,
    /// The idempotency key (Q1).
    pub key: Option<RequestId>,
}

/// How a turn ends (F2).
#[derive(Clone, Debug, Default)]
pub struct Finish {
    /// What the agent says of it; without it, `waiting` while requests are in flight, else `completed`.
    pub status: Option<FinishStatus>,
    /// The answer.
    pub body: Box<str>,
    /// Structured content of the answer.
    pub payload: Option<JsonText>,
    /// Parts done.
    pub completed: Vec<Box<str>>,
    /// Parts failed.
    pub failed: Vec<Box<str>>,
    /// Why.
    pub reason: Option<Box<str>>,
    /// What it spent; estimated from the text where the agent doesn't say.
    pub spend: Option<Spend>,
    /// The request that it answers, for a RESPONSE sent as a message.
    pub request: Option<RequestId>,
}

/// A report of progress.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// What is going on.
    pub note: Box<str>,
    /// How long it will still take, in ms.
    pub eta_ms: Option<u64>,
}

/// A question to a human (H1).
#[derive(Clone, Debug)]
pub struct Question {
    /// The question.
    pub body: Box<str>,
    /// Answers to choose from.
    pub options: Vec<Box<str>>,
    /// Outside a turn: the conversation that it is about.
    pub reference: Option<Ref>,
    /// The idempotency key (Q1).
    pub key: Option<RequestId>,
}

/// A tick of a schedule, as the shell reads it off the expression (D13).
#[derive(Clone, Debug)]
pub struct ScheduleTick {
    /// Which.
    pub name: Label,
    /// The moment that is due; a tick for another one was made already.
    pub due: Time,
    /// The moment after it that is not over yet.
    pub next_at: Time,
    /// The REF of this tick.
    pub reference: Ref,
}

/// A lease to be taken on a resource (C1).
#[derive(Clone, Debug)]
pub struct ClaimDraft {
    /// The resource.
    pub resource: Resource,
    /// How it is shared.
    pub mode: ClaimMode,
    /// For how long, in ms.
    pub ttl_ms: u64,
    /// The idempotency key (Q1).
    pub key: Option<RequestId>,
}

/// A post to a room, without an envelope (R1, R4).
#[derive(Clone, Debug, Default)]
pub struct RoomPost {
    /// The text.
    pub body: Box<str>,
    /// A human's: the agents that are asked.
    pub mentions: Vec<AgentName>,
    /// A human's: the work item that it is about; minted for each mention where there is none.
    pub reference: Option<Ref>,
    /// The idempotency key: the same post under it is counted once, refused or not (Q1).
    pub key: Option<RequestId>,
}

/// A tool call to be held (H2).
#[derive(Clone, Debug)]
pub struct HeldCall {
    /// The tool.
    pub tool: Box<str>,
    /// Its arguments, a canonical JSON text.
    pub arguments: JsonText,
    /// Why it is needed.
    pub reason: Option<Box<str>>,
    /// The digest, which the shell computed over the call, the agent and the task.
    pub digest: Digest,
    /// What the arguments are about, as the policy's patterns see it: the command, the file, the address.
    pub subjects: Vec<Box<str>>,
    /// The idempotency key (Q1).
    pub key: Option<RequestId>,
}

/// A decision on an approval (H2).
#[derive(Clone, Debug)]
pub struct Verdict {
    /// How.
    pub decision: Decision,
    /// In which words.
    pub comment: Option<Box<str>>,
    /// The digest of the call that was looked at; required to approve.
    pub digest: Option<Digest>,
    /// For `edit`: the arguments to use instead, and their digest.
    pub edited: Option<(JsonText, Digest)>,
}

/// What the shell is to do, once the facts before it are durable.
#[derive(Clone, Debug)]
pub enum Effect {
    /// The one answer to the input.
    Reply(Box<Reply>),
    /// The agent may have something to take. A hint: losing it loses nothing.
    Wake(AgentId),
    /// Anybody may have something to take.
    WakeAll,
}

/// The answer to an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Refused, and why.
    Refused {
        /// Why.
        refusal: Refusal,
        /// Where the log has it, as it does of every message that a rule refused.
        record: Option<Seq>,
        /// What it was about, as far as the step that lifts it needs it (H6).
        about: Option<Box<RefusedAbout>>,
    },
    /// Done; nothing to tell.
    Done,
    /// Messages were admitted, at these positions.
    Sent(Vec<Seq>),
    /// The same message was admitted before, at these positions (Q1).
    Again(Vec<Seq>),
    /// A delivery, or nothing yet.
    Delivery(Option<Delivery>),
    /// The turn ended, or the task was settled: the answer's position, where there is one.
    Finished {
        /// The RESPONSE, once the request is settled.
        answer: Option<Seq>,
        /// The task goes on (F3, Q4, Q5).
        open: bool,
    },
    /// The lease was renewed.
    Renewed {
        /// When it ends.
        lease_until: Time,
    },
    /// An agent was registered.
    Registered(AgentId),
    /// An escalation was opened.
    Escalated(EscalationId),
    /// A call is held, or identical to one that is.
    Held(ApprovalId),
    /// A resource was leased.
    Claimed(ClaimId),
    /// A room was opened.
    Opened(RoomId),
    /// Something was lifted or extended.
    Lifted(Vec<Latched>),
    /// The approved call may be made, now.
    Usable(TaskUse),
}

/// What a refusal was about, for the step by which a human lifts it (H6).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusedAbout {
    /// The REF, where a human can lift a limit of it.
    pub reference: Option<Ref>,
    /// The agent that was refused, where that is on record.
    pub agent: Option<AgentName>,
}

/// What an approval was used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskUse {
    /// The approval.
    pub approval: ApprovalId,
    /// The task in which the call is made.
    pub task: Option<TaskId>,
}

/// One delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The turn that it opened or joined; none for a human.
    pub turn: Option<OpenTurn>,
    /// The message.
    pub message: Seq,
    /// What rides along (positions of STATUS, INFO, warnings, late answers).
    pub notices: Vec<Seq>,
}

/// An open turn, as its agent sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenTurn {
    /// Its number.
    pub turn: TurnId,
    /// The task that it serves.
    pub task: TaskId,
    /// The attempt at the task, from 1.
    pub attempt: u32,
    /// When its lease ends.
    pub lease_until: Time,
}

/// What the core gives for its inputs: facts to make durable, then effects to release.
#[derive(Debug, Default)]
pub struct Out {
    /// To append to the log, in this order.
    pub entries: Vec<Entry>,
    /// To do once they are durable.
    pub effects: Vec<Effect>,
}

impl Out {
    /// Empties both lists, keeping their memory.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.effects.clear();
    }
}
