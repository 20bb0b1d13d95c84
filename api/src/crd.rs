//! CustomResourceDefinitions, generated from the types.
//!
//! Derived schemas are completed here with what users rely on and what the derive cannot say: both versions, exact columns, and
//! rules (CEL) whose messages name the field and the accepted values.

mod clone_set;
pub mod compat;
mod images;
mod recreate;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceConversion, CustomResourceDefinition,
    CustomResourceDefinitionVersion, JSONSchemaProps, ServiceReference, ValidationRule, WebhookClientConfig,
    WebhookConversion,
};
use kube::CustomResourceExt as _;

use crate::image_pull_job::ImagePullJob;
use crate::{names, reference};

pub use clone_set::clone_set;

/// All CRDs that the chart installs, sorted by name.
#[must_use]
pub fn all() -> Vec<CustomResourceDefinition> {
    vec![
        clone_set(),
        container_recreate_request(),
        image_list_pull_job(),
        image_pull_job(),
        node_image(),
    ]
}

/// ImagePullJob, v1alpha1 and v1beta1 (stored). The schemas are equal, so no conversion is needed.
#[must_use]
pub fn image_pull_job() -> CustomResourceDefinition {
    let mut crd = ImagePullJob::crd();
    for version in &mut crd.spec.versions {
        if let Some(spec) = spec_of(version) {
            image_pull_job_rules(spec);
        }
        version.additional_printer_columns = Some(image_pull_job_columns(0));
    }
    let mut older: Vec<_> = crd.spec.versions.clone();
    for version in &mut older {
        version.name = "v1alpha1".to_owned();
        version.storage = false;
        version.additional_printer_columns = Some(image_pull_job_columns(1));
    }
    crd.spec.versions.splice(0..0, older);
    crd
}

/// ContainerRecreateRequest, v1alpha1 and v1beta1 (stored). What the newer version has in its status the older one has in annotations, so the API server
/// asks the manager to convert.
#[must_use]
pub fn container_recreate_request() -> CustomResourceDefinition {
    recreate::crd()
}

/// ImageListPullJob, v1alpha1 and v1beta1 (stored).
#[must_use]
pub fn image_list_pull_job() -> CustomResourceDefinition {
    images::image_list_pull_job()
}

/// NodeImage, v1alpha1 and v1beta1 (stored).
#[must_use]
pub fn node_image() -> CustomResourceDefinition {
    images::node_image()
}

/// The API server asks the manager, at upstream's path.
fn conversion() -> CustomResourceConversion {
    CustomResourceConversion {
        strategy: "Webhook".to_owned(),
        webhook: Some(WebhookConversion {
            client_config: Some(WebhookClientConfig {
                service: Some(ServiceReference {
                    name: names::WEBHOOK_SERVICE.to_owned(),
                    namespace: names::DEFAULT_NAMESPACE.to_owned(),
                    path: Some("/convert".to_owned()),
                    port: Some(443),
                }),
                ..Default::default()
            }),
            conversion_review_versions: vec!["v1".to_owned(), "v1beta1".to_owned()],
        }),
    }
}

/// Columns in upstream's order; ours come last and only with `-o wide`, so that scripts that split columns keep working.
/// Upstream shows MESSAGE by default in v1alpha1 only.
fn image_pull_job_columns(message_shown: usize) -> Vec<CustomResourceColumnDefinition> {
    let wide = Some(1);
    let mut columns = vec![
        column("TOTAL", "integer", ".status.desired", None),
        column("ACTIVE", "integer", ".status.active", None),
        column("SUCCEED", "integer", ".status.succeeded", None),
        column("FAILED", "integer", ".status.failed", None),
        column("AGE", "date", ".metadata.creationTimestamp", None),
    ];
    if message_shown > 0 {
        columns.push(column("MESSAGE", "string", ".status.message", None));
    }
    columns.push(column("IMAGE", "string", ".spec.image", wide));
    columns.push(column("PROGRESS", "string", ".status.progress", wide));
    if message_shown == 0 {
        columns.push(column("MESSAGE", "string", ".status.message", wide));
    }
    columns
}

fn column(name: &str, kind: &str, path: &str, priority: Option<i32>) -> CustomResourceColumnDefinition {
    CustomResourceColumnDefinition {
        name: name.to_owned(),
        type_: kind.to_owned(),
        json_path: path.to_owned(),
        priority,
        ..Default::default()
    }
}

fn spec_of(version: &mut CustomResourceDefinitionVersion) -> Option<&mut JSONSchemaProps> {
    let root = version.schema.as_mut()?.open_api_v3_schema.as_mut()?;
    root.properties.as_mut()?.get_mut("spec")
}

fn image_pull_job_rules(spec: &mut JSONSchemaProps) {
    job_template_rules(spec);
    let rules = spec.x_kubernetes_validations.get_or_insert_default();
    rules.push(rule(
        "self.completionPolicy.type != 'Always' || !has(self.completionPolicy.activeDeadlineSeconds) || self.completionPolicy.activeDeadlineSeconds >= (has(self.pullPolicy.timeoutSeconds) ? self.pullPolicy.timeoutSeconds : 600)",
        "completionPolicy.activeDeadlineSeconds must not be less than pullPolicy.timeoutSeconds (600 when unset)",
    ));
    // An update that leaves the secrets alone passes whatever else it changes.
    rules.push(rule(
        "has(self.pullSecrets) == has(oldSelf.pullSecrets) && (!has(self.pullSecrets) || self.pullSecrets == oldSelf.pullSecrets)",
        "pullSecrets are fixed once the job exists; make another job to log in otherwise",
    ));
    let Some(properties) = spec.properties.as_mut() else {
        return;
    };
    if let Some(image) = properties.get_mut("image") {
        image.max_length = Some(i64::try_from(reference::MAX_LENGTH).unwrap_or(i64::MAX));
        image.x_kubernetes_validations = Some(vec![rule(
            &format!("self.matches('{}')", reference::PATTERN),
            "not a valid image reference; give one such as registry.example.com/team/app:1.2 or app@sha256:<64 hex digits>",
        )]);
    }
}

/// Rules for what a job of one image and a list have in common.
fn job_template_rules(spec: &mut JSONSchemaProps) {
    let rules = vec![
        rule(
            "!(has(self.selector) && has(self.podSelector))",
            "selector and podSelector exclude each other: give one of them",
        ),
        rule(
            "!has(self.selector) || !has(self.selector.names) || !(has(self.selector.matchLabels) || has(self.selector.matchExpressions))",
            "selector.names excludes selector.matchLabels and selector.matchExpressions: select nodes by name or by label",
        ),
        rule(
            "self.completionPolicy.type != 'Never' || !(has(self.completionPolicy.activeDeadlineSeconds) || has(self.completionPolicy.ttlSecondsAfterFinished))",
            "completionPolicy.type Never excludes activeDeadlineSeconds and ttlSecondsAfterFinished, which belong to Always",
        ),
    ];
    spec.x_kubernetes_validations = Some(rules);
    let Some(properties) = spec.properties.as_mut() else {
        return;
    };
    if let Some(parallelism) = properties.get_mut("parallelism") {
        parallelism.x_kubernetes_validations = Some(vec![rule(
            "type(self) == int ? self >= 0 : self.matches('^[0-9]{1,9}$')",
            "must be a whole number from 0 on (0 pauses the job); percentages are not accepted",
        )]);
    }
    let names = properties
        .get_mut("selector")
        .and_then(|selector| selector.properties.as_mut())
        .and_then(|properties| properties.get_mut("names"));
    if let Some(names) = names {
        // A name that comes up twice is refused, as OpenKruise's webhook does.
        names.x_kubernetes_list_type = Some("set".to_owned());
    }
    let kind = properties
        .get_mut("completionPolicy")
        .and_then(|policy| policy.properties.as_mut())
        .and_then(|properties| properties.get_mut("type"));
    if let Some(kind) = kind {
        kind.x_kubernetes_validations = Some(vec![rule(
            "self in ['Always', 'Never']",
            "accepted values are Always and Never",
        )]);
    }
}

fn rule(rule: &str, message: &str) -> ValidationRule {
    ValidationRule {
        rule: rule.to_owned(),
        message: Some(message.to_owned()),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests;
