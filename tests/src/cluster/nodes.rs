//! The nodes' components: the container runtime, the kubelet and kube-proxy, each in the node's own
//! network and mount namespace.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use super::layout::{Layout, node_ip, node_name};
use super::up::{Spec, launch};
use super::{Cluster, Containerd, config};
use crate::tools::{self, CONTAINERD_2};
use crate::wait::{Seen, not_yet, wait_for};

/// Writes each node's configuration and starts its container runtime.
pub(super) fn start_runtimes(cluster: &Cluster) -> Result<()> {
    let which = cluster.description().containerd;
    for number in 1..=cluster.description().nodes {
        let (layout, node) = (cluster.layout(), node_name(number));
        configure(layout, number, which)?;
        let program = match which {
            Containerd::System => PathBuf::from("/usr/bin/containerd"),
            Containerd::V2 => CONTAINERD_2[0].path()?,
        };
        let settings = layout.node(&node).join("containerd.toml");
        let args = vec![format!("--config={}", settings.display())];
        on_node(layout, "containerd", &node, &program, args)?;
    }
    Ok(())
}

/// Starts kubelets and proxies. A kubelet that finds no runtime, or one that is still reading what it had, ends, so that one is waited for.
pub(super) async fn start_agents(cluster: &Cluster) -> Result<()> {
    let layout = cluster.layout();
    for number in 1..=cluster.description().nodes {
        let node = node_name(number);
        wait_runtime(cluster, &node).await?;
        let home = layout.node(&node);
        let kubelet = vec![
            format!("--config={}", home.join("kubelet.yaml").display()),
            format!("--kubeconfig={}", layout.kubeconfig(&node).display()),
            format!("--hostname-override={node}"),
            format!("--node-ip={}", node_ip(number)),
            format!("--cert-dir={}", home.join("pki").display()),
        ];
        on_node(
            layout,
            "kubelet",
            &node,
            &tools::kube_program("kubelet")?,
            kubelet,
        )?;
        let proxy = vec![format!("--config={}", home.join("proxy.yaml").display())];
        on_node(layout, "proxy", &node, &tools::kube_program("kube-proxy")?, proxy)?;
    }
    Ok(())
}

/// Waits until every node's runtime answers.
pub(super) async fn wait_runtimes(cluster: &Cluster) -> Result<()> {
    for node in cluster.nodes() {
        wait_runtime(cluster, &node).await?;
    }
    Ok(())
}

async fn wait_runtime(cluster: &Cluster, node: &str) -> Result<()> {
    let socket = cluster.containerd_socket(node);
    wait_for(
        &format!("containerd of {node}"),
        Duration::from_secs(20),
        || async {
            cluster.must_run(&format!("containerd-{node}"))?;
            if let Err(error) = UnixStream::connect(&socket) {
                return not_yet(format!("{}: {error}", socket.display()));
            }
            match cluster.runtime_answers(node) {
                Ok(()) => Ok(Seen::Done(())),
                Err(error) => not_yet(format!("{error:#}")),
            }
        },
    )
    .await
}

fn configure(layout: &Layout, number: usize, which: Containerd) -> Result<()> {
    let node = node_name(number);
    let home = layout.node(&node);
    put(&home.join("cni/10-bed.conflist"), &config::cni(number))?;
    put(&home.join("containerd.toml"), &config::containerd(&home, which))?;
    put(&home.join("kubelet.yaml"), &config::kubelet(layout, &node)?)?;
    put(&home.join("proxy.yaml"), &config::proxy(layout, &node)?)?;
    for route in config::ROUTES {
        put(
            &config::certs(&home).join(route).join("hosts.toml"),
            &config::hosts(&[&config::local_registry()]),
        )?;
    }
    Ok(())
}

/// Writes a file, its folder included.
pub(super) fn put(file: &Path, content: &str) -> Result<()> {
    let folder = file.parent().context("a file lives in a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::write(file, content).with_context(|| format!("cannot write {}", file.display()))
}

fn on_node(layout: &Layout, what: &str, node: &str, program: &Path, args: Vec<String>) -> Result<()> {
    let name = format!("{what}-{node}");
    let netns = Some(layout.node_namespace(node));
    launch(
        layout,
        Spec {
            name,
            program,
            args,
            netns,
            node: Some(node),
        },
    )
    .map(drop)
}
