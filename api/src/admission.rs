//! What the admission functions of the kinds have in common: how a refusal looks, and checks of selectors.
//!
//! Rules that a schema or CEL can hold are in the CRDs too, so that they hold while no webhook answers. The functions repeat them in OpenKruise's
//! order, for a test can then hold both against each other, and add what only code can say.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::image_pull_job::NodeSelector;

pub use crate::container_recreate_request::admission::Denied;

/// Longest name part of a label key, and longest value.
const LABEL_LENGTH: usize = 63;
/// Longest DNS name.
const SUBDOMAIN_LENGTH: usize = 253;

/// A refusal of something that cannot be.
pub(crate) fn bad(message: impl Into<String>) -> Denied {
    Denied {
        code: 400,
        message: message.into(),
    }
}

/// A refusal because of a feature gate.
pub(crate) fn gate_is_off(gate: &str) -> Denied {
    Denied {
        code: 403,
        message: format!("feature-gate {gate} is not enabled"),
    }
}

/// One requirement of a selector, of whatever type.
struct Requirement<'a> {
    key: &'a str,
    operator: &'a str,
    values: usize,
    bad_value: Option<&'a String>,
}

/// Checks a selector of nodes by label.
///
/// # Errors
/// What is wrong, with the field below `path`.
pub(crate) fn check_node_selector(path: &str, selector: &NodeSelector) -> Result<(), Denied> {
    check_labels(path, selector.match_labels.iter().flatten())?;
    for (index, requirement) in selector.match_expressions.iter().flatten().enumerate() {
        let values = requirement.values.as_deref().unwrap_or_default();
        let requirement = Requirement {
            key: &requirement.key,
            operator: &requirement.operator,
            values: values.len(),
            bad_value: values.iter().find(|value| !is_label_value(value)),
        };
        check_requirement(&format!("{path}.matchExpressions[{index}]"), &requirement)?;
    }
    Ok(())
}

/// Checks a label selector.
///
/// # Errors
/// What is wrong, with the field below `path`.
pub(crate) fn check_label_selector(path: &str, selector: &LabelSelector) -> Result<(), Denied> {
    check_labels(path, selector.match_labels.iter().flatten())?;
    for (index, requirement) in selector.match_expressions.iter().flatten().enumerate() {
        let values = requirement.values.as_deref().unwrap_or_default();
        let requirement = Requirement {
            key: &requirement.key,
            operator: &requirement.operator,
            values: values.len(),
            bad_value: values.iter().find(|value| !is_label_value(value)),
        };
        check_requirement(&format!("{path}.matchExpressions[{index}]"), &requirement)?;
    }
    Ok(())
}

fn check_labels<'a>(
    path: &str,
    labels: impl Iterator<Item = (&'a String, &'a String)>,
) -> Result<(), Denied> {
    for (key, value) in labels {
        if !is_label_key(key) {
            return Err(bad(format!("{path}.matchLabels: {key:?} is no key of a label")));
        }
        if !is_label_value(value) {
            return Err(bad(format!(
                "{path}.matchLabels[{key}]: {value:?} is no value of a label"
            )));
        }
    }
    Ok(())
}

fn check_requirement(path: &str, requirement: &Requirement<'_>) -> Result<(), Denied> {
    let Requirement {
        key,
        operator,
        values,
        bad_value,
    } = requirement;
    if !is_label_key(key) {
        return Err(bad(format!("{path}.key: {key:?} is no key of a label")));
    }
    match (*operator, *values) {
        ("In" | "NotIn", 0) => Err(bad(format!("{path}.values: {operator} needs at least one value"))),
        ("Exists" | "DoesNotExist", 1..) => Err(bad(format!("{path}.values: {operator} takes no values"))),
        ("In" | "NotIn", _) => bad_value.map_or(Ok(()), |value| {
            Err(bad(format!("{path}.values: {value:?} is no value of a label")))
        }),
        ("Exists" | "DoesNotExist", _) => Ok(()),
        _ => Err(bad(format!(
            "{path}.operator: {operator:?} is not In, NotIn, Exists or DoesNotExist"
        ))),
    }
}

/// `name` or `prefix/name`.
pub(crate) fn is_label_key(key: &str) -> bool {
    let (prefix, name) = key
        .split_once('/')
        .map_or((None, key), |(prefix, name)| (Some(prefix), name));
    prefix.is_none_or(is_subdomain) && !name.is_empty() && is_label_value(name)
}

/// Empty, or letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.
pub(crate) fn is_label_value(value: &str) -> bool {
    let ends_well = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    value.len() <= LABEL_LENGTH
        && ends_well(value.chars().next())
        && ends_well(value.chars().next_back())
        && value
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

/// A DNS name in lower case, as names of nodes are.
pub(crate) fn is_subdomain(name: &str) -> bool {
    let label = |label: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        label.starts_with(inner) && label.ends_with(inner) && label.chars().all(|c| inner(c) || c == '-')
    };
    !name.is_empty() && name.len() <= SUBDOMAIN_LENGTH && name.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_values_and_names_are_kubernetes_own() {
        for key in ["a", "app.kubernetes.io/name", "A_b-c.d", "x9"] {
            assert!(is_label_key(key), "{key}");
        }
        for key in ["", "/", "a/", "/a", "-a", "a-", "a b", "UP.io/a", "a/b/c", "é"] {
            assert!(!is_label_key(key), "{key}");
        }
        assert!(is_label_value("") && is_label_value("v1.2_x") && !is_label_value("v1."));
        assert!(!is_label_value(&"x".repeat(64)));
        assert!(is_subdomain("node-1.example.com") && !is_subdomain("Node") && !is_subdomain("a..b"));
    }

    #[test]
    fn a_selector_is_refused_by_the_name_of_its_field() {
        let expression = |key: &str, operator: &str, values: &[&str]| LabelSelector {
            match_expressions: Some(vec![
                k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement {
                    key: key.to_owned(),
                    operator: operator.to_owned(),
                    values: Some(values.iter().map(|value| (*value).to_owned()).collect()),
                },
            ]),
            match_labels: None,
        };
        for (selector, field) in [
            (expression("", "In", &["a"]), "s.matchExpressions[0].key"),
            (expression("a", "in", &["a"]), "s.matchExpressions[0].operator"),
            (expression("a", "In", &[]), "s.matchExpressions[0].values"),
            (expression("a", "In", &["b c"]), "s.matchExpressions[0].values"),
            (expression("a", "Exists", &["b"]), "s.matchExpressions[0].values"),
        ] {
            let denied = check_label_selector("s", &selector).expect_err(field);
            assert!(
                denied.code == 400 && denied.message.starts_with(field),
                "{denied:?}"
            );
        }
        assert_eq!(
            check_label_selector("s", &expression("a", "NotIn", &["b", ""])),
            Ok(())
        );
    }
}
