//! Bounds: what is remembered for how long, and how often the API server is asked.

use std::collections::BTreeMap;
use std::time::Duration;

/// Between two sweeps of what has expired.
const SWEEP: Duration = Duration::from_secs(10);

/// SHA-256 of what is remembered.
pub(super) type Key = [u8; 32];

/// Values with an end, and a bound on their number: when it is full of living ones, new ones are not remembered.
#[derive(Debug)]
pub(super) struct Expiring<V> {
    entries: BTreeMap<Key, (V, Duration)>,
    most: usize,
    swept: Duration,
}

impl<V: Clone> Expiring<V> {
    pub(super) fn new(most: usize) -> Self {
        Self {
            entries: BTreeMap::new(),
            most,
            swept: Duration::ZERO,
        }
    }

    pub(super) fn get(&self, key: &Key, now: Duration) -> Option<V> {
        self.entries
            .get(key)
            .filter(|(_, until)| now < *until)
            .map(|(value, _)| value.clone())
    }

    pub(super) fn insert(&mut self, key: Key, value: V, until: Duration, now: Duration) {
        if now >= self.swept + SWEEP {
            self.swept = now;
            self.entries.retain(|_, (_, until)| now < *until);
        }
        if self.entries.len() < self.most || self.entries.contains_key(&key) {
            self.entries.insert(key, (value, until));
        }
    }
}

/// A token bucket.
#[derive(Debug)]
pub(crate) struct Bucket {
    rate: f64,
    most: f64,
    level: f64,
    at: Duration,
}

impl Bucket {
    /// `rate` a second, and as many at once after a second of rest.
    pub(crate) fn new(rate: u32) -> Self {
        Self::with_burst(rate, rate)
    }

    /// `rate` a second, and `most` at once after a long rest.
    pub(crate) fn with_burst(rate: u32, most: u32) -> Self {
        let most = f64::from(most.max(1));
        Self {
            rate: f64::from(rate.max(1)),
            most,
            level: most,
            at: Duration::ZERO,
        }
    }

    /// Takes one, or says how long to wait for it.
    pub(crate) fn take(&mut self, now: Duration) -> Result<(), Duration> {
        self.fill(now);
        if self.level >= 1.0 {
            self.level -= 1.0;
            Ok(())
        } else {
            Err(Duration::from_secs_f64((1.0 - self.level) / self.rate))
        }
    }

    /// Whether one can be taken.
    pub(crate) fn has_one(&mut self, now: Duration) -> bool {
        self.fill(now);
        self.level >= 1.0
    }

    /// Whether it is as full as it gets, so that a new one would do as well.
    pub(crate) fn is_full(&mut self, now: Duration) -> bool {
        self.fill(now);
        self.level >= self.most
    }

    fn fill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.at = now;
        self.level = (self.level + passed * self.rate).min(self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn values_end_and_their_number_is_bounded() {
        let mut cache = Expiring::new(2);
        cache.insert([1; 32], 'a', s(20), s(0));
        cache.insert([2; 32], 'b', s(30), s(0));
        cache.insert([3; 32], 'c', s(30), s(0));
        assert_eq!(
            (cache.get(&[1; 32], s(19)), cache.get(&[1; 32], s(20))),
            (Some('a'), None)
        );
        assert_eq!(cache.get(&[3; 32], s(1)), None, "full");
        cache.insert([2; 32], 'B', s(30), s(1));
        assert_eq!(
            cache.get(&[2; 32], s(1)),
            Some('B'),
            "known ones are renewed all the same"
        );
        cache.insert([3; 32], 'c', s(40), s(25));
        assert_eq!(cache.get(&[3; 32], s(26)), Some('c'), "the sweep made room");
    }

    #[test]
    fn a_bucket_gives_its_rate_and_no_more() {
        let mut bucket = Bucket::new(10);
        assert_eq!((0..20).filter(|_| bucket.take(s(1)).is_ok()).count(), 10);
        let wait = bucket.take(s(1)).expect_err("empty");
        assert!(wait <= Duration::from_millis(100), "{wait:?}");
        assert!(bucket.take(s(1) + wait).is_ok());
        assert!(bucket.is_full(s(100)));
        assert_eq!((0..50).filter(|_| bucket.take(s(100)).is_ok()).count(), 10);
        assert!(!bucket.has_one(s(100)) && bucket.has_one(s(101)));
    }
}
