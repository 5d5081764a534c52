//! The broker's loop: one thread judges, another one writes.
//!
//! The judge owns the core. It drains commands, lets the core handle each, and works out at once what every
//! caller is to be told; all of that is held back. The writer owns the log. It appends the facts of a batch
//! at once (group commit), and only then releases what was held back: answers, wakes and reads. While the
//! disk is at work the judge goes on with the next batch, so memory is ahead of the disk by what nobody has
//! seen yet. A batch of a few commands it writes itself. When an append finds no room, the judge rebuilds the core from the
//! log and the process goes on. When it fails otherwise nothing is released, and the process is to end: a restart finds out
//! what was written. A panic on either thread ends it in the same way.

mod boot;
mod handle;
mod keeper;
mod live;
mod queue;
mod recent;
mod wakes;
mod writer;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use lastword_proto::wire::DiskSpace;
use lastword_proto::{Core, Input, Out, Reply};

pub(crate) use self::boot::boot_by;
pub use self::boot::{BootError, Repaired, boot, repair};
pub(crate) use self::handle::Parcel;
pub(crate) use self::handle::off_thread;
pub use self::handle::{BrokerFailure, Handle, Unserved};
pub(crate) use self::keeper::keep;
pub use self::live::Live;
pub(crate) use self::wakes::{Subscription, Wait};

use self::boot::idled;
use self::handle::BrokerShared;
use self::writer::{Batch, Writing};
use crate::clock::Stopwatch;
use crate::disk::LOOK_EVERY;

/// So few commands are written by the judge itself, which spares them the way to another thread; where those before them
/// were so few, too. Under load a small batch is what came first after a large one, and more is on its way.
const BATCH_SMALL: usize = 4;
/// Most commands in one append.
const BATCH_MAX: usize = 256;
/// Commands that may wait for the broker; more are refused (`saturated`).
const QUEUE_MAX: usize = 8_192;

/// Words a reply while the state is as the input left it.
type OnReply = Box<dyn FnOnce(Reply, &Live<'_>) -> Release + Send>;
/// Looks at the state.
type Look = Box<dyn FnOnce(&Live<'_>) -> Release + Send>;
/// Hands over what was worded, once the facts before it are durable.
type Release = Box<dyn FnOnce() + Send>;

/// What the broker is asked for.
enum Command {
    /// Handle an input; the closure gets its reply.
    Input(Box<Input>, OnReply),
    /// Handle an input whose reply nobody waits for.
    Cast(Input),
    /// Look at the state.
    Look(Look),
}

/// The judge on its thread.
struct Broker {
    core: Core,
    writing: Writing,
    shared: Arc<BrokerShared>,
    out: Out,
    /// What was judged and is not with the writer yet.
    batch: Batch,
    /// Whether the last batch was small.
    calm: bool,
    /// Batches that found no room, as of when the core was built.
    lost: u64,
    /// Since the room on the disk was looked at.
    looked: Stopwatch,
}

impl Broker {
    /// Runs until the queue is closed and empty, an append fails, or something panics.
    fn run(mut self) {
        // After a panic the state is not looked at again, so it does not matter where it was left.
        match catch_unwind(AssertUnwindSafe(|| self.serve())) {
            Ok(true) => self.end(),
            Ok(false) => {}
            Err(panic) => self.shared.fail(BrokerFailure::bug(&words(panic.as_ref()))),
        }
    }

    /// Serves until the queue is closed and empty; `false` when the writer failed before.
    fn serve(&mut self) -> bool {
        let mut commands = Vec::with_capacity(BATCH_MAX);
        loop {
            let room = BATCH_MAX.saturating_sub(self.batch.commands);
            let open = self.shared.queue.drain(&mut commands, room, Some(self.idle()), !self.batch.is_empty());
            if !self.look_at_the_disk() {
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

    /// How long nothing is due.
    fn idle(&self) -> Duration {
        let space = self.shared.disk.space();
        let due = self.core.next_deadline().map(|(due, _why)| due).filter(|_| space != DiskSpace::Full);
        let idle = self.shared.clock.until(due);
        if space == DiskSpace::Enough { idle } else { idle.min(LOOK_EVERY) }
    }

    /// Looks at the room on the disk now and then. Where a batch found none, memory is ahead of the disk: the core is built
    /// again from the log. `false` when that can't be read.
    fn look_at_the_disk(&mut self) -> bool {
        if self.looked.elapsed() >= LOOK_EVERY {
            self.shared.disk.look();
            self.looked = Stopwatch::start();
        }
        let lost = self.shared.disk.lost();
        if lost == self.lost {
            return true;
        }
        match self.writing.rebuild() {
            Ok(core) => {
                (self.core, self.lost) = (core, lost);
                // What was judged behind the lost batch is lost with it; those who wait are told so.
                self.batch = Batch::behind(self.core.state().seq);
                true
            }
            Err(error) => {
                self.shared.fail(BrokerFailure::unread(&error));
                false
            }
        }
    }

    /// Handles commands; what comes of them joins the batch.
    fn judge(&mut self, commands: &mut Vec<Command>) {
        let runs = self.shared.disk.space() != DiskSpace::Full;
        if let Some(ms) = self.shared.clock.idle().filter(|_| runs) {
            self.hear(Command::Cast(Input::Idled(None, ms)));
        }
        let now = self.shared.clock.now();
        if runs && self.core.next_deadline().is_some_and(|(due, _why)| due <= now) {
            self.core.handle(now, Input::Tick, &mut self.out);
            self.batch.take(&mut self.out, self.core.state());
        }
        for command in commands.drain(..) {
            if let Some(release) = self.hear(command) {
                self.batch.held.push(release);
            }
            self.batch.commands += 1;
        }
        if self.batch.is_empty() {
            // Nothing came of them, so nothing is handed over that would make room for others.
            self.batch.commands = 0;
        }
    }

    /// Handles one command; gives what its caller is told once the facts are durable.
    fn hear(&mut self, command: Command) -> Option<Release> {
        let (input, then) = match command {
            Command::Input(input, then) => (*input, Some(then)),
            Command::Cast(input) => (input, None),
            Command::Look(look) => return Some(look(&self.live())),
        };
        self.batch.urgent |= matches!(input, Input::Control(..));
        let clock = &self.shared.clock;
        if let Input::Idled(by, ms) = input {
            // What a human accepts is how far it is ahead now: another one may have accepted it a moment ago.
            let ms = by.map_or(ms, |_| ms.min(clock.ahead()));
            idled(&mut self.core, clock, (by, ms), &mut self.out);
        } else {
            self.core.handle(clock.now(), input, &mut self.out);
        }
        let reply = self.batch.take(&mut self.out, self.core.state())?;
        self.shared.metrics.reply(&reply);
        then.map(|then| then(reply, &self.live()))
    }

    fn live(&self) -> Live<'_> {
        Live::new(self.core.state(), &self.shared, &self.batch)
    }

    /// Gives the batch to the writer, if that has nothing to do; `false` when it has failed. What waits already goes along:
    /// a sync costs more than to judge it.
    fn hand_over(&mut self) -> bool {
        // Read-only batches skip the writer.
        let full = self.batch.commands >= BATCH_MAX || self.batch.writes_nothing();
        if self.batch.is_empty() || !self.shared.queue.take_writer(full) {
            return true;
        }
        if self.shared.disk.lost() > self.lost {
            // The batch before this one found no room.
            self.shared.queue.writer_idle();
            return self.look_at_the_disk();
        }
        let next = Batch::behind(self.core.state().seq);
        let batch = std::mem::replace(&mut self.batch, next);
        if batch.writes_nothing() {
            // Everything that it looked at is durable.
            batch.release(&self.shared);
            self.shared.queue.writer_idle();
            return true;
        }
        let small = batch.commands <= BATCH_SMALL;
        let calm = std::mem::replace(&mut self.calm, small);
        if small && calm { self.writing.write_here(batch) } else { self.writing.write(batch) }
    }

    /// The queue is closed and everything is written: a snapshot spares the next start the replay.
    fn end(self) {
        let Some(log) = self.writing.end() else { return };
        if self.shared.disk.lost() > self.lost {
            // The state is ahead of the log.
            return;
        }
        let _one = self.shared.saving();
        let state = self.core.state();
        let saved = postcard::to_allocvec(state).map(|bytes| log.snapshots().save(state.seq, &bytes));
        match saved {
            Ok(Ok(())) => tracing::debug!(seq = state.seq.0, "snapshot saved"),
            // A snapshot is a cache: the next start replays instead.
            Ok(Err(error)) => tracing::warn!(%error, "no snapshot was saved"),
            Err(error) => tracing::warn!(%error, "no snapshot was saved"),
        }
    }
}

/// What a panic said.
fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no reason was given".into())
}
