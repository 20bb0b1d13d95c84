//! Pods to be restarted, in an API server without controllers: nobody runs them but a fleet's runtimes, and nobody reports them but this.

use anyhow::{Context, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::nodes::{CONCURRENCY, node_name};

/// A pod that was made.
#[derive(Clone, Debug)]
pub struct Made {
    pub name: String,
    uid: String,
}

/// Makes so many pods, spread over so many nodes, whose one container runs.
pub async fn make(pods: &Api<Pod>, count: usize, nodes: usize) -> Result<Vec<Made>> {
    stream::iter(0..count)
        .map(async |number| {
            let name = format!("app-{number:05}");
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
                "spec": {"nodeName": node_name(number % nodes), "automountServiceAccountToken": false,
                    "containers": [{"name": "main", "image": "registry.example.com/app:1"}]},
            });
            let made = pods
                .create(&PostParams::default(), &serde_json::from_value(pod)?)
                .await
                .with_context(|| format!("cannot make pod {name}"))?;
            let uid = made.metadata.uid.context("an object has a UID")?;
            let made = Made { name, uid };
            report(pods, &made, 0).await?;
            Ok(made)
        })
        .buffer_unordered(CONCURRENCY)
        .try_collect()
        .await
}

/// Reports of all pods that this instance of their container runs and is ready.
pub async fn report_all(pods: &Api<Pod>, made: &[Made], instance: u32) -> Result<()> {
    stream::iter(made.iter().map(Ok))
        .try_for_each_concurrent(CONCURRENCY, |pod| report(pods, pod, instance))
        .await
}

async fn report(pods: &Api<Pod>, pod: &Made, instance: u32) -> Result<()> {
    let status: Value = json!({"status": {"phase": "Running", "podIPs": [{"ip": "10.1.0.1"}], "containerStatuses": [
        {"name": "main", "image": "app:1", "imageID": "app:1", "ready": true, "restartCount": instance,
            "containerID": format!("containerd://{}-{instance}", pod.uid), "state": {"running": {}}},
    ]}});
    pods.patch_status(&pod.name, &PatchParams::default(), &Patch::Merge(&status))
        .await
        .with_context(|| format!("cannot report pod {}", pod.name))?;
    Ok(())
}
