//! The product's processes, as the machine sees them.

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use serde_json::Value;

use super::Product;
use crate::process::Process;

/// Pid, on this machine, of a running container of a pod.
pub fn container_pid(product: &Product, node: &str, pod: &str, container: &str) -> Result<i32> {
    let cluster = &product.cluster;
    let label = format!("io.kubernetes.pod.name={pod}");
    let ids = cluster.crictl(
        node,
        &[
            "ps", "-q", "--state", "Running", "--name", container, "--label", &label,
        ],
    )?;
    let id = ids
        .lines()
        .next()
        .with_context(|| format!("{pod} has no running container {container}"))?;
    let shown: Value = serde_json::from_str(&cluster.crictl(node, &["inspect", "-o", "json", id])?)?;
    let pid = shown["info"]["pid"]
        .as_i64()
        .context("the runtime tells no pid")?;
    Ok(i32::try_from(pid)?)
}

/// The process of a manager's pod.
pub async fn manager_process(product: &Product, pod: &str) -> Result<Process> {
    let pods = product.pods("controller-manager").await?;
    let found = pods
        .iter()
        .find(|candidate| candidate.metadata.name.as_deref() == Some(pod));
    let node = found
        .and_then(|pod| pod.spec.as_ref()?.node_name.clone())
        .context("the pod is on no node")?;
    let pid = container_pid(product, &node, pod, "manager")?;
    Process::of(pid).context("the manager's process is gone")
}

/// Kills the agent of a node as hard as can be. The kubelet starts another.
pub async fn kill_daemon(product: &Product, node: &str) -> Result<()> {
    let pod = product
        .daemon_pod(node)
        .await?
        .metadata
        .name
        .context("a pod has a name")?;
    let process = Process::of(container_pid(product, node, &pod, "daemon")?).context("the agent is gone")?;
    if !process.signal(Signal::KILL)? {
        bail!("the agent of {node} had ended by itself");
    }
    Ok(())
}
