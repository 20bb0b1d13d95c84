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

    /// `rate` in each second, and a tenth of that at once.
    pub(super) fn per_second(rate: u32, now: Duration) -> Self {
        let rate = rate.max(1);
        Self::new(Duration::from_secs(1) / rate, rate.div_ceil(10), now)
    }

    /// Takes a token.
    ///
    /// # Errors
    /// How long to wait for one.
    pub(super) fn take(&mut self, now: Duration) -> Result<(), Duration> {
        self.reserve(now, Duration::ZERO).map(drop)
    }

    /// Takes a token that may come back only later, and returns how long its owner has to wait for it: whoever asks first is served first.
    ///
    /// # Errors
    /// How long it would be, if that is longer than `most`; then none is taken.
    pub(super) fn reserve(&mut self, now: Duration, most: Duration) -> Result<Duration, Duration> {
        let full_at = self.full_at.max(now) + self.interval;
        let wait = full_at.saturating_sub(now + self.interval * self.capacity);
        if wait > most {
            return Err(wait);
        }
        self.full_at = full_at;
        Ok(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_then_the_rate() {
        let mut bucket = Bucket::new(Duration::from_millis(100), 10, Duration::ZERO);
        let now = Duration::from_secs(5);
        assert_eq!((0..20).filter(|_| bucket.take(now).is_ok()).count(), 10);
        assert_eq!(bucket.take(now), Err(Duration::from_millis(100)));
        let later = now + Duration::from_millis(250);
        assert_eq!((0..20).filter(|_| bucket.take(later).is_ok()).count(), 2);
    }

    #[test]
    fn who_waits_is_served_in_order() {
        let mut bucket = Bucket::per_second(10, Duration::ZERO);
        let (now, most) = (Duration::from_secs(5), Duration::from_millis(250));
        let waits: Vec<_> = (0..4).map(|_| bucket.reserve(now, most)).collect();
        let millis = Duration::from_millis;
        assert_eq!(
            waits,
            [Ok(millis(0)), Ok(millis(100)), Ok(millis(200)), Err(millis(300))]
        );
        assert_eq!(bucket.reserve(now + millis(100), most), Ok(millis(200)));
    }
}
