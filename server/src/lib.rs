//! The server around the protocol: the broker's loop, identity, delivery, and the edges.
//!
//! An edge turns bytes into an input, and [`identity`] turns a token into a principal. [`Handle::submit`] hands the
//! input to the one thread that owns the core; its reply is durable. Reads that need the state run as closures on that
//! thread; the texts of messages come from the log.

pub mod backup;
pub mod checkpoint;
pub mod clock;
pub mod edges;
pub mod identity;
pub mod metrics;
pub mod notify;
#[cfg(feature = "properties")]
pub mod properties;

mod archive;
mod attempts;
mod base_path;
mod broker;
mod calls;
#[cfg(feature = "cluster")]
pub mod cluster;
mod cron;
mod disk;
mod error;
mod files;
mod oidc;
mod origins;
mod priority;
mod scrub;
mod server;
mod sync;
mod tls;
mod views;
mod workspace;

pub use crate::archive::{ArchivePolicy, archives_of};
pub use crate::attempts::AUTH_FAILURES_MAX;
pub use crate::base_path::BasePath;
pub use crate::broker::{BootError, BrokerFailure, Handle, Live, Unserved, begin_epoch, boot};
pub use crate::calls::policy::RuleBook;
pub use crate::calls::schedules::ConfiguredSchedule;
pub use crate::calls::{Context, Resources};
pub use crate::edges::mcp::AnonymousMcp;
pub use crate::files::{Copies, Files};
pub use crate::oidc::{KnownAs, Oidc, OidcError, Person};
pub use crate::server::{CHECKPOINT_EVERY_FACTS, Config, Server};
pub use crate::tls::{FILE_CERTIFICATE, FILE_PIN, Tls, TlsError};
pub use crate::workspace::{OPERATOR, StartError};
