//! The server around the broker: workspaces, calls, views, and the edges.
//!
//! An edge turns bytes into an input, and a token into a principal; the broker (`lastword_broker`) judges the input.
//! A workspace opens a log with its broker and all that follows it, and a server listens for one.

pub mod backup;
pub mod edges;
pub mod notify;
#[cfg(feature = "properties")]
pub mod properties;

mod attempts;
mod base_path;
mod calls;
#[cfg(feature = "cluster")]
pub mod cluster;
mod cron;
mod error;
mod oidc;
mod origins;
mod server;
mod tls;
mod views;
mod workspace;

pub use crate::attempts::AUTH_FAILURES_MAX;
pub use crate::base_path::BasePath;
pub use crate::calls::policy::RuleBook;
pub use crate::calls::schedules::ConfiguredSchedule;
pub use crate::calls::{Context, Resources};
pub use crate::edges::mcp::AnonymousMcp;
pub use crate::oidc::{KnownAs, Oidc, OidcError, Person};
pub use crate::server::{CHECKPOINT_EVERY_FACTS, Config, Server};
pub use crate::tls::{FILE_CERTIFICATE, FILE_PIN, Tls, TlsError};
pub use crate::workspace::{OPERATOR, StartError};
