//! Limits that are a number or a percentage of the replicas.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Digits that are read on either side of a decimal point: with more the product would not fit.
const MAX_WHOLE: usize = 9;
const MAX_FRACTION: usize = 15;

/// Which way a percentage that gives no whole number goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// To the next whole number.
    Up,
    /// To the last whole number.
    Down,
}

/// Why a limit is refused.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{text:?} is neither a whole number nor a percentage such as 20% or 33.3%")]
pub struct LimitError {
    /// As written.
    pub text: String,
}

/// A whole number as it is, or a percentage (`20%`, `33.3%`) of `total`. Decimals are exact: no percentage is rounded twice.
///
/// # Errors
/// Texts that are no percentage; a number in quotes is one of them.
pub fn scaled(value: &IntOrString, total: i32, rounding: Rounding) -> Result<i64, LimitError> {
    match value {
        IntOrString::Int(number) => Ok(i64::from(*number)),
        IntOrString::String(text) => {
            percent_of(text, total, rounding).ok_or_else(|| LimitError { text: text.clone() })
        }
    }
}

/// Whether the value is a percentage, readable or not.
#[must_use]
pub fn is_percent(value: &IntOrString) -> bool {
    matches!(value, IntOrString::String(text) if text.ends_with('%'))
}

fn percent_of(text: &str, total: i32, rounding: Rounding) -> Option<i64> {
    let text = text.strip_suffix('%')?;
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() + fraction.len() == 0 || !digits(whole) || !digits(fraction) {
        return None;
    }
    if whole.len() > MAX_WHOLE || fraction.len() > MAX_FRACTION {
        return None;
    }
    let mut numerator: i128 = format!("{whole}{fraction}").parse().ok()?;
    if negative {
        numerator = -numerator;
    }
    let places = u32::try_from(fraction.len()).ok()?;
    let product = numerator * i128::from(total);
    let divisor = 100 * 10_i128.pow(places);
    let down = product.div_euclid(divisor);
    let exact = product.rem_euclid(divisor) == 0;
    let result = if rounding == Rounding::Up && !exact {
        down + 1
    } else {
        down
    };
    i64::try_from(result).ok()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::{Int, String};
    use proptest::prelude::*;

    use super::Rounding::{Down, Up};
    use super::{is_percent, scaled};

    #[test]
    fn table() {
        let percent = |text: &str, total, rounding| scaled(&String(text.into()), total, rounding).ok();
        for (text, total, up, down) in [
            ("20%", 5, 1, 1),
            ("20%", 4, 1, 0),
            ("33.3%", 1000, 333, 333),
            ("33.3%", 3, 1, 0),
            ("7%", 100, 7, 7),
            ("0%", 10, 0, 0),
            ("100%", 10, 10, 10),
            ("150%", 10, 15, 15),
            ("99.999999999999999%", 10, 10, 9),
            (".5%", 100, 1, 0),
            ("5.%", 100, 5, 5),
            ("-5%", 10, 0, -1),
            ("+5%", 100, 5, 5),
            (
                "999999999%",
                i32::MAX,
                21_474_836_448_525_164,
                21_474_836_448_525_163,
            ),
        ] {
            assert_eq!(percent(text, total, Up), Some(up), "{text} of {total} up");
            assert_eq!(percent(text, total, Down), Some(down), "{text} of {total} down");
        }
        for text in [
            "",
            "%",
            "5",
            "abc",
            "5%%",
            "1e2%",
            "- 5%",
            "1.2.3%",
            " 5%",
            "--5%",
            "1234567890%",
            "NaN%",
        ] {
            assert_eq!(percent(text, 10, Up), None, "{text}");
        }
        assert_eq!(scaled(&Int(-3), 10, Up), Ok(-3));
        assert!(is_percent(&String("x%".into())) && !is_percent(&Int(1)));
    }

    proptest! {
        #[test]
        fn up_and_down_enclose_the_exact_value(percent in 0_i64..=400, total in 0_i32..=20_000) {
            let text = String(format!("{percent}%"));
            let (up, down) = (scaled(&text, total, Up).unwrap(), scaled(&text, total, Down).unwrap());
            let exact = percent * i64::from(total);
            prop_assert!(down * 100 <= exact && exact <= up * 100);
            prop_assert!(up - down <= 1);
            prop_assert_eq!(up == down, exact % 100 == 0);
        }
    }
}
