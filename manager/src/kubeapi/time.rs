//! The API server's time, learnt from its answers.
//!
//! An HTTP Date has whole seconds, so that one answer tells the time only to about a second. Each answer bounds the server's time
//! from both sides; the bounds of many answers together narrow it down to some tens of milliseconds. When bounds contradict each
//! other, a clock was set, and counting starts again from the newest answer.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;

use crate::clock::{self, Monotonic};

/// Clock that shows the API server's time. Clones share it.
#[derive(Clone, Debug)]
pub struct ServerClock {
    monotonic: Monotonic,
    bounds: Arc<Mutex<Option<Bounds>>>,
    /// Unix milliseconds at monotonic zero by this machine's clock, for the time before the first answer.
    local: i64,
}

/// The server's unix milliseconds at monotonic zero lie between these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bounds {
    low: i64,
    high: i64,
}

impl Bounds {
    /// From one answer: `date` (whole seconds, in ms) lay between sending and receiving, rounded down.
    fn of(date: i64, sent: i64, received: i64) -> Self {
        Self {
            low: date - received,
            high: date + 1_000 - sent,
        }
    }

    /// What both say, or the newer one when they contradict each other.
    fn refined_by(self, newer: Self) -> Self {
        let both = Self {
            low: self.low.max(newer.low),
            high: self.high.min(newer.high),
        };
        if both.low <= both.high { both } else { newer }
    }

    fn middle(self) -> i64 {
        self.low + (self.high - self.low) / 2
    }
}

impl ServerClock {
    /// Shows this machine's time until the first answer.
    #[must_use]
    pub fn new(monotonic: Monotonic) -> Self {
        let local = i64::try_from(clock::wall_unix_ms()).unwrap_or_default() - millis(monotonic.now());
        Self {
            monotonic,
            bounds: Arc::default(),
            local,
        }
    }

    /// The time at the API server.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let zero = self.lock().map_or(self.local, Bounds::middle);
        Timestamp::from_millisecond(zero + millis(self.monotonic.now())).unwrap_or_default()
    }

    /// The monotonic clock to take before a request is sent.
    pub(super) fn stamp(&self) -> Duration {
        self.monotonic.now()
    }

    /// Learns from the Date header of an answer whose request was sent at `sent`.
    pub(super) fn learn(&self, date: Option<&http::HeaderValue>, sent: Duration) {
        let parsed = date
            .and_then(|value| value.to_str().ok())
            .and_then(|text| DateTimeParser::new().parse_timestamp(text).ok());
        if let Some(date) = parsed {
            let newer = Bounds::of(date.as_millisecond(), millis(sent), millis(self.monotonic.now()));
            let mut bounds = self.lock();
            *bounds = Some(bounds.map_or(newer, |old| old.refined_by(newer)));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Bounds>> {
        self.bounds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_narrow_the_time_down() {
        // The server's clock is 5 000 400 ms ahead of monotonic zero.
        let answer = |sent: i64, received: i64| {
            let server = 5_000_400 + (sent + received) / 2;
            Bounds::of(server / 1_000 * 1_000, sent, received)
        };
        let first = answer(0, 10);
        assert!(first.low <= 5_000_400 && 5_000_400 <= first.high);
        assert!(first.high - first.low >= 1_000);
        let bounds = (1..50)
            .map(|n| answer(n * 137, n * 137 + 10))
            .fold(first, Bounds::refined_by);
        assert!(bounds.low <= 5_000_400 && 5_000_400 <= bounds.high, "{bounds:?}");
        assert!(bounds.high - bounds.low <= 60, "{bounds:?}");
    }

    #[test]
    fn a_server_clock_that_was_set_is_followed_at_once() {
        let old = Bounds { low: 100, high: 200 };
        let newer = Bounds {
            low: -3_600_000,
            high: -3_599_000,
        };
        assert_eq!(old.refined_by(newer), newer);
    }

    #[tokio::test(start_paused = true)]
    async fn reads_a_date_header_and_goes_on_from_there() {
        let clock = ServerClock::new(Monotonic::tokio());
        let sent = clock.stamp();
        clock.learn(
            Some(&http::HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT")),
            sent,
        );
        tokio::time::advance(Duration::from_secs(60)).await;
        let shown = clock.now().to_string();
        assert_eq!(shown, "1994-11-06T08:50:37.5Z");
        clock.learn(Some(&http::HeaderValue::from_static("nonsense")), sent);
        clock.learn(None, sent);
        assert_eq!(clock.now().to_string(), shown);
    }
}
