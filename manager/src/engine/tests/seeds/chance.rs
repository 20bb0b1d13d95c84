//! Numbers that are the same for the same seed, on every machine and with every version of every library.

/// `SplitMix64`.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// From `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.between(0, length as u64 - 1)).expect("an index")
    }

    /// True so many times in a thousand.
    pub(crate) fn permille(&mut self, share: u64) -> bool {
        self.between(0, 999) < share
    }
}

/// A monotonic clock of its own beginning and rate, in milliseconds of the world's time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drift {
    base: u64,
    permille: u64,
}

impl Drift {
    pub(super) fn new(chance: &mut Chance) -> Self {
        Self {
            base: chance.between(1_000, 10_000_000),
            // A tenth too slow or too fast, each: the slot lease is long enough for both at once.
            permille: chance.between(900, 1_100),
        }
    }

    pub(super) fn shows(&self, world: u64) -> std::time::Duration {
        std::time::Duration::from_millis(self.base + world * self.permille / 1_000)
    }

    /// When it will show that, by the world's time.
    pub(super) fn world_time(&self, shown: std::time::Duration) -> u64 {
        let millis = u64::try_from(shown.as_millis()).expect("not that long") + 1;
        (millis.saturating_sub(self.base) * 1_000).div_ceil(self.permille)
    }
}
