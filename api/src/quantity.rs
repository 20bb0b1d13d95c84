//! Amounts of CPU, memory and storage, as Kubernetes reads and writes them.

/// Powers of ten by their suffix, and how a quantity is written with the largest one that leaves a whole number.
const DECIMAL: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// A quantity in billionths. None for what is no quantity.
#[must_use]
pub fn amount(text: &str) -> Option<i128> {
    Some(read(text)?.0)
}

/// A quantity in the one spelling that Kubernetes uses: `1024Mi` is `1Gi`, `0.5` is `500m`. None for what is no quantity.
#[must_use]
pub fn canonical(text: &str) -> Option<String> {
    let (nano, form) = read(text)?;
    Some(match form {
        Form::Binary => binary(nano),
        form => decimal(nano, form),
    })
}

/// In billionths, the finest that Kubernetes keeps, and with the kind of suffix.
fn read(text: &str) -> Option<(i128, Form)> {
    let text = text.trim();
    let in_number = |(index, character): (usize, char)| {
        character.is_ascii_digit() || character == '.' || (index == 0 && "+-".contains(character))
    };
    let split = text
        .char_indices()
        .find(|at| !in_number(*at))
        .map_or(text.len(), |(index, _)| index);
    let (number, suffix) = text.split_at(split);
    if let Some(power) = BINARY
        .iter()
        .position(|known| *known == suffix && !suffix.is_empty())
    {
        return Some((
            nano(number, 0)?.checked_mul(1_i128 << (10 * power))?,
            Form::Binary,
        ));
    }
    let (power, form) = match DECIMAL.iter().find(|(known, _)| *known == suffix) {
        Some((_, power)) => (*power, Form::Decimal),
        None => (suffix.strip_prefix(['e', 'E'])?.parse().ok()?, Form::Exponent),
    };
    Some((nano(number, power)?, form))
}

#[derive(Clone, Copy, PartialEq)]
enum Form {
    Decimal,
    Exponent,
    Binary,
}

/// A decimal number times a power of ten, in billionths; what is finer is rounded away from zero.
fn nano(number: &str, power: i32) -> Option<i128> {
    let (negative, digits) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.len() + fraction.len() == 0 || whole.len() + fraction.len() > 30 || fraction.contains('.') {
        return None;
    }
    let mantissa: i128 = format!("{whole}{fraction}").parse().ok()?;
    let shift = power
        .checked_add(9)?
        .checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let magnitude = if shift >= 0 {
        mantissa.checked_mul(10_i128.checked_pow(shift.unsigned_abs())?)?
    } else {
        let divisor = 10_i128.checked_pow(shift.unsigned_abs())?;
        mantissa / divisor + i128::from(mantissa % divisor != 0)
    };
    Some(if negative { -magnitude } else { magnitude })
}

const NANO: i128 = 1_000_000_000;

fn binary(nano: i128) -> String {
    // A binary quantity below 1024, or with a fraction, is written in decimal form.
    if nano % NANO != 0 || (nano / NANO).abs() < 1024 {
        return decimal(nano, Form::Decimal);
    }
    let (mut number, mut power) = (nano / NANO, 0);
    while number % 1024 == 0 && power + 1 < BINARY.len() {
        number /= 1024;
        power += 1;
    }
    format!("{number}{}", BINARY[power])
}

fn decimal(nano: i128, form: Form) -> String {
    if nano == 0 {
        return "0".to_owned();
    }
    let (mut number, mut power) = (nano, -9);
    while number % 1000 == 0 && power < 18 {
        number /= 1000;
        power += 3;
    }
    match form {
        Form::Exponent if power == 0 => number.to_string(),
        Form::Exponent => format!("{number}e{power}"),
        Form::Decimal | Form::Binary => {
            let suffix = DECIMAL
                .iter()
                .find(|(_, known)| *known == power)
                .map_or("", |(suffix, _)| suffix);
            format!("{number}{suffix}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{amount, canonical};

    #[test]
    fn quantities() {
        for (text, expected) in [
            ("0", "0"),
            ("0.5", "500m"),
            ("1000m", "1"),
            ("1024Mi", "1Gi"),
            ("1536Mi", "1536Mi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Gi", "512Mi"),
            ("1Ki", "1Ki"),
            ("0.5Ki", "512"),
            ("1000", "1k"),
            ("1500", "1500"),
            ("1e3", "1e3"),
            ("1E3", "1e3"),
            ("10e2", "1e3"),
            ("1E", "1E"),
            ("100M", "100M"),
            ("1000k", "1M"),
            ("-1", "-1"),
            ("+2", "2"),
            (".5", "500m"),
            ("5.", "5"),
            ("1.23456789012", "1234567891n"),
            ("12u", "12u"),
            ("8Ei", "8Ei"),
        ] {
            assert_eq!(canonical(text).as_deref(), Some(expected), "{text}");
        }
        for text in ["", "x", "1x", "1.2.3", "-", "1Kii", "1ee3", "Ki", "1 Gi"] {
            assert_eq!(canonical(text), None, "{text}");
        }
    }

    #[test]
    fn amounts_compare_whatever_their_spelling() {
        assert_eq!(amount("1"), amount("1000m"));
        assert_eq!(amount("1Gi"), amount("1073741824"));
        assert!(amount("999m") < amount("1"));
    }
}
