//! What the chart makes, rendered by helm: rights, pod security, webhooks, values of OpenKruise, alert rules and dashboard.
//!
//! `cargo xtask setup` builds helm; without it these tests say so and pass.

#![allow(clippy::panic, clippy::print_stderr, reason = "a test")]

#[path = "chart/rights.rs"]
mod rights;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use kruise_tests::tools::GO_TOOLS;
use serde::Deserialize;
use serde_json::{Value, json};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace")
        .to_path_buf()
}

fn helm() -> Option<PathBuf> {
    let tool = GO_TOOLS.iter().find(|tool| tool.program == "helm")?;
    let path = tool.path().ok()?;
    if !path.exists() {
        eprintln!("skipped: there is no {}; run `cargo xtask setup`", path.display());
        return None;
    }
    Some(path)
}

/// The objects, or helm's words. None without helm.
fn render(values: &Value) -> Option<Result<Vec<Value>, String>> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), values.to_string()).expect("written");
    let output = Command::new(helm()?)
        .args(["template", "kruise"])
        .arg(root().join("deploy/chart"))
        .args([
            "--namespace",
            "kruise-system",
            "--kube-version",
            "1.34.0",
            "--values",
        ])
        .arg(file.path())
        .output()
        .expect("helm runs");
    if !output.status.success() {
        return Some(Err(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let text = String::from_utf8(output.stdout).expect("text");
    let documents = serde_norway::Deserializer::from_str(&text);
    let objects = documents.map(|document| Value::deserialize(document).expect("YAML"));
    Some(Ok(objects.filter(|object| !object.is_null()).collect()))
}

fn objects(values: &Value) -> Option<Vec<Value>> {
    render(values).map(|result| result.unwrap_or_else(|words| panic!("{values}: {words}")))
}

fn list<'a>(value: &'a Value, path: &str) -> impl Iterator<Item = &'a Value> {
    value
        .pointer(path)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn texts(value: &Value, path: &str) -> BTreeSet<String> {
    list(value, path)
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

fn of_kind<'a>(objects: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(move |object| object["kind"] == kind)
}

/// The pod of a workload, a job or a pod.
fn pod_spec(object: &Value) -> Option<&Value> {
    match object["kind"].as_str()? {
        "Deployment" | "DaemonSet" | "Job" => object.pointer("/spec/template/spec"),
        "Pod" => object.get("spec"),
        _ => None,
    }
}

#[test]
fn every_pod_has_as_little_power_as_it_needs() {
    let Some(objects) = objects(&json!({})) else {
        return;
    };
    let mut seen = 0;
    for object in &objects {
        let Some(pod) = pod_spec(object) else { continue };
        let name = &object["metadata"]["name"];
        seen += 1;
        assert_eq!(
            pod.pointer("/securityContext/seccompProfile/type"),
            Some(&json!("RuntimeDefault")),
            "{name}"
        );
        for forbidden in ["hostNetwork", "hostPID", "hostIPC"] {
            assert!(pod[forbidden].is_null(), "{name}: {forbidden}");
        }
        for container in list(pod, "/containers") {
            let security = &container["securityContext"];
            assert_eq!(security["readOnlyRootFilesystem"], true, "{name}");
            assert_eq!(security["allowPrivilegeEscalation"], false, "{name}");
            assert_eq!(security["capabilities"], json!({"drop": ["ALL"]}), "{name}");
            assert!(security["privileged"].is_null(), "{name}");
        }
        if name == "kruise-daemon" {
            assert_eq!(pod["automountServiceAccountToken"], false);
            let hosts: BTreeSet<_> = list(pod, "/volumes")
                .filter_map(|volume| volume["hostPath"]["path"].as_str())
                .collect();
            let known = [
                "/run/containerd",
                "/run/crio",
                "/run/k3s/containerd",
                "/run/kruise",
                "/var/lib/kruise-daemon",
            ];
            assert_eq!(hosts, BTreeSet::from(known));
        } else {
            assert_eq!(
                pod.pointer("/securityContext/runAsNonRoot"),
                Some(&json!(true)),
                "{name}"
            );
            assert!(
                list(pod, "/volumes").all(|volume| volume["hostPath"].is_null()),
                "{name}"
            );
        }
    }
    assert_eq!(seen, 4, "manager, agents, guard and test");
}

#[test]
fn plug_ins_log_ins_and_the_file_system_of_images_are_mounted_where_they_are_wanted() {
    let values = json!({"daemon": {
        "credentialProvider": {"enable": true, "configmap": "plug-ins", "hostPath": "/opt/plug-ins", "awsCredentialsDir": "/root/.aws"},
        "dockerConfigLocation": "/root/.docker", "imageLocation": "/var/lib/containerd",
    }});
    let Some(objects) = objects(&values) else { return };
    let agents = of_kind(&objects, "DaemonSet").next().expect("agents");
    let pod = pod_spec(agents).expect("a pod");
    let container = &pod["containers"][0];
    let args = texts(container, "/args");
    for (flag, folder) in [
        (
            "--image-credential-provider-config=/kruise/config/CredentialProviderPlugin.yaml",
            "/kruise/config",
        ),
        (
            "--image-credential-provider-bin-dir=/kruise/plugins",
            "/kruise/plugins",
        ),
    ] {
        assert!(args.contains(flag), "{args:?}");
        assert!(
            list(container, "/volumeMounts").any(|mount| mount["mountPath"] == folder),
            "{folder}"
        );
    }
    for (place, source) in [
        ("/kruise/plugins", "/opt/plug-ins"),
        ("/kruise/aws", "/root/.aws"),
        ("/.docker", "/root/.docker"),
        ("/var/lib/containerd", "/var/lib/containerd"),
    ] {
        let mount = list(container, "/volumeMounts").find(|mount| mount["mountPath"] == place);
        let mount = mount.unwrap_or_else(|| panic!("nothing is mounted at {place}"));
        assert_eq!(mount["readOnly"], true, "{place}");
        let volume = list(pod, "/volumes").find(|volume| volume["name"] == mount["name"]);
        let volume = volume.unwrap_or_else(|| panic!("no volume for {place}"));
        assert_eq!(volume["hostPath"]["path"], source);
    }
    // A folder that is not absolute means nothing on a node, and the default is none.
    let refused = render(&json!({"daemon": {"credentialProvider": {"enable": true}}}));
    let words = refused.expect("helm is there").expect_err("refused");
    assert!(words.contains("hostPath"), "{words}");
}

#[test]
fn agents_have_no_rights_and_the_manager_lists_no_secrets() {
    let all =
        json!({"monitoring": {"serviceMonitor": {"enabled": true}}, "networkPolicy": {"enabled": true}});
    for values in [json!({}), all] {
        let Some(objects) = objects(&values) else { return };
        for binding in objects.iter().filter(|object| {
            object["kind"]
                .as_str()
                .is_some_and(|kind| kind.ends_with("RoleBinding"))
        }) {
            for subject in list(binding, "/subjects") {
                assert_ne!(subject["name"], "kruise-daemon", "{binding}");
            }
        }
        for role in objects
            .iter()
            .filter(|object| object["kind"].as_str().is_some_and(|kind| kind.ends_with("Role")))
        {
            for rule in list(role, "/rules") {
                let (verbs, resources) = (texts(rule, "/verbs"), texts(rule, "/resources"));
                assert!(!verbs.contains("*") && !resources.contains("*"), "{rule}");
                for forbidden in ["escalate", "bind", "impersonate"] {
                    assert!(!verbs.contains(forbidden), "{rule}");
                }
                if resources.contains("secrets") {
                    let named = !texts(rule, "/resourceNames").is_empty();
                    let allowed: BTreeSet<_> = if named {
                        ["get", "update"].as_slice()
                    } else {
                        &["get"]
                    }
                    .iter()
                    .map(|verb| (*verb).to_owned())
                    .collect();
                    assert!(verbs.is_subset(&allowed), "{rule}");
                }
            }
        }
    }
}

#[test]
fn secrets_can_be_narrowed_to_namespaces() {
    let values = json!({"manager": {"pullSecretNamespaces": ["team-a"]}});
    let Some(objects) = objects(&values) else { return };
    let cluster_wide = of_kind(&objects, "ClusterRoleBinding")
        .any(|binding| binding["metadata"]["name"] == "kruise-pull-secrets");
    assert!(!cluster_wide);
    let narrowed =
        of_kind(&objects, "RoleBinding").any(|binding| binding["metadata"]["namespace"] == "team-a");
    assert!(narrowed);
}

#[test]
fn webhooks_have_somebody_behind_them_and_never_hold_foreign_pods_up() {
    let Some(objects) = objects(&json!({"webhookConfiguration": {"timeoutSeconds": 20}})) else {
        return;
    };
    let served = fs::read_to_string(root().join("manager/src/webhook/judges.rs")).expect("readable");
    let kinds = ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"];
    let mut seen = 0;
    for webhook in kinds
        .into_iter()
        .flat_map(|kind| of_kind(&objects, kind))
        .flat_map(|config| list(config, "/webhooks"))
    {
        seen += 1;
        let name = &webhook["name"];
        let path = webhook["clientConfig"]["service"]["path"]
            .as_str()
            .expect("a path");
        assert!(
            served.contains(&format!("\"{path}\"")),
            "{name}: nobody serves {path}"
        );
        assert_eq!(webhook["sideEffects"], "None", "{name}");
        let groups = list(webhook, "/rules").flat_map(|rule| texts(rule, "/apiGroups"));
        if groups.collect::<BTreeSet<_>>() == BTreeSet::from(["apps.kruise.io".to_owned()]) {
            continue;
        }
        assert_eq!(webhook["failurePolicy"], "Ignore", "{name}");
        assert!(webhook["timeoutSeconds"].as_u64() <= Some(3), "{name}");
        assert!(webhook["objectSelector"].is_object(), "{name}");
        let spaces = texts(webhook, "/namespaceSelector/matchExpressions/0/values");
        assert!(
            spaces.contains("kube-system") && spaces.contains("kruise-system"),
            "{name}"
        );
    }
    assert!(seen > 0);
}

#[test]
fn without_webhooks_nothing_of_them_is_left() {
    let Some(objects) = objects(&json!({"webhookConfiguration": {"enabled": false}})) else {
        return;
    };
    assert!(
        !objects
            .iter()
            .any(|object| object["kind"].to_string().contains("Webhook"))
    );
    assert!(
        !of_kind(&objects, "Service").any(|service| service["metadata"]["name"] == "kruise-webhook-service")
    );
    assert!(
        !objects
            .iter()
            .any(|object| object.to_string().contains("admissionregistration"))
    );
    let manager = of_kind(&objects, "Deployment").next().expect("the manager");
    let args = texts(manager, "/spec/template/spec/containers/0/args");
    assert!(args.contains("--port=0"), "{args:?}");
}

#[test]
fn crds_are_kept_and_can_be_left_to_others() {
    let Some(objects) = objects(&json!({"installation": {"namespace": "elsewhere"}})) else {
        return;
    };
    let crds: Vec<_> = of_kind(&objects, "CustomResourceDefinition").collect();
    assert!(!crds.is_empty());
    for crd in crds {
        assert_eq!(crd["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
        let service = &crd["spec"]["conversion"]["webhook"]["clientConfig"]["service"];
        assert!(
            service.is_null() || service["namespace"] == "elsewhere",
            "{service}"
        );
    }
    let unmanaged = self::objects(&json!({"crds": {"managed": false}})).expect("helm was there");
    assert_eq!(of_kind(&unmanaged, "CustomResourceDefinition").count(), 0);
}

#[test]
fn certificates_of_others_are_not_overwritten() {
    let values = json!({"externalCerts": {"enabled": true, "certManager": {"enabled": true}}});
    let Some(objects) = objects(&values) else { return };
    assert_eq!(of_kind(&objects, "Secret").count(), 0);
    let serving = of_kind(&objects, "Certificate")
        .find(|certificate| certificate["spec"]["secretName"] == "kruise-webhook-certs")
        .expect("a certificate");
    assert!(texts(serving, "/spec/dnsNames").contains("kruise-manager.kruise-system.svc"));
    let own = json!({"externalCerts": {"enabled": true, "certManager": {"enabled": true, "issuerRef": {"kind": "ClusterIssuer", "name": "x"}}}});
    let objects = self::objects(&own).expect("helm was there");
    assert_eq!(of_kind(&objects, "Issuer").count(), 0);
}

/// The values of OpenKruise's chart with their defaults.
const OPENKRUISE: &str = include_str!("chart/openkruise-values.yaml");

#[test]
fn values_written_for_openkruise_are_accepted_and_slips_are_not() {
    let theirs: Value = serde_norway::from_str(OPENKRUISE).expect("YAML");
    let Some(objects) = objects(&theirs) else { return };
    let daemon = of_kind(&objects, "DaemonSet").next().expect("agents");
    let socket = list(daemon, "/spec/template/spec/volumes").find(|volume| volume["name"] == "socket");
    assert_eq!(socket.expect("mounted")["hostPath"]["path"], "/var/run");
    for (values, word) in [
        (json!({"manger": {}}), "manger"),
        (json!({"manager": {"replicas": "2"}}), "replicas"),
        (
            json!({"webhookConfiguration": {"failurePolicy": "Never"}}),
            "failurePolicy",
        ),
        (
            json!({"daemon": {"socketLocations": ["relative"]}}),
            "socketLocations",
        ),
        (json!({"featureGates": "ImagePullJobGate=yes"}), "featureGates"),
    ] {
        let words = render(&values).expect("helm was there").expect_err("a slip");
        assert!(words.contains(word), "{values}: {words}");
    }
}

#[test]
fn alert_rules_and_dashboard_use_metrics_that_exist() {
    let page = fs::read_to_string(root().join("docs/reference/metrics.md")).expect("made by codegen");
    let known: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .collect();
    let folder = root().join("deploy/chart/files/monitoring");
    let rules: Value =
        serde_norway::from_str(&fs::read_to_string(folder.join("rules.yaml")).expect("readable"))
            .expect("YAML");
    let dashboard: Value =
        serde_json::from_str(&fs::read_to_string(folder.join("dashboard.json")).expect("readable"))
            .expect("JSON");
    let alerts = list(&rules, "/groups/0/rules").map(|rule| (&rule["alert"], &rule["expr"]));
    let panels = list(&dashboard, "/panels")
        .flat_map(|panel| list(panel, "/targets").map(move |target| (&panel["title"], &target["expr"])));
    let mut seen = 0;
    for (title, expression) in alerts.chain(panels) {
        let expression = expression.as_str().expect("an expression");
        let parsed = promql_parser::parser::parse(expression)
            .unwrap_or_else(|error| panic!("{title}: {expression}: {error}"));
        let mut names = Vec::new();
        metrics_of(&parsed, &mut names);
        assert!(!names.is_empty(), "{title}");
        for name in names {
            seen += 1;
            let base = ["_bucket", "_sum", "_count"]
                .into_iter()
                .find_map(|suffix| name.strip_suffix(suffix))
                .filter(|base| known.contains(base));
            assert!(
                base.is_some() || known.contains(name.as_str()),
                "{title}: there is no metric {name}"
            );
        }
    }
    assert!(seen > 20, "{seen}");
}

/// Names of all series in an expression.
fn metrics_of(expression: &promql_parser::parser::Expr, names: &mut Vec<String>) {
    use promql_parser::parser::Expr;
    match expression {
        Expr::Aggregate(inner) => metrics_of(&inner.expr, names),
        Expr::Unary(inner) => metrics_of(&inner.expr, names),
        Expr::Paren(inner) => metrics_of(&inner.expr, names),
        Expr::Subquery(inner) => metrics_of(&inner.expr, names),
        Expr::Binary(inner) => {
            metrics_of(&inner.lhs, names);
            metrics_of(&inner.rhs, names);
        }
        Expr::Call(call) => call
            .args
            .args
            .iter()
            .for_each(|argument| metrics_of(argument, names)),
        Expr::VectorSelector(selector) => names.extend(selector.name.clone()),
        Expr::MatrixSelector(selector) => names.extend(selector.vs.name.clone()),
        _ => {}
    }
}
