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

#[cfg(feature = "cluster")]
pub(crate) use self::with_clusters::{check, run, serve};

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
    /// Serve although NATS doesn't have workspaces that this node remembers; their logs stay in folders aside.
    #[arg(long, requires = "servers", help_heading = "Cluster")]
    pub(crate) accept_missing: bool,
    /// Serve although the NATS servers may lose what they acknowledged in a power cut, or don't say.
    #[arg(long, requires = "servers", help_heading = "Cluster")]
    pub(crate) not_durable: bool,
}

#[cfg(feature = "cluster")]
mod with_clusters {
    use std::fs;
    use std::path::Path;
    use std::time::Duration;

    use lastword_cluster::{
        ClusterConfig, ConfigReader, Monitored, Node, NodeError, Status, Unmonitored, add_files, configure_workspace,
        create_workspace, default_monitors, fetch_files, monitored, remove_workspace, set_aside, status,
    };
    use lastword_facts::Seq;
    use lastword_server::Config;
    use lastword_store::{KEY_CHARS_MIN, Nats, NatsOptions, Registry, Sealing, move_in, move_out};
    use serde_json::json;

    use super::super::serve::{EndSignals, of_settings};
    use super::super::{Context, bound, verify};
    use super::{Args, ClusterCommand, NatsArgs, NodeArgs};
    use crate::config::{Environment, Global, Settings};
    use crate::failure::Failure;
    use crate::notify::private;
    use crate::out::escape_line;
    use crate::service;
    use crate::session::confirmed;

    /// The members of a workspace's own configuration.
    const CONFIG_KEYS: [&str; 12] = [
        "profile",
        "limits",
        "observe",
        "enforce",
        "approvers",
        "approval",
        "tier",
        "seats",
        "claim",
        "schedule",
        "archive",
        "checkpoint_every_facts",
    ];
    /// Further attempts to find out whether the NATS servers sync, the pause between two, and how many go by in silence.
    const ATTEMPTS: u32 = 40;
    const PAUSE: Duration = Duration::from_millis(500);
    const TELL_EVERY: u32 = 10;
    /// The pause before a server that gave no answer at the start is asked again.
    const PAUSE_LATE: Duration = Duration::from_secs(2);
    /// The bytes of a message that a human is shown before it is set aside.
    const SHOWN_BYTES: usize = 40;
    /// The copies of a log that survive the loss of one server.
    const COPIES_MIN: usize = 3;
    /// The most by which the clocks of NATS and of this machine should differ, in ms.
    const CLOCK_DIFFERENCE_MAX_MS: u64 = 2_000;

    pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
        let nats = Nats::connect(options(&args.servers, &args.nats)?).await.map_err(NodeError::from)?;
        let named = args.nats.replicas.map(usize::from);
        let registry = Registry::open(&nats, named).await.map_err(NodeError::from)?;
        let replicas = match named {
            Some(replicas) => replicas,
            None => registry.replicas().await.map_err(NodeError::from)?,
        };
        match args.command {
            ClusterCommand::Status => {
                let found = status(&nats, &registry).await?;
                cx.out.show(&found, |found, _| table(found))
            }
            ClusterCommand::Add { workspace } => {
                let new = create_workspace(&nats, &registry, &workspace, replicas).await?;
                cx.out.show(&json!({ "workspace": workspace, "new": new }), |_, _| {
                    if new { format!("added {workspace}") } else { format!("{workspace} is there already") }
                })
            }
            ClusterCommand::Configure { workspace, file, .. } => {
                let text = file.map(|path| read_config(&path)).transpose()?;
                configure_workspace(&registry, &workspace, text.as_deref()).await?;
                let own = text.is_some();
                cx.out.show(&json!({ "workspace": workspace, "own": own }), |_, _| match own {
                    true => format!("{workspace} has a configuration of its own"),
                    false => format!("{workspace} has the nodes' configuration"),
                })
            }
            ClusterCommand::Remove { workspace, with_log, yes } => {
                let loss =
                    if with_log { "Its log, keys and tokens are gone for good" } else { "Its log stays in NATS" };
                if !confirmed(&format!("Remove the workspace {workspace}? {loss}"), yes)? {
                    return Err(Failure::refused("not removed"));
                }
                remove_workspace(&nats, &registry, &workspace, with_log).await?;
                cx.out.show(&json!({ "workspace": workspace, "log": !with_log }), |_, _| {
                    if with_log { format!("removed {workspace} and its log") } else { format!("removed {workspace}") }
                })
            }
            ClusterCommand::SetAside { workspace, message, yes } => {
                put_aside((&nats, &registry), (&workspace, message), yes, cx).await
            }
            ClusterCommand::MoveIn { workspace } => move_log_in((&nats, &registry), &workspace, replicas, cx).await,
            ClusterCommand::MoveOut { workspace, to } => {
                let bar = verify::bar(&cx.out);
                let moved = move_out(&nats, &workspace, &to, &mut |at| bar.set_position(at.0)).await;
                bar.finish_and_clear();
                let moved = moved.map_err(Failure::unavailable)?;
                fetch_files(&registry, &workspace, &to).await?;
                let end = moved.end.at.0;
                cx.out
                    .show(&json!({ "to": to, "end": end }), |_, _| format!("{} has the log up to {end}", to.display()))
            }
        }
    }

    /// Sets a message of a workspace's stream aside, once a human has seen what it is.
    async fn put_aside(
        (nats, registry): (&Nats, &Registry),
        (workspace, message): (&str, u64),
        yes: bool,
        cx: &Context,
    ) -> Result<(), Failure> {
        let found = nats.set_aside(workspace, message).await.map_err(NodeError::from)?;
        let Some((aside, bytes)) = found else {
            return Err(Failure::refused(format!("the stream of {workspace} has no message {message}")));
        };
        let begins = escape_line(&String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_BYTES)]));
        let question = format!(
            "Set aside message {message} of {workspace}, {} bytes that begin with {begins:?}? If a node wrote it, what \
             it says is lost",
            bytes.len()
        );
        if !confirmed(&question, yes)? {
            return Err(Failure::refused("not set aside"));
        }
        set_aside(registry, workspace, aside).await?;
        cx.out.show(&json!({ "workspace": workspace, "message": message }), |_, _| {
            format!("message {message} of {workspace} is set aside")
        })
    }

    /// Copies the log of a data directory into a new workspace.
    async fn move_log_in(
        (nats, registry): (&Nats, &Registry),
        workspace: &str,
        replicas: usize,
        cx: &Context,
    ) -> Result<(), Failure> {
        // Before anything is made in the cluster.
        lastword_store::DataDir::at(&cx.settings.data).open_reader()?;
        nats.create_stream(workspace, replicas).await.map_err(NodeError::from)?;
        let bar = verify::bar(&cx.out);
        let mut show = |at: Seq, of: Seq| {
            bar.set_length(of.0);
            bar.set_position(at.0);
        };
        let moved = move_in(nats, workspace, &cx.settings.data, &mut show).await;
        bar.finish_and_clear();
        let moved = moved.map_err(Failure::unavailable)?;
        add_files(registry, workspace, &cx.settings.data).await?;
        // Last: from here on the nodes serve it.
        create_workspace(nats, registry, workspace, replicas).await?;
        let end = moved.end.at.0;
        cx.out.show(&json!({ "workspace": workspace, "end": end }), |_, _| {
            format!("the workspace {workspace} has the log up to {end}")
        })
    }

    /// Reads the configuration of a workspace, and checks it.
    fn read_config(path: &Path) -> Result<String, Failure> {
        let failed = |error: String| Failure::usage(format!("{}: {error}", path.display()));
        let text = fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        config_of(&text).map_err(failed)?;
        Ok(text)
    }

    /// Returns the configuration that a workspace's text amounts to. It comes from NATS, so it names no programs and files.
    fn config_of(text: &str) -> Result<Config, String> {
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
        if let Some(other) = table.keys().find(|key| !CONFIG_KEYS.contains(&key.as_str())) {
            let all = CONFIG_KEYS.join(", ");
            return Err(format!(
                "{other} is set in the nodes' lastword.toml; a workspace's own configuration has {all}"
            ));
        }
        let path = Path::new("the workspace's configuration");
        let settings = Settings::of_text(path, Some(text.to_owned()), &Global::default(), &Environment::default());
        let settings = settings.map_err(|failure| failure.message)?;
        bound::check(&settings.limits).map_err(|failure| failure.message)?;
        of_settings(&settings, None).map_err(|failure| failure.message)
    }

    fn options(servers: &[String], args: &NatsArgs) -> Result<NatsOptions, Failure> {
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

    fn table(found: &Status) -> String {
        let node = |node: &lastword_cluster::NodeStatus| {
            let alive = if node.alive { "alive" } else { "not heard of" };
            format!("{}  {alive}  {}  {}", escape_line(&node.node), escape_line(&node.url), escape_line(&node.version))
        };
        let workspace = |workspace: &lastword_cluster::WorkspaceStatus| {
            let leader = workspace.leader.as_deref().unwrap_or("nobody");
            let (name, leader) = (escape_line(&workspace.workspace), escape_line(leader));
            let copies = format!("{} of {} copies", workspace.copies_current, workspace.copies_wanted);
            format!("{name}  led by {leader}  epoch {}  {copies}", workspace.epoch)
        };
        let nodes = found.nodes.iter().map(node);
        nodes.chain(found.workspaces.iter().map(workspace)).collect::<Vec<_>>().join("\n")
    }

    fn monitors(servers: &[String], args: &NatsArgs) -> Vec<String> {
        let named = &args.nats_monitor;
        if named.is_empty() { default_monitors(servers) } else { named.clone() }
    }

    /// Checks NATS servers, nodes and workspaces (`lastword doctor --cluster`).
    pub(crate) async fn check(urls: &[String], args: &NatsArgs, cx: &Context) -> Result<(), Failure> {
        let nats = Nats::connect(options(urls, args)?).await.map_err(NodeError::from)?;
        let registry = Registry::open(&nats, args.replicas.map(usize::from)).await.map_err(NodeError::from)?;
        let mut found = Findings::default();
        for monitor in monitors(urls, args) {
            found.server(monitored(&monitor).await);
        }
        found.cluster(status(&nats, &registry).await?);
        let Findings { faults, lines, servers, status } = found;
        cx.out.show(&json!({ "servers": servers, "cluster": status, "faults": faults }), |_, _| {
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
                    self.faults.push(format!("{error}; --nats-monitor names where each server's monitoring is"));
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
                format!(
                    "the node {} isn't heard of: start it, or wait until its record expires",
                    escape_line(&node.node)
                )
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
                self.faults
                    .push(format!("the nodes have different versions: {} has {version}", escape_line(&other.node)));
            }
            for workspace in &status.workspaces {
                let name = escape_line(&workspace.workspace);
                if workspace.leader.is_none() {
                    self.faults.push(format!("{name} has no leader: see the nodes' logs"));
                }
                let (wanted, current) = (workspace.copies_wanted, workspace.copies_current);
                if wanted < COPIES_MIN {
                    self.faults.push(format!(
                        "the log of {name} is stored on {wanted} NATS server: `nats stream edit` it to 3"
                    ));
                } else if current < wanted {
                    self.faults
                        .push(format!("{current} of the {wanted} NATS servers with the log of {name} are up to date"));
                }
            }
            self.status = Some(status);
        }
    }

    fn not_synced(server: &Monitored) -> String {
        format!(
            "{} acknowledges before the disk has it: set `sync_interval: always` in its jetstream block",
            escape_line(&server.name)
        )
    }

    /// Refuses NATS servers that may lose what they acknowledged. They may be starting, as this node is; a minority may be
    /// away, for NATS works without it. Returns the monitoring of those that gave no answer.
    async fn durable(servers: &[String], args: &NatsArgs) -> Result<Vec<String>, Failure> {
        let refused = |fault: String| {
            Failure::unavailable(fault).hint(
                "name the servers' monitoring with --nats-monitor, or accept with --not-durable that a power cut loses \
                 acknowledged messages",
            )
        };
        for attempt in 0.. {
            let (mut silent, mut answered, mut unknown) = (Vec::new(), 0, None);
            for monitor in monitors(servers, args) {
                match monitored(&monitor).await {
                    Ok(server) if server.sync_always => answered += 1,
                    Ok(server) => return Err(refused(not_synced(&server))),
                    Err(error) => {
                        silent.push(monitor);
                        unknown = Some(error);
                    }
                }
            }
            let Some(error) = unknown.filter(|_| answered <= silent.len()) else { return Ok(silent) };
            let fault = format!("whether NATS syncs before it acknowledges isn't known: {error}");
            if attempt == ATTEMPTS {
                return Err(refused(fault));
            }
            if attempt % TELL_EVERY == 0 {
                eprintln!("{fault}; asking again");
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(Vec::new())
    }

    /// Asks the servers that gave no answer at the start, until each of them says whether it syncs. Never returns.
    async fn check_late(mut silent: Vec<String>) {
        while !silent.is_empty() {
            tokio::time::sleep(PAUSE_LATE).await;
            let mut left = Vec::new();
            for monitor in silent {
                match monitored(&monitor).await {
                    Ok(server) if server.sync_always => {}
                    Ok(server) => eprintln!("{}", not_synced(&server)),
                    Err(_) => left.push(monitor),
                }
            }
            silent = left;
        }
        std::future::pending().await
    }

    /// Runs a node until a signal ends it.
    pub(crate) async fn serve(config: Config, node: NodeArgs, insecure: bool, cx: &Context) -> Result<(), Failure> {
        let name = node.node.unwrap_or_else(host_name);
        let cluster = ClusterConfig {
            nats: options(&node.servers, &node.nats)?,
            node: name.clone(),
            advertise: node.advertise,
            insecure,
            accept_missing: node.accept_missing,
            replicas: node.nats.replicas.map(usize::from),
            configs: ConfigReader::new(config_of),
        };
        let mut end = EndSignals::listen()?;
        let starting = async {
            let silent = if node.not_durable { Vec::new() } else { durable(&node.servers, &node.nats).await? };
            Ok::<_, Failure>((Node::start(config, cluster).await?, silent))
        };
        // It waits for NATS, and a signal ends the wait.
        let (node, silent) = tokio::select! {
            started = starting => started?,
            () = end.asked() => return Ok(()),
        };
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
        service::ready(node.url());
        let failed = tokio::select! {
            () = end.asked() => None,
            reason = node.failed() => Some(reason),
            () = check_late(silent) => None,
            // A node without NATS stops serving by itself: the watchdog only checks that it runs.
            () = service::watched(async || ()) => None,
        };
        service::stopping();
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
