//! `lastword cluster`: shows and checks the nodes that serve workspaces over NATS JetStream, and adds workspaces.

#[cfg(feature = "cluster")]
mod check;
#[cfg(feature = "cluster")]
mod configuration;
#[cfg(feature = "cluster")]
mod connection;
#[cfg(feature = "cluster")]
mod node;
#[cfg(feature = "cluster")]
mod workspaces;

use std::path::PathBuf;
use std::time::Duration;

#[cfg(feature = "cluster")]
pub(crate) use self::check::check;
#[cfg(feature = "cluster")]
pub(crate) use self::node::serve;
#[cfg(feature = "cluster")]
pub(crate) use self::workspaces::run;
#[cfg(not(feature = "cluster"))]
use super::Context;
#[cfg(not(feature = "cluster"))]
use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// NATS servers, such as nats://10.0.0.1:4222, with commas between them.
    #[arg(long = "cluster", value_name = "URLS", env = "LASTWORD_CLUSTER", hide_env_values = true)]
    #[arg(value_delimiter = ',', help_heading = "Cluster")]
    servers: Vec<String>,
    #[command(flatten)]
    nats: NatsArgs,
    #[command(subcommand)]
    command: ClusterCommand,
}

/// How to reach NATS.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct NatsArgs {
    /// File with credentials (.creds) that NATS accepts.
    #[arg(long, value_name = "FILE", help_heading = "Cluster")]
    pub(crate) nats_creds: Option<PathBuf>,
    /// Certificates in PEM that verify the NATS servers', in place of the system's.
    #[arg(long, value_name = "FILE", help_heading = "Cluster")]
    pub(crate) nats_ca: Option<PathBuf>,
    /// Certificate in PEM by which the program proves itself to the NATS servers.
    #[arg(long, value_name = "FILE", requires = "nats_key", help_heading = "Cluster")]
    pub(crate) nats_cert: Option<PathBuf>,
    /// Private key of that certificate in PEM, without a passphrase.
    #[arg(long, value_name = "FILE", requires = "nats_cert", help_heading = "Cluster")]
    pub(crate) nats_key: Option<PathBuf>,
    /// File with a key, the same for all nodes, that seals the cluster's secrets in NATS.
    #[arg(long, value_name = "FILE", help_heading = "Cluster")]
    pub(crate) cluster_key: Option<PathBuf>,
    /// Addresses of the NATS servers' monitoring [default: port 8222 of each].
    #[arg(long, value_name = "URLS", value_delimiter = ',', help_heading = "Cluster")]
    pub(crate) nats_monitor: Vec<String>,
    /// NATS servers on which each log is stored: 3, or 1 for a trial [default: as the cluster began, or 3].
    #[arg(long, value_name = "N", help_heading = "Cluster")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=5))]
    pub(crate) replicas: Option<u8>,
}

#[derive(Debug, clap::Subcommand)]
enum ClusterCommand {
    /// Show the nodes, and which of them leads each workspace
    Status,
    /// Add a workspace; the nodes serve it at once
    Add {
        /// Name: 1 to 32 of a-z, 0-9 and -.
        workspace: String,
    },
    /// Give a workspace limits and a policy of its own, in place of the nodes' lastword.toml
    Configure {
        /// Name of the workspace.
        workspace: String,
        /// File in the form of lastword.toml, with what concerns a workspace.
        #[arg(required_unless_present = "default", conflicts_with = "default")]
        file: Option<PathBuf>,
        /// Return to the nodes' lastword.toml.
        #[arg(long)]
        default: bool,
    },
    /// Remove a workspace; its log stays in NATS, and `add` brings it back
    Remove {
        /// Name of the workspace.
        workspace: String,
        /// Remove its log, keys and tokens as well: they are gone for good.
        #[arg(long)]
        with_log: bool,
        /// Confirm without a terminal, in a script.
        #[arg(long)]
        yes: bool,
    },
    /// Set aside a message that no node wrote, so that the nodes go on behind it
    SetAside {
        /// Name of the workspace.
        workspace: String,
        /// Number of the message in the stream, as the nodes' logs name it.
        message: u64,
        /// Confirm without a terminal, in a script.
        #[arg(long)]
        yes: bool,
    },
    /// Copy the log of a data directory into a new workspace. Needs a stopped server
    MoveIn {
        /// Name of the workspace.
        workspace: String,
    },
    /// Copy the log of a workspace into a new data directory
    MoveOut {
        /// Name of the workspace.
        workspace: String,
        /// Data directory to make.
        #[arg(long, value_name = "DIR")]
        to: PathBuf,
    },
}

#[cfg(not(feature = "cluster"))]
const WITHOUT: &str = "this lastword was built without clusters";
#[cfg(not(feature = "cluster"))]
const BUILD: &str = "build it with: cargo install --path cli --features cluster";

/// Without the feature, reports how to get it.
#[cfg(not(feature = "cluster"))]
#[expect(clippy::unused_async, reason = "the version with clusters awaits")]
pub(crate) async fn run(_args: Args, _cx: &Context) -> Result<(), Failure> {
    Err(Failure::usage(WITHOUT).hint(BUILD))
}

#[cfg(not(feature = "cluster"))]
#[expect(clippy::unused_async, reason = "the version with clusters awaits")]
pub(crate) async fn serve(
    _config: lastword_server::Config,
    _node: NodeArgs,
    _insecure: bool,
    _cx: &Context,
) -> Result<(), Failure> {
    Err(Failure::usage(WITHOUT).hint(BUILD))
}

#[cfg(not(feature = "cluster"))]
#[expect(clippy::unused_async, reason = "the version with clusters awaits")]
pub(crate) async fn check(_urls: &[String], _args: &NatsArgs, _cx: &Context) -> Result<(), Failure> {
    Err(Failure::usage(WITHOUT).hint(BUILD))
}

/// What `lastword serve` needs to be a node.
#[derive(Debug, clap::Args)]
pub(crate) struct NodeArgs {
    /// Be a node over these NATS servers, such as nats://10.0.0.1:4222, with commas between them.
    #[arg(long = "cluster", value_name = "URLS", value_delimiter = ',', help_heading = "Cluster")]
    pub(crate) servers: Vec<String>,
    #[command(flatten)]
    pub(crate) nats: NatsArgs,
    /// Name of this node, which no other has [default: the host's name].
    #[arg(long, value_name = "NAME", requires = "servers", help_heading = "Cluster")]
    pub(crate) node: Option<String>,
    /// Address at which the other nodes reach this one [default: the one that it listens on].
    #[arg(long, value_name = "URL", requires = "servers", help_heading = "Cluster")]
    pub(crate) advertise: Option<String>,
    /// Time without a use after which a workspace rests until it is called; 0s for never.
    #[arg(long, value_name = "DURATION", default_value = "15m", requires = "servers", help_heading = "Cluster")]
    #[arg(value_parser = crate::quantity::duration)]
    pub(crate) rest_after: Duration,
    /// Serve although NATS doesn't have workspaces that this node remembers; their logs stay in folders aside.
    #[arg(long, requires = "servers", help_heading = "Cluster")]
    pub(crate) accept_missing: bool,
    /// Serve although the NATS servers may lose what they acknowledged in a power cut, or don't say.
    #[arg(long, requires = "servers", help_heading = "Cluster")]
    pub(crate) not_durable: bool,
}
