//! The fold: the one place where the state changes. Needs neither clock nor configuration.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::{
    Agent, AskedCall, Claim, Closed, EscalationState, Few, Grant, Incident, IncidentOn, MadeOnce, Running, State, Timer,
};
use crate::fact::{
    Control, Credential, EndReason, Extension, Fact, GrantEnd, Key, Kind, Latched, Made, Place, Profile, Scope,
};
use crate::ids::{AgentId, ConvId, GrantId, IncidentId, TaskId, Time, TurnId};
use crate::names::{AgentName, Ref};
use crate::refusal::{Code, Refusal};

impl State {
    /// Folds one fact that happened at `at`; gives the grant that it belongs to, and that grant's Φ after it.
    pub(crate) fn apply(&mut self, at: Time, fact: &Fact) -> Option<(GrantId, u64)> {
        self.seq.0 += 1;
        self.at = self.at.max(at);
        self.change(at, fact);
        self.attend(at, fact);
        let id = self.grant_of(fact)?;
        self.grants.get(&id).map(|grant| (id, grant.phi(&self.limits)))
    }

    /// Hands each fact to the concept that it is about.
    #[expect(clippy::too_many_lines, reason = "the one match over all facts, an arm each")]
    fn change(&mut self, at: Time, fact: &Fact) {
        match fact {
            Fact::Configured { limits } => self.configured(limits),
            Fact::Registered { agent, name, kind, incarnation, profile, credential } => {
                self.name_agent(*agent, name, *kind, credential);
                self.registered(at, *agent, (*kind, *incarnation), profile, *credential);
            }
            Fact::Amended { agent, profile } => self.amended(at, *agent, profile),
            Fact::Rekeyed { agent, credential } => self.rekeyed(*agent, *credential),
            Fact::Removed { agent } => self.removed(at, *agent),
            Fact::RoleSet { human, role } => self.agents[human.0 as usize].role = *role,
            Fact::Heard { place, agent_messages, .. } => self.heard(*place, *agent_messages),
            Fact::Warned { .. } | Fact::Observed { .. } | Fact::RefusalsSummed { .. } | Fact::HumanActed { .. } => {}
            Fact::Refused { agent, turn, reference, refusal, .. } => {
                self.refused(at, *agent, *turn, reference.as_ref(), refusal);
            }
            Fact::WriteRefused { agent, turn, refusal, .. } => self.refused(at, *agent, *turn, None, refusal),
            Fact::GrantOpened { grant, giver, conv, expires_at } => {
                self.grant_opened(at, *grant, *giver, *conv, *expires_at);
            }
            Fact::GrantExtended { grant, extension, .. } => self.grant_extended(at, *grant, extension),
            Fact::GrantAged { grant, .. } => self.grant_aged(at, *grant),
            Fact::BudgetWarned { grant, agent, .. } => self.budget_warned(at, *grant, *agent),
            Fact::GrantClosed { grant, end } => self.grant_closed(at, *grant, *end),
            Fact::RoundsGranted { grant, task, conv, rounds, .. } => self.rounds(at, *grant, *task, *conv, *rounds),
            Fact::RequestsGranted { task, requests, .. } => self.more_requests(*task, *requests),
            Fact::ConversationOpened { conv, reference, parent, opener } => {
                self.conversation_opened(at, *conv, reference, *parent, *opener);
            }
            Fact::RootStarted { task, agent, conv, grant, received } => {
                self.root_started(at, *task, *agent, *conv, *grant, *received);
            }
            Fact::RootEnded { task, status } => self.close_task(at, *task, *status, EndReason::Answered),
            Fact::Accepted { message } => self.accepted(at, message),
            Fact::Keyed { agent, key, made } => self.keyed(at, *agent, key, made),
            Fact::AlertRaised { agent, pushed, .. } => self.alert_raised(at, *agent, *pushed),
            Fact::Noticed { agent, through } => self.drop_notices(*agent, *through),
            Fact::NoticeRead { agent, message } => self.drop_notice(*agent, *message),
            Fact::TurnOpened { turn, task, message, lease_until, .. } => {
                self.turn_opened(at, *turn, *task, *message, *lease_until);
            }
            Fact::Joined { turn, message, lease_until } => self.joined(at, *turn, *message, *lease_until),
            Fact::Collected { task, message } => self.deliver(at, *task, *message, None),
            Fact::Renewed { turn, lease_until } => self.renewed(at, *turn, *lease_until),
            Fact::TurnClosed { turn, end, spend, .. } => self.turn_closed(at, *turn, *end, *spend),
            Fact::TurnFinished { turn, spend, said, .. } => self.turn_finished(at, *turn, *spend, *said),
            Fact::Late { turn, .. } => self.finished_late(at, *turn),
            Fact::Requeued { task, agent, why, ack_ms, result } => {
                self.requeued(at, *task, *agent, *why, *ack_ms, result.as_deref());
            }
            Fact::LatchSet { incident, on, code, limit, current } => {
                self.latch_set(at, *incident, *on, *code, (*limit, *current));
            }
            Fact::LatchLifted { on, by } => self.latch_lifted(at, *on, *by),
            Fact::IncidentNoted { incident, agent, code, limit, current } => {
                self.incident_noted(at, *incident, *agent, *code, (*limit, *current));
            }
            Fact::Controlled { scope, control, .. } => self.controlled(at, *scope, *control),
            Fact::EscalationOpened { escalation, task, agent, conv, cause, .. } => {
                self.escalation_opened(at, *escalation, *task, *agent, *conv, *cause);
            }
            Fact::EscalationKeyed { escalation, agent, key } => self.escalation_keyed(at, *escalation, *agent, key),
            Fact::EscalationNoted { escalation, by, .. } => self.escalation_noted(at, *escalation, *by),
            Fact::EscalationLifts { escalation, met, lifts } => self.escalation_lifts(*escalation, met, lifts),
            Fact::LiftChosen { escalation, lift, .. } => self.lift_chosen(*escalation, *lift),
            Fact::EscalationExpired { escalation } => {
                self.end_escalation(at, *escalation, EscalationState::Expired, None);
            }
            Fact::PolicyConfigured { policy } => self.policy.clone_from(policy),
            Fact::ApprovalAsked { approval, task, agent, tool, arguments, reason, digest, expires_at } => {
                let (tool, arguments, reason) = (tool.clone(), arguments.clone(), reason.clone());
                let call = AskedCall { tool, arguments, reason, digest: *digest };
                self.approval_asked(at, *approval, *task, *agent, call, *expires_at);
            }
            Fact::ApprovalRuled { approval, rule } => self.approval_ruled(*approval, rule),
            Fact::ApprovalOffered { to, .. } => self.approval_offered(at, to),
            Fact::ApprovalDecided { approval, by, decision, comment, edited } => {
                self.approval_decided(at, *approval, *by, *decision, comment.as_deref(), edited.as_ref());
            }
            Fact::ApprovalUsed { approval } => self.approval_used(*approval),
            Fact::Claimed { claim, agent, task, resource, mode, expires_at } => {
                let resource = resource.clone();
                let held = Claim { agent: *agent, task: *task, resource, mode: *mode, expires_at: *expires_at };
                self.claimed(at, *claim, held);
            }
            Fact::Released { claim } => self.released(*claim),
            Fact::RoomOpened { room, name, members } => self.room_opened(*room, name, members),
            Fact::Posted { room, from, .. } => self.posted(at, *room, *from),
            Fact::PostKeyed { agent, key, admitted, .. } => self.post_keyed(at, *agent, key, *admitted),
            Fact::Rearmed { conv, .. } => self.heard(Place::Conversation(*conv), 0),
            Fact::AgentLimited { agent, limits } => self.agent_limited(at, *agent, limits),
            Fact::AgentGranted { agent, day, spend, .. } => self.agent_granted(*agent, *day, *spend),
            Fact::AgentRested { agent, until } => self.agent_rested(at, *agent, *until),
            Fact::Unattended { percent } => self.told_unattended(at, *percent),
            Fact::ScheduleSet { by, schedule, next_at } => self.schedule_set(*by, schedule, *next_at),
            Fact::ScheduleRemoved { name } => drop(self.schedules.remove(name)),
            Fact::ScheduleTicked { name, grant, next_at } => self.schedule_ticked(at, name, *grant, *next_at),
            Fact::ScheduleSkipped { name, code, next_at } => self.schedule_skipped(at, name, *code, *next_at),
            Fact::Idled { ms, .. } => self.idled(*ms),
            Fact::Forgot { items } => self.forget(at, *items),
            Fact::Upgraded { edition } => self.edition = *edition,
        }
    }

    fn keyed(&mut self, at: Time, agent: AgentId, key: &Key, made: &Made) {
        let once = MadeOnce { fingerprint: key.fingerprint, made: made.clone() };
        self.made.insert((agent, key.id.clone()), once);
        self.remember_made(at, agent, &key.id);
    }

    fn alert_raised(&mut self, at: Time, agent: AgentId, pushed: bool) {
        if pushed {
            self.alert_pushed(at, agent);
            self.notice_humans(at);
        }
    }

    fn budget_warned(&mut self, at: Time, grant: GrantId, agent: AgentId) {
        if let Some(grant) = self.grants.get_mut(&grant) {
            grant.budget_warned = true;
        }
        self.notice(at, agent);
    }

    /// A refusal counts against its turn, unless time alone cures it (F5), and among those of late (G2).
    fn refused(&mut self, at: Time, agent: AgentId, turn: Option<TurnId>, reference: Option<&Ref>, refusal: &Refusal) {
        self.write_refused(at, agent, refusal.code);
        if refusal.code == Code::RootAllowance {
            self.allowance_out(at, agent);
        }
        let Some(known) = turn.and_then(|t| self.turns.get_mut(&t)) else { return };
        let task = known.task;
        if refusal.retry_after_ms.is_none() {
            known.refusals += 1;
        }
        self.met(task, reference, refusal);
    }

    #[expect(clippy::too_many_lines, reason = "each fact is named, so that a new one is asked for its grant")]
    fn grant_of(&self, fact: &Fact) -> Option<GrantId> {
        let of_task = |task| self.tasks.get(&task).map(|t| t.grant);
        let of_turn = |turn| self.turns.get(&turn).and_then(|t| of_task(t.task));
        match fact {
            Fact::Accepted { message } => message.grant,
            Fact::GrantOpened { grant, .. }
            | Fact::GrantExtended { grant, .. }
            | Fact::GrantClosed { grant, .. }
            | Fact::BudgetWarned { grant, .. }
            | Fact::GrantAged { grant, .. }
            | Fact::ScheduleTicked { grant, .. }
            | Fact::RoundsGranted { grant, .. }
            | Fact::RootStarted { grant, .. }
            | Fact::LatchSet { on: Latched::Grant(grant), .. }
            | Fact::LatchLifted { on: Latched::Grant(grant), .. } => Some(*grant),
            Fact::RootEnded { task, .. }
            | Fact::Collected { task, .. }
            | Fact::Requeued { task, .. }
            | Fact::RequestsGranted { task, .. } => of_task(*task),
            Fact::TurnOpened { turn, .. }
            | Fact::Joined { turn, .. }
            | Fact::Renewed { turn, .. }
            | Fact::TurnClosed { turn, .. }
            | Fact::TurnFinished { turn, .. }
            | Fact::Late { turn, .. } => of_turn(*turn),
            Fact::EscalationOpened { task, .. } | Fact::ApprovalAsked { task, .. } => task.and_then(of_task),
            Fact::ApprovalRuled { approval, .. }
            | Fact::ApprovalDecided { approval, .. }
            | Fact::ApprovalUsed { approval } => self.approvals.get(approval).and_then(|a| a.task).and_then(of_task),
            Fact::Refused { turn, .. } | Fact::WriteRefused { turn, .. } => turn.and_then(of_turn),
            Fact::EscalationLifts { met, .. } => Some(met.grant),
            Fact::Configured { .. }
            | Fact::Registered { .. }
            | Fact::Amended { .. }
            | Fact::Rekeyed { .. }
            | Fact::Removed { .. }
            | Fact::Heard { .. }
            | Fact::Warned { .. }
            | Fact::Observed { .. }
            | Fact::ConversationOpened { .. }
            | Fact::Noticed { .. }
            | Fact::LatchSet { on: Latched::Place(_), .. }
            | Fact::LatchLifted { on: Latched::Place(_), .. }
            | Fact::Controlled { .. }
            | Fact::EscalationNoted { .. }
            | Fact::Claimed { .. }
            | Fact::Released { .. }
            | Fact::RoomOpened { .. }
            | Fact::Posted { .. }
            | Fact::PolicyConfigured { .. }
            | Fact::EscalationKeyed { .. }
            | Fact::NoticeRead { .. }
            | Fact::PostKeyed { .. }
            | Fact::Rearmed { .. }
            | Fact::Idled { .. }
            | Fact::Forgot { .. }
            | Fact::Upgraded { .. }
            | Fact::AgentLimited { .. }
            | Fact::AgentGranted { .. }
            | Fact::AgentRested { .. }
            | Fact::RefusalsSummed { .. }
            | Fact::IncidentNoted { .. }
            | Fact::LiftChosen { .. }
            | Fact::EscalationExpired { .. }
            | Fact::Keyed { .. }
            | Fact::AlertRaised { .. }
            | Fact::ApprovalOffered { .. }
            | Fact::HumanActed { .. }
            | Fact::Unattended { .. }
            | Fact::RoleSet { .. }
            | Fact::ScheduleSet { .. }
            | Fact::ScheduleRemoved { .. }
            | Fact::ScheduleSkipped { .. } => None,
        }
    }

    pub(super) fn open_grants(&self) -> Vec<GrantId> {
        self.grants.iter().filter(|(_, g)| g.end.is_none()).map(|(id, _)| id).collect()
    }

    fn configured(&mut self, limits: &crate::limits::Limits) {
        self.limits = limits.clone();
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

    /// Gives a number its name; a name that is used again has its newest number.
    fn name_agent(&mut self, id: AgentId, name: &AgentName, kind: Kind, credential: &Credential) {
        if id.0 as usize == self.agents.len() {
            self.agents.push(Agent::new(Some(name.clone()), kind, *credential));
        }
        self.refs.seed(credential);
        self.agents_by_name.seed(credential);
        match self.names.insert(name.clone(), id) {
            Some(before) if before == id => {}
            Some(before) => {
                self.agents_by_name.remove(name.as_str(), before.0);
                self.agents_by_name.insert(name.as_str(), id.0);
            }
            None => self.agents_by_name.insert(name.as_str(), id.0),
        }
    }

    fn registered(
        &mut self,
        at: Time,
        id: AgentId,
        (kind, incarnation): (Kind, u32),
        profile: &Profile,
        credential: Credential,
    ) {
        let agent = &mut self.agents[id.0 as usize];
        agent.kind = kind;
        agent.incarnation = incarnation;
        agent.live = true;
        agent.running = Running::Active;
        *agent.profile = profile.clone();
        self.rekeyed(id, credential);
        self.index_profile(id, profile, true);
        self.refresh_clock(at, id);
    }

    fn amended(&mut self, at: Time, id: AgentId, profile: &Profile) {
        let old = core::mem::replace(&mut *self.agents[id.0 as usize].profile, profile.clone());
        self.index_profile(id, &old, false);
        self.index_profile(id, profile, true);
        self.refresh_clock(at, id);
    }

    fn removed(&mut self, at: Time, id: AgentId) {
        let agent = &mut self.agents[id.0 as usize];
        agent.live = false;
        agent.notices.clear();
        let (old, profile) = (*agent.credential, agent.profile.clone());
        self.credentials.remove(&old);
        self.index_profile(id, &profile, false);
        self.leave_nothing_behind(at, id);
        self.refresh_clock(at, id);
    }

    fn rekeyed(&mut self, id: AgentId, credential: Credential) {
        let old = core::mem::replace(&mut *self.agents[id.0 as usize].credential, credential);
        self.credentials.remove(&old);
        self.credentials.insert(credential, id);
    }

    fn index_profile(&mut self, id: AgentId, profile: &Profile, add: bool) {
        for (index, labels) in [(&mut self.actions, &profile.actions), (&mut self.groups, &profile.groups)] {
            for label in labels {
                let members = index.entry(label.clone()).or_default();
                if add {
                    members.insert(id);
                } else {
                    members.remove(&id);
                }
                if members.is_empty() {
                    index.remove(label);
                }
            }
        }
    }

    fn heard(&mut self, place: Place, agent_messages: u64) {
        match place {
            Place::Conversation(conv) => {
                if let Some(conv) = self.conversations.get_mut(&conv) {
                    conv.agent_messages = agent_messages;
                }
            }
            Place::Room(room) => {
                if let Some(room) = self.rooms.get_mut(&room) {
                    room.agent_messages = agent_messages;
                }
            }
        }
    }

    fn grant_opened(&mut self, at: Time, id: GrantId, giver: AgentId, conv: ConvId, expires_at: Time) {
        self.minted.grant = id.0;
        let own_root = !self.agents[giver.0 as usize].is_human();
        let opened = Grant::new(giver, own_root, conv, (at, expires_at), self.limits.potential(0));
        self.grants.insert(id, opened);
        self.refresh_grant(at, id);
    }

    fn grant_extended(&mut self, at: Time, id: GrantId, more: &Extension) {
        self.extended(id, more);
        self.refresh_grant(at, id);
    }

    fn extended(&mut self, id: GrantId, more: &Extension) {
        let per_request = self.limits.potential(1).saturating_add(1);
        let Some(grant) = self.grants.get_mut(&id) else { return };
        grant.extended.get_or_insert_default().add(more);
        grant.budget_warned = false;
        grant.extensions += 1;
        grant.clock_warned = grant.clock_warned && more.time_ms == 0;
        grant.expires_at = grant.expires_at.plus(more.time_ms);
        let root = grant.root_task().and_then(|t| self.tasks.get_mut(&t)).filter(|t| !t.is_closed());
        if let Some(root) = root {
            root.quota_left = root.quota_left.saturating_add(more.requests);
            grant.structure = grant.structure.saturating_add(more.requests.saturating_mul(per_request));
        }
    }

    fn grant_closed(&mut self, at: Time, id: GrantId, end: GrantEnd) {
        let Some(grant) = self.grants.get_mut(&id) else { return };
        grant.end = Some(end);
        if let Some(timer) = grant.timer.take() {
            self.timers.remove(timer, Timer::Grant(id));
        }
        let latch = grant.latched.take();
        let tasks = grant.tasks.clone();
        let mut used = Vec::new();
        for task in &tasks {
            let Some(known) = self.tasks.get(task) else { continue };
            used.push(known.conv);
            used.extend(known.delegates.iter().map(|d| d.conv));
            let above: Few<AgentId, 4> = self.ancestors(*task).collect();
            for agent in known.tried() {
                let agent = &mut self.agents[agent.0 as usize];
                for partner in known.partners().chain(above.iter().copied()) {
                    agent.partners.remove(&(partner, *task));
                }
            }
        }
        for conv in used {
            self.uses(conv, -1);
        }
        if let Some(incident) = latch {
            self.closed.push_back((at, Closed::Incident(incident)));
        }
        self.closed.push_back((at, Closed::Grant(id)));
    }

    fn latch_set(&mut self, at: Time, id: IncidentId, on: Latched, code: Code, (limit, current): (u64, u64)) {
        self.minted.incident = id.0;
        let tripped = Incident { on: IncidentOn::Latch(on), code, limit, current, at, lifted: None };
        self.incidents.insert(id, tripped);
        self.set_latch(on, Some(id));
        self.after_latch(at, on);
    }

    fn latch_lifted(&mut self, at: Time, on: Latched, by: AgentId) {
        self.set_latch(on, None);
        for (id, incident) in
            self.incidents.iter_mut().filter(|(_, i)| i.on == IncidentOn::Latch(on) && i.lifted.is_none())
        {
            incident.lifted = Some((at, by));
            self.closed.push_back((at, Closed::Incident(*id)));
        }
        self.after_latch(at, on);
    }

    fn set_latch(&mut self, on: Latched, held: Option<IncidentId>) {
        match on {
            Latched::Grant(grant) => {
                if let Some(grant) = self.grants.get_mut(&grant) {
                    grant.latched = held.into();
                }
            }
            Latched::Place(Place::Conversation(conv)) => self.hold(conv, |conv| {
                conv.latched = held.is_some();
                conv.agent_messages = if held.is_some() { conv.agent_messages } else { 0 };
            }),
            Latched::Place(Place::Room(room)) => {
                if let Some(room) = self.rooms.get_mut(&room) {
                    room.latched = held.is_some();
                    room.agent_messages = if held.is_some() { room.agent_messages } else { 0 };
                }
            }
        }
    }

    fn after_latch(&mut self, at: Time, on: Latched) {
        match on {
            Latched::Grant(grant) => {
                self.refresh_grant(at, grant);
                let tasks: Vec<TaskId> = self.open_tasks_of(grant).collect();
                self.rearm_all(at, tasks);
            }
            Latched::Place(Place::Conversation(conv)) => self.latch_changed(at, conv),
            Latched::Place(Place::Room(_)) => {}
        }
    }

    /// A latch holds one conversation alone, and an agent can trip it: nothing here may grow with the workspace.
    fn latch_changed(&mut self, at: Time, conv: ConvId) {
        let Some(held) = self.conversations.get(&conv) else { return };
        let (tasks, mut grants) = (held.open_tasks.clone(), BTreeSet::from_iter(held.grant.get()));
        grants.extend(tasks.iter().filter_map(|t| self.tasks.get(t)).map(|t| t.grant));
        self.rearm_all(at, tasks);
        for grant in grants {
            self.refresh_grant(at, grant);
        }
    }

    /// A human paused or resumed a conversation, and so everything below it.
    fn conversation_changed(&mut self, at: Time, conv: ConvId) {
        let below = self.lineage_below(conv);
        let open = below.iter().filter_map(|id| self.conversations.get(id)).flat_map(|conv| &conv.open_tasks);
        let tasks: BTreeSet<TaskId> = open.copied().collect();
        self.rearm_all(at, tasks);
        for grant in self.open_grants() {
            self.refresh_grant(at, grant);
        }
    }

    fn controlled(&mut self, at: Time, scope: Scope, control: Control) {
        let running = match control {
            Control::Pause => Running::Paused,
            Control::Resume => Running::Active,
            Control::Stop => Running::Stopped,
        };
        match scope {
            Scope::Workspace => {
                self.running = running;
                for id in 0..u32::try_from(self.agents.len()).unwrap_or(u32::MAX) {
                    self.refresh_clock(at, AgentId(id));
                }
                for grant in self.open_grants() {
                    self.refresh_grant(at, grant);
                }
            }
            Scope::Agent(agent) => {
                self.agents[agent.0 as usize].running = running;
                self.refresh_clock(at, agent);
            }
            Scope::Conversation(conv) => {
                self.hold(conv, |conv| conv.running = running);
                self.conversation_changed(at, conv);
            }
        }
    }
}
