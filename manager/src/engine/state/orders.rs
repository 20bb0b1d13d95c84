//! What goes to an agent: the order of a pull, from the spec of its job.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kruise_api::ids::{ObjectKey, TaskId};
use kruise_api::image_pull_job::ImagePullJobSpec;
use kruise_api::reference::ImageRef;
use kruise_proto::convert::to_duration;
use kruise_proto::dispatch::{Credential, Order, PullImage, order, pull_image};

/// Content of a pull's order, shared by all nodes that got it in one plan. Holds no credentials: those are read when an order is sent and forgotten
/// right after.
#[derive(Debug)]
pub(crate) struct PullOrder {
    image: String,
    always: bool,
    attempt_timeout: Duration,
    backoff_limit: u32,
    sandbox_labels: BTreeMap<String, String>,
    sandbox_annotations: BTreeMap<String, String>,
    requested_by: String,
}

impl PullOrder {
    pub(crate) fn new(spec: &ImagePullJobSpec, key: &ObjectKey, image: &ImageRef) -> Arc<Self> {
        let sandbox = spec.sandbox_config.clone().unwrap_or_default();
        Arc::new(Self {
            image: image.canonical().to_owned(),
            always: spec.image_pull_policy == "Always",
            attempt_timeout: Duration::from_secs(spec.pull_policy.timeout().into()),
            backoff_limit: spec.pull_policy.retries(),
            sandbox_labels: sandbox.labels.unwrap_or_default(),
            sandbox_annotations: sandbox.annotations.unwrap_or_default(),
            requested_by: key.to_string(),
        })
    }

    /// As it is sent. `deadline` is what is left of the job's.
    pub(crate) fn message(
        &self,
        id: &TaskId,
        deadline: Option<Duration>,
        credentials: &[Credential],
    ) -> Order {
        let policy = if self.always {
            pull_image::Policy::Always
        } else {
            pull_image::Policy::IfNotPresent
        };
        let pull = PullImage {
            image: self.image.clone(),
            policy: policy.into(),
            attempt_timeout: Some(to_duration(self.attempt_timeout)),
            backoff_limit: self.backoff_limit,
            deadline: deadline.map(to_duration),
            sandbox_labels: self.sandbox_labels.clone().into_iter().collect(),
            sandbox_annotations: self.sandbox_annotations.clone().into_iter().collect(),
            credentials: credentials.to_vec(),
            requested_by: self.requested_by.clone(),
            ..PullImage::default()
        };
        Order {
            task_id: id.to_string(),
            work: Some(order::Work::PullImage(pull)),
        }
    }
}
