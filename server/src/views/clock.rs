//! The broker's clock as humans see it (L6).

use lastword_broker::clock::ClockStatus;
use lastword_wire::{ClockState, ClockView, rfc3339};

/// Returns the broker's time, the wall clock's time and their difference.
pub(crate) fn clock(standing: ClockStatus) -> ClockView {
    let ClockStatus { broker, difference_ms, state } = standing;
    ClockView {
        broker: rfc3339(broker),
        wall: rfc3339(lastword_facts::Time(broker.0.saturating_add_signed(difference_ms))),
        difference_ms,
        state,
        note: note(standing),
    }
}

/// Explains a difference of more than a minute, and what to do about it; `None` for a smaller one.
pub fn note(ClockStatus { difference_ms, state, .. }: ClockStatus) -> Option<String> {
    let (side, rest) = match state {
        ClockState::InStep => return None,
        ClockState::CatchingUp => {
            ("ahead", "the broker catches up by 1 s in 10 s, or at once with `lastword clock accept`")
        }
        ClockState::Waiting => {
            ("ahead", "too far for the broker to follow: run `lastword clock accept` if the system clock is correct")
        }
        ClockState::HalfSpeed => ("behind", "the broker can't go back, and runs at half speed until the clocks agree"),
    };
    Some(format!("system clock {} {side}; {rest}", span(difference_ms.unsigned_abs())))
}

/// Formats a duration in its largest fitting unit, rounded; a unit fits from three quarters of it on.
fn span(ms: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000)];
    let fits = UNITS.into_iter().find(|(_, unit)| ms + unit / 4 >= *unit);
    let (word, unit) = fits.unwrap_or(("s", 1_000));
    format!("{} {word}", (ms + unit / 2) / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_told_in_its_largest_unit() {
        let spans = [61_000, 3_599_000, 3_600_000, 23 * 3_600_000, 3 * 86_400_000 + 5, 7_300 * 86_400_000].map(span);
        assert_eq!(spans, ["1 min", "1 h", "1 h", "1 d", "3 d", "7300 d"]);
    }
}
