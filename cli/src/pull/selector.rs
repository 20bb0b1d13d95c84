//! Label selectors as kubectl takes them.

use std::collections::BTreeMap;

use kruise_api::image_pull_job::{LabelSelectorRequirement, NodeSelector};

/// Reads `k=v`, `k==v`, `k!=v`, `k`, `!k`, `k in (a,b)` and `k notin (a,b)`, separated by commas.
pub(super) fn parse(text: &str) -> Result<NodeSelector, String> {
    let mut labels = BTreeMap::new();
    let mut expressions = Vec::new();
    for part in parts(text) {
        match requirement(part) {
            Some(Requirement::Equal(key, value)) => {
                if let Some(other) = labels.insert(key.clone(), value.clone())
                    && other != value
                {
                    return Err(format!(
                        "label {key} cannot be {other} and {value} at once; write '{key} in ({other},{value})'"
                    ));
                }
            }
            Some(Requirement::Expression(expression)) => expressions.push(expression),
            None => {
                return Err(format!(
                    "{part:?} is no label selector; give k=v, k!=v, k, !k, 'k in (a,b)' or 'k notin (a,b)'"
                ));
            }
        }
    }
    if labels.is_empty() && expressions.is_empty() {
        return Err("the label selector is empty; leave it out to mean all nodes".to_owned());
    }
    Ok(NodeSelector {
        names: None,
        match_labels: (!labels.is_empty()).then_some(labels),
        match_expressions: (!expressions.is_empty()).then_some(expressions),
    })
}

/// Splits at commas that are not between parentheses.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_u32;
    text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
    .map(str::trim)
    .filter(|part| !part.is_empty())
}

enum Requirement {
    Equal(String, String),
    Expression(LabelSelectorRequirement),
}

fn requirement(part: &str) -> Option<Requirement> {
    if let Some((head, list)) = part.strip_suffix(')').and_then(|part| part.split_once('(')) {
        let (key, operator) = head.trim().rsplit_once(char::is_whitespace)?;
        let operator = match operator {
            "in" => "In",
            "notin" => "NotIn",
            _ => return None,
        };
        let values: Vec<_> = list.split(',').map(|value| value.trim().to_owned()).collect();
        return expression(key, operator, Some(values));
    }
    if let Some((key, value)) = part.split_once("!=") {
        return expression(key, "NotIn", Some(vec![value.trim().to_owned()]));
    }
    if let Some((key, value)) = part.split_once('=') {
        let value = value.strip_prefix('=').unwrap_or(value).trim();
        return valid(key.trim()).then(|| Requirement::Equal(key.trim().to_owned(), value.to_owned()));
    }
    match part.strip_prefix('!') {
        Some(key) => expression(key, "DoesNotExist", None),
        None => expression(part, "Exists", None),
    }
}

fn expression(key: &str, operator: &str, values: Option<Vec<String>>) -> Option<Requirement> {
    let key = key.trim();
    let requirement = LabelSelectorRequirement {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values,
    };
    valid(key).then_some(Requirement::Expression(requirement))
}

/// Whether it could be a label's key. The API server has the last word.
fn valid(key: &str) -> bool {
    !key.is_empty()
        && key
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_./".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Result<String, String> {
        let selector = parse(text)?;
        let labels = selector
            .match_labels
            .unwrap_or_default()
            .into_iter()
            .map(|(k, v)| format!("{k}={v}"));
        let expressions = selector.match_expressions.unwrap_or_default().into_iter();
        let expressions = expressions.map(|e| {
            format!(
                "{} {} {}",
                e.key,
                e.operator,
                e.values.unwrap_or_default().join("|")
            )
        });
        Ok(labels
            .chain(expressions)
            .map(|text| text.trim().to_owned())
            .collect::<Vec<_>>()
            .join("; "))
    }

    #[test]
    fn every_form_is_read() {
        for (text, meaning) in [
            ("a=b", "a=b"),
            ("a==b, c=d", "a=b; c=d"),
            ("a!=b", "a NotIn b"),
            (
                "node-role.kubernetes.io/worker",
                "node-role.kubernetes.io/worker Exists",
            ),
            ("!a", "a DoesNotExist"),
            ("a in (x, y),b=c", "b=c; a In x|y"),
            ("a notin (x)", "a NotIn x"),
            ("a=", "a="),
        ] {
            assert_eq!(shown(text).as_deref(), Ok(meaning), "{text}");
        }
    }

    #[test]
    fn nonsense_is_named() {
        for text in ["", ",", "a b", "a in x", "a on (x)", "=b", "a=b,a=c", "(x)"] {
            assert!(shown(text).is_err(), "{text}");
        }
    }
}
