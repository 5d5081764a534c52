//! The time to acknowledge, which runs only while the recipient is free (Q2).

use serde::{Deserialize, Serialize};

use lastword_facts::fsm::RequestState;
use lastword_facts::ids::{AgentId, TaskId, Time};
use lastword_facts::status::Running;

use super::small::LAST;
use super::{Opt, Phase, Sorted, State, Task, Timer};

/// A clock of an agent's free time, in which its time to acknowledge is measured (Q2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AckClock {
    /// The free time before `since`, in ms.
    pub(crate) free_ms: u64,
    /// The start of the current free time; none while the agent is busy.
    pub(crate) since: Opt<Time>,
    /// Unacknowledged requests, by the free time at which each is due.
    pub(crate) due: Sorted<(u64, TaskId), 1>,
    /// The moment of the timer that is set.
    pub(crate) timer: Opt<Time>,
}

impl State {
    /// Starts the time to acknowledge of a queued request, unless a pause, stop or latch parks it.
    pub(super) fn arm_ack(&mut self, at: Time, id: TaskId) {
        self.refresh_wait(at, id);
        let Some(request) = self.tasks.get(&id).and_then(|t| t.request.as_ref()) else { return };
        let sent = request.state == RequestState::RequestSent;
        // A request that was acknowledged before it was parked has a lease's time again, as in `grant_time`.
        let time_ms = if sent { request.ack_ms } else { self.limits.lease_ms };
        self.arm(at, id, time_ms);
    }

    /// Gives a request that was acknowledged but not taken the time of a lease from then on, like a turn (Q2).
    pub(super) fn grant_time(&mut self, at: Time, id: TaskId, eta_ms: u64) {
        self.disarm_ack(at, id);
        let time_ms = self.limits.lease_ms.max(eta_ms.min(self.limits.eta_ms_max));
        self.arm(at, id, time_ms);
    }

    /// Counts, in its grant, a task that starts or stops waiting in a queue for something other than work (D8).
    pub(super) fn refresh_wait(&mut self, at: Time, id: TaskId) {
        let Some(task) = self.tasks.get(&id) else { return };
        let waits = task.queue_key.is_some() && self.waits_for_no_work(task);
        let Some(task) = self.tasks.get_mut(&id).filter(|task| task.waits != waits) else { return };
        task.waits = waits;
        let grant = task.grant;
        self.queued_wait(at, grant, waits);
    }

    /// Whether a queued task waits for a pause or latch to be lifted, or for an agent within its own time to acknowledge.
    fn waits_for_no_work(&self, task: &Task) -> bool {
        let agent = &self.agents[task.agent.0 as usize];
        let sent = || task.request.as_ref().is_some_and(|r| r.state == RequestState::RequestSent);
        let slow = || task.phase == Phase::Queued && agent.own_limits().ack_ms > 0 && sent();
        agent.running != Running::Active || slow() || self.is_parked(task)
    }

    /// Starts a clock of `ack_ms` of the recipient's free time for a request in its queue.
    pub(super) fn arm(&mut self, at: Time, id: TaskId, ack_ms: u64) {
        let Some(task) = self.tasks.get(&id).filter(|t| t.phase == Phase::Queued) else { return };
        // A parked request gets its time when the hold is lifted; see `rearm_all`.
        if task.ack_due.is_some() || self.is_parked(task) {
            return;
        }
        let agent = task.agent;
        let clock = &mut self.agents[agent.0 as usize].ack;
        // Due in the agent's free time, not in real time, so that a busy agent times out nothing.
        let due = clock.free_at(at).saturating_add(ack_ms).min(LAST);
        clock.due.insert((due, id));
        if let Some(task) = self.tasks.get_mut(&id) {
            task.ack_due = due.into();
        }
        self.reset_ack_timer(agent);
    }

    pub(super) fn disarm_ack(&mut self, at: Time, id: TaskId) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let agent = task.agent;
        if let Some(due) = task.ack_due.take() {
            self.agents[agent.0 as usize].ack.due.remove(&(due, id));
            self.reset_ack_timer(agent);
        }
        self.refresh_wait(at, id);
    }

    /// Restarts or stops the time to acknowledge of tasks, after they were parked or released.
    pub(super) fn rearm_all(&mut self, at: Time, tasks: impl IntoIterator<Item = TaskId>) {
        for id in tasks {
            self.disarm_ack(at, id);
            self.arm_ack(at, id);
        }
    }

    /// Starts or stops an agent's clock of free time, after any of its conditions has changed.
    pub(super) fn refresh_clock(&mut self, at: Time, id: AgentId) {
        let takes = self.may_take(id);
        let limits = &self.limits;
        let Some(agent) = self.agents.get_mut(id.0 as usize) else { return };
        let free = takes && (agent.turns.len() as u64) < agent.turns_max(limits);
        let clock = &mut agent.ack;
        // Add up the free time so far before `since` changes.
        clock.free_ms = clock.free_at(at);
        clock.since = free.then_some(at).into();
        self.reset_ack_timer(id);
    }

    pub(super) fn reset_ack_timer(&mut self, id: AgentId) {
        let clock = &mut self.agents[id.0 as usize].ack;
        // While the agent is busy `since` is none: its clock is stopped, so no timer is set.
        let next = clock.due.first().zip(clock.since.get());
        let next = next.map(|((due, _), since)| since.plus(due.saturating_sub(clock.free_ms)).min(Time(LAST)));
        // Most changes leave the earliest request the same; the timers are touched only if it changed.
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

impl AckClock {
    /// Returns the free time until `at`, in ms.
    pub(super) fn free_at(&self, at: Time) -> u64 {
        self.free_ms.saturating_add(self.since.get().map_or(0, |since| at.since(since)))
    }
}

impl Task {
    /// Returns the request of `agent` that is due first, if its time to acknowledge is over at `now`.
    pub(crate) fn overdue(state: &State, agent: AgentId, now: Time) -> Option<TaskId> {
        let clock = &state.agent(agent)?.ack;
        let (due, task) = clock.due.first()?;
        (*due <= clock.free_at(now)).then_some(*task)
    }
}
