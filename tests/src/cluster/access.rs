//! Reaching what is in a cluster: the API by client and kubectl, a node's programs and files, the registry.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail};
use http::header::{HeaderValue, USER_AGENT};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;

use super::layout::{PRIVATE, netns_file, node_ip, node_name};
use super::{Cluster, config, network, nodes, pki, up};
use crate::cmd;
use crate::registry::Registry;

/// The user agent of tests. Counters of what the product writes leave it out.
pub const TEST_AGENT: &str = "kruise-tests";

impl Cluster {
    /// A client with all rights that never retries by itself: a test wants to see each answer.
    pub async fn client(&self) -> Result<kube::Client> {
        self.client_as(TEST_AGENT).await
    }

    /// The same under another user agent.
    pub async fn client_as(&self, agent: &str) -> Result<kube::Client> {
        let file = self.kubeconfig();
        let kubeconfig =
            Kubeconfig::read_from(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .context("cannot use the cluster's kubeconfig")?;
        config.default_retry = false;
        config.headers.push((
            USER_AGENT,
            HeaderValue::from_str(agent).context("bad user agent")?,
        ));
        kube::Client::try_from(config).context("cannot make a client")
    }

    /// The kubeconfig for people, tests, kubectl and helm, by way of the host's loopback.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.layout().kubeconfig(pki::ADMIN)
    }

    /// Runs kubectl and returns its output.
    pub fn kubectl<S: AsRef<str>>(&self, args: &[S]) -> Result<String> {
        cmd::run(self.tool("kubectl").args(args.iter().map(AsRef::as_ref)))
    }

    /// One of the cluster's tools (kubectl, helm, grpcurl), set up to speak to this cluster.
    #[must_use]
    pub fn tool(&self, name: &str) -> Command {
        let mut command = Command::new(self.layout().bin().join(name));
        command.envs(self.tool_env());
        command
    }

    /// What the tools need in their environment: whom to speak to, and a place inside the cluster's folder
    /// for what they would keep in the user's home.
    #[must_use]
    pub fn tool_env(&self) -> Vec<(&'static str, PathBuf)> {
        let home = self.layout().dir.join("home");
        vec![
            ("KUBECONFIG", self.kubeconfig()),
            ("KUBECACHEDIR", home.join("kube")),
            ("HELM_CACHE_HOME", home.join("helm/cache")),
            ("HELM_CONFIG_HOME", home.join("helm/config")),
            ("HELM_DATA_HOME", home.join("helm/data")),
        ]
    }

    /// Whether a node's container runtime answers by CRI. Its socket takes connections before it has read what it had, and then it answers nothing.
    pub fn runtime_answers(&self, node: &str) -> Result<()> {
        self.crictl(node, &["--timeout", "5s", "version"]).map(drop)
    }

    /// The names of the nodes.
    #[must_use]
    pub fn nodes(&self) -> Vec<String> {
        (1..=self.description().nodes).map(node_name).collect()
    }

    /// A node's number, counted from 1. Refuses names that are no node of this cluster.
    pub fn node_number(&self, node: &str) -> Result<usize> {
        let number = self.nodes().iter().position(|n| n == node);
        Ok(
            1 + number
                .with_context(|| format!("no node {node:?}; there are: {}", self.nodes().join(", ")))?,
        )
    }

    /// The address by which the registry and the API server know a node.
    pub fn node_ip(&self, node: &str) -> Result<String> {
        Ok(node_ip(self.node_number(node)?))
    }

    /// The control plane's end of a node's link.
    pub(crate) fn link_of(&self, node: &str) -> Result<String> {
        Ok(network::link_of(self.node_number(node)?))
    }

    /// The addresses of a node's pods.
    pub(crate) fn pod_range(&self, node: &str) -> Result<String> {
        Ok(network::pod_range(self.node_number(node)?))
    }

    /// Which node has an address, if any.
    #[must_use]
    pub fn node_of_ip(&self, ip: &str) -> Option<String> {
        (1..=self.description().nodes)
            .find(|&n| node_ip(n) == ip)
            .map(node_name)
    }

    /// The command that runs a program on a node: in its network, with its file system.
    pub fn node_command(&self, node: &str, argv: &[String]) -> Result<Command> {
        self.node_number(node)?;
        let net = netns_file(&self.layout().node_namespace(node));
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net={}", net.display()))
            .arg(format!(
                "--mount={}",
                self.layout().mount_namespace(node).display()
            ))
            .arg("--")
            .args(argv)
            .env("PATH", up::search_path(self.layout()))
            .env(
                "CONTAINER_RUNTIME_ENDPOINT",
                "unix:///run/containerd/containerd.sock",
            )
            .env("CRI_CONFIG_FILE", self.layout().crictl_config())
            .env("CONTAINERD_NAMESPACE", "k8s.io");
        Ok(command)
    }

    /// Runs a program on a node to its end and returns its output.
    pub fn node_exec<S: AsRef<str>>(&self, node: &str, argv: &[S]) -> Result<String> {
        cmd::run(&mut self.node_command(node, &owned(argv))?)
    }

    /// The same, whatever the exit status.
    pub fn node_output<S: AsRef<str>>(&self, node: &str, argv: &[S]) -> Result<Output> {
        cmd::output(&mut self.node_command(node, &owned(argv))?)
    }

    /// Runs crictl on a node and returns its output.
    pub fn crictl<S: AsRef<str>>(&self, node: &str, args: &[S]) -> Result<String> {
        let mut argv = vec!["crictl".to_owned()];
        argv.extend(owned(args));
        self.node_exec(node, &argv)
    }

    /// Where a folder of a node is on the host. Only the folders that a node has for itself have such a
    /// place; all others are the host's own.
    pub fn node_path(&self, node: &str, path: &str) -> Result<PathBuf> {
        self.node_number(node)?;
        for (own, place) in PRIVATE {
            if let Ok(rest) = Path::new(path).strip_prefix(place) {
                return Ok(self.layout().node(node).join(own).join(rest));
            }
        }
        bail!("{path} is not one of a node's own folders: /run, /var/lib, /var/log")
    }

    /// The runtime's socket of a node, as seen from the host.
    #[must_use]
    pub fn containerd_socket(&self, node: &str) -> PathBuf {
        self.layout().node(node).join("run/containerd/containerd.sock")
    }

    /// The registry, through its forwarder on loopback.
    #[must_use]
    pub fn registry(&self) -> Registry {
        Registry::new(self.description().registry_port)
    }

    /// From the next pull on, every node looks for `host` (as in image references) at `backend`, a URL.
    pub fn route_registry(&self, host: &str, backend: &str) -> Result<()> {
        self.route_mirrors(host, &[backend])
    }

    /// The same with several places, each of which is asked when those before it do not answer.
    pub fn route_mirrors(&self, host: &str, backends: &[&str]) -> Result<()> {
        for node in self.nodes() {
            let file = config::certs(&self.layout().node(&node))
                .join(host)
                .join("hosts.toml");
            nodes::put(&file, &config::hosts(backends))?;
        }
        Ok(())
    }

    /// Forgets a route of [`Cluster::route_registry`].
    pub fn unroute_registry(&self, host: &str) {
        for node in self.nodes() {
            let _ = std::fs::remove_dir_all(config::certs(&self.layout().node(&node)).join(host));
        }
    }

    /// Makes a volume by hand: a folder on a node, bound to that node, without a storage class.
    pub async fn make_pv(&self, name: &str, size: &str, node: &str) -> Result<PersistentVolume> {
        let path = format!("/var/lib/volumes/{name}");
        let folder = self.node_path(node, &path)?;
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let volume: PersistentVolume = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": size},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": "",
                "local": {"path": path},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                    {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]},
                ]}]}},
            },
        }))?;
        let volumes = Api::all(self.client().await?);
        volumes
            .create(&PostParams::default(), &volume)
            .await
            .with_context(|| format!("cannot make volume {name}"))
    }
}

fn owned<S: AsRef<str>>(words: &[S]) -> Vec<String> {
    words.iter().map(|w| w.as_ref().to_owned()).collect()
}
