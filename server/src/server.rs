//! A running server: its data directory, broker, read model and listener, from start to shutdown.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use lastword_proto::fact::{Kind, Profile};
use lastword_proto::ids::AgentId;
use lastword_proto::input::Registration;
use lastword_proto::names::AgentName;
use lastword_proto::policy::Policy;
use lastword_proto::wire::DiskSpace;
use lastword_proto::{Input, Limits, Principal, Reply, Seq, State};
use lastword_store::{Index, IndexError, LogReader, OpenError, Store};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use crate::archive::{self, ArchivePolicy};
use crate::attempts::{AUTH_FAILURES_MAX, Attempts};
use crate::broker::{self, BootError, BrokerFailure, Handle, Unserved};
use crate::calls::Context;
use crate::calls::schedules::{self, ConfiguredSchedule, UnsetSchedule};
use crate::calls::sign_in::SignIn;
use crate::checkpoint::{self, CheckpointError, LogSigner, PublicKey};
use crate::clock::Source;
use crate::disk::{Disk, LOOK_EVERY};
use crate::edges::http::listen;
use crate::edges::mcp::AnonymousMcp;
use crate::identity::{FILE_OPERATOR_TOKEN, FILE_SECRET_KEY, Secret, TurnSigner, write_private};
use crate::notify::{Channel, Follower};
use crate::oidc::{Accounts, FILE_SUBJECTS, Oidc, OidcError};
use crate::origins::Origins;
use crate::priority;
use crate::sync::thread;
use crate::tls::{Certificate, Tls, TlsError, Transport};

/// The usual name of a workspace's first human.
pub const OPERATOR: &str = "operator";
/// How long the read model pauses between two steps, unless an audit waits for it. Few large steps cost the log's disk
/// less than many small ones.
const INDEX_PACE: Duration = Duration::from_millis(60);
/// The facts between two kept checkpoints, by default.
pub const CHECKPOINT_EVERY_FACTS: u64 = 10_000;
/// The most connections that wait to be accepted; the system may allow fewer.
const BACKLOG: u32 = 4_096;
/// How long open connections may take to end at a shutdown.
const DRAIN_MAX: Duration = Duration::from_secs(5);

/// The configuration that a server starts with.
#[derive(Clone, Debug)]
pub struct Config {
    /// The data directory; created if it doesn't exist.
    pub data_dir: PathBuf,
    /// The address to listen on; port 0 picks a free port.
    pub listen: SocketAddr,
    /// The certificate to serve with over TLS; `None` serves plain HTTP.
    pub tls: Option<Tls>,
    /// The limits to put in force.
    pub limits: Limits,
    /// The policy that allows, denies or holds tool calls.
    pub policy: Policy,
    /// Host names under which the server may be called, besides literal addresses and `localhost`.
    pub hosts: Vec<String>,
    /// Failed authentications that an address may make in a minute, at least 1; callers behind a proxy share its address.
    pub auth_failures_max: u64,
    /// When the oldest part of the log moves to the archive.
    pub archive: ArchivePolicy,
    /// Whether to replace the first human's token by a new one, in case it was lost.
    pub renew_operator_token: bool,
    /// The agents whose own MCP client has a human in front of it, each with that human's name. Their escalations may
    /// be answered there.
    pub seats: BTreeMap<String, String>,
    /// The place where each limit and guard is set, as `FILE:LINE` by name, for humans to read; `observe` is the entry
    /// for all guards.
    pub set_at: BTreeMap<String, String>,
    /// An MCP surface for callers without a token, for conformance suites; on the loopback interface only.
    pub anonymous_mcp: Option<AnonymousMcp>,
    /// The channels through which humans are notified of pending decisions.
    pub notify: Vec<Channel>,
    /// The schedules of the configuration.
    pub schedules: Vec<ConfiguredSchedule>,
    /// The provider by which humans sign in.
    pub oidc: Option<Oidc>,
    /// The facts after which a checkpoint is kept, at most one a second; 0 keeps one only when the server stops.
    pub checkpoint_every_facts: u64,
    /// The clocks that the broker's time follows.
    pub clocks: Source,
}

impl Config {
    /// Returns the configuration of a server on a free port of the loopback interface, with the default limits.
    #[must_use]
    pub fn local(data_dir: &Path) -> Self {
        Self {
            data_dir: data_dir.to_owned(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            tls: None,
            limits: Limits::default(),
            policy: Policy::default(),
            hosts: Vec::new(),
            auth_failures_max: AUTH_FAILURES_MAX,
            archive: ArchivePolicy::default(),
            renew_operator_token: false,
            seats: BTreeMap::new(),
            set_at: BTreeMap::new(),
            anonymous_mcp: None,
            notify: Vec::new(),
            schedules: Vec::new(),
            oidc: None,
            checkpoint_every_facts: CHECKPOINT_EVERY_FACTS,
            clocks: Source::machine(),
        }
    }
}

/// Why a server can't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data directory can't be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The broker can't start.
    #[error(transparent)]
    Boot(#[from] BootError),
    /// The read model can't be opened.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The broker stopped or refused an input during the start.
    #[error(transparent)]
    Unserved(#[from] Unserved),
    /// The system can't start another thread.
    #[error("can't start a thread: {0}")]
    Thread(io::Error),
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
    /// The anonymous MCP surface is for this machine only.
    #[error("the anonymous MCP surface is served on the loopback interface only, and {address} isn't on it")]
    AnonymousMcp {
        /// The address of the configuration.
        address: SocketAddr,
    },
    /// The policy of held calls names agents that were never registered.
    #[error("the policy of held calls names {}, and no agent is called so", names.join(", "))]
    Policy {
        /// The unknown names.
        names: Vec<String>,
    },
    /// A schedule of the configuration is invalid.
    #[error("{at}: [[schedule]]: {reason}")]
    Schedule {
        /// Its place in the configuration, as `FILE:LINE`.
        at: String,
        /// The reason, as a sentence.
        reason: String,
    },
    /// The provider by which humans sign in is configured wrongly.
    #[error(transparent)]
    Oidc(#[from] OidcError),
    /// The key of checkpoints is unusable.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A file of the data directory can't be read or written.
    #[error("{path}: {source}")]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl From<UnsetSchedule> for StartError {
    fn from(unset: UnsetSchedule) -> Self {
        match unset {
            UnsetSchedule::Wrong { at, reason } => Self::Schedule { at, reason },
            UnsetSchedule::Unserved(unserved) => Self::Unserved(unserved),
        }
    }
}

/// A running server. [`Server::shutdown`] ends it in order.
pub struct Server {
    addr: SocketAddr,
    ctx: Context,
    certificate: Option<Arc<Certificate>>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<io::Result<()>>,
    threads: Vec<thread::JoinHandle<()>>,
    operator_token_file: PathBuf,
}

impl Server {
    /// Opens the data directory, starts the broker and listens.
    ///
    /// # Errors
    /// See [`StartError`]; nothing is left running.
    pub fn start(config: Config) -> BoxFuture<'static, Result<Self, StartError>> {
        // Boxed, so that this crate compiles all that runs under it, once, and not each program and each test again.
        Box::pin(Self::start_all(config))
    }

    async fn start_all(config: Config) -> Result<Self, StartError> {
        // Before the data directory is touched.
        check(&config)?;
        let Config {
            data_dir,
            listen: address,
            tls,
            limits,
            policy,
            hosts,
            auth_failures_max,
            archive: archive_policy,
            renew_operator_token,
            seats,
            set_at,
            anonymous_mcp,
            notify,
            schedules: configured,
            oidc,
            checkpoint_every_facts,
            clocks,
        } = config;
        let log = Store::sqlite(&data_dir).open()?;
        // Once the data directory is ours, and before the broker starts: a start that fails leaves no fact in the log.
        let certificate = tls.as_ref().map(|tls| Certificate::open(tls, &data_dir, &hosts)).transpose()?.map(Arc::new);
        let transport = Transport::of(tls.as_ref());
        let (reader, snapshots, archive) = (log.reader(), log.snapshots(), log.archive());
        let (signer, accounts) = kept(&data_dir)?;
        let index = open_index(&data_dir, reader.as_ref())?;
        // Before the broker starts: a start that fails on a used port leaves no fact in the log.
        let (listener, addr) = bind(address)?;
        let disk = Arc::new(Disk::of(&data_dir));
        let log_signer = log_signer(&data_dir, &disk)?;
        let (handle, broker) = broker::boot_by((clocks, Arc::clone(&disk)), log, signer, limits)?;
        let operator_token_file = bootstrap(&handle, &data_dir, renew_operator_token).await?;
        configure(&handle, policy).await?;
        schedules::configure(&handle, configured).await?;
        let (stop, stopping) = watch::channel(false);
        let signing = (Arc::clone(&log_signer), checkpoint_every_facts);
        let checkpoints = checkpoint::keep(signing, handle.committed(), stopping.clone());
        let (position, indexed) = watch::channel(index.last());
        let hurry = Arc::new(Notify::new());
        let log = (Arc::clone(&archive), Arc::clone(&reader), Arc::clone(&snapshots));
        let (archives, mover) = archive::start(log, handle.clone(), archive_policy).map_err(StartError::Thread)?;
        let mut ctx = Context {
            handle: handle.clone(),
            index: index.reader(),
            indexed,
            hurry: Arc::clone(&hurry),
            stopping,
            origins: Arc::new(Origins::new(&hosts, transport)),
            transport,
            seats: Arc::new(seats),
            set_at: Arc::new(set_at),
            scheduled: Arc::default(),
            shown: Arc::default(),
            data_dir: data_dir.as_path().into(),
            signer: log_signer,
            sign_in: Arc::default(),
            archives,
            attempts: Arc::new(Attempts::new(auth_failures_max)),
            oidc: None,
        };
        ctx.oidc = oidc.map(|oidc| Arc::new(SignIn::new(oidc, &console_url(&ctx, addr), accounts)));
        let keeper =
            broker::keep((Arc::clone(&reader), archive), snapshots, handle.clone()).map_err(StartError::Thread)?;
        let follower = follow((index, reader, ctx.archives.first.clone()), handle, position, (hurry, disk))
            .map_err(StartError::Thread)?;
        let threads = vec![keeper, mover, broker, follower, checkpoints.map_err(StartError::Thread)?];
        let listening = listen::serve(listener, ctx.clone(), certificate.clone(), anonymous_mcp);
        let tasks = start_tasks(listening, &ctx, notify, &format!("{}/", console_url(&ctx, addr)));
        Ok(Self { addr, ctx, certificate, stop, tasks, threads, operator_token_file })
    }

    /// Returns the address that it listens on, with the actual port.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the URL of the address that it listens on.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}://{}", self.ctx.transport.scheme(), self.addr)
    }

    /// Returns the URL at which programs on this machine reach it.
    #[must_use]
    pub fn local_url(&self) -> String {
        local_url(&self.ctx, self.addr)
    }

    /// Returns the URL of the console for a human's browser: under the first configured host name if the certificate is
    /// one for names.
    #[must_use]
    pub fn console_url(&self) -> String {
        console_url(&self.ctx, self.addr)
    }

    /// Returns the SHA-256 of its certificate, as `sha256:HEX`; `None` without TLS.
    #[must_use]
    pub fn fingerprint(&self) -> Option<String> {
        self.certificate.as_ref().map(|certificate| certificate.fingerprint())
    }

    /// Watches the position up to which the read model has indexed the log.
    #[must_use]
    pub fn indexed(&self) -> watch::Receiver<Seq> {
        self.ctx.indexed.clone()
    }

    /// Returns the broker's handle, for callers in the same process.
    #[must_use]
    pub const fn handle(&self) -> &Handle {
        &self.ctx.handle
    }

    /// Creates a code for the console's one-time link, `/sign-in#CODE`. It signs the first human in once, within 15
    /// minutes, and replaces any earlier code.
    ///
    /// # Errors
    /// The system's random number generator fails.
    pub fn sign_in_code(&self) -> io::Result<Secret> {
        self.ctx.sign_in.mint(self.ctx.handle.now())
    }

    /// Returns the public key that verifies checkpoints of this server's log.
    #[must_use]
    pub fn checkpoint_key(&self) -> &PublicKey {
        self.ctx.signer.public()
    }

    #[cfg(test)]
    pub(crate) const fn context(&self) -> &Context {
        &self.ctx
    }

    /// Writes a small file into the data directory, readable by its owner only. On a full disk it uses the reserve.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn keep_file(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.ctx.handle.disk().with_reserve(|| write_private(path, bytes), is_full)
    }

    /// Returns the path of the file with the first human's token.
    #[must_use]
    pub fn operator_token_file(&self) -> &Path {
        &self.operator_token_file
    }

    /// Waits until the broker fails, and returns the reason. Never returns while the broker runs.
    pub async fn failed(&self) -> BrokerFailure {
        let mut failed = self.ctx.handle.failed();
        let found = failed.wait_for(Option::is_some).await.ok().and_then(|failed| failed.clone());
        found.unwrap_or_else(|| BrokerFailure { reason: "the broker is gone".into(), bug: true })
    }

    /// Shuts the server down: refuses new calls, finishes those in progress, and saves a snapshot.
    pub fn shutdown(self) -> BoxFuture<'static, ()> {
        Box::pin(self.drain())
    }

    async fn drain(mut self) {
        self.stop.send_replace(true);
        let drained = tokio::time::timeout(DRAIN_MAX, async {
            while let Some(ended) = self.tasks.join_next().await {
                match ended {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::warn!(%error, "the listener failed"),
                    Err(error) => tracing::warn!(%error, "a task failed"),
                }
            }
        });
        if drained.await.is_err() {
            tracing::warn!("connections were cut that did not end in time");
            self.tasks.shutdown().await;
        }
        // Only now: the connections that were draining still needed the broker.
        self.ctx.handle.close();
        let threads = std::mem::take(&mut self.threads);
        let joined = tokio::task::spawn_blocking(move || threads.into_iter().all(|thread| thread.join().is_ok()));
        if !matches!(joined.await, Ok(true)) {
            tracing::error!("a thread panicked");
        }
    }
}

/// Starts the listener, the schedules and, if there are channels, the notifications.
fn start_tasks(
    listening: impl Future<Output = io::Result<()>> + Send + 'static,
    ctx: &Context,
    notify: Vec<Channel>,
    console: &str,
) -> JoinSet<io::Result<()>> {
    let mut tasks = JoinSet::new();
    tasks.spawn(listening);
    tasks.spawn(schedules::tick(ctx.clone()));
    if !notify.is_empty() {
        let data_dir = Arc::clone(&ctx.data_dir);
        tasks.spawn(Follower::new(ctx.clone(), notify, &data_dir, console.to_owned()).run());
    }
    tasks
}

/// Opens the read model, and catches up with the log as far as the disk has room.
fn open_index(dir: &Path, reader: &dyn LogReader) -> Result<Index, StartError> {
    let mut index = Index::open(dir)?;
    index.check(reader)?;
    match index.catch_up(reader, &mut |_, _| {}) {
        Err(error) if error.is_full() => tracing::warn!(%error, "the read model waits for room on the disk"),
        caught_up => caught_up?,
    }
    Ok(index)
}

/// Opens the signer of checkpoints; a new key may use the disk's reserve, because a start must succeed on a full disk.
fn log_signer(dir: &Path, disk: &Disk) -> Result<Arc<LogSigner>, CheckpointError> {
    let write = |path: &Path, bytes: &[u8]| disk.with_reserve(|| write_private(path, bytes), is_full);
    LogSigner::prepare(dir, write).map(Arc::new)
}

fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::StorageFull
}

fn console_url(ctx: &Context, addr: SocketAddr) -> String {
    match (ctx.transport, ctx.origins.first_host()) {
        (Transport::Certified, Some(host)) => format!("https://{host}:{}", addr.port()),
        (Transport::Plain | Transport::SelfSigned | Transport::Certified, _) => local_url(ctx, addr),
    }
}

fn local_url(ctx: &Context, addr: SocketAddr) -> String {
    let ip: IpAddr = match addr.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    format!("{}://{}", ctx.transport.scheme(), SocketAddr::new(ip, addr.port()))
}

/// Listens with a long backlog: with a short one, a flood of connections drops a human's, which the system retries only
/// after a second. Returns the actual address as well.
fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let listen = || -> io::Result<_> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?;
        let addr = listener.local_addr()?;
        Ok((listener, addr))
    };
    listen().map_err(|source| StartError::Listen { address, source })
}

fn check(config: &Config) -> Result<(), StartError> {
    if config.anonymous_mcp.is_some() {
        for_this_machine(config.listen)?;
    }
    config.oidc.as_ref().map_or(Ok(()), Oidc::check).map_err(StartError::from)
}

/// Opens what the data directory holds for authenticating callers.
fn kept(dir: &Path) -> Result<(TurnSigner, Accounts), StartError> {
    let failed = |file: &str, source| StartError::File { path: dir.join(file), source };
    let signer = TurnSigner::open(dir).map_err(|source| failed(FILE_SECRET_KEY, source))?;
    Ok((signer, Accounts::open(dir).map_err(|source| failed(FILE_SUBJECTS, source))?))
}

/// The anonymous MCP surface needs no token, so it accepts no caller from another machine.
fn for_this_machine(address: SocketAddr) -> Result<(), StartError> {
    if !address.ip().is_loopback() {
        return Err(StartError::AnonymousMcp { address });
    }
    tracing::warn!("callers without a token reach the anonymous MCP surface");
    Ok(())
}

/// Puts the policy of held calls into force. An unknown name in it is an error, because a typo would leave a rule
/// without effect. Before the first agent is registered, unknown names are only logged: the policy may name agents to
/// come.
async fn configure(handle: &Handle, policy: Policy) -> Result<(), StartError> {
    let named = policy.clone();
    let unknown = handle.query(move |live| {
        let agents = live.state.agents.iter().filter(|agent| !agent.is_human()).count();
        let unknown = named.names().filter(|name| live.state.agent_of(name.as_str()).is_none());
        // The first row of the table is the broker itself.
        (agents > 1, unknown.map(ToString::to_string).collect::<Vec<_>>())
    });
    match unknown.await? {
        (_, names) if names.is_empty() => {}
        (true, names) => return Err(StartError::Policy { names }),
        (false, names) => tracing::warn!(?names, "the policy of held calls names agents that are not registered yet"),
    }
    handle.submit(Input::ConfigurePolicy(Box::new(policy))).await?;
    Ok(())
}

/// Registers the first human if there is none, and writes the token file. On later starts the file may be gone, because
/// the human moved the token out of the agents' reach; that doesn't create a second token.
async fn bootstrap(handle: &Handle, dir: &Path, renew: bool) -> Result<PathBuf, StartError> {
    let path = dir.join(FILE_OPERATOR_TOKEN);
    let failed = |source| StartError::File { path: path.clone(), source };
    let (operator, name) = handle.query(|live| (operator(live.state), free_name(live.state))).await?;
    if operator.is_some() && !renew {
        return Ok(path);
    }
    let token = Secret::token().map_err(failed)?;
    let input = match operator {
        Some((principal, agent)) => Input::Rekey(principal, agent, token.credential().into()),
        None => Input::Bootstrap(Registration {
            name: AgentName::new(&name).map_err(|e| failed(io::Error::other(e.to_string())))?,
            kind: Kind::Human,
            profile: Profile { actions: Vec::new(), groups: Vec::new(), turns_max: 0 },
            credential: token.credential(),
            role: None,
            key: None,
        }),
    };
    // Write the token before the fact. A crash between the two leaves a file that the next start replaces, instead of a
    // human whose token is lost.
    write_private(&path, format!("{}\n", token.reveal()).as_bytes()).map_err(failed)?;
    let reply = handle.submit(input).await?;
    if matches!(reply, Reply::Registered(_) | Reply::Done) {
        Ok(path)
    } else {
        Err(failed(io::Error::other(format!("the first human was not registered: {reply:?}"))))
    }
}

/// Returns the name for a new first human. An agent may have taken the usual one since the last human was removed.
fn free_name(state: &State) -> String {
    let others = (2_u64..).map(|n| format!("{OPERATOR}-{n}"));
    std::iter::once(OPERATOR.to_owned()).chain(others).find(|name| state.live(name).is_none()).unwrap_or_default()
}

/// Returns the workspace's first human as a principal. Access to the data directory allows acting for that human, since
/// it gives access to the log.
fn operator(state: &State) -> Option<(Principal, AgentId)> {
    let human = state.any_human();
    let held = state.credentials.iter().find(|(_, agent)| **agent == human)?;
    state.prove(held.0).filter(|p| p.is_human()).map(|principal| (principal, human))
}

/// Starts the thread that keeps the read model up with the log. It ends when the broker does.
fn follow(
    (mut index, reader, first): (Index, Arc<dyn LogReader>, watch::Receiver<Seq>),
    handle: Handle,
    position: watch::Sender<Seq>,
    (hurry, disk): (Arc<Notify>, Arc<Disk>),
) -> io::Result<thread::JoinHandle<()>> {
    let mut committed = handle.committed();
    drop(handle);
    let wait = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    thread::Builder::new().name("index".into()).spawn(move || {
        priority::lower(priority::AFTER_OTHERS);
        loop {
            let behind = index.last();
            let news = wait.block_on(committed.wait_for(|seq| *seq > behind)).map(|_| ());
            let mut reached = |at, _| {
                position.send_replace(at);
            };
            // On a full disk the remaining room belongs to the log.
            let full = disk.space() == DiskSpace::Full;
            let archived = *first.borrow();
            let mut step = || index.trim(archived).and_then(|()| index.catch_up(reader.as_ref(), &mut reached));
            let caught_up = if full { Ok(()) } else { step() };
            let room = match caught_up {
                Ok(()) => !full,
                Err(error) if error.is_full() => {
                    tracing::warn!(%error, "the read model waits for room on the disk");
                    false
                }
                Err(error) => {
                    // The log is intact. Audits report that the read model is behind, and the next start catches up.
                    tracing::error!(%error, "the read model no longer follows the log");
                    return;
                }
            };
            // The broker has ended, and the step above indexed its last facts.
            if news.is_err() {
                return;
            }
            if !room {
                if committed.has_changed().is_err() {
                    // The broker has ended; the next start catches up.
                    return;
                }
                thread::sleep(LOOK_EVERY);
                continue;
            }
            // A pause that an audit cuts short. Both outcomes lead to the next step.
            let _hurried = wait.block_on(async { tokio::time::timeout(INDEX_PACE, hurry.notified()).await }).is_ok();
        }
    })
}
