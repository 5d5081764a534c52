//! Backups, and what old clients get after a restore (L8).

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use serde_json::{Value, json};

use crate::program::{Server, lastword, run};

/// Takes a delivery as an agent; returns the turn and its token.
pub(crate) fn take(server: &Server, agent: &str) -> (String, String) {
    let taken = server.as_agent(agent, &["inbox", "--wait", "5s", "--json"]).json();
    let text = |name: &str| taken["turn"][name].as_str().unwrap_or_else(|| panic!("{taken}")).to_owned();
    (text("id"), text("token"))
}

#[test]
fn after_a_restore_old_answers_reach_no_new_request_and_known_turns_go_on() {
    let server = Server::start();
    let ask = |server: &Server, agent: &str, text: &str, reference: &str| {
        server.operator(&["ask", agent, text, "--ref", reference, "--wait", "0s"]).ok();
    };
    for agent in ["kilo", "hive"] {
        server.agent(agent);
    }
    ask(&server, "kilo", "first", "T-1");
    let (known, _) = take(&server, "kilo");
    let made = server.operator(&["backup", "b.lastword", "--json"]).json();
    assert!(made["bytes"].as_u64().unwrap() > 100 && made["end"]["seq"].as_u64().unwrap() > 5, "{made}");
    assert!(server.operator(&["backup", "b.lastword"]).stderr.contains("exists"), "no backup is overwritten");
    ask(&server, "hive", "second", "T-2");
    let (over, token) = take(&server, "hive");
    crate::lifts::escalate(&server, "hive", "Which one?");
    let found = server.operator(&["audit", "--ref", "T-2", "--json"]).json();
    let position = found["items"][0]["seq"].as_u64().unwrap_or_else(|| panic!("{found}"));
    let locked = run(server.path(), &["restore", "b.lastword", "--yes"]);
    assert!(locked.stderr.contains("is in use by process"), "{locked:?}");

    let (_, dir) = server.terminate();
    let restored = run(dir.path(), &["restore", "b.lastword", "--yes", "--json"]).json();
    assert!(restored["epoch_first"].as_u64().unwrap() > 1_000_000, "{restored}");
    assert!(restored["replaced"].as_str().unwrap().contains("replaced-"), "{restored}");
    let server = Server::start_in(dir);
    assert!(server.operator(&["tree", "T-2"]).stderr.contains("not found"), "it came after the backup");
    // The same work again, so that the numbers would be the same without an epoch.
    ask(&server, "hive", "third", "T-3");
    let (new, _) = take(&server, "hive");
    assert_ne!(new, over);
    for late in [
        server.as_agent("hive", &["finish", &over, "the answer to the second"]),
        server.as_agent("hive", &["send", "kilo", "help", "--turn-token", &token]),
        server.operator(&["answer", "esc-1", "this one", "--yes"]),
        server.operator(&["explain", &format!("msg-{position}")]),
    ] {
        assert!(late.code == 1 && late.stderr.contains("(epoch_over)"), "{late:?}");
    }
    let url = server.first_line["listening"].as_str().unwrap();
    let operator = fs::read_to_string(server.path().join(".lastword/operator.token")).unwrap();
    let response = crate::online::get(url, operator.trim(), &format!("/v1/events?after={position}"));
    assert!(response.starts_with("HTTP/1.1 409") && response.contains("epoch_over"), "{response}");
    let response = crate::online::get(url, operator.trim(), "/v1/events?after=9000000000000000");
    assert!(response.starts_with("HTTP/1.1 409"), "a position ahead of the log: {response}");
    server.as_agent("kilo", &["finish", &known, "the answer to the first"]).ok();
    server.as_agent("hive", &["finish", &new, "the answer to the third"]).ok();
    let tree = server.operator(&["tree", "T-3"]).ok();
    assert!(tree.contains("the answer to the third") && !tree.contains("second"), "{tree}");
    assert!(server.operator(&["tree", "T-1"]).ok().contains("the answer to the first"));
    assert_eq!(run(server.path(), &["verify"]).code, 0);
    // A backup of the restored log, elsewhere: it holds both epochs.
    server.operator(&["--url", url, "backup", "c.lastword"]).ok();
    run(server.path(), &["--data", "copy", "restore", "c.lastword"]).ok();
    run(server.path(), &["--data", "copy", "verify"]).ok();
}

#[test]
fn a_damaged_backup_is_refused_and_changes_nothing() {
    let server = Server::start();
    server.agent("kilo");
    server.operator(&["ask", "kilo", "first", "--ref", "T-1", "--wait", "0s"]).ok();
    server.operator(&["backup", "b.lastword"]).ok();
    let (_, dir) = server.terminate();
    let whole = fs::read(dir.path().join("b.lastword")).unwrap();
    let before = fs::read(dir.path().join(".lastword/lastword.db")).unwrap();
    let mut altered = whole.clone();
    let middle = altered.len() / 2;
    altered[middle] ^= 1;
    for bad in [&whole[..whole.len() - 9], &whole[..30], &whole[..4], b"something else", &altered] {
        fs::write(dir.path().join("bad"), bad).unwrap();
        let refused = run(dir.path(), &["restore", "bad", "--yes"]);
        assert!(refused.code == 1 && refused.stderr.contains("isn't a whole backup"), "{refused:?}");
    }
    assert_eq!(fs::read(dir.path().join(".lastword/lastword.db")).unwrap(), before);
    assert!(!lastword(dir.path()).args(["restore", "b.lastword"]).status().unwrap().success(), "it asks first");
    run(dir.path(), &["restore", "b.lastword", "--yes"]).ok();
    assert!(Server::start_in(dir).operator(&["tree", "T-1"]).ok().contains("first"));
}

#[test]
fn a_log_that_lost_its_end_stops_the_start_until_a_human_accepts_the_loss() {
    let server = Server::start();
    server.agent("kilo");
    server.operator(&["ask", "kilo", "first", "--ref", "T-1", "--wait", "0s"]).ok();
    let (_, dir) = server.terminate();
    let [log, wal, head] = ["lastword.db", "lastword.db-wal", "lastword.head"]
        .map(|name| fs::read(dir.path().join(".lastword").join(name)).unwrap());
    let server = Server::start_in(dir);
    server.operator(&["ask", "kilo", "second", "--ref", "T-2", "--wait", "0s"]).ok();
    assert!(server.operator(&["audit", "second"]).ok().contains("T-2"), "the read model has it");
    let (_, again) = server.terminate();
    let refused = |wanted: &str| {
        let mut serve = lastword(again.path());
        serve.args(["serve", "--json", "--listen", "127.0.0.1:0"]);
        match Server::try_start_by(tempfile::tempdir().unwrap(), serve) {
            Ok(_) => panic!("it started: {wanted}"),
            Err((ended, _)) => assert!(ended.code == 3 && ended.stderr.contains(wanted), "{wanted}: {ended:?}"),
        }
    };
    let file = |name: &str| again.path().join(".lastword").join(name);
    let newer = fs::read(file("lastword.head")).unwrap();
    fs::write(file("lastword.db"), log).unwrap();
    fs::write(file("lastword.db-wal"), wal).unwrap();
    fs::remove_file(file("lastword.db-shm")).unwrap();
    refused("but lastword.head knows position");
    fs::remove_file(file("lastword.head")).unwrap();
    refused("lastword.head is missing");
    fs::write(file("lastword.head"), &newer[..20]).unwrap();
    refused("lastword.head is damaged");
    fs::write(file("lastword.head"), head).unwrap();
    refused("but snapshot knows position");
    fs::remove_file(file("snapshot")).unwrap();
    refused("but index.db knows position");
    fs::rename(file("lastword.db"), file("elsewhere")).unwrap();
    refused("lastword.db is missing, but lastword.head is there");
    fs::rename(file("elsewhere"), file("lastword.db")).unwrap();
    let asked = run(again.path(), &["doctor", "--accept-loss"]);
    assert_ne!(asked.code, 0, "only a human accepts: {asked:?}");
    run(again.path(), &["doctor", "--accept-loss", "--yes"]).ok();
    let key = run(again.path(), &["checkpoint", "--key"]).ok();
    let server = Server::start_in(again);
    assert!(server.operator(&["tree", "T-1"]).ok().contains("first"));
    assert!(server.operator(&["tree", "T-2"]).stderr.contains("not found"));
    run(server.path(), &["verify"]).ok();
    // The checkpoints of the lost part went with it; those before it still hold.
    run(server.path(), &["verify", "--key", key.trim()]).ok();
}

/// Rounds of the test below; `LASTWORD_RESTORES=20` for a campaign.
const ROUNDS: u32 = 3;

/// What the threads of the test below share.
struct Shared {
    /// The server's address, which changes with each start; empty while none runs.
    url: Mutex<String>,
    ended: AtomicBool,
    /// Finishes that were refused because their turn was over.
    refused: AtomicU32,
}

impl Shared {
    /// Makes a call; `None` if no server answered.
    fn call(&self, method: &str, token: &str, path: &str, body: &str) -> Option<(u16, Value)> {
        let url = self.url.lock().unwrap().clone();
        let mut stream = TcpStream::connect(url.strip_prefix("http://")?).ok()?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\
             Lastword-Client: the-one-of-{}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            // Under its id it gets a delivery again that it keeps back.
            &token[token.len() - 4..],
            body.len()
        );
        stream.write_all(head.as_bytes()).ok()?;
        let mut response = String::new();
        stream.read_to_string(&mut response).ok()?;
        let (head, body) = response.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some((status, serde_json::from_str(body).unwrap_or(Value::Null)))
    }

    /// An agent that answers each request with its text, but keeps every third answer back until some time later, which
    /// may be behind a restore.
    fn serve(&self, token: &str) {
        let mut late: Vec<(String, String)> = Vec::new();
        let mut taken = 0;
        while !self.ended.load(Ordering::Relaxed) {
            let Some((200, delivery)) = self.call("GET", token, "/v1/inbox?wait=100ms", "") else {
                if late.len() > 2 {
                    let (turn, answer) = late.remove(0);
                    self.finish(token, &turn, &answer);
                }
                continue;
            };
            let turn = delivery["turn"]["id"].as_str().unwrap_or_default().to_owned();
            let answer = format!("answer to {}", delivery["message"]["body"].as_str().unwrap_or_default());
            taken += 1;
            if taken % 3 == 0 {
                late.push((turn, answer));
            } else {
                self.finish(token, &turn, &answer);
            }
        }
    }

    fn answers(&self, token: &str) -> Vec<Value> {
        let found = self.call("GET", token, "/v1/messages?type=response&limit=500", "");
        found.and_then(|(_, page)| page["items"].as_array().cloned()).unwrap_or_default()
    }

    /// Waits until no answer has come for a while: turns that were kept back may never get one.
    fn settle(&self, token: &str) {
        let (mut quiet, mut before) = (0, 0);
        while quiet < 20 {
            std::thread::sleep(std::time::Duration::from_millis(50));
            let now = self.answers(token).len();
            quiet = if now > before { 0 } else { quiet + 1 };
            before = now;
        }
    }

    fn finish(&self, token: &str, turn: &str, answer: &str) {
        let body = json!({ "answer": answer }).to_string();
        if let Some((409, problem)) = self.call("POST", token, &format!("/v1/turns/{turn}/finish"), &body)
            && problem["code"] == "epoch_over"
        {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Ends the threads, also when the test fails.
struct EndOnDrop<'a>(&'a Shared);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Relaxed);
    }
}

#[test]
fn restores_under_load_lose_nothing_of_the_backup_and_mix_nothing_up() {
    #[expect(clippy::disallowed_methods, reason = "the length of a campaign isn't configuration of the program")]
    let rounds = std::env::var("LASTWORD_RESTORES").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(ROUNDS);
    let mut server = Server::start();
    let agents = ["a1", "a2", "a3"].map(|name| fs::read_to_string(server.agent(name)).unwrap().trim().to_owned());
    let operator = fs::read_to_string(server.path().join(".lastword/operator.token")).unwrap().trim().to_owned();
    let shared = Shared { url: Mutex::default(), ended: AtomicBool::new(false), refused: AtomicU32::new(0) };
    let (shared, operator) = (&shared, operator.as_str());
    let server = std::thread::scope(|threads| {
        let _end = EndOnDrop(shared);
        for token in &agents {
            threads.spawn(move || shared.serve(token));
        }
        let mut asked = 0;
        // The REFs of acknowledged requests that the log must have.
        let mut kept: Vec<String> = Vec::new();
        let mut ask = |count: u32| {
            let mut made = Vec::new();
            for _ in 0..count {
                asked += 1;
                let reference = format!("W-{asked}");
                let to = format!("a{}", asked % 3 + 1);
                let body = json!({ "type": "request", "to": to, "ref": reference, "body": format!("#{asked}") });
                if let Some((201, _)) = shared.call("POST", operator, "/v1/messages", &body.to_string()) {
                    made.push(reference);
                }
            }
            made
        };
        *shared.url.lock().unwrap() = server.first_line["listening"].as_str().unwrap().to_owned();
        for round in 0..rounds {
            kept.extend(ask(20));
            let file = format!("{round}.lastword");
            let made = threads.spawn({
                let (dir, file) = (server.path().to_owned(), file.clone());
                move || run(&dir, &["backup", &file])
            });
            // These may be in the backup or not.
            let during = ask(10);
            made.join().unwrap().ok();
            ask(20);
            let (_, dir) = server.terminate();
            run(dir.path(), &["restore", &file, "--yes"]).ok();
            server = Server::start_in(dir);
            *shared.url.lock().unwrap() = server.first_line["listening"].as_str().unwrap().to_owned();
            let known = |reference: &String| {
                let found = shared.call("GET", operator, &format!("/v1/conversations/{reference}"), "");
                found.is_some_and(|(status, _)| status == 200)
            };
            let lost: Vec<&String> = kept.iter().filter(|reference| !known(reference)).collect();
            assert!(lost.is_empty(), "round {round}: acknowledged before the backup, and gone: {lost:?}");
            kept.extend(during.into_iter().filter(known));
        }
        kept.extend(ask(20));
        shared.settle(operator);
        server
    });
    let mut answered = BTreeSet::new();
    for answer in shared.answers(operator) {
        let number = answer["ref"].as_str().unwrap().trim_start_matches("W-");
        assert_eq!(answer["body"], format!("answer to #{number}"), "an answer reached another request: {answer}");
        assert!(answered.insert(number.to_owned()), "it was answered twice: {answer}");
    }
    let refused = shared.refused.load(Ordering::Relaxed);
    assert!(answered.len() > 20 && refused > 0, "{} answers, {refused} were over", answered.len());
    run(server.path(), &["verify"]).ok();
}
