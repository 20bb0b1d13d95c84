//! The pod template: a subset of Kubernetes' rules, of which the most frequent slips are part.
//!
//! The API server knows all of them: a dry run of creating a core PodTemplate asks it. This is for where there is no API server.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    Container, EnvVar, PersistentVolumeClaim, PodSpec, PodTemplateSpec, Probe, Volume,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::Deserialize as _;
use serde_json::Value;

use super::{Report, check_labels};
use crate::admission::is_label_key;
use crate::quantity;

const ROOT: &str = "spec.template";

pub(super) fn check(template: &Value, claims: Option<&Value>, report: &mut Report) {
    let names = check_claims(claims, report);
    if template.is_null() {
        report.refuse(ROOT, "is needed");
        return;
    }
    let template = match PodTemplateSpec::deserialize(template) {
        Ok(template) => template,
        Err(error) => {
            report.refuse(ROOT, format!("is not readable: {error}"));
            return;
        }
    };
    if let Some(metadata) = &template.metadata {
        check_labels(
            "spec.template.metadata.labels",
            metadata.labels.iter().flatten(),
            report,
        );
        for (key, _) in metadata.annotations.iter().flatten() {
            if !is_label_key(&key.to_lowercase()) {
                report.refuse(
                    "spec.template.metadata.annotations",
                    format!("{key:?} is no key of an annotation"),
                );
            }
        }
    }
    match &template.spec {
        Some(spec) => check_spec(spec, &names, report),
        None => report.refuse("spec.template.spec", "is needed"),
    }
}

/// Names of the claim templates: each is a volume of every pod.
fn check_claims(claims: Option<&Value>, report: &mut Report) -> Vec<String> {
    let Some(claims) = claims.filter(|claims| !claims.is_null()) else {
        return Vec::new();
    };
    let claims = match Vec::<PersistentVolumeClaim>::deserialize(claims) {
        Ok(claims) => claims,
        Err(error) => {
            report.refuse("spec.volumeClaimTemplates", format!("is not readable: {error}"));
            return Vec::new();
        }
    };
    claims
        .into_iter()
        .map(|claim| claim.metadata.name.unwrap_or_default())
        .collect()
}

fn check_spec(spec: &PodSpec, claims: &[String], report: &mut Report) {
    let path = "spec.template.spec";
    match spec.restart_policy.as_deref() {
        None | Some("" | "Always") => {}
        Some(other) => report.refuse(
            format!("{path}.restartPolicy"),
            format!("{other:?} is not supported; accepted is Always"),
        ),
    }
    if spec.active_deadline_seconds.is_some() {
        report.refuse(
            format!("{path}.activeDeadlineSeconds"),
            "is not supported: pods of a set have no deadline",
        );
    }
    one_of(
        &format!("{path}.dnsPolicy"),
        spec.dns_policy.as_deref(),
        &["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"],
        report,
    );
    if spec
        .termination_grace_period_seconds
        .is_some_and(|seconds| seconds < 0)
    {
        report.refuse(
            format!("{path}.terminationGracePeriodSeconds"),
            "must not be negative",
        );
    }
    let volumes = check_volumes(spec.volumes.as_deref().unwrap_or_default(), claims, report);
    if spec.containers.is_empty() {
        report.refuse(format!("{path}.containers"), "at least one container is needed");
    }
    let mut seen = BTreeSet::new();
    for (list, containers) in [
        (
            "initContainers",
            spec.init_containers.as_deref().unwrap_or_default(),
        ),
        ("containers", spec.containers.as_slice()),
    ] {
        for (index, container) in containers.iter().enumerate() {
            let path = format!("{path}.{list}[{index}]");
            if !seen.insert(container.name.as_str()) {
                report.refuse(
                    format!("{path}.name"),
                    format!("{:?} is taken already", container.name),
                );
            }
            check_container(&path, container, &volumes, report);
        }
    }
}

fn check_volumes<'a>(volumes: &'a [Volume], claims: &'a [String], report: &mut Report) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    for (index, name) in claims.iter().enumerate() {
        check_name(
            &format!("spec.volumeClaimTemplates[{index}].metadata.name"),
            name,
            report,
        );
        if !seen.insert(name.as_str()) {
            report.refuse(
                format!("spec.volumeClaimTemplates[{index}].metadata.name"),
                format!("{name:?} is taken already"),
            );
        }
    }
    for (index, volume) in volumes.iter().enumerate() {
        let path = format!("spec.template.spec.volumes[{index}].name");
        check_name(&path, &volume.name, report);
        if !seen.insert(volume.name.as_str()) {
            report.refuse(path, format!("{:?} is taken already", volume.name));
        }
    }
    seen
}

fn check_container(path: &str, container: &Container, volumes: &BTreeSet<&str>, report: &mut Report) {
    check_name(&format!("{path}.name"), &container.name, report);
    let image = container.image.as_deref().unwrap_or_default();
    if image.is_empty() {
        report.refuse(format!("{path}.image"), "is needed");
    } else if image.trim() != image {
        report.refuse(format!("{path}.image"), format!("{image:?} has spaces around it"));
    }
    one_of(
        &format!("{path}.imagePullPolicy"),
        container.image_pull_policy.as_deref(),
        &["Always", "IfNotPresent", "Never"],
        report,
    );
    one_of(
        &format!("{path}.terminationMessagePolicy"),
        container.termination_message_policy.as_deref(),
        &["File", "FallbackToLogsOnError"],
        report,
    );
    check_ports(path, container, report);
    for (index, variable) in container.env.iter().flatten().enumerate() {
        check_variable(&format!("{path}.env[{index}]"), variable, report);
    }
    let mut seen = BTreeSet::new();
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let path = format!("{path}.volumeMounts[{index}]");
        if !volumes.contains(mount.name.as_str()) {
            report.refuse(
                format!("{path}.name"),
                format!("there is no volume {:?}", mount.name),
            );
        }
        if mount.mount_path.is_empty() {
            report.refuse(format!("{path}.mountPath"), "is needed");
        } else if !seen.insert(&mount.mount_path) {
            report.refuse(
                format!("{path}.mountPath"),
                format!("{:?} is taken already", mount.mount_path),
            );
        }
    }
    check_resources(path, container, report);
    for (name, probe) in [
        ("livenessProbe", &container.liveness_probe),
        ("readinessProbe", &container.readiness_probe),
        ("startupProbe", &container.startup_probe),
    ] {
        if let Some(probe) = probe {
            check_probe(&format!("{path}.{name}"), name, probe, report);
        }
    }
}

fn check_ports(path: &str, container: &Container, report: &mut Report) {
    let mut names = BTreeSet::new();
    for (index, port) in container.ports.iter().flatten().enumerate() {
        let path = format!("{path}.ports[{index}]");
        if !(1..=65535).contains(&port.container_port) {
            report.refuse(
                format!("{path}.containerPort"),
                format!("is {}; accepted are 1 to 65535", port.container_port),
            );
        }
        if port.host_port.is_some_and(|port| !(0..=65535).contains(&port)) {
            report.refuse(format!("{path}.hostPort"), "accepted are 1 to 65535");
        }
        one_of(
            &format!("{path}.protocol"),
            port.protocol.as_deref(),
            &["TCP", "UDP", "SCTP"],
            report,
        );
        if let Some(name) = &port.name
            && !names.insert(name)
        {
            report.refuse(format!("{path}.name"), format!("{name:?} is taken already"));
        }
    }
}

fn check_variable(path: &str, variable: &EnvVar, report: &mut Report) {
    if variable.name.is_empty() || variable.name.contains('=') {
        report.refuse(format!("{path}.name"), "is needed, without '='");
    }
    let value = variable.value.as_deref().unwrap_or_default();
    if variable.value_from.is_some() && !value.is_empty() {
        report.refuse(format!("{path}.valueFrom"), "not together with value");
    }
}

fn check_resources(path: &str, container: &Container, report: &mut Report) {
    let Some(resources) = &container.resources else {
        return;
    };
    let mut read = |kind: &str, name: &str, amount: &Quantity| match quantity::amount(&amount.0) {
        Some(number) if number < 0 => {
            report.refuse(format!("{path}.resources.{kind}[{name}]"), "must not be negative");
            None
        }
        Some(number) => Some(number),
        None => {
            report.refuse(
                format!("{path}.resources.{kind}[{name}]"),
                format!("{:?} is no quantity, such as 500m or 1Gi", amount.0),
            );
            None
        }
    };
    let limits: Vec<_> = resources
        .limits
        .iter()
        .flatten()
        .map(|(name, amount)| (name, read("limits", name, amount)))
        .collect();
    let mut above = Vec::new();
    for (name, amount) in resources.requests.iter().flatten() {
        let request = read("requests", name, amount);
        let limit = limits
            .iter()
            .find(|(limited, _)| *limited == name)
            .and_then(|(_, limit)| *limit);
        if let (Some(request), Some(limit)) = (request, limit)
            && request > limit
        {
            above.push(name);
        }
    }
    for name in above {
        report.refuse(
            format!("{path}.resources.requests[{name}]"),
            "must not be more than its limit",
        );
    }
}

fn check_probe(path: &str, name: &str, probe: &Probe, report: &mut Report) {
    let handlers = [
        probe.exec.is_some(),
        probe.http_get.is_some(),
        probe.tcp_socket.is_some(),
        probe.grpc.is_some(),
    ];
    if handlers.iter().filter(|there| **there).count() != 1 {
        report.refuse(path, "exactly one of exec, httpGet, tcpSocket and grpc is needed");
    }
    for (field, value) in [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ] {
        if value.is_some_and(|value| value < 0) {
            report.refuse(format!("{path}.{field}"), "must not be negative");
        }
    }
    if name != "readinessProbe" && probe.success_threshold.is_some_and(|threshold| threshold > 1) {
        report.refuse(format!("{path}.successThreshold"), "must be 1 for this probe");
    }
}

fn one_of(path: &str, value: Option<&str>, accepted: &[&str], report: &mut Report) {
    if let Some(value) = value.filter(|value| !value.is_empty() && !accepted.contains(value)) {
        report.refuse(
            path,
            format!("{value:?} is not known; accepted are {}", accepted.join(", ")),
        );
    }
}

/// Names of containers and volumes.
fn check_name(path: &str, name: &str, report: &mut Report) {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let fits = name.len() <= 63
        && name.starts_with(inner)
        && name.ends_with(inner)
        && name.chars().all(|c| inner(c) || c == '-');
    if name.is_empty() {
        report.refuse(path, "is needed");
    } else if !fits {
        report.refuse(
            path,
            format!("{name:?} is no DNS label: lower-case letters, digits and '-', at most 63 characters"),
        );
    }
}
