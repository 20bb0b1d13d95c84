//! New pods: those of our workloads get the readiness gate by which they can be taken out of service, and those that ask for it the barriers
//! by which their containers start in order. Anything unusual passes as it is; the one thing that is refused is an order that cannot be read.

use kruise_api::admission::Denied;
use kruise_api::container_recreate_request::keys;
use kruise_api::names::GROUP;
use kruise_planner::launch;
use serde_json::{Value, json};

use super::review::{Allowed, Judged, Request};

/// The pod with all that it gets.
pub(super) fn judge(request: &Request, orders: bool) -> Judged {
    let pod = &request.object;
    let mut after = gated(pod).unwrap_or_else(|| pod.clone());
    if orders {
        // The request's id is as good as chance, and the same when the server asks again.
        let barred = launch::inject(&after, &request.uid).map_err(|refused| Denied {
            code: 500,
            message: refused.to_string(),
        })?;
        after = barred.unwrap_or(after);
    }
    Ok(Allowed::changed(pod, pod, &after))
}

/// The pod with gate KruisePodReady, if a workload of ours controls it and it has none.
fn gated(pod: &Value) -> Option<Value> {
    if !is_ours(pod) || !pod["spec"].is_object() {
        return None;
    }
    let own = json!({"conditionType": keys::POD_READY});
    let mut list = match &pod["spec"]["readinessGates"] {
        Value::Array(list) => list.clone(),
        Value::Null => Vec::new(),
        _ => return None,
    };
    if list
        .iter()
        .any(|gate| gate["conditionType"] == own["conditionType"])
    {
        return None;
    }
    list.push(own);
    let mut after = pod.clone();
    after["spec"]["readinessGates"] = json!(list);
    Some(after)
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

    fn request(pod: &Value) -> Request {
        let review = json!({"uid": "one", "operation": "CREATE", "object": pod});
        serde_json::from_value(review).expect("a request")
    }

    fn after(pod: &Value, orders: bool) -> Value {
        let mut object = pod.clone();
        if let Some(patch) = judge(&request(pod), orders).expect("allowed").patch {
            json_patch::patch(&mut object, &patch).expect("fits");
        }
        object
    }

    fn patched(pod: &Value) -> Value {
        after(pod, true)["spec"]["readinessGates"].clone()
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
            let judged = judge(&request(&pod), true).expect("allowed");
            assert!(judged.patch.is_none(), "{pod}");
        }
    }

    fn ordered() -> Value {
        let mut pod = pod(&ours(), &json!({"containers": [{"name": "a"}, {"name": "b"}]}));
        pod["metadata"]["generateName"] = "web-".into();
        pod["metadata"]["annotations"] = json!({"apps.kruise.io/container-launch-priority": "Ordered"});
        pod
    }

    #[test]
    fn pods_that_ask_for_an_order_get_barriers_beside_the_gate() {
        let given = after(&ordered(), true);
        let name = given["metadata"]["name"].as_str().expect("named");
        let wanted = &given["spec"]["containers"][1]["env"][0]["valueFrom"]["configMapKeyRef"];
        assert_eq!(*wanted, json!({"name": format!("{name}-barrier"), "key": "p_-1"}));
        assert_eq!(
            given["spec"]["readinessGates"][0]["conditionType"],
            "KruisePodReady"
        );
        let without = after(&ordered(), false);
        assert!(without["spec"]["containers"][1]["env"].is_null() && without["metadata"]["name"].is_null());
    }

    #[test]
    fn an_order_that_cannot_be_read_is_refused() {
        let mut pod = ordered();
        pod["metadata"]["annotations"] = json!({});
        pod["spec"]["containers"][0]["env"] =
            json!([{"name": "KRUISE_CONTAINER_PRIORITY", "value": "first"}]);
        let denied = judge(&request(&pod), true).expect_err("refused");
        assert_eq!(denied.code, 500);
        assert!(
            denied.message.contains("container a") && denied.message.contains("first"),
            "{}",
            denied.message
        );
    }
}
