//! How the broker's time follows the machine's clocks (L6). Pure: readings come in, and nothing is read here.

use lastword_proto::wire::ClockState;

/// Follows a wall clock that is ahead by one part in so many.
const FOLLOW_PARTS: u64 = 10;
/// Runs at one part in so many of its speed while it is ahead of the wall clock.
const WAIT_PARTS: u64 = 2;
/// A stretch without the broker that is shorter is no stretch: the pace makes up for it.
const IDLE_MIN_US: u64 = 1_000_000;
/// A larger difference isn't followed: the wall clock may be wrong, and a human knows.
const FOLLOWED_MAX_US: u64 = 30 * 86_400_000_000;

/// What the machine's clocks said at one moment, in microseconds since an origin of each clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Runs at an even speed while the machine is awake.
    pub monotonic_us: u64,
    /// The same, and also while the machine sleeps.
    pub boottime_us: u64,
    /// What people set, since the Unix epoch. May jump either way.
    pub wall_us: u64,
}

impl Reading {
    const fn asleep_us(self) -> u64 {
        self.boottime_us.saturating_sub(self.monotonic_us)
    }
}

/// The broker's time and what it has seen of the machine's clocks.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    time_us: u64,
    last: Reading,
    /// How long the machine slept, as far as it was counted.
    asleep_us: u64,
    /// A stretch in which the broker didn't run, over which its time hasn't jumped yet.
    idle_us: u64,
}

impl Pace {
    /// Starts now, for a log whose last fact is of this moment: it takes up there. A new log starts at the wall clock's time.
    pub(crate) const fn starting(last_fact_us: Option<u64>, now: Reading) -> Self {
        let (time_us, idle_us) = match last_fact_us {
            None => (now.wall_us, 0),
            Some(fact) => {
                let off = now.wall_us.saturating_sub(fact);
                if off < IDLE_MIN_US {
                    (fact + off, 0)
                } else if off <= FOLLOWED_MAX_US {
                    (fact, off)
                } else {
                    (fact, 0)
                }
            }
        };
        Self { time_us, last: now, asleep_us: now.asleep_us(), idle_us }
    }

    /// Takes a later reading to account.
    pub(crate) fn step(&mut self, now: Reading) {
        let passed = now.monotonic_us.saturating_sub(self.last.monotonic_us);
        let slept = now.asleep_us().saturating_sub(self.asleep_us);
        if slept >= IDLE_MIN_US {
            self.asleep_us = now.asleep_us();
            self.idle_us += if slept <= FOLLOWED_MAX_US { slept } else { 0 };
        }
        // Where it is without any following, once the stretch before it is counted.
        let plain = self.time_us + self.idle_us + passed;
        self.time_us += match now.wall_us.checked_sub(plain) {
            Some(ahead) if ahead <= FOLLOWED_MAX_US => passed + ahead.min(passed / FOLLOW_PARTS),
            Some(_) => passed,
            None => passed - (plain - now.wall_us).min(passed / WAIT_PARTS),
        };
        self.last = now;
    }

    /// The broker's time.
    pub(crate) const fn time_us(&self) -> u64 {
        self.time_us
    }

    /// A stretch in which the broker didn't run, and over which its time is to jump.
    pub(crate) const fn idle_us(&self) -> u64 {
        self.idle_us
    }

    /// What the wall clock said last.
    pub(crate) const fn wall_us(&self) -> u64 {
        self.last.wall_us
    }

    /// The broker's time jumps ahead.
    pub(crate) const fn jump(&mut self, us: u64) {
        self.time_us += us;
        self.idle_us = self.idle_us.saturating_sub(us);
    }
}

/// How a difference is made up for: the wall clock's time less the broker's, in ms.
pub(crate) const fn state(difference_ms: i64) -> ClockState {
    const IN_STEP_MS: i64 = 60_000;
    const FOLLOWED_MAX_MS: i64 = (FOLLOWED_MAX_US / 1_000).cast_signed();
    if difference_ms < -IN_STEP_MS {
        ClockState::HalfSpeed
    } else if difference_ms <= IN_STEP_MS {
        ClockState::InStep
    } else if difference_ms <= FOLLOWED_MAX_MS {
        ClockState::CatchingUp
    } else {
        ClockState::Waiting
    }
}

#[cfg(test)]
#[path = "pace_tests.rs"]
mod tests;
