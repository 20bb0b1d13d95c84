//! Whether an image is small enough for its job and for its node.
//!
//! Sizes come from the manifest, space from the file system of images. Where either is unknown, nothing is refused: a figure that
//! was made up would stop pulls that fit.

use serde::{Deserialize, Serialize};

/// How much larger than the compressed layers what they unpack to is taken to be, in hundredths, when the order does not say.
pub const DEFAULT_UNPACK_PERCENT: u32 = 250;

/// Space to be left free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    /// Bytes.
    pub min_free_bytes: u64,
    /// Hundredths of the file system; the larger of both counts.
    pub min_free_percent: u32,
    /// See [`DEFAULT_UNPACK_PERCENT`].
    pub unpack_percent: u32,
}

/// Compressed bytes of an image on this platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// In all.
    pub total: u64,
    /// Not on the node yet.
    pub missing: u64,
}

/// The file system of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Free bytes.
    pub free: u64,
    /// Its size.
    pub total: u64,
}

/// Why a pull must not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// More than the job allows.
    #[error("the image has {total} compressed bytes, more than the {allowed} that the job allows")]
    TooLarge {
        /// Its size.
        total: u64,
        /// What is allowed.
        allowed: u64,
    },
    /// Less would be left free than is to be.
    #[error(
        "the pull needs about {needed} bytes; of {free} free bytes other pulls will take {promised}, and {reserve} are to be left free"
    )]
    NoSpace {
        /// By this pull.
        needed: u64,
        /// Now.
        free: u64,
        /// To other running pulls.
        promised: u64,
        /// To be left.
        reserve: u64,
    },
}

impl Guard {
    /// Bytes that must be left free.
    #[must_use]
    pub fn reserve(&self, space: Space) -> u64 {
        let share = u128::from(space.total) * u128::from(self.min_free_percent.min(100)) / 100;
        self.min_free_bytes.max(u64::try_from(share).unwrap_or(u64::MAX))
    }

    /// Bytes that a pull will still take: what has to be fetched, and what it unpacks to.
    #[must_use]
    pub fn need(&self, missing: u64) -> u64 {
        let percent = if self.unpack_percent == 0 {
            DEFAULT_UNPACK_PERCENT
        } else {
            self.unpack_percent
        };
        let unpacked = u128::from(missing) * u128::from(percent) / 100;
        missing.saturating_add(u64::try_from(unpacked).unwrap_or(u64::MAX))
    }

    /// Whether a pull fits beside others that will still take `promised` bytes.
    ///
    /// # Errors
    /// It does not.
    pub fn check(&self, size: Size, space: Space, promised: u64) -> Result<(), Refusal> {
        let (needed, reserve) = (self.need(size.missing), self.reserve(space));
        let wanted = needed.saturating_add(promised).saturating_add(reserve);
        // A pull for which nothing has to be fetched makes nothing worse.
        if needed == 0 || wanted <= space.free {
            return Ok(());
        }
        Err(Refusal::NoSpace {
            needed,
            free: space.free,
            promised,
            reserve,
        })
    }
}

/// Whether an image is as small as its job wants it; 0 allows any size.
///
/// # Errors
/// It is not.
pub fn check_size(total: u64, allowed: u64) -> Result<(), Refusal> {
    if allowed == 0 || total <= allowed {
        return Ok(());
    }
    Err(Refusal::TooLarge { total, allowed })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GIB: u64 = 1 << 30;

    fn guard(min_free_bytes: u64, min_free_percent: u32, unpack_percent: u32) -> Guard {
        Guard {
            min_free_bytes,
            min_free_percent,
            unpack_percent,
        }
    }

    fn whole(total: u64) -> Size {
        Size {
            total,
            missing: total,
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(check_size(10, 0), Ok(()));
        assert_eq!(check_size(10, 10), Ok(()));
        let error = check_size(11, 10).expect_err("too large");
        assert!(
            error
                .to_string()
                .contains("11 compressed bytes, more than the 10")
        );
    }

    #[test]
    fn the_larger_reserve_counts() {
        let space = Space {
            free: 0,
            total: 100 * GIB,
        };
        assert_eq!(guard(5 * GIB, 10, 0).reserve(space), 10 * GIB);
        assert_eq!(guard(20 * GIB, 10, 0).reserve(space), 20 * GIB);
        assert_eq!(guard(0, 500, 0).reserve(space), 100 * GIB);
    }

    #[test]
    fn a_pull_must_leave_the_reserve() {
        let space = |free| Space {
            free,
            total: 100 * GIB,
        };
        let guard = guard(10 * GIB, 0, 100);
        assert_eq!(guard.check(whole(2 * GIB), space(14 * GIB), 0), Ok(()));
        assert!(guard.check(whole(2 * GIB), space(14 * GIB - 1), 0).is_err());
        assert!(
            guard.check(whole(2 * GIB), space(14 * GIB), 1).is_err(),
            "others were promised the rest"
        );
        let there = Size {
            total: 2 * GIB,
            missing: 0,
        };
        assert_eq!(
            guard.check(there, space(0), 0),
            Ok(()),
            "nothing has to be fetched"
        );
        assert_eq!(
            super::Guard {
                unpack_percent: 0,
                ..guard
            }
            .need(100),
            350
        );
    }

    proptest! {
        /// Whatever passes leaves the reserve, also beside what was promised to others, with nothing overflowing on the way.
        #[test]
        fn what_passes_leaves_the_reserve(
            bytes in any::<u64>(), percent in any::<u32>(), unpack in any::<u32>(),
            missing in 1_u64.., free in any::<u64>(), total in any::<u64>(), promised in any::<u64>(),
        ) {
            let guard = guard(bytes, percent, unpack);
            let space = Space { free, total };
            if guard.check(whole(missing), space, promised).is_ok() {
                let left = free.checked_sub(guard.need(missing)).and_then(|left| left.checked_sub(promised));
                prop_assert!(left.is_some_and(|left| left >= guard.reserve(space)));
            }
        }
    }
}
