//! The clocks of this process. Nothing else here reads one.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A clock that only goes forward and means nothing to other machines.
#[derive(Clone, Debug)]
pub struct Monotonic(Source);

#[derive(Clone, Debug)]
enum Source {
    Boot,
    Tokio(tokio::time::Instant),
}

impl Monotonic {
    /// Time since boot. Unlike [`std::time::Instant`] it goes on while the machine sleeps, so that a lease does not survive a
    /// suspended virtual machine.
    #[must_use]
    pub fn boot() -> Self {
        Self(Source::Boot)
    }

    /// The runtime's clock, which tests can stop and move.
    #[must_use]
    pub fn tokio() -> Self {
        Self(Source::Tokio(tokio::time::Instant::now()))
    }

    /// Time since a moment that stays the same for the life of this value.
    #[must_use]
    pub fn now(&self) -> Duration {
        match &self.0 {
            Source::Boot => {
                let time = clock_gettime(ClockId::Boottime);
                let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
                let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
                Duration::new(seconds, nanos)
            }
            Source::Tokio(start) => start.elapsed(),
        }
    }
}

/// The wall clock in unix milliseconds. Good for epochs and for times that people read; never compared with another machine's
/// to decide who leads.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is the clock module")]
pub fn wall_unix_ms() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_clock_runs_forward() {
        let clock = Monotonic::boot();
        let first = clock.now();
        assert!(first > Duration::ZERO);
        assert!(clock.now() >= first);
    }

    #[tokio::test(start_paused = true)]
    async fn runtime_clock_follows_paused_time() {
        let clock = Monotonic::tokio();
        tokio::time::advance(Duration::from_secs(7)).await;
        assert_eq!(clock.now(), Duration::from_secs(7));
    }
}
