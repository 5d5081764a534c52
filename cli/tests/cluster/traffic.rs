//! Clients that work through all nodes, whatever happens to them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lastword_client::{Client, ClientError, SendTerms, Sent};
use lastword_facts::Seq;
use lastword_facts::fact::Fact;
use lastword_store::DataDir;
use lastword_wire::{Finish, Problem};
use rand::RngExt as _;
use tokio::task::JoinSet;

use crate::load::{Known, SharedKnown, answer, check_entries, request};
use crate::nats_server::{runtime, until_or};
use crate::world::{PAUSE, World};

const SENDERS: usize = 6;
/// The longest wait of one call before its client goes to another node.
const CALL_MAX: Duration = Duration::from_secs(8);

/// Returns the present moment, to measure outages by.
#[allow(clippy::disallowed_methods, reason = "a measurement")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

pub(crate) type Heard = Arc<std::sync::Mutex<BTreeSet<String>>>;

/// The load, until it is ended.
pub(crate) struct Traffic {
    tasks: JoinSet<()>,
    ended: Arc<AtomicBool>,
    known: SharedKnown,
    acked: Arc<std::sync::Mutex<Vec<Instant>>>,
    /// The turns of the deliveries that reached a client.
    pub(crate) heard: Heard,
    /// Calls that failed in another way than by asking to come back.
    failed: Arc<std::sync::Mutex<Vec<String>>>,
    /// The last one that asked to come back.
    refused: Arc<std::sync::Mutex<Option<Box<Problem>>>>,
}

#[derive(Clone)]
struct Worker {
    clients: Vec<Client>,
    ended: Arc<AtomicBool>,
    known: SharedKnown,
    acked: Arc<std::sync::Mutex<Vec<Instant>>>,
    heard: Heard,
    failed: Arc<std::sync::Mutex<Vec<String>>>,
    refused: Arc<std::sync::Mutex<Option<Box<Problem>>>>,
    pace: Duration,
}

impl Traffic {
    pub(crate) fn start(world: &World, agents: &[String]) -> Self {
        Self::paced(world, agents, Duration::ZERO)
    }

    /// Starts it with this pause of each sender between two requests.
    pub(crate) fn paced(world: &World, agents: &[String], pace: Duration) -> Self {
        let _in = runtime().enter();
        let mut traffic = Self {
            tasks: JoinSet::new(),
            ended: Arc::default(),
            known: SharedKnown::default(),
            acked: Arc::default(),
            heard: Arc::default(),
            failed: Arc::default(),
            refused: Arc::default(),
        };
        let worker = |token: &str| Worker {
            clients: world.nodes.iter().map(|node| node.client(token)).collect(),
            ended: Arc::clone(&traffic.ended),
            known: Arc::clone(&traffic.known),
            acked: Arc::clone(&traffic.acked),
            heard: Arc::clone(&traffic.heard),
            failed: Arc::clone(&traffic.failed),
            refused: Arc::clone(&traffic.refused),
            pace,
        };
        let (human, agents): (_, Vec<_>) =
            (worker(&world.operator()), agents.iter().map(|token| worker(token)).collect());
        for _ in 0..SENDERS {
            traffic.tasks.spawn(human.clone().send());
        }
        for agent in agents {
            traffic.tasks.spawn(agent.serve());
        }
        traffic
    }

    /// Waits until this many more sends are acknowledged.
    pub(crate) fn goes_on(&self, more: usize) {
        let wanted = self.acknowledged() + more;
        until_or(|| self.acknowledged() >= wanted, || format!("{wanted} sends acknowledged; {}", self.describe()));
    }

    /// Returns the number of sends that were acknowledged.
    pub(crate) fn acknowledged(&self) -> usize {
        self.acked.lock().unwrap().len()
    }

    /// Returns how far it is, and what failed.
    pub(crate) fn describe(&self) -> String {
        let (refused, failed) = (self.refused.lock().unwrap(), self.failed.lock().unwrap());
        format!("{} are, the last refusal {refused:?}, failed {failed:#?}", self.acknowledged())
    }

    /// Returns the longest time without an acknowledged send around this moment and up to now.
    pub(crate) fn gap_since(&self, moment: Instant) -> Duration {
        let acked = self.acked.lock().unwrap();
        let from = acked.partition_point(|at| *at < moment).saturating_sub(1);
        acked[from..].windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
    }

    /// Returns the time from this moment to the next acknowledged send.
    pub(crate) fn first_since(&self, moment: Instant) -> Duration {
        let acked = self.acked.lock().unwrap();
        acked[acked.partition_point(|at| *at < moment)] - moment
    }

    /// Ends the load; returns what the clients know, and the calls that failed for another reason than a pause.
    pub(crate) fn end(mut self) -> (Known, Vec<String>) {
        self.ended.store(true, Ordering::Relaxed);
        runtime().block_on(async { while self.tasks.join_next().await.is_some() {} });
        let known = std::mem::take(&mut *self.known.lock().unwrap());
        let failed = std::mem::take(&mut *self.failed.lock().unwrap());
        (known, failed)
    }
}

impl Worker {
    fn any(&self) -> &Client {
        &self.clients[rand::rng().random_range(0..self.clients.len())]
    }

    fn goes_on(&self) -> bool {
        !self.ended.load(Ordering::Relaxed)
    }

    /// Notes a call that failed, and waits before the next.
    async fn failed<T>(&self, result: Result<Result<T, ClientError>, tokio::time::error::Elapsed>) {
        match result {
            Ok(Err(ClientError::Refused(problem))) if problem.retry_after_ms.is_some() => {
                *self.refused.lock().unwrap() = Some(problem);
            }
            Ok(Err(error)) => self.failed.lock().unwrap().push(error.to_string()),
            Ok(Ok(_)) => return,
            Err(late) => self.failed.lock().unwrap().push(late.to_string()),
        }
        tokio::time::sleep(PAUSE).await;
    }

    /// Sends requests, each until it is acknowledged: by any node, under the same key.
    async fn send(self) {
        while self.goes_on() {
            let key = {
                let mut known = self.known.lock().unwrap();
                known.next += 1;
                format!("key-{}", known.next)
            };
            loop {
                let sent = tokio::time::timeout(CALL_MAX, self.any().send(&request(&key), &SendTerms::default())).await;
                if let Ok(Ok(Sent::One { message, .. })) = sent {
                    self.known.lock().unwrap().sent.insert(key, message.id);
                    self.acked.lock().unwrap().push(now());
                    tokio::time::sleep(self.pace).await;
                    break;
                }
                self.failed(sent).await;
                if !self.goes_on() {
                    return;
                }
            }
        }
    }

    /// Takes deliveries and answers them.
    async fn serve(self) {
        while self.goes_on() {
            let taken = tokio::time::timeout(CALL_MAX, self.any().inbox(Duration::from_millis(500))).await;
            let Ok(Ok(delivery)) = taken else {
                self.failed(taken).await;
                continue;
            };
            let Some((turn, body)) = delivery.and_then(|d| Some((d.turn?.id, d.message.body))) else { continue };
            self.heard.lock().unwrap().insert(turn.clone());
            let finish = Finish { answer: answer(&body), ..Finish::default() };
            loop {
                let finished = tokio::time::timeout(CALL_MAX, self.any().finish(&turn, &finish)).await;
                match finished {
                    Ok(Ok(finished)) => {
                        self.known.lock().unwrap().answers.extend(finished.answer);
                        break;
                    }
                    // An earlier attempt ended it, whose answer was lost.
                    Ok(Err(ClientError::Refused(problem))) if problem.retry_after_ms.is_none() => break,
                    other => self.failed(other).await,
                }
                if !self.goes_on() {
                    return;
                }
            }
        }
    }
}

/// Checks that each node's mirror has all that was acknowledged, once, and that all of them have the same log.
pub(crate) fn check(world: &mut World, known: &Known) {
    world.nodes.iter_mut().for_each(|node| assert_eq!(node.terminate(), 0, "{}", node.said()));
    let stores: Vec<DataDir> = world.nodes.iter().map(|node| DataDir::at(&node.data("main"))).collect();
    let last = |store: &DataDir| store.open_reader().unwrap().last().unwrap();
    // A node that ended first hasn't read what the last one wrote.
    let whole = stores.iter().max_by_key(|store| last(store)).unwrap();
    // What left the log is there as well.
    while whole.archive().unwrap().put_back().unwrap().is_some() {}
    check_entries(whole.open_reader().unwrap().as_ref(), known);
    for (store, node) in stores.iter().zip(&world.nodes) {
        let end = store.open_chain().unwrap().end().unwrap().expect(node.name);
        assert_eq!(whole.open_chain().unwrap().at(end.at).unwrap(), Some(end), "the same log on {}", node.name);
        let verified = crate::program::run(&node.data("main"), &["--data", ".", "verify"]);
        assert_eq!(verified.code, 0, "{verified:?}");
    }
}

/// Returns the turns that were opened for a delivery that reached no client: it comes again once their lease is over.
pub(crate) fn unheard(world: &World, heard: &Heard) -> Vec<String> {
    let heard = heard.lock().unwrap();
    let stores = world.nodes.iter().map(|node| DataDir::at(&node.data("main")).open_reader().unwrap());
    let reader = stores.max_by_key(|reader| reader.last().unwrap()).unwrap();
    let (mut unheard, mut from) = (Vec::new(), Seq(1));
    loop {
        let entries = reader.read(from, 1_000).unwrap();
        let Some((last, _)) = entries.last() else { return unheard };
        from = Seq(last.0 + 1);
        let opened = entries.iter().filter_map(|(_, entry)| {
            let Fact::TurnOpened(opened) = &entry.fact else { return None };
            Some((opened.turn.to_string(), entry.at))
        });
        unheard.extend(opened.filter(|(turn, _)| !heard.contains(turn)).map(|(turn, at)| format!("{turn} at {at:?}")));
    }
}
