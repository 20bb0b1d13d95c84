//! What a job may say in annotations, beyond OpenKruise's fields. Where OpenKruise runs instead, they mean nothing and harm nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

/// Prefix of all of them.
pub const PREFIX: &str = "pull.kruise.io/";
/// Place in each node's queue and before the cluster's caps, 0 to 90.
pub const PRIORITY: &str = "pull.kruise.io/priority";
/// Most compressed bytes of the image.
pub const MAX_SIZE: &str = "pull.kruise.io/max-image-size";
/// Space that a pull must leave on a node.
pub const MIN_FREE: &str = "pull.kruise.io/min-free-space";
/// How long the image is kept from the kubelet's image collection.
pub const PIN_FOR: &str = "pull.kruise.io/pin-for";
/// Cordoned nodes wait.
pub const DEFER_CORDONED: &str = "pull.kruise.io/defer-cordoned-nodes";
/// A node waits until a pod with these labels, of the job's namespace, is Ready on it.
pub const WHEN_PODS_READY: &str = "pull.kruise.io/when-pods-ready";
/// A node waits until it is as old as this.
pub const MIN_NODE_AGE: &str = "pull.kruise.io/min-node-age";

/// Every annotation that is known.
pub const ALL: [&str; 7] = [
    DEFER_CORDONED,
    MAX_SIZE,
    MIN_FREE,
    MIN_NODE_AGE,
    PIN_FOR,
    PRIORITY,
    WHEN_PODS_READY,
];

/// Highest priority that people may give: what stands above is for the jobs that workloads make.
const MAX_PRIORITY: u32 = 90;

/// Priority classes.
pub mod priority {
    /// Jobs that workloads make for a rollout.
    pub const WORKLOAD: u32 = 100;
    /// Jobs of people.
    pub const USER: u32 = 50;
    /// Daily rounds of jobs that never complete.
    pub const REFRESH: u32 = 10;
}

/// The annotations of a job, read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PullOptions {
    /// See [`PRIORITY`].
    pub priority: Option<u32>,
    /// See [`MAX_SIZE`].
    pub max_size: Option<u64>,
    /// See [`MIN_FREE`].
    pub min_free: Option<MinFree>,
    /// See [`PIN_FOR`].
    pub pin_for: Option<Duration>,
    /// See [`DEFER_CORDONED`].
    pub defer_cordoned: bool,
    /// See [`WHEN_PODS_READY`].
    pub when_pods_ready: Option<LabelSelector>,
    /// See [`MIN_NODE_AGE`].
    pub min_node_age: Option<Duration>,
}

/// Space to be left free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MinFree {
    /// So many bytes.
    Bytes(u64),
    /// A share of the file system, in percent.
    Percent(u32),
}

/// An annotation that cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("annotation {key} is {value:?}; {accepted}")]
pub struct OptionError {
    /// Which.
    pub key: String,
    /// As written, cut.
    pub value: String,
    /// What would be accepted.
    pub accepted: String,
}

impl PullOptions {
    /// Reads the annotations that are ours; others are left alone.
    ///
    /// # Errors
    /// A value that cannot be read, or a name with our prefix that does not exist: a slip must not go unnoticed.
    pub fn parse(annotations: &BTreeMap<String, String>) -> Result<Self, OptionError> {
        let mut options = Self::default();
        for (key, value) in annotations
            .range(PREFIX.to_owned()..)
            .take_while(|(key, _)| key.starts_with(PREFIX))
        {
            options.set(key, value).map_err(|accepted| OptionError {
                key: key.clone(),
                value: value.chars().take(100).collect(),
                accepted,
            })?;
        }
        Ok(options)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let accepted = |text: &str| format!("accepted is {text}");
        match key {
            PRIORITY => {
                let number = value
                    .parse()
                    .ok()
                    .filter(|number| (0..=MAX_PRIORITY).contains(number));
                self.priority = Some(number.ok_or_else(|| accepted("a whole number from 0 to 90"))?);
            }
            MAX_SIZE => {
                let size = bytes(value).filter(|size| *size > 0);
                self.max_size = Some(size.ok_or_else(|| accepted("a size such as 800Mi or 2G"))?);
            }
            MIN_FREE => {
                let space = min_free(value);
                self.min_free =
                    Some(space.ok_or_else(|| accepted("a size such as 10Gi, or a share from 1% to 90%"))?);
            }
            PIN_FOR => {
                self.pin_for =
                    Some(span(value).ok_or_else(|| accepted("a span such as 90m, 24h or 7d, up to 365d"))?);
            }
            MIN_NODE_AGE => {
                self.min_node_age =
                    Some(span(value).ok_or_else(|| accepted("a span such as 90s, 10m or 1h, up to 365d"))?);
            }
            DEFER_CORDONED => {
                self.defer_cordoned = value.parse().map_err(|_| accepted("true or false"))?;
            }
            WHEN_PODS_READY => {
                let selector = selector(value);
                self.when_pods_ready =
                    Some(selector.ok_or_else(|| {
                        accepted("a label selector such as app=db or app in (a,b),!canary")
                    })?);
            }
            _ => {
                let nearest = crate::nearest::nearest(key, ALL);
                return Err(nearest.map_or_else(
                    || format!("known are {}", ALL.join(", ")),
                    |nearest| format!("there is no such annotation; did you mean {nearest}?"),
                ));
            }
        }
        Ok(())
    }
}

/// Seconds, minutes, hours or days, as one whole number with one unit.
fn span(text: &str) -> Option<Duration> {
    let unit = text.chars().last()?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return None,
    };
    let number: u64 = digits(&text[..text.len() - 1])?;
    let seconds = number.checked_mul(seconds)?;
    (1..=365 * 86_400)
        .contains(&seconds)
        .then(|| Duration::from_secs(seconds))
}

/// A whole number with one of Kubernetes' suffixes.
fn bytes(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor = match unit {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => return None,
    };
    digits(number)?.checked_mul(factor)
}

fn digits(text: &str) -> Option<u64> {
    text.parse()
        .ok()
        .filter(|_| text.chars().all(|c| c.is_ascii_digit()))
}

fn min_free(text: &str) -> Option<MinFree> {
    match text.strip_suffix('%') {
        Some(percent) => digits(percent)
            .and_then(|percent| u32::try_from(percent).ok())
            .filter(|percent| (1..=90).contains(percent))
            .map(MinFree::Percent),
        None => bytes(text).filter(|bytes| *bytes > 0).map(MinFree::Bytes),
    }
}

/// Reads a selector as `kubectl --selector` takes it.
fn selector(text: &str) -> Option<LabelSelector> {
    let mut labels = BTreeMap::new();
    let mut expressions = Vec::new();
    for term in terms(text) {
        let term = term.trim();
        if let Some(key) = term.strip_prefix('!') {
            expressions.push(expression(key, "DoesNotExist", None)?);
        } else if let Some((key, value)) = term.split_once("!=") {
            expressions.push(expression(key, "NotIn", Some(value))?);
        } else if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
            labels.insert(label_key(key)?.to_owned(), value.trim().to_owned());
        } else if let Some((head, values)) = term.strip_suffix(')').and_then(|term| term.split_once('(')) {
            let head = head.trim();
            let (key, operator) = match head.strip_suffix(" notin") {
                Some(key) => (key, "NotIn"),
                None => (head.strip_suffix(" in")?, "In"),
            };
            expressions.push(expression(key, operator, Some(values))?);
        } else {
            expressions.push(expression(term, "Exists", None)?);
        }
    }
    let selector = LabelSelector {
        match_labels: (!labels.is_empty()).then_some(labels),
        match_expressions: (!expressions.is_empty()).then_some(expressions),
    };
    (selector != LabelSelector::default()).then_some(selector)
}

/// Split at commas outside of parentheses.
fn terms(text: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    text.split(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
    .collect()
}

fn expression(key: &str, operator: &str, values: Option<&str>) -> Option<LabelSelectorRequirement> {
    Some(LabelSelectorRequirement {
        key: label_key(key)?.to_owned(),
        operator: operator.to_owned(),
        values: values.map(|values| values.split(',').map(|value| value.trim().to_owned()).collect()),
    })
}

fn label_key(key: &str) -> Option<&str> {
    let key = key.trim();
    let ok = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    (!key.is_empty() && key.chars().all(ok)).then_some(key)
}

#[cfg(test)]
mod tests;
