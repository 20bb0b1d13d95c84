//! The clocks of this process. Nothing else here reads one.

use std::time::Duration;

use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

/// The two clocks of one agent: one that only runs forward, for decisions, and the wall clock, for people.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    /// Time since boot, which runs on while the machine sleeps: a contact lease must not outlive a suspended virtual machine.
    Boot,
    /// The runtime's clock, which tests can stop and move.
    Tokio(Instant),
}

/// Readings start here, because on the wire a stamp of 0 means that there is none.
const FIRST: Duration = Duration::from_secs(1);

impl Clock {
    /// For a real agent.
    #[must_use]
    pub fn boot() -> Self {
        Self(Source::Boot)
    }

    /// For tests, and for agents that only play one.
    #[must_use]
    pub fn tokio() -> Self {
        Self(Source::Tokio(Instant::now()))
    }

    /// The clock that only runs forward. It means nothing to another machine.
    #[must_use]
    pub fn now_mono(&self) -> Duration {
        match &self.0 {
            Source::Boot => {
                let time = clock_gettime(ClockId::Boottime);
                let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
                let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
                FIRST + Duration::new(seconds, nanos)
            }
            Source::Tokio(start) => FIRST + start.elapsed(),
        }
    }

    /// The wall clock of this node, for people.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the clock module")]
    pub fn now_wall(&self) -> Timestamp {
        Timestamp::now()
    }

    /// Sleeps until the forward clock shows `time`.
    pub async fn sleep_until(&self, time: Duration) {
        // A timer of the runtime stands still while the machine sleeps, so it may wake early by this clock, never late for good.
        while let Some(left) = time.checked_sub(self.now_mono()).filter(|left| !left.is_zero()) {
            tokio::time::sleep(left).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_since_boot_runs_forward() {
        let clock = Clock::boot();
        let first = clock.now_mono();
        assert!(first > FIRST);
        assert!(clock.now_mono() >= first);
    }

    #[tokio::test(start_paused = true)]
    async fn the_test_clock_follows_paused_time() {
        let clock = Clock::tokio();
        clock.sleep_until(Duration::from_secs(8)).await;
        assert_eq!(clock.now_mono(), Duration::from_secs(8));
    }
}
