//! Jobs as a benchmark makes them.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::ConfigMap;
use kruise_api::image_pull_job::ImagePullJob;
use kruise_tests::fleet::control::{Stamp, stamp};
use kruise_tests::wait::{Seen, not_yet, wait_for};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::meter::{Spread, millis};

/// Where they are made.
const NAMESPACE: &str = "default";

/// A client for jobs.
#[derive(Clone)]
pub(crate) struct Jobs {
    client: Client,
    api: Api<ImagePullJob>,
}

impl Jobs {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            api: Api::namespaced(client.clone(), NAMESPACE),
            client,
        }
    }

    /// Makes a job and answers when it was asked for and when it was there.
    pub(crate) async fn create(&self, name: &str, image: &str, mut spec: Value) -> Result<(Stamp, Stamp)> {
        spec["image"] = image.into();
        let job = json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob", "metadata": {"name": name}, "spec": spec,
        });
        let job = serde_json::from_value(job)?;
        let asked = stamp();
        self.api
            .create(&PostParams::default(), &job)
            .await
            .with_context(|| format!("cannot make job {name}"))?;
        Ok((asked, stamp()))
    }

    /// Waits until a job is over, and answers how many nodes have succeeded and failed.
    pub(crate) async fn complete(&self, name: &str, within: Duration) -> Result<(i32, i32)> {
        wait_for(&format!("job {name} to complete"), within, async || {
            let status = self.api.get(name).await?.status.unwrap_or_default();
            match status.completion_time {
                Some(_) => Ok(Seen::Done((status.succeeded, status.failed))),
                None => not_yet(format!("{} of {} succeeded", status.succeeded, status.desired)),
            }
        })
        .await
    }

    /// The same to a hundredth of a second, for jobs that take a few.
    pub(crate) async fn ended(&self, name: &str, within: Duration) -> Result<(i32, i32)> {
        let end = tokio::time::Instant::now() + within;
        loop {
            let status = self.api.get(name).await?.status.unwrap_or_default();
            if status.completion_time.is_some() {
                return Ok((status.succeeded, status.failed));
            }
            if tokio::time::Instant::now() >= end {
                bail!("job {name} has not ended within {within:?}: {status:?}");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Deletes all jobs and waits until they are gone.
    pub(crate) async fn clear(&self) -> Result<()> {
        self.api
            .delete_collection(&DeleteParams::default(), &ListParams::default())
            .await
            .context("cannot delete the jobs")?;
        wait_for("the jobs to be gone", Duration::from_secs(60), async || {
            let left = self.api.list(&ListParams::default().limit(1)).await?.items.len();
            if left == 0 {
                Ok(Seen::Done(()))
            } else {
                not_yet("some are there")
            }
        })
        .await
    }

    /// Time of a small write at the API server, in milliseconds: what a control plane that speaks through the API server pays at least, per
    /// message.
    pub(crate) async fn put_latency(&self, count: usize) -> Result<Spread> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), NAMESPACE);
        let params = PatchParams::apply("bench").force();
        let mut times = Vec::new();
        for number in 0..count {
            let map = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "bench"}, "data": {"number": number.to_string()},
            });
            let begun = stamp();
            maps.patch("bench", &params, &Patch::Apply(&map))
                .await
                .context("cannot write a ConfigMap")?;
            times.push(millis(begun, stamp()));
        }
        Ok(Spread::of(times))
    }
}
