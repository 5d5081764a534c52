//! How the broker's time follows the machine's clocks (L6). Pure: the caller passes the readings in.

use lastword_wire::ClockState;

/// While the wall clock is ahead, the broker's time gains one part in this many.
const FOLLOW_PARTS: u64 = 10;
/// While the wall clock is behind, the broker's time runs at one part in this many of its speed.
const WAIT_PARTS: u64 = 2;
/// A shorter stretch without the broker isn't counted as one; the pace makes up for it.
const IDLE_MIN_US: u64 = 1_000_000;
/// A larger difference isn't followed, because the wall clock may be wrong; a human decides.
const FOLLOWED_MAX_US: u64 = 30 * 86_400_000_000;

/// One reading of the machine's clocks, in µs since each clock's own origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Advances evenly while the machine is awake.
    pub monotonic_us: u64,
    /// Advances evenly, also while the machine sleeps.
    pub boottime_us: u64,
    /// The time since the Unix epoch as set on the machine. It may jump either way.
    pub wall_us: u64,
}

impl Reading {
    const fn asleep_us(self) -> u64 {
        self.boottime_us.saturating_sub(self.monotonic_us)
    }
}

/// The broker's time, and the readings that it follows.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    time_us: u64,
    last: Reading,
    /// The total sleep of the machine that has been counted so far.
    asleep_us: u64,
    /// The length of a stretch in which the broker didn't run and that the time hasn't jumped over yet.
    idle_us: u64,
}

impl Pace {
    /// Starts at `now` for a log whose last fact happened at `last_fact_us`, and continues from that fact's time. A new
    /// log starts at the wall clock's time. The fact was `quiet_us` ago; if that isn't known, the wall clock tells.
    pub(crate) const fn starting(last_fact_us: Option<u64>, quiet_us: Option<u64>, now: Reading) -> Self {
        let (time_us, idle_us) = match last_fact_us {
            None => (now.wall_us, 0),
            Some(fact) => {
                // Zero when the wall clock is behind the log: the time continues from the last fact at half speed.
                let off = match quiet_us {
                    Some(quiet) => quiet,
                    None => now.wall_us.saturating_sub(fact),
                };
                if off < IDLE_MIN_US {
                    (fact + off, 0)
                } else if off <= FOLLOWED_MAX_US {
                    (fact, off)
                } else {
                    // So long an absence is more likely a wrong wall clock. The difference remains until a human
                    // accepts it.
                    (fact, 0)
                }
            }
        };
        Self { time_us, last: now, asleep_us: now.asleep_us(), idle_us }
    }

    /// Starts at this time, as of `now`.
    pub(crate) const fn at(time_us: u64, now: Reading) -> Self {
        Self { time_us, last: now, asleep_us: now.asleep_us(), idle_us: 0 }
    }

    /// Advances the time to a later reading.
    pub(crate) fn step(&mut self, now: Reading) {
        let passed = now.monotonic_us.saturating_sub(self.last.monotonic_us);
        let slept = now.asleep_us().saturating_sub(self.asleep_us);
        // Shorter sleeps add up until they reach the minimum, since `asleep_us` remains as it was.
        if slept >= IDLE_MIN_US {
            self.asleep_us = now.asleep_us();
            self.idle_us += if slept <= FOLLOWED_MAX_US { slept } else { 0 };
        }
        // The time without following the wall clock, after the jump over the idle stretch. Comparing with it keeps a
        // stretch from being followed as well as jumped over.
        let plain = self.time_us + self.idle_us + passed;
        self.time_us += match now.wall_us.checked_sub(plain) {
            Some(ahead) if ahead <= FOLLOWED_MAX_US => passed + ahead.min(passed / FOLLOW_PARTS),
            Some(_) => passed,
            None => passed - (plain - now.wall_us).min(passed / WAIT_PARTS),
        };
        self.last = now;
    }

    /// Returns the broker's time, in µs since the Unix epoch.
    pub(crate) const fn time_us(&self) -> u64 {
        self.time_us
    }

    /// Returns the length of the stretch that the time has to jump over, in µs.
    pub(crate) const fn idle_us(&self) -> u64 {
        self.idle_us
    }

    /// Returns the wall clock's time of the last reading, in µs since the Unix epoch.
    pub(crate) const fn wall_us(&self) -> u64 {
        self.last.wall_us
    }

    /// Moves the time ahead by `us`.
    pub(crate) const fn jump(&mut self, us: u64) {
        self.time_us += us;
        // A jump that a human accepts covers a difference that was never counted as idle.
        self.idle_us = self.idle_us.saturating_sub(us);
    }
}

/// Returns how the pace treats a difference: the wall clock's time minus the broker's, in ms.
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
