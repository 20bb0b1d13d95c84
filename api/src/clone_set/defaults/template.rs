//! Defaults that Kubernetes fills into a pod template. What is malformed is left as it is: validation speaks about it.

use serde_json::{Map, Value, json};

use crate::reference::ImageRef;

/// What an empty `imagePullPolicy` of a main container becomes. Init containers always follow the tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullDefault {
    /// As the CloneSet webhook does.
    Always,
    /// As Kubernetes does: Always for `latest`, else IfNotPresent.
    ByTag,
}

type Object = Map<String, Value>;

/// Fills Kubernetes' defaults into a pod template.
pub fn fill_template(template: &mut Value, pull: PullDefault, host_ports: bool) {
    let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    each(spec, "volumes", volume);
    let host_ports = host_ports && spec.get("hostNetwork") == Some(&Value::Bool(true));
    each(spec, "initContainers", |fields| {
        container(fields, PullDefault::ByTag, host_ports);
    });
    each(spec, "containers", |fields| container(fields, pull, host_ports));
    text(spec, "restartPolicy", "Always");
    text(spec, "dnsPolicy", "ClusterFirst");
    text(spec, "schedulerName", "default-scheduler");
    value(spec, "securityContext", &json!({}));
    value(spec, "terminationGracePeriodSeconds", &json!(30));
}

fn container(fields: &mut Object, pull: PullDefault, host_ports: bool) {
    let image = fields.get("image").and_then(Value::as_str).unwrap_or_default();
    let policy = match pull {
        PullDefault::Always => "Always",
        PullDefault::ByTag => by_tag(image),
    };
    text(fields, "imagePullPolicy", policy);
    text(fields, "terminationMessagePath", "/dev/termination-log");
    text(fields, "terminationMessagePolicy", "File");
    each(fields, "ports", |port| {
        text(port, "protocol", "TCP");
        let unset = port
            .get("hostPort")
            .is_none_or(|port| port.is_null() || *port == 0);
        if let Some(number) = port.get("containerPort").filter(|_| host_ports && unset).cloned() {
            port.insert("hostPort".to_owned(), number);
        }
    });
    each(fields, "env", |variable| {
        if let Some(source) = inner(variable, "valueFrom") {
            field_ref(source);
        }
    });
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = inner(fields, name) {
            self::probe(probe);
        }
    }
    if let Some(lifecycle) = inner(fields, "lifecycle") {
        for name in ["postStart", "preStop"] {
            if let Some(handler) = inner(lifecycle, name) {
                http_get(handler);
            }
        }
    }
}

/// Kubernetes' rule for an empty pull policy.
fn by_tag(image: &str) -> &'static str {
    let latest = ImageRef::parse(image).is_ok_and(|image| image.canonical().ends_with(":latest"));
    if latest { "Always" } else { "IfNotPresent" }
}

fn probe(probe: &mut Object) {
    http_get(probe);
    if let Some(grpc) = inner(probe, "grpc") {
        value(grpc, "service", &json!(""));
    }
    for (name, default) in [
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ] {
        number(probe, name, default);
    }
}

fn http_get(handler: &mut Object) {
    if let Some(get) = inner(handler, "httpGet") {
        text(get, "path", "/");
        text(get, "scheme", "HTTP");
    }
}

fn field_ref(source: &mut Object) {
    if let Some(field) = inner(source, "fieldRef") {
        text(field, "apiVersion", "v1");
    }
}

fn volume(fields: &mut Object) {
    if fields
        .iter()
        .all(|(name, source)| name == "name" || source.is_null())
    {
        fields.insert("emptyDir".to_owned(), json!({}));
    }
    for name in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = inner(fields, name) {
            value(source, "defaultMode", &json!(0o644));
        }
    }
    if let Some(downward) = inner(fields, "downwardAPI") {
        each(downward, "items", field_ref);
    }
    if let Some(projected) = inner(fields, "projected") {
        each(projected, "sources", |source| {
            if let Some(token) = inner(source, "serviceAccountToken") {
                value(token, "expirationSeconds", &json!(3600));
            }
            if let Some(downward) = inner(source, "downwardAPI") {
                each(downward, "items", field_ref);
            }
        });
    }
    if let Some(path) = inner(fields, "hostPath") {
        value(path, "type", &json!(""));
    }
    if let Some(image) = inner(fields, "image") {
        let reference = image.get("reference").and_then(Value::as_str).unwrap_or_default();
        let policy = by_tag(reference);
        text(image, "pullPolicy", policy);
    }
    if let Some(iscsi) = inner(fields, "iscsi") {
        text(iscsi, "iscsiInterface", "default");
    }
    let claim = inner(fields, "ephemeral").and_then(|source| inner(source, "volumeClaimTemplate"));
    if let Some(spec) = claim.and_then(|claim| inner(claim, "spec")) {
        value(spec, "volumeMode", &json!("Filesystem"));
    }
}

/// A text that is absent or empty.
fn text(fields: &mut Object, name: &str, default: &str) {
    let unset = fields
        .get(name)
        .is_none_or(|value| value.is_null() || value == "");
    if unset {
        fields.insert(name.to_owned(), default.into());
    }
}

/// A number that is absent or 0.
fn number(fields: &mut Object, name: &str, default: i64) {
    let unset = fields
        .get(name)
        .is_none_or(|value| value.is_null() || *value == 0);
    if unset {
        fields.insert(name.to_owned(), default.into());
    }
}

/// A pointer that is absent.
fn value(fields: &mut Object, name: &str, default: &Value) {
    if fields.get(name).is_none_or(Value::is_null) {
        fields.insert(name.to_owned(), default.clone());
    }
}

fn inner<'a>(fields: &'a mut Object, name: &str) -> Option<&'a mut Object> {
    fields.get_mut(name).and_then(Value::as_object_mut)
}

fn each(fields: &mut Object, name: &str, mut change: impl FnMut(&mut Object)) {
    let items = fields.get_mut(name).and_then(Value::as_array_mut);
    for item in items.into_iter().flatten() {
        if let Some(fields) = item.as_object_mut() {
            change(fields);
        }
    }
}
