//! The only clock: the broker's time, and stopwatches.

mod pace;

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lastword_proto::Time;
use lastword_proto::wire::ClockState;
use rustix::time::{ClockId, clock_gettime};

pub use self::pace::Reading;
use self::pace::{Pace, state};

/// So long a reading is good enough.
const FRESH_US: u64 = 1_000;
/// The machine's clocks are looked at so often at least: that it slept is noticed by looking.
const LOOK_MAX: Duration = Duration::from_secs(10);

/// The broker's time. It runs by the machine's monotonic clock and follows the wall clock slowly: at most 1 s in 10 s where
/// that is ahead, at half speed where it is behind, never back, never still (L6).
#[derive(Debug)]
pub struct Clock {
    source: Source,
    pace: Mutex<Pace>,
    /// The monotonic clock's time of the last reading.
    read_at: AtomicU64,
    /// What came of that reading.
    now_ms: AtomicU64,
    idle_ms: AtomicU64,
    difference_ms: AtomicI64,
}

/// The broker's time beside the wall clock's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockStatus {
    /// The broker's time.
    pub broker: Time,
    /// The wall clock's time less the broker's, in ms.
    pub difference_ms: i64,
    /// How the broker makes up for it.
    pub state: ClockState,
}

impl Clock {
    /// A clock for a log whose last fact happened then; for a new log it starts at the wall clock's time.
    #[must_use]
    pub fn starting(source: Source, last_fact: Option<Time>) -> Self {
        let reading = source.read();
        let pace = Pace::starting(last_fact.map(|at| at.0.saturating_mul(1_000)), reading);
        let clock = Self {
            source,
            read_at: AtomicU64::new(reading.monotonic_us),
            now_ms: AtomicU64::default(),
            idle_ms: AtomicU64::default(),
            difference_ms: AtomicI64::default(),
            pace: Mutex::new(pace.clone()),
        };
        clock.publish(&pace, reading.monotonic_us);
        clock
    }

    /// Now.
    #[must_use]
    pub fn now(&self) -> Time {
        if self.source.monotonic_us().saturating_sub(self.read_at.load(Ordering::Acquire)) >= FRESH_US {
            self.read();
        }
        Time(self.now_ms.load(Ordering::Acquire))
    }

    /// A stretch in which the broker didn't run, in ms: its time is to jump over it, once the core knows.
    pub(crate) fn idle(&self) -> Option<u64> {
        let _fresh = self.now();
        Some(self.idle_ms.load(Ordering::Acquire)).filter(|ms| *ms > 0)
    }

    /// How far the wall clock is ahead, in ms.
    pub(crate) fn ahead(&self) -> u64 {
        u64::try_from(self.standing().difference_ms).unwrap_or(0)
    }

    /// The time jumps ahead, after the core recorded that it does.
    pub(crate) fn jump(&self, ms: u64) {
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        pace.jump(ms.saturating_mul(1_000));
        self.publish(&pace, self.read_at.load(Ordering::Acquire));
    }

    /// The broker's time beside the wall clock's.
    #[must_use]
    pub fn standing(&self) -> ClockStatus {
        let broker = self.now();
        let difference_ms = self.difference_ms.load(Ordering::Acquire);
        ClockStatus { broker, difference_ms, state: state(difference_ms) }
    }

    /// How long to wait until it may be `due`; shorter than that, where the clock has to be looked at before.
    pub(crate) fn until(&self, due: Option<Time>) -> Duration {
        // It runs at most so much faster than what waits for it.
        let shortest = |due: Time| Duration::from_millis(due.since(self.now())) * 10 / 11;
        due.map_or(LOOK_MAX, |due| shortest(due).min(LOOK_MAX))
    }

    /// Takes a reading, unless another thread does already.
    fn read(&self) {
        let mut pace = match self.pace.try_lock() {
            Ok(pace) => pace,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let reading = self.source.read();
        pace.step(reading);
        self.publish(&pace, reading.monotonic_us);
    }

    fn publish(&self, pace: &Pace, read_at: u64) {
        let (time, idle, wall) = (pace.time_us() / 1_000, pace.idle_us() / 1_000, pace.wall_us() / 1_000);
        self.now_ms.store(time, Ordering::Release);
        self.idle_ms.store(idle, Ordering::Release);
        // A stretch that is about to be jumped over is no difference.
        self.difference_ms.store(wall.wrapping_sub(time + idle).cast_signed(), Ordering::Release);
        self.read_at.store(read_at, Ordering::Release);
    }
}

/// Where the readings come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// The machine; its monotonic clock counts from this moment.
    Machine(Instant),
    /// A test, which sets them.
    Set(Arc<Mutex<Reading>>),
}

impl Source {
    /// The machine's clocks.
    #[must_use]
    #[allow(clippy::disallowed_methods, reason = "this module is the clock")]
    pub fn machine() -> Self {
        Self::Machine(Instant::now())
    }

    fn monotonic_us(&self) -> u64 {
        match self {
            Self::Machine(since) => micros(since.elapsed()),
            Self::Set(reading) => reading.lock().unwrap_or_else(PoisonError::into_inner).monotonic_us,
        }
    }

    fn read(&self) -> Reading {
        match self {
            Self::Machine(_) => {
                // In this order: what passes between the two can't be taken for sleep.
                let boottime_us = Duration::try_from(clock_gettime(AWAKE_OR_ASLEEP)).map_or(0, micros);
                Reading { boottime_us, monotonic_us: self.monotonic_us(), wall_us: wall_us() }
            }
            Self::Set(reading) => *reading.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }
}

/// Runs while the machine sleeps, too; `Instant` doesn't, on any of these systems.
#[cfg(target_os = "linux")]
const AWAKE_OR_ASLEEP: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const AWAKE_OR_ASLEEP: ClockId = ClockId::Monotonic;

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The wall clock's time, which others compare with their own.
#[must_use]
pub fn wall() -> Time {
    Time(wall_us() / 1_000)
}

#[allow(clippy::disallowed_methods, reason = "this module is the clock")]
fn wall_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, micros)
}

/// Measures how long something takes.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts one.
    #[must_use]
    #[allow(clippy::disallowed_methods, reason = "this module is the clock")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Time since it was started.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(monotonic_us: u64, wall_us: u64) -> Reading {
        Reading { monotonic_us, boottime_us: monotonic_us, wall_us }
    }

    #[test]
    fn the_machines_clocks_are_with_the_wall_clock_and_never_go_back() {
        let clock = Clock::starting(Source::machine(), None);
        let mut last = clock.now();
        while clock.source.monotonic_us() < 5_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
        assert_eq!((clock.standing().state, clock.idle()), (ClockState::InStep, None));
    }

    #[test]
    fn a_wait_ends_in_time_even_where_the_clock_hurries() {
        let reading = Arc::new(Mutex::new(set(0, 3_600_000_000)));
        let clock = Clock::starting(Source::Set(Arc::clone(&reading)), Some(Time(3_600_000)));
        let due = Time(3_600_000 + 5_500);
        assert_eq!(clock.until(Some(due)), Duration::from_secs(5));
        *reading.lock().unwrap() = set(5_000_000, 2 * 3_600_000_000);
        assert_eq!((clock.now(), clock.until(Some(due))), (due, Duration::ZERO));
        assert_eq!((clock.until(None), clock.until(Some(Time(u64::MAX)))), (LOOK_MAX, LOOK_MAX));
    }
}
