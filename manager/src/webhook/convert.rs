//! Conversion of stored objects between versions, for kinds whose versions differ.

use kruise_api::clone_set::{self, v1alpha1};
use kruise_api::{container_recreate_request, strict};
use kube::core::conversion::ConversionReview;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// OpenKruise's path.
pub(super) const PATH: &str = "/convert";

/// Answers a ConversionReview.
///
/// # Errors
/// Why the body is no review, for people.
pub(super) fn answer(body: &[u8]) -> Result<Value, String> {
    let review: ConversionReview =
        serde_json::from_slice(body).map_err(|error| format!("the body is no ConversionReview: {error}"))?;
    let request = review.request.ok_or("the ConversionReview has no request")?;
    let desired = &request.desired_api_version;
    let converted: Result<Vec<Value>, String> = request
        .objects
        .into_iter()
        .map(|object| convert(object, desired))
        .collect();
    let (result, objects) = match converted {
        Ok(objects) => (json!({"status": "Success"}), objects),
        Err(message) => {
            tracing::warn!(reason = message, "a conversion failed");
            (json!({"status": "Failure", "message": message}), Vec::new())
        }
    };
    let response = json!({"uid": request.uid, "result": result, "convertedObjects": objects});
    let version = review.types.api_version;
    Ok(json!({"apiVersion": version, "kind": "ConversionReview", "response": response}))
}

fn convert(object: Value, desired: &str) -> Result<Value, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (from, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    if from == desired {
        return Ok(object);
    }
    let converted = match (kind.as_str(), from.as_str(), desired) {
        ("CloneSet", "apps.kruise.io/v1alpha1", "apps.kruise.io/v1beta1") => {
            with(&object, |older: v1alpha1::CloneSet| {
                clone_set::convert::to_v1beta1(&older)
            })
        }
        ("CloneSet", "apps.kruise.io/v1beta1", "apps.kruise.io/v1alpha1") => {
            with(&object, |newer: clone_set::CloneSet| {
                clone_set::convert::to_v1alpha1(&newer)
            })
        }
        ("ContainerRecreateRequest", "apps.kruise.io/v1alpha1", "apps.kruise.io/v1beta1") => {
            with(&object, container_recreate_request::conversion::to_v1beta1)
        }
        ("ContainerRecreateRequest", "apps.kruise.io/v1beta1", "apps.kruise.io/v1alpha1") => {
            with(&object, container_recreate_request::conversion::to_v1alpha1)
        }
        _ => Err(format!(
            "{kind:?} cannot be converted from {from:?} to {desired:?}"
        )),
    };
    // Not every type of ours writes what it is.
    converted.map(|mut converted| {
        converted["apiVersion"] = json!(desired);
        converted["kind"] = json!(kind);
        converted
    })
}

/// The converted object has the other's metadata as they are, fields that our types do not know included: a conversion may change labels and
/// annotations only.
fn with<A: DeserializeOwned, B: Serialize>(
    object: &Value,
    convert: impl FnOnce(A) -> B,
) -> Result<Value, String> {
    let name = format!(
        "{}/{}",
        object["metadata"]["namespace"].as_str().unwrap_or_default(),
        object["metadata"]["name"].as_str().unwrap_or_default()
    );
    let read: A = strict::read(object).map_err(|error| format!("{name}: {error}"))?;
    let mut converted =
        serde_json::to_value(convert(read)).map_err(|error| format!("{name}: cannot be written: {error}"))?;
    let mut metadata = object["metadata"].clone();
    for field in ["labels", "annotations"] {
        match converted["metadata"][field].take() {
            Value::Null => {
                if let Some(fields) = metadata.as_object_mut() {
                    fields.remove(field);
                }
            }
            value => metadata[field] = value,
        }
    }
    converted["metadata"] = metadata;
    Ok(converted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(objects: &Value, desired: &str) -> Value {
        let review = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
            "request": {"uid": "u", "desiredAPIVersion": desired, "objects": objects}});
        answer(review.to_string().as_bytes()).expect("a review")
    }

    fn older() -> Value {
        json!({"apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet",
            "metadata": {"name": "a", "namespace": "n", "uid": "x", "managedFields": [{"manager": "m"}],
                "annotations": {"apps.kruise.io/image-predownload-parallelism": "3"}},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}},
                "updateStrategy": {"type": "InPlaceIfPossible", "partition": "50%"},
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i", "futureField": 1}]}}}})
    }

    #[test]
    fn a_clone_set_goes_there_and_back() {
        let there = ask(&json!([older()]), "apps.kruise.io/v1beta1");
        assert_eq!(there["response"]["result"]["status"], "Success", "{there}");
        let newer = &there["response"]["convertedObjects"][0];
        assert_eq!(newer["apiVersion"], "apps.kruise.io/v1beta1");
        assert_eq!(
            newer["spec"]["updateStrategy"]["rollingUpdate"]["podUpdatePolicy"],
            "InPlaceIfPossible"
        );
        assert_eq!(newer["metadata"]["uid"], "x");
        assert_eq!(
            newer["spec"]["template"]["spec"]["containers"][0]["futureField"],
            1
        );
        let back = ask(&json!([newer]), "apps.kruise.io/v1alpha1");
        let again = &back["response"]["convertedObjects"][0];
        for field in ["type", "partition"] {
            let (one, other) = (
                &again["spec"]["updateStrategy"],
                &older()["spec"]["updateStrategy"],
            );
            assert_eq!(one[field], other[field]);
        }
        assert_eq!(again["metadata"], older()["metadata"]);
    }

    #[test]
    fn a_request_for_a_restart_carries_its_drain_and_its_new_instances_to_the_other_version() {
        let newer = json!({"apiVersion": "apps.kruise.io/v1beta1", "kind": "ContainerRecreateRequest",
            "metadata": {"name": "r", "namespace": "n", "uid": "x", "finalizers": ["crr.apps.kruise.io/unready-acquired"]},
            "spec": {"podName": "p", "containers": [{"name": "web"}], "strategy": {"unreadyGracePeriodSeconds": 2}},
            "status": {"phase": "Recreating",
                "containerStatusSnapshot": [{"name": "web", "ready": true, "restartCount": 1, "containerID": "containerd://w2"}],
                "conditions": [{"type": "PreRecreateGrace", "status": "True", "reason": "PreRecreateGrace", "message": "m",
                    "lastTransitionTime": "2026-12-01T00:00:00Z"}]}});
        let there = ask(&json!([newer]), "apps.kruise.io/v1alpha1");
        assert_eq!(there["response"]["result"]["status"], "Success", "{there}");
        let older = &there["response"]["convertedObjects"][0];
        let annotations = &older["metadata"]["annotations"];
        assert_eq!(
            annotations["crr.apps.kruise.io/unready-acquired"],
            "2026-12-01T00:00:00Z"
        );
        let snapshot = annotations["crr.apps.kruise.io/sync-container-statuses"]
            .as_str()
            .expect("a text");
        assert!(snapshot.contains("containerd://w2"), "{snapshot}");
        assert_eq!(older["status"]["conditions"], Value::Null);
        assert_eq!(older["metadata"]["finalizers"], newer["metadata"]["finalizers"]);
        let back = ask(&json!([older]), "apps.kruise.io/v1beta1");
        let again = &back["response"]["convertedObjects"][0];
        assert_eq!(again["spec"], newer["spec"]);
        assert_eq!(
            again["status"]["containerStatusSnapshot"],
            newer["status"]["containerStatusSnapshot"]
        );
        assert_eq!(
            again["status"]["conditions"][0]["lastTransitionTime"],
            "2026-12-01T00:00:00Z"
        );
    }

    #[test]
    fn what_cannot_be_converted_is_named() {
        let mut broken = older();
        broken["spec"]["replicas"] = json!("many");
        let answer = ask(&json!([older(), broken]), "apps.kruise.io/v1beta1");
        let result = &answer["response"]["result"];
        assert_eq!(result["status"], "Failure");
        let message = result["message"].as_str().expect("a text");
        assert!(
            message.contains("n/a") && message.contains("spec.replicas"),
            "{message}"
        );
        assert_eq!(answer["response"]["convertedObjects"], json!([]));
        let other = ask(
            &json!([{"apiVersion": "v1", "kind": "Pod"}]),
            "apps.kruise.io/v1beta1",
        );
        assert_eq!(other["response"]["result"]["status"], "Failure");
        assert!(super::answer(b"{}").is_err() && super::answer(b"\xff").is_err());
    }
}
