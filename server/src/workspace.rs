//! A workspace at work: its broker, read model, schedules and notifications, from opening to closing. Whoever opens it
//! gives it a log and serves its routes.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use lastword_broker::archive;
use lastword_broker::checkpoint::{self, CheckpointError, LogSigner};
use lastword_broker::clock::Gap;
use lastword_broker::disk::{Disk, LOOK_EVERY};
use lastword_broker::files::Files;
use lastword_broker::identity::{FILE_OPERATOR_TOKEN, FILE_SECRET_KEY, Secret, TurnSigner};
use lastword_broker::priority;
use lastword_broker::scrub;
use lastword_broker::sync::thread;
use lastword_broker::{Boot, BootError, Handle, Stored, Unserved, boot_by, keep_snapshots};
use lastword_core::input::Registration;
use lastword_core::{Core, Input, Principal, Reply, State};
use lastword_facts::fact::{Kind, Profile};
use lastword_facts::ids::AgentId;
use lastword_facts::names::AgentName;
use lastword_facts::policy::Policy;
use lastword_facts::{Limits, Seq};
use lastword_store::{Index, IndexError, Log, LogReader, OpenError};
use lastword_wire::DiskSpace;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use crate::attempts::Attempts;
use crate::backup::{FILE_CHANNELS, FILE_PASSKEYS, FILE_PUSH};
use crate::calls::claims::Claims;
use crate::calls::config_edits::ConfigEdits;
use crate::calls::schedules::{self, UnsetSchedule};
use crate::calls::sign_in::SignIn;
use crate::calls::{Context, Resources};
use crate::console::ConsoleSettings;
use crate::notify::{self, Channels, Devices, Follower};
use crate::oidc::{Accounts, FILE_SUBJECTS, OidcError};
use crate::origins::Origins;
use crate::passkeys::Passkeys;
use crate::tls::{TlsError, Transport};
use crate::views::{Nodes, NotifiedDevices};

mod settings;

pub use self::settings::WorkspaceSettings;

/// The facts between two kept checkpoints, by default.
pub const CHECKPOINT_EVERY_FACTS: u64 = 10_000;
/// The usual name of a workspace's first human.
pub const OPERATOR: &str = "operator";
/// How long the read model pauses between two steps, unless an audit waits for it. Few large steps cost the log's disk
/// less than many small ones.
const INDEX_PACE: Duration = Duration::from_millis(60);

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
    /// An edge for callers without a token is for this machine only.
    #[error("an edge for callers without a token is served on the loopback interface only, and {address} isn't on it")]
    Anonymous {
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

/// A task of another crate that runs beside the broker. It ends once the workspace is about to close ([`crate::ended`]).
#[derive(Clone)]
pub struct Companion {
    /// Begins it in a workspace.
    pub run: Arc<Begin>,
}

/// Begins a task in a workspace.
type Begin = dyn Fn(&Context) -> BoxFuture<'static, io::Result<()>> + Send + Sync;

impl std::fmt::Debug for Companion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Companion").finish_non_exhaustive()
    }
}

/// What a workspace is opened on.
pub struct Opening {
    /// Its log, with the right to write to it.
    pub log: Box<dyn Log>,
    /// The fold of a part of the log, if there is one.
    pub core: Option<Core>,
    /// What is known of the time since the log's last entry.
    pub gap: Gap,
    /// Its read model.
    pub index: Index,
    /// Its small files.
    pub files: Files,
    /// The file that keeps room on the disk for a human's stop, if several workspaces share it.
    pub reserve: Option<PathBuf>,
    /// Whether and how its callers use TLS.
    pub transport: Transport,
    /// Its address for programs on this machine: `http://127.0.0.1:7171`.
    pub url: String,
    /// The nodes that serve it, in a cluster.
    pub nodes: Option<Arc<dyn Nodes>>,
}

/// An open workspace. [`Workspace::close`] ends it in order; dropping it ends the broker alone.
pub struct Workspace {
    ctx: Context,
    stop: watch::Sender<bool>,
    tasks: JoinSet<io::Result<()>>,
    /// What writes beside the broker where a successor reads: the archive, the checkpoints.
    writers: Vec<thread::JoinHandle<()>>,
    /// The broker, and what works for this machine alone: the read model, the snapshots, the scrubbing.
    local: Vec<thread::JoinHandle<()>>,
    operator_token_file: PathBuf,
}

impl Workspace {
    /// Starts the broker on the log, and everything that follows it.
    ///
    /// # Errors
    /// See [`StartError`]; nothing is left running.
    pub async fn open(mut settings: WorkspaceSettings, opening: Opening) -> Result<Self, StartError> {
        let Opening { log, core, gap, index, files, reserve, transport, url, nodes } = opening;
        let stored = Stored::of(log.as_ref());
        let reader = Arc::clone(&stored.log);
        let disk = Arc::new(Disk::of(files.dir(), reserve));
        let signers = Signers::open(&files, &disk)?;
        let boot = Boot { clocks: settings.clocks.clone(), disk: Arc::clone(&disk), core, gap };
        let (handle, broker) = booted(boot, log, signers.turns, settings.limits.clone()).await?;
        let operator_token_file = match set_up(&handle, &files, &mut settings).await {
            Ok(file) => file,
            Err(error) => {
                handle.close();
                join(vec![broker]).await;
                return Err(error);
            }
        };
        let (stop, stopping) = watch::channel(false);
        let every = settings.checkpoint_every_facts;
        let checkpoints =
            checkpoint::keep(Arc::clone(&signers.log), every, nodes.is_some(), handle.committed(), stopping.clone());
        let (position, indexed) = watch::channel(index.last());
        let hurry = Arc::new(Notify::new());
        let (archives, mover) =
            archive::start(stored.clone(), handle.clone(), settings.archive).map_err(StartError::Thread)?;
        let scrubbing = scrub::start(Arc::clone(&reader), handle.clone(), files.dir(), stopping.clone());
        let (scrub, scrubber) = scrubbing.map_err(StartError::Thread)?;
        let (devices, channels) = open_channels(&mut settings, &handle, &files)?;
        let mut resources = Resources {
            handle: handle.clone(),
            scrub,
            index: index.reader(),
            indexed,
            hurry: Arc::clone(&hurry),
            stopping,
            origins: Arc::new(Origins::new(&settings.hosts, transport)),
            transport,
            path: settings.path,
            seats: Arc::new(settings.seats),
            traces: settings.traces,
            config: ConfigEdits::new(settings.config, settings.set_at),
            devices: devices.map(|devices| devices as Arc<dyn NotifiedDevices>),
            passkeys: open_passkeys(&settings.console, &files)?,
            channels: channels.clone(),
            notifier: OnceLock::new(),
            scheduled: Arc::default(),
            shown: Arc::default(),
            files: files.clone(),
            claims: Claims::by(settings.claims),
            signer: signers.log,
            sign_in: Arc::default(),
            console: settings.console,
            archives,
            attempts: Arc::new(Attempts::new(settings.auth_failures_max)),
            oidc: None,
            nodes,
            sessions: Arc::default(),
            errands: Arc::default(),
        };
        let console = console_url(&resources, &url);
        resources.oidc = settings.oidc.map(|oidc| Arc::new(SignIn::new(oidc, &console, signers.accounts)));
        let ctx = Context::new(resources);
        let keeper = keep_snapshots(stored, handle.clone()).map_err(StartError::Thread)?;
        let first = ctx.archives.first.clone();
        let follower = IndexFollower { index, reader, first, committed: handle.committed(), position, hurry, disk };
        let follower = follow(follower).map_err(StartError::Thread)?;
        let writers = vec![mover, checkpoints.map_err(StartError::Thread)?];
        let tasks = tasks(&ctx, &channels, settings.companions, &console);
        Ok(Self { ctx, stop, tasks, writers, local: vec![broker, keeper, follower, scrubber], operator_token_file })
    }

    /// Returns what its calls need.
    #[must_use]
    pub const fn context(&self) -> &Context {
        &self.ctx
    }

    /// Returns the path of the file with the first human's token.
    pub(crate) fn operator_token_file(&self) -> &Path {
        &self.operator_token_file
    }

    /// Adds a task that ends once the workspace is about to close.
    pub fn spawn(&mut self, task: impl Future<Output = io::Result<()>> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Closes it: refuses new calls, gives those in progress up to `drain_max`, and saves a snapshot.
    pub async fn close(mut self, drain_max: Duration) {
        self.drain(drain_max).await;
        self.end().await;
    }

    /// Refuses new calls, and gives those in progress up to `drain_max`. [`Workspace::end`] follows.
    pub async fn drain(&mut self, drain_max: Duration) {
        self.stop.send_replace(true);
        let drained = tokio::time::timeout(drain_max, async {
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
    }

    /// Ends the broker of a workspace that was drained: nothing is written from then on that another node reads.
    pub async fn end_writers(&mut self) {
        // Only now: the connections that were draining still needed the broker.
        self.ctx.handle.close();
        self.ctx.handle.written().await;
        join(std::mem::take(&mut self.writers)).await;
    }

    /// Ends a workspace that was drained, and saves a snapshot.
    pub async fn end(mut self) {
        self.end_writers().await;
        join(std::mem::take(&mut self.local)).await;
    }
}

impl Drop for Workspace {
    /// Ends the broker of a workspace that wasn't closed, and waits for its threads: a thread that goes on restores a log
    /// that is removed after this. The threads of a node aren't waited for: they write by the runtime that this may block.
    fn drop(&mut self) {
        self.stop.send_replace(true);
        self.ctx.handle.close();
        if self.ctx.nodes.is_none()
            && self.writers.drain(..).chain(self.local.drain(..)).any(|thread| thread.join().is_err())
        {
            tracing::error!("a thread panicked");
        }
    }
}

/// Starts the broker. A log may wait for its servers, and a long one takes a while to fold.
async fn booted(
    boot: Boot,
    log: Box<dyn Log>,
    turns: TurnSigner,
    limits: Limits,
) -> Result<(Handle, thread::JoinHandle<()>), StartError> {
    let booted = tokio::task::spawn_blocking(move || boot_by(boot, log, turns, limits));
    Ok(booted.await.map_err(|panic| StartError::Thread(io::Error::other(panic)))??)
}

/// Opens the devices that are notified, unless that is off, and the channels.
fn open_channels(
    settings: &mut WorkspaceSettings,
    handle: &Handle,
    files: &Files,
) -> Result<(Option<Arc<Devices>>, Arc<Channels>), StartError> {
    let failed = |name| move |source| StartError::File { path: files.path(name), source };
    let mut configured = std::mem::take(&mut settings.notify);
    let devices = notify::open(&mut configured, &settings.console, handle, files).map_err(failed(FILE_PUSH))?;
    let channels = Channels::open(configured, files.clone(), settings.console.allow_private);
    Ok((devices, channels.map(Arc::new).map_err(failed(FILE_CHANNELS))?))
}

/// Opens the passkeys of humans, if one is asked for.
fn open_passkeys(console: &ConsoleSettings, files: &Files) -> Result<Option<Arc<Passkeys>>, StartError> {
    let site = console.site().map_err(io::Error::other);
    let opened = site.and_then(|site| site.map(|site| Passkeys::open(site, files.clone()).map(Arc::new)).transpose());
    opened.map_err(|source| StartError::File { path: files.path(FILE_PASSKEYS), source })
}

/// Gives the broker its first human, and what of the configuration is a fact. Returns the path of that human's token.
async fn set_up(handle: &Handle, files: &Files, settings: &mut WorkspaceSettings) -> Result<PathBuf, StartError> {
    let operator_token_file = bootstrap(handle, files, settings.renew_operator_token).await?;
    configure(handle, std::mem::take(&mut settings.policy)).await?;
    schedules::configure(handle, std::mem::take(&mut settings.schedules)).await?;
    Ok(operator_token_file)
}

/// Starts what runs on the runtime: the schedules' ticks, and notifications.
fn tasks(ctx: &Context, channels: &Channels, companions: Vec<Companion>, console: &str) -> JoinSet<io::Result<()>> {
    let mut tasks = JoinSet::new();
    for companion in companions {
        tasks.spawn((companion.run)(ctx));
    }
    tasks.spawn(schedules::tick(ctx.clone()));
    tasks.spawn(Follower::new(ctx.clone(), channels.in_force(), ctx.files.clone(), format!("{console}/")).run());
    tasks
}

async fn join(threads: Vec<thread::JoinHandle<()>>) {
    let joined = tokio::task::spawn_blocking(move || threads.into_iter().all(|thread| thread.join().is_ok()));
    if !matches!(joined.await, Ok(true)) {
        tracing::error!("a thread panicked");
    }
}

/// Returns the URL of the console for a human's browser: the configured one, or under the first configured host name if the certificate is one
/// for names.
pub(crate) fn console_url(resources: &Resources, url: &str) -> String {
    let path = &resources.path;
    if let Some(address) = &resources.console.address {
        return format!("{address}{path}");
    }
    match (resources.transport, resources.origins.first_host()) {
        (Transport::Certified, Some(host)) => {
            let port = url.rsplit(':').next().unwrap_or_default();
            format!("https://{host}:{port}{path}")
        }
        (Transport::Plain | Transport::SelfSigned | Transport::Certified, _) => format!("{url}{path}"),
    }
}

pub(crate) fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::StorageFull
}

/// Who signs for the workspace, and who signed in to it.
struct Signers {
    turns: TurnSigner,
    accounts: Accounts,
    log: Arc<LogSigner>,
}

impl Signers {
    fn open(files: &Files, disk: &Disk) -> Result<Self, StartError> {
        let failed = |file: &str, source| StartError::File { path: files.path(file), source };
        Ok(Self {
            turns: TurnSigner::open(files).map_err(|source| failed(FILE_SECRET_KEY, source))?,
            accounts: Accounts::open(files).map_err(|source| failed(FILE_SUBJECTS, source))?,
            log: log_signer(files, disk)?,
        })
    }
}

/// Opens the read model in `dir`, and catches up with the log as far as the disk has room.
///
/// # Errors
/// The read model or the log can't be read, or the read model can't be written for another reason than a full disk.
pub fn open_index(dir: &Path, reader: &dyn LogReader) -> Result<Index, StartError> {
    let mut index = Index::open(dir)?;
    index.check(reader)?;
    match index.catch_up(reader, &mut |_, _| {}) {
        Err(error) if error.is_full() => tracing::warn!(%error, "the read model waits for room on the disk"),
        caught_up => caught_up?,
    }
    Ok(index)
}

/// Opens the signer of checkpoints; a new key may use the disk's reserve, because a start must succeed on a full disk.
fn log_signer(files: &Files, disk: &Disk) -> Result<Arc<LogSigner>, CheckpointError> {
    let write = |name: &str, bytes: &[u8]| disk.with_reserve(|| files.write(name, bytes), is_full);
    LogSigner::prepare(files, write).map(Arc::new)
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
async fn bootstrap(handle: &Handle, files: &Files, renew: bool) -> Result<PathBuf, StartError> {
    let path = files.path(FILE_OPERATOR_TOKEN);
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
            display_name: None,
            key: None,
        }),
    };
    // Write the token before the fact. A crash between the two leaves a file that the next start replaces, instead of a
    // human whose token is lost.
    files.write(FILE_OPERATOR_TOKEN, format!("{}\n", token.reveal()).as_bytes()).map_err(failed)?;
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

/// The read model, and what it follows.
struct IndexFollower {
    index: Index,
    reader: Arc<dyn LogReader>,
    /// The first position that is still in the log.
    first: watch::Receiver<Seq>,
    committed: watch::Receiver<Seq>,
    /// How far it has come.
    position: watch::Sender<Seq>,
    hurry: Arc<Notify>,
    disk: Arc<Disk>,
}

/// Starts the thread that keeps the read model up with the log. It ends when the broker does.
fn follow(follower: IndexFollower) -> io::Result<thread::JoinHandle<()>> {
    let IndexFollower { mut index, reader, first, mut committed, position, hurry, disk } = follower;
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
                    // The log is intact. Audits say that the read model is behind, until a later step succeeds.
                    tracing::error!(%error, "the read model is behind the log, and tries again");
                    false
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
