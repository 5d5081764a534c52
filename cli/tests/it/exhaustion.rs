//! What an agent or a stranger holds or writes never keeps a human out, nor fills the disk (H4, L4, G2).

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lastword_client::wire::session::SessionCall;
use lastword_client::{Client, ClientError, SendTerms, Session};
use lastword_facts::Limits;
use lastword_wire::{Envelope, HeldCall, NewClaim};
use rustix::process::{Resource, getrlimit};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::crash::{client, human};
use crate::program::{Server, lastword};
use crate::session_clients::runtime;

/// Bounds a test that fails; a server that answers does so within milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);
/// The undecided approvals that an agent may have.
const APPROVALS: usize = 8;

/// What attackers hold, and how often a human acts meanwhile.
struct Scale {
    /// The most descriptors of the server, as a small machine or a service manager sets it.
    descriptors: u32,
    /// Connections of an agent: event streams, long polls, bodies that don't end, and answers that aren't read.
    streams: usize,
    waits: usize,
    bodies: usize,
    unread: usize,
    /// Connections without a token: headers that don't end, and nothing at all.
    strangers: usize,
    silent: usize,
    /// Sessions of each kind: with a long frame that doesn't end, with 256 calls whose replies aren't read, without a token in a
    /// frame that doesn't end, without any frame.
    sessions: usize,
    /// Connections that call as fast as they can.
    floods: usize,
    /// Times that a human stops, resumes and approves while all of that goes on.
    rounds: usize,
    /// How long an agent writes as fast as it can, and its quota.
    writes: Duration,
    quota: u64,
}

/// Returns whether the attacks are those whose figures are in docs/security.md; `LASTWORD_ATTACK=1`.
pub(crate) fn is_campaign() -> bool {
    std::env::var_os("LASTWORD_ATTACK").is_some()
}

/// Returns how many descriptors a server gets that is to run out of them, and how many connections of each kind this
/// process holds: an ordinary user may have 1,024 open files.
pub(crate) fn scarce() -> (u32, usize) {
    let own = getrlimit(Resource::Nofile).current;
    if own.is_none_or(|own| own >= 8_192) { (512, 512) } else { (128, 64) }
}

fn scale() -> Scale {
    if is_campaign() {
        return Scale {
            descriptors: 4_096,
            streams: 1_100,
            waits: 600,
            bodies: 1_000,
            unread: 300,
            strangers: 1_100,
            silent: 600,
            sessions: 300,
            floods: 8,
            rounds: 100,
            writes: Duration::from_secs(60),
            quota: Limits::default().agent_day_bytes_max,
        };
    }
    let (descriptors, many) = scarce();
    Scale {
        descriptors,
        streams: many,
        waits: many,
        bodies: many,
        unread: many,
        strangers: many,
        silent: many,
        sessions: many / 4,
        floods: 1,
        rounds: 8,
        writes: Duration::from_secs(2),
        quota: 2_000_000,
    }
}

/// Starts a server with few descriptors.
fn start(descriptors: u32) -> Server {
    let dir = tempfile::tempdir().unwrap();
    let program = lastword(dir.path());
    let mut command = Command::new("sh");
    command.current_dir(dir.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.args(["-c", &format!("ulimit -n {descriptors}; exec \"$@\""), "sh"]).arg(program.get_program());
    command.args(["--json", "serve", "--listen", "127.0.0.1:0"]);
    Server::start_by(dir, command)
}

/// A connection that an attacker holds, and what it began with.
pub(crate) struct Held<'a> {
    stream: Option<TcpStream>,
    text: &'a [u8],
}

impl<'a> Held<'a> {
    fn open(address: &str, text: &'a [u8]) -> Self {
        let stream = TcpStream::connect(address).ok();
        let stream = stream.filter(|mut stream| {
            // A connection that the server has closed already is what this test is about.
            let _closed = stream.write_all(text);
            stream.set_nonblocking(true).is_ok()
        });
        Self { stream, text }
    }

    fn is_closed(&self) -> bool {
        let Some(stream) = &self.stream else { return true };
        match stream.peek(&mut [0]) {
            Ok(read) => read == 0,
            Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
        }
    }
}

pub(crate) struct Attack<'a> {
    address: String,
    held: Vec<Held<'a>>,
}

impl<'a> Attack<'a> {
    pub(crate) fn on(address: &str) -> Self {
        Self { address: address.to_owned(), held: Vec::new() }
    }

    /// Opens connections and sends this text on each.
    pub(crate) fn hold(&mut self, connections: usize, text: &'a [u8]) {
        self.held.extend((0..connections).map(|_| Held::open(&self.address, text)));
    }

    /// Opens each connection that the server closes again, as fast as it can until the test ends; returns how many it
    /// were.
    fn keep(&mut self, ended: &AtomicBool) -> usize {
        let mut again = 0;
        while !ended.load(Ordering::Relaxed) {
            for held in self.held.iter_mut().filter(|held| held.is_closed()) {
                *held = Held::open(&self.address, held.text);
                again += 1;
            }
        }
        again
    }
}

/// Sends one request on a connection of its own; returns the status and the body, which may be empty. `None` if the
/// connection is closed before an answer.
pub(crate) fn ask(address: &str, text: &str) -> Option<(String, Value)> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut response = String::new();
    match stream.write_all(text.as_bytes()).and_then(|()| stream.read_to_string(&mut response)) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("no answer within {PATIENCE:?}: {text}"),
        Ok(_) | Err(_) => {}
    }
    let (head, body) = response.split_once("\r\n\r\n")?;
    Some((head[9..12].to_owned(), serde_json::from_str(body).unwrap_or_default()))
}

/// Repeats a call on one connection as fast as it can, until the test ends; returns how many were answered.
fn flood(address: &str, text: &str, ended: &AtomicBool, answered: &AtomicUsize) {
    while !ended.load(Ordering::Relaxed) {
        let Ok(mut stream) = TcpStream::connect(address) else { continue };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut response = [0; 65_536];
        while !ended.load(Ordering::Relaxed)
            && stream.write_all(text.as_bytes()).is_ok()
            && stream.read(&mut response).is_ok_and(|read| read > 0)
        {
            answered.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Returns the server's resident memory, in MiB.
pub(crate) fn resident(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or_default() / 1024
}

/// The request's end with this JSON.
pub(crate) fn json_body(text: &str) -> String {
    format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{text}", text.len())
}

/// Returns the request that opens a session, with these headers.
fn upgrade(headers: &str) -> String {
    format!(
        "GET /v1/session HTTP/1.1\r\n{headers}Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==\r\nSec-WebSocket-Protocol: lastword.v1\r\n\r\n"
    )
}

/// Returns a text frame of this length, masked with zeros.
fn frame(length: u64) -> Vec<u8> {
    let mut frame = [&[0x81, 0xff][..], &length.to_be_bytes(), &[0; 4]].concat();
    frame.resize(frame.len() + usize::try_from(length).unwrap(), b'x');
    frame
}

fn call_frame(text: &str) -> Vec<u8> {
    let mut frame = frame(text.len() as u64);
    let begin = frame.len() - text.len();
    frame[begin..].copy_from_slice(text.as_bytes());
    frame
}

/// Returns the headers with the token in this file.
pub(crate) fn headers(file: impl AsRef<std::path::Path>) -> String {
    let token = fs::read_to_string(file).unwrap();
    format!("Host: localhost\r\nAuthorization: Bearer {}\r\n", token.trim())
}

/// A human that stops and resumes the workspace, over HTTP and in a session that was opened before the attack.
struct Person {
    address: String,
    headers: String,
    runtime: Runtime,
    session: Session,
    times: Times,
}

impl Person {
    fn of(server: &Server, address: &str) -> Self {
        let headers = headers(server.path().join(".lastword/operator.token"));
        let runtime = runtime();
        let session = runtime.block_on(in_session(server));
        Self { address: address.to_owned(), headers, runtime, session, times: Times::default() }
    }

    fn post(&mut self, path: &str, body: &str, status: &str) {
        let request = format!("POST {path} HTTP/1.1\r\n{}Connection: close\r\n{}", self.headers, json_body(body));
        self.times.call(&self.address, &request, status);
    }

    fn stops_and_resumes(&mut self) {
        self.post("/v1/workspace/stop", "", "204");
        self.post("/v1/workspace/resume", "", "204");
        for name in ["stop_workspace", "resume_workspace"] {
            let call = SessionCall { call: name.into(), ..SessionCall::default() };
            let replied = self.runtime.block_on(async { timeout(PATIENCE, self.session.call(call)).await });
            let replied = replied.expect("no reply").expect("a human's session is open");
            assert_eq!(replied.status, 204, "{name}: {}", replied.json);
        }
    }
}

/// Opens a session of the human.
async fn in_session(server: &Server) -> Session {
    let human = human(server);
    let begin = Instant::now();
    loop {
        match Session::open(human.endpoint(), human.token().unwrap()).await {
            Ok((session, _)) => return session,
            // Its connection made room for another before the request was read.
            Err(error) => assert!(begin.elapsed() < PATIENCE, "{error}"),
        }
    }
}

/// Holds a call for each round; returns the ids and digests.
pub(crate) fn held_calls(server: &Server, address: &str, rounds: usize) -> Vec<(String, String)> {
    let held = (0..rounds).map(|n| {
        let name = format!("caller-{}", n / APPROVALS);
        if n % APPROVALS == 0 {
            server.agent(&name);
        }
        let agent = headers(server.path().join(format!("{name}.token")));
        let call = json_body(&json!({ "tool": "deploy", "arguments": { "to": n } }).to_string());
        let (status, held) =
            ask(address, &format!("POST /v1/approvals HTTP/1.1\r\n{agent}Connection: close\r\n{call}")).unwrap();
        assert_eq!(status, "201", "{held}");
        let text = |name: &str| held[name].as_str().unwrap().to_owned();
        (text("id"), text("digest"))
    });
    held.collect()
}

/// The durations of a human's calls.
#[derive(Default)]
pub(crate) struct Times {
    each: Vec<Duration>,
    /// Calls whose connection made room for another before the call was read. They are made again, as a client does,
    /// and that time counts.
    again: usize,
}

impl Times {
    /// Makes a call that has to have this status.
    pub(crate) fn call(&mut self, address: &str, text: &str, status: &str) {
        let begin = Instant::now();
        let (found, body) = loop {
            if let Some(answer) = ask(address, text) {
                break answer;
            }
            assert!(begin.elapsed() < PATIENCE, "no answer: {text}");
            self.again += 1;
        };
        self.each.push(begin.elapsed());
        assert_eq!(found, status, "{body}: {text}");
    }

    fn at(&self, percent: usize) -> Duration {
        let mut sorted = self.each.clone();
        sorted.sort();
        sorted[(sorted.len() - 1) * percent / 100]
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, again) = (self.each.len(), self.again);
        let [p50, p99, max] = [50, 99, 100].map(|percent| self.at(percent));
        write!(f, "{count} calls of a human: p50 {p50:?}, p99 {p99:?}, max {max:?}, {again} of them made again")
    }
}

#[test]
fn a_human_stops_and_decides_while_others_hold_all_that_they_can() {
    let scale = scale();
    let server = start(scale.descriptors);
    let address = server.first_line["listening"].as_str().unwrap().trim_start_matches("http://").to_owned();
    let agent = headers(server.agent("kilo"));
    let calls = held_calls(&server, &address, scale.rounds);
    let streams = format!("GET /v1/events HTTP/1.1\r\n{agent}\r\n");
    let waits = format!("GET /v1/inbox?wait=300s HTTP/1.1\r\n{agent}\r\n");
    let bodies = format!(
        "POST /v1/messages HTTP/1.1\r\n{agent}Content-Type: application/json\r\nContent-Length: 600000\r\n\r\n{{"
    );
    let unread = format!("GET /v1/openapi.json HTTP/1.1\r\n{agent}\r\n").repeat(64);
    let upgrade = upgrade(&agent);
    let slow_frames = [upgrade.as_bytes(), &frame(600_000)[..100_000]].concat();
    let reads = call_frame(r#"{"id":1,"call":"messages","query":{"limit":200}}"#).repeat(256);
    let unread_sessions = [upgrade.as_bytes(), &reads].concat();
    let no_hello = [self::upgrade("Host: localhost\r\n").as_bytes(), &frame(3_000)[..100]].concat();
    let no_frame = self::upgrade("Host: localhost\r\n");
    let strangers = "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 600000\r\n";
    let mut attack = Attack::on(&address);
    let mut person = Person::of(&server, &address);
    let before = resident(&server);
    for (connections, text) in [
        (scale.streams, streams.as_bytes()),
        (scale.waits, waits.as_bytes()),
        (scale.bodies, bodies.as_bytes()),
        (scale.unread, unread.as_bytes()),
        (scale.sessions, &slow_frames),
        (scale.sessions, &unread_sessions),
        (scale.sessions, &no_hello),
        (scale.silent, no_frame.as_bytes()),
        (scale.strangers, strangers.as_bytes()),
        (scale.silent, b""),
    ] {
        attack.hold(connections, text);
        person.stops_and_resumes();
    }
    let refused = json!({ "type": "request", "to": "kilo", "ref": "T-1", "body": "x".repeat(1_000) }).to_string();
    let refused = format!("POST /v1/messages HTTP/1.1\r\n{agent}{}", json_body(&refused));
    let read = format!("GET /v1/conversations HTTP/1.1\r\n{agent}\r\n");
    let (held, ended, answered) = (attack.held.len(), AtomicBool::new(false), AtomicUsize::new(0));
    let (again, most) = std::thread::scope(|threads| {
        let _end = EndOnDrop(&ended);
        let keeping = threads.spawn(|| attack.keep(&ended));
        for text in [&refused, &read].into_iter().cycle().take(scale.floods) {
            threads.spawn(|| flood(&address, text, &ended, &answered));
        }
        let mut most = 0;
        for (id, digest) in &calls {
            person.stops_and_resumes();
            let approve = json!({ "decision": "approve", "digest": digest }).to_string();
            person.post(&format!("/v1/approvals/{id}/decision"), &approve, "200");
            most = most.max(resident(&server));
        }
        ended.store(true, Ordering::Relaxed);
        (keeping.join().unwrap(), most)
    });
    let times = &person.times;
    println!(
        "{times}; {held} connections held, {again} opened again, {} calls of the flood answered; resident {before} MiB before, \
         {most} MiB at most",
        answered.load(Ordering::Relaxed),
    );
    assert!(!is_campaign() || times.at(99) < Duration::from_secs(1), "a human's calls take too long");
    assert!(!person.runtime.block_on(in_session(&server)).has_ended(), "and a human opens another one");
    drop(attack);
    assert_eq!(server.operator(&["approvals"]).code, 0, "and the server serves on");
}

/// Ends the attack, also when the test fails.
pub(crate) struct EndOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns the length of the log with its WAL, in bytes.
fn log_bytes(server: &Server) -> u64 {
    let length = |name: &str| fs::metadata(server.path().join(".lastword").join(name)).map_or(0, |file| file.len());
    length("lastword.db") + length("lastword.db-wal")
}

/// Writes as one agent on one connection, as fast as it can: calls that the policy allows with 200 kB of arguments,
/// claims, polls, and requests that are refused. Counts the outcomes by code.
async fn write(agent: Client, worker: usize, time: Duration) -> BTreeMap<String, usize> {
    let begin = Instant::now();
    let mut outcomes = BTreeMap::new();
    let mut count = |error: Option<&ClientError>| {
        let code = error.map(|error| error.problem().map_or_else(|| error.to_string(), |told| told.code.to_string()));
        *outcomes.entry(code.unwrap_or_else(|| "accepted".into())).or_default() += 1;
    };
    let mut refused = false;
    for n in 0.. {
        // A slow machine gets the time that it needs to meet a limit.
        if begin.elapsed() > time && (refused || begin.elapsed() > PATIENCE) {
            break;
        }
        let (tool, text) = ("Read".to_owned(), format!("{worker}-{n} {}", "x".repeat(200_000)));
        let call = HeldCall { tool, arguments: json!({ "text": text }).into(), reason: None, key: None };
        let held = agent.hold(&call).await;
        count(held.as_ref().err());
        let claim: NewClaim = serde_json::from_value(json!({ "resource": format!("repo:{worker}-{n}") })).unwrap();
        let claimed = agent.claim(&claim).await;
        count(claimed.as_ref().err());
        if let Ok(claim) = &claimed {
            count(agent.release(&claim.id).await.as_ref().err());
        }
        count(agent.inbox(Duration::from_millis(1)).await.as_ref().err());
        // Not before the quota is met: so many refusals end all writes of an agent.
        if held.is_err() {
            refused = true;
            let envelope = json!({ "type": "request", "to": "kilo", "ref": "T-1", "body": text });
            let envelope: Envelope = serde_json::from_value(envelope).unwrap();
            count(agent.send(&envelope, &SendTerms::default()).await.as_ref().err());
        }
    }
    outcomes
}

/// Lets an agent write as fast as it can under these limits; returns the bytes that reached the log, and the outcomes.
fn writes(limits: &str, time: Duration) -> (u64, BTreeMap<String, usize>) {
    let dir = tempfile::tempdir().unwrap();
    let config = format!("[[approval]]\ntool = \"Read\"\ndecision = \"allow\"\n[limits]\n{limits}");
    fs::write(dir.path().join("lastword.toml"), config).unwrap();
    let server = Server::start_in(dir);
    let token = fs::read_to_string(server.agent("kilo")).unwrap();
    let (before, begin) = (log_bytes(&server), Instant::now());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (most, outcomes) = runtime.block_on(async {
        let mut writers = JoinSet::new();
        for worker in 0..4 {
            writers.spawn(write(client(&server, token.trim()), worker, time));
        }
        let (mut most, mut last) = (0, before);
        while begin.elapsed() < time {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let now = log_bytes(&server);
            (most, last) = (most.max(now - last), now);
        }
        let mut outcomes = BTreeMap::<String, usize>::new();
        for (code, count) in writers.join_all().await.into_iter().flatten() {
            *outcomes.entry(code).or_default() += count;
        }
        (most, outcomes)
    });
    let (written, seconds) = (log_bytes(&server) - before, begin.elapsed().as_secs_f64());
    let mb = |bytes: u64| bytes as f64 / 1e6;
    println!(
        "{limits:?}: {:.1} MB in {seconds:.0} s reached the log, {:.2} MB/s, {:.1} MB/s in the fastest second; {outcomes:?}",
        mb(written),
        mb(written) / seconds,
        mb(most),
    );
    server.operator(&["stop", "--workspace"]).ok();
    (written, outcomes)
}

#[test]
fn an_agent_that_writes_as_fast_as_it_can_is_stopped_by_its_windows_and_its_quota() {
    let Scale { writes: time, quota, .. } = scale();
    // The rest: a WAL that is not written back yet, and what refusals and polls leave.
    let rest = 8 << 20;
    let (written, outcomes) = writes("", time);
    assert!(outcomes.contains_key("sender_rate"), "the window is met");
    let windows = time.as_secs() / 60 + 1;
    assert!(written < windows * Limits::default().sender_messages_max * 210_000 + rest, "{written} bytes");
    let (written, outcomes) = writes(&format!("sender_messages_max = 1000000\nagent_day_bytes_max = {quota}\n"), time);
    assert!(outcomes.contains_key("quota_bytes"), "the quota is met");
    assert!(written < quota * 5 / 4 + rest, "{written} bytes");
}
