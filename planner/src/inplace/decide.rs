//! Whether pods can come from one template to another in place.

use std::fmt;

use kruise_api::clone_set::defaults::{PullDefault, fill_template};
use kruise_api::quantity;
use serde::Serialize;
use serde_json::Value;

use super::change::Change;
use super::diff::{Difference, Op, Place, Step, differences};
use super::{Options, metadata, qos};
use crate::revision;

/// Whether pods can come from one template to another in place.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// They can, by this change.
    InPlace(Change),
    /// They have to be made anew.
    Impossible(Obstacle),
}

/// What stands against a change in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// Why.
    pub reason: ObstacleReason,
    /// Field of the template, as in `spec.containers[0].env[1].value`.
    pub field: String,
}

/// Why a change is not possible in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ObstacleReason {
    /// One of the two is no template.
    TemplateUnreadable,
    /// Pods cannot change this field.
    FieldIsFixed,
    /// CPU and memory change in place only with the gate InPlaceWorkloadVerticalScaling.
    ResourcesNeedGate,
    /// Not a quantity.
    QuantityUnreadable,
    /// With the new amounts the pod would be in another QoS class, which is fixed.
    QosClassWouldChange,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = &self.field;
        match self.reason {
            ObstacleReason::TemplateUnreadable => write!(f, "{field} is not readable"),
            ObstacleReason::FieldIsFixed => write!(f, "{field} cannot change in place"),
            ObstacleReason::ResourcesNeedGate => write!(
                f,
                "{field} changes in place only with the feature gate InPlaceWorkloadVerticalScaling"
            ),
            ObstacleReason::QuantityUnreadable => write!(f, "{field} is no quantity"),
            ObstacleReason::QosClassWouldChange => {
                write!(
                    f,
                    "{field} would put the pod into another QoS class, which is fixed"
                )
            }
        }
    }
}

/// Whether pods of one revision can come to another in place, by the revisions' data.
#[must_use]
pub fn decide_revisions(old: &Value, new: &Value, options: Options) -> Decision {
    match (revision::template_of(old), revision::template_of(new)) {
        (Some(old), Some(new)) => decide(&old, &new, options),
        _ => impossible(ObstacleReason::TemplateUnreadable, "spec.template"),
    }
}

/// Whether pods of one template can come to another in place.
///
/// A default that only one of the two spells out is no difference: switching TemplateNoDefaults, or taking a set over from a tool that
/// writes whole objects, makes no pod anew.
#[must_use]
pub fn decide(old: &Value, new: &Value, options: Options) -> Decision {
    for template in [old, new] {
        if !template.is_object() || !template["spec"]["containers"].is_array() {
            return impossible(ObstacleReason::TemplateUnreadable, "spec.containers");
        }
    }
    let (old, new) = (revision::template(old), revision::template(new));
    let (filled_old, filled_new) = (filled(&old), filled(&new));
    let mut change = Change::default();
    for difference in differences(&old, &new) {
        let place = &difference.place;
        match place.0.first() {
            Some(Step::Key(part)) if part == "metadata" => {}
            Some(Step::Key(part)) if part == "spec" => {
                let spelled_out =
                    difference.op != Op::Replace && place.get(&filled_old) == place.get(&filled_new);
                if spelled_out {
                    continue;
                }
                if let Err(reason) = spec_change(&difference, &old, &new, options, &mut change) {
                    return impossible(reason, &place.to_string());
                }
            }
            _ => return impossible(ObstacleReason::FieldIsFixed, &place.to_string()),
        }
    }
    if let Some(container) = change.resources.keys().next()
        && qos::class(&old["spec"]) != qos::class(&new["spec"])
    {
        let field = format!("the resources of container {container}");
        return impossible(ObstacleReason::QosClassWouldChange, &field);
    }
    metadata::compare(&old, &new, options, &mut change);
    Decision::InPlace(change)
}

fn impossible(reason: ObstacleReason, field: &str) -> Decision {
    Decision::Impossible(Obstacle {
        reason,
        field: field.to_owned(),
    })
}

/// As the API server would fill it in on a pod.
fn filled(template: &Value) -> Value {
    let mut template = template.clone();
    fill_template(&mut template, PullDefault::ByTag, false);
    template
}

/// Takes one difference below `spec` into the change.
fn spec_change(
    difference: &Difference,
    old: &Value,
    new: &Value,
    options: Options,
    change: &mut Change,
) -> Result<(), ObstacleReason> {
    let place = &difference.place;
    let Some((index, rest)) = in_container(place) else {
        return Err(ObstacleReason::FieldIsFixed);
    };
    let text = |value: &Value| place.get(value).and_then(Value::as_str).map(str::to_owned);
    let container = old["spec"]["containers"][index]["name"].as_str();
    let (Some(container), Some(value), Op::Replace) = (container, text(new), difference.op) else {
        return Err(ObstacleReason::FieldIsFixed);
    };
    match rest.as_slice() {
        ["image"] => {
            change.images.insert(container.to_owned(), value);
        }
        [
            "resources",
            kind @ ("limits" | "requests"),
            name @ ("cpu" | "memory"),
        ] => {
            if !options.vertical_scaling {
                return Err(ObstacleReason::ResourcesNeedGate);
            }
            let value = quantity::canonical(&value).ok_or(ObstacleReason::QuantityUnreadable)?;
            let resources = change.resources.entry(container.to_owned()).or_default();
            let amounts = match *kind {
                "limits" => &mut resources.limits,
                _ => &mut resources.requests,
            };
            amounts.insert((*name).to_owned(), value);
        }
        _ => return Err(ObstacleReason::FieldIsFixed),
    }
    Ok(())
}

/// Index of the main container that the place is in, and the keys below it.
fn in_container(place: &Place) -> Option<(usize, Vec<&str>)> {
    let [
        Step::Key(spec),
        Step::Key(containers),
        Step::Index(index),
        rest @ ..,
    ] = place.0.as_slice()
    else {
        return None;
    };
    let keys: Option<Vec<&str>> = rest
        .iter()
        .map(|step| match step {
            Step::Key(key) => Some(key.as_str()),
            Step::Index(_) => None,
        })
        .collect();
    (spec == "spec" && containers == "containers").then_some((*index, keys?))
}
