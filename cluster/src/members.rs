//! What a node knows of the others, and what follows from it: who is alive, and who should lead which workspace. Pure: the
//! caller passes the records and the time in.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lastword_facts::Time;
use lastword_store::Record;
use serde::{Deserialize, Serialize};

use crate::placement::order;
use crate::rest::{Rest, RestClock, Rested};

/// How often a node says that it is alive.
pub(crate) const RENEW_EVERY: Duration = Duration::from_secs(1);
/// A node that has not said so for this long, by its own clock, serves nothing.
pub(crate) const SERVE_MAX: Duration = Duration::from_secs(2);
/// A node of which the others have not heard for this long, by theirs, is dead. Longer than [`SERVE_MAX`], so that no two
/// nodes serve a workspace at a time. Only availability rests on it: an old leader's writes are refused by the log.
pub(crate) const DEAD_AFTER: Duration = Duration::from_secs(3);
/// A node that was silent for this long is forgotten, until it is heard of again.
const FORGET_AFTER: Duration = Duration::from_secs(600);
/// The pause between one candidate and the next.
const RANK_PAUSE: Duration = Duration::from_secs(1);
/// How long a node waits for the others at its start, before it leads a workspace that nobody has led.
const SETTLE: Duration = Duration::from_secs(2);
/// How long the nodes must have been the same before a workspace moves to one that should lead it.
const STEADY: Duration = Duration::from_secs(5);
/// The time after [`STEADY`] in which leaders hand workspaces over.
const HAND_OVER_ROOM: Duration = Duration::from_secs(1);

pub(crate) const NODE: &str = "node.";
const LEASE: &str = "lease.";
const WORKSPACE: &str = "workspace.";
const ARCHIVE: &str = "archive.";
const CONFIG: &str = "config.";
/// The records that a view is made of. Most of the registry are the files of workspaces, which only a leader reads.
pub(crate) const WATCHED: [&str; 5] = [NODE, LEASE, WORKSPACE, ARCHIVE, CONFIG];

/// What a node says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeInfo {
    /// Drawn at each start of the program: tells a node from an earlier run of it.
    pub session: String,
    /// Its address for the other nodes: `http://10.0.0.1:7171`.
    pub url: String,
    /// The SHA-256 of its certificate, as `sha256:HEX`; without it, its certificate is verified by the system's roots.
    #[serde(default)]
    pub pin: Option<String>,
    /// The version of the program.
    pub version: String,
    /// The workspaces that it can't lead now: it fails to follow them, or is far behind.
    #[serde(default)]
    pub unfit: Vec<String>,
    /// Whether it is about to end, and leads nothing from here on.
    #[serde(default)]
    pub leaving: bool,
    /// Whether it proves at its address that it is this node; no earlier version does.
    #[serde(default)]
    pub proves: bool,
    /// The nodes that it doesn't reach at theirs.
    #[serde(default)]
    pub unreached: Vec<String>,
    /// Whether it leaves a workspace alone that is at rest; no earlier version does.
    #[serde(default)]
    pub rests: bool,
}

/// Who leads a workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRecord {
    /// The node.
    pub node: String,
    /// Its session.
    pub session: String,
    /// Whether it has stopped leading.
    pub released: bool,
    /// The node that should lead next; only after a release.
    pub next: Option<String>,
    /// The workspace is at rest; only after a release. Earlier versions don't know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest: Option<Rest>,
    /// When its last rest began. What a log doesn't tell: time has passed since its last fact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rested: Option<Rested>,
}

/// A lease as it was read.
#[derive(Clone, Debug)]
struct HeldLease {
    lease: LeaseRecord,
    /// The revision at which it was won or released.
    revision: u64,
    since: Duration,
    /// How long ago the last rest began.
    rest_clock: Option<RestClock>,
}

#[derive(Clone, Debug)]
struct SeenNode {
    info: NodeInfo,
    at: Duration,
    revision: u64,
}

/// What a node knows of its cluster. Times are since the program's start.
#[derive(Clone, Debug)]
pub(crate) struct ClusterView {
    me: String,
    /// When this node's own record came back last.
    heard_itself: Option<Duration>,
    nodes: BTreeMap<String, SeenNode>,
    leases: BTreeMap<String, HeldLease>,
    workspaces: BTreeMap<String, KnownWorkspace>,
    /// Those that aren't at rest.
    awake: BTreeSet<String>,
    /// When those at rest have something due, in order and by name.
    due: BTreeSet<(Duration, String)>,
    due_of: BTreeMap<String, Duration>,
    /// The number of the workspace that was heard of last: they count from 1, for 0 is that of a server with one workspace.
    numbered: u32,
    /// The revision of each workspace's newest hint that a part of its log left the stream.
    archives: BTreeMap<String, u64>,
    /// The configuration of each workspace that has one of its own.
    configs: BTreeMap<String, WorkspaceConfig>,
    /// The nodes that were alive at the last look.
    alive: Vec<String>,
    /// When they were first seen alive together.
    alive_since: Duration,
}

/// What a workspace is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WorkspaceRecord {
    /// The stream that it was made with; `None` in records of earlier versions.
    #[serde(default)]
    pub(crate) stream_id: Option<String>,
    /// Whether the registry knew an earlier workspace of its name, which was removed.
    #[serde(default)]
    pub(crate) again: bool,
}

/// A workspace that is registered.
#[derive(Clone, Debug)]
struct KnownWorkspace {
    record: WorkspaceRecord,
    /// Its number on this node.
    number: u32,
    /// The number of the write.
    revision: u64,
}

/// The configuration of a workspace, as it was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WorkspaceConfig {
    /// The number of the write; 0 for a workspace that has none of its own.
    pub(crate) revision: u64,
    /// Its text.
    pub(crate) text: Option<String>,
}

/// The leader of a workspace, for who passes a call on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leader {
    pub(crate) node: String,
    pub(crate) info: NodeInfo,
    pub(crate) epoch: u64,
}

pub(crate) fn node_key(node: &str) -> String {
    format!("{NODE}{node}")
}

pub(crate) fn lease_key(workspace: &str) -> String {
    format!("{LEASE}{workspace}")
}

pub(crate) fn workspace_key(workspace: &str) -> String {
    format!("{WORKSPACE}{workspace}")
}

pub(crate) fn config_key(workspace: &str) -> String {
    format!("{CONFIG}{workspace}")
}

/// The key of what a human set aside of a workspace's stream.
pub(crate) fn aside_key(workspace: &str) -> String {
    format!("aside.{workspace}")
}

pub(crate) fn archive_key(workspace: &str) -> String {
    format!("{ARCHIVE}{workspace}")
}

/// Returns the workspace that a record is of.
pub(crate) fn workspace_of(key: &str) -> Option<&str> {
    [LEASE, WORKSPACE, CONFIG].into_iter().find_map(|prefix| key.strip_prefix(prefix))
}

fn parse<T: for<'a> Deserialize<'a>>(record: &Record) -> Option<T> {
    record.value.as_deref().and_then(|value| serde_json::from_slice(value).ok())
}

impl ClusterView {
    pub(crate) fn new(me: &str) -> Self {
        let me = me.to_owned();
        let (nodes, leases) = (BTreeMap::new(), BTreeMap::new());
        let (workspaces, archives, configs) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (awake, due, due_of) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
        let (alive, alive_since) = (Vec::new(), Duration::ZERO);
        Self {
            me,
            heard_itself: None,
            nodes,
            leases,
            workspaces,
            awake,
            due,
            due_of,
            numbered: 0,
            archives,
            configs,
            alive,
            alive_since,
        }
    }

    /// Takes a record of the registry in; `wall` is this machine's wall clock. Returns whether it says more than that a node is
    /// still alive.
    pub(crate) fn apply(&mut self, record: &Record, now: Duration, wall: Time) -> bool {
        let news = self.take(record, now, wall);
        if let Some(workspace) = workspace_of(&record.key) {
            self.sort(workspace, now);
        }
        news
    }

    fn take(&mut self, record: &Record, now: Duration, wall: Time) -> bool {
        let (key, revision) = (record.key.as_str(), record.revision);
        if let Some(node) = key.strip_prefix(NODE) {
            let known = self.nodes.get(node).is_some_and(|seen| seen.revision >= revision);
            match parse::<NodeInfo>(record) {
                // The same record, read once more, is no sign of life.
                Some(_) if known => return false,
                Some(info) => {
                    if node == self.me {
                        self.heard_itself = Some(now);
                    }
                    let same = self.nodes.get(node).is_some_and(|seen| seen.info == info);
                    self.nodes.insert(node.to_owned(), SeenNode { info, at: now, revision });
                    return !same;
                }
                None => drop(self.nodes.remove(node)),
            }
        } else if let Some(workspace) = key.strip_prefix(LEASE) {
            let known = self.leases.get(workspace).is_some_and(|held| held.revision >= revision);
            match parse::<LeaseRecord>(record) {
                Some(_) if known => return false,
                Some(lease) => {
                    let rest_clock = self.rest_clock(workspace, lease.rested, now, wall);
                    self.leases.insert(workspace.to_owned(), HeldLease { lease, revision, since: now, rest_clock });
                }
                None => drop(self.leases.remove(workspace)),
            }
        } else if let Some(workspace) = key.strip_prefix(WORKSPACE) {
            let value = parse(record).unwrap_or_default();
            match (&record.value, self.workspaces.get_mut(workspace)) {
                // A node that starts reads thousands of these twice.
                (Some(_), Some(known)) if known.revision >= revision => return false,
                (Some(_), Some(known)) => (known.record, known.revision) = (value, revision),
                (Some(_), None) => {
                    self.numbered += 1;
                    let known = KnownWorkspace { record: value, number: self.numbered, revision };
                    self.workspaces.insert(workspace.to_owned(), known);
                }
                (None, _) => drop(self.workspaces.remove(workspace)),
            }
        } else if let Some(workspace) = key.strip_prefix(ARCHIVE) {
            self.archives.insert(workspace.to_owned(), revision);
        } else if let Some(workspace) = key.strip_prefix(CONFIG) {
            let text = record.value.as_ref().map(|text| String::from_utf8_lossy(text).into_owned());
            self.configs.insert(workspace.to_owned(), WorkspaceConfig { revision, text });
        }
        true
    }

    /// Returns how long ago this rest began: as it was already known, else by the wall clock, but not longer ago than this
    /// node heard of the others, for clocks differ.
    fn rest_clock(&self, workspace: &str, rested: Option<Rested>, now: Duration, wall: Time) -> Option<RestClock> {
        let rested = rested?;
        let before = self.leases.get(workspace).filter(|held| held.lease.rested == Some(rested));
        let unheard = self.heard_itself.map_or(Duration::MAX, |at| now.saturating_sub(at));
        let by_wall = Duration::from_millis(wall.0.saturating_sub(rested.since));
        let begun = || RestClock { seen: now, age: by_wall.min(unheard) };
        Some(before.and_then(|held| held.rest_clock).unwrap_or_else(begun))
    }

    /// Enters a workspace among those that are awake, or among those that have something due.
    fn sort(&mut self, workspace: &str, now: Duration) {
        if let Some(at) = self.due_of.remove(workspace) {
            self.due.remove(&(at, workspace.to_owned()));
        }
        if !self.has(workspace) {
            self.awake.remove(workspace);
            return;
        }
        let held = self.leases.get(workspace);
        let Some((rest, held)) = held.and_then(|held| Some((held.lease.rest.as_ref()?, held))) else {
            self.awake.insert(workspace.to_owned());
            return;
        };
        let at = if rest.config == self.configs.get(workspace).map_or(0, |config| config.revision) {
            let lasts = rest.lasts_ms.map(Duration::from_millis);
            lasts.zip(held.rest_clock).map(|(lasts, clock)| clock.after(lasts))
        } else {
            Some(now)
        };
        self.awake.remove(workspace);
        if let Some(at) = at {
            self.due.insert((at, workspace.to_owned()));
            self.due_of.insert(workspace.to_owned(), at);
        }
    }

    /// Notes which nodes are alive, and since when these ones: a workspace moves only after [`STEADY`].
    pub(crate) fn look(&mut self, now: Duration) {
        let alive: Vec<String> = self.alive(now).map(str::to_owned).collect();
        if alive != self.alive {
            (self.alive, self.alive_since) = (alive, now);
        }
    }

    /// Returns whether every workspace has a leader that is the right one, and nothing will change that but a record or
    /// a death.
    pub(crate) fn is_settled(&self, now: Duration) -> bool {
        let led = |workspace: &String| self.leases.get(workspace).is_some_and(|held| self.holds(held, now));
        now.saturating_sub(self.alive_since) > STEADY + HAND_OVER_ROOM && self.awake.iter().all(led)
    }

    /// Returns whether all nodes that are alive leave a workspace at rest alone.
    pub(crate) fn may_rest(&self, now: Duration) -> bool {
        self.alive(now).all(|node| self.nodes.get(node).is_some_and(|seen| seen.info.rests))
    }

    /// Returns the rest of a workspace that is at rest.
    pub(crate) fn rest(&self, workspace: &str) -> Option<&Rest> {
        self.leases.get(workspace).filter(|_| self.has(workspace))?.lease.rest.as_ref()
    }

    /// Returns whether a workspace needs a node that leads it, and others that follow.
    pub(crate) fn is_awake(&self, workspace: &str) -> bool {
        self.awake.contains(workspace)
    }

    /// Returns the number of workspaces at rest.
    pub(crate) fn resting(&self) -> usize {
        self.workspaces.len() - self.awake.len()
    }

    /// Returns when the last rest of a workspace began, and the broker's time now if nothing was recorded since.
    pub(crate) fn rested(&self, workspace: &str, now: Duration) -> Option<(Rested, Time)> {
        let held = self.leases.get(workspace)?;
        let (rested, clock) = (held.lease.rested?, held.rest_clock?);
        let passed = u64::try_from(clock.age(now).as_millis()).unwrap_or(u64::MAX);
        Some((rested, Time(rested.at.saturating_add(passed))))
    }

    /// Returns the workspaces at rest that this node should wake now, at most `max`: the first in order, the next ones later.
    pub(crate) fn due(&self, now: Duration, max: usize) -> Vec<String> {
        let mine = |(at, workspace): &&(Duration, String)| {
            let rank = self.ranks(workspace, now).iter().position(|node| *node == self.me);
            rank.and_then(|rank| u32::try_from(rank).ok()).is_some_and(|rank| now >= *at + RANK_PAUSE * rank)
        };
        let over = self.due.iter().take_while(|(at, _)| *at <= now);
        over.filter(mine).take(max).map(|(_, workspace)| workspace.clone()).collect()
    }

    /// Returns the lease that wakes a workspace at rest, and the revision that it replaces: for the node that led it last,
    /// which has its files, or else the first in order.
    pub(crate) fn wake(&self, workspace: &str, now: Duration) -> Option<(u64, LeaseRecord)> {
        let held = self.leases.get(workspace).filter(|held| self.has(workspace) && held.lease.rest.is_some())?;
        let order = self.ranks(workspace, now);
        let last = order.iter().find(|node| **node == held.lease.node);
        let next = last.or_else(|| order.first()).map(|node| (*node).to_owned())?;
        Some((held.revision, LeaseRecord { next: Some(next), rest: None, ..held.lease.clone() }))
    }

    /// Counts the silence of the others from now on: this node was itself cut off.
    pub(crate) fn hear_anew(&mut self, now: Duration) {
        self.nodes.values_mut().for_each(|seen| seen.at = now);
    }

    fn alive(&self, now: Duration) -> impl Iterator<Item = &str> {
        let heard = move |seen: &SeenNode| now.saturating_sub(seen.at) < DEAD_AFTER;
        self.nodes.iter().filter(move |(_, seen)| heard(seen)).map(|(node, _)| node.as_str())
    }

    /// Returns the nodes that are gone for good, each with the revision of its record, for the first of the living to remove.
    pub(crate) fn expired(&self, now: Duration) -> Vec<(String, u64)> {
        if self.alive(now).next() != Some(self.me.as_str()) {
            return Vec::new();
        }
        let gone = |seen: &SeenNode| now.saturating_sub(seen.at) >= FORGET_AFTER;
        self.nodes.iter().filter(|(_, seen)| gone(seen)).map(|(node, seen)| (node.clone(), seen.revision)).collect()
    }

    /// Returns the nodes that say of a node that they don't reach it at its address.
    pub(crate) fn unreached_by(&self, node: &str, now: Duration) -> impl Iterator<Item = &str> {
        let says =
            move |other: &&str| self.nodes.get(*other).is_some_and(|it| it.info.unreached.iter().any(|n| n == node));
        self.alive(now).filter(says)
    }

    /// Returns whether the others can pass calls on to a node: not more than half of them say that they don't reach it.
    fn is_reached(&self, node: &str, now: Duration) -> bool {
        let others = self.alive(now).filter(|other| *other != node).count();
        2 * self.unreached_by(node, now).count() <= others
    }

    /// Returns the nodes in the order in which they should lead a workspace: those that are alive, stay, are reached and can,
    /// and if none can, all that are alive and stay.
    fn ranks(&self, workspace: &str, now: Duration) -> Vec<&str> {
        let says = |node: &str, what: &dyn Fn(&NodeInfo) -> bool| self.nodes.get(node).is_some_and(|it| what(&it.info));
        let fit = |node: &&str| says(node, &|info| !info.unfit.iter().any(|unfit| unfit == workspace));
        let staying = || self.alive(now).filter(|node| says(node, &|info| !info.leaving));
        let able = order(workspace, staying().filter(fit).filter(|node| self.is_reached(node, now)));
        if able.is_empty() { order(workspace, staying()) } else { able }
    }

    /// Returns whether this node's own record came back, and says that it is about to end.
    pub(crate) fn says_leaving(&self) -> bool {
        self.nodes.get(&self.me).is_some_and(|seen| seen.info.leaving)
    }

    /// Returns whether this node's own record came back from the registry just now: it hears what the others say.
    pub(crate) fn hears(&self, now: Duration) -> bool {
        self.heard_itself.is_some_and(|at| now.saturating_sub(at) < SERVE_MAX)
    }

    /// Returns the number of a workspace on this node; 0 if there is none.
    pub(crate) fn number(&self, workspace: &str) -> u32 {
        self.workspaces.get(workspace).map_or(0, |known| known.number)
    }

    /// Returns whether there is such a workspace.
    pub(crate) fn has(&self, workspace: &str) -> bool {
        self.workspaces.contains_key(workspace)
    }

    /// Returns the stream that a workspace was made with.
    pub(crate) fn stream_id(&self, workspace: &str) -> Option<String> {
        self.workspaces.get(workspace)?.record.stream_id.clone()
    }

    /// Returns whether a log of another stream of its name is of a workspace that was removed.
    pub(crate) fn is_again(&self, workspace: &str) -> bool {
        self.workspaces.get(workspace).is_some_and(|known| known.record.again)
    }

    /// Returns the number of the newest hint that a part of the workspace's log left the stream; 0 if none ever did.
    pub(crate) fn archived(&self, workspace: &str) -> u64 {
        self.archives.get(workspace).copied().unwrap_or_default()
    }

    /// Returns the configuration of a workspace.
    pub(crate) fn config(&self, workspace: &str) -> WorkspaceConfig {
        self.configs.get(workspace).cloned().unwrap_or_default()
    }

    /// Returns the nodes, and whether each is alive.
    pub(crate) fn nodes(&self, now: Duration) -> impl Iterator<Item = (&str, &NodeInfo, bool)> {
        let heard = move |seen: &SeenNode| now.saturating_sub(seen.at) < DEAD_AFTER;
        self.nodes.iter().map(move |(node, seen)| (node.as_str(), &seen.info, heard(seen)))
    }

    /// Returns who leads a workspace, if that node lives.
    pub(crate) fn leader(&self, workspace: &str, now: Duration) -> Option<Leader> {
        let held = self.leases.get(workspace).filter(|held| self.holds(held, now))?;
        let info = self.nodes.get(&held.lease.node)?.info.clone();
        Some(Leader { node: held.lease.node.clone(), info, epoch: held.revision })
    }

    fn holds(&self, held: &HeldLease, now: Duration) -> bool {
        let HeldLease { lease, .. } = held;
        let lives = |seen: &SeenNode| seen.info.session == lease.session && now.saturating_sub(seen.at) < DEAD_AFTER;
        !lease.released && self.nodes.get(&lease.node).is_some_and(lives)
    }

    /// Returns whether the lease of this revision was taken from its holder.
    pub(crate) fn lost(&self, workspace: &str, revision: u64) -> bool {
        self.leases.get(workspace).is_some_and(|held| held.revision > revision)
    }

    /// Returns the revision of the lease that this node should take now, 0 if nobody ever had it; `None` if it should not.
    /// Unless it `may_declare_dead`, it takes no lease from a node that is silent. Only for a node that doesn't lead the
    /// workspace.
    pub(crate) fn wants(&self, workspace: &str, now: Duration, may_declare_dead: bool) -> Option<u64> {
        if !self.has(workspace) {
            return None;
        }
        let order = self.ranks(workspace, now);
        let rank = u32::try_from(order.iter().position(|node| *node == self.me)?).ok()?;
        let pause = RANK_PAUSE * rank;
        let Some(held) = self.leases.get(workspace) else { return (now >= SETTLE + pause).then_some(0) };
        let (revision, lease) = (held.revision, &held.lease);
        if lease.rest.is_some() {
            return None;
        }
        // The lease is this node's own, though it doesn't lead: an earlier run took it, or this one was cut off and
        // nobody took its place.
        if lease.node == self.me && !lease.released {
            return Some(revision);
        }
        if self.holds(held, now) {
            return None;
        }
        let since_release = now.saturating_sub(held.since);
        let due = if lease.released {
            match lease.next.as_deref() {
                Some(next) if next == self.me => true,
                // The one that was named may die before it takes it.
                Some(next) if order.contains(&next) => since_release >= DEAD_AFTER + pause,
                _ => since_release >= pause,
            }
        } else {
            // A dead node's record keeps the time at which it was heard of last.
            let dead_since = self.nodes.get(&lease.node).map_or(held.since, |seen| seen.at + DEAD_AFTER);
            may_declare_dead && now.saturating_sub(dead_since) >= pause
        };
        due.then_some(revision)
    }

    /// Returns the node to which this one should hand a workspace over that it leads.
    pub(crate) fn hand_over(&self, workspace: &str, now: Duration) -> Option<String> {
        // Nor right after it woke: the others have only begun to follow.
        let led_since = self.leases.get(workspace).map_or(now, |held| held.since);
        if now.saturating_sub(self.alive_since.max(led_since)) < STEADY {
            return None;
        }
        let first = self.ranks(workspace, now).first().map(|node| (*node).to_owned())?;
        (first != self.me).then_some(first)
    }

    /// Returns the node that should lead a workspace when this one goes.
    pub(crate) fn successor(&self, workspace: &str, now: Duration) -> Option<String> {
        let mut others = self.ranks(workspace, now).into_iter().filter(|node| *node != self.me);
        others.next().map(str::to_owned)
    }
}

#[cfg(test)]
mod tests;
