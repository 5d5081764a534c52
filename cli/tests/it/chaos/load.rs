//! The load of the campaign: humans that send, agents that delegate and hold calls, and a human in control.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lastword_client::{Client, ClientError, SendTerms, Sent, Target};
use lastword_facts::envelope::AnswerStatus;
use lastword_facts::fact::Decision;
use lastword_facts::fsm::RequestState;
use lastword_facts::status::ApprovalState;
use lastword_facts::{Code, MessageType};
use lastword_wire::{
    ApprovalView, Arguments, DecideApproval, Delivery, Envelope, Finish, HeldCall, StoredMessage, TurnView, UseApproval,
};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::crash::{client, human};
use crate::load::{SharedKnown, answer, request};
use crate::program::Server;

const SENDERS: usize = 4;
/// Limits the load, so that the log of ten minutes stays small.
const PACE: Duration = Duration::from_millis(10);
/// Longest wait for an answer, a delivery or a decision.
const WAIT: Duration = Duration::from_millis(500);
/// Time in which all work has to end once nothing fails any more, and the part of it before a human stops what is held.
const END_MAX: Duration = Duration::from_secs(120);
const HELD_AFTER: Duration = Duration::from_secs(10);

/// Starts senders, agents and a human in control, which act until the server is gone.
pub(super) fn begin(server: &Server, tokens: &[String], known: &SharedKnown, seed: u64) -> JoinSet<()> {
    let mut load = agents(server, tokens, known);
    let rng = |n: usize| StdRng::seed_from_u64(seed.wrapping_add(n as u64));
    for n in 0..SENDERS {
        load.spawn(send(human(server), Arc::clone(known), rng(n)));
    }
    load.spawn(control(human(server), Arc::clone(known), rng(SENDERS)));
    load
}

/// Starts agents, and a human that resumes everything and decides, until the server is gone.
pub(super) fn attend(server: &Server, tokens: &[String], known: &SharedKnown) -> JoinSet<()> {
    let mut load = agents(server, tokens, known);
    let human = human(server);
    load.spawn(async move {
        loop {
            resume(&human).await;
            decide(&human, Decision::Reject).await;
            if gone(&human.clock().await) {
                return;
            }
            sleep(PACE).await;
        }
    });
    load
}

fn agents(server: &Server, tokens: &[String], known: &SharedKnown) -> JoinSet<()> {
    let mut load = JoinSet::new();
    for (n, token) in tokens.iter().enumerate() {
        let agent = Agent {
            client: client(server, token),
            next: format!("agent-{}", (n + 1) % tokens.len()),
            known: Arc::clone(known),
            used: Mutex::default(),
        };
        load.spawn(async move { agent.serve().await });
    }
    load
}

/// Waits until each acknowledged request has ended. A human stops those that limits still hold after a while.
pub(super) async fn all_end(server: &Server, known: &SharedKnown) {
    let human = human(server);
    let mut open: Vec<String> = known.lock().unwrap().sent.keys().cloned().collect();
    let (begin, mut stopped) = (Instant::now(), 0);
    while !open.is_empty() {
        assert!(begin.elapsed() < END_MAX, "they don't end: {open:?}");
        let mut left = Vec::new();
        for key in open {
            let view = human.request_state(&key).await.unwrap();
            if matches!(view.state, RequestState::Idle | RequestState::ResponseReceived) {
                continue;
            }
            if begin.elapsed() > HELD_AFTER {
                assert!(!view.held_by.is_empty(), "nothing holds it, and it doesn't end: {view:?}");
                human.stop(Target::Conversation(&view.reference)).await.unwrap();
                stopped += 1;
            }
            left.push(key);
        }
        open = left;
        sleep(PACE).await;
    }
    println!("all work ended within {:?}; a human stopped {stopped} requests that limits held", begin.elapsed());
}

/// Whether the server doesn't answer any more.
fn gone<T>(called: &Result<T, ClientError>) -> bool {
    matches!(called, Err(ClientError::Unreachable { .. }))
}

async fn send(human: Client, known: SharedKnown, mut rng: StdRng) {
    loop {
        let retry = rng.random::<bool>().then(|| known.lock().unwrap().unknown.pop()).flatten();
        let first = retry.is_none();
        let key = retry.unwrap_or_else(|| {
            let mut known = known.lock().unwrap();
            known.next += 1;
            format!("key-{}", known.next)
        });
        let terms = SendTerms { wait: rng.random::<bool>().then_some(WAIT), ..SendTerms::default() };
        let sent = human.send(&request(&key), &terms).await;
        let end = gone(&sent);
        note(&known, key, first, sent);
        if end {
            return;
        }
        sleep(PACE).await;
    }
}

/// Notes the outcome of a send with this key.
fn note(known: &SharedKnown, key: String, first: bool, sent: Result<Sent, ClientError>) {
    let mut known = known.lock().unwrap();
    match sent {
        Ok(Sent::One { message, response, .. }) => {
            if let Some(response) = response {
                is_own(&response, &key);
            }
            let before = known.sent.insert(key.clone(), message.id.clone());
            assert!(before.is_none_or(|b| b == message.id), "{key} is another message now");
        }
        Ok(other) => panic!("a send gave {other:?}"),
        Err(ClientError::Refused(problem)) => {
            assert_ne!(problem.code, Code::IdempotencyConflict, "{key}: {problem:?}");
            // This one is also the code of a server that fails, which may have recorded the send.
            if first && problem.code != Code::Saturated {
                known.refused.insert(key, format!("{}: {}", problem.code, problem.detail));
            } else {
                known.unknown.insert(0, key);
            }
        }
        Err(_) => known.unknown.push(key),
    }
}

/// Checks that an answer of an agent is the one to the request with this key.
fn is_own(response: &StoredMessage, key: &str) {
    if response.status == Some(AnswerStatus::Completed) {
        assert_eq!(response.body, answer(key), "another request's answer: {response:?}");
    }
}

struct Agent {
    client: Client,
    /// The agent that it delegates to.
    next: String,
    known: SharedKnown,
    /// The approvals that it has used.
    used: Mutex<Vec<String>>,
}

impl Agent {
    async fn serve(self) {
        loop {
            let taken = self.client.inbox(WAIT).await;
            if gone(&taken) {
                return;
            }
            match taken {
                Ok(Some(Delivery { turn: Some(turn), message, .. })) => self.work(&turn, &message).await,
                Ok(_) => {}
                // A refusal comes at once, and would come again.
                Err(_) => sleep(PACE).await,
            }
        }
    }

    /// Serves a delivery. The REF is `WORK-N` for the request of a human with the key `key-N`, and `WORK-N/M` for one of
    /// an agent below it.
    async fn work(&self, turn: &TurnView, message: &StoredMessage) {
        let client = self.client.in_turn(&turn.token);
        let number = message.reference.trim_start_matches("WORK-");
        let number: u64 = number.split('/').next().unwrap().parse().unwrap();
        let (key, below) = (format!("key-{number}"), format!("sub-key-{number}"));
        if message.kind == MessageType::Response {
            is_own(message, &below);
        } else if message.from_human {
            if number.is_multiple_of(5) {
                self.hold(&client, &key).await;
            }
            if number.is_multiple_of(3) {
                self.delegate(&client, &below).await;
            }
        }
        let request = if message.kind == MessageType::Request { &message.body } else { &key };
        let finish = Finish { answer: answer(request), ..Finish::default() };
        if let Ok(finished) = self.client.finish(&turn.id, &finish).await {
            self.known.lock().unwrap().answers.extend(finished.answer);
        }
    }

    /// Sends a part of the work on. A second delivery of the work sends it with the same key.
    async fn delegate(&self, client: &Client, key: &str) {
        let envelope = json!({ "type": "request", "to": self.next, "request_id": key, "body": key });
        let envelope: Envelope = serde_json::from_value(envelope).unwrap();
        let sent = client.send(&envelope, &SendTerms::default()).await;
        if sent.is_ok() {
            note(&self.known, key.to_owned(), false, sent);
        }
    }

    /// Asks for a call, waits for the decision and makes the call if it was approved.
    async fn hold(&self, client: &Client, key: &str) {
        let (tool, arguments) = ("deploy".to_owned(), Arguments::from(json!({ "of": key })));
        let held = HeldCall { tool: tool.clone(), arguments: arguments.clone(), reason: None, key: None };
        let Ok(held) = client.hold(&held).await else { return };
        let decided = client.approval(&held.id, Some(WAIT)).await;
        if decided.is_ok_and(|held| held.state == ApprovalState::Approved)
            && client.use_approval(&held.id, &UseApproval { tool, arguments, key: None }).await.is_ok()
        {
            let mut used = self.used.lock().unwrap();
            assert!(!used.contains(&held.id), "{} was used twice", held.id);
            used.push(held.id);
        }
    }
}

/// A human that pauses, stops, resumes and decides.
async fn control(human: Client, known: SharedKnown, mut rng: StdRng) {
    loop {
        resume(&human).await;
        // Each may be refused, or meet a server that is gone: the loop ends below.
        match rng.random_range(0..8) {
            0 => drop(human.pause(Target::Workspace).await),
            1 => drop(human.pause(Target::Agent("agent-1")).await),
            2 => {
                let number = known.lock().unwrap().next;
                drop(human.stop(Target::Conversation(&format!("WORK-{number}"))).await);
            }
            3 => drop(human.stop(Target::Workspace).await),
            4 => drop(human.accept_clock().await),
            5 => decide(&human, Decision::Reject).await,
            _ => decide(&human, Decision::Approve).await,
        }
        if gone(&human.clock().await) {
            return;
        }
        sleep(PACE * rng.random_range(1..20)).await;
    }
}

async fn resume(human: &Client) {
    for target in [Target::Workspace, Target::Agent("agent-1")] {
        drop(human.resume(target).await);
    }
}

async fn decide(human: &Client, decision: Decision) {
    let held: Vec<ApprovalView> = human.approvals().await.map(|page| page.items).unwrap_or_default();
    for call in held.into_iter().filter(|call| call.state == ApprovalState::Pending) {
        let digest = Some(call.digest);
        drop(human.decide(&call.id, &DecideApproval { decision, comment: None, input: None, digest }).await);
    }
}
