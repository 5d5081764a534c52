//! The reference model: recounts everything from the facts, with none of the core's own bookkeeping.

#![expect(clippy::wildcard_enum_match_arm, reason = "the witness looks at some facts only; the fold matches them all")]

use std::collections::{BTreeMap, BTreeSet};

use lastword_proto::State;
use lastword_proto::fact::{Crossing, Entry, Fact, Latched, Message, Part, Place, Recipient, SYSTEM};
use lastword_proto::ids::{AgentId, GrantId, Seq, TaskId, Time};
use lastword_proto::limits::Limits;

/// A promise that was not kept: its name, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The promise, as a sentence.
    pub promise: &'static str,
    /// The position of the fact that broke it.
    pub seq: Seq,
    /// The numbers.
    pub detail: String,
}

/// What the facts so far amount to, recounted.
#[derive(Clone, Debug, Default)]
pub struct Witness {
    seq: u64,
    at: Time,
    limits: Limits,
    humans: BTreeSet<AgentId>,
    phi: BTreeMap<GrantId, u64>,
    extended: BTreeMap<GrantId, (u64, u64, u64)>,
    messages: BTreeMap<GrantId, u64>,
    waking: BTreeMap<GrantId, u64>,
    turns: BTreeMap<GrantId, u64>,
    agents: BTreeMap<GrantId, BTreeSet<AgentId>>,
    asked: BTreeMap<TaskId, u64>,
    requests: BTreeMap<TaskId, Seq>,
    answers: BTreeMap<TaskId, Seq>,
    waking_messages: BTreeSet<Seq>,
    warned: BTreeSet<(Place, bool)>,
    sent: BTreeMap<AgentId, Vec<(Time, Option<AgentId>)>>,
    noticed: BTreeMap<AgentId, Seq>,
    broken: Vec<Broken>,
}

impl Witness {
    /// A witness that knows the numbers that will be in force.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// What was broken so far.
    #[must_use]
    pub fn broken(&self) -> &[Broken] {
        &self.broken
    }

    /// Most waking messages that any grant has caused so far, as the termination proof counts them: the
    /// requests of agents, and the answers.
    #[must_use]
    pub fn most_waking(&self) -> u64 {
        self.waking.values().copied().max().unwrap_or(0)
    }

    /// Most messages that any grant to which no human gave more was charged so far.
    #[must_use]
    pub fn most_charged(&self) -> u64 {
        let plain = self.messages.iter().filter(|(grant, _)| !self.extended.contains_key(grant));
        plain.map(|(_, charged)| *charged).max().unwrap_or(0)
    }

    /// Requests that have no answer.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.requests.keys().filter(|task| !self.answers.contains_key(task)).count()
    }

    fn expect(&mut self, holds: bool, promise: &'static str, detail: impl FnOnce() -> String) {
        if !holds {
            self.broken.push(Broken { promise, seq: Seq(self.seq), detail: detail() });
        }
    }

    /// Takes one fact to account.
    pub fn see(&mut self, entry: &Entry) {
        self.seq += 1;
        self.expect(entry.at >= self.at, "time never runs backwards in the log", || format!("{:?}", entry.at));
        self.at = entry.at;
        self.see_phi(entry);
        match &entry.fact {
            Fact::Registered { agent, kind, .. } if kind.word() == "human" => {
                self.humans.insert(*agent);
            }
            Fact::GrantExtended { grant, extension, .. } => {
                let sum = self.extended.entry(*grant).or_default();
                sum.0 += extension.messages;
                sum.1 += extension.turns;
                sum.2 += extension.agents;
            }
            Fact::Accepted { message } => self.see_message(entry, message),
            Fact::TurnOpened { message, .. } => {
                let waking = self.waking_messages.contains(message);
                self.expect(waking, "only a request or an answer opens a turn", || message.to_string());
                if let Some((grant, _)) = entry.grant {
                    let turns = self.turns.entry(grant).or_default();
                    *turns += 1;
                    let (turns, max) = (*turns, self.limits.grant_turns_max + self.extension(grant).1);
                    self.expect(turns <= max, "turns per grant <= bound", || format!("{turns} of {max}"));
                }
            }
            Fact::Warned { place, crossing, .. } => {
                let fresh = self.warned.insert((*place, *crossing == Crossing::Hard));
                self.expect(fresh, "at most one warning per crossing", || format!("{place:?} {crossing}"));
            }
            Fact::LatchLifted { on: Latched::Place(place), .. } => self.rearm(*place),
            Fact::Rearmed { conv, .. } => self.rearm(Place::Conversation(*conv)),
            Fact::Posted { room, from, .. } if self.humans.contains(from) => self.rearm(Place::Room(*room)),
            Fact::Noticed { agent, through } => {
                let last = self.noticed.insert(*agent, *through).unwrap_or(Seq(0));
                self.expect(*through > last, "an acked cursor never goes back", || format!("{through} after {last}"));
            }
            Fact::ApprovalDecided { by: Some(by), .. } => {
                let human = self.humans.contains(by);
                self.expect(human, "no agent approves a call", || by.to_string());
            }
            _ => {}
        }
    }

    fn rearm(&mut self, place: Place) {
        self.warned.remove(&(place, false));
        self.warned.remove(&(place, true));
    }

    fn extension(&self, grant: GrantId) -> (u64, u64, u64) {
        self.extended.get(&grant).copied().unwrap_or_default()
    }

    fn see_phi(&mut self, entry: &Entry) {
        let Some((grant, phi)) = entry.grant else { return };
        let raised = matches!(entry.fact, Fact::GrantOpened { .. } | Fact::GrantExtended { .. });
        let before = self.phi.insert(grant, phi);
        if let Some(before) = before.filter(|_| !raised) {
            self.expect(phi <= before, "nothing but a grant raises phi", || format!("{before} -> {phi}"));
            let lowers = match &entry.fact {
                Fact::Accepted { message } => match &message.part {
                    Part::Request(_) => message.sender_task.is_some(),
                    Part::Answer(_) => before > 0,
                    Part::Plain | Part::Echo | Part::Reply { .. } | Part::Status { .. } => false,
                },
                _ => false,
            };
            self.expect(!lowers || phi < before, "every waking message lowers phi", || format!("{before} -> {phi}"));
        }
    }

    fn see_message(&mut self, entry: &Entry, message: &Message) {
        let by_agent = message.from != SYSTEM && !self.humans.contains(&message.from);
        let depth = u64::from(message.depth);
        let (depth_max, hops_max) = (self.limits.depth_max, self.limits.hops_max);
        self.expect(depth <= depth_max, "depth <= cap", || format!("{depth}"));
        self.expect(u64::from(message.hops) <= hops_max, "hops <= cap", || format!("{}", message.hops));
        if self.humans.contains(&message.from) {
            self.rearm(Place::Conversation(message.conv));
        }
        match &message.part {
            Part::Request(terms) => {
                self.waking_messages.insert(Seq(self.seq));
                let fresh = self.requests.insert(terms.task, Seq(self.seq)).is_none();
                self.expect(fresh, "a request makes a task of its own", || terms.task.to_string());
                self.charge(message, by_agent);
            }
            Part::Answer(answer) => {
                self.waking_messages.insert(Seq(self.seq));
                let fresh = self.answers.insert(answer.task, Seq(self.seq)).is_none();
                self.expect(fresh, "a request ends exactly once", || answer.task.to_string());
                let asked = self.requests.contains_key(&answer.task);
                self.expect(asked, "an answer answers a request", || answer.task.to_string());
                if let Some(grant) = message.grant {
                    *self.waking.entry(grant).or_default() += 1;
                }
            }
            Part::Reply { .. } => {
                self.waking_messages.insert(Seq(self.seq));
            }
            Part::Plain | Part::Echo | Part::Status { .. } => {}
        }
        let windowed = matches!(message.part, Part::Plain | Part::Request(_));
        if by_agent && windowed {
            self.see_window(entry.at, message);
        }
    }

    fn charge(&mut self, message: &Message, by_agent: bool) {
        let Some(grant) = message.grant else {
            return self.expect(false, "every request belongs to a grant", || format!("{message:?}"));
        };
        let (more, _, more_agents) = self.extension(grant);
        let charged = self.messages.entry(grant).or_default();
        *charged += 2;
        let (charged, max) = (*charged, self.limits.grant_messages_max + more);
        self.expect(charged <= max, "messages per grant <= bound", || format!("{charged} of {max}"));
        if by_agent {
            *self.waking.entry(grant).or_default() += 1;
        }
        if let Recipient::One(to) = message.to {
            let woken = self.agents.entry(grant).or_default();
            woken.insert(to);
            let (woken, max) = (woken.len() as u64, self.limits.grant_agents_max + more_agents);
            self.expect(woken <= max, "agents per grant <= bound", || format!("{woken} of {max}"));
        }
        if let Some(task) = message.sender_task {
            let asked = self.asked.entry(task).or_default();
            *asked += 1;
            let (asked, max) = (*asked, self.limits.task_requests_max);
            let granted = !self.extended.is_empty();
            self.expect(asked <= max || granted, "requests per task <= quota", || format!("{asked} of {max}"));
        }
    }

    fn see_window(&mut self, at: Time, message: &Message) {
        let to = if let Recipient::One(to) = message.to { Some(to) } else { None };
        let sent = self.sent.entry(message.from).or_default();
        sent.push((at, to));
        let within = |ms: u64| sent.iter().filter(move |(then, _)| at.since(*then) < ms);
        let all = within(self.limits.window_ms).count() as u64;
        let pair = within(self.limits.window_ms).filter(|(_, t)| *t == to).count() as u64;
        let targets: BTreeSet<AgentId> = within(self.limits.fan_out_window_ms).filter_map(|(_, t)| *t).collect();
        let targets = targets.len() as u64;
        let limits = self.limits.clone();
        self.expect(all <= limits.sender_messages_max, "windows: per sender", || format!("{all}"));
        self.expect(pair <= limits.pair_messages_max, "windows: per pair", || format!("{pair}"));
        self.expect(targets <= limits.fan_out_targets_max, "windows: fan-out", || format!("{targets}"));
    }

    /// What must hold of the core's state, as seen from the facts.
    pub fn compare(&mut self, state: &State) {
        for (id, grant) in state.grants.iter().filter(|(_, g)| g.end.is_none()) {
            let counted = (self.messages.get(&id).copied().unwrap_or(0), self.turns.get(&id).copied().unwrap_or(0));
            let kept = (grant.messages, grant.turns);
            self.expect(counted == kept, "counters equal those recomputed", || format!("{counted:?} {kept:?}"));
        }
        let open = state.tasks.values().filter(|t| t.request.is_some() && !t.is_closed()).count();
        let unanswered = self.unanswered();
        self.expect(open == unanswered, "a request is open until it is answered", || format!("{open} {unanswered}"));
        let kind = |seq: &Seq| self.waking_messages.contains(seq);
        let quiet = state.tasks.values().flat_map(|t| &t.ready).all(|r| kind(&r.message));
        self.expect(quiet, "nothing but answers is ready for a task", String::new);
    }
}
