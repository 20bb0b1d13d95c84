//! Numbers as people read them.

use std::time::Duration;

/// Bytes in binary units, three significant digits: `1.50 MiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = match value {
        _ if unit == 0 => 0,
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {}", UNITS[unit])
}

/// A length of time in at most two units: `850ms`, `12s`, `4m05s`, `3h10m`, `2d4h`.
pub(crate) fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 if time.subsec_millis() > 0 => format!("{}ms", time.subsec_millis()),
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// Share in percent, rounded down, so that 100 means all.
pub(crate) fn percent(done: u64, total: u64) -> Option<u64> {
    let share = u128::from(done)
        .checked_mul(100)?
        .checked_div(u128::from(total))?;
    u64::try_from(share.min(100)).ok()
}

/// Time left at this rate; nothing when nothing moves or all is there.
pub(crate) fn time_left(done: u64, total: u64, per_second: u64) -> Option<Duration> {
    let left = total.checked_sub(done).filter(|left| *left > 0)?;
    Some(Duration::from_secs(left.div_ceil(per_second.max(1)))).filter(|_| per_second > 0)
}

/// The first line of a text, cut to a width with an ellipsis.
pub(crate) fn line(text: &str, width: usize) -> String {
    let first = text.lines().next().unwrap_or_default().trim();
    if first.chars().count() <= width {
        return first.to_owned();
    }
    let mut cut: String = first.chars().take(width.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_three_digits() {
        for (count, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1023, "1.00 KiB"),
            (1536, "1.50 KiB"),
            (10 << 20, "10.0 MiB"),
            (123 << 20, "123 MiB"),
            (1 << 40, "1.00 TiB"),
            (u64::MAX, "16777216 TiB"),
        ] {
            assert_eq!(bytes(count), text);
        }
    }

    #[test]
    fn durations_have_two_units() {
        for (millis, text) in [
            (0, "0s"),
            (850, "850ms"),
            (12_400, "12s"),
            (245_000, "4m05s"),
            (11_400_000, "3h10m"),
            (187_200_000, "2d4h"),
        ] {
            assert_eq!(duration(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn shares_and_times_never_divide_by_nothing() {
        assert_eq!(percent(1, 0), None);
        assert_eq!(percent(999, 1000), Some(99));
        assert_eq!(percent(u64::MAX, 2), Some(100));
        assert_eq!(time_left(0, 100, 0), None);
        assert_eq!(time_left(100, 100, 7), None);
        assert_eq!(time_left(0, 100, 30), Some(Duration::from_secs(4)));
    }

    #[test]
    fn long_lines_are_cut_by_characters() {
        assert_eq!(line("äöü\nsecond", 3), "äöü");
        assert_eq!(line("äöüß", 3), "äö…");
    }
}
