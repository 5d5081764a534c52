//! A running server: data directory, broker, read model and listener, and their end.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use lastword_proto::fact::{Kind, Profile};
use lastword_proto::ids::AgentId;
use lastword_proto::input::Registration;
use lastword_proto::names::AgentName;
use lastword_proto::policy::Policy;
use lastword_proto::wire::DiskSpace;
use lastword_proto::{Input, Limits, Principal, Reply, Seq, State};
use lastword_store::{Index, IndexError, LogReader, OpenError, Store};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use crate::broker::{self, BootError, BrokerFailure, Handle, Unserved};
use crate::calls::Context;
use crate::calls::schedules::{self, ConfiguredSchedule, UnsetSchedule};
use crate::clock::Source;
use crate::disk::{Disk, LOOK_EVERY};
use crate::edges::http::listen;
use crate::edges::mcp::AnonymousMcp;
use crate::identity::{FILE_OPERATOR_TOKEN, Secret, TurnSigner, write_private};
use crate::notify::{Channel, Follower};
use crate::origins::Origins;
use crate::priority;

/// The first human of a workspace.
pub const OPERATOR: &str = "operator";
/// How long the read model rests before it follows again, unless an audit waits for it: few large steps take
/// less from the log's disk than many small ones.
const INDEX_PACE: Duration = Duration::from_millis(60);
/// How long connections may take to end once the server is to.
const DRAIN_MAX: Duration = Duration::from_secs(5);

/// What a server is started with.
#[derive(Clone, Debug)]
pub struct Config {
    /// The data directory; made where it is missing.
    pub data_dir: PathBuf,
    /// Where to listen; port 0 picks a free one.
    pub listen: SocketAddr,
    /// The numbers in force.
    pub limits: Limits,
    /// The policy of held calls.
    pub policy: Policy,
    /// Host names under which it may be called, besides addresses and `localhost`.
    pub hosts: Vec<String>,
    /// Replaces the first human's token by a new one, for who lost it.
    pub renew_operator_token: bool,
    /// Agents at whose own MCP client a human sits, by name, and which human: there their escalations may be answered.
    pub seats: BTreeMap<String, String>,
    /// Where limits and guards were set, as `FILE:LINE` by name, for humans to read; `observe` stands for all guards.
    pub set_at: BTreeMap<String, String>,
    /// An MCP surface for callers without a token, for conformance suites; on the loopback interface only.
    pub anonymous_mcp: Option<AnonymousMcp>,
    /// Where people are told of what waits for them.
    pub notify: Vec<Channel>,
    /// The schedules of the configuration.
    pub schedules: Vec<ConfiguredSchedule>,
    /// The clocks by which it runs.
    pub clocks: Source,
}

impl Config {
    /// A server on a free port of the loopback interface, with the default limits.
    #[must_use]
    pub fn local(data_dir: &Path) -> Self {
        Self {
            data_dir: data_dir.to_owned(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            limits: Limits::default(),
            policy: Policy::default(),
            hosts: Vec::new(),
            renew_operator_token: false,
            seats: BTreeMap::new(),
            set_at: BTreeMap::new(),
            anonymous_mcp: None,
            notify: Vec::new(),
            schedules: Vec::new(),
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
    /// The broker stopped at once.
    #[error(transparent)]
    Unserved(#[from] Unserved),
    /// The system gives no more threads.
    #[error("can't start a thread: {0}")]
    Thread(io::Error),
    /// The address can't be used.
    #[error("can't listen on {address}: {source}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The anonymous MCP surface is for this machine only.
    #[error("the anonymous MCP surface is served on the loopback interface only, and {address} isn't on it")]
    AnonymousMcp {
        /// Where it was to listen.
        address: SocketAddr,
    },
    /// The policy of held calls names agents that there never were.
    #[error("the policy of held calls names {}, and no agent is called so", names.join(", "))]
    Policy {
        /// Whom.
        names: Vec<String>,
    },
    /// A schedule of the configuration can't be set.
    #[error("{at}: [[schedule]]: {reason}")]
    Schedule {
        /// Where it is written.
        at: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A file of the data directory can't be read or written.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
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

/// A running server.
pub struct Server {
    addr: SocketAddr,
    ctx: Context,
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
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let Config {
            data_dir,
            listen: address,
            limits,
            policy,
            hosts,
            renew_operator_token,
            seats,
            set_at,
            anonymous_mcp,
            notify,
            schedules: configured,
            clocks,
        } = config;
        if anonymous_mcp.is_some() {
            for_this_machine(address)?;
        }
        let log = Store::sqlite(&data_dir).open()?;
        let (reader, snapshots) = (log.reader(), log.snapshots());
        let file_failed = |name: &str| {
            let path = data_dir.join(name);
            move |source| StartError::File { path, source }
        };
        let signer = TurnSigner::open(&data_dir).map_err(file_failed(crate::identity::FILE_SECRET_KEY))?;
        let mut index = Index::open(&data_dir)?;
        match index.catch_up(reader.as_ref(), &mut |_, _| {}) {
            Err(error) if error.is_full() => tracing::warn!(%error, "the read model waits for room on the disk"),
            caught_up => caught_up?,
        }
        let unusable = |source| StartError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(unusable)?;
        let addr = listener.local_addr().map_err(unusable)?;
        let disk = Arc::new(Disk::of(&data_dir));
        let (handle, broker) = broker::boot_by((clocks, Arc::clone(&disk)), log, signer, limits)?;
        let operator_token_file = bootstrap(&handle, &data_dir, renew_operator_token).await?;
        configure(&handle, policy).await?;
        schedules::configure(&handle, configured).await?;
        let (stop, stopping) = watch::channel(false);
        let (position, indexed) = watch::channel(index.last());
        let hurry = Arc::new(Notify::new());
        let ctx = Context {
            handle: handle.clone(),
            index: index.reader(),
            indexed,
            hurry: Arc::clone(&hurry),
            stopping,
            origins: Arc::new(Origins::new(&hosts)),
            seats: Arc::new(seats),
            set_at: Arc::new(set_at),
            scheduled: Arc::default(),
            shown: Arc::default(),
            sign_in: Arc::default(),
        };
        let keeper = broker::keep(Arc::clone(&reader), snapshots, handle.clone()).map_err(StartError::Thread)?;
        let follower = follow((index, reader), handle, position, (hurry, disk)).map_err(StartError::Thread)?;
        let threads = vec![keeper, broker, follower];
        let mut tasks = JoinSet::new();
        tasks.spawn(listen::serve(listener, ctx.clone(), anonymous_mcp));
        tasks.spawn(schedules::tick(ctx.clone()));
        if !notify.is_empty() {
            let console = format!("{}/", reachable(addr));
            tasks.spawn(Follower::new(ctx.clone(), notify, &data_dir, console).run());
        }
        Ok(Self { addr, ctx, stop, tasks, threads, operator_token_file })
    }

    /// Where it listens.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The position up to which audits see the log, as it grows.
    #[must_use]
    pub fn indexed(&self) -> watch::Receiver<Seq> {
        self.ctx.indexed.clone()
    }

    /// The way to the broker, in process.
    #[must_use]
    pub const fn handle(&self) -> &Handle {
        &self.ctx.handle
    }

    /// A code for the console's one-time link, `/sign-in#CODE`: it signs the first human in, once, within a quarter of an
    /// hour. The one before it ends.
    ///
    /// # Errors
    /// The system has no randomness to give.
    pub fn sign_in_code(&self) -> io::Result<Secret> {
        self.ctx.sign_in.mint(self.ctx.handle.now())
    }

    #[cfg(test)]
    pub(crate) const fn context(&self) -> &Context {
        &self.ctx
    }

    /// Writes a small file of the data directory, readable for its owner alone; on a full disk in the room that is kept.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn keep_file(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let is_full = |error: &io::Error| error.kind() == io::ErrorKind::StorageFull;
        self.ctx.handle.disk().with_reserve(|| write_private(path, bytes), is_full)
    }

    /// The file with the human's token.
    #[must_use]
    pub fn operator_token_file(&self) -> &Path {
        &self.operator_token_file
    }

    /// Waits until the broker has stopped by itself, which only a failure makes it do; gives the reason.
    pub async fn failed(&self) -> BrokerFailure {
        let mut failed = self.ctx.handle.failed();
        let found = failed.wait_for(Option::is_some).await.ok().and_then(|failed| failed.clone());
        found.unwrap_or_else(|| BrokerFailure { reason: "the broker is gone".into(), bug: true })
    }

    /// Ends it: nothing new is taken, what was taken is finished, a snapshot is saved.
    pub async fn shutdown(mut self) {
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
        self.ctx.handle.close();
        let threads = std::mem::take(&mut self.threads);
        let joined = tokio::task::spawn_blocking(move || threads.into_iter().all(|thread| thread.join().is_ok()));
        if !matches!(joined.await, Ok(true)) {
            tracing::error!("a thread panicked");
        }
    }
}

/// The address at which programs on this machine reach a server that listens at `addr`.
#[must_use]
pub fn reachable(addr: SocketAddr) -> String {
    let ip: IpAddr = match addr.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    format!("http://{}", SocketAddr::new(ip, addr.port()))
}

/// The anonymous MCP surface needs no token, so it accepts no caller from another machine.
fn for_this_machine(address: SocketAddr) -> Result<(), StartError> {
    if !address.ip().is_loopback() {
        return Err(StartError::AnonymousMcp { address });
    }
    tracing::warn!("callers without a token reach the anonymous MCP surface");
    Ok(())
}

/// Puts the policy of held calls into force. A name in it that nobody ever had is a slip of the pen, which would leave a
/// rule without effect; but where no agent was registered yet, the names are those to come.
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

/// Registers a human where there is none, as at the first start, and writes the token down. Later the file may
/// be elsewhere: a human who moved the token away from where agents could read it gets no second one.
async fn bootstrap(handle: &Handle, dir: &Path, renew: bool) -> Result<PathBuf, StartError> {
    let path = dir.join(FILE_OPERATOR_TOKEN);
    let failed = |source| StartError::File { path: path.clone(), source };
    let (operator, name) = handle.query(|live| (operator(live.state), free_name(live.state))).await?;
    if operator.is_some() && !renew {
        return Ok(path);
    }
    let token = Secret::token().map_err(failed)?;
    let input = match operator {
        Some((principal, agent)) => Input::Rekey(principal, agent, token.credential()),
        None => Input::Bootstrap(Registration {
            name: AgentName::new(&name).map_err(|e| failed(io::Error::other(e.to_string())))?,
            kind: Kind::Human,
            profile: Profile { actions: Vec::new(), groups: Vec::new(), turns_max: 0 },
            credential: token.credential(),
            role: None,
            key: None,
        }),
    };
    // The token before the fact: a crash between them leaves a file that the next start replaces.
    write_private(&path, format!("{}\n", token.reveal()).as_bytes()).map_err(failed)?;
    let reply = handle.submit(input).await?;
    if matches!(reply, Reply::Registered(_) | Reply::Done) {
        Ok(path)
    } else {
        Err(failed(io::Error::other(format!("the first human was not registered: {reply:?}"))))
    }
}

/// The name of a new first human: an agent may have taken the usual one since the last human was removed.
fn free_name(state: &State) -> String {
    let others = (2_u64..).map(|n| format!("{OPERATOR}-{n}"));
    std::iter::once(OPERATOR.to_owned()).chain(others).find(|name| state.live(name).is_none()).unwrap_or_default()
}

/// The workspace's first human. Who may read the data directory may act for that human: the log is theirs.
fn operator(state: &State) -> Option<(Principal, AgentId)> {
    let human = state.any_human();
    let held = state.credentials.iter().find(|(_, agent)| **agent == human)?;
    state.prove(held.0).filter(|p| p.is_human()).map(|principal| (principal, human))
}

/// Keeps the read model up with the log, on a thread of its own; ends when the broker does.
fn follow(
    (mut index, reader): (Index, Arc<dyn LogReader>),
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
            // What is left on a full disk is for the log.
            let full = disk.space() == DiskSpace::Full;
            let caught_up = if full { Ok(()) } else { index.catch_up(reader.as_ref(), &mut reached) };
            let room = match caught_up {
                Ok(()) => !full,
                Err(error) if error.is_full() => {
                    tracing::warn!(%error, "the read model waits for room on the disk");
                    false
                }
                Err(error) => {
                    // The log is untouched by it; audits say so, and the next start catches up.
                    tracing::error!(%error, "the read model no longer follows the log");
                    return;
                }
            };
            if news.is_err() {
                return;
            }
            if !room {
                if committed.has_changed().is_err() {
                    // The broker has ended: the next start catches up.
                    return;
                }
                thread::sleep(LOOK_EVERY);
                continue;
            }
            // Either way it goes on.
            let _hurried = wait.block_on(async { tokio::time::timeout(INDEX_PACE, hurry.notified()).await }).is_ok();
        }
    })
}
