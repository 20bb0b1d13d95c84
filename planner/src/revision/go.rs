//! The form in which Go writes a pod template: which fields are always there, and which never when they are empty.
//!
//! The table is in the order of Go's declarations, which matters where fields are not sorted. It speaks of API types as they were when
//! an empty creation time was still written as `null`. What it does not name stays as it is.

use kruise_api::quantity;
use serde_json::{Map, Value, json};

use super::object;

/// How Go writes a field.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// A pointer, or something that is written as it is; left out when it is null.
    Any,
    /// A text, left out when empty.
    Text,
    /// A text, always there.
    TextAlways,
    /// A number, left out when 0.
    Number,
    /// A number, always there.
    NumberAlways,
    /// A truth value, left out when false.
    Flag,
    /// A list or a map of plain values, left out when empty.
    Plain,
    /// A list of structs, left out when empty.
    List(&'static str),
    /// A list of structs, null when it is not there.
    ListAlways(&'static str),
    /// A map of quantities, left out when empty.
    Quantities,
    /// A pointer to a quantity.
    Quantity,
    /// A quantity, always there.
    QuantityAlways,
    /// A struct inside the struct, always there.
    Struct(&'static str),
    /// A pointer to a struct.
    Ptr(&'static str),
    /// A time inside the struct: null when it is not there.
    Time,
    /// A pointer that is written as null when it is not there.
    Nullable,
}

/// The value as Go writes a field of this kind that has it.
pub(super) fn normal(value: &Value, kind: &Kind) -> Value {
    field(value, kind).unwrap_or(Value::Null)
}

/// None leaves the field out.
fn field(value: &Value, kind: &Kind) -> Option<Value> {
    let there = !value.is_null();
    let or = |empty: Value| Some(if there { value.clone() } else { empty });
    match kind {
        Kind::Any => there.then(|| value.clone()),
        Kind::Text => (there && value != "").then(|| value.clone()),
        Kind::TextAlways => or("".into()),
        Kind::Number => (there && value.as_i64() != Some(0)).then(|| value.clone()),
        Kind::NumberAlways => or(0.into()),
        Kind::Flag => (there && value != false).then(|| value.clone()),
        Kind::Plain => (there && !is_empty(value)).then(|| value.clone()),
        Kind::List(name) => (there && !is_empty(value)).then(|| list(value, name)),
        Kind::ListAlways(name) => Some(list(value, name)),
        Kind::Quantities => (there && !is_empty(value)).then(|| quantities(value)),
        Kind::Quantity => there.then(|| one_quantity(value)),
        Kind::QuantityAlways => Some(if there { one_quantity(value) } else { "0".into() }),
        Kind::Struct(name) => Some(structure(value, name)),
        Kind::Ptr(name) => there.then(|| structure(value, name)),
        Kind::Time | Kind::Nullable => Some(value.clone()),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

fn list(value: &Value, name: &'static str) -> Value {
    match value {
        Value::Array(items) => items.iter().map(|item| structure(item, name)).collect(),
        other => other.clone(),
    }
}

fn quantities(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let map: Map<_, _> = map
                .iter()
                .map(|(key, value)| (key.clone(), one_quantity(value)))
                .collect();
            Value::Object(map)
        }
        other => other.clone(),
    }
}

/// A number is a quantity too.
fn one_quantity(value: &Value) -> Value {
    let text = match value {
        Value::String(text) => quantity::canonical(text),
        Value::Number(number) => quantity::canonical(&number.to_string()),
        _ => None,
    };
    text.map_or_else(|| value.clone(), Value::String)
}

fn structure(value: &Value, name: &'static str) -> Value {
    if !value.is_null() && !value.is_object() {
        // Malformed; the API server would not make a pod of it.
        return value.clone();
    }
    let known = fields(name);
    let mut out = object(value);
    // What is unknown and null says nothing.
    out.retain(|key, value| !value.is_null() || known.iter().any(|(known, _)| known == key));
    for (key, kind) in known {
        let given = out.remove(*key).unwrap_or(Value::Null);
        if let Some(value) = field(&given, kind) {
            out.insert((*key).to_owned(), value);
        }
    }
    json!(out)
}

use Kind::{
    Any, Flag, List, ListAlways, Nullable, Number, NumberAlways, Plain, Ptr, Quantities, Quantity,
    QuantityAlways, Struct, Text, TextAlways, Time,
};

/// Fields of a type, in Go's order. Types that are not named have no fields that need care.
pub(super) fn fields(name: &str) -> &'static [(&'static str, Kind)] {
    match name {
        "PodTemplateSpec" => &[("metadata", Struct("ObjectMeta")), ("spec", Struct("PodSpec"))],
        "ObjectMeta" => &[
            ("name", Text),
            ("generateName", Text),
            ("namespace", Text),
            ("selfLink", Text),
            ("uid", Text),
            ("resourceVersion", Text),
            ("generation", Number),
            ("creationTimestamp", Time),
            ("deletionTimestamp", Any),
            ("deletionGracePeriodSeconds", Any),
            ("labels", Plain),
            ("annotations", Plain),
            ("ownerReferences", Plain),
            ("finalizers", Plain),
            ("managedFields", Plain),
        ],
        "PodSpec" => POD_SPEC,
        "Container" => CONTAINER,
        "Volume" => VOLUME,
        _ => small(name),
    }
}

const POD_SPEC: &[(&str, Kind)] = &[
    ("volumes", List("Volume")),
    ("initContainers", List("Container")),
    ("containers", ListAlways("Container")),
    ("ephemeralContainers", List("Container")),
    ("restartPolicy", Text),
    ("dnsPolicy", Text),
    ("nodeSelector", Plain),
    ("serviceAccountName", Text),
    ("serviceAccount", Text),
    ("nodeName", Text),
    ("hostNetwork", Flag),
    ("hostPID", Flag),
    ("hostIPC", Flag),
    ("securityContext", Ptr("PodSecurityContext")),
    ("imagePullSecrets", List("LocalObjectReference")),
    ("hostname", Text),
    ("subdomain", Text),
    ("affinity", Ptr("Affinity")),
    ("schedulerName", Text),
    ("tolerations", List("Toleration")),
    ("hostAliases", List("HostAlias")),
    ("priorityClassName", Text),
    ("dnsConfig", Ptr("PodDNSConfig")),
    ("readinessGates", List("ReadinessGate")),
    ("overhead", Quantities),
    ("topologySpreadConstraints", List("TopologySpreadConstraint")),
    ("schedulingGates", List("SchedulingGate")),
    ("resourceClaims", List("PodResourceClaim")),
    ("resources", Ptr("ResourceRequirements")),
];

const CONTAINER: &[(&str, Kind)] = &[
    ("name", TextAlways),
    ("image", Text),
    ("command", Plain),
    ("args", Plain),
    ("workingDir", Text),
    ("ports", List("ContainerPort")),
    ("envFrom", List("EnvFromSource")),
    ("env", List("EnvVar")),
    ("resources", Struct("ResourceRequirements")),
    ("resizePolicy", Plain),
    ("restartPolicyRules", Plain),
    ("volumeMounts", List("VolumeMount")),
    ("volumeDevices", Plain),
    ("livenessProbe", Ptr("Probe")),
    ("readinessProbe", Ptr("Probe")),
    ("startupProbe", Ptr("Probe")),
    ("lifecycle", Ptr("Lifecycle")),
    ("terminationMessagePath", Text),
    ("terminationMessagePolicy", Text),
    ("imagePullPolicy", Text),
    ("securityContext", Ptr("SecurityContext")),
    ("stdin", Flag),
    ("stdinOnce", Flag),
    ("tty", Flag),
    ("targetContainerName", Text),
];

const VOLUME: &[(&str, Kind)] = &[
    ("name", TextAlways),
    ("hostPath", Ptr("HostPathVolume")),
    ("emptyDir", Ptr("EmptyDirVolume")),
    ("secret", Ptr("SecretVolume")),
    ("nfs", Ptr("NfsVolume")),
    ("persistentVolumeClaim", Ptr("ClaimVolume")),
    ("downwardAPI", Ptr("DownwardVolume")),
    ("configMap", Ptr("ConfigMapVolume")),
    ("projected", Ptr("ProjectedVolume")),
    ("csi", Ptr("CsiVolume")),
    ("ephemeral", Ptr("EphemeralVolume")),
    ("image", Ptr("ImageVolume")),
];

fn small(name: &str) -> &'static [(&'static str, Kind)] {
    match name {
        "ResourceRequirements" => &[
            ("limits", Quantities),
            ("requests", Quantities),
            ("claims", List("ResourceClaim")),
        ],
        "ResourceClaim" => &[("name", TextAlways), ("request", Text)],
        "PodResourceClaim" | "SchedulingGate" => &[("name", TextAlways)],
        "LocalObjectReference" => &[("name", Text)],
        "ReadinessGate" => &[("conditionType", TextAlways)],
        "ContainerPort" => &[
            ("name", Text),
            ("hostPort", Number),
            ("containerPort", NumberAlways),
            ("protocol", Text),
            ("hostIP", Text),
        ],
        "EnvFromSource" => &[
            ("prefix", Text),
            ("configMapRef", Ptr("LocalObjectReference")),
            ("secretRef", Ptr("LocalObjectReference")),
        ],
        "EnvVar" => &[
            ("name", TextAlways),
            ("value", Text),
            ("valueFrom", Ptr("EnvVarSource")),
        ],
        "EnvVarSource" => &[
            ("fieldRef", Ptr("FieldRef")),
            ("resourceFieldRef", Ptr("ResourceFieldRef")),
            ("configMapKeyRef", Ptr("KeyRef")),
            ("secretKeyRef", Ptr("KeyRef")),
        ],
        "FieldRef" => &[("apiVersion", Text), ("fieldPath", TextAlways)],
        "ResourceFieldRef" => &[
            ("containerName", Text),
            ("resource", TextAlways),
            ("divisor", QuantityAlways),
        ],
        "KeyRef" => &[("name", Text), ("key", TextAlways)],
        "VolumeMount" => &[
            ("name", TextAlways),
            ("readOnly", Flag),
            ("mountPath", TextAlways),
            ("subPath", Text),
            ("subPathExpr", Text),
        ],
        _ => handler(name),
    }
}

fn handler(name: &str) -> &'static [(&'static str, Kind)] {
    match name {
        "Probe" => &[
            ("exec", Ptr("Exec")),
            ("httpGet", Ptr("HttpGet")),
            ("tcpSocket", Ptr("TcpSocket")),
            ("grpc", Ptr("Grpc")),
            ("initialDelaySeconds", Number),
            ("timeoutSeconds", Number),
            ("periodSeconds", Number),
            ("successThreshold", Number),
            ("failureThreshold", Number),
        ],
        "Lifecycle" => &[("postStart", Ptr("Handler")), ("preStop", Ptr("Handler"))],
        "Handler" => &[
            ("exec", Ptr("Exec")),
            ("httpGet", Ptr("HttpGet")),
            ("tcpSocket", Ptr("TcpSocket")),
            ("sleep", Ptr("Sleep")),
        ],
        "Exec" => &[("command", Plain)],
        "Sleep" => &[("seconds", NumberAlways)],
        "HttpGet" => &[
            ("path", Text),
            ("port", NumberAlways),
            ("host", Text),
            ("scheme", Text),
            ("httpHeaders", Plain),
        ],
        "TcpSocket" => &[("port", NumberAlways), ("host", Text)],
        "Grpc" => &[("port", NumberAlways), ("service", Nullable)],
        _ => pod_part(name),
    }
}

fn pod_part(name: &str) -> &'static [(&'static str, Kind)] {
    match name {
        "SecurityContext" => &[("capabilities", Ptr("Capabilities"))],
        "Capabilities" => &[("add", Plain), ("drop", Plain)],
        "PodSecurityContext" => &[("supplementalGroups", Plain), ("sysctls", Plain)],
        "Toleration" => &[
            ("key", Text),
            ("operator", Text),
            ("value", Text),
            ("effect", Text),
        ],
        "HostAlias" => &[("ip", TextAlways), ("hostnames", Plain)],
        "PodDNSConfig" => &[
            ("nameservers", Plain),
            ("searches", Plain),
            ("options", List("DnsOption")),
        ],
        "DnsOption" => &[("name", Text)],
        "TopologySpreadConstraint" => &[
            ("maxSkew", NumberAlways),
            ("topologyKey", TextAlways),
            ("whenUnsatisfiable", TextAlways),
            ("labelSelector", Ptr("LabelSelector")),
            ("matchLabelKeys", Plain),
        ],
        "LabelSelector" => &[("matchLabels", Plain), ("matchExpressions", List("Requirement"))],
        "Requirement" => &[("key", TextAlways), ("operator", TextAlways), ("values", Plain)],
        "PersistentVolumeClaimSpec" => &[
            ("accessModes", Plain),
            ("selector", Ptr("LabelSelector")),
            ("resources", Struct("ResourceRequirements")),
            ("volumeName", Text),
            ("storageClassName", Any),
            ("volumeMode", Any),
            ("dataSource", Ptr("TypedReference")),
            ("dataSourceRef", Ptr("TypedReference")),
            ("volumeAttributesClassName", Any),
        ],
        "TypedReference" => &[
            ("apiGroup", Nullable),
            ("kind", TextAlways),
            ("name", TextAlways),
            ("namespace", Any),
        ],
        _ => affinity(name),
    }
}

fn affinity(name: &str) -> &'static [(&'static str, Kind)] {
    match name {
        "Affinity" => &[
            ("nodeAffinity", Ptr("NodeAffinity")),
            ("podAffinity", Ptr("PodAffinity")),
            ("podAntiAffinity", Ptr("PodAffinity")),
        ],
        "NodeAffinity" => &[
            (
                "requiredDuringSchedulingIgnoredDuringExecution",
                Ptr("NodeSelector"),
            ),
            (
                "preferredDuringSchedulingIgnoredDuringExecution",
                List("PreferredTerm"),
            ),
        ],
        "NodeSelector" => &[("nodeSelectorTerms", ListAlways("NodeSelectorTerm"))],
        "NodeSelectorTerm" => &[
            ("matchExpressions", List("Requirement")),
            ("matchFields", List("Requirement")),
        ],
        "PreferredTerm" => &[
            ("weight", NumberAlways),
            ("preference", Struct("NodeSelectorTerm")),
        ],
        "PodAffinity" => &[
            (
                "requiredDuringSchedulingIgnoredDuringExecution",
                List("PodAffinityTerm"),
            ),
            (
                "preferredDuringSchedulingIgnoredDuringExecution",
                List("WeightedTerm"),
            ),
        ],
        "PodAffinityTerm" => &[
            ("labelSelector", Ptr("LabelSelector")),
            ("namespaces", Plain),
            ("topologyKey", TextAlways),
            ("namespaceSelector", Ptr("LabelSelector")),
            ("matchLabelKeys", Plain),
            ("mismatchLabelKeys", Plain),
        ],
        "WeightedTerm" => &[
            ("weight", NumberAlways),
            ("podAffinityTerm", Struct("PodAffinityTerm")),
        ],
        _ => volumes(name),
    }
}

fn volumes(name: &str) -> &'static [(&'static str, Kind)] {
    match name {
        "HostPathVolume" => &[("path", TextAlways)],
        "EmptyDirVolume" => &[("medium", Text), ("sizeLimit", Quantity)],
        "SecretVolume" => &[("secretName", Text), ("items", List("KeyToPath"))],
        "ConfigMapVolume" => &[("name", Text), ("items", List("KeyToPath"))],
        "KeyToPath" => &[("key", TextAlways), ("path", TextAlways)],
        "NfsVolume" => &[("server", TextAlways), ("path", TextAlways), ("readOnly", Flag)],
        "ClaimVolume" => &[("claimName", TextAlways), ("readOnly", Flag)],
        "DownwardVolume" => &[("items", List("DownwardItem"))],
        "DownwardItem" => &[
            ("path", TextAlways),
            ("fieldRef", Ptr("FieldRef")),
            ("resourceFieldRef", Ptr("ResourceFieldRef")),
        ],
        "ProjectedVolume" => &[("sources", ListAlways("ProjectedSource"))],
        "ProjectedSource" => &[
            ("secret", Ptr("ConfigMapVolume")),
            ("downwardAPI", Ptr("DownwardVolume")),
            ("configMap", Ptr("ConfigMapVolume")),
            ("serviceAccountToken", Ptr("TokenSource")),
        ],
        "TokenSource" => &[("audience", Text), ("path", TextAlways)],
        "CsiVolume" => &[("driver", TextAlways), ("volumeAttributes", Plain)],
        "EphemeralVolume" => &[("volumeClaimTemplate", Ptr("ClaimTemplate"))],
        "ClaimTemplate" => &[
            ("metadata", Struct("ObjectMeta")),
            ("spec", Struct("PersistentVolumeClaimSpec")),
        ],
        "ImageVolume" => &[("reference", Text), ("pullPolicy", Text)],
        _ => &[],
    }
}
