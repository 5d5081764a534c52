//! The fold of what humans and resources are about: escalations, approvals, claims, rooms.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{
    Approval, ApprovalState, AskedCall, Claim, Closed, Conversation, Escalation, EscalationState, Few, Known, Lifts,
    Opt, Room, RootLine, State, Timer,
};
use crate::envelope::JsonText;
use crate::fact::{Decision, Digest, EscalationCause, Key, Lift, Met, SYSTEM};
use crate::ids::{AgentId, ApprovalId, ClaimId, ConvId, EscalationId, GrantId, HOUR_MS, RoomId, Seq, TaskId, Time};
use crate::names::Ref;
use crate::policy::ApprovalRule;

impl State {
    pub(super) fn conversation_opened(
        &mut self,
        at: Time,
        id: ConvId,
        reference: &Ref,
        parent: Option<ConvId>,
        opener: AgentId,
    ) {
        self.minted.conv = id.0;
        if let Some(parent) = parent.and_then(|p| self.conversations.get_mut(&p)) {
            parent.children += 1;
        }
        // What had this REF before and is still remembered keeps its records, and loses the name.
        if let Some(before) = self.conv_of(reference.as_str()) {
            self.unname(reference, before);
        }
        self.refs.insert(reference.as_str(), id.0);
        self.count_prefixes(reference.as_str(), true);
        self.closed.push_back((at, Closed::Conversation(id)));
        self.conversations.insert(id, Conversation::new(at, reference.clone(), parent, opener));
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

    pub(super) fn escalation_opened(
        &mut self,
        at: Time,
        id: EscalationId,
        task: Option<TaskId>,
        agent: AgentId,
        conv: ConvId,
        cause: EscalationCause,
    ) {
        self.minted.escalation = id.0;
        let asked = Escalation {
            task,
            agent,
            conv,
            cause,
            asked: self.seq,
            at,
            state: EscalationState::Open,
            by: None,
            answer: None,
            expires_at: Opt::none(),
            lifts: None,
        };
        self.escalations.insert(id, asked);
        self.arm_escalation(id);
        let human = self.human_for(task);
        self.notice(at, human);
        if cause == EscalationCause::TimedOut {
            self.closed.push_back((at, Closed::Escalation(id)));
        }
        // What the broker tells of by itself is nothing that an agent wrote (G1).
        if cause == EscalationCause::Asked {
            self.charge_sender(at, agent, agent);
            self.agents[agent.0 as usize].escalations_open += 1;
        }
        let waits = task.filter(|_| cause == EscalationCause::Asked);
        if let Some(waiting) = waits.and_then(|t| self.tasks.get_mut(&t)) {
            waiting.escalations.push(id);
            waiting.rare.get_or_insert_default().questions += 1;
            let grant = waiting.grant;
            self.human_wait(at, grant, true);
        }
    }

    pub(super) fn escalation_keyed(&mut self, at: Time, id: EscalationId, sender: AgentId, key: &Key) {
        let fingerprint = Some(key.fingerprint);
        let known = Known { sender, fingerprint, messages: Few::new(), task: None, escalation: Some(id) };
        self.keys.choose(key.id.clone(), known);
        self.closed.push_back((at, Closed::Key(Box::new(key.id.clone()))));
    }

    pub(super) fn escalation_noted(&mut self, at: Time, id: EscalationId, by: AgentId) {
        let answer = Some((by, self.seq));
        if let Some(agent) = self.end_escalation(at, id, EscalationState::Answered, answer) {
            self.notice(at, agent);
        }
    }

    pub(super) fn escalation_lifts(&mut self, id: EscalationId, met: &Met, lifts: &[Lift]) {
        if let Some(known) = self.escalations.get_mut(&id) {
            known.lifts = Some(Box::new(Lifts { met: met.clone(), lifts: lifts.to_vec(), chosen: None }));
        }
    }

    pub(super) fn lift_chosen(&mut self, id: EscalationId, lift: u32) {
        if let Some(lifts) = self.escalations.get_mut(&id).and_then(|e| e.lifts.as_mut()) {
            lifts.chosen = Some(lift);
        }
    }

    /// Sets the time after which nobody's answer to an escalation of an agent is waited for (H1).
    fn arm_escalation(&mut self, id: EscalationId) {
        let Some(escalation) = self.escalations.get_mut(&id) else { return };
        if escalation.cause == EscalationCause::Asked && self.limits.escalation_ms > 0 {
            let expires_at = escalation.at.plus(self.limits.escalation_ms);
            escalation.expires_at = expires_at.into();
            self.timers.insert(expires_at, Timer::Escalation(id));
        }
    }

    /// Ends an escalation, if it is open; gives whose it was.
    pub(super) fn end_escalation(
        &mut self,
        at: Time,
        id: EscalationId,
        state: EscalationState,
        answer: Option<(AgentId, Seq)>,
    ) -> Option<AgentId> {
        let escalation = self.escalations.get_mut(&id).filter(|e| e.state == EscalationState::Open)?;
        escalation.state = state;
        escalation.by = answer.map(|(by, _)| by);
        escalation.answer = answer.map(|(_, seq)| seq);
        if let Some(expires_at) = escalation.expires_at.take() {
            self.timers.remove(expires_at, Timer::Escalation(id));
        }
        let (agent, task, cause) = (escalation.agent, escalation.task, escalation.cause);
        if cause == EscalationCause::Asked {
            let open = &mut self.agents[agent.0 as usize].escalations_open;
            *open = open.saturating_sub(1);
        }
        if let Some(waiting) = task.and_then(|t| self.tasks.get_mut(&t)) {
            waiting.escalations.retain(|e| *e != id);
            let grant = waiting.grant;
            self.human_wait(at, grant, false);
        }
        self.closed.push_back((at, Closed::Escalation(id)));
        Some(agent)
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
        self.charge_sender(at, agent, agent);
        self.approvals.insert(id, Approval::asked(task, agent, call, (at, expires_at)));
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
            approval.arguments.clone_from(arguments);
            approval.digest = *digest;
        }
        if by == Some(SYSTEM) {
            // The policy decided, and the reply to the asking says so.
            return;
        }
        let (agent, task) = (approval.agent, approval.task);
        let turn = task.and_then(|t| self.tasks.get(&t)).and_then(super::Task::turn);
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
        let open = &mut self.agents[agent.0 as usize].approvals_open;
        *open = open.saturating_sub(1);
        if let Some(waiting) = task.and_then(|t| self.tasks.get_mut(&t)) {
            waiting.approvals.retain(|a| *a != id);
            let grant = waiting.grant;
            self.human_wait(at, grant, false);
        }
        self.closed.push_back((at, Closed::Approval(id)));
    }

    /// What an agent asked for ends with it: nothing of it reaches a successor of the same name (§1).
    pub(super) fn leave_nothing_behind(&mut self, at: Time, agent: AgentId) {
        let asked: Vec<EscalationId> =
            self.escalations.iter().filter(|(_, e)| e.agent == agent).map(|(id, _)| *id).collect();
        for escalation in asked {
            self.end_escalation(at, escalation, EscalationState::Withdrawn, None);
        }
        let held: Vec<ApprovalId> =
            self.approvals.iter().filter(|(_, a)| a.agent == agent).map(|(id, _)| *id).collect();
        for id in held {
            self.end_approval(at, id, ApprovalState::Expired);
            if let Some(approval) = self.approvals.get_mut(&id).filter(|a| a.state == ApprovalState::Approved) {
                approval.state = ApprovalState::Expired;
            }
        }
    }

    fn human_wait(&mut self, at: Time, id: GrantId, begins: bool) {
        if let Some(grant) = self.grants.get_mut(&id) {
            let waits = grant.human_waits;
            grant.human_waits = if begins { waits.saturating_add(1) } else { waits.saturating_sub(1) };
        }
        self.refresh_grant(at, id);
    }

    pub(super) fn claimed(&mut self, at: Time, id: ClaimId, claim: Claim) {
        self.minted.claim = id.0;
        self.timers.insert(claim.expires_at, Timer::Claim(id));
        self.agents[claim.agent.0 as usize].claims += 1;
        self.charge_sender(at, claim.agent, claim.agent);
        self.claims.insert(id, claim);
    }

    pub(super) fn released(&mut self, id: ClaimId) {
        if let Some(claim) = self.claims.remove(&id) {
            self.timers.remove(claim.expires_at, Timer::Claim(id));
            let count = &mut self.agents[claim.agent.0 as usize].claims;
            *count = count.saturating_sub(1);
        }
    }

    pub(super) fn room_opened(&mut self, id: RoomId, name: &Ref, members: &[AgentId]) {
        self.minted.room = self.minted.room.max(id.0);
        self.room_names.insert(name.clone(), id);
        let old = self.rooms.remove(&id);
        let (agent_messages, latched, messages) =
            old.map_or((0, false, 0), |r| (r.agent_messages, r.latched, r.messages));
        let (name, members) = (name.clone(), members.to_vec());
        self.rooms.insert(id, Room { name, members, agent_messages, latched, messages });
    }

    pub(super) fn posted(&mut self, at: Time, room: RoomId, from: AgentId) {
        let human = self.agents[from.0 as usize].is_heard();
        self.charge_sender(at, from, from);
        if let Some(room) = self.rooms.get_mut(&room) {
            room.messages += 1;
            room.agent_messages = if human { 0 } else { room.agent_messages };
        }
    }

    pub(super) fn post_keyed(&mut self, at: Time, sender: AgentId, key: &Key, admitted: bool) {
        // The post is the fact after this one.
        let post = admitted.then(|| Seq(self.seq.0 + 1));
        let (fingerprint, messages) = (Some(key.fingerprint), Few::from_slice(post.as_slice()));
        let known = Known { sender, fingerprint, messages, task: None, escalation: None };
        if !self.keys.contains(key.id.as_str()) {
            self.closed.push_back((at, Closed::Key(Box::new(key.id.clone()))));
        }
        self.keys.choose(key.id.clone(), known);
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
