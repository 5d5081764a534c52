//! Time: handles every timer that is due; each decision is a fact.

use alloc::vec::Vec;

use lastword_facts::envelope::AnswerStatus;
use lastword_facts::fact::{
    Answer, Decision, EndReason, Fact, GrantEnd, Latched, Rerun, SYSTEM, Spend, TurnClosed, TurnEnd,
};
use lastword_facts::ids::{AgentId, GrantId, TaskId, TurnId};
use lastword_facts::refusal::{Code, Refusal};

use super::Step;
use crate::state::{GrantDue, Task, Timer};

/// The number of time-outs after which a task is given up; the first is retried (Q3, F4).
const LOST_MAX: u32 = 2;

impl Step<'_> {
    pub(super) fn tick(&mut self) {
        // One timer at a time: handling one may remove or set others.
        while let Some((at, timer)) = self.state().timers.first()
            && at <= self.now
        {
            let before = self.state().seq;
            match timer {
                Timer::Ack(agent) => self.ack_due(agent),
                Timer::Lease(turn) => self.lease_due(turn),
                Timer::Deadline(task) => {
                    let outcome = Answer::outcome(task, AnswerStatus::TimedOut, EndReason::Deadline);
                    self.settle(outcome, SYSTEM, "".into(), None);
                }
                Timer::Grant(grant) => self.grant_due(grant),
                Timer::Approval(approval) => self.decided(approval, None, Decision::Expire, None, None),
                Timer::Claim(claim) => self.record(Fact::Released { claim }),
                Timer::Escalation(escalation) => self.escalation_due(escalation),
                Timer::Rest(agent) => self.rest_over(agent),
                Timer::Unattended => self.unattended_due(),
            }
            debug_assert_ne!(self.state().seq, before, "what a timer decides is a fact");
        }
    }

    /// Handles the clock of a grant, or of its latch (D8).
    fn grant_due(&mut self, id: GrantId) {
        // The root of a typed prompt stays open while the prompt is in force, and has nothing to wait for (H8).
        if let Some(root) = self.state().grants.get(&id).and_then(|grant| grant.root_task()) {
            self.end_idle_root(root);
        }
        let known = self.state().grants.get(&id).filter(|grant| grant.end.is_none());
        match known.and_then(|grant| self.state().grant_due(grant, self.now)) {
            Some(GrantDue::Warning(percent)) => {
                let giver = self.state().grants[&id].giver;
                self.record(Fact::GrantAged { grant: id, percent });
                self.wake(giver);
            }
            Some(GrantDue::Latch) => {
                let grant = &self.state().grants[&id];
                let (opened, expires) = (grant.opened_at, grant.expires_at);
                let refusal = Refusal::new(Code::GrantExpired).numbers(expires.since(opened), self.now.since(opened));
                self.latch(Latched::Grant(id), &refusal);
            }
            Some(GrantDue::Close) => self.end_grant(id, GrantEnd::Expired, EndReason::GrantExpired),
            None => debug_assert!(known.is_none(), "the timer of a grant is set to what is due"),
        }
    }

    /// Ends an agent's rest, because the day is over whose budget was used up.
    fn rest_over(&mut self, agent: AgentId) {
        self.record(Fact::AgentRested { agent, until: None });
        self.wake(agent);
    }

    fn ack_due(&mut self, agent: AgentId) {
        let Some(id) = Task::overdue(self.state(), agent, self.now) else {
            debug_assert!(false, "an ack timer fires when its request is overdue");
            return;
        };
        let task = &self.state().tasks[&id];
        let runs = task.request.as_ref().map_or(0, |r| u64::from(r.runs));
        if task.lost + 1 < LOST_MAX && runs < self.state().limits.runs_max {
            self.requeue(id, agent, Rerun::AckTimeout, None);
        } else {
            self.time_out(id, EndReason::NotAcknowledged);
        }
    }

    fn lease_due(&mut self, id: TurnId) {
        let turn = &self.state().turns[&id];
        let (task, agent) = (turn.task, turn.agent);
        let opening = self.state().tasks[&task].request.as_ref().map(|r| r.message);
        // Only a turn that the request opened is run again as a request; a turn opened by an answer just gets the
        // answer again.
        let opened_it = opening.is_some() && turn.delivered.first().map(|d| d.message) == opening;
        let spend = turn.charged().max(Spend { tokens: turn.estimate(), cost_microusd: 0 });
        self.record(Fact::TurnClosed(TurnClosed { turn: id, end: TurnEnd::LeaseLost, status: None, spend }));
        self.check_day(agent);
        self.after_lost_lease(task, agent, opened_it);
        self.wake(agent);
    }

    fn after_lost_lease(&mut self, id: TaskId, agent: AgentId, opened_it: bool) {
        let task = &self.state().tasks[&id];
        let runs = task.request.as_ref().map_or(0, |r| u64::from(r.runs));
        if task.lost >= LOST_MAX || (opened_it && runs >= self.state().limits.runs_max) {
            self.time_out(id, EndReason::LeaseLost);
        } else if opened_it {
            self.requeue(id, agent, Rerun::LeaseLost, None);
        }
    }

    /// Ends a grant with everything that is open in it.
    pub(super) fn end_grant(&mut self, id: GrantId, end: GrantEnd, cause: EndReason) {
        if self.state().grants.get(&id).is_none_or(|grant| grant.end.is_some()) {
            return;
        }
        let open: Vec<TaskId> = self.state().open_tasks_of(id).collect();
        // The end first, so that settling its last task doesn't close it as finished.
        self.record(Fact::GrantClosed { grant: id, end });
        let status = if end == GrantEnd::Expired { AnswerStatus::TimedOut } else { AnswerStatus::Cancelled };
        for task in open {
            self.settle(Answer::outcome(task, status, cause), SYSTEM, "".into(), None);
        }
    }
}
