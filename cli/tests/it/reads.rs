//! What an agent makes the broker read and send costs its own window, and never a human's controls (L4, H4).

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::json;

use crate::exhaustion::{Attack, EndOnDrop, Times, ask, headers, held_calls, is_campaign, json_body, resident};
use crate::program::{Server, lastword};
use crate::running::wait_for;

/// Bytes of each message: the largest are 256 KiB.
const BODY_BYTES: usize = 250_000;
/// The most resident memory under any of these attacks, in MiB.
const RESIDENT_MAX: u64 = 256;
/// The descriptors that reads may have open: two pools of readers, and the writers' files.
const FILES_MAX: usize = 64;

/// Starts a server whose log holds `notes` messages of the largest size, written by one agent.
fn start_with_notes(notes: usize) -> (Server, String, String) {
    let dir = tempfile::tempdir().unwrap();
    let wide = "[limits]\nsender_messages_max = 100000\npair_messages_max = 100000\nagent_day_bytes_max = 10000000000\n\
                turns_soft_max = 90000\nturns_hard_max = 100000\n";
    fs::write(dir.path().join("lastword.toml"), wide).unwrap();
    let server = Server::start_in(dir);
    let address = server.first_line["listening"].as_str().unwrap().trim_start_matches("http://").to_owned();
    let agent = headers(server.agent("kilo"));
    server.agent("hive");
    for n in 0..notes {
        let note = json!({ "type": "info", "to": "hive", "ref": "NOTES-1", "body": format!("word {n} {}", "x".repeat(BODY_BYTES)) });
        let request = format!(
            "POST /v1/messages?return=minimal HTTP/1.1\r\n{agent}Connection: close\r\n{}",
            json_body(&note.to_string())
        );
        let (status, body) = ask(&address, &request).unwrap();
        assert_eq!(status, "201", "{body}");
    }
    (server, address, agent)
}

/// A human at the console and at the controls, on connections of its own.
struct Human {
    address: String,
    headers: String,
    cookie: String,
    times: BTreeMap<&'static str, Times>,
}

impl Human {
    fn of(server: &Server, address: &str) -> Self {
        let headers = headers(server.path().join(".lastword/operator.token"));
        let token = fs::read_to_string(server.path().join(".lastword/operator.token")).unwrap();
        let form = format!("token={}", token.trim());
        let request = format!(
            "POST /sign-in HTTP/1.1\r\nHost: {address}\r\nOrigin: http://{address}\r\nSec-Fetch-Site: same-origin\r\nConnection: close\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
            form.len()
        );
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let cookie = answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")?.split(';').next());
        let cookie = cookie.unwrap_or_else(|| panic!("no cookie: {answer}")).to_owned();
        Self { address: address.to_owned(), headers, cookie, times: BTreeMap::new() }
    }

    fn call(&mut self, name: &'static str, request: &str, status: &str) {
        self.times.entry(name).or_default().call(&self.address, request, status);
    }

    fn post(&mut self, name: &'static str, path: &str, body: &str, status: &str) {
        let request = format!("POST {path} HTTP/1.1\r\n{}Connection: close\r\n{}", self.headers, json_body(body));
        self.call(name, &request, status);
    }

    /// Stops and resumes the workspace, approves a held call, and opens the inbox.
    fn acts(&mut self, (id, digest): &(String, String)) {
        self.post("stop", "/v1/workspace/stop", "", "204");
        self.post("resume", "/v1/workspace/resume", "", "204");
        let approve = json!({ "decision": "approve", "digest": digest }).to_string();
        self.post("approve", &format!("/v1/approvals/{id}/decision"), &approve, "200");
        let inbox = format!(
            "GET /inbox HTTP/1.1\r\nHost: {}\r\nCookie: {}\r\nAccept: text/html\r\nConnection: close\r\n\r\n",
            self.address, self.cookie
        );
        self.call("inbox", &inbox, "200");
    }

    fn tells(&self, attack: &str, (before, most): (u64, u64)) {
        println!("{attack}: resident {before} MiB before, {most} MiB at most");
        for (name, times) in &self.times {
            println!("  {name}: {times}");
        }
    }
}

/// Returns the descriptors of the server that are open on its database files.
fn database_files(server: &Server) -> usize {
    let open = fs::read_dir(format!("/proc/{}/fd", server.id())).unwrap();
    let paths = open.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    paths.filter(|path| path.to_string_lossy().contains(".db")).count()
}

/// What agents make the broker read and send while a human acts.
#[derive(Default)]
struct Load {
    notes: usize,
    /// The requests whose answers nobody reads, on so many connections each.
    unread: Vec<(usize, &'static str)>,
    /// How many connections search without a pause, each for the next of eight agents.
    searchers: usize,
    /// How many processors are busy besides.
    loops: usize,
}

const LISTS: &str = "/v1/messages?limit=1000";
const EVENTS: &str = "/v1/events?after=0";
const TREE: &str = "/v1/conversations/NOTES-1";

impl Load {
    fn unread(path: &'static str) -> Self {
        let (notes, connections) = if is_campaign() { (400, 80) } else { (80, 24) };
        Self { notes, unread: vec![(connections, path)], ..Self::default() }
    }

    fn searches() -> Self {
        let (notes, loops) = if is_campaign() { (400, 2) } else { (40, 0) };
        Self { notes, searchers: 16, loops, ..Self::default() }
    }

    /// Lets a human act under it, and bounds the memory and the descriptors that it takes.
    fn bear(&self, attack: &str) {
        let (server, address, agent) = start_with_notes(self.notes);
        let mut agents = vec![agent];
        agents.extend((0..7).map(|n| headers(server.agent(&format!("searcher-{n}")))));
        let calls = held_calls(&server, &address, if is_campaign() { 100 } else { 8 });
        let mut human = Human::of(&server, &address);
        let before = resident(&server);
        let get = |path: &str, agent: usize, more: &str| {
            format!("GET {path} HTTP/1.1\r\n{}{more}\r\n", agents[agent % agents.len()])
        };
        let unread: Vec<_> = self.unread.iter().map(|(count, path)| (*count, get(path, 0, ""))).collect();
        let mut held = Attack::on(&address);
        for (connections, request) in &unread {
            held.hold(*connections, request.as_bytes());
        }
        let (ended, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
        let (mut most, mut files) = (0, 0);
        std::thread::scope(|threads| {
            let _end = EndOnDrop(&ended);
            for n in 0..self.searchers {
                let request = get("/v1/messages?q=word&limit=500", n, "Connection: close\r\n");
                let (address, ended, answered) = (&address, &ended, &answered);
                threads.spawn(move || searches(address, &request, ended, answered));
            }
            for _ in 0..self.loops {
                threads.spawn(|| {
                    while !ended.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            for call in &calls {
                human.acts(call);
                most = most.max(resident(&server));
                files = files.max(database_files(&server));
            }
        });
        println!("{attack}: {} searches answered, {files} database files open", answered.into_inner());
        human.tells(attack, (before, most));
        assert!(files <= FILES_MAX, "{files} descriptors of database files");
        assert!(most < RESIDENT_MAX, "{attack}: {most} MiB");
        drop(held);
        let after = || resident(&server) < before + RESIDENT_MAX / 2;
        wait_for("the memory of answers that nobody reads", after);
        assert_eq!(server.operator(&["approvals"]).code, 0, "and the server serves on");
    }
}

/// Calls on one connection after another, reading each answer, until the test ends.
fn searches(address: &str, request: &str, ended: &AtomicBool, answered: &AtomicUsize) {
    while !ended.load(Ordering::Relaxed) {
        if ask(address, request).is_some_and(|(status, _)| status == "200") {
            answered.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn lists_that_an_agent_does_not_read_take_no_more_than_its_window() {
    Load::unread(LISTS).bear("unread lists");
}

#[test]
fn event_streams_that_an_agent_does_not_read_take_no_more_than_its_window() {
    Load::unread(EVENTS).bear("unread events");
}

#[test]
fn conversations_that_an_agent_does_not_read_take_no_more_than_its_window() {
    Load::unread(TREE).bear("unread trees");
}

#[test]
fn searches_of_agents_leave_threads_and_descriptors_to_humans() {
    Load::searches().bear("searches");
}

#[test]
fn unread_lists_unread_events_and_searches_at_once_leave_a_human_their_controls() {
    let connections = if is_campaign() { 40 } else { 12 };
    let unread = [LISTS, EVENTS, TREE].map(|path| (connections, path)).into();
    Load { unread, ..Load::searches() }.bear("lists, events, trees and searches at once");
}

#[test]
fn a_read_model_that_was_locked_says_that_it_is_behind_and_catches_up() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = lastword(dir.path());
    command.args(["serve", "--json", "--listen", "127.0.0.1:0"]);
    command.stderr(fs::File::create(dir.path().join("stderr.txt")).unwrap());
    let server = Server::start_by(dir, command);
    let address = server.first_line["listening"].as_str().unwrap().trim_start_matches("http://").to_owned();
    let (agent, _) = (headers(server.agent("kilo")), server.agent("hive"));
    let get = |path: &str| {
        let (status, body) =
            ask(&address, &format!("GET {path} HTTP/1.1\r\n{agent}Connection: close\r\n\r\n")).unwrap();
        assert_eq!(status, "200", "{body}");
        body
    };
    let index = rusqlite::Connection::open(server.path().join(".lastword/index.db")).unwrap();
    index.execute_batch("BEGIN IMMEDIATE").unwrap();
    let note = json!({ "type": "info", "to": "hive", "ref": "NOTES-1", "body": "findable" }).to_string();
    let sent = format!("POST /v1/messages HTTP/1.1\r\n{agent}Connection: close\r\n{}", json_body(&note));
    assert_eq!(ask(&address, &sent).unwrap().0, "201");
    let behind = get("/v1/messages?q=findable");
    assert!(behind["behind"].as_u64() > Some(0) && behind["items"].as_array().unwrap().is_empty(), "{behind}");
    assert!(get("/readyz")["read_model_behind"].as_u64() > Some(0));
    assert!(get("/v1/conversations/NOTES-1")["behind"].as_u64() > Some(0));
    let log = server.path().join("stderr.txt");
    wait_for("the failed step", || fs::read_to_string(&log).unwrap().contains("is locked"));
    index.execute_batch("ROLLBACK").unwrap();
    wait_for("the read model", || get("/readyz")["read_model_behind"] == 0);
    let found = get("/v1/messages?q=findable");
    assert!(found["behind"].is_null() && found["items"].as_array().unwrap().len() == 1, "{found}");
}
