//! Nodes and agents' pods by the thousand, in an API server without controllers.

use std::collections::BTreeMap;
use std::fmt::Debug;

use anyhow::{Context, Result, bail};
use futures::{TryStreamExt as _, stream};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use kruise_api::names::{AGENT_AUDIENCE, AGENT_SERVICE_ACCOUNT, DEFAULT_NAMESPACE};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::control::Target;
use super::tokens::{Signer, Subject};
use crate::cluster::Cluster;

/// Requests under way at once: enough to keep two cores busy.
pub(super) const CONCURRENCY: usize = 32;
/// Objects per page of a list.
const PAGE: u32 = 1000;

/// Name of a node by its number.
#[must_use]
pub fn node_name(number: usize) -> String {
    format!("fleet-{number:05}")
}

/// Makes nodes and agents' pods until there are so many, and answers them with a token each.
pub async fn provide(cluster: &Cluster, count: usize) -> Result<Vec<Target>> {
    let client = cluster.client().await?;
    let nodes: Api<Node> = Api::all(client.clone());
    let pods: Api<Pod> = Api::namespaced(client.clone(), DEFAULT_NAMESPACE);
    let there = list(&nodes).await?.len();
    if there > count {
        bail!("the bed has {there} nodes already, more than {count}: take it down first");
    }
    stream::iter((there..count).map(Ok))
        .try_for_each_concurrent(CONCURRENCY, |number| {
            let (nodes, pods) = (nodes.clone(), pods.clone());
            async move { make(&nodes, &pods, number).await }
        })
        .await?;
    targets(cluster, client, &nodes, &pods).await
}

/// A node and its agent's pod. Pods are made first, so that a node without one is never counted as made.
async fn make(nodes: &Api<Node>, pods: &Api<Pod>, number: usize) -> Result<()> {
    create(pods, pod(number)).await?;
    let status = json!({"status": {"phase": "Running", "podIP": "127.0.0.1", "conditions": [
        {"type": "Ready", "status": "True"},
    ]}});
    let name = format!("kruise-daemon-{number:05}");
    pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status))
        .await
        .with_context(|| format!("cannot let pod {name} run"))?;
    create(nodes, node(number)).await
}

async fn create<K>(api: &Api<K>, object: Value) -> Result<()>
where
    K: Resource + Clone + DeserializeOwned + Debug + Serialize,
{
    match api
        .create(&PostParams::default(), &serde_json::from_value(object)?)
        .await
    {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        made => made.map(drop).context("cannot make an object"),
    }
}

/// A node as a kubelet registers it, with what a node of a cloud usually carries: about 4 KB.
fn node(number: usize) -> Value {
    let name = node_name(number);
    let condition = |kind: &str, status: &str| {
        // Ready for long: nothing waits for it.
        let since = Timestamp::now() - SignedDuration::from_hours(1);
        json!({"type": kind, "status": status, "reason": format!("Kubelet{kind}"), "message": "as it should be",
            "lastHeartbeatTime": since, "lastTransitionTime": since})
    };
    let images: Vec<Value> = (0..12)
        .map(|image| json!({"names": [format!("registry.example.com/team/app-{image}@sha256:{:064x}", number * 31 + image)], "sizeBytes": 52_428_800}))
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            "node.kubernetes.io/instance-type": "standard-8",
            "topology.kubernetes.io/region": "region-1", "topology.kubernetes.io/zone": format!("zone-{}", number % 3),
            "pool": format!("pool-{}", number % 10),
        }, "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}},
        "spec": {"providerID": format!("cloud:///region-1/{name}"), "podCIDR": format!("10.{}.{}.0/24", number / 250 % 250, number % 250)},
        "status": {
            "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"},
            "allocatable": {"cpu": "7", "memory": "28Gi", "pods": "110", "ephemeral-storage": "90Gi"},
            "conditions": [condition("Ready", "True"), condition("MemoryPressure", "False"), condition("DiskPressure", "False"), condition("PIDPressure", "False")],
            "addresses": [{"type": "InternalIP", "address": format!("10.0.{}.{}", number / 250, number % 250)}, {"type": "Hostname", "address": name}],
            "nodeInfo": {"machineID": format!("{number:032x}"), "systemUUID": format!("{number:032x}"), "bootID": format!("{number:032x}"),
                "kernelVersion": "6.12.0", "osImage": "Linux", "containerRuntimeVersion": "containerd://2.2.0", "kubeletVersion": "v1.34.3",
                "kubeProxyVersion": "v1.34.3", "operatingSystem": "linux", "architecture": "amd64"},
            "images": images,
        },
    })
}

fn pod(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("kruise-daemon-{number:05}"), "labels": {
            "app.kubernetes.io/name": "kruise", "app.kubernetes.io/part-of": "kruise", "control-plane": "daemon",
        }},
        "spec": {
            "nodeName": node_name(number), "serviceAccountName": AGENT_SERVICE_ACCOUNT, "automountServiceAccountToken": false,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "daemon", "image": "registry.example.com/kruise-rs/kruise-daemon:bench"}],
        },
    })
}

/// A token for a service account as such, bound to no pod.
pub async fn account_token(cluster: &Cluster, account: &str, audience: &str) -> Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client().await?, DEFAULT_NAMESPACE);
    let account_uid = uid(&accounts.get(account).await?)?;
    let subject = Subject {
        namespace: DEFAULT_NAMESPACE,
        account,
        account_uid: &account_uid,
        pod: None,
        node: None,
    };
    Signer::of(cluster)?.token(&subject, audience)
}

async fn targets(
    cluster: &Cluster,
    client: Client,
    nodes: &Api<Node>,
    pods: &Api<Pod>,
) -> Result<Vec<Target>> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client, DEFAULT_NAMESPACE);
    let account = uid(&accounts.get(AGENT_SERVICE_ACCOUNT).await?)?;
    let signer = Signer::of(cluster)?;
    let pods: BTreeMap<String, Pod> = list(pods)
        .await?
        .into_iter()
        .filter_map(|pod| Some((pod.spec.as_ref()?.node_name.clone()?, pod)))
        .collect();
    let mut targets = Vec::new();
    for node in list(nodes).await? {
        let name = name(&node)?;
        let pod = pods.get(&name).with_context(|| format!("no pod on {name}"))?;
        let subject = Subject {
            namespace: DEFAULT_NAMESPACE,
            account: AGENT_SERVICE_ACCOUNT,
            account_uid: &account,
            pod: Some((&self::name(pod)?, &uid(pod)?)),
            node: Some((&name, &uid(&node)?)),
        };
        let token = signer.token(&subject, AGENT_AUDIENCE)?;
        targets.push(Target { node: name, token });
    }
    Ok(targets)
}

/// All objects, page by page.
async fn list<K>(api: &Api<K>) -> Result<Vec<K>>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let (mut all, mut params) = (Vec::new(), ListParams::default().limit(PAGE));
    loop {
        let page = api.list(&params).await?;
        all.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(all),
        }
    }
}

fn name<K: Resource>(object: &K) -> Result<String> {
    object.meta().name.clone().context("an object has a name")
}

fn uid<K: Resource>(object: &K) -> Result<String> {
    object.meta().uid.clone().context("an object has a UID")
}
