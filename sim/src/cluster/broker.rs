//! A broker: a real core with what the server's shell keeps around it, and a leadership that can be lost.

use std::collections::VecDeque;
use std::sync::Arc;

use lastword_core::{Core, Effect, Input, Out, Reply};
use lastword_facts::{Entry, Seq, Time};

use super::clock::Clock;
use super::promises::chained;
use super::{BEGIN_MS, Cluster, News, Process, Wrong};
use crate::fallible_log::{Body, Meaning, Publication, Stream, Tail};

/// A reply that waits until everything that it shows is durable.
#[derive(Debug)]
pub(super) struct HeldReply {
    pub(super) call: u64,
    pub(super) reply: Reply,
    /// The position and the chain of the state that the reply shows.
    pub(super) shows: (Seq, u64),
    /// Whether no commit that is published after the judgement confirms that this broker still led: then the lease has
    /// to be valid at the release.
    pub(super) by_lease: bool,
}

/// Facts that were judged together, with the replies that wait for them.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// The position of the first entry, if there is one.
    pub(super) first: Option<Seq>,
    pub(super) entries: Vec<Arc<Entry>>,
    pub(super) held: Vec<HeldReply>,
}

/// A commit that waits for its acknowledgement.
#[derive(Debug)]
pub(super) struct Flying {
    pub(super) ticket: u64,
    pub(super) publication: Publication,
    pub(super) held: Vec<HeldReply>,
}

/// The part of a broker that exists while it leads.
#[derive(Debug)]
pub(super) struct Leading {
    pub(super) epoch: u64,
    /// The sequence of the start of this epoch.
    pub(super) epoch_at: u64,
    /// The sequence that the next commit expects to be the last one.
    pub(super) last: u64,
    pub(super) batches: u64,
    pub(super) batch: Batch,
    pub(super) flying: VecDeque<Flying>,
    pub(super) clock: Clock,
    pub(super) serves_until: u64,
    pub(super) renewed_at: u64,
}

impl Leading {
    pub(super) fn is_writing(&self) -> bool {
        !self.flying.is_empty()
    }
}

/// A broker that got the lease and begins its epoch.
#[derive(Debug)]
pub(super) struct Starting {
    pub(super) epoch: u64,
    pub(super) serves_until: u64,
    pub(super) ticket: u64,
    pub(super) begins: Begins,
}

/// The step by which a broker begins its epoch.
#[derive(Debug)]
pub(super) enum Begins {
    /// It looks for the last start of an epoch, and for its own.
    Reads,
    /// It publishes its own.
    Publishes,
    /// Its own is stored at this sequence; it reads the log up to there.
    Replays(u64),
}

/// The role of a broker.
#[derive(Debug)]
pub(super) enum Role {
    Follower,
    Starting(Starting),
    Leading(Box<Leading>),
}

/// One broker.
#[derive(Debug)]
pub(super) struct Broker {
    pub(super) node: usize,
    pub(super) life: u64,
    pub(super) up: bool,
    pub(super) stopped: bool,
    /// Whether it was stopped right after it had found its lease to be valid, for the next call.
    pub(super) checked: bool,
    /// Whether it is to be stopped in the middle of its next append.
    pub(super) armed: bool,
    pub(super) mailbox: Vec<News>,
    pub(super) offset: i64,
    pub(super) role: Role,
    pub(super) core: Core,
    pub(super) chain: u64,
    pub(super) tail: Tail,
    /// The last broker that began an epoch, as far as this one has read.
    pub(super) leader: usize,
    /// The first position that did not follow from what was read before.
    pub(super) gap: Option<Seq>,
    /// The sequences of the commits that this broker counted.
    pub(super) counted: Vec<u64>,
    /// On its disk: a state that it had folded.
    snapshot: Option<Snapshot>,
}

/// A folded state, with what this broker had read up to there.
#[derive(Clone, Debug)]
struct Snapshot {
    state: Vec<u8>,
    chain: u64,
    tail: Tail,
    counted: Vec<u64>,
}

impl Broker {
    pub(super) fn new(node: usize, setting: &Cluster) -> Self {
        Self {
            node,
            life: 0,
            up: true,
            stopped: false,
            checked: false,
            armed: false,
            mailbox: Vec::new(),
            offset: 0,
            role: Role::Follower,
            core: setting.core.clone(),
            chain: 0,
            tail: Tail::new(setting.wrong != Some(Wrong::WeakFenceReadersKeepAll)),
            leader: node,
            gap: None,
            counted: Vec::new(),
            snapshot: None,
        }
    }

    /// Forgets everything in memory.
    pub(super) fn crash(&mut self, setting: &Cluster) {
        let (life, offset, snapshot) = (self.life + 1, self.offset, self.snapshot.take());
        *self = Self { life, offset, snapshot, up: false, ..Self::new(self.node, setting) };
        self.rebuild(setting);
    }

    /// Drops what was judged and goes back to what is in the log.
    pub(super) fn step_down(&mut self, setting: &Cluster) {
        self.role = Role::Follower;
        if setting.wrong != Some(Wrong::KeepsJudged) {
            self.rebuild(setting);
        }
    }

    /// Begins with the snapshot, or without one at the start of the log.
    fn rebuild(&mut self, setting: &Cluster) {
        if let Some(Snapshot { state, chain, tail, counted }) = self.snapshot.clone() {
            let state = postcard::from_bytes(&state).expect("a snapshot is read as it was written");
            (self.core, self.chain, self.tail, self.counted) = (Core::from_state(state), chain, tail, counted);
        } else {
            let Self { core, chain, tail, counted, .. } = Self::new(self.node, setting);
            (self.core, self.chain, self.tail, self.counted) = (core, chain, tail, counted);
        }
    }

    /// Saves a snapshot. Only a follower does: the state of a leader may be ahead of the log.
    pub(super) fn save(&mut self) {
        let state = postcard::to_allocvec(self.core.state()).expect("a state is serializable");
        let (chain, tail, counted) = (self.chain, self.tail, self.counted.clone());
        self.snapshot = Some(Snapshot { state, chain, tail, counted });
    }

    pub(super) const fn leads(&self) -> bool {
        matches!(self.role, Role::Leading(_))
    }

    pub(super) const fn process(&self) -> Process {
        Process { node: self.node, life: self.life }
    }

    pub(super) fn leading(&mut self) -> Option<&mut Leading> {
        if let Role::Leading(leading) = &mut self.role { Some(leading) } else { None }
    }

    /// Whether this broker has read the whole stream, and if it leads waits for nothing in the newest epoch.
    pub(super) fn is_idle(&self, stream: &Stream) -> bool {
        self.tail.at == stream.last()
            && match &self.role {
                Role::Follower => true,
                Role::Starting(_) => false,
                Role::Leading(leading) => {
                    leading.epoch == stream.epoch_as_of(stream.last()).1
                        && leading.flying.is_empty()
                        && leading.batch.entries.is_empty()
                }
            }
    }

    /// The number of replies that are lost with this broker's memory.
    pub(super) fn dropped(&self) -> u64 {
        let Role::Leading(leading) = &self.role else { return 0 };
        u64::from(!leading.flying.is_empty()) + u64::from(!leading.batch.entries.is_empty())
    }

    /// Whether a broker still waits for the store's answer to this ticket.
    pub(super) fn waits_for(&self, life: u64, ticket: u64) -> bool {
        let waits = match &self.role {
            Role::Follower => false,
            Role::Starting(starting) => starting.ticket == ticket,
            Role::Leading(leading) => leading.flying.iter().any(|flying| flying.ticket == ticket),
        };
        self.up && self.life == life && waits
    }

    /// Folds the messages of the stream up to a sequence.
    pub(super) fn read_up_to(&mut self, stream: &Stream, upto: u64) {
        while self.tail.at < upto {
            let Some(stored) = stream.get(self.tail.at + 1) else { return };
            if matches!(stored.body, Body::EpochStart) {
                self.leader = stored.node;
            }
            if let Meaning::Counts(first, entries) = self.tail.read(stored) {
                self.counted.push(self.tail.at);
                self.fold(first, &entries);
            }
        }
    }

    fn fold(&mut self, first: Seq, entries: &[Arc<Entry>]) {
        if first.0 != self.core.state().seq.0 + 1 {
            self.gap = self.gap.or(Some(first));
            return;
        }
        for entry in entries {
            if self.core.replay(entry).is_err() {
                self.gap = self.gap.or(Some(self.core.state().seq));
            }
            self.chain = chained(self.chain, entry);
        }
    }

    /// Returns the time of this broker, which leads.
    pub(super) fn time(&mut self, now: u64) -> Time {
        let wall = self.wall(now);
        let at = self.core.state().at;
        self.leading().map_or(at, |leading| leading.clock.read(now, wall))
    }

    pub(super) const fn wall(&self, now: u64) -> u64 {
        (BEGIN_MS + now).saturating_add_signed(self.offset)
    }

    /// Gives an input to the core: its facts and its reply join the batch.
    pub(super) fn judge(&mut self, now: u64, input: Input, call: Option<u64>) {
        let time = self.time(now);
        self.judge_at(time, input, call);
    }

    pub(super) fn judge_at(&mut self, time: Time, input: Input, call: Option<u64>) {
        let mut out = Out::default();
        self.core.handle(time, input, &mut out);
        for entry in &out.entries {
            self.chain = chained(self.chain, entry);
        }
        let shows = (self.core.state().seq, self.chain);
        let first = Seq(shows.0.0 - out.entries.len() as u64 + 1);
        let Role::Leading(leading) = &mut self.role else { return };
        let batch = &mut leading.batch;
        if batch.entries.is_empty() {
            batch.first = Some(first);
        }
        batch.entries.extend(out.entries.into_iter().map(Arc::new));
        let reply =
            out.effects.into_iter().find_map(|e| if let Effect::Reply(reply) = e { Some(*reply) } else { None });
        if let (Some(call), Some(reply)) = (call, reply) {
            batch.held.push(HeldReply { call, reply, shows, by_lease: false });
        }
    }
}
