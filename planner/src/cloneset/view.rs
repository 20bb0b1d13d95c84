//! Objects of the API as a plan looks at them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{ContainerStatus, PersistentVolumeClaim, Pod, PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kruise_api::clone_set::names;
use kruise_api::container_recreate_request::{ContainerRecreateRequest, keys};
use kruise_api::features::FeatureGates;
use kruise_api::image_pull_job::ImagePullJob;

use super::labels::Labels;
use super::pod::{GraceView, InPlaceView, NextBatch, Phase, PodView, Readiness};
use super::snapshot::{ClaimView, Gates, JobView, PreDownload, RecreateView, RevisionView};
use crate::inplace::{Options, Progress, progress, runs};
use crate::restart::bulk::Came;

impl PodView {
    /// Reads a pod. To be done once per version of it.
    #[must_use]
    pub fn of(pod: &Pod, gates: &Gates) -> Self {
        let meta = &pod.metadata;
        let none = PodStatus::default();
        let status = pod.status.as_ref().unwrap_or(&none);
        let spec = pod.spec.as_ref();
        let condition = |kind: &str| find(status, kind);
        let gates_of_pod = spec
            .and_then(|spec| spec.readiness_gates.as_deref())
            .unwrap_or_default();
        let has_gate = |kind: &str| gates_of_pod.iter().any(|gate| gate.condition_type == kind);
        let held = condition(names::KRUISE_POD_READY).and_then(|held| held.message.as_deref());
        let mut view = Self {
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            labels: meta.labels.as_ref().map(Labels::from).unwrap_or_default(),
            finalizers: meta.finalizers.clone().unwrap_or_default(),
            controller: controller(meta),
            owners: owners(meta),
            created: created(meta),
            terminating: meta.deletion_timestamp.is_some(),
            phase: phase(status.phase.as_deref()),
            node: spec
                .and_then(|spec| spec.node_name.clone())
                .filter(|node| !node.is_empty()),
            ready: readiness(condition("Ready")),
            containers_ready: condition("ContainersReady").is_some_and(is_true),
            in_place_gate: has_gate(names::IN_PLACE_READY),
            in_place_ready: condition(names::IN_PLACE_READY).map(is_true),
            kruise_gate: has_gate(names::KRUISE_POD_READY),
            kruise_ready: condition(names::KRUISE_POD_READY).map(is_true),
            not_ready_keys: held
                .and_then(|keys| serde_json::from_str(keys).ok())
                .unwrap_or_default(),
            restarts: most_restarts(status.container_statuses.as_deref(), |_| true),
            sidecar_restarts: sidecar_restarts(pod, status),
            deletion_cost: deletion_cost(annotation(meta, names::DELETION_COST)),
            instance_seq: annotation(meta, names::INSTANCE_SEQ).and_then(|seq| seq.parse().ok()),
            in_place: progress(pod, gates.in_place()).into(),
            ..Self::default()
        };
        view.read_labels();
        if view.in_place_ready == Some(false) {
            view.in_place.runs = runs(pod);
        }
        view
    }
}

impl From<Progress> for InPlaceView {
    fn from(progress: Progress) -> Self {
        Self {
            grace: progress.grace.map(|(revision, ends)| GraceView {
                revision,
                // Without a time it is over.
                ends: ends.unwrap_or(Timestamp::UNIX_EPOCH),
            }),
            unfinished: progress.unfinished,
            next: progress.next.map(|waits_for| NextBatch { waits_for }),
            runs: Vec::new(),
        }
    }
}

impl Gates {
    /// What the gates say. Unsaid is a third value of PreDownloadImageForInPlaceUpdate: sets are pre-downloaded for that ask for it.
    #[must_use]
    pub fn of(gates: &FeatureGates) -> Self {
        let in_place = Options::of(gates);
        Self {
            partition_rollback: gates.enabled("CloneSetPartitionRollback"),
            short_hash: gates.enabled("CloneSetShortHash"),
            recreate_on_claim_change: gates.enabled("RecreatePodWhenChangeVCTInCloneSetGate"),
            env_from_metadata: in_place.env_from_metadata,
            vertical_scaling: in_place.vertical_scaling,
            pre_download: match gates.said("PreDownloadImageForInPlaceUpdate") {
                _ if !gates.enabled("KruiseDaemon") => PreDownload::Never,
                None => PreDownload::BySettings,
                Some(true) => PreDownload::Always,
                Some(false) => PreDownload::Never,
            },
            pull_gate: gates.enabled("InPlacePullGate") && gates.enabled("KruiseDaemon"),
            restarts: gates.enabled("KruiseDaemon"),
            exclude_preparing_delete: false,
        }
    }

    /// What bears on changes in place.
    #[must_use]
    pub const fn in_place(&self) -> Options {
        Options {
            env_from_metadata: self.env_from_metadata,
            vertical_scaling: self.vertical_scaling,
        }
    }
}

impl ClaimView {
    /// Reads a claim.
    #[must_use]
    pub fn of(claim: &PersistentVolumeClaim) -> Self {
        let meta = &claim.metadata;
        Self {
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            instance_id: label(meta, names::INSTANCE_ID).filter(|id| !id.is_empty()),
            instance_seq: annotation(meta, names::INSTANCE_SEQ).and_then(|seq| seq.parse().ok()),
            owners: owners(meta),
            terminating: meta.deletion_timestamp.is_some(),
        }
    }
}

impl RevisionView {
    /// Reads a revision.
    #[must_use]
    pub fn of(revision: &ControllerRevision) -> Self {
        let meta = &revision.metadata;
        Self {
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            number: revision.revision,
            created: created(meta),
            controller: controller(meta),
            labels: meta.labels.clone().unwrap_or_default(),
            annotations: meta.annotations.clone().unwrap_or_default(),
            data: revision.data.clone().map(|data| data.0).unwrap_or_default(),
        }
    }
}

impl RecreateView {
    /// Reads a request.
    #[must_use]
    pub fn of(request: &ContainerRecreateRequest) -> Self {
        let meta = &request.metadata;
        Self {
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            run: label(meta, keys::RESTART_RUN),
            pod: request.spec.pod_name.clone(),
            pod_uid: label(meta, keys::POD_UID),
            came: Came::of(request),
        }
    }
}

impl JobView {
    /// Reads a job.
    #[must_use]
    pub fn of(job: &ImagePullJob) -> Self {
        Self {
            name: job.metadata.name.clone().unwrap_or_default(),
            revision_hash: label(&job.metadata, names::REVISION_HASH),
            terminating: job.metadata.deletion_timestamp.is_some(),
        }
    }
}

fn label(meta: &ObjectMeta, key: &str) -> Option<String> {
    meta.labels.as_ref()?.get(key).cloned()
}

fn annotation<'m>(meta: &'m ObjectMeta, key: &str) -> Option<&'m str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

fn created(meta: &ObjectMeta) -> Option<Timestamp> {
    meta.creation_timestamp.as_ref().map(|time| time.0)
}

fn references(meta: &ObjectMeta) -> impl Iterator<Item = &OwnerReference> {
    meta.owner_references.iter().flatten()
}

fn owners(meta: &ObjectMeta) -> Vec<String> {
    references(meta).map(|owner| owner.uid.clone()).collect()
}

fn controller(meta: &ObjectMeta) -> Option<String> {
    let controller = references(meta).find(|owner| owner.controller == Some(true));
    controller.map(|owner| owner.uid.clone())
}

fn find<'s>(status: &'s PodStatus, kind: &str) -> Option<&'s PodCondition> {
    status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == kind)
}

fn is_true(condition: &PodCondition) -> bool {
    condition.status == "True"
}

fn readiness(condition: Option<&PodCondition>) -> Readiness {
    match condition {
        None => Readiness::Absent,
        Some(ready) if is_true(ready) => Readiness::Ready {
            since: ready.last_transition_time.as_ref().map(|time| time.0),
        },
        Some(_) => Readiness::NotReady,
    }
}

fn phase(phase: Option<&str>) -> Phase {
    match phase {
        Some("Running") => Phase::Running,
        Some("Succeeded") => Phase::Succeeded,
        Some("Failed") => Phase::Failed,
        Some("Unknown") => Phase::Unknown,
        _ => Phase::Pending,
    }
}

fn most_restarts(statuses: Option<&[ContainerStatus]>, counts: impl Fn(&str) -> bool) -> i32 {
    let statuses = statuses
        .unwrap_or_default()
        .iter()
        .filter(|status| counts(&status.name));
    statuses.map(|status| status.restart_count).max().unwrap_or(0)
}

/// Init containers with `restartPolicy: Always` go on running beside the others.
fn sidecar_restarts(pod: &Pod, status: &PodStatus) -> i32 {
    let spec = pod.spec.as_ref();
    let init: BTreeMap<&str, bool> = spec
        .and_then(|spec| spec.init_containers.as_deref())
        .unwrap_or_default()
        .iter()
        .map(|container| {
            (
                container.name.as_str(),
                container.restart_policy.as_deref() == Some("Always"),
            )
        })
        .collect();
    let statuses = status.init_container_statuses.as_deref();
    most_restarts(statuses, |name| init.get(name).copied().unwrap_or(false))
}

/// Numbers that Go would write otherwise (`+1`, `01`) count as absent, as they do in Kubernetes.
fn deletion_cost(text: Option<&str>) -> i32 {
    let number: Option<i32> = text.and_then(|text| text.parse().ok());
    number
        .filter(|number| text.is_some_and(|text| number.to_string() == text))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::deletion_cost;

    #[test]
    fn deletion_costs() {
        for (text, cost) in [
            ("5", 5),
            ("-7", -7),
            ("0", 0),
            ("+5", 0),
            ("05", 0),
            ("x", 0),
            ("2147483648", 0),
        ] {
            assert_eq!(deletion_cost(Some(text)), cost, "{text}");
        }
        assert_eq!(deletion_cost(None), 0);
    }
}
