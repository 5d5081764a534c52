//! A workspace whose log is a stream, beside plain messages that the same servers acknowledge.

use std::path::Path;
use std::sync::Arc;

use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use async_nats::jetstream::stream::{Config, StorageType};
use futures_util::StreamExt as _;
use lastword_broker::identity::{Secret, TurnSigner};
use lastword_broker::{Handle, boot};
use lastword_core::input::Registration;
use lastword_core::{Input, Principal};
use lastword_facts::fact::{Kind, Profile};
use lastword_facts::names::AgentName;
use lastword_server::OPERATOR;
use lastword_store::{Mirror, Nats, NatsOptions};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::failure::Failure;
use crate::load::{Load, Measured, drive, exchange, principal, submit};
use crate::{Args, ReportRow, limits};

/// The rows of the report; the base of the ratios is JetStream's own messages.
pub(crate) async fn loads(args: &Args, dir: &Path) -> Result<Vec<ReportRow>, Failure> {
    if args.cluster.is_empty() {
        return Err(Failure::usage("no NATS server is named").hint("for example --cluster nats://127.0.0.1:4222"));
    }
    let nats = Nats::connect(NatsOptions::new(args.cluster.clone())).await.map_err(Failure::unavailable)?;
    let workspace = format!("bench-{}", std::process::id());
    nats.create_stream(&workspace, args.replicas).await.map_err(Failure::unavailable)?;
    let mirror = Mirror::open(&nats, &workspace, dir).await.map_err(Failure::unavailable)?;
    let leading = mirror.lead(1, "bench", Arc::new(|| true)).await;
    let (log, _) = leading.map_err(|(_, error)| Failure::unavailable(error))?;
    let signer = TurnSigner::ephemeral()?;
    let booted = tokio::task::spawn_blocking(move || boot(log, signer, limits())).await.map_err(Failure::bug)?;
    let (broker, thread) = booted.map_err(Failure::unavailable)?;
    let mut rows = Vec::new();
    for in_flight in [1, 128] {
        let load = args.load(in_flight);
        let subject = plain_stream(&nats, &workspace, args.replicas).await?;
        let plain = messages(&nats, &subject, load).await?;
        let base = plain.per_second;
        rows.push(ReportRow::new("JetStream: publish, acknowledged", in_flight, plain, 1.0, base));
        let taken = deliveries(&nats, &workspace, &subject, load).await?;
        rows.push(ReportRow::new("JetStream: publish, deliver, confirmed", in_flight, taken, 2.0, base));
        let whole = exchanges(&broker, load).await?;
        rows.push(ReportRow::new("on the stream: send, take, finish", in_flight, whole, 3.0, base));
    }
    // Its state isn't read again, so nothing waits for its end.
    drop((broker, thread));
    for stream in [format!("LASTWORD_{workspace}"), format!("PLAIN_{workspace}")] {
        nats.jetstream().delete_stream(stream).await.map_err(Failure::unavailable)?;
    }
    Ok(rows)
}

/// Creates a stream for plain messages, and returns its subject.
async fn plain_stream(nats: &Nats, workspace: &str, replicas: usize) -> Result<String, Failure> {
    let subject = format!("plain.{workspace}");
    let config = Config {
        name: format!("PLAIN_{workspace}"),
        subjects: vec![subject.clone()],
        storage: StorageType::File,
        num_replicas: replicas,
        ..Config::default()
    };
    nats.jetstream().get_or_create_stream(config).await.map_err(Failure::unavailable)?;
    Ok(subject)
}

async fn publish(nats: &Nats, subject: &str, body: &str) -> Result<(), Failure> {
    let body = body.to_owned().into();
    let sent = nats.jetstream().publish(subject.to_owned(), body).await.map_err(Failure::unavailable)?;
    sent.await.map(|_| ()).map_err(Failure::unavailable)
}

/// Plain messages of the same length on a stream of their own, each acknowledged.
async fn messages(nats: &Nats, subject: &str, load: Load) -> Result<Measured, Failure> {
    let body = "x".repeat(load.body);
    drive(load, |_| {
        let (nats, subject, body) = (nats.clone(), subject.to_owned(), body.clone());
        async move { publish(&nats, &subject, &body).await }
    })
    .await
}

/// The same, each also delivered to a consumer that acknowledges it, and whose acknowledgement the server confirms.
async fn deliveries(nats: &Nats, workspace: &str, subject: &str, load: Load) -> Result<Measured, Failure> {
    let stream = nats.jetstream().get_stream(format!("PLAIN_{workspace}")).await.map_err(Failure::unavailable)?;
    let config = pull::Config {
        durable_name: Some(format!("taker-{}", load.in_flight)),
        deliver_policy: DeliverPolicy::New,
        max_ack_pending: 10_000,
        ..pull::Config::default()
    };
    let consumer = stream.create_consumer(config).await.map_err(Failure::unavailable)?;
    let mut taken = consumer.messages().await.map_err(Failure::unavailable)?;
    let confirmed = Arc::new(Semaphore::new(0));
    let confirms = Arc::clone(&confirmed);
    let mut taker = JoinSet::new();
    taker.spawn(async move {
        let mut acknowledging = JoinSet::new();
        while let Some(Ok(message)) = taken.next().await {
            let confirms = Arc::clone(&confirms);
            acknowledging.spawn(async move {
                if message.double_ack().await.is_ok() {
                    confirms.add_permits(1);
                }
            });
            while acknowledging.try_join_next().is_some() {}
        }
    });
    let body = "x".repeat(load.body);
    drive(load, |_| {
        let (nats, subject, body) = (nats.clone(), subject.to_owned(), body.clone());
        let confirmed = Arc::clone(&confirmed);
        async move {
            publish(&nats, &subject, &body).await?;
            // One of those in flight: their order doesn't matter here.
            confirmed.acquire().await.map_err(Failure::bug)?.forget();
            Ok(())
        }
    })
    .await
}

/// Requests that are sent, taken and answered, each input guarded and durable.
async fn exchanges(broker: &Handle, load: Load) -> Result<Measured, Failure> {
    let human = operator(broker).await?;
    let mut agents = Vec::new();
    for n in 0..load.in_flight {
        let name = format!("bench-{}-{n}", load.in_flight);
        submit(broker, Input::Register(human, registration(&name, Kind::Agent)?)).await?;
        agents.push((principal(broker, &name).await?, name));
    }
    let body = "x".repeat(load.body);
    let mut sent = 0_u64;
    drive(load, |n| {
        sent += 1;
        let (agent, name) = &agents[n];
        exchange(broker, human, name, *agent, format!("BENCH-{name}-{sent}"), body.clone())
    })
    .await
}

async fn operator(broker: &Handle) -> Result<Principal, Failure> {
    let known = broker.query(|live| live.state.live(OPERATOR).is_some()).await.map_err(Failure::unavailable)?;
    if !known {
        submit(broker, Input::Bootstrap(registration(OPERATOR, Kind::Human)?)).await?;
    }
    principal(broker, OPERATOR).await
}

fn registration(name: &str, kind: Kind) -> Result<Registration, Failure> {
    let profile = Profile { actions: Vec::new(), groups: Vec::new(), turns_max: 0 };
    let (name, credential) = (AgentName::new(name).map_err(Failure::bug)?, Secret::token()?.credential());
    Ok(Registration { name, kind, profile, credential, role: None, display_name: None, key: None })
}
