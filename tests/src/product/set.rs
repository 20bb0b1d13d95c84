//! CloneSets as users make them, and what becomes of them.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kruise_api::clone_set::{CloneSet, CloneSetStatus};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::Product;
use crate::cluster::REGISTRY;
use crate::registry::{ImageSpec, LayerSpec, Pushed};
use crate::wait::{Seen, not_yet, wait_for};

/// A shell that ends at once when it is told to.
const IDLE: &str = "trap 'exit 0' TERM; while :; do sleep 600 & wait $!; done";

/// A set that was made.
#[derive(Clone, Debug)]
pub struct Set {
    api: Api<CloneSet>,
    pods: Api<Pod>,
    pub name: String,
}

/// Pushes an image for pods that do nothing, under the test's own name; images of different tags differ.
pub async fn push_idle_image(product: &Product, tag: &str) -> Result<String> {
    push_padded_image(product, tag, 0).await?;
    Ok(format!("{REGISTRY}/{}:{tag}", product.namespace))
}

/// The same with a layer of so many random bytes, so that a pull takes its time.
pub async fn push_padded_image(product: &Product, tag: &str, bytes: u64) -> Result<Pushed> {
    let mut image = ImageSpec::busybox(&product.namespace, tag)
        .env("VERSION", tag)
        .entrypoint(["/bin/sh", "-c", IDLE]);
    if bytes > 0 {
        let seed = format!("{}:{tag}", product.namespace);
        let seed = seed
            .bytes()
            .fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        image = image.layer(LayerSpec::random(bytes, seed));
    }
    product.cluster.registry().push(&image).await
}

impl Set {
    /// Makes a set with one container named main. `spec` is as in a manifest of v1beta1, without selector and template.
    pub async fn create(product: &Product, name: &str, image: &str, spec: Value) -> Result<Self> {
        let template = json!({
            "metadata": {"labels": {"app": name}},
            "spec": {"terminationGracePeriodSeconds": 1, "containers": [
                {"name": "main", "image": image, "imagePullPolicy": "IfNotPresent"},
            ]},
        });
        let mut spec = spec;
        spec["selector"] = json!({"matchLabels": {"app": name}});
        spec["template"] = template;
        let object = json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet", "metadata": {"name": name}, "spec": spec,
        });
        Self::from_manifest(product, object).await
    }

    /// Makes a set from a whole manifest of v1beta1.
    pub async fn from_manifest(product: &Product, manifest: Value) -> Result<Self> {
        let set = Self {
            api: Api::namespaced(product.client.clone(), &product.namespace),
            pods: Api::namespaced(product.client.clone(), &product.namespace),
            name: manifest["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        };
        set.api
            .create(&PostParams::default(), &serde_json::from_value(manifest)?)
            .await?;
        Ok(set)
    }

    /// As it is now.
    pub async fn get(&self) -> Result<CloneSet> {
        Ok(self.api.get(&self.name).await?)
    }

    /// Its status, empty until one is written.
    pub async fn status(&self) -> Result<CloneSetStatus> {
        Ok(self.get().await?.status.unwrap_or_default())
    }

    /// Merges into it.
    pub async fn patch(&self, patch: Value) -> Result<()> {
        self.api
            .patch(&self.name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        Ok(())
    }

    /// Changes the image of its template.
    pub async fn set_image(&self, image: &str) -> Result<()> {
        let path = "/spec/template/spec/containers/0/image";
        self.patch_json(json!([{"op": "replace", "path": path, "value": image}]))
            .await
    }

    /// Changes it by a JSON patch.
    pub async fn patch_json(&self, patch: Value) -> Result<()> {
        let patch: Patch<()> = Patch::Json(serde_json::from_value(patch)?);
        self.api
            .patch(&self.name, &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    /// Asks for so many replicas by the two requests that an HPA makes.
    pub async fn scale(&self, replicas: i32) -> Result<()> {
        let mut scale = self.api.get_scale(&self.name).await?;
        let selector = scale.status.as_ref().and_then(|status| status.selector.clone());
        ensure!(
            selector.as_deref() == Some(&format!("app={}", self.name)),
            "an autoscaler finds the pods by {selector:?}"
        );
        scale.spec.get_or_insert_default().replicas = Some(replicas);
        self.api
            .replace_scale(&self.name, &PostParams::default(), &scale)
            .await?;
        Ok(())
    }

    /// Its pods that are not being deleted.
    pub async fn pods(&self) -> Result<Vec<Pod>> {
        let params = ListParams::default().labels(&format!("app={}", self.name));
        let mut pods = self.pods.list(&params).await?.items;
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        pods.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        Ok(pods)
    }

    /// Waits until the controller has seen the newest version and `done` holds of the status.
    pub async fn when(
        &self,
        what: &str,
        within: Duration,
        done: impl Fn(&CloneSetStatus) -> bool,
    ) -> Result<CloneSetStatus> {
        wait_for(&format!("{} of set {}", what, self.name), within, async || {
            let set = self.get().await?;
            let status = set.status.unwrap_or_default();
            if status.observed_generation == set.metadata.generation && done(&status) {
                return Ok(Seen::Done(status));
            }
            not_yet(serde_json::to_string(&status).context("a status is JSON")?)
        })
        .await
    }

    /// Waits until so many pods are there and all of them updated and available.
    pub async fn settled(&self, replicas: i32, within: Duration) -> Result<CloneSetStatus> {
        self.when(&format!("{replicas} available pods"), within, |status| {
            status.replicas == replicas
                && status.updated_available_replicas == replicas
                && status.available_replicas == replicas
        })
        .await
    }
}
