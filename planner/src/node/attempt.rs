//! How often and how long a pull is tried.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::reason::{Retry, facts};
use crate::task::Reason;

/// Time of one attempt when the order names none.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);
/// No task lives longer, whatever its order says.
pub const TASK_CAP: Duration = Duration::from_secs(24 * 3600);
/// Longest pause between two attempts.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// Shortest pause where asking sooner makes it worse, or cannot help: after a registry asked to slow down, and on a full disk.
const SLOW_PAUSE: Duration = Duration::from_secs(30);
/// So many broken calls are blamed on the runtime; more of them on the image, which may be what breaks it.
const FREE_BREAKS: u32 = 10;

/// What an order allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Time of one attempt.
    pub attempt_timeout: Duration,
    /// Retries after the first attempt.
    pub backoff_limit: u32,
    /// Time for the whole task, from when the agent first took it.
    pub deadline: Option<Duration>,
}

impl Limits {
    /// As ordered, with defaults in place of what is missing or zero.
    #[must_use]
    pub fn new(attempt_timeout: Option<Duration>, backoff_limit: u32, deadline: Option<Duration>) -> Self {
        let attempt_timeout = attempt_timeout
            .filter(|time| !time.is_zero())
            .unwrap_or(DEFAULT_TIMEOUT);
        Self {
            attempt_timeout,
            backoff_limit,
            deadline,
        }
    }

    /// Time from taking the task to its end in any case.
    #[must_use]
    pub fn whole(&self) -> Duration {
        self.deadline.unwrap_or(TASK_CAP).min(TASK_CAP)
    }

    /// How long an attempt that begins `elapsed` after the task was taken may run; none when the task's time is over.
    #[must_use]
    pub fn window(&self, elapsed: Duration) -> Option<Window> {
        let left = self.whole().checked_sub(elapsed).filter(|left| !left.is_zero())?;
        Some(if left <= self.attempt_timeout {
            Window {
                limit: left,
                reason: Reason::DeadlineExceeded,
            }
        } else {
            Window {
                limit: self.attempt_timeout,
                reason: Reason::Timeout,
            }
        })
    }
}

/// Time of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// How long it may run.
    pub limit: Duration,
    /// What it is called when it runs longer.
    pub reason: Reason,
}

/// What a task has used up. Goes through the journal, so that a restart of the agent gives nothing back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tries {
    /// Attempts begun, for people.
    pub begun: u32,
    /// Failed ones that count against the limit.
    pub counted: u32,
    /// Calls that the runtime broke off.
    pub broken: u32,
}

/// How an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Why.
    pub reason: Reason,
    /// Whether bytes still came in at the wanted rate when it ended.
    pub growing: bool,
    /// Whether the order names a space to be left free, so that a pull waits for it.
    pub guarded: bool,
}

/// What follows a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Another attempt, this much later.
    Retry(Duration),
    /// The task has failed, for this reason.
    End(Reason),
}

/// Books a failed attempt and decides what follows. `elapsed` is the time since the task was taken, `jitter` is drawn from `[0, 1)`.
///
/// A time-out while bytes were coming does not count: the next attempt goes on where this one stopped, and a limit on one attempt
/// must not make a big image unpullable. A runtime that broke off the call does not count either, up to a limit, and neither does a
/// full disk that the order wants to be waited for.
#[must_use]
pub fn after_failure(
    limits: &Limits,
    tries: Tries,
    failure: Failure,
    elapsed: Duration,
    jitter: f64,
) -> (Tries, Verdict) {
    if failure.reason.is_final() {
        return (
            Tries {
                counted: tries.counted.saturating_add(1),
                ..tries
            },
            Verdict::End(failure.reason),
        );
    }
    let (tries, free) = book(tries, failure);
    if tries.counted > limits.backoff_limit {
        return (tries, Verdict::End(failure.reason));
    }
    let pause = pause(tries, failure.reason, free, jitter);
    if limits.window(elapsed.saturating_add(pause)).is_none() {
        // What was waited for says more than that the wait is over.
        let waited = failure.guarded && failure.reason == Reason::NoSpace;
        let reason = if waited {
            Reason::NoSpace
        } else {
            Reason::DeadlineExceeded
        };
        return (tries, Verdict::End(reason));
    }
    (tries, Verdict::Retry(pause))
}

/// The books after a failure, and whether it was free.
fn book(tries: Tries, failure: Failure) -> (Tries, bool) {
    let broken = failure.reason == Reason::RuntimeUnavailable;
    let tries = Tries {
        broken: tries.broken.saturating_add(u32::from(broken)),
        ..tries
    };
    let free = match facts(failure.reason).retry {
        Retry::FreeWhileGrowing => failure.growing,
        Retry::FreeAtFirst => tries.broken <= FREE_BREAKS,
        Retry::FreeIfGuarded => failure.guarded,
        Retry::Never | Retry::Counted | Retry::Slowly => false,
    };
    (
        Tries {
            counted: tries.counted.saturating_add(u32::from(!free)),
            ..tries
        },
        free,
    )
}

/// 1, 2, 4 … 30 s, up to a fifth shorter so that nodes do not step in time.
fn pause(tries: Tries, reason: Reason, free: bool, jitter: f64) -> Duration {
    let jitter = jitter.clamp(0.0, 1.0);
    if matches!(facts(reason).retry, Retry::Slowly | Retry::FreeIfGuarded) {
        return SLOW_PAUSE.mul_f64(1.0 + 0.5 * jitter);
    }
    let doublings = if free {
        0
    } else {
        tries.counted.saturating_sub(1).min(5)
    };
    let base = Duration::from_secs(1 << doublings).min(MAX_PAUSE);
    base.mul_f64(1.0 - 0.2 * jitter)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limits(timeout: u64, backoff_limit: u32, deadline: Option<u64>) -> Limits {
        Limits::new(
            Some(Duration::from_secs(timeout)),
            backoff_limit,
            deadline.map(Duration::from_secs),
        )
    }

    fn failed(reason: Reason) -> Failure {
        Failure {
            reason,
            growing: false,
            guarded: false,
        }
    }

    /// Fails the same way until the end; the pauses, in seconds, and the reason at the end.
    fn play(limits: &Limits, failure: Failure, each: u64) -> (Vec<u64>, Reason) {
        let (mut tries, mut elapsed, mut pauses) = (Tries::default(), Duration::ZERO, Vec::new());
        loop {
            tries.begun += 1;
            elapsed += Duration::from_secs(each);
            match after_failure(limits, tries, failure, elapsed, 0.0) {
                (_, Verdict::End(reason)) => return (pauses, reason),
                (next, Verdict::Retry(pause)) => {
                    pauses.push(pause.as_secs());
                    elapsed += pause;
                    tries = next;
                }
            }
        }
    }

    #[test]
    fn pauses_double_up_to_half_a_minute() {
        let (pauses, reason) = play(&limits(600, 7, None), failed(Reason::RegistryError), 1);
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(reason, Reason::RegistryError);
        assert_eq!(
            play(&limits(600, 0, None), failed(Reason::Unknown), 1),
            (vec![], Reason::Unknown)
        );
    }

    #[test]
    fn what_cannot_be_helped_ends_at_once() {
        for reason in Reason::ALL.into_iter().filter(|reason| reason.is_final()) {
            assert_eq!(play(&limits(600, 9, None), failed(reason), 1), (vec![], reason));
        }
    }

    #[test]
    fn throttling_slows_down() {
        let (pauses, _) = play(&limits(600, 2, None), failed(Reason::Throttled), 1);
        assert_eq!(pauses, [30, 30]);
    }

    #[test]
    fn a_full_disk_is_waited_for_if_the_order_says_so() {
        let (pauses, reason) = play(&limits(600, 1, None), failed(Reason::NoSpace), 1);
        assert_eq!((pauses, reason), (vec![30], Reason::NoSpace));
        let guarded = Failure {
            guarded: true,
            ..failed(Reason::NoSpace)
        };
        let (pauses, reason) = play(&limits(600, 0, Some(600)), guarded, 1);
        assert_eq!((pauses.len(), reason), (19, Reason::NoSpace));
    }

    #[test]
    fn a_time_out_while_bytes_come_does_not_count() {
        let growing = Failure {
            reason: Reason::Timeout,
            growing: true,
            guarded: false,
        };
        let (pauses, reason) = play(&limits(60, 0, Some(600)), growing, 60);
        assert_eq!(
            (pauses.len(), reason),
            (9, Reason::DeadlineExceeded),
            "only the deadline ends it"
        );
        let (pauses, reason) = play(&limits(3600, 0, None), growing, 3600);
        assert_eq!((pauses.len(), reason), (23, Reason::DeadlineExceeded), "or a day");
        assert_eq!(
            play(&limits(60, 1, None), failed(Reason::Timeout), 60),
            (vec![1], Reason::Timeout)
        );
        let stalled = Failure {
            reason: Reason::Stalled,
            growing: true,
            guarded: false,
        };
        assert_eq!(
            play(&limits(60, 1, None), stalled, 60),
            (vec![1], Reason::Stalled)
        );
    }

    #[test]
    fn a_runtime_that_breaks_off_is_forgiven_but_not_for_ever() {
        let (pauses, reason) = play(&limits(60, 1, None), failed(Reason::RuntimeUnavailable), 1);
        assert_eq!(pauses, [1; 11]);
        assert_eq!(reason, Reason::RuntimeUnavailable);
    }

    #[test]
    fn an_attempt_never_outlives_the_task() {
        let limits = limits(60, 3, Some(100));
        let seconds = Duration::from_secs;
        let window = |limit, reason| {
            Some(Window {
                limit: seconds(limit),
                reason,
            })
        };
        assert_eq!(limits.window(seconds(0)), window(60, Reason::Timeout));
        assert_eq!(limits.window(seconds(70)), window(30, Reason::DeadlineExceeded));
        assert_eq!(limits.window(seconds(100)), None);
        let (_, verdict) = after_failure(
            &limits,
            Tries::default(),
            failed(Reason::Throttled),
            seconds(80),
            0.0,
        );
        assert_eq!(
            verdict,
            Verdict::End(Reason::DeadlineExceeded),
            "the pause alone would pass the deadline"
        );
    }

    #[test]
    fn missing_and_absurd_limits() {
        assert_eq!(Limits::new(None, 0, None).attempt_timeout, DEFAULT_TIMEOUT);
        assert_eq!(
            Limits::new(Some(Duration::ZERO), 0, None).attempt_timeout,
            DEFAULT_TIMEOUT
        );
        assert_eq!(Limits::new(None, 0, Some(Duration::MAX)).whole(), TASK_CAP);
        assert_eq!(
            Limits::new(None, 0, Some(Duration::ZERO)).window(Duration::ZERO),
            None
        );
    }

    proptest! {
        /// Every task ends, after at most limit + 1 counted failures, and never later than a day.
        #[test]
        fn every_task_ends(
            backoff_limit in 0_u32..6,
            deadline in prop::option::of(0_u64..200_000),
            failures in prop::collection::vec((0_usize..Reason::ALL.len(), any::<(bool, bool)>(), 0.0_f64..1.0, 1_u64..4_000), 60),
        ) {
            let limits = limits(600, backoff_limit, deadline);
            let (mut tries, mut elapsed) = (Tries::default(), Duration::ZERO);
            for (reason, (growing, guarded), jitter, each) in failures.into_iter().cycle().take(200_000) {
                let Some(window) = limits.window(elapsed) else { return Ok(()) };
                elapsed += Duration::from_secs(each).min(window.limit);
                prop_assert!(elapsed <= TASK_CAP);
                let failure = Failure { reason: Reason::ALL[reason], growing, guarded };
                match after_failure(&limits, tries, failure, elapsed, jitter) {
                    (next, Verdict::End(_)) => {
                        prop_assert!(next.counted <= backoff_limit + 1);
                        return Ok(());
                    }
                    (next, Verdict::Retry(pause)) => {
                        prop_assert!(next.counted <= backoff_limit);
                        prop_assert!(pause <= Duration::from_secs(45));
                        elapsed += pause;
                        tries = next;
                    }
                }
            }
            prop_assert!(false, "still running");
        }
    }
}
