//! Grants: what work starts from, and what it may still cause (§0, D8).

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{Asker, Closed, Conversation, Few, Opt, State, Timer};
use crate::fact::{Extension, GrantEnd, Spend};
use crate::ids::{AgentId, ConvId, GrantId, IncidentId, TaskId, Time};
use crate::limits::Limits;

/// A grant (§0, D8).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The human who gave it, or the agent whose own root it is.
    pub giver: AgentId,
    /// Whether it is an agent's own root.
    pub own_root: bool,
    /// Whether it is of a tick of a schedule (D13).
    pub scheduled: bool,
    /// Where it started.
    pub conv: ConvId,
    /// When it was given.
    pub opened_at: Time,
    /// When it ends, if its clock doesn't stand still any longer.
    pub expires_at: Time,
    /// Since when its clock stands still.
    pub clock_stopped_at: Opt<Time>,
    /// Waking messages, those reserved for answers included.
    pub messages: u64,
    /// Answers reserved and not yet sent.
    pub owed: u64,
    /// Turns.
    pub turns: u64,
    /// Distinct agents woken.
    pub agents: Few<AgentId, 4>,
    /// What was spent.
    pub spend: Spend,
    /// Whether its agent was told that the budget nears its end.
    pub budget_warned: bool,
    /// Whether its giver was told that its time nears its end (D8).
    pub clock_warned: bool,
    /// Its open turns: while there is one its clock runs (D8).
    pub(crate) open_turns: u32,
    /// Its requests that wait for an agent with a time to acknowledge of its own (D8).
    pub(crate) slow: u32,
    /// Since when a latch holds it, or the conversation where it started.
    pub(crate) held_since: Opt<Time>,
    /// The moment of the timer that is set.
    pub(crate) timer: Opt<Time>,
    /// What humans gave besides, where they did.
    pub(crate) extended: Option<Box<Extension>>,
    /// How often humans gave more.
    pub extensions: u32,
    /// All tasks, in order; the first is its root task.
    pub tasks: Few<TaskId, 2>,
    /// How many of them are open.
    pub open_tasks: u32,
    /// Escalations and approvals that are waited for.
    pub human_waits: u64,
    /// What holds it.
    pub latched: Opt<IncidentId>,
    /// How it ended.
    pub end: Option<GrantEnd>,
    /// The structural part of Φ: what its open tasks can still cause (reliability).
    pub(crate) structure: u64,
}

impl Grant {
    pub(super) fn new(
        giver: AgentId,
        own_root: bool,
        conv: ConvId,
        (at, expires_at): (Time, Time),
        structure: u64,
    ) -> Self {
        Self {
            giver,
            own_root,
            scheduled: false,
            conv,
            opened_at: at,
            expires_at,
            clock_stopped_at: Opt::none(),
            messages: 0,
            owed: 0,
            turns: 0,
            agents: Few::new(),
            spend: Spend::default(),
            budget_warned: false,
            clock_warned: false,
            open_turns: 0,
            slow: 0,
            held_since: Opt::none(),
            timer: Opt::none(),
            extensions: 0,
            extended: None,
            tasks: Few::new(),
            open_tasks: 0,
            human_waits: 0,
            latched: Opt::none(),
            end: None,
            structure,
        }
    }

    /// The task with which it started, once there is one.
    #[must_use]
    pub fn root_task(&self) -> Option<TaskId> {
        self.tasks.first().copied()
    }

    /// What humans gave besides.
    #[must_use]
    pub fn extension(&self) -> &Extension {
        const NONE: &Extension = &Extension::NONE;
        self.extended.as_deref().unwrap_or(NONE)
    }

    /// Φ: the waking messages that the grant can still cause. Each one lowers it, and nothing but a
    /// human's extension or a new configuration raises it.
    #[must_use]
    pub fn phi(&self, limits: &Limits) -> u64 {
        if self.end.is_some() {
            return 0;
        }
        let total = limits.grant_messages_max.saturating_add(self.extension().messages);
        let by_total = total.saturating_sub(self.messages).saturating_add(self.owed);
        if limits.observed.observes("hop_cap") || limits.observed.observes("task_requests") {
            return by_total;
        }
        by_total.min(self.structure)
    }

    /// Counts a task that began.
    pub(super) fn begin(&mut self, task: TaskId) {
        self.tasks.push(task);
        self.open_tasks += 1;
    }

    /// Counts an agent among those that the grant woke.
    pub(super) fn wake(&mut self, agent: AgentId) {
        if !self.agents.contains(&agent) {
            self.agents.push(agent);
        }
    }
}

impl State {
    /// The open grants of a conversation, oldest first: those that started in it, those of which a task is open in
    /// it, and the one of its last request. Looks through all grants.
    #[must_use]
    pub fn open_grants_of(&self, conv: ConvId) -> Vec<GrantId> {
        let Some(known) = self.conversations.get(&conv) else { return Vec::new() };
        let mut found: Vec<GrantId> = self.at_work_in(known).collect();
        found.extend(self.grants.iter().filter(|(_, grant)| grant.conv == conv).map(|(id, _)| id));
        found.retain(|id| self.grants.get(id).is_some_and(|grant| grant.end.is_none()));
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The grants of what is open in a conversation, of its root, and of its last request; some more than once.
    pub fn at_work_in<'a>(&'a self, conv: &'a Conversation) -> impl Iterator<Item = GrantId> + 'a {
        let tasks = conv.open_tasks.iter().copied().chain(conv.root.map(|root| root.task));
        conv.grant.get().into_iter().chain(tasks.filter_map(|task| Some(self.tasks.get(&task)?.grant)))
    }

    /// The open tasks of a grant, in order.
    pub fn open_tasks_of(&self, grant: GrantId) -> impl Iterator<Item = TaskId> + '_ {
        let tasks = self.grants.get(&grant).filter(|grant| grant.open_tasks > 0).into_iter().flat_map(|g| &g.tasks);
        tasks.copied().filter(|task| self.tasks.get(task).is_some_and(|task| !task.is_closed()))
    }

    /// The share of its budget that a grant has used, in percent: the larger of tokens and money.
    #[must_use]
    pub fn budget_percent(&self, grant: &Grant) -> u64 {
        let share = |used: u64, base: u64, more: u64| {
            if base == 0 { 0 } else { used.saturating_mul(100) / base.saturating_add(more) }
        };
        let (limits, more) = (&self.limits, grant.extension());
        let tokens = share(grant.spend.tokens, limits.grant_tokens_max, more.tokens);
        tokens.max(share(grant.spend.cost_microusd, limits.grant_cost_microusd_max, more.cost_microusd))
    }

    pub(super) fn grant_opened(&mut self, at: Time, id: GrantId, giver: AgentId, conv: ConvId, expires_at: Time) {
        self.minted.grant = id.0;
        let own_root = !self.agents[giver.0 as usize].is_human();
        let opened = Grant::new(giver, own_root, conv, (at, expires_at), self.limits.potential(0));
        self.grants.insert(id, opened);
        self.refresh_grant(at, id);
    }

    pub(super) fn grant_extended(&mut self, at: Time, id: GrantId, more: &Extension) {
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

    pub(super) fn grant_aged(&mut self, at: Time, id: GrantId) {
        let Some(grant) = self.grants.get_mut(&id) else { return };
        grant.clock_warned = true;
        let giver = grant.giver;
        let human = if self.agents[giver.0 as usize].is_human() { giver } else { self.any_human() };
        self.arm_grant(id);
        self.notice(at, human);
    }

    pub(super) fn budget_warned(&mut self, at: Time, grant: GrantId, agent: AgentId) {
        if let Some(grant) = self.grants.get_mut(&grant) {
            grant.budget_warned = true;
        }
        self.notice(at, agent);
    }

    pub(super) fn grant_closed(&mut self, at: Time, id: GrantId, end: GrantEnd) {
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

    pub(super) fn open_grants(&self) -> Vec<GrantId> {
        self.grants.iter().filter(|(_, g)| g.end.is_none()).map(|(id, _)| id).collect()
    }

    pub(super) fn human_wait(&mut self, at: Time, id: GrantId, begins: bool) {
        if let Some(grant) = self.grants.get_mut(&id) {
            let waits = grant.human_waits;
            grant.human_waits = if begins { waits.saturating_add(1) } else { waits.saturating_sub(1) };
        }
        self.refresh_grant(at, id);
    }

    pub(super) fn charge_grant(&mut self, at: Time, id: GrantId, to: AgentId, asker: Asker, task: TaskId) {
        let above: Few<AgentId, 4> = self.ancestors(task).collect();
        let Some(grant) = self.grants.get_mut(&id) else { return };
        grant.messages += 2;
        grant.owed += 1;
        grant.begin(task);
        grant.wake(to);
        for partner in above {
            self.agents[to.0 as usize].partners.insert((partner, task));
        }
        if asker.is_task() {
            grant.structure = grant.structure.saturating_sub(1);
        }
        if grant.own_root {
            let day = &mut self.agents[grant.giver.0 as usize].day;
            *day = day.on(at);
            day.root_messages += 2;
        }
    }
}
