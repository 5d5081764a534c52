//! The actions of adversaries, one letter of their alphabet at a time.

use lastword_core::input::{Consumer, Finish, HeldCall, Progress, Prompted, Question, RoomPost, Verdict};
use lastword_core::state::{Escalation, Task};
use lastword_core::{Input, Principal, Reply};
use lastword_facts::MessageType;
use lastword_facts::envelope::{Draft, FinishStatus};
use lastword_facts::fact::{AgentLimits, Control, Decision, Extension, Role, Schedule, Scope, Spend};
use lastword_facts::ids::{AgentId, ConvId, DAY_MS, EscalationId, HOUR_MS, RoomId, Seq};
use lastword_facts::limits::{Approvers, Limits};
use lastword_facts::names::{AgentName, DisplayName, Label, Ref, RequestId};
use lastword_facts::policy::{ApprovalRule, CallPattern, Policy, Ruling};
use lastword_facts::status::EscalationState;
use rand::RngExt as _;
use rand::rngs::ChaCha8Rng;

use crate::setting::{Pace, Setting, Style};
use crate::world::{World, request};

mod values;

use values::models;

/// The number of sends in a row that make a flood.
const FLOOD: usize = 12;
/// The number of messages, at a pace that no window refuses, that exhaust a conversation.
const DRONE: usize = 104;
/// The number of writes at one moment, most of which are refused.
const HAMMER: usize = 64;

/// Limits that humans change, with the values that they give them.
const CHANGED: [(&str, [u64; 2]); 5] = [
    ("depth_max", [3, 5]),
    ("grant_messages_max", [32, 64]),
    ("agent_turns_max", [1, 2]),
    ("turns_hard_max", [50, 100]),
    ("agent_day_tokens_max", [50_000, 5_000_000]),
];

/// A source of letters.
pub(crate) struct Random {
    rng: ChaCha8Rng,
    refs: u32,
    pace: Pace,
    kind: Character,
}

/// The character of the agents in one history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Character {
    /// They know the rules and use every limit fully.
    Greedy,
    /// They do anything at random.
    Wild,
    /// They do anything at random, and no human is there.
    Alone,
    /// They use up turns.
    Spender,
}

impl Random {
    pub(crate) const fn new(rng: ChaCha8Rng, seed: u64, setting: &Setting) -> Self {
        let kind = match (setting.style, setting.pace, seed % 4) {
            (Style::Spenders, _, _) => Character::Spender,
            (Style::Mixed, _, 0 | 2) => Character::Greedy,
            (Style::Mixed, Pace::Months, 3) => Character::Alone,
            (Style::Mixed, _, _) => Character::Wild,
        };
        Self { rng, refs: 0, pace: setting.pace, kind }
    }

    fn below(&mut self, n: usize) -> usize {
        self.rng.random_range(0..n.max(1))
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn one_of(&mut self, world: &World) -> AgentId {
        world.agents()[self.below(world.agents().len())]
    }

    pub(crate) fn step(&mut self, world: &mut World) -> Option<Reply> {
        let kind = self.kind;
        match kind {
            Character::Spender => return self.spend(world),
            Character::Greedy if self.chance(98) => return self.greedy(world),
            Character::Greedy | Character::Wild | Character::Alone => {}
        }
        if self.kind != Character::Alone && self.chance(6) {
            return self.human(world);
        }
        if self.chance(10) {
            return self.time(world);
        }
        let agent = self.one_of(world);
        let by = world.agent(agent)?;
        if self.chance(1) {
            return self.insists(world, by);
        }
        let input = match self.below(108) {
            0..22 => Input::Take(by, self.turn(world, 10)),
            22..24 => Input::Resume(by, (0..2).filter_map(|_| self.turn(world, 80)).collect()),
            24..28 => Input::Receive(by, Consumer::InTurns),
            28..30 => Input::Receive(by, Consumer::OneShot),
            30..52 => Input::Finish(by, self.turn(world, 15), Box::new(self.finish())),
            52..88 => Input::Send(by, Box::new(self.draft(world))),
            88..90 => Input::Escalate(by, self.turn(world, 10), self.question(world)),
            90..92 => Input::AskApproval(by, self.turn(world, 10), Box::new(self.call())),
            92..94 => self.decide(world, by),
            94..95 => Input::Use(by, self.approval(world), self.digest(), self.key()),
            95..97 => {
                let spend = Some(Spend { tokens: 100, cost_microusd: 1 });
                Input::Progress(
                    by,
                    None,
                    Progress {
                        note: "at it".into(),
                        spend,
                        models: models(spend),
                        new_session: true,
                        waits_for_user: self.chance(50),
                        step: RequestId::new("1.fetch").ok().filter(|_| self.chance(30)).map(|key| (key, "7".into())),
                        ..Progress::default()
                    },
                )
            }
            97..98 => Input::Cancel(by, self.request_id(world)),
            98..99 => self.claim(world, by),
            99..101 => Input::Send(by, Box::new(self.response(world, agent))),
            101..102 => Input::Finish(
                by,
                self.turn(world, 100),
                Box::new(Finish { body: "answer".into(), ..Finish::default() }),
            ),
            102..103 if self.chance(50) => Input::Prompt(by, agent, Prompted::Typed),
            102..103 => Input::Act(by),
            103..105 => Input::Post(by, RoomId(1), Box::new(self.post(world))),
            105..107 => Input::Escalate(by, None, self.question(world)),
            _ => Input::Collect(by, self.request_id(world)),
        };
        world.give(input)
    }

    /// Lets time pass; the broker doesn't run in a part of it.
    fn time(&mut self, world: &mut World) -> Option<Reply> {
        let hours = [1, 900, 5_000, 20_000, 61_000, 700_000, 4_000_000];
        let months = [1, 5_000, 61_000, 700_000, 4_000_000, 9 * HOUR_MS, DAY_MS, 3 * DAY_MS, 8 * DAY_MS, 31 * DAY_MS];
        let pace = self.pace;
        let ms = match pace {
            Pace::Hours => hours[self.below(hours.len())],
            // An absence of weeks is as rare as it is long.
            Pace::Months if self.chance(70) => months[self.below(5)],
            Pace::Months => months[self.below(months.len())],
        };
        if self.chance(15) {
            world.idle(ms)
        } else {
            world.pass(ms)
        }
        if self.chance(2) {
            world.restart(self.below(2) == 0);
        }
        None
    }

    /// Takes the next delivery, sends as many requests as allowed, and only then answers.
    fn greedy(&mut self, world: &mut World) -> Option<Reply> {
        if self.chance(8) {
            let ms = 2_000 * (1 + self.below(8) as u64);
            let idle = ms == 16_000;
            if idle {
                world.idle(ms)
            } else {
                world.pass(ms)
            }
            return None;
        }
        if self.pace == Pace::Months && self.below(1_000) == 0 {
            return self.time(world);
        }
        let agent = self.one_of(world);
        let by = world.agent(agent)?;
        let idle = world.core().state().agent(agent).is_some_and(|a| a.turns.is_empty());
        let input = if idle {
            match self.below(50) {
                0 => Input::Send(world.human(), Box::new(request(self.one_of(world), world))),
                1 => {
                    // The person at its terminal, or a program that types in that person's name.
                    if self.chance(50) {
                        world.give(Input::Prompt(world.human(), agent, Prompted::Typed));
                    }
                    Input::Send(by, Box::new(self.root(world)))
                }
                2..12 => Input::Receive(by, Consumer::InTurns),
                _ => Input::Take(by, None),
            }
        } else if self.chance(70) {
            let to = self.one_of(world);
            Input::Send(by, Box::new(request(to, world)))
        } else if self.chance(50) {
            Input::Take(by, None)
        } else {
            let spend = self.chance(3).then_some(Spend { tokens: 60_000, cost_microusd: 0 });
            Input::Finish(by, None, Box::new(Finish { body: "answer".into(), spend, ..Finish::default() }))
        };
        world.give(input)
    }

    /// Opens as many turns of a grant as possible: completes work in part, loses leases, asks humans, asks other
    /// agents.
    fn spend(&mut self, world: &mut World) -> Option<Reply> {
        let human = world.human();
        if world.core().state().grants.values().all(|grant| grant.end.is_some()) {
            world.pass(HOUR_MS);
            let draft = Draft { action: Label::new("work").ok(), ..request(self.one_of(world), world) };
            return world.give(Input::Send(human, Box::new(draft)));
        }
        let open = |(_, known): &(&EscalationId, &Escalation)| known.state == EscalationState::Open;
        let asked = world.core().state().escalations.iter().find(open).map(|(id, _)| *id);
        if let Some(asked) = asked.filter(|_| self.chance(30)) {
            return world.give(Input::Answer(human, asked, "yes".into(), None));
        }
        world.pass(1_000);
        let agent = self.one_of(world);
        let by = world.agent(agent)?;
        let task = world.core().state().agent(agent)?.turns.first().and_then(|turn| {
            let turn = world.core().state().turns.get(turn)?;
            world.core().state().tasks.get(&turn.task)
        });
        let input = match task.map(|task| self.dearest(&world.core().state().limits, task)) {
            None => Input::Take(by, None),
            Some(Spending::Lease) => {
                world.pass(world.core().state().limits.lease_ms);
                return None;
            }
            Some(Spending::Finish(status)) => Input::Finish(by, None, Box::new(in_part(status))),
            Some(Spending::Question) => {
                let question = Question { body: "?".into(), options: Vec::new(), reference: None, key: None };
                world.give(Input::Escalate(by, None, question));
                Input::Finish(by, None, Box::new(in_part(FinishStatus::Waiting)))
            }
            Some(Spending::Request) => {
                let draft = Draft { action: Label::new("work").ok(), ..request(self.one_of(world), world) };
                world.give(Input::Send(by, Box::new(draft)));
                Input::Finish(by, None, Box::new(in_part(FinishStatus::Waiting)))
            }
        };
        world.give(input)
    }

    /// Returns the action that costs a grant the most turns next; sometimes another one.
    fn dearest(&mut self, limits: &Limits, task: &Task) -> Spending {
        let request = task.request.as_ref();
        let again = request.is_some_and(|request| u64::from(request.runs) < limits.runs_max);
        let moves = [
            (again && request.is_some_and(|r| r.partial.is_none()), Spending::Finish(FinishStatus::Partial)),
            (again && task.lost == 0, Spending::Lease),
            (again, Spending::Finish(FinishStatus::Rejected)),
            (task.questions() < limits.task_questions_max, Spending::Question),
            (task.quota_left > 0 && u64::from(task.hop) < limits.hops_max, Spending::Request),
            (task.lost == 0 && task.turns.len() as u64 > limits.runs_max, Spending::Lease),
        ];
        let mut open = moves.into_iter().filter(|(open, _)| *open).map(|(_, spending)| spending);
        let skipped = usize::from(self.chance(10));
        open.nth(skipped).unwrap_or(Spending::Finish(FinishStatus::Completed))
    }

    /// Repeats the same action many times.
    fn insists(&mut self, world: &mut World, by: Principal) -> Option<Reply> {
        match self.below(12) {
            0 => self.drone(world, by),
            1 => self.hammer(world, by),
            2 => self.inquires(world, by),
            3 => self.starts_over(world, by),
            _ => self.flood(world, by),
        }
    }

    /// Sends the same message to the same agent, or starts new work with any agent.
    fn flood(&mut self, world: &mut World, by: Principal) -> Option<Reply> {
        let again = Draft { kind: MessageType::Info, ..self.root(world) };
        let anew = self.chance(50);
        let mut last = None;
        for _ in 0..FLOOD {
            let draft = if anew { self.root(world) } else { again.clone() };
            last = world.give(Input::Send(by, Box::new(draft)));
            world.pass(if anew { 6_000 } else { 0 });
        }
        last
    }

    /// Sends a message every seven seconds in one conversation, until it refuses more.
    fn drone(&mut self, world: &mut World, by: Principal) -> Option<Reply> {
        let draft = Draft { kind: MessageType::Info, ..self.root(world) };
        let mut last = None;
        for _ in 0..DRONE {
            last = world.give(Input::Send(by, Box::new(draft.clone())));
            world.pass(7_000);
        }
        last
    }

    /// Resends a refused message at once, many times.
    fn hammer(&mut self, world: &mut World, by: Principal) -> Option<Reply> {
        let draft = Draft { kind: MessageType::Broadcast, ..request(self.one_of(world), world) };
        let mut last = None;
        for _ in 0..HAMMER {
            last = world.give(Input::Send(by, Box::new(draft.clone())));
        }
        last
    }

    /// Holds one call after the other and has each decided, as long as its task may ask.
    fn inquires(&mut self, world: &mut World, by: Principal) -> Option<Reply> {
        let human = world.human();
        let busy = |agent: &AgentId| world.core().state().agent(*agent).is_some_and(|known| !known.turns.is_empty());
        let by = world.agents().iter().copied().find(busy).and_then(|agent| world.agent(agent)).unwrap_or(by);
        let mut last = None;
        for n in 0..18 {
            let call = HeldCall { digest: [n; 32], ..self.call() };
            last = world.give(Input::AskApproval(by, None, Box::new(call)));
            let Some(Reply::Held(id)) = last else { continue };
            let verdict = Verdict { decision: Decision::Reject, comment: None, digest: None, edited: None, key: None };
            world.give(Input::Decide(human, id, Box::new(verdict)));
            world.pass(3_000);
        }
        last
    }

    /// Starts as much work of its own as a day allows.
    fn starts_over(&mut self, world: &mut World, by: Principal) -> Option<Reply> {
        let mut last = None;
        for n in 0..DRONE {
            let to = world.agents()[n % world.agents().len()];
            self.refs += 1;
            let reference = Ref::new(&format!("G-{}", self.refs)).ok();
            last = world.give(Input::Send(by, Box::new(Draft { reference, ..request(to, world) })));
            world.pass(370_000);
        }
        last
    }

    fn root(&mut self, world: &World) -> Draft {
        self.refs += 1;
        let to = self.one_of(world);
        Draft { reference: Ref::new(&format!("G-{}", self.refs)).ok(), ..request(to, world) }
    }

    fn human(&mut self, world: &mut World) -> Option<Reply> {
        let by = if self.chance(20) { world.other_human()? } else { world.human() };
        let state = world.core().state();
        let conv = ConvId(u32::try_from(self.below(state.conversations.len())).unwrap_or(0) + 1);
        let agent = self.one_of(world);
        let input = match self.below(39) {
            0..7 => Input::Send(by, Box::new(Draft { reference: self.reference(world, 30), ..request(agent, world) })),
            7..10 => Input::Answer(by, self.escalation(world), "yes".into(), None),
            10..13 => self.decide(world, by),
            13 => Input::Control(by, Scope::Conversation(conv), Control::ALL[self.below(3)]),
            14 if self.chance(40) => Input::Control(by, Scope::Agent(agent), Control::ALL[self.below(3)]),
            14 | 15 => Input::Control(by, Scope::Agent(agent), Control::Resume),
            16 => Input::Control(by, Scope::Conversation(conv), Control::Resume),
            17 => Input::Extend(by, conv, None, self.extension()),
            18 if self.chance(4) => Input::Control(by, Scope::Workspace, Control::Stop),
            18 | 19 => Input::Control(by, Scope::Workspace, Control::Resume),
            20 => Input::ExtendRounds(by, conv, self.below(12) as u64),
            21 | 22 => Input::ChooseLift(by, self.escalation(world), 1, self.chance(50).then(|| "go on".into())),
            23 => Input::LimitAgent(by, agent, Box::new(self.own_limits())),
            24 if self.chance(50) => Input::SetDisplayName(by, agent, DisplayName::new("研究员").ok()),
            24 => Input::GrantAgent(by, agent, Spend { tokens: 100_000, cost_microusd: 0 }),
            25 => self.role(world, by),
            26 if self.chance(75) => Input::Prompt(by, agent, Prompted::Typed),
            26 if self.chance(50) => Input::Prompt(by, agent, Prompted::Ended),
            26 => Input::Act(by),
            27 => Input::Send(by, Box::new(Draft { caused_by: Some(Seq(1)), ..request(agent, world) })),
            28 => Input::Idled(Some(by), 60_000),
            29 => Input::OpenRoom(by, lobby(), names(world), self.key()),
            30 | 31 => Input::Post(by, RoomId(1), Box::new(self.post(world))),
            32 | 33 => self.schedule(world, by, agent),
            34 => Input::RunSchedule(by, nightly(), Ref::new(&format!("RUN-{}", world.now().0)).expect("a REF")),
            35 if self.chance(50) => {
                let (limit, values) = CHANGED[self.below(CHANGED.len())];
                Input::ChangeLimits(by, [(limit.into(), values[self.below(2)])].into())
            }
            35 => Input::ChangePolicy(by, Box::new(self.policy(world))),
            36 => Input::Take(by, None),
            37 => Input::Receive(by, Consumer::InTurns),
            _ if self.chance(40) => Input::Dismiss(by, self.request_id(world)),
            _ if self.chance(30) => Input::SetLink(by, ConvId(1), Some(60_000).filter(|_| self.chance(75))),
            _ => Input::Cancel(by, self.request_id(world)),
        };
        world.give(input)
    }

    fn post(&mut self, world: &World) -> RoomPost {
        let mentions =
            if self.chance(50) { names(world).into_iter().nth(self.below(3)).into_iter().collect() } else { vec![] };
        RoomPost { body: "a word".into(), mentions, reference: self.reference(world, 30), key: self.key() }
    }

    /// Sets or removes a schedule.
    fn schedule(&mut self, world: &World, by: Principal, agent: AgentId) -> Input {
        if self.chance(30) {
            return Input::RemoveSchedule(by, nightly());
        }
        let schedule = Schedule {
            name: nightly(),
            cron: "0 * * * *".into(),
            time_zone: "UTC".into(),
            to: request(agent, world).to,
            body: "as every hour".into(),
            reference: None,
        };
        Input::SetSchedule(by, Box::new(schedule), world.now().plus(HOUR_MS))
    }

    /// Up to two rules, each about any agent or one, for the tool that agents call here or another one.
    fn policy(&mut self, world: &World) -> Policy {
        let rules = (0..self.below(3)).filter_map(|_| {
            let tool = ["shell", "*", "other"][self.below(3)];
            let asker = self.chance(50);
            Some(ApprovalRule {
                call: CallPattern::parse(tool)?,
                agents: if self.chance(50) { names(world).into_iter().take(1).collect() } else { Vec::new() },
                ruling: Ruling::ALL[self.below(Ruling::ALL.len())],
                tier: None,
                who: self.chance(50).then(|| Approvers { agents: names(world).into_iter().skip(1).collect(), asker }),
                timeout_ms: self.chance(30).then_some(60_000),
            })
        });
        Policy { rules: rules.collect() }
    }

    fn extension(&mut self) -> Extension {
        let n = self.below(4) as u64;
        Extension { messages: 4, tokens: 1_000, turns: n, requests: n, time_ms: n * HOUR_MS, ..Extension::default() }
    }

    fn own_limits(&mut self) -> AgentLimits {
        let some = |n: usize| if n < 4 { 0 } else { n as u64 };
        AgentLimits {
            pair_messages_max: some(self.below(12)),
            sender_messages_max: some(self.below(40)),
            roots_per_hour_max: some(self.below(8)),
            agent_turns_max: some(self.below(6)),
            ack_ms: if self.chance(20) { DAY_MS } else { 0 },
            ..AgentLimits::NONE
        }
    }

    /// Changes the role of the other human; the first one is always the owner.
    fn role(&mut self, world: &World, by: Principal) -> Input {
        let other = world.other_human().map_or(AgentId(0), Principal::agent);
        Input::SetRole(by, other, Role::ALL[self.below(Role::ALL.len())])
    }
}

fn lobby() -> Ref {
    Ref::new("lobby").expect("a REF")
}

fn nightly() -> Label {
    Label::new("nightly").expect("a label")
}

fn names(world: &World) -> Vec<AgentName> {
    let name = |agent: &AgentId| world.core().state().agent(*agent).and_then(|known| known.name.clone());
    world.agents().iter().filter_map(name).collect()
}

/// A way to use up a turn.
#[derive(Clone, Copy, Debug)]
enum Spending {
    /// Lets its lease run out.
    Lease,
    /// Finishes it with this status.
    Finish(FinishStatus),
    /// Asks a human in it.
    Question,
    /// Asks another agent in it.
    Request,
}

fn in_part(status: FinishStatus) -> Finish {
    Finish { status: Some(status), body: "so far".into(), failed: vec!["3".into()], ..Finish::default() }
}
