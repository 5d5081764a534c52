//! Moments in RFC 3339, in UTC, with milliseconds.

use lastword_facts::ids::{DAY_MS, Time};

/// Formats a moment as `2026-01-31T09:05:00.123Z`.
#[must_use]
pub fn rfc3339(time: Time) -> String {
    let (year, month, day) = civil(time.0 / DAY_MS);
    let ms = time.0 % DAY_MS;
    let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1_000)
}

/// Parses a moment: `2026-01-31`, optionally with a time of day, a fraction of a second and `Z` or an offset. Returns
/// `None` for anything else.
#[must_use]
pub fn parse_rfc3339(text: &str) -> Option<Time> {
    let (date, rest) = text.split_at_checked(10)?;
    let day_ms = days(date)?.checked_mul(DAY_MS)?;
    if rest.is_empty() {
        return Some(Time(day_ms));
    }
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let (clock, rest) = rest.split_at_checked(8)?;
    let clock_ms = clock_ms(clock)?;
    let (fraction_ms, zone) = fraction(rest)?;
    let local = day_ms.checked_add(clock_ms + fraction_ms)?;
    offset(local, zone).map(Time)
}

fn clock_ms(clock: &str) -> Option<u64> {
    let mut parts = clock.split(':');
    let (hour, minute, second) = (digits(parts.next()?, 2)?, digits(parts.next()?, 2)?, digits(parts.next()?, 2)?);
    let valid = parts.next().is_none() && hour < 24 && minute < 60 && second < 61;
    valid.then_some(hour * 3_600_000 + minute * 60_000 + second * 1_000)
}

fn fraction(rest: &str) -> Option<(u64, &str)> {
    let Some(rest) = rest.strip_prefix('.') else { return Some((0, rest)) };
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    if end == 0 {
        return None;
    }
    let ms = rest.bytes().take(end).chain([b'0', b'0']).take(3).fold(0, |ms, b| ms * 10 + u64::from(b - b'0'));
    Some((ms, &rest[end..]))
}

fn offset(local: u64, zone: &str) -> Option<u64> {
    if matches!(zone, "Z" | "z") {
        return Some(local);
    }
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    let shift = digits(hours, 2)? * 3_600_000 + digits(minutes, 2)? * 60_000;
    match zone.as_bytes().first()? {
        b'+' => local.checked_sub(shift),
        b'-' => local.checked_add(shift),
        _ => None,
    }
}

fn digits(text: &str, len: usize) -> Option<u64> {
    let plain = text.len() == len && text.bytes().all(|b| b.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

/// Returns year, month and day of a day counted from 1970-01-01, by eras of 400 years that start in March.
const fn civil(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let era_day = z % 146_097;
    let era_year = (era_day - era_day / 1_460 + era_day / 36_524 - era_day / 146_096) / 365;
    let year_day = era_day - (365 * era_year + era_year / 4 - era_year / 100);
    let shifted = (5 * year_day + 2) / 153;
    let day = year_day - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era_year + z / 146_097 * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

fn days(date: &str) -> Option<u64> {
    let mut parts = date.split('-');
    let (year, month, day) = (digits(parts.next()?, 4)?, digits(parts.next()?, 2)?, digits(parts.next()?, 2)?);
    if parts.next().is_some() || !(1..=12).contains(&month) {
        return None;
    }
    let shifted_year = if month <= 2 { year.checked_sub(1)? } else { year };
    let shifted_month = (month + 9) % 12;
    let era_year = shifted_year % 400;
    let era_day =
        era_year * 365 + era_year / 4 - era_year / 100 + (153 * shifted_month + 2) / 5 + day.checked_sub(1)?;
    let days = (shifted_year / 400 * 146_097 + era_day).checked_sub(719_468)?;
    (civil(days) == (year, month, day)).then_some(days)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_print_in_utc_with_milliseconds() {
        assert_eq!(rfc3339(Time(0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(Time(951_782_400_123)), "2000-02-29T00:00:00.123Z");
    }

    #[test]
    fn what_is_printed_is_read_again_and_offsets_count() {
        for ms in [0, 1, 951_782_399_999, 1_790_000_000_000, 4_102_444_800_000] {
            assert_eq!(parse_rfc3339(&rfc3339(Time(ms))), Some(Time(ms)));
        }
        assert_eq!(parse_rfc3339("1970-01-01T02:00:00+02:00"), Some(Time(0)));
        assert_eq!(parse_rfc3339("1970-01-02"), Some(Time(DAY_MS)));
        for bad in ["", "1970-02-30", "1970-01-01T25:00:00Z", "1970-01-01T00:00:00", "soon", "1970-01-01T00:00:00.Z"] {
            assert_eq!(parse_rfc3339(bad), None, "{bad}");
        }
    }
}
