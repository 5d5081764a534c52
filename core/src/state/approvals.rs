//! Approvals: tool calls that are held for a decision (H2, H3).

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use lastword_facts::envelope::JsonText;
use lastword_facts::fact::{Decision, Digest, SYSTEM};
use lastword_facts::ids::{AgentId, ApprovalId, TaskId, Time};
use lastword_facts::policy::ApprovalRule;
use lastword_facts::status::ApprovalState;

use super::{Agent, Closed, Opt, State, Task, Timer};

/// A held tool call (H2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// The task in which the call would be made; `None` outside every turn.
    pub task: Option<TaskId>,
    /// The agent that would make the call.
    pub agent: AgentId,
    /// The name of the tool.
    pub tool: Box<str>,
    /// The arguments that may be used: as requested, or as edited.
    pub arguments: JsonText,
    /// For an edited call: the arguments that the agent requested.
    pub requested: Option<JsonText>,
    /// The agent's reason for the call.
    pub reason: Option<Box<str>>,
    /// The digest of the call that may be made.
    pub digest: Digest,
    /// Whether it is pending, and how it was decided or used.
    pub state: ApprovalState,
    /// The time at which the call was held.
    pub at: Time,
    /// The time at which the call is denied if no decision is made.
    pub expires_at: Time,
    /// The time of the decision.
    pub decided_at: Opt<Time>,
    /// The decision, once there is one.
    pub decision: Option<Decision>,
    /// The human or agent who decided, or [`SYSTEM`] for a rule of the policy.
    pub by: Option<AgentId>,
    /// The comment of the human or agent who decided.
    pub comment: Option<Box<str>>,
    /// The policy rule that applied when the call was held.
    pub rule: Option<Box<ApprovalRule>>,
}

/// The call for which an approval is requested.
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
        at: Time,
        expires_at: Time,
    ) -> Self {
        Self {
            task,
            agent,
            tool,
            arguments,
            requested: None,
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

impl State {
    /// Whether the policy lets an agent decide an approval: never the agent that makes the call, nor an agent that
    /// works for it (H3). Not for humans, whose role decides.
    #[must_use]
    pub fn may_decide(&self, agent: AgentId, approval: &Approval) -> bool {
        let ruled = approval.rule.as_ref().and_then(|rule| rule.who.as_ref());
        let policy = ruled.unwrap_or(&self.limits.approvers);
        let asker = approval.task.and_then(|t| self.tasks.get(&t)).and_then(|t| t.asker.agent());
        let named = policy.agents.iter().any(|name| self.live(name.as_str()) == Some(agent));
        // An agent that works for the caller could be asked by it to approve.
        let mut tasks = self.agent(agent).into_iter().flat_map(Agent::grant_tasks);
        let works_for_it = tasks.any(|task| self.ancestors(task).any(|above| above == approval.agent));
        agent != approval.agent && !works_for_it && (named || (policy.asker && asker == Some(agent)))
    }

    /// Returns the agents that the policy names as deciders of an approval, whether or not they may decide this one.
    #[must_use]
    pub fn deciders(&self, approval: &Approval) -> Vec<AgentId> {
        let ruled = approval.rule.as_ref().and_then(|rule| rule.who.as_ref());
        let policy = ruled.unwrap_or(&self.limits.approvers);
        let asker = approval.task.and_then(|t| self.tasks.get(&t)).and_then(|t| t.asker.agent());
        let mut found: Vec<AgentId> = policy.agents.iter().filter_map(|name| self.live(name.as_str())).collect();
        found.extend(asker.filter(|_| policy.asker));
        found.sort_unstable();
        found.dedup();
        found
    }

    pub(super) fn approval_asked(
        &mut self,
        at: Time,
        id: ApprovalId,
        task: Option<TaskId>,
        agent: AgentId,
        call: AskedCall,
        expires_at: Time,
    ) {
        self.minted.approval = id.0;
        self.timers.insert(expires_at, Timer::Approval(id));
        self.agents[agent.0 as usize].approvals_open += 1;
        // A held call is a write, so it counts in the agent's windows (G1).
        self.charge_sender(at, agent, agent);
        self.approvals.insert(id, Approval::asked(task, agent, call, at, expires_at));
        if let Some(waiting) = task.and_then(|t| self.tasks.get_mut(&t)) {
            waiting.approvals.push(id);
            waiting.rare.get_or_insert_default().questions += 1;
            let grant = waiting.grant;
            self.human_wait(at, grant, true);
        }
    }

    pub(super) fn approval_ruled(&mut self, id: ApprovalId, rule: &ApprovalRule) {
        if let Some(approval) = self.approvals.get_mut(&id) {
            approval.rule = Some(Box::new(rule.clone()));
        }
    }

    pub(super) fn approval_decided(
        &mut self,
        at: Time,
        id: ApprovalId,
        by: Option<AgentId>,
        decision: Decision,
        comment: Option<&str>,
        edited: Option<&(JsonText, Digest)>,
    ) {
        self.end_approval(at, id, decided_state(decision));
        let Some(approval) = self.approvals.get_mut(&id) else { return };
        approval.decided_at = at.into();
        approval.decision = Some(decision);
        approval.by = by;
        approval.comment = comment.map(Box::from);
        if let Some((arguments, digest)) = edited {
            // The edited call replaces the requested one: only its digest can be used.
            approval.requested = Some(core::mem::replace(&mut approval.arguments, arguments.clone()));
            approval.digest = *digest;
        }
        if by == Some(SYSTEM) {
            // The policy decided, and the reply to the agent's call says so already.
            return;
        }
        let (agent, task) = (approval.agent, approval.task);
        let turn = task.and_then(|t| self.tasks.get(&t)).and_then(Task::turn);
        // If the agent finishes as `waiting` without having read this decision, the finish finds it here.
        let seq = self.seq;
        if let Some(turn) = turn.and_then(|t| self.turns.get_mut(&t)) {
            turn.decided = seq.into();
        }
        self.notice(at, agent);
    }

    pub(super) fn approval_offered(&mut self, at: Time, to: &[AgentId]) {
        for agent in to {
            self.notice(at, *agent);
        }
    }

    pub(super) fn approval_used(&mut self, id: ApprovalId) {
        if let Some(approval) = self.approvals.get_mut(&id) {
            approval.state = ApprovalState::Used;
        }
    }

    /// Ends an approval, if it is pending.
    pub(super) fn end_approval(&mut self, at: Time, id: ApprovalId, state: ApprovalState) {
        let Some(approval) = self.approvals.get_mut(&id).filter(|a| a.state == ApprovalState::Pending) else { return };
        approval.state = state;
        self.timers.remove(approval.expires_at, Timer::Approval(id));
        let (agent, task) = (approval.agent, approval.task);
        // Saturating: a counter that is off must not stop the fold of a log.
        let open = &mut self.agents[agent.0 as usize].approvals_open;
        *open = open.saturating_sub(1);
        if let Some(waiting) = task.and_then(|t| self.tasks.get_mut(&t)) {
            waiting.approvals.retain(|a| *a != id);
            let grant = waiting.grant;
            self.human_wait(at, grant, false);
        }
        self.closed.push_back((at, Closed::Approval(id)));
    }
}

const fn decided_state(decision: Decision) -> ApprovalState {
    match decision {
        Decision::Approve | Decision::Edit => ApprovalState::Approved,
        Decision::Reject | Decision::Respond => ApprovalState::Rejected,
        Decision::Ignore => ApprovalState::Ignored,
        Decision::Expire => ApprovalState::Expired,
    }
}
