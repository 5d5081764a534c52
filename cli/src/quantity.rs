//! Parses durations such as `30s`, `500ms`, `10m`, `2h` and `1d`.

use std::time::Duration;

const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Reads a duration, for clap.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let ms = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, ms)| *ms);
    let value: Option<u64> = number.parse().ok();
    match (value, ms) {
        (Some(value), Some(ms)) => value
            .checked_mul(ms)
            .map(Duration::from_millis)
            .ok_or_else(|| format!("{text:?} is longer than can be counted")),
        _ => Err(format!("{text:?} isn't a duration such as 500ms, 30s, 10m or 2h")),
    }
}

/// Returns a duration in milliseconds, saturated.
pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Writes a number of bytes for a person: `512 B`, `1.5 kB`, `20 MB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let (mut whole, mut tenths, mut unit) = (count, 0, 0);
    while whole >= 1_000 && unit + 1 < UNITS.len() {
        (tenths, whole, unit) = (whole % 1_000 / 100, whole / 1_000, unit + 1);
    }
    let exact = whole >= 10 || unit == 0;
    if exact { format!("{whole} {}", UNITS[unit]) } else { format!("{whole}.{tenths} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_rounded_down_to_two_digits_or_more() {
        let written = [0, 999, 1_000, 1_590, 20_000, 3_999_999, 7_000_000_000, u64::MAX].map(bytes);
        assert_eq!(written, ["0 B", "999 B", "1.0 kB", "1.5 kB", "20 kB", "3.9 MB", "7.0 GB", "18446744 TB"]);
    }

    #[test]
    fn a_duration_has_a_whole_number_and_a_unit() {
        assert_eq!(duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2h"), Ok(Duration::from_secs(7200)));
        for bad in ["", "30", "s", "1.5s", "-1s", "30 s", "99999999999999999999d", "999999999999999d"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
