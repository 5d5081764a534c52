//! What the monitoring of a NATS server says: its version, its clock, and whether it acknowledges before the disk has it.

use std::time::Duration;

use lastword_broker::clock::wall;
use lastword_facts::Time;
use lastword_store::shown_address;
use serde::{Deserialize, Serialize};

/// The wait for a monitor's answer.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// The port of a NATS server's monitoring, unless it is configured otherwise.
const PORT: u16 = 8222;

/// One NATS server as its monitoring describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Monitored {
    /// The address that was asked, without a password.
    pub monitor: String,
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Whether JetStream syncs each message before it acknowledges it (`sync_interval: always`).
    pub sync_always: bool,
    /// Its clock's time minus this machine's, in ms, with the time that the answer took.
    pub clock_difference_ms: i64,
}

/// A server that didn't say what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unmonitored {
    /// It gave no answer, or not one of NATS.
    #[error("{monitor}: {reason}; --nats-monitor names where each server's monitoring is")]
    Unanswered {
        /// The address that was asked, without a password.
        monitor: String,
        /// The failure.
        reason: String,
    },
    /// It stores nothing.
    #[error(
        "the NATS server {name} has no JetStream: NATS turns it off where its disk is full. Make room there, then restart it"
    )]
    NoJetStream {
        /// Its name.
        name: String,
    },
}

#[derive(Deserialize)]
struct Varz {
    server_name: String,
    version: String,
    now: String,
    #[serde(default)]
    jetstream: JetStream,
}

#[derive(Default, Deserialize)]
struct JetStream {
    #[serde(default)]
    config: Option<JetStreamConfig>,
}

#[derive(Deserialize)]
struct JetStreamConfig {
    #[serde(default)]
    sync_always: bool,
}

/// Returns where the monitoring of the servers at these addresses is by default: port 8222 of each host.
#[must_use]
pub fn default_monitors(servers: &[String]) -> Vec<String> {
    let host = |server: &String| {
        let shown = shown_address(server);
        let rest = shown.split_once("://").map_or(shown.as_str(), |(_, rest)| rest);
        let host = match rest.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            Some(_) | None => rest,
        };
        format!("http://{host}:{PORT}")
    };
    servers.iter().map(host).collect()
}

/// Asks a NATS server's monitoring.
///
/// # Errors
/// It doesn't answer, or not as a NATS server with JetStream does.
pub async fn monitored(monitor: &str) -> Result<Monitored, Unmonitored> {
    let failed = |reason: String| Unmonitored::Unanswered { monitor: shown_address(monitor), reason };
    let client = lastword_client::plain_http().map_err(|error| failed(error.to_string()))?;
    let url = format!("{}/varz", monitor.trim_end_matches('/'));
    let asked = async { client.get(url).send().await?.error_for_status()?.json::<Varz>().await };
    let found = tokio::time::timeout(ANSWER_MAX, asked).await;
    let found = found.map_err(|_| failed("it doesn't answer".to_owned()))?;
    let found = found.map_err(|error| failed(error.without_url().to_string()))?;
    let Some(config) = found.jetstream.config else { return Err(Unmonitored::NoJetStream { name: found.server_name }) };
    let clock = found.now.parse::<jiff::Timestamp>().map_err(|error| failed(error.to_string()))?;
    let Time(here) = wall();
    Ok(Monitored {
        monitor: shown_address(monitor),
        name: found.server_name,
        version: found.version,
        sync_always: config.sync_always,
        clock_difference_ms: clock.as_millisecond().saturating_sub(here.cast_signed()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_monitoring_is_on_the_hosts_of_the_servers() {
        let servers = ["nats://a:4222", "tls://user:pa@ss@b.example", "10.0.0.1", "nats://[::1]:4222", "[::1]"];
        let found = default_monitors(&servers.map(str::to_owned));
        let wanted = ["a", "b.example", "10.0.0.1", "[::1]", "[::1]"].map(|host| format!("http://{host}:8222"));
        assert_eq!(found, wanted);
    }
}
