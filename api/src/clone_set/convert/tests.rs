use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::tests::documents;
use super::{CloneSet, to_v1alpha1, to_v1beta1, v1alpha1};
use crate::clone_set::names;

fn older(spec: &Value, metadata: &Value) -> v1alpha1::CloneSet {
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("readable")
}

fn newer(spec: &Value, metadata: &Value) -> CloneSet {
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("readable")
}

fn strategy(set: &impl serde::Serialize) -> Value {
    serde_json::to_value(set).expect("writable")["spec"]["updateStrategy"].clone()
}

#[test]
fn a_running_openkruise_converts_the_same_way() {
    let older: Vec<v1alpha1::CloneSet> =
        documents(include_str!("../../../fixtures/cloneset/sets-v1alpha1.yaml"));
    let newer: Vec<CloneSet> = documents(include_str!("../../../fixtures/cloneset/sets-v1beta1.yaml"));
    for (older, newer) in older.iter().zip(&newer) {
        assert_eq!(&to_v1beta1(older), newer);
        assert_eq!(&to_v1alpha1(newer), older);
    }
}

#[test]
fn types_of_v1alpha1() {
    for (kind, expected) in [
        (
            "ReCreate",
            json!({"type": "RollingUpdate", "rollingUpdate": {"podUpdatePolicy": "ReCreate"}}),
        ),
        (
            "",
            json!({"type": "RollingUpdate", "rollingUpdate": {"podUpdatePolicy": "ReCreate"}}),
        ),
        (
            "Odd",
            json!({"type": "RollingUpdate", "rollingUpdate": {"podUpdatePolicy": "ReCreate"}}),
        ),
        (
            "InPlaceOnly",
            json!({"type": "RollingUpdate", "rollingUpdate": {"podUpdatePolicy": "InPlaceOnly", "inPlaceUpdateStrategy": {}}}),
        ),
        ("OnDelete", json!({"type": "OnDelete"})),
    ] {
        let set = older(&json!({"updateStrategy": {"type": kind}}), &json!({}));
        assert_eq!(strategy(&to_v1beta1(&set)), expected, "{kind}");
    }
}

#[test]
fn types_of_v1beta1() {
    for (given, expected) in [
        (
            json!({"type": "OnDelete", "rollingUpdate": {"partition": 3}}),
            json!({"type": "OnDelete", "partition": 3}),
        ),
        (json!({"type": "RollingUpdate"}), json!({"type": "ReCreate"})),
        (json!({}), json!({"type": "ReCreate"})),
        (
            json!({"rollingUpdate": {"podUpdatePolicy": "Odd"}}),
            json!({"type": "ReCreate"}),
        ),
        (
            json!({"rollingUpdate": {"podUpdatePolicy": "InPlaceIfPossible", "inPlaceUpdateStrategy": {"gracePeriodSeconds": 5}}}),
            json!({"type": "InPlaceIfPossible", "inPlaceUpdateStrategy": {"gracePeriodSeconds": 5}}),
        ),
    ] {
        let set = newer(&json!({"updateStrategy": given}), &json!({}));
        assert_eq!(strategy(&to_v1alpha1(&set)), expected, "{given}");
    }
}

#[test]
fn image_annotations_become_fields_and_come_back() {
    for (value, parallelism, timeout) in [
        ("10", Some(json!(10)), Some(json!(10))),
        ("10%", Some(json!("10%")), None),
        ("abc", Some(json!("abc")), None),
        ("-4", Some(json!(-4)), Some(json!(-4))),
        ("", None, None),
    ] {
        let annotations = json!({
            names::PREDOWNLOAD_PARALLELISM: value,
            names::PREDOWNLOAD_TIMEOUT: value,
            names::PREDOWNLOAD_MIN_UPDATED_READY: value,
        });
        let set = older(
            &json!({"updateStrategy": {"type": "InPlaceIfPossible"}}),
            &json!({"annotations": annotations}),
        );
        let there = to_v1beta1(&set);
        let in_place = &strategy(&there)["rollingUpdate"]["inPlaceUpdateStrategy"];
        assert_eq!(
            in_place.get("imagePreDownloadParallelism"),
            parallelism.as_ref(),
            "{value}"
        );
        assert_eq!(
            in_place.get("imagePreDownloadTimeoutSeconds"),
            timeout.as_ref(),
            "{value}"
        );
        assert_eq!(
            in_place.get("imagePreDownloadMinUpdatedReadyPods"),
            timeout.as_ref(),
            "{value}"
        );
        assert_eq!(to_v1alpha1(&there).metadata, set.metadata, "{value}");
        assert_eq!(there.metadata, set.metadata, "nothing is parked: {value}");
    }
}

#[test]
fn a_field_overwrites_its_annotation_and_the_annotation_comes_back() {
    let set = newer(
        &json!({"updateStrategy": {"rollingUpdate": {"podUpdatePolicy": "InPlaceOnly",
            "inPlaceUpdateStrategy": {"imagePreDownloadParallelism": 2}}}}),
        &json!({"annotations": {names::PREDOWNLOAD_PARALLELISM: "5", names::PREDOWNLOAD_TIMEOUT: "60%"}}),
    );
    let there = to_v1alpha1(&set);
    let annotations = there.metadata.annotations.as_ref().expect("some");
    assert_eq!(annotations[names::PREDOWNLOAD_PARALLELISM], "2");
    assert_eq!(annotations[names::PREDOWNLOAD_TIMEOUT], "60%");
    assert_eq!(to_v1beta1(&there), set);
}

#[test]
fn exclude_preparing_delete_is_a_label_in_v1alpha1() {
    let set = newer(
        &json!({"scaleStrategy": {"excludePreparingDelete": true}}),
        &json!({}),
    );
    let there = to_v1alpha1(&set);
    let labels = there.metadata.labels.as_ref().expect("some");
    assert_eq!(labels[names::EXCLUDE_PREPARING_DELETE], "true");
    assert_eq!(to_v1beta1(&there), set);

    let set = older(
        &json!({}),
        &json!({"labels": {names::EXCLUDE_PREPARING_DELETE: "true"}}),
    );
    let there = to_v1beta1(&set);
    assert!(there.spec.scale_strategy.exclude_preparing_delete && there.metadata == set.metadata);
    let set = older(
        &json!({}),
        &json!({"labels": {names::EXCLUDE_PREPARING_DELETE: "True"}}),
    );
    assert!(!to_v1beta1(&set).spec.scale_strategy.exclude_preparing_delete);
}

#[test]
fn what_was_parked_counts_only_while_it_fits() {
    let set = older(
        &json!({"updateStrategy": {"type": "OnDelete", "partition": 3, "paused": true}}),
        &json!({"annotations": {"a": "b"}}),
    );
    let there = to_v1beta1(&set);
    assert!(
        there
            .metadata
            .annotations
            .as_ref()
            .expect("some")
            .contains_key(names::CONVERSION_PARKED)
    );
    assert_eq!(to_v1alpha1(&there), set);

    let mut edited = there.clone();
    edited.spec.update_strategy.kind = "RollingUpdate".to_owned();
    let back = to_v1alpha1(&edited);
    assert_eq!(strategy(&back), json!({"type": "ReCreate"}));
    // The edited object has a gap of its own (no rollingUpdate), which is parked in turn; the old text is gone.
    assert_eq!(to_v1beta1(&back).spec, edited.spec);

    let mut broken = there;
    let annotations = broken.metadata.annotations.as_mut().expect("some");
    annotations.insert(names::CONVERSION_PARKED.to_owned(), "{".to_owned());
    assert_eq!(strategy(&to_v1alpha1(&broken)), json!({"type": "OnDelete"}));
}

fn limit() -> impl Strategy<Value = Option<IntOrString>> {
    prop_oneof![
        Just(None),
        any::<i32>().prop_map(|number| Some(IntOrString::Int(number))),
        "[0-9a%.-]{0,4}".prop_map(|text| Some(IntOrString::String(text))),
    ]
}

/// Whatever the schema lets through in the parts that differ.
fn spec(nested: bool) -> impl Strategy<Value = Value> {
    let kind = prop::sample::select(vec![
        "",
        "OnDelete",
        "RollingUpdate",
        "ReCreate",
        "InPlaceIfPossible",
        "InPlaceOnly",
        "Odd",
    ]);
    let policy = prop::sample::select(vec!["", "ReCreate", "InPlaceIfPossible", "InPlaceOnly", "Odd"]);
    let in_place = prop_oneof![
        Just(None),
        (any::<i32>(), limit(), any::<Option<i32>>(), any::<Option<i32>>()).prop_map(
            |(grace, parallelism, timeout, ready)| {
                Some(
                    json!({"gracePeriodSeconds": grace % 3, "imagePreDownloadParallelism": parallelism,
                "imagePreDownloadTimeoutSeconds": timeout, "imagePreDownloadMinUpdatedReadyPods": ready}),
                )
            }
        ),
    ];
    let fields = (
        limit(),
        limit(),
        limit(),
        any::<bool>(),
        in_place,
        any::<[bool; 4]>(),
    );
    (kind, policy, fields, any::<bool>(), any::<[bool; 3]>()).prop_map(
        move |(kind, policy, (partition, unavailable, surge, paused, in_place, lists), rolling, scale)| {
            let mut fields = json!({
                "partition": partition, "maxUnavailable": unavailable, "maxSurge": surge, "paused": paused,
                "inPlaceUpdateStrategy": in_place,
            });
            if lists[0] {
                fields["scatterStrategy"] = json!([{"key": "a", "value": "b"}]);
            }
            if lists[1] {
                fields["priorityStrategy"] = json!({"orderPriority": [{"orderedKey": "a"}]});
            }
            let update = if nested {
                fields["podUpdatePolicy"] = json!(policy);
                let mut update = json!({"type": kind});
                if rolling {
                    update["rollingUpdate"] = fields;
                }
                update
            } else {
                fields["type"] = json!(kind);
                fields
            };
            json!({
                "replicas": 3, "template": {"x": lists[2]}, "minReadySeconds": 5,
                "scaleStrategy": {"disablePVCReuse": scale[0], "enablePVCReuse": scale[1], "excludePreparingDelete": scale[2]},
                "updateStrategy": update,
            })
        },
    )
}

fn metadata() -> impl Strategy<Value = Value> {
    let annotation = || prop_oneof![Just(None), "[0-9a%+-]{0,3}".prop_map(Some)];
    let label = prop::sample::select(vec![None, Some("true"), Some("false"), Some("")]);
    (annotation(), annotation(), annotation(), label).prop_map(|(a, b, c, label)| {
        let mut metadata = json!({"name": "x", "annotations": {"own": "1"}, "labels": {"own": "1"}});
        let keys = super::IMAGE_ANNOTATIONS;
        for (key, value) in keys.into_iter().zip([a, b, c]) {
            if let Some(value) = value {
                metadata["annotations"][key] = json!(value);
            }
        }
        if let Some(label) = label {
            metadata["labels"][names::EXCLUDE_PREPARING_DELETE] = json!(label);
        }
        metadata
    })
}

/// What is left out means its default, and an empty `inPlaceUpdateStrategy` the same as none. Nothing else is forgiven.
fn normal(set: &impl serde::Serialize) -> Value {
    fn fill(map: &mut Value, key: &str, default: &str) {
        if let Some(map) = map.as_object_mut() {
            map.entry(key).or_insert_with(|| default.into());
            map.retain(|key, value| key != "inPlaceUpdateStrategy" || value != &json!({}));
        }
    }
    let mut value = serde_json::to_value(set).expect("writable");
    let newer = value["apiVersion"] == "apps.kruise.io/v1beta1";
    let update = &mut value["spec"]["updateStrategy"];
    fill(update, "type", if newer { "RollingUpdate" } else { "ReCreate" });
    if newer && update.get("rollingUpdate").is_some() {
        fill(&mut update["rollingUpdate"], "podUpdatePolicy", "ReCreate");
    }
    value
}

proptest! {
    #[test]
    fn v1alpha1_survives_the_round_trip(spec in spec(false), metadata in metadata()) {
        let set = older(&spec, &metadata);
        let there = to_v1beta1(&set);
        prop_assert_eq!(normal(&to_v1alpha1(&there)), normal(&set));
        // Converted again and again, as each read through the API does, the stored form stays what it is.
        prop_assert_eq!(normal(&to_v1beta1(&to_v1alpha1(&there))), normal(&there));
    }

    #[test]
    fn v1beta1_survives_the_round_trip(spec in spec(true), metadata in metadata()) {
        let set = newer(&spec, &metadata);
        let there = to_v1alpha1(&set);
        prop_assert_eq!(normal(&to_v1beta1(&there)), normal(&set));
        prop_assert_eq!(normal(&to_v1alpha1(&to_v1beta1(&there))), normal(&there));
    }
}
