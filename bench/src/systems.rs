//! The other systems to measure, and their rows of the report.

use crate::load::Measured;

/// The repeated operation, the same on each system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// A message is published, delivered and acknowledged.
    Message,
    /// A request is published, delivered and acknowledged, and so is its answer.
    Exchange,
}

impl Work {
    /// Returns the operation's name in rows and streams.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::Exchange => "exchange",
        }
    }
}

/// Servers of others, to be measured beside us.
#[derive(Debug, clap::Args)]
pub(crate) struct Peers {
    /// A Redis server to measure beside us, by its Streams: redis://HOST:PORT
    #[arg(long, value_name = "URL")]
    pub(crate) redis: Option<String>,
    /// A NATS server to measure beside us, by its JetStream: nats://HOST:PORT
    #[arg(long, value_name = "URL")]
    pub(crate) nats: Option<String>,
    /// The monitor of that NATS server, which tells when it syncs: http://HOST:PORT
    #[arg(long, value_name = "URL", requires = "nats")]
    pub(crate) nats_monitor: Option<String>,
}

impl Peers {
    /// Returns whether a server is named.
    pub(crate) const fn any(&self) -> bool {
        self.redis.is_some() || self.nats.is_some()
    }
}

/// The result of one operation on one system.
#[derive(Debug, serde::Serialize)]
pub(crate) struct PeerRow {
    /// The system and the operation.
    pub(crate) what: String,
    /// Workers, each with one operation in flight.
    pub(crate) in_flight: usize,
    /// The rates and durations.
    #[serde(flatten)]
    pub(crate) measured: Measured,
    /// Operations per second over the bare file's records per second, of the same run.
    pub(crate) ratio_to_bare_file: f64,
    /// Lastword's operations per second over this system's; `None` for Lastword's own row.
    pub(crate) ours_to_theirs: Option<f64>,
    /// Whether an acknowledgement is on disk, as the system reports it.
    pub(crate) acknowledged_on_disk: String,
}
