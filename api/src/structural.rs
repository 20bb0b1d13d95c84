//! Checks an object against the schema of its CRD, as the API server does before anything else: types, required fields, bounds, and
//! fields that it would drop.
//!
//! Rules in CEL are not looked at; the admission functions repeat them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::{Map, Value};

/// What the schema says of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Structure {
    /// What does not fit: path and text.
    pub errors: Vec<(String, String)>,
    /// Fields that are not known and would be dropped.
    pub unknown: Vec<String>,
}

/// Checks `spec` of an object against a version of its CRD. None when the CRD has no such version.
#[must_use]
pub fn check(crd: &CustomResourceDefinition, version: &str, object: &Value) -> Option<Structure> {
    let version = crd
        .spec
        .versions
        .iter()
        .find(|candidate| candidate.name == version)?;
    let root = version.schema.as_ref()?.open_api_v3_schema.as_ref()?;
    let mut found = Structure::default();
    for key in object.as_object()?.keys() {
        if !["apiVersion", "kind", "metadata", "spec", "status"].contains(&key.as_str()) {
            found.unknown.push(key.clone());
        }
    }
    let spec = root.properties.as_ref()?.get("spec")?;
    match object.get("spec").filter(|spec| !spec.is_null()) {
        Some(value) => walk(spec, value, "spec", &mut found),
        None => found.errors.push(("spec".to_owned(), "is needed".to_owned())),
    }
    Some(found)
}

fn walk(schema: &JSONSchemaProps, value: &Value, path: &str, found: &mut Structure) {
    let mut refuse = |text: String| found.errors.push((path.to_owned(), text));
    if value.is_null() {
        return;
    }
    if schema.x_kubernetes_int_or_string == Some(true) {
        let fits = match value {
            Value::Number(number) => number
                .as_i64()
                .is_some_and(|number| i32::try_from(number).is_ok()),
            other => other.is_string(),
        };
        if !fits {
            refuse(format!(
                "is {}; a whole number of 32 bits or a text is needed",
                kind(value)
            ));
        }
        return;
    }
    let wanted = schema.type_.as_deref();
    if let Some(wanted) = wanted
        && !is(value, wanted)
    {
        refuse(format!("is {}; {} is needed", kind(value), article(wanted)));
        return;
    }
    bounds(schema, value, &mut refuse);
    match value {
        Value::Object(map) => fields(schema, map, path, found),
        Value::Array(items) => {
            if let Some(JSONSchemaPropsOrArray::Schema(schema)) = &schema.items {
                for (index, value) in items.iter().enumerate() {
                    walk(schema, value, &format!("{path}[{index}]"), found);
                }
            }
        }
        _ => {}
    }
}

fn fields(schema: &JSONSchemaProps, map: &Map<String, Value>, path: &str, found: &mut Structure) {
    for name in schema.required.iter().flatten() {
        if map.get(name).is_none_or(Value::is_null) {
            found
                .errors
                .push((format!("{path}.{name}"), "is needed".to_owned()));
        }
    }
    for (name, value) in map {
        let known = schema
            .properties
            .as_ref()
            .and_then(|properties| properties.get(name));
        match (known, &schema.additional_properties) {
            (Some(schema), _) => walk(schema, value, &format!("{path}.{name}"), found),
            (None, Some(JSONSchemaPropsOrBool::Schema(schema))) => {
                walk(schema, value, &format!("{path}[{name}]"), found);
            }
            _ if schema.x_kubernetes_preserve_unknown_fields == Some(true) => {}
            _ => found.unknown.push(format!("{path}.{name}")),
        }
    }
}

fn bounds(schema: &JSONSchemaProps, value: &Value, refuse: &mut impl FnMut(String)) {
    if let Some(number) = value.as_f64() {
        if schema.format.as_deref() == Some("int32")
            && i32::try_from(value.as_i64().unwrap_or(i64::MAX)).is_err()
        {
            refuse("must be a whole number of 32 bits".to_owned());
        } else if let Some(minimum) = schema.minimum.filter(|minimum| number < *minimum) {
            refuse(format!("is {value}; the least is {minimum}"));
        } else if let Some(maximum) = schema.maximum.filter(|maximum| number > *maximum) {
            refuse(format!("is {value}; the most is {maximum}"));
        }
    }
    let length = match value {
        Value::String(text) => Some((
            text.chars().count(),
            schema.min_length,
            schema.max_length,
            "characters",
        )),
        Value::Array(items) => Some((items.len(), schema.min_items, schema.max_items, "items")),
        Value::Object(map) => Some((map.len(), schema.min_properties, schema.max_properties, "entries")),
        _ => None,
    };
    if let Some((length, least, most, of)) = length {
        let length = i64::try_from(length).unwrap_or(i64::MAX);
        if let Some(least) = least.filter(|least| length < *least) {
            refuse(format!("has {length} {of}; the least is {least}"));
        }
        if let Some(most) = most.filter(|most| length > *most) {
            refuse(format!("has {length} {of}; the most is {most}"));
        }
    }
    if let Some(accepted) = &schema.enum_
        && !accepted.iter().any(|accepted| accepted.0 == *value)
    {
        let accepted: Vec<_> = accepted.iter().map(|accepted| accepted.0.to_string()).collect();
        refuse(format!("is {value}; accepted are {}", accepted.join(", ")));
    }
    if let (Some("date-time"), Some(text)) = (schema.format.as_deref(), value.as_str())
        && text.parse::<jiff::Timestamp>().is_err()
    {
        refuse(format!("{text:?} is no time, such as 2026-01-31T12:00:00Z"));
    }
}

fn is(value: &Value, wanted: &str) -> bool {
    match wanted {
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => true,
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn article(wanted: &str) -> &str {
    match wanted {
        "string" => "a text",
        "boolean" => "true or false",
        "integer" => "a whole number",
        "number" => "a number",
        "array" => "a list",
        "object" => "an object",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::crd;

    fn set(version: &str, spec: &Value) -> Structure {
        check(&crd::clone_set(), version, &json!({"metadata": {}, "spec": spec})).expect("a version")
    }

    #[test]
    fn what_does_not_fit_is_named_by_its_place() {
        let whole = |extra: &Value| {
            let mut spec = json!({"selector": {}, "template": {"anything": {"goes": 1}}});
            for (key, value) in extra.as_object().expect("fields") {
                spec[key] = value.clone();
            }
            set("v1beta1", &spec).errors
        };
        assert_eq!(
            whole(&json!({"lifecycle": null, "volumeClaimTemplates": [{"x": 1}]})),
            []
        );
        for (extra, path, text) in [
            (
                json!({"replicas": "3"}),
                "spec.replicas",
                "is a text; a whole number is needed",
            ),
            (
                json!({"replicas": 1.5}),
                "spec.replicas",
                "is a number; a whole number is needed",
            ),
            (
                json!({"replicas": 3_000_000_000_i64}),
                "spec.replicas",
                "must be a whole number of 32 bits",
            ),
            (json!({"replicas": -1}), "spec.replicas", "is -1; the least is 0"),
            (
                json!({"template": []}),
                "spec.template",
                "is a list; an object is needed",
            ),
            (json!({"template": null}), "spec.template", "is needed"),
            (
                json!({"updateStrategy": {"rollingUpdate": {"partition": 3_000_000_000_i64}}}),
                "spec.updateStrategy.rollingUpdate.partition",
                "is a number; a whole number of 32 bits or a text is needed",
            ),
            (
                json!({"selector": {"matchLabels": {"a": 1}}}),
                "spec.selector.matchLabels[a]",
                "is a number; a text is needed",
            ),
            (
                json!({"selector": {"matchExpressions": [{"key": "a"}]}}),
                "spec.selector.matchExpressions[0].operator",
                "is needed",
            ),
            (
                json!({"updateStrategy": {"rollingUpdate": {"priorityStrategy": {"weightPriority": [{"weight": 101, "matchSelector": {}}]}}}}),
                "spec.updateStrategy.rollingUpdate.priorityStrategy.weightPriority[0].weight",
                "is 101; the most is 100",
            ),
        ] {
            assert_eq!(whole(&extra), [(path.to_owned(), text.to_owned())], "{extra}");
        }
    }

    #[test]
    fn fields_of_the_other_version_are_unknown() {
        let spec = json!({"selector": {}, "template": {}, "updateStrategy": {"partition": 1}, "scaleStrategy": {"enablePVCReuse": true}});
        assert_eq!(
            set("v1alpha1", &spec).unknown,
            ["spec.scaleStrategy.enablePVCReuse"]
        );
        assert_eq!(set("v1beta1", &spec).unknown, ["spec.updateStrategy.partition"]);
        assert_eq!(check(&crd::clone_set(), "v1", &json!({})), None);
        let found = check(&crd::clone_set(), "v1beta1", &json!({"spce": {}})).expect("a version");
        assert_eq!((found.unknown, found.errors.len()), (vec!["spce".to_owned()], 1));
    }
}
