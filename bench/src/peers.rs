//! Peers: the cost of a message and an exchange on other systems' servers, in the same run.

mod jetstream;
mod ours;
mod streams;

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use lastword_server::Server;
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::jetstream::JetStream;
use self::streams::Streams;
use crate::failure::Failure;
use crate::load::{Load, Measured, drive, settled};
use crate::program::Served;
use crate::sessions::{self, WaitingWorkers};
use crate::systems::{PeerRow, Peers, Work};

/// Time beyond the load's own in which the last acknowledgement must arrive.
const PATIENCE: Duration = Duration::from_secs(30);
/// Most messages of one delivery; at least as many as are in flight.
const BATCH_MAX: usize = 256;

/// The connected servers of other systems.
pub(crate) struct Connected {
    streams: Option<Streams>,
    jetstream: Option<JetStream>,
}

impl Connected {
    /// Connects to those that are named.
    pub(crate) async fn to(peers: &Peers) -> Result<Self, Failure> {
        let (mut streams, mut jetstream) = (None, None);
        if let Some(url) = &peers.redis {
            streams = Some(Streams::connect(url).await?);
        }
        if let Some(url) = &peers.nats {
            jetstream = Some(JetStream::connect(url, peers.nats_monitor.as_deref()).await?);
        }
        Ok(Self { streams, jetstream })
    }

    /// Measures each work on each system, ours first: in process, and over loopback as the others are. `bare` is the bare
    /// file's records a second.
    pub(crate) async fn rows(
        &self,
        server: &Server,
        served: &Served,
        load: Load,
        bare: f64,
    ) -> Result<Vec<PeerRow>, Failure> {
        let mut rows = Vec::new();
        for work in [Work::Message, Work::Exchange] {
            settled(server, served).await?;
            let in_process = ours::measure(server, work, load).await?;
            settled(server, served).await?;
            let measured = sessions::measure(served, work, load).await?;
            let ours = measured.per_second;
            let row = |system, measured: Measured, theirs, disk: &str| PeerRow {
                what: format!("{system}: {}", work.word()),
                in_flight: load.in_flight,
                ratio_to_bare_file: measured.per_second / bare,
                ours_to_theirs: theirs,
                acknowledged_on_disk: disk.to_owned(),
                measured,
            };
            let ratio = in_process.per_second / ours;
            settled(server, served).await?;
            rows.push(row("Lastword, sessions", measured, None, "yes"));
            rows.push(row("Lastword, in process", in_process, Some(ratio.recip()), "yes"));
            if let Some(streams) = &self.streams {
                let measured = streams.measure(work, load).await?;
                let ratio = ours / measured.per_second;
                rows.push(row("Redis Streams", measured, Some(ratio), &streams.disk));
            }
            if let Some(jetstream) = &self.jetstream {
                let measured = jetstream.measure(work, load).await?;
                let ratio = ours / measured.per_second;
                rows.push(row("NATS JetStream", measured, Some(ratio), &jetstream.disk));
            }
        }
        Ok(rows)
    }
}

/// What to do with a delivered message; it is acknowledged either way.
#[derive(Clone)]
enum OnDelivery {
    /// Publish one of the same length to this subject or stream, before the acknowledgement.
    Answer(String),
    /// Wake its worker, after the acknowledgement.
    Done(WaitingWorkers),
}

/// Wakes the worker that published this message.
fn wake_publisher(waiting: &WaitingWorkers, payload: &[u8]) -> Result<(), Failure> {
    let number = payload.first_chunk().map(|number| u64::from_le_bytes(*number));
    let worker = number.and_then(|number| usize::try_from(number).ok());
    // At the end of a run a worker may be gone, but then it sends nothing either.
    worker.and_then(|worker| waiting.wake(worker)).ok_or_else(|| {
        Failure::unavailable("a message arrived that no worker waits for")
            .hint("another program publishes to this bench's streams, or the server delivered something twice")
    })
}

/// Builds a message of `bytes` bytes that begins with its worker's number; at least 8 bytes.
fn payload(worker: usize, bytes: usize) -> Vec<u8> {
    let mut payload = (worker as u64).to_le_bytes().to_vec();
    payload.resize(bytes.max(payload.len()), b'x');
    payload
}

/// Runs the load beside the consumers, which end only by failing.
async fn beside<W>(
    load: Load,
    mut consumers: JoinSet<Result<Infallible, Failure>>,
    worker: impl FnMut(usize) -> W,
) -> Result<Measured, Failure>
where
    W: Future<Output = Result<(), Failure>>,
{
    let driven = timeout(load.time + PATIENCE, drive(load, worker));
    tokio::select! {
        measured = driven => measured.map_err(|_| {
            Failure::unavailable(format!("no acknowledgement came within {} s", PATIENCE.as_secs()))
        })?,
        Some(ended) = consumers.join_next() => match ended {
            Ok(Ok(never)) => match never {},
            Ok(Err(failure)) => Err(failure),
            Err(panic) => Err(Failure::bug(panic)),
        },
    }
}

/// Returns the first failure among the finished tasks.
fn reap(tasks: &mut JoinSet<Result<(), Failure>>) -> Result<(), Failure> {
    while let Some(done) = tasks.try_join_next() {
        done.map_err(Failure::bug)??;
    }
    Ok(())
}

/// Returns a name that no other run uses.
fn unused(work: Work, load: Load) -> String {
    format!("lastword-bench-{}-{}-{}", std::process::id(), work.word(), load.in_flight)
}
