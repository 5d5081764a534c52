//! Disk faults: `strace` makes calls of the real program fail, at the start and under load.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use lastword_client::wire::session::{SessionCall, Watch, WatchDeliveries};
use lastword_client::{Client, Pushed, SendTerms, Sent, Session};
use lastword_wire::Envelope;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::backup::take;
use crate::crash::{begin, client, enrol, human, settle};
use crate::load::{SharedKnown, check_log};
use crate::mounted::Mounted;
use crate::program::{PATH, Server, lastword, run};
use crate::session_clients::runtime;

/// Longest wait for the server's end; it comes at the latest with the n-th sync of the log, of hundreds per second.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns how many calls fail, each in its own run; `LASTWORD_DISK_FAULTS=200` for the long run.
fn faults() -> usize {
    std::env::var_os("LASTWORD_DISK_FAULTS").and_then(|n| n.to_str()?.parse().ok()).unwrap_or(8)
}

/// Returns whether programs can be traced here. If not, a note goes past the test harness, which captures the output of
/// passing tests; with `LASTWORD_STRACE` set the test fails instead.
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

/// Returns the server's command with failing calls; strace counts `calls` per thread.
fn failing(dir: &Path, calls: &str, fault: &str) -> Command {
    let mut server = lastword(dir);
    server.args(["serve", "--json", "--listen", "127.0.0.1:0"]);
    let mut command = Command::new("strace");
    // The tracer is detached, so that the child is the server itself, and its exit code the server's.
    command.args(["-D", "-f", "-qq", "--seccomp-bpf", "-o"]).arg(dir.join("strace.log"));
    command.args(["-e", &format!("trace={calls}"), "-e", "signal=none", "-e", &format!("inject={calls}:{fault}")]);
    command.arg(server.get_program()).args(server.get_args());
    command.current_dir(dir).env_clear().env("PATH", PATH);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn a_sync_that_fails_stops_the_server_and_nothing_acknowledged_is_lost() {
    // Later syncs succeed, as on a disk that lost data and reports that only once.
    let fault = |n| ("fsync,fdatasync", format!("error=EIO:when={n}"));
    campaign("syncs that fail", fault, &["restart", "start the server again"]);
}

/// Sends requests of 100 kB until one is refused for lack of space; returns the number of accepted ones.
fn send_until_full(server: &Server) -> usize {
    let body = "x".repeat(100_000);
    for n in 0..200 {
        let sent = server.operator(&["send", "kilo", &body, "--ref", &format!("T-{n}")]);
        if sent.code != 0 {
            assert!(sent.stderr.contains("disk_low"), "{sent:?}");
            return n;
        }
    }
    panic!("the disk does not fill up");
}

#[test]
fn a_full_disk_refuses_writes_and_reads_and_a_humans_stop_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = Mounted::over(&dir.path().join(".lastword"), 32 << 20) else { return };
    std::fs::write(disk.0.join("ballast"), vec![0; 24 << 20]).unwrap();
    let server = Server::start_in(dir);
    server.agent("kilo");
    let sent = send_until_full(&server);
    assert!(sent > 5, "there was load: {sent}");
    let works = |server: &Server| {
        server.operator(&["incidents"]).ok();
        server.operator(&["tree", "T-1"]).ok();
        server.operator(&["stop", "T-1"]).ok();
        server.operator(&["stop", "--workspace"]).ok();
        let doctor = run(server.path(), &["doctor"]);
        assert!(doctor.stdout.contains("free space"), "{doctor:?}");
        assert_ne!(server.operator(&["send", "kilo", "more", "--ref", "MORE"]).code, 0);
        server.operator(&["resume", "--workspace", "--yes"]).ok();
    };
    works(&server);
    disk.fill("the-rest");
    works(&server);
    // Other programs use up what gets free.
    for n in 0..2 {
        disk.fill(&format!("more-{n}"));
        works(&server);
    }
    let (code, dir) = server.terminate();
    assert_eq!(code, 0, "it drains and ends");
    let server = Server::start_in(dir);
    works(&server);
    for name in ["the-rest", "ballast", "more-0", "more-1"] {
        disk.empty(name);
    }
    let again = || server.operator(&["send", "kilo", "more", "--ref", "AFTER"]).code == 0;
    // Usually within a second; the loop waits for the condition.
    let noticed = (0..600).any(|_| {
        let taken = again();
        if !taken {
            std::thread::sleep(Duration::from_millis(50));
        }
        taken
    });
    assert!(noticed, "there is room and it is not noticed");
    let found = server.operator(&["audit", "--ref", "AFTER"]).ok();
    assert!(found.contains("more"), "the read model goes on: {found}");
    let (_, dir) = server.terminate();
    assert_eq!(run(dir.path(), &["verify"]).code, 0);
}

/// Makes a call in a session; returns its status, and its result or problem.
async fn call(session: &Session, name: &'static str, path: Option<&str>, body: Option<Value>) -> (u16, Value) {
    let body = body.map(|body| to_raw_value(&body).unwrap());
    let path = path.map(Into::into);
    let call = SessionCall { call: name.into(), path, body: body.as_deref(), ..SessionCall::default() };
    let replied = timeout(PATIENCE, session.call(call)).await.expect("no reply").expect("the session is open");
    (replied.status, serde_json::from_str(&replied.json).unwrap_or_default())
}

#[test]
fn a_session_is_refused_on_a_full_disk_as_http_is_and_goes_on_once_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = Mounted::over(&dir.path().join(".lastword"), 32 << 20) else { return };
    std::fs::write(disk.0.join("ballast"), vec![0; 24 << 20]).unwrap();
    let server = Server::start_in(dir);
    server.agent("kilo");
    server.agent("hive");
    let client = |name: &str| {
        client(&server, std::fs::read_to_string(server.path().join(format!("{name}.token"))).unwrap().trim())
    };
    runtime().block_on(async {
        let (http, person) = (client("hive"), human(&server));
        let open = async |client: &Client| Session::open(client.endpoint(), client.token().unwrap()).await.unwrap();
        let ((hive, _), (human, _)) = (open(&http).await, open(&person).await);
        let (kilo, mut pushes) = open(&client("kilo")).await;
        let watch = Watch { deliveries: Some(WatchDeliveries { window: Some(1), working: Vec::new() }), events: None };
        kilo.watch(&watch).await.unwrap();
        let request =
            |n: u64, body: &str| json!({ "type": "request", "to": "kilo", "ref": format!("T-{n}"), "body": body });
        assert_eq!(call(&human, "send", None, Some(request(0, "first"))).await.0, 201);
        let Pushed::Delivery(first) = pushes.next().await.unwrap() else { panic!("no delivery") };
        // Several at a time, which are written by one append.
        let (mut n, body) = (1, "x".repeat(100_000));
        let refused = loop {
            let sent = (n..n + 8).map(|n| call(&human, "send", None, Some(request(n, &body))));
            let sent = futures_util::future::join_all(sent).await;
            n += 8;
            assert!(n < 400, "the disk does not fill up");
            if let Some((_, problem)) = sent.into_iter().find(|(status, _)| *status != 201) {
                break problem;
            }
        };
        disk.fill("the-rest");
        let envelope: Envelope = serde_json::from_value(request(n, "y")).unwrap();
        let told = person.send(&envelope, &SendTerms::default()).await.unwrap_err();
        let told = serde_json::to_value(told.problem().unwrap()).unwrap();
        assert_eq!(told["code"], "disk_low");
        for member in ["code", "status", "detail", "hint", "title"] {
            assert_eq!(refused[member], told[member], "{refused}");
        }
        assert_eq!(call(&hive, "send", None, Some(request(n, "z"))).await.1["code"], "disk_low");
        assert_eq!(call(&hive, "agents", None, None).await.0, 200, "reads go on");
        assert_eq!(call(&human, "stop", Some("T-1"), None).await.0, 204, "and so does a human's stop");
        disk.empty("the-rest");
        disk.empty("ballast");
        // Usually within a second; the loop waits for the condition.
        let noticed = async {
            while call(&human, "send", None, Some(request(n, "after"))).await.0 != 201 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(PATIENCE, noticed).await.expect("there is room and it is not noticed");
        let turn = first.delivery.turn.unwrap().id;
        let (status, finished) = call(&kilo, "finish", Some(&turn), Some(json!({ "answer": "done" }))).await;
        assert_eq!(status, 200, "{finished}");
        let Pushed::Delivery(next) = timeout(PATIENCE, pushes.next()).await.unwrap().unwrap() else {
            panic!("no delivery")
        };
        assert_ne!(next.delivery.delivery, first.delivery.delivery);
        for session in [&hive, &human, &kilo] {
            assert!(!session.has_ended());
        }
    });
    let (code, dir) = server.terminate();
    assert_eq!((code, run(dir.path(), &["verify"]).code), (0, 0));
}

#[test]
fn a_send_that_waits_while_the_disk_gets_low_has_its_answer() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = Mounted::over(&dir.path().join(".lastword"), 16 << 20) else { return };
    let server = Server::start_in(dir);
    server.agent("kilo");
    server.agent("hive");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let kilo = client(&server, std::fs::read_to_string(server.path().join("kilo.token")).unwrap().trim());
    let envelope = json!({ "type": "request", "to": "hive", "ref": "T-1", "body": "look" });
    let envelope: Envelope = serde_json::from_value(envelope).unwrap();
    let terms = SendTerms { wait: Some(PATIENCE), ..SendTerms::default() };
    let asked = std::thread::scope(|threads| {
        let asking = threads.spawn(|| runtime.block_on(kilo.send(&envelope, &terms)));
        let (turn, _) = take(&server, "hive");
        let free = rustix::fs::statvfs(&disk.0).unwrap();
        let ballast = usize::try_from(free.f_bavail * free.f_frsize).unwrap() - (600 << 10);
        std::fs::write(disk.0.join("ballast"), vec![0; ballast]).unwrap();
        // Noticed within a second; an agent's delivery is refused from then on, a finish with its awaited answer isn't.
        while !server.as_agent("hive", &["inbox"]).stderr.contains("disk_low") {
            std::thread::sleep(Duration::from_millis(50));
        }
        server.as_agent("hive", &["finish", &turn, "the answer"]).ok();
        asking.join().unwrap()
    });
    let Ok(Sent::One { response: Some(answer), .. }) = &asked else { panic!("{asked:?}") };
    assert_eq!(answer.body, "the answer");
}

/// Starts, loads and restarts the server, with another failing call each time; its output must contain one of `said`.
fn campaign(name: &str, fault: impl Fn(usize) -> (&'static str, String), said: &[&str]) {
    if can_trace(name) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(fail_and_check(name, fault, said));
    }
}

async fn fail_and_check(name: &str, fault: impl Fn(usize) -> (&'static str, String), said: &[&str]) {
    let known = SharedKnown::default();
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
