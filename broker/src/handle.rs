//! The handle through which the rest of the process calls the broker.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, PoisonError, RwLock};

use lastword_core::input::Delivery;
use lastword_core::{Input, Principal, Reply};
use lastword_facts::fact::Credential;
use lastword_facts::ids::{AgentId, TurnId};
use lastword_facts::{Entry, Limits, Seq, Time};
use lastword_store::{LogReader, ReadError};
use lastword_wire::DiskSpace;
use tokio::sync::{oneshot, watch};

use crate::clock::{Clock, ClockStatus};
use crate::disk::{Disk, admits};
use crate::faults::{Fault, injected};
use crate::handover::handed_over;
use crate::holders::{ClientId, Holders};
use crate::identity::{Bearer, ConsoleSession, Directory, Proof, TurnSigner, credential};
use crate::judge::{QueueEntry, Release};
use crate::live::Live;
use crate::metrics::Metrics;
use crate::queue::{Full, Lane, Queue};
use crate::reads::off_thread;
use crate::recent::{Recent, weight};
use crate::sync::{Mutex, MutexGuard};
use crate::unserved::{BrokerFailure, Unserved};
use crate::wakes::Wakes;

/// The bytes of entries after which a read of several returns early.
const READ_BYTES_MAX: usize = 1 << 20;

/// The state shared by the broker's threads and its handles.
pub(crate) struct BrokerShared {
    pub(crate) queue: Queue<QueueEntry>,
    pub(crate) recent: Mutex<Recent>,
    pub(crate) reader: Arc<dyn LogReader>,
    pub(crate) clock: Clock,
    pub(crate) disk: Arc<Disk>,
    pub(crate) directory: Directory,
    pub(crate) signer: TurnSigner,
    pub(crate) wakes: Wakes,
    pub(crate) holders: Holders,
    /// Held while a snapshot is written: the keeper and the end of the broker both write one.
    pub(crate) saving: Mutex<()>,
    /// Deliveries whose reader disconnected before it received them; the agent's next call gets them again (L2).
    pub(crate) unread: Mutex<Unread>,
    /// The limits in force, for what is checked before the core.
    pub(crate) limits: RwLock<Arc<Limits>>,
    pub(crate) metrics: Metrics,
    pub(crate) committed: watch::Receiver<Seq>,
    /// The position of the last durable fact at which a snapshot was due.
    pub(crate) milestones: watch::Receiver<Seq>,
    pub(crate) failed: watch::Sender<Option<BrokerFailure>>,
}

/// Entries with their positions, and whether more are left.
type Within = (Vec<(Seq, Arc<Entry>)>, bool);

/// Deliveries that were not handed over, per agent, in the order of their messages.
pub(crate) type Unread = BTreeMap<AgentId, VecDeque<Delivery>>;

impl BrokerShared {
    pub(crate) fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn saving(&self) -> MutexGuard<'_, ()> {
        self.saving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn limits(&self) -> Arc<Limits> {
        Arc::clone(&self.limits.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the limits over that a human changed.
    pub(crate) fn set_limits(&self, limits: Arc<Limits>) {
        self.holders.set_holder_ms(limits.holder_ms);
        *self.limits.write().unwrap_or_else(PoisonError::into_inner) = limits;
    }

    fn unread(&self) -> MutexGuard<'_, Unread> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops serving for good. Dropping the queued commands ends their callers' waits with an error.
    pub(crate) fn fail(&self, failed: BrokerFailure) {
        self.queue.close();
        // Keep the first reason. Later failures are consequences of it.
        self.failed.send_if_modified(|first| {
            let fresh = first.is_none();
            if fresh {
                tracing::error!(reason = %failed.reason, "the broker stops");
                *first = Some(failed);
            }
            fresh
        });
        self.queue.clear();
        // The judge may be waiting for the writer. Any batch it hands over from here on expects a position that the log
        // doesn't have, so the append refuses it.
        if !injected(Fault::FailWithoutWake) {
            self.queue.mark_writer_idle();
        }
    }

    /// Keeps a delivery for the agent's next call. Beyond `inbox_max`, an agent's oldest is dropped; it remains in the log.
    fn keep(&self, agent: AgentId, delivery: Delivery) {
        let mut unread = self.unread();
        let kept = unread.entry(agent).or_default();
        // Parcels are dropped in any order, but delivered in the order of their messages.
        let at = kept.partition_point(|earlier| earlier.message < delivery.message);
        kept.insert(at, delivery);
        // A human's message may be the answer to a grant, so it is never dropped. A human's inbox has no limit either.
        let of_agent = kept.front().is_some_and(|oldest| oldest.turn.is_some());
        if of_agent && kept.len() as u64 > self.limits().inbox_max {
            kept.pop_front();
        }
    }
}

/// A delivery on its way to the caller. If it is dropped before it was handed over, it is kept for the agent's next
/// call.
pub struct Parcel {
    shared: Arc<BrokerShared>,
    agent: AgentId,
    delivery: Option<Delivery>,
    /// Whether its client has it, although it isn't acknowledged yet.
    pushed: bool,
}

impl Parcel {
    /// Notes that its client has it. If it isn't acknowledged, it is kept for that client.
    pub const fn push(&mut self) {
        self.pushed = true;
    }

    /// Returns the delivery.
    #[must_use]
    pub const fn delivery(&self) -> Option<&Delivery> {
        self.delivery.as_ref()
    }

    /// Sets the results that its task has kept by now, should it be given again (F7).
    #[must_use]
    pub fn with_steps(mut self, steps: Vec<Seq>) -> Self {
        if let Some(delivery) = &mut self.delivery {
            delivery.steps = steps;
        }
        self
    }

    /// Marks the delivery as handed over, so that dropping the parcel keeps nothing.
    pub fn accept(mut self) {
        self.delivery = None;
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        // A message that isn't durable was lost with its delivery: the disk had no room for them.
        let durable = *self.shared.committed.borrow();
        if let Some(delivery) = self.delivery.take().filter(|delivery| delivery.message <= durable) {
            if let Some(open) = delivery.turn.filter(|_| !self.pushed) {
                self.shared.holders.release(open.turn);
            }
            self.shared.keep(self.agent, delivery);
            // Another connection of the same agent may be waiting: it gets the delivery now.
            self.shared.wakes.wake(self.agent);
        }
    }
}

/// Submits inputs and reads state and entries; cheap to clone.
#[derive(Clone)]
pub struct Handle(pub(crate) Arc<BrokerShared>);

impl Handle {
    /// Lets the core handle `input`; returns its reply once the facts are durable.
    ///
    /// # Errors
    /// The queue is full, the disk has no room for this input, or the broker has stopped.
    pub async fn submit(&self, input: Input) -> Result<Reply, Unserved> {
        self.submit_then(input, |reply, _live| reply).await
    }

    /// Does the same as [`Handle::submit`] and reads the state in the same step, before any other input.
    ///
    /// # Errors
    /// The queue is full, the disk has no room for this input, or the broker has stopped.
    pub async fn submit_then<T, F>(&self, input: Input, then: F) -> Result<T, Unserved>
    where
        T: Send + 'static,
        F: FnOnce(Reply, &Live<'_>) -> T + Send + 'static,
    {
        if self.0.disk.is_gone() {
            return Err(Unserved::LogGone);
        }
        let space = self.0.disk.space();
        // Refused before it is queued, so a shortage costs the judge nothing.
        if !admits(space, &input) {
            return Err(Unserved::DiskLow { full: space == DiskSpace::Full });
        }
        let (send, receive) = oneshot::channel();
        // A human's stop overtakes the queue that it is meant to stop (H4).
        let lane = if matches!(input, Input::Control(..)) { Lane::Ahead } else { Lane::Normal };
        let then = Box::new(move |reply: Reply, live: &Live<'_>| release(send, then(reply, live)));
        // Read before the push: a batch lost after it may hold this command.
        let lost = self.0.disk.lost();
        self.push(lane, QueueEntry::Input(Box::new(input), then))?;
        self.answer(receive, lost).await
    }

    /// Reads the state; returns the result once everything that it saw is durable.
    ///
    /// # Errors
    /// The queue is full, or the broker has stopped.
    pub async fn query<T, F>(&self, look: F) -> Result<T, Unserved>
    where
        T: Send + 'static,
        F: FnOnce(&Live<'_>) -> T + Send + 'static,
    {
        let (put, found) = handed_over();
        self.look(Lane::Normal, Box::new(move |live| put.set(look(live)))).await?;
        found.take().ok_or_else(|| self.down())
    }

    /// Waits until the broker serves this call, ahead of all others and also when its queue is full.
    ///
    /// # Errors
    /// The disk is full, or the broker has stopped.
    pub async fn reach(&self) -> Result<(), Unserved> {
        self.look(Lane::Ahead, Box::new(|_| ())).await
    }

    /// Runs `look` on the state; returns once everything that it saw is durable. Compiled once, for queries of all types.
    async fn look(&self, lane: Lane, look: Box<dyn FnOnce(&Live<'_>) + Send>) -> Result<(), Unserved> {
        let (send, receive) = oneshot::channel();
        let lost = self.0.disk.lost();
        let look = move |live: &Live<'_>| {
            look(live);
            release(send, ())
        };
        self.push(lane, QueueEntry::Read(Box::new(look)))?;
        self.answer(receive, lost).await
    }

    /// Waits for the broker's answer. The broker drops a command when its batch found no room (more batches than `lost`
    /// by now) or when it fails. In the second case this waits for the reason, because a panic drops the commands a
    /// moment before the reason is recorded.
    async fn answer<T>(&self, receive: oneshot::Receiver<T>, lost: u64) -> Result<T, Unserved> {
        match receive.await {
            Ok(answer) => Ok(answer),
            Err(_) if self.0.disk.is_gone() => Err(Unserved::LogGone),
            Err(_) if self.0.disk.lost() > lost => Err(Unserved::DiskLow { full: true }),
            Err(_) => {
                // `self` keeps the sender alive, so this wait ends only with a value.
                let _told = self.failed().wait_for(Option::is_some).await.is_ok();
                Err(self.down())
            }
        }
    }

    /// Submits an input whose reply has no reader, ahead of the normal lane.
    pub(crate) fn cast(&self, input: Input) {
        if self.0.queue.push(Lane::Ahead, QueueEntry::Cast(input)).is_err() {
            tracing::debug!("the broker has stopped: a connection's end is not told to it");
        }
    }

    /// Returns the principal that `token` proves; `None` for an unknown, revoked or expired token.
    #[must_use]
    pub fn prove(&self, token: &str) -> Option<Principal> {
        match self.known_by(&credential(token)) {
            Proof::Valid(principal) => Some(principal),
            Proof::Expired(_) | Proof::Unknown => None,
        }
    }

    /// Returns what the token with this hash proves.
    #[must_use]
    pub fn known_by(&self, credential: &Credential) -> Proof {
        self.0.directory.prove(credential, || self.now())
    }

    /// Returns the hashes of all valid tokens that are stored, in order.
    #[must_use]
    pub fn credentials(&self) -> Vec<Credential> {
        self.0.directory.credentials()
    }

    /// Returns whether a delivery is kept in memory whose reader was gone before it had it.
    #[must_use]
    pub fn has_unread(&self) -> bool {
        self.0.unread().values().any(|kept| !kept.is_empty())
    }

    /// Returns the hash of `agent`'s current token, and the principal that it proves.
    #[must_use]
    pub fn proof_of(&self, agent: AgentId) -> Option<(Credential, Principal)> {
        self.0.directory.proof_of(agent, self.now())
    }

    /// Returns the console session that `cookie` proves; `None` if it is forged, expired or signed out.
    #[must_use]
    pub fn session(&self, cookie: &str) -> Option<ConsoleSession> {
        self.0.signer.verify_session(cookie, &self.0.directory, self.now())
    }

    /// Returns what a signed token proves; `None` if it is forged or was ended.
    #[must_use]
    pub fn bearer(&self, token: &str) -> Option<Bearer> {
        self.0.signer.verify_bearer(token, &self.0.directory, self.now())
    }

    /// Returns the signer of turn tokens.
    #[must_use]
    pub fn signer(&self) -> &TurnSigner {
        &self.0.signer
    }

    /// Returns the server's counters.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// Returns the broker's time, which may differ from the wall clock's (L6).
    #[must_use]
    pub fn now(&self) -> Time {
        self.0.clock.now()
    }

    /// Returns the broker's time and its difference from the wall clock's (L6).
    #[must_use]
    pub fn clock(&self) -> ClockStatus {
        self.0.clock.standing()
    }

    /// Returns the disk of the data directory.
    #[must_use]
    pub fn disk(&self) -> &Disk {
        &self.0.disk
    }

    /// Returns the number of commands that wait in the queue.
    #[must_use]
    pub fn queue_depth(&self) -> usize {
        self.0.queue.depth()
    }

    /// Watches the position of the last durable fact.
    #[must_use]
    pub fn committed(&self) -> watch::Receiver<Seq> {
        self.0.committed.clone()
    }

    /// Watches the positions at which a snapshot is due.
    pub(crate) fn milestones(&self) -> watch::Receiver<Seq> {
        self.0.milestones.clone()
    }

    /// Watches for the broker's failure; `None` while it runs, and after an orderly shutdown.
    #[must_use]
    pub fn failed(&self) -> watch::Receiver<Option<BrokerFailure>> {
        self.0.failed.subscribe()
    }

    /// Reads entries by position, from memory if all of them are there, otherwise from the log. Positions that don't
    /// exist are left out.
    ///
    /// # Errors
    /// The log can't be read.
    pub async fn entries(&self, seqs: Vec<Seq>) -> Result<Vec<(Seq, Arc<Entry>)>, ReadError> {
        self.entries_within(seqs, usize::MAX).await.map(|(entries, _)| entries)
    }

    /// Reads entries as [`Handle::entries`] does, until they have this many bytes, at least one. Returns whether any are
    /// left.
    ///
    /// # Errors
    /// The log can't be read.
    pub async fn entries_within(&self, seqs: Vec<Seq>, bytes_max: usize) -> Result<Within, ReadError> {
        let known: Option<Vec<_>> = {
            let recent = self.0.recent();
            seqs.iter().map(|&seq| recent.get(seq).map(|entry| (seq, entry))).collect()
        };
        if let Some(known) = known {
            return within(known.into_iter().map(Ok), bytes_max);
        }
        let reader = Arc::clone(&self.0.reader);
        off_thread(move || within(seqs.into_iter().filter_map(|seq| read_one(reader.as_ref(), seq)), bytes_max)).await
    }

    /// Shows entries by position, of which only some are in memory at a time.
    ///
    /// # Errors
    /// The log can't be read.
    pub async fn visit(
        &self,
        mut seqs: Vec<Seq>,
        mut visit: impl FnMut(Seq, &Arc<Entry>) + Send,
    ) -> Result<(), ReadError> {
        loop {
            let (entries, more) = self.entries_within(seqs.clone(), READ_BYTES_MAX).await?;
            for (seq, entry) in &entries {
                visit(*seq, entry);
            }
            let Some((last, _)) = entries.last().filter(|_| more) else { return Ok(()) };
            let read = seqs.iter().position(|seq| seq == last).map_or(seqs.len(), |at| at + 1);
            seqs.drain(..read);
        }
    }

    /// Reads up to `max` entries from position `from` on, from memory if all of them are there, otherwise from the log:
    /// fewer if they are long.
    ///
    /// # Errors
    /// The log can't be read.
    pub async fn read(&self, from: Seq, max: usize) -> Result<Vec<(Seq, Arc<Entry>)>, ReadError> {
        let found = {
            let recent = self.0.recent();
            let upto = recent.last().0.min(from.0.saturating_add(max as u64).saturating_sub(1));
            let mut bytes = 0;
            let short = |found: &Option<(Seq, Arc<Entry>)>| {
                let fits = bytes < READ_BYTES_MAX;
                bytes += found.as_ref().map_or(0, |(_, entry)| weight(entry));
                fits
            };
            let known = (from.0..=upto).map(|n| recent.get(Seq(n)).map(|entry| (Seq(n), entry)));
            known.take_while(short).collect::<Option<Vec<_>>>()
        };
        if let Some(found) = found {
            return Ok(found);
        }
        let reader = Arc::clone(&self.0.reader);
        let read = move || Ok(reader.read(from, max)?.into_iter().map(|(seq, e)| (seq, Arc::new(e))).collect());
        off_thread(read).await
    }

    /// Wraps a delivery for `agent`, so that its next call gets the delivery again if this one can't hand it over.
    #[must_use]
    pub fn parcel(&self, agent: AgentId, delivery: Delivery) -> Parcel {
        Parcel { shared: Arc::clone(&self.0), agent, delivery: Some(delivery), pushed: false }
    }

    /// Takes the oldest delivery that was not handed over and whose turn, if it has one, is among those that `may` allows.
    pub fn unread(&self, agent: AgentId, may: impl Fn(TurnId) -> bool) -> Option<Parcel> {
        let mut unread = self.0.unread();
        let kept = unread.get_mut(&agent)?;
        let fits = |delivery: &Delivery| delivery.turn.is_none_or(|open| may(open.turn));
        let at = kept.iter().position(fits)?;
        let delivery = kept.remove(at)?;
        if kept.is_empty() {
            unread.remove(&agent);
        }
        drop(unread);
        Some(self.parcel(agent, delivery))
    }

    /// Forgets a kept delivery that the agent got otherwise.
    pub fn forget_kept(&self, agent: AgentId, delivery: &Delivery) {
        let same = |kept: &Delivery| {
            kept.message == delivery.message && kept.turn.map(|open| open.turn) == delivery.turn.map(|open| open.turn)
        };
        let mut unread = self.0.unread();
        if let Some(kept) = unread.get_mut(&agent) {
            kept.retain(|kept| !same(kept));
            if kept.is_empty() {
                unread.remove(&agent);
            }
        }
    }

    /// Returns the messages whose deliveries were not handed over.
    #[must_use]
    pub fn kept(&self, agent: AgentId) -> Vec<Seq> {
        self.0.unread().get(&agent).into_iter().flatten().map(|delivery| delivery.message).collect()
    }

    /// Returns the limits in force.
    #[must_use]
    pub fn limits(&self) -> Arc<Limits> {
        self.0.limits()
    }

    pub(crate) fn saving(&self) -> MutexGuard<'_, ()> {
        self.0.saving()
    }

    /// Ends a session of a client that takes deliveries; whether the client may come back under its id.
    pub fn end_session(&self, agent: AgentId, client: ClientId, named: bool) {
        self.0.holders.end(agent, client, named, self.now());
        // Another client of the agent may wait for what this one held.
        self.0.wakes.wake(agent);
    }

    /// Lets go of what a client held that has ended.
    pub fn gone(&self, agent: AgentId, client: ClientId) {
        self.0.holders.gone(agent, client);
        self.0.wakes.wake(agent);
    }

    /// Returns the holders of open turns.
    #[must_use]
    pub fn holders(&self) -> &Holders {
        &self.0.holders
    }

    pub(crate) fn wakes(&self) -> &Wakes {
        &self.0.wakes
    }

    /// Keeps the reason why an agent's program can't work, until another connection begins; an empty one takes it back.
    pub fn fail(&self, agent: AgentId, reason: Box<str>) {
        self.0.wakes.fail(agent, reason);
    }

    /// Keeps that an agent asked for deliveries and was answered.
    pub fn poll(&self, agent: AgentId) {
        self.0.wakes.poll(agent, self.now());
    }

    /// Returns the bell that rings when an approval is decided.
    #[must_use]
    pub fn approvals(&self) -> &tokio::sync::Notify {
        &self.0.wakes.approvals
    }

    /// Returns the bell that rings when a claim ends.
    #[must_use]
    pub fn claims(&self) -> &tokio::sync::Notify {
        &self.0.wakes.claims
    }

    /// Returns the number of agents and humans with a valid token.
    #[must_use]
    pub fn known(&self) -> usize {
        self.0.directory.len()
    }

    /// Closes the queue: the broker ends once what waits in it is judged and written.
    pub fn close(&self) {
        self.0.queue.close();
    }

    /// Waits until a broker whose queue is closed has written its last facts.
    pub async fn written(&self) {
        let mut committed = self.committed();
        // The writer drops the sender when it ends.
        while committed.changed().await.is_ok() {}
    }

    fn push(&self, lane: Lane, command: QueueEntry) -> Result<(), Unserved> {
        self.0.queue.push(lane, command).map_err(|full| match full {
            Full::Saturated => Unserved::Saturated,
            Full::Closed => self.down(),
        })
    }

    fn down(&self) -> Unserved {
        let failed = self.0.failed.borrow().clone();
        // Without a recorded failure, a shutdown closed the queue.
        Unserved::Down(failed.map_or_else(|| "it was shut down".into(), |failed| failed.reason))
    }
}

/// Prepares an answer for its release. Its caller may have disconnected meanwhile; then the send fails, and that is
/// fine.
pub(crate) fn release<T: Send + 'static>(send: oneshot::Sender<T>, answer: T) -> Release {
    Box::new(move || drop(send.send(answer)))
}

/// Takes entries until they have this many bytes, at least one; returns them, and whether any are left.
fn within(
    entries: impl Iterator<Item = Result<(Seq, Arc<Entry>), ReadError>>,
    bytes_max: usize,
) -> Result<Within, ReadError> {
    let (mut found, mut bytes) = (Vec::new(), 0_usize);
    for entry in entries {
        let (seq, entry) = entry?;
        bytes = bytes.saturating_add(if bytes_max == usize::MAX { 0 } else { weight(&entry) });
        if bytes > bytes_max && !found.is_empty() {
            return Ok((found, true));
        }
        found.push((seq, entry));
    }
    Ok((found, false))
}

fn read_one(reader: &dyn LogReader, seq: Seq) -> Option<Result<(Seq, Arc<Entry>), ReadError>> {
    reader.entry(seq).transpose().map(|entry| entry.map(|entry| (seq, Arc::new(entry))))
}

#[cfg(test)]
#[path = "handle_tests.rs"]
mod tests;
