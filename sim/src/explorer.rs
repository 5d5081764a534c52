//! Plays all short histories over a small alphabet and checks the invariants after each step.

use lastword_core::Input;
use lastword_core::input::{Finish, Question};
use lastword_facts::MessageType;
use lastword_facts::envelope::{Address, Draft, FinishStatus};
use lastword_facts::ids::{ConvId, DAY_MS, EscalationId};
use lastword_facts::limits::Limits;
use lastword_facts::names::Ref;

use lastword_witness::BrokenPromise;

use crate::setting::Pace;
use crate::world::{World, request};

/// The result of an exploration.
#[derive(Clone, Debug, Default)]
pub struct Explored {
    /// The number of steps taken; each leads to a state that was checked.
    pub steps: u64,
    /// The number of steps that changed nothing, so that nothing new can follow them.
    pub idle: u64,
    /// The most waking messages of any grant.
    pub most_waking: u64,
    /// The first broken promise, with the history that leads to it.
    pub broken: Option<(Vec<usize>, BrokenPromise)>,
}

/// Plays every history of at most `length` letters with `agents` agents.
#[must_use]
pub fn explore(limits: &Limits, agents: u8, length: usize, pace: Pace) -> Explored {
    let mut seen = Explored::default();
    let world = World::new(&pace.limits(limits), agents);
    walk(&world, pace, length, &mut Vec::new(), &mut seen);
    seen
}

fn walk(world: &World, pace: Pace, left: usize, history: &mut Vec<usize>, seen: &mut Explored) {
    if left == 0 || seen.broken.is_some() {
        return;
    }
    let mut copy = None;
    for letter in 0..letters(world) {
        let mut next: World = copy.take().unwrap_or_else(|| world.clone());
        let facts = next.log().len();
        play(&mut next, pace, letter);
        next.audit(false);
        seen.steps += 1;
        seen.most_waking = seen.most_waking.max(next.witness().peaks().waking);
        history.push(letter);
        if let Some(broken) = next.broken().first() {
            seen.broken = Some((history.clone(), broken.clone()));
            return;
        }
        if next.log().len() == facts {
            seen.idle += 1;
            // Only facts change a world, and time: the next letter needs no other copy.
            copy = (next.now() == world.now()).then_some(next);
        } else {
            walk(&next, pace, left - 1, history, seen);
        }
        history.pop();
    }
}

/// The letters of the human and the clock.
pub const COMMON: usize = 5;
/// The letters of each agent, besides two for a request to each other agent.
pub const EACH: usize = 5;

/// Returns the number of letters in a world.
#[must_use]
pub fn letters(world: &World) -> usize {
    let agents = world.agents().len();
    COMMON + agents * (EACH + 2 * (agents - 1))
}

/// Plays one letter: an act of the human or the clock, or of one agent.
pub fn play(world: &mut World, pace: Pace, letter: usize) {
    if letter < COMMON {
        return common(world, pace, letter);
    }
    let agents = world.agents().len();
    let each = EACH + 2 * (agents - 1);
    let (who, verb) = ((letter - COMMON) / each, (letter - COMMON) % each);
    let agent = world.agents()[who];
    let Some(by) = world.agent(agent) else { return };
    let finish =
        |status| Input::Finish(by, None, Box::new(Finish { status, body: "done".into(), ..Finish::default() }));
    let input = match verb {
        0 => Input::Take(by, None),
        1 => finish(None),
        2 => finish(Some(FinishStatus::Completed)),
        3 => finish(Some(FinishStatus::Rejected)),
        4 => Input::Escalate(by, None, Question { body: "?".into(), options: Vec::new(), reference: None, key: None }),
        _ => {
            let other = (verb - EACH) / 2;
            let other = if other >= who { other + 1 } else { other };
            let reference = ((verb - EACH) % 2 == 1).then(|| Ref::new("W-1").ok()).flatten();
            let mut draft: Draft = request(world.agents()[other], world);
            draft.reference = reference;
            Input::Send(by, Box::new(draft))
        }
    };
    world.give(input);
}

/// The human asks the agent with this index, under REF T-1.
pub fn ask(world: &mut World, agent: usize) {
    let mut draft = request(world.agents()[agent], world);
    draft.reference = Ref::new("T-1").ok();
    world.give(Input::Send(world.human(), Box::new(draft)));
}

fn common(world: &mut World, pace: Pace, letter: usize) {
    let human = world.human();
    match letter {
        0 => ask(world, 0),
        1 if pace == Pace::Months => world.pass(DAY_MS),
        1 => {
            world.pass_to_deadline();
        }
        2 => {
            let conv = world.core().state().conv_of("T-1").unwrap_or(ConvId(1));
            world.give(Input::ExtendRounds(human, conv, 1));
        }
        3 => {
            let asked = world.core().state().escalations.keys().next_back().copied();
            world.give(Input::Answer(human, asked.unwrap_or(EscalationId(0)), "yes".into(), None));
        }
        _ => {
            let mut draft = Draft::new(MessageType::Info, Address::All, "carry on");
            draft.reference = Ref::new("T-1").ok();
            world.give(Input::Send(human, Box::new(draft)));
        }
    }
}
