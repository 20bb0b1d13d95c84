//! Rollouts of CloneSets by a real manager at a real API server, with played kubelets; and the manager's memory beside a crowd of pods.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kruise_api::clone_set::CloneSet;
use kruise_api::names::{AGENT_SERVICE_ACCOUNT, DEFAULT_NAMESPACE};
use kruise_tests::audit::{Counters, Mark};
use kruise_tests::fleet::kubelet::Kubelets;
use kruise_tests::fleet::nodes;
use kruise_tests::wait::{Seen, not_yet, wait_for};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde::Serialize;
use serde_json::{Value, json};

use super::bed::{Bed, Programs};
use super::manager::{Manager, Start};
use super::meter::{self, Memory};
use super::scale::{free_address, per};

/// Longest time for a rollout.
const PATIENCE: Duration = Duration::from_mins(30);
/// Time for buffers to be given back before memory counts.
const SETTLE: Duration = Duration::from_secs(60);
/// Requests under way at once while a crowd is made.
const CONCURRENCY: usize = 48;
/// Pods of one set of the crowd.
const CROWD_SET: usize = 1_000;
/// Label of everything that is made here.
const LABEL: &str = "bench.kruise.io/cloneset";

/// One rollout in place of all pods of a set at once.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Rollout {
    pub(super) pods: usize,
    /// From the new image until the status says that all pods are updated and available.
    pub(super) seconds: f64,
    pub(super) pods_per_second: f64,
    /// Processor time of the manager meanwhile.
    pub(super) cpu_seconds: f64,
    /// The same for each version of a pod that the watch told.
    pub(super) cpu_us_per_pod_event: f64,
    /// The manager's writes to pods, for each of them.
    pub(super) writes_per_pod: f64,
    pub(super) memory: Memory,
    /// Average number of processes that wanted a processor in the last minute.
    pub(super) load: f64,
}

/// The manager beside many pods.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Crowd {
    pub(super) nodes: usize,
    pub(super) pods: usize,
    pub(super) pod_kilobytes: usize,
    /// Once everything is listed and nothing happens any more; the peak is from the start on.
    pub(super) memory: Memory,
    pub(super) peak_over_steady: f64,
    pub(super) load: f64,
}

/// What everything here works with.
pub(super) struct Bench<'a> {
    bed: &'a Bed,
    programs: &'a Programs,
    client: Client,
    sets: Api<CloneSet>,
    pods: Api<Pod>,
}

impl<'a> Bench<'a> {
    pub(super) async fn new(bed: &'a Bed, programs: &'a Programs) -> Result<Self> {
        let client = bed.cluster.client().await?;
        Ok(Self {
            sets: Api::namespaced(client.clone(), DEFAULT_NAMESPACE),
            pods: Api::namespaced(client.clone(), DEFAULT_NAMESPACE),
            bed,
            programs,
            client,
        })
    }

    fn manager(&self) -> Result<Manager> {
        let how = Start {
            alone: true,
            ..Start::default()
        };
        let manager = Manager::start(self.bed, self.programs, free_address()?, how)?;
        manager.leads()?;
        Ok(manager)
    }

    pub(super) async fn rollout(&self, pods: usize) -> Result<Rollout> {
        let name = format!("bench-{pods}");
        let manager = self.manager()?;
        let label = format!("{LABEL}={name}");
        let kubelets = Kubelets::begin(self.client.clone(), DEFAULT_NAMESPACE, &label);
        let set = serde_json::from_value(set(&name, pods, &json!({"maxUnavailable": "100%"})))?;
        self.sets
            .create(&PostParams::default(), &set)
            .await
            .context("the set")?;
        self.updated(&name, pods).await?;
        let (mark, events) = (Mark::now(&self.bed.cluster)?, kubelets.seen());
        let (began, cpu) = (Instant::now(), meter::cpu(manager.process()?)?);
        let image = json!({"spec": {"template": {"spec": {"containers": [container("registry.example.com/app:2")]}}}});
        self.sets
            .patch(&name, &PatchParams::default(), &Patch::Merge(image))
            .await
            .context("the new image")?;
        self.updated(&name, pods).await?;
        let seconds = began.elapsed().as_secs_f64();
        let cpu = (meter::cpu(manager.process()?)? - cpu).as_secs_f64();
        let events = kubelets.seen() - events;
        let counters = Counters::since(&self.bed.cluster, mark)?;
        let writes = counters.count(|request| {
            let of_pods = request.resource == "pods" || request.resource.starts_with("pods/");
            request.agent.starts_with("kruise-manager") && !request.is_read() && of_pods
        });
        let rollout = Rollout {
            pods,
            seconds,
            pods_per_second: per(pods) / seconds,
            cpu_seconds: cpu,
            cpu_us_per_pod_event: cpu * 1e6 / per(events),
            writes_per_pod: per(writes) / per(pods),
            memory: meter::memory(manager.process()?)?,
            load: meter::load(),
        };
        drop(manager);
        self.clear().await?;
        Ok(rollout)
    }

    /// Until all pods are on the template and available.
    async fn updated(&self, name: &str, pods: usize) -> Result<()> {
        let wanted = i32::try_from(pods)?;
        wait_for(&format!("all pods of {name}"), PATIENCE, async || {
            let set = self.sets.get(name).await?;
            let status = set.status.unwrap_or_default();
            let seen = status.observed_generation == set.metadata.generation;
            if seen && status.updated_available_replicas == wanted {
                return Ok(Seen::Done(()));
            }
            not_yet(format!("{} of {wanted}", status.updated_available_replicas))
        })
        .await
    }

    pub(super) async fn crowd(&self, nodes: usize, pods: usize, kilobytes: usize) -> Result<Crowd> {
        self.bed.targets(nodes).await?;
        let sets = pods.div_ceil(CROWD_SET);
        let mut uids = Vec::new();
        for number in 0..sets {
            let name = format!("crowd-{number}");
            let set = serde_json::from_value(set(&name, CROWD_SET, &json!({"paused": true})))?;
            let made = self
                .sets
                .create(&PostParams::default(), &set)
                .await
                .context("a set")?;
            uids.push((name, made.metadata.uid.context("a set has a UID")?));
        }
        let filler = "x".repeat(kilobytes * 1000);
        stream::iter(0..sets * CROWD_SET)
            .map(|number| {
                let (set, uid) = &uids[number / CROWD_SET];
                let pod = crowd_pod(set, uid, number, number % nodes.max(1), &filler);
                async move {
                    let pod: Pod = serde_json::from_value(pod)?;
                    self.pods
                        .create(&PostParams::default(), &pod)
                        .await
                        .context("a pod")?;
                    anyhow::Ok(())
                }
            })
            .buffer_unordered(CONCURRENCY)
            .try_collect::<()>()
            .await?;
        let manager = self.manager()?;
        self.seen(sets).await?;
        tokio::time::sleep(SETTLE).await;
        let memory = meter::memory(manager.process()?)?;
        let crowd = Crowd {
            nodes,
            pods: sets * CROWD_SET,
            pod_kilobytes: kilobytes,
            memory,
            peak_over_steady: bytes(memory.peak) / bytes(memory.now),
            load: meter::load(),
        };
        drop(manager);
        self.clear().await?;
        Ok(crowd)
    }

    /// Until the manager has told in every status that it knows the pods.
    async fn seen(&self, sets: usize) -> Result<()> {
        let wanted = i32::try_from(CROWD_SET)?;
        wait_for("the manager to know all pods", PATIENCE, async || {
            let listed = self.sets.list(&ListParams::default().labels(LABEL)).await?;
            let statuses = listed.items.into_iter().filter_map(|set| set.status);
            match statuses.filter(|status| status.replicas == wanted).count() {
                known if known == sets => Ok(Seen::Done(())),
                known => not_yet(format!("{known} of {sets} sets")),
            }
        })
        .await
    }

    async fn clear(&self) -> Result<()> {
        let ours = ListParams::default().labels(LABEL);
        let now = DeleteParams::default().grace_period(0);
        self.sets.delete_collection(&now, &ours).await.context("sets")?;
        self.pods.delete_collection(&now, &ours).await.context("pods")?;
        Ok(())
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share with two digits is shown")]
fn bytes(count: u64) -> f64 {
    count as f64
}

fn container(image: &str) -> Value {
    json!({"name": "main", "image": image, "imagePullPolicy": "IfNotPresent"})
}

fn labels(name: &str) -> Value {
    json!({LABEL: name, "app": name})
}

/// A set whose pods are on a node from the start: there is no scheduler.
fn set(name: &str, replicas: usize, rolling: &Value) -> Value {
    let mut strategy =
        json!({"podUpdatePolicy": "InPlaceIfPossible", "partition": 0, "maxSurge": 0, "maxUnavailable": 1});
    for (field, value) in rolling.as_object().into_iter().flatten() {
        strategy[field] = value.clone();
    }
    json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet",
        "metadata": {"name": name, "labels": {LABEL: name}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels(name)},
            "template": {
                "metadata": {"labels": labels(name)},
                "spec": {
                    "nodeName": nodes::node_name(0), "serviceAccountName": AGENT_SERVICE_ACCOUNT,
                    "automountServiceAccountToken": false, "containers": [container("registry.example.com/app:1")],
                },
            },
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": strategy},
        },
    })
}

/// A pod of a paused set, on a revision of long ago, with about as much in it as real pods have.
fn crowd_pod(set: &str, uid: &str, number: usize, node: usize, filler: &str) -> Value {
    let mut labels = labels(set);
    for (key, value) in [
        ("controller-revision-hash", "crowd-old"),
        ("pod-template-hash", "old"),
        ("lifecycle.apps.kruise.io/state", "Normal"),
    ] {
        labels[key] = value.into();
    }
    labels["apps.kruise.io/cloneset-instance-id"] = format!("{number:05}").into();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("{set}-{number:05}"), "labels": labels, "annotations": {"bench.kruise.io/filler": filler},
            "ownerReferences": [{
                "apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet", "name": set, "uid": uid,
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "nodeName": nodes::node_name(node), "serviceAccountName": AGENT_SERVICE_ACCOUNT,
            "automountServiceAccountToken": false, "containers": [container("registry.example.com/app:1")],
        },
    })
}
