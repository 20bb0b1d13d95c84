//! The CRD of ContainerRecreateRequest.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube::CustomResourceExt as _;
use serde_json::json;

use super::{column, conversion, rule, spec_of};
use crate::container_recreate_request::{ContainerRecreateRequest, MIN_ACTIVE_DEADLINE_SECONDS};

/// More containers than a pod can have; only there so that the cost of rules can be bounded.
const MAX_CONTAINERS: i64 = 512;
/// What the status of v1alpha1 does not have.
const NEWER_STATUS: [&str; 2] = ["containerStatusSnapshot", "conditions"];

/// ContainerRecreateRequest, v1alpha1 and v1beta1 (stored). Older readers see snapshot and drain in annotations.
pub(super) fn crd() -> CustomResourceDefinition {
    let mut crd = ContainerRecreateRequest::crd();
    for version in &mut crd.spec.versions {
        if let Some(spec) = spec_of(version) {
            rules(spec);
        }
        version.additional_printer_columns = Some(columns());
    }
    let mut older = crd.spec.versions.clone();
    for version in &mut older {
        version.name = "v1alpha1".to_owned();
        version.storage = false;
        let schema = version
            .schema
            .as_mut()
            .and_then(|schema| schema.open_api_v3_schema.as_mut());
        if let Some(status) = schema.and_then(|schema| property(schema, "status"))
            && let Some(fields) = status.properties.as_mut()
        {
            fields.retain(|name, _| !NEWER_STATUS.contains(&name.as_str()));
        }
    }
    crd.spec.versions.splice(0..0, older);
    crd.spec.conversion = Some(conversion());
    crd
}

fn columns() -> Vec<CustomResourceColumnDefinition> {
    vec![
        column("PHASE", "string", ".status.phase", None),
        column("POD", "string", ".spec.podName", None),
        column(
            "NODE",
            "string",
            r".metadata.labels.crr\.apps\.kruise\.io/node-name",
            None,
        ),
        column("AGE", "date", ".metadata.creationTimestamp", None),
        column("MESSAGE", "string", ".status.message", Some(1)),
    ]
}

fn property<'a>(schema: &'a mut JSONSchemaProps, name: &str) -> Option<&'a mut JSONSchemaProps> {
    schema.properties.as_mut()?.get_mut(name)
}

fn rules(spec: &mut JSONSchemaProps) {
    spec.x_kubernetes_validations = Some(vec![rule(
        "self == oldSelf",
        "spec is immutable: make another request instead",
    )]);
    if let Some(name) = property(spec, "podName") {
        name.max_length = Some(253);
        name.x_kubernetes_validations = Some(vec![rule("self.size() > 0", "podName can not be empty")]);
    }
    if let Some(deadline) = property(spec, "activeDeadlineSeconds") {
        deadline.x_kubernetes_validations = Some(vec![rule(
            &format!("self >= {MIN_ACTIVE_DEADLINE_SECONDS}"),
            "activeDeadlineSeconds can not be less than 3s",
        )]);
    }
    if let Some(ttl) = property(spec, "ttlSecondsAfterFinished") {
        ttl.minimum = Some(0.0);
    }
    if let Some(containers) = property(spec, "containers") {
        container_rules(containers);
    }
    if let Some(strategy) = property(spec, "strategy") {
        strategy_rules(strategy);
    }
}

fn container_rules(containers: &mut JSONSchemaProps) {
    containers.max_items = Some(MAX_CONTAINERS);
    containers.x_kubernetes_list_type = Some("map".to_owned());
    containers.x_kubernetes_list_map_keys = Some(vec!["name".to_owned()]);
    containers.x_kubernetes_validations =
        Some(vec![rule("self.size() > 0", "containers list can not be null")]);
    let Some(JSONSchemaPropsOrArray::Schema(item)) = &mut containers.items else {
        return;
    };
    if let Some(name) = property(item, "name") {
        name.max_length = Some(63);
    }
    // As the API server has it for pods: a port without a protocol is one of TCP.
    if let Some(ports) = property(item, "ports")
        && let Some(JSONSchemaPropsOrArray::Schema(port)) = &mut ports.items
        && let Some(protocol) = property(port, "protocol")
    {
        protocol.default =
            Some(k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSON(json!("TCP")));
    }
}

fn strategy_rules(strategy: &mut JSONSchemaProps) {
    for field in [
        "terminationGracePeriodSeconds",
        "unreadyGracePeriodSeconds",
        "minStartedSeconds",
    ] {
        if let Some(seconds) = property(strategy, field) {
            seconds.x_kubernetes_validations = Some(vec![rule(
                "self >= 0",
                &format!("{field} must be non-negative integer"),
            )]);
        }
    }
    if let Some(policy) = property(strategy, "failurePolicy") {
        policy.x_kubernetes_validations = Some(vec![rule(
            "self in ['', 'Fail', 'Ignore']",
            "unknown failurePolicy: accepted values are Fail and Ignore",
        )]);
    }
}
