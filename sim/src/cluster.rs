//! Three brokers on one fallible log, with clients that retry, in one deterministic thread and virtual time.
//!
//! ```text
//!   clients ──call──► broker ──judge──► commit ──publish──► stream (both expectations) ──tail──► every broker
//!      ▲                │ lease, epoch start                   │
//!      └──── answer ◄───┴──────── released by the acknowledgement, or by finding (epoch, batch) in the tail
//! ```
//!
//! Every arrow takes time, and a fault may delay it for seconds or lose it. Brokers crash, also between an
//! acknowledgement and the release; they are stopped while they hold the lease and resume with their old state; their
//! wall clocks jump by an hour. [`play`] runs one seed and returns what the promises say about it.

mod broker;
mod clients;
mod clock;
mod faults;
mod promises;
mod steps;

use std::collections::BTreeMap;

use lastword_core::{Core, Reply};
use lastword_facts::limits::Limits;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt as _, SeedableRng as _};

use crate::fallible_log::{Lease, Mismatch, Publication, Stream};
use broker::Broker;
use clients::Clients;
pub use faults::Met;
pub use promises::Broken;
use promises::Oracle;

/// The brokers of a cluster.
const BROKERS: usize = 3;
/// The time at which clients have stopped to start work, at the latest, in ms.
const CALM_MAX_MS: u64 = 240_000;
/// The time that the brokers get to answer everything once no fault happens any more, in ms.
const HEALED_MS: u64 = 120_000;
/// The wall clocks' time at the start, in ms since the Unix epoch.
const BEGIN_MS: u64 = 1_800_000_000_000;

/// What the clients of a cluster do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// A team works, and the adversaries of the other campaigns do anything.
    Team,
    /// Six agents send requests of one grant until it is used up.
    Race,
}

/// A defect that is put into the brokers or the log, to show that a promise notices it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// The expected last sequence is the only fence, and several appends are in flight.
    WeakFence,
    /// The same, and readers keep records of an older epoch behind a newer one.
    WeakFenceReadersKeepAll,
    /// Replies are released when their commit is published.
    ReleasesEarly,
    /// An append without an acknowledgement is taken for written.
    UnknownIsWritten,
    /// An append without an acknowledgement is waited for.
    UnknownIsForgotten,
    /// An append without an acknowledgement is published again without any expectation.
    UnknownIsRepeated,
    /// A new leader serves without the records before the start of its epoch.
    SkipsReplay,
    /// A broker that steps down keeps the state that it judged.
    KeepsJudged,
    /// A leader serves without looking at its lease.
    IgnoresLease,
    /// A leader looks at its lease before it judges, and not again before it releases a reply that needs no append.
    ChecksLeaseFirst,
    /// Epochs are counted from the log, and the start of an epoch has no expectation; the lease is given to whoever
    /// asks.
    EpochsUnfenced,
    /// The lease is given to whoever asks.
    GivesLease,
}

/// The setting of a campaign.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// What the clients do.
    pub scene: Scene,
    /// The defect.
    pub wrong: Option<Wrong>,
    /// The core before its first input; one that lacks a rule, to prove that the campaign notices.
    pub core: Core,
    /// Whether followers save snapshots. A core that is rebuilt from one has every rule.
    pub saves: bool,
}

impl Cluster {
    /// Returns a cluster without a defect.
    #[must_use]
    pub fn new(scene: Scene) -> Self {
        Self { scene, wrong: None, core: Core::default(), saves: true }
    }

    /// Whether the store gives the lease to several brokers.
    fn gives_lease(&self) -> bool {
        matches!(self.wrong, Some(Wrong::EpochsUnfenced | Wrong::GivesLease))
    }

    /// Whether the expected last sequence is the only fence.
    fn is_weak(&self) -> bool {
        matches!(self.wrong, Some(Wrong::WeakFence | Wrong::WeakFenceReadersKeepAll))
    }
}

/// The result of one seed.
#[derive(Clone, Debug, Default)]
pub struct Played {
    /// What happened, by kind.
    pub met: Met,
    /// The first broken promises.
    pub broken: Vec<Broken>,
    /// The hash over the facts that count and the answers that were released.
    pub digest: u64,
    /// The number of facts that count.
    pub facts: u64,
    /// The answers that were released.
    pub answers: u64,
    /// The history, if it was asked for.
    pub history: Vec<String>,
}

/// Plays one seed, with its history if `told`.
#[must_use]
pub fn play(setting: &Cluster, seed: u64, told: bool) -> Played {
    let mut run = HistoryRun::new(setting, seed, told);
    run.until_healed();
    run.end()
}

/// The place where something goes on: a broker in one of its lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    node: usize,
    life: u64,
}

/// Something that arrives.
#[derive(Clone, Debug)]
enum Arrival {
    /// At the store: a publication.
    Publish(Process, u64, Box<Publication>),
    /// At the store: a request for the last sequence.
    AskTail(Process, u64),
    /// At the store: a request for the lease, or for its renewal.
    AskLease(Process, u64, Option<u64>),
    /// At a broker.
    Broker(Process, News),
    /// At a broker, whichever life: a call of a client, and whether another broker forwarded it.
    Call(usize, u64, bool),
    /// At a client: the answer to a call; `None` if the broker could not serve it.
    Answer(u64, Option<Box<Reply>>),
    /// At a client: a call has waited long enough for an answer at this attempt.
    GiveUp(u64, u32),
    /// A client acts.
    Act(usize),
    /// The adversaries act.
    Adversary,
    /// A fault happens.
    Fault,
    /// A crashed broker starts again.
    Start(usize),
    /// A stopped broker resumes.
    Resume(usize),
}

/// What a broker learns.
#[derive(Clone, Copy, Debug)]
enum News {
    /// The store's answer to the publication with this ticket.
    Published(u64, Result<u64, Mismatch>),
    /// The sequence of the last message, as of a moment after the request with this ticket.
    Tail(u64, u64),
    /// The lease was asked for at this time and is the broker's, with its revision.
    Leased(u64, u64),
    /// The renewal of this revision was asked for at this time and was made.
    Renewed(u64, u64),
    /// No answer of the store came for this ticket.
    Overdue(u64),
    /// The broker's own timer.
    Beat,
    /// A client's call.
    Call(u64, bool),
}

/// One history.
struct HistoryRun<'a> {
    setting: &'a Cluster,
    rng: ChaCha8Rng,
    now: u64,
    events: BTreeMap<(u64, u64), Arrival>,
    scheduled: u64,
    ticket: u64,
    /// Whether faults have ended.
    healed: bool,
    brokers: Vec<Broker>,
    stream: Stream,
    lease: Lease,
    clients: Clients,
    oracle: Oracle,
    met: Met,
    told: Option<Vec<String>>,
}

impl<'a> HistoryRun<'a> {
    fn new(setting: &'a Cluster, seed: u64, told: bool) -> Self {
        let brokers = (0..BROKERS).map(|node| Broker::new(node, setting)).collect();
        let mut run = Self {
            setting,
            rng: ChaCha8Rng::seed_from_u64(seed),
            now: 0,
            events: BTreeMap::new(),
            scheduled: 0,
            ticket: 0,
            healed: false,
            brokers,
            stream: Stream::default(),
            lease: Lease::default(),
            clients: Clients::new(setting.scene, seed),
            oracle: Oracle::new(&setting.core),
            met: Met::default(),
            told: told.then(Vec::new),
        };
        for node in 0..BROKERS {
            run.beat_later(node);
        }
        for actor in 0..run.clients.actors() {
            run.after(1_000, Arrival::Act(actor));
        }
        run.after(500, Arrival::Fault);
        if setting.scene == Scene::Team {
            run.after(2_000, Arrival::Adversary);
        }
        run
    }

    fn limits(&self) -> Limits {
        match self.setting.scene {
            // Times so short that they run out in the middle of a take-over.
            Scene::Team => Limits {
                lease_ms: 15_000,
                ack_polling_ms: 8_000,
                ack_woken_ms: 5_000,
                approval_ms: 10_000,
                turns_soft_max: 3,
                turns_hard_max: 6,
                ..Limits::default()
            },
            Scene::Race => Limits {
                grant_messages_max: clients::RACE_MESSAGES,
                pair_messages_max: 1_000,
                sender_messages_max: 1_000,
                fan_out_targets_max: 1_000,
                turns_soft_max: 1_000,
                turns_hard_max: 1_000,
                ..Limits::default()
            },
        }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.rng.random_range(0..n.max(1))
    }

    /// Decides by chance; faults don't happen any more once the cluster is healed.
    fn faulty(&mut self, permille: u64) -> bool {
        !self.healed && self.below(1_000) < permille
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(told) = &mut self.told {
            told.push(format!("{:>7} {}", self.now, line()));
        }
    }

    fn at(&mut self, at: u64, event: Arrival) {
        self.scheduled += 1;
        self.events.insert((at, self.scheduled), event);
    }

    fn after(&mut self, ms: u64, event: Arrival) {
        self.at(self.now + ms, event);
    }

    /// Sends something over the network: it takes time, sometimes seconds, and may be lost.
    fn send(&mut self, event: Arrival) {
        if self.faulty(20) {
            self.met.lost += 1;
            return;
        }
        let ms = match self.below(100) {
            _ if self.healed => 1 + self.below(4),
            0..82 => 1 + self.below(5),
            82..95 => 5 + self.below(100),
            _ => 100 + self.below(6_000),
        };
        self.after(ms, event);
    }

    /// Whether a broker goes on serving this life.
    fn lives(&self, process: Process) -> bool {
        let broker = &self.brokers[process.node];
        broker.up && broker.life == process.life
    }

    fn until_healed(&mut self) {
        let mut heal_at = None;
        while let Some(((at, _), event)) = self.events.pop_first() {
            if self.oracle.is_lost() {
                return;
            }
            self.now = self.now.max(at);
            let calm = self.clients.calm(self.now) || self.now >= CALM_MAX_MS;
            if calm && heal_at.is_none() {
                heal_at = Some(self.now);
                self.heal();
            }
            if let Some(since) = heal_at
                && (self.is_idle() || self.now > since + HEALED_MS)
            {
                return;
            }
            self.happens(event);
        }
    }

    fn happens(&mut self, event: Arrival) {
        match event {
            Arrival::Publish(from, ticket, publication) => self.store(from, ticket, &publication),
            Arrival::AskTail(from, ticket) => {
                let news = News::Tail(ticket, self.stream.last());
                self.send(Arrival::Broker(from, news));
            }
            Arrival::AskLease(from, sent_at, renews) => {
                let news = match renews {
                    None if self.setting.gives_lease() && !self.healed => {
                        Some(News::Leased(sent_at, self.lease.give(self.now)))
                    }
                    None => self.lease.take(self.now).map(|revision| News::Leased(sent_at, revision)),
                    Some(revision) => self.lease.renew(self.now, revision).then_some(News::Renewed(sent_at, revision)),
                };
                if let Some(news) = news {
                    self.send(Arrival::Broker(from, news));
                }
            }
            Arrival::Broker(process, news) => self.arrives(process, news),
            Arrival::Call(node, call, forwarded) => {
                let process = Process { node, life: self.brokers[node].life };
                self.arrives(process, News::Call(call, forwarded));
            }
            Arrival::Answer(call, reply) => self.answered(call, reply),
            Arrival::GiveUp(call, attempt) => self.give_up(call, attempt),
            Arrival::Act(actor) => self.act(actor),
            Arrival::Adversary => self.adversary(),
            Arrival::Fault => self.fault(),
            Arrival::Start(node) => self.start(node),
            Arrival::Resume(node) => self.resume(node),
        }
    }

    fn store(&mut self, from: Process, ticket: u64, publication: &Publication) {
        let refuses = self.faulty(5);
        self.met.false_conflicts += u64::from(refuses);
        let result = if refuses { Err(Mismatch) } else { self.stream.publish(publication) };
        let message = &publication.message;
        let (epoch, batch) = (message.epoch, message.batch);
        self.note(|| format!("stream: epoch {epoch} batch {batch} of broker {}: {result:?}", from.node));
        match result {
            Ok(_) if !self.brokers[from.node].waits_for(from.life, ticket) => self.met.written_late += 1,
            Ok(_) => {}
            Err(Mismatch) => self.met.conflicts += 1,
        }
        self.oracle.follow(&self.stream);
        self.send(Arrival::Broker(from, News::Published(ticket, result)));
    }

    /// Gives a broker its news; one that is stopped finds them when it resumes.
    fn arrives(&mut self, process: Process, news: News) {
        if !self.lives(process) {
            return;
        }
        let broker = &mut self.brokers[process.node];
        if broker.stopped {
            broker.mailbox.push(news);
            return;
        }
        self.learns(process.node, news);
    }

    /// Whether no client waits for an answer and no broker for the store, and nothing is on its way there.
    fn is_idle(&self) -> bool {
        let published = |event: &Arrival| matches!(event, Arrival::Publish(..));
        self.clients.is_idle(self.now)
            && self.brokers.iter().all(|broker| broker.is_idle(&self.stream))
            && self.brokers.iter().any(Broker::leads)
            && !self.events.values().any(published)
    }

    fn end(mut self) -> Played {
        if !self.oracle.is_lost() {
            self.judge_the_end();
        }
        let (facts, answers) = (self.oracle.facts(), self.oracle.answers());
        let digest = self.oracle.digest();
        Played {
            met: self.met,
            broken: self.oracle.into_broken(),
            digest,
            facts,
            answers,
            history: self.told.unwrap_or_default(),
        }
    }
}
