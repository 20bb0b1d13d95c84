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
