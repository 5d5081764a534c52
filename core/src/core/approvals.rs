//! Approvals: a held tool call is decided once, with the authority to do so, for exactly that call (H2, H3).

use alloc::boxed::Box;
use alloc::vec::Vec;

use lastword_facts::envelope::JsonText;
use lastword_facts::fact::{ApprovalAsked, ApprovalDecided, Decision, Digest, Fact, Role, SYSTEM, WriteKind};
use lastword_facts::ids::{AgentId, ApprovalId, TurnId};
use lastword_facts::names::RequestId;
use lastword_facts::policy::Ruling;
use lastword_facts::refusal::{Code, Refusal};
use lastword_facts::status::ApprovalState;

use super::admit::key;
use super::{Outcome, Step};
use crate::input::{HeldCall, Reply, TaskUse, Verdict};
use crate::rules::Rule;
use crate::state::{Approval, Phase, Principal};

impl Step<'_> {
    pub(super) fn ask_approval(&mut self, by: Principal, turn: Option<TurnId>, call: HeldCall) -> Outcome {
        let id = call.key.clone();
        let key = key(id.as_ref(), format_args!("{}\0{}\0{:?}", call.tool, call.arguments, call.digest));
        self.may(by, Role::Operator)?;
        // Before the admission: asking again while the call is pending isn't another write and can't be refused as one.
        if let Some(again) = self.held_already(by.agent(), turn, &call)? {
            return Ok(again);
        }
        self.write(by, WriteKind::Approval, turn, key, |step| step.hold(by.agent(), turn, call))
    }

    /// Returns the pending approval of the same call in the same task, if there is one.
    fn held_already(&self, agent: AgentId, turn: Option<TurnId>, call: &HeldCall) -> Result<Option<Reply>, Refusal> {
        self.require_active(agent)?;
        let task = self.task_in_turn(agent, turn)?;
        let pending = self.state().approvals.iter().find(|(_, a)| {
            a.agent == agent && a.task == task && a.digest == call.digest && a.state == ApprovalState::Pending
        });
        Ok(pending.map(|(id, _)| Reply::Held(*id)))
    }

    fn hold(&mut self, agent: AgentId, turn: Option<TurnId>, call: HeldCall) -> Outcome {
        let task = self.task_in_turn(agent, turn)?;
        if let Some(task) = task {
            self.has_questions_left(task)?;
            // A turn that is asked to finish makes no more calls: its agent hears so at the next one.
            if let Some((spent, _)) = self.state().tasks[&task].turn().and_then(|turn| self.spent_out(turn)) {
                return Err(spent);
            }
        }
        let name = self.state().name_of(agent);
        let rule = self.state().policy.first(name, &call.tool, &call.subjects);
        let ruling = rule.as_ref().map_or(Ruling::Ask, |rule| rule.ruling);
        self.room_to_hold(agent, &call, ruling)?;
        let limits = &self.state().limits;
        let given = rule.as_ref().and_then(|rule| rule.timeout_ms).unwrap_or(limits.approval_ms);
        let expires_at = self.now.plus(given);
        #[cfg(feature = "rules-off")]
        let expires_at = self.naive_expiry(Rule::ApprovalAge, expires_at);
        let approval = ApprovalId(self.state().last_approval() + 1);
        let HeldCall { tool, arguments, reason, digest, subjects: _, key: _ } = call;
        self.record(Fact::ApprovalAsked(ApprovalAsked {
            approval,
            task,
            agent,
            tool,
            arguments,
            reason,
            digest,
            expires_at,
        }));
        if let Some(rule) = rule {
            self.record(Fact::ApprovalRuled { approval, rule: Box::new(rule) });
        }
        match ruling {
            Ruling::Ask => self.offer_approval(approval),
            Ruling::Allow => self.decided(approval, Some(SYSTEM), Decision::Approve, None, None),
            Ruling::Deny => self.decided(approval, Some(SYSTEM), Decision::Reject, None, None),
        }
        Ok(Reply::Held(approval))
    }

    /// Notifies the agents that may decide a call, without waking them (H3).
    fn offer_approval(&mut self, id: ApprovalId) {
        let state = self.state();
        let Some(approval) = state.approvals.get(&id) else { return };
        let may = |agent: &AgentId| {
            let known = &state.agents[agent.0 as usize];
            known.live && !known.is_human() && state.may_decide(*agent, approval)
        };
        let to: Vec<AgentId> = state.deciders(approval).into_iter().filter(may).collect();
        if !to.is_empty() {
            self.record(Fact::ApprovalOffered { approval: id, to });
        }
    }

    fn room_to_hold(&self, agent: AgentId, call: &HeldCall, ruling: Ruling) -> Result<(), Refusal> {
        let limits = &self.state().limits;
        let longest = call.arguments.len().max(call.tool.len()) as u64;
        if longest > limits.body_bytes_max {
            return Err(Refusal::new(Code::TooLarge).numbers(limits.body_bytes_max, longest));
        }
        let (max, open) = (limits.approvals_open_max, self.state().agents[agent.0 as usize].approvals_open);
        // A call that the policy decides never stays open.
        if ruling == Ruling::Ask && open >= max {
            return Err(Refusal::new(Code::ApprovalsOpen).numbers(max, open + 1));
        }
        Ok(())
    }

    pub(super) fn decide(&mut self, by: Principal, id: ApprovalId, verdict: Verdict) -> Outcome {
        self.authenticate(by)?;
        let unknown = || Refusal::new(Code::UnknownRequest).about(id);
        let approval = self.state().approvals.get(&id).ok_or_else(unknown)?;
        // An agent may give its own call up, which lets nothing through.
        let gives_up = approval.agent == by.agent() && verdict.decision == Decision::Ignore;
        let may_decide = by.is_human() || gives_up || self.state().may_decide(by.agent(), approval);
        if by.is_human() {
            self.human(by, Role::Approver)?;
        }
        // Before the call is looked at: it may be the next one, which nobody has decided.
        if let Some(again) = self.made_before(by.agent(), verdict.key.as_ref())? {
            return Ok(again);
        }
        if !may_decide && self.rule(Rule::Authority) {
            let refusal = Refusal::new(Code::ApproverNotAllowed).about(id);
            return Err(self.refuse_write(by, WriteKind::Approval, None, refusal));
        }
        let approval = self.state().approvals.get(&id).ok_or_else(unknown)?;
        if approval.state != ApprovalState::Pending {
            return Err(Refusal::new(Code::AlreadySettled).about(id));
        }
        if let Err(refusal) = check_digest(approval, &verdict) {
            let recorded = refusal.code == Code::DigestMismatch;
            return Err(if recorded { self.refuse_write(by, WriteKind::Approval, None, refusal) } else { refusal });
        }
        let Verdict { decision, comment, edited, key, .. } = verdict;
        self.decided(id, Some(by.agent()), decision, comment, edited);
        self.keep_key(by.agent(), key, &Reply::Held(id));
        Ok(Reply::Done)
    }

    /// Records a decision. A task that waits for it continues in a new turn.
    pub(super) fn decided(
        &mut self,
        id: ApprovalId,
        by: Option<AgentId>,
        decision: Decision,
        comment: Option<Box<str>>,
        edited: Option<(JsonText, Digest)>,
    ) {
        // Read before the fact: the decision removes the approval from what the task waits for.
        let waiting = self.state().approvals.get(&id).and_then(|a| Some((a.task?, a.agent)));
        let waiting = waiting.filter(|(t, _)| self.state().tasks.get(t).is_some_and(|t| t.phase == Phase::Waiting));
        let words = comment.clone().unwrap_or_default();
        self.record(Fact::ApprovalDecided(ApprovalDecided { approval: id, by, decision, comment, edited }));
        let decided = self.state().seq;
        if let Some((task, agent)) = waiting {
            let body = if words.is_empty() {
                alloc::format!("{id} {decision}")
            } else {
                alloc::format!("{id} {decision}: {words}")
            };
            self.reply_to(task, by.unwrap_or(SYSTEM), agent, body.into(), None, decided);
        }
    }

    /// Uses up an approval, for exactly the call that was approved.
    pub(super) fn use_approval(
        &mut self,
        by: Principal,
        id: ApprovalId,
        digest: Digest,
        retried: Option<&RequestId>,
    ) -> Outcome {
        self.may(by, Role::Operator)?;
        let key = key(retried, format_args!("use\0{id}\0{digest:?}"));
        if let Some(again) = self.made_before(by.agent(), key.as_ref())? {
            return Ok(again);
        }
        let unknown = || Refusal::new(Code::UnknownRequest).about(id);
        let approval = self.state().approvals.get(&id).ok_or_else(unknown)?;
        // As if it didn't exist: an agent learns nothing about the calls of others.
        if approval.agent != by.agent() {
            return Err(unknown());
        }
        self.require_active(by.agent())?;
        let (task, decided_at) = (approval.task, approval.decided_at.get());
        match approval.state {
            ApprovalState::Approved => {}
            ApprovalState::Used => return Err(Refusal::new(Code::ApprovalUsed).about(id)),
            ApprovalState::Expired => return Err(Refusal::new(Code::ApprovalExpired).about(id)),
            ApprovalState::Withdrawn => return Err(Refusal::new(Code::LeaseLost).about(id)),
            ApprovalState::Pending => return Err(Refusal::new(Code::NotDecided).about(id)),
            ApprovalState::Rejected | ApprovalState::Ignored => return Err(Refusal::new(Code::NotApproved).about(id)),
        }
        if approval.digest != digest && self.rule(Rule::CallDigest) {
            let refusal = Refusal::new(Code::DigestMismatch).about(id);
            return Err(self.refuse_write(by, WriteKind::Approval, None, refusal));
        }
        let use_ms = self.state().limits.approval_use_ms;
        // The approval was for the moment of the decision; much later the call may do something else.
        if decided_at.is_some_and(|at| self.now.since(at) > use_ms) {
            let late = decided_at.map_or(0, |at| self.now.since(at));
            return Err(Refusal::new(Code::ApprovalExpired).numbers(use_ms, late).about(id));
        }
        if task.and_then(|t| self.state().tasks.get(&t)).is_some_and(crate::state::Task::is_closed) {
            return Err(Refusal::new(Code::LeaseLost).about(id));
        }
        self.record(Fact::ApprovalUsed { approval: id });
        self.keep_key(by.agent(), key, &Reply::Held(id));
        Ok(Reply::Usable(TaskUse { approval: id, task }))
    }
}

/// Checks that the decision is for the call that was shown.
fn check_digest(approval: &Approval, verdict: &Verdict) -> Result<(), Refusal> {
    match (verdict.decision, verdict.digest) {
        (Decision::Approve, None) => Err(Refusal::new(Code::Malformed).about("`digest` is required to approve")),
        (Decision::Edit, _) if verdict.edited.is_none() => {
            Err(Refusal::new(Code::Malformed).about("`input` is required to edit"))
        }
        (Decision::Expire, _) => Err(Refusal::new(Code::Malformed).about("`expire` is the broker's own decision")),
        (_, Some(digest)) if digest != approval.digest => Err(Code::DigestMismatch.into()),
        _ => Ok(()),
    }
}
