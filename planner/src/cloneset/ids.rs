//! Instance ids: derived from the set and a number, so that two who decide alike collide instead of both succeeding.

use crate::letters::spell;

const LENGTH: usize = 5;
/// 27 to the power of 5.
const SPACE: u64 = 14_348_907;
/// Half of the bits of the smallest even number of bits that holds the space.
const HALF_BITS: u32 = 12;
const HALF: u64 = (1 << HALF_BITS) - 1;
const ROUNDS: u64 = 6;

/// The id with this number. Different numbers (up to 14,348,907) of a set have different ids, and the ids of two sets have nothing to do
/// with each other.
#[must_use]
pub fn instance_id(set_uid: &str, number: i64) -> String {
    let key = fnv1a(set_uid.as_bytes());
    let mut value = number.unsigned_abs() % SPACE;
    // A permutation of 24 bits, applied until the result is in the space: a permutation of the space.
    loop {
        value = permute(key, value);
        if value < SPACE {
            break;
        }
    }
    spell(value, LENGTH).chars().rev().collect()
}

fn permute(key: u64, value: u64) -> u64 {
    let (mut left, mut right) = (value >> HALF_BITS, value & HALF);
    for round in 0..ROUNDS {
        let mixed = mix(key ^ mix(right | (round << 32))) & HALF;
        (left, right) = (right, left ^ mixed);
    }
    (left << HALF_BITS) | right
}

/// FNV-1a of 64 bits.
pub(super) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The finalizer of SplitMix64: every bit of the input touches every bit of the output.
const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{SPACE, instance_id};

    #[test]
    fn many_numbers_have_as_many_ids() {
        let ids: BTreeSet<String> = (1..=50_000).map(|number| instance_id("uid", number)).collect();
        assert_eq!(ids.len(), 50_000);
        assert!(
            ids.iter()
                .all(|id| id.len() == 5 && id.bytes().all(|byte| crate::letters::LETTERS.contains(&byte)))
        );
        let first = ids.iter().take(100).map(|id| &id[..1]).collect::<BTreeSet<_>>();
        assert_eq!(
            first.len(),
            1,
            "sorted, the first hundred of fifty thousand begin alike"
        );
    }

    #[test]
    fn ids_belong_to_their_set_and_stay_the_same() {
        assert_eq!(instance_id("a", 1), instance_id("a", 1));
        assert_ne!(instance_id("a", 1), instance_id("b", 1));
        // Fixed for good: names of pods are made from them.
        assert_eq!(
            [1, 2, 3].map(|number| instance_id("7d6f59b2-fec9-433f-953a-0cbd79727cac", number)),
            ["2ftx9", "lrg9n", "v9ms8"]
        );
    }

    #[test]
    fn the_space_is_walked_in_full_before_an_id_comes_again() {
        let space = i64::try_from(SPACE).unwrap();
        assert_eq!(instance_id("a", 5), instance_id("a", 5 + space));
        assert_ne!(instance_id("a", space - 1), instance_id("a", space));
    }
}
