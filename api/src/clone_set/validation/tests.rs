use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::defaults::{TemplateDefaults, fill, fill_v1alpha1};
use super::super::tests::documents;
use super::*;

mod restarts;

fn free(_: &Value, _: &Value) -> Option<String> {
    None
}

const ALONE: Context<'static> = Context {
    pods: None,
    obstacle: &free,
};

const DEFAULTS: TemplateDefaults = TemplateDefaults::Fill { host_ports: false };

fn base() -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "ns", "uid": "u"},
        "spec": {
            "replicas": 5,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "app:1"}]}},
        },
    })
}

/// The base with values at pointers; null takes away.
fn with(changes: &[(&str, Value)]) -> Value {
    let mut object = base();
    for (path, value) in changes {
        let mut place = &mut object;
        for step in path.split('/') {
            place = match step.parse::<usize>() {
                Ok(index) => &mut place[index],
                Err(_) => &mut place[step],
            };
        }
        *place = value.clone();
    }
    object
}

fn newer(object: &Value) -> CloneSet {
    let mut set: CloneSet = serde_json::from_value(object.clone()).expect("readable");
    fill(&mut set, DEFAULTS);
    set
}

fn older(object: &Value) -> v1alpha1::CloneSet {
    let mut set: v1alpha1::CloneSet = serde_json::from_value(object.clone()).expect("readable");
    fill_v1alpha1(&mut set, DEFAULTS);
    set
}

fn fields(report: &Report) -> Vec<&str> {
    report.errors.iter().map(|error| error.field.as_str()).collect()
}

#[test]
fn what_a_running_openkruise_stored_is_accepted() {
    let sets: Vec<CloneSet> = documents(include_str!("../../../fixtures/cloneset/sets-v1beta1.yaml"));
    for set in sets {
        assert_eq!(validate(&set, Some(&set), &ALONE), Report::default());
    }
    let sets: Vec<v1alpha1::CloneSet> =
        documents(include_str!("../../../fixtures/cloneset/sets-v1alpha1.yaml"));
    for set in sets {
        assert_eq!(validate_v1alpha1(&set, Some(&set), &ALONE), Report::default());
    }
}

#[test]
fn rules_of_both_versions() {
    for (path, value, field) in [
        ("metadata/name", json!("Web"), "metadata.name"),
        ("metadata/name", json!(null), "metadata.name"),
        ("metadata/labels", json!({"a b": "c"}), "metadata.labels"),
        ("spec/replicas", json!(-1), "spec.replicas"),
        ("spec/selector", json!({}), "spec.selector"),
        (
            "spec/selector",
            json!({"matchLabels": {"app": "a b"}}),
            "spec.selector.matchLabels[app]",
        ),
        (
            "spec/selector",
            json!({"matchExpressions": [{"key": "app", "operator": "Is"}]}),
            "spec.selector.matchExpressions[0].operator",
        ),
        (
            "spec/selector",
            json!({"matchLabels": {"app": "other"}}),
            "spec.template.metadata.labels",
        ),
        ("spec/template", json!(null), "spec.template"),
        ("spec/template/spec/containers", json!(7), "spec.template"),
        (
            "spec/template/spec/restartPolicy",
            json!("Never"),
            "spec.template.spec.restartPolicy",
        ),
        (
            "spec/template/spec/activeDeadlineSeconds",
            json!(5),
            "spec.template.spec.activeDeadlineSeconds",
        ),
        (
            "spec/scaleStrategy",
            json!({"podsToDelete": ["a", "b", "a"]}),
            "spec.scaleStrategy.podsToDelete[2]",
        ),
        (
            "spec/progressDeadlineSeconds",
            json!(-1),
            "spec.progressDeadlineSeconds",
        ),
        (
            "spec/progressDeadlineSeconds",
            json!(0),
            "spec.progressDeadlineSeconds",
        ),
    ] {
        let object = with(&[(path, value.clone())]);
        for report in [
            validate(&newer(&object), None, &ALONE),
            validate_v1alpha1(&older(&object), None, &ALONE),
        ] {
            let expected = if path == "spec/template" {
                vec!["spec.template.metadata.labels", field]
            } else {
                vec![field]
            };
            // A template that is not readable has no labels to match.
            let found = fields(&report);
            assert!(
                found == [field] || found == expected,
                "{path} {value}: {:?}",
                report.errors
            );
        }
    }
    for object in [
        base(),
        with(&[
            ("spec/progressDeadlineSeconds", json!(i32::MAX)),
            ("spec/minReadySeconds", json!(9)),
        ]),
        with(&[("spec/replicas", json!(0))]),
    ] {
        assert_eq!(validate(&newer(&object), None, &ALONE), Report::default());
        assert_eq!(
            validate_v1alpha1(&older(&object), None, &ALONE),
            Report::default()
        );
    }
}

#[test]
fn rules_of_the_rollout_in_both_versions() {
    let selector = json!({"matchLabels": {"a": "b"}});
    for (fields_given, field) in [
        (json!({"partition": "half"}), "partition"),
        (json!({"partition": -1}), "partition"),
        (json!({"partition": "-50%"}), "partition"),
        (json!({"maxUnavailable": "1"}), "maxUnavailable"),
        (json!({"maxUnavailable": 0}), "maxUnavailable"),
        (
            json!({"maxUnavailable": "0%", "maxSurge": "0%"}),
            "maxUnavailable",
        ),
        (json!({"maxSurge": "x%"}), "maxSurge"),
        (
            json!({"priorityStrategy": {"weightPriority": [{"weight": 1, "matchSelector": selector}], "orderPriority": [{"orderedKey": "a"}]}}),
            "priorityStrategy",
        ),
        (
            json!({"priorityStrategy": {"weightPriority": [{"weight": 101, "matchSelector": selector}]}}),
            "priorityStrategy.weightPriority[0].weight",
        ),
        (
            json!({"priorityStrategy": {"weightPriority": [{"weight": -1, "matchSelector": selector}]}}),
            "priorityStrategy.weightPriority[0].weight",
        ),
        (
            json!({"priorityStrategy": {"weightPriority": [{"weight": 1, "matchSelector": {}}]}}),
            "priorityStrategy.weightPriority[0].matchSelector",
        ),
        (
            json!({"priorityStrategy": {"orderPriority": [{"orderedKey": ""}]}}),
            "priorityStrategy.orderPriority[0].orderedKey",
        ),
        (
            json!({"scatterStrategy": [{"key": "", "value": "x"}]}),
            "scatterStrategy[0].key",
        ),
        (
            json!({"scatterStrategy": [{"key": "a", "value": "x"}, {"key": "a", "value": "x"}]}),
            "scatterStrategy[1]",
        ),
        (
            json!({"inPlaceUpdateStrategy": {"imagePreDownloadParallelism": "10%"}}),
            "inPlaceUpdateStrategy.imagePreDownloadParallelism",
        ),
        (
            json!({"inPlaceUpdateStrategy": {"imagePreDownloadTimeoutSeconds": -1}}),
            "inPlaceUpdateStrategy.imagePreDownloadTimeoutSeconds",
        ),
        (
            json!({"inPlaceUpdateStrategy": {"imagePreDownloadMinUpdatedReadyPods": -1}}),
            "inPlaceUpdateStrategy.imagePreDownloadMinUpdatedReadyPods",
        ),
    ] {
        let object = with(&[("spec/updateStrategy", json!({"rollingUpdate": fields_given}))]);
        let report = validate(&newer(&object), None, &ALONE);
        assert_eq!(
            fields(&report),
            [format!("spec.updateStrategy.rollingUpdate.{field}")],
            "{fields_given}"
        );
        let object = with(&[("spec/updateStrategy", fields_given.clone())]);
        let report = validate_v1alpha1(&older(&object), None, &ALONE);
        assert_eq!(
            fields(&report),
            [format!("spec.updateStrategy.{field}")],
            "{fields_given}"
        );
    }
    for fine in [
        json!({"partition": 9}),
        json!({"partition": "33.3%"}),
        json!({"partition": "200%", "maxUnavailable": "300%"}),
        json!({"maxUnavailable": 0, "maxSurge": 1}),
        json!({"maxUnavailable": "0.1%"}),
        json!({"priorityStrategy": {"weightPriority": [{"weight": 0, "matchSelector": selector}]}}),
        json!({"inPlaceUpdateStrategy": {"imagePreDownloadParallelism": "3", "gracePeriodSeconds": 5}}),
    ] {
        let object = with(&[("spec/updateStrategy", json!({"rollingUpdate": fine}))]);
        assert_eq!(
            validate(&newer(&object), None, &ALONE),
            Report::default(),
            "{fine}"
        );
    }
}

#[test]
fn types_and_policies() {
    let report =
        |strategy: Value| validate(&newer(&with(&[("spec/updateStrategy", strategy)])), None, &ALONE);
    assert_eq!(
        fields(&report(json!({"type": "ReCreate"}))),
        ["spec.updateStrategy.type"]
    );
    assert_eq!(
        fields(&report(json!({"rollingUpdate": {"podUpdatePolicy": "Odd"}}))),
        ["spec.updateStrategy.rollingUpdate.podUpdatePolicy"]
    );
    assert_eq!(
        fields(&report(
            json!({"rollingUpdate": {"podUpdatePolicy": "InPlaceOnly", "maxSurge": 1}})
        )),
        ["spec.updateStrategy.rollingUpdate.maxSurge"]
    );
    assert_eq!(fields(&report(json!({"type": "OnDelete"}))), [""; 0]);
    // Nothing sets defaults for OnDelete, so what is there must be whole.
    assert_eq!(
        fields(&report(json!({"type": "OnDelete", "rollingUpdate": {}}))),
        [
            "spec.updateStrategy.rollingUpdate.partition",
            "spec.updateStrategy.rollingUpdate.maxUnavailable"
        ]
    );
    let report = |kind: &str| {
        validate_v1alpha1(
            &older(&with(&[("spec/updateStrategy", json!({"type": kind}))])),
            None,
            &ALONE,
        )
    };
    assert_eq!(fields(&report("RollingUpdate")), ["spec.updateStrategy.type"]);
    for kind in ["", "ReCreate", "InPlaceIfPossible", "InPlaceOnly", "OnDelete"] {
        assert_eq!(report(kind), Report::default(), "{kind}");
    }
}

#[test]
fn slips_in_the_template() {
    let main = "spec/template/spec/containers/0";
    for (path, value, field) in [
        ("spec/template/spec/containers", json!([]), "containers"),
        (&format!("{main}/name"), json!("Main"), "containers[0].name"),
        (&format!("{main}/image"), json!(""), "containers[0].image"),
        (&format!("{main}/image"), json!(" app:1"), "containers[0].image"),
        (
            &format!("{main}/imagePullPolicy"),
            json!("Often"),
            "containers[0].imagePullPolicy",
        ),
        (
            &format!("{main}/ports"),
            json!([{"containerPort": 0}]),
            "containers[0].ports[0].containerPort",
        ),
        (
            &format!("{main}/env"),
            json!([{"name": ""}]),
            "containers[0].env[0].name",
        ),
        (
            &format!("{main}/env"),
            json!([{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]),
            "containers[0].env[0].valueFrom",
        ),
        (
            &format!("{main}/volumeMounts"),
            json!([{"name": "v", "mountPath": "/x"}]),
            "containers[0].volumeMounts[0].name",
        ),
        (
            &format!("{main}/resources"),
            json!({"limits": {"cpu": "x"}}),
            "containers[0].resources.limits[cpu]",
        ),
        (
            &format!("{main}/resources"),
            json!({"limits": {"cpu": "1"}, "requests": {"cpu": "1100m"}}),
            "containers[0].resources.requests[cpu]",
        ),
        (
            &format!("{main}/livenessProbe"),
            json!({}),
            "containers[0].livenessProbe",
        ),
        (
            "spec/template/spec/initContainers",
            json!([{"name": "main", "image": "x"}]),
            "containers[0].name",
        ),
        (
            "spec/template/spec/volumes",
            json!([{"name": "v"}, {"name": "v"}]),
            "volumes[1].name",
        ),
        ("spec/template/spec/dnsPolicy", json!("Some"), "dnsPolicy"),
    ] {
        let report = validate(&newer(&with(&[(path, value.clone())])), None, &ALONE);
        assert_eq!(
            fields(&report),
            [format!("spec.template.spec.{field}")],
            "{path} {value}"
        );
    }
    // A claim template is a volume of its name.
    let claims = json!([{"metadata": {"name": "data"}, "spec": {}}]);
    let volumes = ("spec/template/spec/volumes", json!([{"name": "data"}]));
    let mount = (
        "spec/template/spec/containers/0/volumeMounts",
        json!([{"name": "data", "mountPath": "/d"}]),
    );
    let report = validate(
        &newer(&with(&[("spec/volumeClaimTemplates", claims.clone()), volumes])),
        None,
        &ALONE,
    );
    assert_eq!(fields(&report), ["spec.template.spec.volumes[0].name"]);
    let report = validate(
        &newer(&with(&[("spec/volumeClaimTemplates", claims), mount])),
        None,
        &ALONE,
    );
    assert_eq!(report, Report::default());
}

#[test]
fn pods_to_delete_must_be_pods_of_the_set() {
    let pod = |name: &str, terminating, controller: Option<&str>| PodRef {
        name: name.to_owned(),
        terminating,
        controller: controller.map(str::to_owned),
    };
    let pods = [
        pod("a", false, Some("u")),
        pod("b", true, Some("u")),
        pod("c", false, Some("x")),
        pod("d", false, None),
    ];
    let context = Context {
        pods: Some(&pods),
        obstacle: &free,
    };
    let object = with(&[(
        "spec/scaleStrategy",
        json!({"podsToDelete": ["a", "b", "c", "d", "e"]}),
    )]);
    for report in [
        validate(&newer(&object), None, &context),
        validate_v1alpha1(&older(&object), None, &context),
    ] {
        let expected: Vec<_> = (1..5)
            .map(|index| format!("spec.scaleStrategy.podsToDelete[{index}]"))
            .collect();
        assert_eq!(fields(&report), expected);
    }
    // Names that were there before are left alone: the controller takes them off.
    let set = newer(&object);
    assert_eq!(validate(&set, Some(&set), &context), Report::default());
    assert_eq!(validate(&set, None, &ALONE), Report::default());
}

#[test]
fn updates() {
    let in_place = json!({"rollingUpdate": {"podUpdatePolicy": "InPlaceOnly"}});
    let changed = ("spec/template/spec/containers/0/command", json!(["x"]));
    let never = |_: &Value, _: &Value| Some("spec.containers[0].command cannot change in place".to_owned());
    let context = Context {
        pods: None,
        obstacle: &never,
    };
    let old = newer(&base());
    let report = validate(
        &newer(&with(&[("spec/updateStrategy", in_place), changed.clone()])),
        Some(&old),
        &context,
    );
    assert_eq!(fields(&report), ["spec"]);
    assert!(
        report.errors[0].forbidden && report.errors[0].message.contains("containers[0].command"),
        "{:?}",
        report.errors
    );
    let report = validate(
        &newer(&with(std::slice::from_ref(&changed))),
        Some(&old),
        &context,
    );
    assert_eq!(report, Report::default(), "another policy makes the pods anew");
    let old = older(&base());
    let only = ("spec/updateStrategy", json!({"type": "InPlaceOnly"}));
    assert_eq!(
        fields(&validate_v1alpha1(
            &older(&with(&[only.clone(), changed])),
            Some(&old),
            &context
        )),
        ["spec"]
    );
    assert_eq!(
        validate_v1alpha1(&older(&with(&[only])), Some(&old), &context),
        Report::default()
    );

    let selector = json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]});
    let report = validate(
        &newer(&with(&[("spec/selector", selector)])),
        Some(&newer(&base())),
        &ALONE,
    );
    assert_eq!(fields(&report), ["spec"]);
    assert!(report.errors[0].forbidden);
}

#[test]
fn what_openkruise_lets_through_is_warned_of() {
    for (path, value, words) in [
        ("spec/minReadySeconds", json!(-1), "minReadySeconds"),
        ("spec/revisionHistoryLimit", json!(-1), "revisionHistoryLimit"),
        (
            "spec/scaleStrategy",
            json!({"maxUnavailable": "x"}),
            "scaleStrategy.maxUnavailable",
        ),
        (
            "spec/updateStrategy",
            json!({"rollingUpdate": {"inPlaceUpdateStrategy": {"gracePeriodSeconds": -1}}}),
            "gracePeriodSeconds",
        ),
    ] {
        let report = validate(&newer(&with(&[(path, value)])), None, &ALONE);
        assert!(
            report.errors.is_empty() && report.warnings.len() == 1,
            "{report:?}"
        );
        assert!(report.warnings[0].contains(words), "{report:?}");
    }
    let both = with(&[
        (
            "metadata/annotations",
            json!({names::PREDOWNLOAD_PARALLELISM: "5"}),
        ),
        (
            "spec/updateStrategy",
            json!({"rollingUpdate": {"inPlaceUpdateStrategy": {"imagePreDownloadParallelism": 2}}}),
        ),
    ]);
    let report = validate(&newer(&both), None, &ALONE);
    assert_eq!(
        report.warnings,
        [
            "annotation apps.kruise.io/image-predownload-parallelism is \"5\" and imagePreDownloadParallelism is \"2\": the field counts"
        ]
    );
}

#[test]
fn protected_sets_are_not_deleted() {
    let gates = |text: &str| FeatureGates::parse_known(text).expect("valid");
    let on = gates("ResourcesDeletionProtection=true");
    let labelled = |value: &str| ObjectMeta {
        labels: Some([(names::DELETE_PROTECTION.to_owned(), value.to_owned())].into()),
        ..ObjectMeta::default()
    };
    assert!(check_delete(&labelled("Always"), 0, &on).is_err());
    assert!(check_delete(&labelled("Cascading"), 3, &on).is_err());
    assert!(check_delete(&labelled("Cascading"), 0, &on).is_ok());
    assert!(check_delete(&labelled("Other"), 3, &on).is_ok());
    assert!(check_delete(&labelled("Always"), 0, &gates("")).is_ok());
    let mut leaving = labelled("Always");
    leaving.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
        jiff::Timestamp::UNIX_EPOCH,
    ));
    assert!(check_delete(&leaving, 0, &on).is_ok());
}

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
        "ports",
        "resources",
        "limits",
        "cpu",
        "env",
        "valueFrom",
        "volumes",
        "secret",
        "projected",
        "livenessProbe",
        "httpGet",
        "labels",
        "hostNetwork",
        "status",
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

proptest! {
    #[test]
    fn nothing_panics(template in anything(), claims in anything()) {
        let object = with(&[("spec/template", template), ("spec/volumeClaimTemplates", claims)]);
        let mut set: CloneSet = serde_json::from_value(object).expect("readable");
        fill(&mut set, TemplateDefaults::Fill { host_ports: true });
        let once = set.clone();
        fill(&mut set, TemplateDefaults::Fill { host_ports: true });
        prop_assert_eq!(&set, &once, "defaults are stable");
        let _ = validate(&set, Some(&once), &ALONE);
    }
}
