//! The events of a bridge, for the program that prints or logs them.

use std::fmt;

use lastword_client::Connection;
use serde::Serialize;

/// Something that happened: JSON for programs, `Display` for people.
///
/// Texts from the platform and from agents are unescaped; escape them before printing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The bridge is connected and serves its channels.
    Ready {
        /// The broker's address.
        url: String,
        /// The platform's name; distinguishes these events from a runner's.
        driver: &'static str,
    },
    /// A call to the broker or to the platform failed and is retried.
    Waiting {
        /// The error, with the hint of a refusal.
        reason: String,
    },
    /// The broker answers again.
    Connected,
    /// Something was dropped or needs an operator.
    Warning {
        /// A sentence for that operator.
        message: String,
    },
    /// Something that a warning was about works again.
    Restored {
        /// A sentence for the operator.
        message: String,
    },
}

impl From<Connection> for Event {
    fn from(change: Connection) -> Self {
        match change {
            Connection::Waiting { reason } => Self::Waiting { reason },
            Connection::Connected => Self::Connected,
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready { url, driver } => write!(f, "ready: takes work from {url}, driver {driver}"),
            Self::Waiting { reason } => write!(f, "waiting: {reason}"),
            Self::Connected => f.write_str("connected again"),
            Self::Warning { message } => write!(f, "warning: {message}"),
            Self::Restored { message } => write!(f, "restored: {message}"),
        }
    }
}

/// The destination of a bridge's events.
pub type EventSink = lastword_client::EventSink<Event>;
