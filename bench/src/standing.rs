//! Measures a running server: memory, waiting agents, audits of a long log, starts.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use lastword_client::{Client, MessageQuery};
use lastword_facts::Seq;
use lastword_server::{Config, Server, WorkspaceSettings};
use lastword_store::DataDir;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use crate::clock::now;
use crate::failure::Failure;
use crate::load::{self, Load, Times};
use crate::program::Program;
use crate::raw;
use crate::setup::at_once;

/// Agents in a filled log.
const TEAM: usize = 20;
/// Requests per conversation of a filled log; each has its answer.
const REQUESTS: usize = 10;
/// Queries of each kind on a filled log.
const QUESTIONS: usize = 100;

/// One measured value.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct Figure {
    /// The name of the figure, with the sizes of the run.
    pub(crate) what: String,
    /// The value, in `unit`.
    pub(crate) value: f64,
    /// The unit, such as `ms`, `MiB` or `%`.
    pub(crate) unit: &'static str,
}

impl Figure {
    pub(crate) fn new(what: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self { what: what.into(), value, unit }
    }

    fn percentiles(what: &str, times: &Times) -> [Self; 2] {
        [Self::new(format!("{what}, p50"), times.at(50), "ms"), Self::new(format!("{what}, p95"), times.at(95), "ms")]
    }
}

/// Measures the read model's lag behind the log while 128 exchanges are in flight.
pub(crate) async fn lag(server: &Server, load: Load) -> Result<Vec<Figure>, Failure> {
    // A separate task, because it would otherwise wait for its turn among the exchanges.
    let (stop, stopped) = oneshot::channel();
    let mut watching = JoinSet::new();
    watching.spawn(watch_lag(server.handle().committed(), server.indexed(), stopped));
    load::in_process(server, load).await?;
    drop(stop);
    let times = watching.join_next().await.ok_or_else(|| Failure::bug("nobody watched"))?.map_err(Failure::bug)?;
    let mut figures = Figure::percentiles("read model behind the log, 128 exchanges in flight", &times).to_vec();
    figures.push(Figure::new("the same, at most", times.at(100), "ms"));
    Ok(figures)
}

/// Measures again and again how long it takes until everything committed is in the read model.
async fn watch_lag(
    mut committed: watch::Receiver<Seq>,
    mut indexed: watch::Receiver<Seq>,
    mut stopped: oneshot::Receiver<()>,
) -> Times {
    let mut times = Times::default();
    loop {
        let (begin, wanted) = (now(), *committed.borrow_and_update());
        let next = async {
            indexed.wait_for(|seq| *seq >= wanted).await.map(|_| ())?;
            let took = begin.elapsed();
            committed.changed().await.map(|()| took)
        };
        tokio::select! {
            // After the load nothing more is committed.
            _ = &mut stopped => return times,
            Ok(took) = next => times.push(took),
            else => return times,
        }
    }
}

/// Measures resident memory per open conversation: a human's request that no agent has taken, everything in the server
/// included. The first fifth isn't counted: it fills the bounded parts, such as caches and the newest entries.
pub(crate) async fn memory(program: &Program, dir: &Path, conversations: usize) -> Result<Vec<Figure>, Failure> {
    let child = program.serve(&dir.join("memory"), conversations).await?;
    let idle = child.resident()?;
    let agents = child.agents(TEAM).await?;
    let human = &child.human;
    let one = |n: usize| {
        let to = agents[n % TEAM].0.clone();
        async move {
            human
                .send(&request(&to, &format!("OPEN-{n}"), &"x".repeat(400))?, &Default::default())
                .await
                .map_err(Failure::from)
        }
    };
    let first = conversations / 5;
    at_once((0..first).map(one)).await?;
    let before = child.resident()?;
    at_once((first..conversations).map(one)).await?;
    let grown = child.resident()?.saturating_sub(before) as f64;
    child.end().await?;
    Ok(vec![
        Figure::new("idle server, resident", idle as f64 / 1024.0 / 1024.0, "MiB"),
        Figure::new(
            format!("{conversations} open conversations, resident, each"),
            grown / (conversations - first) as f64,
            "B",
        ),
    ])
}

/// How an idle agent waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// In a long poll.
    Poll,
    /// In a session that watches deliveries.
    Session,
}

impl Wait {
    const fn words(self) -> &'static str {
        match self {
            Self::Poll => "a long poll",
            Self::Session => "a session",
        }
    }

    /// Begins to wait on a new connection.
    async fn begin(self, stream: &mut TcpStream, host: &str, token: &str) -> Result<(), Failure> {
        match self {
            Self::Poll => {
                let head = format!(
                    "GET /v1/inbox?wait=600s HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\
                     Accept: */*\r\n\r\n"
                );
                stream.write_all(head.as_bytes()).await.map_err(Failure::unavailable)
            }
            Self::Session => {
                raw::begin(stream, host, token).await?;
                raw::write(stream, r#"{"id":1,"call":"watch","body":{"deliveries":{}}}"#).await?;
                let mut answer = Vec::new();
                while !answer.ends_with(b"}}") {
                    answer.push(stream.read_u8().await.map_err(Failure::unavailable)?);
                }
                Ok(())
            }
        }
    }
}

/// Measures agents that wait, each on its own connection: memory for each, processor time, and how soon one gets a message.
pub(crate) async fn idle(program: &Program, dir: &Path, agents: usize, wait: Wait) -> Result<Vec<Figure>, Failure> {
    let files = files(agents)?;
    let child = program.serve(&dir.join(format!("idle-{wait:?}")), agents).await?;
    let tokens = child.agents(agents).await?;
    let before = child.resident()?;
    let mut polls = Vec::new();
    for (_, token) in &tokens {
        let mut poll =
            TcpStream::connect(&child.addr).await.map_err(|error| Failure::unavailable(error).hint(&files))?;
        wait.begin(&mut poll, &child.addr, token).await?;
        polls.push(poll);
    }
    child.attached(agents).await?;
    let grown = child.resident()?.saturating_sub(before) as f64;
    let (spent, pause) = (child.processor_ms()?, Duration::from_secs(3));
    tokio::time::sleep(pause).await;
    let spent = child.processor_ms()?.saturating_sub(spent) as f64;
    let mut times = Times::default();
    for n in (0..agents).step_by(agents.div_ceil(QUESTIONS)) {
        let begin = now();
        child.human.send(&request(&tokens[n].0, &format!("WAKE-{n}"), "wake")?, &Default::default()).await?;
        let read = polls[n].read(&mut [0; 12]).await.map_err(Failure::unavailable)?;
        times.push(begin.elapsed());
        if read == 0 {
            return Err(Failure::bug("the server hung up on an agent that waits"));
        }
    }
    child.end().await?;
    let [woken, _] = Figure::percentiles("one of them is sent something and hears", &times);
    Ok(vec![
        Figure::new(
            format!("{agents} agents in {}, resident, each", wait.words()),
            grown / agents as f64 / 1024.0,
            "KiB",
        ),
        Figure::new("the same, processor", spent / pause.as_millis() as f64 * 100.0, "%"),
        woken,
    ])
}

/// Measures queries on a log of `messages` messages, and starts on it.
pub(crate) async fn long(
    program: &Program,
    dir: &Path,
    messages: usize,
    progress: impl Fn(usize),
) -> Result<Vec<Figure>, Failure> {
    let data = dir.join("long");
    let (mounts, pages) = (vec![lastword_mcp::mount()], lastword_console::pages());
    let settings = WorkspaceSettings { limits: crate::limits(), ..WorkspaceSettings::default() };
    let server = Server::start(Config { settings, mounts, pages, ..Config::local(&data) }).await?;
    load::fill(&server, TEAM, REQUESTS, messages, progress).await?;
    let mut figures = audits(&load::human(&server)?, messages).await?;
    let facts = server.handle().committed().borrow().0;
    server.shutdown().await;
    let begin = now();
    program.serve(&data, 0).await?.end().await?;
    figures.push(Figure::new(format!("start with a snapshot, {facts} facts"), ms(begin.elapsed()), "ms"));
    DataDir::at(&data).open()?.snapshots().delete()?;
    let begin = now();
    let served = program.serve(&data, 0).await?;
    let took = begin.elapsed();
    served.end().await?;
    figures.push(Figure::new("start without one", ms(took), "ms"));
    figures.push(Figure::new("the same", facts as f64 / took.as_secs_f64() / 1e6, "M facts/s"));
    Ok(figures)
}

/// Builds the n-th query on a log with this many conversations.
type Asking = fn(usize, usize) -> MessageQuery;

async fn audits(human: &Client, messages: usize) -> Result<Vec<Figure>, Failure> {
    let conversations = (messages / REQUESTS / 2).max(1);
    let asked: [(&str, Asking); 3] = [
        ("by REF", |n, all| MessageQuery {
            reference: Some(format!("LONG-{}", n * 7_919 % all)),
            ..MessageQuery::default()
        }),
        ("by sender", |n, _| MessageQuery {
            from: Some(format!("{}{}", load::MEMBER, n % TEAM)),
            ..MessageQuery::default()
        }),
        ("by two words of the text", |n, all| MessageQuery {
            text: Some(format!("staging number{}", n * 7_919 % all)),
            ..MessageQuery::default()
        }),
    ];
    let mut figures = Vec::new();
    for (what, query) in asked {
        let mut times = Times::default();
        for n in 0..QUESTIONS {
            let begin = now();
            let found = human.messages(&query(n, conversations)).await?;
            times.push(begin.elapsed());
            if found.items.is_empty() {
                return Err(Failure::bug(format!("an audit {what} found nothing")));
            }
        }
        figures.extend(Figure::percentiles(&format!("audit of {messages} messages {what}"), &times));
    }
    Ok(figures)
}

/// Measures programs from their start to their exit, beside a server: `lastword send`, and the hook that claims a file before
/// each edit of a session. What `lastword --version` takes is the start alone.
pub(crate) async fn command(program: &Program, dir: &Path) -> Result<Vec<Figure>, Failure> {
    let dir = dir.join("command");
    let child = program.serve(&dir, QUESTIONS).await?;
    let agents = child.agents(1).await?;
    let url = format!("http://{}", child.addr);
    let (name, token) = &agents[0];
    let (mut start, mut sends, mut edits) = (Times::default(), Times::default(), Times::default());
    for n in 0..QUESTIONS {
        let mut version = program.command();
        version.arg("--version");
        start.push(ended(version, "").await?);
        let mut send = program.command();
        send.args(["--url", &url, "send", name, "look", "--ref", &format!("CLI-{n}")]);
        send.env("LASTWORD_TOKEN", &child.token);
        sends.push(ended(send, "").await?);
        let mut hook = program.command();
        hook.args(["--url", &url, "hook"]);
        hook.env("LASTWORD_TOKEN", token).env("XDG_STATE_HOME", &dir);
        // Few files: a session edits the same ones again and again.
        let occasion = json!({
            "hook_event_name": "PreToolUse", "session_id": "bench", "cwd": dir, "tool_name": "Edit",
            "tool_input": { "file_path": dir.join(format!("{}.rs", n % 8)), "old_string": "a", "new_string": "b" },
        });
        edits.push(ended(hook, &occasion.to_string()).await?);
    }
    child.end().await?;
    let figures = [
        Figure::percentiles("lastword --version, from start to exit", &start),
        Figure::percentiles("lastword send, from start to exit", &sends),
        Figure::percentiles("lastword hook that claims an edit, from start to exit", &edits),
    ];
    Ok(figures.into_iter().flatten().collect())
}

/// Runs a program with this input to its end, and returns how long that took.
async fn ended(mut command: tokio::process::Command, input: &str) -> Result<Duration, Failure> {
    let begin = now();
    let mut running = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(Failure::unavailable)?;
    if let Some(mut stdin) = running.stdin.take() {
        // A program that reads nothing may have ended.
        _ = stdin.write_all(input.as_bytes()).await;
    }
    let done = running.wait().await.map_err(Failure::unavailable)?;
    let taken = begin.elapsed();
    if done.success() { Ok(taken) } else { Err(Failure::refused(format!("{command:?} failed"))) }
}

/// Lets this process and its children open a file for each agent; returns a hint for the case that this isn't enough.
pub(crate) fn files(agents: usize) -> Result<String, Failure> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let wanted = agents as u64 + 200;
    if let Some(maximum) = now.maximum.filter(|maximum| *maximum < wanted) {
        return Err(Failure::usage(format!(
            "{agents} connections need {wanted} open files, and {maximum} are allowed"
        ))
        .hint("raise it (`ulimit -Hn`), or name fewer: --agents"));
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted.max(now.current.unwrap_or(wanted))), ..now })
        .map_err(Failure::unavailable)?;
    Ok(format!("{wanted} open files were asked for; fewer agents need fewer: --agents"))
}

fn request(to: &str, reference: &str, body: &str) -> Result<lastword_wire::Envelope, Failure> {
    serde_json::from_value(json!({ "type": "request", "to": to, "ref": reference, "body": body })).map_err(Failure::bug)
}

pub(crate) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
