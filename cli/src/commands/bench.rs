//! `lastword bench`: what a message costs on this machine, as ratios to a bare file in the same run.

use std::time::Duration;

use lastword_proto::Limits;
use lastword_server::{Config, Server};
use serde::Serialize;

use super::Context;
use crate::bench::{Load, Measured, bare_file, exchange_http, in_process, send_http};
use crate::failure::Failure;
use crate::out::table;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How long each measurement takes, in seconds
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Length of a message, in bytes
    #[arg(long, default_value_t = 400)]
    body_bytes: usize,
    /// Where to put the data, on the disk to be measured
    #[arg(long)]
    dir: Option<std::path::PathBuf>,
}

/// One line of the report.
#[derive(Debug, Serialize)]
struct Line {
    what: &'static str,
    in_flight: usize,
    #[serde(flatten)]
    measured: Measured,
    /// Inputs that are each acknowledged from disk, a second, over the bare file's records.
    durable_per_second: f64,
    ratio_to_bare_file: f64,
}

pub(crate) fn run(args: &Args, cx: &Context) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::unavailable)?;
    let lines = runtime.block_on(measure(args, cx))?;
    cx.out.show(&lines, |lines, out| {
        let head = ["what", "in flight", "a second", "p50 ms", "p99 ms", "durable inputs/s", "x bare file"];
        table(&head, &lines.iter().map(Line::cells).collect::<Vec<_>>(), out)
    })
}

async fn measure(args: &Args, cx: &Context) -> Result<Vec<Line>, Failure> {
    let dir = match &args.dir {
        Some(dir) => tempfile::tempdir_in(dir),
        None => tempfile::tempdir(),
    };
    let dir = dir.map_err(Failure::unavailable)?;
    let load = |in_flight| Load { in_flight, time: Duration::from_secs(args.seconds), body: args.body_bytes };
    let server = Server::start(Config { limits: limits(), ..Config::local(&dir.path().join("data")) }).await?;
    let bar = super::verify::bar(&cx.out);
    bar.set_length(6);
    let mut lines = Vec::new();
    for in_flight in [1, 128] {
        let bare = bare_file(dir.path(), load(in_flight)).await?;
        let base = bare.per_second;
        lines.push(Line::new("bare file: append, fdatasync", in_flight, bare, 1.0, base));
        bar.inc(1);
        let whole = in_process(&server, load(in_flight)).await?;
        lines.push(Line::new("in process: send, take, finish", in_flight, whole, 3.0, base));
        bar.inc(1);
    }
    let base = lines[2].measured.per_second;
    lines.push(Line::new("HTTP: send", 64, send_http(&server, load(64)).await?, 1.0, base));
    lines.push(Line::new("HTTP: send, inbox, finish, answer", 64, exchange_http(&server, load(64)).await?, 3.0, base));
    bar.finish_and_clear();
    server.shutdown().await;
    Ok(lines)
}

/// Queues long enough for a load that nobody takes.
fn limits() -> Limits {
    Limits { inbox_max: 1_000_000, ..Limits::default() }
}

impl Line {
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
