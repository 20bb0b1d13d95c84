//! Carries plans out in memory, with a kubelet and a scheduler that do everything at once: what a set comes to if nothing goes wrong.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kruise_api::clone_set::{CloneSet, names};
use serde_json::Value;

use super::action::{Action, OwnerChange, PodPatch};
use super::labels::Labels;
use super::plan::{CloneSetPlan, plan};
use super::pod::{GraceView, NotReadyKey, Phase, PodView, Readiness};
use super::snapshot::{ClaimView, CloneSetSnapshot, Gates, JobView, RecreateView, RevisionView, Writes};
use crate::restart::bulk::Came;
use crate::revision::{self, short_hash as short};

/// A set with everything around it, that plans are carried out on.
#[derive(Clone, Debug)]
pub struct Play {
    /// The set.
    pub set: CloneSet,
    /// Pods.
    pub pods: Vec<PodView>,
    /// Claims.
    pub claims: Vec<ClaimView>,
    /// Revisions.
    pub revisions: Vec<RevisionView>,
    /// Pre-download jobs.
    pub jobs: Vec<JobView>,
    /// Requests to restart containers.
    pub requests: Vec<RecreateView>,
    /// Labels of nodes.
    pub nodes: BTreeMap<String, BTreeMap<String, String>>,
    /// What is remembered of earlier writes: nothing, unless a test says otherwise.
    pub writes: Writes,
    /// Switches.
    pub gates: Gates,
    /// The time.
    pub now: Timestamp,
}

/// What a step of a play was.
#[derive(Clone, Debug)]
pub struct Step {
    /// When.
    pub at: Timestamp,
    /// What was planned, and done.
    pub plan: CloneSetPlan,
    /// Whether nothing more will happen by itself.
    pub settled: bool,
}

impl Play {
    /// What a plan is made from.
    #[must_use]
    pub fn snapshot(&self) -> CloneSetSnapshot<'_> {
        CloneSetSnapshot {
            set: &self.set,
            pods: self.pods.iter().collect(),
            claims: self.claims.iter().collect(),
            revisions: self.revisions.iter().collect(),
            jobs: self.jobs.iter().collect(),
            requests: self.requests.iter().collect(),
            nodes: &self.nodes,
            pulls: None,
            writes: &self.writes,
            gates: self.gates,
            now: self.now,
        }
    }

    /// Plans, does what the plan says, lets the kubelet do its part, and moves the time on: to when the plan wants to be made again if
    /// nothing else happens, else by a second.
    pub fn step(&mut self) -> Step {
        let at = self.now;
        let plan = plan(&self.snapshot());
        self.carry_out(&plan);
        let moved = self.kubelet();
        let idle = plan.actions.is_empty() && !plan.write_status && !moved;
        let soon = self.later(1);
        self.now = plan.wake.filter(|_| idle).map_or(soon, |wake| wake.max(soon));
        Step {
            at,
            settled: idle && plan.wake.is_none(),
            plan,
        }
    }

    fn later(&self, seconds: i64) -> Timestamp {
        self.now
            .saturating_add(SignedDuration::from_secs(seconds))
            .unwrap_or(self.now)
    }

    /// Does what a plan says, as if no write failed.
    pub fn carry_out(&mut self, plan: &CloneSetPlan) {
        for action in &plan.actions {
            self.act(action);
        }
        if plan.write_status {
            self.set.status = Some(plan.status.clone());
        }
    }

    fn uid(&self) -> String {
        self.set.metadata.uid.clone().unwrap_or_default()
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::CreatePod {
                pod,
                revision,
                instance_id,
                instance_seq,
                ..
            } => self.create_pod(pod, revision, instance_id, *instance_seq),
            Action::DeletePod { pod, .. } => self.pod(pod, |pod| pod.terminating = true),
            Action::Recreate { pod, .. } => {
                self.pod(pod, |pod| pod.set_label(names::SPECIFIED_DELETE, Some("true")));
            }
            Action::PatchPod { pod, patch, .. } => self.patch_pod(pod, patch),
            Action::UpdateInPlace { .. } => self.update_in_place(action),
            Action::PatchCloneSet { pods_to_delete, .. } => {
                self.set
                    .spec
                    .scale_strategy
                    .pods_to_delete
                    .clone_from(pods_to_delete);
            }
            Action::CreateClaim { .. } | Action::DeleteClaim { .. } | Action::PatchClaim { .. } => {
                self.claim(action);
            }
            Action::CreateImagePullJob { job, content, .. } => self.jobs.push(JobView {
                name: job.clone(),
                revision_hash: content.labels.get(names::REVISION_HASH).cloned(),
                terminating: false,
            }),
            Action::DeleteImagePullJob { job, .. } => self.jobs.retain(|known| known.name != *job),
            Action::CreateContainerRecreateRequest {
                request, pod, run, ..
            } => {
                let known = self.pods.iter().find(|known| known.name == *pod);
                self.requests.push(RecreateView {
                    name: request.clone(),
                    uid: format!("uid-of-{request}"),
                    resource_version: String::new(),
                    run: Some(run.clone()),
                    pod: pod.clone(),
                    pod_uid: known.map(|pod| pod.uid.clone()),
                    came: Came::Runs("being restarted".to_owned()),
                });
            }
            Action::CreateRevision { .. } | Action::PatchRevision { .. } | Action::DeleteRevision { .. } => {
                self.revision(action);
            }
        }
    }

    fn pod(&mut self, name: &str, change: impl FnOnce(&mut PodView)) {
        if let Some(pod) = self.pods.iter_mut().find(|pod| pod.name == name) {
            change(pod);
        }
    }

    fn create_pod(&mut self, name: &str, revision: &str, id: &str, seq: Option<i64>) {
        let mut labels = self.template_labels(revision);
        let hash = short(revision).to_owned();
        let label = if self.gates.short_hash {
            hash.clone()
        } else {
            revision.to_owned()
        };
        labels.extend([
            (names::INSTANCE_ID.to_owned(), id.to_owned()),
            (names::REVISION.to_owned(), label),
            (names::TEMPLATE_HASH.to_owned(), hash),
            (
                names::LIFECYCLE_STATE.to_owned(),
                names::state::PREPARING_NORMAL.to_owned(),
            ),
        ]);
        let mut pod = PodView {
            name: name.to_owned(),
            uid: format!("uid-of-{name}"),
            labels: Labels::from(&labels),
            finalizers: self.template_finalizers(revision),
            controller: Some(self.uid()),
            owners: vec![self.uid()],
            created: Some(self.now),
            in_place_gate: true,
            kruise_gate: true,
            instance_seq: seq,
            ..PodView::default()
        };
        pod.read_labels();
        self.pods.push(pod);
    }

    fn template(&self, revision: &str) -> Option<&Value> {
        let known = self.revisions.iter().find(|known| known.name == revision);
        known?.data.pointer("/spec/template")
    }

    fn template_labels(&self, revision: &str) -> BTreeMap<String, String> {
        let labels = self
            .template(revision)
            .and_then(|template| template.pointer("/metadata/labels")?.as_object());
        let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
        labels.into_iter().flatten().filter_map(text).collect()
    }

    fn template_finalizers(&self, revision: &str) -> Vec<String> {
        let list = self
            .template(revision)
            .and_then(|template| template.pointer("/metadata/finalizers")?.as_array());
        list.into_iter()
            .flatten()
            .filter_map(|name| Some(name.as_str()?.to_owned()))
            .collect()
    }

    fn patch_pod(&mut self, name: &str, patch: &PodPatch) {
        let (uid, now) = (self.uid(), self.now);
        self.pod(name, |pod| {
            for (key, value) in &patch.labels {
                pod.set_label(key, value.as_deref());
            }
            if patch.annotations.get(names::IN_PLACE_GRACE) == Some(&None) {
                pod.in_place.grace = None;
            }
            pod.finalizers.extend(patch.finalizers.iter().cloned());
            match patch.owners {
                Some(OwnerChange::Claim) => pod.controller = Some(uid),
                Some(OwnerChange::Release) => {
                    pod.controller = None;
                    pod.owners.retain(|owner| *owner != uid);
                }
                None => {}
            }
            for condition in &patch.conditions {
                let value = condition.status == "True";
                match condition.kind {
                    names::IN_PLACE_READY => pod.in_place_ready = Some(value),
                    names::KRUISE_POD_READY => {
                        pod.kruise_ready = Some(value);
                        let keys: Vec<NotReadyKey> =
                            serde_json::from_str(&condition.message).unwrap_or_default();
                        pod.not_ready_keys = keys;
                    }
                    _ => {}
                }
            }
            settle_readiness(pod, now);
        });
    }

    fn update_in_place(&mut self, action: &Action) {
        let Action::UpdateInPlace {
            pod,
            revision,
            lifecycle_state,
            grace_seconds,
            reason,
            ..
        } = action
        else {
            return;
        };
        let labels = self.template_labels(revision);
        let ends = self.later(i64::from(*grace_seconds));
        let short_label = self.gates.short_hash;
        let now = self.now;
        self.pod(pod, |pod| {
            if let Some(state) = lifecycle_state {
                for (key, value) in &labels {
                    pod.labels.insert(key, value);
                }
                let label = if short_label { short(revision) } else { revision };
                pod.set_label(names::REVISION, Some(label));
                pod.set_label(names::TEMPLATE_HASH, Some(short(revision)));
                pod.set_label(names::LIFECYCLE_STATE, Some(state));
            } else if pod.in_place.grace.take().is_none() {
                pod.in_place.next = None;
            }
            if *reason == "MetadataOnly" {
                return;
            }
            if *grace_seconds > 0 {
                pod.in_place.grace = Some(GraceView {
                    revision: revision.clone(),
                    ends,
                });
            } else {
                pod.in_place.unfinished = vec!["all".to_owned()];
            }
            if pod.in_place_gate {
                pod.in_place_ready = Some(false);
            }
            settle_readiness(pod, now);
        });
    }

    fn claim(&mut self, action: &Action) {
        match action {
            Action::CreateClaim {
                claim,
                instance_id,
                instance_seq,
                ..
            } => self.claims.push(ClaimView {
                name: claim.clone(),
                uid: format!("uid-of-{claim}"),
                instance_id: Some(instance_id.clone()),
                instance_seq: *instance_seq,
                owners: vec![self.uid()],
                ..ClaimView::default()
            }),
            Action::DeleteClaim { claim, .. } => self.claims.retain(|known| known.name != *claim),
            Action::PatchClaim { claim, pod_uid, .. } => {
                for known in self.claims.iter_mut().filter(|known| known.name == *claim) {
                    known.owners = vec![pod_uid.clone()];
                }
            }
            _ => {}
        }
    }

    fn revision(&mut self, action: &Action) {
        match action {
            Action::CreateRevision {
                revision,
                number,
                hash,
                claim_template_hash,
                ..
            } => self.revisions.push(RevisionView {
                name: revision.clone(),
                uid: format!("uid-of-{revision}"),
                number: *number,
                created: Some(self.now),
                controller: Some(self.uid()),
                labels: BTreeMap::from([(names::REVISION_HASH.to_owned(), hash.clone())]),
                annotations: BTreeMap::from([(
                    names::CLAIM_TEMPLATE_HASH.to_owned(),
                    claim_template_hash.clone(),
                )]),
                data: revision::data(&self.set.spec.template),
                ..RevisionView::default()
            }),
            Action::PatchRevision {
                revision,
                number,
                labels,
                annotations,
                ..
            } => {
                for known in self.revisions.iter_mut().filter(|known| known.name == *revision) {
                    known.number = number.unwrap_or(known.number);
                    known.labels.extend(labels.clone());
                    known.annotations.extend(annotations.clone());
                }
            }
            Action::DeleteRevision { revision, .. } => self.revisions.retain(|known| known.name != *revision),
            _ => {}
        }
    }

    /// Everything that a kubelet, a scheduler and the garbage collector do, at once. Answers whether anything changed.
    pub fn kubelet(&mut self) -> bool {
        let now = self.now;
        let before = self.pods.len();
        self.pods.retain(|pod| !pod.terminating);
        let mut moved = self.pods.len() < before;
        for pod in self.pods.iter_mut().filter(|pod| pod.is_active()) {
            let old = pod.clone();
            pod.node.get_or_insert_with(|| format!("node-of-{}", old.name));
            pod.phase = Phase::Running;
            pod.containers_ready = true;
            pod.in_place.unfinished.clear();
            if let Some(next) = &mut pod.in_place.next {
                next.waits_for.clear();
            }
            settle_readiness(pod, now);
            moved |= *pod != old;
        }
        for request in self
            .requests
            .iter_mut()
            .filter(|request| request.came.is_running())
        {
            request.came = Came::Succeeded;
            moved = true;
        }
        moved
    }
}

/// Ready follows from the containers and the gates.
fn settle_readiness(pod: &mut PodView, now: Timestamp) {
    let gates = (!pod.in_place_gate || pod.in_place_ready == Some(true))
        && (!pod.kruise_gate || pod.kruise_ready == Some(true));
    let ready = pod.phase == Phase::Running && pod.containers_ready && gates;
    match (ready, pod.ready) {
        (true, Readiness::Ready { .. }) => {}
        (true, _) => pod.ready = Readiness::Ready { since: Some(now) },
        (false, _) => pod.ready = Readiness::NotReady,
    }
}
