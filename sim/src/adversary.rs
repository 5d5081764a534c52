//! Seeded random histories: agents that lie, replay, flood, launder and fall silent, and a human with occasional acts.
//! At the end all work must end.

use std::collections::BTreeMap;

use lastword_core::{Input, Reply};
use lastword_facts::fact::{Control, Scope};
use lastword_facts::ids::{ConvId, EscalationId};
use lastword_facts::refusal::Code;
use lastword_witness::{BrokenPromise, Peaks, Witness};
use rand::SeedableRng as _;
use rand::rngs::ChaCha8Rng;

use crate::alphabet::Random;
use crate::setting::Setting;
use crate::world::World;

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
        world.give(Input::Answer(human, escalation, "do as you like".into(), None));
    }
    world.comes_to_rest()
}
