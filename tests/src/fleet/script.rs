//! How a virtual pull goes, written into the name of its image, so that nobody has to tell ten thousand agents.

use std::time::Duration;

/// Registry of virtual images.
const HOST: &str = "fleet.test";

/// Reference of an image whose pulls take between two spans of time and fail in so many of a thousand cases.
#[must_use]
pub fn image(shortest: Duration, longest: Duration, failing_permille: u32, name: &str) -> String {
    format!(
        "{HOST}/pull-{}-{}-{failing_permille}/{name}:1",
        shortest.as_millis(),
        longest.as_millis()
    )
}

/// One pull.
#[cfg(any(test, feature = "fleet"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pull {
    pub(crate) takes: Duration,
    pub(crate) fails: bool,
}

/// The pull of an image by an agent: always the same for the same seed. None for images of other kinds, which do not exist.
#[cfg(any(test, feature = "fleet"))]
pub(crate) fn pull(seed: u64, agent: usize, reference: &str) -> Option<Pull> {
    let words = reference
        .strip_prefix(HOST)?
        .strip_prefix("/pull-")?
        .split_once('/')?
        .0;
    let mut words = words.split('-');
    let mut number = || words.next()?.parse::<u64>().ok();
    let (shortest, longest, failing) = (number()?, number()?, number()?);
    let agent = u64::try_from(agent).unwrap_or(u64::MAX);
    let dice = reference
        .bytes()
        .fold(mix(seed ^ mix(agent)), |hash, byte| mix(hash ^ u64::from(byte)));
    let takes = shortest + dice % (longest.saturating_sub(shortest) + 1);
    Some(Pull {
        takes: Duration::from_millis(takes),
        fails: mix(dice) % 1000 < failing,
    })
}

/// The finalizer of SplitMix64: every bit of the result depends on every bit of the argument.
#[cfg(any(test, feature = "fleet"))]
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pulls_follow_the_name_of_the_image_and_the_seed() {
        let (shortest, longest) = (Duration::from_millis(100), Duration::from_millis(300));
        let reference = image(shortest, longest, 250, "app");
        let pulls: Vec<_> = (0..1000)
            .map(|agent| pull(1, agent, &reference).unwrap())
            .collect();
        assert!(
            pulls
                .iter()
                .all(|pull| (shortest..=longest).contains(&pull.takes))
        );
        let failing = pulls.iter().filter(|pull| pull.fails).count();
        assert!((200..300).contains(&failing), "{failing}");
        assert_eq!(pull(1, 7, &reference), pull(1, 7, &reference));
        assert_ne!(pull(1, 7, &reference), pull(2, 7, &reference));
        assert_eq!(pull(1, 7, "docker.io/library/nginx:1"), None);
    }
}
