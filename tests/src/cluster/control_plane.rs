//! The control plane's components, in the order in which they are started.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use super::layout::{API_ADDRESS, API_IP, DNS_IP, Layout, REGISTRY, SERVICE_RANGE, netns_file, node_name};
use super::up::{Spec, launch};
use super::{Cluster, config};
use crate::tools;

const ETCD: &str = "http://127.0.0.1:2379";

/// etcd, the registry, and the ways in from the host.
pub(super) fn start_storage(cluster: &Cluster) -> Result<()> {
    let layout = cluster.layout();
    let data = layout.dir.join("etcd");
    inside(
        layout,
        "etcd",
        Path::new("/usr/bin/etcd"),
        vec![
            format!("--data-dir={}", data.display()),
            format!("--listen-client-urls={ETCD}"),
            format!("--advertise-client-urls={ETCD}"),
            "--listen-peer-urls=http://127.0.0.1:2380".to_owned(),
            // The cluster lives for hours at most; waiting for disks would only make it slow.
            "--unsafe-no-fsync".to_owned(),
        ],
    )?;
    let settings = layout.dir.join("registry.yml");
    fs::write(&settings, config::registry(layout)?).context("cannot write the registry's settings")?;
    let args = vec!["serve".to_owned(), settings.display().to_string()];
    inside(layout, "registry", Path::new("/usr/bin/docker-registry"), args)?;
    let ports = cluster.description();
    forward(layout, "forward-api", ports.api_port, API_ADDRESS)?;
    forward(layout, "forward-registry", ports.registry_port, REGISTRY)
}

pub(super) fn start_apiserver(cluster: &Cluster) -> Result<()> {
    let layout = cluster.layout();
    let policy = layout.dir.join("audit.yaml");
    fs::write(&policy, config::audit_policy()?).context("cannot write the audit policy")?;
    let file = |name: &str| layout.pki(name).display().to_string();
    let args = [
        ("etcd-servers", ETCD.to_owned()),
        ("bind-address", "0.0.0.0".to_owned()),
        ("advertise-address", API_IP.to_owned()),
        ("secure-port", "6443".to_owned()),
        ("tls-cert-file", file("apiserver.crt")),
        ("tls-private-key-file", file("apiserver.key")),
        ("client-ca-file", file("ca.crt")),
        ("service-account-key-file", file("sa.pub")),
        ("service-account-signing-key-file", file("sa.key")),
        (
            "service-account-issuer",
            "https://kubernetes.default.svc".to_owned(),
        ),
        ("service-cluster-ip-range", SERVICE_RANGE.to_owned()),
        ("authorization-mode", "Node,RBAC".to_owned()),
        ("allow-privileged", "true".to_owned()),
        ("enable-admission-plugins", "NodeRestriction".to_owned()),
        ("kubelet-client-certificate", file("admin.crt")),
        ("kubelet-client-key", file("admin.key")),
        // `kubectl exec` and `logs` reach a node by its address: names of nodes resolve nowhere.
        ("kubelet-preferred-address-types", "InternalIP".to_owned()),
        ("audit-policy-file", policy.display().to_string()),
        ("audit-log-path", layout.audit_log().display().to_string()),
        // Counters remember a place in the log by its offset, so it must not be rotated.
        ("audit-log-maxsize", "1000000".to_owned()),
    ];
    kube(layout, "apiserver", "kube-apiserver", &args)
}

pub(super) fn start_controllers(cluster: &Cluster) -> Result<()> {
    let layout = cluster.layout();
    let file = |name: &str| layout.pki(name).display().to_string();
    let conf = |who: &str| layout.kubeconfig(who).display().to_string();
    kube(
        layout,
        "kcm",
        "kube-controller-manager",
        &[
            ("kubeconfig", conf("kcm")),
            ("service-account-private-key-file", file("sa.key")),
            ("root-ca-file", file("ca.crt")),
            // Its default is a folder of the host, which it would make.
            (
                "flex-volume-plugin-dir",
                layout.dir.join("flexvolumes").display().to_string(),
            ),
            ("use-service-account-credentials", "true".to_owned()),
            ("leader-elect", "false".to_owned()),
        ],
    )?;
    kube(
        layout,
        "scheduler",
        "kube-scheduler",
        &[
            ("kubeconfig", conf("scheduler")),
            ("leader-elect", "false".to_owned()),
        ],
    )
}

/// kube-proxy for the control plane, so that the API server reaches webhooks by their Service. It needs
/// the name of a Node that exists.
pub(super) fn start_proxy(cluster: &Cluster) -> Result<()> {
    let layout = cluster.layout();
    let settings = layout.dir.join("proxy.yaml");
    fs::write(&settings, config::proxy(layout, &node_name(1))?)
        .context("cannot write kube-proxy's settings")?;
    kube(
        layout,
        "proxy-cp",
        "kube-proxy",
        &[("config", settings.display().to_string())],
    )
}

/// The DNS responder and the Service in front of it. Its address is outside of the pod network, so the
/// endpoints are written by hand.
pub(super) async fn start_dns(cluster: &Cluster, client: &kube::Client) -> Result<()> {
    let layout = cluster.layout();
    inside(
        layout,
        "dns",
        &layout.helper(),
        vec![
            "internal".to_owned(),
            "dns".to_owned(),
            format!("--kubeconfig={}", layout.kubeconfig("dns").display()),
            format!("--listen={API_IP}:53"),
        ],
    )?;
    let ports = json!([{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]);
    let service: Service = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": "kube-system"},
        "spec": {"clusterIP": DNS_IP, "ports": ports},
    }))?;
    let slice: EndpointSlice = serde_json::from_value(json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": "kube-dns-bed", "namespace": "kube-system",
            "labels": {
                "kubernetes.io/service-name": "kube-dns",
                "endpointslice.kubernetes.io/managed-by": "kruise-tests",
            },
        },
        "addressType": "IPv4", "endpoints": [{"addresses": [API_IP]}], "ports": ports,
    }))?;
    let params = PatchParams::apply("kruise-tests").force();
    let services: Api<Service> = Api::namespaced(client.clone(), "kube-system");
    services
        .patch("kube-dns", &params, &Patch::Apply(&service))
        .await
        .context("cannot make the DNS Service")?;
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), "kube-system");
    slices
        .patch("kube-dns-bed", &params, &Patch::Apply(&slice))
        .await
        .context("cannot make its endpoints")?;
    Ok(())
}

fn kube(layout: &Layout, name: &str, program: &str, args: &[(&str, String)]) -> Result<()> {
    let args = args
        .iter()
        .map(|(flag, value)| format!("--{flag}={value}"))
        .collect();
    inside(layout, name, &tools::kube_program(program)?, args)
}

/// Starts a component in the control plane's network.
fn inside(layout: &Layout, name: &str, program: &Path, args: Vec<String>) -> Result<()> {
    let netns = Some(layout.control_plane());
    launch(
        layout,
        Spec {
            name: name.to_owned(),
            program,
            args,
            netns,
            node: None,
        },
    )
    .map(drop)
}

/// Starts a forwarder: it begins in the host's network and moves by itself.
fn forward(layout: &Layout, name: &str, port: u16, to: &str) -> Result<()> {
    let args = vec![
        "internal".to_owned(),
        "forward".to_owned(),
        format!("--listen=127.0.0.1:{port}"),
        format!("--netns={}", netns_file(&layout.control_plane()).display()),
        format!("--to={to}"),
    ];
    launch(
        layout,
        Spec {
            name: name.to_owned(),
            program: &layout.helper(),
            args,
            netns: None,
            node: None,
        },
    )
    .map(drop)
}
