//! Clients in sessions: one connection carries their calls, HTTP does where there is no session, and a server that is killed
//! under many of them loses nothing and repeats nothing.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lastword_client::wire::session::{SessionCall, Watch, WatchDeliveries};
use lastword_client::wire::{Envelope, Finish, NewAgent};
use lastword_client::{Client, ClientError, Endpoint, Pushed, SendTerms, Sent, Session, Token};
use serde_json::json;
use serde_json::value::to_raw_value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::crash::{client, human};
use crate::load::{Known, answer, check_log};
use crate::program::Server;

/// A wait that only a fault reaches.
const LATE: Duration = Duration::from_secs(60);

pub(crate) fn envelope(to: &str, key: &str) -> Envelope {
    let envelope = json!({ "type": "request", "to": to, "ref": format!("WORK-{key}"), "request_id": key, "body": key });
    serde_json::from_value(envelope).unwrap()
}

pub(crate) async fn added(human: &Client, name: &str) -> String {
    let agent: NewAgent = serde_json::from_value(json!({ "name": name })).unwrap();
    human.register(&agent).await.unwrap().token
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

#[test]
fn a_client_makes_its_calls_in_a_session_and_learns_what_http_would_tell() {
    let server = Server::start();
    runtime().block_on(async {
        let human = human(&server);
        let kilo = client(&server, &added(&human, "kilo").await).over_session();
        let mut sending = {
            let human = human.clone().over_session();
            let terms = SendTerms { wait: Some(Duration::from_secs(20)), ..SendTerms::default() };
            let mut sending = JoinSet::new();
            sending.spawn(async move { human.send(&envelope("kilo", "a/b#c"), &terms).await });
            sending
        };
        let delivery = kilo.inbox(LATE).await.unwrap().unwrap();
        let finish = Finish { answer: "done".into(), ..Finish::default() };
        kilo.finish(&delivery.turn.unwrap().id, &finish).await.unwrap();
        let Ok(Sent::One { response: Some(response), .. }) = sending.join_next().await.unwrap().unwrap() else {
            panic!("no answer")
        };
        assert_eq!(response.body, "done");
        assert_eq!(kilo.request_state("a/b#c").await.unwrap().attempts, 1);
        assert!(kilo.inbox(Duration::ZERO).await.unwrap().is_none());
        let refused = kilo.stop(lastword_client::Target::Workspace).await.unwrap_err();
        assert_eq!(refused.problem().unwrap().status, 403);
    });
    assert_eq!(server.terminate().0, 0);
}

#[test]
fn a_delivery_whose_caller_gave_up_goes_to_the_next_one() {
    let server = Server::start();
    runtime().block_on(async {
        let human = human(&server);
        let kilo = client(&server, &added(&human, "kilo").await).over_session();
        kilo.agent("me").await.unwrap();
        // Cut at any moment, also behind the server's reply.
        for n in 0..20 {
            let given_up = timeout(Duration::from_millis(n), kilo.inbox(LATE)).await;
            assert!(given_up.is_err() || n > 0, "there was nothing to take");
            human.send(&envelope("kilo", &format!("k-{n}")), &SendTerms::default()).await.unwrap();
            let delivery = timeout(LATE, kilo.inbox(LATE)).await.expect("it is not lost").unwrap().unwrap();
            assert_eq!(delivery.message.body, format!("k-{n}"));
            kilo.finish(&delivery.turn.unwrap().id, &Finish::default()).await.unwrap();
        }
    });
    assert_eq!(server.terminate().0, 0);
}

/// Passes connections on to a server, but changes the path of each request for a session.
async fn without_sessions(listener: TcpListener, server: String) {
    let mut connections = JoinSet::new();
    loop {
        let (mut near, _) = listener.accept().await.unwrap();
        let server = server.clone();
        connections.spawn(async move {
            let mut far = TcpStream::connect(server).await.unwrap();
            let mut begin = vec![0; 4_096];
            let read = near.read(&mut begin).await.unwrap();
            let text = String::from_utf8_lossy(&begin[..read]).replace("/v1/session ", "/v1/nothing ");
            far.write_all(text.as_bytes()).await.unwrap();
            drop(tokio::io::copy_bidirectional(&mut near, &mut far).await);
        });
    }
}

#[test]
fn where_there_is_no_session_http_carries_the_calls() {
    let server = Server::start();
    runtime().block_on(async {
        let human = human(&server);
        let token = Token::new(&added(&human, "kilo").await).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let mut proxy = JoinSet::new();
        proxy.spawn(without_sessions(listener, human.url().trim_start_matches("http://").to_owned()));
        assert!(Session::open(&Endpoint::new(&address), &token).await.is_err());
        let kilo = Client::new(&Endpoint::new(&address), Some(token)).unwrap().over_session();
        assert_eq!(kilo.agent("me").await.unwrap().name, "kilo");
        assert_eq!(kilo.agents().await.unwrap().items.len(), 2);
    });
    assert_eq!(server.terminate().0, 0);
}

/// Closes the first connection that asks for a session, and says to all other requests that it is away, like a proxy whose
/// server is. Counts the former.
async fn away(listener: TcpListener, asked: Arc<AtomicUsize>) {
    loop {
        let (mut near, _) = listener.accept().await.unwrap();
        let mut begin = vec![0; 4_096];
        let read = near.read(&mut begin).await.unwrap();
        let session = String::from_utf8_lossy(&begin[..read]).contains("/v1/session ");
        if !session || asked.fetch_add(1, Ordering::SeqCst) > 0 {
            near.write_all(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await.unwrap();
        }
    }
}

#[test]
fn callers_that_wait_for_a_session_that_does_not_open_make_their_calls_over_http() {
    // On one thread the first call can't fail before the others wait for it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = Endpoint::new(&format!("http://{}", listener.local_addr().unwrap()));
        let asked = Arc::new(AtomicUsize::new(0));
        let mut serving = JoinSet::new();
        serving.spawn(away(listener, Arc::clone(&asked)));
        let client = Client::new(&endpoint, Some(Token::new("lw_x").unwrap())).unwrap().over_session();
        let answers = tokio::join!(client.agent("me"), client.agents(), client.limits(), client.humans());
        let failed = [answers.0.err(), answers.1.err(), answers.2.err(), answers.3.err()];
        for error in failed {
            assert!(matches!(error, Some(ClientError::Unexpected { status: 503, .. })), "{error:?}");
        }
        assert_eq!(asked.load(Ordering::SeqCst), 1, "each of them would have waited the time of a connection out");
        for again in 2..4 {
            client.agents().await.unwrap_err();
            assert_eq!(asked.load(Ordering::SeqCst), again, "a later call tries again");
        }
    });
}

/// The number of agents in sessions, and how often the server is killed under them; `LASTWORD_SESSIONS=1000` for the campaign.
fn sessions() -> (usize, usize) {
    let set = std::env::var_os("LASTWORD_SESSIONS").and_then(|n| n.to_str()?.parse().ok());
    set.map_or((24, 4), |sessions| (sessions, 20))
}

/// Works as one agent until the server is gone: answers each request that is pushed, once.
async fn work(endpoint: Endpoint, token: Token, seen: Arc<Mutex<BTreeSet<String>>>, known: Arc<Mutex<Known>>) {
    let Ok((session, mut pushes)) = Session::open(&endpoint, &token).await else { return };
    let watch = Watch { deliveries: Some(WatchDeliveries { window: Some(4), working: Vec::new() }), events: None };
    if session.watch(&watch).await.is_err() {
        return;
    }
    while let Some(pushed) = pushes.next().await {
        let Pushed::Delivery(pushed) = pushed else { continue };
        let Some(turn) = pushed.delivery.turn else { continue };
        seen.lock().unwrap().insert(pushed.delivery.delivery);
        let finish = Finish { answer: answer(&pushed.delivery.message.body), ..Finish::default() };
        let body = to_raw_value(&finish).unwrap();
        let path = Some(turn.id.as_str().into());
        let call = SessionCall { call: "finish".into(), path, body: Some(&body), ..SessionCall::default() };
        let Ok(replied) = session.call(call).await else { return };
        if replied.status < 400 {
            let finished: serde_json::Value = serde_json::from_str(&replied.json).unwrap();
            known.lock().unwrap().answers.extend(finished["answer"].as_str().map(str::to_owned));
        }
    }
}

/// Asks each agent once a round; a send whose outcome isn't known is repeated with its key.
async fn ask(human: Client, asked: Vec<(String, String)>, known: Arc<Mutex<Known>>) -> Vec<(String, String)> {
    let mut unknown = Vec::new();
    for (to, key) in asked {
        match human.send(&envelope(&to, &key), &SendTerms::default()).await {
            Ok(Sent::One { message, .. }) => drop(known.lock().unwrap().sent.insert(key, message.id)),
            Ok(other) => panic!("{key}: {other:?}"),
            Err(ClientError::Refused(problem)) if problem.retry_after_ms.is_none() => {
                panic!("{key}: {}", problem.detail)
            }
            Err(_) => unknown.push((to, key)),
        }
    }
    unknown
}

#[test]
fn a_server_killed_under_many_sessions_loses_nothing_and_repeats_nothing() {
    let (agents, kills) = sessions();
    let known = Arc::new(Mutex::new(Known::default()));
    let dir = runtime().block_on(killed_again_and_again(agents, kills, &known));
    let known = known.lock().unwrap();
    assert_eq!(known.sent.len(), agents * kills);
    assert_eq!(check_log(&dir.path().join(".lastword"), &known), 0, "every request has its answer");
}

async fn killed_again_and_again(agents: usize, kills: usize, known: &Arc<Mutex<Known>>) -> tempfile::TempDir {
    let server = Server::start();
    let mut tokens = Vec::new();
    for n in 0..agents {
        let token = added(&human(&server), &format!("agent-{n}")).await;
        tokens.push((format!("agent-{n}"), Token::new(&token).unwrap()));
    }
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let (mut dir, mut open) = (Some(server.terminate().1), Vec::new());
    for round in 0..=kills {
        let server = Server::start_in(dir.take().unwrap());
        let endpoint = Endpoint::new(server.first_line["listening"].as_str().unwrap());
        let mut working = JoinSet::new();
        for (_, token) in &tokens {
            working.spawn(work(endpoint.clone(), token.clone(), Arc::clone(&seen), Arc::clone(known)));
        }
        if round < kills {
            open.extend(tokens.iter().map(|(name, _)| (name.clone(), format!("key-{round}-{name}"))));
        }
        let asking = ask(human(&server).over_session(), std::mem::take(&mut open), Arc::clone(known));
        if round < kills {
            let mut asking = Box::pin(asking);
            // The pause is the load's time, not a condition: the kill may come at any moment of it.
            let pause = Duration::from_millis(rand::random_range(20..400));
            let early = timeout(pause, &mut asking).await;
            dir = Some(server.kill());
            open = match early {
                Ok(open) => open,
                Err(_) => asking.await,
            };
        } else {
            open = asking.await;
            assert!(open.is_empty(), "{open:?}");
            all_answered(&server, known).await;
            let connected = human(&server).agents().await.unwrap().items.iter().filter(|agent| agent.connected).count();
            println!(
                "{agents} sessions, {kills} kills, {} deliveries, {connected} connected",
                seen.lock().unwrap().len()
            );
            let (code, last) = server.terminate();
            assert_eq!(code, 0);
            dir = Some(last);
        }
        working.join_all().await;
    }
    dir.unwrap()
}

/// Waits until every request that was sent is settled.
async fn all_answered(server: &Server, known: &Arc<Mutex<Known>>) {
    let human = human(server).over_session();
    let keys: Vec<String> = known.lock().unwrap().sent.keys().cloned().collect();
    for key in keys {
        let settled = async {
            while human.request_state(&key).await.unwrap().response.is_none() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(LATE, settled).await.unwrap_or_else(|_| panic!("{key} is not answered"));
    }
}
