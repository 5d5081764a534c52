//! The state: what the fold of all facts is. Read by guards and edges, changed only by the fold.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::envelope::{AnswerStatus, JsonText, Priority};
use crate::fact::{
    ClaimMode, Credential, Decision, Digest, EscalationCause, Extension, Fact, GrantEnd, Kind, Latched, Outcome, Place,
    Profile, SYSTEM, Spend,
};
use crate::fsm::RequestState;
use crate::ids::{
    AgentId, ApprovalId, ClaimId, ConvId, EscalationId, GrantId, IncidentId, RoomId, Seq, TaskId, Time, TurnId,
};
use crate::limits::Limits;
use crate::names::{AgentName, Label, Ref, RequestId, Resource};
use crate::refusal::Code;

mod fold;
mod fold_people;
mod fold_tasks;
mod fold_turns;

/// Proof that a token was checked: who acts, and in which incarnation. Only [`State::prove`] makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Principal {
    agent: AgentId,
    incarnation: u32,
    kind: Kind,
}

impl Principal {
    /// Who acts.
    #[must_use]
    pub const fn agent(self) -> AgentId {
        self.agent
    }

    /// Whether it is a human.
    #[must_use]
    pub const fn is_human(self) -> bool {
        matches!(self.kind, Kind::Human)
    }
}

/// Everything that the facts so far amount to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Position of the last fact.
    pub seq: Seq,
    /// When the last fact happened.
    pub at: Time,
    /// The numbers in force.
    pub limits: Limits,
    /// Whether the whole workspace runs.
    pub running: Running,
    /// All agents and humans ever registered, by number; the first is the broker itself.
    pub agents: Vec<Agent>,
    /// Their numbers by name, live or not.
    pub names: BTreeMap<AgentName, AgentId>,
    /// Who holds the token with this hash.
    pub credentials: BTreeMap<Credential, AgentId>,
    /// Live agents by the actions that they serve.
    pub actions: BTreeMap<Label, BTreeSet<AgentId>>,
    /// Live agents by group.
    pub groups: BTreeMap<Label, BTreeSet<AgentId>>,
    /// Conversations by number.
    pub conversations: BTreeMap<ConvId, Conversation>,
    /// Conversations by REF.
    pub refs: BTreeMap<Ref, ConvId>,
    /// Grants.
    pub grants: BTreeMap<GrantId, Grant>,
    /// Tasks, open ones and remembered ones.
    pub tasks: BTreeMap<TaskId, Task>,
    /// Turns of those tasks.
    pub turns: BTreeMap<TurnId, Turn>,
    /// Idempotency keys and request ids.
    pub keys: BTreeMap<RequestId, Known>,
    /// Escalations.
    pub escalations: BTreeMap<EscalationId, Escalation>,
    /// Approvals.
    pub approvals: BTreeMap<ApprovalId, Approval>,
    /// Leases on resources.
    pub claims: BTreeMap<ClaimId, Claim>,
    /// Rooms by number.
    pub rooms: BTreeMap<RoomId, Room>,
    /// Rooms by name.
    pub room_names: BTreeMap<Ref, RoomId>,
    /// Latches that hold, and those lifted, newest last.
    pub incidents: BTreeMap<IncidentId, Incident>,
    /// What is due when.
    pub timers: BTreeSet<(Time, Timer)>,
    /// What was closed when, to be forgotten after `retention_ms`.
    pub(crate) closed: VecDeque<(Time, Closed)>,
    /// Last numbers given.
    pub(crate) minted: Minted,
}

/// Last numbers given, one of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Minted {
    pub(crate) conv: u32,
    pub(crate) grant: u64,
    pub(crate) task: u64,
    pub(crate) turn: u64,
    pub(crate) request: u64,
    pub(crate) escalation: u64,
    pub(crate) approval: u64,
    pub(crate) claim: u64,
    pub(crate) room: u32,
    pub(crate) incident: u64,
}

/// What may be forgotten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Closed {
    Task(TaskId),
    Grant(GrantId),
    Key(RequestId),
    Escalation(EscalationId),
    Approval(ApprovalId),
    Incident(IncidentId),
    Conversation(ConvId),
}

/// Whether something runs (H4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Running {
    /// It does.
    #[default]
    Active,
    /// Nothing is taken or sent; what is there is kept.
    Paused,
    /// It was ended by a human.
    Stopped,
}

/// A timer; the sentence of each is [`Timer::why`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Timer {
    /// The earliest unacknowledged request of an agent (Q2).
    Ack(AgentId),
    /// A turn's lease (F1).
    Lease(TurnId),
    /// A request's deadline (Q2).
    Deadline(TaskId),
    /// A grant's end (D8).
    Grant(GrantId),
    /// An approval's end (H2).
    Approval(ApprovalId),
    /// A claim's end (C1).
    Claim(ClaimId),
}

impl Timer {
    /// Why the core wants to be called then.
    #[must_use]
    pub const fn why(self) -> &'static str {
        match self {
            Self::Ack(_) => "a request was not acknowledged",
            Self::Lease(_) => "a turn's lease ends",
            Self::Deadline(_) => "a request's deadline passes",
            Self::Grant(_) => "a grant expires",
            Self::Approval(_) => "an approval is denied by itself",
            Self::Claim(_) => "a claim ends",
        }
    }
}

/// An agent or a human.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agent {
    /// Its name; none for the broker.
    pub name: Option<AgentName>,
    /// What it is.
    pub kind: Kind,
    /// How often the name was registered.
    pub incarnation: u32,
    /// Whether it is registered now.
    pub live: bool,
    /// Whether it runs.
    pub running: Running,
    /// What it may do.
    pub profile: Profile,
    /// Requests to open and tasks whose answers are ready, in the order in which they are taken.
    pub queue: BTreeSet<(Time, TaskId)>,
    /// Its open turns.
    pub turns: Vec<TurnId>,
    /// What it is to be shown with its next delivery, oldest first.
    pub notices: VecDeque<(Seq, Time)>,
    /// Its recent messages: when, and to whom (`SYSTEM` for everybody).
    pub recent: VecDeque<(Time, AgentId)>,
    /// Its recent roots.
    pub roots: VecDeque<Time>,
    /// What it used up today.
    pub day: DayUse,
    /// Its tasks in grants that are open, closed tasks included.
    pub grant_tasks: BTreeSet<TaskId>,
    /// Its open escalations.
    pub escalations_open: u64,
    /// Its undecided approvals.
    pub approvals_open: u64,
    /// Its claims.
    pub claims: u64,
    pub(crate) credential: Credential,
    pub(crate) ack: AckClock,
}

/// What an agent used up in one UTC day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DayUse {
    /// Which day.
    pub day: u64,
    /// Waking messages that its own roots caused.
    pub root_messages: u64,
    /// What it spent.
    pub spend: Spend,
}

impl DayUse {
    /// The use of the day of `now`: zero once the day is over.
    #[must_use]
    pub fn on(self, now: Time) -> Self {
        if self.day == now.day() { self } else { Self { day: now.day(), ..Self::default() } }
    }
}

/// Time to acknowledge runs only while the recipient is free: a clock of its free time (Q2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AckClock {
    /// Free time before `since`, in ms.
    pub(crate) free_ms: u64,
    /// Since when it is free.
    pub(crate) since: Option<Time>,
    /// Unacknowledged requests by the free time at which they are due.
    pub(crate) due: BTreeSet<(u64, TaskId)>,
    /// The moment of the timer that is set.
    pub(crate) timer: Option<Time>,
}

/// A conversation: one REF (D2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conversation {
    /// Its REF.
    pub reference: Ref,
    /// The conversation from which it was opened.
    pub parent: Option<ConvId>,
    /// Who opened it.
    pub opener: AgentId,
    /// The agent whose own root it is, and that root's task and depth (D3).
    pub root: Option<RootLine>,
    /// Who sent or received something in it, in order of their numbers.
    pub participants: Vec<AgentId>,
    /// Agent messages since a human spoke (R1).
    pub turns: u64,
    /// Messages in it.
    pub messages: u64,
    /// Deepest of them.
    pub deepest: u8,
    /// Whether it runs.
    pub running: Running,
    /// Whether the hard limit holds it (R3).
    pub latched: bool,
    /// Children that were minted.
    pub children: u32,
    /// Open tasks whose requests came in it.
    pub open_tasks: BTreeSet<TaskId>,
    /// Tasks of open grants that were asked, or ask, in it: it isn't forgotten before they are over.
    pub(crate) users: u64,
    /// The grant of its last request.
    pub grant: Option<GrantId>,
    /// When something happened last.
    pub last_at: Time,
    /// When it was opened.
    pub opened_at: Time,
}

/// The root task of a conversation that an agent started by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootLine {
    /// Who started it.
    pub agent: AgentId,
    /// Its last root task.
    pub task: TaskId,
    /// The deepest message that the root received in it.
    pub received: Option<u8>,
}

/// A grant (§0, D8).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The human who gave it, or the agent whose own root it is.
    pub giver: AgentId,
    /// Whether it is an agent's own root.
    pub own_root: bool,
    /// Where it started.
    pub conv: ConvId,
    /// Its root task, once there is one.
    pub root_task: Option<TaskId>,
    /// When it was given.
    pub opened_at: Time,
    /// When it ends, if its clock doesn't stand still any longer.
    pub expires_at: Time,
    /// Since when its clock stands still.
    pub clock_stopped_at: Option<Time>,
    /// Waking messages, those reserved for answers included.
    pub messages: u64,
    /// Answers reserved and not yet sent.
    pub owed: u64,
    /// Turns.
    pub turns: u64,
    /// Distinct agents woken.
    pub agents: Vec<AgentId>,
    /// What was spent.
    pub spend: Spend,
    /// Whether its agent was told that the budget nears its end.
    pub budget_warned: bool,
    /// What humans gave besides.
    pub extension: Extension,
    /// Open tasks.
    pub open_tasks: BTreeSet<TaskId>,
    /// All tasks, until it closes.
    pub tasks: Vec<TaskId>,
    /// Escalations and approvals that are waited for.
    pub human_waits: u64,
    /// What holds it.
    pub latched: Option<IncidentId>,
    /// How it ended.
    pub end: Option<GrantEnd>,
    /// The structural part of Φ: what its open tasks can still cause (reliability).
    pub(crate) structure: u64,
}

impl Grant {
    fn new(giver: AgentId, own_root: bool, conv: ConvId, (at, expires_at): (Time, Time), structure: u64) -> Self {
        Self {
            giver,
            own_root,
            conv,
            root_task: None,
            opened_at: at,
            expires_at,
            clock_stopped_at: None,
            messages: 0,
            owed: 0,
            turns: 0,
            agents: Vec::new(),
            spend: Spend::default(),
            budget_warned: false,
            extension: Extension::default(),
            open_tasks: BTreeSet::new(),
            tasks: Vec::new(),
            human_waits: 0,
            latched: None,
            end: None,
            structure,
        }
    }

    /// Φ: the waking messages that the grant can still cause. Each one lowers it, and nothing but a
    /// human's extension or a new configuration raises it.
    #[must_use]
    pub fn phi(&self, limits: &Limits) -> u64 {
        if self.end.is_some() {
            return 0;
        }
        let total = limits.grant_messages_max.saturating_add(self.extension.messages);
        let by_total = total.saturating_sub(self.messages).saturating_add(self.owed);
        if limits.observed.observes("hop_cap") || limits.observed.observes("task_requests") {
            return by_total;
        }
        by_total.min(self.structure)
    }
}

/// Who waits for a task's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Asker {
    /// Nobody: the root task of an agent that started by itself.
    Nobody,
    /// A human.
    Human(AgentId),
    /// An agent's task.
    Task {
        /// The agent.
        agent: AgentId,
        /// Its task.
        task: TaskId,
    },
}

impl Asker {
    /// The agent or human, if somebody waits.
    #[must_use]
    pub const fn agent(self) -> Option<AgentId> {
        match self {
            Self::Nobody => None,
            Self::Human(agent) | Self::Task { agent, .. } => Some(agent),
        }
    }
}

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Its request waits in the recipient's queue.
    Queued,
    /// A turn serves it.
    Open(TurnId),
    /// It waits for answers to its own requests (F3).
    Waiting,
    /// It ended.
    Closed(AnswerStatus, Outcome),
}

/// A task: a REQUEST being served, over all its turns and attempts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Who serves it now.
    pub agent: AgentId,
    /// The incarnation of that agent for which it is meant.
    pub incarnation: u32,
    /// Who waits for its answer.
    pub asker: Asker,
    /// Its request; none for a root task.
    pub request: Option<Request>,
    /// The conversation in which its request came.
    pub conv: ConvId,
    /// Delegation edges from the grant.
    pub hop: u8,
    /// What caused it.
    pub grant: GrantId,
    /// Requests that it may still send (D3).
    pub quota_left: u64,
    /// The deepest waking message that it received in each conversation (D2).
    pub received: Vec<(ConvId, u8)>,
    /// Whom it asked, in which conversation, and the task of the last request.
    pub delegates: Vec<Delegate>,
    /// Its requests that are not settled.
    pub children: Vec<TaskId>,
    /// Answers that are ready for it, oldest first.
    pub ready: VecDeque<Ready>,
    /// Escalations for which it waits.
    pub escalations: Vec<EscalationId>,
    /// Approvals for which it waits.
    pub approvals: Vec<ApprovalId>,
    /// Where it stands.
    pub phase: Phase,
    /// Attempts begun or queued, from 1.
    pub attempt: u32,
    /// Attempts lost to a time-out, of acknowledgement or lease.
    pub lost: u64,
    /// Its turns, oldest first.
    pub turns: Vec<TurnId>,
    /// When it was made.
    pub created_at: Time,
    /// When its agent last reported on it.
    pub status_at: Option<Time>,
    pub(crate) queue_key: Option<Time>,
    pub(crate) ack_due: Option<u64>,
}

impl Task {
    /// What it still waits for: requests, undelivered answers, escalations and approvals (F3).
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.children.len() + self.ready.len() + self.escalations.len() + self.approvals.len()
    }

    /// Whether it has ended.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed(..))
    }

    /// The depth that a message of this task has in `conv` (D2).
    #[must_use]
    pub fn depth_in(&self, conv: ConvId) -> u8 {
        self.received.iter().find(|(c, _)| *c == conv).map_or(0, |(_, d)| d.saturating_add(1))
    }

    /// Whom it asked, by the agent's number.
    #[must_use]
    pub fn delegate(&self, agent: AgentId) -> Option<&Delegate> {
        self.delegates.iter().find(|d| d.agent == agent)
    }
}

/// Somebody whom a task asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delegate {
    /// Whom.
    pub agent: AgentId,
    /// In which conversation.
    pub conv: ConvId,
    /// The task of the last request to it.
    pub task: TaskId,
}

/// A message that is ready to be delivered to a task, or was delivered in one of its turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// The message.
    pub message: Seq,
    /// Where, and how deep it is; none for what comes from a human, which adds no depth (D2).
    pub depth: Option<(ConvId, u8)>,
    /// The settled task whose answer it is.
    pub child: Option<TaskId>,
    /// Length of its body, in bytes.
    pub bytes: u64,
}

/// The request that a task serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Its id.
    pub id: RequestId,
    /// The message.
    pub message: Seq,
    /// Its depth in the task's conversation.
    pub depth: u8,
    /// Length of its body, in bytes.
    pub bytes: u64,
    /// The action asked for.
    pub action: Option<Label>,
    /// Order in a queue.
    pub priority: Priority,
    /// Time to acknowledge, in ms.
    pub ack_ms: u64,
    /// When it ends.
    pub deadline: Option<Time>,
    /// Until when its sender blocks for the answer.
    pub wait_until: Option<Time>,
    /// Its state (Q1).
    pub state: RequestState,
    /// Runs begun or queued, at most `runs_max`.
    pub runs: u64,
    /// Times that it went to another agent.
    pub reassigned: u64,
    /// Who had it, in order.
    pub tried: Vec<AgentId>,
    /// Where the first, partial result is (Q5).
    pub partial: Option<Seq>,
    /// The parts that its first run failed.
    pub partial_failed: Vec<Box<str>>,
    /// The parts that its first run did.
    pub partial_completed: Vec<Box<str>>,
    /// The answer, once there is one.
    pub answer: Option<Seq>,
}

/// A turn: one run of an agent (F1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// Whose.
    pub agent: AgentId,
    /// Its task.
    pub task: TaskId,
    /// The attempt at the task.
    pub attempt: u32,
    /// The message that opened it, then the answers that joined.
    pub delivered: Vec<Ready>,
    /// When its lease ends.
    pub lease_until: Time,
    /// When it was opened.
    pub opened_at: Time,
    /// Refusals in it (F5).
    pub refusals: u64,
    /// Length of what was delivered and sent in it, in bytes; for the estimate of tokens (B1).
    pub text_bytes: u64,
    /// Notices shown in it go up to here.
    pub notices_through: Option<Seq>,
    /// When it last reported progress.
    pub progress_at: Option<Time>,
    /// Whether it is open.
    pub open: bool,
    /// Whether a late finish of it was recorded; the first is enough.
    pub late: bool,
    /// A decision on an approval that came while it was open.
    pub decided: Option<Seq>,
}

/// A key that was used (Q1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// By whom.
    pub sender: AgentId,
    /// For which content; none for a minted request id.
    pub fingerprint: Option<u64>,
    /// The messages sent under it.
    pub messages: Vec<Seq>,
    /// The task of the request with this id.
    pub task: Option<TaskId>,
}

/// Where an escalation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum EscalationState {
    /// It waits for a human.
    Open,
    /// It was answered.
    Answered,
    /// The task that asked has ended.
    Withdrawn,
}

/// A question to a human (H1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Escalation {
    /// The task that waits.
    pub task: Option<TaskId>,
    /// Whose it is.
    pub agent: AgentId,
    /// The conversation.
    pub conv: ConvId,
    /// Why it is there.
    pub cause: EscalationCause,
    /// Where the question stands in the log.
    pub asked: Seq,
    /// When.
    pub at: Time,
    /// Where it stands.
    pub state: EscalationState,
    /// By whom it was answered.
    pub by: Option<AgentId>,
    /// Where the answer stands in the log.
    pub answer: Option<Seq>,
}

/// Where an approval stands (H2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ApprovalState {
    /// It waits for a decision.
    Pending,
    /// The call may be made once.
    Approved,
    /// It may not.
    Rejected,
    /// Nobody looked into it.
    Ignored,
    /// Nobody decided in time.
    Expired,
    /// The call was made.
    Used,
}

/// A held tool call (H2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// The task in which it would be made.
    pub task: Option<TaskId>,
    /// Who would make it.
    pub agent: AgentId,
    /// The tool.
    pub tool: Box<str>,
    /// The arguments that may be used: as asked, or as edited.
    pub arguments: JsonText,
    /// Why it is needed.
    pub reason: Option<Box<str>>,
    /// The digest of the call that may be made.
    pub digest: Digest,
    /// Where it stands.
    pub state: ApprovalState,
    /// When it was asked.
    pub at: Time,
    /// When it is denied by itself.
    pub expires_at: Time,
    /// The decision.
    pub decision: Option<Decision>,
    /// By whom.
    pub by: Option<AgentId>,
    /// In which words.
    pub comment: Option<Box<str>>,
}

impl Approval {
    fn asked(at: Time, fact: &Fact) -> Option<Self> {
        let Fact::ApprovalAsked { task, agent, tool, arguments, reason, digest, expires_at, .. } = fact else {
            return None;
        };
        Some(Self {
            task: *task,
            agent: *agent,
            tool: tool.clone(),
            arguments: arguments.clone(),
            reason: reason.clone(),
            digest: *digest,
            state: ApprovalState::Pending,
            at,
            expires_at: *expires_at,
            decision: None,
            by: None,
            comment: None,
        })
    }
}

/// A lease on a resource (C1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Who holds it.
    pub agent: AgentId,
    /// For which task.
    pub task: Option<TaskId>,
    /// The resource.
    pub resource: Resource,
    /// How it is shared.
    pub mode: ClaimMode,
    /// When it ends.
    pub expires_at: Time,
}

/// A room (§1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// Its name.
    pub name: Ref,
    /// Who takes part.
    pub members: Vec<AgentId>,
    /// Agent messages without an envelope since a human spoke (R1).
    pub turns: u64,
    /// Whether the hard limit holds it.
    pub latched: bool,
    /// Posts in it.
    pub messages: u64,
}

/// A latch that tripped (R3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incident {
    /// What it holds.
    pub on: Latched,
    /// Which limit.
    pub code: Code,
    /// The limit.
    pub limit: u64,
    /// The value.
    pub current: u64,
    /// When.
    pub at: Time,
    /// When it was lifted, and by whom.
    pub lifted: Option<(Time, AgentId)>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            seq: Seq(0),
            at: Time(0),
            limits: Limits::default(),
            running: Running::Active,
            agents: alloc::vec![Agent::new(None, Kind::Agent, [0; 32])],
            names: BTreeMap::new(),
            credentials: BTreeMap::new(),
            actions: BTreeMap::new(),
            groups: BTreeMap::new(),
            conversations: BTreeMap::new(),
            refs: BTreeMap::new(),
            grants: BTreeMap::new(),
            tasks: BTreeMap::new(),
            turns: BTreeMap::new(),
            keys: BTreeMap::new(),
            escalations: BTreeMap::new(),
            approvals: BTreeMap::new(),
            claims: BTreeMap::new(),
            rooms: BTreeMap::new(),
            room_names: BTreeMap::new(),
            incidents: BTreeMap::new(),
            timers: BTreeSet::new(),
            closed: VecDeque::new(),
            minted: Minted::default(),
        }
    }
}

impl Agent {
    pub(crate) fn new(name: Option<AgentName>, kind: Kind, credential: Credential) -> Self {
        Self {
            name,
            kind,
            incarnation: 0,
            live: false,
            running: Running::Active,
            profile: Profile { actions: Vec::new(), groups: Vec::new(), turns_max: 0 },
            queue: BTreeSet::new(),
            turns: Vec::new(),
            notices: VecDeque::new(),
            recent: VecDeque::new(),
            roots: VecDeque::new(),
            day: DayUse::default(),
            grant_tasks: BTreeSet::new(),
            escalations_open: 0,
            approvals_open: 0,
            claims: 0,
            credential,
            ack: AckClock::default(),
        }
    }

    /// Its name; `system` for the broker itself.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_ref().map_or("system", AgentName::as_str)
    }

    /// Whether it is a human.
    #[must_use]
    pub const fn is_human(&self) -> bool {
        matches!(self.kind, Kind::Human)
    }

    /// Open turns that it may have at once.
    #[must_use]
    pub const fn turns_max(&self, limits: &Limits) -> u64 {
        if self.profile.turns_max == 0 { limits.agent_turns_max } else { self.profile.turns_max }
    }
}

impl Conversation {
    fn new(at: Time, reference: Ref, parent: Option<ConvId>, opener: AgentId) -> Self {
        Self {
            reference,
            parent,
            opener,
            root: None,
            participants: alloc::vec![opener],
            turns: 0,
            messages: 0,
            deepest: 0,
            running: Running::Active,
            latched: false,
            children: 0,
            open_tasks: BTreeSet::new(),
            users: 0,
            grant: None,
            last_at: at,
            opened_at: at,
        }
    }

    /// Whether `agent` sent or received something in it.
    #[must_use]
    pub fn has_part(&self, agent: AgentId) -> bool {
        self.participants.binary_search(&agent).is_ok()
    }
}

impl State {
    /// Proves who holds the token with this hash; `None` when nobody live does.
    #[must_use]
    pub fn prove(&self, credential: &Credential) -> Option<Principal> {
        let agent = *self.credentials.get(credential)?;
        let known = self.agent(agent)?;
        known.live.then_some(Principal { agent, incarnation: known.incarnation, kind: known.kind })
    }

    /// Whether the proof still holds: the same incarnation is still registered.
    #[must_use]
    pub fn holds(&self, principal: Principal) -> bool {
        self.agent(principal.agent).is_some_and(|a| a.live && a.incarnation == principal.incarnation)
    }

    /// An agent or human by number.
    #[must_use]
    pub fn agent(&self, agent: AgentId) -> Option<&Agent> {
        self.agents.get(agent.0 as usize)
    }

    /// A live agent or human by name.
    #[must_use]
    pub fn live(&self, name: &str) -> Option<AgentId> {
        let id = *self.names.get(name)?;
        self.agent(id)?.live.then_some(id)
    }

    /// The name of an agent or human; `system` for the broker.
    #[must_use]
    pub fn name_of(&self, agent: AgentId) -> &str {
        self.agent(agent).map_or("system", Agent::name)
    }

    /// The REF of a conversation.
    #[must_use]
    pub fn ref_of(&self, conv: ConvId) -> Option<&Ref> {
        self.conversations.get(&conv).map(|c| &c.reference)
    }

    /// The task that serves the request with this id.
    #[must_use]
    pub fn task_of(&self, request: &str) -> Option<(TaskId, &Task)> {
        let task = self.keys.get(request)?.task?;
        Some((task, self.tasks.get(&task)?))
    }

    /// The agents that caused a task: its asker, that one's asker, and so on to the grant (D5).
    pub fn ancestors(&self, task: TaskId) -> impl Iterator<Item = AgentId> + '_ {
        let mut next = self.tasks.get(&task).map(|t| t.asker);
        core::iter::from_fn(move || {
            let asker = next.take()?;
            if let Asker::Task { task, .. } = asker {
                next = self.tasks.get(&task).map(|t| t.asker);
            }
            asker.agent()
        })
    }

    /// Whether a task's deliveries are parked: a pause, stop or latch holds its conversation or grant (R3).
    #[must_use]
    pub fn is_parked(&self, task: &Task) -> bool {
        let latched = self.conversations.get(&task.conv).is_some_and(|c| c.latched);
        let grant = self.grants.get(&task.grant).is_some_and(|g| g.latched.is_some());
        latched || grant || self.running_in(task.conv) != Running::Active
    }

    /// Whether a conversation runs: a pause or stop holds everything below it too (H4).
    #[must_use]
    pub fn running_in(&self, conv: ConvId) -> Running {
        self.lineage(conv).map(|c| c.running).max().unwrap_or_default()
    }

    /// A conversation, its parent, that one's parent, and so on.
    pub fn lineage(&self, conv: ConvId) -> impl Iterator<Item = &Conversation> + '_ {
        core::iter::successors(self.conversations.get(&conv), |c| self.conversations.get(&c.parent?))
    }

    /// Whether an agent may take something at all: it and the workspace run.
    #[must_use]
    pub fn may_take(&self, agent: AgentId) -> bool {
        self.running == Running::Active && self.agent(agent).is_some_and(|a| a.live && a.running == Running::Active)
    }

    /// Whether the policy lets an agent decide an approval: never who asked for it, nor one whose work that
    /// one caused (H3). A human always may, and is not asked about here.
    #[must_use]
    pub fn may_decide(&self, agent: AgentId, approval: &Approval) -> bool {
        let policy = &self.limits.approvers;
        let asker = approval.task.and_then(|t| self.tasks.get(&t)).and_then(|t| t.asker.agent());
        let named = policy.agents.iter().any(|name| self.live(name.as_str()) == Some(agent));
        let mut tasks = self.agent(agent).into_iter().flat_map(|a| &a.grant_tasks);
        let works_for_it = tasks.any(|task| self.ancestors(*task).any(|above| above == approval.agent));
        agent != approval.agent && !works_for_it && (named || (policy.asker && asker == Some(agent)))
    }

    /// Any live human, the one with the lowest number; the broker's own number where there is none.
    #[must_use]
    pub fn any_human(&self) -> AgentId {
        let found = self.agents.iter().position(|a| a.live && a.is_human());
        found.and_then(|i| u32::try_from(i).ok()).map_or(SYSTEM, AgentId)
    }

    /// The human who gave the task's grant, else any human (§1).
    #[must_use]
    pub fn human_for(&self, task: Option<TaskId>) -> AgentId {
        let giver = task.and_then(|t| self.tasks.get(&t)).and_then(|t| self.grants.get(&t.grant)).map(|g| g.giver);
        let live = |id: &AgentId| self.agent(*id).is_some_and(|a| a.live && a.is_human());
        giver.filter(live).unwrap_or_else(|| self.any_human())
    }

    /// The next timer, and why.
    #[must_use]
    pub fn next_deadline(&self) -> Option<(Time, &'static str)> {
        self.timers.first().map(|(at, timer)| (*at, timer.why()))
    }

    /// Agent messages counted in a place since a human spoke.
    #[must_use]
    pub fn turns_in(&self, place: Place) -> u64 {
        match place {
            Place::Conversation(conv) => self.conversations.get(&conv).map_or(0, |c| c.turns),
            Place::Room(room) => self.rooms.get(&room).map_or(0, |r| r.turns),
        }
    }
}

/// The last numbers given, for what the core mints next.
impl State {
    pub(crate) const fn minted_conversations(&self) -> u32 {
        self.minted.conv
    }

    pub(crate) const fn last_grant(&self) -> u64 {
        self.minted.grant
    }

    pub(crate) const fn last_task(&self) -> u64 {
        self.minted.task
    }

    pub(crate) const fn last_turn(&self) -> u64 {
        self.minted.turn
    }

    pub(crate) const fn last_request(&self) -> u64 {
        self.minted.request
    }

    pub(crate) const fn last_escalation(&self) -> u64 {
        self.minted.escalation
    }

    pub(crate) const fn last_approval(&self) -> u64 {
        self.minted.approval
    }

    pub(crate) const fn last_claim(&self) -> u64 {
        self.minted.claim
    }

    pub(crate) const fn last_room(&self) -> u32 {
        self.minted.room
    }

    pub(crate) const fn last_incident(&self) -> u64 {
        self.minted.incident
    }

    /// The share of its budget that a grant has used, in percent: the larger of tokens and money.
    #[must_use]
    pub fn budget_percent(&self, grant: &Grant) -> u64 {
        let share = |used: u64, base: u64, more: u64| {
            if base == 0 { 0 } else { used.saturating_mul(100) / base.saturating_add(more) }
        };
        let (limits, more) = (&self.limits, &grant.extension);
        let tokens = share(grant.spend.tokens, limits.grant_tokens_max, more.tokens);
        tokens.max(share(grant.spend.cost_microusd, limits.grant_cost_microusd_max, more.cost_microusd))
    }
}
