//! The writer: appends one batch after the other and releases the replies that waited for it.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::{io, mem};

use lastword_core::{Core, Effect, Out, Reply, State};
use lastword_facts::fact::{Part, TurnClosed, TurnEnd};
use lastword_facts::ids::{AgentId, TaskId};
use lastword_facts::{Entry, Fact, Seq};
use lastword_store::{AppendError, Log, ReadError};
use tokio::sync::watch;

use crate::boot::rebuild;
use crate::clock::Stopwatch;
use crate::faults::{Fault, injected};
use crate::handle::BrokerShared;
use crate::identity::Change;
use crate::judge::{Release, words};
use crate::keeper::SNAPSHOT_FACTS;
use crate::sync::mpsc::{Receiver, SyncSender, sync_channel};
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Mutex, MutexGuard};
use crate::unserved::BrokerFailure;

/// The results of commands that were judged together and are appended together.
pub(crate) struct Batch {
    /// The position of the last fact before this batch; the append expects the log to end there.
    behind: Seq,
    entries: Vec<Arc<Entry>>,
    /// The changes of tokens that take effect once the batch is durable.
    changes: Vec<Change>,
    pub(crate) wakes: Vec<Effect>,
    /// The replies and reads that are released then.
    pub(crate) held: Vec<Release>,
    /// The number of commands in the batch, including those without facts.
    pub(crate) commands: usize,
    /// The jumps of the clock that its facts record, in ms.
    pub(crate) jumped_ms: u64,
    /// Whether it contains a human's control, for which the disk's reserve is kept.
    pub(crate) urgent: bool,
    /// The answers that were given and that their senders may wait for: each with its request, and the task that it
    /// settled.
    pub(crate) answers: Vec<(Seq, TaskId)>,
    /// The agents with a turn that the last input ended without their `finish`. Their sessions are woken even if there is
    /// nothing to take.
    pub(crate) interrupted: BTreeSet<AgentId>,
}

impl Batch {
    pub(crate) const fn after(seq: Seq) -> Self {
        Self {
            behind: seq,
            entries: Vec::new(),
            changes: Vec::new(),
            wakes: Vec::new(),
            held: Vec::new(),
            commands: 0,
            jumped_ms: 0,
            urgent: false,
            answers: Vec::new(),
            interrupted: BTreeSet::new(),
        }
    }

    /// Returns whether there is nothing to append, to release or to wake.
    pub(crate) const fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.held.is_empty() && self.wakes.is_empty()
    }

    pub(crate) const fn writes_nothing(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the entry at `seq` if it is in this batch.
    pub(crate) fn entry(&self, seq: Seq) -> Option<&Arc<Entry>> {
        let after = seq.0.checked_sub(self.behind.0 + 1)?;
        self.entries.get(usize::try_from(after).ok()?)
    }

    /// Takes the facts and effects of one input; returns its reply.
    pub(crate) fn take(&mut self, out: &mut Out, state: &State) -> Option<Reply> {
        for entry in out.entries.drain(..) {
            self.changes.extend(Change::of(&entry.fact, state));
            self.answers.extend(answered(&entry.fact));
            self.interrupted.extend(interrupted(&entry.fact, state));
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

    /// Releases the replies and wakes; the caller has made the facts durable.
    pub(crate) fn release(self, shared: &BrokerShared) {
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

/// Returns the agent whose turn this fact ends without the agent's `finish`.
fn interrupted(fact: &Fact, state: &State) -> Option<AgentId> {
    let Fact::TurnClosed(TurnClosed { turn, end: TurnEnd::Withdrawn | TurnEnd::LeaseLost, .. }) = fact else {
        return None;
    };
    state.turns.get(turn).map(|turn| turn.agent)
}

/// Returns the request that this fact answers, and the task that is settled.
fn answered(fact: &Fact) -> Option<(Seq, TaskId)> {
    let Fact::Accepted { message } = fact else { return None };
    let Part::Answer(answer) = &message.part else { return None };
    Some((message.in_reply_to?, answer.task))
}

/// The judge's side of the writer.
pub(crate) struct Writing {
    writer: Arc<Mutex<Writer>>,
    batches: SyncSender<Batch>,
    thread: JoinHandle<bool>,
}

impl Writing {
    /// Starts the writer's thread.
    pub(crate) fn start(
        log: Box<dyn Log>,
        epoch: u64,
        shared: Arc<BrokerShared>,
        committed: watch::Sender<Seq>,
        milestones: watch::Sender<Seq>,
    ) -> io::Result<Self> {
        // One slot is enough: the judge hands over only when the writer is idle.
        let (batches, next) = sync_channel(1);
        let writer = Arc::new(Mutex::new(Writer { log, epoch, shared, committed, milestones }));
        let there = Arc::clone(&writer);
        let thread = thread::Builder::new().name("log writer".into()).spawn(move || run(&there, &next))?;
        Ok(Self { writer, batches, thread })
    }

    /// Appends a batch on the judge's thread; `false` if that failed.
    pub(crate) fn write_here(&self, batch: Batch) -> bool {
        write(&self.writer, batch)
    }

    /// Hands a batch over to the writer's thread; `false` if the writer has failed.
    pub(crate) fn write(&self, batch: Batch) -> bool {
        self.batches.send(batch).is_ok()
    }

    /// Looks whether the log's files are at their path, and writes anew what was deleted.
    pub(crate) fn look_after_files(&self, shared: &BrokerShared) {
        let mut writer = lock(&self.writer);
        shared.disk.place(writer.log.is_in_place());
        if shared.disk.is_gone() {
            write_back(writer.log.as_mut());
        }
    }

    /// Returns the core as of the end of the log.
    pub(crate) fn rebuild(&self) -> Result<Core, ReadError> {
        rebuild(lock(&self.writer).log.as_ref()).map(|(core, _)| core)
    }

    /// Waits until everything is written; returns the log unless the writer failed.
    pub(crate) fn end(self) -> Option<Box<dyn Log>> {
        drop(self.batches);
        let whole = self.thread.join().unwrap_or(false);
        // The joined thread held the only other reference.
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

/// Appends batches until the judge ends; `false` if an append failed before.
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

/// Appends a batch and releases the replies that waited for it; `false` if the append failed.
fn write(writer: &Mutex<Writer>, mut batch: Batch) -> bool {
    let mut writer = lock(writer);
    let shared = Arc::clone(&writer.shared);
    inject(&mut batch, &shared);
    let mut committed = writer.commit(&mut batch);
    if committed.as_ref().is_err_and(AppendError::is_full) {
        shared.disk.fill();
        // Only a control may use the reserve: other work would spend it before a human can stop anything (H4).
        if batch.urgent && writer.log.make_room(&batch.entries) {
            tracing::warn!("the log is at its limit, which was raised for a human's control");
            committed = writer.commit(&mut batch);
        }
        if batch.urgent && committed.as_ref().is_err_and(AppendError::is_full) {
            committed = shared.disk.with_reserve(|| writer.commit(&mut batch), AppendError::is_full);
        }
    }
    let in_place = writer.log.is_in_place();
    shared.disk.place(in_place);
    drop(writer);
    match committed {
        Ok(()) if !in_place => {
            // The facts are in files that no later start finds, so nothing is acknowledged (L1): each caller hears why. If
            // the files come back, the facts are there, as after a crash before the reply.
            drop(batch);
            shared.queue.mark_writer_idle();
            true
        }
        Ok(()) => {
            batch.release(&shared);
            // After the release: commands that these replies provoke can then join the batch judged in the meantime.
            shared.queue.mark_writer_idle();
            true
        }
        Err(AppendError::Full { reason }) => {
            // Nothing was written, so memory is ahead of the disk; the judge notices the higher count and rebuilds.
            // Count before dropping: a caller whose reply is dropped checks the count for the reason.
            tracing::error!(%reason, "an append found no room");
            shared.clock.lose_jump(batch.jumped_ms);
            shared.disk.lose();
            drop(batch);
            shared.queue.mark_writer_idle();
            true
        }
        Err(error) => {
            // Whether the facts were written is unknown, and memory may be ahead of the disk: serve nothing from here
            // on.
            shared.fail(BrokerFailure::append(&error));
            false
        }
    }
}

/// Writes the log anew if its files were deleted.
pub(crate) fn write_back(log: &mut dyn Log) {
    match log.write_back() {
        Ok(true) => {
            tracing::error!("the log's files were deleted, and it was written anew: restart the server to go on")
        }
        Ok(false) => {}
        Err(error) => tracing::error!(%error, "the log's files were deleted, and it can't be written anew"),
    }
}

/// Does a part of what follows the append before it, if a model asks for that.
fn inject(batch: &mut Batch, shared: &BrokerShared) {
    if injected(Fault::ReleaseBeforeAppend) {
        mem::take(&mut batch.held).into_iter().for_each(|release| release());
    }
    if injected(Fault::IdleBeforeAppend) {
        shared.queue.mark_writer_idle();
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
            // Before the replies are released: the caller that learns a new token may use it at once.
            self.shared.directory.make(change);
        }
        self.committed.send_replace(last);
        if last.0 - self.milestones.borrow().0 >= SNAPSHOT_FACTS {
            self.milestones.send_replace(last);
        }
        Ok(())
    }
}
