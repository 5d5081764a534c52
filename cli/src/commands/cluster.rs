//! `lastword cluster`: shows and checks the nodes that serve workspaces over NATS JetStream, and adds workspaces.

use std::path::PathBuf;

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
    command: Command,
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
    /// Addresses of the NATS servers' monitoring [default: port 8222 of each].
    #[arg(long, value_name = "URLS", value_delimiter = ',', help_heading = "Cluster")]
    pub(crate) nats_monitor: Vec<String>,
    /// NATS servers on which each log is stored: 3, or 1 for a trial.
    #[arg(long, value_name = "N", default_value_t = 3, help_heading = "Cluster")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=5))]
    pub(crate) replicas: u8,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show the nodes, and which of them leads each workspace
    Status,
    /// Check the NATS servers: versions, durability, clocks
    Check,
    /// Add a workspace; the nodes serve it at once
    Add {
        /// Name: 1 to 32 of a-z, 0-9 and -.
        workspace: String,
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
pub(crate) async fn serve(_config: lastword_server::Config, _node: NodeArgs, _cx: &Context) -> Result<(), Failure> {
    Err(Failure::usage(WITHOUT).hint(BUILD))
}

#[cfg(feature = "cluster")]
pub(crate) use self::with_clusters::{run, serve};

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
    /// Serve although the NATS servers may lose what they acknowledged in a power cut, or don't say.
    #[arg(long, requires = "servers", help_heading = "Cluster")]
    pub(crate) not_durable: bool,
}

#[cfg(feature = "cluster")]
mod with_clusters {
    use std::fs;
    use std::path::Path;

    use lastword_proto::Seq;
    use lastword_server::Config;
    use lastword_server::cluster::{
        ClusterConfig, Monitored, Node, NodeError, Status, Unmonitored, add_files, create_workspace, default_monitors,
        fetch_files, monitored, status,
    };
    use lastword_store::{Nats, NatsOptions, Registry, move_in, move_out};
    use serde_json::json;

    use super::super::serve::End;
    use super::super::{Context, verify};
    use super::{Args, Command, NatsArgs, NodeArgs};
    use crate::failure::Failure;
    use crate::out::escape_line;

    /// The most by which the clocks of NATS and of this machine should differ, in ms.
    const CLOCK_DIFFERENCE_MAX_MS: u64 = 2_000;

    pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
        let replicas = usize::from(args.nats.replicas);
        if matches!(args.command, Command::Check) {
            return check(&args.servers, &args.nats, cx).await;
        }
        let nats = Nats::connect(options(&args.servers, &args.nats)?).await.map_err(NodeError::from)?;
        match args.command {
            Command::Check => Ok(()),
            Command::Status => {
                let registry = Registry::open(&nats, replicas).await.map_err(NodeError::from)?;
                let found = status(&nats, &registry).await?;
                cx.out.show(&found, |found, _| table(found))
            }
            Command::Add { workspace } => {
                let registry = Registry::open(&nats, replicas).await.map_err(NodeError::from)?;
                let new = create_workspace(&nats, &registry, &workspace, replicas).await?;
                cx.out.show(&json!({ "workspace": workspace, "new": new }), |_, _| {
                    if new { format!("added {workspace}") } else { format!("{workspace} is there already") }
                })
            }
            Command::MoveIn { workspace } => {
                // Before anything is made in the cluster.
                lastword_store::Store::sqlite(&cx.settings.data).open_reader()?;
                nats.create_stream(&workspace, replicas).await.map_err(NodeError::from)?;
                let bar = verify::bar(&cx.out);
                let mut show = |at: Seq, of: Seq| {
                    bar.set_length(of.0);
                    bar.set_position(at.0);
                };
                let moved = move_in(&nats, &workspace, &cx.settings.data, &mut show).await;
                bar.finish_and_clear();
                let moved = moved.map_err(Failure::unavailable)?;
                let registry = Registry::open(&nats, replicas).await.map_err(NodeError::from)?;
                add_files(&registry, &workspace, &cx.settings.data).await?;
                // Last: from here on the nodes serve it.
                create_workspace(&nats, &registry, &workspace, replicas).await?;
                let end = moved.end.at.0;
                cx.out.show(&json!({ "workspace": workspace, "end": end }), |_, _| {
                    format!("the workspace {workspace} has the log up to {end}")
                })
            }
            Command::MoveOut { workspace, to } => {
                let bar = verify::bar(&cx.out);
                let moved = move_out(&nats, &workspace, &to, &mut |at| bar.set_position(at.0)).await;
                bar.finish_and_clear();
                let moved = moved.map_err(Failure::unavailable)?;
                let registry = Registry::open(&nats, replicas).await.map_err(NodeError::from)?;
                fetch_files(&registry, &workspace, &to).await?;
                let end = moved.end.at.0;
                cx.out
                    .show(&json!({ "to": to, "end": end }), |_, _| format!("{} has the log up to {end}", to.display()))
            }
        }
    }

    fn options(servers: &[String], args: &NatsArgs) -> Result<NatsOptions, Failure> {
        if servers.is_empty() {
            return Err(Failure::usage("no NATS server is named")
                .hint("for example --cluster nats://127.0.0.1:4222, or the same in LASTWORD_CLUSTER"));
        }
        let (credentials, ca) = (args.nats_creds.clone(), args.nats_ca.clone());
        Ok(NatsOptions { credentials, ca, ..NatsOptions::new(servers.to_vec()) })
    }

    fn table(found: &Status) -> String {
        let node = |node: &lastword_server::cluster::NodeStatus| {
            let alive = if node.alive { "alive" } else { "not heard of" };
            format!("{}  {alive}  {}  {}", escape_line(&node.node), escape_line(&node.url), escape_line(&node.version))
        };
        let workspace = |workspace: &lastword_server::cluster::WorkspaceStatus| {
            let leader = workspace.leader.as_deref().unwrap_or("nobody");
            format!("{}  led by {}  epoch {}", escape_line(&workspace.workspace), escape_line(leader), workspace.epoch)
        };
        let nodes = found.nodes.iter().map(node);
        nodes.chain(found.workspaces.iter().map(workspace)).collect::<Vec<_>>().join("\n")
    }

    async fn monitors(servers: &[String], args: &NatsArgs) -> Vec<Result<Monitored, Unmonitored>> {
        let named = &args.nats_monitor;
        let all = if named.is_empty() { default_monitors(servers) } else { named.clone() };
        let mut found = Vec::new();
        for monitor in all {
            found.push(monitored(&monitor).await);
        }
        found
    }

    async fn check(urls: &[String], args: &NatsArgs, cx: &Context) -> Result<(), Failure> {
        let nats = Nats::connect(options(urls, args)?).await.map_err(NodeError::from)?;
        drop(nats);
        let (mut faults, mut lines, mut servers) = (Vec::new(), Vec::new(), Vec::new());
        for found in monitors(urls, args).await {
            match found {
                Err(error) => faults.push(format!("{error}; --nats-monitor names where each server's monitoring is")),
                Ok(server) => {
                    let difference = server.clock_difference_ms;
                    lines.push(format!(
                        "{}  version {}  sync {}  clock {difference:+} ms",
                        escape_line(&server.name),
                        escape_line(&server.version),
                        if server.sync_always { "always" } else { "at intervals" },
                    ));
                    if !server.sync_always {
                        faults.push(not_synced(&server));
                    }
                    if difference.unsigned_abs() > CLOCK_DIFFERENCE_MAX_MS {
                        faults.push(format!("the clock of {} differs by {difference} ms", escape_line(&server.name)));
                    }
                    if servers.iter().any(|known: &Monitored| known.name == server.name) {
                        let name = escape_line(&server.name);
                        faults.push(format!("{name} answers twice: name each server's monitoring with --nats-monitor"));
                    }
                    servers.push(server);
                }
            }
        }
        cx.out.show(&json!({ "servers": servers, "faults": faults }), |_, _| {
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

    fn not_synced(server: &Monitored) -> String {
        format!(
            "{} acknowledges before the disk has it: set `sync_interval: always` in its jetstream block",
            escape_line(&server.name)
        )
    }

    /// Refuses NATS servers that may lose what they acknowledged.
    async fn durable(servers: &[String], args: &NatsArgs) -> Result<(), Failure> {
        for found in monitors(servers, args).await {
            let fault = match found {
                Ok(server) if server.sync_always => continue,
                Ok(server) => not_synced(&server),
                Err(error) => format!("whether NATS syncs before it acknowledges isn't known: {error}"),
            };
            return Err(Failure::unavailable(fault).hint(
                "name the servers' monitoring with --nats-monitor, or accept with --not-durable that a power cut loses \
                 acknowledged messages",
            ));
        }
        Ok(())
    }

    /// Runs a node until a signal ends it.
    pub(crate) async fn serve(config: Config, node: NodeArgs, cx: &Context) -> Result<(), Failure> {
        if !node.not_durable {
            durable(&node.servers, &node.nats).await?;
        }
        let name = node.node.unwrap_or_else(host_name);
        let cluster = ClusterConfig {
            nats: options(&node.servers, &node.nats)?,
            node: name.clone(),
            advertise: node.advertise,
            replicas: usize::from(node.nats.replicas),
        };
        let mut end = End::listen()?;
        let node = Node::start(config, cluster).await?;
        tokio::select! {
            () = node.ready() => {}
            () = end.asked() => {
                node.shutdown().await;
                return Ok(());
            }
            reason = node.failed() => return Err(Failure::unavailable(format!("the node stopped: {reason}"))),
        }
        let token = node.operator_token_file();
        let mut listening = json!({ "listening": node.url(), "node": name, "operator_token_file": token });
        if let Some(fingerprint) = node.fingerprint() {
            listening["fingerprint"] = json!(fingerprint);
        }
        cx.out.show(&listening, |_, _| {
            format!(
                "node {name} listening on {}\noperator token of the workspace main in {}",
                node.url(),
                token.display()
            )
        })?;
        let failed = tokio::select! {
            () = end.asked() => None,
            reason = node.failed() => Some(reason),
        };
        node.shutdown().await;
        failed.map_or(Ok(()), |reason| Err(Failure::unavailable(format!("the node stopped: {reason}"))))
    }

    /// Returns the host's name, as far as it can be a node's.
    fn host_name() -> String {
        let name = fs::read_to_string(Path::new("/etc/hostname")).unwrap_or_default();
        let name = name.trim().split('.').next().unwrap_or_default().to_ascii_lowercase();
        let name: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(32).collect();
        if name.is_empty() { "node".to_owned() } else { name }
    }
}
