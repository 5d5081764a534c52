//! The writer: appends batches one after the other, and releases what waited for them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::{io, mem};

use lastword_proto::{Core, Effect, Entry, Out, Reply, Seq, State};
use lastword_store::{AppendError, Log, ReadError};
use tokio::sync::watch;

use super::boot::rebuild;
use super::handle::{BrokerFailure, BrokerShared};
use super::keeper::SNAPSHOT_FACTS;
use super::{Release, words};
use crate::clock::Stopwatch;
use crate::identity::Change;

/// What was judged together, and is appended in one go.
pub(super) struct Batch {
    /// The last fact before it.
    behind: Seq,
    entries: Vec<Arc<Entry>>,
    /// Who can prove what once it is durable.
    changes: Vec<Change>,
    wakes: Vec<Effect>,
    /// What its callers are told then.
    pub(super) held: Vec<Release>,
    /// The commands in it.
    pub(super) commands: usize,
    /// Whether a human's control is among them, for which the reserve is kept.
    pub(super) urgent: bool,
}

impl Batch {
    pub(super) const fn behind(seq: Seq) -> Self {
        Self {
            behind: seq,
            entries: Vec::new(),
            changes: Vec::new(),
            wakes: Vec::new(),
            held: Vec::new(),
            commands: 0,
            urgent: false,
        }
    }

    /// Whether there is nothing to append and nobody to tell.
    pub(super) const fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.held.is_empty() && self.wakes.is_empty()
    }

    pub(super) const fn writes_nothing(&self) -> bool {
        self.entries.is_empty()
    }

    /// One of its entries.
    pub(super) fn entry(&self, seq: Seq) -> Option<&Arc<Entry>> {
        let after = seq.0.checked_sub(self.behind.0 + 1)?;
        self.entries.get(usize::try_from(after).ok()?)
    }

    /// Takes what an input came to; gives its reply.
    pub(super) fn take(&mut self, out: &mut Out, state: &State) -> Option<Reply> {
        for entry in out.entries.drain(..) {
            self.changes.extend(Change::of(&entry.fact, state));
            self.entries.push(Arc::new(entry));
        }
        let mut reply = None;
        for effect in out.effects.drain(..) {
            match effect {
                Effect::Reply(found) => reply = Some(*found),
                wake @ (Effect::Wake(_) | Effect::WakeAll) => self.wakes.push(wake),
            }
        }
        reply
    }

    /// Tells everybody; the facts are durable.
    pub(super) fn release(self, shared: &BrokerShared) {
        for release in self.held {
            release();
        }
        for wake in self.wakes {
            match wake {
                Effect::Wake(agent) => {
                    shared.metrics.wake();
                    shared.wakes.wake(agent);
                }
                Effect::WakeAll => shared.wakes.wake_all(),
                Effect::Reply(_) => unreachable!("a reply is taken out when its input was handled"),
            }
        }
    }
}

/// The judge's end of the writer.
pub(super) struct Writing {
    writer: Arc<Mutex<Writer>>,
    batches: SyncSender<Batch>,
    thread: JoinHandle<bool>,
}

impl Writing {
    /// Starts the thread.
    pub(super) fn start(
        log: Box<dyn Log>,
        epoch: u64,
        shared: Arc<BrokerShared>,
        (committed, milestones): (watch::Sender<Seq>, watch::Sender<Seq>),
    ) -> io::Result<Self> {
        let (batches, next) = sync_channel(1);
        let writer = Arc::new(Mutex::new(Writer { log, epoch, shared, committed, milestones }));
        let there = Arc::clone(&writer);
        let thread = thread::Builder::new().name("log writer".into()).spawn(move || run(&there, &next))?;
        Ok(Self { writer, batches, thread })
    }

    /// Writes a batch on the judge's thread; `false` when that failed.
    pub(super) fn write_here(&self, batch: Batch) -> bool {
        write(&self.writer, batch)
    }

    /// Hands a batch over; `false` when the writer has failed.
    pub(super) fn write(&self, batch: Batch) -> bool {
        self.batches.send(batch).is_ok()
    }

    /// The core as of the end of the log.
    pub(super) fn rebuild(&self) -> Result<Core, ReadError> {
        rebuild(lock(&self.writer).log.as_ref()).map(|(core, _)| core)
    }

    /// Waits until everything is written; gives the log back, unless the writer failed.
    pub(super) fn end(self) -> Option<Box<dyn Log>> {
        drop(self.batches);
        let whole = self.thread.join().unwrap_or(false);
        let writer = Arc::into_inner(self.writer).filter(|_| whole)?;
        writer.into_inner().ok().map(|writer| writer.log)
    }
}

struct Writer {
    log: Box<dyn Log>,
    epoch: u64,
    shared: Arc<BrokerShared>,
    committed: watch::Sender<Seq>,
    milestones: watch::Sender<Seq>,
}

/// Writes until the judge has ended; `false` when an append failed before.
fn run(writer: &Mutex<Writer>, batches: &Receiver<Batch>) -> bool {
    while let Ok(batch) = batches.recv() {
        let written = catch_unwind(AssertUnwindSafe(|| write(writer, batch)));
        match written {
            Ok(true) => {}
            Ok(false) => return false,
            Err(panic) => {
                let shared = Arc::clone(&lock(writer).shared);
                shared.fail(BrokerFailure::bug(&words(panic.as_ref())));
                return false;
            }
        }
    }
    true
}

/// Appends a batch and releases what waited for it; `false` when the append failed.
fn write(writer: &Mutex<Writer>, mut batch: Batch) -> bool {
    let mut writer = lock(writer);
    let shared = Arc::clone(&writer.shared);
    let mut committed = writer.commit(&mut batch);
    if committed.as_ref().is_err_and(AppendError::is_full) {
        shared.disk.fill();
        if batch.urgent {
            committed = shared.disk.with_reserve(|| writer.commit(&mut batch), AppendError::is_full);
        }
    }
    drop(writer);
    match committed {
        Ok(()) => {
            batch.release(&shared);
            // Only now, so that what its callers ask next goes with what was judged meanwhile.
            shared.queue.writer_idle();
            true
        }
        Err(AppendError::Full { reason }) => {
            // Nothing was written, and memory is ahead of the disk: the judge rebuilds it. Dropping the batch tells those
            // who wait.
            tracing::error!(%reason, "an append found no room");
            shared.disk.lose();
            drop(batch);
            shared.queue.writer_idle();
            true
        }
        Err(error) => {
            // Memory is ahead of the disk: nothing may be served any more.
            shared.fail(BrokerFailure::append(&error));
            false
        }
    }
}

fn lock(writer: &Mutex<Writer>) -> MutexGuard<'_, Writer> {
    writer.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Writer {
    fn commit(&mut self, batch: &mut Batch) -> Result<(), AppendError> {
        let stopwatch = Stopwatch::start();
        let last = self.log.append(self.epoch, batch.behind, &batch.entries)?;
        self.shared.metrics.append(stopwatch.elapsed());
        let mut recent = self.shared.recent();
        for entry in mem::take(&mut batch.entries) {
            self.shared.metrics.fact(&entry.fact);
            self.shared.wakes.durable(&entry);
            recent.push(entry);
        }
        drop(recent);
        for change in mem::take(&mut batch.changes) {
            self.shared.directory.make(change);
        }
        self.committed.send_replace(last);
        if last.0 - self.milestones.borrow().0 >= SNAPSHOT_FACTS {
            self.milestones.send_replace(last);
        }
        Ok(())
    }
}
