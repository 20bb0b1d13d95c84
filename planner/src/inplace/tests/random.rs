//! Promises that hold for any template.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::{Change, Target};
use super::super::{Decision, Options, begin, decide, decide_revisions, end_grace, next_batch, progress};
use super::{now, pod};
use crate::revision;

/// Any JSON, with the names of fields that templates have, so that it goes deep.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z0-9.%:/Gi-]{0,6}".prop_map(Value::from),
    ];
    let key = prop::sample::select(vec![
        "metadata",
        "spec",
        "containers",
        "initContainers",
        "name",
        "image",
        "resources",
        "limits",
        "requests",
        "cpu",
        "memory",
        "env",
        "valueFrom",
        "fieldRef",
        "fieldPath",
        "labels",
        "annotations",
        "finalizers",
        "volumes",
        "emptyDir",
        "x",
    ]);
    leaf.prop_recursive(6, 48, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key.clone(), inner, 0..5).prop_map(|map| {
                Value::Object(
                    map.into_iter()
                        .map(|(key, value)| (key.to_owned(), value))
                        .collect(),
                )
            }),
        ]
    })
}

/// A template of three containers by its images, the amounts of the first and the value of an annotation that the second reads.
fn template(images: &[u8; 3], cpu: u8, config: u8) -> Value {
    let read = json!([{"name": "V", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['c']"}}}]);
    let barrier = |number: u8| json!([{"name": "KRUISE_CONTAINER_BARRIER", "valueFrom": {"configMapKeyRef": {"name": "b", "key": format!("p_{number}")}}}]);
    json!({
        "metadata": {"annotations": {"c": config.to_string()}},
        "spec": {"containers": [
            {"name": "a", "image": format!("a:{}", images[0]), "resources": {"requests": {"cpu": cpu.to_string()}}, "env": barrier(9)},
            {"name": "b", "image": format!("b:{}", images[1]), "env": read},
            {"name": "c", "image": format!("c:{}", images[2]), "env": barrier(1)},
        ]},
    })
}

const ALL: Options = Options {
    env_from_metadata: true,
    vertical_scaling: true,
};

proptest! {
    #[test]
    fn nothing_panics(a in anything(), b in anything()) {
        let _ = decide(&a, &b, ALL);
        let _ = decide_revisions(&revision::data(&a), &revision::data(&b), ALL);
        let form = revision::template(&a);
        prop_assert_eq!(revision::template(&form), form);
        let _ = revision::claim_template_hash(Some(&a));
    }

    #[test]
    fn the_same_template_is_no_change(a in anything()) {
        let template = json!({"metadata": a["metadata"], "spec": {"containers": [], "x": a}});
        prop_assert_eq!(decide(&template, &template, ALL), Decision::InPlace(Change::default()));
    }

    /// Batch by batch a pod comes to exactly the new template, each container once, and then nothing is left.
    #[test]
    fn batches_lead_to_the_new_template(
        old in any::<[bool; 3]>(), new in any::<[bool; 3]>(), cpu in 1_u8..3, config in 0_u8..2, grace in 0_i32..2,
    ) {
        let (from, to) = (template(&old.map(u8::from), 1, 0), template(&new.map(u8::from), cpu, config));
        let Decision::InPlace(change) = decide(&from, &to, ALL) else { panic!("possible") };
        let mut at = pod(json!({"metadata": {"labels": {}, "annotations": from["metadata"]["annotations"]}, "spec": from["spec"]}));
        let target = Target { revision: "s-h", label: "s-h", lifecycle_state: "Updating", grace_seconds: grace, resize: false };
        at = super::write::apply(&at, &begin(&at, &change, &target, ALL, now()).pod);
        if let Some(written) = end_grace(&at, false, now()) {
            at = super::write::apply(&at, &written.pod);
        }
        let mut steps = 0;
        while let Some(written) = next_batch(&at, false, now()) {
            at = super::write::apply(&at, &written.pod);
            steps += 1;
            prop_assert!(steps < 4, "batches without end");
        }
        prop_assert_eq!(progress(&at, ALL).next, None);
        let made = serde_json::to_value(&at).expect("writable");
        for index in 0..3 {
            let place = format!("/spec/containers/{index}/image");
            prop_assert_eq!(made.pointer(&place), to.pointer(&place));
        }
        prop_assert_eq!(&made["spec"]["containers"][0]["resources"], &to["spec"]["containers"][0]["resources"]);
        prop_assert_eq!(&made["metadata"]["annotations"]["c"], &to["metadata"]["annotations"]["c"]);
        let state = super::super::State::of(&at).expect("one");
        let mut named: Vec<_> = state.container_batches_record.iter().flat_map(|batch| &batch.containers).collect();
        let count = named.len();
        named.sort_unstable();
        named.dedup();
        prop_assert_eq!(named.len(), count, "a container in two batches");
        prop_assert_eq!(named.len(), change.containers().len());
    }
}
