//! Notifications of pending decisions: a real server, a command and a webhook.

use std::fs::{self, File, Permissions};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::online::hold;
use crate::program::{PATH, Server, lastword, run};
use crate::running::wait_for;

/// Longest wait for a notification; none takes nearly as long.
const PATIENCE: Duration = Duration::from_secs(30);
const SECRET: &str = "canary-secret-of-the-webhook";

/// A receiver of webhooks on this machine: the head and the body of each call.
struct Receiving {
    port: u16,
    calls: Receiver<(String, Value)>,
    /// Whether it refuses each call.
    is_down: Arc<AtomicBool>,
}

impl Receiving {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (tell, calls) = channel();
        let is_down = Arc::new(AtomicBool::new(false));
        let down = Arc::clone(&is_down);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let status = if down.load(Ordering::SeqCst) { "503 Down" } else { "204 No Content" };
                // The test may have ended.
                let _gone = tell.send(taken(stream.unwrap(), status));
            }
        });
        Self { port, calls, is_down }
    }

    fn next(&self) -> (String, Value) {
        self.calls.recv_timeout(PATIENCE).expect("no call came")
    }

    /// Returns the next call with this notification; others may be told meanwhile.
    fn call(&self, id: &str) -> Value {
        std::iter::from_fn(|| Some(self.next().1)).find(|told| told["id"] == id).unwrap()
    }
}

fn taken(mut stream: TcpStream, status: &str) -> (String, Value) {
    let (mut got, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let n = stream.read(&mut buffer).unwrap();
        got.extend_from_slice(&buffer[..n]);
        let text = String::from_utf8_lossy(&got).into_owned();
        let whole = text.split_once("\r\n\r\n").and_then(|(head, body)| Some((head, serde_json::from_str(body).ok()?)));
        if let Some((head, body)) = whole {
            write!(stream, "HTTP/1.1 {status}\r\n\r\n").unwrap();
            return (head.to_owned(), body);
        }
        assert!(n > 0, "the call broke off: {text}");
    }
}

/// Returns a directory with a command channel that records its input, and a webhook channel.
fn configured(port: u16, window: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str, mode: u32| {
        fs::write(dir.path().join(name), text).unwrap();
        fs::set_permissions(dir.path().join(name), Permissions::from_mode(mode)).unwrap();
    };
    write("tell", "#!/bin/sh\nenv >> environment\n{ cat; echo; } >> told\n", 0o755);
    write("hook.secret", &format!("{SECRET}\n"), 0o600);
    write("lastword.toml", &toml(port, window), 0o600);
    dir
}

fn toml(port: u16, window: &str) -> String {
    format!(
        "[[notify]]\nname = \"desk\"\ncommand = [\"./tell\"]\nwindow = \"{window}\"\n\
         [[notify]]\nname = \"hook\"\nwebhook = \"http://127.0.0.1:{port}/canary-path\"\nsecret_file = \"hook.secret\"\n\
         allow_private = true\nwindow = \"{window}\"\n"
    )
}

/// Starts a server that logs everything to `log`.
fn serve(dir: TempDir) -> Server {
    let log = File::options().append(true).create(true).open(dir.path().join("log")).unwrap();
    let mut command = lastword(dir.path());
    command.env("LASTWORD_LOG", "trace").env("LASTWORD_TOKEN", "canary-token-of-a-human").stderr(log);
    command.args(["--json", "serve", "--listen", "127.0.0.1:0"]).env("PATH", PATH);
    Server::start_by(dir, command)
}

/// An agent with this name asks the human in its turn, and waits.
fn asks(server: &Server, name: &str, question: &str) {
    server.agent(name);
    server.operator(&["ask", name, "Fix it", "--ref", &format!("{}-1", name.to_uppercase()), "--wait", "0s"]).ok();
    server.as_agent(name, &["inbox", "--wait", "10s"]).ok();
    server.as_agent(name, &["send", "user", question]).ok();
}

fn told(dir: &Path) -> Vec<Value> {
    let text = fs::read_to_string(dir.join("told")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Returns the `n`th notification on both channels, once it was sent.
fn both(server: &Server, hook: &Receiving, n: usize) -> [Value; 2] {
    wait_for("the command", || told(server.path()).len() >= n);
    [told(server.path())[n - 1].clone(), hook.next().1]
}

fn ids(told: &Value) -> Vec<&str> {
    told["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap()).collect()
}

fn metrics(server: &Server) -> String {
    let address = server.first_line["listening"].as_str().unwrap().strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn sent(server: &Server, n: usize) {
    wait_for("what is counted", || {
        let text = metrics(server);
        let count = |channel: &str| text.contains(&format!("sent_total{{channel=\"{channel}\"}} {n}\n"));
        count("desk") && count("hook")
    });
}

#[test]
fn what_waits_is_told_once_on_each_channel_also_over_a_restart() {
    let hook = Receiving::start();
    let server = serve(configured(hook.port, "100ms"));
    asks(&server, "kilo", "To eu or us?\nIt matters.");
    let [by_command, by_hook] = both(&server, &hook, 1);
    for told in [&by_command, &by_hook] {
        assert_eq!((&told["kind"], &told["severity"]), (&"waiting".into(), &"normal".into()));
        assert_eq!(told["title"], "Lastword: 1 question waits for you");
        let item = &told["items"][0];
        assert_eq!((&item["id"], &item["agent"], &item["ref"]), (&"esc-1".into(), &"kilo".into(), &"KILO-1".into()));
        assert_eq!(item["summary"], "kilo asks: To eu or us?");
        assert_eq!(item["decide"], "lastword answer esc-1 TEXT");
        assert_eq!(told["console"], format!("{}/", server.first_line["listening"].as_str().unwrap()));
    }
    let environment = fs::read_to_string(server.path().join("environment")).unwrap();
    assert!(environment.contains("LASTWORD_NOTIFY_TITLE=") && !environment.contains("canary"), "{environment}");
    sent(&server, 1);
    // A restart doesn't repeat notifications; later events are notified.
    let (code, dir) = server.terminate();
    assert_eq!(code, 0);
    let server = serve(dir);
    asks(&server, "hive", "And now?");
    for told in both(&server, &hook, 2) {
        assert_eq!(ids(&told), ["esc-2"]);
    }
    sent(&server, 1);
    // Events around a kill are notified nevertheless: they are read from the state.
    let dir = server.kill();
    let silent = dir.path().join("lastword.silent");
    fs::write(&silent, "").unwrap();
    let server = Server::start_with(dir, &["--listen", "127.0.0.1:0", "--config", "lastword.silent"]);
    asks(&server, "mole", "Is anybody there?");
    let (_, dir) = server.terminate();
    let server = serve(dir);
    for told in both(&server, &hook, 3) {
        assert_eq!(ids(&told), ["esc-3"]);
    }
    server.operator(&["stop", "--workspace"]).ok();
    for told in both(&server, &hook, 4) {
        assert_eq!((ids(&told), &told["title"]), (vec!["stop"], &"Lastword: urgent: the workspace is stopped".into()));
    }
    let log = fs::read_to_string(server.path().join("log")).unwrap();
    assert!(log.contains("notified"), "{log}");
    assert!(!log.contains("canary"), "{}", log.lines().find(|line| line.contains("canary")).unwrap());
}

#[test]
fn an_alert_is_told_once_also_over_a_restart_and_where_it_came_while_nobody_told() {
    let hook = Receiving::start();
    let server = serve(configured(hook.port, "100ms"));
    server.agent("kilo");
    server.as_agent("kilo", &["send", "operator", "the disk is full", "--type", "alert", "--ref", "OPS-1"]).ok();
    for told in both(&server, &hook, 1) {
        assert_eq!(told["title"], "Lastword: urgent: 1 item for information", "{told}");
        assert_eq!(told["items"][0]["summary"], "kilo raises an ALERT: the disk is full");
        assert_eq!((&told["items"][0]["what"], &told["items"][0]["ref"]), (&"note".into(), &"OPS-1".into()));
    }
    sent(&server, 1);
    let (_, dir) = server.terminate();
    fs::write(dir.path().join("lastword.silent"), "").unwrap();
    let server = Server::start_with(dir, &["--listen", "127.0.0.1:0", "--config", "lastword.silent"]);
    server.as_agent("kilo", &["send", "operator", "and the tape", "--type", "alert", "--ref", "OPS-1"]).ok();
    let (_, dir) = server.terminate();
    let server = serve(dir);
    for told in both(&server, &hook, 2) {
        assert_eq!(told["items"].as_array().unwrap().len(), 1, "{told}");
        assert_eq!(told["items"][0]["summary"], "kilo raises an ALERT: and the tape");
    }
}

#[test]
fn what_is_settled_within_the_window_is_not_told_and_arguments_are_not_either() {
    let hook = Receiving::start();
    let server = serve(configured(hook.port, "3s"));
    asks(&server, "kilo", "To eu or us?");
    server.operator(&["answer", "esc-1", "eu", "--yes"]).ok();
    server.agent("hive");
    let token = fs::read_to_string(server.path().join("hive.token")).unwrap();
    let url = server.first_line["listening"].as_str().unwrap();
    hold(url, token.trim(), r#"{"tool":"deploy","arguments":{"key":"canary-argument"}}"#);
    for told in both(&server, &hook, 1) {
        assert_eq!((ids(&told), &told["items"][0]["tool"]), (vec!["apr-1"], &"deploy".into()));
        assert_eq!(told["items"][0]["decide"], "lastword approve apr-1");
        assert!(told["items"][0]["until"].as_str().is_some() && !told.to_string().contains("canary"), "{told}");
    }
}

#[test]
fn each_channel_is_tried_and_what_went_wrong_is_said() {
    let hook = Receiving::start();
    let dir = configured(hook.port, "30s");
    let mut config = toml(hook.port, "30s");
    config.push_str("[[notify]]\nname = \"broken\"\ncommand = [\"./nowhere\"]\n");
    fs::write(dir.path().join("lastword.toml"), config).unwrap();
    let tried = run(dir.path(), &["notify", "test"]);
    assert_eq!(tried.code, 1, "{tried:?}");
    assert!(tried.stdout.contains("sent   desk\nsent   hook\nfailed broken: can't start"), "{tried:?}");
    let (head, body) = hook.next();
    assert!(head.to_ascii_lowercase().contains("\r\nlastword-signature: t="), "{head}");
    assert_eq!((&body["kind"], &told(dir.path())[0]["kind"]), (&"test".into(), &"test".into()));
    assert_eq!(run(dir.path(), &["notify", "test", "desk"]).code, 0);
    assert_eq!(run(dir.path(), &["notify", "test", "nobody"]).code, 2);
    assert!(run(dir.path(), &["doctor"]).stdout.contains("notifications: desk, hook, broken"));
}

#[test]
fn what_was_given_up_is_listed_and_sent_again_under_its_id_and_so_is_what_began_after_a_position() {
    let hook = Receiving::start();
    hook.is_down.store(true, Ordering::SeqCst);
    let dir = configured(hook.port, "100ms");
    fs::write(dir.path().join("lastword.silent"), "").unwrap();
    let server = Server::start_with(dir, &["--listen", "127.0.0.1:0", "--config", "lastword.silent"]);
    asks(&server, "kilo", "To eu or us?");
    asks(&server, "hive", "And now?");
    server.as_agent("kilo", &["send", "operator", "the disk is full", "--type", "alert", "--ref", "OPS-1"]).ok();
    assert_eq!(server.operator(&["notify", "failed"]).ok(), "no notification was given up\n");
    let (_, dir) = server.terminate();
    // All retries of the hook's notification have failed but the last.
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis();
    let told = format!(r#"{{"times":1,"last":{now}}}"#);
    let parcel = r#"{"id":"ntf-1","topics":[["esc-1",false],["esc-2",false]],"folded":0,"failures":5,"next":0}"#;
    let ledger = format!(r#"{{"told":{{"esc-1":{told},"esc-2":{told}}},"sent":[],"parcel":{parcel}}}"#);
    let book = format!(r#"{{"version":1,"channels":{{"hook":{ledger}}}}}"#);
    fs::write(dir.path().join(".lastword/notify.json"), book).unwrap();
    let server = serve(dir);
    assert_eq!(ids(&hook.next().1), ["esc-1", "esc-2"]);
    let failed = |channel: &str| server.operator(&["notify", "failed", channel, "--json"]).json()["items"].clone();
    wait_for("what was given up", || failed("hook").as_array().is_some_and(|items| items.len() == 1));
    let listed = failed("hook");
    assert_eq!((&listed[0]["id"], &listed[0]["items"]), (&json!("ntf-1"), &json!(["esc-1", "esc-2"])));
    assert_eq!(listed[0]["reason"], "the receiver answered 503 Service Unavailable");
    assert!(!listed.to_string().contains("canary"), "{listed}");
    assert_eq!(failed("desk"), json!([]));
    assert!(server.operator(&["notify", "failed"]).ok().contains("ntf-1  hook"));
    assert_ne!(server.as_agent("kilo", &["notify", "failed"]).code, 0, "it is for humans");

    server.operator(&["answer", "esc-2", "later", "--yes"]).ok();
    let unconfirmed = server.operator(&["notify", "resend", "ntf-1"]);
    assert!(unconfirmed.stderr.contains("--yes"), "{unconfirmed:?}");
    let refused = server.operator(&["notify", "resend", "ntf-1", "--yes"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stdout.contains("failed ntf-1 hook: the receiver answered 503"), "{refused:?}");
    hook.call("ntf-1");
    assert_eq!(failed("hook").as_array().unwrap().len(), 1, "it stays");
    hook.is_down.store(false, Ordering::SeqCst);
    let resent = server.operator(&["notify", "resend", "--all", "hook", "--yes"]).ok();
    assert_eq!(resent, "sent   ntf-1 hook: 1 item; 1 item settled\n");
    let told = hook.call("ntf-1");
    assert_eq!(ids(&told), ["esc-1"], "what is settled is left out");
    assert_eq!((&told["items"][0]["again"], &told["severity"]), (&json!(true), &json!("normal")));
    assert_eq!(failed("hook"), json!([]));
    let unknown = server.operator(&["notify", "resend", "ntf-1", "--yes"]);
    assert!(unknown.stderr.contains("lastword notify failed"), "{unknown:?}");

    let replay = |channel: &str, after: &str| {
        server.operator(&["notify", "replay", channel, "--after", after, "--yes", "--json"])
    };
    let resent = replay("hook", "0").json();
    assert_eq!(resent[0]["items"], 2, "{resent}");
    let told = hook.call(resent[0]["id"].as_str().unwrap());
    assert_eq!(told["severity"], "urgent", "{told}");
    assert!(ids(&told)[0].starts_with("note-") && ids(&told)[1..] == ["esc-1"], "{told}");
    let after = ids(&told)[0].trim_start_matches("note-").to_owned();
    let empty = server.operator(&["notify", "replay", "hook", "--after", &after, "--yes"]).ok();
    assert!(empty.contains("nothing of it is pending"), "{empty}");
    assert!(replay("nobody", "0").stderr.contains("[[notify]]"));
    assert!(replay("hook", "99999").stderr.contains("epoch_over"));
    // A restart knows what is no longer on the list.
    let (_, dir) = server.terminate();
    let server = serve(dir);
    assert_eq!(server.operator(&["notify", "failed"]).ok(), "no notification was given up\n");
}
