//! Who failed too often to be listened to. Without this one stranger with ever new tokens would use up the verifications that honest
//! agents need.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::identity::Bucket;

/// Refusals from one address that are worked out at once, and after that per second.
const AT_ONCE: u32 = 20;
const PER_SECOND: u32 = 2;
/// Addresses that are remembered.
const ADDRESSES: usize = 4_096;

/// Counts refusals by address.
#[derive(Debug, Default)]
pub(super) struct Failures {
    by_address: BTreeMap<IpAddr, Bucket>,
}

impl Failures {
    /// Whether the next caller from there is refused unheard.
    pub(super) fn is_deaf_to(&mut self, address: IpAddr, now: Duration) -> bool {
        self.by_address
            .get_mut(&address)
            .is_some_and(|bucket| !bucket.has_one(now))
    }

    /// A caller from there was refused.
    pub(super) fn note(&mut self, address: IpAddr, now: Duration) {
        if self.by_address.len() >= ADDRESSES {
            self.by_address.retain(|_, bucket| !bucket.is_full(now));
        }
        if self.by_address.len() < ADDRESSES || self.by_address.contains_key(&address) {
            let bucket = self.by_address.entry(address);
            // An empty bucket is as bad as it gets.
            let _ = bucket
                .or_insert_with(|| Bucket::with_burst(PER_SECOND, AT_ONCE))
                .take(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn one_address_is_heard_again_later_and_others_always() {
        let mut failures = Failures::default();
        let [bad, good] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        for _ in 0..AT_ONCE {
            assert!(!failures.is_deaf_to(bad, s(5)));
            failures.note(bad, s(5));
        }
        assert!(failures.is_deaf_to(bad, s(5)));
        assert!(!failures.is_deaf_to(good, s(5)));
        assert!(!failures.is_deaf_to(bad, s(6)));
    }

    #[test]
    fn addresses_are_bounded_and_quiet_ones_are_forgotten() {
        let mut failures = Failures::default();
        let address = |n: u32| IpAddr::from(n.to_be_bytes());
        for n in 0..10_000 {
            failures.note(address(n), s(5));
        }
        assert_eq!(failures.by_address.len(), ADDRESSES);
        failures.note(address(20_000), s(60));
        assert_eq!(failures.by_address.len(), 1);
    }
}
