//! The faults of a cluster one after the other, under load: the time after which writes go on, and after which a human's
//! stop is carried out through each node that NATS hears.
//!
//! `cargo xtask faults` repeats each of them and shows the table.

use std::time::{Duration, Instant};

use lastword_client::{Client, Target};
use lastword_store::{Nats, NatsOptions};
use lastword_wire::NewAgent;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::mounted::Mounted;
use crate::nats_server::{runtime, until};
use crate::proxy::{Passing, Proxy};
use crate::traffic::{Traffic, check, now};
use crate::world::{Node, PAUSE, World, measures, times};

/// A fault, as the table names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    NodeKilled,
    NodeStopped,
    CutFromNats,
    CutFromNodes,
    StandsStill,
    StreamKilled,
    StreamFull,
    QuorumLost,
    AllKilled,
    SlowNetwork,
    LossyNetwork,
    NodeFull,
}

/// Those that take seconds.
const SHORT: [Fault; 4] = [Fault::NodeKilled, Fault::CutFromNats, Fault::CutFromNodes, Fault::StreamKilled];
const ALL: [Fault; 12] = [
    Fault::NodeKilled,
    Fault::NodeStopped,
    Fault::CutFromNats,
    Fault::CutFromNodes,
    Fault::StandsStill,
    Fault::StreamKilled,
    Fault::StreamFull,
    Fault::QuorumLost,
    Fault::AllKilled,
    Fault::SlowNetwork,
    Fault::LossyNetwork,
    Fault::NodeFull,
];
/// The bar of a human's stop.
pub(crate) const STOP_MAX: Duration = Duration::from_secs(5);
/// The longest wait of a human for one answer.
const ANSWER_MAX: Duration = Duration::from_secs(8);
/// The time for which NATS has no quorum.
const QUORUM_LOST: Duration = Duration::from_secs(10);
/// The time that a message takes each way on a slow network, and on one that loses packets, and which share of these.
const WAY: Duration = Duration::from_millis(50);
const LOSSY_WAY: Duration = Duration::from_millis(100);
const LOST: f64 = 0.05;
/// The disks of the NATS servers and of the nodes.
const NATS_DISK: u64 = 128 << 20;
const NODE_DISK: u64 = 200 << 20;
/// What is left on a disk that fills up.
const LEFT: u64 = 64 << 10;

impl Fault {
    const fn name(self) -> &'static str {
        match self {
            Self::NodeKilled => "the leading node killed",
            Self::NodeStopped => "the leading node stopped in order (SIGTERM)",
            Self::CutFromNats => "the leading node cut off from NATS",
            Self::CutFromNodes => "the leading node cut off from the other nodes",
            Self::StandsStill => "the leading node stands still (SIGSTOP)",
            Self::StreamKilled => "the stream's leader in NATS killed",
            Self::StreamFull => "the disk of the stream's leader in NATS full, and left full",
            Self::QuorumLost => "NATS without a quorum for 10 s, from its return",
            Self::AllKilled => "all nodes and NATS servers killed, from their start",
            Self::SlowNetwork => "50 ms each way to NATS",
            Self::LossyNetwork => "100 ms each way to NATS, and 5 % of the packets lost",
            Self::NodeFull => "the leading node's disk full, and left full",
        }
    }

    /// Returns the longest time until a human's stop is carried out, where NATS goes on meanwhile.
    const fn stop_max(self) -> Option<Duration> {
        match self {
            Self::NodeKilled
            | Self::NodeStopped
            | Self::CutFromNats
            | Self::CutFromNodes
            | Self::StandsStill
            | Self::NodeFull => Some(STOP_MAX),
            Self::StreamKilled
            | Self::StreamFull
            | Self::QuorumLost
            | Self::AllKilled
            | Self::SlowNetwork
            | Self::LossyNetwork => None,
        }
    }

    /// Returns whether it is one of these that began before the writes stopped.
    const fn is_over(self) -> bool {
        matches!(self, Self::QuorumLost | Self::AllKilled)
    }
}

/// A run of a fault.
struct Run {
    fault: Fault,
    /// Which one of its runs.
    number: usize,
    /// The node that leads, and the NATS server that leads the stream.
    leader: usize,
    stream: usize,
}

/// The servers, and what faults need.
struct Stage {
    world: World,
    /// In front of each node, for the other nodes.
    fronts: Vec<Proxy>,
    nats_disks: Vec<Mounted>,
    node_disks: Vec<Mounted>,
}

impl Stage {
    /// Has the nodes reach each other through proxies, and gives each server a small disk if one is to be full.
    fn set(mut world: World, faults: &[Fault]) -> Self {
        let (mut nats_disks, mut node_disks) = (Vec::new(), Vec::new());
        for n in 0..world.nodes.len() {
            if faults.contains(&Fault::StreamFull) {
                world.nats.servers[n].kill();
                nats_disks.extend(Mounted::under(&world.nats.data(n), NATS_DISK));
                world.nats.servers[n].resume();
            }
        }
        for node in world.nodes.iter_mut().filter(|_| faults.contains(&Fault::NodeFull)) {
            assert_eq!(node.terminate(), 0, "{}", node.said());
            node_disks.extend(Mounted::under(node.data("main").parent().unwrap(), NODE_DISK));
        }
        let fronts = world.fronts();
        Self { world, fronts, nats_disks, node_disks }
    }

    /// Returns whether this fault can be made here.
    fn has(&self, fault: Fault) -> bool {
        let disks = [(Fault::StreamFull, &self.nats_disks), (Fault::NodeFull, &self.node_disks)];
        disks.iter().all(|(full, disks)| fault != *full || !disks.is_empty())
    }

    /// Makes the fault; returns the moment from which it is measured, and the nodes that NATS hears.
    fn begin(&mut self, run: &Run) -> (Instant, Vec<usize>) {
        let (world, leader) = (&mut self.world, run.leader);
        let others = vec![(leader + 1) % 3, (leader + 2) % 3];
        let moment = now();
        // In turn the ends notice that they are cut off, or don't, or one is heard and hears nothing.
        let cut = [Passing::Nothing, Passing::Silence, Passing::RequestsOnly][run.number % 3];
        match run.fault {
            Fault::NodeKilled => world.nodes[leader].kill(),
            Fault::NodeStopped => world.nodes[leader].signal("TERM"),
            Fault::CutFromNats => world.nodes[leader].proxies.iter().for_each(|proxy| proxy.set(cut)),
            Fault::CutFromNodes => self.fronts[leader].set(cut),
            Fault::StandsStill => world.nodes[leader].signal("STOP"),
            Fault::StreamKilled => world.nats.servers[run.stream].kill(),
            // In turn at once, or by what it stores.
            Fault::StreamFull if run.number.is_multiple_of(2) => self.nats_disks[run.stream].fill("ballast"),
            Fault::StreamFull => self.nats_disks[run.stream].leave("ballast", LEFT),
            Fault::NodeFull => self.node_disks[leader].fill("ballast"),
            Fault::SlowNetwork => world.delay(WAY, 0.0),
            Fault::LossyNetwork => world.delay(LOSSY_WAY, LOST),
            Fault::QuorumLost => {
                let lost = [run.stream, (run.stream + 1) % 3];
                lost.iter().for_each(|n| world.nats.servers[*n].signal("STOP"));
                std::thread::sleep(QUORUM_LOST);
                lost.iter().for_each(|n| world.nats.servers[*n].signal("CONT"));
                return (now(), vec![0, 1, 2]);
            }
            Fault::AllKilled => {
                world.nodes.iter_mut().for_each(Node::kill);
                world.nats.servers.iter_mut().for_each(crate::nats_server::NatsServer::kill);
                world.nats.servers.iter_mut().for_each(crate::nats_server::NatsServer::resume);
                world.nodes.iter_mut().for_each(Node::start);
                runtime().spawn(elected(world.servers(), now()));
                return (now(), vec![0, 1, 2]);
            }
        }
        let without_leader =
            matches!(run.fault, Fault::NodeKilled | Fault::NodeStopped | Fault::CutFromNats | Fault::StandsStill);
        (moment, if without_leader { others } else { vec![0, 1, 2] })
    }

    /// Ends the fault, after which all is as before.
    fn end(&mut self, run: &Run) {
        let (world, leader) = (&mut self.world, run.leader);
        match run.fault {
            Fault::NodeKilled => world.nodes[leader].start(),
            Fault::NodeStopped => {
                assert_eq!(world.nodes[leader].ends(), 0, "{}", world.nodes[leader].said());
                world.nodes[leader].start();
            }
            Fault::CutFromNats => world.nodes[leader].proxies.iter().for_each(|proxy| proxy.set(Passing::All)),
            Fault::CutFromNodes => self.fronts[leader].set(Passing::All),
            Fault::StandsStill => world.nodes[leader].signal("CONT"),
            Fault::StreamKilled => world.nats.servers[run.stream].resume(),
            Fault::StreamFull => {
                self.nats_disks[run.stream].empty("ballast");
                // It takes part again only after a restart.
                world.nats.servers[run.stream].kill();
                world.nats.servers[run.stream].resume();
            }
            Fault::NodeFull => self.node_disks[leader].empty("ballast"),
            Fault::SlowNetwork | Fault::LossyNetwork => world.delay(Duration::ZERO, 0.0),
            Fault::QuorumLost | Fault::AllKilled => {}
        }
        world.settled("main");
    }
}

/// Asks a node to stop an agent until it has, and returns the time since `moment` then.
pub(crate) async fn stopped(human: Client, agent: String, moment: Instant) -> Duration {
    loop {
        let asked = tokio::time::timeout(ANSWER_MAX, human.stop(Target::Agent(&agent))).await;
        if matches!(asked, Ok(Ok(()))) {
            return now() - moment;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Says how long NATS itself takes until it answers.
async fn elected(servers: String, moment: Instant) {
    loop {
        if let Ok(nats) = Nats::connect(NatsOptions::new(servers.split(','))).await
            && nats.ready("main").await.is_ok()
        {
            return println!("NATS itself answers after {:.2?}", moment.elapsed());
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn bystander(node: usize) -> String {
    format!("bystander-{node}")
}

/// What was measured of a fault, in seconds.
#[derive(Default)]
struct Figures {
    writes: Vec<f64>,
    stops: Vec<f64>,
}

impl Figures {
    fn json(&mut self, fault: Fault) -> Value {
        self.writes.sort_by(f64::total_cmp);
        let rounded = |value: f64| (value * 100.0).round() / 100.0;
        let max = |values: &[f64]| rounded(values.iter().copied().fold(0.0, f64::max));
        json!({
            "fault": fault.name(), "runs": self.writes.len(),
            "writes_p50_s": rounded(self.writes[self.writes.len() / 2]), "writes_max_s": max(&self.writes),
            "stop_max_s": max(&self.stops),
        })
    }
}

/// Returns the faults to measure: those with `LASTWORD_FAULTS_NAMED` in their names, all in a campaign, and else the short ones.
fn faults() -> Vec<Fault> {
    let named = std::env::var_os("LASTWORD_FAULTS_NAMED").and_then(|named| named.into_string().ok());
    let Some(named) = named else { return if measures() { ALL.to_vec() } else { SHORT.to_vec() } };
    ALL.into_iter().filter(|fault| fault.name().contains(&named)).collect()
}

#[test]
fn writes_and_a_humans_stop_go_on_after_each_fault() {
    let faults = faults();
    // Its agents may fall behind in a campaign.
    let Some(world) = World::start_with("the table of faults", "[limits]\ninbox_max = 1000000\n", &[]) else { return };
    let mut stage = Stage::set(world, &faults);
    let agents = stage.world.enrol();
    let operator = stage.world.operator();
    let human = stage.world.nodes[0].client(&operator);
    for node in 0..3 {
        let agent: NewAgent = serde_json::from_value(json!({ "name": bystander(node) })).unwrap();
        until("the bystander is registered", || runtime().block_on(human.register(&agent)).is_ok());
    }
    let connection = stage.world.nats.connect();
    let traffic = Traffic::start(&stage.world, &agents);
    let (mut table, mut late) = (Vec::new(), Vec::new());
    for fault in faults {
        if !stage.has(fault) {
            continue;
        }
        let mut figures = Figures::default();
        for number in 0..times(1) {
            traffic.goes_on(50);
            let (leader, stream) = (stage.world.led("main"), stage.world.nats.leader(&connection, "main"));
            let run = Run { fault, number, leader, stream };
            let (moment, nodes) = stage.begin(&run);
            let stops: Vec<JoinHandle<Duration>> = nodes
                .iter()
                .map(|node| stopped(stage.world.nodes[*node].client(&operator), bystander(*node), moment))
                .map(|stop| runtime().spawn(stop))
                .collect();
            traffic.goes_on(50);
            let writes = if fault.is_over() { traffic.first_since(moment) } else { traffic.gap_since(moment) };
            let stops: Vec<f64> =
                stops.into_iter().map(|stop| runtime().block_on(stop).unwrap().as_secs_f64()).collect();
            println!("{}, {} of {}: writes after {writes:.2?}, stops {stops:.2?}", fault.name(), number + 1, times(1));
            if let Some(most) = fault.stop_max().filter(|_| measures()).map(|most| most.as_secs_f64()) {
                late.extend(stops.iter().filter(|stop| **stop > most).map(|stop| (fault, *stop)));
            }
            figures.writes.push(writes.as_secs_f64());
            figures.stops.extend(stops);
            stage.end(&run);
            traffic.goes_on(50);
            for node in nodes {
                let resumed = || runtime().block_on(human.resume(Target::Agent(&bystander(node)))).is_ok();
                until("the bystander goes on", resumed);
            }
        }
        table.push(figures.json(fault));
    }
    let (known, _) = traffic.end();
    check(&mut stage.world, &known);
    println!("{} sends and {} answers acknowledged", known.sent.len(), known.answers.len());
    if let Some(path) = std::env::var_os("LASTWORD_FAULTS_FIGURES") {
        std::fs::write(path, serde_json::to_vec(&table).unwrap()).unwrap();
    }
    assert!(late.is_empty(), "stops that came late: {late:?}");
}
