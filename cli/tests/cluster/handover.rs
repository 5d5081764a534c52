//! A workspace that moves as planned: no call fails, and nothing waits for longer than the move itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lastword_client::{Client, SendTerms, Sent, plain_http};
use lastword_store::DataDir;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::load::{Known, check_entries};
use crate::nats_server::{runtime, until};
use crate::traffic::{check, now};
use crate::world::{PAUSE, World};

/// An inbox takes all requests that no agent of this test answers.
const CONFIG: &str = "[limits]\ninbox_max = 1000000\n";
/// The senders of each node.
const SENDERS: usize = 3;
/// The longest wait of one call. A node gives up earlier.
const CALL_MAX: Duration = Duration::from_secs(15);
/// What any machine keeps: the lease of a leader that says nothing takes longer.
const GAP_MAX: Duration = Duration::from_millis(2_500);

/// An acknowledged send.
#[derive(Debug)]
struct Acked {
    took: Duration,
    /// The number of its request with this sender.
    number: usize,
    id: String,
}

/// Clients that repeat nothing and take each failure for one.
struct Callers {
    tasks: JoinSet<Vec<Acked>>,
    shared: Arc<Noted>,
}

#[derive(Default)]
struct Noted {
    ended: AtomicBool,
    /// Whether each node takes connections, as its clients know.
    open: [AtomicBool; 3],
    acked: Mutex<Vec<Instant>>,
    polls: Mutex<Vec<u16>>,
    failed: Mutex<Vec<String>>,
}

#[derive(Clone)]
struct Caller {
    shared: Arc<Noted>,
    urls: Vec<String>,
    token: String,
    home: usize,
    name: String,
}

impl Callers {
    /// Starts some that send through each node, and an agent that waits for news through each.
    fn start(world: &World) -> Self {
        let _in = runtime().enter();
        let shared = Arc::<Noted>::default();
        let mut tasks = JoinSet::new();
        let urls: Vec<_> = world.nodes.iter().map(|node| node.url.clone()).collect();
        let operator = world.operator();
        for home in 0..urls.len() {
            shared.open[home].store(true, Ordering::Relaxed);
            let caller = |name: String, token: &str| Caller {
                shared: Arc::clone(&shared),
                urls: urls.clone(),
                token: token.to_owned(),
                home,
                name,
            };
            for n in 0..SENDERS {
                tasks.spawn(caller(format!("SENDER-{home}-{n}"), &operator).send());
            }
            let clients = world.nodes.iter().map(|node| node.client(&operator).over_session()).collect();
            tasks.spawn(caller(format!("SESSION-{home}"), &operator).send_over(clients));
            let name = format!("poller-{home}");
            tasks.spawn(caller(name.clone(), &register(world, &name)).wait());
        }
        Self { tasks, shared }
    }

    /// Waits until this many more sends are acknowledged.
    fn go_on(&self, more: usize) {
        let acknowledged = || self.shared.acked.lock().unwrap().len();
        let wanted = acknowledged() + more;
        until("sends are acknowledged", || acknowledged() >= wanted);
    }

    /// Returns the longest time without an acknowledged send around this moment and up to now.
    fn gap_since(&self, moment: Instant) -> Duration {
        let acked = self.shared.acked.lock().unwrap();
        let from = acked.partition_point(|at| *at < moment).saturating_sub(1);
        acked[from..].windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
    }

    /// Ends them; returns what was acknowledged to each sender, in its order.
    fn end(mut self) -> Vec<Vec<Acked>> {
        self.shared.ended.store(true, Ordering::Relaxed);
        let ended = async {
            let mut all = Vec::new();
            while let Some(acked) = self.tasks.join_next().await {
                all.push(acked.unwrap());
            }
            all
        };
        runtime().block_on(ended)
    }
}

impl Caller {
    fn goes_on(&self) -> bool {
        !self.shared.ended.load(Ordering::Relaxed)
    }

    /// Returns the node to call: its own one, or the next while that is about to end.
    fn node(&self) -> usize {
        let open = |node: &usize| self.shared.open[*node].load(Ordering::Relaxed);
        (self.home..self.home + 3).map(|node| node % 3).find(open).unwrap_or(self.home)
    }

    /// Makes a call once; `None` if it failed, which is noted.
    async fn call(&self, http: &reqwest::Client, path: &str, body: Option<&Value>) -> Option<(u16, Value)> {
        let (node, began) = (self.node(), now());
        let url = format!("{}{path}", self.urls[node]);
        let request = match body {
            Some(body) => http.post(url).json(body),
            None => http.get(url),
        };
        let failed = |why: String| {
            let (name, took) = (&self.name, began.elapsed());
            self.shared.failed.lock().unwrap().push(format!("{name} through node {node}, after {took:.2?}: {why}"));
        };
        let answered = async {
            let answer = request.bearer_auth(&self.token).send().await?;
            let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
            Ok::<_, reqwest::Error>((status, headers, answer.text().await?))
        };
        match tokio::time::timeout(CALL_MAX, answered).await {
            Ok(Ok((status, headers, text))) => {
                if headers.get("connection").is_some_and(|value| value == "close") {
                    self.shared.open[node].store(false, Ordering::Relaxed);
                }
                if (200..300).contains(&status) {
                    return Some((status, serde_json::from_str(&text).unwrap_or_default()));
                }
                failed(format!("{status} {text}"));
            }
            Ok(Err(error)) => failed(format!("{error:?}")),
            Err(_) => failed("no answer".to_owned()),
        }
        tokio::time::sleep(PAUSE).await;
        None
    }

    /// Sends requests, one after the other, without a key.
    async fn send(self) -> Vec<Acked> {
        let (http, mut acked) = (plain_http().unwrap(), Vec::new());
        for number in 0.. {
            if !self.goes_on() {
                break;
            }
            let (name, began) = (&self.name, now());
            // The first one's are longer than what a node keeps a copy of.
            let long = "x".repeat(if name.ends_with("-0") { 20 << 10 } else { 1 });
            let body = json!({ "type": "request", "to": "sink", "ref": format!("{name}-{number}"), "body": long });
            if let Some((_, sent)) = self.call(&http, "/v1/messages", Some(&body)).await {
                let at = now();
                self.shared.acked.lock().unwrap().push(at);
                let id = sent["message"]["id"].as_str().or(sent["id"].as_str());
                let id = id.unwrap_or_else(|| panic!("{sent}")).to_owned();
                acked.push(Acked { took: at - began, number, id });
            }
        }
        acked
    }

    /// Does the same over sessions, by the client of the runner without its retries.
    async fn send_over(self, clients: Vec<Client>) -> Vec<Acked> {
        let mut acked = Vec::new();
        for number in 0.. {
            if !self.goes_on() {
                break;
            }
            let (name, began) = (&self.name, now());
            let body = json!({ "type": "request", "to": "sink", "ref": format!("{name}-{number}"), "body": "x" });
            match clients[self.node()].send(&serde_json::from_value(body).unwrap(), &SendTerms::default()).await {
                Ok(Sent::One { message, .. }) => acked.push(Acked { took: began.elapsed(), number, id: message.id }),
                other => {
                    self.shared.failed.lock().unwrap().push(format!("{name}: {other:?}"));
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        acked
    }

    /// Waits for news that don't come, again and again.
    async fn wait(self) -> Vec<Acked> {
        let http = plain_http().unwrap();
        while self.goes_on() {
            if let Some((status, _)) = self.call(&http, "/v1/inbox?wait=2s", None).await {
                self.shared.polls.lock().unwrap().push(status);
            }
        }
        Vec::new()
    }
}

fn register(world: &World, name: &str) -> String {
    let human = world.nodes[0].client(&world.operator());
    let agent = serde_json::from_value(json!({ "name": name })).unwrap();
    runtime().block_on(human.register(&agent)).unwrap().token
}

/// Returns the number of requests in the log.
fn requests(world: &World) -> usize {
    let stores = world.nodes.iter().map(|node| DataDir::at(&node.data("main")).open_reader().unwrap());
    let reader = stores.max_by_key(|reader| reader.last().unwrap()).unwrap();
    // None of them has an answer.
    check_entries(reader.as_ref(), &Known::default()).1
}

#[test]
fn a_planned_handover_fails_no_call() {
    let Some(mut world) = World::start_with("planned handovers", CONFIG, &[]) else { return };
    let first = world.first("main");
    register(&world, "sink");
    let callers = Callers::start(&world);
    callers.go_on(100);
    let mut gaps = Vec::new();
    for _ in 0..crate::world::times(1) {
        let stopped = now();
        assert_eq!(world.nodes[first].terminate(), 0, "{}", world.nodes[first].said());
        callers.go_on(100);
        gaps.push(("stopped", callers.gap_since(stopped)));
        let started = now();
        world.nodes[first].start();
        world.settled("main");
        callers.shared.open[first].store(true, Ordering::Relaxed);
        until("it leads again", || world.leader("main") == Some(first));
        callers.go_on(100);
        gaps.push(("handed back", callers.gap_since(started)));
    }
    let shared = Arc::clone(&callers.shared);
    let acked = callers.end();
    let sends: usize = acked.iter().map(Vec::len).sum();
    let slowest = acked.iter().flatten().map(|acked| acked.took).max().unwrap_or_default();
    let (failed, polls) = (shared.failed.lock().unwrap(), shared.polls.lock().unwrap());
    println!("{sends} sends and {} polls answered, the slowest send after {slowest:.2?}; gaps {gaps:.2?}", polls.len());
    assert!(failed.is_empty(), "{} calls failed: {failed:#?}\n{}", failed.len(), world.nodes[0].said());
    for pair in acked.iter().flat_map(|of_one| of_one.windows(2)) {
        let order = |acked: &Acked| (acked.id.len(), acked.id.clone());
        assert!(pair[0].number < pair[1].number && order(&pair[0]) < order(&pair[1]), "{pair:?}");
    }
    check(&mut world, &Known::default());
    // Nothing was repeated, neither by the callers nor by a node.
    assert_eq!(requests(&world), sends, "requests in the log");
    assert!(gaps.iter().all(|(_, gap)| *gap < GAP_MAX), "{gaps:?}");
}
