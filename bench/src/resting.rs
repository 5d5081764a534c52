//! What idle workspaces cost a node: one node over one NATS server, both in processes of their own.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use lastword_client::{Client, Endpoint, Token};
use lastword_cluster::create_workspace;
use lastword_store::{Nats, NatsOptions, Registry};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::clock::now;
use crate::failure::Failure;
use crate::load::Times;
use crate::program::Program;
use crate::standing::Figure;

/// The node's name.
const NODE: &str = "a";
/// The time without a use after which a workspace rests, for the program.
const REST_AFTER: &str = "1s";
/// The workspaces that are registered before those before them rest.
const WAVE: usize = 64;
/// How often the node is asked whether they rest, and for how long.
const PACE: Duration = Duration::from_millis(100);
const REST_WITHIN: Duration = Duration::from_secs(120);
/// The time over which an idle node's processor time is measured.
const IDLE_OVER: Duration = Duration::from_secs(20);
/// The most workspaces that are woken.
const WOKEN_MAX: usize = 200;

/// A process of the measurement; killed when dropped.
struct KilledChild(Child);

impl KilledChild {
    fn start(mut command: Command) -> Result<Self, Failure> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        command.spawn().map(Self).map_err(Failure::unavailable)
    }

    fn path(&self, file: &str) -> Result<PathBuf, Failure> {
        let id = self.0.id().ok_or_else(|| Failure::unavailable("a process has ended"))?;
        Ok(Path::new("/proc").join(id.to_string()).join(file))
    }

    fn count(&self, folder: &str) -> Result<f64, Failure> {
        Ok(std::fs::read_dir(self.path(folder)?)?.count() as f64)
    }

    fn resident_mib(&self) -> Result<f64, Failure> {
        let status = std::fs::read_to_string(self.path("status")?)?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
        Ok(kib.ok_or_else(|| Failure::bug("/proc has no VmRSS"))? / 1024.0)
    }

    fn processor_seconds(&self) -> Result<f64, Failure> {
        let stat = std::fs::read_to_string(self.path("stat")?)?;
        // After the name in brackets, user and system time are the 12th and 13th fields, in hundredths of a second.
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
        Ok(fields.filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / 100.0)
    }

    /// Ends it in order.
    async fn end(mut self) -> Result<(), Failure> {
        let id = self.0.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
        let id = id.ok_or_else(|| Failure::unavailable("a process has ended"))?;
        rustix::process::kill_process(id, rustix::process::Signal::TERM).map_err(Failure::unavailable)?;
        self.0.wait().await.map(|_| ()).map_err(Failure::unavailable)
    }
}

/// What is measured, and with what.
pub(crate) struct Resting<'a> {
    /// The program whose node is measured.
    pub(crate) program: &'a Program,
    /// The NATS server that it runs over.
    pub(crate) nats_server: &'a Path,
    /// The number of workspaces.
    pub(crate) workspaces: usize,
}

impl Resting<'_> {
    /// Registers the workspaces, waits until they rest, starts the node anew, and wakes some of them one by one.
    pub(crate) async fn run(&self, dir: &Path, progress: impl Fn(usize)) -> Result<Vec<Figure>, Failure> {
        let (port, monitor) = (free_port()?, free_port()?);
        let nats_process = self.nats(dir, port, monitor)?;
        let url = format!("nats://127.0.0.1:{port}");
        let (nats, registry) = connected(&url).await?;
        let serve = async || self.node(dir, &url, monitor).await;
        let (node, _) = serve().await?;
        let begin = now();
        let mut known = Vec::new();
        for n in 0..self.workspaces {
            let name = format!("team-{n}");
            create_workspace(&nats, &registry, &name, 1).await.map_err(Failure::unavailable)?;
            known.push(name);
            if known.len() % WAVE == 0 || known.len() == self.workspaces {
                at_rest(&registry, known.len()).await?;
                progress(known.len());
            }
        }
        let made = begin.elapsed();
        let after = node.resident_mib()?;
        node.end().await?;
        let begin = now();
        let (node, url) = serve().await?;
        let started = begin.elapsed();
        // What a start leaves to do, such as the records that it hears.
        tokio::time::sleep(IDLE_OVER / 4).await;
        let before = [node.processor_seconds()?, nats_process.processor_seconds()?];
        tokio::time::sleep(IDLE_OVER).await;
        let used = [node.processor_seconds()? - before[0], nats_process.processor_seconds()? - before[1]];
        let share = |used: f64| 100.0 * used / IDLE_OVER.as_secs_f64();
        let of = |what: &str| format!("{what}, {} workspaces at rest", self.workspaces);
        let mut figures = vec![
            Figure::new(
                of("register, first use and rest, each"),
                1e3 * made.as_secs_f64() / self.workspaces as f64,
                "ms",
            ),
            Figure::new(of("node: resident when all rest"), after, "MiB"),
            Figure::new(of("node: start"), started.as_secs_f64(), "s"),
            Figure::new(of("node: resident after a start"), node.resident_mib()?, "MiB"),
            Figure::new(of("node: threads"), node.count("task")?, ""),
            Figure::new(of("node: open files"), node.count("fd")?, ""),
            Figure::new(of("node: idle processor"), share(used[0]), "% of a core"),
            Figure::new(of("NATS: resident"), nats_process.resident_mib()?, "MiB"),
            Figure::new(of("NATS: idle processor"), share(used[1]), "% of a core"),
        ];
        let mut times = Times::default();
        let step = self.workspaces.div_ceil(WOKEN_MAX).max(1);
        for name in known.iter().step_by(step) {
            let token = std::fs::read_to_string(dir.join(NODE).join(name).join("operator.token"))?;
            let client = Client::new(&Endpoint::new(&format!("{url}/w/{name}")), Some(Token::new(token.trim())?))?;
            let begin = now();
            client.agents().await?;
            times.push(begin.elapsed());
        }
        for percentile in [50, 99] {
            let what = of(&format!("a call that wakes one, p{percentile}"));
            figures.push(Figure::new(what, times.at(percentile), "ms"));
        }
        node.end().await?;
        Ok(figures)
    }

    /// Starts the NATS server.
    fn nats(&self, dir: &Path, port: u16, monitor: u16) -> Result<KilledChild, Failure> {
        let (data, config) = (dir.join("nats"), dir.join("nats.conf"));
        let text = format!(
            "listen: 127.0.0.1:{port}\nhttp: 127.0.0.1:{monitor}\n\
             jetstream {{ store_dir: {data:?}, sync_interval: always }}\n"
        );
        std::fs::write(&config, text)?;
        let mut command = Command::new(self.nats_server);
        command.arg("-c").arg(&config);
        KilledChild::start(command)
    }

    /// Starts the node; returns it with its address.
    async fn node(&self, dir: &Path, nats: &str, monitor: u16) -> Result<(KilledChild, String), Failure> {
        let mut command = self.program.command();
        command.arg("--data").arg(dir.join(NODE)).args(["--json", "serve", "--listen", "127.0.0.1:0"]);
        command.args(["--cluster", nats, "--node", NODE, "--replicas", "1", "--rest-after", REST_AFTER]);
        command.arg("--nats-monitor").arg(format!("http://127.0.0.1:{monitor}")).current_dir(dir);
        let mut node = KilledChild::start(command)?;
        let stdout = node.0.stdout.take().ok_or_else(|| Failure::bug("the node has no output"))?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).await.map_err(Failure::unavailable)?;
        let started: Value = serde_json::from_str(&line).map_err(|_| Failure::unavailable("the node did not start"))?;
        let url = started["listening"].as_str().ok_or_else(|| Failure::bug("the node doesn't report its address"))?;
        Ok((node, url.to_owned()))
    }
}

/// Waits until NATS answers.
async fn connected(url: &str) -> Result<(Nats, Registry), Failure> {
    let begin = now();
    loop {
        let connected = async {
            let nats = Nats::connect(NatsOptions::new([url])).await.map_err(Failure::unavailable)?;
            let registry = Registry::open(&nats, 1).await.map_err(Failure::unavailable)?;
            Ok::<_, Failure>((nats, registry))
        };
        match connected.await {
            Err(_) if begin.elapsed() < REST_WITHIN => tokio::time::sleep(PACE).await,
            connected => return connected,
        }
    }
}

/// Waits until all workspaces but one, that of calls that name none, are at rest.
async fn at_rest(registry: &Registry, count: usize) -> Result<(), Failure> {
    let begin = now();
    loop {
        let leases = registry.list("lease.").await.map_err(Failure::unavailable)?;
        let rests =
            |value: &Vec<u8>| serde_json::from_slice::<Value>(value).is_ok_and(|lease| lease["rest"].is_object());
        let found = leases.iter().filter(|lease| lease.value.as_ref().is_some_and(rests)).count();
        if found >= count {
            return Ok(());
        }
        if begin.elapsed() > REST_WITHIN {
            return Err(Failure::unavailable(format!("only {found} of {count} workspaces rest")));
        }
        tokio::time::sleep(PACE).await;
    }
}

fn free_port() -> Result<u16, Failure> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
