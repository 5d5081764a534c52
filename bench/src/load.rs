//! Loads on a running server, limited in time; each worker has one operation in flight.

use std::future::Future;
use std::time::Duration;

use lastword_broker::Handle;
use lastword_client::{Client, Endpoint, SendTerms, Token};
use lastword_core::input::Finish;
use lastword_core::{Input, Principal, Reply};
use lastword_facts::MessageType;
use lastword_facts::envelope::{Address, Draft};
use lastword_facts::names::{AgentName, Ref};
use lastword_server::Server;
use lastword_wire::{Envelope, NewAgent};
use serde_json::json;
use tokio::task::JoinSet;

use crate::clock::now;
use crate::failure::Failure;
use crate::program::Served;

/// The size and duration of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Workers, each with one operation in flight.
    pub(crate) in_flight: usize,
    /// How long workers start new operations.
    pub(crate) time: Duration,
    /// Length of a message's body, in bytes.
    pub(crate) body: usize,
}

/// The result of a load.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct Measured {
    /// Operations per second.
    pub(crate) per_second: f64,
    /// The median duration of an operation, in ms.
    pub(crate) p50_ms: f64,
    /// The 99th percentile of the durations, in ms.
    pub(crate) p99_ms: f64,
    /// The number of operations.
    pub(crate) count: usize,
}

/// The durations of a load's operations.
#[derive(Debug, Default)]
pub(crate) struct Times(Vec<Duration>);

impl Times {
    pub(super) fn push(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// Adds other durations.
    pub(super) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Returns the percentile `share`, in ms.
    pub(super) fn at(&self, share: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len().saturating_sub(1) * share / 100).map_or(0.0, |time| time.as_secs_f64() * 1e3)
    }
}

/// Repeats `worker` in `load.in_flight` slots until the time is over.
pub(crate) async fn drive<W, F>(load: Load, mut worker: impl FnMut(usize) -> W) -> Result<Measured, Failure>
where
    W: Future<Output = Result<F, Failure>>,
{
    let begin = now();
    let mut times = Times::default();
    let mut running = futures_util::stream::FuturesUnordered::new();
    for n in 0..load.in_flight {
        running.push(timed(n, worker(n)));
    }
    while let Some((n, took, done)) = futures_util::StreamExt::next(&mut running).await {
        done?;
        times.push(took);
        if begin.elapsed() < load.time {
            running.push(timed(n, worker(n)));
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    let count = times.0.len();
    Ok(Measured { per_second: count as f64 / seconds, p50_ms: times.at(50), p99_ms: times.at(99), count })
}

/// Waits until both servers have indexed what they committed and the disk has what was written, so that no row of a
/// report pays for the one before.
pub(crate) async fn settled(server: &Server, served: &Served) -> Result<(), Failure> {
    let committed = *server.handle().committed().borrow();
    server.indexed().wait_for(|seq| *seq >= committed).await.map_err(Failure::unavailable)?;
    served.idle().await?;
    let written = tokio::process::Command::new("sync").status().await.map_err(Failure::unavailable)?;
    written.success().then_some(()).ok_or_else(|| Failure::unavailable("`sync` failed"))
}

async fn timed<T>(n: usize, work: impl Future<Output = T>) -> (usize, Duration, T) {
    let begin = now();
    let done = work.await;
    (n, begin.elapsed(), done)
}

/// In process: a request is sent, taken and answered, each a guarded and durable input.
pub(crate) async fn in_process(server: &Server, load: Load) -> Result<Measured, Failure> {
    let agents = agents(&human(server)?, load.in_flight).await?;
    let human = principal(server.handle(), lastword_server::OPERATOR).await?;
    let mut proofs = Vec::new();
    for (name, _) in &agents {
        proofs.push((name.clone(), principal(server.handle(), name).await?));
    }
    let body = "x".repeat(load.body);
    let mut sent = 0_u64;
    drive(load, |n| {
        sent += 1;
        let (name, agent) = &proofs[n];
        exchange(server.handle(), human, name, *agent, format!("BENCH-{name}-{sent}"), body.clone())
    })
    .await
}

/// Prefix of the agents' names in a filled log, before their number.
pub(super) const MEMBER: &str = "member-";

/// Fills a log with `messages` messages: conversations of `requests` requests of a human, each answered by the same
/// agent.
pub(super) async fn fill(
    server: &Server,
    team: usize,
    requests: usize,
    messages: usize,
    progress: impl Fn(usize),
) -> Result<(), Failure> {
    let human = principal(server.handle(), lastword_server::OPERATOR).await?;
    let client = self::human(server)?;
    let mut members = Vec::new();
    for n in 0..team {
        let agent: NewAgent =
            serde_json::from_value(json!({ "name": format!("{MEMBER}{n}") })).map_err(Failure::bug)?;
        client.register(&agent).await?;
        members.push((agent.name.clone(), principal(server.handle(), &agent.name).await?));
    }
    let (asked, progress) = (messages / 2, &progress);
    let workers = members.iter().enumerate().map(|(worker, (name, agent))| async move {
        // Each conversation belongs to one worker, so that its messages keep their order.
        for n in (0..asked).filter(|n| n / requests % team == worker) {
            let conversation = n / requests;
            let body = format!("{WORDS} number{conversation} part {n}");
            exchange(server.handle(), human, name, *agent, format!("LONG-{conversation}"), body).await?;
            if n % 1_000 == 0 {
                progress(n * 2);
            }
        }
        Ok::<_, Failure>(())
    });
    futures_util::future::try_join_all(workers).await.map(|_| ())
}

pub(super) const WORDS: &str = "the release needs a look at the staging database before the deploy: please review what the tests \
                     wrote into their logs, say what failed and why, and which part of it can wait until the next one";

pub(crate) async fn exchange(
    broker: &Handle,
    human: Principal,
    name: &str,
    agent: Principal,
    reference: String,
    body: String,
) -> Result<(), Failure> {
    let to = Address::Name(AgentName::new(name).map_err(Failure::bug)?);
    let mut draft = Draft::new(MessageType::Request, to, &body);
    draft.reference = Ref::new(&reference).ok();
    submit(broker, Input::Send(human, Box::new(draft))).await?;
    submit(broker, Input::Take(agent, None)).await?;
    let finish = Finish { body: body.into(), ..Finish::default() };
    submit(broker, Input::Finish(agent, None, Box::new(finish))).await.map(|_| ())
}

/// Submits an input in process; a refusal is a failure.
pub(super) async fn submit(broker: &Handle, input: Input) -> Result<Reply, Failure> {
    let reply = broker.submit(input).await.map_err(Failure::unavailable)?;
    if let Reply::Refused { refusal, .. } = reply { Err(Failure::refused(refusal)) } else { Ok(reply) }
}

pub(super) async fn principal(broker: &Handle, name: &str) -> Result<Principal, Failure> {
    let name = name.to_owned();
    let proof = broker.query(move |live| {
        let id = live.state.live(&name)?;
        let (credential, _) = live.state.credentials.iter().find(|(_, agent)| **agent == id)?;
        live.state.prove(credential)
    });
    proof.await.map_err(Failure::unavailable)?.ok_or_else(|| Failure::bug("an agent of the bench is gone"))
}

/// Registers one agent per worker.
async fn agents(human: &Client, count: usize) -> Result<Vec<(String, String)>, Failure> {
    let known = human.agents().await?.items.len();
    let mut agents = Vec::new();
    for n in 0..count {
        let name = format!("bench-{known}-{n}");
        let agent: NewAgent = serde_json::from_value(json!({ "name": name })).map_err(Failure::bug)?;
        agents.push((name, human.register(&agent).await?.token));
    }
    Ok(agents)
}

pub(super) fn human(server: &Server) -> Result<Client, Failure> {
    let token = std::fs::read_to_string(server.operator_token_file()).map_err(Failure::unavailable)?;
    Ok(Client::new(&Endpoint::new(&server.url()), Some(Token::new(&token)?))?)
}

/// Over HTTP and loopback: sends only, each worker on its own connection. Nothing takes the messages.
pub(crate) async fn send_http(human: &Client, load: Load) -> Result<Measured, Failure> {
    let agents = agents(human, load.in_flight.max(64)).await?;
    let body = "x".repeat(load.body);
    let mut n = 0_usize;
    drive(load, |_| {
        n += 1;
        let envelope = json!({ "type": "request", "to": agents[n % agents.len()].0, "ref": format!("SEND-{}-{n}", agents[0].0), "body": body });
        let human = human.clone();
        async move {
            let envelope: Envelope = serde_json::from_value(envelope).map_err(Failure::bug)?;
            human.send(&envelope, &SendTerms::default()).await.map_err(Failure::from)
        }
    })
    .await
}

/// Over HTTP: the whole exchange, from the send until the requester has the answer.
pub(crate) async fn exchange_http(human: &Client, load: Load) -> Result<Measured, Failure> {
    let agents = agents(human, load.in_flight).await?;
    let endpoint = human.endpoint();
    let mut clients = Vec::new();
    for (name, token) in &agents {
        clients.push((name.clone(), Client::new(endpoint, Some(Token::new(token)?))?));
    }
    let mut servers = JoinSet::new();
    for (_, client) in &clients {
        servers.spawn(answer(client.clone(), "y".repeat(load.body)));
    }
    let body = "x".repeat(load.body);
    let mut n = 0;
    let measured = drive(load, |worker| {
        n += 1;
        let name = &clients[worker].0;
        let envelope = json!({ "type": "request", "to": name, "ref": format!("{name}-{n}"), "body": body });
        let human = human.clone();
        async move {
            let envelope: Envelope = serde_json::from_value(envelope).map_err(Failure::bug)?;
            let terms = SendTerms { wait: Some(Duration::from_secs(20)), ..SendTerms::default() };
            human.send(&envelope, &terms).await.map_err(Failure::from)
        }
    })
    .await;
    servers.abort_all();
    measured
}

/// Answers each request with this text, until the server is gone.
pub(crate) async fn answer(agent: Client, body: String) {
    while let Ok(delivery) = agent.inbox(Duration::from_secs(20)).await {
        let Some(turn) = delivery.and_then(|d| d.turn) else { continue };
        let finish = lastword_wire::Finish { answer: body.clone(), ..lastword_wire::Finish::default() };
        if agent.finish(&turn.id, &finish).await.is_err() {
            return;
        }
    }
}
