//! Tasks: made, queued, answered and closed.

use alloc::boxed::Box;

use serde::{Deserialize, Serialize};
use thin_vec::ThinVec;

use super::small::LAST;
use super::{ApprovalState, Closed, EscalationState, Opt, Request, RootLine, Running, State, Timer};
use crate::envelope::{AnswerStatus, Priority};
use crate::fact::{Answer, EndReason, Message, Met};
use crate::fsm::RequestEvent;
use crate::ids::{AgentId, ApprovalId, ConvId, EscalationId, GrantId, HOUR_MS, Seq, TaskId, Time, TurnId};
use crate::names::Ref;

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
    /// Whether a task of an agent asks.
    #[must_use]
    pub const fn is_task(self) -> bool {
        matches!(self, Self::Task { .. })
    }

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
            slow: false,
            rare: None,
        }
    }

    /// Its open turn.
    #[must_use]
    pub const fn turn(&self) -> Option<TurnId> {
        match self.phase {
            Phase::Open(turn) => Some(turn),
            Phase::Queued | Phase::Waiting | Phase::Closed(..) => None,
        }
    }

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

impl EndReason {
    /// Whether who serves the request must be told that it ended without its answer (Q9).
    #[must_use]
    pub const fn concerns_server(self) -> bool {
        match self {
            Self::Cancelled
            | Self::AskerEnded
            | Self::Stopped
            | Self::Deadline
            | Self::GrantExpired
            | Self::Unanswered => true,
            Self::Answered
            | Self::Empty
            | Self::NotAcknowledged
            | Self::LeaseLost
            | Self::NobodyLeft
            | Self::RecipientGone => false,
        }
    }
}

impl State {
    /// The task that serves the request with this id.
    #[must_use]
    pub fn task_of(&self, request: &str) -> Option<(TaskId, &Task)> {
        let task = self.keys.task(request)?;
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
        let roots = &mut self.agents[agent.0 as usize].roots;
        let over = roots.partition_point(|root| at.since(*root) >= HOUR_MS);
        roots.drain(..over);
        roots.push(at);
        if let Some(conv) = self.conversations.get_mut(&conv) {
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
            Asker::Human(human) => self.notice(at, human),
            Asker::Task { task: parent, .. } => {
                if let Some(parent) = self.tasks.get_mut(&parent) {
                    parent.children.retain(|c| *c != answer.task);
                }
                let bytes = message.body.len() as u64;
                let depth = Some((message.conv, message.depth));
                self.ready(at, parent, Ready { message: seq, depth, child: answer.task.into(), bytes });
            }
        }
        if answer.cause.concerns_server() {
            let server = self.tasks[&answer.task].agent;
            self.notice(at, server);
        }
    }

    /// Makes a message ready for a task; a waiting task takes its place in the queue. A closed one gets nothing.
    pub(super) fn ready(&mut self, at: Time, id: TaskId, ready: Ready) {
        let Some(task) = self.tasks.get_mut(&id).filter(|t| !t.is_closed()) else { return };
        task.ready.push(ready);
        if task.phase == Phase::Waiting {
            self.enqueue(at, id);
        }
    }

    /// Puts a task into its agent's queue, where it isn't yet, and starts the time to acknowledge.
    pub(super) fn enqueue(&mut self, at: Time, id: TaskId) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        if task.queue_key.is_none() {
            let rank = task.request.as_ref().map_or(Priority::Normal, |r| r.priority) as u64;
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

    /// Ends a task: nothing is queued, timed, waited for or held for it any longer.
    pub(super) fn close_task(&mut self, at: Time, id: TaskId, status: AnswerStatus, cause: EndReason) {
        self.dequeue(at, id);
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
        self.closed.push_back((at, Closed::Task(id)));
        let request = self.tasks[&id].request.as_ref().map(|r| r.id.clone());
        if let Some(chosen) = request.filter(|id| self.keys.chosen(id.as_str()).is_some()) {
            self.closed.push_back((at, Closed::Key(Box::new(chosen))));
        }
    }

    /// Takes back what a run waited for: it ended, and what comes now is for nobody.
    pub(super) fn withdraw(&mut self, at: Time, id: TaskId) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        task.ready.clear();
        let escalations = core::mem::take(&mut task.escalations);
        let approvals = core::mem::take(&mut task.approvals);
        for escalation in escalations {
            self.end_escalation(at, escalation, EscalationState::Withdrawn, None);
        }
        for approval in approvals {
            self.end_approval(at, approval, ApprovalState::Expired);
        }
    }

    /// A root that is continued later goes on at its depth (D3).
    fn keep_root_depth(&mut self, id: TaskId, agent: AgentId, conv: ConvId) {
        let received = self.tasks.get(&id).and_then(|t| t.received.iter().find(|(c, _)| *c == conv).map(|(_, d)| *d));
        let line = self.conversations.get_mut(&conv).and_then(|c| c.root.as_mut());
        if let Some(line) = line.filter(|l| l.task == id && l.agent == agent) {
            line.received = received.max(line.received);
        }
    }

    /// What an open task can still cause: its answer, and for each request left that request and its task (Φ).
    pub(super) fn structure_of(&self, id: TaskId) -> u64 {
        self.tasks.get(&id).filter(|t| !t.is_closed()).map_or(0, |task| {
            let hop = u64::from(task.hop);
            if hop >= self.limits.hops_max {
                return 1;
            }
            let each = self.limits.potential(hop + 1).saturating_add(1);
            task.quota_left.saturating_mul(each).saturating_add(1)
        })
    }
}
