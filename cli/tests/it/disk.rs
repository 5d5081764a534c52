//! The disk lets the server down: calls of the real program are made to fail by `strace`, at the start and under load.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::crash::{Shared, begin, check_log, enrol, settle};
use crate::program::{PATH, Server, lastword, run};

/// Longest wait for an end; it comes at the latest with the n-th sync of the log, of hundreds a second.
const PATIENCE: Duration = Duration::from_secs(60);

/// How many calls are made to fail, each in a run of its own; `LASTWORD_DISK_FAULTS=200` for the long run.
fn faults() -> usize {
    std::env::var_os("LASTWORD_DISK_FAULTS").and_then(|n| n.to_str()?.parse().ok()).unwrap_or(8)
}

/// Whether programs can be traced here. Where they can't, it is said past the test harness, which keeps what a test that
/// passes prints to itself; with `LASTWORD_STRACE` set they have to be.
fn can_trace(test: &str) -> bool {
    let traced = Command::new("strace").args(["-qq", "-o", "/dev/null", "true"]).stderr(Stdio::null()).status();
    if traced.is_ok_and(|status| status.success()) {
        return true;
    }
    let told =
        format!("\nNOT TESTED: {test}: `strace` is missing or may not trace here (Debian: apt-get install strace)\n");
    assert!(std::env::var_os("LASTWORD_STRACE").is_none(), "{told}");
    std::io::stderr().write_all(told.as_bytes()).unwrap();
    false
}

/// The server with calls of it that fail: `calls` as strace counts them, in each thread for itself.
fn failing(dir: &Path, calls: &str, fault: &str) -> Command {
    let mut server = lastword(dir);
    server.args(["serve", "--json", "--listen", "127.0.0.1:0"]);
    let mut command = Command::new("strace");
    // The tracer goes aside, so that ours is the server itself, and its end the server's.
    command.args(["-D", "-f", "-qq", "--seccomp-bpf", "-o"]).arg(dir.join("strace.log"));
    command.args(["-e", &format!("trace={calls}"), "-e", "signal=none", "-e", &format!("inject={calls}:{fault}")]);
    command.arg(server.get_program()).args(server.get_args());
    command.current_dir(dir).env_clear().env("PATH", PATH);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn a_sync_that_fails_stops_the_server_and_nothing_acknowledged_is_lost() {
    // The later ones go well again, as on a disk that lost what it was given and does not say so twice.
    let fault = |n| ("fsync,fdatasync", format!("error=EIO:when={n}"));
    campaign("syncs that fail", fault, &["restart", "start the server again"]);
}

#[test]
fn a_disk_that_is_full_stops_the_server_and_nothing_acknowledged_is_lost() {
    let fault = |n| ("pwrite64", format!("error=ENOSPC:when={}+", n * 7));
    campaign("a disk that is full", fault, &["room", "is full", "No space left"]);
}

/// Starts, loads and starts again, with another call that fails each time; what the server says of it has one of `said`.
fn campaign(name: &str, fault: impl Fn(usize) -> (&'static str, String), said: &[&str]) {
    if can_trace(name) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(fail_and_check(name, fault, said));
    }
}

async fn fail_and_check(name: &str, fault: impl Fn(usize) -> (&'static str, String), said: &[&str]) {
    let known = Shared::default();
    let (mut dir, tokens) = enrol().await;
    let (mut at_start, mut under_load) = (0, 0);
    for n in 1..=faults() {
        let (calls, fault) = fault(n);
        let command = failing(dir.path(), calls, &fault);
        let ended;
        (ended, dir) = match Server::try_start_by(dir, command) {
            Err(ended) => {
                at_start += 1;
                ended
            }
            Ok(mut server) => {
                under_load += 1;
                let load = begin(&server, &tokens, &known).join_all();
                assert!(tokio::time::timeout(PATIENCE, load).await.is_ok(), "{n}: it serves on, or hangs");
                (server.wait(), server.take_dir())
            }
        };
        let traced = std::fs::read_to_string(dir.path().join("strace.log")).unwrap();
        assert!(traced.contains("(INJECTED)"), "{n}: no call failed: {ended:?}");
        assert_eq!(ended.code, 3, "{n}: {ended:?}");
        assert!(said.iter().any(|said| ended.stderr.contains(said)), "{n}: {ended:?}");
        let server = Server::start_in(dir);
        settle(&server, &known).await;
        let code;
        (code, dir) = server.terminate();
        assert_eq!(code, 0, "{n}: it drains and ends");
    }
    let known = known.lock().unwrap();
    println!("{name}: {at_start} at the start, {under_load} under load; {} sends acknowledged", known.sent.len());
    assert!(under_load > 0 && known.sent.len() > under_load, "there was load: {at_start}, {under_load}");
    check_log(&dir.path().join(".lastword"), &known);
    assert_eq!(run(dir.path(), &["verify"]).code, 0);
}
