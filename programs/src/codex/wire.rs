//! A connection to Codex's app-server.

use std::collections::VecDeque;
use std::fs;
use std::path::Path;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use lastword_client::wire::text::mended;
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, client_async};

/// Most lines of the app-server's log that an error repeats.
const LAST_LINES: usize = 5;
/// Time limit of one call.
const CALL: Duration = Duration::from_secs(30);

/// Time limit of the app-server's start, and the pause between two checks.
const START_MAX: Duration = Duration::from_secs(30);
const START_CHECK: Duration = Duration::from_millis(20);

/// Connects to an app-server that has just been started, whose log is this file.
///
/// # Errors
/// It did not start, or refuses the connection.
pub async fn connect(socket: &Path, log: &Path, server: &mut Child) -> Result<Wire, String> {
    for _ in 0..START_MAX.as_millis() / START_CHECK.as_millis() {
        if let Ok(stream) = UnixStream::connect(socket).await
            && let Ok((stream, _)) = client_async("ws://localhost/", stream).await
        {
            let mut wire = Wire::new(stream);
            let client = json!({ "name": "lastword", "version": env!("CARGO_PKG_VERSION") });
            let hello = json!({ "clientInfo": client, "capabilities": { "experimentalApi": true } });
            wire.call("initialize", hello).await?;
            wire.send(&json!({ "method": "initialized" })).await?;
            return Ok(wire);
        }
        if server.try_wait().map_err(|error| error.to_string())?.is_some() {
            break;
        }
        sleep(START_CHECK).await;
    }
    let said = fs::read(log).map(|said| last_words(&String::from_utf8_lossy(&said))).unwrap_or_default();
    let said = if said.is_empty() { "it said nothing".to_owned() } else { said };
    Err(format!("`codex app-server` did not start: {said}"))
}

/// Returns the last lines of a program's log, without the colours of a terminal.
fn last_words(log: &str) -> String {
    let plain: String = log.split('\u{1b}').enumerate().fold(String::new(), |text, (at, part)| {
        let part = if at == 0 { part } else { part.split_once('m').map_or("", |(_, rest)| rest) };
        text + part
    });
    let lines: Vec<&str> = plain.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

/// A connection to the app-server: JSON-RPC in the messages of a WebSocket.
pub struct Wire {
    stream: WebSocketStream<UnixStream>,
    calls: u64,
    /// Notifications that came while a reply was waited for.
    pub(super) heard: VecDeque<Value>,
}

impl Wire {
    const fn new(stream: WebSocketStream<UnixStream>) -> Self {
        Self { stream, calls: 0, heard: VecDeque::new() }
    }

    pub(super) async fn send(&mut self, value: &Value) -> Result<(), String> {
        self.stream.send(Message::text(value.to_string())).await.map_err(|error| error.to_string())
    }

    /// Returns the next message; safe to drop while it waits.
    pub(super) async fn next(&mut self) -> Result<Value, String> {
        loop {
            match self.stream.next().await {
                Some(Ok(Message::Text(text))) => {
                    return serde_json::from_str(&mended(text.as_bytes())).map_err(|error| error.to_string());
                }
                Some(Ok(Message::Close(_))) | None => return Err("Codex's app-server is gone".to_owned()),
                Some(Ok(Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Err(error)) => return Err(error.to_string()),
            }
        }
    }

    /// Calls a method and returns its result.
    pub(super) async fn call(&mut self, method: &str, params: Value) -> Result<Value, String> {
        let late = |_| format!("no answer to {method} within {} s", CALL.as_secs());
        timeout(CALL, self.exchange(method, params)).await.map_err(late)?
    }

    async fn exchange(&mut self, method: &str, params: Value) -> Result<Value, String> {
        self.calls += 1;
        self.send(&json!({ "id": self.calls, "method": method, "params": params })).await?;
        loop {
            let mut message = self.next().await?;
            if message.get("method").is_some() {
                self.heard.push_back(message);
            } else if message["id"] == self.calls {
                return match message.get("error") {
                    Some(error) => Err(error["message"].as_str().unwrap_or("it refused").to_owned()),
                    None => Ok(message["result"].take()),
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::last_words;

    #[test]
    fn an_error_repeats_the_last_lines_without_colours() {
        let log = "one\ntwo\nthree\nfour\n\n\u{1b}[31mERROR\u{1b}[0m five\nError: six\n";
        assert_eq!(last_words(log), "two\nthree\nfour\nERROR five\nError: six");
    }
}
