//! Agents and humans, and the open work of each.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use thin_vec::ThinVec;

use lastword_facts::fact::{AgentLimits, Credential, Kind, Profile, Role, SYSTEM, Spend};
use lastword_facts::ids::{AgentId, ApprovalId, EscalationId, RoomId, Seq, TaskId, Time, TurnId};
use lastword_facts::names::{AgentName, DisplayName, SYSTEM_NAME};
use lastword_facts::refusal::Code;
use lastword_facts::status::ApprovalState;
use lastword_facts::status::EscalationState;
use lastword_facts::status::Running;

use super::{AckClock, Opt, Sorted, State, Typed};

/// Partners in 64 bytes, which is one cache line.
const PARTNERS_A_LINE: usize = 64 / size_of::<(AgentId, TaskId)>();

/// For a list of partners longer than this, reading all of it costs more than waiting for memory.
const PARTNERS_LINES_MAX: usize = 16;

/// An agent or a human.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agent {
    /// The registered name; `None` for the broker.
    pub name: Option<AgentName>,
    /// Whether a program or a human holds the name.
    pub kind: Kind,
    /// The role, if it is a human (H7).
    pub role: Role,
    /// The number of times the name was registered.
    pub incarnation: u32,
    /// Whether it is registered now.
    pub live: bool,
    /// Whether a human paused or stopped it.
    pub running: Running,
    /// The actions, groups and number of parallel turns.
    pub profile: Box<Profile>,
    /// Requests that open a turn and tasks whose answers are ready, in the order in which they are taken.
    pub queue: Sorted<(Time, TaskId), 1>,
    /// The numbers of its open turns.
    pub turns: ThinVec<TurnId>,
    /// The notices for its next delivery, oldest first, each with its time.
    pub notices: VecDeque<(Seq, Time)>,
    /// Its recent messages: the time and the recipient of each (`SYSTEM` for all).
    pub recent: VecDeque<(Time, AgentId)>,
    /// The times of its recent roots (D7).
    pub roots: ThinVec<Time>,
    /// Its use of the current UTC day's limits.
    pub day: DayUse,
    /// Its tasks in open grants, closed tasks included: one entry for each agent above the task and for each agent that
    /// the task asked, in order.
    pub partners: Sorted<(AgentId, TaskId), 1>,
    /// The number of its open escalations.
    pub escalations_open: u64,
    /// The number of its undecided approvals.
    pub approvals_open: u64,
    /// The number of claims that it holds.
    pub claims: u64,
    /// Fields that only few agents need.
    pub(crate) rare: Option<Box<AgentRare>>,
    pub(crate) credential: Box<Credential>,
    pub(crate) ack: AckClock,
}

/// Fields that only few agents need: own limits, recent refusals, a rest. Boxed to keep [`Agent`] small.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AgentRare {
    /// Limits of its own (§1).
    pub(crate) limits: AgentLimits,
    /// What humans granted for one day (B1).
    pub(crate) more: Option<(u64, Spend)>,
    /// The time from which its token is refused; none if that doesn't expire.
    pub(crate) token_expires_at: Opt<Time>,
    /// The token before it while that is valid, too, and until when.
    pub(crate) former_token: Option<(Credential, Time)>,
    /// The end of its rest; none while it doesn't rest (B1).
    pub(crate) rests_until: Opt<Time>,
    /// The times of its recently refused writes (G2).
    pub(crate) refused: VecDeque<Time>,
    /// The room that refused its last post, with the newest turn of that time, unless another limit has refused something
    /// since (H6).
    pub(crate) refused_in: Option<(RoomId, TurnId)>,
    /// Its recent refusals of the kinds that are recorded whatever their number, up to a limit for each code (G2).
    pub(crate) exempt: VecDeque<(Time, Code)>,
    /// The times of its recent ALERTs that were shown to humans (E4).
    pub(crate) alerts: ThinVec<Time>,
    /// The day on which its root allowance last ran out (D7).
    pub(crate) allowance_out: Option<u64>,
    /// The time of the last incident about it, for each code.
    pub(crate) noted: ThinVec<(Code, Time)>,
    /// The prompt that a human last typed into its session, until it ends (H8).
    pub(crate) typed: Option<Typed>,
    /// The times at which typed prompts opened grants in the last hour (H8).
    pub(crate) typed_grants: ThinVec<Time>,
    /// The name that humans and models read beside its own (§1).
    pub(crate) display_name: Option<DisplayName>,
}

/// An agent's use of one UTC day's limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DayUse {
    /// The day, counted in days since the Unix epoch.
    pub day: u64,
    /// The waking messages that its own roots caused.
    pub root_messages: u32,
    /// Whether the tokens of `spend` are estimated from the length of the text, at least in part (B1).
    pub estimated: bool,
    /// The tokens and the cost of its turns and messages.
    pub spend: Spend,
    /// The bytes that its writes added to the log, roughly (G2).
    pub bytes: u64,
}

impl DayUse {
    /// Returns the use on the day of `now`, which is zero once the day is over.
    #[must_use]
    pub fn on(self, now: Time) -> Self {
        if self.day == now.day() { self } else { Self { day: now.day(), ..Self::default() } }
    }
}

impl Agent {
    pub(crate) fn new(name: Option<AgentName>, kind: Kind, credential: Credential) -> Self {
        Self {
            name,
            kind,
            role: Role::Owner,
            incarnation: 0,
            live: false,
            running: Running::Active,
            profile: Box::new(Profile { actions: Vec::new(), groups: Vec::new(), turns_max: 0 }),
            queue: Sorted::default(),
            turns: ThinVec::new(),
            notices: VecDeque::new(),
            recent: VecDeque::new(),
            roots: ThinVec::new(),
            day: DayUse::default(),
            partners: Sorted::default(),
            escalations_open: 0,
            approvals_open: 0,
            claims: 0,
            rare: None,
            credential: Box::new(credential),
            ack: AckClock::default(),
        }
    }

    /// Reads a little of each list that a send reads or extends, for the reason given at [`super::State::touch`].
    pub(crate) fn touch(&self) {
        let queue = self.queue.last().map_or(0, |(at, _)| at.0);
        let due = [self.ack.due.first(), self.ack.due.last()].into_iter().flatten().fold(0, |sum, (due, _)| sum ^ due);
        let recent = self.recent.back().map_or(0, |(at, _)| at.0) ^ self.roots.last().map_or(0, |at| at.0);
        let partners = self.partners.iter().step_by(PARTNERS_A_LINE).take(PARTNERS_LINES_MAX);
        core::hint::black_box(partners.fold(queue ^ due ^ recent, |sum, (_, task)| sum ^ task.0));
    }

    /// Returns its name; `system` for the broker.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_ref().map_or(SYSTEM_NAME, AgentName::as_str)
    }

    /// Returns its tasks in open grants, closed tasks included, in order.
    #[must_use]
    pub fn grant_tasks(&self) -> Vec<TaskId> {
        let mut tasks: Vec<TaskId> = self.partners.iter().map(|(_, task)| *task).collect();
        tasks.sort_unstable();
        tasks.dedup();
        tasks
    }

    /// Returns the place of a fact among its notices.
    pub(crate) fn notice(&self, seq: Seq) -> Option<usize> {
        self.notices.binary_search_by_key(&seq, |(notice, _)| *notice).ok()
    }

    /// Returns its newest task that has `partner` as a partner and for which `own` holds.
    #[must_use]
    pub fn task_with(&self, partner: AgentId, own: impl Fn(TaskId) -> bool) -> Option<TaskId> {
        let with = self.partners.within(&(partner, TaskId(0)), &(partner, TaskId(u64::MAX)));
        with.iter().rev().map(|(_, task)| *task).find(|task| own(*task))
    }

    /// Whether it is a human with the role of owner (H7).
    #[must_use]
    pub const fn is_owner(&self) -> bool {
        self.is_human() && matches!(self.role, Role::Owner)
    }

    /// Whether it is a human whose messages reset counters and lift latches (H7, R4).
    #[must_use]
    pub const fn is_heard(&self) -> bool {
        self.is_human() && !matches!(self.role, Role::Viewer)
    }

    /// Whether it is a human.
    #[must_use]
    pub const fn is_human(&self) -> bool {
        matches!(self.kind, Kind::Human)
    }
}

impl State {
    /// Returns an agent or human by number.
    #[must_use]
    pub fn agent(&self, agent: AgentId) -> Option<&Agent> {
        self.agents.get(agent.0 as usize)
    }

    /// Returns a live agent or human by name.
    #[must_use]
    pub fn live(&self, name: &str) -> Option<AgentId> {
        let id = self.agent_of(name)?;
        self.agent(id)?.live.then_some(id)
    }

    /// Returns the live agents and humans, in the order of their names.
    #[must_use]
    pub fn live_by_name(&self) -> Vec<AgentId> {
        let live = self.agents.iter().enumerate().filter(|(_, agent)| agent.live);
        let mut found: Vec<(&str, AgentId)> =
            live.filter_map(|(id, agent)| Some((agent.name(), AgentId(u32::try_from(id).ok()?)))).collect();
        found.sort_unstable();
        found.into_iter().map(|(_, id)| id).collect()
    }

    /// Returns the name of an agent or human; `system` for the broker.
    #[must_use]
    pub fn name_of(&self, agent: AgentId) -> &str {
        self.agent(agent).map_or(SYSTEM_NAME, Agent::name)
    }

    /// Returns the live human with the lowest number; [`SYSTEM`] if there is none.
    #[must_use]
    pub fn any_human(&self) -> AgentId {
        let found = self.agents.iter().position(|a| a.live && a.is_human());
        found.and_then(|i| u32::try_from(i).ok()).map_or(SYSTEM, AgentId)
    }

    /// Returns the human who gave the task's grant, otherwise any human (§1).
    #[must_use]
    pub fn human_for(&self, task: Option<TaskId>) -> AgentId {
        let giver = task.and_then(|t| self.tasks.get(&t)).and_then(|t| self.grants.get(&t.grant)).map(|g| g.giver);
        let live = |id: &AgentId| self.agent(*id).is_some_and(|a| a.live && a.is_human());
        giver.filter(live).unwrap_or_else(|| self.any_human())
    }

    /// Whether an agent may take a delivery at all: it and the workspace run, and it doesn't rest.
    #[must_use]
    pub fn may_take(&self, agent: AgentId) -> bool {
        self.running == Running::Active
            && self.agent(agent).is_some_and(|a| a.live && a.running == Running::Active && a.rests_until().is_none())
    }

    /// Maps a name to a number; a name that is used again maps to its newest number.
    pub(super) fn name_agent(&mut self, id: AgentId, name: &AgentName, kind: Kind, credential: &Credential) {
        // An old log may register a known number again; this program always mints a new one.
        if id.0 as usize == self.agents.len() {
            self.agents.push(Agent::new(Some(name.clone()), kind, *credential));
        }
        self.refs.seed(credential);
        self.agents_by_name.seed(credential);
        match self.agent_of(name.as_str()) {
            Some(before) if before == id => {}
            Some(before) => {
                // The predecessor keeps its record, for what it sent before, but can't be found by name any more.
                self.agents_by_name.remove(name.as_str(), before.0);
                self.agents_by_name.insert(name.as_str(), id.0);
            }
            None => self.agents_by_name.insert(name.as_str(), id.0),
        }
    }

    pub(super) fn registered(
        &mut self,
        at: Time,
        id: AgentId,
        kind: Kind,
        incarnation: u32,
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

    pub(super) fn amended(&mut self, at: Time, id: AgentId, profile: &Profile) {
        let old = core::mem::replace(&mut *self.agents[id.0 as usize].profile, profile.clone());
        self.index_profile(id, &old, false);
        self.index_profile(id, profile, true);
        self.refresh_clock(at, id);
    }

    pub(super) fn rekeyed(&mut self, id: AgentId, credential: Credential) {
        let old = core::mem::replace(&mut *self.agents[id.0 as usize].credential, credential);
        // Remove first: a token that is replaced with the same token stays valid.
        self.credentials.remove(&old);
        self.end_former(id);
        self.credentials.insert(credential, id);
    }

    pub(super) fn rotated(
        &mut self,
        id: AgentId,
        credential: Credential,
        expires_at: Option<Time>,
        former_until: Option<Time>,
    ) {
        let former = *self.agents[id.0 as usize].credential;
        self.rekeyed(id, credential);
        let former = former_until.map(|until| (former, until)).filter(|(former, _)| *former != credential);
        if let Some((former, _)) = former {
            self.credentials.insert(former, id);
        }
        let rare = self.rare(id);
        rare.former_token = former;
        rare.token_expires_at = expires_at.into();
    }

    /// Ends the token before the current one, and with it what was known of both.
    fn end_former(&mut self, id: AgentId) {
        let Some(rare) = &mut self.agents[id.0 as usize].rare else { return };
        rare.token_expires_at = None.into();
        if let Some((former, _)) = rare.former_token.take() {
            self.credentials.remove(&former);
        }
    }

    pub(super) fn removed(&mut self, at: Time, id: AgentId) {
        let agent = &mut self.agents[id.0 as usize];
        agent.live = false;
        agent.notices.clear();
        let (old, profile) = (*agent.credential, agent.profile.clone());
        self.credentials.remove(&old);
        self.end_former(id);
        self.index_profile(id, &profile, false);
        self.leave_nothing_behind(at, id);
        self.refresh_clock(at, id);
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
                // A label without members is removed, so that an address with it is an unknown recipient.
                if members.is_empty() {
                    index.remove(label);
                }
            }
        }
    }

    /// Ends the open questions and approvals of an agent, so that none of them reaches a successor of the same name
    /// (§1).
    pub(super) fn leave_nothing_behind(&mut self, at: Time, agent: AgentId) {
        let asked: Vec<EscalationId> =
            self.escalations.iter().filter(|(_, e)| e.agent == agent).map(|(id, _)| *id).collect();
        for escalation in asked {
            self.end_escalation(at, escalation, EscalationState::Withdrawn, None);
        }
        let held: Vec<ApprovalId> =
            self.approvals.iter().filter(|(_, a)| a.agent == agent).map(|(id, _)| *id).collect();
        for id in held {
            self.end_approval(at, id, ApprovalState::Withdrawn);
            // An approved call that was not made yet must not become usable for a successor.
            if let Some(approval) = self.approvals.get_mut(&id).filter(|a| a.state == ApprovalState::Approved) {
                approval.state = ApprovalState::Withdrawn;
            }
        }
    }
}
