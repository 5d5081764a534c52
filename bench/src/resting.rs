//! What idle workspaces cost a node, and what follows if it dies: nodes over one NATS server, all in processes of their own.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use lastword_client::{Client, Endpoint, Token};
use lastword_cluster::create_workspace;
use lastword_store::{Nats, NatsOptions, Registry};
use lastword_wire::NewAgent;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::clock::now;
use crate::failure::Failure;
use crate::load::Times;
use crate::program::Program;
use crate::standing::Figure;

/// The nodes' names.
const NODES: [&str; 2] = ["a", "b"];
/// The time without a use after which a workspace rests, for the program: soon, or longer than a measurement.
const SOON: &str = "1s";
const LATE: &str = "12h";
/// The workspaces that are registered before those before them rest.
const WAVE: usize = 64;
/// How often the node is asked whether they rest, and for how long.
const PACE: Duration = Duration::from_millis(100);
const REST_WITHIN: Duration = Duration::from_secs(120);
/// The time over which an idle node's processor time is measured.
const IDLE_OVER: Duration = Duration::from_secs(20);
/// The most workspaces that are woken.
const WOKEN_MAX: usize = 200;
/// How long each workspace has had the same leader, once the nodes have settled.
const SETTLED: Duration = Duration::from_secs(8);
/// The longest wait for one answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

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
    /// The number of those that are in use.
    pub(crate) awake: usize,
}

/// A node that runs.
struct RunningNode {
    process: KilledChild,
    url: String,
}

/// What the processes run on.
struct Ground<'a> {
    dir: &'a Path,
    nats: String,
    monitor: u16,
}

impl Resting<'_> {
    /// Registers the workspaces, waits until they rest, starts the node anew, and wakes some of them one by one. With some that
    /// are in use, starts a second node, and kills the first.
    pub(crate) async fn run(&self, dir: &Path, progress: impl Fn(usize)) -> Result<Vec<Figure>, Failure> {
        let (port, monitor) = (free_port()?, free_port()?);
        let nats_process = self.nats(dir, port, monitor)?;
        let ground = Ground { dir, nats: format!("nats://127.0.0.1:{port}"), monitor };
        let (nats, registry) = connected(&ground.nats).await?;
        let serve = async || self.node(&ground, NODES[0], SOON).await;
        let RunningNode { process: node, .. } = serve().await?;
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
        let RunningNode { process: node, url } = serve().await?;
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
            let client = ground.client(&url, name)?;
            let begin = now();
            client.agents().await?;
            times.push(begin.elapsed());
        }
        for percentile in [50, 99] {
            let what = of(&format!("a call that wakes one, p{percentile}"));
            figures.push(Figure::new(what, times.at(percentile), "ms"));
        }
        at_rest(&registry, known.len()).await?;
        node.end().await?;
        if self.awake > 0 {
            figures.extend(self.in_use(&ground, &registry, &known).await?);
        }
        Ok(figures)
    }

    /// Measures a node while some of its workspaces are in use, and how long all are away when it dies.
    async fn in_use(&self, ground: &Ground<'_>, registry: &Registry, known: &[String]) -> Result<Vec<Figure>, Failure> {
        let of = |what: &str| format!("{what}, {} workspaces, {} in use", self.workspaces, self.awake);
        let serve = async |name| self.node(ground, name, LATE).await;
        let (awake, resting) = known.split_at((2 * self.awake).min(known.len() / 2));
        let first = serve(NODES[0]).await?;
        let agent: NewAgent = serde_json::from_value(json!({ "name": "worker" })).map_err(Failure::bug)?;
        // What was only read since it woke rests soon under another leader.
        let write = async |url: &str, names: &[String]| {
            for name in names {
                ground.client(url, name)?.register(&agent).await?;
            }
            Ok::<_, Failure>(())
        };
        let (some, more) = awake.split_at(awake.len() / 2);
        write(&first.url, some).await?;
        first.process.end().await?;
        let begin = now();
        let mut first = serve(NODES[0]).await?;
        let started = begin.elapsed();
        let back = answered(ground, &first.url, some).await?;
        tokio::time::sleep(IDLE_OVER / 4).await;
        let before = first.process.processor_seconds()?;
        tokio::time::sleep(IDLE_OVER).await;
        let used = first.process.processor_seconds()? - before;
        let mut figures = vec![
            Figure::new(of("node: start"), started.as_secs_f64(), "s"),
            Figure::new(of("node: those in use answer after its start"), back.at(100) / 1e3, "s"),
            Figure::new(of("node: resident"), first.process.resident_mib()?, "MiB"),
            Figure::new(of("node: threads"), first.process.count("task")?, ""),
            Figure::new(of("node: open files"), first.process.count("fd")?, ""),
            Figure::new(of("node: idle processor"), 100.0 * used / IDLE_OVER.as_secs_f64(), "% of a core"),
        ];
        // As many again, of which the second node leads half.
        write(&first.url, more).await?;
        let second = serve(NODES[1]).await?;
        let led = settled(registry).await?;
        let led: Vec<String> = awake.iter().filter(|name| led.contains(name)).cloned().collect();
        first.process.0.kill().await.map_err(Failure::unavailable)?;
        let back = answered(ground, &second.url, &led).await?;
        let step = (2 * resting.len()).div_ceil(WOKEN_MAX).max(2);
        let mut one = Times::default();
        for name in resting.iter().step_by(step) {
            one.extend(answered(ground, &second.url, std::slice::from_ref(name)).await?);
        }
        let sample: Vec<String> = resting.iter().skip(1).step_by(step).cloned().collect();
        let many = answered(ground, &second.url, &sample).await?;
        let dies = |what: &str| {
            format!("a node dies that led {}, {} in use: {what}", known.len() - awake.len() + led.len(), led.len())
        };
        figures.push(Figure::new(dies("the last in use answers"), back.at(100) / 1e3, "s"));
        figures.push(Figure::new(dies("those in use answer, p50"), back.at(50) / 1e3, "s"));
        let together = format!("one of {} first calls at once", sample.len());
        for (what, times) in [("the first call of one at rest", &one), (together.as_str(), &many)] {
            for percentile in [50, 99] {
                figures.push(Figure::new(dies(&format!("{what}, p{percentile}")), times.at(percentile), "ms"));
            }
        }
        figures.push(Figure::new(dies("resident"), second.process.resident_mib()?, "MiB"));
        second.process.end().await?;
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

    /// Starts a node.
    async fn node(&self, ground: &Ground<'_>, name: &str, rest_after: &str) -> Result<RunningNode, Failure> {
        let mut command = self.program.command();
        command.arg("--data").arg(ground.dir.join(name)).args(["--json", "serve", "--listen", "127.0.0.1:0"]);
        command.args(["--cluster", &ground.nats, "--node", name, "--replicas", "1", "--rest-after", rest_after]);
        command.arg("--nats-monitor").arg(format!("http://127.0.0.1:{}", ground.monitor)).current_dir(ground.dir);
        let mut process = KilledChild::start(command)?;
        let stdout = process.0.stdout.take().ok_or_else(|| Failure::bug("the node has no output"))?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).await.map_err(Failure::unavailable)?;
        let started: Value = serde_json::from_str(&line).map_err(|_| Failure::unavailable("the node did not start"))?;
        let url = started["listening"].as_str().ok_or_else(|| Failure::bug("the node doesn't report its address"))?;
        Ok(RunningNode { process, url: url.to_owned() })
    }
}

impl Ground<'_> {
    /// Returns a client of a workspace at a node.
    fn client(&self, url: &str, workspace: &str) -> Result<Client, Failure> {
        let token = std::fs::read_to_string(self.dir.join(NODES[0]).join(workspace).join("operator.token"))?;
        Ok(Client::new(&Endpoint::new(&format!("{url}/w/{workspace}")), Some(Token::new(token.trim())?))?)
    }
}

/// Calls each of these workspaces at a node, all at once, until it answers; returns how long each took.
async fn answered(ground: &Ground<'_>, url: &str, workspaces: &[String]) -> Result<Times, Failure> {
    let clients: Result<Vec<Client>, Failure> = workspaces.iter().map(|name| ground.client(url, name)).collect();
    let begin = now();
    let calls = clients?.into_iter().map(async |client| {
        while !matches!(tokio::time::timeout(ANSWER_MAX, client.agents()).await, Ok(Ok(_))) {
            if begin.elapsed() > REST_WITHIN {
                return Err(Failure::unavailable("a workspace doesn't answer"));
            }
            tokio::time::sleep(PACE / 10).await;
        }
        Ok(begin.elapsed())
    });
    let mut times = Times::default();
    for took in futures_util::future::join_all(calls).await {
        times.push(took?);
    }
    Ok(times)
}

/// Waits until no workspace changes its leader; returns those that the first node leads.
async fn settled(registry: &Registry) -> Result<Vec<String>, Failure> {
    let (begin, mut since, mut before) = (now(), now(), Vec::new());
    loop {
        let leases = registry.list("lease.").await.map_err(Failure::unavailable)?;
        let of = |node: &str| -> Vec<String> {
            let leads = |value: &Vec<u8>| {
                serde_json::from_slice::<Value>(value)
                    .is_ok_and(|lease| lease["node"] == node && lease["released"] == false)
            };
            let led = leases.iter().filter(|lease| lease.value.as_ref().is_some_and(leads));
            led.map(|lease| lease.key.trim_start_matches("lease.").to_owned()).collect()
        };
        let led = of(NODES[0]);
        if led != before || of(NODES[1]).is_empty() {
            (before, since) = (led, now());
        } else if since.elapsed() > SETTLED {
            return Ok(led);
        }
        if begin.elapsed() > REST_WITHIN {
            let (led, others) = (before.len(), of(NODES[1]).len());
            return Err(Failure::unavailable(format!("the nodes don't settle: {led} and {others}")));
        }
        tokio::time::sleep(PACE).await;
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
