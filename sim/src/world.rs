//! A core in virtual time, with a witness of every fact.

use std::collections::BTreeSet;

use lastword_core::input::{Registration, ScheduleTick};
use lastword_core::state::{Scheduled, State};
use lastword_core::{Core, Effect, Input, Out, Principal, Reply};
use lastword_facts::envelope::{Address, Draft};
use lastword_facts::fact::{EDITION, Kind, Profile};
use lastword_facts::ids::{AgentId, DAY_MS, HOUR_MS, Time};
use lastword_facts::limits::Limits;
use lastword_facts::names::{AgentName, Label, Ref};
use lastword_facts::{Entry, Fact, MessageType};

use lastword_witness::{BrokenPromise, Witness};

use crate::witness::compare;

/// One workspace with agents `a`, `b`, … and two humans.
#[derive(Clone, Debug)]
pub struct World {
    core: Core,
    now: Time,
    log: Vec<Entry>,
    witness: Witness,
    agents: Vec<AgentId>,
    /// The inputs of a world that only scouts: they are kept and not given to the core.
    scouted: Option<Vec<Input>>,
}

/// The most timers to wait for until all work has ended.
const TIMERS_MAX: usize = 100_000;
/// The time for which nothing may happen at the end.
const REST_MS: u64 = 60 * DAY_MS;
/// The human that no scenario removes.
const HUMAN: AgentId = AgentId(1);
/// Another human, who may get any role.
const OTHER_HUMAN: AgentId = AgentId(2);

impl World {
    /// Returns a world of `agents` agents under these limits. Every agent serves the action `work`.
    #[must_use]
    pub fn new(limits: &Limits, agents: u8) -> Self {
        Self::over(Core::default(), Witness::default(), limits, agents)
    }

    /// Returns a world over a core that has had no input yet, with this witness.
    #[must_use]
    pub fn over(core: Core, witness: Witness, limits: &Limits, agents: u8) -> Self {
        let mut world =
            Self { core, now: Time(1_000_000), log: Vec::new(), witness, agents: Vec::new(), scouted: None };
        world.give(Input::Configure(Box::new(limits.clone())));
        world.give(Input::Upgrade(EDITION));
        world.enrol("uma", Kind::Human);
        world.enrol("vic", Kind::Human);
        for n in 0..agents {
            let name = char::from(b'a' + n).to_string();
            world.agents.push(AgentId(u32::from(n) + OTHER_HUMAN.0 + 1));
            world.enrol(&name, Kind::Agent);
        }
        world
    }

    /// Returns a world over a core and a witness that have had inputs, with these agents.
    pub(crate) fn resumed(core: Core, witness: Witness, agents: Vec<AgentId>) -> Self {
        let now = core.state().at;
        Self { core, now, log: Vec::new(), witness, agents, scouted: None }
    }

    /// Returns a world in which time doesn't pass and inputs are only noted, to find out what adversaries would do.
    pub(crate) fn scouting(core: Core, agents: Vec<AgentId>) -> Self {
        Self { scouted: Some(Vec::new()), ..Self::resumed(core, Witness::default(), agents) }
    }

    /// Returns the core of a scouting world, unchanged, and the inputs that it was given.
    pub(crate) fn scouted(self) -> (Core, Vec<Input>) {
        (self.core, self.scouted.unwrap_or_default())
    }

    fn enrol(&mut self, name: &str, kind: Kind) {
        let actions = Label::new("work").into_iter().collect();
        let profile = Profile { actions, groups: Vec::new(), turns_max: 0 };
        let Ok(name) = AgentName::new(name) else { return };
        let id = self.core.state().agents.len();
        let registration =
            Registration { credential: credential(id), name, kind, profile, role: None, display_name: None, key: None };
        let input = match self.core.state().prove(&credential(HUMAN.0 as usize)) {
            None => Input::Bootstrap(registration),
            Some(human) => Input::Register(human, registration),
        };
        self.give(input);
    }

    /// Returns the core.
    #[must_use]
    pub const fn core(&self) -> &Core {
        &self.core
    }

    /// Returns all facts so far.
    #[must_use]
    pub fn log(&self) -> &[Entry] {
        &self.log
    }

    /// Drops the facts so far, so that clones are cheap. The world can't be restarted from its log afterwards.
    pub fn drop_log(&mut self) {
        self.log = Vec::new();
    }

    /// Returns the witness.
    #[must_use]
    pub const fn witness(&self) -> &Witness {
        &self.witness
    }

    /// Returns the promises broken so far.
    #[must_use]
    pub fn broken(&self) -> &[BrokenPromise] {
        self.witness.broken()
    }

    /// Returns the numbers of the agents.
    #[must_use]
    pub fn agents(&self) -> &[AgentId] {
        &self.agents
    }

    /// Returns the proof of an agent.
    #[must_use]
    pub fn agent(&self, agent: AgentId) -> Option<Principal> {
        self.core.state().prove(&credential(agent.0 as usize))
    }

    /// Returns the proof of the human that no scenario removes.
    ///
    /// # Panics
    /// Panics if that human was removed, which no scenario does.
    #[must_use]
    pub fn human(&self) -> Principal {
        self.core.state().prove(&credential(HUMAN.0 as usize)).expect("the human is always there")
    }

    /// Returns the proof of the other human, whose role changes.
    #[must_use]
    pub fn other_human(&self) -> Option<Principal> {
        self.core.state().prove(&credential(OTHER_HUMAN.0 as usize))
    }

    /// Returns the current virtual time.
    #[must_use]
    pub const fn now(&self) -> Time {
        self.now
    }

    /// Gives an input to the core and shows its facts to the witness. That it gets exactly one reply is a promise, too.
    ///
    /// # Panics
    /// Panics if an input gets no reply or two.
    pub fn give(&mut self, input: Input) -> Option<Reply> {
        if let Some(scouted) = &mut self.scouted {
            scouted.push(input);
            return None;
        }
        let ticks = matches!(input, Input::Tick);
        let mut out = Out::default();
        self.core.handle(self.now, input, &mut out);
        for entry in &out.entries {
            self.witness.see(entry);
        }
        self.log.append(&mut out.entries);
        let mut replies =
            out.effects.into_iter().filter_map(|e| if let Effect::Reply(r) = e { Some(*r) } else { None });
        let reply = replies.next();
        assert!(replies.next().is_none() && reply.is_some() != ticks, "every input gets exactly one reply");
        reply
    }

    /// Lets time pass, with one tick at the end.
    pub fn pass(&mut self, ms: u64) {
        if self.scouted.is_some() {
            return;
        }
        self.now = self.now.plus(ms);
        self.give(Input::Tick);
        self.tick_schedules();
    }

    /// Ticks each schedule that is due, once even if several of its moments have passed.
    fn tick_schedules(&mut self) {
        let due = |known: &&Scheduled| known.next_at <= self.now;
        let ticks: Vec<ScheduleTick> = (self.core.state().schedules.values().filter(due))
            .map(|known| ScheduleTick {
                name: known.schedule.name.clone(),
                due: known.next_at,
                next_at: self.now.plus(HOUR_MS),
                reference: Ref::new(&format!("S-{}", self.now.0)).expect("a REF"),
            })
            .collect();
        for tick in ticks {
            self.give(Input::TickSchedule(Box::new(tick)));
        }
    }

    /// Lets time pass in which the broker doesn't run (L6).
    pub fn idle(&mut self, ms: u64) {
        if self.scouted.is_some() {
            return;
        }
        self.now = self.now.plus(ms);
        self.give(Input::Idled(None, ms));
        self.give(Input::Tick);
        self.tick_schedules();
    }

    /// Ends the broker and starts it again: from the log alone, or from a snapshot of its state.
    ///
    /// # Panics
    /// Panics if the log doesn't rebuild the state.
    pub fn restart(&mut self, from_snapshot: bool) {
        if self.scouted.is_some() {
            return;
        }
        let again = if from_snapshot { Core::from_state(self.core.state().clone()) } else { self.replayed() };
        self.core = again;
    }

    fn replayed(&self) -> Core {
        let mut again = Core::default();
        for entry in &self.log {
            assert_eq!(again.replay(entry), Ok(()), "phi is what the facts amount to");
        }
        assert!(again.state() == self.core.state(), "facts alone rebuild the state");
        again
    }

    /// Lets time pass until the next timer. Returns `false` if there is none.
    pub fn pass_to_deadline(&mut self) -> bool {
        let Some((at, _)) = self.core.next_deadline() else { return false };
        self.now = self.now.max(at);
        self.give(Input::Tick);
        self.tick_schedules();
        true
    }

    /// Lets time pass from timer to timer, as the server does.
    pub fn walk(&mut self, ms: u64) {
        let end = self.now.plus(ms);
        while self.core.next_deadline().is_some_and(|(at, _)| at <= end) {
            self.pass_to_deadline();
        }
        self.pass(end.since(self.now));
    }

    /// Waits until all work has ended while every participant is silent: once each grant, question and latch has
    /// expired, nothing happens any more.
    ///
    /// # Errors
    /// Returns the work that is still open, or the fact that was recorded after all work had ended.
    pub fn comes_to_rest(&mut self) -> Result<(), String> {
        for _ in 0..TIMERS_MAX {
            if !self.pass_to_deadline() {
                break;
            }
        }
        at_rest(self.core.state())?;
        if self.witness.unanswered() > 0 {
            return Err(format!("{} requests were never answered", self.witness.unanswered()));
        }
        let facts = self.log.len();
        self.pass(REST_MS);
        // Closed records are forgotten and schedules skip their ticks; nothing else may happen.
        let still = |fact: &Fact| matches!(fact, Fact::Forgot { .. } | Fact::ScheduleSkipped { .. });
        let moved = self.log[facts..].iter().find(|entry| !still(&entry.fact));
        moved.map_or(Ok(()), |entry| Err(format!("something moved with no grant open: {:?}", entry.fact)))
    }

    /// Compares the core's state with what the witness counted, and if `replay` with a replay of the facts.
    pub fn audit(&mut self, replay: bool) {
        compare(&mut self.witness, self.core.state());
        if replay {
            self.replayed();
            needs_all_that_it_names(self.core.state());
        }
    }
}

/// Checks that the state is said to need each position that it names: entries before those leave the log. All positions
/// are found in the state's text, so that none is forgotten.
fn needs_all_that_it_names(state: &State) {
    let needed: BTreeSet<u64> = state.needed().map(|seq| seq.0).collect();
    let text = format!("{state:?}");
    for (place, _) in text.match_indices("msg-") {
        let (before, number) = (&text[..place], &text[place + "msg-".len()..]);
        let digits = number.bytes().take_while(u8::is_ascii_digit).count();
        let Ok(position) = number[..digits].parse::<u64>() else { continue };
        // The end of the fold, marks that are only compared, the end of an epoch, and notices, which may be too old.
        let passed =
            ["seq: ", "notices_through: Some(", "Link { made: ", "last: "].iter().any(|field| before.ends_with(field))
                || before.ends_with('(') && !before.ends_with("Some(");
        let context: String = before.chars().rev().take(60).collect::<Vec<_>>().into_iter().rev().collect();
        assert!(passed || needed.contains(&position), "msg-{position} is named and not needed: …{context}");
    }
}

fn at_rest(state: &State) -> Result<(), String> {
    let grants = state.grants.values().filter(|g| g.end.is_none()).count();
    let tasks = state.tasks.values().filter(|t| !t.is_closed()).count();
    let turns = state.agents.iter().map(|a| a.turns.len()).sum::<usize>();
    let queued = state.agents.iter().map(|a| a.queue.len()).sum::<usize>();
    if (grants, tasks, turns, queued, state.timers.len()) == (0, 0, 0, 0, 0) {
        return Ok(());
    }
    Err(format!("{grants} grants, {tasks} tasks, {turns} turns, {queued} queued, timers {:?}", state.timers))
}

/// Returns a draft of a REQUEST to an agent.
pub(crate) fn request(to: AgentId, world: &World) -> Draft {
    let name = world.core().state().agent(to).and_then(|a| a.name.clone());
    let to = name.map_or(Address::All, Address::Name);
    Draft::new(MessageType::Request, to, "please")
}

pub(crate) fn credential(id: usize) -> [u8; 32] {
    let mut hash = [0; 32];
    hash[..8].copy_from_slice(&id.to_le_bytes());
    hash
}
