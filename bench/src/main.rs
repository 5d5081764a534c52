//! `lastword-bench`: the cost of a message on this machine, as ratios to a bare file in the same run.

mod aged;
mod bare;
mod clock;
mod cluster;
mod crowd;
mod failure;
mod load;
mod pages;
#[cfg(feature = "peers")]
mod peers;
#[cfg(not(feature = "peers"))]
#[path = "without_peers.rs"]
mod peers;
mod program;
mod raw;
mod readers;
mod resting;
mod sessions;
mod setup;
mod soak;
mod standing;
mod systems;
mod telemetry;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lastword_facts::Limits;
use lastword_server::{Config, Server, WorkspaceSettings};
use serde::Serialize;

use crate::bare::bare_file;
use crate::crowd::Crowd;
use crate::failure::Failure;
use crate::load::{Load, Measured, exchange_http, in_process, send_http, settled};
use crate::peers::Connected;
use crate::program::Program;
use crate::resting::Resting;
use crate::soak::{Sample, Soak};
use crate::standing::{Figure, Wait};
use crate::systems::{PeerRow, Peers, Work};

/// The allocator of `lastword`, so that the same one is measured.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measure what a message costs on this machine.
#[derive(Debug, clap::Parser)]
#[command(version, name = "lastword-bench", after_help = EXAMPLES)]
struct Args {
    /// What to measure
    #[arg(value_enum, default_value_t = What::Load)]
    what: What,
    /// Duration of each load measurement, in seconds
    #[arg(long, default_value = "3", value_parser = seconds)]
    seconds: Duration,
    /// Message length of a load, in bytes
    #[arg(long, default_value_t = 400)]
    body_bytes: usize,
    /// Number of waiting agents
    #[arg(long, default_value_t = 1_000)]
    agents: usize,
    /// Number of open conversations
    #[arg(long, default_value_t = 20_000)]
    conversations: usize,
    /// Number of messages in the long log
    #[arg(long, default_value_t = 100_000)]
    messages: usize,
    /// Number of conversations behind the console's pages
    #[arg(long, default_value_t = 5_000)]
    talks: usize,
    /// Number of facts in a log that grew over ten weeks
    #[arg(long, default_value_t = 1_000_000)]
    facts: u64,
    /// Duration of a soak, in minutes
    #[arg(long, default_value = "30", value_parser = minutes)]
    minutes: Duration,
    /// Messages per second of a soak: requests and answers together
    #[arg(long, default_value = "1000", value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// The server's `retention_ms` in a soak, in seconds
    #[arg(long, default_value = "300", value_parser = seconds)]
    retention_seconds: Duration,
    /// Directory for the data, on the disk to measure [default: the system's temporary directory]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// The program whose server and commands are measured [default: `lastword` beside this program]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// NATS servers of a cluster, with commas between them
    #[arg(long, value_name = "URLS", value_delimiter = ',')]
    cluster: Vec<String>,
    /// Number of workspaces, most of them idle
    #[arg(long, default_value_t = 1_000)]
    workspaces: usize,
    /// Number of those in use
    #[arg(long, default_value_t = 0)]
    awake: usize,
    /// The NATS server that a measurement starts [default: `nats-server` of the path]
    #[arg(long, value_name = "FILE", default_value = "nats-server", hide_default_value = true)]
    nats_server: PathBuf,
    /// NATS servers on which a log is stored
    #[arg(long, default_value_t = 3)]
    replicas: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    peers: Peers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum What {
    /// Durable messages per second, as ratios to a bare file
    Load,
    /// Lag of the read model behind the log under full load
    Lag,
    /// Memory of an idle server, and of open conversations
    Memory,
    /// Agents waiting in long polls, and in sessions
    Idle,
    /// `--agents` in sessions that exchange requests, while some readers are slow and some stop, for `--seconds` twice:
    /// what is lost, comes twice or makes the memory grow is a failure; not part of `all`
    Sessions,
    /// Audits of a long log, and starts on it
    Long,
    /// A start on a log that grew over ten weeks
    Start,
    /// `lastword send`, from its start to its exit
    Command,
    /// The console's pages on a large workspace, of `--messages` in `--talks`; not part of `all`
    Pages,
    /// Durable messages per second of a workspace on JetStream, beside JetStream's own acknowledged messages; needs
    /// `--cluster`, and is not part of `all`
    Cluster,
    /// A node with `--workspaces` idle workspaces, over a NATS server that it starts. With `--awake`: while that many of them are in
    /// use, and a node that dies and led most of all. Not part of `all`
    Resting,
    /// What the export of spans costs: exchanges without and with it, and while the receiver is down; not part of `all`
    Telemetry,
    /// Memory of a server at a steady rate of messages for half an hour, which is not part of `all`
    Soak,
    /// All measurements
    All,
}

/// One row of the report's load table.
#[derive(Debug, Serialize)]
struct ReportRow {
    what: &'static str,
    in_flight: usize,
    #[serde(flatten)]
    measured: Measured,
    /// Inputs per second that are each acknowledged from disk.
    durable_per_second: f64,
    ratio_to_bare_file: f64,
}

/// The measurements of a run.
#[derive(Debug, Default, Serialize)]
struct Measurements {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    load: Vec<ReportRow>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cluster: Vec<ReportRow>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    peers: Vec<PeerRow>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    figures: Vec<Figure>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    soak: Vec<Sample>,
}

const EXAMPLES: &str = "Examples:
  lastword-bench load --seconds 3
  lastword-bench memory --conversations 100000 --json
  lastword-bench sessions --agents 10000 --seconds 30
  lastword-bench soak --minutes 30 --rate 1000
  lastword-bench telemetry --seconds 10
  lastword-bench cluster --cluster nats://127.0.0.1:4221,nats://127.0.0.1:4222
  lastword-bench resting --workspaces 1000 --awake 100 --nats-server nats-server";

/// Returns limits that suit a load whose messages are never taken, and an agent at full speed for the whole of it.
fn limits() -> Limits {
    let (agent_day_tokens_max, agent_day_bytes_max) = (program::WHOLE_DAY.tokens, program::WHOLE_DAY.bytes);
    Limits { inbox_max: 1_000_000, agent_day_tokens_max, agent_day_bytes_max, ..Limits::default() }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let ended = run(&args);
    let Err(failure) = ended else { return ExitCode::SUCCESS };
    let mut stderr = std::io::stderr().lock();
    // The exit code still reports the failure if standard error is closed.
    let _printed = writeln!(stderr, "error: {}", failure.message)
        .and_then(|()| failure.hint.iter().try_for_each(|hint| writeln!(stderr, "hint: {hint}")));
    failure.exit.into()
}

fn run(args: &Args) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let report = runtime.block_on(measure(args))?;
    let text = if args.json { serde_json::to_string(&report).map_err(Failure::bug)? } else { report.words() };
    Ok(writeln!(std::io::stdout().lock(), "{text}")?)
}

/// A progress bar on standard error; hidden with `--json`, and where standard error isn't a terminal.
fn bar(args: &Args) -> ProgressBar {
    let target = if args.json { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {eta} {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(Some(0), target).with_style(style)
}

async fn measure(args: &Args) -> Result<Measurements, Failure> {
    let dir = match &args.dir {
        Some(dir) => tempfile::tempdir_in(dir),
        None => tempfile::tempdir(),
    }?;
    let program = Program::find(args.program.clone())?;
    let wanted = |what| args.what == what || args.what == What::All;
    let mut report = Measurements::default();
    let peers = if args.peers.any() {
        if !wanted(What::Load) {
            return Err(Failure::usage("--redis and --nats apply to `lastword-bench load` and `all` only"));
        }
        Some(Connected::to(&args.peers).await?)
    } else {
        None
    };
    if wanted(What::Load) {
        (report.load, report.peers) = loads(args, &program, dir.path(), peers.as_ref()).await?;
    }
    let bar = bar(args);
    if wanted(What::Lag) {
        let server = started(&dir.path().join("lag")).await?;
        report.figures.extend(standing::lag(&server, args.load(128)).await?);
        server.shutdown().await;
    }
    if wanted(What::Memory) {
        report.figures.extend(standing::memory(&program, dir.path(), args.conversations).await?);
    }
    if wanted(What::Idle) {
        for wait in [Wait::Poll, Wait::Session] {
            report.figures.extend(standing::idle(&program, dir.path(), args.agents, wait).await?);
        }
    }
    if wanted(What::Long) {
        bar.set_length(args.messages as u64);
        report
            .figures
            .extend(standing::long(&program, dir.path(), args.messages, |done| bar.set_position(done as u64)).await?);
    }
    if wanted(What::Start) {
        bar.set_length(args.facts);
        report.figures.extend(aged::start(&program, dir.path(), args.facts, |done| bar.set_position(done)).await?);
    }
    if wanted(What::Command) {
        report.figures.extend(standing::command(&program, dir.path()).await?);
    }
    if args.what == What::Pages {
        bar.set_length(args.talks as u64);
        report.figures.extend(
            pages::pages(&program, dir.path(), args.talks, args.messages, |done| bar.set_position(done)).await?,
        );
    }
    if args.what == What::Sessions {
        report.figures = sessions(args, &program, dir.path(), &bar).await?;
    }
    if args.what == What::Telemetry {
        report.figures = telemetry::cost(&program, dir.path(), args.load(128), |step| bar.set_message(step)).await?;
    }
    if args.what == What::Cluster {
        report.cluster = cluster::loads(args, dir.path()).await?;
    }
    if args.what == What::Resting {
        report.figures = resting(args, &program, dir.path(), &bar).await?;
    }
    if args.what == What::Soak {
        (report.soak, report.figures) = soak(args, &program, dir.path(), &bar).await?;
    }
    bar.finish_and_clear();
    Ok(report)
}

async fn resting(args: &Args, program: &Program, dir: &Path, bar: &ProgressBar) -> Result<Vec<Figure>, Failure> {
    bar.set_length(args.workspaces as u64);
    let resting = Resting { program, nats_server: &args.nats_server, workspaces: args.workspaces, awake: args.awake };
    resting.run(dir, |done| bar.set_position(done as u64)).await
}

async fn soak(
    args: &Args,
    program: &Program,
    dir: &Path,
    bar: &ProgressBar,
) -> Result<(Vec<Sample>, Vec<Figure>), Failure> {
    bar.set_length(args.minutes.as_secs());
    let progress = |gone: Duration, sample: &Sample| {
        bar.set_position(gone.as_secs());
        bar.set_message(format!("{:.1} MiB resident", sample.resident_mib));
    };
    args.soak().run(program, dir, progress).await
}

async fn sessions(args: &Args, program: &Program, dir: &Path, bar: &ProgressBar) -> Result<Vec<Figure>, Failure> {
    bar.set_style(ProgressStyle::default_spinner());
    bar.enable_steady_tick(Duration::from_millis(200));
    let crowd = Crowd { agents: args.agents, time: args.seconds, body: args.body_bytes };
    crowd.run(program, dir, |step| bar.set_message(step)).await
}

/// The limits of a server in its own process: room for what is never taken, and for all requests in flight at once.
const SERVED_LIMITS: &str = "inbox_max = 1000000\nagent_turns_max = 256\n";

const fn over_sessions(work: Work) -> &'static str {
    match work {
        Work::Message => "sessions: send, delivery, ack",
        Work::Exchange => "sessions: send, delivery, finish, answer",
    }
}

async fn started(data: &Path) -> Result<Server, Failure> {
    let settings = WorkspaceSettings { limits: limits(), ..WorkspaceSettings::default() };
    Ok(Server::start(Config {
        settings,
        mounts: vec![lastword_mcp::mount()],
        pages: lastword_console::pages(),
        ..Config::local(data)
    })
    .await?)
}

async fn loads(
    args: &Args,
    program: &Program,
    dir: &Path,
    peers: Option<&Connected>,
) -> Result<(Vec<ReportRow>, Vec<PeerRow>), Failure> {
    let load = |in_flight| args.load(in_flight);
    let server = started(&dir.join("load")).await?;
    let served = program.serve_with(&dir.join("served"), SERVED_LIMITS).await?;
    let bar = bar(args);
    bar.set_length(10);
    let (mut lines, mut beside) = (Vec::new(), Vec::new());
    for in_flight in [1, 128] {
        settled(&server, &served).await?;
        let bare = bare_file(dir, load(in_flight)).await?;
        let base = bare.per_second;
        lines.push(ReportRow::new("bare file: append, fdatasync", in_flight, bare, 1.0, base));
        bar.inc(1);
        let whole = in_process(&server, load(in_flight)).await?;
        lines.push(ReportRow::new("in process: send, take, finish", in_flight, whole, 3.0, base));
        bar.inc(1);
        for (work, durable) in [(Work::Message, 2.0), (Work::Exchange, 4.0)] {
            settled(&server, &served).await?;
            let measured = sessions::measure(&served, work, load(in_flight)).await?;
            lines.push(ReportRow::new(over_sessions(work), in_flight, measured, durable, base));
            bar.inc(1);
        }
        if let Some(peers) = peers {
            beside.extend(peers.rows(&server, &served, load(in_flight), base).await?);
        }
    }
    let base = lines[4].measured.per_second;
    settled(&server, &served).await?;
    lines.push(ReportRow::new("HTTP: send", 64, send_http(&served.human, load(64)).await?, 1.0, base));
    settled(&server, &served).await?;
    lines.push(ReportRow::new(
        "HTTP: send, inbox, finish, answer",
        64,
        exchange_http(&served.human, load(64)).await?,
        3.0,
        base,
    ));
    bar.finish_and_clear();
    server.shutdown().await;
    served.end().await?;
    Ok((lines, beside))
}

/// Reads a number of minutes, for clap.
fn minutes(text: &str) -> Result<Duration, String> {
    seconds(text).map(|time| time * 60).map_err(|told| told.replace("seconds", "minutes"))
}

/// Reads a number of seconds, for clap.
fn seconds(text: &str) -> Result<Duration, String> {
    let time = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.filter(|time| !time.is_zero()).ok_or_else(|| format!("{text:?} isn't a number of seconds such as 3 or 0.5"))
}

impl Args {
    const fn load(&self, in_flight: usize) -> Load {
        Load { in_flight, time: self.seconds, body: self.body_bytes }
    }

    fn soak(&self) -> Soak {
        let rate = f64::from(self.rate);
        Soak { time: self.minutes, rate, retention: self.retention_seconds, body: self.body_bytes }
    }
}

impl Measurements {
    fn words(&self) -> String {
        let load: Vec<_> = self.load.iter().map(ReportRow::cells).collect();
        let head = ["what", "in flight", "a second", "p50 ms", "p99 ms", "durable inputs/s", "x bare file"];
        let load = (!load.is_empty()).then(|| table(&head, &load));
        let cluster: Vec<_> = self.cluster.iter().map(ReportRow::cells).collect();
        let head = ["what", "in flight", "a second", "p50 ms", "p99 ms", "durable inputs/s", "x plain message"];
        let cluster = (!cluster.is_empty()).then(|| table(&head, &cluster));
        let peers: Vec<_> = self.peers.iter().map(PeerRow::cells).collect();
        let head = ["what", "in flight", "a second", "p50 ms", "p99 ms", "x bare file", "ours x theirs", "on disk"];
        let peers = (!peers.is_empty()).then(|| table(&head, &peers));
        let figures: Vec<_> = self.figures.iter().map(Figure::cells).collect();
        let figures = (!figures.is_empty()).then(|| table(&["what", "measured", ""], &figures));
        let soak: Vec<_> = self.soak.iter().map(Sample::cells).collect();
        let head = ["minutes", "messages", "resident MiB", "log MiB", "read model MiB"];
        let soak = (!soak.is_empty()).then(|| table(&head, &soak));
        load.into_iter().chain(cluster).chain(peers).chain(soak).chain(figures).collect::<Vec<_>>().join("\n\n")
    }
}

impl Figure {
    fn cells(&self) -> Vec<String> {
        let value = if self.value < 100.0 { format!("{:.2}", self.value) } else { format!("{:.0}", self.value) };
        vec![self.what.clone(), value, self.unit.to_owned()]
    }
}

impl PeerRow {
    fn cells(&self) -> Vec<String> {
        vec![
            self.what.clone(),
            self.in_flight.to_string(),
            format!("{:.0}", self.measured.per_second),
            format!("{:.2}", self.measured.p50_ms),
            format!("{:.2}", self.measured.p99_ms),
            format!("{:.2}", self.ratio_to_bare_file),
            self.ours_to_theirs.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
            self.acknowledged_on_disk.clone(),
        ]
    }
}

impl ReportRow {
    fn new(what: &'static str, in_flight: usize, measured: Measured, durable: f64, bare: f64) -> Self {
        let durable_per_second = measured.per_second * durable;
        Self { what, in_flight, ratio_to_bare_file: durable_per_second / bare, durable_per_second, measured }
    }

    fn cells(&self) -> Vec<String> {
        vec![
            self.what.to_owned(),
            self.in_flight.to_string(),
            format!("{:.0}", self.measured.per_second),
            format!("{:.2}", self.measured.p50_ms),
            format!("{:.2}", self.measured.p99_ms),
            format!("{:.0}", self.durable_per_second),
            format!("{:.2}", self.ratio_to_bare_file),
        ]
    }
}

/// Lays out rows in aligned columns.
fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([head[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let padded: Vec<String> = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        padded.join("  ").trim_end().to_owned()
    };
    let rows = rows.iter().map(|row| line(row.iter().map(String::as_str).collect()));
    std::iter::once(line(head.to_vec())).chain(rows).collect::<Vec<_>>().join("\n")
}
