//! What goes to an agent: the order of a pull, from the spec of its job.

use std::collections::BTreeMap;
use std::time::Duration;

use kruise_api::ids::TaskId;
use kruise_api::image_pull_job::options::{MinFree, PullOptions, priority};
use kruise_api::names;
use kruise_api::reference::ImageRef;
use kruise_planner::job::task_deadline;
use kruise_proto::convert::to_duration;
use kruise_proto::dispatch::{Credential, DiskGuard, Order, PullImage, order, pull_image};

use super::super::objects::JobObject;

/// Content of a pull's order, shared by all nodes that got it in one plan. Holds no credentials: those are read when an order is sent and forgotten
/// right after.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PullOrder {
    image: String,
    always: bool,
    attempt_timeout: Duration,
    backoff_limit: u32,
    /// For the whole task, where the job itself has no deadline.
    deadline: Option<Duration>,
    sandbox_labels: BTreeMap<String, String>,
    sandbox_annotations: BTreeMap<String, String>,
    requested_by: String,
    traceparent: String,
    priority: u32,
    queue_time: i64,
    max_size: u64,
    guard: Option<DiskGuard>,
    pin_for: Option<Duration>,
}

impl PullOrder {
    pub(crate) fn new(job: &JobObject, image: &ImageRef) -> Self {
        let spec = &job.spec;
        let sandbox = spec.sandbox_config.clone().unwrap_or_default();
        // A job whose annotations cannot be read hands out nothing.
        let options = PullOptions::parse(&job.annotations).unwrap_or_default();
        Self {
            image: image.canonical().to_owned(),
            always: spec.always_pulls(),
            attempt_timeout: Duration::from_secs(spec.pull_policy.timeout().into()),
            backoff_limit: spec.pull_policy.retries(),
            deadline: task_deadline(spec),
            sandbox_labels: sandbox.labels.unwrap_or_default(),
            sandbox_annotations: sandbox.annotations.unwrap_or_default(),
            // The jobs of a list take turns as one.
            requested_by: match job.list() {
                Some(list) => format!("{}/{list}", job.key.namespace),
                None => job.key.to_string(),
            },
            traceparent: job
                .annotations
                .get(names::TRACEPARENT)
                .cloned()
                .unwrap_or_default(),
            priority: priority_of(job, &options),
            queue_time: job.created.as_millisecond(),
            max_size: options.max_size.unwrap_or(0),
            guard: options.min_free.map(guard),
            pin_for: options.pin_for,
        }
    }

    pub(crate) fn image(&self) -> &str {
        &self.image
    }

    /// The same task after an edit: what may change while it is under way does, the rest stays as it was ordered.
    pub(crate) fn edited(&self, wanted: &Self) -> Self {
        Self {
            image: self.image.clone(),
            always: self.always,
            sandbox_labels: self.sandbox_labels.clone(),
            sandbox_annotations: self.sandbox_annotations.clone(),
            ..wanted.clone()
        }
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
            deadline: deadline.or(self.deadline).map(to_duration),
            sandbox_labels: self.sandbox_labels.clone().into_iter().collect(),
            sandbox_annotations: self.sandbox_annotations.clone().into_iter().collect(),
            credentials: credentials.to_vec(),
            requested_by: self.requested_by.clone(),
            priority: self.priority,
            queue_time: self.queue_time,
            max_size_bytes: self.max_size,
            disk_guard: self.guard,
            pin_for: self.pin_for.map(to_duration),
            traceparent: self.traceparent.clone(),
        };
        Order {
            task_id: id.to_string(),
            work: Some(order::Work::PullImage(pull)),
        }
    }
}

/// Place of a job's tasks in the queues of nodes and before the cluster's caps.
pub(crate) fn priority_of(job: &JobObject, options: &PullOptions) -> u32 {
    let round = job.status.as_ref().and_then(|status| status.outcomes.as_ref());
    let refreshes = job.spec.completion_policy.is_never() && round.is_some_and(|outcomes| outcomes.round > 1);
    match options.priority {
        Some(priority) => priority,
        None if job.workload().is_some() => priority::WORKLOAD,
        None if refreshes => priority::REFRESH,
        None => priority::USER,
    }
}

fn guard(least: MinFree) -> DiskGuard {
    match least {
        MinFree::Bytes(bytes) => DiskGuard {
            min_free_bytes: bytes,
            ..DiskGuard::default()
        },
        MinFree::Percent(percent) => DiskGuard {
            min_free_percent: percent,
            ..DiskGuard::default()
        },
    }
}
