//! The fold of turns, and of the clocks that stand still: time to acknowledge and a grant's age.

use alloc::boxed::Box;

use thin_vec::ThinVec;

use super::small::{LAST, append};
use super::{Few, Opt, Partial, Phase, Ready, State, Task, Timer, Turn};
use crate::fact::{PartialResult, Rerun, Spend, TurnEnd};
use crate::fsm::RequestEvent;
use crate::ids::{AgentId, Seq, TaskId, Time, TurnId};

impl State {
    pub(super) fn joined(&mut self, at: Time, turn: TurnId, message: Seq, lease_until: Time) {
        self.renew(turn, lease_until);
        if let Some(task) = self.turns.get(&turn).map(|t| t.task) {
            self.deliver(at, task, message, Some(turn));
        }
    }

    pub(super) fn renewed(&mut self, at: Time, turn: TurnId, lease_until: Time) {
        self.renew(turn, lease_until);
        if let Some(turn) = self.turns.get_mut(&turn) {
            turn.progress_at = at.into();
        }
    }

    pub(super) fn turn_closed(&mut self, at: Time, turn: TurnId, end: TurnEnd, spend: Spend) {
        self.end_turn(at, turn, end);
        self.spend(at, turn, spend);
    }

    pub(super) fn turn_finished(&mut self, at: Time, turn: TurnId, spend: Spend, said: u64) {
        self.turn_closed(at, turn, TurnEnd::Finished, spend);
        if let Some(turn) = self.turns.get_mut(&turn) {
            turn.said = said;
        }
    }

    pub(super) fn finished_late(&mut self, at: Time, turn: TurnId) {
        let Some(turn) = self.turns.get_mut(&turn) else { return };
        turn.late = true;
        let task = self.tasks.get(&turn.task);
        if let Some(asker) = task.and_then(|t| t.asker.agent()) {
            self.notice(at, asker);
        }
    }

    pub(super) fn turn_opened(&mut self, at: Time, id: TurnId, task: TaskId, message: Seq, lease_until: Time) {
        self.minted.turn = id.0;
        self.dequeue(at, task);
        let Some(served) = self.tasks.get_mut(&task) else { return };
        let agent = served.agent;
        let turn = Turn {
            agent,
            task,
            attempt: served.attempt,
            delivered: ThinVec::new(),
            lease_until,
            opened_at: at,
            refusals: 0,
            text_bytes: 0,
            notices_through: self.agents[agent.0 as usize].notices.back().map(|(seq, _)| *seq).into(),
            progress_at: Opt::none(),
            open: true,
            end: None,
            said: 0,
            late: false,
            decided: Opt::none(),
        };
        let opens = served.phase == Phase::Queued;
        served.phase = Phase::Open(id);
        append(&mut served.turns, id);
        let opening = served.request.as_ref().filter(|r| opens && r.message == message);
        let opening = opening.map(|r| Ready { message, depth: None, child: Opt::none(), bytes: r.bytes });
        if let Some(grant) = self.grants.get_mut(&served.grant) {
            grant.turns += 1;
        }
        self.turns.insert(id, turn);
        self.timers.insert(lease_until, Timer::Lease(id));
        self.agents[agent.0 as usize].turns.push(id);
        match opening {
            Some(opening) => {
                self.hand_over(id, opening);
                self.step(task, RequestEvent::Taken);
            }
            None => self.deliver(at, task, message, Some(id)),
        }
        self.refresh_clock(at, agent);
        self.grant_turn(at, task, true);
    }

    fn hand_over(&mut self, turn: TurnId, ready: Ready) {
        if let Some(turn) = self.turns.get_mut(&turn) {
            turn.text_bytes = turn.text_bytes.saturating_add(ready.bytes);
            append(&mut turn.delivered, ready);
        }
    }

    /// Delivers a ready message to a task: from now on its depth counts (D2).
    pub(super) fn deliver(&mut self, at: Time, id: TaskId, message: Seq, turn: Option<TurnId>) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let Some(place) = task.ready.iter().position(|r| r.message == message) else { return };
        let ready = task.ready.remove(place);
        if let Some((conv, depth)) = ready.depth {
            match task.received.iter_mut().find(|(c, _)| *c == conv) {
                Some((_, deepest)) => *deepest = depth.max(*deepest),
                None => append(&mut task.received, (conv, depth)),
            }
        }
        let idle = task.phase == Phase::Waiting && task.ready.is_empty();
        if let Some(child) = ready.child.get() {
            self.step(child, RequestEvent::Delivered);
        }
        match turn {
            Some(turn) => self.hand_over(turn, ready),
            None if idle => self.dequeue(at, id),
            None => {}
        }
    }

    pub(super) fn renew(&mut self, id: TurnId, lease_until: Time) {
        let Some(turn) = self.turns.get_mut(&id) else { return };
        self.timers.remove(turn.lease_until, Timer::Lease(id));
        turn.lease_until = lease_until;
        self.timers.insert(lease_until, Timer::Lease(id));
    }

    fn end_turn(&mut self, at: Time, id: TurnId, end: TurnEnd) {
        let Some(turn) = self.turns.get_mut(&id) else { return };
        turn.open = false;
        turn.end = Some(end);
        let (agent, task, lease, through) = (turn.agent, turn.task, turn.lease_until, turn.notices_through.get());
        let delivered = if end == TurnEnd::LeaseLost { core::mem::take(&mut turn.delivered) } else { ThinVec::new() };
        self.timers.remove(lease, Timer::Lease(id));
        self.agents[agent.0 as usize].turns.retain(|t| *t != id);
        if let (TurnEnd::Finished, Some(through)) = (end, through) {
            self.drop_notices(agent, through);
        }
        self.grant_turn(at, task, false);
        if let Some(task) = self.tasks.get_mut(&task) {
            task.phase = Phase::Waiting;
            if end == TurnEnd::LeaseLost {
                task.lost += 1;
                task.attempt += 1;
                let opening = task.request.as_ref().map(|r| r.message);
                for answer in delivered.into_iter().rev().filter(|d| Some(d.message) != opening) {
                    task.ready.insert(0, answer);
                }
            }
            if !task.ready.is_empty() {
                self.enqueue(at, self.turns[&id].task);
            }
        }
        self.refresh_clock(at, agent);
    }

    fn spend(&mut self, at: Time, turn: TurnId, spend: Spend) {
        let Some(turn) = self.turns.get(&turn) else { return };
        let grant = self.tasks.get(&turn.task).map(|t| t.grant);
        let day = &mut self.agents[turn.agent.0 as usize].day;
        *day = day.on(at);
        day.spend.add(spend);
        if let Some(grant) = grant.and_then(|g| self.grants.get_mut(&g)) {
            grant.spend.add(spend);
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
        self.dequeue(at, id);
        let seq = self.seq;
        let incarnation = self.agents[agent.0 as usize].incarnation;
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let before = core::mem::replace(&mut task.agent, agent);
        task.incarnation = incarnation;
        task.phase = Phase::Queued;
        // A lost lease began the next attempt already, so that its token was fenced at once.
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
        if matches!(why, Rerun::Rejected | Rerun::Partial) {
            self.withdraw(at, id);
        }
        self.step(id, RequestEvent::Requeued);
        let above = self.ancestors(id).collect::<Few<AgentId, 4>>();
        let asked = self.tasks[&id].delegates.iter().map(|d| d.agent);
        let partners: Few<AgentId, 4> = above.into_iter().chain(asked).collect();
        let runner = &mut self.agents[agent.0 as usize];
        for partner in partners {
            runner.partners.insert((partner, id));
        }
        if let Some(grant) = self.grants.get_mut(&grant) {
            grant.wake(agent);
        }
        if let Some(conv) = self.conversations.get_mut(&conv)
            && let Err(place) = conv.participants.binary_search(&agent)
        {
            conv.participants.insert(place, agent);
        }
        self.enqueue(at, id);
    }

    /// Starts the time to acknowledge of a queued request that nothing parks.
    pub(super) fn arm_ack(&mut self, at: Time, id: TaskId) {
        let Some(request) = self.tasks.get(&id).and_then(|t| t.request.as_ref()) else { return };
        let sent = request.state == crate::fsm::RequestState::RequestSent;
        let time_ms = if sent { request.ack_ms } else { self.limits.lease_ms };
        self.arm(at, id, time_ms);
    }

    /// Starts a clock of `ack_ms` of the recipient's free time for a request that waits in its queue.
    pub(super) fn arm(&mut self, at: Time, id: TaskId, ack_ms: u64) {
        let Some(task) = self.tasks.get(&id).filter(|t| t.phase == Phase::Queued) else { return };
        if task.ack_due.is_some() || self.is_parked(task) {
            return;
        }
        let (agent, grant) = (task.agent, task.grant);
        let sent = task.request.as_ref().is_some_and(|r| r.state == crate::fsm::RequestState::RequestSent);
        let slow = sent && self.agents[agent.0 as usize].own_limits().ack_ms > 0;
        let clock = &mut self.agents[agent.0 as usize].ack;
        let due = clock.free_at(at).saturating_add(ack_ms).min(LAST);
        clock.due.insert((due, id));
        if let Some(task) = self.tasks.get_mut(&id) {
            task.ack_due = due.into();
            task.slow = slow;
        }
        self.reset_ack_timer(agent);
        if slow {
            self.slow_request(at, grant, true);
        }
    }

    pub(super) fn disarm_ack(&mut self, at: Time, id: TaskId) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let Some(due) = task.ack_due.take() else { return };
        let (agent, grant, slow) = (task.agent, task.grant, core::mem::take(&mut task.slow));
        self.agents[agent.0 as usize].ack.due.remove(&(due, id));
        self.reset_ack_timer(agent);
        if slow {
            self.slow_request(at, grant, false);
        }
    }

    /// Tasks that were parked or are no longer: their time to acknowledge stops or starts anew.
    pub(super) fn rearm_all(&mut self, at: Time, tasks: impl IntoIterator<Item = TaskId>) {
        for id in tasks {
            self.disarm_ack(at, id);
            self.arm_ack(at, id);
        }
    }

    /// Starts or stops an agent's clock of free time, after anything that it depends on has changed.
    pub(super) fn refresh_clock(&mut self, at: Time, id: AgentId) {
        let takes = self.may_take(id);
        let limits = &self.limits;
        let Some(agent) = self.agents.get_mut(id.0 as usize) else { return };
        let free = takes && (agent.turns.len() as u64) < agent.turns_max(limits);
        let clock = &mut agent.ack;
        clock.free_ms = clock.free_at(at);
        clock.since = free.then_some(at).into();
        self.reset_ack_timer(id);
    }

    pub(super) fn reset_ack_timer(&mut self, id: AgentId) {
        let clock = &mut self.agents[id.0 as usize].ack;
        let next = clock.due.first().zip(clock.since.get());
        let next = next.map(|((due, _), since)| since.plus(due.saturating_sub(clock.free_ms)).min(Time(LAST)));
        if next == clock.timer.get() {
            return;
        }
        if let Some(old) = core::mem::replace(&mut clock.timer, next.into()).get() {
            self.timers.remove(old, Timer::Ack(id));
        }
        if let Some(next) = next {
            self.timers.insert(next, Timer::Ack(id));
        }
    }
}

impl super::AckClock {
    /// Free time until `at`, in ms.
    pub(super) fn free_at(&self, at: Time) -> u64 {
        self.free_ms.saturating_add(self.since.get().map_or(0, |since| at.since(since)))
    }
}

impl Task {
    /// The request that is due first, if `agent`'s time to acknowledge is over at `now`.
    pub(crate) fn overdue(state: &State, agent: AgentId, now: Time) -> Option<TaskId> {
        let clock = &state.agent(agent)?.ack;
        let (due, task) = clock.due.first()?;
        (*due <= clock.free_at(now)).then_some(*task)
    }
}
