//! Grants: sources of work, and everything charged to them (§0, D8).

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use lastword_facts::fact::{Extension, GrantEnd, SYSTEM, Spend};
use lastword_facts::ids::{AgentId, ConvId, GrantId, IncidentId, TaskId, Time};
use lastword_facts::limits::Limits;
use lastword_facts::trace::TraceContext;

use super::{Asker, Closed, Conversation, Few, Opt, State, Timer};

/// A grant (§0, D8).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The human who gave it, or the agent whose own root it is.
    pub giver: AgentId,
    /// Whether an agent gave it to itself by starting a root (D7).
    pub own_root: bool,
    /// Whether a tick of a schedule opened it (D13).
    pub scheduled: bool,
    /// Whether a prompt that its giver typed into an agent's session opened it (H8).
    pub typed: bool,
    /// The conversation in which it started.
    pub conv: ConvId,
    /// The time at which it was opened.
    pub opened_at: Time,
    /// The end of its time, if its clock is not stopped again.
    pub expires_at: Time,
    /// The moment since which its clock is stopped; none while it runs.
    pub clock_stopped_at: Opt<Time>,
    /// Its waking messages, including those reserved for answers.
    pub messages: u64,
    /// Answers that are reserved but not sent yet.
    pub owed: u64,
    /// The turns opened under it.
    pub turns: u64,
    /// The distinct agents that it woke.
    pub agents: Few<AgentId, 4>,
    /// The tokens and the cost charged to it.
    pub spend: Spend,
    /// Whether its tokens are estimated from the length of the text, at least in part (B1).
    pub estimated: bool,
    /// Whether an agent was warned that the budget nears its end (B1).
    pub budget_warned: bool,
    /// Whether its giver was warned that its time nears the end (D8).
    pub clock_warned: bool,
    /// The number of its open turns; its clock runs while there is one (D8).
    pub(crate) open_turns: u32,
    /// The number of its queued tasks that wait for a human, or for an agent with its own time to acknowledge (D8).
    pub(crate) queued_waits: u32,
    /// The moment since which a latch holds it or the conversation in which it started.
    pub(crate) held_since: Opt<Time>,
    /// The moment of the timer that is set.
    pub(crate) timer: Opt<Time>,
    /// The sum of humans' extensions; `None` if there was none.
    pub(crate) extended: Option<Box<Extension>>,
    /// The number of humans' extensions.
    pub extensions: u32,
    /// All its tasks, in order; the first is its root task.
    pub tasks: Few<TaskId, 2>,
    /// The number of its open tasks.
    pub open_tasks: u32,
    /// The escalations and approvals that its tasks wait for.
    pub human_waits: u64,
    /// The incident whose latch holds it.
    pub latched: Opt<IncidentId>,
    /// How it ended; `None` while it is open.
    pub end: Option<GrantEnd>,
    /// The place in a trace from elsewhere that its work belongs to.
    pub trace: Option<Box<TraceContext>>,
    /// The structural part of Φ: what its open tasks can still cause (docs/reliability.md).
    pub(crate) structure: u64,
}

impl Grant {
    pub(super) fn new(
        giver: AgentId,
        own_root: bool,
        conv: ConvId,
        at: Time,
        expires_at: Time,
        structure: u64,
    ) -> Self {
        Self {
            giver,
            own_root,
            scheduled: false,
            typed: false,
            conv,
            opened_at: at,
            expires_at,
            clock_stopped_at: Opt::none(),
            messages: 0,
            owed: 0,
            turns: 0,
            agents: Few::new(),
            spend: Spend::default(),
            estimated: false,
            budget_warned: false,
            clock_warned: false,
            open_turns: 0,
            queued_waits: 0,
            held_since: Opt::none(),
            timer: Opt::none(),
            extensions: 0,
            extended: None,
            tasks: Few::new(),
            open_tasks: 0,
            human_waits: 0,
            latched: Opt::none(),
            end: None,
            trace: None,
            structure,
        }
    }

    /// Returns its first task, once there is one.
    #[must_use]
    pub fn root_task(&self) -> Option<TaskId> {
        self.tasks.first().copied()
    }

    /// Returns the sum of humans' extensions.
    #[must_use]
    pub fn extension(&self) -> &Extension {
        const NONE: &Extension = &Extension::NONE;
        self.extended.as_deref().unwrap_or(NONE)
    }

    /// Returns Φ: an upper bound of the waking messages that the grant can still cause. Each one lowers it, and only a
    /// human's extension or a new configuration raises it.
    #[must_use]
    pub fn phi(&self, limits: &Limits) -> u64 {
        if self.end.is_some() {
            return 0;
        }
        let total = limits.grant_messages_max.saturating_add(self.extension().messages);
        let by_total = total.saturating_sub(self.messages).saturating_add(self.owed);
        // Under observation these guards don't bound the structure of a grant; only the total does.
        if limits.observed.observes("hop_cap") || limits.observed.observes("task_requests") {
            return by_total;
        }
        by_total.min(self.structure)
    }

    /// Adds a task that began.
    pub(super) fn begin(&mut self, task: TaskId) {
        self.tasks.push(task);
        self.open_tasks += 1;
    }

    /// Adds an agent to those that the grant woke.
    pub(super) fn wake(&mut self, agent: AgentId) {
        if !self.agents.contains(&agent) {
            self.agents.push(agent);
        }
    }
}

impl State {
    /// Returns the open grants of a conversation, oldest first: those that started in it, those with an open task in
    /// it, and the grant of its last request. Scans all grants.
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

    /// Returns the grants of a conversation's open tasks, of its root, and of its last request; some more than once.
    pub fn at_work_in<'a>(&'a self, conv: &'a Conversation) -> impl Iterator<Item = GrantId> + 'a {
        let tasks = conv.open_tasks.iter().copied().chain(conv.root.map(|root| root.task));
        conv.grant.get().into_iter().chain(tasks.filter_map(|task| Some(self.tasks.get(&task)?.grant)))
    }

    /// Returns the open tasks of a grant, in order.
    pub fn open_tasks_of(&self, grant: GrantId) -> impl Iterator<Item = TaskId> + '_ {
        let tasks = self.grants.get(&grant).filter(|grant| grant.open_tasks > 0).into_iter().flat_map(|g| &g.tasks);
        tasks.copied().filter(|task| self.tasks.get(task).is_some_and(|task| !task.is_closed()))
    }

    /// Returns the used share of a grant's budget, in percent: the larger of tokens and cost.
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
        let opened = Grant::new(giver, own_root, conv, at, expires_at, self.limits.potential(0));
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
        // Only more time is a reason to warn about the time again.
        grant.clock_warned = grant.clock_warned && more.time_ms == 0;
        grant.expires_at = grant.expires_at.plus(more.time_ms);
        // A closed root can't send requests, so more of them would raise Φ for nothing.
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
        // An agent that gave its own root can't extend it; only a human can act on the warning.
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
        // A closed grant holds no work, so its latch must not wait for a human any longer.
        let latch = grant.latched.take();
        let tasks = grant.tasks.clone();
        let mut used = Vec::new();
        for task in &tasks {
            let Some(known) = self.tasks.get(task) else { continue };
            used.push(known.conv);
            used.extend(known.delegates.iter().map(|d| d.conv));
            // The entries of every agent that ever had the task, as `charge_grant` and `requeued` made them.
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
            if let Some(known) = self.incidents.get_mut(&incident) {
                known.lifted = known.lifted.or(Some((at, SYSTEM)));
            }
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
        // A request reserves the message of its answer, so that no total can refuse the answer (F6).
        grant.messages += 2;
        grant.owed += 1;
        grant.begin(task);
        // Agents are counted once per grant; a second request to one is free (D8).
        grant.wake(to);
        for partner in above {
            self.agents[to.0 as usize].partners.insert((partner, task));
        }
        // Sending moves one request's share of Φ from the requester's quota to the new task; only the request itself is
        // spent. The first task has its share since the grant was opened.
        if asker.is_task() {
            grant.structure = grant.structure.saturating_sub(1);
        }
        if grant.own_root {
            let day = &mut self.agents[grant.giver.0 as usize].day;
            *day = day.on(at);
            day.root_messages = day.root_messages.saturating_add(2);
        }
    }
}
