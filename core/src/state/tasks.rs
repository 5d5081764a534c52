//! Tasks: opened, queued, answered and closed.

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use thin_vec::ThinVec;

use lastword_facts::envelope::{AnswerStatus, Priority};
use lastword_facts::fact::{Answer, EndReason, Message, Met};
use lastword_facts::fsm::RequestEvent;
use lastword_facts::ids::{AgentId, ApprovalId, ConvId, EscalationId, GrantId, HOUR_MS, Seq, TaskId, Time, TurnId};
use lastword_facts::names::{Ref, RequestId};
use lastword_facts::status::ApprovalState;
use lastword_facts::status::EscalationState;
use lastword_facts::status::Running;

use super::small::LAST;
use super::{Closed, Opt, Request, RootLine, State, Timer};

/// The requester of a task, to which its answer is routed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Asker {
    /// The root task of an agent that started work of its own; its answer is routed to none.
    Nobody,
    /// A human, whose answer becomes a notice in their inbox.
    Human(AgentId),
    /// A task of an agent.
    Task {
        /// The agent that sent the request.
        agent: AgentId,
        /// The task in which it sent the request.
        task: TaskId,
    },
}

impl Asker {
    /// Whether the requester is a task of an agent.
    #[must_use]
    pub const fn is_task(self) -> bool {
        matches!(self, Self::Task { .. })
    }

    /// Returns the requesting task of an agent.
    #[must_use]
    pub const fn task(self) -> Option<TaskId> {
        match self {
            Self::Nobody | Self::Human(_) => None,
            Self::Task { task, .. } => Some(task),
        }
    }

    /// Returns the requesting agent or human; `None` for a root task.
    #[must_use]
    pub const fn agent(self) -> Option<AgentId> {
        match self {
            Self::Nobody => None,
            Self::Human(agent) | Self::Task { agent, .. } => Some(agent),
        }
    }
}

/// The phase of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Its request is in the recipient's queue.
    Queued,
    /// A turn serves it.
    Open(TurnId),
    /// It waits for answers to its own requests, escalations or approvals (F3).
    Waiting,
    /// It ended, with this status and cause.
    Closed(AnswerStatus, EndReason),
}

/// A task: a REQUEST being served, over all its turns and attempts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// The agent that serves it now.
    pub agent: AgentId,
    /// The incarnation of that agent that the task is meant for.
    pub incarnation: u32,
    /// The requester of the task.
    pub asker: Asker,
    /// The request that it serves; `None` for a root task.
    pub request: Option<Box<Request>>,
    /// The conversation in which its request arrived.
    pub conv: ConvId,
    /// The hops: delegations from the grant to this task (D4).
    pub hop: u8,
    /// The grant that pays for it.
    pub grant: GrantId,
    /// The requests that it may still send (D3).
    pub quota_left: u64,
    /// The depth of the deepest waking message that it received in each conversation (D2).
    pub received: ThinVec<(ConvId, u8)>,
    /// The agents that it asked, each with the conversation and the task of the last request.
    pub delegates: ThinVec<Delegate>,
    /// Its own requests that are not settled.
    pub children: ThinVec<TaskId>,
    /// Answers that are ready for it, oldest first.
    pub ready: ThinVec<Ready>,
    /// The escalations that it waits for.
    pub escalations: ThinVec<EscalationId>,
    /// The approvals that it waits for.
    pub approvals: ThinVec<ApprovalId>,
    /// Whether it is queued, open, waiting or closed.
    pub phase: Phase,
    /// The number of attempts begun or queued, from 1.
    pub attempt: u32,
    /// The attempts lost to a time-out, of acknowledgement or lease.
    pub lost: u32,
    /// Its turns, oldest first.
    pub turns: ThinVec<TurnId>,
    /// The time at which it was created.
    pub created_at: Time,
    /// The time of its agent's last STATUS.
    pub status_at: Opt<Time>,
    pub(crate) queue_key: Opt<Time>,
    pub(crate) ack_due: Opt<u64>,
    /// Whether the requester had another request to the same agent in flight beside this one (R1).
    pub sibling: bool,
    /// Whether it is queued and waits for a human, or for a recipient with its own time to acknowledge (D8).
    pub(crate) waits: bool,
    /// Fields that only few tasks need.
    pub(crate) rare: Option<Box<TaskRare>>,
}

/// Fields that only few tasks need. Boxed to keep [`Task`] small.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TaskRare {
    /// The hashes of the REFs that its request names (D3).
    pub(crate) named: ThinVec<u64>,
    /// The number of escalations and held calls in its lifetime (H1).
    pub(crate) questions: u64,
    /// The last limit that it met and that a human can lift (H6).
    pub(crate) met: Option<Met>,
    /// Its questions that it no longer waits for, because a human chose the lift beside them (H6).
    pub(crate) unwaited: ThinVec<EscalationId>,
    /// The last STATUS on it, which the requester may not have been shown yet (L3).
    pub(crate) status: Opt<Seq>,
    /// The new sessions of its agent that counted (R5).
    pub(crate) sessions: u8,
    /// The results of its steps, oldest first (F7).
    pub(crate) steps: ThinVec<KeptStep>,
}

/// The result of a step of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptStep {
    /// The key of the step.
    pub(crate) key: RequestId,
    /// The position of the fact that has the result.
    pub(crate) at: Seq,
    /// What it adds to each delivery of the task.
    pub(crate) bytes: u64,
}

/// Bytes of a step in a delivery besides its key and its result.
const STEP_BYTES: u64 = 32;

/// Returns what the result of a step adds to each delivery of its task.
pub(crate) fn step_bytes(key: &RequestId, result: &str) -> u64 {
    STEP_BYTES + (key.as_str().len() + result.len()) as u64
}

/// Whether a request ended without its result, and not because a human ended it.
const fn is_failure(status: AnswerStatus, cause: EndReason) -> bool {
    let by_human = matches!(cause, EndReason::Stopped | EndReason::Cancelled);
    match status {
        AnswerStatus::Rejected | AnswerStatus::Failed | AnswerStatus::TimedOut | AnswerStatus::Exhausted => !by_human,
        AnswerStatus::Completed | AnswerStatus::Partial | AnswerStatus::Cancelled => false,
    }
}

/// An agent that a task asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delegate {
    /// The agent that was asked.
    pub agent: AgentId,
    /// The conversation in which it was asked.
    pub conv: ConvId,
    /// The task of the last request to it.
    pub task: TaskId,
}

/// A message that is ready to be delivered to a task, or was delivered in one of its turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// The position of the message.
    pub message: Seq,
    /// The conversation and depth of the message; `None` for a human's message, which adds no depth (D2).
    pub depth: Option<(ConvId, u8)>,
    /// The settled task that the message is the answer of.
    pub child: Opt<TaskId>,
    /// The length of its body, in bytes.
    pub bytes: u64,
}

impl Task {
    pub(super) fn new(at: Time, agent: AgentId, asker: Asker, conv: ConvId, grant: GrantId) -> Self {
        Self {
            agent,
            incarnation: 0,
            asker,
            request: None,
            conv,
            hop: 0,
            grant,
            quota_left: 0,
            received: ThinVec::new(),
            delegates: ThinVec::new(),
            children: ThinVec::new(),
            ready: ThinVec::new(),
            escalations: ThinVec::new(),
            approvals: ThinVec::new(),
            phase: Phase::Queued,
            attempt: 1,
            lost: 0,
            turns: ThinVec::new(),
            created_at: at,
            status_at: Opt::none(),
            queue_key: Opt::none(),
            ack_due: Opt::none(),
            sibling: false,
            waits: false,
            rare: None,
        }
    }

    /// Returns its open turn.
    #[must_use]
    pub const fn turn(&self) -> Option<TurnId> {
        match self.phase {
            Phase::Open(turn) => Some(turn),
            Phase::Queued | Phase::Waiting | Phase::Closed(..) => None,
        }
    }

    /// Returns the number of things that it waits for: requests, undelivered answers, escalations and approvals (F3).
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.children.len() + self.ready.len() + self.escalations.len() + self.approvals.len()
    }

    /// Whether it has ended.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed(..))
    }

    /// Returns the depth that a message of this task has in `conv` (D2).
    #[must_use]
    pub fn depth_in(&self, conv: ConvId) -> u8 {
        self.received.iter().find(|(c, _)| *c == conv).map_or(0, |(_, d)| d.saturating_add(1))
    }

    /// Returns its requester and the agents that it asked.
    pub fn partners(&self) -> impl Iterator<Item = AgentId> + '_ {
        self.asker.agent().into_iter().chain(self.delegates.iter().map(|d| d.agent))
    }

    /// Returns the agents that had its request, in order; the last one serves it now.
    pub fn tried(&self) -> impl Iterator<Item = AgentId> + '_ {
        let earlier = self.request.iter().flat_map(|request| &request.earlier);
        earlier.copied().chain([self.agent])
    }

    /// Returns the last request to an agent that it asked.
    #[must_use]
    pub fn delegate(&self, agent: AgentId) -> Option<&Delegate> {
        self.delegates.iter().rev().find(|d| d.agent == agent)
    }

    /// Whether its request names this REF (D3).
    #[must_use]
    pub fn names(&self, reference: &Ref) -> bool {
        let named = self.rare.iter().flat_map(|rare| &rare.named);
        let mark = lastword_facts::named::mark(reference.as_str());
        named.into_iter().any(|known| *known == mark)
    }

    /// Returns the number of escalations and held calls in its lifetime (H1).
    #[must_use]
    pub fn questions(&self) -> u64 {
        self.rare.as_ref().map_or(0, |rare| rare.questions)
    }

    /// Returns the last limit that it met in its newest turn, and that a human can lift (H6).
    #[must_use]
    pub fn met(&self) -> Option<&Met> {
        self.rare.as_ref()?.met.as_ref()
    }

    /// Returns the positions of the results of its steps, oldest first (F7).
    #[must_use]
    pub fn kept_steps(&self) -> Vec<Seq> {
        self.steps().iter().map(|step| step.at).collect()
    }

    /// Returns the results of its steps, oldest first (F7).
    pub(crate) fn steps(&self) -> &[KeptStep] {
        self.rare.as_ref().map_or(&[], |rare| &rare.steps)
    }
}

impl State {
    /// Returns what ended a task: for one that ended with the task above it, what ended that one, unless it was its
    /// answer. `None` while it is open.
    #[must_use]
    pub fn ended(&self, task: &Task) -> Option<EndReason> {
        let Phase::Closed(_, cause) = task.phase else { return None };
        let Asker::Task { task: above, .. } = task.asker else { return Some(cause) };
        let above = self.tasks.get(&above).filter(|_| cause == EndReason::AskerEnded);
        let above = above.and_then(|above| self.ended(above));
        Some(above.filter(|cause| !matches!(cause, EndReason::Answered | EndReason::Empty)).unwrap_or(cause))
    }

    /// Returns the task that serves the request with this id.
    #[must_use]
    pub fn task_of(&self, request: &str) -> Option<(TaskId, &Task)> {
        let task = self.keys.task(request)?;
        Some((task, self.tasks.get(&task)?))
    }

    /// Returns the agents that caused a task: its requester, the requester's requester, and so on to the grant (D5).
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

    /// Returns the task inside which a request of `sender` to `to` is judged if it is sent outside every turn (D7): a
    /// task of an open grant that came to the sender from `to` or from an agent below `to`, in any attempt; or one in
    /// which the sender asked `to`. Otherwise ending a turn would be a way around the limits of its grant.
    pub(crate) fn tie(&self, sender: AgentId, to: AgentId) -> Option<TaskId> {
        let above = |id: TaskId| self.ancestors(id).any(|ancestor| ancestor == to);
        let asked = |task: &Task| task.agent == sender && task.asker != Asker::Nobody && task.delegate(to).is_some();
        let tied = |id: TaskId| self.tasks.get(&id).is_some_and(|task| above(id) || asked(task));
        self.agent(sender)?.task_with(to, tied)
    }

    /// Whether a task's deliveries are parked: a pause, stop or latch holds its conversation or grant (R3).
    #[must_use]
    pub fn is_parked(&self, task: &Task) -> bool {
        let grant = self.grants.get(&task.grant).is_some_and(|g| g.latched.is_some());
        grant || self.latched_in(task.conv, Some(task.grant)) || self.running_in(task.conv) != Running::Active
    }

    pub(super) fn root_started(
        &mut self,
        at: Time,
        task: TaskId,
        agent: AgentId,
        conv: ConvId,
        grant: GrantId,
        received: Option<u8>,
    ) {
        self.minted.task = task.0;
        // A root in a human's name is due to a prompt that the human typed, and costs no allowance (H8).
        let typed = self.grants.get(&grant).is_some_and(|grant| !grant.own_root);
        if typed {
            self.typed_root(at, agent, task);
        } else {
            let roots = &mut self.agents[agent.0 as usize].roots;
            // The list is in order of time; roots older than the hour of the limit are dropped.
            let over = roots.partition_point(|root| at.since(*root) >= HOUR_MS);
            roots.drain(..over);
            roots.push(at);
        }
        if let Some(grant) = self.grants.get_mut(&grant) {
            grant.typed = typed;
        }
        // Another agent's conversation stays its own, whoever types into this one's session.
        let known = self.conversations.get_mut(&conv);
        if let Some(conv) = known.filter(|conv| !typed || conv.root.is_none_or(|root| root.agent == agent)) {
            conv.root = Some(RootLine { agent, task, received });
        }
        self.insert_root(at, task, agent, conv, grant, received);
    }

    pub(super) fn insert_root(
        &mut self,
        at: Time,
        id: TaskId,
        agent: AgentId,
        conv: ConvId,
        grant: GrantId,
        received: Option<u8>,
    ) {
        let quota_left = self.limits.task_requests_max;
        let received = received.map(|d| (conv, d)).into_iter().collect();
        let incarnation = self.agents[agent.0 as usize].incarnation;
        let root = Task::new(at, agent, Asker::Nobody, conv, grant);
        self.tasks.insert(id, Task { received, quota_left, incarnation, phase: Phase::Waiting, ..root });
        self.uses(conv, 1);
        if let Some(grant) = self.grants.get_mut(&grant) {
            grant.begin(id);
        }
    }

    pub(super) fn answered(&mut self, at: Time, message: &Message, answer: &Answer) {
        let seq = self.seq;
        self.close_task(at, answer.task, answer.status, answer.cause);
        let Some(task) = self.tasks.get_mut(&answer.task) else { return };
        if let Some(request) = &mut task.request {
            request.answer = seq.into();
        }
        let asker = task.asker;
        self.step(answer.task, RequestEvent::Settled);
        if let Some(grant) = message.grant.and_then(|g| self.grants.get_mut(&g)) {
            grant.owed = grant.owed.saturating_sub(1);
        }
        match asker {
            Asker::Nobody => {}
            Asker::Human(human) => {
                if is_failure(answer.status, answer.cause) {
                    self.failed.insert(answer.task);
                }
                self.notice(at, human);
            }
            Asker::Task { task: parent, .. } => {
                if let Some(parent) = self.tasks.get_mut(&parent) {
                    parent.children.retain(|c| *c != answer.task);
                }
                let bytes = message.body.len() as u64;
                let depth = Some((message.conv, message.depth));
                self.ready(at, parent, Ready { message: seq, depth, child: answer.task.into(), bytes });
            }
        }
        // The agent still works on it, or may take it later, and has to learn that it is over.
        if answer.cause.concerns_server() {
            let server = self.tasks[&answer.task].agent;
            self.notice(at, server);
        }
    }

    /// Makes a message ready for a task and queues the task if it waits. Does nothing for a closed task.
    pub(super) fn ready(&mut self, at: Time, id: TaskId, ready: Ready) {
        let Some(task) = self.tasks.get_mut(&id).filter(|t| !t.is_closed()) else { return };
        task.ready.push(ready);
        if task.phase == Phase::Waiting {
            self.enqueue(at, id);
        }
    }

    /// Puts a task into its agent's queue, unless it is there, and starts the time to acknowledge.
    pub(super) fn enqueue(&mut self, at: Time, id: TaskId) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        if task.queue_key.is_none() {
            let rank = task.request.as_ref().map_or(Priority::Normal, |r| r.priority) as u64;
            // A lower priority counts as a later arrival, so that a request that has waited long enough goes before
            // newer urgent ones (Q2).
            let key = at.plus(rank.saturating_mul(self.limits.ageing_ms)).min(Time(LAST));
            task.queue_key = key.into();
            self.agents[task.agent.0 as usize].queue.insert((key, id));
        }
        self.arm_ack(at, id);
    }

    pub(super) fn dequeue(&mut self, at: Time, id: TaskId) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        if let Some(key) = task.queue_key.take() {
            self.agents[task.agent.0 as usize].queue.remove(&(key, id));
        }
        self.disarm_ack(at, id);
    }

    /// Ends a task: nothing stays queued, timed, awaited or held for it.
    pub(super) fn close_task(&mut self, at: Time, id: TaskId, status: AnswerStatus, cause: EndReason) {
        self.dequeue(at, id);
        // A closed task has no share of Φ, so read the share before the phase changes.
        let structure = self.structure_of(id);
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let open = u32::from(!task.is_closed());
        task.phase = Phase::Closed(status, cause);
        let (conv, grant, agent) = (task.conv, task.grant, task.agent);
        if let Some(deadline) = task.request.as_ref().and_then(|r| r.deadline.get()) {
            self.timers.remove(deadline, Timer::Deadline(id));
        }
        self.keep_root_depth(id, agent, conv);
        self.withdraw(at, id);
        if let Some(grant) = self.grants.get_mut(&grant) {
            grant.open_tasks = grant.open_tasks.saturating_sub(open);
            grant.structure = grant.structure.saturating_sub(structure);
        }
        if let Some(conv) = self.conversations.get_mut(&conv) {
            conv.open_tasks.remove(&id);
        }
        if let Some(rare) = self.tasks.get_mut(&id).and_then(|task| task.rare.as_deref_mut()) {
            rare.steps.clear();
        }
        self.closed.push_back((at, Closed::Task(id)));
        let request = self.tasks[&id].request.as_ref().map(|r| r.id.clone());
        // A chosen key has a record of its own; a minted id goes with the task.
        if let Some(chosen) = request.filter(|id| self.keys.chosen(id.as_str()).is_some()) {
            self.closed.push_back((at, Closed::Key(Box::new(chosen))));
        }
    }

    pub(super) fn step_kept(&mut self, id: TaskId, key: &RequestId, result: &str) {
        let step = KeptStep { key: key.clone(), at: self.seq, bytes: step_bytes(key, result) };
        if let Some(task) = self.tasks.get_mut(&id) {
            task.rare.get_or_insert_default().steps.push(step);
        }
    }

    /// Withdraws what a run waited for. What still arrives is dropped.
    pub(super) fn withdraw(&mut self, at: Time, id: TaskId) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        task.ready.clear();
        let unwaited = task.rare.as_deref_mut().map(|rare| core::mem::take(&mut rare.unwaited)).unwrap_or_default();
        let escalations = core::mem::take(&mut task.escalations).into_iter().chain(unwaited);
        let approvals = core::mem::take(&mut task.approvals);
        for escalation in escalations {
            self.end_escalation(at, escalation, EscalationState::Withdrawn, None);
        }
        for approval in approvals {
            self.end_approval(at, approval, ApprovalState::Withdrawn);
        }
        self.close_exchanges(at, id);
    }

    /// Keeps the depth of a root, so that a later root in the same conversation continues at it (D3).
    fn keep_root_depth(&mut self, id: TaskId, agent: AgentId, conv: ConvId) {
        let received = self.tasks.get(&id).and_then(|t| t.received.iter().find(|(c, _)| *c == conv).map(|(_, d)| *d));
        let line = self.conversations.get_mut(&conv).and_then(|c| c.root.as_mut());
        if let Some(line) = line.filter(|l| l.task == id && l.agent == agent) {
            line.received = received.max(line.received);
        }
    }

    /// Returns what an open task can still cause: its answer, and for each request that it may send, that request and
    /// its task (Φ).
    pub(super) fn structure_of(&self, id: TaskId) -> u64 {
        self.tasks.get(&id).filter(|t| !t.is_closed()).map_or(0, |task| {
            let hop = u64::from(task.hop);
            // At the last hop only its own answer is left.
            if hop >= self.limits.hops_max {
                return 1;
            }
            let each = self.limits.potential(hop + 1).saturating_add(1);
            task.quota_left.saturating_mul(each).saturating_add(1)
        })
    }
}
