//! Three NATS servers and three nodes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lastword_client::{Client, Endpoint, Token};
use lastword_proto::wire::NewAgent;
use lastword_store::Registry;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::load::AGENTS;
use crate::nats_server::{Three, free_port, program, runtime, until};
use crate::program::{PATH, finish, lastword};
use crate::proxy::Proxy;

/// One test at a time: each has six servers, and measures.
static TURN: Mutex<()> = Mutex::new(());

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
    /// The proxies through which it reaches the NATS servers.
    pub(crate) proxies: Vec<Proxy>,
}

impl Node {
    pub(crate) fn start(&mut self) {
        let errors = File::options().create(true).append(true).open(self.dir.with_extension("err")).unwrap();
        let mut command = lastword(self.dir.parent().unwrap());
        command.args(&self.args).env("PATH", PATH).env("LASTWORD_LOG", "warn,lastword_server=info").stderr(errors);
        self.child = Some(command.stdout(std::process::Stdio::null()).spawn().unwrap());
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
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

    /// Returns the mirror of a workspace.
    pub(crate) fn data(&self, workspace: &str) -> PathBuf {
        self.dir.join(workspace)
    }

    pub(crate) fn client(&self, token: &str) -> Client {
        Client::new(&Endpoint::new(&self.url), Some(Token::new(token).unwrap())).unwrap()
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
    _turn: MutexGuard<'static, ()>,
}

impl World {
    /// Starts the servers and the nodes, and waits until `main` has a leader. `None` without a NATS server to start.
    pub(crate) fn start(test: &str) -> Option<Self> {
        Self::start_with(test, "", &[])
    }

    /// Does the same with this lastword.toml and these arguments.
    pub(crate) fn start_with(test: &str, config: &str, args: &[&str]) -> Option<Self> {
        let program = program(test)?;
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let nats = Three::start(&program);
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("lastword.toml"), config).unwrap();
        let nodes = ["a", "b", "c"].map(|name| node(name, &nats, dir.path(), args));
        let mut nodes = Vec::from(nodes);
        nodes.iter_mut().for_each(Node::start);
        let connection = nats.connect();
        let mut registry = None;
        until("the registry is there", || {
            registry = runtime().block_on(Registry::open(&connection, 3)).ok();
            registry.is_some()
        });
        let world = Self { nodes, nats, dir, registry: registry.unwrap(), _turn: turn };
        world.settled("main");
        Some(world)
    }

    /// Waits until a workspace has a leader that answers, and every node is a member.
    pub(crate) fn settled(&self, workspace: &str) {
        until("the cluster is settled", || {
            let file = self.nodes[0].data("main").join("operator.token");
            let nodes = runtime().block_on(self.registry.list("node.")).map_or(0, |nodes| nodes.len());
            nodes == self.nodes.len() && file.exists() && self.leader(workspace).is_some()
        });
    }

    pub(crate) fn operator(&self) -> String {
        let path = |node: &Node| node.data("main").join("operator.token");
        let found = self.nodes.iter().find_map(|node| std::fs::read_to_string(path(node)).ok());
        found.expect("a token of the first human").trim().to_owned()
    }

    /// Registers the agents of the load, and returns their tokens.
    pub(crate) fn enrol(&self) -> Vec<String> {
        let human = self.nodes[0].client(&self.operator());
        let register = |n| {
            let agent: NewAgent = serde_json::from_value(json!({ "name": format!("agent-{n}") })).unwrap();
            runtime().block_on(human.register(&agent)).unwrap().token
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
        self.nats.servers.iter().map(crate::nats_server::NatsServer::url).collect::<Vec<_>>().join(",")
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
        }
    }
}

fn node(name: &'static str, nats: &Three, dir: &Path, more: &[&str]) -> Node {
    let port = free_port();
    let proxies: Vec<Proxy> = nats.servers.iter().map(|server| Proxy::to(server.port)).collect();
    let servers = proxies.iter().map(|proxy| format!("nats://{}", proxy.address)).collect::<Vec<_>>().join(",");
    let (data, listen) = (dir.join(name), format!("127.0.0.1:{port}"));
    let monitors = nats.monitors.join(",");
    let args = ["--data", data.to_str().unwrap(), "serve", "--cluster", &servers, "--node", name, "--listen", &listen]
        .into_iter()
        .chain(["--nats-monitor", &monitors])
        .chain(more.iter().copied())
        .map(str::to_owned)
        .collect();
    Node { name, url: format!("http://{listen}"), dir: data, args, child: None, proxies }
}

/// The pause of a client whose call was refused for a moment.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);
