//! Rows of the specification.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::*;

fn pod(annotations: &Value, priorities: &[Option<&str>]) -> Value {
    let container = |(index, priority): (usize, &Option<&str>)| {
        let mut container = json!({"name": format!("c{index}")});
        if let Some(value) = priority {
            container["env"] =
                json!([{"name": "X", "value": "1"}, {"name": "KRUISE_CONTAINER_PRIORITY", "value": value}]);
        }
        container
    };
    let containers: Vec<Value> = priorities.iter().enumerate().map(container).collect();
    json!({"metadata": {"name": "p", "annotations": annotations}, "spec": {"containers": containers}})
}

/// Keys that the containers wait for, in their order.
fn keys(pod: &Value) -> Vec<String> {
    let containers = pod["spec"]["containers"].as_array().unwrap().iter();
    containers
        .map(|container| {
            let last = container["env"].as_array().unwrap().last().unwrap();
            assert_eq!(last["name"], "KRUISE_CONTAINER_BARRIER");
            let wanted = &last["valueFrom"]["configMapKeyRef"];
            assert_eq!(
                wanted["name"],
                format!("{}-barrier", pod["metadata"]["name"].as_str().unwrap())
            );
            wanted["key"].as_str().unwrap().to_owned()
        })
        .collect()
}

#[test]
fn what_a_new_pod_is_given() {
    let ordered = json!({"apps.kruise.io/container-launch-priority": "Ordered"});
    let none = json!({});
    for (annotations, priorities, wanted) in [
        (
            &ordered,
            &[None, None, None][..],
            Some(&["p_0", "p_-1", "p_-2"][..]),
        ),
        // The annotation wins, and the variables are not even read.
        (&ordered, &[Some("5"), Some("nonsense")], Some(&["p_0", "p_-1"])),
        (&ordered, &[None], None),
        (
            &json!({"apps.kruise.io/container-launch-priority": "other"}),
            &[None, None],
            None,
        ),
        (&none, &[None, None], None),
        (&none, &[Some("7")], None),
        (&none, &[Some("7"), Some("7")], None),
        (&none, &[Some("0"), None], None),
        (
            &none,
            &[None, Some("7"), Some("-3")],
            Some(&["p_0", "p_7", "p_-3"]),
        ),
        (
            &none,
            &[Some("2147483647"), Some("-2147483647")],
            Some(&["p_2147483647", "p_-2147483647"]),
        ),
    ] {
        let pod = pod(annotations, priorities);
        let given = inject(&pod, "seed").unwrap();
        let found = given.as_ref().map(keys);
        let wanted = wanted.map(|keys| keys.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(found, wanted, "{pod}");
        if let Some(given) = given {
            assert_eq!(
                inject(&given, "other").unwrap().as_ref(),
                Some(&given),
                "asked twice, the same comes out"
            );
        }
    }
}

#[test]
fn a_priority_that_is_no_number_is_refused() {
    for value in ["", "high", "1.5", "2147483648", "-2147483648", " 1"] {
        let refused = inject(&pod(&json!({}), &[None, Some(value)]), "seed").unwrap_err();
        assert_eq!(
            (refused.container.as_str(), refused.value.as_str()),
            ("c1", value)
        );
    }
}

#[test]
fn a_pod_that_the_server_would_name_is_named_here() {
    let mut unnamed = pod(&json!({}), &[None, Some("1")]);
    unnamed["metadata"] = json!({"generateName": "web-"});
    let given = inject(&unnamed, "one").unwrap().unwrap();
    let name = given["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("web-") && name.len() == 9, "{name}");
    assert_eq!(keys(&given), ["p_0", "p_1"]);
    let other = inject(&unnamed, "two").unwrap().unwrap();
    assert_ne!(other["metadata"]["name"], given["metadata"]["name"]);
    unnamed["metadata"]["generateName"] = "x".repeat(100).into();
    let long = inject(&unnamed, "one").unwrap().unwrap();
    assert_eq!(long["metadata"]["name"].as_str().unwrap().len(), 63);
    unnamed["metadata"] = json!({});
    assert_eq!(inject(&unnamed, "one").unwrap(), None, "the server refuses it");
}

#[test]
fn odd_pods_pass_as_they_are() {
    for odd in [
        json!(null),
        json!({"spec": 1}),
        json!({"spec": {"containers": "x"}}),
        json!({"metadata": {"name": "p"}, "spec": {"containers": [1, 2]}}),
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"env": 5}, {"env": {}}]}}),
    ] {
        assert_eq!(inject(&odd, "seed").unwrap(), None, "{odd}");
    }
}

#[test]
fn keys_are_read_back() {
    for (key, priority) in [
        ("p_0", 0),
        ("p_-2", -2),
        ("p_7", 7),
        ("p_x", 0),
        ("p", 0),
        ("", 0),
        ("éé5", 5),
    ] {
        assert_eq!(priority_of(key), priority, "{key}");
    }
}

/// A pod with these priorities, of which these containers are ready.
fn started(ready: &[bool], change: impl FnOnce(&mut Value)) -> Pod {
    let mut value = inject(
        &pod(&json!({}), &[None, Some("7"), Some("7"), Some("-3")]),
        "seed",
    )
    .unwrap()
    .unwrap();
    let statuses = ready.iter().enumerate().map(|(index, ready)| {
        json!({"name": format!("c{index}"), "ready": ready, "image": "", "imageID": "", "restartCount": 0})
    });
    value["status"] = json!({"phase": "Pending", "containerStatuses": statuses.collect::<Vec<_>>()});
    change(&mut value);
    serde_json::from_value(value).unwrap()
}

#[test]
fn the_highest_that_is_not_ready_comes_next() {
    let add = |priority, last| Step::Add { priority, last };
    for (ready, keys, wanted) in [
        (&[][..], &[][..], add(7, false)),
        (&[false, false, false, false], &[], add(7, false)),
        (&[false, true, false, false], &["p_7"], Step::Wait),
        (&[false, true, true, false], &["p_7"], add(0, false)),
        (&[false, true, true, false], &["p_7", "p_0"], Step::Wait),
        (&[true, true, true, false], &["p_7", "p_0"], add(-3, true)),
        (
            &[true, true, true, false],
            &["p_7", "p_0", "p_-3"],
            Step::Complete,
        ),
        // One of the first has crashed again meanwhile: its key is there.
        (&[true, false, true, false], &["p_7", "p_0"], Step::Wait),
        (&[true, true, true, true], &["p_7", "p_0"], Step::Complete),
    ] {
        let keys: BTreeSet<String> = keys.iter().map(ToString::to_string).collect();
        assert_eq!(step(&started(ready, |_| {}), &keys), wanted, "{ready:?} {keys:?}");
    }
}

#[test]
fn nothing_is_done_for_pods_that_are_past_it() {
    let changes: [fn(&mut Value); 6] = [
        |pod| pod["metadata"]["annotations"][COMPLETED] = "true".into(),
        |pod| pod["status"]["conditions"] = json!([{"type": "ContainersReady", "status": "True"}]),
        |pod| pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into(),
        |pod| pod["status"]["phase"] = "Failed".into(),
        |pod| pod["metadata"]["name"] = "other".into(),
        |pod| {
            for container in pod["spec"]["containers"].as_array_mut().unwrap() {
                container["env"] = json!([{"name": "KRUISE_CONTAINER_BARRIER", "value": "1"}]);
            }
        },
    ];
    for change in changes {
        let pod = started(&[false; 4], change);
        assert_eq!(step(&pod, &BTreeSet::new()), Step::Nothing, "{pod:?}");
    }
}
