//! Transcripts: one input in each line, with its outcome in indented lines below.
//!
//! `NAME: VERB …` acts as that agent or human; `at MS` sets the clock and ticks; `limit NAME=VALUE` and `observe GUARD`
//! configure, and `enforce GUARD` the reverse; `policy RULING PATTERN [agents=…] [who=…] [timeout=MS] [tier=…]` adds a rule for held calls; `agent NAME
//! [action=…] [group=…]` and `human NAME` register. `clock MS` sets only the clock, so that the tick is late. `idle
//! MS`: the broker doesn't run for that time, and then ticks. `NAME keeps its proof` lets it act as `old-NAME` after
//! the name is registered again.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use lastword_core::input::{ClaimDraft, Progress, Prompted, Question, Registration, RoomPost, ScheduleTick};
use lastword_core::rules::Off;
use lastword_core::{Core, Effect, Input, Out, Principal, Reply};
use lastword_facts::Entry;
use lastword_facts::envelope::{Address, MessageType};
use lastword_facts::fact::{
    AgentLimits, ApprovalDecided, ClaimMode, Control, EscalationOpened, Extension, Fact, GrantOpened, IncidentNoted,
    Kind, LatchSet, LimitChanged, Met, ModelSpend, Part, Place, PostKeyed, Profile, Recipient, Requeued, Role,
    RoundsGranted, SYSTEM, Schedule, Scope, Spend, Stalled, StepKept, TurnClosed, WorkedOutside, WriteRefused,
};
use lastword_facts::ids::{AgentId, ApprovalId, ClaimId, ConvId, EscalationId, GrantId, Seq, Time, TurnId};
use lastword_facts::limits::Limits;
use lastword_facts::names::{AgentName, Label, Ref, RequestId, Resource};
use lastword_facts::policy::Policy;
use lastword_facts::stall::{self, Curve};

mod words;

use words::{call, draft, finish, key, models, once, option, options, reported, rule, spend, text, verdict};

/// The world in which a transcript plays.
pub(crate) struct World {
    pub(crate) core: Core,
    pub(crate) log: Vec<Entry>,
    now: Time,
    limits: Limits,
    policy: Policy,
    turns: BTreeMap<String, TurnId>,
    proofs: BTreeMap<String, Principal>,
    step_ms: u64,
    one_off: Option<(String, i64)>,
    observing: Option<String>,
}

/// The broker that plays a transcript.
#[derive(Clone, Copy)]
pub(crate) enum Broker<'a> {
    /// The complete broker.
    Whole,
    /// A broker that lacks a rule or guard.
    Without(Off),
    /// A broker in which a guard only observes.
    Observing(&'a str),
    /// The complete broker, with time passing before each line and closed records forgotten soon.
    Walking { retention_ms: u64, step_ms: u64 },
    /// The complete broker, with a limit one higher or one lower than the transcript sets it.
    OneOff { limit: &'a str, by: i64 },
}

/// Plays `script`. Returns it with the outcomes that actually happened, and the world after it.
pub(crate) fn play(script: &str, broker: Broker<'_>) -> (String, World) {
    let mut world = World {
        core: if let Broker::Without(off) = broker { Core::without(off) } else { Core::default() },
        log: Vec::new(),
        now: Time(0),
        limits: Limits::default(),
        policy: Policy::default(),
        turns: BTreeMap::new(),
        proofs: BTreeMap::new(),
        step_ms: 0,
        one_off: None,
        observing: None,
    };
    if let Broker::OneOff { limit, by } = broker {
        world.one_off = Some((limit.to_owned(), by));
        world.set(limit, world.limits.value(limit).expect("a limit"));
    }
    if let Broker::Walking { retention_ms, step_ms } = broker {
        world.limits.retention_ms = retention_ms;
        world.step_ms = step_ms;
    }
    if let Broker::Observing(guard) = broker {
        assert!(world.limits.observed.observe(guard), "no observable guard is called {guard}");
        world.observing = Some(guard.to_owned());
    }
    world.give(Input::Configure(Box::new(world.limits.clone())));
    let mut out = String::new();
    for line in script.lines().filter(|l| !l.starts_with("  ")) {
        out.push_str(line);
        out.push('\n');
        if !line.trim().is_empty() && !line.starts_with('#') {
            for effect in world.line(line) {
                writeln!(out, "  {effect}").unwrap();
            }
        }
    }
    (out, world)
}

fn credential(name: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash[..name.len().min(32)].copy_from_slice(&name.as_bytes()[..name.len().min(32)]);
    hash
}

impl World {
    fn give(&mut self, input: Input) -> Vec<String> {
        let mut out = Out::default();
        self.core.handle(self.now, input, &mut out);
        let first = self.core.state().seq.0 + 1 - out.entries.len() as u64;
        let mut lines = Vec::new();
        for (i, entry) in out.entries.iter().enumerate() {
            lines.extend(self.show(Seq(first + i as u64), &entry.fact));
        }
        self.log.append(&mut out.entries);
        for effect in out.effects {
            if let Effect::Reply(reply) = effect {
                lines.extend(self.reply(&reply));
            }
        }
        lines
    }

    pub(crate) fn line(&mut self, line: &str) -> Vec<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        if self.step_ms > 0 {
            self.now = self.now.plus(self.step_ms);
            self.give(Input::Tick);
        }
        match words.as_slice() {
            ["at", ms] => {
                self.now = Time(ms.replace('_', "").parse().expect("a time in ms")).max(self.now);
                self.give(Input::Tick)
            }
            ["clock", ms] => {
                self.now = Time(ms.replace('_', "").parse().expect("a time in ms")).max(self.now);
                Vec::new()
            }
            ["idle", ms] => {
                let ms: u64 = ms.replace('_', "").parse().expect("a time in ms");
                self.now = self.now.plus(ms);
                let mut lines = self.give(Input::Idled(None, ms));
                lines.extend(self.give(Input::Tick));
                lines
            }
            [name, "keeps", "its", "proof"] => {
                self.proofs.insert(format!("old-{name}"), self.prove(name));
                Vec::new()
            }
            ["limit", setting] => {
                let (name, value) = setting.split_once('=').expect("limit NAME=VALUE");
                self.set(name, value.parse().unwrap());
                self.give(Input::Configure(Box::new(self.limits.clone())))
            }
            ["enforce", guard] => {
                if self.observing.as_deref() != Some(guard) {
                    assert!(self.limits.observed.enforce(guard), "no observable guard is called {guard}");
                }
                self.give(Input::Configure(Box::new(self.limits.clone())))
            }
            ["observe", guard] => {
                assert!(self.limits.observed.observe(guard), "no observable guard is called {guard}");
                self.give(Input::Configure(Box::new(self.limits.clone())))
            }
            ["approvers", who @ ..] => {
                self.limits.approvers.asker = who.contains(&"asker");
                let named = who.iter().filter(|w| **w != "asker").map(|w| AgentName::new(w).unwrap());
                self.limits.approvers.agents = named.collect();
                self.give(Input::Configure(Box::new(self.limits.clone())))
            }
            ["policy", ruling, rest @ ..] => {
                self.policy.rules.push(rule(ruling, rest));
                self.give(Input::ConfigurePolicy(Box::new(self.policy.clone())))
            }
            ["agent", name, rest @ ..] => self.register(name, Kind::Agent, rest),
            ["human", name] => self.register(name, Kind::Human, &[]),
            ["tick", name, due, next, reference] => {
                let time = |ms: &str| Time(ms.parse().expect("a time in ms"));
                let (name, reference) = (Label::new(name).unwrap(), Ref::new(reference).unwrap());
                let tick = ScheduleTick { name, due: time(due), next_at: time(next), reference };
                self.give(Input::TickSchedule(Box::new(tick)))
            }
            ["attach", name] => self.give(Input::Attach(self.id(name), true)),
            [who, verb, rest @ ..] if who.ends_with(':') => self.act(who.trim_end_matches(':'), verb, rest),
            _ => panic!("what is `{line}`?"),
        }
    }

    fn set(&mut self, limit: &str, value: u64) {
        let by = self.one_off.as_ref().filter(|(name, _)| name == limit).map_or(0, |(_, by)| *by);
        assert!(self.limits.set(limit, value.saturating_add_signed(by)), "no limit is called {limit}");
    }

    fn register(&mut self, name: &str, kind: Kind, rest: &[&str]) -> Vec<String> {
        let labels = |key: &str| -> Vec<Label> {
            rest.iter().filter_map(|w| w.strip_prefix(key)).map(|l| Label::new(l).unwrap()).collect()
        };
        let turns_max = option(rest, "turns=").map_or(0, |n| n.parse().unwrap());
        let profile = Profile { actions: labels("action="), groups: labels("group="), turns_max };
        let registration = Registration {
            name: AgentName::new(name).unwrap(),
            kind,
            profile,
            credential: credential(name),
            role: None,
            display_name: None,
            key: None,
        };
        let human = self.core.state().agents.iter().position(|a| a.is_human() && a.live);
        let input = match human {
            Some(human) => {
                let human = self.core.state().agents[human].name().to_owned();
                Input::Register(self.prove(&human), registration)
            }
            None => Input::Bootstrap(registration),
        };
        self.give(input).into_iter().filter(|l| l.starts_with('!')).collect()
    }

    fn id(&self, name: &str) -> AgentId {
        self.core.state().live(name).unwrap_or_else(|| panic!("nobody is called {name}"))
    }

    fn prove(&self, name: &str) -> Principal {
        self.core.state().prove(&credential(name)).unwrap_or_else(|| panic!("nobody is called {name}"))
    }

    fn conv(&self, reference: &str) -> ConvId {
        // A forgotten conversation is named by a number that does not exist.
        self.core.state().conv_of(reference).unwrap_or(ConvId(u32::MAX))
    }

    fn act(&mut self, who: &str, verb: &str, rest: &[&str]) -> Vec<String> {
        let by = self.proofs.get(who).copied().unwrap_or_else(|| self.prove(who));
        let turn = option(rest, "turn=").map(|t| TurnId::parse(t).expect("turn=turn-N"));
        let input = match (verb, rest) {
            ("send", _) => Input::Send(by, Box::new(draft(rest, turn))),
            ("take", _) => Input::Take(by, turn),
            ("collect", [id]) => Input::Collect(by, RequestId::new(id).unwrap()),
            ("finish", _) => Input::Finish(by, turn, Box::new(finish(rest))),
            ("progress", _) => {
                let eta_ms = option(rest, "eta=").map(|n| n.parse().unwrap());
                let said: Box<str> = text(rest).into();
                let key = option(rest, "step=").map(|key| RequestId::new(key).unwrap());
                Input::Progress(
                    by,
                    turn,
                    Progress {
                        note: if key.is_some() { "".into() } else { said.clone() },
                        eta_ms,
                        spend: reported(rest),
                        models: models(rest),
                        new_session: option(rest, "session=") == Some("new"),
                        outside: rest.contains(&"outside"),
                        waits_for_user: option(rest, "dialog=") == Some("open"),
                        step: key.map(|key| (key, said)),
                    },
                )
            }
            ("dismiss", [id]) => Input::Dismiss(by, RequestId::new(id).unwrap()),
            ("link", [reference, ms]) => {
                let conv = self.core.state().conv_of(reference).unwrap_or(ConvId(99));
                Input::SetLink(by, conv, ms.parse().ok())
            }
            ("cancel", [id]) => Input::Cancel(by, RequestId::new(id).unwrap()),
            ("escalate", _) => {
                let reference = option(rest, "ref=").map(|r| Ref::new(r).unwrap());
                Input::Escalate(
                    by,
                    turn,
                    Question { body: text(rest).into(), options: options(rest), reference, key: key(rest) },
                )
            }
            ("lift", [id, number, ..]) => {
                let words = text(&rest[2..]);
                let words = (!words.is_empty()).then(|| words.into());
                Input::ChooseLift(by, EscalationId::parse(id).unwrap(), number.parse().unwrap(), words)
            }
            ("release", [id]) => Input::Release(by, ClaimId::parse(id).unwrap()),
            ("limit-agent", [name, ..]) => {
                let mut limits = AgentLimits::default();
                for (limit, value) in rest.iter().filter_map(|w| w.split_once('=')) {
                    assert!(limits.set(limit, value.parse().unwrap()), "{limit}");
                }
                Input::LimitAgent(by, self.id(name), Box::new(limits))
            }
            ("limit", [setting]) => {
                let (name, value) = setting.split_once('=').expect("limit NAME=VALUE");
                Input::ChangeLimits(by, [(name.into(), value.parse().unwrap())].into())
            }
            ("grant-agent", [name, ..]) => Input::GrantAgent(by, self.id(name), spend(rest)),
            ("role", [name, role]) => Input::SetRole(by, self.id(name), Role::from_word(role).unwrap()),
            ("acts", []) => Input::Act(by),
            ("types", [agent]) => Input::Prompt(by, self.id(agent), Prompted::Typed),
            ("ends", [agent]) => Input::Prompt(by, self.id(agent), Prompted::Ended),
            ("schedule", [name, to, ..]) => {
                let schedule = Schedule {
                    name: Label::new(name).unwrap(),
                    cron: "0 9 * * MON".into(),
                    time_zone: "UTC".into(),
                    to: Address::parse(to).unwrap(),
                    body: text(&rest[2..]).into(),
                    reference: None,
                };
                let next_at = Time(option(rest, "next=").unwrap().parse().unwrap());
                Input::SetSchedule(by, Box::new(schedule), next_at)
            }
            ("unschedule", [name]) => Input::RemoveSchedule(by, Label::new(name).unwrap()),
            ("run", [name, reference]) => {
                Input::RunSchedule(by, Label::new(name).unwrap(), Ref::new(reference).unwrap())
            }
            ("answer", [id, ..]) => {
                let body = text(&rest[1..]);
                let key = once(rest, &body);
                Input::Answer(by, EscalationId::parse(id).unwrap(), body.into(), key)
            }
            ("hold", [tool, ..]) => Input::AskApproval(by, turn, Box::new(call(tool, rest))),
            ("use", [id, tool, ..]) => {
                Input::Use(by, ApprovalId::parse(id).unwrap(), call(tool, rest).digest, key(rest))
            }
            ("decide", [id, decision, ..]) => {
                Input::Decide(by, ApprovalId::parse(id).unwrap(), verdict(decision, rest))
            }
            ("claim", [resource, mode, ..]) => {
                let mode = ClaimMode::from_word(mode).unwrap();
                let resource = Resource::new(resource).unwrap();
                let ttl_ms = option(rest, "ttl=").map_or(60_000, |n| n.parse().unwrap());
                Input::Claim(by, turn, Box::new(ClaimDraft { resource, mode, ttl_ms, key: key(rest) }))
            }
            ("room", [name, members @ ..]) => {
                let members = members.iter().map(|m| AgentName::new(m).unwrap()).collect();
                Input::OpenRoom(by, Ref::new(name).unwrap(), members, None)
            }
            ("post", [room, ..]) => {
                let room = self.core.state().room_names[&Ref::new(room).unwrap()];
                let mentions = rest.iter().filter_map(|w| w.strip_prefix('@')).map(|n| AgentName::new(n).unwrap());
                let body = text(&rest[1..]).into();
                let key = rest.iter().find_map(|w| w.strip_prefix("key=")).map(|k| RequestId::new(k).unwrap());
                let reference = rest.iter().find_map(|w| w.strip_prefix("ref=")).map(|r| Ref::new(r).unwrap());
                Input::Post(by, room, Box::new(RoomPost { body, mentions: mentions.collect(), reference, key }))
            }
            ("remove", [name]) => Input::Remove(by, self.id(name)),
            ("pause" | "resume" | "stop", [scope]) => {
                let scope = match scope.split_once(':') {
                    Some(("agent", name)) => Scope::Agent(self.id(name)),
                    Some((_, reference)) => Scope::Conversation(self.conv(reference)),
                    None => Scope::Workspace,
                };
                Input::Control(by, scope, Control::from_word(verb).unwrap())
            }
            ("grant", [reference, ..]) => {
                let more = |key| option(rest, key).map_or(0, |n: &str| n.parse().unwrap());
                let Spend { tokens, cost_microusd } = spend(rest);
                let extension = Extension {
                    messages: more("messages="),
                    requests: more("requests="),
                    turns: more("turns="),
                    agents: more("agents="),
                    time_ms: more("time="),
                    tokens,
                    cost_microusd,
                };
                if let Some(rounds) = option(rest, "rounds=") {
                    let conv = self.conv(reference);
                    return self.give(Input::ExtendRounds(by, conv, rounds.parse().unwrap()));
                }
                let only = option(rest, "only=").map(|id: &str| GrantId::parse(id).unwrap());
                Input::Extend(by, self.conv(reference), only, extension)
            }
            _ => panic!("what is `{who}: {verb} {rest:?}`?"),
        };
        self.give(input)
    }

    fn name(&self, agent: AgentId) -> String {
        self.core.state().name_of(agent).to_owned()
    }

    fn show(&mut self, seq: Seq, fact: &Fact) -> Option<String> {
        let reference = |c: &ConvId| self.core.state().ref_of(*c).map(ToString::to_string).unwrap_or_default();
        let place = |p: &Place| match p {
            Place::Conversation(conv) => reference(conv),
            Place::Room(room) => self.core.state().rooms[room].name.to_string(),
        };
        Some(match fact {
            Fact::Accepted { message } => {
                let to = if let Recipient::One(to) = message.to { self.name(to) } else { "all".into() };
                let mut line = format!("{seq} {} -> {to} {}", self.name(message.from), message.kind.keyword());
                write!(line, " {} d{} h{}", reference(&message.conv), message.depth, message.hops).unwrap();
                match &message.part {
                    Part::Request(terms) => write!(line, " {}", terms.request).unwrap(),
                    Part::Answer(answer) => {
                        write!(line, " {}", answer.status).unwrap();
                        if answer.cause.word() != "answered" {
                            write!(line, " ({})", answer.cause).unwrap();
                        }
                        if let Some(reason) = &answer.reason {
                            write!(line, " because {reason}").unwrap();
                        }
                        if !answer.completed.is_empty() || !answer.failed.is_empty() {
                            write!(line, " done={:?} failed={:?}", answer.completed, answer.failed).unwrap();
                        }
                    }
                    Part::Reply { .. } | Part::Plain | Part::Echo | Part::Status { .. } => {}
                }
                if !message.body.is_empty() {
                    write!(line, " \"{}\"", message.body).unwrap();
                }
                if let Some(payload) = message.payload.as_ref().filter(|_| message.kind == MessageType::Response) {
                    write!(line, " with {payload}").unwrap();
                }
                line
            }
            Fact::Warned { place: at, crossing, agent_messages: turns } => {
                format!("warning: {crossing} limit, {turns} in {}", place(at))
            }
            Fact::LatchSet(LatchSet { incident, code, limit, current, .. }) => {
                format!("latched: {incident} {code} (limit {limit}, {current})")
            }
            Fact::LatchLifted { .. } => "latch lifted".into(),
            Fact::GrantOpened(GrantOpened { grant, giver, .. }) => format!("{grant} opened by {}", self.name(*giver)),
            Fact::PromptTyped { agent, by } => format!("{} typed to {}", self.name(*by), self.name(*agent)),
            Fact::PromptEnded { agent } => format!("the prompt to {} ended", self.name(*agent)),
            Fact::GrantClosed { grant, end } => format!("{grant} closed: {end}"),
            Fact::RootEnded { task, status } => format!("{task} ended: {status}"),
            Fact::Requeued(Requeued { agent, why, .. }) => format!("runs again: {} ({why})", self.name(*agent)),
            Fact::EscalationOpened(EscalationOpened { escalation, body, cause, .. }) => {
                format!("{escalation} {cause}: {body}")
            }
            Fact::ApprovalRuled { approval, rule } => format!("{approval} ruled: {} {}", rule.ruling, rule.call),
            Fact::ApprovalDecided(ApprovalDecided { approval, decision, by: Some(SYSTEM), .. }) => {
                format!("{approval} decided by policy: {decision}")
            }
            Fact::ApprovalDecided(ApprovalDecided { approval, decision, .. }) => {
                format!("{approval} decided: {decision}")
            }
            Fact::ApprovalUsed { approval } => format!("{approval} used up"),
            Fact::Late { turn, body, .. } => format!("late: {turn} \"{body}\""),
            Fact::WriteRefused(WriteRefused { write, refusal, .. }) => format!("refused {write}: {}", refusal.code),
            Fact::RefusalsSummed { agent, code, count } => format!("{count} times {code} for {}", self.name(*agent)),
            Fact::IncidentNoted(IncidentNoted { incident, agent, code, .. }) => {
                format!("noted: {incident} {code} of {}", self.name(*agent))
            }
            Fact::AgentRested { agent, until: Some(until) } => format!("{} rests until {until:?}", self.name(*agent)),
            Fact::AgentRested { agent, until: None } => format!("{} goes on", self.name(*agent)),
            Fact::GrantAged { grant, percent } => format!("{grant}: {percent} % of its time"),
            Fact::RoundsGranted(RoundsGranted { grant, rounds, conv, .. }) => {
                format!("{grant}: {rounds} more rounds in {}", reference(conv))
            }
            Fact::RequestsGranted { task, requests, .. } => format!("{task}: {requests} more requests"),
            Fact::EscalationLifts { escalation, met, lifts } => {
                let lifts: Vec<String> = lifts.iter().map(ToString::to_string).collect();
                let Met { code, limit, current, extended, .. } = met;
                let lifts = lifts.join(", ");
                format!("{escalation} offers: {lifts} ({code}, limit {limit}, {current}, extended {extended} times)")
            }
            Fact::EscalationExpired { escalation } => format!("{escalation} expired"),
            Fact::AlertRaised { pushed, .. } => format!("alert: {}", if *pushed { "shown" } else { "counted" }),
            Fact::ApprovalOffered { approval, to } => {
                let names: Vec<String> = to.iter().map(|to| self.name(*to)).collect();
                format!("{approval} offered to {}", names.join(", "))
            }
            Fact::ScheduleTicked { name, grant, .. } => format!("{name} ticks: {grant}"),
            Fact::ScheduleSkipped { name, code, .. } => {
                format!("{name} makes no grant: {}", code.map_or("the last one is open", |code| code.word()))
            }
            Fact::ScheduleRemoved { name } => format!("{name} is over"),
            Fact::Unattended { percent } => format!("unattended: {percent} %"),
            Fact::Forgot { items } => format!("forgot {items}"),
            Fact::TurnClosed(TurnClosed { turn, end, .. }) if end.word() != "finished" => format!("{turn} {end}"),
            Fact::Observed { refusal, .. } => format!("observed: {refusal}"),
            Fact::BudgetWarned { percent, .. } => format!("budget: {percent} % used"),
            Fact::Released { claim } => format!("{claim} released"),
            Fact::LinkSet { conv, until, by } => {
                let name = self.core.state().ref_of(*conv).unwrap();
                let until = until.map_or("ended".to_owned(), |until| format!("until {}", until.0));
                format!("link to {name} {until} by {}", self.name(*by))
            }
            Fact::Dismissed { task, by } => format!("{task} dismissed by {}", self.name(*by)),
            Fact::ClaimBroken { claim, by } => format!("{claim} ended by {}", self.name(*by)),
            Fact::PostKeyed(PostKeyed { agent, key, admitted: false, .. }) => {
                format!("post {} of {} is remembered", key.id, self.name(*agent))
            }
            Fact::Stalled(Stalled { agent, level, stall, enforced, curve, .. }) => {
                let mode = if *enforced { "" } else { " (observed)" };
                let Curve { messages, dry, units, context, read_again } = curve;
                let numbers = format!("{messages} messages, dry {dry}, {units} new units");
                let tokens = format!("{context} tokens, {read_again} read again");
                format!("{level} with {}: {stall}{mode}, {numbers}, {tokens}", self.name(*agent))
            }
            Fact::DisplayNameSet { agent, display_name } => format!("{} reads as {display_name:?}", self.name(*agent)),
            Fact::WaitsForUser { turn, waits: true } => format!("{turn} waits for its program's user"),
            Fact::WaitsForUser { turn, .. } => format!("{turn} waits no more"),
            Fact::GrantTraced { grant, context } => format!("{grant} continues {context}"),
            Fact::StepKept(StepKept { task, key, result, .. }) => format!("{task} keeps {key}: {result}"),
            Fact::SessionBegan { task } => format!("{task} goes on in a new session"),
            Fact::Rearmed { conv, .. } => format!("{} counts from 0", self.core.state().ref_of(*conv).unwrap()),
            Fact::SpentOn { turn, models, .. } => {
                let part = |part: &ModelSpend| format!("{} {}", part.model, part.spend.tokens);
                format!("{turn} spent on {}", models.iter().map(part).collect::<Vec<_>>().join(", "))
            }
            Fact::WorkedOutside(WorkedOutside { turn, agent, grant, spend }) => {
                format!("{} spent {} outside {turn} of {grant}", self.name(*agent), spend.tokens)
            }
            Fact::LimitChanged(LimitChanged { limit, before, value, .. }) => {
                format!("{limit} from {before} to {value}")
            }
            Fact::PolicyChanged { policy, .. } => format!("policy of {} rules", policy.rules.len()),
            Fact::Idled { ms, .. } => format!("idled {ms} ms"),
            Fact::Posted { from, .. } => format!("{seq} {} posts", self.name(*from)),
            _ => return None,
        })
    }

    fn reply(&mut self, reply: &Reply) -> Option<String> {
        Some(match reply {
            Reply::Refused { refusal, .. } => format!("! {refusal}"),
            Reply::Again(seqs) => format!("same as {seqs:?}"),
            Reply::Delivery(None) => "nothing".into(),
            Reply::Delivery(Some(delivery)) => {
                let mut line = format!("gets {}", delivery.message);
                if let Some(turn) = delivery.turn {
                    self.turns.insert(turn.turn.to_string(), turn.turn);
                    write!(line, " in {}", turn.turn).unwrap();
                    if turn.attempt > 1 {
                        write!(line, " attempt {}", turn.attempt).unwrap();
                    }
                }
                if !delivery.steps.is_empty() {
                    write!(line, " steps {:?}", delivery.steps).unwrap();
                }
                if !delivery.notices.is_empty() {
                    write!(line, " notices {:?}", delivery.notices).unwrap();
                }
                line
            }
            Reply::Finished { open: true, answer: Some(answer) } => format!("the task goes on after {answer}"),
            Reply::Finished { open: true, answer: None } => "the task goes on".into(),
            Reply::Renewed { end: Some(code), .. } => format!("end now: {}", code.word()),
            Reply::Renewed { finish: Some(code), .. } => format!("finish: {}", code.word()),
            Reply::Sent(seqs) => {
                let state = self.core.state();
                let (delegate, exchange) = seqs.iter().find_map(|seq| state.warned_at(*seq))?;
                let held = exchange.hold().is_some();
                format!("warned: {}", stall::warning(state.name_of(delegate), exchange.curve(), held))
            }
            Reply::Held(id) => format!("{id} held"),
            Reply::Claimed(id) => format!("{id} claimed"),
            Reply::Usable(_)
            | Reply::Finished { .. }
            | Reply::Done
            | Reply::Renewed { .. }
            | Reply::Registered(_)
            | Reply::Escalated(_)
            | Reply::Opened(_)
            | Reply::Lifted(_) => return None,
        })
    }
}
