//! A faulty disk, a jumping clock and kills, all at once, under load, on the real program.
//!
//! What clients saw is compared with the log, and the witness recounts it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::Instant;

use crate::crash::{enrol, settle};
use crate::load::{SharedKnown, check_log};
use crate::preload::Control;
use crate::program::{Ended, PATH, Server, lastword, run};

#[path = "chaos/load.rs"]
mod load;

/// Bounds a server's end; it drains within seconds even if each sync is slow.
const PATIENCE: Duration = Duration::from_secs(60);
/// Starts in a row that faults may end, before one without faults has to succeed.
const STARTS: usize = 3;
const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;
/// Limits that this load would meet otherwise. Nothing may be forgotten however far the clock jumps, because a forgotten
/// key may be used again.
const LIMITS: &str = "[limits]\nretention_ms = 63072000000\npair_messages_max = 1000000\nsender_messages_max = 1000000\n\
                      fan_out_targets_max = 1000000\nagent_day_tokens_max = 1000000000000\nagent_day_bytes_max = 0\n";

/// Returns the length of the campaign; `LASTWORD_CHAOS_SECONDS=600` for the long run.
fn length() -> Duration {
    let seconds = std::env::var_os("LASTWORD_CHAOS_SECONDS").and_then(|n| n.to_str()?.parse().ok());
    Duration::from_secs(seconds.unwrap_or(10))
}

/// Returns the seed that chooses faults, moments and acts; `LASTWORD_SEED=7` for others. Threads still interleave
/// differently in each run.
fn seed() -> u64 {
    std::env::var_os("LASTWORD_SEED").and_then(|n| n.to_str()?.parse().ok()).unwrap_or(1)
}

/// The faults in force: chances in a million calls, in the order of the library's numbers.
#[derive(Clone, Copy, Debug, Default)]
struct Weather {
    sync_eio: i64,
    write_eio: i64,
    write_enospc: i64,
    read_eio: i64,
    slow_sync: i64,
    slow_us_max: i64,
}

impl Weather {
    const CALM: Self = Self { sync_eio: 0, write_eio: 0, write_enospc: 0, read_eio: 0, slow_sync: 0, slow_us_max: 0 };

    /// Draws what the disk does for a while.
    fn draw(rng: &mut StdRng) -> Self {
        let calm = Self::CALM;
        match rng.random_range(0..8) {
            0 | 1 => calm,
            2 => Self { slow_sync: 300_000, slow_us_max: 200_000, ..calm },
            3 => Self { sync_eio: 5_000, ..calm },
            4 => Self { write_eio: 1_000, ..calm },
            5 => Self { write_enospc: 30_000, ..calm },
            6 => Self { write_enospc: 1_000_000, ..calm },
            _ => Self {
                sync_eio: 2_000,
                write_eio: 500,
                write_enospc: 20_000,
                read_eio: 500,
                slow_sync: 100_000,
                slow_us_max: 100_000,
            },
        }
    }
}

/// How often the library did something, by its own count.
#[derive(Debug, Default)]
struct Counts {
    syncs_failed: i64,
    writes_failed: i64,
    writes_without_room: i64,
    reads_failed: i64,
    syncs_delayed: i64,
}

impl Counts {
    const fn happened(&self) -> bool {
        self.syncs_failed + self.writes_failed + self.writes_without_room + self.reads_failed + self.syncs_delayed > 0
    }
}

impl Control {
    fn weather(&self, weather: Weather) {
        let Weather { sync_eio, write_eio, write_enospc, read_eio, slow_sync, slow_us_max } = weather;
        // Slow first: the longest pause is read once a sync is slow.
        self.set(7, slow_us_max);
        for (at, value) in (2..).zip([sync_eio, write_eio, write_enospc, read_eio, slow_sync]) {
            self.set(at, value);
        }
    }

    fn counts(&self) -> Counts {
        let [syncs_failed, writes_failed, writes_without_room, reads_failed, syncs_delayed] =
            [9, 10, 11, 12, 13].map(|at| self.get(at));
        Counts { syncs_failed, writes_failed, writes_without_room, reads_failed, syncs_delayed }
    }

    /// Returns the server's command with the library in it. Its standard error goes to a file: a pipe that nobody reads
    /// would fill and stop the server.
    fn server(&self, dir: &Path) -> Command {
        let mut server = lastword(dir);
        server.args(["serve", "--json", "--listen", "127.0.0.1:0"]).env("PATH", PATH);
        self.preload(&mut server, &dir.join(".lastword"));
        server.stderr(File::create(said(dir)).unwrap());
        server
    }
}

fn said(dir: &Path) -> PathBuf {
    dir.join("server.log")
}

/// Draws an offset of the wall clock: hours, days or months ahead or back.
fn jump(rng: &mut StdRng) -> i64 {
    let most = [12 * HOUR, 20 * DAY, 200 * DAY][rng.random_range(0..3)];
    rng.random_range(-most..=most)
}

/// What the campaign did.
#[derive(Debug, Default)]
struct Did {
    starts: usize,
    starts_failed: usize,
    kills: usize,
    ended_by_faults: usize,
    drained: usize,
    jumps: usize,
}

#[test]
fn a_faulty_disk_a_jumping_clock_and_kills_at_once_lose_nothing_and_mix_nothing_up() {
    let aside = tempfile::tempdir().unwrap();
    let Some(control) = Control::new("chaos of the whole server", aside.path()) else { return };
    control.seed(seed());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(chaos(&control));
}

async fn chaos(control: &Control) {
    println!("chaos for {:?}, LASTWORD_SEED={}", length(), seed());
    let mut rng = StdRng::seed_from_u64(seed());
    let known = SharedKnown::default();
    let (mut dir, tokens) = enrol().await;
    fs::write(dir.path().join("lastword.toml"), LIMITS).unwrap();
    let (mut did, end) = (Did::default(), Instant::now() + length());
    while Instant::now() < end {
        let mut server = start(control, dir, &mut rng, &mut did);
        let load = load::begin(&server, &tokens, &known, rng.random());
        for _ in 0..rng.random_range(1..4) {
            control.weather(Weather::draw(&mut rng));
            if rng.random_ratio(2, 5) {
                control.wall(jump(&mut rng));
                did.jumps += 1;
            }
            // The pause is the time of this weather, not a condition: the end may come at any moment of it.
            tokio::time::sleep(Duration::from_millis(rng.random_range(50..1_200))).await;
            if server.has_ended() {
                break;
            }
        }
        let kill = rng.random_ratio(3, 4);
        dir = end_server(server, kill, &mut did).await;
        load.join_all().await;
    }
    control.weather(Weather::CALM);
    let counts = control.counts();
    println!("{did:?} {counts:?}");
    assert!(did.starts > 1 && did.jumps > 0 && counts.happened(), "there was chaos");
    let dir = quiet(dir, &tokens, &known).await;
    let known = known.lock().unwrap();
    let (sent, answers) = (known.sent.len(), known.answers.len());
    let mut codes = BTreeMap::<&str, usize>::new();
    for why in known.refused.values() {
        *codes.entry(why.split(':').next().unwrap_or_default()).or_default() += 1;
    }
    println!("{sent} sends and {answers} answers acknowledged; refused: {codes:?}");
    assert!(sent > did.starts && answers > did.starts, "there was load");
    assert_eq!(check_log(&dir.path().join(".lastword"), &known), 0, "requests without an answer");
    run(dir.path(), &["verify"]).ok();
}

/// Starts the server in any weather, and after some starts that failed without faults, where it has to succeed.
fn start(control: &Control, mut dir: TempDir, rng: &mut StdRng, did: &mut Did) -> Server {
    for n in 0.. {
        let calm = n == STARTS;
        control.weather(if calm { Weather::CALM } else { Weather::draw(rng) });
        did.starts += 1;
        let command = control.server(dir.path());
        match Server::try_start_by(dir, command) {
            Ok(server) => return server,
            Err((ended, left)) => {
                assert!(!calm, "it doesn't start without faults: {ended:?}: {}", told(left.path()));
                stopped_with_a_reason(&ended, left.path());
                did.starts_failed += 1;
                dir = left;
            }
        }
    }
    unreachable!("a start succeeds, or the test fails");
}

/// Ends the server unless faults have ended it: by a kill, or as a service manager does.
async fn end_server(mut server: Server, kill: bool, did: &mut Did) -> TempDir {
    let asked = !server.has_ended();
    if asked && kill {
        did.kills += 1;
        return server.kill();
    }
    if asked {
        server.ask_to_end();
    }
    let patience = Instant::now() + PATIENCE;
    while !server.has_ended() {
        assert!(Instant::now() < patience, "it hangs: {}", told(server.path()));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let ended = server.wait();
    if asked && ended.code == 0 {
        did.drained += 1;
    } else {
        did.ended_by_faults += 1;
        stopped_with_a_reason(&ended, server.path());
    }
    server.take_dir()
}

/// Checks that the server ended because it couldn't go on, and that it says why and what to do.
fn stopped_with_a_reason(ended: &Ended, dir: &Path) {
    let told = told(dir);
    assert_eq!(ended.code, 3, "{ended:?}: {told}");
    let error: Value = serde_json::from_str(told.lines().last().unwrap_or_default()).unwrap_or_default();
    let (detail, hint) = (error["error"]["detail"].as_str(), error["error"]["hint"].as_str());
    assert!(detail.is_some_and(|detail| hint.is_some() || detail.contains("restart")), "{told}");
}

/// Returns what the server wrote to standard error.
fn told(dir: &Path) -> String {
    fs::read_to_string(said(dir)).unwrap()
}

/// Without faults and with the machine's clock: everything acknowledged is there, and all work ends.
async fn quiet(dir: TempDir, tokens: &[String], known: &SharedKnown) -> TempDir {
    let server = Server::start_in(dir);
    let load = load::attend(&server, tokens, known);
    settle(&server, known).await;
    load::all_end(&server, known).await;
    let (code, dir) = server.terminate();
    assert_eq!(code, 0, "it drains and ends");
    load.join_all().await;
    dir
}
