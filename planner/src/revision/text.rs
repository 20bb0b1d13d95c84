//! JSON as Go writes it.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::go::{Kind, fields};

/// A value with object keys sorted, without spaces, and with `<`, `>` and `&` escaped.
#[must_use]
pub fn canonical_text(value: &Value) -> String {
    let mut out = String::new();
    write(&mut out, value, &Kind::Any);
    out
}

/// The same, with the fields of known types in the order in which the type declares them.
pub(super) fn declared_text(value: &Value, kind: &Kind) -> String {
    let mut out = String::new();
    write(&mut out, value, kind);
    out
}

fn write(out: &mut String, value: &Value, kind: &Kind) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Number(number) => out.push_str(&number.to_string()),
        Value::String(text) => write_text(out, text),
        Value::Array(items) => {
            let of = match kind {
                Kind::List(name) | Kind::ListAlways(name) => Kind::Struct(name),
                _ => Kind::Any,
            };
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write(out, item, &of);
            }
            out.push(']');
        }
        Value::Object(map) => write_object(out, map, kind),
    }
}

fn write_object(out: &mut String, map: &Map<String, Value>, kind: &Kind) {
    let declared = match kind {
        Kind::Struct(name) | Kind::Ptr(name) => fields(name),
        _ => &[],
    };
    let known = declared
        .iter()
        .filter_map(|(key, kind)| Some((*key, map.get(*key)?, *kind)));
    // The map of serde_json keeps another order when some crate of the build asks for it.
    let mut others: Vec<(&str, &Value, Kind)> = map
        .iter()
        .filter(|(key, _)| !declared.iter().any(|(declared, _)| declared == key))
        .map(|(key, value)| (key.as_str(), value, Kind::Any))
        .collect();
    others.sort_by_key(|(key, ..)| *key);
    out.push('{');
    for (index, (key, value, kind)) in known.chain(others).enumerate() {
        if index > 0 {
            out.push(',');
        }
        write_text(out, key);
        out.push(':');
        write(out, value, &kind);
    }
    out.push('}');
}

fn write_text(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                // Writing to a String does not fail.
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

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

/// A quantity in the one spelling that Kubernetes uses: `1024Mi` is `1Gi`, `0.5` is `500m`. None for what is no quantity.
#[must_use]
pub fn quantity(text: &str) -> Option<String> {
    let text = text.trim();
    let split = text
        .char_indices()
        .find(|(index, character)| {
            !(character.is_ascii_digit() || *character == '.' || (*index == 0 && "+-".contains(*character)))
        })
        .map_or(text.len(), |(index, _)| index);
    let (number, suffix) = text.split_at(split);
    // Nano-units: Kubernetes keeps nothing finer, and rounds up.
    if let Some(power) = BINARY
        .iter()
        .position(|known| *known == suffix && !suffix.is_empty())
    {
        let units = nano(number, 0)?.checked_mul(1_i128 << (10 * power))?;
        return Some(binary(units));
    }
    let (power, form) = match DECIMAL.iter().find(|(known, _)| *known == suffix) {
        Some((_, power)) => (*power, Form::Decimal),
        None => (suffix.strip_prefix(['e', 'E'])?.parse().ok()?, Form::Exponent),
    };
    Some(decimal(nano(number, power)?, form))
}

#[derive(Clone, Copy, PartialEq)]
enum Form {
    Decimal,
    Exponent,
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
        Form::Decimal => {
            let suffix = DECIMAL
                .iter()
                .find(|(_, known)| *known == power)
                .map_or("", |(suffix, _)| suffix);
            format!("{number}{suffix}")
        }
    }
}
