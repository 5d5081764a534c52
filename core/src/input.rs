//! The inputs and outputs of the core: [`Input`], [`Effect`] and the [`Reply`] that each input gets.

use alloc::boxed::Box;
use alloc::vec::Vec;

use lastword_facts::envelope::{Draft, FinishStatus, JsonText};
use lastword_facts::fact::{
    AgentLimits, ClaimMode, Control, Credential, Decision, Digest, Entry, Extension, Key, Kind, Latched, ModelSpend,
    Profile, Role, Schedule, Scope, Spend,
};
use lastword_facts::ids::{
    AgentId, ApprovalId, ClaimId, ConvId, EscalationId, GrantId, RoomId, Seq, TaskId, Time, TurnId,
};
use lastword_facts::limits::Limits;
use lastword_facts::names::{AgentName, DisplayName, Label, Ref, RequestId, Resource};
use lastword_facts::policy::{Policy, Subjects};
use lastword_facts::refusal::RefusedAbout;
use lastword_facts::refusal::{Code, Refusal};
use lastword_facts::stall::Reading;
use lastword_facts::trace::TraceContext;

use crate::state::Principal;

/// One call to the core. Every input but [`Input::Tick`] gets exactly one [`Reply`].
#[derive(Clone, Debug)]
pub enum Input {
    /// Puts these limits into force. From the shell, at its start.
    Configure(Box<Limits>),
    /// Puts this policy of held calls into force. From the shell, at its start.
    ConfigurePolicy(Box<Policy>),
    /// Replaces the policy of held calls while the broker runs.
    ChangePolicy(Principal, Box<Policy>),
    /// Sets limits, by name, while the broker runs: all of them or none.
    ChangeLimits(Principal, Box<[(Box<str>, u64)]>),
    /// Registers the workspace's first human. From the shell; refused while a human is registered.
    Bootstrap(Registration),
    /// Registers an agent or a human.
    Register(Principal, Registration),
    /// Replaces an agent's profile.
    Amend(Principal, AgentId, Profile),
    /// Replaces the token of an agent or human.
    Rekey(Principal, AgentId, NewToken),
    /// Removes an agent or human.
    Remove(Principal, AgentId),
    /// Sends a message.
    Send(Principal, Box<Draft>),
    /// Takes the next delivery; inside a turn, the next answer to its task.
    Take(Principal, Option<TurnId>),
    /// Takes the next delivery that opens a turn; a human's next message. Repeats no delivery of an open turn.
    Receive(Principal, Consumer),
    /// Continues one of these open turns: takes the next answer to its task, or its last delivery once more.
    Resume(Principal, Vec<TurnId>),
    /// Takes the answer that a send waited for.
    Collect(Principal, RequestId),
    /// Finishes a turn.
    Finish(Principal, Option<TurnId>, Box<Finish>),
    /// Reports progress, which renews the lease.
    Progress(Principal, Option<TurnId>, Progress),
    /// Cancels a request.
    Cancel(Principal, RequestId),
    /// Dismisses a request that ended without its result.
    Dismiss(Principal, RequestId),
    /// Makes the link by which anybody reads a conversation for so many milliseconds, in the place of the one before, or
    /// ends it.
    SetLink(Principal, ConvId, Option<u64>),
    /// Pauses, resumes or stops the workspace, an agent or a conversation.
    Control(Principal, Scope, Control),
    /// Extends the open grants of a conversation, or one of them, and lifts the latches of their limits.
    Extend(Principal, ConvId, Option<GrantId>, Extension),
    /// Asks a human a question.
    Escalate(Principal, Option<TurnId>, Question),
    /// Answers an escalation. A retry under the key is taken as the first one, whatever question it names.
    Answer(Principal, EscalationId, Box<str>, Option<Key>),
    /// Holds a tool call for a decision.
    AskApproval(Principal, Option<TurnId>, Box<HeldCall>),
    /// Decides an approval.
    Decide(Principal, ApprovalId, Box<Verdict>),
    /// Uses up an approval for the call with this digest.
    Use(Principal, ApprovalId, Digest, Option<RequestId>),
    /// Claims a resource.
    Claim(Principal, Option<TurnId>, Box<ClaimDraft>),
    /// Releases a claim.
    Release(Principal, ClaimId),
    /// Opens a room, or sets its members.
    OpenRoom(Principal, Ref, Vec<AgentName>, Option<RequestId>),
    /// Posts to a room, without an envelope; each mention in a human's post opens a grant.
    Post(Principal, RoomId, Box<RoomPost>),
    /// Tells the core that an agent's connection opened or closed; makes no fact (Q2).
    Attach(AgentId, bool),
    /// Tells the core that time has passed.
    Tick,
    /// Extends a conversation by this number of rounds (D2).
    ExtendRounds(Principal, ConvId, u64),
    /// Chooses a lift of an escalation by its number, from 1, with an optional text for the agent that asked (H6).
    ChooseLift(Principal, EscalationId, u32, Option<Box<str>>),
    /// Sets the limits of one agent (§1).
    LimitAgent(Principal, AgentId, Box<AgentLimits>),
    /// Sets the display name of an agent or human; `None` removes it (§1).
    SetDisplayName(Principal, AgentId, Option<DisplayName>),
    /// Extends an agent's budget for the current UTC day (B1).
    GrantAgent(Principal, AgentId, Spend),
    /// Sets the role of a human (H7).
    SetRole(Principal, AgentId, Role),
    /// Reports that a human signed in or opened a page (D12).
    Act(Principal),
    /// Reports a prompt in an agent's session: whether the human typed it, or the last typed one has ended (H8).
    Prompt(Principal, AgentId, Prompted),
    /// Records from here on by the rules of this edition. From the shell, at its start.
    Upgrade(u32),
    /// Sets a schedule with the time of its first tick, which the shell computes from the expression (D13).
    SetSchedule(Principal, Box<Schedule>, Time),
    /// Removes a schedule.
    RemoveSchedule(Principal, Label),
    /// Runs a schedule now, under this REF. Counts as an act of a human.
    RunSchedule(Principal, Label, Ref),
    /// Makes the tick of a schedule that is due. From the shell.
    TickSchedule(Box<ScheduleTick>),
    /// Begins a new epoch at this position, behind a restore (L8). From the shell, before it serves.
    BeginEpoch(Seq),
    /// Reports that the broker didn't run for this number of ms, which end now (L6). From the shell; with a principal,
    /// a human accepts the jump.
    Idled(Option<Principal>, u64),
}

/// How a client takes deliveries (F1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consumer {
    /// It works in turns.
    InTurns,
    /// It takes what is there and leaves: the last answer to a root ends the root, and opens no turn.
    OneShot,
}

/// The data of a new agent or human.
#[derive(Clone, Debug)]
pub struct Registration {
    /// A name that no live agent or human has.
    pub name: AgentName,
    /// Whether a program or a human holds the name.
    pub kind: Kind,
    /// The actions, groups and number of parallel turns that it registers with.
    pub profile: Profile,
    /// The hash of the token that it authenticates with.
    pub credential: Credential,
    /// The role of a human; `None` means `owner` (H7).
    pub role: Option<Role>,
    /// The name that humans and models read beside its own (§1).
    pub display_name: Option<DisplayName>,
    /// The idempotency key (Q1).
    pub key: Option<RequestId>,
}

/// A new token, and how long it and the one before it are valid.
#[derive(Clone, Copy, Debug)]
pub struct NewToken {
    /// The hash of the token.
    pub credential: Credential,
    /// How long it is valid, in ms; `None` if it doesn't expire.
    pub expires_in_ms: Option<u64>,
    /// How long the token before it stays valid, in ms; 0 ends it at once.
    pub overlap_ms: u64,
}

impl From<Credential> for NewToken {
    /// Returns a token that doesn't expire and ends the one before it at once.
    fn from(credential: Credential) -> Self {
        Self { credential, expires_in_ms: None, overlap_ms: 0 }
    }
}

/// What happened in the session of an agent (H8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prompted {
    /// The human who reports it typed a prompt.
    Typed,
    /// The work on the last typed prompt ended, or a prompt began that nobody typed.
    Ended,
}

/// The end of a turn, as its agent reports it (F2).
#[derive(Clone, Debug, Default)]
pub struct Finish {
    /// The status of the turn. If `None`: `waiting` while requests are in flight, otherwise `completed`.
    pub status: Option<FinishStatus>,
    /// The text of the answer; may be empty.
    pub body: Box<str>,
    /// Structured content of the answer.
    pub payload: Option<JsonText>,
    /// The parts of the request that the agent completed.
    pub completed: Vec<Box<str>>,
    /// The parts of the request that failed.
    pub failed: Vec<Box<str>>,
    /// The reason for the status, if the agent gives one.
    pub reason: Option<Box<str>>,
    /// The reported tokens and cost of the whole turn; estimated from the text if `None`.
    pub spend: Option<Spend>,
    /// The parts of `spend` by model, at most as much together.
    pub models: Vec<ModelSpend>,
    /// Whether the reported tokens are an estimate, too.
    pub estimated: bool,
    /// The request that it answers, for a RESPONSE sent as a message.
    pub request: Option<RequestId>,
    /// What answer and payload amount to, if the shell computed it beside the judge's thread (R5); `None` leaves it to
    /// the fold.
    pub reading: Option<Box<Reading>>,
}

/// A report of progress.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// A short text that describes the current work.
    pub note: Box<str>,
    /// The estimated remaining time, in ms.
    pub eta_ms: Option<u64>,
    /// The tokens and the cost of the turn so far.
    pub spend: Option<Spend>,
    /// The parts of `spend` by model, at most as much together.
    pub models: Vec<ModelSpend>,
    /// Whether the agent goes on in a new session, without the memory of the one before (R5).
    pub new_session: bool,
    /// Whether the turn is over, and `spend` is what the agent's program used by itself since (H4).
    pub outside: bool,
    /// Whether a dialog of the agent's program waits for the program's own user (D8).
    pub waits_for_user: bool,
    /// The result of a step: its key, and the result as JSON (F7).
    pub step: Option<(RequestId, JsonText)>,
}

/// A question to a human (H1).
#[derive(Clone, Debug)]
pub struct Question {
    /// The text of the question.
    pub body: Box<str>,
    /// The answers that the human can choose from; empty for a free-text answer.
    pub options: Vec<Box<str>>,
    /// Outside a turn: the conversation that the question is about.
    pub reference: Option<Ref>,
    /// The idempotency key (Q1).
    pub key: Option<RequestId>,
}

/// A tick of a schedule, as the shell computes it from the expression (D13).
#[derive(Clone, Debug)]
pub struct ScheduleTick {
    /// The name of the schedule.
    pub name: Label,
    /// The moment that is due. A tick for any other moment was made already and is ignored.
    pub due: Time,
    /// The first later moment of the schedule that is still in the future.
    pub next_at: Time,
    /// The REF of this tick.
    pub reference: Ref,
}

/// A claim to be granted on a resource (C1).
#[derive(Clone, Debug)]
pub struct ClaimDraft {
    /// The name of the resource; a trailing `*` covers every name that begins with the text before it.
    pub resource: Resource,
    /// Whether other claims may share the resource.
    pub mode: ClaimMode,
    /// The length of the lease, in ms; limited to `claim_ms_max`.
    pub ttl_ms: u64,
    /// The idempotency key (Q1).
    pub key: Option<RequestId>,
}

/// A post to a room, without an envelope (R1, R4).
#[derive(Clone, Debug, Default)]
pub struct RoomPost {
    /// The text of the post.
    pub body: Box<str>,
    /// Only for a human's post: the agents to ask.
    pub mentions: Vec<AgentName>,
    /// Only for a human's post: the work item that it is about; if `None`, each mention gets a minted one.
    pub reference: Option<Ref>,
    /// The idempotency key: the same post under it is counted once, refused or not (Q1).
    pub key: Option<RequestId>,
}

/// A tool call to be held (H2).
#[derive(Clone, Debug)]
pub struct HeldCall {
    /// The name of the tool.
    pub tool: Box<str>,
    /// The arguments, as canonical JSON.
    pub arguments: JsonText,
    /// The agent's reason for the call.
    pub reason: Option<Box<str>>,
    /// The digest, which the shell computes over the call, the agent and the task.
    pub digest: Digest,
    /// What the call acts on, as the policy's patterns see it.
    pub subjects: Subjects,
    /// The idempotency key (Q1).
    pub key: Option<RequestId>,
}

/// A decision on an approval (H2).
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The decision on the call.
    pub decision: Decision,
    /// A comment for the agent.
    pub comment: Option<Box<str>>,
    /// The digest of the call that was shown; required to approve.
    pub digest: Option<Digest>,
    /// For `edit`: the arguments to use instead, and their digest.
    pub edited: Option<(JsonText, Digest)>,
    /// The idempotency key (Q1). A retry under it is taken as the first one, whatever call it names.
    pub key: Option<Key>,
}

/// What the shell has to do, once the facts before it are durable.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Sends the one reply to the input.
    Reply(Box<Reply>),
    /// Wakes the agent, which may have something to take. A hint: nothing is lost if it is.
    Wake(AgentId),
    /// Wakes every agent and human that waits.
    WakeAll,
}

/// The core's reply to an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The input was refused.
    Refused {
        /// The code, numbers and hint of the refusal.
        refusal: Refusal,
        /// The position of the refusal in the log; the log records every message that a rule refused.
        record: Option<Seq>,
        /// The subject of the refusal, as far as the step that lifts it needs it (H6).
        about: Option<Box<RefusedAbout>>,
    },
    /// The input was carried out; there is nothing to return.
    Done,
    /// Messages were admitted, at these positions.
    Sent(Vec<Seq>),
    /// The same message was admitted before, at these positions (Q1).
    Again(Vec<Seq>),
    /// A delivery; `None` if there is none yet.
    Delivery(Option<Delivery>),
    /// The turn ended, or the task was settled.
    Finished {
        /// The position of the RESPONSE, once the request is settled.
        answer: Option<Seq>,
        /// Whether the task is still open (F3, Q4, Q5).
        open: bool,
    },
    /// The lease was renewed.
    Renewed {
        /// The new end of the lease.
        lease_until: Time,
        /// Why the agent is asked to finish its turn soon, if it is (B1).
        finish: Option<Code>,
        /// Why the agent has to end its turn now, if it has to (B1, R3).
        end: Option<Code>,
    },
    /// An agent or human was registered.
    Registered(AgentId),
    /// An escalation was opened.
    Escalated(EscalationId),
    /// A call is held, or an identical one was held before.
    Held(ApprovalId),
    /// A claim was granted.
    Claimed(ClaimId),
    /// A room was opened, or its members were set.
    Opened(RoomId),
    /// Grants were extended or resumed; the latches that this lifted.
    Lifted(Vec<Latched>),
    /// The approved call may be made now.
    Usable(TaskUse),
}

/// The use of an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskUse {
    /// The approval that was used up.
    pub approval: ApprovalId,
    /// The task in which the call is made; `None` outside every turn.
    pub task: Option<TaskId>,
}

/// A delivery as the core hands it to the shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The turn that it opened or joined; `None` for a human.
    pub turn: Option<OpenTurn>,
    /// The position of the delivered message.
    pub message: Seq,
    /// The positions of the notices attached to it: STATUS, INFO, warnings, late answers.
    pub notices: Vec<Seq>,
    /// The positions of the results that the task's earlier turns kept, oldest first (F7).
    pub steps: Vec<Seq>,
}

impl Delivery {
    /// Returns the delivery of a message without a turn.
    pub(crate) const fn note(message: Seq) -> Self {
        Self { turn: None, message, notices: Vec::new(), steps: Vec::new() }
    }
}

/// An open turn, as its agent sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenTurn {
    /// The number of the turn, which its token names.
    pub turn: TurnId,
    /// The task that it serves.
    pub task: TaskId,
    /// The attempt at the task, from 1.
    pub attempt: u32,
    /// The end of the lease, unless it is renewed.
    pub lease_until: Time,
    /// The grant of the task.
    pub grant: GrantId,
    /// The place in a trace from elsewhere that the grant belongs to.
    pub trace: Option<TraceContext>,
}

/// The output of the core: facts to make durable, then effects to release.
#[derive(Debug, Default)]
pub struct Out {
    /// The entries to append to the log, in this order.
    pub entries: Vec<Entry>,
    /// The effects to release once the entries are durable.
    pub effects: Vec<Effect>,
}

impl Out {
    /// Empties both lists and keeps their memory.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.effects.clear();
    }
}
