//! A core in virtual time, with a witness of every fact.

use lastword_proto::envelope::{Address, Draft};
use lastword_proto::fact::{Kind, Profile};
use lastword_proto::ids::{AgentId, Time};
use lastword_proto::input::Registration;
use lastword_proto::limits::Limits;
use lastword_proto::names::{AgentName, Label};
use lastword_proto::{Core, Effect, Entry, Input, MessageType, Out, Principal, Reply};

use crate::witness::{Broken, Witness};

/// Agents `a`, `b`, … and one human, in one workspace.
#[derive(Clone, Debug)]
pub struct World {
    core: Core,
    now: Time,
    log: Vec<Entry>,
    witness: Witness,
    agents: Vec<AgentId>,
    human: AgentId,
}

impl World {
    /// A world of `agents` agents under these limits. Every agent serves the action `work`.
    #[must_use]
    pub fn new(limits: &Limits, agents: u8) -> Self {
        let mut world = Self {
            core: Core::default(),
            now: Time(1_000_000),
            log: Vec::new(),
            witness: Witness::new(limits.clone()),
            agents: Vec::new(),
            human: AgentId(1),
        };
        world.give(Input::Configure(Box::new(limits.clone())));
        world.enrol("uma", Kind::Human);
        for n in 0..agents {
            let name = char::from(b'a' + n).to_string();
            world.agents.push(AgentId(u32::from(n) + 2));
            world.enrol(&name, Kind::Agent);
        }
        world
    }

    fn enrol(&mut self, name: &str, kind: Kind) {
        let actions = Label::new("work").into_iter().collect();
        let profile = Profile { actions, groups: Vec::new(), turns_max: 0 };
        let Ok(name) = AgentName::new(name) else { return };
        let id = self.core.state().agents.len();
        let registration = Registration { credential: credential(id), name, kind, profile };
        let input = match kind {
            Kind::Human => Input::Bootstrap(registration),
            Kind::Agent => Input::Register(self.human(), registration),
        };
        self.give(input);
    }

    /// The core.
    #[must_use]
    pub const fn core(&self) -> &Core {
        &self.core
    }

    /// Every fact so far.
    #[must_use]
    pub fn log(&self) -> &[Entry] {
        &self.log
    }

    /// What was recounted.
    #[must_use]
    pub const fn witness(&self) -> &Witness {
        &self.witness
    }

    /// Promises broken so far.
    #[must_use]
    pub fn broken(&self) -> &[Broken] {
        self.witness.broken()
    }

    /// The agents.
    #[must_use]
    pub fn agents(&self) -> &[AgentId] {
        &self.agents
    }

    /// Proof of an agent.
    #[must_use]
    pub fn agent(&self, agent: AgentId) -> Option<Principal> {
        self.core.state().prove(&credential(agent.0 as usize))
    }

    /// Proof of the human, who is always there.
    ///
    /// # Panics
    /// When the human was removed, which no scenario does.
    #[must_use]
    pub fn human(&self) -> Principal {
        self.core.state().prove(&credential(self.human.0 as usize)).expect("the human is always there")
    }

    /// Now.
    #[must_use]
    pub const fn now(&self) -> Time {
        self.now
    }

    /// Gives an input; the witness sees what comes of it. Whether exactly one reply came is a promise too.
    ///
    /// # Panics
    /// When an input gets no reply or two.
    pub fn give(&mut self, input: Input) -> Option<Reply> {
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

    /// Lets time pass.
    pub fn pass(&mut self, ms: u64) {
        self.now = self.now.plus(ms);
        self.give(Input::Tick);
    }

    /// Lets time pass until the next timer, if there is one.
    pub fn pass_to_deadline(&mut self) -> bool {
        let Some((at, _)) = self.core.next_deadline() else { return false };
        self.now = self.now.max(at);
        self.give(Input::Tick);
        true
    }

    /// Compares the core's state with what the witness counted, and with a replay of the facts.
    pub fn audit(&mut self, replay: bool) {
        self.witness.compare(self.core.state());
        if replay {
            let mut again = Core::default();
            for entry in &self.log {
                assert_eq!(again.replay(entry), Ok(()), "phi is what the facts amount to");
            }
            assert!(again.state() == self.core.state(), "facts alone rebuild the state");
        }
    }
}

/// A draft of a REQUEST from one agent to another.
pub(crate) fn request(to: AgentId, world: &World) -> Draft {
    let name = world.core().state().agent(to).and_then(|a| a.name.clone());
    let to = name.map_or(Address::All, Address::Name);
    Draft::new(MessageType::Request, to, "please")
}

fn credential(id: usize) -> [u8; 32] {
    let mut hash = [0; 32];
    hash[..8].copy_from_slice(&id.to_le_bytes());
    hash
}
