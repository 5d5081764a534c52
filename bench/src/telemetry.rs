//! What the export of spans costs: the same exchanges with and without it, in turn, and while the receiver is down.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::clock::now;
use crate::failure::Failure;
use crate::load::Load;
use crate::program::{Program, Served};
use crate::sessions;
use crate::standing::Figure;
use crate::systems::Work;

/// The pairs of loads without and with the export.
const PAIRS: usize = 8;
/// How long the export may take to be done with a load.
const EXPORT_MAX: Duration = Duration::from_mins(5);
const LOOK_EVERY: Duration = Duration::from_millis(50);
const BEHIND: &str = "lastword_telemetry_behind_facts";
const LOST: &str = "lastword_telemetry_lost_total{signal=\"traces\"}";

/// A receiver that takes everything and reads none of it.
struct Receiver {
    address: String,
    /// Whether it answers 503.
    down: Arc<AtomicBool>,
    bytes: Arc<AtomicU64>,
    _task: JoinSet<()>,
}

impl Receiver {
    async fn start() -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let (down, bytes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (refuses, taken) = (Arc::clone(&down), Arc::clone(&bytes));
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut callers = JoinSet::new();
            while let Ok((caller, _)) = listener.accept().await {
                callers.spawn(serve(caller, Arc::clone(&refuses), Arc::clone(&taken)));
            }
        });
        Ok(Self { address, down, bytes, _task: task })
    }
}

/// Answers the posts of a connection.
async fn serve(caller: TcpStream, down: Arc<AtomicBool>, taken: Arc<AtomicU64>) -> Option<()> {
    let mut caller = BufReader::new(caller);
    let mut body = Vec::new();
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            caller.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
            if line.trim().is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').unwrap_or_default();
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().ok()?;
            }
        }
        body.resize(length, 0);
        caller.read_exact(&mut body).await.ok()?;
        let status = if down.load(Ordering::SeqCst) {
            "503 Service Unavailable"
        } else {
            taken.fetch_add(length as u64, Ordering::SeqCst);
            "200 OK"
        };
        caller.write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").as_bytes()).await.ok()?;
    }
}

/// What a load did, and what it took.
struct Cost {
    messages: f64,
    per_second: f64,
    processor_us: f64,
    /// From the end of the load until all its spans are posted.
    lag: Duration,
}

async fn load(served: &Served, size: Load) -> Result<Cost, Failure> {
    served.idle().await?;
    let before = served.processor_ms()?;
    let measured = sessions::measure(served, Work::Exchange, size).await?;
    let begin = now();
    while metric(served, BEHIND).await?.is_some_and(|facts| facts > 0.0) {
        if begin.elapsed() > EXPORT_MAX {
            return Err(Failure::unavailable("the export doesn't end"));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let lag = begin.elapsed();
    // What is still indexed and exported is paid for as well.
    served.idle().await?;
    let messages = measured.count as f64 * 2.0;
    let processor_us = (served.processor_ms()? - before) as f64 * 1e3 / messages;
    Ok(Cost { messages, per_second: measured.per_second * 2.0, processor_us, lag })
}

/// Returns a metric of the server, if it has it.
async fn metric(served: &Served, name: &str) -> Result<Option<f64>, Failure> {
    let mut stream = TcpStream::connect(&served.addr).await?;
    let request = format!("GET /metrics HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", served.addr);
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text.lines().find_map(|line| line.strip_prefix(name)?.rsplit(' ').next()?.parse().ok()))
}

/// Compares exchanges without and with the export, in pairs.
async fn compare(
    without: &Served,
    with: &Served,
    size: Load,
    progress: &impl Fn(String),
) -> Result<Vec<Figure>, Failure> {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for pair in 1..=PAIRS {
        progress(format!("{} in flight, pair {pair} of {PAIRS}", size.in_flight));
        // Each is first in half of the pairs.
        if pair % 2 == 1 {
            before.push(load(without, size).await?);
        }
        after.push(load(with, size).await?);
        if pair % 2 == 0 {
            before.push(load(without, size).await?);
        }
    }
    let of = |costs: &[Cost], get: fn(&Cost) -> f64| costs.iter().map(get).sum::<f64>() / PAIRS as f64;
    let mut ratios: Vec<f64> =
        after.iter().zip(&before).map(|(with, without)| with.per_second / without.per_second * 100.0).collect();
    ratios.sort_by(f64::total_cmp);
    let messages = after.iter().map(|cost| cost.messages).sum::<f64>();
    let lag = after.iter().map(|cost| cost.lag).max().unwrap_or_default();
    let of_pairs = format!("throughput with it, of that without: median of {PAIRS} pairs");
    Ok(vec![
        Figure::new(
            format!("{} in flight, {messages} messages with the export: without it", size.in_flight),
            of(&before, |cost| cost.per_second),
            "messages/s",
        ),
        Figure::new("with it", of(&after, |cost| cost.per_second), "messages/s"),
        Figure::new(of_pairs, f64::midpoint(ratios[PAIRS / 2 - 1], ratios[PAIRS / 2]), "%"),
        Figure::new("lower quartile", ratios[PAIRS / 4], "%"),
        Figure::new("upper quartile", ratios[PAIRS - 1 - PAIRS / 4], "%"),
        Figure::new("processor time of the server without it", of(&before, |cost| cost.processor_us), "µs/message"),
        Figure::new("processor time of the server with it", of(&after, |cost| cost.processor_us), "µs/message"),
        Figure::new("from the end of a load until its spans are posted, at most", lag.as_secs_f64() * 1e3, "ms"),
    ])
}

/// Measures exchanges with and without the export.
pub(crate) async fn cost(
    program: &Program,
    dir: &Path,
    size: Load,
    progress: impl Fn(String),
) -> Result<Vec<Figure>, Failure> {
    let receiver = Receiver::start().await?;
    let limits = "agent_turns_max = 256\n";
    let table = format!("[telemetry]\nendpoint = \"http://{}\"\nsignals = [\"traces\"]\n", receiver.address);
    let without = program.serve_with(&dir.join("without"), limits).await?;
    let with = program.serve_with(&dir.join("with"), &format!("{limits}{table}")).await?;
    let mut figures = Vec::new();
    for in_flight in [1, size.in_flight] {
        figures.extend(compare(&without, &with, Load { in_flight, ..size }, &progress).await?);
    }
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let resident = mib(with.resident()?);
    progress("the receiver is down".to_owned());
    receiver.down.store(true, Ordering::SeqCst);
    let missed = sessions::measure(&with, Work::Exchange, size).await?;
    let held = mib(with.resident()?);
    receiver.down.store(false, Ordering::SeqCst);
    let caught_up = load(&with, Load { time: Duration::ZERO, ..size }).await?.lag;
    let lost = metric(&with, LOST).await?.unwrap_or_default();

    figures.extend([
        Figure::new("memory of the server without it", mib(without.resident()?), "MiB"),
        Figure::new("memory of the server with it", resident, "MiB"),
        Figure::new(format!("memory after {} more while the receiver is down", missed.count * 2), held, "MiB"),
        Figure::new("until they are posted, once it is back", caught_up.as_secs_f64() * 1e3, "ms"),
        Figure::new("spans lost", lost, ""),
        Figure::new("received", mib(receiver.bytes.load(Ordering::SeqCst)), "MiB"),
    ]);
    Ok(figures)
}
