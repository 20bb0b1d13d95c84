//! Objects that may be of a shape that our types do not know: written before a rule was there, or past it.
//!
//! One such object must not end a watch of all, and whoever wrote it must be told which field it is.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kruise_api::strict;
use kube::Resource;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// An object, or what is wrong with it.
#[derive(Clone, Debug)]
pub(crate) struct Guarded<K>(pub(crate) Result<K, Box<Broken>>);

/// An object that cannot be read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Broken {
    pub(crate) metadata: ObjectMeta,
    /// As stored, whatever it is.
    pub(crate) status: Value,
    /// The field and what is wrong with it.
    pub(crate) error: String,
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Guarded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Value::deserialize(deserializer)?;
        let error = match strict::read(&raw) {
            Ok(object) => return Ok(Self(Ok(object))),
            Err(error) => error,
        };
        // The API server holds metadata to its own rules whatever a CRD says.
        let metadata = ObjectMeta::deserialize(&raw["metadata"]).map_err(D::Error::custom)?;
        Ok(Self(Err(Box::new(Broken {
            metadata,
            status: raw["status"].clone(),
            error: error.to_string(),
        }))))
    }
}

impl<K: Resource> Resource for Guarded<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(dt)
    }

    fn group(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::group(dt)
    }

    fn version(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::version(dt)
    }

    fn plural(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(dt)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0
            .as_ref()
            .map_or_else(|broken| &broken.metadata, Resource::meta)
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0
            .as_mut()
            .map_or_else(|broken| &mut broken.metadata, Resource::meta_mut)
    }
}

#[cfg(test)]
mod tests {
    use kruise_api::image_pull_job::ImagePullJob;
    use serde_json::json;

    use super::*;

    fn read(spec: &Value) -> Guarded<ImagePullJob> {
        let object = json!({"metadata": {"name": "a", "uid": "u"}, "spec": spec, "status": {"desired": 3}});
        serde_json::from_value(object).expect("its metadata is readable")
    }

    #[test]
    fn the_field_is_named_and_the_rest_is_kept() {
        assert!(read(&json!({"image": "nginx"})).0.is_ok());
        for (spec, field) in [
            (json!({"image": 5}), "spec.image: "),
            (
                json!({"image": "a", "pullPolicy": {"timeoutSeconds": "x"}}),
                "spec.pullPolicy.timeoutSeconds: ",
            ),
            (
                json!({"image": "a", "selector": {"names": ["a", {}]}}),
                "spec.selector.names[1]: ",
            ),
            (json!({"image": "a", "selector": []}), "spec.selector: "),
            (json!("text"), "spec: "),
        ] {
            let guarded = read(&spec);
            assert_eq!(guarded.meta().name.as_deref(), Some("a"));
            let broken = guarded.0.expect_err("not readable");
            assert!(broken.error.starts_with(field), "{}", broken.error);
            assert_eq!(broken.status, json!({"desired": 3}));
        }
    }
}
