//! Messages to planner types and back.
//!
//! Whatever a peer sends is turned into something that the planner knows: a number of a newer version becomes the most careful of
//! our own words, a duration below zero is none.

use std::time::Duration;

use jiff::Timestamp;
use kruise_planner::node::fence;
use kruise_planner::task::{Phase, Progress, Reason};

use crate::{dispatch, task};

impl From<Reason> for task::Reason {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::NotFound => Self::NotFound,
            Reason::Denied => Self::Denied,
            Reason::InvalidReference => Self::InvalidReference,
            Reason::Unreachable => Self::Unreachable,
            Reason::Throttled => Self::Throttled,
            Reason::RegistryError => Self::RegistryError,
            Reason::Corrupt => Self::Corrupt,
            Reason::NoSpace => Self::NoSpace,
            Reason::Timeout => Self::Timeout,
            Reason::Stalled => Self::Stalled,
            Reason::DeadlineExceeded => Self::DeadlineExceeded,
            Reason::RuntimeUnavailable => Self::RuntimeUnavailable,
            Reason::Unsupported => Self::Unsupported,
            Reason::NodeUnreachable => Self::NodeUnreachable,
            Reason::TooLarge => Self::TooLarge,
            Reason::Unknown => Self::Unknown,
        }
    }
}

impl From<task::Reason> for Option<Reason> {
    fn from(reason: task::Reason) -> Self {
        match reason {
            task::Reason::Unspecified => None,
            task::Reason::NotFound => Some(Reason::NotFound),
            task::Reason::Denied => Some(Reason::Denied),
            task::Reason::InvalidReference => Some(Reason::InvalidReference),
            task::Reason::Unreachable => Some(Reason::Unreachable),
            task::Reason::Throttled => Some(Reason::Throttled),
            task::Reason::RegistryError => Some(Reason::RegistryError),
            task::Reason::Corrupt => Some(Reason::Corrupt),
            task::Reason::NoSpace => Some(Reason::NoSpace),
            task::Reason::Timeout => Some(Reason::Timeout),
            task::Reason::Stalled => Some(Reason::Stalled),
            task::Reason::DeadlineExceeded => Some(Reason::DeadlineExceeded),
            task::Reason::RuntimeUnavailable => Some(Reason::RuntimeUnavailable),
            task::Reason::Unsupported => Some(Reason::Unsupported),
            task::Reason::NodeUnreachable => Some(Reason::NodeUnreachable),
            task::Reason::TooLarge => Some(Reason::TooLarge),
            task::Reason::Unknown => Some(Reason::Unknown),
        }
    }
}

/// A reason as it travels: 0 for none.
#[must_use]
pub fn reason_number(reason: Option<Reason>) -> i32 {
    reason
        .map_or(task::Reason::Unspecified, task::Reason::from)
        .into()
}

/// A reason as it arrived. A number of a newer version is [`Reason::Unknown`]: something did fail.
#[must_use]
pub fn reason_from_number(number: i32) -> Option<Reason> {
    task::Reason::try_from(number).map_or(Some(Reason::Unknown), Option::from)
}

impl From<Phase> for task::Phase {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::Waiting => Self::Waiting,
            Phase::Pulling => Self::Pulling,
            Phase::Unpacking => Self::Unpacking,
            Phase::Succeeded => Self::Succeeded,
            Phase::Failed => Self::Failed,
            Phase::Suspended => Self::Suspended,
        }
    }
}

impl From<task::Phase> for Phase {
    fn from(phase: task::Phase) -> Self {
        match phase {
            task::Phase::Unspecified | task::Phase::Waiting => Self::Waiting,
            task::Phase::Pulling => Self::Pulling,
            task::Phase::Unpacking => Self::Unpacking,
            task::Phase::Succeeded => Self::Succeeded,
            task::Phase::Failed => Self::Failed,
            task::Phase::Suspended => Self::Suspended,
        }
    }
}

/// A phase as it arrived. A number of a newer version is [`Phase::Waiting`], which ends nothing.
#[must_use]
pub fn phase_from_number(number: i32) -> Phase {
    task::Phase::try_from(number).unwrap_or_default().into()
}

impl From<Progress> for task::Progress {
    fn from(progress: Progress) -> Self {
        let Progress {
            bytes_done,
            bytes_total,
            bytes_per_second,
            layers_done,
            layers_total,
            bytes_known,
        } = progress;
        Self {
            bytes_done,
            bytes_total,
            bytes_per_second,
            layers_done,
            layers_total,
            bytes_known,
        }
    }
}

impl From<task::Progress> for Progress {
    fn from(progress: task::Progress) -> Self {
        let task::Progress {
            bytes_done,
            bytes_total,
            bytes_per_second,
            layers_done,
            layers_total,
            bytes_known,
        } = progress;
        Self {
            bytes_done,
            bytes_total,
            bytes_per_second,
            layers_done,
            layers_total,
            bytes_known,
        }
    }
}

impl From<&fence::Refusal> for dispatch::Refusal {
    fn from(refusal: &fence::Refusal) -> Self {
        match refusal {
            fence::Refusal::OldEpoch { .. } => Self::OldEpoch,
            fence::Refusal::Gap { .. } => Self::Gap,
            fence::Refusal::Stale { .. } | fence::Refusal::ForeignStamp => Self::Stale,
        }
    }
}

/// A duration as it travels, cut to what the message can hold.
#[must_use]
pub fn to_duration(duration: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(duration.subsec_nanos()).unwrap_or(0),
    }
}

/// A duration as it arrived; none below zero, or with parts that contradict each other.
#[must_use]
pub fn from_duration(duration: &prost_types::Duration) -> Option<Duration> {
    let seconds = u64::try_from(duration.seconds).ok()?;
    let nanos = u32::try_from(duration.nanos)
        .ok()
        .filter(|nanos| *nanos < 1_000_000_000)?;
    Some(Duration::new(seconds, nanos))
}

/// A point in time as it travels.
#[must_use]
pub fn to_timestamp(time: Timestamp) -> prost_types::Timestamp {
    // The message counts nanoseconds forward from the second, jiff towards zero.
    let (seconds, nanos) = (time.as_second(), time.subsec_nanosecond());
    if nanos < 0 {
        prost_types::Timestamp {
            seconds: seconds - 1,
            nanos: nanos + 1_000_000_000,
        }
    } else {
        prost_types::Timestamp { seconds, nanos }
    }
}

/// A point in time as it arrived; none outside of the years that exist.
#[must_use]
pub fn from_timestamp(time: &prost_types::Timestamp) -> Option<Timestamp> {
    Timestamp::new(time.seconds, time.nanos).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_survives_the_wire() {
        for reason in Reason::ALL {
            assert_eq!(reason_from_number(reason_number(Some(reason))), Some(reason));
        }
        assert_eq!(reason_from_number(reason_number(None)), None);
        assert_eq!(reason_from_number(4711), Some(Reason::Unknown));
    }

    #[test]
    fn every_phase_survives_the_wire() {
        for phase in [
            Phase::Waiting,
            Phase::Pulling,
            Phase::Unpacking,
            Phase::Succeeded,
            Phase::Failed,
            Phase::Suspended,
        ] {
            assert_eq!(phase_from_number(task::Phase::from(phase).into()), phase);
        }
        assert_eq!(phase_from_number(0), Phase::Waiting);
        assert_eq!(phase_from_number(4711), Phase::Waiting);
    }

    #[test]
    fn durations() {
        for millis in [0, 1, 999, 1_000, 90_000, u64::MAX / 2_000] {
            let duration = Duration::from_millis(millis);
            assert_eq!(from_duration(&to_duration(duration)), Some(duration));
        }
        assert_eq!(
            from_duration(&prost_types::Duration {
                seconds: -1,
                nanos: 0
            }),
            None
        );
        assert_eq!(
            from_duration(&prost_types::Duration {
                seconds: 0,
                nanos: -1
            }),
            None
        );
        assert_eq!(
            from_duration(&prost_types::Duration {
                seconds: 0,
                nanos: 1_000_000_000
            }),
            None
        );
        assert_eq!(to_duration(Duration::MAX).seconds, i64::MAX);
    }

    #[test]
    fn points_in_time() {
        for text in [
            "2026-11-30T12:00:00.25Z",
            "1969-12-31T23:59:59.75Z",
            "1970-01-01T00:00:00Z",
        ] {
            let time: Timestamp = text.parse().expect("a valid time");
            assert_eq!(from_timestamp(&to_timestamp(time)), Some(time));
        }
        assert_eq!(
            from_timestamp(&prost_types::Timestamp {
                seconds: i64::MAX,
                nanos: 0
            }),
            None
        );
    }
}
