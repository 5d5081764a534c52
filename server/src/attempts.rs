//! Bounds failed authentications by their source address, so that nobody can try secrets, or have ID tokens verified,
//! without end.
//!
//! Only failures count, and a valid token is looked up before this is asked, so an address that is over its rate keeps
//! none of its valid callers out.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use lastword_facts::Time;

/// The failed authentications of one address in a minute, and the most at once, unless configured.
pub const AUTH_FAILURES_MAX: u64 = 30;
/// The time after which all failures of an address are forgotten, in ms.
const MINUTE_MS: u64 = 60_000;
/// The most addresses that are remembered.
const SOURCES_MAX: usize = 4_096;

/// The failed authentications of each address. Each is one number: the time at which all its failures are forgotten.
#[derive(Debug)]
pub(crate) struct Attempts {
    held: Mutex<HashMap<SourceAddress, Time>>,
    max: u64,
    /// The time that one failure takes to be forgotten, in ms.
    each_ms: u64,
}

/// An IPv4 address, or the first 64 bits of an IPv6 one: a host has all addresses below those.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct SourceAddress(u64);

impl SourceAddress {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            // In a range that no IPv6 network has.
            IpAddr::V4(v4) => Self(u64::from(v4.to_bits())),
            IpAddr::V6(v6) => Self(u64::try_from(v6.to_bits() >> 64).unwrap_or(u64::MAX)),
        }
    }
}

impl Attempts {
    /// Allows `max` failures in a minute, from 1 to 60,000.
    pub(crate) fn new(max: u64) -> Self {
        let max = max.clamp(1, MINUTE_MS);
        Self { held: Mutex::default(), max, each_ms: MINUTE_MS / max }
    }

    /// Returns the most failures of an address in a minute.
    pub(crate) const fn max(&self) -> u64 {
        self.max
    }

    /// Counts a failure of this address, or an attempt that costs something before its result is known.
    ///
    /// # Errors
    /// The address is over its rate: the time in ms until it may try again. Nothing is counted then.
    pub(crate) fn count(&self, address: IpAddr, now: Time) -> Result<(), u64> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let source = SourceAddress::of(address);
        let clear_at = held.get(&source).copied().unwrap_or(now).max(now);
        let over = clear_at.plus(self.each_ms).0.saturating_sub(now.plus(self.max * self.each_ms).0);
        if over > 0 {
            return Err(over);
        }
        if held.len() >= SOURCES_MAX && !held.contains_key(&source) {
            held.retain(|_, clear_at| *clear_at > now);
            if held.len() >= SOURCES_MAX {
                // All have failed lately. Those with the fewest failures go, so that one that is over its rate stays so.
                forget_half(&mut held);
            }
        }
        held.insert(source, clear_at.plus(self.each_ms));
        Ok(())
    }

    /// Takes back what an attempt that succeeded was counted as.
    pub(crate) fn succeeded(&self, address: IpAddr) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(clear_at) = held.get_mut(&SourceAddress::of(address)) {
            *clear_at = Time(clear_at.0.saturating_sub(self.each_ms));
        }
    }
}

/// Keeps the half that is cleared last: done once for each 2,048 new addresses, so its cost is spread over them.
fn forget_half(held: &mut HashMap<SourceAddress, Time>) {
    let mut order: Vec<(Time, u64)> =
        held.drain().map(|(SourceAddress(source), clear_at)| (clear_at, source)).collect();
    order.sort_unstable();
    let kept = order.split_off(order.len() / 2);
    held.extend(kept.into_iter().map(|(clear_at, source)| (SourceAddress(source), clear_at)));
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILURES_MAX: u64 = AUTH_FAILURES_MAX;
    const EACH_MS: u64 = MINUTE_MS / FAILURES_MAX;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn fail(attempts: &Attempts, address: &str, times: u64, now: Time) {
        for _ in 0..times {
            attempts.count(ip(address), now).unwrap();
        }
    }

    #[test]
    fn thirty_failures_pass_at_once_and_one_in_two_seconds_after_that() {
        let (attempts, now) = (Attempts::new(FAILURES_MAX), Time(1_000_000));
        fail(&attempts, "192.0.2.1", FAILURES_MAX, now);
        assert_eq!(attempts.count(ip("192.0.2.1"), now), Err(EACH_MS));
        assert_eq!(attempts.count(ip("192.0.2.1"), now.plus(EACH_MS - 1)), Err(1));
        attempts.count(ip("192.0.2.1"), now.plus(EACH_MS)).unwrap();
        assert!(attempts.count(ip("192.0.2.1"), now.plus(EACH_MS)).is_err());
        fail(&attempts, "192.0.2.1", FAILURES_MAX, now.plus(200_000));
        attempts.succeeded(ip("192.0.2.1"));
        fail(&attempts, "192.0.2.1", 1, now.plus(200_000));
        assert!(attempts.count(ip("192.0.2.1"), now.plus(200_000)).is_err());
    }

    #[test]
    fn a_host_has_one_count_for_its_network_and_another_host_has_its_own() {
        let (attempts, now) = (Attempts::new(FAILURES_MAX), Time(1_000_000));
        fail(&attempts, "2001:db8::1", FAILURES_MAX, now);
        assert!(attempts.count(ip("2001:db8::ffff:2"), now).is_err(), "the same /64");
        fail(&attempts, "2001:db8:0:1::1", 1, now);
        fail(&attempts, "192.0.2.1", FAILURES_MAX, now);
        assert!(attempts.count(ip("::ffff:192.0.2.1"), now).is_err(), "the same address, written as IPv6");
        fail(&attempts, "192.0.2.2", 1, now);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_the_worst_stay() {
        let (attempts, now) = (Attempts::new(FAILURES_MAX), Time(1_000_000));
        fail(&attempts, "192.0.2.1", FAILURES_MAX, now);
        for host in 0..20_000_u32 {
            attempts.count(IpAddr::V4((0x0a00_0000 + host).into()), now).unwrap();
        }
        assert!(attempts.held.lock().unwrap().len() <= SOURCES_MAX);
        assert!(attempts.count(ip("192.0.2.1"), now).is_err());
    }
}
