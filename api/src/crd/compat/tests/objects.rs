//! Objects as a running OpenKruise stored them fit our CRDs, lose nothing when they are read and written, and pass admission.

use jiff::Timestamp;
use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::container_recreate_request::{self as recreate, ContainerRecreateRequest, admission};
use crate::image_pull_job::ImagePullJob;
use crate::node_image::NodeImage;
use crate::{clone_set, crd, image_pull_job, node_image, structural};

const FILES: [&str; 8] = [
    include_str!("../../../../fixtures/cloneset/sets-v1alpha1.yaml"),
    include_str!("../../../../fixtures/cloneset/sets-v1beta1.yaml"),
    include_str!("../../../../fixtures/imagepulljob-v1beta1.yaml"),
    include_str!("../../../../fixtures/nodeimage-v1beta1.yaml"),
    include_str!("../../../../fixtures/nodeimage-pulling-v1beta1.yaml"),
    include_str!("../../../../fixtures/recreate/v1alpha1.yaml"),
    include_str!("../../../../fixtures/recreate/v1beta1-active.yaml"),
    include_str!("../../../../fixtures/recreate/v1beta1.yaml"),
];

fn documents(text: &str) -> Vec<Value> {
    serde_norway::Deserializer::from_str(text)
        .map(|document| Value::deserialize(document).expect("readable"))
        .collect()
}

fn objects() -> Vec<Value> {
    FILES.into_iter().flat_map(documents).collect()
}

fn typed<T: DeserializeOwned>(object: &Value) -> T {
    serde_json::from_value(object.clone()).expect("readable")
}

fn version(object: &Value) -> &str {
    let version = object["apiVersion"].as_str().expect("a version");
    version.strip_prefix("apps.kruise.io/").expect("our group")
}

#[test]
fn no_field_is_unknown_or_of_another_type() {
    let mut seen = 0;
    for object in objects() {
        let kind = object["kind"].as_str().expect("a kind");
        let ours = crd::all().into_iter().find(|crd| crd.spec.names.kind == kind);
        let found = structural::check(&ours.expect("served"), version(&object), &object);
        assert_eq!(found, Some(structural::Structure::default()), "{object}");
        seen += 1;
    }
    assert_eq!(seen, 12);
}

/// Every value of `theirs` is in `ours`; ours may say more, such as counters of zero.
fn keeps(path: &str, ours: &Value, theirs: &Value) {
    match theirs {
        Value::Object(fields) => {
            for (name, value) in fields {
                keeps(&format!("{path}.{name}"), &ours[name], value);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                keeps(&format!("{path}[{index}]"), &ours[index], item);
            }
        }
        other => assert_eq!(ours, other, "{path}"),
    }
}

#[test]
fn nothing_is_lost_between_reading_and_writing() {
    for object in objects() {
        let again = match (object["kind"].as_str(), version(&object)) {
            (Some("CloneSet"), "v1alpha1") => {
                serde_json::to_value(typed::<clone_set::v1alpha1::CloneSet>(&object))
            }
            (Some("CloneSet"), _) => serde_json::to_value(typed::<clone_set::CloneSet>(&object)),
            (Some("ImagePullJob"), _) => serde_json::to_value(typed::<ImagePullJob>(&object)),
            (Some("NodeImage"), _) => serde_json::to_value(typed::<NodeImage>(&object)),
            (_, "v1alpha1") => {
                serde_json::to_value(typed::<recreate::v1alpha1::ContainerRecreateRequest>(&object))
            }
            _ => serde_json::to_value(typed::<ContainerRecreateRequest>(&object)),
        };
        let again = again.expect("writable");
        for part in ["spec", "status"] {
            keeps(part, &again[part], &object[part]);
        }
    }
}

/// CloneSets have tests of their own beside their rules.
#[test]
fn what_is_stored_may_be_written_again() {
    for object in objects() {
        match object["kind"].as_str() {
            Some("ImagePullJob") => {
                let job: ImagePullJob = typed(&object);
                for old in [None, Some(&job)] {
                    assert_eq!(image_pull_job::admission::validate(&job, old, None), Ok(vec![]));
                }
            }
            Some("NodeImage") => {
                let stored: NodeImage = typed(&object);
                let mut node = stored.clone();
                node_image::admission::default(&mut node, Timestamp::UNIX_EPOCH);
                assert_eq!(node.spec, stored.spec, "nothing is left to be filled in");
                for old in [None, Some(&stored)] {
                    assert_eq!(node_image::admission::validate(&node, old, None), Ok(vec![]));
                }
            }
            Some("ContainerRecreateRequest") => {
                let request = match version(&object) {
                    "v1alpha1" => recreate::conversion::to_v1beta1(typed(&object)),
                    _ => typed(&object),
                };
                assert_eq!(admission::check_spec(&request.spec), Ok(()));
                assert_eq!(admission::update(&request, &request), Ok(()));
            }
            _ => {}
        }
    }
}

/// What v1alpha1 keeps in an annotation is a field of v1beta1.
#[test]
fn a_finished_request_says_the_same_in_both_versions() {
    let (older, newer) = (&documents(FILES[5])[0], &documents(FILES[7])[0]);
    let newer: ContainerRecreateRequest = typed(newer);
    let converted = recreate::conversion::to_v1beta1(typed(older));
    assert_eq!((&converted.spec, &converted.status), (&newer.spec, &newer.status));
    let back = serde_json::to_value(recreate::conversion::to_v1alpha1(newer)).expect("writable");
    for part in ["metadata", "spec", "status"] {
        keeps(part, &back[part], &older[part]);
    }
}
