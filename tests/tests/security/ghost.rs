//! A node that exists in the API only, with a pod of the agents' account on it: everything that a token needs, and nothing that a real node
//! would miss when it is taken away.

use anyhow::{Context, Result};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use kruise_tests::product::{NAMESPACE, Product};
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::json;

/// The agents' account.
pub(crate) const ACCOUNT: &str = "kruise-daemon";
/// The agents' audience.
pub(crate) const AUDIENCE: &str = "kruise-manager";

/// An object that a token can be bound to.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// Asks for a token as a kubelet or an administrator does.
pub(crate) async fn token(
    product: &Product,
    namespace: &str,
    account: &str,
    audience: &str,
    bound: Option<&Bound>,
) -> Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(product.client.clone(), namespace);
    let request = TokenRequest {
        spec: TokenRequestSpec {
            audiences: if audience.is_empty() {
                Vec::new()
            } else {
                vec![audience.to_owned()]
            },
            bound_object_ref: bound.map(|bound| BoundObjectReference {
                api_version: Some("v1".into()),
                kind: Some(bound.kind.into()),
                name: Some(bound.name.clone()),
                uid: Some(bound.uid.clone()),
            }),
            expiration_seconds: Some(3600),
        },
        ..TokenRequest::default()
    };
    let made = accounts
        .create_token_request(account, &PostParams::default(), &request)
        .await
        .with_context(|| format!("no token for {namespace}/{account}"))?;
    Ok(made.status.context("no token in the answer")?.token)
}

/// A pod as something to bind to.
pub(crate) fn bound_pod(pod: &Pod) -> Result<Bound> {
    Ok(Bound {
        kind: "Pod",
        name: pod.metadata.name.clone().context("name")?,
        uid: pod.metadata.uid.clone().context("uid")?,
    })
}

/// Makes a pod that no kubelet will ever run.
pub(crate) async fn make_pod(
    product: &Product,
    namespace: &str,
    name: &str,
    node: &str,
    account: &str,
) -> Result<Bound> {
    let pods: Api<Pod> = Api::namespaced(product.client.clone(), namespace);
    let pod = json!({
        "metadata": {"name": name},
        "spec": {
            "nodeName": node, "serviceAccountName": account, "automountServiceAccountToken": false, "restartPolicy": "Never",
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "c", "image": "nowhere.invalid/never:1"}],
        },
    });
    bound_pod(
        &pods
            .create(&PostParams::default(), &serde_json::from_value(pod)?)
            .await?,
    )
}

/// The node and its pod. Taken away when dropped, whatever is left of them.
pub(crate) struct Ghost {
    product: Product,
    pub(crate) node: String,
    pub(crate) pod: Bound,
}

impl Ghost {
    pub(crate) async fn rise(product: &Product, name: &str) -> Result<Self> {
        // What a run that was killed has left behind must not be in the way.
        let run = product.namespace.rsplit('-').next().unwrap_or_default();
        let node = format!("ghost-{name}-{run}");
        make_node(product, &node).await?;
        let pod = make_pod(product, NAMESPACE, &format!("ghost-agent-{name}"), &node, ACCOUNT).await?;
        Ok(Self {
            product: product.clone(),
            node,
            pod,
        })
    }

    /// A token as the ghost's kubelet would ask for.
    pub(crate) async fn token(&self, audience: &str) -> Result<String> {
        token(&self.product, NAMESPACE, ACCOUNT, audience, Some(&self.pod)).await
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.product.client.clone(), NAMESPACE)
    }

    pub(crate) async fn delete_pod(&self) -> Result<()> {
        self.pods()
            .delete(&self.pod.name, &DeleteParams::default().grace_period(0))
            .await?;
        Ok(())
    }

    /// Writes down that the pod has failed, as a kubelet does after an eviction.
    pub(crate) async fn fail_pod(&self) -> Result<()> {
        let status = json!({"status": {"phase": "Failed", "reason": "Evicted"}});
        self.pods()
            .patch_status(
                &self.pod.name,
                &kube::api::PatchParams::default(),
                &kube::api::Patch::Merge(status),
            )
            .await?;
        Ok(())
    }

    pub(crate) async fn delete_node(&self) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.product.client.clone());
        nodes.delete(&self.node, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Deletes the node and makes another one of the same name.
    pub(crate) async fn make_node_again(&self) -> Result<()> {
        self.delete_node().await?;
        make_node(&self.product, &self.node).await.map(drop)
    }
}

async fn make_node(product: &Product, name: &str) -> Result<Node> {
    let nodes: Api<Node> = Api::all(product.client.clone());
    let node = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {"taints": [{"key": "ghost", "effect": "NoSchedule"}]},
    });
    Ok(nodes
        .create(&PostParams::default(), &serde_json::from_value(node)?)
        .await?)
}

impl Drop for Ghost {
    fn drop(&mut self) {
        let cluster = &self.product.cluster;
        let now = [
            "--ignore-not-found",
            "--wait=false",
            "--grace-period=0",
            "--force",
        ];
        let selector = format!("--field-selector=spec.nodeName={}", self.node);
        // What is left would be in the way of later tests, and only of those.
        let _ = cluster.kubectl(&[&["delete", "pod", "-n", NAMESPACE, &selector], &now[..]].concat());
        let _ = cluster.kubectl(&[&["delete", "node", &self.node], &now[..2]].concat());
    }
}
