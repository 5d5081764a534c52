//! The scripted agents. Each is a child process that speaks HTTP and doesn't know the broker's rules: it follows its
//! script for the act that a REF names, and stops when it is refused.

use std::time::Duration;

use lastword_client::{Client, ClientError, SendTerms};
use lastword_facts::MessageType;
use lastword_wire::{
    DecideApproval, Delivery, Envelope, Finish, HeldCall, ModelUsage, NewEscalation, TurnView, Usage, UseApproval,
};
use serde_json::json;

use super::acts::POSTS;

/// The names of the seven agents.
pub(crate) const AGENTS: [&str; 7] = ["lead", "worker", "kilo", "hive", "coder", "tester", "ops"];
/// Longest wait of one inbox call.
const WAIT: Duration = Duration::from_secs(20);

/// Plays the agent `name` until its server is gone.
pub(crate) async fn perform(name: &str, client: &Client) -> Result<(), ClientError> {
    let mut agent = Agent { name, client, turns: 0, answers: 0 };
    loop {
        match client.inbox(WAIT).await {
            Ok(Some(delivery)) => agent.turn(delivery).await?,
            Ok(None) => {}
            Err(ClientError::Refused(_)) => tokio::task::yield_now().await,
            Err(ClientError::Unreachable { .. }) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// More tokens than a grant may spend.
const SQUANDERED_TOKENS: u64 = 560_000;

struct Agent<'a> {
    name: &'a str,
    client: &'a Client,
    turns: u64,
    answers: usize,
}

/// A step of a script in response to a message.
enum Move {
    /// Send a request to this agent, on this REF, and wait for the answer.
    Ask(&'static str, Option<String>, String),
    /// Send the same request to all of these agents.
    AskAll(&'static [&'static str]),
    /// Finish with this answer.
    Answer(String),
    /// Wait for the requests in flight.
    Wait,
    /// Post to this room repeatedly.
    Post(&'static str),
    /// Work until stopped.
    Toil,
    /// Hold a dangerous call, and try to approve it itself.
    Hold,
    /// Use the approval of the held call.
    Use,
    /// Ask the human, with options.
    Consult(&'static str, &'static [&'static str]),
    /// Hold a call with these arguments, and wait for the decision.
    Request(&'static str, serde_json::Value),
    /// Send a request to this agent, and report more tokens than the whole budget.
    Squander(&'static str, &'static str),
}

impl Agent<'_> {
    async fn turn(&mut self, delivery: Delivery) -> Result<(), ClientError> {
        let Some(turn) = &delivery.turn else { return Ok(()) };
        self.turns += 1;
        let message = &delivery.message;
        let act = message.reference.split(['-', '/']).next().unwrap_or_default();
        let asked = message.kind == MessageType::Request;
        if asked && message.from == super::stage::HUMAN {
            self.answers = 0;
        }
        self.answers += usize::from(!asked);
        let next = self.script(act, asked, &message.reference);
        match self.make(next, turn).await {
            Err(ClientError::Refused(problem)) => {
                let words = format!("I stop here: {} ({})", problem.hint, problem.code);
                self.finish(turn, words, Some(problem.code.to_string())).await
            }
            made => made,
        }
    }

    /// Returns the agent's step in `act` for a request or an answer.
    fn script(&self, act: &str, asked: bool, reference: &str) -> Move {
        let n = self.answers;
        match (act, self.name, asked) {
            ("I01", "lead", _) => {
                Move::Ask("worker", None, format!("Your report ({n}) is new information that requires action."))
            }
            ("I01", "worker", true) => Move::Answer("Noted. Here is my report; please confirm how to proceed.".into()),
            ("I03", "kilo", _) => Move::Post("I03-room"),
            ("I03", "hive", _) => Move::Post("I03-room"),
            ("I08", "coder", true) => Move::Ask("tester", None, "Please check this.".into()),
            ("I08", "tester", true) => Move::Ask("ops", None, "Please check this.".into()),
            ("I08", "ops", true) => Move::Ask("coder", None, "Please check this.".into()),
            ("I11", "kilo", _) => {
                Move::Ask("hive", None, ["Ready.", "Thank you!", "Great, thanks again.", "Understood."][n % 4].into())
            }
            ("I11", "hive", true) => Move::Answer("Acknowledged. Standing by.".into()),
            ("I12", "lead", _) => {
                Move::Ask("worker", Some(format!("I12-topic-{}", n + 1)), "A new topic: the same as before.".into())
            }
            ("I12", "worker", true) => Move::Answer("Done. Anything else on this new topic?".into()),
            ("I13", "kilo", false) => {
                Move::Ask("hive", Some(reference.to_owned()), "One more question, from a fresh session.".into())
            }
            ("I13", "hive", true) => Move::Answer("Here is the answer.".into()),
            ("I14", "lead", true) => Move::AskAll(&["worker", "hive", "coder", "tester", "ops"]),
            ("I14", "lead", false) if n < 5 => Move::Wait,
            ("I14", "lead", false) => Move::Answer(format!("{n} of 5 answers arrived.")),
            ("I14", name, true) => Move::Answer(format!("{name}: my part is done.")),
            ("I21", "lead", true) => Move::Ask("worker", None, "Please work on this.".into()),
            ("I21", "worker", true) => Move::Toil,
            ("I23", "coder", true) => Move::Hold,
            ("I23", "coder", false) => Move::Use,
            ("ASK", "hive", true) => Move::Consult(
                "The new database: in which region? Customers are in both, and only one can be the first.",
                &["eu-central", "us-east"],
            ),
            ("DEPLOY", "ops", true) => Move::Request(
                "deploy",
                json!({"service": "login", "version": "2.4.0", "regions": ["eu-central", "us-east"], "migrate": true}),
            ),
            ("DEPLOY", "ops", false) => Move::Use,
            ("BUDGET", "kilo", true) => Move::Squander("tester", "Please test every combination of every option."),
            (_, _, true) => Move::Answer("I have nothing to say to that.".into()),
            (_, _, false) => Move::Answer("Thank you.".into()),
        }
    }

    async fn make(&mut self, next: Move, turn: &TurnView) -> Result<(), ClientError> {
        let here = self.client.in_turn(&turn.token);
        match next {
            Move::Ask(to, reference, body) => {
                here.send(&request(&json!(to), reference, &body), &SendTerms::default()).await?;
                self.wait(turn).await
            }
            Move::AskAll(to) => {
                here.send(&request(&json!(to), None, "Your part, please."), &SendTerms::default()).await?;
                self.wait(turn).await
            }
            Move::Answer(body) => self.finish(turn, body, None).await,
            Move::Wait => self.wait(turn).await,
            Move::Post(room) => {
                for n in 0..POSTS {
                    // An old-school bot: it reacts to a refusal with a warning.
                    let warned = here.post_to_room(room, &format!("Message {n}.")).await.is_err();
                    if warned {
                        drop(here.post_to_room(room, "Warning: there are too many messages here!").await);
                    }
                }
                self.finish(turn, format!("I tried {POSTS} times."), None).await
            }
            Move::Toil => loop {
                here.inbox(Duration::from_millis(100)).await?;
            },
            Move::Consult(question, options) => {
                let options = options.iter().map(ToString::to_string).collect();
                here.escalate(&NewEscalation { message: question.into(), options, reference: None, key: None }).await?;
                self.wait(turn).await
            }
            Move::Request(tool, arguments) => {
                let reason = Some("the release is tested".to_owned());
                here.hold(&HeldCall { tool: tool.into(), arguments: arguments.into(), reason, key: None }).await?;
                self.wait(turn).await
            }
            Move::Squander(to, body) => {
                here.send(&request(&json!(to), None, body), &SendTerms::default()).await?;
                let waiting = Finish { status: Some(lastword_facts::FinishStatus::Waiting), ..Finish::default() };
                self.end_with(turn, waiting, SQUANDERED_TOKENS).await
            }
            Move::Hold => self.hold(&here, turn).await,
            Move::Use => self.use_up(&here, turn).await,
        }
    }

    async fn hold(&self, here: &Client, turn: &TurnView) -> Result<(), ClientError> {
        let held = here
            .hold(&HeldCall {
                tool: "shell".into(),
                arguments: json!({"cmd": "rm -rf build"}).into(),
                reason: None,
                key: None,
            })
            .await?;
        let verdict = DecideApproval {
            decision: lastword_facts::fact::Decision::Approve,
            comment: None,
            input: None,
            digest: Some(held.digest),
        };
        match here.decide(&held.id, &verdict).await {
            Ok(_) => self.finish(turn, "I approved my own call.".into(), None).await,
            Err(_) => self.wait(turn).await,
        }
    }

    async fn use_up(&self, here: &Client, turn: &TurnView) -> Result<(), ClientError> {
        let approvals = here.approvals().await?;
        let Some(held) = approvals.items.iter().rev().find(|a| a.agent == self.name) else {
            return self.finish(turn, "My approval is gone.".into(), None).await;
        };
        let call = UseApproval { tool: held.tool.clone(), arguments: held.arguments.clone(), key: None };
        here.use_approval(&held.id, &call).await?;
        self.finish(turn, "A human approved it; done, once.".into(), None).await
    }

    async fn wait(&self, turn: &TurnView) -> Result<(), ClientError> {
        self.end(turn, Finish { status: Some(lastword_facts::FinishStatus::Waiting), ..Finish::default() }).await
    }

    async fn finish(&self, turn: &TurnView, answer: String, reason: Option<String>) -> Result<(), ClientError> {
        self.end(turn, Finish { answer, reason, ..Finish::default() }).await
    }

    /// Finishes a turn with the usage of a small coding agent: its context grows with each turn.
    async fn end(&self, turn: &TurnView, finish: Finish) -> Result<(), ClientError> {
        self.end_with(turn, finish, 2_000 + 400 * self.turns).await
    }

    async fn end_with(&self, turn: &TurnView, finish: Finish, input_tokens: u64) -> Result<(), ClientError> {
        let output_tokens = 150;
        let model = if self.name == "lead" { "demo-large" } else { "demo-small" };
        let part = ModelUsage { model: model.into(), tokens: input_tokens + output_tokens, ..ModelUsage::default() };
        let usage = Usage { input_tokens, output_tokens, models: vec![part], ..Usage::default() };
        match self.client.finish(&turn.id, &Finish { usage: Some(usage), ..finish }).await {
            // The turn was ended before, which isn't an error here.
            Ok(_) | Err(ClientError::Refused(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Builds a REQUEST as an agent sends it.
pub(crate) fn request(to: &serde_json::Value, reference: Option<String>, body: &str) -> Envelope {
    let mut envelope = json!({ "type": "request", "to": to, "body": body });
    if let Some(reference) = reference {
        envelope["ref"] = reference.into();
    }
    serde_json::from_value(envelope).unwrap_or_else(|error| unreachable!("the envelope above is one: {error}"))
}
