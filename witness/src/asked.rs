//! Escalations (H1) and held calls (H2, H3): each ends in exactly one state.

#![expect(clippy::wildcard_enum_match_arm, reason = "the dispatch names every fact; this part looks at its own")]

use lastword_facts::fact::{
    ApprovalAsked, ApprovalDecided, Decision, EscalationCause, EscalationOpened, Fact, Role, SYSTEM,
};
use lastword_facts::ids::{AgentId, ApprovalId, EscalationId, TaskId, Time};
use lastword_facts::policy::{ApprovalRule, Ruling};
use serde::Serialize;

use super::Witness;

/// An open question to a human.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Escalation {
    agent: AgentId,
    pub(super) task: Option<TaskId>,
    cause: EscalationCause,
    pub(super) at: Time,
    expires_at: Time,
}

impl Escalation {
    /// Returns whether an agent asked it. The broker's own notices are forgotten after a time.
    pub(super) fn is_waited_for(&self) -> bool {
        self.cause == EscalationCause::Asked
    }
}

/// A held call that is pending, or approved and unused.
#[derive(Clone, Debug, Serialize)]
pub(super) struct HeldCall {
    agent: AgentId,
    pub(super) task: Option<TaskId>,
    expires_at: Time,
    rule: Option<Box<ApprovalRule>>,
    /// The time of the approval; `None` while pending.
    approved_at: Option<Time>,
}

impl HeldCall {
    pub(super) const fn idled(&mut self, ms: u64) {
        if self.approved_at.is_none() {
            self.expires_at = self.expires_at.plus(ms);
        }
    }

    /// Returns whether the approval has expired.
    pub(super) fn is_past(&self, at: Time, use_ms: u64) -> bool {
        self.approved_at.is_some_and(|decided| at.since(decided) > use_ms)
    }
}

impl Witness {
    pub(super) fn see_asked(&mut self, fact: &Fact) {
        match fact {
            Fact::EscalationOpened(EscalationOpened { escalation, task, agent, cause, .. }) => {
                self.escalation_opened(*escalation, *task, *agent, *cause);
            }
            Fact::EscalationNoted { escalation, by, .. } | Fact::EscalationAnswered { escalation, by, .. } => {
                self.human_may(*by, fact);
                self.escalation_ended(*escalation);
            }
            Fact::EscalationExpired { escalation } => {
                let due = self.escalations.get(escalation).is_none_or(|known| self.at >= known.expires_at);
                self.expect(due, "a question has its time", || escalation.to_string());
                self.escalation_ended(*escalation);
            }
            Fact::LiftChosen { escalation, by, .. } => {
                self.human_may(*by, fact);
                let open = self.escalations.contains_key(escalation);
                self.expect(open, "each escalation ends once", || escalation.to_string());
            }
            Fact::ApprovalAsked(ApprovalAsked { approval, task, agent, expires_at, .. }) => {
                self.expect(approval.0 > self.last.approval, "numbers are given once", || approval.to_string());
                self.last.approval = self.last.approval.max(approval.0);
                let held =
                    HeldCall { agent: *agent, task: *task, expires_at: *expires_at, rule: None, approved_at: None };
                self.approvals.insert(*approval, held);
                self.question(*task);
                self.see_write(*agent);
            }
            Fact::ApprovalRuled { approval, rule } => {
                if let Some(held) = self.approvals.get_mut(approval) {
                    held.rule = Some(rule.clone());
                }
            }
            Fact::ApprovalDecided(ApprovalDecided { approval, by, decision, .. }) => {
                self.decided(*approval, *by, *decision)
            }
            Fact::ApprovalUsed { approval } => self.used(*approval),
            other => super::misdirected(other),
        }
    }

    fn escalation_opened(&mut self, id: EscalationId, task: Option<TaskId>, agent: AgentId, cause: EscalationCause) {
        self.expect(id.0 > self.last.escalation, "numbers are given once", || id.to_string());
        self.last.escalation = self.last.escalation.max(id.0);
        let asked = cause == EscalationCause::Asked;
        let ms = if self.limits.escalation_ms == 0 { u64::MAX } else { self.limits.escalation_ms };
        let expires_at = self.at.plus(ms);
        self.escalations.insert(id, Escalation { agent, task, cause, at: self.at, expires_at });
        if !asked {
            return;
        }
        self.question(task);
        self.see_write(agent);
        let max = self.limits.escalations_open_max;
        if let Some(party) = self.parties.get_mut(&agent) {
            party.escalations += 1;
            let open = party.escalations;
            self.expect(open <= max, "open escalations of an agent", || format!("{open} of {max}"));
        }
    }

    /// Counts a question against the task's limit.
    fn question(&mut self, task: Option<TaskId>) {
        let max = self.limits.task_questions_max;
        let Some(task) = task.and_then(|task| self.tasks.get_mut(&task)) else { return };
        task.questions += 1;
        let questions = task.questions;
        self.expect(questions <= max, "questions of a task", || format!("{questions} of {max}"));
    }

    /// Ends an escalation, which must be open.
    pub(super) fn escalation_ended(&mut self, id: EscalationId) {
        let known = self.escalations.remove(&id);
        self.expect(known.is_some(), "each escalation ends once", || id.to_string());
        if let Some(known) = known {
            self.waits_no_longer(&known);
        }
    }

    fn waits_no_longer(&mut self, escalation: &Escalation) {
        if let Some(party) = self.parties.get_mut(&escalation.agent).filter(|_| escalation.is_waited_for()) {
            party.escalations = party.escalations.saturating_sub(1);
        }
    }

    /// Withdraws a task's questions when it ends or is run again; its end also voids approved calls.
    pub(super) fn withdraw(&mut self, task: TaskId, over: bool) {
        let asked: Vec<EscalationId> =
            self.escalations.iter().filter(|(_, e)| e.task == Some(task)).map(|(id, _)| *id).collect();
        for id in asked {
            if let Some(known) = self.escalations.remove(&id) {
                self.waits_no_longer(&known);
            }
        }
        self.approvals.retain(|_, held| held.task != Some(task) || (held.approved_at.is_some() && !over));
    }

    /// Withdraws the questions of an agent that was removed.
    pub(super) fn leaves(&mut self, agent: AgentId) {
        self.escalations.retain(|_, escalation| escalation.agent != agent);
        self.approvals.retain(|_, held| held.agent != agent);
    }

    fn decided(&mut self, id: ApprovalId, by: Option<AgentId>, decision: Decision) {
        let Some(held) = self.approvals.remove(&id).filter(|held| held.approved_at.is_none()) else {
            return self.expect(false, "an approval is decided once", || id.to_string());
        };
        let may = match by {
            None => decision == Decision::Expire && self.at >= held.expires_at,
            Some(SYSTEM) => held.rule.as_ref().is_some_and(|rule| match rule.ruling {
                Ruling::Allow => decision == Decision::Approve,
                Ruling::Deny => decision == Decision::Reject,
                Ruling::Ask => false,
            }),
            Some(by) if self.is_human(by) => self.has_role(by, Role::Approver) && decision != Decision::Expire,
            // It may give its own call up.
            Some(by) if by == held.agent => decision == Decision::Ignore,
            Some(by) => self.agent_may_decide(by, &held) && decision != Decision::Expire,
        };
        self.expect(may, "an approval is decided by who may", || format!("{id} by {by:?}: {decision}"));
        if matches!(decision, Decision::Approve | Decision::Edit) {
            self.approvals.insert(id, HeldCall { approved_at: Some(self.at), ..held });
        }
    }

    /// Returns whether an agent may decide a held call: never the asking agent nor one that works for it (H3).
    fn agent_may_decide(&self, by: AgentId, held: &HeldCall) -> bool {
        let who = held.rule.as_ref().and_then(|rule| rule.who.as_ref()).unwrap_or(&self.limits.approvers);
        let name = self.parties.get(&by).filter(|party| party.live).map(|party| &party.name);
        let named = name.is_some_and(|name| who.agents.contains(name));
        let asker =
            held.task.and_then(|task| self.tasks.get(&task)).and_then(|task| task.asker).map(|(agent, _)| agent);
        let mut own = self.tasks.iter().filter(|(_, task)| task.agent == by).map(|(id, _)| *id);
        let below = own.any(|task| self.above(task).any(|agent| agent == held.agent));
        by != held.agent && !below && (named || (who.asker && asker == Some(by)))
    }

    /// Returns the agents above a task, its requester first.
    fn above(&self, task: TaskId) -> impl Iterator<Item = AgentId> + '_ {
        let mut next = self.tasks.get(&task).and_then(|task| task.asker);
        std::iter::from_fn(move || {
            let (agent, task) = next.take()?;
            next = task.and_then(|task| self.tasks.get(&task)).and_then(|task| task.asker);
            Some(agent)
        })
    }

    fn used(&mut self, id: ApprovalId) {
        let approved = self.approvals.remove(&id).and_then(|held| held.approved_at);
        self.expect(approved.is_some(), "an approval is used at most once, where it was approved", || id.to_string());
        let (max, since) = (self.limits.approval_use_ms, approved.map_or(0, |at| self.at.since(at)));
        self.expect(since <= max, "an approved call is made in time", || format!("{id}: {since} ms of {max}"));
    }
}
