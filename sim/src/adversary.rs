//! Seeded random histories: agents that lie, replay, flood, launder and fall silent, and a human who at
//! times says something. At the end everything must come to rest.

use std::collections::BTreeMap;

use lastword_proto::fact::{Control, Scope};
use lastword_proto::ids::{ConvId, EscalationId};
use lastword_proto::limits::Limits;
use lastword_proto::refusal::Code;
use lastword_proto::{Core, Input, Reply};
use lastword_store::witness::{BrokenPromise, Peaks, Witness};
use rand::SeedableRng as _;
use rand::rngs::ChaCha8Rng;

use crate::alphabet::Random;
use crate::world::World;

/// Retention where a clock walks for months: seconds, so that all that may be forgotten is.
const SHORT_RETENTION_MS: u64 = 5_000;

/// How a campaign's clock walks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// In steps of milliseconds to hours, with the retention that the limits say.
    Hours,
    /// In steps up to weeks, and what is closed is forgotten after seconds.
    Months,
}

impl Pace {
    /// The limits as they are at this pace.
    #[must_use]
    pub fn limits(self, limits: &Limits) -> Limits {
        match self {
            Self::Hours => limits.clone(),
            Self::Months => Limits { retention_ms: SHORT_RETENTION_MS, ..limits.clone() },
        }
    }
}

/// What agents are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// By turns: those that know the rules and go to their very ends, and those that do whatever there is.
    Mixed,
    /// They spend turns: they lose leases, do their work in part, and ask humans before they answer.
    Spenders,
}

/// What a campaign runs under.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The numbers in force.
    pub limits: Limits,
    /// How many agents there are.
    pub agents: u8,
    /// Steps of each history.
    pub steps: u64,
    /// How time passes.
    pub pace: Pace,
    /// What the agents are like.
    pub style: Style,
    /// A guard whose promise is looked at also where it only observes.
    pub looks_at: Option<&'static str>,
    /// The core as it is before its first input: one that lacks a rule, to see that this is noticed.
    pub core: Core,
}

impl Setting {
    /// A campaign of histories of `steps` steps with `agents` agents.
    #[must_use]
    pub fn new(limits: Limits, agents: u8, steps: u64, pace: Pace) -> Self {
        Self { limits, agents, steps, pace, style: Style::Mixed, looks_at: None, core: Core::default() }
    }
}

/// What a campaign of random histories came to.
#[derive(Clone, Debug, Default)]
pub struct Campaign {
    /// Steps taken.
    pub steps: u64,
    /// Facts recorded.
    pub facts: u64,
    /// How often each code was given: what a campaign never met, it shows nothing about.
    pub refused: BTreeMap<Code, u64>,
    /// The most that any grant came to.
    pub peaks: Peaks,
    /// The most records that a witness held.
    pub records: usize,
    /// The longest stretch of time that a history went over, in ms.
    pub longest_ms: u64,
    /// Promises broken, with their seed.
    pub broken: Vec<(u64, BrokenPromise)>,
}

/// Runs one history a seed, and then lets everything come to rest.
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

/// Agents fall silent, humans lift what holds and say no more.
fn falls_silent(world: &mut World) -> Result<(), String> {
    let human = world.human();
    world.give(Input::Control(human, Scope::Workspace, Control::Resume));
    for agent in world.agents().to_vec() {
        world.give(Input::Control(human, Scope::Agent(agent), Control::Resume));
    }
    for conv in world.core().state().conversations.keys().collect::<Vec<ConvId>>() {
        world.give(Input::Control(human, Scope::Conversation(conv), Control::Resume));
    }
    // Half of what was asked is answered; the other half stays unanswered, until its time is over.
    for escalation in world.core().state().escalations.keys().copied().step_by(2).collect::<Vec<EscalationId>>() {
        world.give(Input::Answer(human, escalation, "do as you like".into()));
    }
    world.comes_to_rest()
}
