//! Amounts of money.

/// Formats an amount in millionths of a dollar. Small ones keep enough digits to differ from zero.
pub(crate) fn money(microusd: u64) -> String {
    let (dollars, rest) = (microusd / 1_000_000, microusd % 1_000_000);
    match microusd {
        0 => "$0".to_owned(),
        1..10_000 => format!("${dollars}.{:04}", rest.div_ceil(100)),
        _ => format!("${dollars}.{:02}", rest / 10_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_amounts_are_more_than_nothing() {
        let told = [(0, "$0"), (1, "$0.0001"), (10_000, "$0.01"), (2_500_000, "$2.50"), (12_345_678, "$12.34")];
        for (microusd, words) in told {
            assert_eq!(money(microusd), words);
        }
    }
}
