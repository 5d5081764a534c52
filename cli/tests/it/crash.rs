//! kill -9 under load: everything acknowledged is there, nothing is there twice, and the counters are right.

use std::sync::Arc;
use std::time::Duration;

use lastword_client::{Client, Endpoint, SendTerms, Sent, Token};
use lastword_wire::{Finish, NewAgent};
use rand::RngExt as _;
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::load::{AGENTS, SharedKnown, answer, check_log, request};
use crate::program::{Server, run};

const SENDERS: usize = 6;

/// Returns the number of kills; `LASTWORD_KILLS=200` for the long run.
fn kills() -> usize {
    std::env::var_os("LASTWORD_KILLS").and_then(|n| n.to_str()?.parse().ok()).unwrap_or(8)
}

#[test]
fn kill_nine_under_load_loses_nothing_acknowledged_and_applies_nothing_twice() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(crash_and_check());
}

async fn crash_and_check() {
    let known = SharedKnown::default();
    let (dir, tokens) = enrol().await;
    let mut dir = Some(dir);
    for kill in 0..kills() {
        let server = Server::start_in(dir.take().unwrap());
        let before = acknowledged(&known);
        let load = begin(&server, &tokens, &known);
        // Every other kill comes behind an acknowledgement, also on a machine that has little time for the load.
        if kill % 2 == 1 {
            grown(&known, before).await;
        }
        // The pause is the load's time, not a condition: the kill may come at any moment of it.
        tokio::time::sleep(Duration::from_millis(rand::rng().random_range(10..250))).await;
        dir = Some(server.kill());
        load.join_all().await;
    }
    let server = Server::start_in(dir.take().unwrap());
    settle(&server, &known).await;
    let (code, dir) = server.terminate();
    assert_eq!(code, 0, "it drains and ends");
    let known = known.lock().unwrap();
    println!("{} kills: {} sends and {} answers acknowledged", kills(), known.sent.len(), known.answers.len());
    check_log(&dir.path().join(".lastword"), &known);
    assert_eq!(run(dir.path(), &["verify"]).code, 0);
}

/// Returns how many sends and answers were acknowledged.
fn acknowledged(known: &SharedKnown) -> [usize; 2] {
    let known = known.lock().unwrap();
    [known.sent.len(), known.answers.len()]
}

/// Waits until more of both are acknowledged than before.
async fn grown(known: &SharedKnown, before: [usize; 2]) {
    let more = async {
        while acknowledged(known).iter().zip(before).any(|(now, before)| *now <= before) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), more).await.expect("there was load");
}

/// Registers the agents before the first kill.
pub(crate) async fn enrol() -> (TempDir, Vec<String>) {
    let server = Server::start();
    let human = human(&server);
    let mut tokens = Vec::new();
    for n in 0..AGENTS {
        let agent: NewAgent = serde_json::from_value(json!({ "name": format!("agent-{n}") })).unwrap();
        tokens.push(human.register(&agent).await.unwrap().token);
    }
    (server.terminate().1, tokens)
}

pub(crate) fn client(server: &Server, token: &str) -> Client {
    let endpoint = Endpoint::new(server.first_line["listening"].as_str().unwrap());
    Client::new(&endpoint, Some(Token::new(token).unwrap())).unwrap()
}

pub(crate) fn human(server: &Server) -> Client {
    client(server, &std::fs::read_to_string(server.path().join(".lastword/operator.token")).unwrap())
}

/// Starts senders and agents that work until the server is gone.
pub(crate) fn begin(server: &Server, tokens: &[String], known: &SharedKnown) -> JoinSet<()> {
    let mut load = JoinSet::new();
    // Every second one over a session.
    let over = |n: usize, client: Client| if n.is_multiple_of(2) { client } else { client.over_session() };
    for n in 0..SENDERS {
        load.spawn(send(over(n, human(server)), Arc::clone(known)));
    }
    for (n, token) in tokens.iter().enumerate() {
        load.spawn(serve(over(n, client(server, token)), Arc::clone(known)));
    }
    load
}

async fn send(human: Client, known: SharedKnown) {
    loop {
        let key = {
            let mut known = known.lock().unwrap();
            known.unknown.pop().unwrap_or_else(|| {
                known.next += 1;
                format!("key-{}", known.next)
            })
        };
        let sent = human.send(&request(&key), &SendTerms::default()).await;
        let mut known = known.lock().unwrap();
        match sent {
            Ok(Sent::One { message, .. }) => {
                let before = known.sent.insert(key.clone(), message.id.clone());
                assert!(before.is_none_or(|b| b == message.id), "{key} is another message now");
            }
            Ok(other) => panic!("a send gave {other:?}"),
            Err(_) => {
                known.unknown.push(key);
                return;
            }
        }
    }
}

async fn serve(agent: Client, known: SharedKnown) {
    loop {
        let Ok(delivery) = agent.inbox(Duration::from_secs(5)).await else { return };
        let Some(delivery) = delivery else { continue };
        let Some(turn) = delivery.turn else { continue };
        let finish = Finish { answer: answer(&delivery.message.body), ..Finish::default() };
        match agent.finish(&turn.id, &finish).await {
            Ok(finished) => known.lock().unwrap().answers.extend(finished.answer),
            Err(lastword_client::ClientError::Refused(_)) => {}
            Err(_) => return,
        }
    }
}

/// Sends the requests with an unknown outcome again; checks that everything acknowledged is there.
pub(crate) async fn settle(server: &Server, known: &SharedKnown) {
    let human = human(server);
    let unknown = std::mem::take(&mut known.lock().unwrap().unknown);
    for key in unknown {
        // A full queue refuses some, because no agents run any more.
        if let Ok(Sent::One { message, .. }) = human.send(&request(&key), &SendTerms::default()).await {
            known.lock().unwrap().sent.insert(key, message.id);
        }
    }
    let sent: Vec<(String, String)> = known.lock().unwrap().sent.clone().into_iter().collect();
    for (key, id) in sent {
        let view =
            human.request_state(&key).await.unwrap_or_else(|e| panic!("{key} was acknowledged and is gone: {e}"));
        assert_eq!(view.message, id, "{key}");
    }
    let answers = known.lock().unwrap().answers.clone();
    for answer in answers {
        human.message(&answer).await.unwrap_or_else(|e| panic!("{answer} was acknowledged and is gone: {e}"));
    }
}
