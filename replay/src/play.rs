//! Replays one recorded conversation through the real core, in virtual time.
//!
//! What was said becomes what the broker knows: a message to the agent whose request one works on is the answer to it, any
//! other message to an agent is a request, and one to an agent further up is passed on as INFO. An answer that nobody
//! gave isn't made up: the turn stays open, and its lease is renewed.

use std::collections::BTreeMap;

use lastword_core::input::{Delivery, Finish, Progress, Registration};
use lastword_core::{Core, Effect, Input, Out, Principal, Reply};
use lastword_facts::envelope::{Address, Draft, FinishStatus};
use lastword_facts::fact::{Control, Kind, Level, Lift, Profile, Scope, Spend, Stalled};
use lastword_facts::ids::{Time, TurnId};
use lastword_facts::names::{AgentName, Ref};
use lastword_facts::{Code, Fact, Limits, MessageType, Refusal, Seq};

use super::trace::{Said, Trace};

/// How often a human says yes before a replay gives up.
const LIFTS_MAX: u64 = 1_000;
/// How often in a row a message waits for a window.
const WAITS_MAX: u32 = 100;
/// The human who gives the task, unless the recording has one.
const OPERATOR: &str = "(the human who gives the task)";
/// What a message without a text says.
const NO_TEXT: &str = ".";

/// What came of a replayed conversation.
#[derive(Clone, Debug, Default)]
pub struct Played {
    /// The index of the message at which it was cut first, from 0, and the code of the refusal.
    pub cut: Option<(usize, String)>,
    /// Whether it ends although a human always says yes: no step lifts what refused it.
    pub is_final: bool,
    /// How often a human has to say yes for it to go on as recorded.
    pub lifts: u64,
    /// The first message of which R5 warns, or would.
    pub warned: Option<usize>,
    /// The first message after which R5 holds further requests, or would.
    pub held: Option<usize>,
    /// Messages that had to wait for a window.
    pub delayed: u64,
}

/// Replays a conversation with `pace_ms` between two messages.
#[must_use]
pub fn play(trace: &Trace, limits: &Limits, pace_ms: u64) -> Played {
    let mut stage = Stage::new(trace, limits, pace_ms);
    if let Some(first) = trace.messages.first().filter(|said| !trace.humans.contains(&said.from)) {
        let to = first.from.clone();
        // The task is nobody's recorded words.
        stage.request(OPERATOR, &to, &Said::default(), None).unwrap_or_default();
    }
    for (i, said) in trace.messages.iter().enumerate() {
        stage.pass(pace_ms);
        stage.at = i;
        if !stage.get_through(said, addressee(trace, i)) {
            stage.played.is_final = true;
            break;
        }
    }
    stage.played
}

/// The one who is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To<'a> {
    /// A stated recipient.
    One(&'a str),
    /// Everyone; this one speaks next.
    AllBefore(&'a str),
    /// Everyone, and nobody speaks after it; or the end of the conversation.
    Nobody,
}

fn addressee(trace: &Trace, i: usize) -> To<'_> {
    let said = &trace.messages[i];
    if said.ends {
        return To::Nobody;
    }
    match said.to.as_deref().filter(|to| *to != said.from) {
        Some(to) => To::One(to),
        None => {
            let mut next = trace.messages[i + 1..].iter().map(|next| next.from.as_str());
            next.find(|from| *from != said.from).map_or(To::Nobody, To::AllBefore)
        }
    }
}

/// An open turn of an agent.
#[derive(Clone, Debug)]
struct Turn {
    turn: TurnId,
    /// The one who asked.
    asker: String,
    /// The turn in which that one asked; `None` outside every turn.
    within: Option<TurnId>,
    /// The name of the request in the recording.
    request: Option<String>,
    lease_until: Time,
}

struct Stage<'a> {
    trace: &'a Trace,
    core: Core,
    now: Time,
    pace_ms: u64,
    /// The index of the message that is said.
    at: usize,
    known: BTreeMap<String, (AgentName, [u8; 32])>,
    /// The open turns of each agent, oldest first.
    open: BTreeMap<String, Vec<Turn>>,
    /// The session of each speaker who has said one.
    sessions: BTreeMap<String, String>,
    /// Tokens of everything said so far, which each speaker reads.
    context_tokens: u64,
    refs: u32,
    /// The conversation in which an agent asks another outside every turn, once there is one.
    outside: BTreeMap<(String, String), Ref>,
    played: Played,
}

impl<'a> Stage<'a> {
    fn new(trace: &'a Trace, limits: &Limits, pace_ms: u64) -> Self {
        let mut limits = limits.clone();
        if !trace.has_texts {
            // It would judge texts that nobody wrote.
            limits.observed.observe("no_progress");
        }
        let mut stage = Self {
            trace,
            core: Core::default(),
            now: Time(0),
            pace_ms,
            at: 0,
            known: BTreeMap::new(),
            open: BTreeMap::new(),
            sessions: BTreeMap::new(),
            context_tokens: 0,
            refs: 0,
            outside: BTreeMap::new(),
            played: Played::default(),
        };
        stage.give(Input::Configure(Box::new(limits)));
        stage
    }

    fn give(&mut self, input: Input) -> Reply {
        let mut out = Out::default();
        self.core.handle(self.now, input, &mut out);
        for entry in &out.entries {
            if let Fact::Stalled(Stalled { level, .. }) = entry.fact
                && self.trace.has_texts
            {
                let first = match level {
                    Level::Warned => &mut self.played.warned,
                    Level::Held => &mut self.played.held,
                };
                first.get_or_insert(self.at);
            }
        }
        let mut replies = out.effects.into_iter();
        let reply = replies.find_map(|e| if let Effect::Reply(reply) = e { Some(*reply) } else { None });
        reply.unwrap_or(Reply::Done)
    }

    /// Lets time pass, in which those who work go on working.
    fn pass(&mut self, ms: u64) {
        let until = self.now.plus(ms);
        while self.now < until {
            let due = self.open.values().flatten().map(|open| Time(open.lease_until.0.saturating_sub(1))).min();
            self.now = due.unwrap_or(until).clamp(Time(self.now.0 + 1), until);
            self.renew();
            self.give(Input::Tick);
        }
    }

    fn renew(&mut self) {
        let soon = self.now.plus(self.pace_ms.max(1_000));
        let due = |open: &&Turn| open.lease_until <= soon;
        let all =
            self.open.iter().flat_map(|(agent, open)| open.iter().filter(due).map(|open| (agent.clone(), open.turn)));
        for (agent, turn) in all.collect::<Vec<_>>() {
            let by = self.prove(&agent);
            let note = Progress { note: "working".into(), ..Progress::default() };
            let reply = self.give(Input::Progress(by, Some(turn), note));
            let open = self.open.get_mut(&agent).into_iter().flatten().find(|open| open.turn == turn);
            match (reply, open) {
                (Reply::Renewed { lease_until, .. }, Some(open)) => open.lease_until = lease_until,
                // A turn that can't be renewed has ended, or ends with its lease.
                _ => self.close(&agent, turn),
            }
        }
    }

    /// Has a message said, whatever a human has to lift for it; returns `false` if no human can.
    fn get_through(&mut self, said: &Said, to: To<'_>) -> bool {
        self.context_tokens += said.tokens;
        let mut waits = 0;
        loop {
            let Err((refusal, reference)) = self.speak(said, to) else {
                self.played.delayed += u64::from(waits > 0);
                return true;
            };
            // Its task ended before this was said, so it is said outside every turn.
            if refusal.code == Code::TurnClosed && self.open.get(&said.from).is_some_and(|open| !open.is_empty()) {
                self.open.remove(&said.from);
                continue;
            }
            if let Some(wait) = refusal.retry_after_ms
                && waits < WAITS_MAX
            {
                waits += 1;
                self.pass(wait);
                continue;
            }
            self.played.cut.get_or_insert_with(|| (self.at, refusal.code.to_string()));
            if self.played.lifts >= LIFTS_MAX || !self.lift(&refusal, reference.as_ref()) {
                return false;
            }
            self.played.lifts += 1;
        }
    }

    /// Takes the one step by which a human lifts a refusal (H6); returns `false` if there is none.
    fn lift(&mut self, refusal: &Refusal, reference: Option<&Ref>) -> bool {
        let Some(conv) = reference.and_then(|reference| self.core.state().conv_of(reference.as_str())) else {
            return false;
        };
        let human = self.prove(OPERATOR);
        let resume = Input::Control(human, Scope::Conversation(conv), Control::Resume);
        let input = match (refusal.code, Lift::of(refusal.code, refusal.lacks(), 0)) {
            (Code::Latched | Code::TurnsSoft | Code::TurnsHard | Code::NoProgress, _) | (_, Some(Lift::Rearm)) => {
                resume
            }
            (_, Some(Lift::Rounds(rounds))) => Input::ExtendRounds(human, conv, rounds),
            (_, Some(lift)) => Input::Extend(human, conv, None, lift.extension()),
            (_, None) => return false,
        };
        !matches!(self.give(input), Reply::Refused { .. })
    }

    /// Registers a speaker: recordings hold free text as names, so each speaker gets a valid one.
    fn register(&mut self, speaker: &str) {
        if self.known.contains_key(speaker) {
            return;
        }
        let human = speaker == OPERATOR || self.trace.humans.contains(speaker);
        if speaker != OPERATOR {
            self.register(OPERATOR);
        }
        let mut credential = [0; 32];
        credential[..8].copy_from_slice(&(self.known.len() as u64 + 1).to_le_bytes());
        let (prefix, kind) = if human { ("human", Kind::Human) } else { ("agent", Kind::Agent) };
        let name = AgentName::new(&format!("{prefix}-{}", self.known.len()));
        let name = name.unwrap_or_else(|_| unreachable!("prefix and number are a name"));
        let profile = Profile { actions: Vec::new(), groups: Vec::new(), turns_max: if human { 0 } else { 1_000_000 } };
        let registration =
            Registration { name: name.clone(), kind, profile, credential, role: None, display_name: None, key: None };
        let input = match speaker {
            OPERATOR => Input::Bootstrap(registration),
            _ => Input::Register(self.prove(OPERATOR), registration),
        };
        self.give(input);
        self.known.insert(speaker.to_owned(), (name, credential));
    }

    /// Returns a speaker's principal.
    fn prove(&mut self, speaker: &str) -> Principal {
        self.register(speaker);
        let (_, credential) = &self.known[speaker];
        self.core.state().prove(credential).unwrap_or_else(|| unreachable!("it was registered above"))
    }

    fn is_human(&self, speaker: &str) -> bool {
        speaker == OPERATOR || self.trace.humans.contains(speaker)
    }

    /// Tells the broker of a speaker's new session, as its runner does (R5).
    fn begin_session(&mut self, said: &Said, own: Option<&Turn>) {
        let Some(session) = &said.session else { return };
        let before = self.sessions.insert(said.from.clone(), session.clone());
        if let Some(own) = own.filter(|_| before.is_some_and(|before| before != *session)) {
            let by = self.prove(&said.from);
            self.give(Input::Progress(by, Some(own.turn), Progress { new_session: true, ..Progress::default() }));
        }
    }

    fn speak(&mut self, said: &Said, to: To<'_>) -> Result<(), (Refusal, Option<Ref>)> {
        let from = said.from.as_str();
        let own = self.turn_of(said, to);
        self.begin_session(said, own.as_ref());
        match to {
            // The broker tracks presence itself.
            _ if said.is_notice => Ok(()),
            To::Nobody => self.answer_if(from, own, said),
            To::AllBefore(next) if own.as_ref().is_some_and(|own| self.is_above(own, next)) => {
                self.answer_if(from, own, said)
            }
            To::One(to) if own.as_ref().is_some_and(|own| own.asker == to) => self.answer_if(from, own, said),
            // Nobody asked for it, so it is for a human to read.
            To::One(to) | To::AllBefore(to) if self.is_human(to) => self.inform(from, to, own, said),
            To::One(to) if own.as_ref().is_some_and(|own| self.is_above(own, to)) => self.inform(from, to, own, said),
            To::One(to) | To::AllBefore(to) => self.request(from, to, said, own),
        }
    }

    /// Returns the open turn in which a speaker speaks: that of the request which the recording names, the newest one
    /// that the recipient asked for, or the newest.
    fn turn_of(&self, said: &Said, to: To<'_>) -> Option<Turn> {
        let open = self.open.get(&said.from)?;
        let newest = |wanted: &dyn Fn(&Turn) -> bool| open.iter().rev().find(|open| wanted(open)).cloned();
        let named = said.request.as_ref().and_then(|name| newest(&|open| open.request.as_ref() == Some(name)));
        let asked = || match to {
            To::One(to) | To::AllBefore(to) => newest(&|open| open.asker == to),
            To::Nobody => None,
        };
        named.or_else(asked).or_else(|| newest(&|_| true))
    }

    /// Returns whether a speaker asked for the work of a turn, or for the work in which it was asked for, and so on.
    fn is_above(&self, own: &Turn, speaker: &str) -> bool {
        let (mut asker, mut within) = (own.asker.as_str(), own.within);
        loop {
            if asker == speaker {
                return true;
            }
            let above = self.open.get(asker).into_iter().flatten().find(|open| Some(open.turn) == within);
            let Some(above) = above else { return false };
            (asker, within) = (&above.asker, above.within);
        }
    }

    fn close(&mut self, agent: &str, turn: TurnId) {
        if let Some(open) = self.open.get_mut(agent) {
            open.retain(|open| open.turn != turn);
        }
    }

    /// Ends a turn with what was said; without a turn nothing is asked for, and nothing happens.
    fn answer_if(&mut self, from: &str, own: Option<Turn>, said: &Said) -> Result<(), (Refusal, Option<Ref>)> {
        let Some(own) = own else { return Ok(()) };
        let by = self.prove(from);
        let spend = Some(Spend { tokens: self.context_tokens, cost_microusd: 0 });
        let finish =
            Finish { status: Some(FinishStatus::Completed), body: self.body(said), spend, ..Finish::default() };
        // A refusal says that the turn is over, which an answer can't change.
        self.give(Input::Finish(by, Some(own.turn), Box::new(finish)));
        self.close(from, own.turn);
        let asker = self.prove(&own.asker);
        while let Reply::Delivery(Some(_)) = self.give(Input::Take(asker, own.within)) {}
        Ok(())
    }

    fn request(&mut self, from: &str, to: &str, said: &Said, own: Option<Turn>) -> Result<(), (Refusal, Option<Ref>)> {
        let within = own.filter(|_| !self.is_human(from)).map(|own| own.turn);
        let mut draft = self.draft(MessageType::Request, to, said);
        draft.turn = within;
        let pair = (from.to_owned(), to.to_owned());
        let known = self.outside.get(&pair).filter(|_| within.is_none()).cloned();
        let goes_on = known.is_some();
        draft.reference = if within.is_some() { None } else { known.or_else(|| self.new_ref()) };
        let sent = match self.send(from, draft.clone()) {
            // Outside every turn: it goes on in the conversation that the refusal names. The next request begins with
            // it, because an agent that knows it isn't refused (F5).
            Err((refusal, _)) if refusal.code == Code::RefConflict && within.is_none() => {
                draft.reference = refusal.subject.as_deref().and_then(|named| Ref::new(named).ok());
                if let Some(named) = &draft.reference {
                    self.outside.insert(pair, named.clone());
                }
                self.send(from, draft)
            }
            // That conversation has ended.
            Err((refusal, _)) if refusal.code == Code::RefInUse && goes_on => {
                self.outside.remove(&pair);
                draft.reference = self.new_ref();
                self.send(from, draft)
            }
            sent => sent,
        }?;
        let by = self.prove(to);
        // Answers to its own requests may come first.
        while let Reply::Delivery(Some(Delivery { turn: Some(open), message, .. })) = self.give(Input::Take(by, None)) {
            let (turn, lease_until) = (open.turn, open.lease_until);
            if sent.contains(&message) {
                let open = Turn { turn, asker: from.to_owned(), within, request: said.request.clone(), lease_until };
                self.open.entry(to.to_owned()).or_default().push(open);
                break;
            }
        }
        Ok(())
    }

    fn new_ref(&mut self) -> Option<Ref> {
        self.refs += 1;
        Ref::new(&format!("T-{}", self.refs)).ok()
    }

    fn inform(&mut self, from: &str, to: &str, own: Option<Turn>, said: &Said) -> Result<(), (Refusal, Option<Ref>)> {
        let mut draft = self.draft(MessageType::Info, to, said);
        draft.turn = own.map(|own| own.turn);
        draft.reference = if draft.turn.is_none() { Ref::new("T-1").ok() } else { None };
        self.send(from, draft).map(|_| ())
    }

    fn draft(&mut self, kind: MessageType, to: &str, said: &Said) -> Draft {
        Draft::new(kind, Address::Name(self.name(to)), &self.body(said))
    }

    /// Returns the name under which a speaker is registered.
    fn name(&mut self, speaker: &str) -> AgentName {
        self.register(speaker);
        self.known[speaker].0.clone()
    }

    /// Returns the text of a message, as far as one may be long.
    fn body(&self, said: &Said) -> Box<str> {
        let max = usize::try_from(self.core.state().limits.body_bytes_max).unwrap_or(usize::MAX);
        let text = &said.text[..said.text.floor_char_boundary(max)];
        if text.is_empty() { NO_TEXT.into() } else { text.into() }
    }

    fn send(&mut self, from: &str, draft: Draft) -> Result<Vec<Seq>, (Refusal, Option<Ref>)> {
        let by = self.prove(from);
        let reply = self.give(Input::Send(by, Box::new(draft)));
        if let Reply::Refused { refusal, about, .. } = reply {
            return Err((refusal, about.and_then(|about| about.reference)));
        }
        Ok(if let Reply::Sent(sent) = reply { sent } else { Vec::new() })
    }
}
