//! The CRDs of ImageListPullJob and NodeImage.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
    JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt as _;

use super::{column, job_template_rules, rule, spec_of};
use crate::image_list_pull_job::{ImageListPullJob, MAX_IMAGES};
use crate::node_image::{MAX_NAMES, NodeImage};
use crate::reference;

/// ImageListPullJob, v1alpha1 and v1beta1 (stored), with equal schemas.
pub(super) fn image_list_pull_job() -> CustomResourceDefinition {
    let mut crd = ImageListPullJob::crd();
    for version in &mut crd.spec.versions {
        if let Some(spec) = spec_of(version) {
            list_rules(spec);
        }
        version.additional_printer_columns = Some(list_columns());
    }
    with_v1alpha1(crd)
}

/// NodeImage, v1alpha1 and v1beta1 (stored). Both keep `pullSecrets[].mode`, which a write through upstream's v1alpha1 would lose.
pub(super) fn node_image() -> CustomResourceDefinition {
    let mut crd = NodeImage::crd();
    for version in &mut crd.spec.versions {
        if let Some(spec) = spec_of(version) {
            node_rules(spec);
        }
        version.additional_printer_columns = Some(node_columns());
    }
    with_v1alpha1(crd)
}

fn with_v1alpha1(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let mut older: Vec<_> = crd.spec.versions.clone();
    for version in &mut older {
        version.name = "v1alpha1".to_owned();
        version.storage = false;
    }
    crd.spec.versions.splice(0..0, older);
    crd
}

fn list_columns() -> Vec<CustomResourceColumnDefinition> {
    let wide = Some(1);
    vec![
        column("TOTAL", "integer", ".status.desired", None),
        column("SUCCEEDED", "integer", ".status.succeeded", None),
        column("COMPLETED", "integer", ".status.completed", None),
        column("AGE", "date", ".metadata.creationTimestamp", None),
        column("ACTIVE", "integer", ".status.active", wide),
        column("FAILED", "string", ".status.failedImageStatuses[*].name", wide),
    ]
}

fn node_columns() -> Vec<CustomResourceColumnDefinition> {
    let wide = Some(1);
    vec![
        column("DESIRED", "integer", ".status.desired", None),
        column("PULLING", "integer", ".status.pulling", None),
        column("SUCCEED", "integer", ".status.succeeded", None),
        column("FAILED", "integer", ".status.failed", None),
        column("AGE", "date", ".metadata.creationTimestamp", None),
        column("WAITING", "integer", ".status.waiting", wide),
    ]
}

fn list_rules(spec: &mut JSONSchemaProps) {
    job_template_rules(spec);
    let Some(images) = spec
        .properties
        .as_mut()
        .and_then(|properties| properties.get_mut("images"))
    else {
        return;
    };
    images.min_items = Some(1);
    images.max_items = i64::try_from(MAX_IMAGES).ok();
    // A set: the API server refuses two equal ones, and names them.
    images.x_kubernetes_list_type = Some("set".to_owned());
    if let Some(JSONSchemaPropsOrArray::Schema(image)) = &mut images.items {
        image.max_length = i64::try_from(reference::MAX_LENGTH).ok();
        image.x_kubernetes_validations = Some(vec![rule(
            &format!("self.matches('{}')", reference::PATTERN),
            "not a valid image reference; give one such as registry.example.com/team/app:1.2 or app@sha256:<64 hex digits>",
        )]);
    }
}

fn node_rules(spec: &mut JSONSchemaProps) {
    let Some(images) = spec
        .properties
        .as_mut()
        .and_then(|properties| properties.get_mut("images"))
    else {
        return;
    };
    images.max_properties = i64::try_from(MAX_NAMES).ok();
    let Some(JSONSchemaPropsOrBool::Schema(image)) = &mut images.additional_properties else {
        return;
    };
    let Some(tags) = image
        .properties
        .as_mut()
        .and_then(|properties| properties.get_mut("tags"))
    else {
        return;
    };
    tags.x_kubernetes_list_type = Some("map".to_owned());
    tags.x_kubernetes_list_map_keys = Some(vec!["tag".to_owned()]);
    let Some(JSONSchemaPropsOrArray::Schema(tag)) = &mut tags.items else {
        return;
    };
    let Some(fields) = &mut tag.properties else { return };
    if let Some(text) = fields.get_mut("tag") {
        text.min_length = Some(1);
    }
    if let Some(version) = fields.get_mut("version") {
        version.minimum = Some(0.0);
    }
}
