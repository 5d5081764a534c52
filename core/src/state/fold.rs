//! The fold: the one entry point through which facts change the state. Time and limits come from the facts, so replay
//! needs neither clock nor configuration.

use alloc::boxed::Box;

use lastword_facts::fact::{
    AgentGranted, ApprovalAsked, ApprovalDecided, Claimed, ConversationOpened, EndReason, EscalationOpened, Fact,
    GrantOpened, IncidentNoted, Key, LatchSet, LimitChanged, Made, Place, PostKeyed, Refused, Registered, Requeued,
    RootStarted, RoundsGranted, Stalled, StepKept, TokenRotated, TurnCharged, TurnClosed, TurnFinished, TurnOpened,
    WorkedOutside, WriteRefused,
};
use lastword_facts::ids::{AgentId, ConvId, GrantId, Time, TurnId};
use lastword_facts::limits::Limits;
use lastword_facts::names::Ref;
use lastword_facts::refusal::{Code, Refusal};
use lastword_facts::status::EscalationState;

use super::incidents::Tripped;
use super::turns::Charge;
use super::{AskedCall, Claim, MadeOnce, State};

impl State {
    /// Folds one fact with its time. Returns the grant that it belongs to, and that grant's Φ after it.
    pub(crate) fn apply(&mut self, at: Time, fact: &Fact) -> Option<(GrantId, u64)> {
        self.seq.0 += 1;
        self.at = self.at.max(at);
        self.change(at, fact);
        // After the change, because a human whom this fact registers is unknown before it.
        self.attend(at, fact);
        self.charge_bytes(at, fact);
        let id = self.grant_of(fact)?;
        self.grants.get(&id).map(|grant| (id, grant.phi(&self.limits)))
    }

    /// Passes each fact to the concept that it is about.
    #[expect(clippy::too_many_lines, reason = "one match over all facts, with an arm for each")]
    fn change(&mut self, at: Time, fact: &Fact) {
        match fact {
            Fact::Configured { limits } => self.configured(limits),
            Fact::LimitChanged(LimitChanged { limit, value, .. }) => {
                let mut limits = self.limits.clone();
                limits.set(limit, *value);
                self.configured(&limits);
            }
            Fact::Registered(Registered { agent, name, kind, incarnation, profile, credential }) => {
                self.name_agent(*agent, name, *kind, credential);
                self.registered(at, *agent, *kind, *incarnation, profile, *credential);
            }
            Fact::Amended { agent, profile } => self.amended(at, *agent, profile),
            Fact::Rekeyed { agent, credential } => self.rekeyed(*agent, *credential),
            Fact::TokenRotated(TokenRotated { agent, credential, expires_at, former_until }) => {
                self.rotated(*agent, *credential, *expires_at, *former_until);
            }
            Fact::Removed { agent } => self.removed(at, *agent),
            Fact::RoleSet { human, role } => self.agents[human.0 as usize].role = *role,
            Fact::Heard { place, agent_messages, .. } => self.heard(*place, *agent_messages),
            Fact::Warned { .. } | Fact::Observed { .. } | Fact::RefusalsSummed { .. } | Fact::HumanActed { .. } => {}
            // No rule looks at models.
            Fact::SpentOn { .. } => {}
            Fact::WorkedOutside(WorkedOutside { agent, grant, spend, .. }) => {
                self.agents[agent.0 as usize].charge(at, *spend, false);
                if let Some(grant) = self.grants.get_mut(grant) {
                    grant.spend.add(*spend);
                }
            }
            Fact::Refused(Refused { agent, turn, reference, refusal, .. }) => {
                self.refused(at, *agent, *turn, reference.as_ref(), refusal);
            }
            Fact::WriteRefused(WriteRefused { agent, turn, refusal, .. }) => {
                self.refused(at, *agent, *turn, None, refusal)
            }
            Fact::GrantOpened(GrantOpened { grant, giver, conv, expires_at }) => {
                self.grant_opened(at, *grant, *giver, *conv, *expires_at);
            }
            Fact::GrantTraced { grant, context } => {
                if let Some(grant) = self.grants.get_mut(grant) {
                    grant.trace = Some(Box::new(*context));
                }
            }
            Fact::GrantExtended { grant, extension, .. } => self.grant_extended(at, *grant, extension),
            Fact::GrantAged { grant, .. } => self.grant_aged(at, *grant),
            Fact::BudgetWarned { grant, agent, .. } => self.budget_warned(at, *grant, *agent),
            Fact::GrantClosed { grant, end } => self.grant_closed(at, *grant, *end),
            Fact::RoundsGranted(RoundsGranted { grant, task, conv, rounds, .. }) => {
                self.rounds(at, *grant, *task, *conv, *rounds)
            }
            Fact::RequestsGranted { task, requests, .. } => self.more_requests(*task, *requests),
            Fact::ConversationOpened(ConversationOpened { conv, reference, parent, opener }) => {
                self.conversation_opened(at, *conv, reference, *parent, *opener);
            }
            Fact::RootStarted(RootStarted { task, agent, conv, grant, received }) => {
                self.root_started(at, *task, *agent, *conv, *grant, *received);
            }
            Fact::RootEnded { task, status } => self.close_task(at, *task, *status, EndReason::Answered),
            Fact::Accepted { message } => self.accepted(at, message),
            Fact::Keyed { agent, key, made } => self.keyed(at, *agent, key, made),
            Fact::AlertRaised { agent, pushed, .. } => self.alert_raised(at, *agent, *pushed),
            Fact::Noticed { agent, through } => self.drop_notices(*agent, *through),
            Fact::NoticeRead { agent, message } => self.drop_notice(*agent, *message),
            Fact::TurnOpened(TurnOpened { turn, task, message, lease_until, .. }) => {
                self.turn_opened(at, *turn, *task, *message, *lease_until);
            }
            Fact::Joined { turn, message, lease_until } => self.joined(at, *turn, *message, *lease_until),
            Fact::Collected { task, message } => self.deliver(at, *task, *message, None),
            Fact::WaitsForUser { turn, waits } => self.waits_for_user(at, *turn, *waits),
            Fact::Renewed { turn, lease_until } => self.renewed(at, *turn, *lease_until),
            // Only a finish can have measured the whole turn.
            Fact::TurnClosed(TurnClosed { turn, end, spend, .. }) => {
                self.turn_closed(at, *turn, *end, Charge { total: spend.counted(), estimated: true })
            }
            Fact::TurnFinished(TurnFinished { turn, spend, said, .. }) => {
                self.turn_finished(at, *turn, Charge { total: spend.counted(), estimated: false }, *said)
            }
            Fact::TurnCharged(TurnCharged { turn, spend, estimated, said, .. }) => {
                self.turn_finished(at, *turn, Charge { total: spend.counted(), estimated: *estimated }, *said);
            }
            Fact::Spent { turn, spend } => self.spend(at, *turn, Charge { total: spend.counted(), estimated: false }),
            Fact::Late { turn, .. } => self.finished_late(at, *turn),
            Fact::Requeued(Requeued { task, agent, why, ack_ms, result }) => {
                self.requeued(at, *task, *agent, *why, *ack_ms, result.as_deref());
            }
            Fact::LatchSet(LatchSet { incident, on, code, limit, current }) => {
                self.latch_set(at, *incident, *on, *code, Tripped { limit: *limit, current: *current });
            }
            Fact::LatchLifted { on, by } => self.latch_lifted(at, *on, *by),
            Fact::IncidentNoted(IncidentNoted { incident, agent, code, limit, current }) => {
                self.incident_noted(at, *incident, *agent, *code, Tripped { limit: *limit, current: *current });
            }
            Fact::Controlled { scope, control, .. } => self.controlled(at, *scope, *control),
            Fact::EscalationOpened(EscalationOpened { escalation, task, agent, conv, cause, .. }) => {
                self.escalation_opened(at, *escalation, *task, *agent, *conv, *cause);
            }
            Fact::EscalationKeyed { escalation, agent, key } => self.escalation_keyed(at, *escalation, *agent, key),
            Fact::EscalationNoted { escalation, by, .. } => self.escalation_noted(at, *escalation, *by),
            Fact::EscalationAnswered { escalation, by, message } => {
                self.end_escalation(at, *escalation, EscalationState::Answered, Some((*by, *message)));
            }
            Fact::EscalationLifts { escalation, met, lifts } => self.escalation_lifts(*escalation, met, lifts),
            Fact::LiftChosen { escalation, lift, .. } => self.lift_chosen(at, *escalation, *lift),
            Fact::EscalationExpired { escalation } => {
                self.end_escalation(at, *escalation, EscalationState::Expired, None);
            }
            Fact::PolicyConfigured { policy } | Fact::PolicyChanged { policy, .. } => self.policy.clone_from(policy),
            Fact::ApprovalAsked(ApprovalAsked {
                approval,
                task,
                agent,
                tool,
                arguments,
                reason,
                digest,
                expires_at,
            }) => {
                let (tool, arguments, reason) = (tool.clone(), arguments.clone(), reason.clone());
                let call = AskedCall { tool, arguments, reason, digest: *digest };
                self.approval_asked(at, *approval, *task, *agent, call, *expires_at);
            }
            Fact::ApprovalRuled { approval, rule } => self.approval_ruled(*approval, rule),
            Fact::ApprovalOffered { to, .. } => self.approval_offered(at, to),
            Fact::ApprovalDecided(ApprovalDecided { approval, by, decision, comment, edited }) => {
                self.approval_decided(at, *approval, *by, *decision, comment.as_deref(), edited.as_ref());
            }
            Fact::ApprovalUsed { approval } => self.approval_used(*approval),
            Fact::Claimed(Claimed { claim, agent, task, resource, mode, expires_at }) => {
                let resource = resource.clone();
                let held = Claim { agent: *agent, task: *task, resource, mode: *mode, expires_at: *expires_at };
                self.claimed(at, *claim, held);
            }
            Fact::Released { claim } | Fact::ClaimBroken { claim, .. } => self.released(*claim),
            Fact::RoomOpened { room, name, members } => self.room_opened(*room, name, members),
            Fact::Posted { room, from, .. } => self.posted(at, *room, *from),
            Fact::PostKeyed(PostKeyed { agent, key, admitted, .. }) => self.post_keyed(at, *agent, key, *admitted),
            Fact::Rearmed { conv, .. } => self.rearmed(at, *conv),
            Fact::AgentLimited { agent, limits } => self.agent_limited(at, *agent, limits),
            Fact::DisplayNameSet { agent, display_name } => self.display_name_set(*agent, display_name.as_ref()),
            Fact::AgentGranted(AgentGranted { agent, day, spend, .. }) => self.agent_granted(*agent, *day, *spend),
            Fact::AgentRested { agent, until } => self.agent_rested(at, *agent, *until),
            Fact::Unattended { percent } => self.told_unattended(at, *percent),
            Fact::ScheduleSet { by, schedule, next_at } => self.schedule_set(*by, schedule, *next_at),
            Fact::ScheduleRemoved { name } => drop(self.schedules.remove(name)),
            Fact::ScheduleTicked { name, grant, next_at } => self.schedule_ticked(at, name, *grant, *next_at),
            Fact::ScheduleSkipped { name, code, next_at } => self.schedule_skipped(at, name, *code, *next_at),
            Fact::Idled { ms, .. } => self.idled(*ms),
            Fact::Forgot { items } => self.forget(at, *items),
            Fact::Upgraded { edition } => self.edition = *edition,
            Fact::EpochBegan { first } => self.epoch_began(*first),
            Fact::Stalled(Stalled { task, agent, level, stall, enforced, escalation, .. }) => {
                self.stalled(*task, *agent, *level, *stall, *enforced, *escalation);
            }
            Fact::SessionBegan { task } => self.session_began(at, *task),
            Fact::StepKept(StepKept { task, key, result, .. }) => self.step_kept(*task, key, result),
            Fact::PromptTyped { agent, by } => self.prompt_typed(at, *agent, *by),
            Fact::PromptEnded { agent } => self.prompt_ended(*agent),
            Fact::Dismissed { task, .. } => _ = self.failed.remove(task),
            Fact::LinkSet { conv, until, by } => self.link_set(*conv, *until, *by),
        }
    }

    fn grant_of(&self, fact: &Fact) -> Option<GrantId> {
        // A notice to those who may decide is no step of the work.
        if matches!(fact, Fact::ApprovalOffered { .. }) {
            return None;
        }
        let about = fact.about();
        about.grant.or_else(|| {
            let of_turn = || self.turns.get(&about.turn?).map(|turn| turn.task);
            let of_call = || self.approvals.get(&about.approval?).and_then(|held| held.task);
            let task = about.task.or_else(of_turn).or_else(of_call)?;
            self.tasks.get(&task).map(|task| task.grant)
        })
    }

    fn configured(&mut self, limits: &Limits) {
        self.limits = limits.clone();
        // Φ depends on the limits: every open grant is computed again, which may raise it.
        for id in self.open_grants() {
            let tasks = self.open_tasks_of(id);
            let structure = tasks.fold(0, |sum: u64, t| sum.saturating_add(self.structure_of(t)));
            if let Some(grant) = self.grants.get_mut(&id) {
                grant.structure = structure;
            }
            self.arm_grant(id);
        }
        self.arm_attendance();
    }

    /// Starts the counters of a conversation again, about which a human said something (R4).
    fn rearmed(&mut self, at: Time, conv: ConvId) {
        self.heard(Place::Conversation(conv), 0);
        self.human_in_exchanges(at, conv);
    }

    fn keyed(&mut self, at: Time, agent: AgentId, key: &Key, made: &Made) {
        let once = MadeOnce { fingerprint: key.fingerprint, made: made.clone() };
        self.made.insert((agent, key.id.clone()), once);
        self.remember_made(at, agent, &key.id);
    }

    /// Counts a refusal against its turn, unless a retry may succeed (F5), and among the recent ones (G2).
    fn refused(&mut self, at: Time, agent: AgentId, turn: Option<TurnId>, reference: Option<&Ref>, refusal: &Refusal) {
        self.write_refused(at, agent, refusal.code);
        if refusal.code == Code::RootAllowance {
            self.allowance_out(at, agent);
        }
        if refusal.code.can_be_lifted() {
            self.refused_in(agent, refusal.room());
        }
        let Some(known) = turn.and_then(|t| self.turns.get_mut(&t)) else { return };
        let task = known.task;
        if refusal.retry_after_ms.is_none() {
            known.refusals = known.refusals.saturating_add(1);
        }
        // A room's limit belongs to no task.
        if refusal.room().is_none() {
            self.met(task, reference, refusal);
        }
    }
}
