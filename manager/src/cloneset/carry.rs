//! Carries out a plan: its actions in order, pods side by side, then the status.
//!
//! An action that fails keeps those from being tried that rest on it, and no others: a pod whose claim was not made is not made, claims
//! of a pod that was not deleted stay, nothing is made from a revision that is not stored. Everything that the writes answer goes back to
//! the state, which plans anew from it.

mod change;
mod create;
mod keep;
mod remove;
mod restart;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use kruise_planner::cloneset::Action;

use super::event::{Failed, Outcome, Pass, Seen, Step};
use super::objects::Object;
use super::ports::{CreateFailure, Requests, Told, Way};
use super::space::Kind;
use crate::kubeapi::ApiFailure;

/// Writes of one pass under way at once.
const AT_ONCE: usize = 16;

/// A pass while it is being carried out.
pub(super) struct Carrier {
    cluster: Arc<dyn Requests>,
    pass: Pass,
    namespace: String,
    now: Timestamp,
    outcome: Outcome,
    told: Vec<Told>,
}

/// What came of one action, or of a few that belong together.
#[derive(Debug, Default)]
struct Done {
    made: Vec<Object>,
    gone: Vec<(Kind, String, String)>,
    unsure: Vec<(Kind, String)>,
    failures: Vec<Failed>,
    told: Vec<Told>,
}

impl Done {
    fn failed(&mut self, kind: Kind, name: &str, step: Step, failure: ApiFailure) {
        match failure {
            // Another version, or another object: see what there is before anything more is decided.
            ApiFailure::Conflict | ApiFailure::Gone | ApiFailure::Unsure { .. } => {
                self.unsure.push((kind, name.to_owned()));
            }
            ApiFailure::Refused(_) | ApiFailure::NotLeading => {}
        }
        self.failures.push(Failed {
            kind,
            name: name.to_owned(),
            step,
            failure,
        });
    }

    fn tell(&mut self, warning: bool, reason: &'static str, message: String) {
        self.told.push(Told {
            warning,
            reason,
            message,
        });
    }

    fn is_ok(&self) -> bool {
        self.failures.is_empty()
    }
}

impl Carrier {
    pub(super) fn new(cluster: Arc<dyn Requests>, pass: Pass, now: Timestamp) -> Self {
        let namespace = pass.set.metadata.namespace.clone().unwrap_or_default();
        let outcome = Outcome {
            set: pass.set.metadata.uid.clone().unwrap_or_default(),
            namespace: namespace.clone(),
            ..Outcome::default()
        };
        Self {
            cluster,
            pass,
            namespace,
            now,
            outcome,
            told: Vec::new(),
        }
    }

    /// Does it all. Not cancelled in the middle but by the end of the leadership, after which nothing can be written anyway.
    pub(super) async fn run(mut self) -> Outcome {
        let actions = std::mem::take(&mut self.pass.actions);
        let sorted = Sorted::from(actions);
        self.outcome.tried = sorted.steps();
        if self.store_revisions(&sorted.revisions).await {
            self.create_all(sorted.creations).await;
            self.remove_all(sorted.removals).await;
            self.change_all(sorted.changes).await;
            self.restart_all(sorted.restarts).await;
            self.keep_all(sorted.keeping).await;
        }
        self.write_status().await;
        self.tell_all().await;
        self.outcome
    }

    /// Takes in what came of something. Answers whether it went well.
    fn take(&mut self, done: Done) -> bool {
        let ok = done.is_ok();
        self.outcome.made.extend(done.made);
        self.outcome.gone.extend(done.gone);
        self.outcome.unsure.extend(done.unsure);
        self.outcome.failures.extend(done.failures);
        self.told.extend(done.told);
        ok
    }

    /// Whether the process may still write: once it does not lead, nothing more is tried.
    fn deposed(&self) -> bool {
        let mut failures = self.outcome.failures.iter();
        failures.any(|failed| failed.failure == ApiFailure::NotLeading)
    }

    fn seen(&self, kind: Kind, name: &str) -> Seen {
        let key = (kind, name.to_owned());
        self.pass.seen.get(&key).cloned().unwrap_or_default()
    }

    async fn create(&self, kind: Kind, body: serde_json::Value) -> Result<Object, CreateFailure> {
        self.cluster.create(kind, self.namespace.clone(), body).await
    }

    async fn patch(
        &self,
        kind: Kind,
        name: &str,
        way: Way,
        body: serde_json::Value,
    ) -> Result<Object, ApiFailure> {
        let (namespace, name) = (self.namespace.clone(), name.to_owned());
        self.cluster.patch(kind, namespace, name, way, body).await
    }

    async fn write_status(&mut self) {
        let Some(body) = self.pass.status.take() else {
            return;
        };
        if self.deposed() {
            return;
        }
        let name = self.pass.set.metadata.name.clone().unwrap_or_default();
        let mut done = Done::default();
        match self.patch(Kind::Set, &name, Way::MergeStatus, body).await {
            Ok(set) => {
                done.made.push(set);
                self.outcome.status_written = true;
            }
            Err(failure) => done.failed(Kind::Set, &name, Step::Keep, failure),
        }
        self.take(done);
    }

    /// Events are news, not truth: one that cannot be told is let go.
    async fn tell_all(&mut self) {
        if self.deposed() {
            return;
        }
        let planned = self.pass.events.iter().map(|event| Told {
            warning: event.warning,
            reason: event.reason,
            message: event.message.clone(),
        });
        let all: Vec<Told> = planned.chain(std::mem::take(&mut self.told)).collect();
        let set = Arc::clone(&self.pass.set);
        let told: Vec<_> = all
            .into_iter()
            .map(|event| self.cluster.record(&set, event))
            .collect();
        futures::stream::iter(told)
            .buffer_unordered(AT_ONCE)
            .for_each(|result| async move {
                if let Err(error) = result {
                    tracing::debug!(%error, "an event was not told");
                }
            })
            .await;
    }
}

/// Actions by what they have to do with each other.
#[derive(Debug, Default)]
struct Sorted {
    revisions: Vec<Action>,
    creations: Vec<create::Creation>,
    removals: Vec<remove::Removal>,
    changes: Vec<Action>,
    restarts: Vec<Action>,
    keeping: Vec<Action>,
}

impl From<Vec<Action>> for Sorted {
    fn from(actions: Vec<Action>) -> Self {
        let mut sorted = Self::default();
        let mut claims: BTreeMap<String, Vec<Action>> = BTreeMap::new();
        for action in actions {
            match action {
                Action::CreateRevision { .. } => sorted.revisions.push(action),
                Action::PatchRevision { ref labels, .. } if labels.is_empty() => {
                    sorted.revisions.push(action);
                }
                Action::CreateClaim { ref pod, .. } => claims.entry(pod.clone()).or_default().push(action),
                Action::CreatePod { ref pod, .. } => {
                    let claims = claims.remove(pod).unwrap_or_default();
                    sorted.creations.push(create::Creation { claims, pod: action });
                }
                Action::DeletePod { pod, .. } => sorted.removals.push(remove::Removal::of_pod(pod)),
                Action::DeleteClaim { claim, pod, .. } => sorted.remove_claim(claim, pod.as_deref()),
                Action::UpdateInPlace { .. }
                | Action::Recreate { .. }
                | Action::PatchPod { .. }
                | Action::PatchClaim { .. } => sorted.changes.push(action),
                Action::CreateContainerRecreateRequest { .. } => sorted.restarts.push(action),
                Action::PatchRevision { .. }
                | Action::CreateImagePullJob { .. }
                | Action::DeleteImagePullJob { .. }
                | Action::DeleteRevision { .. }
                | Action::PatchCloneSet { .. } => sorted.keeping.push(action),
            }
        }
        sorted
    }
}

impl Sorted {
    /// A claim goes after its pod, if that goes in the same plan.
    fn remove_claim(&mut self, claim: String, pod: Option<&str>) {
        let of_pod = self
            .removals
            .iter_mut()
            .rev()
            .find(|removal| pod.is_some() && removal.pod.as_deref() == pod);
        match of_pod {
            Some(removal) => removal.claims.push(claim),
            None => self.removals.push(remove::Removal {
                pod: None,
                claims: vec![claim],
            }),
        }
    }

    fn steps(&self) -> Vec<Step> {
        let steps = [
            (Step::Create, !self.creations.is_empty()),
            (Step::Delete, !self.removals.is_empty()),
            (Step::Update, !self.changes.is_empty()),
            (Step::Restart, !self.restarts.is_empty()),
            (Step::Keep, !self.revisions.is_empty() || !self.keeping.is_empty()),
        ];
        steps
            .into_iter()
            .filter(|(_, any)| *any)
            .map(|(step, _)| step)
            .collect()
    }
}

/// Outcomes of futures that run side by side, so many at once.
async fn side_by_side(futures: Vec<BoxFuture<'_, Done>>) -> Vec<Done> {
    futures::stream::iter(futures)
        .buffer_unordered(AT_ONCE)
        .collect()
        .await
}

/// A body that a plan asks for and the set cannot give: it names what is not there.
fn no_body(what: &str) -> ApiFailure {
    ApiFailure::Refused(format!("{what} is not readable"))
}
