//! Seeded random histories: agents that lie, replay, flood, launder and fall silent, and a human with occasional acts.
//! At the end all work must end.

use std::collections::BTreeMap;

use lastword_core::{Core, Input, Reply};
use lastword_facts::fact::{Control, Scope};
use lastword_facts::ids::{ConvId, EscalationId};
use lastword_facts::limits::Limits;
use lastword_facts::refusal::Code;
use lastword_witness::{BrokenPromise, Peaks, Witness};
use rand::SeedableRng as _;
use rand::rngs::ChaCha8Rng;

use crate::alphabet::Random;
use crate::world::World;

/// The retention where a clock advances by months: seconds, so that everything that may be forgotten is.
const SHORT_RETENTION_MS: u64 = 5_000;

/// The pace of a campaign's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// In steps of milliseconds to hours, with the retention of the limits.
    Hours,
    /// In steps of up to weeks, with closed records forgotten after seconds.
    Months,
}

impl Pace {
    /// Returns the limits for this pace.
    #[must_use]
    pub fn limits(self, limits: &Limits) -> Limits {
        match self {
            Self::Hours => limits.clone(),
            Self::Months => Limits { retention_ms: SHORT_RETENTION_MS, ..limits.clone() },
        }
    }
}

/// The behaviour of the agents in a campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Alternates between agents that know the rules and use every limit fully, and agents that do anything at random.
    Mixed,
    /// Agents that use up turns: they lose leases, complete work in part, and ask humans before they answer.
    Spenders,
}

/// The setting of a campaign.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The limits in force.
    pub limits: Limits,
    /// The number of agents.
    pub agents: u8,
    /// The number of steps in each history.
    pub steps: u64,
    /// The pace of the clock.
    pub pace: Pace,
    /// The behaviour of the agents.
    pub style: Style,
    /// A guard whose promise is checked even where the guard only observes.
    pub looks_at: Option<&'static str>,
    /// The core before its first input; one that lacks a rule, to prove that the campaign notices.
    pub core: Core,
}

impl Setting {
    /// Returns a campaign of histories of `steps` steps with `agents` agents.
    #[must_use]
    pub fn new(limits: Limits, agents: u8, steps: u64, pace: Pace) -> Self {
        Self { limits, agents, steps, pace, style: Style::Mixed, looks_at: None, core: Core::default() }
    }
}

/// The result of a campaign of random histories.
#[derive(Clone, Debug, Default)]
pub struct Campaign {
    /// The number of steps taken.
    pub steps: u64,
    /// The number of facts recorded.
    pub facts: u64,
    /// How often each code was given. A campaign proves nothing about a code that it never met.
    pub refused: BTreeMap<Code, u64>,
    /// The highest totals that any grant reached.
    pub peaks: Peaks,
    /// The most records that a witness held.
    pub records: usize,
    /// The longest period that a history covered, in ms.
    pub longest_ms: u64,
    /// The broken promises, each with its seed.
    pub broken: Vec<(u64, BrokenPromise)>,
}

/// Plays one history for each seed, and then lets all work of it end.
#[must_use]
pub fn run(setting: &Setting, seeds: core::ops::Range<u64>) -> Campaign {
    let mut campaign = Campaign::default();
    for seed in seeds {
        let mut random = Random::new(ChaCha8Rng::seed_from_u64(seed), seed, setting);
        let witness = setting.looks_at.map_or_else(Witness::default, Witness::looking_at);
        let mut world =
            World::over(setting.core.clone(), witness, &setting.pace.limits(&setting.limits), setting.agents);
        let begun = world.now();
        for step in 0..setting.steps {
            let reply = random.step(&mut world);
            if let Some(Reply::Refused { refusal, .. }) = reply {
                *campaign.refused.entry(refusal.code).or_default() += 1;
            }
            if step % 64 == 0 {
                world.audit(false);
            }
        }
        world.audit(true);
        campaign.records = campaign.records.max(world.witness().records());
        let quiet = falls_silent(&mut world);
        world.audit(true);
        campaign.add(&world, setting.steps, world.now().since(begun));
        campaign.broken.extend(world.broken().iter().map(|b| (seed, b.clone())));
        if let Err(detail) = quiet {
            let seq = world.core().state().seq;
            campaign.broken.push((seed, BrokenPromise { promise: "no grant, no motion", seq, detail }));
        }
    }
    campaign
}

impl Campaign {
    fn add(&mut self, world: &World, steps: u64, took_ms: u64) {
        let peaks = world.witness().peaks();
        self.steps += steps;
        self.facts += world.log().len() as u64;
        self.peaks.waking = self.peaks.waking.max(peaks.waking);
        self.peaks.charged = self.peaks.charged.max(peaks.charged);
        self.peaks.turns = self.peaks.turns.max(peaks.turns);
        self.longest_ms = self.longest_ms.max(took_ms);
    }
}

/// Lets the agents fall silent; humans lift everything that is held and then do nothing more.
pub(crate) fn falls_silent(world: &mut World) -> Result<(), String> {
    let human = world.human();
    world.give(Input::Control(human, Scope::Workspace, Control::Resume));
    for agent in world.agents().to_vec() {
        world.give(Input::Control(human, Scope::Agent(agent), Control::Resume));
    }
    for conv in world.core().state().conversations.keys().collect::<Vec<ConvId>>() {
        world.give(Input::Control(human, Scope::Conversation(conv), Control::Resume));
    }
    // Half of the questions are answered; the others stay open until they expire.
    for escalation in world.core().state().escalations.keys().copied().step_by(2).collect::<Vec<EscalationId>>() {
        world.give(Input::Answer(human, escalation, "do as you like".into()));
    }
    world.comes_to_rest()
}
