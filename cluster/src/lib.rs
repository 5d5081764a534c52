//! Several nodes that serve several workspaces over NATS JetStream.
//!
//! ```text
//!            any node                        the leader of the workspace
//!  call ───► front ── Host, path ──► local?  routes ──► broker ──► stream of the workspace ──► every node's mirror
//!                               └──► remote  forward, one hop
//! ```
//!
//! - Each workspace has one leader at a time: the node that has its lease. The lease is for liveness alone; what keeps two
//!   leaders apart is the log, which refuses the appends of an earlier epoch.
//! - A node renews one record for all that it leads. Without a renewal for 2 s it serves nothing, by its own monotonic
//!   clock; the others take over after 3 s, by theirs.
//! - Every node follows the log of every workspace that is awake, so that taking over is a lease and a few messages.
//! - An idle workspace rests: no node leads or follows it, and each node has its name and its lease in memory. A
//!   call at any node wakes it, and so does the time at which it has something due.

mod archives;
mod copies;
mod cut_off;
mod detour;
mod durability;
mod forward;
mod front;
mod handover;
mod heartbeat;
mod holder;
mod members;
mod metrics;
mod open;
mod placement;
mod reach;
mod rest;
mod starter;
mod starting;
mod status;
mod stores;
mod waking;
mod watching;
mod workspaces;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use lastword_broker::clock::{uptime, wall};
use lastword_broker::disk::space_of;
use lastword_broker::identity::FILE_OPERATOR_TOKEN;
use lastword_facts::fact::Credential;
use lastword_server::edges::http::serve;
use lastword_server::{BasePath, Certificate, Config, DRAIN_MAX, TlsError, Transport, bind, ended, local_url};
use lastword_store::{Lagging, Nats, NatsError, NatsOptions, Record, Registry, RegistryError, Sealing};
use lastword_wire::DiskSpace;
use serde::Deserialize;
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use self::copies::{add_files, fetch_files};
pub use self::durability::{Monitored, Unmonitored, default_monitors, monitored};
pub use self::members::{LeaseRecord, NodeInfo};
pub use self::rest::{Rest, Rested};
pub use self::status::{NodeStatus, Status, WorkspaceStatus, status};
pub use self::workspaces::{
    ConfigReader, all_set_aside, configure_workspace, create_workspace, remove_workspace, set_aside,
};

use self::forward::Forwarder;
use self::heartbeat::Heartbeat;
use self::members::{ClusterView, Leader, node_key};
use self::open::{InProgress, Open};
use self::reach::{Listening, ReachTable};
use self::starter::{Standing, Starter};
use self::starting::{Joined, claim, join, make_dir};
use self::waking::Waking;
use self::watching::{forget_dead, wake_due, watch_registry, watch_time};
use self::workspaces::NodeSettings;

/// When a caller should come back whose call can't be carried out now, in ms.
const RETRY_MS: u64 = 1_000;

/// The workspace of calls that name none.
pub const WORKSPACE_MAIN: &str = "main";
/// How often a call that was passed on looks whether its leader still lives.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The time that clients of a stopping node have to leave its connections.
const LEAVING_MIN: Duration = Duration::from_secs(1);
/// The time in which a stopping node hands its workspaces over.
const HAND_OVER_MAX: Duration = Duration::from_secs(10);

/// The configuration of a node besides that of its workspaces.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// How to reach NATS.
    pub nats: NatsOptions,
    /// The name of this node: 1 to 32 of a-z, 0-9 and `-`. No two nodes have the same.
    pub node: String,
    /// Its address for the other nodes; `None` for the one that it listens on.
    pub advertise: Option<String>,
    /// Whether that address may show tokens to whoever reads the network.
    pub insecure: bool,
    /// Whether the node serves although it has logs of workspaces that NATS doesn't have: it moves them aside.
    pub accept_missing: bool,
    /// The servers on which each stream is stored: 3, or 1 for a trial. `None`: as many as the registry has, and 3 if there
    /// is none.
    pub replicas: Option<usize>,
    /// The time without a use after which a workspace rests; `None` for never.
    pub rest_after: Option<Duration>,
    /// How to read the configuration of a workspace.
    pub configs: ConfigReader,
}

/// Why a node can't start, or has to stop.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// NATS can't be used.
    #[error(transparent)]
    Nats(#[from] NatsError),
    /// The registry can't be read or written.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// Another program uses the node's name.
    #[error("the node {0} is running elsewhere: give each node a name of its own with --node")]
    Name(String),
    /// The node can't be reached at its address for the other nodes, or should not.
    #[error("the address {url} for the other nodes: {reason}")]
    Advertise {
        /// The address.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// NATS doesn't have what this node remembers.
    #[error(
        "NATS doesn't have {workspaces}, of which {place} has the log: restore NATS's data, or name the right servers. To \
         go on without them, start once with --accept-missing; each log stays there in a folder aside"
    )]
    Missing {
        /// The workspaces.
        workspaces: String,
        /// The node's directory.
        place: PathBuf,
    },
    /// There is no such workspace.
    #[error("there is no workspace {0}: `lastword cluster status` lists them")]
    NoWorkspace(String),
    /// The address can't be listened on.
    #[error("can't listen on {address}: {source}")]
    Listen {
        /// The address of the configuration.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The certificate or its key is unusable.
    #[error("TLS: {0}")]
    Tls(#[from] TlsError),
    /// The data directory can't be used, or no thread can be started.
    #[error("{place}: {source}")]
    File {
        /// The file or directory.
        place: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// What the tasks of a node share.
pub(crate) struct Shared {
    name: String,
    session: String,
    url: String,
    transport: Transport,
    hosts: Vec<String>,
    path: BasePath,
    nats: Nats,
    registry: Registry,
    /// When the program started, by the machine's uptime.
    started: Duration,
    heartbeat: Heartbeat,
    secret: String,
    /// The servers on which each log is stored.
    replicas: usize,
    /// The hash of the token that sees the names in the metrics.
    metrics_token: Credential,
    forwarder: Forwarder,
    /// Grows each time that the node may no longer serve.
    lapses: watch::Sender<u64>,
    /// Whether the node is about to end, so that clients should open no more connections to it.
    ending: watch::Sender<bool>,
    view: Mutex<ClusterView>,
    /// The workspaces that this node serves.
    served: RwLock<BTreeMap<String, Arc<Open>>>,
    /// Those that it follows or serves.
    standings: Mutex<BTreeMap<String, Standing>>,
    rest_after: Option<Duration>,
    waking: Waking,
    /// How the other nodes are reached at their addresses.
    reached: watch::Sender<ReachTable>,
    /// The NATS servers that don't store what they should.
    lagging: Mutex<Vec<Lagging>>,
    /// What seals calls that go through NATS.
    calls_sealing: Option<Sealing>,
    /// Grows when this node should renew its record at once.
    renewals: watch::Sender<u64>,
    /// The room on the disk of the node's directory.
    space: Mutex<DiskSpace>,
    dir: PathBuf,
    /// The newest write of the registry when the node started.
    started_at: u64,
    /// Whether a mirror of another stream than its workspace's is moved aside.
    accept_missing: bool,
    /// Grows with each change of the registry, and when a workspace opens or closes here.
    changed: watch::Sender<u64>,
    /// Grows whenever another node may have to lead a workspace: those who follow or lead one look then.
    looks: watch::Sender<u64>,
}

fn parse<T: for<'a> Deserialize<'a>>(record: &Record) -> Option<T> {
    record.value.as_deref().and_then(|value| serde_json::from_slice(value).ok())
}

impl Shared {
    /// Creates what the parts of a node share, from what it found in the cluster.
    fn new(joined: Joined, cluster: &ClusterConfig, config: &Config, url: String) -> Self {
        let calls_sealing = Sealing::of(&joined.secret);
        let shared = Self {
            name: cluster.node.clone(),
            session: joined.session,
            url,
            transport: Transport::of(config.tls.as_ref()),
            hosts: config.settings.hosts.clone(),
            path: config.settings.path.clone(),
            nats: joined.nats,
            registry: joined.registry,
            started: uptime(),
            heartbeat: Heartbeat::new(),
            secret: joined.secret,
            replicas: joined.replicas,
            metrics_token: joined.metrics_token,
            forwarder: Forwarder::default(),
            lapses: watch::Sender::new(0),
            ending: watch::Sender::new(false),
            view: Mutex::new(ClusterView::new(&cluster.node)),
            served: RwLock::default(),
            standings: Mutex::default(),
            rest_after: cluster.rest_after,
            waking: Waking::default(),
            reached: watch::Sender::new(ReachTable::new()),
            lagging: Mutex::default(),
            calls_sealing,
            renewals: watch::Sender::new(0),
            space: Mutex::new(DiskSpace::Enough),
            dir: config.data_dir.clone(),
            started_at: joined.started_at,
            accept_missing: cluster.accept_missing,
            changed: watch::Sender::new(0),
            looks: watch::Sender::new(0),
        };
        // Before the first call: it must not be told that its workspace doesn't exist.
        for record in &joined.records {
            shared.view(|view, now| view.apply(record, now, wall()));
        }
        shared
    }

    fn view<T>(&self, look: impl FnOnce(&mut ClusterView, Duration) -> T) -> T {
        let now = uptime().saturating_sub(self.started);
        look(&mut self.view.lock().unwrap_or_else(PoisonError::into_inner), now)
    }

    /// Returns the revision of the lease that this node should take.
    fn wants(&self, workspace: &str) -> Option<u64> {
        if !self.heartbeat.is_valid() {
            return None;
        }
        // A node that has only just been heard again declares nobody dead.
        let heard = self.heartbeat.healthy_for() >= members::SERVE_MAX;
        self.view(|view, now| view.wants(workspace, now, heard && view.hears(now)))
    }

    /// Returns whether this node hears of the others, and they of it.
    fn hears(&self) -> bool {
        self.heartbeat.is_valid() && self.view(|view, now| view.hears(now))
    }

    fn lost(&self, workspace: &str, epoch: u64) -> bool {
        self.view(|view, _| view.lost(workspace, epoch))
    }

    fn hand_over(&self, workspace: &str) -> Option<String> {
        self.view(|view, now| {
            view.look(now);
            view.hand_over(workspace, now)
        })
    }

    fn successor(&self, workspace: &str) -> Option<String> {
        self.view(|view, now| view.successor(workspace, now))
    }

    pub(crate) fn leader(&self, workspace: &str) -> Option<Leader> {
        self.view(|view, now| view.leader(workspace, now))
    }

    fn open(&self, workspace: &str, open: Option<Arc<Open>>) {
        let mut served = self.served.write().unwrap_or_else(PoisonError::into_inner);
        match open {
            Some(open) => served.insert(workspace.to_owned(), open),
            None => served.remove(workspace),
        };
        drop(served);
        self.changed.send_modify(|changed| *changed += 1);
    }

    /// Returns whether this node still leads what it opened.
    pub(crate) fn holds(&self, open: &Open) -> bool {
        self.heartbeat.stretch() == Some(open.stretch)
    }

    /// Renews this node's record at once: it says something new, or a caller waits to know whether NATS hears it.
    pub(crate) fn renew(&self) {
        self.renewals.send_modify(|renewals| *renewals += 1);
    }

    /// Returns a place for a call in a workspace that this node serves.
    pub(crate) fn enter(&self, workspace: &str) -> Option<InProgress> {
        // Under the lock: who closes the workspace waits for each call that entered before.
        let served = self.served.read().unwrap_or_else(PoisonError::into_inner);
        served.get(workspace).filter(|open| self.holds(open)).map(InProgress::enter)
    }

    /// Returns the epoch in which this node leads a workspace; 0 while it doesn't.
    pub(crate) fn epoch(&self, workspace: &str) -> u64 {
        self.served.read().unwrap_or_else(PoisonError::into_inner).get(workspace).map_or(0, |open| open.epoch)
    }

    fn has(&self, workspace: &str) -> bool {
        self.view(|view, _| view.has(workspace))
    }

    /// Returns whether a workspace needs a node that leads it, and others that follow.
    fn is_awake(&self, workspace: &str) -> bool {
        self.view(|view, _| view.is_awake(workspace))
    }

    /// Forgets how a workspace stands, if no node has to follow it any more; returns whether that is so.
    fn leave(&self, workspace: &str) -> bool {
        // Held over both: who wakes it meanwhile sees that nobody follows it here, or this sees that it is awake.
        let mut standings = self.standings.lock().unwrap_or_else(PoisonError::into_inner);
        let leaves = !self.is_awake(workspace);
        if leaves {
            standings.remove(workspace);
        }
        leaves
    }

    fn note(&self, workspace: &str, change: impl FnOnce(&mut Standing)) {
        let mut standings = self.standings.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(standing) = standings.get_mut(workspace) {
            change(standing);
        }
    }

    /// Returns the workspaces that this node can't lead now.
    fn unfit(&self) -> Vec<String> {
        let low = {
            let mut space = self.space.lock().unwrap_or_else(PoisonError::into_inner);
            *space = space_of(&self.dir, *space);
            *space != DiskSpace::Enough
        };
        let standings = self.standings.lock().unwrap_or_else(PoisonError::into_inner);
        let unfit = |standing: &Standing| low || standing.is_unfit();
        standings.iter().filter(|(_, standing)| unfit(standing)).map(|(name, _)| name.clone()).collect()
    }

    /// Returns the address of a workspace for programs and people on this machine.
    fn url_of(&self, workspace: &str) -> String {
        if workspace == WORKSPACE_MAIN {
            return self.url.clone();
        }
        let port = self.url.rsplit(':').next().unwrap_or_default();
        format!("{}://{workspace}.localhost:{port}", self.transport.scheme())
    }

    /// Returns the host names of a workspace.
    fn hosts_of(&self, workspace: &str) -> Vec<String> {
        let own = self.hosts.iter().map(|host| format!("{workspace}.{host}"));
        if workspace == WORKSPACE_MAIN { self.hosts.iter().cloned().chain(own).collect() } else { own.collect() }
    }
}

/// A running node. [`Node::shutdown`] hands its workspaces over and ends it.
pub struct Node {
    shared: Arc<Shared>,
    dir: PathBuf,
    addr: SocketAddr,
    certificate: Option<Arc<Certificate>>,
    stop: watch::Sender<bool>,
    /// The listener, and what has to end before it.
    listening: JoinSet<io::Result<()>>,
    followers: watch::Sender<bool>,
    holders: Arc<Mutex<Vec<std::thread::JoinHandle<()>>>>,
    failed: watch::Receiver<Option<String>>,
}

impl Node {
    /// Joins the cluster, follows its workspaces and listens.
    ///
    /// # Errors
    /// See [`NodeError`].
    pub async fn start(config: Config, cluster: ClusterConfig) -> Result<Self, NodeError> {
        let dir = config.data_dir.clone();
        make_dir(&dir)?;
        let certificate = config.tls.as_ref().map(|tls| Certificate::open(tls, &dir, &config.settings.hosts));
        let certificate = certificate.transpose()?.map(Arc::new);
        let transport = Transport::of(config.tls.as_ref());
        let (listener, addr) =
            bind(config.listen).map_err(|(address, source)| NodeError::Listen { address, source })?;
        let url = local_url(transport, addr);
        let own = Listening { url: &url, transport, everywhere: addr.ip().is_unspecified() };
        let address = reach::address(cluster.advertise.clone(), &own, cluster.insecure)?;
        let joined = join(&cluster, &dir).await?;
        let info = NodeInfo {
            session: joined.session.clone(),
            url: address,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            proves: true,
            rests: true,
            ..NodeInfo::default()
        };
        let shared = Arc::new(Shared::new(joined, &cluster, &config, url));
        let (stop, stopping) = watch::channel(false);
        let (followers, following) = watch::channel(false);
        let (report, failed) = watch::channel(None);
        let mut listening = JoinSet::new();
        let routes = front::routes(Arc::clone(&shared));
        listening.spawn(serve(listener, routes, certificate.clone(), stopping.clone(), LEAVING_MIN));
        // It answers its own question, so it listens first.
        let fingerprint = certificate.as_ref().map(|certificate| certificate.fingerprint());
        let info = reach::own(info, transport, fingerprint, &shared.secret).await?;
        let revision = claim(&shared.nats, &shared.registry, &cluster.node, &info, &shared.secret).await?;
        let info = Info { info, certificate: certificate.clone() };
        listening.spawn(until(stopping.clone(), beat(Arc::clone(&shared), info, revision, report)));
        listening.spawn(until(stopping.clone(), reach::watch(Arc::clone(&shared))));
        listening.spawn(until(stopping.clone(), detour::listen(Arc::clone(&shared), certificate.clone())));
        listening.spawn(until(stopping.clone(), stores::watch(Arc::clone(&shared))));
        listening.spawn(until(stopping.clone(), watch_time(Arc::clone(&shared))));
        listening.spawn(until(stopping.clone(), forget_dead(Arc::clone(&shared))));
        listening.spawn(until(stopping.clone(), wake_due(Arc::clone(&shared))));
        let holders = Arc::new(Mutex::new(Vec::new()));
        // Callers from other machines reach a node.
        let mounts = config.mounts.into_iter().filter(|mount| !mount.anonymous).collect();
        let node = NodeSettings { mounts, pages: config.pages, own: config.settings, configs: cluster.configs };
        let starter = Starter { shared: Arc::clone(&shared), dir: dir.clone(), settings: Arc::new(node), following };
        listening.spawn(until(stopping, watch_registry(starter, Arc::clone(&holders))));
        Ok(Self { shared, dir, addr, certificate, stop, listening, followers, holders, failed })
    }

    /// Returns the address that it listens on.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the URL at which programs on this machine reach it.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.shared.url
    }

    /// Returns the SHA-256 of its certificate; `None` without TLS.
    #[must_use]
    pub fn fingerprint(&self) -> Option<String> {
        self.certificate.as_ref().map(|certificate| certificate.fingerprint())
    }

    /// Waits until the workspace of calls that name none has a leader.
    pub async fn ready(&self) {
        let mut changed = self.shared.changed.subscribe();
        let another = || self.shared.leader(WORKSPACE_MAIN).is_some_and(|leader| leader.node != self.shared.name);
        while self.shared.epoch(WORKSPACE_MAIN) == 0 && !another() {
            // The sender lives as long as this node.
            let _changed = changed.changed().await;
        }
    }

    /// Returns the path of the file with the token of the first human of the workspace of calls that name none.
    #[must_use]
    pub fn operator_token_file(&self) -> PathBuf {
        self.dir.join(WORKSPACE_MAIN).join(FILE_OPERATOR_TOKEN)
    }

    /// Waits until the node has to stop, and returns the reason.
    pub async fn failed(&self) -> String {
        let mut failed = self.failed.clone();
        let found = failed.wait_for(Option::is_some).await.ok().and_then(|found| found.clone());
        match found {
            Some(reason) => reason,
            None => std::future::pending().await,
        }
    }

    /// Waits until the others know that this node is about to end: only then does no successor hand a workspace back.
    async fn told(&self) {
        let mut changed = self.shared.changed.subscribe();
        let told = async {
            while self.shared.heartbeat.is_valid() && !self.shared.view(|view, _| view.says_leaving()) {
                // The sender lives as long as this node.
                let _changed = tokio::time::timeout(LOOK_EVERY, changed.changed()).await;
            }
        };
        if tokio::time::timeout(LEAVING_MIN, told).await.is_err() {
            tracing::warn!("the other nodes may not know that this one is about to end");
        }
    }

    /// Hands the workspaces over, then ends the connections and the node.
    pub async fn shutdown(mut self) {
        // While the workspaces are handed over, clients leave its connections one by one.
        self.shared.ending.send_replace(true);
        self.shared.renew();
        self.told().await;
        self.followers.send_replace(true);
        let holders = std::mem::take(&mut *self.holders.lock().unwrap_or_else(PoisonError::into_inner));
        let ended = tokio::task::spawn_blocking(move || holders.into_iter().for_each(|holder| drop(holder.join())));
        let (ended, ()) = tokio::join!(tokio::time::timeout(HAND_OVER_MAX, ended), tokio::time::sleep(LEAVING_MIN));
        if ended.is_err() {
            tracing::warn!("a workspace was not handed over in time");
        }
        self.stop.send_replace(true);
        let drained = tokio::time::timeout(DRAIN_MAX, async { while self.listening.join_next().await.is_some() {} });
        if drained.await.is_err() {
            self.listening.shutdown().await;
        }
        // The others need not wait until they no longer hear of it.
        let (registry, key) = (&self.shared.registry, node_key(&self.shared.name));
        if let Ok(Some(record)) = registry.get(&key).await
            && parse::<NodeInfo>(&record).is_some_and(|info| info.session == self.shared.session)
            && let Err(error) = registry.delete(&key, record.revision).await
        {
            tracing::debug!(%error, "the node's record stays until it expires");
        }
    }
}

async fn until(mut stopping: watch::Receiver<bool>, task: impl Future<Output = ()>) -> io::Result<()> {
    tokio::select! {
        () = ended(&mut stopping) => {}
        () = task => {}
    }
    Ok(())
}

/// What a node says of itself.
struct Info {
    info: NodeInfo,
    certificate: Option<Arc<Certificate>>,
}

impl Info {
    fn now(&self, shared: &Shared) -> NodeInfo {
        let fingerprint = || self.certificate.as_ref().map(|certificate| certificate.fingerprint());
        NodeInfo {
            // A certificate that was renewed has another one.
            pin: self.info.pin.as_ref().and_then(|_| fingerprint()),
            unfit: shared.unfit(),
            leaving: *shared.ending.borrow(),
            unreached: shared.unreached(),
            ..self.info.clone()
        }
    }
}

/// Says that the node is alive, and reports it if another program says so in its name.
async fn beat(shared: Arc<Shared>, info: Info, revision: u64, report: watch::Sender<Option<String>>) {
    let told = Arc::clone(&shared);
    let info = move || info.now(&told);
    let (heartbeat, registry) = (shared.heartbeat.clone(), shared.registry.clone());
    let beating = heartbeat.run(registry, shared.name.clone(), info, Some(revision), shared.renewals.subscribe());
    let error = beating.await;
    report.send_replace(Some(format!("{error}: another program is this node")));
    std::future::pending::<()>().await;
}
