use serde_json::{Value, json};

use super::super::tests::documents;
use super::{PullDefault, TemplateDefaults, fill, fill_template, fill_v1alpha1};
use crate::clone_set::{CloneSet, v1alpha1};
use crate::features::FeatureGates;

const FILL: TemplateDefaults = TemplateDefaults::Fill { host_ports: false };

fn newer(spec: &Value) -> Value {
    let mut set: CloneSet = serde_json::from_value(json!({"metadata": {}, "spec": spec})).expect("readable");
    fill(&mut set, FILL);
    serde_json::to_value(&set).expect("writable")["spec"].take()
}

fn older(spec: &Value) -> Value {
    let mut set: v1alpha1::CloneSet =
        serde_json::from_value(json!({"metadata": {}, "spec": spec})).expect("readable");
    fill_v1alpha1(&mut set, FILL);
    serde_json::to_value(&set).expect("writable")["spec"].take()
}

#[test]
fn strategies() {
    let rolling =
        json!({"podUpdatePolicy": "ReCreate", "partition": 0, "maxUnavailable": "20%", "maxSurge": 0});
    let spec = newer(&json!({}));
    assert_eq!(
        spec["updateStrategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": rolling})
    );
    assert_eq!(
        (&spec["replicas"], &spec["revisionHistoryLimit"]),
        (&json!(1), &json!(10))
    );
    let spec = newer(
        &json!({"replicas": 0, "updateStrategy": {"rollingUpdate": {"podUpdatePolicy": "InPlaceOnly", "partition": "5%"}}}),
    );
    assert_eq!(spec["replicas"], 0);
    assert_eq!(
        spec["updateStrategy"]["rollingUpdate"]["inPlaceUpdateStrategy"],
        json!({})
    );
    assert_eq!(spec["updateStrategy"]["rollingUpdate"]["partition"], "5%");
    let on_delete = json!({"type": "OnDelete", "rollingUpdate": {}});
    assert_eq!(
        newer(&json!({"updateStrategy": on_delete}))["updateStrategy"],
        on_delete
    );

    let limits = json!({"type": "ReCreate", "partition": 0, "maxUnavailable": "20%", "maxSurge": 0});
    assert_eq!(older(&json!({}))["updateStrategy"], limits);
    let spec = older(&json!({"updateStrategy": {"type": "OnDelete", "maxSurge": 2}}));
    assert_eq!(
        spec["updateStrategy"],
        json!({"type": "OnDelete", "partition": 0, "maxUnavailable": "20%", "maxSurge": 2})
    );
    let spec = older(&json!({"updateStrategy": {"type": "InPlaceIfPossible"}}));
    assert_eq!(spec["updateStrategy"]["inPlaceUpdateStrategy"], json!({}));
}

/// Takes away what the webhook of a running OpenKruise had added.
fn bare(template: &mut Value) {
    let spec = template["spec"].as_object_mut().expect("object");
    for name in ["dnsPolicy", "restartPolicy", "schedulerName", "securityContext"] {
        spec.remove(name);
    }
    if spec["terminationGracePeriodSeconds"] == 30 {
        spec.remove("terminationGracePeriodSeconds");
    }
    for list in ["containers", "initContainers"] {
        for container in spec
            .get_mut(list)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            let container = container.as_object_mut().expect("object");
            for name in [
                "imagePullPolicy",
                "terminationMessagePath",
                "terminationMessagePolicy",
            ] {
                container.remove(name);
            }
            if let Some(probe) = container.get_mut("readinessProbe") {
                *probe = json!({"httpGet": {"port": 80}});
            }
            if let Some(port) = container.get_mut("ports") {
                *port = json!([{"containerPort": 80}]);
            }
            if let Some(env) = container.get_mut("env") {
                env[0]["valueFrom"]["fieldRef"] = json!({"fieldPath": "metadata.annotations['config']"});
            }
        }
    }
    if let Some(volumes) = spec.get_mut("volumes") {
        *volumes = json!([{"name": "cfg", "configMap": {"name": "cfg"}}]);
    }
}

#[test]
fn templates_get_what_a_running_openkruise_gave_them() {
    let sets: Vec<CloneSet> = documents(include_str!("../../../fixtures/cloneset/sets-v1beta1.yaml"));
    for set in sets {
        let mut again = set.clone();
        bare(&mut again.spec.template);
        let claims = again
            .spec
            .volume_claim_templates
            .as_mut()
            .and_then(Value::as_array_mut);
        for claim in claims.into_iter().flatten() {
            claim.as_object_mut().expect("object").remove("status");
        }
        assert_ne!(again, set);
        fill(&mut again, FILL);
        assert_eq!(again, set);
        // What has its defaults stays as it is.
        fill(&mut again, FILL);
        assert_eq!(again, set);
    }
}

#[test]
fn the_template_is_left_alone_where_it_must_be() {
    let gates = |text: &str| FeatureGates::parse_known(text).expect("valid");
    let (a, b) = (json!({"spec": {"x": 1}}), json!({"spec": {}}));
    let of = |gate: &str, stored| TemplateDefaults::of(&gates(gate), stored, &a);
    assert_eq!(of("", None), FILL);
    assert_eq!(of("", Some(&b)), FILL);
    assert_eq!(of("", Some(&a)), TemplateDefaults::Leave);
    assert_eq!(of("TemplateNoDefaults=true", None), TemplateDefaults::Leave);
    assert_eq!(
        of("DefaultHostNetworkHostPortsInPodTemplates=true", None),
        TemplateDefaults::Fill { host_ports: true }
    );
}

#[test]
fn details_of_templates() {
    let filled = |spec: Value, pull, ports| {
        let mut template = json!({"spec": spec});
        fill_template(&mut template, pull, ports);
        template["spec"].take()
    };
    let container =
        |image: &str| json!({"containers": [{"image": image}], "initContainers": [{"image": image}]});
    for (image, by_tag) in [
        ("a", "Always"),
        ("a:latest", "Always"),
        ("a:1", "IfNotPresent"),
        ("host:5000/a", "Always"),
        (
            "a@sha256:0123456789012345678901234567890123456789012345678901234567890123",
            "IfNotPresent",
        ),
    ] {
        let spec = filled(container(image), PullDefault::ByTag, false);
        assert_eq!(spec["containers"][0]["imagePullPolicy"], by_tag, "{image}");
        let spec = filled(container(image), PullDefault::Always, false);
        assert_eq!(spec["containers"][0]["imagePullPolicy"], "Always", "{image}");
        assert_eq!(spec["initContainers"][0]["imagePullPolicy"], by_tag, "{image}");
    }
    let ports = json!({"hostNetwork": true, "containers": [{"ports": [{"containerPort": 80}, {"containerPort": 81, "hostPort": 1}]}]});
    let spec = filled(ports.clone(), PullDefault::Always, true);
    assert_eq!(
        spec["containers"][0]["ports"][0],
        json!({"containerPort": 80, "hostPort": 80, "protocol": "TCP"})
    );
    assert_eq!(spec["containers"][0]["ports"][1]["hostPort"], 1);
    let spec = filled(ports, PullDefault::Always, false);
    assert!(spec["containers"][0]["ports"][0].get("hostPort").is_none());
    let spec = filled(
        json!({"volumes": [{"name": "a"}, {"name": "b", "secret": {}}, {"name": "c", "hostPath": {"path": "/"}}]}),
        PullDefault::Always,
        false,
    );
    assert_eq!(spec["volumes"][0]["emptyDir"], json!({}));
    assert_eq!(spec["volumes"][1]["secret"]["defaultMode"], 420);
    assert_eq!(spec["volumes"][2]["hostPath"]["type"], "");
    // Malformed parts are left to validation.
    let odd = json!({"containers": 5, "volumes": [3, {"secret": 4}], "hostNetwork": "x"});
    assert_eq!(filled(odd, PullDefault::Always, true)["containers"], 5);
}
