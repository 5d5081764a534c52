//! `lastword doctor --cluster`: what is wrong with NATS servers, nodes and workspaces.

use lastword_cluster::{Monitored, NodeError, Status, Unmonitored, monitored, status};
use serde_json::json;

use super::super::Context;
use super::NatsArgs;
use super::connection::{NatsConnection, monitors};
use super::workspaces::table;
use crate::failure::Failure;
use crate::out::escape_line;

/// The copies of a log that survive the loss of one server.
const COPIES_MIN: usize = 3;
/// The most by which the clocks of NATS and of this machine should differ, in ms.
const CLOCK_DIFFERENCE_MAX_MS: u64 = 2_000;

/// The warning of a cluster without a key.
const NOT_SEALED: &str = "! the cluster has no key: anyone who can read NATS or a backup of it gets its tokens; start the nodes with --cluster-key";

/// Checks NATS servers, nodes and workspaces (`lastword doctor --cluster`).
pub(crate) async fn check(urls: &[String], args: &NatsArgs, cx: &Context) -> Result<(), Failure> {
    let NatsConnection { nats, registry } = NatsConnection::open(urls, args).await?;
    let mut found = Findings::default();
    for monitor in monitors(urls, args) {
        found.server(monitored(&monitor).await);
    }
    found.cluster(status(&nats, &registry).await?);
    let sealed = registry.is_sealed().await.map_err(NodeError::from)?;
    if sealed == Some(false) {
        found.lines.push(NOT_SEALED.to_owned());
    }
    let Findings { faults, lines, servers, status } = found;
    cx.out.show(&json!({ "servers": servers, "cluster": status, "sealed": sealed, "faults": faults }), |_, _| {
        lines.iter().cloned().chain(faults.iter().map(|fault| format!("✗ {fault}"))).collect::<Vec<_>>().join("\n")
    })?;
    if faults.is_empty() {
        return Ok(());
    }
    Err(Failure::refused(match faults.len() {
        1 => "1 fault".to_owned(),
        n => format!("{n} faults"),
    })
    .hint("see ✗ above; docs/cluster.md shows a configuration"))
}

/// What a check found.
#[derive(Default)]
struct Findings {
    /// What needs a human, as sentences.
    faults: Vec<String>,
    /// A line for each server, node and workspace.
    lines: Vec<String>,
    servers: Vec<Monitored>,
    status: Option<Status>,
}

impl Findings {
    fn server(&mut self, found: Result<Monitored, Unmonitored>) {
        let server = match found {
            Ok(server) => server,
            Err(error) => {
                self.faults.push(escape_line(&error.to_string()));
                return;
            }
        };
        let (name, difference) = (escape_line(&server.name), server.clock_difference_ms);
        let version = escape_line(&server.version);
        let sync = if server.sync_always { "always" } else { "at intervals" };
        self.lines.push(format!("NATS {name}  version {version}  sync {sync}  clock {difference:+} ms"));
        if !server.sync_always {
            self.faults.push(not_synced(&server));
        }
        if difference.unsigned_abs() > CLOCK_DIFFERENCE_MAX_MS {
            self.faults.push(format!("the clock of {name} differs by {difference} ms"));
        }
        if self.servers.iter().any(|known| known.name == server.name) {
            self.faults.push(format!("{name} answers twice: name each server's monitoring with --nats-monitor"));
        }
        if self.servers.iter().any(|known| known.version != server.version) {
            self.faults.push(format!("the NATS servers have different versions: {name} has {version}"));
        }
        self.servers.push(server);
    }

    fn cluster(&mut self, status: Status) {
        self.lines.push(table(&status));
        let alive = || status.nodes.iter().filter(|node| node.alive);
        if alive().next().is_none() {
            self.faults.push("no node is heard of: start them with `lastword serve --cluster`".to_owned());
        }
        self.faults.extend(status.nodes.iter().filter(|node| !node.alive).map(|node| {
            format!("the node {} isn't heard of: start it, or wait until its record expires", escape_line(&node.node))
        }));
        for node in alive() {
            let (name, url) = (escape_line(&node.node), escape_line(&node.url));
            if !node.unreached_by.is_empty() {
                let by = escape_line(&node.unreached_by.join(", "));
                self.faults.push(format!("the node {name} isn't reached at {url} by {by}: see its --advertise"));
            }
            if !node.unfit.is_empty() {
                let unfit = escape_line(&node.unfit.join(", "));
                self.faults.push(format!("the node {name} can't lead {unfit}: its log says why"));
            }
        }
        if let Some(other) = alive().find(|node| alive().any(|one| one.version != node.version)) {
            let version = escape_line(&other.version);
            self.faults.push(format!("the nodes have different versions: {} has {version}", escape_line(&other.node)));
        }
        self.faults.extend(status.lagging.iter().map(|found| escape_line(&found.to_string())));
        for workspace in &status.workspaces {
            let name = escape_line(&workspace.workspace);
            if workspace.leader.is_none() && !workspace.rests {
                self.faults.push(format!("{name} has no leader: see the nodes' logs"));
            }
            let (wanted, current) = (workspace.copies_wanted, workspace.copies_current);
            if wanted < COPIES_MIN {
                self.faults
                    .push(format!("the log of {name} is stored on {wanted} NATS server: `nats stream edit` it to 3"));
            } else if current < wanted {
                self.faults
                    .push(format!("{current} of the {wanted} NATS servers with the log of {name} are up to date"));
            }
            if let Some(most) = workspace.bytes_max
                && workspace.bytes >= most / 10 * 9
            {
                let bytes = workspace.bytes;
                self.faults.push(format!(
                    "the stream of {name} has {bytes} of at most {most} bytes, and takes no more then: `nats stream edit \
                     LASTWORD_{name} --max-bytes=-1`"
                ));
            }
        }
        self.status = Some(status);
    }
}

/// Words that a server may lose what it acknowledged.
pub(super) fn not_synced(server: &Monitored) -> String {
    format!(
        "{} acknowledges before the disk has it: set `sync_interval: always` in its jetstream block",
        escape_line(&server.name)
    )
}
