//! Redis Streams: a stream and a consumer group for each direction.
//!
//! Written as an experienced user of Redis would: calls share a connection and so a write, a delivery takes all waiting
//! entries, and its answers and its acknowledgement go out as one pipeline while the next delivery is read.

use std::convert::Infallible;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::streams::{StreamReadOptions, StreamReadReply};
use redis::{AsyncCommands as _, AsyncConnectionConfig, Client, IntoConnectionInfo as _, RedisError, RedisResult};
use tokio::task::JoinSet;

use super::{BATCH_MAX, OnDelivery, PATIENCE, WaitingWorkers, beside, payload, reap, unused, wake_publisher};
use crate::failure::Failure;
use crate::load::{Load, Measured};
use crate::systems::Work;

const GROUP: &str = "bench";
/// The field that holds the message.
const FIELD: &str = "body";
/// Longest wait of a read.
const BLOCK: Duration = Duration::from_secs(1);

/// A Redis server, or one that speaks its protocol.
pub(super) struct Streams {
    client: Client,
    /// Whether an acknowledgement is on disk, and by which setting.
    pub(super) disk: String,
}

impl Streams {
    pub(super) async fn connect(url: &str) -> Result<Self, Failure> {
        let failed = |error: RedisError| {
            Failure::unavailable(format!("Redis at {url}: {error}")).hint(
                "start one with `redis-server --appendonly yes --appendfsync always`, and name it as redis://HOST:PORT",
            )
        };
        let place = url.into_connection_info().map_err(failed)?;
        // Otherwise a call may wait for the acknowledgement of the previous one.
        let settings = place.tcp_settings().clone().set_nodelay(true);
        let client = Client::open(place.set_tcp_settings(settings)).map_err(failed)?;
        let mut streams = Self { client, disk: String::new() };
        let mut calls = streams.connection().await.map_err(failed)?;
        streams.disk = disk(&mut calls).await.unwrap_or_else(|error| format!("unknown: {error}"));
        Ok(streams)
    }

    async fn connection(&self) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
        self.client.get_multiplexed_async_connection_with_config(&config).await
    }

    /// Runs the load; removes its streams at the end.
    pub(super) async fn measure(&self, work: Work, load: Load) -> Result<Measured, Failure> {
        let mut calls = self.connection().await.map_err(failed)?;
        let name = unused(work, load);
        let streams = [name.clone(), format!("{name}-answers")];
        let measured = self.drive(work, load, &streams, &calls).await;
        let removed: RedisResult<()> = calls.del(&streams).await;
        let measured = measured?;
        removed.map_err(failed)?;
        Ok(measured)
    }

    async fn drive(
        &self,
        work: Work,
        load: Load,
        [requests, answers]: &[String; 2],
        calls: &MultiplexedConnection,
    ) -> Result<Measured, Failure> {
        let waiting = WaitingWorkers::of(load);
        let mut consumers = JoinSet::new();
        let last = match work {
            Work::Message => requests,
            Work::Exchange => {
                let then = OnDelivery::Answer(answers.clone());
                consumers.spawn(self.consumer(requests, then, calls).await?.run());
                answers
            }
        };
        consumers.spawn(self.consumer(last, OnDelivery::Done(waiting.clone()), calls).await?.run());
        beside(load, consumers, |worker| {
            let (mut calls, wait) = (calls.clone(), waiting.enter(worker));
            let message = payload(worker, load.body);
            async move {
                let _id: Option<String> = calls.xadd(requests, "*", &[(FIELD, message)]).await.map_err(failed)?;
                wait.await.map_err(Failure::bug)
            }
        })
        .await
    }

    async fn consumer(
        &self,
        stream: &str,
        then: OnDelivery,
        calls: &MultiplexedConnection,
    ) -> Result<Consumer, Failure> {
        let mut reads = self.connection().await.map_err(failed)?;
        let () = reads.xgroup_create_mkstream(stream, GROUP, "0").await.map_err(failed)?;
        Ok(Consumer { reads, calls: calls.clone(), stream: stream.to_owned(), then })
    }
}

struct Consumer {
    /// Its own connection, because a waiting read blocks it.
    reads: MultiplexedConnection,
    calls: MultiplexedConnection,
    stream: String,
    then: OnDelivery,
}

impl Consumer {
    async fn run(mut self) -> Result<Infallible, Failure> {
        let block = usize::try_from(BLOCK.as_millis()).unwrap_or(usize::MAX);
        let options = StreamReadOptions::default().group(GROUP, "1").count(BATCH_MAX).block(block);
        let mut acknowledging = JoinSet::new();
        loop {
            let read: Option<StreamReadReply> =
                self.reads.xread_options(&[&self.stream], &[">"], &options).await.map_err(failed)?;
            let mut delivery = Vec::new();
            for entry in read.into_iter().flat_map(|read| read.keys).flat_map(|key| key.ids) {
                let message: Option<Vec<u8>> = entry.get(FIELD);
                let message = message.ok_or_else(|| Failure::unavailable("Redis gave an entry without its field"))?;
                delivery.push((entry.id, message));
            }
            if !delivery.is_empty() {
                acknowledging.spawn(acknowledge(self.calls.clone(), self.stream.clone(), self.then.clone(), delivery));
            }
            reap(&mut acknowledging)?;
        }
    }
}

async fn acknowledge(
    mut calls: MultiplexedConnection,
    stream: String,
    then: OnDelivery,
    delivery: Vec<(String, Vec<u8>)>,
) -> Result<(), Failure> {
    let mut pipeline = redis::pipe();
    if let OnDelivery::Answer(answers) = &then {
        for (_, message) in &delivery {
            pipeline.xadd(answers, "*", &[(FIELD, message)]).ignore();
        }
    }
    let ids: Vec<&str> = delivery.iter().map(|(id, _)| id.as_str()).collect();
    pipeline.xack(&stream, GROUP, &ids);
    let (acknowledged,): (usize,) = pipeline.query_async(&mut calls).await.map_err(failed)?;
    if acknowledged != ids.len() {
        return Err(Failure::unavailable(format!("Redis acknowledged {acknowledged} of {}", ids.len())));
    }
    if let OnDelivery::Done(waiting) = then {
        delivery.iter().try_for_each(|(_, message)| wake_publisher(&waiting, message))?;
    }
    Ok(())
}

/// Reads from the configuration whether an acknowledgement is on disk.
async fn disk(calls: &mut MultiplexedConnection) -> RedisResult<String> {
    if setting(calls, "appendonly").await? != "yes" {
        return Ok("no: appendonly no".into());
    }
    let when = setting(calls, "appendfsync").await?;
    if when != "always" {
        return Ok(format!("no: appendfsync {when}"));
    }
    let pauses = setting(calls, "no-appendfsync-on-rewrite").await? == "yes";
    let but = if pauses { ", but no-appendfsync-on-rewrite yes" } else { "" };
    Ok(format!("yes: appendfsync always{but}"))
}

async fn setting(calls: &mut MultiplexedConnection, name: &str) -> RedisResult<String> {
    let found: Vec<String> = redis::cmd("CONFIG").arg("GET").arg(name).query_async(calls).await?;
    Ok(found.into_iter().nth(1).unwrap_or_default())
}

#[expect(clippy::needless_pass_by_value, reason = "the signature that `map_err` takes")]
fn failed(error: RedisError) -> Failure {
    Failure::unavailable(format!("Redis: {error}"))
}
