//! Runs a server under a steady rate of messages, and watches its memory.

use std::cell::Cell;
use std::path::Path;
use std::time::{Duration, Instant};

use lastword_client::{Client, Endpoint, SendTerms, Sent, Token};
use serde_json::json;
use tokio::task::JoinSet;

use crate::clock::now;
use crate::failure::Failure;
use crate::load::answer;
use crate::program::{Program, Served};
use crate::standing::Figure;

/// Agents, each with one exchange in flight.
const TEAM: usize = 64;
/// Messages of an exchange: the request and its answer.
const MESSAGES: f64 = 2.0;
/// Longest wait for an answer; a quiet server needs milliseconds.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// Samples of a run, of which the slope is computed.
const SAMPLES: u32 = 360;
const MIB: f64 = 1024.0 * 1024.0;

/// The size of a soak.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Soak {
    /// How long exchanges are started.
    pub(crate) time: Duration,
    /// Messages per second, requests and answers together.
    pub(crate) rate: f64,
    /// The server's `retention_ms`.
    pub(crate) retention: Duration,
    /// Length of each message's body, in bytes.
    pub(crate) body: usize,
}

/// One sample of the server.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(crate) struct Sample {
    /// Time since the start of the load, in minutes.
    pub(crate) minutes: f64,
    /// Messages accepted so far.
    pub(crate) messages: f64,
    /// The server's resident memory, in MiB.
    pub(crate) resident_mib: f64,
    /// The log with its WAL, in MiB.
    pub(crate) log_mib: f64,
    /// The read model with its WAL, in MiB.
    pub(crate) index_mib: f64,
}

impl Sample {
    pub(crate) fn cells(&self) -> Vec<String> {
        vec![
            format!("{:.1}", self.minutes),
            format!("{:.0}", self.messages),
            format!("{:.1}", self.resident_mib),
            format!("{:.0}", self.log_mib),
            format!("{:.0}", self.index_mib),
        ]
    }
}

impl Soak {
    /// The part of the run before the slope counts: records are forgotten after the retention and an eighth of it, so
    /// after twice the retention the server holds as many as it ever does.
    fn warm_up(&self) -> Duration {
        self.retention * 2
    }

    /// Runs the soak; returns a sample for each minute, and the figures.
    pub(crate) async fn run(
        self,
        program: &Program,
        dir: &Path,
        progress: impl Fn(Duration, &Sample),
    ) -> Result<(Vec<Sample>, Vec<Figure>), Failure> {
        if self.time < self.warm_up() * 2 {
            return Err(Failure::usage("a soak lasts at least four times the retention")
                .hint("name a shorter --retention-seconds, or more --minutes"));
        }
        let data = dir.join("soak");
        let limits = format!("retention_ms = {}\n", self.retention.as_millis());
        let served = program.serve_with(&data, &limits).await?;
        let agents = served.agents(TEAM).await?;
        let endpoint = Endpoint::new(&format!("http://{}", served.addr));
        let mut answering = JoinSet::new();
        for (_, token) in &agents {
            let agent = Client::new(&endpoint, Some(Token::new(token)?))?;
            answering.spawn(answer(agent, "y".repeat(self.body)));
        }
        let (begin, exchanged) = (now(), Cell::new(0_u64));
        let watch = self.watch(&served, &data, begin, &exchanged, progress);
        let workers =
            agents.iter().enumerate().map(|(n, (name, _))| self.work(&served.human, n, name, begin, &exchanged));
        let (samples, _) = tokio::try_join!(watch, futures_util::future::try_join_all(workers))?;
        answering.abort_all();
        served.end().await?;
        let figures = self.figures(&samples)?;
        Ok((each_minute(samples), figures))
    }

    /// Sends the requests of one agent, each with a key, and reads their answers. A worker that is late sends at once.
    async fn work(
        &self,
        human: &Client,
        worker: usize,
        agent: &str,
        begin: Instant,
        exchanged: &Cell<u64>,
    ) -> Result<(), Failure> {
        let body = "x".repeat(self.body);
        for n in 0_u32.. {
            let place = f64::from(n) * TEAM as f64 + worker as f64;
            let due = Duration::from_secs_f64(place * MESSAGES / self.rate);
            if due >= self.time {
                break;
            }
            tokio::time::sleep(due.saturating_sub(begin.elapsed())).await;
            let reference = format!("SOAK-{worker}-{n}");
            let envelope = json!({ "type": "request", "to": agent, "ref": reference, "body": body });
            let envelope = serde_json::from_value(envelope).map_err(Failure::bug)?;
            let terms = SendTerms { wait: Some(ANSWER_MAX), idempotency_key: Some(reference) };
            match human.send(&envelope, &terms).await? {
                Sent::One { response: Some(_), .. } => exchanged.set(exchanged.get() + 1),
                Sent::One { response: None, .. } | Sent::Many { .. } | Sent::Other(_) => {
                    return Err(Failure::unavailable(format!("an answer took longer than {ANSWER_MAX:?}")));
                }
            }
        }
        Ok(())
    }

    async fn watch(
        &self,
        served: &Served,
        data: &Path,
        begin: Instant,
        exchanged: &Cell<u64>,
        progress: impl Fn(Duration, &Sample),
    ) -> Result<Vec<Sample>, Failure> {
        let mut samples = Vec::new();
        for n in 0..=SAMPLES {
            tokio::time::sleep((self.time * n / SAMPLES).saturating_sub(begin.elapsed())).await;
            let sample = Sample {
                minutes: begin.elapsed().as_secs_f64() / 60.0,
                messages: exchanged.get() as f64 * MESSAGES,
                resident_mib: served.resident()? as f64 / MIB,
                log_mib: size(data, "lastword.db"),
                index_mib: size(data, "index.db"),
            };
            progress(begin.elapsed(), &sample);
            samples.push(sample);
        }
        Ok(samples)
    }

    fn figures(&self, samples: &[Sample]) -> Result<Vec<Figure>, Failure> {
        let warm = self.warm_up().as_secs_f64() / 60.0;
        let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
            return Err(Failure::bug("no samples"));
        };
        let warmed: Vec<&Sample> = samples.iter().filter(|sample| sample.minutes >= warm).collect();
        let most = warmed.iter().map(|sample| sample.resident_mib).fold(0.0, f64::max);
        let mean = mean(warmed.iter().map(|sample| sample.resident_mib));
        let a_second = last.messages / (last.minutes * 60.0);
        let kept = a_second / MESSAGES * self.retention.as_secs_f64();
        let slope = slope(&warmed);
        Ok(vec![
            Figure::new("messages a second", a_second, ""),
            Figure::new("resident before the load", first.resident_mib, "MiB"),
            Figure::new(format!("resident after {warm:.1} minutes of warm-up, mean"), mean, "MiB"),
            Figure::new("the same, at most", most, "MiB"),
            Figure::new("the same, slope", slope, "MiB/minute"),
            Figure::new("the same, slope", slope * 1024.0 / (a_second * 60.0 / 1_000.0), "KiB/1,000 messages"),
            Figure::new(
                format!("exchanges in {:.1} minutes of retention", self.retention.as_secs_f64() / 60.0),
                kept,
                "",
            ),
            Figure::new(
                "resident for each of them, everything included",
                (mean - first.resident_mib) * MIB / kept,
                "B",
            ),
            Figure::new("log, each message", last.log_mib * MIB / last.messages, "B"),
            Figure::new("read model, each message", last.index_mib * MIB / last.messages, "B"),
        ])
    }
}

/// Returns the size of a database with its WAL, in MiB.
fn size(data: &Path, name: &str) -> f64 {
    let file = |end: &str| std::fs::metadata(data.join(format!("{name}{end}"))).map_or(0, |found| found.len());
    (file("") + file("-wal")) as f64 / MIB
}

/// Returns the first sample of each minute, and the last one.
fn each_minute(samples: Vec<Sample>) -> Vec<Sample> {
    let end = samples.len().saturating_sub(1);
    let mut minute = None;
    let due = |(n, sample): &(usize, Sample)| {
        let begun = minute.replace(sample.minutes.floor());
        begun != minute || *n == end
    };
    samples.into_iter().enumerate().filter(due).map(|(_, sample)| sample).collect()
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / count
}

/// Returns the slope of the resident memory by least squares, in MiB per minute.
fn slope(samples: &[&Sample]) -> f64 {
    let at = mean(samples.iter().map(|sample| sample.minutes));
    let resident = mean(samples.iter().map(|sample| sample.resident_mib));
    let along = |sample: &&Sample| (sample.minutes - at) * (sample.resident_mib - resident);
    let across = |sample: &&Sample| (sample.minutes - at).powi(2);
    samples.iter().map(along).sum::<f64>() / samples.iter().map(across).sum::<f64>()
}
