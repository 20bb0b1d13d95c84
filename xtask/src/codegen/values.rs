//! The page of the chart's values, from `values.yaml` (defaults and comments) and its schema (structure and types).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{cell, page_head};

pub(super) fn page(chart: &Path) -> Result<String> {
    let text = fs::read_to_string(chart.join("values.yaml")).context("cannot read values.yaml")?;
    let values: Value = serde_norway::from_str(&text).context("values.yaml is not YAML")?;
    let schema = fs::read(chart.join("values.schema.json")).context("cannot read values.schema.json")?;
    let schema: Value = serde_json::from_slice(&schema).context("values.schema.json is not JSON")?;
    let mut page = page_head("Values of the chart", "`deploy/chart/values.yaml` and its schema");
    page.push_str("| Value | Type | Default | Meaning |\n|---|---|---|---|\n");
    rows(&values, &schema, ("", ""), &comments(&text), &mut page);
    Ok(page)
}

/// Groups are what the schema describes field by field; anything else is one value, however long. A value without a comment has
/// its group's.
fn rows(
    values: &Value,
    schema: &Value,
    (prefix, inherited): (&str, &str),
    comments: &BTreeMap<String, String>,
    page: &mut String,
) {
    for (name, value) in values.as_object().into_iter().flatten() {
        let path = format!("{prefix}{name}");
        let described = &schema["properties"][name];
        let meaning = comments.get(&path).map_or(inherited, String::as_str);
        if described["properties"].is_object() {
            rows(value, described, (&format!("{path}."), meaning), comments, page);
            continue;
        }
        let (kind, value) = (kind(described), cell(&value.to_string()));
        page.push_str(&format!(
            "| `{path}` | {kind} | `{value}` | {} |\n",
            cell(meaning)
        ));
    }
}

fn kind(schema: &Value) -> String {
    if let Some(words) = schema["enum"].as_array() {
        let words = words
            .iter()
            .filter_map(Value::as_str)
            .filter(|word| !word.is_empty());
        return words
            .map(|word| format!("`{word}`"))
            .collect::<Vec<_>>()
            .join(", ");
    }
    match &schema["type"] {
        Value::String(kind) if kind == "array" => "list".to_owned(),
        Value::String(kind) => kind.clone(),
        Value::Array(kinds) => kinds
            .iter()
            .filter_map(Value::as_str)
            .collect::<Vec<_>>()
            .join(" or "),
        _ => "string".to_owned(),
    }
}

/// The comment above each key, by the key's path.
fn comments(text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut path: Vec<(usize, String)> = Vec::new();
    let mut comment = String::new();
    for line in text.lines() {
        let bare = line.trim_start();
        let indent = line.len() - bare.len();
        if let Some(words) = bare.strip_prefix('#') {
            comment = format!("{comment} {}", words.trim());
            continue;
        }
        let Some((key, _)) = bare.split_once(':').filter(|(key, _)| !key.starts_with('-')) else {
            comment.clear();
            continue;
        };
        path.retain(|(depth, _)| *depth < indent);
        path.push((indent, key.to_owned()));
        let name = path
            .iter()
            .map(|(_, key)| key.as_str())
            .collect::<Vec<_>>()
            .join(".");
        if !comment.is_empty() {
            found.insert(name, comment.trim().to_owned());
        }
        comment.clear();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_belong_to_the_key_below() {
        let found = comments("# About a\n# and more.\na: 1\nb:\n  # Inner.\n  c: {}\n  d: 2\n");
        assert_eq!(found["a"], "About a and more.");
        assert_eq!(found["b.c"], "Inner.");
        assert!(!found.contains_key("b.d"));
    }
}
