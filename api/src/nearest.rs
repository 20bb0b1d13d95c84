//! "Did you mean ...?" for names that people type.

/// The candidate that is nearest to `word`, if any is near enough to be a slip of the keyboard.
///
/// Near enough means at most a third of the longer word differs, counted in inserted, dropped and changed letters,
/// whatever the case.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = word.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (distance(&wanted, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| distance * 3 <= wanted.len().max(candidate.len()))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let change = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn slips_are_found_and_strangers_are_not() {
        let gates = ["ImagePullJobGate", "KruiseDaemon", "PodWebhook"];
        assert_eq!(nearest("ImagePulJobGate", gates), Some("ImagePullJobGate"));
        assert_eq!(nearest("kruisedaemon", gates), Some("KruiseDaemon"));
        assert_eq!(nearest("Frobnicate", gates), None);
        assert_eq!(nearest("", gates), None);
    }
}
