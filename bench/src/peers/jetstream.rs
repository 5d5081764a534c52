//! NATS JetStream: a file-backed stream, one replica, and a durable pull consumer for each direction.
//!
//! The server confirms each acknowledgement, as Redis and Lastword do; deliveries are pulled ahead.

use std::convert::Infallible;
use std::fmt::Display;

use async_nats::Client;
use async_nats::jetstream::consumer::{PullConsumer, pull};
use async_nats::jetstream::stream::{Config, StorageType};
use async_nats::jetstream::{self, Context, Message};
use futures_util::StreamExt as _;
use lastword_store::{Nats, NatsOptions, shown_address};
use serde::Deserialize;
use tokio::task::JoinSet;

use super::{BATCH_MAX, OnDelivery, WaitingWorkers, beside, payload, reap, unused, wake_publisher};
use crate::failure::Failure;
use crate::load::{Load, Measured};
use crate::systems::Work;

const CONSUMER: &str = "bench";

/// A NATS server with JetStream.
pub(super) struct JetStream {
    url: String,
    /// Whether an acknowledgement is on disk, and by which setting.
    pub(super) disk: String,
}

impl JetStream {
    pub(super) async fn connect(url: &str, monitor: Option<&str>) -> Result<Self, Failure> {
        let client = connection(url).await?;
        let disk = match monitor {
            Some(monitor) => disk(monitor, &client.server_info().server_id).await?,
            None => "unknown: sync_interval of its server; --nats-monitor reads it".into(),
        };
        Ok(Self { url: url.to_owned(), disk })
    }

    /// Runs the load; removes its streams at the end.
    pub(super) async fn measure(&self, work: Work, load: Load) -> Result<Measured, Failure> {
        let context = jetstream::new(connection(&self.url).await?);
        let name = unused(work, load);
        let streams = [name.clone(), format!("{name}-answers")];
        let mut made = Ok(());
        for stream in &streams {
            let config = Config {
                name: stream.clone(),
                subjects: vec![stream.clone()],
                storage: StorageType::File,
                ..Config::default()
            };
            made = made.and(context.create_stream(config).await.map(|_| ()).map_err(failed));
        }
        let measured = match made {
            Ok(()) => self.drive(work, load, &streams, &context).await,
            Err(failure) => Err(failure),
        };
        let mut removed = Ok(());
        for stream in &streams {
            removed = removed.and(context.delete_stream(stream).await.map(|_| ()).map_err(failed));
        }
        let measured = measured?;
        removed.map(|()| measured)
    }

    async fn drive(
        &self,
        work: Work,
        load: Load,
        [requests, answers]: &[String; 2],
        context: &Context,
    ) -> Result<Measured, Failure> {
        let waiting = WaitingWorkers::of(load);
        let mut consumers = JoinSet::new();
        let last = match work {
            Work::Message => requests,
            Work::Exchange => {
                let then = OnDelivery::Answer(answers.clone());
                consumers.spawn(self.consumer(requests, then).await?.run());
                answers
            }
        };
        consumers.spawn(self.consumer(last, OnDelivery::Done(waiting.clone())).await?.run());
        beside(load, consumers, |worker| {
            let wait = waiting.enter(worker);
            let message = payload(worker, load.body).into();
            async move {
                let stored = context.publish(requests.clone(), message).await.map_err(failed)?;
                stored.await.map_err(failed)?;
                wait.await.map_err(Failure::bug)
            }
        })
        .await
    }

    /// Creates a consumer on its own connection.
    async fn consumer(&self, stream: &str, then: OnDelivery) -> Result<Consumer, Failure> {
        let client = connection(&self.url).await?;
        let context = jetstream::new(client.clone());
        let config = pull::Config { durable_name: Some(CONSUMER.into()), ..pull::Config::default() };
        let consumer = context.create_consumer_on_stream(config, stream).await.map_err(failed)?;
        Ok(Consumer { client, context, consumer, then })
    }
}

struct Consumer {
    client: Client,
    context: Context,
    consumer: PullConsumer,
    then: OnDelivery,
}

impl Consumer {
    async fn run(self) -> Result<Infallible, Failure> {
        let mut messages = self.consumer.stream().max_messages_per_batch(BATCH_MAX).messages().await.map_err(failed)?;
        let mut acknowledging = JoinSet::new();
        while let Some(message) = messages.next().await {
            let message = message.map_err(failed)?;
            acknowledging.spawn(acknowledge(self.client.clone(), self.context.clone(), self.then.clone(), message));
            reap(&mut acknowledging)?;
        }
        Err(Failure::unavailable("NATS delivers no more"))
    }
}

async fn acknowledge(client: Client, context: Context, then: OnDelivery, message: Message) -> Result<(), Failure> {
    if let OnDelivery::Answer(answers) = &then {
        let stored = context.publish(answers.clone(), message.payload.clone()).await.map_err(failed)?;
        stored.await.map_err(failed)?;
    }
    let reply = message.reply.clone().ok_or_else(|| Failure::unavailable("NATS gave a message without its reply"))?;
    // Like `Message::double_ack`, but that makes and drops a subscription for each message.
    client.request(reply, "".into()).await.map_err(failed)?;
    if let OnDelivery::Done(waiting) = then {
        wake_publisher(&waiting, &message.payload)?;
    }
    Ok(())
}

async fn connection(url: &str) -> Result<Client, Failure> {
    let connected = Nats::connect(NatsOptions::new([url])).await;
    connected.map(|nats| nats.client().clone()).map_err(|error| {
        Failure::unavailable(error).hint("start one with `nats-server --jetstream`, and name it as nats://HOST:PORT")
    })
}

/// The part of the monitor's report that is read.
#[derive(Deserialize)]
struct Varz {
    server_id: String,
    #[serde(default)]
    jetstream: VarzJetStream,
}

#[derive(Default, Deserialize)]
struct VarzJetStream {
    config: Option<VarzSync>,
}

#[derive(Deserialize)]
struct VarzSync {
    /// Time between two syncs, in nanoseconds.
    #[serde(default)]
    sync_interval: u64,
    #[serde(default)]
    sync_always: bool,
}

/// Reads from the monitor when the server syncs, which a client can't ask for.
async fn disk(monitor: &str, server: &str) -> Result<String, Failure> {
    let unusable = |error: &dyn Display| {
        Failure::unavailable(format!("the monitor of NATS at {}: {error}", shown_address(monitor)))
            .hint("start the server with `--http_port PORT`, and name it as http://HOST:PORT")
    };
    let url = format!("{}/varz", monitor.trim_end_matches('/'));
    let http = lastword_client::plain_http()?;
    let response = http.get(url).send().await.and_then(reqwest::Response::error_for_status);
    let response = response.map_err(|error| unusable(&error.without_url()))?;
    let varz: Varz = response.json().await.map_err(|error| unusable(&error.without_url()))?;
    if varz.server_id != server {
        return Err(unusable(&"it is of another server than the one that --nats names"));
    }
    let sync = varz.jetstream.config.ok_or_else(|| unusable(&"its server runs without JetStream"))?;
    Ok(match (sync.sync_always, sync.sync_interval / 1_000_000) {
        (true, _) => "yes: sync_interval always".into(),
        (false, ms) => format!("no: sync_interval {} s", ms as f64 / 1e3),
    })
}

fn failed(error: impl Display) -> Failure {
    Failure::unavailable(format!("NATS: {error}"))
}
