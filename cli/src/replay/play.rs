//! Replays one recorded conversation: a message to the speaker's requester is an answer, any other is a request.

use std::collections::BTreeMap;

use lastword_proto::envelope::{Address, Draft, FinishStatus};
use lastword_proto::fact::{Kind, Profile, Spend};
use lastword_proto::ids::{Time, TurnId};
use lastword_proto::input::{Delivery, Finish, Registration};
use lastword_proto::names::{AgentName, Ref};
use lastword_proto::{Core, Effect, Input, Limits, MessageType, Out, Principal, Refusal, Reply};

use super::trace::{Said, Trace};

/// To what depth is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Depth {
    /// A conversation for each delegate of a task: the rules as they are
    Delegate,
    /// One conversation for the whole task
    Task,
    /// A conversation for each request, even to the same delegate
    Request,
}

/// The result of a replayed conversation.
#[derive(Debug)]
pub(crate) struct Played {
    /// The index of the message at which it was cut, from 0, and the refusal.
    pub(crate) cut: Option<(usize, Refusal)>,
    /// Messages that had to wait for a window.
    pub(crate) delayed: u64,
}

/// Replays a conversation with `pace_ms` between two messages.
pub(crate) fn play(trace: &Trace, limits: &Limits, depth: Depth, pace_ms: u64) -> Played {
    let mut stage = Stage::new(limits, depth);
    let mut delayed = 0;
    stage.begin(speaker(&trace.messages, 0));
    for (i, said) in trace.messages.iter().enumerate() {
        stage.now = stage.now.plus(pace_ms);
        stage.give(Input::Tick);
        let to = addressee(&trace.messages, i);
        let spoken = stage.speak(said, to.as_deref()).or_else(|refusal| {
            let Some(wait) = refusal.retry_after_ms else { return Err(refusal) };
            delayed += 1;
            stage.now = stage.now.plus(wait);
            stage.give(Input::Tick);
            stage.speak(said, to.as_deref())
        });
        if let Err(refusal) = spoken {
            return Played { cut: Some((i, refusal)), delayed };
        }
    }
    Played { cut: None, delayed }
}

fn speaker(messages: &[Said], i: usize) -> &str {
    messages.get(i).map_or("nobody", |said| &said.from)
}

/// Returns the stated recipient, or else the next speaker.
fn addressee(messages: &[Said], i: usize) -> Option<String> {
    let said = &messages[i];
    let next = || messages[i + 1..].iter().map(|m| &m.from).find(|from| **from != said.from).cloned();
    said.to.clone().filter(|to| *to != said.from).or_else(next)
}

/// An agent's turn on the stack; the one below it requested it.
struct Frame {
    agent: String,
    turn: TurnId,
}

struct Stage {
    core: Core,
    now: Time,
    depth: Depth,
    known: BTreeMap<String, (AgentName, [u8; 32])>,
    stack: Vec<Frame>,
    /// Tokens that each speaker has read and written since its last turn ended.
    context_tokens: u64,
    refs: u32,
}

impl Stage {
    fn new(limits: &Limits, depth: Depth) -> Self {
        let mut limits = limits.clone();
        if depth == Depth::Request {
            limits.observed.observe("ref_conflict");
        }
        let mut stage = Self {
            core: Core::default(),
            now: Time(0),
            depth,
            known: BTreeMap::new(),
            stack: Vec::new(),
            context_tokens: 0,
            refs: 0,
        };
        stage.give(Input::Configure(Box::new(limits)));
        stage
    }

    fn give(&mut self, input: Input) -> Reply {
        let mut out = Out::default();
        self.core.handle(self.now, input, &mut out);
        let mut replies = out.effects.into_iter();
        let reply = replies.find_map(|e| if let Effect::Reply(reply) = e { Some(*reply) } else { None });
        reply.unwrap_or(Reply::Done)
    }

    /// Sends the task from a human to the first speaker.
    fn begin(&mut self, first: &str) {
        let human = self.prove("human operator", Kind::Human);
        let mut draft = Draft::new(MessageType::Request, self.address(first), "the task");
        draft.reference = Ref::new("T").ok();
        self.give(Input::Send(human, Box::new(draft)));
        self.take(first);
    }

    /// Returns the speaker's principal: recordings hold free text as names, so each speaker gets a valid one.
    fn prove(&mut self, speaker: &str, kind: Kind) -> Principal {
        if !self.known.contains_key(speaker) {
            let mut credential = [0; 32];
            credential[..8].copy_from_slice(&(self.known.len() as u64 + 1).to_le_bytes());
            let prefix = if kind == Kind::Human { "operator" } else { "agent" };
            let name = format!("{prefix}-{}", self.known.len());
            let name = AgentName::new(&name).unwrap_or_else(|_| unreachable!("prefix and number are a name"));
            let turns_max = 1_000_000;
            let profile = Profile { actions: Vec::new(), groups: Vec::new(), turns_max };
            let registration = Registration { name: name.clone(), kind, profile, credential, role: None, key: None };
            let input = match kind {
                Kind::Human => Input::Bootstrap(registration),
                Kind::Agent => Input::Register(self.prove("human operator", Kind::Human), registration),
            };
            self.give(input);
            self.known.insert(speaker.to_owned(), (name, credential));
        }
        let (_, credential) = &self.known[speaker];
        self.core.state().prove(credential).unwrap_or_else(|| unreachable!("it was registered above"))
    }

    fn address(&mut self, speaker: &str) -> Address {
        self.prove(speaker, Kind::Agent);
        Address::Name(self.known[speaker].0.clone())
    }

    /// Opens the turn that a request has just queued.
    fn take(&mut self, speaker: &str) {
        let by = self.prove(speaker, Kind::Agent);
        if let Reply::Delivery(Some(Delivery { turn: Some(open), .. })) = self.give(Input::Take(by, None)) {
            self.stack.push(Frame { agent: speaker.to_owned(), turn: open.turn });
        }
    }

    fn speak(&mut self, said: &Said, to: Option<&str>) -> Result<(), Refusal> {
        self.bring_up(&said.from)?;
        self.context_tokens += said.approx_tokens;
        match to {
            None => Ok(()),
            Some(to) if self.stack.iter().any(|frame| frame.agent == to) => {
                self.answer_up_to(to);
                Ok(())
            }
            Some(to) => self.ask(to),
        }
    }

    /// Makes it the speaker's turn: the turns above it answer, or the current speaker sends it a request.
    fn bring_up(&mut self, speaker: &str) -> Result<(), Refusal> {
        if self.stack.iter().any(|frame| frame.agent == speaker) {
            self.answer_up_to(speaker);
            return Ok(());
        }
        self.ask(speaker)
    }

    /// Answers turn by turn until it is `agent`'s turn.
    fn answer_up_to(&mut self, agent: &str) {
        while self.stack.len() > 1 && self.stack.last().is_some_and(|frame| frame.agent != agent) {
            let Some(done) = self.stack.pop() else { return };
            let by = self.prove(&done.agent, Kind::Agent);
            let spend = Some(Spend { tokens: self.context_tokens, cost_microusd: 0 });
            let status = Some(FinishStatus::Completed);
            let finish = Finish { status, body: "answer".into(), spend, ..Finish::default() };
            self.give(Input::Finish(by, Some(done.turn), Box::new(finish)));
            if let Some(asker) = self.stack.last() {
                let (asking, turn) = (asker.agent.clone(), asker.turn);
                let by = self.prove(&asking, Kind::Agent);
                self.give(Input::Take(by, Some(turn)));
            }
        }
    }

    fn ask(&mut self, to: &str) -> Result<(), Refusal> {
        let address = self.address(to);
        let Some(asking) = self.stack.last() else { return Ok(()) };
        let (asker, turn) = (asking.agent.clone(), asking.turn);
        let by = self.prove(&asker, Kind::Agent);
        let mut draft = Draft::new(MessageType::Request, address, "request");
        draft.turn = Some(turn);
        draft.reference = match self.depth {
            Depth::Delegate => None,
            Depth::Task => Ref::new("T").ok(),
            Depth::Request => {
                self.refs += 1;
                Ref::new(&format!("T/request-{}", self.refs)).ok()
            }
        };
        if let Reply::Refused { refusal, .. } = self.give(Input::Send(by, Box::new(draft))) {
            return Err(refusal);
        }
        self.take(to);
        Ok(())
    }
}
