//! The broker's loop: one thread owns the core and the log.
//!
//! It drains a batch of commands, lets the core handle each, appends the facts of all of them at once
//! (group commit), and only then releases what was held back: replies, wakes and reads. When an append
//! fails nothing is released, and the process is to end: a restart finds out what was written. A panic on
//! this thread ends it in the same way.

mod boot;
mod handle;
mod keeper;
mod live;
mod queue;
mod recent;
mod wakes;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use lastword_proto::{Core, Effect, Fact, Input, Out, Reply, Seq};
use lastword_store::{AppendError, Log};
use tokio::sync::watch;

pub use self::boot::{BootError, boot};
pub(crate) use self::handle::Parcel;
pub(crate) use self::handle::off_thread;
pub use self::handle::{Failed, Handle, Unserved};
pub(crate) use self::keeper::keep;
pub use self::live::Live;
pub(crate) use self::wakes::Subscription;

use self::handle::Shared;
use crate::clock::Stopwatch;

/// Most commands in one append.
const BATCH_MAX: usize = 256;
/// Commands that may wait for the broker; more are refused (`saturated`).
const QUEUE_MAX: usize = 8_192;

/// What runs once the facts before it are durable.
type Then = Box<dyn FnOnce(Reply, &Live<'_>) + Send>;
type Look = Box<dyn FnOnce(&Live<'_>) + Send>;

/// What the broker's thread is asked for.
enum Command {
    /// Handle an input; the closure gets its reply.
    Input(Box<Input>, Then),
    /// Handle an input whose reply nobody waits for.
    Cast(Input),
    /// Look at the state.
    Look(Look),
}

/// The broker on its thread.
struct Broker {
    core: Core,
    log: Box<dyn Log>,
    epoch: u64,
    shared: Arc<Shared>,
    committed: watch::Sender<Seq>,
    out: Out,
}

/// What was held back for a command until its facts are durable.
enum Held {
    Reply(Then, Box<Reply>),
    Look(Look),
}

impl Broker {
    /// Runs until the queue is closed and empty, an append fails, or something panics.
    fn run(mut self) {
        // After a panic the state is not looked at again, so it does not matter where it was left.
        match catch_unwind(AssertUnwindSafe(|| self.serve())) {
            Ok(true) => self.save(),
            Ok(false) => {}
            Err(panic) => self.fail(Failed::bug(&words(panic.as_ref())), Vec::new()),
        }
    }

    /// Serves until the queue is closed and empty; `false` when an append failed before.
    fn serve(&mut self) -> bool {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        loop {
            let wait = self.idle();
            let open = self.shared.queue.drain(&mut batch, BATCH_MAX, wait);
            if !self.turn(&mut batch) {
                return false;
            }
            if !open {
                return true;
            }
        }
    }

    /// How long nothing is due.
    fn idle(&self) -> Option<Duration> {
        let (due, _why) = self.core.next_deadline()?;
        Some(Duration::from_millis(due.since(self.shared.clock.now())))
    }

    /// Handles a batch; `false` when its facts could not be made durable.
    fn turn(&mut self, batch: &mut Vec<Command>) -> bool {
        let expect = self.core.state().seq;
        let now = self.shared.clock.now();
        if self.core.next_deadline().is_some_and(|(due, _why)| due <= now) {
            self.core.handle(now, Input::Tick, &mut self.out);
        }
        let held: Vec<Held> = batch.drain(..).filter_map(|command| self.hear(command)).collect();
        match self.commit(expect) {
            Ok(()) => {
                self.release(held);
                true
            }
            Err(error) => {
                self.fail(Failed::append(&error), held);
                false
            }
        }
    }

    /// Handles one command; its reply is taken out of the effects, which stay for after the commit.
    fn hear(&mut self, command: Command) -> Option<Held> {
        let (input, then) = match command {
            Command::Input(input, then) => (*input, Some(then)),
            Command::Cast(input) => (input, None),
            Command::Look(look) => return Some(Held::Look(look)),
        };
        let from = self.out.effects.len();
        self.core.handle(self.shared.clock.now(), input, &mut self.out);
        let at = self.out.effects[from..].iter().position(|e| matches!(e, Effect::Reply(_)))?;
        let Effect::Reply(reply) = self.out.effects.remove(from + at) else { return None };
        self.shared.metrics.reply(&reply);
        then.map(|then| Held::Reply(then, reply))
    }

    fn commit(&mut self, expect: Seq) -> Result<(), AppendError> {
        if self.out.entries.is_empty() {
            return Ok(());
        }
        let stopwatch = Stopwatch::start();
        let last = self.log.append(self.epoch, expect, &self.out.entries)?;
        self.shared.metrics.append(stopwatch.elapsed());
        let mut recent = self.shared.recent();
        for entry in self.out.entries.drain(..) {
            self.shared.metrics.fact(&entry.fact);
            self.shared.directory.follow(&entry.fact, self.core.state());
            if matches!(entry.fact, Fact::ApprovalDecided { .. }) {
                self.shared.wakes.approvals.notify_waiters();
            }
            recent.push(Arc::new(entry));
        }
        drop(recent);
        self.committed.send_replace(last);
        Ok(())
    }

    fn release(&mut self, held: Vec<Held>) {
        let live = Live::new(self.core.state(), &self.shared);
        for held in held {
            match held {
                Held::Reply(then, reply) => then(*reply, &live),
                Held::Look(look) => look(&live),
            }
        }
        for effect in self.out.effects.drain(..) {
            match effect {
                Effect::Wake(agent) => {
                    self.shared.metrics.wake();
                    self.shared.wakes.wake(agent);
                }
                Effect::WakeAll => self.shared.wakes.wake_all(),
                // Each reply was taken out when its input was handled; a tick has none.
                Effect::Reply(_) => {}
            }
        }
    }

    /// Memory is ahead of the disk: nothing may be served any more. Dropping the commands tells everybody
    /// who waits that there will be no answer.
    fn fail(&self, failed: Failed, held: Vec<Held>) {
        tracing::error!(reason = %failed.reason, "the broker stops");
        self.shared.queue.close();
        self.shared.failed.send_replace(Some(failed));
        self.shared.queue.clear();
        drop(held);
    }

    fn save(mut self) {
        let shared = Arc::clone(&self.shared);
        let _one = shared.saving();
        let state = self.core.state();
        let saved = postcard::to_allocvec(state).map(|bytes| self.log.save_snapshot(state.seq, &bytes));
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
