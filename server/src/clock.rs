//! The only clock: wall time that never goes back, and stopwatches.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lastword_proto::Time;

/// Wall time in milliseconds that never decreases, even where the system's clock is set back.
#[derive(Debug)]
pub struct Clock {
    latest: AtomicU64,
}

impl Clock {
    /// A clock that starts no earlier than `floor`, the time of the last fact of the log.
    #[must_use]
    pub const fn starting_at(floor: Time) -> Self {
        Self { latest: AtomicU64::new(floor.0) }
    }

    /// Now.
    #[must_use]
    pub fn now(&self) -> Time {
        let ms = u64::try_from(since_epoch().as_millis()).unwrap_or(u64::MAX);
        Time(self.latest.fetch_max(ms, Ordering::Relaxed).max(ms))
    }
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

#[allow(clippy::disallowed_methods, reason = "this module is the clock")]
fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_never_goes_back() {
        let future = Time(u64::MAX / 2);
        let clock = Clock::starting_at(future);
        assert_eq!(clock.now(), future);
    }
}
