//! All faults at random on three nodes and three NATS servers, one or two at a time, under load: nothing acknowledged is lost,
//! done twice or skipped, no bound is passed, and all nodes have the same log.
//!
//! `cargo xtask faults --random MINUTES` runs it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lastword_client::{Client, ClientError, SendTerms, Target};
use lastword_facts::Seq;
use lastword_facts::fact::Fact;
use lastword_store::DataDir;
use lastword_wire::NewAgent;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::json;
use tokio::task::JoinSet;

use crate::mounted::Mounted;
use crate::nats_server::{NatsServer, runtime, until, until_or};
use crate::proxy::{Passing, Proxy};
use crate::traffic::{Traffic, check, now};
use crate::world::{Node, PAUSE, World};

/// Nothing may be forgotten however far the clock jumps, because a forgotten key may be used again; and no limit of a rate ends
/// the load.
const LIMITS: &str = "[limits]\nretention_ms = 63072000000\npair_messages_max = 1000000\nsender_messages_max = 1000000\n\
                      fan_out_targets_max = 1000000\nagent_day_tokens_max = 1000000000000\nagent_day_bytes_max = 0\n\
                      inbox_max = 1000000\ngrant_messages_max = 60\ntask_requests_max = 64\n\
                      grant_agents_max = 64\n";
/// The requests that the grant of each race has room for, beside the first: each reserves its answer.
const CAP: usize = 29;
/// The lanes of a race, and those who are asked: each once, also by the request that each lane is refused.
const LANES: usize = 4;
const SINKS: usize = CAP + LANES;
const BETWEEN_RACES: Duration = Duration::from_secs(10);
/// The pause of a sender between two requests, so that an hour's log fits the disks.
const PACE: Duration = Duration::from_millis(200);
/// The disk of each node and NATS server, and what is left on one that fills up by what is stored.
const DISK: u64 = 1 << 30;
const LEFT: u64 = 64 << 10;
/// For how long a fault lasts, in ms.
const LASTS: std::ops::Range<u64> = 200..7_000;
/// The sends that have to be acknowledged before the next fault.
const BETWEEN: usize = 20;
const HOUR: i64 = 3_600;
/// The longest wait for one answer.
const ANSWER_MAX: Duration = Duration::from_secs(8);
/// The numbers of the preloaded library by which syncs fail, writes find no room, and syncs are slow, with the longest pause.
const SYNC_FAILS: u64 = 2;
const WRITE_FULL: u64 = 4;
const SYNC_SLOW: u64 = 6;
const SLOW_US: u64 = 7;
const MILLION: i64 = 1_000_000;

/// A fault, of what it names by number.
#[derive(Clone, Copy, Debug)]
enum Strike {
    NodeKilled(usize),
    NodeStopped(usize),
    NodeStill(usize),
    NodeFull(usize),
    NodeSyncFails(usize),
    NodeSyncSlow(usize),
    ClockJumps(usize, i64),
    NatsKilled(usize),
    NatsStill(usize),
    NatsFull(usize, bool),
    QuorumLost(usize),
    AllKilled,
    CutFromNats(usize, Passing),
    CutFromNodes(usize, Passing),
    Slow(u64),
    Lossy(u64, u32),
}

/// What a fault concerns: of two at a time, each concerns another part.
#[derive(Clone, Copy, Debug)]
enum Part {
    Nodes,
    Nats,
    Network,
}

impl Strike {
    fn name(self) -> String {
        let shown = format!("{self:?}");
        shown.split('(').next().unwrap_or_default().to_owned()
    }

    /// Draws a fault of one part. Half of those of one node are of the node that leads.
    fn draw(rng: &mut StdRng, part: Part, leader: usize) -> Self {
        let node = if rng.random() { leader } else { rng.random_range(0..3) };
        let nats = rng.random_range(0..3);
        let passing = [Passing::Nothing, Passing::Silence, Passing::RequestsOnly][rng.random_range(0..3)];
        match (part, rng.random_range(0..8)) {
            (Part::Nodes, 0 | 1) => Self::NodeKilled(node),
            (Part::Nodes, 2) => Self::NodeStopped(node),
            (Part::Nodes, 3) => Self::NodeStill(node),
            (Part::Nodes, 4) => Self::NodeFull(node),
            (Part::Nodes, 5) => Self::NodeSyncFails(node),
            (Part::Nodes, 6) => Self::NodeSyncSlow(node),
            (Part::Nodes, _) => Self::ClockJumps(node, rng.random_range(-24 * HOUR..24 * HOUR)),
            (Part::Nats, 0 | 1) => Self::NatsKilled(nats),
            (Part::Nats, 2 | 3) => Self::NatsStill(nats),
            (Part::Nats, 4 | 5) => Self::NatsFull(nats, rng.random()),
            (Part::Nats, 6) => Self::QuorumLost(nats),
            (Part::Nats, _) => Self::AllKilled,
            (Part::Network, 0..3) => Self::CutFromNats(node, passing),
            (Part::Network, 3..5) => Self::CutFromNodes(node, passing),
            (Part::Network, 5) => Self::Slow(rng.random_range(10..150)),
            (Part::Network, _) => Self::Lossy(rng.random_range(5..100), rng.random_range(1..10)),
        }
    }
}

/// The servers, and what faults need.
struct Stage {
    world: World,
    fronts: Vec<Proxy>,
    node_disks: Vec<Mounted>,
    nats_disks: Vec<Mounted>,
}

impl Stage {
    fn set(mut world: World, test: &str) -> Self {
        let (mut nats_disks, mut node_disks) = (Vec::new(), Vec::new());
        for n in 0..world.nodes.len() {
            world.nats.servers[n].kill();
            nats_disks.extend(Mounted::under(&world.nats.data(n), DISK));
            world.nats.servers[n].resume();
            assert_eq!(world.nodes[n].terminate(), 0, "{}", world.nodes[n].said());
            node_disks.extend(Mounted::under(world.nodes[n].data("main").parent().unwrap(), DISK));
            world.nodes[n].start();
        }
        world.settled("main");
        // Without a compiler for C, clocks and syncs stay as they are.
        let _moved = world.move_clocks(test);
        let fronts = world.fronts();
        Self { world, fronts, node_disks, nats_disks }
    }

    /// Returns whether this fault can be made here.
    fn has(&self, strike: Strike) -> bool {
        let preloaded = self.world.nodes[0].control.is_some();
        let preloads = matches!(strike, Strike::NodeSyncFails(_) | Strike::NodeSyncSlow(_) | Strike::ClockJumps(..));
        (preloaded || !preloads)
            && (preloaded || !self.node_disks.is_empty() || !matches!(strike, Strike::NodeFull(_)))
            && (!self.nats_disks.is_empty() || !matches!(strike, Strike::NatsFull(..)))
    }

    fn preload(&self, node: usize, at: u64, value: i64) {
        self.world.nodes[node].control.as_ref().unwrap().set(at, value);
    }

    fn begin(&mut self, strike: Strike) {
        let world = &mut self.world;
        match strike {
            Strike::NodeKilled(n) => world.nodes[n].kill(),
            Strike::NodeStopped(n) => world.nodes[n].signal("TERM"),
            Strike::NodeStill(n) => world.nodes[n].signal("STOP"),
            Strike::NodeFull(n) if self.node_disks.is_empty() => self.preload(n, WRITE_FULL, MILLION),
            Strike::NodeFull(n) => self.node_disks[n].fill("ballast"),
            Strike::NodeSyncFails(n) => self.preload(n, SYNC_FAILS, MILLION / 50),
            Strike::NodeSyncSlow(n) => {
                self.preload(n, SLOW_US, 200_000);
                self.preload(n, SYNC_SLOW, MILLION / 3);
            }
            Strike::ClockJumps(n, seconds) => world.clock(n, seconds),
            Strike::NatsKilled(n) => world.nats.servers[n].kill(),
            Strike::NatsStill(n) => world.nats.servers[n].signal("STOP"),
            Strike::NatsFull(n, true) => self.nats_disks[n].fill("ballast"),
            Strike::NatsFull(n, false) => self.nats_disks[n].leave("ballast", LEFT),
            Strike::QuorumLost(n) => [n, (n + 1) % 3].iter().for_each(|n| world.nats.servers[*n].signal("STOP")),
            Strike::AllKilled => {
                world.nodes.iter_mut().for_each(Node::kill);
                world.nats.servers.iter_mut().for_each(NatsServer::kill);
            }
            Strike::CutFromNats(n, passing) => world.nodes[n].proxies.iter().for_each(|proxy| proxy.set(passing)),
            Strike::CutFromNodes(n, passing) => self.fronts[n].set(passing),
            Strike::Slow(ms) => world.delay(Duration::from_millis(ms), 0.0),
            Strike::Lossy(ms, percent) => world.delay(Duration::from_millis(ms), f64::from(percent) / 100.0),
        }
    }

    /// Ends the fault, after which all is as before.
    fn end(&mut self, strike: Strike) {
        let world = &mut self.world;
        match strike {
            Strike::NodeKilled(n) => world.nodes[n].start(),
            Strike::NodeStopped(n) => {
                assert_eq!(world.nodes[n].ends(), 0, "{}", world.nodes[n].said());
                world.nodes[n].start();
            }
            Strike::NodeStill(n) => world.nodes[n].signal("CONT"),
            Strike::NodeFull(n) if self.node_disks.is_empty() => self.preload(n, WRITE_FULL, 0),
            Strike::NodeFull(n) => self.node_disks[n].empty("ballast"),
            Strike::NodeSyncFails(n) => self.preload(n, SYNC_FAILS, 0),
            Strike::NodeSyncSlow(n) => self.preload(n, SYNC_SLOW, 0),
            // It stays where it is: the next leader's clock is another one.
            Strike::ClockJumps(..) => {}
            Strike::NatsKilled(n) => world.nats.servers[n].resume(),
            Strike::NatsStill(n) => world.nats.servers[n].signal("CONT"),
            Strike::NatsFull(n, _) => {
                self.nats_disks[n].empty("ballast");
                // It takes part again only after a restart.
                world.nats.servers[n].kill();
                world.nats.servers[n].resume();
            }
            Strike::QuorumLost(n) => [n, (n + 1) % 3].iter().for_each(|n| world.nats.servers[*n].signal("CONT")),
            Strike::AllKilled => {
                world.nats.servers.iter_mut().for_each(NatsServer::resume);
                world.nodes.iter_mut().for_each(Node::start);
            }
            Strike::CutFromNats(n, _) => world.nodes[n].proxies.iter().for_each(|proxy| proxy.set(Passing::All)),
            Strike::CutFromNodes(n, _) => self.fronts[n].set(Passing::All),
            Strike::Slow(_) | Strike::Lossy(..) => world.delay(Duration::ZERO, 0.0),
        }
    }

    /// Starts each node again that a fault ended, as a service manager does; returns how many there were.
    fn restart(&mut self) -> usize {
        let mut ended: Vec<_> =
            self.world.nodes.iter_mut().filter_map(|node| node.has_ended().map(|code| (node, code))).collect();
        for (node, code) in &mut ended {
            assert_eq!(*code, 3, "a disk that fails ends a node with this code: {}", node.said());
            node.start();
        }
        ended.len()
    }
}

/// A human, a reader of events and an agent that exhausts one grant after the other, who work through all nodes beside the load.
struct Watchers {
    tasks: JoinSet<()>,
    races: Arc<Mutex<Vec<usize>>>,
    ended: Arc<AtomicBool>,
    /// The stops that were carried out, and the longest, in ms.
    stops: Arc<AtomicU64>,
    slowest: Arc<AtomicU64>,
    /// The positions of the events that came, in order.
    seen: Arc<Mutex<Vec<u64>>>,
}

impl Watchers {
    fn start(world: &World) -> Self {
        let clients: Vec<Client> = world.nodes.iter().map(|node| node.client(&world.operator())).collect();
        let mut it = Self {
            tasks: JoinSet::new(),
            ended: Arc::default(),
            stops: Arc::default(),
            slowest: Arc::default(),
            seen: Arc::default(),
            races: Arc::default(),
        };
        let _in = runtime().enter();
        let (ended, stops, slowest) = (Arc::clone(&it.ended), Arc::clone(&it.stops), Arc::clone(&it.slowest));
        let humans = clients.clone();
        it.tasks.spawn(async move {
            let agent = Target::Agent(BYSTANDER);
            while !ended.load(Ordering::Relaxed) {
                let asked = now();
                while !matches!(tokio::time::timeout(ANSWER_MAX, any(&humans).stop(agent)).await, Ok(Ok(()))) {
                    tokio::time::sleep(PAUSE).await;
                }
                stops.fetch_add(1, Ordering::Relaxed);
                slowest.fetch_max(u64::try_from(asked.elapsed().as_millis()).unwrap(), Ordering::Relaxed);
                while !matches!(tokio::time::timeout(ANSWER_MAX, any(&humans).resume(agent)).await, Ok(Ok(()))) {
                    tokio::time::sleep(PAUSE).await;
                }
                tokio::time::sleep(PACE).await;
            }
        });
        let human = world.nodes[0].client(&world.operator());
        let names = (0..SINKS).map(|n| format!("sink-{n}")).chain([RACER.to_owned()]);
        let token = names.map(|name| registered(&human, &name)).last().unwrap();
        let racer: Vec<Client> = world.nodes.iter().map(|node| node.client(&token)).collect();
        it.tasks.spawn(race(clients.clone(), racer, Arc::clone(&it.ended), Arc::clone(&it.races)));
        let (ended, seen) = (Arc::clone(&it.ended), Arc::clone(&it.seen));
        it.tasks.spawn(async move {
            while !ended.load(Ordering::Relaxed) {
                let last = seen.lock().unwrap().last().copied().or(Some(0));
                if let Ok(Ok(mut events)) = tokio::time::timeout(ANSWER_MAX, any(&clients).events(last)).await {
                    // A stream that is silent is opened anew.
                    while let Ok(Ok(Some(event))) = tokio::time::timeout(ANSWER_MAX, events.next()).await {
                        seen.lock().unwrap().push(event.seq);
                        if ended.load(Ordering::Relaxed) {
                            return;
                        }
                    }
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
        it
    }

    fn end(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        runtime().block_on(async { while self.tasks.join_next().await.is_some() {} });
    }

    /// Checks that each grant paid for as much as it may, and that each event came once, and each message of the log up to the
    /// last one; returns how many events there were.
    fn check(&self, world: &World) -> usize {
        let races = self.races.lock().unwrap();
        assert!(races.iter().all(|paid| *paid == CAP), "each grant pays for as much as it may: {races:?}");
        let seen = self.seen.lock().unwrap();
        assert!(seen.is_sorted_by(|before, next| before < next), "an event came twice or late");
        let (last, seen) = (seen.last().copied().unwrap_or_default(), seen.iter().copied().collect::<BTreeSet<_>>());
        let stores = world.nodes.iter().map(|node| DataDir::at(&node.data("main")).open_reader().unwrap());
        let reader = stores.max_by_key(|reader| reader.last().unwrap()).unwrap();
        let mut from = Seq(1);
        loop {
            let entries = reader.read(from, 1_000).unwrap();
            let Some((end, _)) = entries.last() else { return seen.len() };
            from = Seq(end.0 + 1);
            let messages = entries.iter().filter(|(_, entry)| matches!(entry.fact, Fact::Accepted { .. }));
            let skipped: Vec<_> = messages.map(|(at, _)| at.0).filter(|at| *at <= last && !seen.contains(at)).collect();
            assert!(skipped.is_empty(), "messages that the reader of events never got: {skipped:?}");
        }
    }
}

const BYSTANDER: &str = "bystander";
const RACER: &str = "racer";

/// Registers an agent, and returns its token.
fn registered(human: &Client, name: &str) -> String {
    let agent: NewAgent = serde_json::from_value(json!({ "name": name })).unwrap();
    let mut made = None;
    until("the agent is registered", || {
        made = runtime().block_on(human.register(&agent)).ok();
        made.is_some()
    });
    made.unwrap().token
}

/// Sends a request until that is decided; returns whether it was accepted.
async fn accepted(clients: &[Client], to: &str, reference: String, ended: &AtomicBool) -> bool {
    let envelope = json!({ "type": "request", "to": to, "ref": reference, "request_id": reference, "body": reference });
    let envelope = serde_json::from_value(envelope).unwrap();
    while !ended.load(Ordering::Relaxed) {
        match tokio::time::timeout(ANSWER_MAX, any(clients).send(&envelope, &SendTerms::default())).await {
            Ok(Ok(_)) => return true,
            Ok(Err(ClientError::Refused(problem))) if problem.retry_after_ms.is_none() => return false,
            Ok(Err(_)) | Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
    false
}

/// Has the racer exhaust one grant after the other from several lanes; notes how many requests each paid for.
async fn race(humans: Vec<Client>, racer: Vec<Client>, ended: Arc<AtomicBool>, races: Arc<Mutex<Vec<usize>>>) {
    for round in 0.. {
        let reference = format!("RACE-{round}");
        assert!(accepted(&humans, RACER, reference.clone(), &ended).await || ended.load(Ordering::Relaxed));
        while !matches!(tokio::time::timeout(ANSWER_MAX, any(&racer).inbox(PACE)).await, Ok(Ok(Some(_)))) {
            if ended.load(Ordering::Relaxed) {
                return;
            }
        }
        let next = AtomicUsize::new(0);
        let lanes = (0..LANES).map(async |_| {
            let mut paid = 0;
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if !accepted(&racer, &format!("sink-{n}"), format!("RUN-{round}-{n}"), &ended).await {
                    return paid;
                }
                paid += 1;
            }
        });
        let paid = futures_util::future::join_all(lanes).await.into_iter().sum();
        if ended.load(Ordering::Relaxed) {
            return;
        }
        races.lock().unwrap().push(paid);
        // What is open of it ends, so that the next one begins.
        let all = Target::Conversation(&reference);
        while !matches!(tokio::time::timeout(ANSWER_MAX, any(&humans).stop(all)).await, Ok(Ok(()))) {
            tokio::time::sleep(PAUSE).await;
        }
        tokio::time::sleep(BETWEEN_RACES).await;
    }
}

fn any(clients: &[Client]) -> &Client {
    &clients[rand::rng().random_range(0..clients.len())]
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var_os(name).and_then(|n| n.to_str()?.parse().ok()).unwrap_or(default)
}

#[test]
#[ignore = "it takes as long as it is told: cargo xtask faults --random MINUTES"]
fn random_faults_lose_nothing_double_nothing_and_skip_nothing() {
    let test = "random faults";
    let (length, seed) = (Duration::from_secs(number("LASTWORD_FAULTS_SECONDS", 60)), number("LASTWORD_SEED", 1));
    let Some(world) = World::start_with(test, LIMITS, &[]) else { return };
    let mut stage = Stage::set(world, test);
    let agents = stage.world.enrol();
    let human = stage.world.nodes[0].client(&stage.world.operator());
    registered(&human, BYSTANDER);
    let mut watchers = Watchers::start(&stage.world);
    let traffic = Traffic::paced(&stage.world, &agents, PACE);
    let (begun, mut rng) = (now(), StdRng::seed_from_u64(seed));
    let (mut made, mut back, mut restarts) = (BTreeMap::<String, usize>::new(), Vec::new(), 0);
    println!("{} s of random faults, seed {seed}", length.as_secs());
    while begun.elapsed() < length {
        let leader = stage.world.led("main");
        let parts = [Part::Nodes, Part::Nats, Part::Network];
        let first = rng.random_range(0..parts.len());
        let count = if rng.random_range(0..3) == 0 { 2 } else { 1 };
        let drawn = (0..count).map(|n| Strike::draw(&mut rng, parts[(first + n) % parts.len()], leader));
        let mut strikes: Vec<Strike> = drawn.filter(|strike| stage.has(*strike)).collect();
        // What kills all concerns each part.
        if let Some(all) = strikes.iter().copied().find(|strike| matches!(strike, Strike::AllKilled)) {
            strikes = vec![all];
        }
        let lasts = Duration::from_millis(rng.random_range(LASTS));
        println!("{:.0?}: {strikes:?} for {lasts:.1?}, {} leads", begun.elapsed(), stage.world.nodes[leader].name);
        for strike in &strikes {
            stage.begin(*strike);
            *made.entry(strike.name()).or_default() += 1;
            std::thread::sleep(Duration::from_millis(rng.random_range(0..1_000)));
        }
        std::thread::sleep(lasts);
        strikes.iter().for_each(|strike| stage.end(*strike));
        let healed = now();
        restarts += stage.restart();
        let wanted = traffic.acknowledged() + BETWEEN;
        let went_on = || {
            restarts += stage.restart();
            traffic.acknowledged() >= wanted
        };
        until_or(went_on, || format!("writes go on after {strikes:?}: {}", traffic.describe()));
        back.push(traffic.first_since(healed).as_secs_f64());
        stage.world.settled("main");
    }
    traffic.goes_on(BETWEEN);
    watchers.end();
    let (known, failed) = traffic.end();
    stage.restart();
    stage.world.settled("main");
    check(&mut stage.world, &known);
    let events = watchers.check(&stage.world);
    back.sort_by(f64::total_cmp);
    let at = |percent: usize| (back[(back.len() - 1) * percent / 100] * 100.0).round() / 100.0;
    let summary = json!({
        "seconds": begun.elapsed().as_secs(), "seed": seed, "faults": made, "nodes_ended_by_faults": restarts,
        "sends": known.sent.len(), "answers": known.answers.len(), "events": events, "grants_exhausted": watchers.races.lock().unwrap().len(),
        "calls_failed": failed.len(), "stops": watchers.stops.load(Ordering::Relaxed),
        "stop_max_s": watchers.slowest.load(Ordering::Relaxed) as f64 / 1e3,
        "writes_p50_s": at(50), "writes_p99_s": at(99), "writes_max_s": at(100),
    });
    println!("{summary:#}");
    if let Some(path) = std::env::var_os("LASTWORD_FAULTS_FIGURES") {
        std::fs::write(path, serde_json::to_vec(&summary).unwrap()).unwrap();
    }
}
