//! Letters for names that are made up: no vowels, so that no words come out, and none that looks like another.

/// The letters, as Kubernetes' own suffixes have them.
pub const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// So many letters that stand for a number, the lowest digit first.
#[must_use]
pub fn spell(number: u64, length: usize) -> String {
    let digits = std::iter::successors(Some(number), |rest| Some(rest / 27));
    digits
        .take(length)
        .map(|rest| usize::try_from(rest % 27).unwrap_or(0))
        .map(|digit| char::from(LETTERS[digit]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_come_lowest_first() {
        assert_eq!(spell(0, 3), "bbb");
        assert_eq!(spell(1 + 2 * 27 + 26 * 27 * 27, 3), "cd9");
        assert_eq!(spell(u64::MAX, 5).len(), 5);
    }
}
