//! The only module that reads the machine's clocks: the broker's time, and stopwatches.

mod pace;

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lastword_facts::Time;
use lastword_wire::ClockState;
use rustix::time::{ClockId, clock_gettime};

pub use self::pace::Reading;
use self::pace::{Pace, state};

/// Age in µs up to which a reading is reused, so that most calls read only one clock.
const FRESH_US: u64 = 1_000;
/// The clocks are read at least this often, because only a reading shows that the machine slept.
const LOOK_MAX: Duration = Duration::from_secs(10);

/// The broker's time. It advances with the machine's monotonic clock and approaches the wall clock slowly: it gains at
/// most 1 s in 10 s when the wall clock is ahead, and runs at half speed when it is behind. It never goes back and
/// never stops (L6).
#[derive(Debug)]
pub struct Clock {
    source: Source,
    pace: Mutex<Pace>,
    /// The monotonic time of the last reading, in µs.
    read_at: AtomicU64,
    /// The broker's time as of that reading.
    now_ms: AtomicU64,
    idle_ms: AtomicU64,
    difference_ms: AtomicI64,
    /// The jumps whose facts found no room in the log.
    unrecorded_ms: AtomicU64,
}

/// What is known of the time since a log's last fact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gap {
    /// The wall clock tells for how long no broker ran.
    #[default]
    Unknown,
    /// No broker ran for this long: leases and windows don't count it (L6).
    Idle(Duration),
    /// The log was at rest, in which time passes. It is this time now.
    Rested(Time),
}

/// The broker's time and its relation to the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockStatus {
    /// The broker's time.
    pub broker: Time,
    /// The wall clock's time minus the broker's, in ms.
    pub difference_ms: i64,
    /// How the broker's time currently makes up for the difference.
    pub state: ClockState,
}

impl Clock {
    /// Creates the clock of a log whose last fact happened at `last_fact`. The clock of a new log starts at the wall
    /// clock's time.
    #[must_use]
    pub fn starting(source: Source, last_fact: Option<Time>) -> Self {
        Self::starting_after(source, last_fact, Gap::Unknown)
    }

    /// Does the same for a log of which more is known than the wall clock tells: in a cluster it may differ from that of the
    /// node which wrote the fact.
    pub(crate) fn starting_after(source: Source, last_fact: Option<Time>, gap: Gap) -> Self {
        let reading = source.read();
        let us = |at: Time| at.0.saturating_mul(1_000);
        let pace = match (last_fact, gap) {
            (Some(fact), Gap::Rested(now)) => Pace::at(us(now.max(fact)), reading),
            (fact, Gap::Idle(quiet)) => Pace::starting(fact.map(us), Some(micros(quiet)), reading),
            (fact, Gap::Unknown | Gap::Rested(_)) => Pace::starting(fact.map(us), None, reading),
        };
        let clock = Self {
            source,
            read_at: AtomicU64::new(reading.monotonic_us),
            now_ms: AtomicU64::default(),
            idle_ms: AtomicU64::default(),
            difference_ms: AtomicI64::default(),
            unrecorded_ms: AtomicU64::default(),
            pace: Mutex::new(pace.clone()),
        };
        clock.publish(&pace, reading.monotonic_us);
        clock
    }

    /// Returns the broker's time, at most `FRESH_US` old.
    #[must_use]
    pub fn now(&self) -> Time {
        if self.source.monotonic_us().saturating_sub(self.read_at.load(Ordering::Acquire)) >= FRESH_US {
            self.read();
        }
        Time(self.now_ms.load(Ordering::Acquire))
    }

    /// Returns the length of a stretch in which the broker didn't run, in ms. The broker's time jumps over it
    /// ([`Clock::jump`]) once the core has recorded the jump.
    pub(crate) fn downtime(&self) -> Option<u64> {
        // Takes a reading if the last one is too old to show a sleep.
        let _fresh = self.now();
        Some(self.idle_ms.load(Ordering::Acquire)).filter(|ms| *ms > 0)
    }

    /// Returns how far the wall clock is ahead of the broker's time, in ms.
    pub(crate) fn ahead(&self) -> u64 {
        u64::try_from(self.standing().difference_ms).unwrap_or(0)
    }

    /// Moves the broker's time ahead, after the core has recorded the jump.
    pub(crate) fn jump(&self, ms: u64) {
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        pace.jump(ms.saturating_mul(1_000));
        self.publish(&pace, self.read_at.load(Ordering::Acquire));
    }

    /// Notes that the fact of a jump by this many ms was lost. The time can't go back, so the fact is recorded again.
    pub(crate) fn lose_jump(&self, ms: u64) {
        self.unrecorded_ms.fetch_add(ms, Ordering::AcqRel);
    }

    /// Takes the length of the jumps whose facts were lost, in ms.
    pub(crate) fn take_lost_jumps(&self) -> Option<u64> {
        Some(self.unrecorded_ms.swap(0, Ordering::AcqRel)).filter(|ms| *ms > 0)
    }

    /// Returns the broker's time and its difference from the wall clock's.
    #[must_use]
    pub fn standing(&self) -> ClockStatus {
        let broker = self.now();
        let difference_ms = self.difference_ms.load(Ordering::Acquire);
        ClockStatus { broker, difference_ms, state: state(difference_ms) }
    }

    /// Returns how long to wait until `due` may be reached; less when the clocks have to be read before that.
    pub(crate) fn until(&self, due: Option<Time>) -> Duration {
        // The broker's time runs at most 11/10 as fast as the clock that this wait is measured with, so waking after
        // 10/11 of the distance is never late.
        let shortest = |due: Time| Duration::from_millis(due.since(self.now())) * 10 / 11;
        due.map_or(LOOK_MAX, |due| shortest(due).min(LOOK_MAX))
    }

    /// Takes a reading, unless another thread is taking one.
    fn read(&self) {
        let mut pace = match self.pace.try_lock() {
            Ok(pace) => pace,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // The other thread publishes its reading in a moment; the last one is good enough until then.
            Err(TryLockError::WouldBlock) if matches!(self.source, Source::Machine(_)) => return,
            // A test counts on the reading that it has set.
            Err(TryLockError::WouldBlock) => self.pace.lock().unwrap_or_else(PoisonError::into_inner),
        };
        let reading = self.source.read();
        pace.step(reading);
        self.publish(&pace, reading.monotonic_us);
    }

    fn publish(&self, pace: &Pace, read_at: u64) {
        let (time, idle, wall) = (pace.time_us() / 1_000, pace.idle_us() / 1_000, pace.wall_us() / 1_000);
        self.now_ms.store(time, Ordering::Release);
        self.idle_ms.store(idle, Ordering::Release);
        // A stretch that the clock is about to jump over doesn't count as a difference.
        self.difference_ms.store(wall.wrapping_sub(time + idle).cast_signed(), Ordering::Release);
        // Stored last: a thread that sees this reading as fresh also sees its times.
        self.read_at.store(read_at, Ordering::Release);
    }
}

/// The source of the readings.
#[derive(Clone, Debug)]
pub enum Source {
    /// The machine's clocks; the monotonic one counts from this instant.
    Machine(Instant),
    /// Readings that a test sets.
    Set(Arc<Mutex<Reading>>),
}

impl Source {
    /// Returns the machine's clocks, with the monotonic one starting at zero.
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
                // The boot-time clock first: time that passes between the two calls can then not look like sleep.
                let boottime_us = Duration::try_from(clock_gettime(AWAKE_OR_ASLEEP)).map_or(0, micros);
                Reading { boottime_us, monotonic_us: self.monotonic_us(), wall_us: wall_us() }
            }
            Self::Set(reading) => *reading.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }
}

/// The clock that also runs while the machine sleeps. `Instant` stops during sleep on all supported systems.
#[cfg(target_os = "linux")]
const AWAKE_OR_ASLEEP: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const AWAKE_OR_ASLEEP: ClockId = ClockId::Monotonic;

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Returns the wall clock's time, for values that other programs compare with their own clock.
#[must_use]
pub fn wall() -> Time {
    Time(wall_us() / 1_000)
}

#[allow(clippy::disallowed_methods, reason = "this module is the clock")]
fn wall_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, micros)
}

/// Returns the time since the machine started, sleep included. It never goes back.
#[must_use]
pub fn uptime() -> Duration {
    Duration::try_from(clock_gettime(AWAKE_OR_ASLEEP)).unwrap_or_default()
}

/// Measures how long something takes, by the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts a stopwatch at zero.
    #[must_use]
    #[allow(clippy::disallowed_methods, reason = "this module is the clock")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns the time since the start.
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
        assert_eq!((clock.standing().state, clock.downtime()), (ClockState::InStep, None));
    }

    #[test]
    fn at_rest_time_passes_and_is_no_gap() {
        const DAY_MS: u64 = 86_400_000;
        let source = Source::Set(Arc::new(Mutex::new(set(0, 99 * DAY_MS * 1_000))));
        let of = |gap| {
            let clock = Clock::starting_after(source.clone(), Some(Time(DAY_MS)), gap);
            (clock.now(), clock.downtime())
        };
        assert_eq!(of(Gap::Rested(Time(60 * DAY_MS))), (Time(60 * DAY_MS), None));
        assert_eq!(of(Gap::Rested(Time(0))), (Time(DAY_MS), None), "it never goes back");
        assert_eq!(of(Gap::Idle(Duration::from_hours(24))), (Time(DAY_MS), Some(DAY_MS)));
        assert_eq!(of(Gap::Unknown), (Time(DAY_MS), None), "so long an absence is more likely a wrong clock");
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
