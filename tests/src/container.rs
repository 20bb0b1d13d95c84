//! The processes of containers, and what they take of the machine.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::process::Process;

impl Cluster {
    /// The ids of running containers on a node, by pod namespace, a part of the pod's name, and the
    /// container's name.
    pub fn container_ids(
        &self,
        node: &str,
        namespace: &str,
        pod: &str,
        container: &str,
    ) -> Result<Vec<String>> {
        let json = self.crictl(node, &["ps", "-o", "json"])?;
        let list: Value = serde_json::from_str(&json).context("crictl answers JSON")?;
        let containers = list["containers"].as_array().cloned().unwrap_or_default();
        let wanted = |c: &&Value| {
            let labels = &c["labels"];
            let label = |name: &str| labels[name].as_str().unwrap_or_default();
            label("io.kubernetes.pod.namespace") == namespace
                && label("io.kubernetes.pod.name").contains(pod)
                && label("io.kubernetes.container.name") == container
        };
        Ok(containers
            .iter()
            .filter(wanted)
            .filter_map(|c| c["id"].as_str().map(str::to_owned))
            .collect())
    }

    /// The first process of a container, as the host knows it.
    pub fn container_process(&self, node: &str, id: &str) -> Result<Process> {
        let json = self.crictl(node, &["inspect", id])?;
        let inspected: Value = serde_json::from_str(&json).context("crictl answers JSON")?;
        let pid = inspected["info"]["pid"]
            .as_i64()
            .context("the container has no process")?;
        Process::of(i32::try_from(pid)?).context("the container's process is gone")
    }

    /// The first process of the only running container like this on a node.
    pub fn process_of(&self, node: &str, namespace: &str, pod: &str, container: &str) -> Result<Process> {
        let ids = self.container_ids(node, namespace, pod, container)?;
        match ids.as_slice() {
            [id] => self.container_process(node, id),
            other => anyhow::bail!(
                "{} running containers {namespace}/{pod}*/{container} on {node}",
                other.len()
            ),
        }
    }
}
