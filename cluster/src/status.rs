//! The cluster as its registry and streams show it, for people.

use std::collections::BTreeMap;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use lastword_store::{Lagging, Nats, Record, Registry};
use serde::Serialize;

use crate::members::{LeaseRecord, NodeInfo, RENEW_EVERY, lease_key, node_key, workspace_key};
use crate::{NodeError, parse};

/// The streams about which NATS is asked at a time.
const AT_ONCE: usize = 32;

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
    /// Whether it is at rest: nobody leads it until somebody calls or something is due.
    pub rests: bool,
    /// The number of that lease.
    pub epoch: u64,
    /// The number of NATS servers that should store its log.
    pub copies_wanted: usize,
    /// The number of those that have all of it.
    pub copies_current: usize,
    /// The bytes of its stream.
    pub bytes: u64,
    /// The most that the stream may have; `None` without a limit.
    pub bytes_max: Option<u64>,
}

/// The nodes and workspaces of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The nodes that have a record.
    pub nodes: Vec<NodeStatus>,
    /// The workspaces that are served.
    pub workspaces: Vec<WorkspaceStatus>,
    /// The NATS servers that don't store what they should.
    pub lagging: Vec<Lagging>,
}

/// Reads the status of a cluster; takes somewhat more than the time between two renewals.
///
/// # Errors
/// NATS can't be used.
pub async fn status(nats: &Nats, registry: &Registry) -> Result<Status, NodeError> {
    let prefix = node_key("");
    let (before, mut lagging) = (registry.list(&prefix).await?, registry.lagging().await?);
    tokio::time::sleep(RENEW_EVERY * 3 / 2).await;
    let still = registry.lagging().await?;
    lagging.retain(|found| still.contains(found));
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
    let leases = registry.list(&lease_key("")).await?.into_iter().map(|record| (record.key.clone(), record));
    let leases: BTreeMap<String, Record> = leases.collect();
    let alive = |node: &String| nodes.iter().any(|status| status.node == *node && status.alive);
    let of = async |workspace: String| {
        let copies = nats.copies(&workspace).await?;
        let found = leases.get(&lease_key(&workspace));
        let lease = found.and_then(parse::<LeaseRecord>);
        let rests = lease.as_ref().is_some_and(|lease| lease.rest.is_some());
        let leader = lease.filter(|lease| !lease.released).map(|lease| lease.node).filter(alive);
        Ok::<_, NodeError>(WorkspaceStatus {
            workspace,
            leader,
            rests,
            epoch: found.map_or(0, |record| record.revision),
            copies_wanted: copies.wanted,
            copies_current: copies.current,
            bytes: copies.bytes,
            bytes_max: copies.bytes_max,
        })
    };
    let names = registry.list(&workspace_key("")).await?.into_iter();
    let names = names.map(|record| record.key.trim_start_matches(&workspace_key("")).to_owned());
    let workspaces = stream::iter(names).map(of).buffered(AT_ONCE).try_collect().await?;
    Ok(Status { nodes, workspaces, lagging })
}
