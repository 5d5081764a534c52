//! The workspaces of a cluster: made, configured and removed.

use std::sync::Arc;

use lastword_server::{Config, Mount, Pages, WorkspaceSettings};
use lastword_store::{Nats, Record, Registry, RegistryError, SetAside};

use crate::members::{WorkspaceConfig, WorkspaceRecord, archive_key, aside_key, config_key, lease_key, workspace_key};
use crate::{NodeError, copies};

type ReadConfig = dyn Fn(&str) -> Result<Config, String> + Send + Sync;

/// Reads the configuration of a workspace that has one of its own, or says what is wrong with it.
#[derive(Clone)]
pub struct ConfigReader(Arc<ReadConfig>);

impl ConfigReader {
    /// Reads by this function.
    pub fn new(read: impl Fn(&str) -> Result<Config, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    pub(crate) fn read(&self, text: &str) -> Result<Config, String> {
        (self.0)(text)
    }
}

impl std::fmt::Debug for ConfigReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ConfigReader")
    }
}

/// Makes a workspace: its stream, then its record. Returns whether it is new.
///
/// # Errors
/// The name is no workspace's, or NATS refuses.
pub async fn create_workspace(
    nats: &Nats,
    registry: &Registry,
    workspace: &str,
    replicas: usize,
) -> Result<bool, NodeError> {
    nats.create_stream(workspace, replicas).await?;
    let again = registry.has_known(&workspace_key(workspace)).await?;
    let record = WorkspaceRecord { stream_id: nats.stream_id(workspace).await?.into(), again };
    let value = serde_json::to_vec(&record).unwrap_or_default();
    match registry.create(&workspace_key(workspace), &value).await {
        Ok(_) => Ok(true),
        Err(RegistryError::Conflict { .. }) => Ok(false),
        Err(error @ (RegistryError::Sealed { .. } | RegistryError::Unavailable { .. })) => Err(error.into()),
    }
}

/// Gives a workspace a configuration of its own, in place of the nodes', or with `None` the nodes' again.
///
/// # Errors
/// There is no such workspace, or NATS refuses.
pub async fn configure_workspace(registry: &Registry, workspace: &str, text: Option<&str>) -> Result<(), NodeError> {
    if registry.get(&workspace_key(workspace)).await?.is_none() {
        return Err(NodeError::NoWorkspace(workspace.to_owned()));
    }
    let key = config_key(workspace);
    match (registry.get(&key).await?, text) {
        (Some(record), Some(text)) => registry.replace(&key, text.as_bytes(), record.revision).await.map(|_| ())?,
        (None, Some(text)) => registry.create(&key, text.as_bytes()).await.map(|_| ())?,
        (Some(record), None) => registry.delete(&key, record.revision).await?,
        (None, None) => {}
    }
    Ok(())
}

/// Sets a message of a workspace's stream aside: the nodes go on behind it if they can't read it.
///
/// # Errors
/// There is no such workspace, or NATS refuses.
pub async fn set_aside(registry: &Registry, workspace: &str, message: SetAside) -> Result<(), NodeError> {
    if registry.get(&workspace_key(workspace)).await?.is_none() {
        return Err(NodeError::NoWorkspace(workspace.to_owned()));
    }
    let key = aside_key(workspace);
    let found = registry.get(&key).await?;
    let mut all = read_aside(found.as_ref());
    if !all.contains(&message) {
        all.push(message);
    }
    let value = serde_json::to_vec(&all).unwrap_or_default();
    match found {
        Some(record) => registry.replace(&key, &value, record.revision).await.map(|_| ())?,
        None => registry.create(&key, &value).await.map(|_| ())?,
    }
    Ok(())
}

/// Returns what humans set aside of a workspace's stream.
///
/// # Errors
/// NATS refuses.
pub async fn all_set_aside(registry: &Registry, workspace: &str) -> Result<Vec<SetAside>, NodeError> {
    Ok(read_aside(registry.get(&aside_key(workspace)).await?.as_ref()))
}

fn read_aside(record: Option<&Record>) -> Vec<SetAside> {
    record.and_then(crate::parse).unwrap_or_default()
}

/// Removes a workspace: the nodes serve it no longer. Its log stays in NATS with its keys and tokens, and
/// [`create_workspace`] brings it back, unless `log` is removed with it.
///
/// # Errors
/// There is no such workspace, or NATS refuses; repeat it then.
pub async fn remove_workspace(nats: &Nats, registry: &Registry, workspace: &str, log: bool) -> Result<(), NodeError> {
    let key = workspace_key(workspace);
    match registry.get(&key).await? {
        Some(record) => registry.delete(&key, record.revision).await?,
        None if log && nats.streams().await?.iter().any(|known| known == workspace) => {}
        None => return Err(NodeError::NoWorkspace(workspace.to_owned())),
    }
    if log {
        nats.remove_stream(workspace).await?;
        let files = registry.list(&copies::key(workspace, "")).await?;
        let others = [lease_key(workspace), archive_key(workspace), config_key(workspace), aside_key(workspace)];
        for key in files.into_iter().map(|record| record.key).chain(others) {
            if let Some(record) = registry.get(&key).await? {
                registry.delete(&key, record.revision).await?;
            }
        }
    }
    Ok(())
}

/// The settings of a node's workspaces.
pub(crate) struct NodeSettings {
    pub(super) own: WorkspaceSettings,
    pub(super) mounts: Vec<Mount>,
    pub(super) pages: Pages,
    pub(super) configs: ConfigReader,
}

impl NodeSettings {
    /// Returns the settings of a workspace: its own configuration's, or the node's. What concerns the machine is the node's.
    pub(super) fn of(&self, hosts: Vec<String>, config: &WorkspaceConfig) -> Result<WorkspaceSettings, String> {
        let node = WorkspaceSettings { hosts, ..self.own.clone() };
        let Some(text) = &config.text else { return Ok(node) };
        Ok(WorkspaceSettings {
            hosts: node.hosts,
            path: node.path,
            console: node.console,
            auth_failures_max: node.auth_failures_max,
            renew_operator_token: node.renew_operator_token,
            notify: node.notify,
            oidc: node.oidc,
            clocks: node.clocks,
            ..self.configs.read(text)?.settings
        })
    }
}
