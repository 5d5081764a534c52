//! Agents that misbehave, over any surface: they flood, start over, loop, fall silent, answer twice, come back
//! with tokens that are over, approve their own calls and look where they have no part.
//!
//! A surface joins by implementing [`Edge`]. What a rogue is told has to be a refusal with a code and a hint,
//! whatever the surface; how far it came is for the reader of the log to judge.

use std::collections::BTreeMap;
use std::future::Future;

use serde_json::{Value, json};

/// A turn, as its delivery names it.
#[derive(Clone, Debug)]
pub struct Turn {
    /// Its id.
    pub id: String,
    /// The token that names it in a send.
    pub token: String,
}

/// What an agent asks of the broker.
#[derive(Clone, Debug)]
pub enum Call {
    /// A REQUEST.
    Send {
        /// To whom.
        to: String,
        /// The text.
        body: String,
        /// Its REF.
        reference: Option<String>,
        /// The turn in which it is sent.
        turn: Option<Turn>,
    },
    /// The next delivery, if there is one now.
    Next,
    /// The end of a turn.
    Finish {
        /// Which.
        turn: Turn,
        /// The answer.
        answer: String,
    },
    /// A sign of life.
    Progress {
        /// Which.
        turn: Turn,
        /// The note.
        note: String,
    },
    /// A tool call is held for a decision.
    Hold {
        /// The tool.
        tool: String,
        /// Its arguments.
        arguments: Value,
    },
    /// A held call is approved.
    Approve {
        /// Its id.
        approval: String,
        /// The digest of the call.
        digest: String,
    },
    /// How a request stands.
    Request {
        /// Its id.
        id: String,
    },
    /// A conversation as a tree.
    Conversation {
        /// Its REF.
        reference: String,
    },
}

impl Turn {
    /// The turn that a delivery opened, if it opened one.
    #[must_use]
    pub fn of(delivery: &Value) -> Option<Self> {
        let text = |member: &str| delivery["turn"][member].as_str().map(str::to_owned);
        Some(Self { id: text("id")?, token: text("token")? })
    }
}

/// Why a call was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// By a rule.
    Typed {
        /// Its code.
        code: String,
        /// What to do instead.
        hint: String,
    },
    /// By something that no rule names: a defect of the surface.
    Untyped(String),
}

impl Refused {
    /// Reads a refusal as every surface words it.
    #[must_use]
    pub fn of(problem: &Value) -> Self {
        let text = |member: &str| problem[member].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        match (text("code"), text("hint")) {
            (Some(code), Some(hint)) => Self::Typed { code, hint },
            _ => Self::Untyped(problem.to_string()),
        }
    }
}

/// A surface of the broker, as one agent sees it. Results are in the words of the surface: JSON objects.
pub trait Edge: Sync {
    /// Asks for something.
    fn call(&self, call: Call) -> impl Future<Output = Result<Value, Refused>> + Send;
}

/// What a rogue met.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Calls that were done.
    pub done: u64,
    /// Refusals by code.
    pub refused: BTreeMap<String, u64>,
    /// What was refused without a code or a hint.
    pub untyped: Vec<String>,
    /// What must never have been done, and was.
    pub wrong: Vec<String>,
}

impl Tally {
    /// Adds what another rogue met.
    pub fn add(&mut self, more: Self) {
        self.done += more.done;
        for (code, count) in more.refused {
            *self.refused.entry(code).or_default() += count;
        }
        self.untyped.extend(more.untyped);
        self.wrong.extend(more.wrong);
    }
}

/// An agent that misbehaves over one edge.
pub struct Rogue<'a, E> {
    edge: &'a E,
    /// Another agent.
    peer: &'a str,
    tally: Tally,
}

impl<'a, E: Edge> Rogue<'a, E> {
    /// A rogue that knows of `peer`.
    pub fn new(edge: &'a E, peer: &'a str) -> Self {
        Self { edge, peer, tally: Tally::default() }
    }

    /// What it met so far.
    pub fn tally(self) -> Tally {
        self.tally
    }

    async fn call(&mut self, call: Call) -> Option<Value> {
        match self.edge.call(call).await {
            Ok(done) => {
                self.tally.done += 1;
                Some(done)
            }
            Err(Refused::Typed { code, .. }) => {
                *self.tally.refused.entry(code).or_default() += 1;
                None
            }
            Err(Refused::Untyped(problem)) => {
                self.tally.untyped.push(problem);
                None
            }
        }
    }

    /// The same, of something that nobody may be allowed.
    async fn forbidden(&mut self, what: &str, call: Call) {
        if let Some(done) = self.call(call).await {
            self.tally.wrong.push(format!("{what}: {done}"));
        }
    }

    fn ask(&self, body: &str, reference: Option<String>, turn: Option<Turn>) -> Call {
        Call::Send { to: self.peer.to_owned(), body: body.to_owned(), reference, turn }
    }

    /// Sends as often as it can, under one REF.
    pub async fn floods(&mut self, times: usize) {
        for n in 0..times {
            self.call(self.ask(&format!("and {n}"), Some("FLOOD".into()), None)).await;
        }
    }

    /// Starts the same work again under ever new REFs.
    pub async fn starts_over(&mut self, times: usize) {
        for n in 0..times {
            self.call(self.ask("again, from the start", Some(format!("NEW-{n}")), None)).await;
        }
    }

    /// Answers every delivery with a request to its peer, in words that never repeat, and then finishes; one
    /// that it can't send it tries again under another REF. Gives whether there was a delivery.
    pub async fn thanks(&mut self, round: usize) -> bool {
        let Some(turn) = self.turn().await else { return false };
        let thanked = self.call(self.ask(&format!("thank you, {round} times"), None, Some(turn.clone()))).await;
        if thanked.is_none() {
            let reference = Some(format!("THANKS-{round}"));
            self.call(self.ask("thank you, once more", reference, Some(turn.clone()))).await;
        }
        self.call(Call::Finish { turn, answer: format!("you are welcome, {round} times") }).await;
        true
    }

    /// Takes a delivery and says nothing more.
    pub async fn falls_silent(&mut self) {
        self.turn().await;
    }

    /// Finishes a turn twice, with different answers, and goes on in it.
    pub async fn answers_twice(&mut self) {
        let Some(turn) = self.turn().await else { return };
        self.call(Call::Finish { turn: turn.clone(), answer: "yes".into() }).await;
        self.forbidden("another answer", Call::Finish { turn: turn.clone(), answer: "no".into() }).await;
        self.forbidden("a turn that is over", self.ask("one more thing", None, Some(turn.clone()))).await;
        self.forbidden("life after the end", Call::Progress { turn, note: "still here".into() }).await;
    }

    /// Makes up turns, and changes the ones that it has.
    pub async fn forges(&mut self) {
        for text in ["turn-1", "turn-1.00", "turn-999999", "turn-999999.deadbeefdeadbeef", "", "../turn-1"] {
            let turn = Turn { id: text.into(), token: text.into() };
            self.forbidden("a forged turn", Call::Finish { turn: turn.clone(), answer: "mine".into() }).await;
            self.forbidden("a send in it", self.ask("mine", None, Some(turn))).await;
        }
    }

    /// Holds a dangerous call and approves it itself.
    pub async fn approves_itself(&mut self) {
        let held = self.call(Call::Hold { tool: "Bash".into(), arguments: json!({ "command": "rm -rf /" }) }).await;
        let Some(held) = held else { return };
        let text = |member: &str| held[member].as_str().unwrap_or_default().to_owned();
        self.forbidden("its own call", Call::Approve { approval: text("id"), digest: text("digest") }).await;
    }

    /// Looks at what others have.
    pub async fn spies(&mut self, reference: &str, request: &str) {
        self.forbidden("a conversation of others", Call::Conversation { reference: reference.into() }).await;
        self.forbidden("a request of others", Call::Request { id: request.into() }).await;
    }

    /// The turn of the next delivery.
    async fn turn(&mut self) -> Option<Turn> {
        Turn::of(&self.call(Call::Next).await?)
    }
}
