//! CloneSet, v1alpha1 and v1beta1 (stored).

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionVersion,
    JSONSchemaProps,
};
use kube::CustomResourceExt as _;

use super::{column, conversion, rule, spec_of};
use crate::clone_set::{CloneSet, v1alpha1};

/// A number that fits 32 bits, or a percentage with or without decimals.
const LIMIT: &str = "type(self) == int ? self >= -2147483648 && self <= 2147483647 : self.matches('^[-+]?([0-9]{1,9}[.]?[0-9]{0,15}|[.][0-9]{1,15})%$')";
/// The same from 0 on.
const LIMIT_FROM_ZERO: &str = "type(self) == int ? self >= 0 && self <= 2147483647 : self.matches('^[+]?([0-9]{1,9}[.]?[0-9]{0,15}|[.][0-9]{1,15})%$')";
const LIMIT_MESSAGE: &str = "must be a whole number or a percentage such as 20%";
/// A whole number, also in quotes.
const PARALLELISM: &str =
    "type(self) == int ? self >= 0 && self <= 2147483647 : self.matches('^[0-9]{1,9}$')";

/// CloneSet, v1alpha1 and v1beta1 (stored). The versions differ in form, so the API server asks the manager to convert.
#[must_use]
pub fn clone_set() -> CustomResourceDefinition {
    let mut crd = CloneSet::crd();
    let mut older = v1alpha1::CloneSet::crd().spec.versions;
    for version in &mut older {
        version.storage = false;
    }
    crd.spec.versions.splice(0..0, older);
    for version in &mut crd.spec.versions {
        version.additional_printer_columns = Some(columns());
        let newer = version.storage;
        if let Some(spec) = spec_of(version) {
            complete(spec, newer);
        }
        complete_status(version);
    }
    crd.spec.conversion = Some(conversion());
    crd
}

/// Columns in upstream's order.
fn columns() -> Vec<CustomResourceColumnDefinition> {
    let wide = Some(1);
    vec![
        column("DESIRED", "integer", ".spec.replicas", None),
        column("UPDATED", "integer", ".status.updatedReplicas", None),
        column("UPDATED_READY", "integer", ".status.updatedReadyReplicas", None),
        column(
            "UPDATED_AVAILABLE",
            "integer",
            ".status.updatedAvailableReplicas",
            None,
        ),
        column("READY", "integer", ".status.readyReplicas", None),
        column("TOTAL", "integer", ".status.replicas", None),
        column("AGE", "date", ".metadata.creationTimestamp", None),
        column(
            "CONTAINERS",
            "string",
            ".spec.template.spec.containers[*].name",
            wide,
        ),
        column(
            "IMAGES",
            "string",
            ".spec.template.spec.containers[*].image",
            wide,
        ),
        column("SELECTOR", "string", ".status.labelSelector", wide),
    ]
}

/// The types have defaults for these, so that a malformed object can be read; the API server asks for them.
fn complete_status(version: &mut CustomResourceDefinitionVersion) {
    let status = version
        .schema
        .as_mut()
        .and_then(|schema| schema.open_api_v3_schema.as_mut())
        .and_then(|root| at(root, &["status"]));
    let condition = status.and_then(|status| item(status, "conditions"));
    if let Some(condition) = condition {
        no_default(condition, "status");
        no_default(condition, "type");
        condition.required = Some(vec!["status".to_owned(), "type".to_owned()]);
    }
}

fn complete(spec: &mut JSONSchemaProps, newer: bool) {
    spec.required = Some(vec!["selector".to_owned(), "template".to_owned()]);
    // A default would hide that a needed field is missing, and put empty objects into what people wrote.
    for name in ["selector", "scaleStrategy", "updateStrategy"] {
        no_default(spec, name);
    }
    at_least_zero(spec, "replicas");
    if let Some(selector) = at(spec, &["selector"]) {
        selector.x_kubernetes_map_type = Some("atomic".to_owned());
        selector.x_kubernetes_validations = Some(vec![rule(
            "self == oldSelf",
            "the selector is fixed once the set exists",
        )]);
    }
    if let Some(limit) = at(spec, &["scaleStrategy", "maxUnavailable"]) {
        limit.x_kubernetes_validations = Some(vec![rule(LIMIT, LIMIT_MESSAGE)]);
    }
    let Some(strategy) = at(spec, &["updateStrategy"]) else {
        return;
    };
    if newer {
        one_of(strategy, "type", &["RollingUpdate", "OnDelete"]);
        if let Some(rolling) = at(strategy, &["rollingUpdate"]) {
            let policies = ["ReCreate", "InPlaceIfPossible", "InPlaceOnly"];
            one_of(rolling, "podUpdatePolicy", &policies);
            complete_rolling(rolling, "podUpdatePolicy");
        }
    } else {
        let types = ["ReCreate", "InPlaceIfPossible", "InPlaceOnly", "OnDelete"];
        one_of(strategy, "type", &types);
        complete_rolling(strategy, "type");
    }
}

/// Rules about the fields that sit in different places in the two versions.
fn complete_rolling(rolling: &mut JSONSchemaProps, policy: &str) {
    if let Some(partition) = at(rolling, &["partition"]) {
        let message = "must be a whole number from 0 on or a percentage such as 20%";
        partition.x_kubernetes_validations = Some(vec![rule(LIMIT_FROM_ZERO, message)]);
    }
    for name in ["maxUnavailable", "maxSurge"] {
        if let Some(limit) = at(rolling, &[name]) {
            limit.x_kubernetes_validations = Some(vec![rule(LIMIT, LIMIT_MESSAGE)]);
        }
    }
    if let Some(priority) = at(rolling, &["priorityStrategy"]) {
        priority.x_kubernetes_validations = Some(vec![rule(
            "!(has(self.weightPriority) && size(self.weightPriority) > 0 && has(self.orderPriority) && size(self.orderPriority) > 0)",
            "weightPriority and orderPriority exclude each other: give one of them",
        )]);
        if let Some(term) = item(priority, "weightPriority") {
            at_least_zero(term, "weight");
            if let Some(weight) = at(term, &["weight"]) {
                weight.maximum = Some(100.0);
            }
        }
    }
    if let Some(in_place) = at(rolling, &["inPlaceUpdateStrategy"]) {
        at_least_zero(in_place, "imagePreDownloadTimeoutSeconds");
        at_least_zero(in_place, "imagePreDownloadMinUpdatedReadyPods");
        if let Some(parallelism) = at(in_place, &["imagePreDownloadParallelism"]) {
            parallelism.x_kubernetes_validations = Some(vec![rule(
                PARALLELISM,
                "must be a whole number from 0 on (0 pauses); percentages are not accepted",
            )]);
        }
    }
    rolling.x_kubernetes_validations = Some(vec![rule(
        &format!(
            "!has(self.{policy}) || self.{policy} != 'InPlaceOnly' || !has(self.maxSurge) || (type(self.maxSurge) == int ? self.maxSurge <= 0 : self.maxSurge.matches('^-|^[+]?[0.]+%$'))"
        ),
        "maxSurge must be 0 with InPlaceOnly, which never makes a pod anew",
    )]);
}

fn one_of(schema: &mut JSONSchemaProps, name: &str, accepted: &[&str]) {
    if let Some(field) = at(schema, &[name]) {
        let quoted: Vec<_> = accepted.iter().map(|value| format!("'{value}'")).collect();
        field.x_kubernetes_validations = Some(vec![rule(
            &format!("self in ['', {}]", quoted.join(", ")),
            &format!("accepted values are {}", accepted.join(", ")),
        )]);
    }
}

fn no_default(schema: &mut JSONSchemaProps, name: &str) {
    if let Some(field) = at(schema, &[name]) {
        field.default = None;
    }
}

fn at_least_zero(schema: &mut JSONSchemaProps, name: &str) {
    if let Some(field) = at(schema, &[name]) {
        field.minimum = Some(0.0);
    }
}

fn at<'a>(schema: &'a mut JSONSchemaProps, path: &[&str]) -> Option<&'a mut JSONSchemaProps> {
    path.iter()
        .try_fold(schema, |schema, name| schema.properties.as_mut()?.get_mut(*name))
}

fn item<'a>(schema: &'a mut JSONSchemaProps, name: &str) -> Option<&'a mut JSONSchemaProps> {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaPropsOrArray;
    match at(schema, &[name])?.items.as_mut()? {
        JSONSchemaPropsOrArray::Schema(item) => Some(item),
        JSONSchemaPropsOrArray::Schemas(_) => None,
    }
}

#[cfg(test)]
mod tests;
