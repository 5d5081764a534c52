//! Tests of the pace in virtual time.

use proptest::prelude::*;

use super::*;

const SECOND: u64 = 1_000_000;
const HOUR: u64 = 3_600 * SECOND;
const DAY: u64 = 24 * HOUR;
const YEAR: u64 = 365 * DAY;
/// The wall clock's time at which the tests start.
const BEGIN: u64 = 56 * YEAR;

/// A machine whose clocks the test sets.
struct Machine {
    reading: Reading,
    pace: Pace,
}

impl Machine {
    fn new() -> Self {
        let reading = Reading { monotonic_us: HOUR, boottime_us: 2 * HOUR, wall_us: BEGIN };
        Self { pace: Pace::starting(None, None, reading), reading }
    }

    /// Runs the machine for `us`, with a reading every `every`.
    fn run(&mut self, us: u64, every: u64) -> u64 {
        let begin = self.pace.time_us();
        let mut left = us;
        while left > 0 {
            let step = left.min(every);
            self.reading.monotonic_us += step;
            self.reading.boottime_us += step;
            self.reading.wall_us += step;
            self.pace.step(self.reading);
            left -= step;
        }
        self.pace.time_us() - begin
    }

    fn sleep(&mut self, us: u64) {
        self.reading.boottime_us += us;
        self.reading.wall_us += us;
    }

    /// Jumps over a stretch in which the broker didn't run, as the broker does.
    fn count_idle(&mut self) -> u64 {
        let idle = self.pace.idle_us();
        self.pace.jump(idle);
        idle
    }

    /// Returns the wall clock's time minus the broker's, in µs.
    fn difference(&self) -> i64 {
        self.pace.wall_us().wrapping_sub(self.pace.time_us()).cast_signed()
    }
}

#[test]
fn an_hour_ahead_and_back_leaves_a_lease_its_ten_minutes() {
    let mut machine = Machine::new();
    machine.run(HOUR, SECOND);
    machine.reading.wall_us += HOUR;
    let ahead = machine.run(600 * SECOND, SECOND);
    assert!((600 * SECOND..=660 * SECOND).contains(&ahead), "{ahead}");
    machine.reading.wall_us -= HOUR;
    let back = machine.run(600 * SECOND, SECOND);
    assert!((300 * SECOND..600 * SECOND).contains(&back), "{back}");
    machine.run(600 * SECOND, SECOND);
    assert_eq!(machine.difference(), 0, "and it is with the wall clock again");
    assert_eq!(machine.count_idle(), 0);
}

#[test]
fn an_hour_back_slows_time_and_never_stops_it() {
    let mut machine = Machine::new();
    machine.reading.wall_us -= HOUR;
    assert_eq!(machine.run(HOUR, SECOND), HOUR / 2);
    assert_eq!(machine.run(HOUR, SECOND), HOUR / 2);
    assert_eq!(machine.difference(), 0);
    assert_eq!(machine.run(HOUR, SECOND), HOUR);
}

#[test]
fn twenty_years_ahead_are_not_followed() {
    let mut machine = Machine::new();
    machine.reading.wall_us += 20 * YEAR;
    assert_eq!(machine.run(HOUR, SECOND), HOUR, "neither jumps nor runs faster");
    assert_eq!(state(machine.difference() / 1_000), ClockState::Waiting);
    machine.reading.wall_us -= 20 * YEAR;
    assert_eq!(machine.run(HOUR, SECOND), HOUR);
    assert_eq!(machine.difference(), 0, "as if nothing had been");
}

#[test]
fn twenty_years_ahead_at_a_start_are_not_followed_and_a_human_may_accept_them() {
    let now = Reading { wall_us: BEGIN + 20 * YEAR, ..Reading::default() };
    let mut machine = Machine { reading: now, pace: Pace::starting(Some(BEGIN), None, now) };
    assert_eq!((machine.pace.time_us(), machine.pace.idle_us()), (BEGIN, 0));
    assert_eq!(machine.run(HOUR, SECOND), HOUR);
    machine.pace.jump(machine.difference().unsigned_abs());
    assert_eq!((machine.difference(), machine.pace.idle_us()), (0, 0));
    assert_eq!(machine.run(HOUR, SECOND), HOUR);
}

#[test]
fn a_log_that_is_twenty_years_ahead_goes_on_at_half_speed() {
    let now = Reading { wall_us: BEGIN, ..Reading::default() };
    let mut machine = Machine { reading: now, pace: Pace::starting(Some(BEGIN + 20 * YEAR), None, now) };
    assert_eq!((machine.pace.time_us(), machine.pace.idle_us()), (BEGIN + 20 * YEAR, 0));
    assert_eq!(machine.run(HOUR, SECOND), HOUR / 2);
    assert_eq!(state(machine.difference() / 1_000), ClockState::HalfSpeed);
}

#[test]
fn three_days_off_or_asleep_are_a_stretch_without_the_broker() {
    let off = Reading { wall_us: BEGIN + 3 * DAY, ..Reading::default() };
    let pace = Pace::starting(Some(BEGIN), None, off);
    assert_eq!((pace.time_us(), pace.idle_us()), (BEGIN, 3 * DAY));

    let mut machine = Machine::new();
    machine.run(HOUR, SECOND);
    machine.sleep(3 * DAY);
    assert_eq!(machine.run(SECOND, SECOND), SECOND, "it neither jumps by itself nor hurries");
    assert_eq!(machine.count_idle(), 3 * DAY);
    assert_eq!(machine.difference(), 0);
    assert_eq!(machine.count_idle(), 0, "once");
}

#[test]
fn a_stretch_of_more_than_thirty_days_waits_for_a_human() {
    let mut machine = Machine::new();
    machine.sleep(31 * DAY);
    machine.run(SECOND, SECOND);
    assert_eq!(machine.count_idle(), 0);
    assert_eq!(state(machine.difference() / 1_000), ClockState::Waiting);
    let off = Reading { wall_us: BEGIN + 31 * DAY, ..Reading::default() };
    assert_eq!(Pace::starting(Some(BEGIN), None, off).idle_us(), 0);
}

#[test]
fn a_restart_within_a_second_is_no_stretch() {
    let now = Reading { wall_us: BEGIN + SECOND / 2, ..Reading::default() };
    let pace = Pace::starting(Some(BEGIN), None, now);
    assert_eq!((pace.time_us(), pace.idle_us()), (BEGIN + SECOND / 2, 0));
}

#[test]
fn a_node_whose_clock_is_an_hour_off_takes_over_without_a_jump() {
    for wall_us in [BEGIN + HOUR, BEGIN - HOUR] {
        let now = Reading { wall_us, ..Reading::default() };
        let pace = Pace::starting(Some(BEGIN), Some(SECOND / 2), now);
        assert_eq!((pace.time_us(), pace.idle_us()), (BEGIN + SECOND / 2, 0));
        let dead = Pace::starting(Some(BEGIN), Some(4 * SECOND), now);
        assert_eq!((dead.time_us(), dead.idle_us()), (BEGIN, 4 * SECOND), "what nobody led is a stretch");
    }
}

#[test]
fn many_short_sleeps_are_one_stretch() {
    let mut machine = Machine::new();
    for _ in 0..4 {
        machine.sleep(SECOND / 4);
        machine.run(1_000, 1_000);
    }
    assert_eq!(machine.pace.idle_us(), SECOND);
}

/// What can happen to a machine between two readings of its clocks.
#[derive(Clone, Copy, Debug)]
enum Event {
    Run(u64, u64),
    Set(u64),
    Sleep(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (1..HOUR, 1_000..60 * SECOND).prop_map(|(us, every)| Event::Run(us, every)),
        (0..100 * YEAR).prop_map(Event::Set),
        (BEGIN - HOUR..BEGIN + HOUR).prop_map(Event::Set),
        (1..60 * DAY).prop_map(Event::Sleep),
    ]
}

proptest! {
    /// Whatever the wall clock does, ten minutes of the broker's time take between nine and twenty real minutes.
    #[test]
    fn no_jump_moves_time_by_more_than_its_pace(events in proptest::collection::vec(event(), 1..20)) {
        let mut machine = Machine::new();
        for event in events {
            match event {
                Event::Run(us, every) => {
                    let passed = machine.run(us, every);
                    prop_assert!(passed >= us / 2 && passed <= us + us / 10, "{passed} of {us}");
                    prop_assert!(passed > 0, "never still");
                }
                Event::Set(wall) => machine.reading.wall_us = wall,
                Event::Sleep(us) => machine.sleep(us),
            }
        }
    }

    /// Both clocks meet once the wall clock isn't set any more, unless it is too far ahead.
    #[test]
    fn the_clocks_meet(wall in BEGIN - DAY..BEGIN + DAY, every in SECOND..60 * SECOND) {
        let mut machine = Machine::new();
        machine.reading.wall_us = wall;
        machine.run(11 * DAY, every);
        prop_assert_eq!(machine.difference(), 0);
    }

    /// Every counted sleep is counted once and leaves the difference of the clocks unchanged.
    #[test]
    fn a_sleep_is_counted_once(sleeps in proptest::collection::vec(SECOND..30 * DAY, 1..10)) {
        let mut machine = Machine::new();
        for sleep in sleeps {
            machine.sleep(sleep);
            machine.run(SECOND, SECOND);
            prop_assert_eq!(machine.count_idle(), sleep);
            prop_assert_eq!(machine.difference(), 0);
        }
    }
}
