//! Revisions of a template: the bytes of a ControllerRevision, its hash and its name, exactly as OpenKruise makes them.
//!
//! A cluster that was run by OpenKruise keeps its revisions only if all three are the same; otherwise each set would begin a rollout
//! on the first pass. So the template is first brought to the form in which Go writes it ([`template`]): some fields are always there,
//! others never when they are empty, and quantities have one spelling. Fields that are not known to it stay as they are: leaving them
//! out would keep a change of a new Kubernetes field from being rolled out.

mod go;
mod hash;
mod text;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::{Map, Value, json};

pub use hash::{claim_template_hash, fnv1a_of_text, hash, short_hash};
pub use text::canonical_text;

/// Longest part of a set's name in the name of a revision.
const MAX_PREFIX: usize = 223;

/// The template in the form in which Go writes it.
#[must_use]
pub fn template(template: &Value) -> Value {
    go::normal(template, &go::Kind::Struct("PodTemplateSpec"))
}

/// The data of the revision of a template.
#[must_use]
pub fn data(template: &Value) -> Value {
    let mut template = self::template(template);
    if let Some(fields) = template.as_object_mut() {
        fields.insert("$patch".to_owned(), "replace".into());
    }
    json!({"spec": {"template": template}})
}

/// The template in the data of a revision. None when the data holds none.
#[must_use]
pub fn template_of(data: &Value) -> Option<Value> {
    let mut template = data.get("spec")?.get("template")?.clone();
    template.as_object_mut()?.remove("$patch");
    Some(template)
}

/// The template in the data of a revision, as Kubernetes' own type. None when the data holds none or a malformed one.
#[must_use]
pub fn pod_template_of(data: &Value) -> Option<PodTemplateSpec> {
    serde_json::from_value(template_of(data)?).ok()
}

/// Whether two revisions have the same bytes.
#[must_use]
pub fn equal(a: &Value, b: &Value) -> bool {
    a == b || canonical_text(a) == canonical_text(b)
}

/// Whether two templates are the same revision: what defaulting or another writer's form adds does not count as long as Go would write
/// both alike.
#[must_use]
pub fn same_template(a: &Value, b: &Value) -> bool {
    template(a) == template(b)
}

/// Name of the revision of a set that has this hash.
#[must_use]
pub fn name(set: &str, hash: &str) -> String {
    let mut end = set.len().min(MAX_PREFIX);
    while !set.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}-{hash}", &set[..end])
}

/// Takes what is not there for an empty object.
fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests;
