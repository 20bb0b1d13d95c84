//! Whether bytes still arrive, and how fast.
//!
//! The runtime writes a layer to its content store in steps of 1 MiB, so up to that much per layer is on the node and not yet to
//! be seen. A pull at a rate that is wanted must not be called stalled for this: what may be hidden counts in its favour, and the
//! time over which it is judged grows until hidden bytes can no longer explain the silence.

use std::collections::VecDeque;
use std::time::Duration;

/// What the runtime may hold back per layer.
pub const HIDDEN_PER_LAYER: u64 = 1 << 20;
/// Time over which a rate is shown.
const RATE_SPAN: Duration = Duration::from_secs(5);
/// Most samples that are kept; at two a second they reach back far enough for 8 layers at the default rate.
const MAX_SAMPLES: usize = 512;

/// When a pull counts as stalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Bytes per second below which a pull is stalled; 0 never stops one.
    pub min_rate: u64,
    /// Shortest time over which it is judged; zero never stops one.
    pub timeout: Duration,
}

/// Bytes of one attempt over time.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    samples: VecDeque<(Duration, u64)>,
    first: Option<(Duration, u64)>,
    hidden: u64,
}

impl Meter {
    /// Notes that `bytes` were seen at `now`, and that up to `hidden` more may be there.
    pub fn push(&mut self, now: Duration, bytes: u64, hidden: u64) {
        self.first.get_or_insert((now, bytes));
        self.hidden = hidden;
        if self.samples.len() == MAX_SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back((now, bytes));
    }

    /// Bytes per second over the last seconds; 0 when nothing was measured.
    #[must_use]
    pub fn rate(&self, now: Duration) -> u64 {
        let Some((grown, span)) = self.grown(now, RATE_SPAN).or_else(|| self.grown_in_all()) else {
            return 0;
        };
        per_second(grown, span)
    }

    /// Whether the pull has been too slow for too long.
    #[must_use]
    pub fn stalled(&self, rules: &Rules, now: Duration) -> bool {
        if rules.min_rate == 0 || rules.timeout.is_zero() {
            return false;
        }
        let explained = Duration::from_secs(self.hidden / rules.min_rate + 1);
        let span = rules.timeout.max(explained);
        self.grown(now, span)
            .is_some_and(|(grown, span)| per_second(grown + self.hidden, span) < rules.min_rate)
    }

    /// Whether bytes came in at the wanted rate, over the last stall time-out or over the whole attempt.
    #[must_use]
    pub fn growing(&self, rules: &Rules, now: Duration) -> bool {
        let fast = |(grown, span): (u64, Duration)| grown > 0 && per_second(grown, span) >= rules.min_rate;
        self.grown(now, rules.timeout).is_some_and(fast) || self.grown_in_all().is_some_and(fast)
    }

    /// Growth since the youngest sample that is at least `span` old.
    fn grown(&self, now: Duration, span: Duration) -> Option<(u64, Duration)> {
        let since = now.checked_sub(span)?;
        let at = self
            .samples
            .partition_point(|(at, _)| *at <= since)
            .checked_sub(1)?;
        let (at, bytes) = *self.samples.get(at)?;
        let (_, last) = self.samples.back()?;
        Some((last.saturating_sub(bytes), now - at))
    }

    fn grown_in_all(&self) -> Option<(u64, Duration)> {
        let ((since, from), (at, to)) = (self.first?, *self.samples.back()?);
        let span = at.checked_sub(since).filter(|span| !span.is_zero())?;
        Some((to.saturating_sub(from), span))
    }
}

fn per_second(bytes: u64, span: Duration) -> u64 {
    let millis = span.as_millis().max(1);
    u64::try_from(u128::from(bytes) * 1000 / millis).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;
    const RULES: Rules = Rules {
        min_rate: 64 * KIB,
        timeout: Duration::from_secs(30),
    };

    /// Plays `layers` parallel layers at `rate` bytes per second in all, seen in steps of 1 MiB. When it was found stalled.
    fn play(layers: u64, rate: u64, until: u64) -> (Option<u64>, Meter) {
        let mut meter = Meter::default();
        for half_seconds in 0..until * 2 {
            let now = Duration::from_millis(half_seconds * 500);
            let fetched = rate * half_seconds / 2 / layers;
            let seen = fetched / HIDDEN_PER_LAYER * HIDDEN_PER_LAYER;
            meter.push(now, seen * layers, layers * HIDDEN_PER_LAYER);
            if meter.stalled(&RULES, now) {
                return (Some(half_seconds / 2), meter);
            }
        }
        (None, meter)
    }

    #[test]
    fn a_wanted_rate_is_never_called_stalled() {
        for layers in 1..=8 {
            for rate in [64, 65, 70, 100, 200, 10_000] {
                let (stalled, _) = play(layers, rate * KIB, 600);
                assert_eq!(stalled, None, "{layers} layers at {rate} KiB/s");
            }
        }
    }

    #[test]
    fn a_trickle_is_stopped() {
        for (layers, within) in [(1, 35), (2, 35), (3, 55)] {
            for rate in [0, 1, KIB] {
                let (stalled, _) = play(layers, rate, 600);
                assert!(
                    stalled.is_some_and(|at| (29..within).contains(&at)),
                    "{layers} layers at {rate} B/s: {stalled:?}"
                );
            }
        }
    }

    #[test]
    fn growing_needs_bytes_that_were_seen() {
        let (_, fast) = play(3, 1000 * KIB, 60);
        assert!(fast.growing(&RULES, Duration::from_secs(60)));
        let (_, slow) = play(1, 10 * KIB, 20);
        assert!(
            !slow.growing(&RULES, Duration::from_secs(20)),
            "hidden bytes are lost with the call"
        );
        assert!(!Meter::default().growing(&RULES, Duration::from_secs(20)));
    }

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let mut meter = Meter::default();
        assert_eq!(meter.rate(Duration::from_secs(1)), 0);
        for second in 0..=20_u64 {
            meter.push(Duration::from_secs(second), second.min(10) * 1000, 0);
        }
        assert_eq!(meter.rate(Duration::from_secs(20)), 0);
        let mut young = Meter::default();
        young.push(Duration::from_secs(100), 500, 0);
        young.push(Duration::from_secs(101), 2500, 0);
        assert_eq!(
            young.rate(Duration::from_secs(101)),
            2000,
            "what was there before is not fetched"
        );
    }

    #[test]
    fn rules_can_be_switched_off() {
        let (_, meter) = play(1, 0, 30);
        for rules in [
            Rules { min_rate: 0, ..RULES },
            Rules {
                timeout: Duration::ZERO,
                ..RULES
            },
        ] {
            assert!(!meter.stalled(&rules, Duration::from_secs(300)));
        }
    }
}
