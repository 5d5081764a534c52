//! The connection to NATS, as the command line names it.

use std::path::Path;

use lastword_cluster::{NodeError, default_monitors};
use lastword_store::{KEY_CHARS_MIN, Nats, NatsOptions, Registry, Sealing};

use super::NatsArgs;
use crate::failure::Failure;
use crate::notify::private;

/// A connection to the cluster.
pub(super) struct NatsConnection {
    pub(super) nats: Nats,
    pub(super) registry: Registry,
}

impl NatsConnection {
    /// Connects to NATS and opens the cluster's registry.
    pub(super) async fn open(servers: &[String], args: &NatsArgs) -> Result<Self, Failure> {
        let nats = Nats::connect(options(servers, args)?).await.map_err(NodeError::from)?;
        let registry = Registry::open(&nats, args.replicas.map(usize::from)).await.map_err(NodeError::from)?;
        Ok(Self { nats, registry })
    }
}

/// Returns how NATS is reached.
pub(super) fn options(servers: &[String], args: &NatsArgs) -> Result<NatsOptions, Failure> {
    if servers.is_empty() {
        return Err(Failure::usage("no NATS server is named")
            .hint("for example --cluster nats://127.0.0.1:4222, or the same in LASTWORD_CLUSTER"));
    }
    let (credentials, ca) = (args.nats_creds.clone(), args.nats_ca.clone());
    let certificate = args.nats_cert.clone().zip(args.nats_key.clone());
    let sealing = args.cluster_key.as_deref().map(sealing).transpose()?;
    Ok(NatsOptions { credentials, ca, certificate, sealing, ..NatsOptions::new(servers.to_vec()) })
}

/// Reads the key of the registry's secrets.
fn sealing(file: &Path) -> Result<Sealing, Failure> {
    let text = private("--cluster-key", file).map_err(Failure::usage)?;
    let short = || Failure::usage(format!("{} has fewer than {KEY_CHARS_MIN} characters", file.display()));
    Sealing::of(&text).ok_or_else(|| short().hint("make one that all nodes have: openssl rand -hex 32"))
}

/// Returns the addresses of the servers' monitoring.
pub(super) fn monitors(servers: &[String], args: &NatsArgs) -> Vec<String> {
    let named = &args.nats_monitor;
    if named.is_empty() { default_monitors(servers) } else { named.clone() }
}
