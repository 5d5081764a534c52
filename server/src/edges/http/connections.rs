//! The open connections, by who uses them. What one agent or an unknown caller holds never keeps a human out (L4, H4).
//!
//! A connection is unproven until a request on it carries a valid token or session. Unproven connections have a small
//! share of their own, in which a new one replaces the oldest of the network that has most, and a short time to prove
//! themselves. Each agent has a share, all agents have one, and the rest is the humans'.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use lastword_broker::QUEUE_MAX;
use lastword_core::Principal;
use lastword_facts::ids::AgentId;
use lastword_facts::{Code, Refusal};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::answers::AnswerWindow;
use crate::calls::places::PLACES_MAX;
use crate::error::ApiError;

/// The most connections, however many descriptors there are. Each has one request at a time, so that all of them together,
/// with the calls of sessions, don't fill the broker's queue.
const CONNECTIONS_MAX: u64 = QUEUE_MAX as u64 - PLACES_MAX as u64;
/// The most sessions of agents beyond the connections. Their calls have [`PLACES_MAX`] places in the broker's queue.
const SESSIONS_MAX: u64 = 16_384;
/// The descriptors kept for the log, the read model and everything else that isn't a connection.
const DESCRIPTORS_KEPT: u64 = 128;
/// The most unproven connections.
const UNPROVEN_MAX: usize = 512;
/// The connections kept for humans.
const HUMANS_MAX: usize = 256;
/// The most connections of one agent.
const AGENT_MAX: usize = 512;
/// The most open event streams and sessions of one agent or human.
const STREAMS_MAX: usize = 64;
/// The most bytes of request bodies that are read for one agent or human at a time, and for all agents together.
const BODY_BYTES_MAX: usize = 16 << 20;
const BODY_BYTES_SUM_MAX: usize = 128 << 20;
/// A shorter body isn't counted: the number of connections bounds them.
const BODY_BYTES_FREE: usize = 16 << 10;
/// How long a caller should wait before it retries, in ms.
const RETRY_MS: u64 = 1_000;

/// All open connections.
#[derive(Clone)]
pub(super) struct Connections(Arc<Shared>);

struct Shared {
    table: Mutex<Table>,
    shares: Shares,
    /// The unread answers of all agents.
    answers: AnswerWindow,
    /// The tasks of the sessions.
    sessions: Mutex<JoinSet<()>>,
}

/// The most connections of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shares {
    unproven: usize,
    humans: usize,
    agents: usize,
    agent: usize,
    /// The sessions of agents that don't count as their connections.
    sessions: usize,
}

impl Shares {
    /// Returns the most connections of the humans of one workspace. Of several workspaces, one never has them all.
    const fn humans_of(&self, workspace: u32) -> usize {
        if workspace == 0 { self.humans } else { self.humans.div_ceil(2) }
    }
}

#[derive(Default)]
struct Table {
    next: u64,
    /// The unproven connections with their networks, oldest first.
    unproven: BTreeMap<u64, (IpAddr, Weak<Connection>)>,
    /// The number of unproven connections of each network that has any.
    networks: BTreeMap<IpAddr, usize>,
    owners: HashMap<OwnerKey, Usage>,
    agents: usize,
    /// How many of the agents' connections are sessions beyond their share.
    sessions: usize,
    /// The connections of humans, by workspace.
    humans: BTreeMap<u32, usize>,
    body_bytes: usize,
}

/// What one agent or human holds.
#[derive(Clone, Debug)]
struct Usage {
    connections: usize,
    streams: usize,
    body_bytes: usize,
    answers: AnswerWindow,
}

impl Default for Usage {
    fn default() -> Self {
        Self { connections: 0, streams: 0, body_bytes: 0, answers: AnswerWindow::of_caller() }
    }
}

/// One connection, for the requests on it in one workspace.
#[derive(Clone)]
pub struct Peer {
    connection: Arc<Connection>,
    workspace: u32,
}

/// The number of a workspace, and an agent or human in it.
type OwnerKey = (u32, AgentId);

struct Connection {
    all: Arc<Shared>,
    id: u64,
    address: IpAddr,
    owner: OnceLock<Owner>,
    evicted: Notify,
    /// Whether it is one of the sessions beyond the agents' share.
    session: AtomicBool,
}

/// Whose connection it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// An agent's or a human's.
    Caller { key: OwnerKey, human: bool },
    /// That of a relay: another server that passes requests on, each of which counts as its caller's.
    Relay,
}

/// An open event stream; dropping it gives its place back.
pub struct StreamPermit(Peer);

/// An open session; dropping it gives its place back.
pub(crate) struct SessionPermit(#[expect(dead_code, reason = "it is held")] StreamPermit);

/// The bytes of a request body that is read; dropping it gives them back.
pub(crate) struct BodyPermit(Peer, usize);

impl Shares {
    /// Divides the connections that these descriptors allow.
    fn of(descriptors: u64) -> Self {
        let all = descriptors.saturating_sub(DESCRIPTORS_KEPT).clamp(16, CONNECTIONS_MAX);
        let sessions = descriptors.saturating_sub(DESCRIPTORS_KEPT + all).min(SESSIONS_MAX);
        let [all, sessions] = [all, sessions].map(|share| usize::try_from(share).unwrap_or(usize::MAX));
        let (unproven, humans) = (UNPROVEN_MAX.min(all / 4), HUMANS_MAX.min(all / 4));
        let agents = all - unproven - humans;
        Self { unproven, humans, agents, agent: AGENT_MAX.min(agents / 2), sessions }
    }
}

impl Connections {
    /// Raises the process's limit of descriptors as far as it may, and divides them.
    pub(super) fn new() -> Self {
        Self::sharing(Shares::of(descriptors()))
    }

    fn sharing(shares: Shares) -> Self {
        Self(Arc::new(Shared {
            table: Mutex::default(),
            shares,
            answers: AnswerWindow::of_agents(),
            sessions: Mutex::default(),
        }))
    }

    /// Waits until every session has ended.
    pub(super) async fn end(&self) {
        let mut sessions = std::mem::take(&mut *self.0.sessions.lock().unwrap_or_else(PoisonError::into_inner));
        while sessions.join_next().await.is_some() {}
    }

    /// Enters a new connection from this address. If too many are unproven, one ends: the oldest of the network that has
    /// most of them, so that a flood from one network doesn't end the connections of others.
    pub(super) fn enter(&self, address: IpAddr) -> Peer {
        let mut table = self.0.lock();
        let id = table.next;
        table.next += 1;
        let (all, owner, evicted, session) =
            (Arc::clone(&self.0), OnceLock::new(), Notify::new(), AtomicBool::new(false));
        let connection = Connection { all, id, address, owner, evicted, session };
        let peer = Peer { connection: Arc::new(connection), workspace: 0 };
        let network = network(address);
        table.unproven.insert(id, (network, Arc::downgrade(&peer.connection)));
        *table.networks.entry(network).or_default() += 1;
        let oldest = if table.unproven.len() > self.0.shares.unproven { table.evict() } else { None };
        // Before the upgrade: dropping the last reference to a connection takes the lock.
        drop(table);
        if let Some(oldest) = oldest.and_then(|oldest| oldest.upgrade()) {
            oldest.evicted.notify_one();
        }
        peer
    }
}

impl Table {
    /// Removes the oldest unproven connection of the network that has most of them.
    fn evict(&mut self) -> Option<Weak<Connection>> {
        let (most, _) = self.networks.iter().max_by_key(|(_, count)| **count)?;
        let (id, _) = self.unproven.iter().find(|(_, (network, _))| network == most)?;
        self.remove_unproven(*id)
    }

    /// Removes a connection from the unproven ones, if it is there.
    fn remove_unproven(&mut self, id: u64) -> Option<Weak<Connection>> {
        let (network, connection) = self.unproven.remove(&id)?;
        if let Some(count) = self.networks.get_mut(&network) {
            *count -= 1;
            if *count == 0 {
                self.networks.remove(&network);
            }
        }
        Some(connection)
    }
}

/// Returns what stands for the network of an address: one subscriber has at least 2^64 addresses of IPv6.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => (address & Ipv6Addr::from_bits(!0 << 64)).into(),
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peer {
    /// Counts the connection as the caller's from its first request on. A later caller on the same connection, as behind
    /// a proxy, doesn't change that.
    pub(crate) fn prove(&self, caller: Principal) -> Result<(), ApiError> {
        self.count((self.workspace, caller.agent()), caller.is_human())
    }

    fn count(&self, key: OwnerKey, human: bool) -> Result<(), ApiError> {
        if self.connection.owner.get().is_some() {
            return Ok(());
        }
        let shares = self.connection.all.shares;
        let mut table = self.connection.all.lock();
        let Table { owners, agents, sessions, humans, .. } = &mut *table;
        let mut usage = owners.get(&key).cloned().unwrap_or_default();
        let of_workspace = humans.get(&key.0).copied().unwrap_or_default();
        let full = if human && of_workspace >= shares.humans_of(key.0) {
            Some(("connections of all humans of this workspace", shares.humans_of(key.0)))
        } else if human {
            (humans.values().sum::<usize>() >= shares.humans).then_some(("connections of all humans", shares.humans))
        } else if usage.connections >= shares.agent {
            Some(("connections of this agent", shares.agent))
        } else {
            (*agents - *sessions >= shares.agents).then_some(("connections of all agents", shares.agents))
        };
        if let Some((what, max)) = full {
            return Err(saturated(what, max));
        }
        // Another request on this connection can't have proven it meanwhile: HTTP/1.1 has one at a time.
        if self.connection.owner.set(Owner::Caller { key, human }).is_ok() {
            usage.connections += 1;
            owners.insert(key, usage);
            *(if human { humans.entry(key.0).or_default() } else { agents }) += 1;
            // A newer connection may have taken its place among them, which ends it only while it is unproven.
            table.remove_unproven(self.connection.id);
        }
        Ok(())
    }

    /// Returns the same connection for requests in another workspace, by its number.
    #[must_use]
    pub fn within(&self, workspace: u32) -> Self {
        Self { connection: Arc::clone(&self.connection), workspace }
    }

    /// Returns a place among the connections for one request that a relay passes on for this address. The connection
    /// itself becomes the relay's.
    #[must_use]
    pub fn on_behalf_of(&self, address: IpAddr, workspace: u32) -> Self {
        if self.connection.owner.set(Owner::Relay).is_ok() {
            self.connection.all.lock().remove_unproven(self.connection.id);
        }
        Connections(Arc::clone(&self.connection.all)).enter(address).within(workspace)
    }

    /// Returns whose it is, for the relay that passed the request on: `agent 3` or `human 1`.
    #[must_use]
    pub fn proof(&self) -> Option<String> {
        match self.connection.owner.get()? {
            Owner::Caller { key: (_, agent), human } => {
                Some(format!("{} {}", if *human { "human" } else { "agent" }, agent.0))
            }
            Owner::Relay => None,
        }
    }

    /// Counts the connection as the caller's that another server proved: the text that [`Peer::proof`] returned there. If the
    /// caller's share is full, the connection stays unproven and ends soon: its call was answered.
    pub fn prove_by(&self, proof: &str) {
        let Some((kind, id)) = proof.split_once(' ') else { return };
        if let Ok(id) = id.parse()
            && let Err(full) = self.count((self.workspace, AgentId(id)), kind == "human")
        {
            tracing::debug!(?full, "a connection through this relay");
        }
    }

    /// Returns the address at its other end.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.connection.address
    }

    /// Returns whether a request on it had a valid token or session.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        self.connection.owner.get().is_some()
    }

    /// Waits until this connection has to make room for another, unless it proves itself.
    pub async fn evicted(&self) {
        self.connection.evicted.notified().await;
    }

    /// Opens an event stream.
    pub fn stream(&self) -> Result<StreamPermit, ApiError> {
        let mut table = self.connection.all.lock();
        if let Some(usage) = self.usage(&mut table) {
            if usage.streams >= STREAMS_MAX {
                return Err(saturated("event streams of this caller", STREAMS_MAX));
            }
            usage.streams += 1;
        }
        Ok(StreamPermit(self.clone()))
    }

    /// Turns the connection into a session. While there is room for it, it no longer counts as one of the agents'
    /// connections.
    pub(crate) fn session(&self) -> Result<SessionPermit, ApiError> {
        let permit = self.stream()?;
        let mut table = self.connection.all.lock();
        let agent = self.connection.owner.get().is_some_and(|owner| owner.is_agent());
        if agent
            && table.sessions < self.connection.all.shares.sessions
            && !self.connection.session.swap(true, Ordering::AcqRel)
        {
            table.sessions += 1;
        }
        drop(table);
        Ok(SessionPermit(permit))
    }

    /// Runs the session of this connection as one of the listener's tasks.
    pub fn own(&self, session: impl Future<Output = ()> + Send + 'static) {
        let mut sessions = self.connection.all.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        while sessions.try_join_next().is_some() {}
        sessions.spawn(session);
    }

    /// Returns whether a body of this length needs room.
    pub(crate) const fn is_long(bytes: usize) -> bool {
        bytes > BODY_BYTES_FREE
    }

    /// Reserves memory for a request body of at most this many bytes.
    pub(crate) fn body(&self, bytes: usize) -> Result<BodyPermit, ApiError> {
        let bytes = if Self::is_long(bytes) { bytes } else { 0 };
        if bytes > 0 {
            let mut table = self.connection.all.lock();
            let agent = self.connection.owner.get().is_some_and(|owner| owner.is_agent());
            if agent && table.body_bytes + bytes > BODY_BYTES_SUM_MAX {
                return Err(saturated("bytes of request bodies of all agents", BODY_BYTES_SUM_MAX));
            }
            let too_large = || Refusal::new(Code::TooLarge).about("a request without a token");
            let numbers = (BODY_BYTES_FREE as u64, bytes as u64);
            let usage = self.usage(&mut table).ok_or_else(|| too_large().numbers(numbers.0, numbers.1))?;
            if usage.body_bytes + bytes > BODY_BYTES_MAX {
                return Err(saturated("bytes of request bodies of this caller", BODY_BYTES_MAX));
            }
            usage.body_bytes += bytes;
            if agent {
                table.body_bytes += bytes;
            }
        }
        Ok(BodyPermit(self.clone(), bytes))
    }

    /// Returns the windows of answers to this caller: its own, and for an agent that of all agents.
    pub(super) fn answers(&self) -> Option<Vec<AnswerWindow>> {
        let own = self.usage(&mut self.connection.all.lock())?.answers.clone();
        let agent = self.connection.owner.get().is_some_and(|owner| owner.is_agent());
        Some(std::iter::once(own).chain(agent.then(|| self.connection.all.answers.clone())).collect())
    }

    fn usage<'a>(&self, table: &'a mut Table) -> Option<&'a mut Usage> {
        table.owners.get_mut(&self.connection.owner.get()?.key()?)
    }
}

impl Owner {
    const fn key(&self) -> Option<OwnerKey> {
        match self {
            Self::Caller { key, .. } => Some(*key),
            Self::Relay => None,
        }
    }

    const fn is_agent(&self) -> bool {
        matches!(self, Self::Caller { human: false, .. })
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        if let Some(usage) = self.0.usage(&mut self.0.connection.all.lock()) {
            usage.streams = usage.streams.saturating_sub(1);
        }
    }
}

impl Drop for BodyPermit {
    fn drop(&mut self) {
        if self.1 == 0 {
            return;
        }
        let mut table = self.0.connection.all.lock();
        if let Some(usage) = self.0.usage(&mut table) {
            usage.body_bytes = usage.body_bytes.saturating_sub(self.1);
        }
        if self.0.connection.owner.get().is_some_and(|owner| owner.is_agent()) {
            table.body_bytes = table.body_bytes.saturating_sub(self.1);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut table = self.all.lock();
        let (key, human) = match self.owner.get() {
            None => {
                table.remove_unproven(self.id);
                return;
            }
            Some(Owner::Relay) => return,
            Some(Owner::Caller { key, human }) => (key, *human),
        };
        if self.session.load(Ordering::Acquire) {
            table.sessions = table.sessions.saturating_sub(1);
        }
        let Table { owners, agents, humans, .. } = &mut *table;
        let count = if human { humans.entry(key.0).or_default() } else { agents };
        *count = count.saturating_sub(1);
        if humans.get(&key.0) == Some(&0) {
            humans.remove(&key.0);
        }
        if let Some(usage) = owners.get_mut(key) {
            usage.connections = usage.connections.saturating_sub(1);
            if usage.connections == 0 {
                owners.remove(key);
            }
        }
    }
}

pub(super) fn saturated(what: &str, max: usize) -> ApiError {
    let max = max as u64;
    Refusal::new(Code::Saturated).about(what).numbers(max, max + 1).retry_after(RETRY_MS).into()
}

/// Raises the soft limit of open files to the hard one, and returns it.
fn descriptors() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum.unwrap_or(u64::MAX),
        Err(error) => {
            tracing::debug!(%error, "the limit of open files stays as it is");
            limit.current.unwrap_or(u64::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use lastword_core::input::Registration;
    use lastword_core::{Input, Out};
    use lastword_facts::Time;
    use lastword_facts::fact::{Kind, Profile};
    use lastword_facts::names::AgentName;

    use super::*;

    fn shares() -> Shares {
        Shares { unproven: 2, humans: 1, agents: 3, agent: 2, sessions: 0 }
    }

    #[test]
    fn descriptors_are_divided_with_a_share_for_humans() {
        let few = Shares::of(1_024);
        assert_eq!(few, Shares { unproven: 224, humans: 224, agents: 448, agent: 224, sessions: 0 });
        let many = Shares::of(1 << 20);
        assert_eq!(many, Shares { unproven: 512, humans: 256, agents: 7_424, agent: 512, sessions: 16_384 });
        assert!(Shares::of(0).humans > 0);
    }

    fn is_evicted(peer: &Peer) -> bool {
        futures_util::FutureExt::now_or_never(peer.evicted()).is_some()
    }

    #[test]
    fn an_address_that_opens_many_connections_pushes_out_its_own() {
        let all = Connections::sharing(Shares { unproven: 4, ..shares() });
        let human = all.enter(IpAddr::from([10, 0, 0, 1]));
        let flood: Vec<Peer> = (0..100).map(|_| all.enter(IpAddr::from([10, 0, 0, 2]))).collect();
        assert!(!is_evicted(&human));
        assert_eq!(flood.iter().filter(|peer| is_evicted(peer)).count(), 97);
        assert!(flood[97..].iter().all(|peer| !is_evicted(peer)), "the oldest go first");
        drop((human, flood));
        assert!(all.0.lock().unproven.is_empty());
    }

    #[test]
    fn a_connection_that_proves_itself_stays_though_a_newer_one_took_its_place() {
        let token = [7; 32];
        let mut core = lastword_core::Core::default();
        let human = Input::Bootstrap(Registration {
            name: AgentName::new("operator").unwrap(),
            kind: Kind::Human,
            profile: Profile { actions: Vec::new(), groups: Vec::new(), turns_max: 0 },
            credential: token,
            role: None,
            display_name: None,
            key: None,
        });
        core.handle(Time(1), human, &mut Out::default());
        let human = core.state().prove(&token).unwrap();
        let all = Connections::sharing(shares());
        let peers = [(); 3].map(|()| all.enter(IpAddr::from([127, 0, 0, 1])));
        assert!(peers[0].prove(human).is_ok() && peers[0].is_proven());
        assert!(peers[1].prove(human).is_err(), "the humans' share is as full as it may be");
    }

    #[test]
    fn humans_of_one_workspace_leave_connections_to_those_of_another() {
        let all = Connections::sharing(Shares { unproven: 9, humans: 4, ..shares() });
        let prove = |workspace: u32, human: u32| {
            let mut peer = all.enter(IpAddr::from([127, 0, 0, 1]));
            peer.workspace = workspace;
            peer.count((workspace, AgentId(human)), true).map(|()| peer)
        };
        let held: Vec<_> = (0..2).map(|human| prove(1, human).unwrap()).collect();
        assert!(prove(1, 9).is_err());
        let others: Vec<_> = (0..2).map(|human| prove(2, human).unwrap()).collect();
        assert!(prove(3, 0).is_err(), "there are no more");
        drop(others);
        assert!(prove(3, 0).is_ok() && prove(1, 9).is_err());
        drop(held);
        assert!(prove(1, 9).is_ok());
        let alone: Vec<_> = (0..4).map(|human| prove(0, human).unwrap()).collect();
        assert_eq!(alone.len(), 4, "a server with one workspace has them all");
    }

    #[test]
    fn the_oldest_unproven_connection_makes_room_for_a_new_one() {
        let all = Connections::sharing(shares());
        let peers = [(); 3].map(|()| all.enter(IpAddr::from([127, 0, 0, 1])));
        assert_eq!(peers.each_ref().map(is_evicted), [true, false, false]);
        drop(peers);
        assert!(all.0.lock().unproven.is_empty());
    }
}
