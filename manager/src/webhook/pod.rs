//! Pods of our workloads get the readiness gate by which they can be taken out of service. Anything unusual passes as it is: this must never
//! keep a pod from being made.

use kruise_api::container_recreate_request::keys;
use kruise_api::names::GROUP;
use serde_json::{Value, json};

use super::review::Allowed;

/// The pod with gate KruisePodReady, if a workload of ours controls it.
pub(super) fn gate(pod: &Value) -> Allowed {
    if !is_ours(pod) || !pod["spec"].is_object() {
        return Allowed::default();
    }
    let gates = &pod["spec"]["readinessGates"];
    let own = json!({"conditionType": keys::POD_READY});
    let has_gate = |list: &Vec<Value>| {
        list.iter()
            .any(|gate| gate["conditionType"] == own["conditionType"])
    };
    let mut after = pod.clone();
    match gates {
        Value::Array(list) if has_gate(list) => return Allowed::default(),
        Value::Array(list) => {
            let mut list = list.clone();
            list.push(own);
            after["spec"]["readinessGates"] = json!(list);
        }
        Value::Null => after["spec"]["readinessGates"] = json!([own]),
        _ => return Allowed::default(),
    }
    Allowed::changed(pod, pod, &after)
}

fn is_ours(pod: &Value) -> bool {
    let owners = pod["metadata"]["ownerReferences"].as_array();
    owners.into_iter().flatten().any(|owner| {
        let group = owner["apiVersion"]
            .as_str()
            .and_then(|version| version.split_once('/'));
        owner["controller"] == json!(true) && group.is_some_and(|(group, _)| group == GROUP)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(owner: &Value, spec: &Value) -> Value {
        json!({"metadata": {"ownerReferences": [owner]}, "spec": spec})
    }

    fn ours() -> Value {
        json!({"apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet", "controller": true})
    }

    fn patched(pod: &Value) -> Value {
        let mut object = pod.clone();
        if let Some(patch) = gate(pod).patch {
            json_patch::patch(&mut object, &patch).expect("fits");
        }
        object["spec"]["readinessGates"].clone()
    }

    #[test]
    fn pods_of_our_workloads_get_the_gate_once_beside_others() {
        let own = json!({"conditionType": "KruisePodReady"});
        let other = json!({"conditionType": "x"});
        assert_eq!(patched(&pod(&ours(), &json!({}))), json!([own]));
        let with = json!({"readinessGates": [other]});
        assert_eq!(patched(&pod(&ours(), &with)), json!([other, own]));
        let has = json!({"readinessGates": [own]});
        assert_eq!(patched(&pod(&ours(), &has)), json!([own]));
    }

    #[test]
    fn other_pods_and_odd_ones_stay_as_they_are() {
        let foreign = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": true});
        let no_controller = json!({"apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet"});
        for pod in [
            pod(&foreign, &json!({})),
            pod(&no_controller, &json!({})),
            pod(&ours(), &json!("odd")),
            pod(&ours(), &json!({"readinessGates": 5})),
            json!(null),
            json!([]),
            json!({"metadata": 1}),
        ] {
            assert!(gate(&pod).patch.is_none(), "{pod}");
        }
    }
}
