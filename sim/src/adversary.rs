//! Seeded random histories: agents that lie, replay, flood, launder and fall silent, and a human who at
//! times says something. At the end everything must come to rest.

use std::collections::BTreeMap;

use lastword_proto::envelope::{Address, Draft, FinishStatus, Priority};
use lastword_proto::fact::{ClaimMode, Control, Decision, Extension, Scope};
use lastword_proto::ids::{ApprovalId, ConvId, EscalationId, TurnId};
use lastword_proto::input::{Finish, HeldCall, Progress, Question, Verdict};
use lastword_proto::limits::Limits;
use lastword_proto::names::{Label, Ref, RequestId, Resource};
use lastword_proto::refusal::Code;
use lastword_proto::state::State;
use lastword_proto::{Input, MessageType, Principal, Reply};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use crate::world::{World, request};

/// What a campaign of random histories came to.
#[derive(Clone, Debug, Default)]
pub struct Campaign {
    /// Steps taken.
    pub steps: u64,
    /// Facts recorded.
    pub facts: u64,
    /// How often each code was given: what a campaign never met, it shows nothing about.
    pub refused: BTreeMap<Code, u64>,
    /// Most waking messages of any grant.
    pub most_waking: u64,
    /// Most messages that any grant was charged.
    pub most_charged: u64,
    /// Promises broken, with their seed.
    pub broken: Vec<(u64, crate::Broken)>,
}

/// Runs one history a seed, of `steps` steps each, and then lets everything come to rest.
#[must_use]
pub fn run(limits: &Limits, agents: u8, seeds: core::ops::Range<u64>, steps: u64) -> Campaign {
    let mut campaign = Campaign::default();
    for seed in seeds {
        // Every other seed is of agents that know the rules and go to their very ends.
        let mut random = Random { rng: ChaCha8Rng::seed_from_u64(seed), refs: 0, greedy: seed % 2 == 0 };
        let mut world = World::new(limits, agents);
        for step in 0..steps {
            let reply = random.step(&mut world);
            if let Some(Reply::Refused { refusal, .. }) = reply {
                *campaign.refused.entry(refusal.code).or_default() += 1;
            }
            if step % 64 == 0 {
                world.audit(false);
            }
        }
        world.audit(true);
        let quiet = comes_to_rest(&mut world);
        world.audit(true);
        campaign.steps += steps;
        campaign.facts += world.log().len() as u64;
        campaign.most_waking = campaign.most_waking.max(world.witness().most_waking());
        campaign.most_charged = campaign.most_charged.max(world.witness().most_charged());
        campaign.broken.extend(world.broken().iter().map(|b| (seed, b.clone())));
        if let Err(detail) = quiet {
            let seq = world.core().state().seq;
            campaign.broken.push((seed, crate::Broken { promise: "no grant, no motion", seq, detail }));
        }
    }
    campaign
}

/// Agents fall silent, humans lift what holds: within its day every grant is over, and nothing moves.
fn comes_to_rest(world: &mut World) -> Result<(), String> {
    let human = world.human();
    world.give(Input::Control(human, Scope::Workspace, Control::Resume));
    for agent in world.agents().to_vec() {
        world.give(Input::Control(human, Scope::Agent(agent), Control::Resume));
    }
    for conv in world.core().state().conversations.keys().collect::<Vec<ConvId>>() {
        world.give(Input::Control(human, Scope::Conversation(conv), Control::Resume));
    }
    for escalation in world.core().state().escalations.keys().copied().collect::<Vec<EscalationId>>() {
        world.give(Input::Answer(human, escalation, "do as you like".into()));
    }
    for _ in 0..100_000 {
        if !world.pass_to_deadline() {
            break;
        }
    }
    at_rest(world.core().state())?;
    if world.witness().unanswered() > 0 {
        return Err(format!("{} requests were never answered", world.witness().unanswered()));
    }
    let facts = world.log().len();
    world.pass(86_400_000);
    if world.log().len() == facts { Ok(()) } else { Err("something moved with no grant open".into()) }
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

struct Random {
    rng: ChaCha8Rng,
    refs: u32,
    greedy: bool,
}

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.rng.random_range(0..n.max(1))
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn step(&mut self, world: &mut World) -> Option<Reply> {
        if self.greedy && self.chance(98) {
            return self.greedy(world);
        }
        if self.chance(6) {
            return self.human(world);
        }
        if self.chance(10) {
            let ms = [1, 900, 5_000, 20_000, 61_000, 700_000, 4_000_000][self.below(7)];
            world.pass(ms);
            return None;
        }
        let agent = world.agents()[self.below(world.agents().len())];
        let by = world.agent(agent)?;
        if self.chance(1) {
            return self.flood(world, by);
        }
        let input = match self.below(100) {
            0..30 => Input::Take(by, self.turn(world, 10)),
            30..52 => Input::Finish(by, self.turn(world, 15), Box::new(self.finish())),
            52..88 => Input::Send(by, Box::new(self.draft(world))),
            88..90 => Input::Escalate(by, self.turn(world, 10), self.question()),
            90..92 => Input::AskApproval(by, self.turn(world, 10), Box::new(self.call())),
            92..94 => self.decide(world, by),
            94..95 => Input::Use(by, self.approval(world), self.call().digest),
            95..97 => Input::Progress(by, None, Progress { note: "at it".into(), eta_ms: None }),
            97..98 => Input::Cancel(by, self.request_id(world)),
            98..99 => self.claim(by),
            _ => Input::Collect(by, self.request_id(world)),
        };
        world.give(input)
    }

    /// Takes what there is, asks as much as may be, and answers only then.
    fn greedy(&mut self, world: &mut World) -> Option<Reply> {
        if self.chance(8) {
            let ms = 2_000 * (1 + self.below(8) as u64);
            world.pass(ms);
            return None;
        }
        let agent = world.agents()[self.below(world.agents().len())];
        let by = world.agent(agent)?;
        let idle = world.core().state().agent(agent).is_some_and(|a| a.turns.is_empty());
        let input = if idle {
            match self.below(50) {
                0 => {
                    let one = world.agents()[self.below(world.agents().len())];
                    Input::Send(world.human(), Box::new(request(one, world)))
                }
                1 => Input::Send(by, Box::new(self.root(world))),
                _ => Input::Take(by, None),
            }
        } else if self.chance(70) {
            let to = world.agents()[self.below(world.agents().len())];
            Input::Send(by, Box::new(request(to, world)))
        } else if self.chance(50) {
            Input::Take(by, None)
        } else {
            Input::Finish(by, None, Box::new(Finish { body: "answer".into(), ..Finish::default() }))
        };
        world.give(input)
    }

    /// The same thing to the same agent, or a new start to somebody, again and again.
    fn flood(&mut self, world: &mut World, by: Principal) -> Option<Reply> {
        let again = Draft { kind: MessageType::Info, ..self.root(world) };
        let anew = self.chance(50);
        let mut last = None;
        for _ in 0..12 {
            let draft = if anew { self.root(world) } else { again.clone() };
            last = world.give(Input::Send(by, Box::new(draft)));
            world.pass(if anew { 6_000 } else { 0 });
        }
        last
    }

    fn root(&mut self, world: &World) -> Draft {
        self.refs += 1;
        let to = world.agents()[self.below(world.agents().len())];
        Draft { reference: Ref::new(&format!("G-{}", self.refs)).ok(), ..request(to, world) }
    }

    fn human(&mut self, world: &mut World) -> Option<Reply> {
        let by = world.human();
        let state = world.core().state();
        let conv = ConvId(u32::try_from(self.below(state.conversations.len())).unwrap_or(0) + 1);
        let agent = world.agents()[self.below(world.agents().len())];
        let input = match self.below(20) {
            0..7 => Input::Send(by, Box::new(Draft { reference: self.reference(world, 30), ..request(agent, world) })),
            7..9 => Input::Answer(by, EscalationId(self.below(state.escalations.len() + 1) as u64), "yes".into()),
            9..12 => self.decide(world, by),
            12 => Input::Control(by, Scope::Conversation(conv), Control::ALL[self.below(3)]),
            13 if self.chance(40) => Input::Control(by, Scope::Agent(agent), Control::ALL[self.below(3)]),
            13 | 14 => Input::Control(by, Scope::Agent(agent), Control::Resume),
            15 => Input::Control(by, Scope::Conversation(conv), Control::Resume),
            16 => Input::Extend(by, conv, None, Extension { messages: 4, tokens: 1_000, ..Extension::default() }),
            17 if self.chance(4) => Input::Control(by, Scope::Workspace, Control::Stop),
            17 | 18 => Input::Control(by, Scope::Workspace, Control::Resume),
            _ => Input::Cancel(by, self.request_id(world)),
        };
        world.give(input)
    }

    fn draft(&mut self, world: &World) -> Draft {
        let agents = world.agents();
        let one = agents[self.below(agents.len())];
        let mut draft = request(one, world);
        draft.to = match self.below(20) {
            0 => Address::List(self.several(world)),
            1 => Label::new("work").map_or(Address::All, Address::Action),
            2 => Address::User,
            3 => Address::All,
            _ => draft.to,
        };
        draft.kind = match self.below(20) {
            0..15 => MessageType::Request,
            15 => MessageType::Response,
            16 => MessageType::Status,
            17 => MessageType::Broadcast,
            _ => MessageType::Info,
        };
        draft.reference = self.reference(world, 50);
        draft.depth = self.chance(5).then_some(0);
        draft.request_id = self.chance(10).then(|| self.request_id(world));
        draft.action = self.chance(20).then(|| Label::new("work").ok()).flatten();
        draft.turn = self.turn(world, 10);
        draft.wait_ms = self.chance(10).then_some(30_000);
        draft.deadline_ms = self.chance(5).then_some(50_000);
        draft.timeout_ms = self.chance(10).then_some(2_000);
        draft.priority = Priority::ALL[self.below(4)];
        draft
    }

    fn several(&mut self, world: &World) -> Vec<Address> {
        let count = self.below(4);
        (0..count).map(|_| request(world.agents()[self.below(world.agents().len())], world).to).collect()
    }

    /// An old REF, a new one, or none: agents that open new ones for ever are among us.
    fn reference(&mut self, world: &World, percent: usize) -> Option<Ref> {
        if !self.chance(percent) {
            return None;
        }
        let known = world.core().state().conversations.len();
        if known > 0 && self.chance(60) {
            let place = self.below(known);
            return world.core().state().conversations.values().nth(place).map(|conv| conv.reference.clone());
        }
        self.refs += 1;
        Ref::new(&format!("R-{}", self.refs)).ok()
    }

    /// A turn, at times somebody else's or one long over.
    fn turn(&mut self, world: &World, percent: usize) -> Option<TurnId> {
        self.chance(percent).then(|| TurnId(self.below(world.core().state().turns.len() + 2) as u64))
    }

    fn request_id(&mut self, world: &World) -> RequestId {
        let keys = &world.core().state().keys;
        let place = self.below(keys.len() + 1);
        let known = keys.ids().nth(place);
        known.unwrap_or_else(|| RequestId::new("k-1").expect("a request id"))
    }

    fn finish(&mut self) -> Finish {
        let status = [None, None, Some(FinishStatus::Completed), Some(FinishStatus::Partial)];
        let status = if self.chance(25) {
            Some(FinishStatus::ALL[self.below(FinishStatus::ALL.len())])
        } else {
            status[self.below(4)]
        };
        let failed = if self.chance(50) { vec!["3".into()] } else { Vec::new() };
        let body = if self.chance(10) { "" } else { "answer" };
        Finish { status, body: body.into(), failed, ..Finish::default() }
    }

    fn question(&mut self) -> Question {
        let reference = self.chance(30).then(|| Ref::new("Q-1").ok()).flatten();
        Question { body: "?".into(), options: Vec::new(), reference }
    }

    fn call(&mut self) -> HeldCall {
        let digest = [u8::try_from(self.below(3)).unwrap_or(0); 32];
        HeldCall { tool: "shell".into(), arguments: "{}".into(), reason: None, digest, subjects: Vec::new() }
    }

    fn approval(&mut self, world: &World) -> ApprovalId {
        ApprovalId(self.below(world.core().state().approvals.len() + 2) as u64)
    }

    fn decide(&mut self, world: &World, by: Principal) -> Input {
        let id = self.approval(world);
        let digest = world.core().state().approvals.get(&id).map(|a| a.digest);
        let decision = if self.chance(60) { Decision::Approve } else { Decision::ALL[self.below(Decision::ALL.len())] };
        let edited = self.chance(50).then(|| ("{}".into(), [9; 32]));
        Input::Decide(by, id, Box::new(Verdict { decision, comment: None, digest, edited }))
    }

    fn claim(&mut self, by: Principal) -> Input {
        let name = ["repo:a/*", "repo:a/b", "repo:c"][self.below(3)];
        let resource = Resource::new(name).expect("a resource name");
        Input::Claim(by, None, resource, ClaimMode::ALL[self.below(2)], 60_000)
    }
}
