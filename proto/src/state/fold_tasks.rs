//! The fold of messages: tasks made, queued, answered and closed.

use alloc::boxed::Box;

use thin_vec::ThinVec;

use super::small::{LAST, append};
use super::{
    ApprovalState, Asker, Closed, Delegate, EscalationState, Few, Known, Opt, Phase, Ready, Request, State, Task, Timer,
};
use crate::envelope::{AnswerStatus, MessageType, Priority};
use crate::fact::{Answer, EndReason, Message, Part, Recipient, SYSTEM, Terms};
use crate::fsm::{self, RequestEvent, RequestState};
use crate::ids::{AgentId, ConvId, GrantId, Seq, TaskId, Time};

impl State {
    pub(super) fn accepted(&mut self, at: Time, message: &Message) {
        self.count_message(at, message);
        self.remember_key(at, message);
        match &message.part {
            Part::Plain | Part::Echo => {
                self.charge_window(at, message);
                self.charge_notice(at, message);
                self.notice_recipient(at, message);
            }
            Part::Request(terms) => {
                self.charge_window(at, message);
                self.request_accepted(at, message, terms);
            }
            Part::Answer(answer) => self.answered(at, message, answer),
            Part::Reply { task, escalation } => {
                if let Some(id) = escalation {
                    self.end_escalation(at, *id, EscalationState::Answered, Some((message.from, self.seq)));
                }
                let bytes = message.body.len() as u64;
                self.ready(at, *task, Ready { message: self.seq, depth: None, child: Opt::none(), bytes });
            }
            Part::Status { task, acknowledged, eta_ms } => {
                if let Some(task) = self.tasks.get_mut(task) {
                    task.status_at = at.into();
                }
                if *acknowledged {
                    self.step(*task, RequestEvent::Acknowledged);
                    self.grant_time(at, *task, eta_ms.unwrap_or(0));
                }
                self.charge_notice(at, message);
                self.only_newest(*task);
                self.notice_recipient(at, message);
            }
        }
    }

    /// Of the reports on a task its asker is shown the newest alone (L3).
    fn only_newest(&mut self, id: TaskId) {
        let seq = self.seq;
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let asker = task.asker.agent();
        let before = core::mem::replace(&mut task.rare.get_or_insert_default().status, seq.into());
        if let (Some(asker), Some(before)) = (asker, before.get()) {
            self.drop_notice(asker, before);
        }
    }

    /// What is said outside every turn is charged to the day of who says it (B1): as much as its readers are shown.
    fn charge_notice(&mut self, at: Time, message: &Message) {
        let in_turn = message.sender_task.and_then(|t| self.tasks.get(&t)).is_some_and(|task| task.turn().is_some());
        if in_turn || message.from == SYSTEM || self.agents[message.from.0 as usize].is_human() {
            return;
        }
        let shown = (message.body.len() as u64).min(self.limits.notice_bytes_max);
        let readers = match message.to {
            Recipient::One(_) => 1,
            Recipient::All => self.agents.iter().filter(|agent| agent.live && !agent.is_human()).count() as u64,
        };
        self.charge_day(at, message.from, shown.div_ceil(4).saturating_mul(readers));
    }

    fn count_message(&mut self, at: Time, message: &Message) {
        let ticks = message.grant.and_then(|grant| self.grants.get(&grant)).is_some_and(|grant| grant.scheduled);
        let human = self.agents[message.from.0 as usize].is_heard() && (!ticks || !message.part.is_request());
        let bytes = message.body.len() as u64;
        if let Some(conv) = self.conversations.get_mut(&message.conv) {
            conv.messages += 1;
            conv.deepest = conv.deepest.max(message.depth);
            conv.last_at = at;
            conv.agent_messages = if human && message.is_said() { 0 } else { conv.agent_messages };
            let to = if let Recipient::One(to) = message.to { Some(to) } else { None };
            for agent in [Some(message.from), to].into_iter().flatten().filter(|a| *a != SYSTEM) {
                if let Err(place) = conv.participants.binary_search(&agent) {
                    conv.participants.insert(place, agent);
                }
            }
        }
        let turn = message.sender_task.and_then(|t| self.tasks.get(&t)).and_then(Task::turn);
        if let Some(turn) = turn.and_then(|t| self.turns.get_mut(&t)) {
            turn.text_bytes = turn.text_bytes.saturating_add(bytes);
        }
    }

    fn remember_key(&mut self, at: Time, message: &Message) {
        let Some(key) = &message.key else { return };
        let seq = self.seq;
        match self.keys.chosen_mut(key.id.as_str()) {
            Some(known) => known.messages.push(seq),
            None => {
                let (sender, fingerprint) = (message.from, Some(key.fingerprint));
                let known =
                    Known { sender, fingerprint, messages: Few::from_slice(&[seq]), task: None, escalation: None };
                self.keys.choose(key.id.clone(), known);
                self.closed.push_back((at, Closed::Key(Box::new(key.id.clone()))));
            }
        }
    }

    fn charge_window(&mut self, at: Time, message: &Message) {
        let to = if let Recipient::One(to) = message.to { to } else { SYSTEM };
        self.charge_sender(at, message.from, to);
    }

    /// Counts one thing that an agent writes in its windows; what is for nobody, as one to itself (G1).
    pub(super) fn charge_sender(&mut self, at: Time, from: AgentId, to: AgentId) {
        let window = self.limits.window_ms.max(self.limits.fan_out_window_ms);
        let sender = &mut self.agents[from.0 as usize];
        if sender.is_human() || from == SYSTEM {
            return;
        }
        while sender.recent.front().is_some_and(|(first, _)| at.since(*first) >= window) {
            sender.recent.pop_front();
        }
        sender.recent.push_back((at, to));
    }

    /// A request that was acknowledged and not taken has a lease's time from then on, as a turn would (Q2).
    fn grant_time(&mut self, at: Time, id: TaskId, eta_ms: u64) {
        self.disarm_ack(at, id);
        let time_ms = self.limits.lease_ms.max(eta_ms.min(self.limits.eta_ms_max));
        self.arm(at, id, time_ms);
    }

    fn notice_recipient(&mut self, at: Time, message: &Message) {
        match message.to {
            Recipient::One(to) => self.notice(at, to),
            Recipient::All => {
                for id in (1..u32::try_from(self.agents.len()).unwrap_or(u32::MAX)).map(AgentId) {
                    if id != message.from && self.agents[id.0 as usize].live {
                        self.notice(at, id);
                    }
                }
            }
        }
    }

    /// Puts the fact that is being folded among what an agent or human is shown next.
    pub(super) fn notice(&mut self, at: Time, agent: AgentId) {
        let (age, max) = (self.limits.delivery_age_ms, self.limits.inbox_max);
        let seq = self.seq;
        let Some(agent) = self.agents.get_mut(agent.0 as usize).filter(|a| a.live) else { return };
        // What is for a human may be the answer to a grant, and is never dropped (F6).
        while !agent.is_human()
            && (agent.notices.front().is_some_and(|(_, since)| at.since(*since) >= age)
                || agent.notices.len() as u64 >= max)
        {
            agent.notices.pop_front();
        }
        agent.notices.push_back((seq, at));
    }

    pub(super) fn drop_notices(&mut self, agent: AgentId, through: Seq) {
        let notices = &mut self.agents[agent.0 as usize].notices;
        while notices.front().is_some_and(|(seq, _)| *seq <= through) {
            notices.pop_front();
        }
    }

    pub(super) fn drop_notice(&mut self, agent: AgentId, message: Seq) {
        let agent = &mut self.agents[agent.0 as usize];
        if let Some(place) = agent.notice(message) {
            agent.notices.remove(place);
        }
    }

    fn request_accepted(&mut self, at: Time, message: &Message, terms: &Terms) {
        let (Recipient::One(to), Some(grant)) = (message.to, message.grant) else { return };
        let asker = match message.sender_task {
            Some(task) => Asker::Task { agent: message.from, task },
            None => Asker::Human(message.from),
        };
        let seq = self.seq;
        let request = Request::new(message, terms, seq);
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

    fn charge_grant(&mut self, at: Time, id: GrantId, to: AgentId, asker: Asker, task: TaskId) {
        let above: Few<AgentId, 4> = self.ancestors(task).collect();
        let Some(grant) = self.grants.get_mut(&id) else { return };
        grant.messages += 2;
        grant.owed += 1;
        grant.begin(task);
        grant.wake(to);
        for partner in above {
            self.agents[to.0 as usize].partners.insert((partner, task));
        }
        if asker.is_task() {
            grant.structure = grant.structure.saturating_sub(1);
        }
        if grant.own_root {
            let day = &mut self.agents[grant.giver.0 as usize].day;
            *day = day.on(at);
            day.root_messages += 2;
        }
    }

    fn delegated(&mut self, asker: TaskId, delegate: Delegate) {
        let Some(task) = self.tasks.get_mut(&asker) else { return };
        task.quota_left = task.quota_left.saturating_sub(1);
        let in_flight = task.children.clone();
        append(&mut task.children, delegate.task);
        self.agents[task.agent.0 as usize].partners.insert((delegate.agent, asker));
        let before = task.delegates.iter().position(|d| d.agent == delegate.agent && d.conv == delegate.conv);
        let left = before.map(|place| task.delegates.remove(place).conv);
        append(&mut task.delegates, delegate);
        self.uses(delegate.conv, 1);
        if let Some(left) = left {
            self.uses(left, -1);
        }
        self.mark_siblings(in_flight, delegate);
    }

    /// Requests of one task to one delegate that are in flight together are a fan-out, not a ping-pong (R1).
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

    /// Keeps the REFs that a request names; an agent's can name only what its own request named (D3).
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
        let mut named = crate::named::named(message, self.limits.refs_named_max);
        if let Some(above) = above {
            named.retain(|mark| above.contains(mark));
        }
        if let Some(task) = self.tasks.get_mut(&id).filter(|_| !named.is_empty()) {
            task.rare.get_or_insert_default().named = named;
        }
    }

    /// Counts who depends on a conversation.
    pub(super) fn uses(&mut self, conv: ConvId, change: i32) {
        if let Some(conv) = self.conversations.get_mut(&conv) {
            conv.users = conv.users.saturating_add_signed(change);
        }
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

    fn answered(&mut self, at: Time, message: &Message, answer: &Answer) {
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
    fn ready(&mut self, at: Time, id: TaskId, ready: Ready) {
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

    /// Moves a task's request through the FSM; an event that has no place leaves it as it is.
    pub(super) fn step(&mut self, id: TaskId, event: RequestEvent) {
        let request = self.tasks.get_mut(&id).and_then(|t| t.request.as_mut());
        if let Some(request) = request
            && let Some(next) = fsm::next(request.state, event)
        {
            request.state = next;
        }
    }
}

impl super::Grant {
    /// Counts a task that began.
    fn begin(&mut self, task: TaskId) {
        self.tasks.push(task);
        self.open_tasks += 1;
    }

    /// Counts an agent among those that the grant woke.
    pub(super) fn wake(&mut self, agent: AgentId) {
        if !self.agents.contains(&agent) {
            self.agents.push(agent);
        }
    }
}

impl Asker {
    /// Whether a task of an agent asks.
    #[must_use]
    pub const fn is_task(self) -> bool {
        matches!(self, Self::Task { .. })
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

impl Task {
    fn new(at: Time, agent: AgentId, asker: Asker, conv: ConvId, grant: GrantId) -> Self {
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
    pub const fn turn(&self) -> Option<crate::ids::TurnId> {
        match self.phase {
            Phase::Open(turn) => Some(turn),
            Phase::Queued | Phase::Waiting | Phase::Closed(..) => None,
        }
    }
}

impl Request {
    fn new(message: &Message, terms: &Terms, seq: Seq) -> Self {
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
