use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{CloneSet, CloneSetStatus, v1alpha1};

pub(super) fn documents<T: DeserializeOwned>(text: &str) -> Vec<T> {
    serde_norway::Deserializer::from_str(text)
        .map(|document| T::deserialize(document).expect("readable"))
        .collect()
}

#[test]
fn sets_as_openkruise_wrote_them_are_read_without_loss() {
    fn check<T: DeserializeOwned + serde::Serialize>(text: &str) {
        let raw: Vec<Value> = documents(text);
        let typed: Vec<T> = documents(text);
        assert_eq!(typed.len(), 3);
        for (raw, typed) in raw.iter().zip(&typed) {
            let mut again = serde_json::to_value(typed).expect("writable");
            // Ours are always written, also when upstream leaves a zero out.
            for counter in ["updatedAvailableReplicas", "expectedUpdatedReplicas"] {
                if raw["status"].get(counter).is_none() {
                    assert_eq!(again["status"][counter], 0);
                    again["status"].as_object_mut().expect("object").remove(counter);
                }
            }
            assert_eq!(&again, raw);
        }
    }
    check::<v1alpha1::CloneSet>(include_str!("../../fixtures/cloneset/sets-v1alpha1.yaml"));
    check::<CloneSet>(include_str!("../../fixtures/cloneset/sets-v1beta1.yaml"));
}

#[test]
fn zero_counters_are_written() {
    let status = serde_json::to_value(CloneSetStatus::default()).expect("writable");
    for counter in [
        "replicas",
        "readyReplicas",
        "availableReplicas",
        "updatedReplicas",
        "updatedReadyReplicas",
        "updatedAvailableReplicas",
        "expectedUpdatedReplicas",
    ] {
        assert_eq!(status[counter], 0, "{counter}");
    }
}

#[test]
fn a_malformed_template_does_not_hide_the_set() {
    let set: CloneSet = serde_json::from_value(json!({
        "metadata": {"name": "a"},
        "spec": {"selector": {}, "template": {"spec": {"containers": 5}}, "volumeClaimTemplates": [{"spec": 1}]},
    }))
    .expect("the set is readable");
    assert!(set.spec.pod_template().is_err());
    let error = set.spec.claim_templates().expect_err("no claim");
    assert_eq!(error.to_string(), "spec.volumeClaimTemplates is not readable");
    assert_eq!((set.spec.wanted(), set.spec.history_limit()), (1, 10));
}
