//! Where two JSON values differ. Lists are compared index by index.

use std::fmt;

use serde_json::Value;

/// What happened at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Add,
    Remove,
    Replace,
}

/// One step into a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Key(String),
    Index(usize),
}

/// A place in a value. Shown as people write it: `spec.containers[0].image`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place(pub(super) Vec<Step>);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.0.iter().enumerate() {
            match step {
                Step::Index(at) => write!(f, "[{at}]")?,
                Step::Key(key) if key.contains(['.', '/', '[']) => write!(f, "['{key}']")?,
                Step::Key(key) if index == 0 => f.write_str(key)?,
                Step::Key(key) => write!(f, ".{key}")?,
            }
        }
        Ok(())
    }
}

impl Place {
    /// What the value has there.
    pub(super) fn get<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(value, |value, step| match step {
            Step::Key(key) => value.get(key),
            Step::Index(index) => value.get(index),
        })
    }

    fn with(&self, step: Step) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }
}

/// One difference.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Difference {
    pub(super) op: Op,
    pub(super) place: Place,
}

/// All differences, in the order of the places.
pub(super) fn differences(old: &Value, new: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    walk(old, new, &Place::default(), &mut found);
    found
}

fn walk(old: &Value, new: &Value, place: &Place, found: &mut Vec<Difference>) {
    let mut note = |op, place| found.push(Difference { op, place });
    match (old, new) {
        (Value::Object(a), Value::Object(b)) => {
            let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
            keys.sort_unstable();
            keys.dedup();
            for key in keys {
                let place = place.with(Step::Key(key.clone()));
                match (a.get(key), b.get(key)) {
                    (Some(a), Some(b)) => walk(a, b, &place, found),
                    (Some(_), None) => found.push(Difference {
                        op: Op::Remove,
                        place,
                    }),
                    (None, _) => found.push(Difference { op: Op::Add, place }),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            for index in 0..a.len().max(b.len()) {
                let place = place.with(Step::Index(index));
                match (a.get(index), b.get(index)) {
                    (Some(a), Some(b)) => walk(a, b, &place, found),
                    (Some(_), None) => found.push(Difference {
                        op: Op::Remove,
                        place,
                    }),
                    (None, _) => found.push(Difference { op: Op::Add, place }),
                }
            }
        }
        (a, b) if a != b => note(Op::Replace, place.clone()),
        _ => {}
    }
}
