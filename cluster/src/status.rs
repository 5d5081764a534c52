//! The cluster as its registry and streams show it, for people.

use lastword_store::{Nats, Registry};
use serde::Serialize;

use crate::members::{LeaseRecord, NodeInfo, RENEW_EVERY, lease_key, node_key, workspace_key};
use crate::{NodeError, parse};

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeStatus {
    /// Its name.
    pub node: String,
    /// Its address for the other nodes.
    pub url: String,
    /// The version of the program.
    pub version: String,
    /// Whether it has renewed its record just now.
    pub alive: bool,
    /// The nodes that don't reach it at its address.
    pub unreached_by: Vec<String>,
    /// The workspaces that it can't lead now.
    pub unfit: Vec<String>,
}

/// A workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorkspaceStatus {
    /// Its name.
    pub workspace: String,
    /// The node that has its lease; `None` while nobody leads it.
    pub leader: Option<String>,
    /// The number of that lease.
    pub epoch: u64,
    /// The number of NATS servers that should store its log.
    pub copies_wanted: usize,
    /// The number of those that have all of it.
    pub copies_current: usize,
}

/// The nodes and workspaces of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The nodes that have a record.
    pub nodes: Vec<NodeStatus>,
    /// The workspaces that are served.
    pub workspaces: Vec<WorkspaceStatus>,
}

/// Reads the status of a cluster; takes somewhat more than the time between two renewals.
///
/// # Errors
/// NATS can't be used.
pub async fn status(nats: &Nats, registry: &Registry) -> Result<Status, NodeError> {
    let prefix = node_key("");
    let before = registry.list(&prefix).await?;
    tokio::time::sleep(RENEW_EVERY * 3 / 2).await;
    let (mut nodes, mut deaf) = (Vec::<NodeStatus>::new(), Vec::new());
    for record in registry.list(&prefix).await? {
        let Some(info) = parse::<NodeInfo>(&record) else { continue };
        let earlier = before.iter().find(|earlier| earlier.key == record.key);
        nodes.push(NodeStatus {
            node: record.key.trim_start_matches(&prefix).to_owned(),
            url: info.url,
            version: info.version,
            alive: earlier.is_none_or(|earlier| earlier.revision != record.revision),
            unreached_by: Vec::new(),
            unfit: info.unfit,
        });
        deaf.push(info.unreached);
    }
    for (n, unreached) in deaf.iter().enumerate().filter(|(n, _)| nodes[*n].alive).collect::<Vec<_>>() {
        let by = nodes[n].node.clone();
        nodes
            .iter_mut()
            .filter(|node| unreached.contains(&node.node))
            .for_each(|node| node.unreached_by.push(by.clone()));
    }
    let mut workspaces = Vec::new();
    for workspace in registry.list(&workspace_key("")).await?.into_iter().map(|record| record.key) {
        let workspace = workspace.trim_start_matches(&workspace_key("")).to_owned();
        let found = registry.get(&lease_key(&workspace)).await?;
        let lease = found.as_ref().and_then(parse::<LeaseRecord>).filter(|lease| !lease.released);
        let alive = |node: &String| nodes.iter().any(|status| status.node == *node && status.alive);
        let copies = nats.copies(&workspace).await?;
        workspaces.push(WorkspaceStatus {
            workspace,
            leader: lease.map(|lease| lease.node).filter(alive),
            epoch: found.map_or(0, |record| record.revision),
            copies_wanted: copies.wanted,
            copies_current: copies.current,
        });
    }
    Ok(Status { nodes, workspaces })
}
