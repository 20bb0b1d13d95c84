use serde_json::{Value, json};

use super::clone_set;

fn ours() -> Value {
    serde_json::to_value(clone_set()).expect("writable")
}

#[test]
fn selector_and_template_are_needed_and_the_template_may_hold_anything() {
    for version in ours()["spec"]["versions"].as_array().expect("versions") {
        let spec = &version["schema"]["openAPIV3Schema"]["properties"]["spec"];
        assert_eq!(spec["required"], json!(["selector", "template"]));
        assert_eq!(spec["properties"]["selector"]["x-kubernetes-map-type"], "atomic");
        assert_eq!(
            spec["properties"]["template"]["x-kubernetes-preserve-unknown-fields"],
            true
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
