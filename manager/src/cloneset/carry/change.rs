//! Pods and claims are changed.

use futures::FutureExt;
use kruise_api::clone_set::names;
use kruise_planner::cloneset::Action;
use kruise_planner::inplace::{self, Change, Decision, Options, Target, Written};
use kruise_planner::revision;
use serde_json::{Value, json};

use super::super::body;
use super::super::event::{Seen, Step};
use super::super::objects::Object;
use super::super::ports::Way;
use super::super::space::Kind;
use super::{Carrier, Done, no_body, side_by_side};
use crate::kubeapi::ApiFailure;

/// Kubernetes of this version and newer changes cpu and memory through the subresource resize; all that we support are.
const HAS_RESIZE: bool = true;

impl Carrier {
    pub(super) async fn change_all(&mut self, changes: Vec<Action>) {
        if self.deposed() {
            return;
        }
        let tries = changes.iter().map(|action| self.change(action).boxed());
        for done in side_by_side(tries.collect()).await {
            self.take(done);
        }
    }

    async fn change(&self, action: &Action) -> Done {
        let mut done = Done::default();
        match action {
            Action::PatchPod { pod, patch, .. } => {
                let seen = self.seen(Kind::Pod, pod);
                let (body, of_status) = body::pod_patch(&self.pass.set, &seen, patch, self.now);
                let way = if of_status {
                    Way::StrategicStatus
                } else {
                    Way::Strategic
                };
                self.write(Kind::Pod, pod, way, body, &mut done).await;
            }
            Action::Recreate { pod, revision, .. } => self.recreate(pod, revision, &mut done).await,
            Action::PatchClaim {
                claim, pod, pod_uid, ..
            } => {
                let body = body::hand_over(&self.seen(Kind::Claim, claim), pod, pod_uid);
                self.write(Kind::Claim, claim, Way::Merge, body, &mut done).await;
                if let Some(failed) = done.failures.first() {
                    let text = format!("failed to give claim {claim} to pod {pod}: {}", failed.failure);
                    done.tell(true, "FailedUpdate", text);
                }
            }
            Action::UpdateInPlace { pod, revision, .. } => {
                self.update_in_place(action, pod, revision, &mut done).await;
            }
            _ => {}
        }
        done
    }

    /// One patch. Answers the version that it made.
    async fn write(&self, kind: Kind, name: &str, way: Way, body: Value, done: &mut Done) -> Option<Seen> {
        match self.patch(kind, name, way, body).await {
            Ok(object) => {
                let seen = Seen {
                    uid: object.uid().to_owned(),
                    version: object.version(),
                };
                done.made.push(object);
                Some(seen)
            }
            Err(failure) => {
                done.failed(kind, name, Step::Update, failure);
                None
            }
        }
    }

    /// Marks a pod for deletion, so that the next plan replaces it.
    async fn recreate(&self, pod: &str, revision: &str, done: &mut Done) {
        let mut meta = body::preconditions(&self.seen(Kind::Pod, pod));
        meta["labels"] = json!({ names::SPECIFIED_DELETE: "true" });
        let body = json!({ "metadata": meta });
        let written = self.write(Kind::Pod, pod, Way::Strategic, body, done).await;
        let what = format!("pod {pod} to revision {revision} by making it again");
        match (written, done.failures.first()) {
            (Some(_), _) => done.tell(false, "SuccessfulUpdatePodReCreate", format!("updating {what}")),
            (None, Some(failed)) if failed.failure != ApiFailure::NotLeading => {
                let text = format!("failed to update {what}: {}", failed.failure);
                done.tell(true, "FailedUpdatePodReCreate", text);
            }
            (None, _) => {}
        }
    }

    /// Not ready first, then the change: in this order nobody sends requests to a container that is about to restart.
    async fn update_in_place(&self, action: &Action, pod: &str, revision: &str, done: &mut Done) {
        let written = match self.written(action, pod).await {
            Ok(Some(written)) => written,
            Ok(None) => return,
            Err(failure) => {
                done.failed(Kind::Pod, pod, Step::Update, failure);
                return;
            }
        };
        let mut seen = self.seen(Kind::Pod, pod);
        let parts = [
            (Way::StrategicStatus, written.status),
            (Way::Resize, written.resize),
            (Way::Strategic, Some(written.pod)),
        ];
        for (way, body) in parts {
            let Some(mut body) = body else { continue };
            merge_preconditions(&mut body, &seen);
            match self.write(Kind::Pod, pod, way, body, done).await {
                Some(newer) => seen = newer,
                None => break,
            }
        }
        match done.failures.first() {
            None => {
                let text = format!("successfully update pod {pod} in-place(revision {revision})");
                done.tell(false, "SuccessfulUpdatePodInPlace", text);
            }
            Some(failed) if failed.failure != ApiFailure::NotLeading => {
                let text = format!(
                    "failed to update pod {pod} in-place(revision {revision}): {}",
                    failed.failure
                );
                done.tell(true, "FailedUpdatePodInPlace", text);
            }
            Some(_) => {}
        }
    }

    /// The patches, made from the pod as it is now: it must be the version that the plan saw. None when there is nothing to write any
    /// more.
    async fn written(&self, action: &Action, name: &str) -> Result<Option<Written>, ApiFailure> {
        let Action::UpdateInPlace {
            revision,
            from,
            lifecycle_state,
            grace_seconds,
            ..
        } = action
        else {
            return Ok(None);
        };
        let pod = self
            .cluster
            .pod(self.namespace.clone(), name.to_owned())
            .await?
            .ok_or(ApiFailure::Gone)?;
        let seen = self.seen(Kind::Pod, name);
        if pod.metadata.resource_version.as_deref() != Some(&seen.version) {
            return Err(ApiFailure::Conflict);
        }
        let Some(lifecycle_state) = lifecycle_state else {
            let later = inplace::next_batch(&pod, HAS_RESIZE, self.now);
            return Ok(inplace::end_grace(&pod, HAS_RESIZE, self.now).or(later));
        };
        let options = Options {
            env_from_metadata: self.pass.gates.env_from_metadata,
            vertical_scaling: self.pass.gates.vertical_scaling,
        };
        let change = self.change_between(from.as_deref(), revision, options)?;
        let short = revision::short_hash(revision);
        let label = if self.pass.gates.short_hash {
            short
        } else {
            revision
        };
        let target = Target {
            revision,
            label,
            lifecycle_state,
            grace_seconds: *grace_seconds,
            resize: HAS_RESIZE,
        };
        Ok(Some(inplace::begin(&pod, &change, &target, options, self.now)))
    }

    fn change_between(&self, from: Option<&str>, to: &str, options: Options) -> Result<Change, ApiFailure> {
        let by_hash = |label: &str| {
            let hash = revision::short_hash(label);
            let mut all = self.pass.revisions.iter();
            let found = all.find(|(name, _)| revision::short_hash(name) == hash)?;
            Some(std::sync::Arc::clone(found.1))
        };
        let old = from
            .and_then(by_hash)
            .ok_or_else(|| no_body("the revision that the pod is on"))?;
        let new = by_hash(to).ok_or_else(|| no_body("the revision that the pod comes to"))?;
        match inplace::decide_revisions(&old, &new, options) {
            Decision::InPlace(change) => Ok(change),
            Decision::Impossible(obstacle) => Err(ApiFailure::Refused(obstacle.to_string())),
        }
    }
}

fn merge_preconditions(body: &mut Value, seen: &Seen) {
    body["metadata"]["uid"] = seen.uid.clone().into();
    body["metadata"]["resourceVersion"] = seen.version.clone().into();
}

impl Object {
    /// The version, as text.
    fn version(&self) -> String {
        match self {
            Self::Set(set) => set.set.metadata.resource_version.clone().unwrap_or_default(),
            Self::Pod(pod) => pod.resource_version.clone(),
            Self::Claim(claim) => claim.resource_version.clone(),
            Self::Revision(revision) => revision.resource_version.clone(),
            // Nobody patches jobs.
            Self::Job(_) => String::new(),
            Self::Request(request) => request.resource_version.clone(),
        }
    }
}
