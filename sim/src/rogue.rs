//! Agents that misbehave, over any surface: they flood, start over, loop, fall silent, answer twice, reuse tokens of
//! turns that are over, approve their own calls and read what they have no part in.
//!
//! A surface joins by implementing [`Edge`]. On every surface a rogue must get refusals with a code and a hint; how far
//! it came is judged from the log.

use std::collections::BTreeMap;
use std::future::Future;

use serde_json::{Value, json};

/// A turn, as its delivery names it.
#[derive(Clone, Debug)]
pub struct Turn {
    /// The id, such as `turn-3`.
    pub id: String,
    /// The token that names the turn in a send.
    pub token: String,
}

/// A call of an agent to the broker.
#[derive(Clone, Debug)]
pub enum Call {
    /// Sends a REQUEST.
    Send {
        /// The name of the recipient.
        to: String,
        /// The text of the request.
        body: String,
        /// The REF of the work item.
        reference: Option<String>,
        /// The turn in which it is sent.
        turn: Option<Turn>,
    },
    /// Takes the next delivery, if there is one now.
    Next,
    /// Finishes a turn.
    Finish {
        /// The turn to finish.
        turn: Turn,
        /// The text of the answer.
        answer: String,
    },
    /// Reports progress, which renews the lease.
    Progress {
        /// The turn to report on.
        turn: Turn,
        /// The text of the note.
        note: String,
    },
    /// Holds a tool call for a decision.
    Hold {
        /// The name of the tool.
        tool: String,
        /// The arguments of the call.
        arguments: Value,
    },
    /// Approves a held call.
    Approve {
        /// The id of the approval.
        approval: String,
        /// The digest of the call.
        digest: String,
    },
    /// Reads the state of a request.
    Request {
        /// The id of the request.
        id: String,
    },
    /// Reads a conversation as a tree.
    Conversation {
        /// The REF of the conversation.
        reference: String,
    },
}

impl Turn {
    /// Returns the turn that a delivery opened, if it opened one.
    #[must_use]
    pub fn of(delivery: &Value) -> Option<Self> {
        let text = |member: &str| delivery["turn"][member].as_str().map(str::to_owned);
        Some(Self { id: text("id")?, token: text("token")? })
    }
}

/// The reason why a call was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A rule refused it.
    Typed {
        /// The code of the refusal.
        code: String,
        /// The hint that says what to do instead.
        hint: String,
    },
    /// It failed without a rule: a defect of the surface.
    Untyped(String),
}

impl Refused {
    /// Parses a refusal in the form that every surface uses.
    #[must_use]
    pub fn of(problem: &Value) -> Self {
        let text = |member: &str| problem[member].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        match (text("code"), text("hint")) {
            (Some(code), Some(hint)) => Self::Typed { code, hint },
            _ => Self::Untyped(problem.to_string()),
        }
    }
}

/// A surface of the broker, as one agent sees it. Results are JSON objects in the words of the surface.
pub trait Edge: Sync {
    /// Makes a call.
    fn call(&self, call: Call) -> impl Future<Output = Result<Value, Refused>> + Send;
}

/// The results of a rogue's calls.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// The number of calls that were done.
    pub done: u64,
    /// The number of refusals, by code.
    pub refused: BTreeMap<String, u64>,
    /// The refusals without a code or a hint.
    pub untyped: Vec<String>,
    /// The calls that had to be refused and were done.
    pub wrong: Vec<String>,
}

impl Tally {
    /// Adds the results of another rogue.
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
    /// The name of another agent.
    peer: &'a str,
    tally: Tally,
}

impl<'a, E: Edge> Rogue<'a, E> {
    /// Returns a rogue that knows the agent `peer`.
    pub fn new(edge: &'a E, peer: &'a str) -> Self {
        Self { edge, peer, tally: Tally::default() }
    }

    /// Returns the results so far.
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

    /// Makes a call that must be refused for every agent.
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

    /// Starts the same work again and again under new REFs.
    pub async fn starts_over(&mut self, times: usize) {
        for n in 0..times {
            self.call(self.ask("again, from the start", Some(format!("NEW-{n}")), None)).await;
        }
    }

    /// Answers every delivery with a request to its peer, in words that never repeat, and then finishes. Tries a
    /// request that is refused again under another REF. Returns whether there was a delivery.
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

    /// Takes a delivery and never answers it.
    pub async fn falls_silent(&mut self) {
        self.turn().await;
    }

    /// Finishes a turn twice, with different answers, and continues to use it.
    pub async fn answers_twice(&mut self) {
        let Some(turn) = self.turn().await else { return };
        self.call(Call::Finish { turn: turn.clone(), answer: "yes".into() }).await;
        self.forbidden("another answer", Call::Finish { turn: turn.clone(), answer: "no".into() }).await;
        self.forbidden("a turn that is over", self.ask("one more thing", None, Some(turn.clone()))).await;
        self.forbidden("life after the end", Call::Progress { turn, note: "still here".into() }).await;
    }

    /// Invents turns and tokens of turns.
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

    /// Reads a conversation and a request that it has no part in.
    pub async fn spies(&mut self, reference: &str, request: &str) {
        self.forbidden("a conversation of others", Call::Conversation { reference: reference.into() }).await;
        self.forbidden("a request of others", Call::Request { id: request.into() }).await;
    }

    /// Takes the next delivery and returns its turn.
    async fn turn(&mut self) -> Option<Turn> {
        Turn::of(&self.call(Call::Next).await?)
    }
}
