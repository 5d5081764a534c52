//! A replicated log that fails the way a network store does, and the lease by which brokers agree on a leader.
//!
//! [`Stream`] is the store's side: an ordered list of messages with optimistic expectations. The
//! [cluster](crate::cluster) delays, loses and reorders publications and acknowledgements. [`Tail`] is the readers' side:
//! it says what counts.

use std::sync::Arc;

use lastword_facts::{Entry, Seq};

/// A message of the stream.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The epoch of the leader that published it.
    pub epoch: u64,
    /// The number of the commit in that epoch, from 1; 0 for the start of the epoch.
    pub batch: u64,
    /// The broker that published it. Readers don't look at it; the promises do.
    pub node: usize,
    /// The content.
    pub body: Body,
}

/// The content of a message.
#[derive(Clone, Debug)]
pub enum Body {
    /// A leader begins an epoch. On the epoch's subject.
    EpochStart,
    /// One append. On the log's subject.
    Commit {
        /// The position of the first entry.
        first: Seq,
        /// The entries, at consecutive positions.
        entries: Vec<Arc<Entry>>,
    },
}

/// A message on its way to the stream, with the expectations under which it is stored.
#[derive(Clone, Debug)]
pub struct Publication {
    /// The message.
    pub message: Stored,
    /// The sequence of the stream's last message; `None` stores it whatever that is.
    pub expect_last: Option<u64>,
    /// The sequence of the last start of an epoch; `None` stores it whatever that is.
    pub expect_epoch: Option<u64>,
}

/// The reason why a publication was not stored: another message came first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch;

/// The messages in the order in which they were stored. Sequences start at 1.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    messages: Vec<Stored>,
    epoch_at: u64,
}

impl Stream {
    /// Stores a message if its expectations hold, and returns its sequence.
    ///
    /// # Errors
    /// An expectation doesn't hold; nothing was stored.
    pub fn publish(&mut self, publication: &Publication) -> Result<u64, Mismatch> {
        let last_differs = publication.expect_last.is_some_and(|last| last != self.last());
        if last_differs || publication.expect_epoch.is_some_and(|epoch| epoch != self.epoch_at) {
            return Err(Mismatch);
        }
        self.messages.push(publication.message.clone());
        if matches!(publication.message.body, Body::EpochStart) {
            self.epoch_at = self.last();
        }
        Ok(self.last())
    }

    /// Returns the sequence of the last message, 0 for an empty stream.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.messages.len() as u64
    }

    /// Returns the message at a sequence.
    #[must_use]
    pub fn get(&self, sequence: u64) -> Option<&Stored> {
        self.messages.get(usize::try_from(sequence.checked_sub(1)?).ok()?)
    }

    /// Returns all messages.
    #[must_use]
    pub fn messages(&self) -> &[Stored] {
        &self.messages
    }

    /// Returns the sequence and the epoch of the last start of an epoch among the first `upto` messages; zeros if there
    /// is none.
    #[must_use]
    pub fn epoch_as_of(&self, upto: u64) -> (u64, u64) {
        let starts = (1..=upto).rev().filter_map(|sequence| Some((sequence, self.get(sequence)?)));
        let mut starts = starts.filter(|(_, stored)| matches!(stored.body, Body::EpochStart));
        starts.next().map_or((0, 0), |(sequence, stored)| (sequence, stored.epoch))
    }

    /// Returns the sequence of the message with this epoch and batch among the first `upto`.
    #[must_use]
    pub fn find(&self, epoch: u64, batch: u64, upto: u64) -> Option<u64> {
        let same = |stored: &Stored| (stored.epoch, stored.batch) == (epoch, batch);
        (1..=upto).rev().find(|sequence| self.get(*sequence).is_some_and(same))
    }
}

/// What a message of the stream means to a reader.
#[derive(Clone, Debug)]
pub enum Meaning {
    /// An epoch began.
    Began,
    /// These entries count, from this position on.
    Counts(Seq, Vec<Arc<Entry>>),
    /// A commit of an older epoch behind the start of a newer one: it doesn't count.
    Dropped,
}

/// The position of a reader in the stream.
#[derive(Clone, Copy, Debug)]
pub struct Tail {
    /// The sequence of the last message read.
    pub at: u64,
    /// The newest epoch that began.
    pub epoch: u64,
    /// Whether commits of older epochs are dropped; `false` only in the tests that prove the need.
    drops: bool,
}

impl Tail {
    /// Returns a reader at the start of the stream.
    #[must_use]
    pub const fn new(drops: bool) -> Self {
        Self { at: 0, epoch: 0, drops }
    }

    /// Reads the next message.
    pub fn read(&mut self, stored: &Stored) -> Meaning {
        self.at += 1;
        match &stored.body {
            Body::EpochStart => {
                self.epoch = self.epoch.max(stored.epoch);
                Meaning::Began
            }
            Body::Commit { .. } if stored.epoch != self.epoch && self.drops => Meaning::Dropped,
            Body::Commit { first, entries } => Meaning::Counts(*first, entries.clone()),
        }
    }
}

/// The lease on the leadership: a record with a revision that ends unless it is renewed. It keeps brokers from taking
/// over all the time; it fences nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lease {
    revision: u64,
    /// The end, in ms; 0 if no broker ever held it.
    until: u64,
}

/// How long the store keeps a lease that isn't renewed, in ms.
pub const LEASE_MS: u64 = 3_000;
/// How long a holder serves after it asked for the last renewal that it got, in ms by its own monotonic clock.
pub const SERVES_MS: u64 = 2_000;

impl Lease {
    /// Gives the lease to whoever asks if it is free. Returns its revision, which becomes the epoch.
    pub const fn take(&mut self, now: u64) -> Option<u64> {
        if now < self.until { None } else { Some(self.give(now)) }
    }

    /// Gives the lease to whoever asks, free or not.
    pub const fn give(&mut self, now: u64) -> u64 {
        self.revision += 1;
        self.until = now + LEASE_MS;
        self.revision
    }

    /// Renews the lease of this revision, unless it ended.
    pub const fn renew(&mut self, now: u64, revision: u64) -> bool {
        let held = self.revision == revision && now < self.until;
        if held {
            self.until = now + LEASE_MS;
        }
        held
    }
}
