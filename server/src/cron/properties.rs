//! Cron expressions: an expression is an error that names its member, or ticks at full minutes, ever later.

use lastword_facts::Time;

use super::Ticks;

/// The ticks that are looked at after each other: any later one is the first after another moment.
const LOOKED_AT: usize = 3;
/// The moments that are tried: up to the year 2100.
const LATEST_MS: u64 = 4_102_444_800_000;
const MINUTE_MS: u64 = 60_000;

/// Checks a moment (eight bytes), an expression, and after a line end a time zone.
///
/// # Panics
/// Panics if the property is broken.
pub fn check(data: &[u8]) {
    let Some((moment, rest)) = data.split_first_chunk::<8>() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    let (cron, zone) = text.split_once('\n').unwrap_or((text, "UTC"));
    let now = Time(u64::from_le_bytes(*moment) % LATEST_MS);
    let ticks = match Ticks::parse(cron, zone) {
        Ok(ticks) => ticks,
        Err(fault) => return assert!(fault.field == "cron" || fault.field == "time_zone"),
    };
    assert_eq!(cron.split_whitespace().count(), if cron.trim_start().starts_with('@') { 1 } else { 5 }, "{cron:?}");
    assert!(!ticks.words().is_empty(), "{cron:?} is described");
    let mut before = now;
    for _ in 0..LOOKED_AT {
        let Some(tick) = ticks.after(before) else { break };
        assert!(tick > before, "{cron:?} {zone:?}: {tick:?} isn't after {before:?}");
        assert_eq!(tick.0 % MINUTE_MS, 0, "{cron:?} {zone:?} ticks within a minute");
        // Nothing ticks in between.
        let between = Time(before.0 + (tick.0 - before.0) / 2);
        assert_eq!(ticks.after(between), Some(tick), "{cron:?} {zone:?} from {between:?}");
        assert!(ticks.date(tick).is_some_and(|date| date.len() == "2026-11-23".len()));
        before = tick;
    }
}
