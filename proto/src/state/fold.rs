//! The fold: the one place where the state changes. Needs neither clock nor configuration.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the dispatch in `State::change` matches every fact; each part gets its own"
)]

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::{Agent, Closed, Grant, Incident, Running, State, Timer};
use crate::fact::{Control, Extension, Fact, GrantEnd, Latched, Outcome, Place, Profile, Scope};
use crate::ids::{AgentId, ConvId, GrantId, IncidentId, TaskId, Time};

impl State {
    /// Folds one fact that happened at `at`; gives the grant that it belongs to, and that grant's Φ after it.
    pub(crate) fn apply(&mut self, at: Time, fact: &Fact) -> Option<(GrantId, u64)> {
        self.seq.0 += 1;
        self.at = self.at.max(at);
        self.forget(at);
        self.change(at, fact);
        let id = self.grant_of(fact)?;
        self.grants.get(&id).map(|grant| (id, grant.phi(&self.limits)))
    }

    fn change(&mut self, at: Time, fact: &Fact) {
        match fact {
            Fact::Configured { limits } => self.configured(limits),
            Fact::Registered { .. } | Fact::Amended { .. } | Fact::Rekeyed { .. } | Fact::Removed { .. } => {
                self.fold_registry(at, fact);
            }
            Fact::Heard { place, turns, .. } => self.heard(*place, *turns),
            Fact::Warned { .. } | Fact::Observed { .. } => {}
            Fact::Refused { turn, refusal, .. } => {
                if let Some(turn) = turn.and_then(|t| self.turns.get_mut(&t))
                    && refusal.retry_after_ms.is_none()
                {
                    turn.refusals += 1;
                }
            }
            Fact::GrantOpened { .. } | Fact::GrantExtended { .. } | Fact::GrantClosed { .. } => {
                self.fold_grant(at, fact);
            }
            Fact::ConversationOpened { .. } => self.conversation_opened(at, fact),
            Fact::RootStarted { .. } => self.root_started(at, fact),
            Fact::RootEnded { task, status } => self.close_task(at, *task, *status, Outcome::Answered),
            Fact::Accepted { message } => self.accepted(at, message),
            Fact::TurnOpened { .. }
            | Fact::Joined { .. }
            | Fact::Collected { .. }
            | Fact::Renewed { .. }
            | Fact::TurnClosed { .. }
            | Fact::Late { .. }
            | Fact::Requeued { .. } => self.fold_turn(at, fact),
            Fact::Noticed { agent, through } => self.drop_notices(*agent, *through),
            Fact::NoticeRead { agent, message } => self.drop_notice(*agent, *message),
            Fact::BudgetWarned { grant, agent, .. } => {
                if let Some(grant) = self.grants.get_mut(grant) {
                    grant.budget_warned = true;
                }
                self.notice(at, *agent);
            }
            Fact::LatchSet { .. } | Fact::LatchLifted { .. } => self.fold_latch(at, fact),
            Fact::Controlled { scope, control, .. } => self.controlled(at, *scope, *control),
            Fact::EscalationOpened { .. } | Fact::EscalationNoted { .. } | Fact::EscalationKeyed { .. } => {
                self.fold_escalation(at, fact);
            }
            Fact::PolicyConfigured { policy } => self.policy.clone_from(policy),
            Fact::ApprovalAsked { .. }
            | Fact::ApprovalRuled { .. }
            | Fact::ApprovalDecided { .. }
            | Fact::ApprovalUsed { .. } => self.fold_approval(at, fact),
            Fact::Claimed { .. } | Fact::Released { .. } => self.fold_claim(fact),
            Fact::RoomOpened { .. } | Fact::Posted { .. } | Fact::PostKeyed { .. } | Fact::Rearmed { .. } => {
                self.fold_room(at, fact);
            }
        }
    }

    fn grant_of(&self, fact: &Fact) -> Option<GrantId> {
        let of_task = |task| self.tasks.get(&task).map(|t| t.grant);
        let of_turn = |turn| self.turns.get(&turn).and_then(|t| of_task(t.task));
        match fact {
            Fact::Accepted { message } => message.grant,
            Fact::GrantOpened { grant, .. }
            | Fact::GrantExtended { grant, .. }
            | Fact::GrantClosed { grant, .. }
            | Fact::BudgetWarned { grant, .. }
            | Fact::RootStarted { grant, .. }
            | Fact::LatchSet { on: Latched::Grant(grant), .. }
            | Fact::LatchLifted { on: Latched::Grant(grant), .. } => Some(*grant),
            Fact::RootEnded { task, .. } | Fact::Collected { task, .. } | Fact::Requeued { task, .. } => of_task(*task),
            Fact::TurnOpened { turn, .. }
            | Fact::Joined { turn, .. }
            | Fact::Renewed { turn, .. }
            | Fact::TurnClosed { turn, .. }
            | Fact::Late { turn, .. } => of_turn(*turn),
            Fact::EscalationOpened { task, .. } | Fact::ApprovalAsked { task, .. } => task.and_then(of_task),
            Fact::ApprovalRuled { approval, .. }
            | Fact::ApprovalDecided { approval, .. }
            | Fact::ApprovalUsed { approval } => self.approvals.get(approval).and_then(|a| a.task).and_then(of_task),
            Fact::Refused { turn, .. } => turn.and_then(of_turn),
            Fact::Configured { .. }
            | Fact::EscalationKeyed { .. }
            | Fact::NoticeRead { .. }
            | Fact::PolicyConfigured { .. }
            | Fact::Registered { .. }
            | Fact::Amended { .. }
            | Fact::Rekeyed { .. }
            | Fact::Removed { .. }
            | Fact::Heard { .. }
            | Fact::Warned { .. }
            | Fact::Observed { .. }
            | Fact::ConversationOpened { .. }
            | Fact::Noticed { .. }
            | Fact::LatchSet { .. }
            | Fact::LatchLifted { .. }
            | Fact::Controlled { .. }
            | Fact::EscalationNoted { .. }
            | Fact::Claimed { .. }
            | Fact::Released { .. }
            | Fact::RoomOpened { .. }
            | Fact::Posted { .. }
            | Fact::PostKeyed { .. }
            | Fact::Rearmed { .. } => None,
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
        }
    }

    fn fold_registry(&mut self, at: Time, fact: &Fact) {
        match fact {
            Fact::Registered { agent: id, name, kind, incarnation, profile, credential } => {
                if id.0 as usize == self.agents.len() {
                    self.agents.push(Agent::new(Some(name.clone()), *kind, *credential));
                }
                self.refs.seed(credential);
                self.agents_by_name.seed(credential);
                if self.names.insert(name.clone(), *id).is_none() {
                    self.agents_by_name.insert(name.as_str(), id.0);
                }
                let agent = &mut self.agents[id.0 as usize];
                agent.kind = *kind;
                agent.incarnation = *incarnation;
                agent.live = true;
                agent.running = Running::Active;
                *agent.profile = profile.clone();
                self.rekey(*id, *credential);
                self.index_profile(*id, profile, true);
                self.refresh_clock(at, *id);
            }
            Fact::Amended { agent: id, profile } => {
                let old = core::mem::replace(&mut *self.agents[id.0 as usize].profile, profile.clone());
                self.index_profile(*id, &old, false);
                self.index_profile(*id, profile, true);
                self.refresh_clock(at, *id);
            }
            Fact::Removed { agent: id } => {
                let agent = &mut self.agents[id.0 as usize];
                agent.live = false;
                agent.notices.clear();
                let (old, profile) = (*agent.credential, agent.profile.clone());
                self.credentials.remove(&old);
                self.index_profile(*id, &profile, false);
                self.leave_nothing_behind(at, *id);
                self.refresh_clock(at, *id);
            }
            Fact::Rekeyed { agent, credential } => self.rekey(*agent, *credential),
            _ => misdirected(fact),
        }
    }

    fn rekey(&mut self, id: AgentId, credential: [u8; 32]) {
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

    fn heard(&mut self, place: Place, turns: u64) {
        match place {
            Place::Conversation(conv) => {
                if let Some(conv) = self.conversations.get_mut(&conv) {
                    conv.turns = turns;
                }
            }
            Place::Room(room) => {
                if let Some(room) = self.rooms.get_mut(&room) {
                    room.turns = turns;
                }
            }
        }
    }

    fn fold_grant(&mut self, at: Time, fact: &Fact) {
        match fact {
            Fact::GrantOpened { grant, giver, conv, expires_at } => {
                self.minted.grant = grant.0;
                self.timers.insert(*expires_at, Timer::Grant(*grant));
                let own_root = !self.agents[giver.0 as usize].is_human();
                let opened = Grant::new(*giver, own_root, *conv, (at, *expires_at), self.limits.potential(0));
                self.grants.insert(*grant, opened);
                self.refresh_grant(at, *grant);
            }
            Fact::GrantExtended { grant, extension, .. } => {
                self.extended(*grant, extension);
                self.refresh_grant(at, *grant);
            }
            Fact::GrantClosed { grant, end } => self.grant_closed(at, *grant, *end),
            _ => misdirected(fact),
        }
    }

    fn extended(&mut self, id: GrantId, more: &Extension) {
        let per_request = self.limits.potential(1).saturating_add(1);
        let Some(grant) = self.grants.get_mut(&id) else { return };
        grant.extended.get_or_insert_default().add(more);
        grant.budget_warned = false;
        self.timers.remove(grant.expires_at, Timer::Grant(id));
        grant.expires_at = grant.expires_at.plus(more.time_ms);
        if grant.clock_stopped_at.is_none() {
            self.timers.insert(grant.expires_at, Timer::Grant(id));
        }
        let root = grant.root_task().and_then(|t| self.tasks.get_mut(&t)).filter(|t| !t.is_closed());
        if let Some(root) = root {
            root.quota_left = root.quota_left.saturating_add(more.requests);
            grant.structure = grant.structure.saturating_add(more.requests.saturating_mul(per_request));
        }
    }

    fn grant_closed(&mut self, at: Time, id: GrantId, end: GrantEnd) {
        let Some(grant) = self.grants.get_mut(&id) else { return };
        grant.end = Some(end);
        self.timers.remove(grant.expires_at, Timer::Grant(id));
        let latch = grant.latched.take();
        let mut used = Vec::new();
        for task in &grant.tasks {
            let Some(known) = self.tasks.get(task) else { continue };
            used.push(known.conv);
            used.extend(known.delegates.iter().map(|d| d.conv));
            for agent in known.tried() {
                let agent = &mut self.agents[agent.0 as usize];
                for partner in known.partners() {
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

    fn fold_latch(&mut self, at: Time, fact: &Fact) {
        match fact {
            Fact::LatchSet { incident, on, code, limit, current } => {
                self.minted.incident = incident.0;
                let tripped = Incident { on: *on, code: *code, limit: *limit, current: *current, at, lifted: None };
                self.incidents.insert(*incident, tripped);
                self.set_latch(*on, Some(*incident));
                self.after_latch(at, *on);
            }
            Fact::LatchLifted { on, by } => {
                self.set_latch(*on, None);
                for (id, incident) in self.incidents.iter_mut().filter(|(_, i)| i.on == *on && i.lifted.is_none()) {
                    incident.lifted = Some((at, *by));
                    self.closed.push_back((at, Closed::Incident(*id)));
                }
                self.after_latch(at, *on);
            }
            _ => misdirected(fact),
        }
    }

    fn set_latch(&mut self, on: Latched, held: Option<IncidentId>) {
        match on {
            Latched::Grant(grant) => {
                if let Some(grant) = self.grants.get_mut(&grant) {
                    grant.latched = held.into();
                }
            }
            Latched::Place(Place::Conversation(conv)) => {
                if let Some(conv) = self.conversations.get_mut(&conv) {
                    conv.latched = held.is_some();
                    conv.turns = if held.is_some() { conv.turns } else { 0 };
                }
            }
            Latched::Place(Place::Room(room)) => {
                if let Some(room) = self.rooms.get_mut(&room) {
                    room.latched = held.is_some();
                    room.turns = if held.is_some() { room.turns } else { 0 };
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
        let mut tasks = BTreeSet::new();
        for (id, below) in self.conversations.iter() {
            let mut line = core::iter::successors(Some(id), |id| self.conversations.get(id)?.parent);
            if line.any(|above| above == conv) {
                tasks.extend(below.open_tasks.iter().copied());
            }
        }
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
                if let Some(conv) = self.conversations.get_mut(&conv) {
                    conv.running = running;
                }
                self.conversation_changed(at, conv);
            }
        }
    }
}

/// A fold of one area was given a fact of another: the dispatch above is wrong.
pub(super) fn misdirected(fact: &Fact) {
    debug_assert!(false, "a fact came to the fold of another area: {fact:?}");
}
