//! What a node does before it is one: it waits for NATS, takes its name, and looks whether NATS has what it remembers.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::time::Duration;

use lastword_broker::clock::Stopwatch;
use lastword_broker::files::write_private;
use lastword_broker::identity::{Secret, credential, hex};
use lastword_facts::fact::Credential;
use lastword_store::{KEY_NODES_SECRET, Nats, NatsError, Record, Registry, RegistryError};

use crate::detour::subject;
use crate::members::{NodeInfo, RENEW_EVERY, WATCHED, node_key, workspace_key};
use crate::{ClusterConfig, NodeError, WORKSPACE_MAIN, create_workspace, parse, reach};

/// The file in a node's directory with the token that sees the names in its metrics.
const FILE_METRICS_TOKEN: &str = "metrics.token";
/// How long a start waits for NATS to be ready, and the pause between two attempts.
const START_MAX: Duration = Duration::from_secs(30);
const START_PAUSE: Duration = Duration::from_millis(300);
/// How often a start that waits says so.
const START_TELL_EVERY: Duration = Duration::from_secs(5);
/// The file in a workspace's directory with its log.
const FILE_LOG: &str = "lastword.db";

/// Tries until it succeeds, for a while: NATS may be starting, or electing.
async fn patiently<T>(mut attempt: impl AsyncFnMut() -> Result<T, NodeError>) -> Result<T, NodeError> {
    let (since, mut told) = (Stopwatch::start(), None::<Stopwatch>);
    loop {
        match attempt().await {
            // A stream that another node has just made may be missing on the server that is asked.
            Err(
                error @ (NodeError::Nats(
                    NatsError::Connect { .. } | NatsError::Unavailable { .. } | NatsError::Missing { .. },
                )
                | NodeError::Registry(RegistryError::Conflict { .. } | RegistryError::Unavailable { .. })),
            ) if since.elapsed() < START_MAX => {
                if told.is_none_or(|told| told.elapsed() >= START_TELL_EVERY) {
                    tracing::warn!(%error, "NATS isn't ready; trying again");
                    told = Some(Stopwatch::start());
                }
                tokio::time::sleep(START_PAUSE).await;
            }
            done => return done,
        }
    }
}

pub(crate) fn make_dir(dir: &Path) -> Result<(), NodeError> {
    use std::os::unix::fs::DirBuilderExt as _;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|source| NodeError::File { place: dir.to_owned(), source })
}

/// What a node has of NATS before it is a member.
pub(crate) struct Joined {
    pub(crate) nats: Nats,
    pub(crate) registry: Registry,
    pub(crate) secret: String,
    /// The servers on which each log is stored.
    pub(crate) replicas: usize,
    /// Tells this run of the node from others.
    pub(crate) session: String,
    /// The hash of the token that sees the names in the metrics.
    pub(crate) metrics_token: Credential,
    /// The revision of the registry's newest change when this node started.
    pub(crate) started_at: u64,
    /// The registry's records of nodes and workspaces.
    pub(crate) records: Vec<Record>,
}

/// Connects to NATS, makes the workspace of calls that name none, and looks whether it has what the node in this directory remembers.
pub(crate) async fn join(cluster: &ClusterConfig, dir: &Path) -> Result<Joined, NodeError> {
    let nats = patiently(async || Nats::connect(cluster.nats.clone()).await.map_err(NodeError::from)).await?;
    patiently(async || Ok(nats.ready(WORKSPACE_MAIN).await?)).await?;
    let registry = patiently(async || Ok(Registry::open(&nats, cluster.replicas).await?)).await?;
    let replicas = match cluster.replicas {
        Some(replicas) => replicas,
        None => patiently(async || Ok(registry.replicas().await?)).await?,
    };
    let failed = |source| NodeError::File { place: dir.to_owned(), source };
    let session = hex(&Secret::token().map_err(failed)?.credential()[..8]);
    let metrics_token = metrics_token(dir).map_err(failed)?;
    let own = Secret::token().map_err(failed)?;
    let secret = patiently(async || Ok(shared_secret(&registry, &own).await?)).await?;
    let started_at = patiently(async || Ok(registry.last_revision().await?)).await?;
    let list = async || Ok(registry.list_all(&WATCHED).await?);
    let mut records = patiently(list).await?;
    let lost = patiently(async || missing(&registry, &records, dir).await).await?;
    if !lost.is_empty() && !cluster.accept_missing {
        return Err(NodeError::Missing { workspaces: lost.join(", "), place: dir.to_owned() });
    }
    patiently(async || create_workspace(&nats, &registry, WORKSPACE_MAIN, replicas).await).await?;
    if !records.iter().any(|record| record.key == workspace_key(WORKSPACE_MAIN)) {
        records = patiently(list).await?;
    }
    Ok(Joined { nats, registry, secret, replicas, session, metrics_token, started_at, records })
}

/// Takes the node's name: writes its record, in place of one that an earlier run left. Returns the record's revision.
///
/// # Errors
/// [`NodeError::Name`]: another program has the name.
pub(crate) async fn claim(
    nats: &Nats,
    registry: &Registry,
    node: &str,
    info: &NodeInfo,
    secret: &str,
) -> Result<u64, NodeError> {
    let (key, value) = (node_key(node), serde_json::to_vec(info).unwrap_or_default());
    let taken = || NodeError::Name(node.to_owned());
    let written = match registry.get(&key).await? {
        None => registry.create(&key, &value).await,
        Some(record) => {
            if let Some(other) = parse::<NodeInfo>(&record).filter(|other| other.proves)
                && let Ok(client) = reach::client(&other)
                && reach::check(&client, &other, secret).await.is_ok()
            {
                return Err(taken());
            }
            // A program that is alive, but not reached from here, listens for calls through NATS, and renews its record within
            // this time.
            if nats.may_be_heard(&subject(node)).await {
                tokio::time::sleep(RENEW_EVERY * 3 / 2).await;
            }
            registry.replace(&key, &value, record.revision).await
        }
    };
    written.map_err(|error| match error {
        RegistryError::Conflict { .. } => taken(),
        RegistryError::Sealed { .. } | RegistryError::Unavailable { .. } => error.into(),
    })
}

fn is_workspace(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// Returns the workspaces of which this node has a log, and of which the registry never heard.
async fn missing(registry: &Registry, records: &[Record], dir: &Path) -> Result<Vec<String>, NodeError> {
    let failed = |source| NodeError::File { place: dir.to_owned(), source };
    let listed: BTreeSet<&str> = records.iter().map(|record| record.key.as_str()).collect();
    let mut missing = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let key = workspace_key(name);
        // What was removed leaves a mark in the registry, and its log on the nodes.
        if is_workspace(name)
            && path.join(FILE_LOG).exists()
            && !listed.contains(key.as_str())
            && !registry.has_known(&key).await?
        {
            missing.push(name.to_owned());
        }
    }
    missing.sort_unstable();
    Ok(missing)
}

/// Returns the hash of the token in this node's directory that sees the names in its metrics; makes one if none is there.
fn metrics_token(dir: &Path) -> io::Result<Credential> {
    let file = dir.join(FILE_METRICS_TOKEN);
    match std::fs::read_to_string(&file) {
        Ok(token) => Ok(credential(token.trim())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let token = Secret::token()?;
            write_private(&file, format!("{}\n", token.reveal()).as_bytes())?;
            Ok(token.credential())
        }
        Err(error) => Err(error),
    }
}

/// Returns the secret by which nodes know each other, which the first one draws.
async fn shared_secret(registry: &Registry, own: &Secret) -> Result<String, RegistryError> {
    match registry.create(KEY_NODES_SECRET, own.reveal().as_bytes()).await {
        Ok(_) => return Ok(own.reveal().to_owned()),
        Err(RegistryError::Conflict { .. }) => {}
        Err(error @ (RegistryError::Sealed { .. } | RegistryError::Unavailable { .. })) => return Err(error),
    }
    let found = registry.get(KEY_NODES_SECRET).await?.and_then(|record| record.value);
    found.and_then(|value| String::from_utf8(value).ok()).ok_or_else(|| RegistryError::Unavailable {
        reason: "the nodes' secret is damaged: delete the key `secret`".to_owned(),
    })
}
