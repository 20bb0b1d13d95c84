//! How hard one registry may be asked.
//!
//! A registry that asks to slow down is left alone by all pulls of the node for a while, longer each time it asks again, and then
//! asked by fewer of them at once. Each success allows one more.

use std::time::Duration;

/// Shortest time for which a registry that asked to slow down is left alone. The runtime does not pass on its Retry-After.
const SHORTEST: Duration = Duration::from_secs(30);
/// Longest time, also where the registry's words ask for more.
const LONGEST: Duration = Duration::from_secs(600);

/// One registry, to one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    until: Duration,
    /// Pulls at once; none is no limit of this kind.
    limit: Option<usize>,
    /// Times in a row that it asked to slow down.
    asked: u32,
}

impl Pace {
    /// Notes that the registry asked to slow down while `running` pulls ran, maybe for how long. How long it is left alone.
    pub fn throttled(&mut self, now: Duration, running: usize, asked_for: Option<Duration>) -> Duration {
        // Several pulls that ran side by side are told the same thing; that is one request, not many.
        if now >= self.until {
            self.limit = Some((running / 2).max(1));
            self.asked = self.asked.saturating_add(1);
        }
        let doubled = SHORTEST.saturating_mul(1 << (self.asked.max(1) - 1).min(5));
        let pause = doubled.max(asked_for.unwrap_or_default()).min(LONGEST);
        self.until = self.until.max(now.saturating_add(pause));
        self.until.saturating_sub(now)
    }

    /// Notes a pull that the registry served.
    pub fn served(&mut self, most: Option<usize>) {
        self.asked = 0;
        self.limit = self
            .limit
            .map(|limit| limit.saturating_add(1))
            .filter(|limit| most.is_none_or(|most| *limit < most) && *limit < 16);
    }

    /// Whether another pull may begin beside `running` ones.
    #[must_use]
    pub fn allows(&self, now: Duration, running: usize) -> bool {
        now >= self.until && self.limit.is_none_or(|limit| running < limit)
    }

    /// Until when nothing may begin.
    #[must_use]
    pub fn until(&self) -> Duration {
        self.until
    }

    /// Whether there is nothing left to remember.
    #[must_use]
    pub fn is_default(&self, now: Duration) -> bool {
        self.limit.is_none() && self.asked == 0 && now >= self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn each_request_makes_it_slower() {
        let mut pace = Pace::default();
        assert!(pace.allows(seconds(0), 100));
        assert_eq!(pace.throttled(seconds(0), 6, None), seconds(30));
        assert!(!pace.allows(seconds(29), 0));
        assert!(pace.allows(seconds(30), 2) && !pace.allows(seconds(30), 3));
        let mut now = seconds(30);
        let mut pauses = Vec::new();
        for _ in 0..6 {
            let pause = pace.throttled(now, 1, None);
            pauses.push(pause.as_secs());
            now += pause;
        }
        assert_eq!(pauses, [60, 120, 240, 480, 600, 600]);
        assert!(pace.allows(now, 0) && !pace.allows(now, 1));
    }

    #[test]
    fn pulls_that_ran_side_by_side_count_once() {
        let mut pace = Pace::default();
        pace.throttled(seconds(0), 8, None);
        for _ in 0..7 {
            assert!(pace.throttled(seconds(1), 8, None) <= seconds(30));
        }
        assert!(pace.allows(seconds(31), 3) && !pace.allows(seconds(31), 4));
    }

    #[test]
    fn what_the_registry_asks_for_counts_within_bounds() {
        let mut pace = Pace::default();
        assert_eq!(pace.throttled(seconds(0), 1, Some(seconds(90))), seconds(90));
        let mut pace = Pace::default();
        assert_eq!(pace.throttled(seconds(0), 1, Some(seconds(1))), seconds(30));
        let mut pace = Pace::default();
        assert_eq!(pace.throttled(seconds(0), 1, Some(Duration::MAX)), seconds(600));
    }

    #[test]
    fn successes_give_it_back() {
        let mut pace = Pace::default();
        pace.throttled(seconds(0), 2, None);
        let now = seconds(60);
        assert!(!pace.is_default(now));
        pace.served(Some(3));
        assert!(pace.allows(now, 1) && !pace.allows(now, 2));
        pace.served(Some(3));
        assert!(pace.is_default(now), "as many as the node makes anyway");
    }
}
