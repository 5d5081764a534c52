//! Agents and humans: permissions (H7), and the last human act (D12).

#![expect(clippy::wildcard_enum_match_arm, reason = "the dispatch names every fact; this part looks at its own")]

use std::collections::VecDeque;

use lastword_facts::fact::{
    AgentGranted, AgentLimits, ApprovalDecided, Decision, Fact, Kind, LimitChanged, Message, Registered, Role,
    RoundsGranted, SYSTEM,
};
use lastword_facts::ids::{AgentId, GrantId, Seq, Time};
use lastword_facts::names::AgentName;
use serde::Serialize;

use super::windows::Sent;
use super::{Running, Witness};

/// An agent or a human.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Party {
    pub(super) name: AgentName,
    kind: Kind,
    role: Role,
    pub(super) live: bool,
    pub(super) running: Running,
    pub(super) resting: bool,
    turns_max: u64,
    pub(super) own: AgentLimits,
    pub(super) open_turns: u64,
    /// Its open questions to humans.
    pub(super) escalations: u64,
    pub(super) sent: VecDeque<Sent>,
    pub(super) roots: VecDeque<Time>,
    /// The human whose typed prompt may still open a grant (H8).
    pub(super) typed: Option<AgentId>,
    /// The times at which typed prompts opened grants, within the last hour.
    pub(super) typed_grants: VecDeque<Time>,
    /// A day number, and the waking messages that its own roots caused on that day.
    pub(super) day: (u64, u64),
    noticed: Seq,
}

impl Party {
    pub(super) fn records(&self) -> usize {
        self.sent.len() + self.roots.len() + self.typed_grants.len()
    }

    pub(super) fn idled(&mut self, ms: u64) {
        for sent in &mut self.sent {
            sent.at = sent.at.plus(ms);
        }
    }

    /// Returns its limit of open turns.
    pub(super) const fn turns_max(&self, workspace: u64) -> u64 {
        match (self.own.agent_turns_max, self.turns_max) {
            (0, 0) => workspace,
            (0, own) | (own, _) => own,
        }
    }

    pub(super) const fn is_human(&self) -> bool {
        matches!(self.kind, Kind::Human)
    }
}

impl Witness {
    pub(super) fn see_party(&mut self, fact: &Fact) {
        match fact {
            Fact::Registered(Registered { agent, name, kind, profile, .. }) => {
                let fresh = Party {
                    name: name.clone(),
                    kind: *kind,
                    role: Role::Owner,
                    live: true,
                    running: Running::Active,
                    resting: false,
                    turns_max: profile.turns_max,
                    own: AgentLimits::NONE,
                    open_turns: 0,
                    escalations: 0,
                    sent: VecDeque::new(),
                    roots: VecDeque::new(),
                    typed: None,
                    typed_grants: VecDeque::new(),
                    day: (0, 0),
                    noticed: Seq(0),
                };
                // The first edition reused the id of a free name.
                let known = self.parties.entry(*agent).or_insert(fresh);
                (known.kind, known.live, known.running) = (*kind, true, Running::Active);
                (known.name, known.turns_max) = (name.clone(), profile.turns_max);
            }
            Fact::Amended { agent, profile } => {
                if let Some(party) = self.parties.get_mut(agent) {
                    party.turns_max = profile.turns_max;
                }
            }
            Fact::Removed { agent } => {
                if let Some(party) = self.parties.get_mut(agent) {
                    (party.live, party.escalations) = (false, 0);
                }
                self.leaves(*agent);
            }
            Fact::AgentLimited { agent, limits } => {
                if let Some(party) = self.parties.get_mut(agent) {
                    party.own = (**limits).clone();
                }
            }
            Fact::AgentRested { agent, until } => {
                if let Some(party) = self.parties.get_mut(agent) {
                    party.resting = until.is_some();
                }
            }
            Fact::RoleSet { human, role } => {
                if let Some(party) = self.parties.get_mut(human) {
                    party.role = *role;
                }
                let owner = self.parties.values().any(|p| p.live && p.is_human() && p.role == Role::Owner);
                self.expect(owner, "one owner is always left", || human.to_string());
            }
            Fact::PromptTyped { agent, by } => {
                self.human_may(*by, fact);
                self.types(*agent, Some(*by));
            }
            Fact::PromptEnded { agent } => self.types(*agent, None),
            Fact::Noticed { agent, through } => {
                let Some(party) = self.parties.get_mut(agent) else { return };
                let before = std::mem::replace(&mut party.noticed, *through);
                let on = *through > before;
                self.expect(on, "an acked cursor never goes back", || format!("{through} after {before}"));
            }
            other => super::misdirected(other),
        }
    }

    fn types(&mut self, agent: AgentId, by: Option<AgentId>) {
        if let Some(party) = self.parties.get_mut(&agent) {
            party.typed = by;
        }
    }

    pub(super) fn is_human(&self, who: AgentId) -> bool {
        self.parties.get(&who).is_some_and(Party::is_human)
    }

    /// Returns whether it is an agent: neither a human nor the broker.
    pub(super) fn is_agent(&self, who: AgentId) -> bool {
        who != SYSTEM && !self.is_human(who)
    }

    /// Returns whether it is a human whose messages count; a viewer's don't (H7).
    pub(super) fn is_heard(&self, who: AgentId) -> bool {
        self.parties.get(&who).is_some_and(|party| party.is_human() && party.role != Role::Viewer)
    }

    /// Returns whether it is a human with at least this role.
    pub(super) fn has_role(&self, who: AgentId, role: Role) -> bool {
        self.parties.get(&who).is_some_and(|party| party.is_human() && party.role <= role)
    }

    /// Checks that a human who isn't a viewer lifts, extends, stops or answers.
    pub(super) fn human_may(&mut self, by: AgentId, fact: &Fact) {
        let operator = matches!(
            fact,
            Fact::Controlled { .. }
                | Fact::GrantExtended { .. }
                | Fact::RoundsGranted(_)
                | Fact::RequestsGranted { .. }
                | Fact::LiftChosen { .. }
                | Fact::AgentGranted(_)
                | Fact::PromptTyped { .. }
                | Fact::ClaimBroken { .. }
        );
        let may = self.has_role(by, if operator { Role::Operator } else { Role::Approver });
        self.expect(may, "only a human who may lifts, extends, stops or answers", || by.to_string());
    }

    /// Records a human's act.
    pub(super) fn attend(&mut self, fact: &Fact) {
        let by = match fact {
            Fact::Accepted { message } => (message.is_said() && !self.is_tick(message)).then_some(message.from),
            Fact::Posted { from, .. } => Some(*from),
            Fact::ApprovalDecided(ApprovalDecided { by, decision, .. }) => by.filter(|_| *decision != Decision::Expire),
            Fact::Registered(Registered { agent, .. }) => Some(*agent),
            Fact::GrantExtended { by, .. }
            | Fact::RoundsGranted(RoundsGranted { by, .. })
            | Fact::RequestsGranted { by, .. }
            | Fact::ClaimBroken { by, .. }
            | Fact::Dismissed { by, .. }
            | Fact::LinkSet { by, .. }
            | Fact::LatchLifted { by, .. }
            | Fact::Controlled { by, .. }
            | Fact::EscalationNoted { by, .. }
            | Fact::EscalationAnswered { by, .. }
            | Fact::LiftChosen { by, .. }
            | Fact::AgentGranted(AgentGranted { by, .. })
            | Fact::ScheduleSet { by, .. }
            | Fact::PolicyChanged { by, .. }
            | Fact::LimitChanged(LimitChanged { by, .. })
            | Fact::PromptTyped { by, .. }
            | Fact::HumanActed { by } => Some(*by),
            Fact::Idled { by, .. } => *by,
            _ => None,
        };
        if by.is_some_and(|by| self.is_heard(by)) {
            self.last_act = self.at;
        }
    }

    /// Marks the grant of a schedule's run; a tick by the clock needs an attended workspace.
    pub(super) fn see_tick(&mut self, grant: GrantId, by_the_clock: bool) {
        if by_the_clock {
            self.expect_attended();
        }
        if let Some(grant) = self.grants.get_mut(&grant) {
            grant.scheduled = by_the_clock;
        }
    }

    /// Returns whether a message is a tick's request: in a human's name, but not the human's act (D13).
    pub(super) fn is_tick(&self, message: &Message) -> bool {
        let grant = message.grant.and_then(|grant| self.grants.get(&grant));
        message.part.is_request() && grant.is_some_and(|grant| grant.scheduled)
    }

    /// Checks that agents may start work: a human acted recently (D12).
    pub(super) fn expect_attended(&mut self) {
        let (max, since) = (self.limits.unattended_ms, self.at.since(self.last_act));
        let attended = max == 0 || since < max;
        self.expect(attended, "agents start nothing where no human acted for long", || format!("{since} ms of {max}"));
    }
}
