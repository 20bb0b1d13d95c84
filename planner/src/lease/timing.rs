//! The times of an election and how they must relate.

use std::time::Duration;

/// Times of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long others wait after the last change of the holder's record.
    pub lease_duration: Duration,
    /// How long a leader goes on acting after it sent its last successful renewal.
    pub renew_deadline: Duration,
    /// Time between two tries, before jitter.
    pub retry_period: Duration,
}

/// Times that do not fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimingError {
    /// Zero periods spin.
    #[error("the retry period must be longer than zero")]
    RetryZero,
    /// The Lease's duration is a whole number of seconds.
    #[error("the lease duration {0:?} is not a whole number of seconds between 1 s and 1 h")]
    Duration(Duration),
    /// There must be room for at least one more try.
    #[error("the renew deadline {renew:?} must be longer than 1.2 times the retry period {retry:?}")]
    RenewTooShort {
        /// Renew deadline.
        renew: Duration,
        /// Retry period.
        retry: Duration,
    },
    /// A leader must have stopped before others take over.
    #[error("the lease duration {lease:?} must be longer than the renew deadline {renew:?} by at least 1 s")]
    LeaseTooShort {
        /// Lease duration.
        lease: Duration,
        /// Renew deadline.
        renew: Duration,
    },
}

impl Timing {
    /// Jitter: a retry period is stretched by up to this share, so that replicas do not march in step. Small enough that a
    /// clean take-over with a retry period of 2 s stays below 3 s.
    pub const JITTER: f64 = 0.2;

    /// Checks how the times relate.
    ///
    /// # Errors
    /// See [`TimingError`].
    pub fn validate(&self) -> Result<(), TimingError> {
        let Self {
            lease_duration: lease,
            renew_deadline: renew,
            retry_period: retry,
        } = *self;
        if retry.is_zero() {
            return Err(TimingError::RetryZero);
        }
        if lease.subsec_nanos() != 0 || lease.is_zero() || lease > Duration::from_secs(3600) {
            return Err(TimingError::Duration(lease));
        }
        if renew.as_secs_f64() <= retry.as_secs_f64() * (1.0 + Self::JITTER) {
            return Err(TimingError::RenewTooShort { renew, retry });
        }
        if lease < renew + Duration::from_secs(1) {
            return Err(TimingError::LeaseTooShort { lease, renew });
        }
        Ok(())
    }

    /// Time for one request of a leader: four fifths of what lies between its deadline and the others' take-over, so that a request sent at
    /// the last moment has ended by then.
    #[must_use]
    pub fn request_timeout(&self) -> Duration {
        self.lease_duration.saturating_sub(self.renew_deadline) / 5 * 4
    }
}

impl Default for Timing {
    /// As everywhere in Kubernetes: 15 s, 10 s, 2 s.
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(lease: f64, renew: f64, retry: f64) -> Timing {
        Timing {
            lease_duration: Duration::from_secs_f64(lease),
            renew_deadline: Duration::from_secs_f64(renew),
            retry_period: Duration::from_secs_f64(retry),
        }
    }

    #[test]
    fn default_times_fit_and_leave_four_seconds_per_request() {
        assert_eq!(Timing::default().validate(), Ok(()));
        assert_eq!(Timing::default().request_timeout(), Duration::from_secs(4));
    }

    #[test]
    fn times_that_do_not_fit_are_refused() {
        for (times, part) in [
            (timing(15.0, 10.0, 0.0), "longer than zero"),
            (timing(15.5, 10.0, 2.0), "whole number"),
            (timing(0.0, 10.0, 2.0), "whole number"),
            (timing(15.0, 2.4, 2.0), "1.2 times"),
            (timing(10.0, 10.0, 2.0), "at least 1 s"),
            (timing(10.0, 9.5, 2.0), "at least 1 s"),
        ] {
            let error = times.validate().expect_err(part).to_string();
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(timing(3.0, 2.0, 1.0).validate(), Ok(()));
    }
}
