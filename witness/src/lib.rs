//! The witness: a second, independent implementation of the rules, which recounts a log from its facts alone (L5).
//!
//! It shares the names of facts and limits with the broker, and none of its bookkeeping: no state, no fold, no guard.
//! It counts naively, forgets what belongs to closed grants, and notes every promise that a fact breaks.
//!
//! It doesn't recount: which agents may see what, keys of retries, times to acknowledge, leases, the clock of a grant,
//! days' budgets of agents, and what is held by a pause of a conversation above.

use std::collections::BTreeMap;

use lastword_facts::fact::{
    AgentGranted, Claimed, Control, Entry, Fact, GrantEnd, LatchSet, Latched, LimitChanged, Scope,
};
use lastword_facts::ids::{AgentId, ApprovalId, ConvId, EscalationId, GrantId, Seq, TaskId, Time, TurnId};
use lastword_facts::limits::Limits;
use serde::Serialize;

mod asked;
mod grants;
mod messages;
mod people;
mod places;
mod turns;
mod windows;

use asked::{Escalation, HeldCall};
use grants::{GrantCount, Numbers, TaskCount};
use people::Party;
use places::{Places, Spot};
use turns::OpenTurn;

/// Entries between two sweeps.
const SWEEP_EVERY: u64 = 4_096;

/// A promise that a fact of the log breaks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BrokenPromise {
    /// The promise, as a sentence.
    pub promise: &'static str,
    /// The position of the fact.
    pub seq: Seq,
    /// The numbers that break it.
    pub detail: String,
}

impl std::fmt::Display for BrokenPromise {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a promise is broken: {} ({})", self.promise, self.detail)
    }
}

/// The maxima over all grants that no human extended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Peaks {
    /// Waking messages as the termination proof counts them: the requests of agents, and the answers.
    pub waking: u64,
    /// Messages charged to its total: requests, and the answers reserved with them.
    pub charged: u64,
    /// Turns opened in one grant.
    pub turns: u64,
}

/// The recount of the facts so far. It is serialized only for comparison: a model checker hashes the bytes.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Witness {
    seq: u64,
    at: Time,
    limits: Limits,
    numbers: Numbers,
    /// A guard whose promise is checked even in observe mode (G7).
    looks_at: Option<&'static str>,
    parties: BTreeMap<AgentId, Party>,
    running: Running,
    /// The time of the last human act (D12).
    last_act: Time,
    grants: BTreeMap<GrantId, GrantCount>,
    tasks: BTreeMap<TaskId, TaskCount>,
    turns: BTreeMap<TurnId, OpenTurn>,
    places: Places,
    escalations: BTreeMap<EscalationId, Escalation>,
    approvals: BTreeMap<ApprovalId, HeldCall>,
    /// The task whose turn was finished, until the consequences are recorded (F2).
    finishing: Option<TaskId>,
    last: Last,
    peaks: Peaks,
    broken: Vec<BrokenPromise>,
}

/// The last ids given out: an unknown lower id belongs to something that has ended.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Last {
    grant: u64,
    task: u64,
    turn: u64,
    escalation: u64,
    approval: u64,
    conv: u32,
}

/// Whether an agent, conversation or workspace runs (H4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
enum Running {
    #[default]
    Active,
    Held,
}

impl From<Control> for Running {
    fn from(control: Control) -> Self {
        match control {
            Control::Resume => Self::Active,
            Control::Pause | Control::Stop => Self::Held,
        }
    }
}

impl Witness {
    /// Creates a witness that checks the promise of `guard` even in observe mode, for tests.
    #[must_use]
    pub fn looking_at(guard: &'static str) -> Self {
        Self { looks_at: Some(guard), ..Self::default() }
    }

    /// Returns the broken promises so far.
    #[must_use]
    pub fn broken(&self) -> &[BrokenPromise] {
        &self.broken
    }

    /// Returns the maxima so far.
    #[must_use]
    pub const fn peaks(&self) -> Peaks {
        self.peaks
    }

    /// Returns the number of unanswered requests.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.tasks.values().filter(|task| task.request.is_some()).count()
    }

    /// Returns the messages charged to an open grant, and its turns.
    #[must_use]
    pub fn totals(&self, grant: GrantId) -> Option<(u64, u64)> {
        self.grants.get(&grant).filter(|grant| !grant.closed).map(|grant| (grant.messages, grant.turns))
    }

    /// Returns the number of records held, which must not grow with the log.
    #[must_use]
    pub fn records(&self) -> usize {
        let windows = self.parties.values().map(Party::records).sum::<usize>();
        let places = self.places.len();
        [self.grants.len(), self.tasks.len(), self.turns.len(), self.escalations.len(), self.approvals.len()]
            .iter()
            .sum::<usize>()
            + windows
            + places
    }

    /// Records a broken promise that the caller checked.
    pub fn expect(&mut self, holds: bool, promise: &'static str, detail: impl FnOnce() -> String) {
        if !holds {
            self.broken.push(BrokenPromise { promise, seq: Seq(self.seq), detail: detail() });
        }
    }

    /// Recounts one fact and checks its promises.
    pub fn see(&mut self, entry: &Entry) {
        self.seq += 1;
        self.expect(entry.at >= self.at, "time never runs backwards in the log", || format!("{:?}", entry.at));
        self.at = self.at.max(entry.at);
        self.settles(&entry.fact);
        let of = self.grant_of(&entry.fact);
        self.count(&entry.fact);
        self.attend(&entry.fact);
        self.see_phi(entry, of);
        if self.seq.is_multiple_of(SWEEP_EVERY) {
            self.sweep();
        }
    }

    /// Returns whether a guard enforces, as opposed to observes.
    fn enforced(&self, guard: &str) -> bool {
        self.looks_at == Some(guard) || !self.limits.observed.observes(guard)
    }

    /// Recounts a fact. Every one is named, so that a new one must say what it changes.
    #[expect(clippy::too_many_lines, reason = "one line a fact")]
    fn count(&mut self, fact: &Fact) {
        match fact {
            Fact::Configured { limits } => self.configured(limits),
            Fact::LimitChanged(LimitChanged { limit, value, by, .. }) => {
                self.human_may(*by, fact);
                let mut limits = self.limits.clone();
                limits.set(limit, *value);
                self.configured(&limits);
            }
            Fact::EpochBegan { first } => self.begin_epoch(first.0),
            Fact::Registered(_)
            | Fact::Amended { .. }
            | Fact::Removed { .. }
            | Fact::AgentLimited { .. }
            | Fact::AgentRested { .. }
            | Fact::RoleSet { .. }
            | Fact::PromptTyped { .. }
            | Fact::PromptEnded { .. }
            | Fact::Noticed { .. } => self.see_party(fact),
            Fact::Heard { .. }
            | Fact::Warned { .. }
            | Fact::Rearmed { .. }
            | Fact::ConversationOpened(_)
            | Fact::Posted { .. } => self.see_place(fact),
            Fact::GrantOpened(_)
            | Fact::GrantExtended { .. }
            | Fact::GrantClosed { .. }
            | Fact::RootStarted(_)
            | Fact::RootEnded { .. }
            | Fact::RoundsGranted(_)
            | Fact::RequestsGranted { .. } => self.see_grant(fact),
            Fact::ScheduleTicked { grant, next_at, .. } => self.see_tick(*grant, next_at.is_some()),
            Fact::ScheduleSet { by, .. } => self.human_may(*by, fact),
            Fact::Accepted { message } => self.see_message(message),
            Fact::TurnOpened(_)
            | Fact::Joined { .. }
            | Fact::Collected { .. }
            | Fact::Renewed { .. }
            | Fact::TurnClosed(_)
            | Fact::TurnFinished(_)
            | Fact::TurnCharged(_)
            | Fact::Spent { .. }
            | Fact::SpentOn { .. }
            | Fact::WorkedOutside(_)
            | Fact::WaitsForUser { .. }
            | Fact::Requeued(_) => self.see_turn(fact),
            Fact::LatchSet(LatchSet { on, .. }) => self.latch(*on, true),
            Fact::LatchLifted { on, by } => {
                self.human_may(*by, fact);
                self.latch(*on, false);
            }
            Fact::Controlled { scope, control, by } => {
                self.human_may(*by, fact);
                self.controlled(*scope, *control);
            }
            Fact::EscalationOpened(_)
            | Fact::EscalationNoted { .. }
            | Fact::EscalationAnswered { .. }
            | Fact::EscalationExpired { .. }
            | Fact::LiftChosen { .. }
            | Fact::ApprovalAsked(_)
            | Fact::ApprovalRuled { .. }
            | Fact::ApprovalDecided(_)
            | Fact::ApprovalUsed { .. } => self.see_asked(fact),
            Fact::Claimed(Claimed { agent, .. }) => self.see_window(*agent, windows::Target::Claim),
            Fact::ClaimBroken { by, .. } | Fact::Dismissed { by, .. } | Fact::LinkSet { by, .. } => {
                self.human_may(*by, fact);
            }
            Fact::AgentGranted(AgentGranted { by, .. }) | Fact::PolicyChanged { by, .. } => self.human_may(*by, fact),
            Fact::Idled { ms, .. } => self.see_idled(*ms),
            // These change nothing that is recounted.
            Fact::Rekeyed { .. }
            | Fact::DisplayNameSet { .. }
            | Fact::Refused(_)
            | Fact::Observed { .. }
            | Fact::Late { .. }
            | Fact::BudgetWarned { .. }
            | Fact::Released { .. }
            | Fact::RoomOpened { .. }
            | Fact::PolicyConfigured { .. }
            | Fact::EscalationKeyed { .. }
            | Fact::NoticeRead { .. }
            | Fact::PostKeyed(_)
            | Fact::Forgot { .. }
            | Fact::WriteRefused(_)
            | Fact::RefusalsSummed { .. }
            | Fact::IncidentNoted(_)
            | Fact::GrantAged { .. }
            | Fact::EscalationLifts { .. }
            | Fact::Keyed { .. }
            | Fact::AlertRaised { .. }
            | Fact::ApprovalOffered { .. }
            | Fact::HumanActed { .. }
            | Fact::Unattended { .. }
            | Fact::ScheduleRemoved { .. }
            | Fact::ScheduleSkipped { .. }
            | Fact::TokenRotated(_)
            | Fact::Stalled(_)
            | Fact::SessionBegan { .. }
            | Fact::StepKept(_)
            | Fact::GrantTraced { .. }
            | Fact::Upgraded { .. } => {}
        }
    }

    /// Jumps to the position at which a restore began an epoch (L8).
    fn begin_epoch(&mut self, first: u64) {
        let seq = self.seq;
        self.expect(first >= seq, "positions only grow", || format!("{first} behind {seq}"));
        self.seq = first;
    }

    fn configured(&mut self, limits: &Limits) {
        let thresholds = |limits: &Limits| (limits.turns_soft_max, limits.turns_hard_max);
        if thresholds(&self.limits) != thresholds(limits) {
            self.places.rearm_all();
        }
        self.limits = limits.clone();
        self.numbers = Numbers::of(limits, self.numbers.deepest_max);
        let phis: Vec<_> = self.grants.iter().map(|(id, grant)| (*id, self.phi(grant))).collect();
        for (id, phi) in phis {
            if let Some(grant) = self.grants.get_mut(&id) {
                // New limits change the grant's bound.
                (grant.phi, grant.plain) = (phi, false);
            }
        }
    }

    fn latch(&mut self, on: Latched, holds: bool) {
        match on {
            Latched::Grant(grant) => {
                if let Some(grant) = self.grants.get_mut(&grant) {
                    grant.latched = holds;
                }
            }
            Latched::Place(place) => {
                let at = self.at;
                let spot = self.places.spot(place, at);
                spot.latched = holds;
                if !holds {
                    spot.rearm();
                }
            }
        }
    }

    fn controlled(&mut self, scope: Scope, control: Control) {
        match scope {
            Scope::Workspace => self.running = control.into(),
            Scope::Agent(agent) => {
                if let Some(party) = self.parties.get_mut(&agent) {
                    party.running = control.into();
                }
            }
            Scope::Conversation(conv) => self.conv(conv).running = control.into(),
        }
    }

    fn conv(&mut self, conv: ConvId) -> &mut Spot {
        let at = self.at;
        self.places.spot(lastword_facts::fact::Place::Conversation(conv), at)
    }

    /// Shifts short deadlines by the time in which the broker didn't run (L6).
    fn see_idled(&mut self, ms: u64) {
        for party in self.parties.values_mut() {
            party.idled(ms);
        }
        for held in self.approvals.values_mut() {
            held.idled(ms);
        }
    }

    /// Drops records that have no further effect and that the broker has forgotten too.
    fn sweep(&mut self) {
        let (at, keep) = (self.at, self.limits.retention_ms.saturating_mul(2));
        let used = self.grants.values().flat_map(|grant| grant.convs.iter().copied()).collect();
        self.places.sweep(at, keep, &used);
        self.escalations.retain(|_, escalation| escalation.is_waited_for() || at.since(escalation.at) < keep);
        let use_ms = self.limits.approval_use_ms;
        self.approvals.retain(|_, held| !held.is_past(at, use_ms));
    }

    fn closes_finished(&mut self, grant: GrantId, end: GrantEnd) {
        let open = self.grants.get(&grant).map_or(0, |grant| grant.open.len());
        let finished = end == GrantEnd::Finished;
        self.expect(!finished || open == 0, "a grant is finished when none of its tasks is open", || format!("{open}"));
    }
}

/// Reports a fact that was routed to the wrong part of the witness: the dispatch above is wrong.
fn misdirected(fact: &Fact) {
    debug_assert!(false, "a fact came to another part of the witness: {fact:?}");
}
