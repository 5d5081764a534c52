//! Three machines, each with a NATS server and a node, on a network that can be cut: network namespaces with a bridge
//! between them.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::nats_server::{Machine, program, until};
use crate::traffic::{Traffic, check, now};
use crate::world::{World, measures, times, turn};

/// A machine address that no other has: packets to it reach nobody.
const NOBODY: &str = "02:00:00:00:00:99";

/// The network, for as long as this lives.
struct Network {
    id: u32,
}

fn ip(args: &[&str]) -> bool {
    Command::new("ip").args(args).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|done| done.success())
}

fn must(args: &[&str]) {
    assert!(ip(args), "ip {}", args.join(" "));
}

impl Network {
    /// Makes the network. Without the right to, `test` says so and passes; with `LASTWORD_NETNS` set it fails instead.
    fn new(test: &str) -> Option<Self> {
        static NETWORKS: AtomicU32 = AtomicU32::new(0);
        let id = 8 * std::process::id() + NETWORKS.fetch_add(1, Ordering::Relaxed) % 8;
        let network = Self { id };
        let bridge = network.bridge();
        if !ip(&["link", "add", "name", &bridge, "type", "bridge"]) {
            let told = format!("\nNOT TESTED: {test}: no network namespaces can be made here\n");
            assert!(std::env::var_os("LASTWORD_NETNS").is_none(), "{told}");
            eprint!("{told}");
            return None;
        }
        must(&["addr", "add", &format!("{}/24", network.host(254)), "dev", &bridge]);
        must(&["link", "set", &bridge, "up"]);
        for n in 0..3 {
            let (name, link) = (network.namespace(n), network.link(n));
            must(&["netns", "add", &name]);
            must(&["link", "add", &link, "type", "veth", "peer", "name", "eth0", "netns", &name]);
            must(&["link", "set", &link, "master", &bridge, "up"]);
            must(&["-n", &name, "addr", "add", &format!("{}/24", network.host(n + 1)), "dev", "eth0"]);
            must(&["-n", &name, "link", "set", "eth0", "up"]);
            must(&["-n", &name, "link", "set", "lo", "up"]);
        }
        Some(network)
    }

    fn bridge(&self) -> String {
        format!("lwb{}", self.id)
    }

    fn link(&self, n: usize) -> String {
        format!("lwv{n}-{}", self.id)
    }

    fn namespace(&self, n: usize) -> String {
        format!("lastword-{}-{n}", self.id)
    }

    fn host(&self, n: usize) -> String {
        format!("10.{}.{}.{n}", 64 + self.id % 128, self.id / 128 % 256)
    }

    fn machines(&self) -> [Machine; 3] {
        [0, 1, 2].map(|n| Machine { host: self.host(n + 1), namespace: Some(self.namespace(n)) })
    }

    /// Cuts a machine off, or connects it again.
    fn connect(&self, n: usize, connected: bool) {
        must(&["link", "set", &self.link(n), if connected { "up" } else { "down" }]);
    }

    /// Loses what machine `n` sends to machine `to`, or no longer.
    fn hears(&self, n: usize, to: usize, heard: bool) {
        let (name, host) = (self.namespace(n), self.host(to + 1));
        if heard {
            must(&["-n", &name, "neigh", "del", &host, "dev", "eth0"]);
        } else {
            must(&["-n", &name, "neigh", "replace", &host, "lladdr", NOBODY, "nud", "permanent", "dev", "eth0"]);
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for n in 0..3 {
            let _gone = ip(&["netns", "del", &self.namespace(n)]);
        }
        let _gone = ip(&["link", "del", &self.bridge()]);
    }
}

fn start(test: &str) -> Option<(World, Network)> {
    let program = program(test)?;
    let turn = turn();
    let network = Network::new(test)?;
    let program = if program.is_absolute() { program } else { which(&program) };
    // Nodes pass calls on over plain HTTP, and the network is this test's own.
    let world = World::start_on(&program, &network.machines(), ("", &["--insecure-http"]), turn);
    Some((world, network))
}

/// `ip netns exec` looks for a program in another path.
fn which(program: &Path) -> std::path::PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|found| found.exists()).unwrap()
}

/// Returns the time for which the network is cut: longer than a lease, and in campaigns than NATS takes to elect.
fn cut_time() -> Duration {
    Duration::from_secs(if measures() { 12 } else { 5 })
}

#[test]
fn a_machine_that_is_cut_off_has_no_leader_and_the_majority_has() {
    let Some((mut world, network)) = start("machines that are cut off") else { return };
    let agents = world.enrol();
    let traffic = Traffic::start(&world, &agents);
    for n in 0..times(1) {
        traffic.goes_on(50);
        let connection = world.nats.connect();
        let (leader, stream) = (world.led("main"), world.nats.leader(&connection, "main"));
        // In turn the machine of the node that leads, and that of the NATS server that does.
        let machine = if n % 2 == 0 { leader } else { stream };
        let cut = now();
        network.connect(machine, false);
        traffic.goes_on(50);
        println!("machine {machine} cut off ({leader} led, {stream} the stream): outage {:?}", traffic.gap_since(cut));
        until("another machine leads", || world.leader("main").is_some_and(|now| now != machine));
        std::thread::sleep(cut_time().saturating_sub(cut.elapsed()));
        network.connect(machine, true);
        traffic.goes_on(50);
        world.settled("main");
    }
    let (known, _) = traffic.end();
    check(&mut world, &known);
}

#[test]
fn machines_that_hear_but_are_not_heard_keep_every_promise() {
    let Some((mut world, network)) = start("one-way partitions") else { return };
    let agents = world.enrol();
    let traffic = Traffic::start(&world, &agents);
    for n in 0..times(1) {
        traffic.goes_on(50);
        let leader = world.led("main");
        let others = [(leader + 1) % 3, (leader + 2) % 3];
        // What the leader says reaches nobody, or only one of them; or it hears nobody.
        let lost: &[(usize, usize)] = match n % 3 {
            0 => &[(leader, others[0]), (leader, others[1])],
            1 => &[(leader, others[0])],
            _ => &[(others[0], leader), (others[1], leader)],
        };
        let cut = now();
        lost.iter().for_each(|(from, to)| network.hears(*from, *to, false));
        std::thread::sleep(cut_time());
        lost.iter().for_each(|(from, to)| network.hears(*from, *to, true));
        traffic.goes_on(50);
        println!("{lost:?} lost for {:?}: outage {:?}", cut_time(), traffic.gap_since(cut));
        world.settled("main");
    }
    let (known, _) = traffic.end();
    check(&mut world, &known);
}
