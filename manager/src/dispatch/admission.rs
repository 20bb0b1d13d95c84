//! How much somebody may do in a time: a token bucket over a clock that is handed in.

use std::time::Duration;

/// Holds `capacity` tokens at most, and gets one back every `interval`.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    interval: Duration,
    capacity: u32,
    /// When it will be full again; in the past when it is.
    full_at: Duration,
}

impl Bucket {
    pub(super) fn new(interval: Duration, capacity: u32, now: Duration) -> Self {
        Self {
            interval,
            capacity: capacity.max(1),
            full_at: now,
        }
    }

    /// `rate` in each second, and no more than that at once.
    pub(super) fn per_second(rate: u32, now: Duration) -> Self {
        let rate = rate.max(1);
        Self::new(Duration::from_secs(1) / rate, rate, now)
    }

    /// Takes a token.
    ///
    /// # Errors
    /// How long to wait for one.
    pub(super) fn take(&mut self, now: Duration) -> Result<(), Duration> {
        let full_at = self.full_at.max(now) + self.interval;
        let emptied = now + self.interval * self.capacity;
        if full_at > emptied {
            return Err(full_at - emptied);
        }
        self.full_at = full_at;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_then_the_rate() {
        let mut bucket = Bucket::per_second(10, Duration::ZERO);
        let now = Duration::from_secs(5);
        assert_eq!((0..20).filter(|_| bucket.take(now).is_ok()).count(), 10);
        assert_eq!(bucket.take(now), Err(Duration::from_millis(100)));
        let later = now + Duration::from_millis(250);
        assert_eq!((0..20).filter(|_| bucket.take(later).is_ok()).count(), 2);
    }
}
