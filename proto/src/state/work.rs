//! Work: tasks and their requests, turns, and what is waited for or held.

use alloc::boxed::Box;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use thin_vec::ThinVec;

use super::{Few, Opt};
use crate::envelope::{AnswerStatus, JsonText, Priority};
use crate::fact::{ClaimMode, Decision, Digest, EndReason, EscalationCause, Latched, Lift, Met, TurnEnd};
use crate::fsm::RequestState;
use crate::ids::{AgentId, ApprovalId, ConvId, EscalationId, GrantId, Seq, TaskId, Time, TurnId};
use crate::names::{Label, Ref, RequestId, Resource};
use crate::policy::ApprovalRule;
use crate::refusal::Code;

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
    Closed(AnswerStatus, EndReason),
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
    pub request: Option<Box<Request>>,
    /// The conversation in which its request came.
    pub conv: ConvId,
    /// Delegation edges from the grant.
    pub hop: u8,
    /// What caused it.
    pub grant: GrantId,
    /// Requests that it may still send (D3).
    pub quota_left: u64,
    /// The deepest waking message that it received in each conversation (D2).
    pub received: ThinVec<(ConvId, u8)>,
    /// Whom it asked, in which conversation, and the task of the last request.
    pub delegates: ThinVec<Delegate>,
    /// Its requests that are not settled.
    pub children: ThinVec<TaskId>,
    /// Answers that are ready for it, oldest first.
    pub ready: ThinVec<Ready>,
    /// Escalations for which it waits.
    pub escalations: ThinVec<EscalationId>,
    /// Approvals for which it waits.
    pub approvals: ThinVec<ApprovalId>,
    /// Where it stands.
    pub phase: Phase,
    /// Attempts begun or queued, from 1.
    pub attempt: u32,
    /// Attempts lost to a time-out, of acknowledgement or lease.
    pub lost: u32,
    /// Its turns, oldest first.
    pub turns: ThinVec<TurnId>,
    /// When it was made.
    pub created_at: Time,
    /// When its agent last reported on it.
    pub status_at: Opt<Time>,
    pub(crate) queue_key: Opt<Time>,
    pub(crate) ack_due: Opt<u64>,
    /// Whether its asker had another request to the same agent in flight beside this one (R1).
    pub sibling: bool,
    /// Whether its request waits within a time to acknowledge of the recipient's own (D8).
    pub(crate) slow: bool,
    /// What only few tasks have.
    pub(crate) rare: Option<Box<TaskRare>>,
}

/// What only few tasks have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TaskRare {
    /// Marks of the REFs that its request names (D3).
    pub(crate) named: ThinVec<u64>,
    /// Escalations and held calls in its life (H1).
    pub(crate) questions: u64,
    /// The last limit that it met and that a human can lift (H6).
    pub(crate) met: Option<Met>,
    /// Its last STATUS, where its asker was not shown it yet (L3).
    pub(crate) status: Opt<Seq>,
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

    /// Who asked for it, and whom it asked.
    pub fn partners(&self) -> impl Iterator<Item = AgentId> + '_ {
        self.asker.agent().into_iter().chain(self.delegates.iter().map(|d| d.agent))
    }

    /// Who had its request, in order; who serves it now is the last.
    pub fn tried(&self) -> impl Iterator<Item = AgentId> + '_ {
        let earlier = self.request.iter().flat_map(|request| &request.earlier);
        earlier.copied().chain([self.agent])
    }

    /// Whom it asked, by the agent's number: the last request to it.
    #[must_use]
    pub fn delegate(&self, agent: AgentId) -> Option<&Delegate> {
        self.delegates.iter().rev().find(|d| d.agent == agent)
    }

    /// Whether its request names this REF (D3).
    #[must_use]
    pub fn names(&self, reference: &Ref) -> bool {
        let named = self.rare.iter().flat_map(|rare| &rare.named);
        let mark = crate::named::mark(reference.as_str());
        named.into_iter().any(|known| *known == mark)
    }

    /// Escalations and held calls in its life so far (H1).
    #[must_use]
    pub fn questions(&self) -> u64 {
        self.rare.as_ref().map_or(0, |rare| rare.questions)
    }

    /// The last limit that it met and that a human can lift (H6).
    #[must_use]
    pub fn met(&self) -> Option<&Met> {
        self.rare.as_ref()?.met.as_ref()
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
    pub child: Opt<TaskId>,
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
    pub action: Option<Box<Label>>,
    /// Order in a queue.
    pub priority: Priority,
    /// Time to acknowledge, in ms.
    pub ack_ms: u64,
    /// When it ends.
    pub deadline: Opt<Time>,
    /// Until when its sender blocks for the answer.
    pub wait_until: Opt<Time>,
    /// Its state (Q1).
    pub state: RequestState,
    /// Runs begun or queued, at most `runs_max`.
    pub runs: u32,
    /// Times that it went to another agent.
    pub reassigned: u32,
    /// Who had it before the agent that serves it now, in order.
    pub(crate) earlier: ThinVec<AgentId>,
    /// What its first run did of it, where that was not all (Q5).
    pub partial: Option<Box<Partial>>,
    /// The answer, once there is one.
    pub answer: Opt<Seq>,
}

/// What the first run of a request did of it (Q5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partial {
    /// Where its result is.
    pub result: Seq,
    /// The parts that it did.
    pub completed: Vec<Box<str>>,
    /// The parts that it failed.
    pub failed: Vec<Box<str>>,
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
    pub delivered: ThinVec<Ready>,
    /// When its lease ends.
    pub lease_until: Time,
    /// When it was opened.
    pub opened_at: Time,
    /// Refusals in it (F5).
    pub refusals: u64,
    /// Length of what was delivered and sent in it, in bytes; for the estimate of tokens (B1).
    pub text_bytes: u64,
    /// Notices shown in it go up to here.
    pub notices_through: Opt<Seq>,
    /// When it last reported progress.
    pub progress_at: Opt<Time>,
    /// Whether it is open.
    pub open: bool,
    /// How it ended.
    pub end: Option<TurnEnd>,
    /// Fingerprint of the finish that ended it (F6).
    pub said: u64,
    /// Whether a late finish of it was recorded; the first is enough.
    pub late: bool,
    /// A decision on an approval that came while it was open.
    pub decided: Opt<Seq>,
}

/// A key that was used (Q1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// By whom.
    pub sender: AgentId,
    /// For which content; none for a minted request id.
    pub fingerprint: Option<u64>,
    /// The messages sent under it.
    pub messages: Few<Seq, 2>,
    /// The task of the request with this id.
    pub task: Option<TaskId>,
    /// The question to a human that was sent under it.
    pub escalation: Option<EscalationId>,
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
    /// No human answered it in time.
    Expired,
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
    /// When nobody's answer is waited for any longer.
    pub expires_at: Opt<Time>,
    /// The limit that caused it, and what lifts it (H6).
    pub lifts: Option<Box<Lifts>>,
}

/// The limit that caused an escalation, and the steps that lift it (H6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifts {
    /// Which limit.
    pub met: Met,
    /// The steps; a step's number is its place, from 1.
    pub lifts: Vec<Lift>,
    /// The number of the one that a human chose.
    pub chosen: Option<u32>,
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
    /// When it was decided.
    pub decided_at: Opt<Time>,
    /// The decision.
    pub decision: Option<Decision>,
    /// By whom.
    pub by: Option<AgentId>,
    /// In which words.
    pub comment: Option<Box<str>>,
    /// The rule that the policy has for it.
    pub rule: Option<Box<ApprovalRule>>,
}

/// The call for which an approval is asked.
pub(super) struct AskedCall {
    pub(super) tool: Box<str>,
    pub(super) arguments: JsonText,
    pub(super) reason: Option<Box<str>>,
    pub(super) digest: Digest,
}

impl Approval {
    pub(super) fn asked(
        task: Option<TaskId>,
        agent: AgentId,
        AskedCall { tool, arguments, reason, digest }: AskedCall,
        (at, expires_at): (Time, Time),
    ) -> Self {
        Self {
            task,
            agent,
            tool,
            arguments,
            reason,
            digest,
            state: ApprovalState::Pending,
            at,
            expires_at,
            decided_at: Opt::none(),
            decision: None,
            by: None,
            comment: None,
            rule: None,
        }
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
    pub agent_messages: u64,
    /// Whether the hard limit holds it.
    pub latched: bool,
    /// Posts in it.
    pub messages: u64,
}

/// What an incident is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IncidentOn {
    /// What a latch holds, until a human lifts it (R3).
    Latch(Latched),
    /// An agent; nothing is held (D7, G2, B1).
    Agent(AgentId),
}

/// A latch that tripped, or something else that a human has to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incident {
    /// What it is about.
    pub on: IncidentOn,
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
