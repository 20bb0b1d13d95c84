//! The configuration files of the cluster's components, as values turned into YAML or TOML text.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::Containerd;
use super::layout::{API_IP, DNS_IP, Layout, PAUSE_IMAGE, POD_RANGE, REGISTRY};
use super::network::pod_range;
use super::pki::DNS_USER;

/// Every request that is not the control plane's own, with its user agent, verb and resource. Reads are
/// included: lists and watches are counted too.
pub(crate) fn audit_policy() -> Result<String> {
    yaml(&json!({
        "apiVersion": "audit.k8s.io/v1", "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "None", "users": [
                "system:kube-scheduler", "system:kube-controller-manager", "system:apiserver", "system:kube-proxy",
                DNS_USER,
            ]},
            {"level": "None", "nonResourceURLs": ["/readyz*", "/livez*", "/healthz*"]},
            {"level": "Metadata"},
        ],
    }))
}

pub(crate) fn registry(layout: &Layout) -> Result<String> {
    yaml(&json!({
        "version": 0.1,
        "log": {"level": "warn", "accesslog": {"disabled": false}},
        "storage": {
            "filesystem": {"rootdirectory": layout.dir.join("registry")},
            "delete": {"enabled": true},
        },
        // Uploads come through the forwarder, under another address than the registry's own.
        "http": {"addr": REGISTRY, "relativeurls": true},
    }))
}

pub(crate) fn kubelet(layout: &Layout, node: &str) -> Result<String> {
    yaml(&json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": false}, "webhook": {"enabled": true},
            "x509": {"clientCAFile": layout.pki("ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": layout.pki(&format!("{node}.crt")),
        "tlsPrivateKeyFile": layout.pki(&format!("{node}.key")),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", layout.node_namespace(node)),
        "failSwapOn": false,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "resolvConf": "/dev/null",
        "clusterDomain": "cluster.local",
        "clusterDNS": [DNS_IP],
        // Images are what the tests look at: neither disk use nor age may remove them.
        "imageGCHighThresholdPercent": 100,
        "imageMinimumGCAge": "24h",
        "evictionHard": {},
        "maxPods": 200,
        "nodeStatusUpdateFrequency": "5s",
        "volumePluginDir": "/var/lib/kubelet/volumeplugins",
        // Tests kill containers on purpose; the usual back-off of up to 5 min would drown them.
        "featureGates": {"KubeletCrashLoopBackOffMax": true},
        "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
    }))
}

/// kube-proxy's settings. `host` must be the name of a Node: the proxy waits for it.
pub(crate) fn proxy(layout: &Layout, host: &str) -> Result<String> {
    yaml(&json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
        "hostnameOverride": host,
        "clientConnection": {"kubeconfig": layout.kubeconfig("proxy")},
        "mode": "iptables",
        "iptables": {"minSyncPeriod": "100ms"},
        "clusterCIDR": POD_RANGE,
        // The table of connections is the machine's; its size is not the cluster's to set.
        "conntrack": {"maxPerCore": 0},
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
    }))
}

/// The pod network of one node: a bridge with the node's range of addresses.
pub(crate) fn cni(number: usize) -> String {
    json!({
        "cniVersion": "1.0.0", "name": "bed",
        "plugins": [
            {
                "type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true, "ipMasq": false,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": pod_range(number)}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
    .to_string()
}

/// containerd's settings. `restrict_oom_score_adj`: a machine without CAP_SYS_RESOURCE may not lower the
/// score, and without this no sandbox starts there.
pub(crate) fn containerd(home: &Path, which: Containerd) -> String {
    let (cni, certs) = (home.join("cni"), certs(home));
    let (cni, certs) = (cni.display(), certs.display());
    let (pause, tag) = PAUSE_IMAGE;
    let sandbox = format!("{REGISTRY}/{pause}:{tag}");
    match which {
        Containerd::System => format!(
            r#"version = 2
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  sandbox_image = "{sandbox}"
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
  conf_dir = "{cni}"
[plugins."io.containerd.grpc.v1.cri".registry]
  config_path = "{certs}"
"#
        ),
        Containerd::V2 => format!(
            r#"version = 3
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["/usr/lib/cni"]
  conf_dir = "{cni}"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{sandbox}"
[plugins."io.containerd.cri.v1.images".registry]
  config_path = "{certs}"
"#
        ),
    }
}

/// The folder in which a node's containerd looks up, at each pull, where a registry really is.
pub(crate) fn certs(home: &Path) -> std::path::PathBuf {
    home.join("certs.d")
}

/// What containerd finds there for one registry: the only servers to ask, in order.
pub(crate) fn hosts(backends: &[&str]) -> String {
    let last = backends.last().copied().unwrap_or_default();
    let mut text = format!("server = \"{last}\"\n");
    for backend in backends {
        text += &format!("[host.\"{backend}\"]\n  capabilities = [\"pull\", \"resolve\"]\n");
    }
    text
}

/// References without a registry of their own, such as docker.io/..., are served locally as well.
pub(crate) const ROUTES: [&str; 2] = [REGISTRY, "_default"];

pub(crate) fn local_registry() -> String {
    format!("http://{API_IP}:5000")
}

fn yaml(value: &Value) -> Result<String> {
    serde_norway::to_string(value).context("a configuration is plain data")
}
