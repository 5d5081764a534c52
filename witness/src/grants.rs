//! Grants and tasks: totals (D8), quotas (D3), and Φ, the waking messages that a grant can still cause.

#![expect(clippy::wildcard_enum_match_arm, reason = "the dispatch names every fact; this part looks at its own")]

use std::collections::{BTreeMap, BTreeSet};

use lastword_facts::fact::{
    ApprovalAsked, Entry, EscalationOpened, Extension, Fact, GrantOpened, LatchSet, Latched, Message, Part, Requeued,
    Role, RootStarted, RoundsGranted, Spend, TurnCharged, TurnClosed, TurnFinished, TurnOpened, WorkedOutside,
};
use lastword_facts::ids::{AgentId, ConvId, GrantId, Seq, TaskId};
use lastword_facts::limits::Limits;
use serde::Serialize;

use super::Witness;

/// Bounds derived from the limits.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Numbers {
    /// V(h) for each hop up to the cap: the waking messages that a task there can cause, itself included.
    caused: Vec<u64>,
    /// The most turns of a grant, by its structure.
    turns_max: u64,
    /// The largest depth cap that was ever in force: answers were reserved under it.
    pub(super) deepest_max: u64,
}

impl Numbers {
    /// V(H) = 1 and V(h) = 1 + F (1 + V(h+1)). A grant has K tasks and 2K − 1 waking messages, and each task asks up to
    /// C questions. Each of these wakes an agent at most A times, lost leases included.
    pub(super) fn of(limits: &Limits, deepest_max: u64) -> Self {
        let mut caused = vec![1_u64];
        for _ in 0..limits.hops_max {
            let below = caused.last().copied().unwrap_or(1);
            caused.push(limits.task_requests_max.saturating_mul(below.saturating_add(1)).saturating_add(1));
        }
        caused.reverse();
        let messages = caused.first().copied().unwrap_or(1);
        let tasks = (messages / 2).saturating_add(1);
        let wakes = messages.saturating_add(limits.task_questions_max.saturating_mul(tasks));
        let turns_max = limits.runs_max.max(2).saturating_mul(wakes);
        Self { caused, turns_max, deepest_max: deepest_max.max(limits.depth_max) }
    }

    fn whole(&self) -> u64 {
        self.caused.first().copied().unwrap_or(1)
    }

    /// Returns the waking messages that an open task can still cause: its answer, and those of each request it has
    /// left.
    fn left(&self, task: &TaskCount) -> u64 {
        let below = usize::try_from(task.hop).ok().and_then(|hop| self.caused.get(hop + 1));
        below.map_or(1, |below| task.quota.saturating_mul(below.saturating_add(1)).saturating_add(1))
    }
}

/// A grant that is open or has open tasks.
#[derive(Clone, Debug, Serialize)]
pub(super) struct GrantCount {
    pub(super) giver: AgentId,
    own_root: bool,
    /// Whether a schedule's tick opened it, which isn't a human's act (D13).
    pub(super) scheduled: bool,
    root: Option<TaskId>,
    pub(super) open: BTreeSet<TaskId>,
    pub(super) messages: u64,
    owed: u64,
    pub(super) turns: u64,
    waking: u64,
    agents: BTreeSet<AgentId>,
    pub(super) convs: BTreeSet<ConvId>,
    more: Extension,
    spend: Spend,
    pub(super) latched: bool,
    pub(super) closed: bool,
    /// Whether it was never extended and the limits are those under which it was opened.
    pub(super) plain: bool,
    pub(super) phi: u64,
}

impl GrantCount {
    /// Returns whether none of its tasks has begun.
    pub(super) const fn is_fresh(&self) -> bool {
        self.root.is_none()
    }
}

/// An open task.
#[derive(Clone, Debug, Serialize)]
pub(super) struct TaskCount {
    pub(super) grant: GrantId,
    pub(super) hop: u64,
    /// Requests that it may still send (D3).
    pub(super) quota: u64,
    pub(super) questions: u64,
    pub(super) agent: AgentId,
    /// The agents that had it, the current one included.
    pub(super) tried: Vec<AgentId>,
    /// The requester, and the task that waits for the answer.
    pub(super) asker: Option<(AgentId, Option<TaskId>)>,
    /// The position of its request; `None` for a root.
    pub(super) request: Option<Seq>,
    pub(super) conv: ConvId,
    /// The deepest waking message that it received in each conversation (D2).
    pub(super) received: BTreeMap<ConvId, u8>,
    /// Messages ready for it, with their conversation and depth.
    pub(super) ready: BTreeMap<Seq, Option<(ConvId, u8)>>,
    pub(super) turn: Option<lastword_facts::ids::TurnId>,
    pub(super) runs: u64,
    pub(super) reassigned: u64,
}

impl TaskCount {
    pub(super) fn depth_in(&self, conv: ConvId) -> u8 {
        self.received.get(&conv).map_or(0, |depth| depth.saturating_add(1))
    }
}

impl Witness {
    pub(super) fn see_grant(&mut self, fact: &Fact) {
        match fact {
            Fact::GrantOpened(GrantOpened { grant, giver, conv, .. }) => self.grant_opened(*grant, *giver, *conv),
            Fact::GrantExtended { grant, by, extension } => {
                self.human_may(*by, fact);
                let root = self.grants.get(grant).and_then(|grant| grant.root);
                self.extended(*grant, extension, root);
            }
            Fact::RoundsGranted(RoundsGranted { grant, task, conv, by, rounds }) => {
                self.human_may(*by, fact);
                let deeper = rounds.saturating_mul(2);
                let spot = self.conv(*conv);
                // A depth fits 8 bits.
                spot.deeper = spot.deeper.saturating_add(deeper).min(u8::MAX.into());
                let more = Extension { messages: deeper, turns: deeper, requests: *rounds, ..Extension::default() };
                self.extended(*grant, &more, *task);
            }
            Fact::RequestsGranted { task, by, requests } => {
                self.human_may(*by, fact);
                self.more_requests(*task, *requests);
            }
            Fact::GrantClosed { grant, end } => {
                self.closes_finished(*grant, *end);
                let known = self.grants.get(grant).is_some_and(|grant| !grant.closed);
                self.expect(known, "a grant closes once", || grant.to_string());
                if let Some(grant) = self.grants.get_mut(grant) {
                    grant.closed = true;
                }
            }
            Fact::RootStarted(RootStarted { task, agent, conv, grant, received }) => {
                let giver = self.grants.get(grant).filter(|grant| grant.root.is_none()).map(|grant| grant.giver);
                let typed = self.parties.get(agent).and_then(|party| party.typed);
                let own = giver == Some(*agent) || (giver.is_some() && giver == typed);
                self.expect(own, "a root is the start of a grant of its own", || task.to_string());
                if giver == Some(*agent) {
                    self.see_root(*agent);
                } else {
                    self.see_typed_root(*agent);
                }
                let received = received.map(|depth| (*conv, depth)).into_iter().collect();
                self.begin(*task, TaskCount { received, ..self.fresh(*grant, *agent, *conv) });
            }
            Fact::RootEnded { task, .. } => {
                let root = self.tasks.get(task).is_some_and(|task| task.request.is_none());
                self.expect(root, "a root ends exactly once", || task.to_string());
                self.end(*task);
            }
            other => super::misdirected(other),
        }
    }

    fn grant_opened(&mut self, id: GrantId, giver: AgentId, conv: ConvId) {
        self.expect(id.0 > self.last.grant, "numbers are given once", || id.to_string());
        self.last.grant = self.last.grant.max(id.0);
        let may = !self.is_human(giver) || self.has_role(giver, Role::Operator);
        self.expect(may, "work starts from who may ask for it", || giver.to_string());
        let opened = GrantCount {
            giver,
            own_root: !self.is_human(giver),
            scheduled: false,
            root: None,
            open: BTreeSet::new(),
            messages: 0,
            owed: 0,
            turns: 0,
            waking: 0,
            agents: BTreeSet::new(),
            convs: BTreeSet::from([conv]),
            more: Extension::default(),
            spend: Spend::default(),
            latched: false,
            closed: false,
            plain: true,
            phi: 0,
        };
        self.grants.insert(id, opened);
    }

    fn extended(&mut self, id: GrantId, more: &Extension, task: Option<TaskId>) {
        let Some(grant) = self.grants.get_mut(&id).filter(|grant| !grant.closed) else {
            return self.expect(false, "only an open grant is extended", || id.to_string());
        };
        grant.plain = false;
        grant.more.add(more);
        if let Some(task) = task {
            self.more_requests(task, more.requests);
        }
    }

    fn more_requests(&mut self, task: TaskId, requests: u64) {
        let Some(task) = self.tasks.get_mut(&task) else { return };
        task.quota = task.quota.saturating_add(requests);
        let grant = task.grant;
        if let Some(grant) = self.grants.get_mut(&grant) {
            grant.plain = false;
        }
    }

    /// Creates a task of this grant without a requester.
    pub(super) fn fresh(&self, grant: GrantId, agent: AgentId, conv: ConvId) -> TaskCount {
        TaskCount {
            grant,
            hop: 0,
            quota: self.limits.task_requests_max,
            questions: 0,
            agent,
            tried: vec![agent],
            asker: None,
            request: None,
            conv,
            received: BTreeMap::new(),
            ready: BTreeMap::new(),
            turn: None,
            runs: 1,
            reassigned: 0,
        }
    }

    pub(super) fn begin(&mut self, id: TaskId, task: TaskCount) {
        self.expect(id.0 > self.last.task, "a request makes a task of its own", || id.to_string());
        self.last.task = self.last.task.max(id.0);
        let Some(grant) = self.grants.get_mut(&task.grant).filter(|grant| !grant.closed) else {
            return self.expect(false, "work starts only from an open grant", || id.to_string());
        };
        grant.root = grant.root.or(Some(id));
        grant.open.insert(id);
        grant.convs.insert(task.conv);
        self.tasks.insert(id, task);
    }

    /// Ends a task; drops a closed grant with its last task.
    pub(super) fn end(&mut self, id: TaskId) -> Option<TaskCount> {
        let task = self.tasks.remove(&id)?;
        self.withdraw(id, true);
        if self.finishing == Some(id) {
            self.finishing = None;
        }
        if let Some(grant) = self.grants.get_mut(&task.grant) {
            grant.open.remove(&id);
        }
        Some(task)
    }

    /// Charges a grant with a REQUEST and its answer; an agent's must fit the total.
    pub(super) fn charge(&mut self, id: GrantId, to: AgentId, by_agent: bool) {
        let limits = self.limits.clone();
        let Some(grant) = self.grants.get_mut(&id) else { return };
        grant.messages += 2;
        grant.owed += 1;
        grant.waking += u64::from(by_agent);
        let fresh = grant.agents.insert(to);
        let (messages, agents, latched) = (grant.messages, grant.agents.len() as u64, grant.latched);
        let (more, spend, own_root, giver) = (grant.more, grant.spend, grant.own_root, grant.giver);
        let scheduled = grant.scheduled;
        if grant.plain {
            self.peaks.charged = self.peaks.charged.max(messages);
        }
        if !by_agent {
            return;
        }
        let max = limits.grant_messages_max.saturating_add(more.messages);
        self.expect(messages <= max, "messages per grant <= bound", || format!("{messages} of {max}"));
        let max = limits.grant_agents_max.saturating_add(more.agents);
        let within = agents <= max || !fresh;
        self.expect(within, "agents per grant <= bound", || format!("{agents} of {max}"));
        self.expect(!latched, "nothing is admitted where a human or a latch holds", || id.to_string());
        for (used, base, more) in [
            (spend.tokens, limits.grant_tokens_max, more.tokens),
            (spend.cost_microusd, limits.grant_cost_microusd_max, more.cost_microusd),
        ] {
            let max = base.saturating_add(more);
            self.expect(base == 0 || used < max, "no request past the budget", || format!("{used} of {max}"));
        }
        if own_root {
            self.see_root_messages(giver);
        } else if scheduled {
            self.expect_attended();
        }
    }

    /// Counts the agent that a reassigned request wakes.
    pub(super) fn wakes_another(&mut self, id: GrantId, agent: AgentId) {
        let limit = self.limits.grant_agents_max;
        let Some(grant) = self.grants.get_mut(&id) else { return };
        let fresh = grant.agents.insert(agent);
        let (agents, max) = (grant.agents.len() as u64, limit.saturating_add(grant.more.agents));
        let within = agents <= max || !fresh;
        self.expect(within, "agents per grant <= bound", || format!("{agents} of {max}"));
    }

    /// Uses the reservation that the request made for its answer.
    pub(super) fn answer_comes(&mut self, id: GrantId) {
        let Some(grant) = self.grants.get_mut(&id) else { return };
        grant.owed = grant.owed.saturating_sub(1);
        grant.waking += 1;
        if grant.plain {
            self.peaks.waking = self.peaks.waking.max(grant.waking);
        }
    }

    pub(super) fn see_grant_turn(&mut self, id: GrantId) {
        let (limit, structure) = (self.limits.grant_turns_max, self.numbers.turns_max);
        let bounded = self.enforced("hop_cap") && self.enforced("task_requests");
        let Some(grant) = self.grants.get_mut(&id) else { return };
        grant.turns += 1;
        let (turns, latched, plain) = (grant.turns, grant.latched, grant.plain);
        let max = limit.saturating_add(grant.more.turns);
        if plain {
            self.peaks.turns = self.peaks.turns.max(turns);
        }
        self.expect(turns <= max, "turns per grant <= bound", || format!("{turns} of {max}"));
        self.expect(!latched, "no turn opens where a human or a latch holds", || id.to_string());
        let within = !plain || !bounded || turns <= structure;
        self.expect(within, "turns per grant <= what its structure allows", || format!("{turns} of {structure}"));
    }

    pub(super) fn spent(&mut self, id: GrantId, spend: Spend) {
        if let Some(grant) = self.grants.get_mut(&id) {
            grant.spend.add(spend);
        }
    }

    /// Returns Φ: the lesser of what its total leaves and what its open tasks can still cause.
    pub(super) fn phi(&self, grant: &GrantCount) -> u64 {
        if grant.closed {
            return 0;
        }
        let total = self.limits.grant_messages_max.saturating_add(grant.more.messages);
        let by_total = total.saturating_sub(grant.messages).saturating_add(grant.owed);
        if self.limits.observed.observes("hop_cap") || self.limits.observed.observes("task_requests") {
            return by_total;
        }
        let left = |id: &TaskId| self.tasks.get(id).map_or(0, |task| self.numbers.left(task));
        let structure = match grant.root {
            None => self.numbers.whole(),
            Some(_) => grant.open.iter().fold(0, |sum: u64, id| sum.saturating_add(left(id))),
        };
        by_total.min(structure)
    }

    /// Returns the open grant that a fact belongs to.
    pub(super) fn grant_of(&self, fact: &Fact) -> Option<GrantId> {
        let of_task = |task: &TaskId| self.tasks.get(task).map(|task| task.grant);
        let of_turn = |turn| self.turns.get(turn).and_then(|turn| of_task(&turn.task));
        match fact {
            Fact::Accepted { message } => message.grant,
            Fact::GrantOpened(GrantOpened { grant, .. })
            | Fact::GrantExtended { grant, .. }
            | Fact::GrantClosed { grant, .. }
            | Fact::GrantTraced { grant, .. }
            | Fact::BudgetWarned { grant, .. }
            | Fact::GrantAged { grant, .. }
            | Fact::RoundsGranted(RoundsGranted { grant, .. })
            | Fact::RootStarted(RootStarted { grant, .. })
            | Fact::LatchSet(LatchSet { on: Latched::Grant(grant), .. })
            | Fact::LatchLifted { on: Latched::Grant(grant), .. } => Some(*grant),
            Fact::RootEnded { task, .. }
            | Fact::Collected { task, .. }
            | Fact::Requeued(Requeued { task, .. })
            | Fact::RequestsGranted { task, .. }
            | Fact::TurnOpened(TurnOpened { task, .. }) => of_task(task),
            Fact::Joined { turn, .. }
            | Fact::Renewed { turn, .. }
            | Fact::WaitsForUser { turn, .. }
            | Fact::TurnClosed(TurnClosed { turn, .. })
            | Fact::TurnFinished(TurnFinished { turn, .. })
            | Fact::TurnCharged(TurnCharged { turn, .. })
            | Fact::Spent { turn, .. }
            | Fact::SpentOn { turn, .. } => of_turn(turn),
            Fact::EscalationOpened(EscalationOpened { task, .. }) | Fact::ApprovalAsked(ApprovalAsked { task, .. }) => {
                task.as_ref().and_then(of_task)
            }
            Fact::WorkedOutside(WorkedOutside { grant, .. }) => Some(*grant),
            _ => None,
        }
        .filter(|grant| self.grants.contains_key(grant) || matches!(fact, Fact::GrantOpened(_)))
    }

    /// Checks the Φ that a fact records: it matches the recount, only a human's extension raises it, and every waking
    /// message lowers it.
    pub(super) fn see_phi(&mut self, entry: &Entry, of: Option<GrantId>) {
        let of_one = of.is_none() || entry.grant.map(|(grant, _)| grant) == of;
        self.expect(of_one, "a fact of a grant records its phi", || format!("{:?}, of {of:?}", entry.grant));
        let Some((id, recorded)) = entry.grant else { return };
        let Some(grant) = self.grants.get(&id) else {
            let over = id.0 <= self.last.grant && recorded == 0;
            return self.expect(over, "phi is what the facts amount to", || format!("{recorded}, and {id} is over"));
        };
        let (phi, before) = (self.phi(grant), grant.phi);
        let (gone, raised) = (grant.closed && grant.open.is_empty(), is_grant(&entry.fact));
        self.expect(recorded == phi, "phi is what the facts amount to", || format!("{recorded} and not {phi}"));
        self.expect(raised || phi <= before, "nothing but a grant raises phi", || format!("{before} -> {phi}"));
        let lowers = before > 0 && wakes(&entry.fact);
        self.expect(!lowers || phi < before, "every waking message lowers phi", || format!("{before} -> {phi}"));
        if gone {
            self.grants.remove(&id);
        } else if let Some(grant) = self.grants.get_mut(&id) {
            grant.phi = phi;
        }
    }
}

/// Returns whether a fact opens or extends a grant.
const fn is_grant(fact: &Fact) -> bool {
    matches!(
        fact,
        Fact::GrantOpened(_) | Fact::GrantExtended { .. } | Fact::RoundsGranted(_) | Fact::RequestsGranted { .. }
    )
}

/// Returns whether a fact is a caused waking message: an agent's request, or an answer.
fn wakes(fact: &Fact) -> bool {
    let Fact::Accepted { message } = fact else { return false };
    let Message { part, sender_task, .. } = &**message;
    match part {
        Part::Request(_) => sender_task.is_some(),
        Part::Answer(_) => true,
        Part::Plain | Part::Echo | Part::Reply { .. } | Part::Status { .. } => false,
    }
}
