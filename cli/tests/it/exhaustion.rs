//! What an agent or a stranger holds never keeps a human out (H4, L4).

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::program::{Server, lastword};

/// The most descriptors of the server, as a small machine or a service manager sets it.
const DESCRIPTORS: u32 = 512;
/// Bounds a test that fails; a server that answers does so within milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// Starts a server with few descriptors.
fn start() -> Server {
    let dir = tempfile::tempdir().unwrap();
    let program = lastword(dir.path());
    let mut command = Command::new("sh");
    command.current_dir(dir.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.args(["-c", &format!("ulimit -n {DESCRIPTORS}; exec \"$@\""), "sh"]).arg(program.get_program());
    command.args(["--json", "serve", "--listen", "127.0.0.1:0"]);
    Server::start_by(dir, command)
}

struct Attack {
    address: String,
    held: Vec<TcpStream>,
}

impl Attack {
    /// Opens connections and sends this text on each.
    fn hold(&mut self, connections: usize, text: &str) {
        for _ in 0..connections {
            let mut stream = TcpStream::connect(&self.address).unwrap();
            // A connection that the server has closed already is what this test is about.
            let _closed = stream.write_all(text.as_bytes());
            self.held.push(stream);
        }
    }

    /// Sends one request on a connection of its own and returns the status.
    fn ask(&self, text: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        String::from_utf8_lossy(&status[9..]).into_owned()
    }
}

#[test]
fn a_human_stops_and_decides_while_others_hold_all_that_they_can() {
    let server = start();
    let agent = fs::read_to_string(server.agent("kilo")).unwrap();
    let agent = format!("Host: localhost\r\nAuthorization: Bearer {}\r\n", agent.trim());
    let human = fs::read_to_string(server.path().join(".lastword/operator.token")).unwrap();
    let human = format!("Host: localhost\r\nAuthorization: Bearer {}\r\nConnection: close\r\n", human.trim());
    let held = "{\"tool\":\"deploy\",\"arguments\":{\"to\":\"eu\"}}";
    let mut attack = Attack {
        address: server.first_line["listening"].as_str().unwrap().trim_start_matches("http://").to_owned(),
        held: Vec::new(),
    };
    let json = |text: &str| format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{text}", text.len());
    assert_eq!(attack.ask(&format!("POST /v1/approvals HTTP/1.1\r\n{agent}{}", json(held))), "201");
    let streams = format!("GET /v1/events HTTP/1.1\r\n{agent}\r\n");
    let waits = format!("GET /v1/inbox?wait=300s HTTP/1.1\r\n{agent}\r\n");
    let bodies = format!(
        "POST /v1/messages HTTP/1.1\r\n{agent}Content-Type: application/json\r\nContent-Length: 600000\r\n\r\n{{"
    );
    let unread = format!("GET /v1/openapi.json HTTP/1.1\r\n{agent}\r\n").repeat(64);
    let strangers = "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 600000\r\n";
    for (connections, text) in [
        (DESCRIPTORS as usize, streams.as_str()),
        (DESCRIPTORS as usize, &waits),
        (DESCRIPTORS as usize, &bodies),
        (DESCRIPTORS as usize, &unread),
        (DESCRIPTORS as usize, strangers),
        (DESCRIPTORS as usize, ""),
    ] {
        attack.hold(connections, text);
        let call = |path: &str, body: &str| attack.ask(&format!("POST {path} HTTP/1.1\r\n{human}{}", json(body)));
        assert_eq!(call("/v1/workspace/stop", ""), "204", "{} connections of {text:?}", attack.held.len());
        assert_eq!(call("/v1/workspace/resume", ""), "204");
    }
    let decide = format!("POST /v1/approvals/apr-1/decision HTTP/1.1\r\n{human}");
    assert_eq!(attack.ask(&format!("{decide}{}", json("{\"decision\":\"reject\"}"))), "200");
    drop(attack);
    assert_eq!(server.operator(&["approvals"]).code, 0, "and the server serves on");
}
