//! Labels in one piece of memory: a manager holds those of every pod, and a pass looks at some of each.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::job::SelectError;

/// Labels of an object, by key. Each is kept as the lengths of its key and its value, and the two texts.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Labels(Box<[u8]>);

const LENGTH: usize = size_of::<u16>();

impl Labels {
    /// The value of a label.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        let mut rest = &*self.0;
        while let Some((found, value, next)) = split(rest) {
            if found == key.as_bytes() {
                return std::str::from_utf8(value).ok();
            }
            rest = next;
        }
        None
    }

    /// Whether there is a label with this key.
    #[must_use]
    pub fn contains_key(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Whether a label has exactly this value.
    #[must_use]
    pub fn has(&self, key: &str, value: &str) -> bool {
        self.get(key) == Some(value)
    }

    /// All of them, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut rest = &*self.0;
        std::iter::from_fn(move || {
            let (key, value, next) = split(rest)?;
            rest = next;
            Some((std::str::from_utf8(key).ok()?, std::str::from_utf8(value).ok()?))
        })
    }

    /// Sets a label.
    pub fn insert(&mut self, key: &str, value: &str) {
        let others = self.iter().filter(|(known, _)| *known != key);
        *self = others.chain([(key, value)]).collect();
    }

    /// Takes a label away.
    pub fn remove(&mut self, key: &str) {
        *self = self.iter().filter(|(known, _)| *known != key).collect();
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Labels {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(labels: I) -> Self {
        let sorted: BTreeMap<&str, &str> = labels.into_iter().collect();
        let mut bytes = Vec::new();
        for (key, value) in sorted {
            // The API server lets nothing near this length through.
            let lengths = (u16::try_from(key.len()), u16::try_from(value.len()));
            let (Ok(key_length), Ok(value_length)) = lengths else {
                continue;
            };
            bytes.extend(key_length.to_le_bytes());
            bytes.extend(value_length.to_le_bytes());
            bytes.extend(key.as_bytes());
            bytes.extend(value.as_bytes());
        }
        Self(bytes.into_boxed_slice())
    }
}

impl From<&BTreeMap<String, String>> for Labels {
    fn from(labels: &BTreeMap<String, String>) -> Self {
        labels
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect()
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Key, value and what comes after them.
fn split(rest: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (key, rest) = rest.split_first_chunk::<LENGTH>()?;
    let (value, rest) = rest.split_first_chunk::<LENGTH>()?;
    let (key, rest) = rest.split_at_checked(u16::from_le_bytes(*key).into())?;
    let (value, rest) = rest.split_at_checked(u16::from_le_bytes(*value).into())?;
    Some((key, value, rest))
}

/// A selector whose operators have been looked at.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Selector<'a> {
    exact: Vec<(&'a str, &'a str)>,
    rules: Vec<(&'a str, Operator, &'a [String])>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl<'a> Selector<'a> {
    pub(super) fn of(selector: &'a LabelSelector) -> Result<Self, SelectError> {
        let exact = selector.match_labels.iter().flatten();
        let mut rules = Vec::new();
        for rule in selector.match_expressions.iter().flatten() {
            let operator = match rule.operator.as_str() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                operator => {
                    return Err(SelectError {
                        key: rule.key.clone(),
                        operator: operator.to_owned(),
                    });
                }
            };
            rules.push((
                rule.key.as_str(),
                operator,
                rule.values.as_deref().unwrap_or_default(),
            ));
        }
        Ok(Self {
            exact: exact.map(|(key, value)| (key.as_str(), value.as_str())).collect(),
            rules,
        })
    }

    /// Whether labels match. A selector without anything matches everything.
    pub(super) fn matches(&self, labels: &Labels) -> bool {
        self.exact.iter().all(|(key, value)| labels.has(key, value))
            && self.rules.iter().all(|(key, operator, values)| {
                let value = labels.get(key);
                let listed = || value.is_some_and(|value| values.iter().any(|known| known == value));
                match operator {
                    Operator::In => listed(),
                    Operator::NotIn => !listed(),
                    Operator::Exists => value.is_some(),
                    Operator::DoesNotExist => value.is_none(),
                }
            })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::{Labels, Selector};
    use crate::job::matches_labels;

    proptest! {
        #[test]
        fn labels_are_a_map(changes in prop::collection::vec(("[ab]{0,3}", prop::option::of("[xyü]{0,3}")), 0..20)) {
            let mut map = BTreeMap::new();
            let mut labels = Labels::default();
            for (key, value) in changes {
                match value {
                    Some(value) => {
                        labels.insert(&key, &value);
                        map.insert(key, value);
                    }
                    None => {
                        labels.remove(&key);
                        map.remove(&key);
                    }
                }
                prop_assert_eq!(&labels, &Labels::from(&map));
                prop_assert!(labels.iter().eq(map.iter().map(|(key, value)| (key.as_str(), value.as_str()))));
            }
        }

        /// The same answers as the other implementation gives, which has its own tests.
        #[test]
        fn selectors_match_alike(
            labels in prop::collection::btree_map("[ab]", "[xy]", 0..3),
            exact in prop::collection::btree_map("[ab]", "[xy]", 0..2),
            rules in prop::collection::vec(("[ab]", 0..5_usize, prop::collection::vec("[xy]", 0..2)), 0..3),
        ) {
            let operators = ["In", "NotIn", "Exists", "DoesNotExist", "Like"];
            let rules: Vec<_> = rules
                .into_iter()
                .map(|(key, operator, values)| serde_json::json!({"key": key, "operator": operators[operator], "values": values}))
                .collect();
            let selector = serde_json::json!({"matchLabels": exact, "matchExpressions": rules});
            let selector = serde_json::from_value(selector).unwrap();
            let ours = Selector::of(&selector).map(|selector| selector.matches(&Labels::from(&labels)));
            prop_assert_eq!(ours, matches_labels(&labels, &selector));
        }
    }
}
