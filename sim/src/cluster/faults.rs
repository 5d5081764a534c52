//! The faults of a history, and the count of what it met: a campaign proves nothing about what never happened in it.

use super::broker::{Broker, Role};
use super::{Arrival, BROKERS, HistoryRun, Process};
use crate::fallible_log::SERVES_MS;

/// The time between two faults, at most, in ms.
const FAULT_EVERY_MS: u64 = 9_000;
/// How long a broker is down or stopped, at most, in ms.
const AWAY_MAX_MS: u64 = 10_000;
/// The time after which all threads of a broker that resumes have run, in ms.
const THREADS_MS: u64 = 300;
/// The time after the end of a lease within which another broker has taken it, usually, in ms.
const TAKE_OVER_MS: u64 = 2_000;
const HOUR_MS: i64 = 3_600_000;

macro_rules! met {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// How often each thing happened.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Met {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Met {
            /// Adds the counts of another history.
            pub const fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }

            /// Returns each count with its name.
            #[must_use]
            pub fn counts(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

met! {
    /// Messages of the network that were lost.
    lost,
    /// Publications that were stored when their publisher no longer waited for them.
    written_late,
    /// Publications that were refused because another message came first.
    conflicts,
    /// Publications that the store refused although their expectations held.
    false_conflicts,
    /// Appends without an acknowledgement in time.
    ambiguous,
    /// Such appends that were found in the tail.
    found_in_tail,
    /// Such appends that were not in the tail and were published again, under the same expectations.
    repeated,
    /// Leaders that found the start of a newer epoch.
    fenced,
    /// Leaders whose lease lapsed.
    lapsed,
    /// Batches that were judged and dropped with their replies.
    batches_dropped,
    /// Brokers that crashed.
    crashes,
    /// Brokers that crashed between an acknowledgement and the release of the replies.
    crashes_before_release,
    /// Leaders that were stopped and resumed with their old state.
    zombies,
    /// The same, with an append in flight.
    zombies_in_flight,
    /// Acknowledgements that a broker got when it no longer led.
    acknowledged_late,
    /// Replies that showed nothing new and were not released, because the lease was over.
    reads_refused,
    /// Snapshots that followers saved.
    snapshots,
    /// Wall clocks that jumped by an hour.
    clock_jumps,
    /// Epochs that began.
    epochs,
    /// Calls that were sent once more, most of them to another broker.
    retries,
    /// Retries that got the result of the first attempt.
    repeats_answered,
    /// Calls that a broker forwarded to the leader.
    forwarded,
    /// Calls that a broker could not serve.
    unserved,
    /// Commits of an older epoch that were stored behind the start of a newer one.
    stored_behind,
    /// Requests of the race that the used-up grant refused.
    refused_by_total,
    /// Warnings that a count crossed a limit.
    warnings,
}

impl HistoryRun<'_> {
    pub(super) fn fault(&mut self) {
        if self.healed {
            return;
        }
        let later = self.below(FAULT_EVERY_MS);
        self.after(later, Arrival::Fault);
        let leading = self.brokers.iter().position(Broker::leads).filter(|_| self.rng_percent(70));
        let node = leading.unwrap_or_else(|| self.any_node());
        match self.below(10) {
            0..3 => self.crash(node),
            3..5 => self.stop(node),
            5..8 => self.brokers[node].armed = true,
            _ => {
                let offset = [-HOUR_MS, 0, HOUR_MS][self.below_usize(3)];
                self.brokers[node].offset = offset;
                self.met.clock_jumps += 1;
                self.note(|| format!("broker {node}: the wall clock is off by {offset} ms"));
            }
        }
    }

    pub(super) fn rng_percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(super) fn below_usize(&mut self, n: usize) -> usize {
        usize::try_from(self.below(n as u64)).unwrap_or(0)
    }

    pub(super) fn any_node(&mut self) -> usize {
        self.below_usize(BROKERS)
    }

    /// Ends a broker: its memory is gone, its publications are still on their way.
    pub(super) fn crash(&mut self, node: usize) {
        if !self.brokers[node].up {
            return;
        }
        self.met.crashes += 1;
        self.note(|| format!("broker {node}: crashes"));
        self.met.batches_dropped += self.brokers[node].dropped();
        self.brokers[node].crash(self.setting);
        let ms = self.below(AWAY_MAX_MS);
        self.after(ms, Arrival::Start(node));
    }

    pub(super) fn start(&mut self, node: usize) {
        let broker = &mut self.brokers[node];
        if broker.up {
            return;
        }
        broker.up = true;
        self.note(|| format!("broker {node}: starts"));
        self.beat_later(node);
    }

    /// Stops a broker's threads. Time passes, and messages to it arrive.
    pub(super) fn stop(&mut self, node: usize) {
        let broker = &mut self.brokers[node];
        if !broker.up || broker.stopped {
            return;
        }
        (broker.stopped, broker.checked, broker.armed) = (true, true, false);
        if let Role::Leading(leading) = &broker.role {
            self.met.zombies += 1;
            self.met.zombies_in_flight += u64::from(leading.is_writing());
        }
        self.note(|| format!("broker {node}: is stopped"));
        let ms = 500 + self.below(AWAY_MAX_MS);
        self.after(ms, Arrival::Resume(node));
        if self.rng_percent(50) {
            self.holds_back(node, ms);
        }
    }

    /// What a broker that is stopped was about to send arrives when it resumes, or when another one takes over.
    fn holds_back(&mut self, node: usize, away_ms: u64) {
        let own = |event: &Arrival| matches!(event, Arrival::Publish(from, ..) if from.node == node);
        let held: Vec<(u64, u64)> = self.events.iter().filter(|(_, event)| own(event)).map(|(at, _)| *at).collect();
        let base = if self.rng_percent(50) { away_ms } else { SERVES_MS };
        for at in held {
            let Some(event) = self.events.remove(&at) else { continue };
            let ms = base + self.below(TAKE_OVER_MS);
            self.after(ms, event);
        }
    }

    pub(super) fn resume(&mut self, node: usize) {
        let broker = &mut self.brokers[node];
        if !broker.stopped {
            return;
        }
        broker.stopped = false;
        let process = Process { node, life: broker.life };
        let waiting = std::mem::take(&mut broker.mailbox);
        self.note(|| format!("broker {node}: resumes"));
        for news in waiting {
            // Its threads go on in any order.
            let ms = self.below(THREADS_MS);
            self.after(ms, Arrival::Broker(process, news));
        }
    }

    /// Ends all faults: every broker runs, every clock is right, and the network loses nothing.
    pub(super) fn heal(&mut self) {
        self.healed = true;
        self.clients.be_calm(self.now);
        self.note(|| "healed".to_owned());
        for node in 0..BROKERS {
            self.brokers[node].offset = 0;
            self.start(node);
            self.resume(node);
        }
    }
}
