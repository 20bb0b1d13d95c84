//! Which nodes a job is about, in the order in which they get their turn.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kruise_api::ids::NodeName;
use kruise_api::image_pull_job::ImagePullJobSpec;

use super::snapshot::{NodeView, PodView};

/// Why a selector cannot be acted on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("operator {operator:?} of key {key:?} is not known; accepted are In, NotIn, Exists and DoesNotExist")]
pub struct SelectError {
    /// Label key of the expression.
    pub key: String,
    /// As written.
    pub operator: String,
}

/// Selected nodes: those of the pods, those named (in that order), those whose labels match, or all by name. Names of nodes that do not exist are
/// left out; a node that is named twice counts once.
///
/// # Errors
/// An expression with an operator that does not exist.
pub fn select(
    spec: &ImagePullJobSpec,
    nodes: &BTreeMap<NodeName, NodeView>,
    pods: &[PodView],
) -> Result<Vec<NodeName>, SelectError> {
    let mut seen = BTreeSet::new();
    let mut once = |name: &NodeName| nodes.contains_key(name) && seen.insert(name.clone());
    if let Some(selector) = &spec.pod_selector {
        // The pods are chosen already; this is for the operators, which nobody may have looked at.
        matches_labels(&BTreeMap::new(), selector)?;
        return Ok(pods
            .iter()
            .map(|pod| &pod.node)
            .filter(|name| once(name))
            .cloned()
            .collect());
    }
    let Some(selector) = &spec.selector else {
        return Ok(nodes.keys().cloned().collect());
    };
    if let Some(names) = &selector.names {
        return Ok(names
            .iter()
            .map(|name| NodeName::new(name.as_str()))
            .filter(|name| once(name))
            .collect());
    }
    let expressions: Vec<Expression<'_>> = selector
        .match_expressions
        .iter()
        .flatten()
        .map(|rule| {
            (
                rule.key.as_str(),
                rule.operator.as_str(),
                rule.values.as_deref().unwrap_or_default(),
            )
        })
        .collect();
    let mut chosen = Vec::new();
    for (name, node) in nodes {
        if matches(&node.labels, selector.match_labels.as_ref(), &expressions)? {
            chosen.push(name.clone());
        }
    }
    Ok(chosen)
}

/// Whether labels match a selector of Kubernetes. An empty selector matches everything.
///
/// # Errors
/// An expression with an operator that does not exist.
pub fn matches_labels(
    labels: &BTreeMap<String, String>,
    selector: &LabelSelector,
) -> Result<bool, SelectError> {
    let expressions: Vec<Expression<'_>> = selector
        .match_expressions
        .iter()
        .flatten()
        .map(|rule| {
            (
                rule.key.as_str(),
                rule.operator.as_str(),
                rule.values.as_deref().unwrap_or_default(),
            )
        })
        .collect();
    matches(labels, selector.match_labels.as_ref(), &expressions)
}

/// Key, operator, values.
type Expression<'a> = (&'a str, &'a str, &'a [String]);

fn matches(
    labels: &BTreeMap<String, String>,
    exact: Option<&BTreeMap<String, String>>,
    expressions: &[Expression<'_>],
) -> Result<bool, SelectError> {
    let mut all = exact
        .into_iter()
        .flatten()
        .all(|(key, value)| labels.get(key) == Some(value));
    for (key, operator, values) in expressions {
        let value = labels.get(*key);
        all &= match *operator {
            "In" => value.is_some_and(|value| values.contains(value)),
            "NotIn" => value.is_none_or(|value| !values.contains(value)),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => {
                return Err(SelectError {
                    key: (*key).to_owned(),
                    operator: (*operator).to_owned(),
                });
            }
        };
    }
    Ok(all)
}
