//! The other systems to measure, and their rows of the report.

use crate::load::Measured;

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
    /// Whether there are any.
    pub(crate) const fn any(&self) -> bool {
        self.redis.is_some() || self.nats.is_some()
    }
}

/// What a work came to on one of the systems.
#[derive(Debug, serde::Serialize)]
pub(crate) struct PeerRow {
    /// Which system, and which work.
    pub(crate) what: String,
    /// Workers, each with one thing in flight.
    pub(crate) in_flight: usize,
    /// How much came of it.
    #[serde(flatten)]
    pub(crate) measured: Measured,
    /// Over the bare file's records a second, of the same run.
    pub(crate) ratio_to_bare_file: f64,
    /// Ours a second over theirs; none where it is ours.
    pub(crate) ours_to_theirs: Option<f64>,
    /// Whether an acknowledgement is on disk, as the system says it.
    pub(crate) acknowledged_on_disk: String,
}
