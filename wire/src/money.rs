//! Numbers of limits in words: money in dollars, others in digits.

/// Formats an amount in millionths of a dollar. Small ones keep enough digits to differ from zero.
#[must_use]
pub fn money(microusd: u64) -> String {
    let (dollars, rest) = (microusd / 1_000_000, microusd % 1_000_000);
    match microusd {
        0 => "$0".into(),
        1..10_000 => format!("${dollars}.{:04}", rest.div_ceil(100)),
        _ => format!("${dollars}.{:02}", rest / 10_000),
    }
}

/// Formats a limit or the value that met it.
#[must_use]
pub fn amount(is_cost: bool, n: u64) -> String {
    if is_cost { money(n) } else { n.to_string() }
}

/// Returns whether the numbers of a limit of this name are money, in millionths of a dollar.
#[must_use]
pub fn is_cost(limit: &str) -> bool {
    limit.contains("microusd")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_amounts_are_more_than_nothing() {
        let told = [
            (0, "$0"),
            (1, "$0.0001"),
            (9_950, "$0.0100"),
            (10_000, "$0.01"),
            (2_500_000, "$2.50"),
            (12_345_678, "$12.34"),
        ];
        for (microusd, words) in told {
            assert_eq!(money(microusd), words);
        }
    }
}
