//! Beside real servers of other systems, on free ports, for a moment. Tests check rows, never speed.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::program::run;

/// A server of another system; killed when the test ends.
struct Other(Child);

impl Other {
    /// Starts the server and waits until it listens; `variable` names the program if it isn't in the path.
    fn start(variable: &str, name: &str, args: &[&str], port: u16) -> Self {
        let program = std::env::var_os(variable).unwrap_or_else(|| name.into());
        let child = Command::new(&program).args(args).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let child = child.unwrap_or_else(|error| {
            panic!("{}: {error}; .ci/peers-bench/run installs it, {variable} names another", program.display())
        });
        let mut other = Self(child);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(other.0.try_wait().unwrap().is_none(), "{name} ended instead of listening");
            std::thread::sleep(Duration::from_millis(10));
        }
        other
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may already have ended.
        let _gone = self.0.kill().and_then(|()| self.0.wait());
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn redis(dir: &Path, more: &[&str]) -> (Other, String) {
    let port = free_port();
    let (number, dir) = (port.to_string(), dir.to_str().unwrap());
    let args = [&["--port", &number, "--bind", "127.0.0.1", "--dir", dir, "--save", ""], more].concat();
    (Other::start("REDIS_SERVER", "redis-server", &args, port), format!("redis://127.0.0.1:{port}"))
}

/// Starts NATS; returns the server, its address, and its monitor's address.
fn nats(dir: &Path, sync: &str) -> (Other, String, String) {
    let (port, monitor) = (free_port(), free_port());
    let file = dir.join("nats.conf");
    let store = dir.join("jetstream");
    let text = format!(
        "listen: 127.0.0.1:{port}\nhttp: 127.0.0.1:{monitor}\njetstream {{ store_dir: {store:?}, sync_interval: {sync} }}\n"
    );
    std::fs::write(&file, text).unwrap();
    let log = dir.join("nats.log");
    let args = ["--config", file.to_str().unwrap(), "--log", log.to_str().unwrap()];
    let other = Other::start("NATS_SERVER", "nats-server", &args, port);
    (other, format!("nats://127.0.0.1:{port}"), format!("http://127.0.0.1:{monitor}"))
}

/// Returns the whole response of a server to this text.
fn asked(url: &str, question: &str) -> String {
    let (_, place) = url.split_once("://").unwrap();
    let mut stream = TcpStream::connect(place).unwrap();
    stream.write_all(question.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn bench(dir: &TempDir, args: &[&str]) -> Value {
    let told = run(dir.path(), &[&["--json", "--seconds", "0.2", "--dir", "."], args].concat());
    assert_eq!(told.code, 0, "{told:?}");
    told.json()
}

/// Checks each row; returns what each system reports about its acknowledgements.
fn on_disk(told: &Value, systems: &[&str]) -> Vec<String> {
    let rows = told["peers"].as_array().unwrap();
    let mut wanted = Vec::new();
    for in_flight in [1, 128] {
        for work in ["message", "exchange"] {
            wanted.extend(systems.iter().map(|system| (format!("{system}: {work}"), in_flight)));
        }
    }
    let found: Vec<_> =
        rows.iter().map(|row| (row["what"].as_str().unwrap().to_owned(), row["in_flight"].as_i64().unwrap())).collect();
    assert_eq!(found, wanted);
    for row in rows {
        for figure in ["per_second", "p50_ms", "p99_ms", "ratio_to_bare_file"] {
            assert!(row[figure].as_f64().unwrap() > 0.0, "{figure} of {row}");
        }
        assert!(row["count"].as_i64() >= row["in_flight"].as_i64(), "{row}");
        let ours = row["what"].as_str().unwrap().starts_with("Lastword");
        assert_eq!(row["ours_to_theirs"].is_null(), ours, "{row}");
    }
    rows.iter().take(systems.len()).map(|row| row["acknowledged_on_disk"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn each_system_has_its_rows_and_says_whether_an_acknowledgement_is_on_disk() {
    let (dir, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (_redis, redis) = redis(data.path(), &["--appendonly", "yes", "--appendfsync", "always"]);
    let (_nats, nats, monitor) = nats(data.path(), "always");
    let told = bench(&dir, &["--redis", &redis, "--nats", &nats, "--nats-monitor", &monitor]);
    let said = on_disk(&told, &["Lastword", "Redis Streams", "NATS JetStream"]);
    assert_eq!(said, ["yes", "yes: appendfsync always", "yes: sync_interval always"]);
    let left = asked(&redis, "DBSIZE\r\nQUIT\r\n");
    assert!(left.starts_with(":0\r\n"), "its streams are gone from Redis: {left}");
    let left = asked(&monitor, "GET /jsz HTTP/1.0\r\n\r\n");
    assert!(left.contains("\"streams\": 0,"), "and from NATS: {left}");
    let unasked = bench(&dir, &["--nats", &nats]);
    let said = on_disk(&unasked, &["Lastword", "NATS JetStream"]);
    assert!(said[1].starts_with("unknown: sync_interval"), "{said:?}");
}

#[test]
fn a_server_that_answers_before_its_disk_is_told_apart() {
    let (dir, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (_redis, redis) = redis(data.path(), &["--appendonly", "yes", "--appendfsync", "everysec"]);
    let (_nats, nats, monitor) = nats(data.path(), "90s");
    let told = bench(&dir, &["--redis", &redis, "--nats", &nats, "--nats-monitor", &monitor]);
    let said = on_disk(&told, &["Lastword", "Redis Streams", "NATS JetStream"]);
    assert_eq!(said[1..], ["no: appendfsync everysec", "no: sync_interval 90 s"]);
}

#[test]
fn the_monitor_of_another_server_is_not_believed_and_who_is_not_there_is_named() {
    let (dir, data, others) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (_nats, nats_url, _) = nats(data.path(), "always");
    let (_other, _, monitor) = nats(others.path(), "always");
    let told = run(dir.path(), &["--nats", &nats_url, "--nats-monitor", &monitor]);
    assert!(told.code == 3 && told.stderr.contains("another server"), "{told:?}");
    let nowhere = format!("127.0.0.1:{}", free_port());
    for (flag, url) in [("--redis", format!("redis://{nowhere}")), ("--nats", format!("nats://{nowhere}"))] {
        let told = run(dir.path(), &[flag, &url]);
        assert!(told.code == 3 && told.stderr.contains(&url) && told.stderr.contains("start one"), "{told:?}");
    }
    let told = run(dir.path(), &["memory", "--nats", &nats_url]);
    assert!(told.code == 2 && told.stderr.contains("lastword-bench load"), "{told:?}");
}
