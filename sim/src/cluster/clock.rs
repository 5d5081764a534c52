//! The time of a simulated broker: it follows a wall clock that may be wrong, as the server's does (L6).

use lastword_facts::Time;

/// While the wall clock is ahead, the time gains one part in this many.
const FOLLOW_PARTS: u64 = 10;
/// While the wall clock is behind, the time runs at one part in this many of its speed.
const WAIT_PARTS: u64 = 2;
/// A shorter stretch without a leader isn't counted as one, in ms.
const IDLE_MIN_MS: u64 = 1_000;

/// The time of one leader, in ms.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    time: u64,
    read_at: u64,
    /// The stretch before the leader's first fact that its time has to jump over.
    pub(super) idle: u64,
}

impl Clock {
    /// Continues from the time of the last fact; a new log starts at the wall clock's time.
    pub(super) const fn starting(last_fact: Option<Time>, monotonic: u64, wall: u64) -> Self {
        let (time, idle) = match last_fact {
            None => (wall, 0),
            Some(fact) => {
                let off = wall.saturating_sub(fact.0);
                if off < IDLE_MIN_MS { (fact.0 + off, 0) } else { (fact.0, off) }
            }
        };
        Self { time, read_at: monotonic, idle }
    }

    /// Returns the time.
    pub(super) fn read(&mut self, monotonic: u64, wall: u64) -> Time {
        let passed = monotonic.saturating_sub(self.read_at);
        // Fractions are kept for the next reading, which is frequent.
        if passed >= FOLLOW_PARTS {
            let plain = self.time + self.idle + passed;
            self.time += match wall.checked_sub(plain) {
                Some(ahead) => passed + ahead.min(passed / FOLLOW_PARTS),
                None => passed - (plain - wall).min(passed / WAIT_PARTS),
            };
            self.read_at = monotonic;
        }
        Time(self.time)
    }

    /// Jumps over the idle stretch, whose fact was recorded.
    pub(super) const fn jump(&mut self) {
        self.time += self.idle;
        self.idle = 0;
    }
}
