//! Three NATS servers and three nodes.

use std::fs::File;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lastword_client::{Client, Endpoint, Token, plain_http};
use lastword_store::Registry;
use lastword_wire::NewAgent;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::load::AGENTS;
use crate::nats_server::{Machine, NatsServer, Three, free_port, program, runtime, until};
use crate::preload::Control;
use crate::program::{PATH, finish, lastword};
use crate::proxy::Proxy;

/// Tests at a time: each has six servers, most of the time idle.
const TURNS: u32 = 2;
static FREE: Semaphore = Semaphore::const_new(TURNS as usize);

/// Waits until there is room for a test: all of it, if the test measures.
pub(crate) fn turn() -> SemaphorePermit<'static> {
    room(if measures() { TURNS } else { 1 })
}

fn room(turns: u32) -> SemaphorePermit<'static> {
    runtime().block_on(FREE.acquire_many(turns)).unwrap()
}

/// Returns how often a fault is repeated: `LASTWORD_FAULTS`, or `short`.
pub(crate) fn times(short: usize) -> usize {
    std::env::var_os("LASTWORD_FAULTS").and_then(|n| n.to_str()?.parse().ok()).unwrap_or(short)
}

/// Returns whether the bars on outages are checked: in campaigns, on a machine that does nothing else.
pub(crate) fn measures() -> bool {
    std::env::var_os("LASTWORD_FAULTS").is_some()
}

/// A node: the program with a data directory of its own.
pub(crate) struct Node {
    pub(crate) name: &'static str,
    pub(crate) url: String,
    dir: PathBuf,
    args: Vec<String>,
    child: Option<Child>,
    machine: Machine,
    /// The proxies through which it reaches the NATS servers, if they are on this machine.
    pub(crate) proxies: Vec<Proxy>,
    /// What moves its clock.
    pub(crate) control: Option<Control>,
}

impl Node {
    pub(crate) fn start(&mut self) {
        let errors = File::options().create(true).append(true).open(self.dir.with_extension("err")).unwrap();
        let mut command = lastword_on(&self.machine, self.dir.parent().unwrap());
        if let Some(control) = &self.control {
            control.preload(&mut command, &self.dir);
        }
        let levels = "warn,lastword_broker=info,lastword_cluster=info,lastword_server=info";
        command.args(&self.args).env("PATH", PATH).env("LASTWORD_LOG", levels).stderr(errors);
        self.child = Some(command.stdout(Stdio::null()).spawn().unwrap());
    }

    /// Adds arguments, for its next start on.
    pub(crate) fn with(&mut self, args: &[&str]) {
        self.args.extend(args.iter().map(|arg| (*arg).to_owned()));
    }

    /// Takes the last arguments away again.
    pub(crate) fn without_last(&mut self, count: usize) {
        self.args.truncate(self.args.len() - count);
    }

    /// Waits until it ends by itself, and returns its exit code.
    pub(crate) fn ends(&mut self) -> i32 {
        self.child.take().unwrap().wait().unwrap().code().unwrap_or(-1)
    }

    /// Returns its exit code if it ended by itself.
    pub(crate) fn has_ended(&mut self) -> Option<i32> {
        let status = self.child.as_mut()?.try_wait().unwrap()?;
        self.child = None;
        Some(status.code().unwrap_or(-1))
    }

    /// Returns the number of its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Returns whether it was started, and not ended since.
    pub(crate) fn runs(&self) -> bool {
        self.child.is_some()
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
        if name == "STOP" {
            // The threads stop one after the other; until then they may still answer.
            until("each thread stands still", || stands_still(&pid));
        }
    }

    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Ends it like a service manager, and returns its exit code.
    pub(crate) fn terminate(&mut self) -> i32 {
        self.signal("TERM");
        self.child.take().unwrap().wait().unwrap().code().unwrap_or(-1)
    }

    /// Returns whether it accepts connections: a signal ends it in order from then on.
    fn listens(&self) -> bool {
        TcpStream::connect(self.url.trim_start_matches("http://")).is_ok()
    }

    /// Returns the port on which it listens.
    pub(crate) fn port(&self) -> u16 {
        self.url.rsplit(':').next().unwrap().parse().unwrap()
    }

    /// Returns the mirror of a workspace.
    pub(crate) fn data(&self, workspace: &str) -> PathBuf {
        self.dir.join(workspace)
    }

    pub(crate) fn client(&self, token: &str) -> Client {
        Client::new(&Endpoint::new(&self.url), Some(Token::new(token).unwrap())).unwrap()
    }

    /// Returns its metrics, with all names.
    pub(crate) fn metrics(&self) -> String {
        let url = format!("{}/cluster/metrics", self.url);
        let token = std::fs::read_to_string(self.dir.join("metrics.token")).unwrap();
        let request = plain_http().unwrap().get(url).bearer_auth(token.trim());
        let read = async { request.send().await.unwrap().text().await.unwrap() };
        runtime().block_on(read)
    }

    /// Returns the last position of a workspace that it knows.
    pub(crate) fn position(&self, workspace: &str) -> u64 {
        let text = self.metrics();
        let name = format!("lastword_workspace_position{{workspace=\"{workspace}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
    }

    /// Returns what it logged.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(self.dir.with_extension("err")).unwrap_or_default()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended.
            let _gone = child.kill().and_then(|()| child.wait());
        }
    }
}

pub(crate) struct World {
    pub(crate) nodes: Vec<Node>,
    pub(crate) nats: Three,
    pub(crate) dir: TempDir,
    pub(crate) registry: Registry,
    _turn: SemaphorePermit<'static>,
}

impl World {
    /// Starts the servers and the nodes, and waits until `main` has a leader. `None` without a NATS server to start.
    pub(crate) fn start(test: &str) -> Option<Self> {
        Self::start_with(test, "", &[])
    }

    /// Does the same with this lastword.toml and these arguments.
    pub(crate) fn start_with(test: &str, config: &str, args: &[&str]) -> Option<Self> {
        let program = program(test)?;
        Some(Self::start_here(&program, (config, args), turn()))
    }

    /// Does the same while no other test runs.
    pub(crate) fn start_alone(test: &str) -> Option<Self> {
        let program = program(test)?;
        Some(Self::start_here(&program, ("", &[]), room(TURNS)))
    }

    fn start_here(program: &Path, settings: (&str, &[&str]), turn: SemaphorePermit<'static>) -> Self {
        let machines = [(); 3].map(|()| Machine::local());
        Self::start_on(program, &machines, settings, turn)
    }

    /// Starts a server and a node on each machine.
    pub(crate) fn start_on(
        program: &Path,
        machines: &[Machine; 3],
        (config, args): (&str, &[&str]),
        turn: SemaphorePermit<'static>,
    ) -> Self {
        let nats = Three::start_on(program, machines);
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("lastword.toml"), config).unwrap();
        let names = ["a", "b", "c"].into_iter().zip(machines);
        let mut nodes: Vec<_> = names.map(|(name, machine)| node(name, machine, (&nats, args), dir.path())).collect();
        nodes.iter_mut().for_each(Node::start);
        let connection = nats.connect();
        let mut registry = None;
        until("the registry is there", || {
            registry = runtime().block_on(Registry::open(&connection, 3)).ok();
            registry.is_some()
        });
        let world = Self { nodes, nats, dir, registry: registry.unwrap(), _turn: turn };
        world.settled("main");
        world
    }

    /// Has the nodes reach each other through proxies: one in front of each.
    pub(crate) fn fronts(&mut self) -> Vec<Proxy> {
        let fronts: Vec<Proxy> = self.nodes.iter().map(|node| Proxy::to(node.port())).collect();
        for (node, front) in self.nodes.iter_mut().zip(&fronts) {
            if node.runs() {
                assert_eq!(node.terminate(), 0, "{}", node.said());
            }
            node.with(&["--advertise", &format!("http://{}", front.address)]);
            node.start();
        }
        self.settled("main");
        fronts
    }

    /// Restarts every node with a clock of its own. `None`, with a note past the test harness, where that isn't possible.
    pub(crate) fn move_clocks(&mut self, test: &str) -> Option<()> {
        for n in 0..self.nodes.len() {
            let dir = self.dir.path().join(format!("clock-{n}"));
            std::fs::create_dir(&dir).unwrap();
            self.nodes[n].control = Some(Control::new(test, &dir)?);
            assert_eq!(self.nodes[n].terminate(), 0);
            self.nodes[n].start();
            self.settled("main");
            // A program that is linked statically, as a release is, loads no library.
            if !std::fs::read_to_string(format!("/proc/{}/maps", self.nodes[n].pid())).unwrap().contains("faults.so") {
                let told = format!("\nNOT TESTED: {test}: the program that LASTWORD names is linked statically\n");
                std::io::stderr().write_all(told.as_bytes()).unwrap();
                self.nodes.iter_mut().for_each(|node| node.control = None);
                return None;
            }
        }
        Some(())
    }

    /// Waits until a workspace has a leader that answers, and every node listens and is a member. The registry alone doesn't
    /// say so: it has the entry of a node that was killed until that runs out, also while the node starts again.
    pub(crate) fn settled(&self, workspace: &str) {
        until("the cluster is settled", || {
            let file = self.nodes[0].data("main").join("operator.token");
            let nodes = runtime().block_on(self.registry.list("node.")).map_or(0, |nodes| nodes.len());
            let members = nodes == self.nodes.len() && self.nodes.iter().all(Node::listens);
            members && file.exists() && self.leader(workspace).is_some()
        });
    }

    pub(crate) fn operator(&self) -> String {
        self.token("main")
    }

    /// Returns the token of a workspace's first human, once there is one.
    pub(crate) fn token(&self, workspace: &str) -> String {
        let path = |node: &Node| node.data(workspace).join("operator.token");
        let mut found = None;
        until("the workspace has its first human", || {
            found = self.nodes.iter().find_map(|node| std::fs::read_to_string(path(node)).ok());
            found.is_some()
        });
        found.unwrap().trim().to_owned()
    }

    /// Registers the agents of the load, and returns their tokens.
    pub(crate) fn enrol(&self) -> Vec<String> {
        let human = self.nodes[0].client(&self.operator());
        let register = |n| {
            let agent: NewAgent = serde_json::from_value(json!({ "name": format!("agent-{n}") })).unwrap();
            let mut made = None;
            until("the agent is registered", || {
                made = runtime().block_on(human.register(&agent)).ok();
                made.is_some()
            });
            made.unwrap().token
        };
        (0..AGENTS).map(register).collect()
    }

    /// Returns the number of the node that has the lease of a workspace.
    pub(crate) fn leader(&self, workspace: &str) -> Option<usize> {
        let lease = runtime().block_on(self.registry.get(&format!("lease.{workspace}"))).ok()??;
        let lease: Value = serde_json::from_slice(&lease.value?).ok()?;
        let held = lease["released"] == false;
        self.nodes.iter().position(|node| held && lease["node"] == node.name)
    }

    /// Waits until the node leads a workspace that should lead it while all are there.
    pub(crate) fn first(&self, workspace: &str) -> usize {
        let settled = crate::traffic::now();
        until("the nodes are steady", || settled.elapsed() >= STEADY && self.leader(workspace).is_some());
        self.led(workspace)
    }

    /// Returns the revision of a workspace's lease, which is its epoch.
    pub(crate) fn lease(&self, workspace: &str) -> Option<u64> {
        let lease = runtime().block_on(self.registry.get(&format!("lease.{workspace}"))).ok()?;
        lease.map(|lease| lease.revision)
    }

    /// Has what passes between the nodes and NATS be on its way for this long, and this share of the packets get lost.
    pub(crate) fn delay(&self, way: Duration, lost: f64) {
        self.nodes.iter().flat_map(|node| &node.proxies).for_each(|proxy| proxy.delay(way, lost));
    }

    /// Moves a node's wall clock by this many seconds.
    pub(crate) fn clock(&self, node: usize, seconds: i64) {
        self.nodes[node].control.as_ref().unwrap().wall(seconds);
    }

    /// Returns what each node and each NATS server has resident, in MiB, and the share of a core that it uses while nothing is
    /// asked of it, in percent.
    pub(crate) fn idle(&self) -> String {
        let nodes = self.nodes.iter().map(|node| (format!("node {}", node.name), node.child.as_ref().unwrap().id()));
        let servers = self.nats.servers.iter().enumerate().map(|(n, server)| (format!("NATS {n}"), server.pid));
        let all: Vec<_> = nodes.chain(servers).collect();
        let before: Vec<f64> = all.iter().map(|(_, pid)| used_seconds(*pid)).collect();
        std::thread::sleep(IDLE);
        let lines = all.iter().zip(before).map(|((name, pid), before)| {
            let share = 100.0 * (used_seconds(*pid) - before) / IDLE.as_secs_f64();
            format!("{name}: {} MiB, {share:.1} %", resident_mib(*pid))
        });
        lines.collect::<Vec<_>>().join("; ")
    }

    /// Waits for a leader.
    pub(crate) fn led(&self, workspace: &str) -> usize {
        let mut leader = None;
        until("the workspace has a leader", || {
            leader = self.leader(workspace);
            leader.is_some()
        });
        leader.unwrap()
    }

    /// Returns the addresses of the NATS servers, with commas between them.
    pub(crate) fn servers(&self) -> String {
        self.nats.servers.iter().map(NatsServer::url).collect::<Vec<_>>().join(",")
    }

    /// Runs the program against NATS, without a node.
    pub(crate) fn run(&self, args: &[&str]) -> crate::program::Ended {
        let servers = self.servers();
        finish(lastword(self.dir.path()).env("LASTWORD_CLUSTER", servers).args(args), "")
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.nodes.iter().for_each(|node| println!("node {}:\n{}", node.name, node.said()));
            match runtime().block_on(self.registry.list("")) {
                Ok(records) => records.iter().for_each(|record| println!("{} at {}", record.key, record.revision)),
                Err(error) => println!("{error}"),
            }
        }
    }
}

/// Longer than the nodes have to be the same before a workspace moves to the one that should lead it.
const STEADY: Duration = Duration::from_secs(7);
/// How long processor time is measured.
const IDLE: Duration = Duration::from_secs(20);

/// Returns the processor time that a process has used, in seconds.
fn used_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // Behind the name, which may hold spaces: the 12th and 13th fields from there, in ticks of 10 ms.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<f64>().unwrap() / 100.0).sum()
}

fn resident_mib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

/// Returns the program's command on a machine.
fn lastword_on(machine: &Machine, dir: &Path) -> Command {
    let own = lastword(dir);
    let mut command = machine.command(Path::new(own.get_program()));
    command.current_dir(dir).env_clear().stdin(Stdio::null());
    command
}

fn node(name: &'static str, machine: &Machine, (nats, more): (&Three, &[&str]), dir: &Path) -> Node {
    let port = free_port();
    let local = machine.namespace.is_none();
    let proxies: Vec<Proxy> = nats.servers.iter().filter(|_| local).map(|server| Proxy::to(server.port)).collect();
    let direct = nats.servers.iter().filter(|_| !local).map(NatsServer::url);
    let servers: Vec<_> = proxies.iter().map(|proxy| format!("nats://{}", proxy.address)).chain(direct).collect();
    let servers = servers.join(",");
    let (data, listen) = (dir.join(name), format!("{}:{port}", machine.host));
    let monitors = nats.monitors.join(",");
    let args = ["--data", data.to_str().unwrap(), "serve", "--cluster", &servers, "--node", name, "--listen", &listen]
        .into_iter()
        .chain(["--nats-monitor", &monitors])
        .chain(more.iter().copied())
        .map(str::to_owned)
        .collect();
    let machine = machine.clone();
    Node { name, url: format!("http://{listen}"), dir: data, args, child: None, machine, proxies, control: None }
}

/// The pause of a client whose call was refused for a moment.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);

/// Returns whether all threads of a process are stopped.
fn stands_still(pid: &str) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    threads.flatten().all(|thread| {
        let status = std::fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        status.lines().any(|line| line.starts_with("State:\tT"))
    })
}
