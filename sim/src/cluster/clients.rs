//! The clients of a cluster: each waits for the answer to its call and retries the same call at any broker.

use std::collections::BTreeMap;

use lastword_core::input::{ClaimDraft, Finish, HeldCall, Progress, Question, Registration, Verdict};
use lastword_core::{Input, Principal, Reply};
use lastword_facts::envelope::{Address, Draft};
use lastword_facts::fact::{ClaimMode, Control, Decision, Kind, Profile, Scope};
use lastword_facts::ids::{AgentId, ConvId, GrantId, TurnId};
use lastword_facts::limits::Limits;
use lastword_facts::names::{AgentName, Label, RequestId, Resource};
use lastword_facts::policy::Subjects;
use lastword_facts::status::ApprovalState;
use lastword_facts::status::EscalationState;
use lastword_facts::{Code, MessageType, Seq};
use rand::SeedableRng as _;
use rand::rngs::ChaCha8Rng;

use super::{Arrival, HistoryRun, Scene};
use crate::alphabet::Random;
use crate::setting::{Pace, Setting};
use crate::world::World;
pub(super) use crate::world::credential;

/// The messages of the grant that the race uses up.
pub(super) const RACE_MESSAGES: u64 = 60;
/// The humans of the workspace, which have the first numbers.
const HUMANS: usize = 2;
/// The agents that race, and those that only receive requests.
const RACERS: usize = 6;
const SINKS: usize = 8;
/// The agents of the team.
const TEAM: usize = 5;
/// The time after which a client sends its call again, in ms.
const ANSWER_MS: u64 = 1_500;
/// The time in which faults happen, in ms.
const FAULTY_MS: u64 = 40_000;
/// The time in which agents finish their work after that, in ms.
const DRAIN_MS: u64 = 12_000;
/// The most calls of the adversaries at one moment.
const ADVERSARY_CALLS: usize = 12;

/// A human or an agent.
#[derive(Debug, Default)]
struct Actor {
    turn: Option<TurnId>,
    call: Option<u64>,
    keys: u64,
    /// Whether it has nothing more to do.
    done: bool,
}

#[derive(Debug)]
struct ClientCall {
    input: Input,
    actor: Option<usize>,
    attempt: u32,
    /// The newest position that any answer had shown when the call was first sent.
    floor: Seq,
    answered: bool,
}

pub(super) struct Clients {
    scene: Scene,
    actors: Vec<Actor>,
    calls: BTreeMap<u64, ClientCall>,
    adversaries: Random,
    silent_at: Option<u64>,
    calm: bool,
}

impl Clients {
    pub(super) fn new(scene: Scene, seed: u64) -> Self {
        let agents = match scene {
            Scene::Team => TEAM,
            Scene::Race => RACERS + SINKS,
        };
        let setting = Setting::new(Limits::default(), u8::try_from(agents).unwrap_or(u8::MAX), 0, Pace::Hours);
        let mut actors: Vec<Actor> = (0..HUMANS + agents).map(|_| Actor::default()).collect();
        if scene == Scene::Race {
            actors.iter_mut().skip(HUMANS + RACERS).for_each(|sink| sink.done = true);
            actors[1].done = true;
        }
        let adversaries = Random::new(ChaCha8Rng::seed_from_u64(seed ^ 0xadde), seed, &setting);
        Self { scene, actors, calls: BTreeMap::new(), adversaries, silent_at: None, calm: false }
    }

    pub(super) fn actors(&self) -> usize {
        self.actors.len()
    }

    /// Returns the numbers of the agents.
    pub(super) fn agents(&self) -> Vec<AgentId> {
        (HUMANS..self.actors()).map(agent_of).collect()
    }

    /// Returns the registration of an actor, by the first human.
    pub(super) fn registration(&self, actor: usize, by: Option<Principal>) -> Input {
        let kind = if actor < HUMANS { Kind::Human } else { Kind::Agent };
        let actions = Label::new("work").into_iter().collect();
        let profile = Profile { actions, groups: Vec::new(), turns_max: 0 };
        let credential = credential(actor + 1);
        let registration =
            Registration { name: name_of(actor), kind, profile, credential, role: None, display_name: None, key: None };
        match by {
            None => Input::Bootstrap(registration),
            Some(human) => Input::Register(human, registration),
        }
    }

    /// Whether the clients have done enough for faults to end.
    pub(super) fn calm(&self, now: u64) -> bool {
        match self.scene {
            Scene::Team => now >= FAULTY_MS,
            Scene::Race => self.actors.iter().all(|actor| actor.done) || now >= 2 * FAULTY_MS,
        }
    }

    /// Lets agents finish what they have, and start nothing.
    pub(super) fn be_calm(&mut self, now: u64) {
        self.calm = true;
        self.silent_at = Some(now + DRAIN_MS);
    }

    fn is_silent(&self, now: u64) -> bool {
        self.scene == Scene::Team && self.silent_at.is_some_and(|at| now >= at)
    }

    /// Whether no client waits for an answer.
    pub(super) fn is_idle(&self, now: u64) -> bool {
        let done = match self.scene {
            Scene::Team => self.is_silent(now),
            Scene::Race => self.actors.iter().all(|actor| actor.done),
        };
        done && self.actors.iter().all(|actor| actor.call.is_none())
    }

    /// Says which calls have no answer yet.
    pub(super) fn what_is_asked(&self) -> String {
        let open = self.calls.iter().filter(|(_, call)| call.actor.is_some() && !call.answered);
        let open: Vec<_> = open.map(|(id, call)| (id, call.attempt, &call.input)).collect();
        let at_work = self.actors.iter().filter(|actor| !actor.done).count();
        format!("calls {open:?}, {at_work} actors not done")
    }

    pub(super) fn input(&self, call: u64) -> Option<Input> {
        self.calls.get(&call).map(|call| call.input.clone())
    }

    /// Returns the floor of a call and its input.
    pub(super) fn asked(&self, call: u64) -> Option<(Seq, Input)> {
        self.calls.get(&call).map(|call| (call.floor, call.input.clone()))
    }
}

const fn agent_of(actor: usize) -> AgentId {
    AgentId(actor as u32 + 1)
}

fn name_of(actor: usize) -> AgentName {
    let name = match actor {
        0 => "uma".to_owned(),
        1 => "vic".to_owned(),
        _ => char::from(b'a' + u8::try_from(actor - HUMANS).unwrap_or(25)).to_string(),
    };
    AgentName::new(&name).expect("a name")
}

impl HistoryRun<'_> {
    pub(super) fn act(&mut self, actor: usize) {
        let known = &self.clients.actors[actor];
        if known.call.is_some() || known.done || self.clients.is_silent(self.now) {
            return;
        }
        let Some(by) = self.oracle.state().prove(&credential(actor + 1)) else {
            return self.after(500, Arrival::Act(actor));
        };
        let input = match self.clients.scene {
            Scene::Race => self.races(actor, by),
            Scene::Team if actor < HUMANS => self.manages(by),
            Scene::Team => self.works(actor, by),
        };
        match input {
            Some(input) => {
                let call = self.call(Some(actor), input);
                self.clients.actors[actor].call = Some(call);
            }
            None => self.after(500, Arrival::Act(actor)),
        }
    }

    fn call(&mut self, actor: Option<usize>, input: Input) -> u64 {
        let call = self.clients.calls.len() as u64 + 1;
        let floor = self.oracle.shown();
        self.note(|| format!("call {call} of {actor:?}: {input:?}"));
        self.clients.calls.insert(call, ClientCall { input, actor, attempt: 0, floor, answered: false });
        self.attempt(call);
        call
    }

    fn attempt(&mut self, call: u64) {
        let node = self.any_node();
        self.send(Arrival::Call(node, call, false));
        // A network may deliver a call twice, too: to another broker, and much later.
        if self.faulty(50) {
            let other = self.any_node();
            self.send(Arrival::Call(other, call, false));
        }
        let Some(known) = self.clients.calls.get(&call) else { return };
        if known.actor.is_some() {
            let attempt = known.attempt;
            self.after(ANSWER_MS, Arrival::GiveUp(call, attempt));
        }
    }

    pub(super) fn give_up(&mut self, call: u64, attempt: u32) {
        let Some(known) = self.clients.calls.get_mut(&call) else { return };
        if known.answered || known.attempt != attempt {
            return;
        }
        known.attempt += 1;
        self.met.retries += 1;
        self.attempt(call);
    }

    pub(super) fn answered(&mut self, call: u64, reply: Option<Box<Reply>>) {
        let Some(known) = self.clients.calls.get_mut(&call) else { return };
        let (attempt, actor) = (known.attempt, known.actor);
        if known.answered {
            return;
        }
        let Some(reply) = reply else {
            if actor.is_some() {
                let ms = 50 + self.below(300);
                self.after(ms, Arrival::GiveUp(call, attempt));
            }
            return;
        };
        known.answered = true;
        let Some(actor) = actor else { return };
        self.learned(actor, &reply);
        self.clients.actors[actor].call = None;
        let empty = matches!(*reply, Reply::Delivery(None) | Reply::Refused { .. });
        let ms = if empty { 200 + self.below(1_000) } else { 5 + self.below(200) };
        self.after(ms, Arrival::Act(actor));
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "other replies change nothing for a client")]
    fn learned(&mut self, actor: usize, reply: &Reply) {
        let race = self.clients.scene == Scene::Race;
        let known = &mut self.clients.actors[actor];
        match reply {
            Reply::Delivery(delivery) => {
                known.turn = delivery.as_ref().and_then(|delivery| delivery.turn).map(|open| open.turn);
            }
            Reply::Finished { .. } => known.turn = None,
            Reply::Refused { refusal, .. } if race => {
                if matches!(refusal.code, Code::GrantMessages | Code::Latched) {
                    self.met.refused_by_total += 1;
                    known.done = true;
                }
            }
            // Whatever it was, the next call takes the open turn again.
            Reply::Refused { .. } => known.turn = None,
            Reply::Sent(_) | Reply::Again(_) if race && actor < HUMANS => known.done = true,
            _ => {}
        }
    }

    fn key(&mut self, actor: usize) -> Option<RequestId> {
        let known = &mut self.clients.actors[actor];
        known.keys += 1;
        RequestId::new(&format!("{}:{}", name_of(actor), known.keys)).ok()
    }

    fn request(&mut self, from: usize, to: usize) -> Draft {
        let request_id = self.key(from);
        let draft = Draft::new(MessageType::Request, Address::Name(name_of(to)), "please");
        Draft { request_id, key_only: true, turn: self.clients.actors[from].turn, ..draft }
    }

    fn any_agent(&mut self) -> usize {
        HUMANS + self.below_usize(TEAM)
    }

    /// Returns the next call of a human of the team.
    fn manages(&mut self, by: Principal) -> Option<Input> {
        let actor = by.agent().0 as usize - 1;
        let state = self.oracle.state();
        let open = |state: EscalationState| state == EscalationState::Open;
        let asked = state.escalations.iter().find(|(_, known)| open(known.state)).map(|(id, _)| *id);
        let pending = state.approvals.iter().find(|(_, known)| known.state == ApprovalState::Pending);
        let pending = pending.map(|(id, known)| (*id, known.digest));
        let conv = ConvId(u32::try_from(self.below_usize(self.oracle.state().conversations.len())).unwrap_or(0) + 1);
        match self.below(20) {
            0..8 if !self.clients.calm => {
                let to = self.any_agent();
                Some(Input::Send(by, Box::new(self.request(actor, to))))
            }
            8..11 => Some(Input::Take(by, None)),
            11..13 => asked.map(|id| Input::Answer(by, id, "yes".into(), None)),
            13..15 => pending.map(|(id, digest)| {
                let verdict = Verdict {
                    decision: Decision::Approve,
                    comment: None,
                    digest: Some(digest),
                    edited: None,
                    key: None,
                };
                Input::Decide(by, id, Box::new(verdict))
            }),
            15 => Some(Input::Control(by, Scope::Workspace, Control::Resume)),
            16 => Some(Input::Control(by, Scope::Conversation(conv), Control::Resume)),
            _ => None,
        }
    }

    /// Returns the next call of an agent of the team.
    fn works(&mut self, actor: usize, by: Principal) -> Option<Input> {
        let Some(turn) = self.clients.actors[actor].turn else { return Some(Input::Take(by, None)) };
        let finish = || Input::Finish(by, Some(turn), Box::new(Finish { body: "answer".into(), ..Finish::default() }));
        if self.clients.calm {
            return Some(finish());
        }
        Some(match self.below(100) {
            0..40 => finish(),
            40..75 => {
                let to = self.any_agent();
                Input::Send(by, Box::new(self.request(actor, to)))
            }
            75..82 => {
                let key = self.key(actor);
                let question = Question { body: "?".into(), options: Vec::new(), reference: None, key };
                Input::Escalate(by, Some(turn), question)
            }
            82..88 => {
                let (resource, key) = (Resource::new("repo:a").expect("a resource name"), self.key(actor));
                let claim = ClaimDraft { resource, mode: ClaimMode::ALL[0], ttl_ms: 2_000, key };
                Input::Claim(by, Some(turn), Box::new(claim))
            }
            88..94 => {
                let (tool, arguments) = ("shell".into(), "{}".into());
                let (digest, key) = ([actor as u8; 32], self.key(actor));
                let call = HeldCall { tool, arguments, reason: None, digest, subjects: Subjects::default(), key };
                Input::AskApproval(by, Some(turn), Box::new(call))
            }
            _ => Input::Progress(by, Some(turn), Progress { note: "at it".into(), ..Progress::default() }),
        })
    }

    /// Returns the next call of a racer: it asks others for as long as the grant lasts.
    fn races(&mut self, actor: usize, by: Principal) -> Option<Input> {
        let grant = self.oracle.state().grants.get(&GrantId(1));
        if grant.is_some_and(|grant| grant.latched.is_some()) {
            // What its agents would take is held.
            self.clients.actors[actor].done = true;
            return None;
        }
        if actor < HUMANS {
            return Some(Input::Send(by, Box::new(self.request(actor, HUMANS))));
        }
        let known = &self.clients.actors[actor];
        if known.turn.is_none() {
            return Some(Input::Take(by, None));
        }
        let sent = usize::try_from(known.keys).unwrap_or(usize::MAX);
        let to = if actor == HUMANS && sent < RACERS - 1 {
            HUMANS + 1 + sent
        } else {
            HUMANS + RACERS + self.below_usize(SINKS)
        };
        Some(Input::Send(by, Box::new(self.request(actor, to))))
    }

    /// Has the adversaries of the other campaigns do something, by what the log says.
    pub(super) fn adversary(&mut self) {
        if self.healed {
            return;
        }
        let ms = 20 + self.below(400);
        self.after(ms, Arrival::Adversary);
        if self.oracle.state().agents.len() <= HUMANS + 1 {
            return;
        }
        let core = std::mem::take(self.oracle.core());
        let mut world = World::scouting(core, self.clients.agents());
        let _none_yet = self.clients.adversaries.step(&mut world);
        let (core, inputs) = world.scouted();
        *self.oracle.core() = core;
        for input in inputs.into_iter().take(ADVERSARY_CALLS) {
            self.call(None, input);
        }
    }
}
