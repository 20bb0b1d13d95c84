//! Kubelets of all nodes at once: whatever the spec of a pod says runs as soon as it says so. Nothing is started.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::runtime::watcher::{self, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// Writes under way at once.
const CONCURRENCY: usize = 64;
/// Readiness gate that holds a pod back while its containers change.
const GATE: &str = "InPlaceUpdateReady";

/// Kubelets of all nodes at once. They end when this is dropped.
#[derive(Debug)]
pub struct Kubelets {
    task: JoinHandle<()>,
    seen: Arc<AtomicUsize>,
}

impl Drop for Kubelets {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Kubelets {
    /// Begins, for the pods of a namespace with these labels.
    #[must_use]
    pub fn begin(client: Client, namespace: &str, labels: &str) -> Self {
        let pods: Api<Pod> = Api::namespaced(client, namespace);
        let seen = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&seen);
        let config = watcher::Config::default().labels(labels);
        let events = watcher(pods.clone(), config).filter_map(|event| async {
            match event {
                Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => Some(pod),
                // The watch begins again by itself.
                _ => None,
            }
        });
        let task = tokio::spawn(async move {
            let tended = events.for_each_concurrent(CONCURRENCY, |pod| {
                counter.fetch_add(1, Ordering::Relaxed);
                let pods = pods.clone();
                async move {
                    // Another version, or a pod that went: the watch tells of what there is now.
                    drop(tend(&pods, &pod).await);
                }
            });
            tended.await;
        });
        Self { task, seen }
    }

    /// Versions of pods that were seen so far.
    #[must_use]
    pub fn seen(&self) -> usize {
        self.seen.load(Ordering::Relaxed)
    }
}

async fn tend(pods: &Api<Pod>, pod: &Pod) -> Result<()> {
    let name = pod.name_any();
    if pod.metadata.deletion_timestamp.is_some() {
        pods.delete(&name, &DeleteParams::default().grace_period(0))
            .await?;
        return Ok(());
    }
    if let Some(status) = due(pod, Timestamp::now()) {
        let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": status});
        pods.patch_status(&name, &PatchParams::default(), &Patch::Strategic(patch))
            .await?;
    }
    Ok(())
}

/// The status that a pod lacks; none when it says what runs.
fn due(pod: &Pod, now: Timestamp) -> Option<Value> {
    let spec = pod.spec.as_ref()?;
    spec.node_name.as_ref()?;
    let status = pod.status.clone().unwrap_or_default();
    let known = status.container_statuses.unwrap_or_default();
    let mut changed = status.phase.as_deref() != Some("Running");
    let time = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let mut containers = Vec::new();
    for container in &spec.containers {
        let image = container.image.clone().unwrap_or_default();
        let running = known.iter().find(|status| status.name == container.name);
        let restarts = match running {
            Some(running) if running.image == image => running.restart_count,
            Some(running) => running.restart_count + 1,
            None => 0,
        };
        changed |= running.is_none_or(|running| running.image != image);
        containers.push(json!({
            "name": container.name, "image": image, "imageID": format!("registry.example.com/id-of/{image}"),
            "containerID": format!("containerd://{}-{}-{restarts}", pod.name_any(), container.name),
            "ready": true, "started": true, "restartCount": restarts, "state": {"running": {"startedAt": time}},
        }));
    }
    let conditions = status.conditions.unwrap_or_default();
    let is = |kind: &str| {
        conditions
            .iter()
            .any(|one| one.type_ == kind && one.status == "True")
    };
    let gated = spec
        .readiness_gates
        .iter()
        .flatten()
        .any(|gate| gate.condition_type == GATE);
    let ready = !gated || is(GATE);
    if !changed && ready == is("Ready") && is("ContainersReady") {
        return None;
    }
    let condition = |kind: &str, holds: bool| {
        let status = if holds { "True" } else { "False" };
        json!({"type": kind, "status": status, "lastTransitionTime": time})
    };
    Some(json!({
        "phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
        "containerStatuses": containers,
        "conditions": [condition("ContainersReady", true), condition("Ready", ready)],
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(change: &Value) -> Pod {
        let mut pod = json!({
            "metadata": {"name": "a"},
            "spec": {
                "nodeName": "n", "readinessGates": [{"conditionType": GATE}],
                "containers": [{"name": "main", "image": "x:2"}],
            },
        });
        pod["status"] = change.clone();
        serde_json::from_value(pod).expect("a pod")
    }

    #[test]
    fn what_runs_follows_the_spec_and_readiness_the_gate() {
        let now = Timestamp::UNIX_EPOCH;
        let first = due(&pod(&json!({})), now).expect("a first status");
        assert_eq!(first["conditions"][1]["status"], "False");
        assert_eq!(first["containerStatuses"][0]["restartCount"], 0);
        let mut open = first;
        open["conditions"]
            .as_array_mut()
            .expect("a list")
            .push(json!({"type": GATE, "status": "True"}));
        let ready = due(&pod(&open), now).expect("the gate is open");
        assert_eq!(ready["conditions"][1]["status"], "True");
        let mut settled = open;
        settled["conditions"][1]["status"] = "True".into();
        assert_eq!(due(&pod(&settled), now), None);
        settled["containerStatuses"][0]["image"] = "x:1".into();
        let restarted = due(&pod(&settled), now).expect("another image");
        assert_eq!(restarted["containerStatuses"][0]["restartCount"], 1);
    }
}
