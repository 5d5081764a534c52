//! NATS servers that a test starts and ends: one, or three that replicate.

use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lastword_store::{Nats, NatsOptions};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// The variable with the path of the program. `.ci/run` sets it.
const PROGRAM: &str = "LASTWORD_NATS_SERVER";
/// Ends the server when the shell's input ends: also if the test is killed.
const GUARD: &str = r#""$0" "$@" </dev/null >/dev/null 2>&1 & echo $!; read -r _; kill -9 $!; wait $! 2>/dev/null"#;

/// Returns the program. Without it `test` says so and passes; with the variable set it fails instead.
pub(crate) fn program(test: &str) -> Option<PathBuf> {
    let named = std::env::var_os(PROGRAM).map(PathBuf::from);
    let program = named.clone().unwrap_or_else(|| "nats-server".into());
    let runs = Command::new(&program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if runs.is_ok_and(|status| status.success()) {
        return Some(program);
    }
    let told = format!("\nNOT TESTED: {test}: no `nats-server` in PATH, and {PROGRAM} names none\n");
    assert!(named.is_none(), "{told}");
    eprint!("{told}");
    None
}

/// The runtime on which the tests' connections live.
pub(crate) fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap())
}

/// Waits until `condition` holds.
pub(crate) fn until(what: &str, condition: impl FnMut() -> bool) {
    until_or(condition, || what.to_owned());
}

/// Waits until `condition` holds; `describe` says what it waited for.
pub(crate) fn until_or(mut condition: impl FnMut() -> bool, describe: impl FnOnce() -> String) {
    for _ in 0..6000 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it never came to this: {}", describe());
}

/// Returns a port that nobody listens on. The system gives none of this range to outgoing connections, which could take it
/// before a server does.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let next = std::process::id().wrapping_mul(97).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(10_000 + next % 20_000).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

fn free_ports<const N: usize>() -> [u16; N] {
    std::array::from_fn(|_| free_port())
}

/// A machine to run on: this one, or a network namespace of it.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    /// Its address for the others.
    pub(crate) host: String,
    pub(crate) namespace: Option<String>,
}

impl Machine {
    pub(crate) fn local() -> Self {
        Self { host: "127.0.0.1".to_owned(), namespace: None }
    }

    /// Returns a command that runs `program` there.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let Some(namespace) = &self.namespace else { return Command::new(program) };
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace]).arg(program);
        command
    }
}

/// A server with JetStream.
pub(crate) struct NatsServer {
    program: PathBuf,
    config: PathBuf,
    machine: Machine,
    pub(crate) port: u16,
    guard: Option<Child>,
    #[allow(dead_code, reason = "for tests of the program")]
    pub(crate) pid: u32,
}

impl NatsServer {
    /// Starts a server whose configuration is in `dir`, and waits until it accepts connections.
    fn start(program: &Path, config: PathBuf, machine: Machine, port: u16) -> Self {
        let mut server = Self { program: program.to_owned(), config, machine, port, guard: None, pid: 0 };
        server.resume();
        server
    }

    /// Starts the server again, on the same port and with the same data.
    pub(crate) fn resume(&mut self) {
        let mut command = self.machine.command(Path::new("sh"));
        command.args(["-c", GUARD]).arg(&self.program).arg("-c").arg(&self.config);
        let mut guard = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(guard.stdout.take().unwrap()).read_line(&mut line).unwrap();
        self.pid = line.trim().parse().unwrap();
        self.guard = Some(guard);
        let address = (self.machine.host.as_str(), self.port);
        until("the server accepts connections", || TcpStream::connect(address).is_ok());
    }

    /// Has the server acknowledge before its disk has the message, from its next start on.
    #[allow(dead_code, reason = "for tests of the program")]
    pub(crate) fn unsync(&self) {
        let config = std::fs::read_to_string(&self.config).unwrap();
        std::fs::write(&self.config, config.replace(", sync_interval: always", "")).unwrap();
    }

    /// Kills the server (SIGKILL).
    pub(crate) fn kill(&mut self) {
        if let Some(mut guard) = self.guard.take() {
            drop(guard.stdin.take());
            guard.wait().unwrap();
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://{}:{}", self.machine.host, self.port)
    }

    /// Sends the server a signal, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.pid.to_string()]).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// One server, with what it stores.
pub(crate) struct One {
    pub(crate) server: NatsServer,
    _dir: TempDir,
}

impl One {
    pub(crate) fn start(program: &Path) -> Self {
        Self::start_with(program, "")
    }

    /// Starts a server with more settings.
    pub(crate) fn start_with(program: &Path, settings: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let [port] = free_ports();
        let config = format!(
            "listen: 127.0.0.1:{port}\njetstream {{ store_dir: {:?}, max_file_store: 4GB }}\n{settings}",
            dir.path().join("data")
        );
        let path = dir.path().join("nats.conf");
        std::fs::write(&path, config).unwrap();
        Self { server: NatsServer::start(program, path, Machine::local(), port), _dir: dir }
    }

    pub(crate) fn connect(&self) -> Nats {
        connect([self.server.url()])
    }
}

/// Three servers that replicate.
pub(crate) struct Three {
    pub(crate) servers: Vec<NatsServer>,
    /// The addresses of their monitoring.
    #[allow(dead_code, reason = "for tests of the program")]
    pub(crate) monitors: Vec<String>,
    dir: TempDir,
}

impl Three {
    pub(crate) fn start(program: &Path) -> Self {
        Self::start_on(program, &[(); 3].map(|()| Machine::local()))
    }

    /// Starts one on each machine.
    pub(crate) fn start_on(program: &Path, machines: &[Machine; 3]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ports: [u16; 9] = free_ports();
        let hosts = machines.iter().map(|machine| machine.host.as_str());
        let routes = hosts.clone().zip(&ports[3..6]).map(|(host, port)| format!("nats://{host}:{port}"));
        let routes = routes.collect::<Vec<_>>().join(", ");
        let monitors = hosts.zip(&ports[6..]).map(|(host, port)| format!("http://{host}:{port}")).collect();
        let servers = machines.iter().enumerate().map(|(n, machine)| {
            let (host, [listen, route, monitor]) = (&machine.host, [ports[n], ports[3 + n], ports[6 + n]]);
            let data = dir.path().join(format!("data{n}"));
            let config = format!(
                "server_name: n{n}\nlisten: \"{host}:{listen}\"\nhttp: \"{host}:{monitor}\"\n\
                 jetstream {{ store_dir: {data:?}, max_file_store: 4GB, sync_interval: always }}\n\
                 cluster {{ name: c, listen: \"{host}:{route}\", routes: [{routes}], no_advertise: true }}\n"
            );
            let path = dir.path().join(format!("nats{n}.conf"));
            std::fs::write(&path, config).unwrap();
            NatsServer::start(program, path, machine.clone(), listen)
        });
        Self { servers: servers.collect(), monitors, dir }
    }

    pub(crate) fn connect(&self) -> Nats {
        connect(self.servers.iter().map(NatsServer::url))
    }

    /// Returns where a server stores its data.
    #[allow(dead_code, reason = "for tests of the program")]
    pub(crate) fn data(&self, n: usize) -> PathBuf {
        self.dir.path().join(format!("data{n}"))
    }

    /// Has the servers forget all that they store.
    #[allow(dead_code, reason = "for tests of the program")]
    pub(crate) fn wipe(&mut self) {
        self.servers.iter_mut().for_each(NatsServer::kill);
        for n in 0..self.servers.len() {
            std::fs::remove_dir_all(self.data(n)).unwrap();
        }
        self.servers.iter_mut().for_each(NatsServer::resume);
    }

    /// Returns the number of the server that leads a workspace's stream.
    pub(crate) fn leader(&self, nats: &Nats, workspace: &str) -> usize {
        let mut leader = None;
        until("the stream has a leader", || {
            let stream = runtime().block_on(nats.jetstream().get_stream(format!("LASTWORD_{workspace}")));
            let cluster = stream.ok().and_then(|stream| stream.cached_info().cluster.clone());
            leader = cluster.and_then(|cluster| cluster.leader?.strip_prefix('n')?.parse().ok());
            leader.is_some()
        });
        leader.unwrap()
    }
}

pub(crate) fn connect<S: Into<String>>(servers: impl IntoIterator<Item = S>) -> Nats {
    runtime().block_on(Nats::connect(NatsOptions::new(servers))).unwrap()
}

/// Creates a workspace's stream once enough servers have found each other.
pub(crate) fn create_stream(nats: &Nats, workspace: &str, replicas: usize) {
    until("the stream is created", || runtime().block_on(nats.create_stream(workspace, replicas)).is_ok());
}

/// Occupies the name under which the client library recreates each consumer of a stream that has a reader. The servers refuse
/// the recreated consumer, as they do while they place it on a dead server.
pub(crate) fn spoil_consumers(nats: &Nats, stream: &str) {
    let ask = |subject: String, payload: String| -> Option<serde_json::Value> {
        let answer = runtime().block_on(nats.client().request(subject, payload.into())).ok()?;
        serde_json::from_slice(&answer.payload).ok()
    };
    let mut names = Vec::new();
    until("the consumers have readers", || {
        let consumers = ask(format!("$JS.API.CONSUMER.LIST.{stream}"), String::new());
        let consumers = consumers.as_ref().and_then(|found| found["consumers"].as_array()).into_iter().flatten();
        let read = consumers.filter(|consumer| consumer["push_bound"] == true);
        names = read.map(|consumer| format!("{}_1", consumer["name"].as_str().unwrap())).collect();
        !names.is_empty()
    });
    for name in names {
        // On disk: it outlives a restart of its server.
        let config = serde_json::json!({ "durable_name": name, "ack_policy": "explicit", "num_replicas": 1 });
        let other = serde_json::json!({ "stream_name": stream, "config": config }).to_string();
        until("the name is occupied", || {
            let made = ask(format!("$JS.API.CONSUMER.DURABLE.CREATE.{stream}.{name}"), other.clone());
            made.is_some_and(|made| made["name"] == name.as_str())
        });
    }
}

/// Deletes each consumer of a stream.
#[allow(dead_code, reason = "for tests of the store")]
pub(crate) fn delete_consumers(nats: &Nats, stream: &str) {
    runtime().block_on(async {
        let ask = async |subject: String| nats.client().request(subject, "".into()).await.unwrap();
        let names = ask(format!("$JS.API.CONSUMER.NAMES.{stream}")).await;
        let names: serde_json::Value = serde_json::from_slice(&names.payload).unwrap();
        for name in names["consumers"].as_array().unwrap() {
            ask(format!("$JS.API.CONSUMER.DELETE.{stream}.{}", name.as_str().unwrap())).await;
        }
    });
}
