//! Jobs as users make them, and what becomes of them.

use std::time::Duration;

use anyhow::{Context, Result};
use kruise_api::image_pull_job::{ImagePullJob, ImagePullJobStatus};
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};

use super::Product;
use crate::wait::{Seen, not_yet, wait_for};

/// A job that was made.
#[derive(Clone, Debug)]
pub struct Job {
    api: Api<ImagePullJob>,
    pub name: String,
    pub uid: String,
}

/// How a job ended.
pub type Outcome = ImagePullJobStatus;

impl Job {
    /// Makes a job. `spec` is as in a manifest, without the image.
    pub async fn create(product: &Product, name: &str, image: &str, spec: Value) -> Result<Self> {
        let mut spec = spec;
        spec["image"] = image.into();
        let object = json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob", "metadata": {"name": name}, "spec": spec,
        });
        Self::of(product, object).await
    }

    /// Makes a job from a whole manifest.
    pub async fn of(product: &Product, object: Value) -> Result<Self> {
        let api: Api<ImagePullJob> = Api::namespaced(product.client.clone(), &product.namespace);
        let made = api
            .create(&PostParams::default(), &serde_json::from_value(object)?)
            .await?;
        Ok(Self {
            api,
            name: made.metadata.name.context("an object has a name")?,
            uid: made.metadata.uid.context("an object has a UID")?,
        })
    }

    /// As it is now.
    pub async fn get(&self) -> Result<ImagePullJob> {
        Ok(self.api.get(&self.name).await?)
    }

    /// Its status, empty until one is written.
    pub async fn status(&self) -> Result<ImagePullJobStatus> {
        Ok(self.get().await?.status.unwrap_or_default())
    }

    /// Waits until it is over.
    pub async fn complete(&self, within: Duration) -> Result<Outcome> {
        wait_for(&format!("job {} to complete", self.name), within, async || {
            let status = self.status().await?;
            if status.completion_time.is_some() {
                return Ok(Seen::Done(status));
            }
            not_yet(serde_json::to_string(&status)?)
        })
        .await
    }

    /// Waits until its status is as wanted.
    pub async fn until(
        &self,
        what: &str,
        within: Duration,
        wanted: impl Fn(&ImagePullJobStatus) -> bool,
    ) -> Result<ImagePullJobStatus> {
        wait_for(what, within, async || {
            let status = self.status().await?;
            if wanted(&status) {
                return Ok(Seen::Done(status));
            }
            not_yet(serde_json::to_string(&status)?)
        })
        .await
    }

    /// Waits until it is gone.
    pub async fn gone(&self, within: Duration) -> Result<()> {
        wait_for(
            &format!("job {} to be gone", self.name),
            within,
            async || match self.api.get_opt(&self.name).await? {
                None => Ok(Seen::Done(())),
                Some(job) => not_yet(serde_json::to_string(&job.status)?),
            },
        )
        .await
    }

    /// Deletes it.
    pub async fn delete(&self) -> Result<()> {
        self.api.delete(&self.name, &DeleteParams::default()).await?;
        Ok(())
    }
}
