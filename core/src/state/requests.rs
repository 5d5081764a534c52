//! Requests: each creates a task, and records which agent asked which in it (Q1, D3).

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use thin_vec::ThinVec;

use lastword_facts::envelope::{MessageType, Priority};
use lastword_facts::fact::{Message, PartialResult, Recipient, Rerun, Terms};
use lastword_facts::fsm;
use lastword_facts::fsm::{RequestEvent, RequestState};
use lastword_facts::ids::{AgentId, Seq, TaskId, Time};
use lastword_facts::names::{Label, RequestId};

use super::small::append;
use super::{Asker, Delegate, Few, Opt, Phase, State, Task, Timer};

/// The request that a task serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Its id, minted or chosen by its sender.
    pub id: RequestId,
    /// The position of the REQUEST.
    pub message: Seq,
    /// Its depth in the task's conversation.
    pub depth: u8,
    /// The length of its body, in bytes.
    pub bytes: u64,
    /// The action that it asks for.
    pub action: Option<Box<Label>>,
    /// Its rank in a queue.
    pub priority: Priority,
    /// Time to acknowledge, in ms.
    pub ack_ms: u64,
    /// The time at which it times out.
    pub deadline: Opt<Time>,
    /// The time until which its sender blocks for the answer.
    pub wait_until: Opt<Time>,
    /// Its state in the request's state machine (Q1).
    pub state: RequestState,
    /// Runs begun or queued, at most `runs_max`.
    pub runs: u32,
    /// The number of times it went to another agent.
    pub reassigned: u32,
    /// The agents that had it before the one that serves it now, in order.
    pub(crate) earlier: ThinVec<AgentId>,
    /// The result of its first run, if that completed only a part (Q5).
    pub partial: Option<Box<Partial>>,
    /// The position of the answer, once there is one.
    pub answer: Opt<Seq>,
}

/// The result of the first run of a request that completed only a part (Q5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partial {
    /// The position of the fact that has the result.
    pub result: Seq,
    /// The parts that the run completed.
    pub completed: Vec<Box<str>>,
    /// The parts that the run failed.
    pub failed: Vec<Box<str>>,
}

impl Request {
    pub(super) fn new(message: &Message, terms: &Terms, seq: Seq) -> Self {
        debug_assert_eq!(message.kind, MessageType::Request, "only a REQUEST makes a task");
        Self {
            id: terms.request.clone(),
            message: seq,
            depth: message.depth,
            bytes: message.body.len() as u64,
            action: message.action.clone().map(Box::new),
            priority: terms.priority,
            ack_ms: terms.ack_ms,
            deadline: terms.deadline.into(),
            wait_until: terms.wait_until.into(),
            state: RequestState::RequestSent,
            runs: 1,
            reassigned: 0,
            earlier: ThinVec::new(),
            partial: None,
            answer: Opt::none(),
        }
    }
}

impl State {
    pub(super) fn request_accepted(&mut self, at: Time, message: &Message, terms: &Terms) {
        let (Recipient::One(to), Some(grant)) = (message.to, message.grant) else { return };
        let asker = match message.sender_task {
            Some(task) => Asker::Task { agent: message.from, task },
            None => Asker::Human(message.from),
        };
        let seq = self.seq;
        let request = Request::new(message, terms, seq);
        // A human's request adds no depth: the task's first message starts at 0 (D2).
        let received = asker.is_task().then_some((message.conv, message.depth)).into_iter().collect();
        let quota = self.limits.task_requests_max;
        let incarnation = self.agents[to.0 as usize].incarnation;
        let task =
            Task { received, hop: message.hops, quota_left: quota, ..Task::new(at, to, asker, message.conv, grant) };
        if let Some(deadline) = request.deadline.get() {
            self.timers.insert(deadline, Timer::Deadline(terms.task));
        }
        self.tasks.insert(terms.task, Task { request: Some(Box::new(request)), incarnation, ..task });
        self.minted.task = terms.task.0;
        self.minted.request += 1;
        self.keys.serve(&terms.request, message.from, seq, terms.task);
        self.name_refs(terms.task, message, asker);
        self.charge_grant(at, grant, to, asker, terms.task);
        if let Asker::Task { task, .. } = asker {
            self.delegated(task, Delegate { agent: to, conv: message.conv, task: terms.task });
        }
        if let Some(conv) = self.conversations.get_mut(&message.conv) {
            conv.users += 1;
            conv.open_tasks.insert(terms.task);
            conv.grant = grant.into();
        }
        self.enqueue(at, terms.task);
    }

    fn delegated(&mut self, asker: TaskId, delegate: Delegate) {
        let Some(task) = self.tasks.get_mut(&asker) else { return };
        task.quota_left = task.quota_left.saturating_sub(1);
        // Taken before the new task joins, to compare it only with requests beside it.
        let in_flight = task.children.clone();
        append(&mut task.children, delegate.task);
        self.agents[task.agent.0 as usize].partners.insert((delegate.agent, asker));
        // One entry for each agent and conversation, the newest last, which is where `delegate` looks first.
        let before = task.delegates.iter().position(|d| d.agent == delegate.agent && d.conv == delegate.conv);
        let left = before.map(|place| task.delegates.remove(place).conv);
        append(&mut task.delegates, delegate);
        self.uses(delegate.conv, 1);
        if let Some(left) = left {
            self.uses(left, -1);
        }
        self.mark_siblings(in_flight, delegate);
    }

    /// Marks requests of one task to one delegate that are in flight together: they are a fan-out, not a ping-pong
    /// (R1).
    fn mark_siblings(&mut self, in_flight: ThinVec<TaskId>, delegate: Delegate) {
        let mut beside = false;
        for id in in_flight {
            if let Some(other) = self.tasks.get_mut(&id).filter(|task| task.agent == delegate.agent) {
                other.sibling = true;
                beside = true;
            }
        }
        if let Some(task) = self.tasks.get_mut(&delegate.task) {
            task.sibling = beside;
        }
    }

    /// Keeps the REFs that a request names. An agent's request can name only REFs that its own request named (D3).
    fn name_refs(&mut self, id: TaskId, message: &Message, asker: Asker) {
        let above = match asker {
            Asker::Nobody => return,
            Asker::Human(_) => None,
            Asker::Task { task, .. } => {
                let above = self.tasks.get(&task).and_then(|task| task.rare.as_ref()).map(|rare| &rare.named);
                let Some(above) = above.filter(|named| !named.is_empty()) else { return };
                Some(above.clone())
            }
        };
        let mut named = lastword_facts::named::named(message, self.limits.refs_named_max);
        if let Some(above) = above {
            named.retain(|mark| above.contains(mark));
        }
        if let Some(task) = self.tasks.get_mut(&id).filter(|_| !named.is_empty()) {
            task.rare.get_or_insert_default().named = named;
        }
    }

    pub(super) fn requeued(
        &mut self,
        at: Time,
        id: TaskId,
        agent: AgentId,
        why: Rerun,
        ack_ms: u64,
        result: Option<&PartialResult>,
    ) {
        // Out of the old agent's queue, before the task changes hands.
        self.dequeue(at, id);
        let seq = self.seq;
        let incarnation = self.agents[agent.0 as usize].incarnation;
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let before = core::mem::replace(&mut task.agent, agent);
        task.incarnation = incarnation;
        task.phase = Phase::Queued;
        // A lost lease began the next attempt already, to fence the token of the old one at once.
        task.attempt += u32::from(why != Rerun::LeaseLost);
        task.lost += u32::from(why == Rerun::AckTimeout);
        let (grant, conv) = (task.grant, task.conv);
        if let Some(request) = &mut task.request {
            request.runs += 1;
            request.ack_ms = ack_ms;
            if why == Rerun::Rejected {
                request.reassigned += 1;
                append(&mut request.earlier, before);
            }
            if let Some(result) = result {
                let (completed, failed) = (result.completed.clone(), result.failed.clone());
                request.partial = Some(Box::new(Partial { result: seq, completed, failed }));
            }
        }
        // The core has cancelled the old run's requests, so its answers and questions go too. After a time-out they are
        // still awaited.
        if matches!(why, Rerun::Rejected | Rerun::Partial) {
            self.withdraw(at, id);
        }
        self.step(id, RequestEvent::Requeued);
        // The new agent needs an entry for each agent above and each that was asked, to be tied to them (D7).
        let above = self.ancestors(id).collect::<Few<AgentId, 4>>();
        let asked = self.tasks[&id].delegates.iter().map(|d| d.agent);
        let partners: Few<AgentId, 4> = above.into_iter().chain(asked).collect();
        let runner = &mut self.agents[agent.0 as usize];
        for partner in partners {
            runner.partners.insert((partner, id));
        }
        if let Some(grant) = self.grants.get_mut(&grant) {
            // The core checked that the grant may wake this agent (D8).
            grant.wake(agent);
        }
        if let Some(conv) = self.conversations.get_mut(&conv)
            && let Err(place) = conv.participants.binary_search(&agent)
        {
            conv.participants.insert(place, agent);
        }
        self.enqueue(at, id);
    }

    /// Moves a task's request through its state machine. An event without a transition changes nothing.
    pub(super) fn step(&mut self, id: TaskId, event: RequestEvent) {
        let request = self.tasks.get_mut(&id).and_then(|t| t.request.as_mut());
        if let Some(request) = request
            && let Some(next) = fsm::next(request.state, event)
        {
            request.state = next;
        }
    }
}
