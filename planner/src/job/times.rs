//! Arithmetic on moments and spans that cannot overflow.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// The first of several moments.
pub(crate) fn earliest<const N: usize>(times: [Option<Timestamp>; N]) -> Option<Timestamp> {
    times.into_iter().flatten().min()
}

/// `at` plus `span`, or the end of time.
pub(crate) fn later(at: Timestamp, span: Duration) -> Timestamp {
    SignedDuration::try_from(span)
        .ok()
        .and_then(|span| at.checked_add(span).ok())
        .unwrap_or(Timestamp::MAX)
}

/// From `a` to `b`; zero when `b` is earlier.
pub(crate) fn until(a: Timestamp, b: Timestamp) -> Duration {
    Duration::try_from(b.duration_since(a)).unwrap_or(Duration::ZERO)
}
