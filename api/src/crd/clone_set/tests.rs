use serde_json::{Value, json};

use super::super::tests::contains;
use super::clone_set;

fn ours() -> Value {
    serde_json::to_value(clone_set()).expect("writable")
}

fn upstream() -> Value {
    serde_norway::from_str(include_str!("../../../fixtures/upstream-clonesets-crd.yaml")).expect("readable")
}

#[test]
fn every_field_of_upstream_is_there_with_the_same_type() {
    let (ours, theirs) = (ours(), upstream());
    for (ours, theirs) in [0, 1].map(|version| {
        (
            &ours["spec"]["versions"][version],
            &theirs["spec"]["versions"][version],
        )
    }) {
        assert_eq!(ours["name"], theirs["name"]);
        for part in ["spec", "status"] {
            let schema = |version: &Value| version["schema"]["openAPIV3Schema"]["properties"][part].clone();
            contains(part, &schema(ours), &schema(theirs));
        }
        for same in ["served", "storage", "subresources"] {
            assert_eq!(ours[same], theirs[same], "{same}");
        }
        let spec = &ours["schema"]["openAPIV3Schema"]["properties"]["spec"];
        assert_eq!(spec["required"], json!(["selector", "template"]));
        assert_eq!(spec["properties"]["selector"]["x-kubernetes-map-type"], "atomic");
        assert_eq!(
            spec["properties"]["template"]["x-kubernetes-preserve-unknown-fields"],
            true
        );
    }
    assert_eq!(
        ours["spec"]["names"]["shortNames"],
        theirs["spec"]["names"]["shortNames"]
    );
}

#[test]
fn columns_are_upstreams_in_upstreams_order() {
    let (ours, theirs) = (ours(), upstream());
    for version in [0, 1] {
        assert_eq!(
            ours["spec"]["versions"][version]["additionalPrinterColumns"],
            theirs["spec"]["versions"][version]["additionalPrinterColumns"]
        );
    }
}

#[test]
fn each_rule_sits_at_its_field_in_both_versions() {
    let crd = ours();
    for (version, rolling, policy) in [
        (0, "updateStrategy", "type"),
        (1, "updateStrategy/properties/rollingUpdate", "podUpdatePolicy"),
    ] {
        let spec = &crd["spec"]["versions"][version]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        let rules = |path: &str| {
            let field = spec.pointer(path).unwrap_or_else(|| panic!("{path} is missing"));
            field["x-kubernetes-validations"].as_array().map_or(0, Vec::len)
        };
        let rolling = format!("/properties/{rolling}");
        for field in [
            "partition",
            "maxUnavailable",
            "maxSurge",
            "priorityStrategy",
            policy,
        ] {
            assert_eq!(
                rules(&format!("{rolling}/properties/{field}")),
                1,
                "{version} {field}"
            );
        }
        assert_eq!(rules(&rolling), 1);
        assert_eq!(rules("/properties/selector"), 1);
        assert_eq!(rules("/properties/scaleStrategy/properties/maxUnavailable"), 1);
        assert_eq!(spec["properties"]["replicas"]["minimum"], 0.0);
    }
}

#[test]
fn the_managers_webhook_converts() {
    let crd = ours();
    assert_eq!(crd["spec"]["conversion"]["strategy"], "Webhook");
    let service = &crd["spec"]["conversion"]["webhook"]["clientConfig"]["service"];
    assert_eq!(service["path"], "/convert");
    assert_eq!(service["name"], "kruise-webhook-service");
}

#[test]
fn the_only_default_of_a_spec_is_upstreams() {
    fn defaults(path: &str, schema: &Value, found: &mut Vec<String>) {
        if schema.get("default").is_some() {
            found.push(path.to_owned());
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            defaults(&format!("{path}.{name}"), property, found);
        }
        if let Some(items) = schema.get("items") {
            defaults(&format!("{path}[]"), items, found);
        }
    }
    let crd = ours();
    for (version, expected) in [(0, vec![]), (1, vec!["spec.scaleStrategy.enablePVCReuse"])] {
        let properties = &crd["spec"]["versions"][version]["schema"]["openAPIV3Schema"]["properties"];
        let mut found = Vec::new();
        defaults("spec", &properties["spec"], &mut found);
        defaults(
            "condition",
            &properties["status"]["properties"]["conditions"],
            &mut found,
        );
        assert_eq!(found, expected);
    }
}
