//! The HTTP server of opencode's terminal interface.

use std::io::{self, Read as _};
use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;
use std::time::Duration;

use futures_util::StreamExt as _;
use lastword_client::wire::text::mended;
use reqwest::Method;
use serde_json::Value;
use tokio::sync::mpsc::Sender;
use tokio::time::{sleep, timeout};

use super::session::RETRY;

/// Time limit of one call.
const CALL: Duration = Duration::from_secs(30);
/// Time limit of the head of a response.
const HEAD: Duration = Duration::from_secs(2);
/// Longest event that is read: a part of a message may hold a tool's whole result.
const EVENT_BYTES_MAX: usize = 8 << 20;
/// Linux's table of IPv4 sockets, and the state in it of a socket that listens.
const SOCKETS: &str = "/proc/net/tcp";
const LISTENS: &str = "0A";
/// opencode's own name for the user of its server.
const USER: &str = "opencode";

/// Returns a password that no other process can guess.
fn secret() -> io::Result<String> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Returns a port that was free a moment ago. opencode doesn't say which port it took by itself.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Checks that this user's process listens on the port: another user's could have taken it before opencode did, and
/// must not get the password. Only Linux says whose a socket is.
fn check_listener(port: u16) -> Result<(), String> {
    let Ok(sockets) = std::fs::read_to_string(SOCKETS) else { return Ok(()) };
    match listener(&sockets, port) {
        None => Err("opencode doesn't listen yet".to_owned()),
        Some(user) if user == rustix::process::getuid().as_raw() => Ok(()),
        Some(user) => Err(format!("a process of user {user} took port {port} before opencode did")),
    }
}

/// Returns the user whose process listens on the port of the loopback address or of all addresses.
fn listener(sockets: &str, port: u16) -> Option<u32> {
    let on =
        |address: &str| [format!("0100007F:{port:04X}"), format!("00000000:{port:04X}")].iter().any(|a| a == address);
    sockets.lines().find_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let found = on(words.get(1)?) && *words.get(3)? == LISTENS;
        words.get(7).filter(|_| found)?.parse().ok()
    })
}

/// The interface's server.
#[derive(Clone)]
pub struct Server {
    http: reqwest::Client,
    port: u16,
    password: String,
}

impl Server {
    /// Chooses the address and the password of a server that doesn't run yet.
    ///
    /// # Errors
    /// The machine gives no port, or no random bytes.
    pub fn new(http: reqwest::Client) -> io::Result<Self> {
        Ok(Self { http, port: free_port()?, password: secret()? })
    }

    /// Gives the program its address and its password.
    pub fn equip(&self, command: &mut Command) {
        command.args(["--port", &self.port.to_string()]);
        command.env("OPENCODE_SERVER_PASSWORD", &self.password).env("OPENCODE_SERVER_USERNAME", USER);
    }

    fn request(&self, method: Method, path: &str) -> Result<reqwest::RequestBuilder, String> {
        check_listener(self.port)?;
        let url = format!("http://{}:{}{path}", Ipv4Addr::LOCALHOST, self.port);
        Ok(self.http.request(method, url).basic_auth(USER, Some(&self.password)))
    }

    /// Makes a call and returns the JSON of its response; null if there is none.
    pub(super) async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, String> {
        let mut request = self.request(method, path)?.timeout(CALL);
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await.and_then(reqwest::Response::error_for_status);
        let bytes = response.map_err(|error| error.to_string())?.bytes().await.map_err(|error| error.to_string())?;
        Ok(serde_json::from_str(&mended(&bytes)).unwrap_or(Value::Null))
    }

    /// Follows the events until the receiver is gone. Connects again after every loss.
    pub(super) async fn follow(&self, events: Sender<Value>) {
        while !events.is_closed() {
            // While opencode starts, it takes requests that it never answers.
            if let Ok(request) = self.request(Method::GET, "/event")
                && let Ok(Ok(response)) = timeout(HEAD, request.send()).await
                && response.status().is_success()
            {
                let (mut stream, mut line) = (response.bytes_stream(), Vec::new());
                while let Some(Ok(bytes)) = stream.next().await {
                    for byte in bytes {
                        if byte != b'\n' {
                            line.push(byte);
                            line.truncate(EVENT_BYTES_MAX);
                            continue;
                        }
                        // An event that was cut isn't JSON, and is skipped.
                        let event =
                            line.strip_prefix(b"data: ").and_then(|data| serde_json::from_str(&mended(data)).ok());
                        line.clear();
                        if let Some(event) = event
                            && events.send(event).await.is_err()
                        {
                            return;
                        }
                    }
                }
            }
            sleep(RETRY).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_who_listens_on_a_port_is_known() {
        let line = |address: &str, state: &str, user: u32| {
            format!(
                "   0: {address} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  {user}        0 12 1\n"
            )
        };
        let sockets = [line("0100007F:1F90", "01", 7), line("0100007F:1F90", "0A", 8), line("00000000:1F91", "0A", 9)];
        let sockets = sockets.concat();
        assert_eq!([0x1f90, 0x1f91, 0x1f92].map(|port| listener(&sockets, port)), [Some(8), Some(9), None]);
    }

    #[test]
    fn this_process_is_known_as_the_one_that_listens() {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = socket.local_addr().unwrap().port();
        assert_eq!(check_listener(port), Ok(()));
    }
}
