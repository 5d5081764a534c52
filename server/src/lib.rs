//! The server around the broker: workspaces, calls, views, and the edges.
//!
//! An edge turns bytes into an input, and a token into a principal; the broker (`lastword_broker`) judges the input.
//! A workspace opens a log with its broker and all that follows it, and a server listens for one.

pub mod backup;
pub mod calls;
pub mod edges;
pub mod notify;
pub mod passkeys;
#[cfg(feature = "properties")]
pub mod properties;
pub mod trace;
pub mod views;

mod attempts;
mod base_path;
mod cloud_event;
mod console;
mod cron;
mod error;
mod kept;
mod oidc;
mod origins;
mod server;
mod tls;
mod workspace;

pub use crate::attempts::AUTH_FAILURES_MAX;
pub use crate::base_path::{BasePath, set_path, url};
pub use crate::calls::config_edits::EditableConfig;
pub use crate::calls::errands::{Agenda, Errand, Errands};
pub use crate::calls::schedules::ConfiguredSchedule;
pub use crate::calls::{Context, Resources, ended};
pub use crate::console::ConsoleSettings;
pub use crate::cron::Ticks;
pub use crate::edges::http::{Mount, Pages};
pub use crate::error::{ApiError, record_of};
pub use crate::oidc::{KnownAs, Oidc, OidcError, Person};
pub use crate::server::{Config, DRAIN_MAX, Server, bind, local_url};
pub use crate::tls::{Certificate, FILE_CERTIFICATE, FILE_PIN, Tls, TlsError, Transport, cause, http_client};
pub use crate::views::{NodeView, Nodes, NodesView};
pub use crate::workspace::{
    CHECKPOINT_EVERY_FACTS, Companion, OPERATOR, Opening, StartError, Workspace, WorkspaceSettings, open_index,
};
