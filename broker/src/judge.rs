//! The broker's loop: one thread judges, a second one appends to the log.
//!
//! The judge owns the core. It drains commands, lets the core handle each one, and prepares every caller's reply at
//! once, but holds all replies back. The writer owns the log. It appends the facts of a batch in one append (group
//! commit) and only then releases the held replies, wakes and reads. While the disk is busy the judge continues with
//! the next batch, so memory is ahead of the disk only by state that no caller has seen yet. Callers that wait are served
//! in the batch that brings what they wait for. When two batches in a row are small, the judge appends the second one on
//! its own thread, which saves waking the writer.
//!
//! When an append finds no room on the disk, the judge rebuilds the core from the log and the process continues. When
//! an append fails for any other reason, nothing is released and the process has to end: the next start reads from the
//! log which facts were written. A panic on either thread ends the process in the same way.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use lastword_core::{Core, Effect, Input, Out, Reply};
use lastword_facts::Seq;
use lastword_facts::ids::{AgentId, TaskId};
use lastword_wire::DiskSpace;

use crate::boot::idled;
use crate::clock::Stopwatch;
use crate::disk::LOOK_EVERY;
use crate::handle::BrokerShared;
use crate::live::Live;
use crate::queue::Drain;
use crate::unserved::BrokerFailure;
use crate::wakes::Waiter;
use crate::writer::{Batch, Writing, write_back};

/// A batch of up to this size is appended on the judge's thread, which saves waking the writer, if the previous batch
/// was small, too. After a large one it isn't: under load more is on its way, and the judge has to go on.
const BATCH_SMALL: usize = if cfg!(all(test, feature = "interleavings")) { 1 } else { 4 };
/// The most commands in one append. Bounds how long the first command of a batch waits for the others.
pub(crate) const BATCH_MAX: usize = 256;
/// The most commands that may wait in the queue's normal lane; the broker refuses further ones (`saturated`).
pub const QUEUE_MAX: usize = 10_240;

/// Turns a reply into its caller's answer, while the state is as the input left it.
pub(crate) type OnReply = Box<dyn FnOnce(Reply, &Live<'_>) -> Release + Send>;
/// Reads the state and prepares the answer for the caller.
pub(crate) type Read = Box<dyn FnOnce(&Live<'_>) -> Release + Send>;
/// Sends a prepared answer, once the facts before it are durable.
pub(crate) type Release = Box<dyn FnOnce() + Send>;

/// One entry of the broker's queue.
pub(crate) enum QueueEntry {
    /// Handle an input; the closure turns its reply into the caller's answer.
    Input(Box<Input>, OnReply),
    /// Handle an input whose reply has no reader.
    Cast(Input),
    /// Read the state.
    Read(Read),
}

/// The state of the thread that decides inputs.
pub(crate) struct Judge {
    pub(crate) core: Core,
    pub(crate) writing: Writing,
    pub(crate) shared: Arc<BrokerShared>,
    pub(crate) out: Out,
    /// The judged commands that are not with the writer yet.
    pub(crate) batch: Batch,
    /// Whether the last batch was small (`BATCH_SMALL`).
    pub(crate) last_was_small: bool,
    /// The disk's count of batches that found no room, as of when the core was built. A higher count means that the
    /// core is ahead of the log.
    pub(crate) dropped_batches: u64,
    /// The time since the judge last checked the room on the disk.
    pub(crate) since_disk_check: Stopwatch,
}

impl Judge {
    /// Runs until the queue is closed and empty, an append fails for another reason than a full disk, or something panics.
    pub(crate) fn run(mut self) {
        // The core may be half-updated after a panic. Nothing reads it again, so unwind safety doesn't matter.
        match catch_unwind(AssertUnwindSafe(|| self.serve())) {
            Ok(true) => self.end(),
            Ok(false) => {}
            Err(panic) => self.shared.fail(BrokerFailure::bug(&words(panic.as_ref()))),
        }
    }

    /// Serves until the queue is closed and empty; `false` if the broker has failed.
    fn serve(&mut self) -> bool {
        let mut commands = Vec::with_capacity(BATCH_MAX);
        loop {
            let room = BATCH_MAX.saturating_sub(self.batch.commands);
            let open = self.shared.queue.drain(
                &mut commands,
                Drain { max: room, wait: Some(self.sleep_time()), pending: !self.batch.is_empty() },
            );
            if !self.check_disk_and_recover() {
                return false;
            }
            self.judge(&mut commands);
            if !self.hand_over() {
                return false;
            }
            if !open && self.batch.is_empty() {
                return true;
            }
        }
    }

    /// Whether deadlines pass: not while the log can't be written.
    fn runs(&self) -> bool {
        self.shared.disk.space() != DiskSpace::Full && !self.shared.disk.is_gone()
    }

    /// Whether a batch found no room, so that the core is ahead of the log.
    fn is_ahead_of_log(&self) -> bool {
        self.shared.disk.lost() > self.dropped_batches
    }

    /// Returns how long the judge may sleep before its next deadline or disk check.
    fn sleep_time(&self) -> Duration {
        let space = self.shared.disk.space();
        // No tick runs while the disk is full, so a passed deadline would only make the judge spin.
        let runs = self.runs();
        let due = self.core.next_deadline().map(|(due, _why)| due).filter(|_| runs);
        let idle = self.shared.clock.until(due);
        if space == DiskSpace::Enough && !self.shared.disk.is_gone() { idle } else { idle.min(LOOK_EVERY) }
    }

    /// Checks the room on the disk at most once per `LOOK_EVERY`. If a batch found no room, memory is ahead of the
    /// disk, so the core is rebuilt from the log. `false` if the log can't be read.
    fn check_disk_and_recover(&mut self) -> bool {
        if self.since_disk_check.elapsed() >= LOOK_EVERY {
            self.shared.disk.refresh();
            let was_gone = self.shared.disk.is_gone();
            self.writing.look_after_files(&self.shared);
            if was_gone && !self.shared.disk.is_gone() {
                // Those that a dropped batch would have woken.
                self.shared.wakes.wake_all();
            }
            self.since_disk_check = Stopwatch::start();
        }
        if !self.is_ahead_of_log() {
            return true;
        }
        let lost = self.shared.disk.lost();
        match self.writing.rebuild() {
            Ok(core) => {
                (self.core, self.dropped_batches) = (core, lost);
                // Commands judged after the lost batch build on its facts and are lost too. Dropping them makes their
                // callers' handles report the full disk.
                self.shared.clock.lose_jump(self.batch.jumped_ms);
                self.batch = Batch::after(self.core.state().seq);
                true
            }
            Err(error) => {
                self.shared.fail(BrokerFailure::unread(&error));
                false
            }
        }
    }

    /// Handles commands and adds their facts and replies to the batch.
    fn judge(&mut self, commands: &mut Vec<QueueEntry>) {
        let runs = self.runs();
        // Reads alone write nothing, and must not wait for room.
        if runs || commands.iter().any(|command| !matches!(command, QueueEntry::Read(_))) {
            self.record_lost_jumps();
        }
        // Before the tick: leases and windows must not count the time in which the broker didn't run (L6).
        if let Some(ms) = self.shared.clock.downtime().filter(|_| runs) {
            self.process(QueueEntry::Cast(Input::Idled(None, ms)));
        }
        let now = self.shared.clock.now();
        // Before the commands, so that an input that arrives after a deadline is judged by the state after it.
        if runs && self.core.next_deadline().is_some_and(|(due, _why)| due <= now) {
            let woken = self.batch.wakes.len();
            self.core.handle(now, Input::Tick, &mut self.out);
            self.absorb(None);
            self.serve_waiting(woken);
        }
        for command in commands.drain(..) {
            if let Some(release) = self.process(command) {
                self.batch.held.push(release);
            }
            self.batch.commands += 1;
        }
        if self.batch.is_empty() {
            // The commands left no trace, so this batch is never handed over. Without the reset they would fill it for
            // good.
            self.batch.commands = 0;
        }
    }

    /// Records the jumps of the clock whose facts found no room, before a later fact makes them look like time that
    /// passed (L6).
    fn record_lost_jumps(&mut self) {
        if let Some(ms) = self.shared.clock.take_lost_jumps() {
            // The clock has jumped already: only the fact is missing.
            self.core.handle(self.shared.clock.now(), Input::Idled(None, ms), &mut self.out);
            self.absorb(None);
            self.batch.jumped_ms += ms;
        }
    }

    /// Handles one command; returns the prepared answer, which is released once the facts are durable.
    fn process(&mut self, command: QueueEntry) -> Option<Release> {
        let (input, then) = match command {
            QueueEntry::Input(input, then) => (*input, Some(then)),
            QueueEntry::Cast(input) => (input, None),
            QueueEntry::Read(read) => return Some(read(&self.live())),
        };
        self.batch.urgent |= matches!(input, Input::Control(..));
        let changes_limits = matches!(input, Input::ChangeLimits(..));
        let clock = &self.shared.clock;
        if let Input::Idled(by, ms) = input {
            // A human accepts the difference as it is at this moment: another human may have accepted it a moment ago,
            // and the clock must not jump twice.
            let ms = by.map_or(ms, |_| ms.min(clock.ahead()));
            self.batch.jumped_ms += idled(&mut self.core, clock, by, ms, &mut self.out);
        } else {
            self.core.handle(clock.now(), input, &mut self.out);
        }
        if changes_limits {
            // What is checked before the core goes by them once they are durable.
            let (shared, limits) = (Arc::clone(&self.shared), Arc::new(self.core.state().limits.clone()));
            self.batch.held.push(Box::new(move || shared.set_limits(limits)));
        }
        let woken = self.batch.wakes.len();
        let release = self.absorb(then);
        self.serve_waiting(woken);
        release
    }

    /// Adds the facts and effects of one input to the batch; returns the prepared answer.
    fn absorb(&mut self, then: Option<OnReply>) -> Option<Release> {
        let reply = self.batch.take(&mut self.out, self.core.state())?;
        self.shared.metrics.reply(&reply);
        then.map(|then| then(reply, &self.live()))
    }

    /// Serves the callers that wait for what the last input brought: senders for answers, and agents for deliveries. What
    /// they take is appended together with what brought it. `woken` is the number of wakes before the input.
    fn serve_waiting(&mut self, mut woken: usize) {
        loop {
            if let Some((request, task)) = self.batch.answers.pop() {
                self.collect(request, task);
            } else if let Some(wake) = self.batch.wakes.get(woken) {
                let agent = if let Effect::Wake(agent) = wake { Some(*agent) } else { None };
                // The end of a turn is no delivery: its session is woken even if nothing can be taken.
                let must_wake = agent.is_some_and(|agent| self.batch.interrupted.contains(&agent));
                if agent.is_some_and(|agent| self.deliver(agent)) && !must_wake {
                    self.batch.wakes.remove(woken);
                } else {
                    woken += 1;
                }
            } else {
                self.batch.interrupted.clear();
                return;
            }
        }
    }

    /// Lets the senders that wait for the answer to this request collect it.
    fn collect(&mut self, request: Seq, task: TaskId) {
        while let Some(Waiter { by, then }) = self.shared.wakes.waiter(request) {
            let settled = self.core.state().tasks.get(&task).and_then(|task| task.request.as_ref());
            let Some(id) = settled.map(|request| request.id.clone()) else { continue };
            self.core.handle(self.shared.clock.now(), Input::Collect(by, id), &mut self.out);
            let release = self.absorb(Some(then));
            self.batch.held.extend(release);
        }
    }

    /// Lets callers that wait for the agent's deliveries take all that are there. Returns whether that serves the wake,
    /// so that no caller still needs it.
    fn deliver(&mut self, agent: AgentId) -> bool {
        if self.shared.disk.space() != DiskSpace::Enough {
            return false;
        }
        while let Some((number, mut taker)) = self.shared.wakes.taker(agent) {
            let Some(input) = taker.input() else {
                // Dropped after the deliveries that it took are released.
                self.batch.held.push(Box::new(move || drop(taker)));
                return false;
            };
            self.core.handle(self.shared.clock.now(), input, &mut self.out);
            match self.batch.take(&mut self.out, self.core.state()) {
                Some(Reply::Delivery(Some(delivery))) => {
                    let release = taker.put(delivery, &self.live());
                    self.batch.held.push(release);
                    self.shared.wakes.put_back(agent, number, taker);
                }
                Some(Reply::Delivery(None)) => {
                    let is_served = !taker.must_wake(&self.live());
                    return self.shared.wakes.put_back(agent, number, taker) && is_served;
                }
                // Woken, the caller makes the call itself and gets the refusal.
                Some(_) | None => {
                    self.shared.wakes.put_back(agent, number, taker);
                    return false;
                }
            }
        }
        false
    }

    fn live(&self) -> Live<'_> {
        Live::new(&self.core, &self.shared, &self.batch)
    }

    /// Appends or releases the batch if the writer is idle; `false` if the broker has failed. Commands that wait in the queue
    /// join the batch first, because a sync costs more than judging them.
    fn hand_over(&mut self) -> bool {
        // A read-only batch gains nothing from more commands. It still needs an idle writer: what it read may belong to
        // the batch that is being written.
        let full = self.batch.commands >= BATCH_MAX || self.batch.writes_nothing();
        if self.batch.is_empty() || !self.shared.queue.take_writer(full) {
            return true;
        }
        if self.is_ahead_of_log() {
            // The previous batch found no room while this one was judged on top of it: rebuild instead of appending
            // after a gap.
            self.shared.queue.mark_writer_idle();
            return self.check_disk_and_recover();
        }
        let next = Batch::after(self.core.state().seq);
        let batch = std::mem::replace(&mut self.batch, next);
        if batch.writes_nothing() {
            // The writer is idle, so everything that this batch read is durable.
            batch.release(&self.shared);
            self.shared.queue.mark_writer_idle();
            return true;
        }
        let small = batch.commands <= BATCH_SMALL;
        let last_was_small = std::mem::replace(&mut self.last_was_small, small);
        if small && last_was_small { self.writing.write_here(batch) } else { self.writing.write(batch) }
    }

    /// Saves a snapshot once the queue is closed and everything is written, so that the next start replays nothing.
    fn end(self) {
        let Some(mut log) = self.writing.end() else { return };
        if !log.is_in_place() {
            write_back(log.as_mut());
            return;
        }
        if self.shared.disk.lost() > self.dropped_batches {
            // The state is ahead of the log, and a snapshot must never be.
            return;
        }
        let _saving = self.shared.saving();
        let state = self.core.state();
        let saved = postcard::to_allocvec(state).map(|bytes| log.snapshots().save(state.seq, &bytes));
        match saved {
            Ok(Ok(())) => tracing::debug!(seq = state.seq.0, "snapshot saved"),
            // A snapshot is only a cache: without it, the next start replays more of the log.
            Ok(Err(error)) => tracing::warn!(%error, "no snapshot was saved"),
            Err(error) => tracing::warn!(%error, "no snapshot was saved"),
        }
    }
}

/// Returns the message of a panic.
pub(crate) fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no reason was given".into())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use lastword_core::input::{Finish, Registration};
    use lastword_facts::fact::{Kind, Profile};
    use lastword_facts::names::{AgentName, Ref};
    use lastword_facts::{Address, Draft, Limits, MessageType};
    use lastword_store::{InjectedFault, MemoryLog};

    use super::*;
    use crate::boot::{Boot, boot_by};
    use crate::clock::{Gap, Reading, Source};
    use crate::identity::{Secret, TurnSigner};
    use crate::unserved::Unserved;

    const DAY_US: u64 = 86_400_000_000;

    fn registration(name: &str, kind: Kind, token: &Secret) -> Registration {
        let profile = Profile { actions: Vec::new(), groups: Vec::new(), turns_max: 0 };
        let (name, credential) = (AgentName::new(name).unwrap(), token.credential());
        Registration { name, kind, profile, credential, role: None, display_name: None, key: None }
    }

    fn send(from: lastword_core::Principal, reference: &str) -> Input {
        let mut draft = Draft::new(MessageType::Request, Address::Name(AgentName::new("kilo").unwrap()), "x");
        draft.reference = Ref::new(reference).ok();
        Input::Send(from, Box::new(draft))
    }

    #[tokio::test]
    async fn a_changed_limit_is_checked_before_the_core_only_once_it_is_durable() {
        let log = MemoryLog::new();
        let signer = TurnSigner::ephemeral().unwrap();
        let (handle, _thread) = crate::boot(Box::new(log.clone()), signer, Limits::default()).unwrap();
        let human = Secret::token().unwrap();
        handle.submit(Input::Bootstrap(registration("operator", Kind::Human, &human))).await.unwrap();
        let human = handle.prove(human.reveal()).unwrap();
        let change = || Input::ChangeLimits(human, [("body_bytes_max".into(), 20), ("lease_ms".into(), 1_000)].into());
        let (before, now) = (Limits::default().body_bytes_max, || handle.limits().body_bytes_max);
        log.fail_next(InjectedFault::Full);
        assert!(matches!(handle.submit(change()).await, Err(Unserved::DiskLow { full: true })));
        assert_eq!(now(), before);
        while handle.submit(change()).await.is_err() {
            assert_eq!(now(), before);
            tokio::time::sleep(LOOK_EVERY / 10).await;
        }
        assert_eq!((now(), handle.limits().lease_ms), (20, 1_000));
    }

    #[tokio::test]
    async fn a_sleep_that_a_full_disk_did_not_record_ends_no_lease() {
        let log = MemoryLog::new();
        let reading = Reading { monotonic_us: DAY_US, boottime_us: DAY_US, wall_us: DAY_US };
        let machine = Arc::new(Mutex::new(reading));
        let boot =
            Boot { clocks: Source::Set(Arc::clone(&machine)), disk: Arc::default(), core: None, gap: Gap::Unknown };
        let signer = TurnSigner::ephemeral().unwrap();
        let (handle, _thread) = boot_by(boot, Box::new(log.clone()), signer, Limits::default()).unwrap();
        let (human, agent) = (Secret::token().unwrap(), Secret::token().unwrap());
        handle.submit(Input::Bootstrap(registration("operator", Kind::Human, &human))).await.unwrap();
        let human = handle.prove(human.reveal()).unwrap();
        handle.submit(Input::Register(human, registration("kilo", Kind::Agent, &agent))).await.unwrap();
        let agent = handle.prove(agent.reveal()).unwrap();
        handle.submit(send(human, "T-1")).await.unwrap();
        assert!(matches!(handle.submit(Input::Take(agent, None)).await, Ok(Reply::Delivery(Some(_)))));

        log.fail_next(InjectedFault::Full);
        {
            let mut machine = machine.lock().unwrap();
            machine.monotonic_us += 10_000;
            machine.boottime_us += DAY_US / 2;
            machine.wall_us += DAY_US / 2;
        }
        assert!(matches!(handle.submit(send(human, "T-2")).await, Err(Unserved::DiskLow { full: true })));
        while handle.submit(send(human, "T-3")).await.is_err() {
            tokio::time::sleep(LOOK_EVERY / 10).await;
        }
        let finish = Finish { body: "done".into(), ..Finish::default() };
        let finished = handle.submit(Input::Finish(agent, None, Box::new(finish))).await.unwrap();
        assert!(matches!(finished, Reply::Finished { answer: Some(_), .. }), "{finished:?}");
    }
}
