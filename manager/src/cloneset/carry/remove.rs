//! Pods and claims are taken away.

use futures::FutureExt;

use super::super::event::Step;
use super::super::space::Kind;
use super::{Carrier, Done, side_by_side};
use crate::kubeapi::ApiFailure;

/// A pod to delete with its claims, or claims alone.
#[derive(Debug, Default)]
pub(super) struct Removal {
    pub(super) pod: Option<String>,
    pub(super) claims: Vec<String>,
}

impl Removal {
    pub(super) fn of_pod(pod: String) -> Self {
        Self {
            pod: Some(pod),
            claims: Vec::new(),
        }
    }
}

impl Carrier {
    pub(super) async fn remove_all(&mut self, removals: Vec<Removal>) {
        if self.deposed() {
            return;
        }
        let tries = removals.iter().map(|removal| self.remove(removal).boxed());
        for done in side_by_side(tries.collect()).await {
            self.take(done);
        }
    }

    async fn remove(&self, removal: &Removal) -> Done {
        let mut done = Done::default();
        if let Some(pod) = &removal.pod {
            self.delete(Kind::Pod, pod, &mut done).await;
            match done.failures.first().map(|failed| &failed.failure) {
                None => done.tell(false, "SuccessfulDelete", format!("succeed to delete pod {pod}")),
                // It is gone already, which is what was wanted; nothing was decided on a wrong view of it.
                Some(ApiFailure::Gone) => done.failures.clear(),
                Some(ApiFailure::NotLeading | ApiFailure::Conflict) => return done,
                Some(failure) => {
                    let text = format!("failed to delete pod {pod}: {failure}");
                    done.tell(true, "FailedDelete", text);
                    return done;
                }
            }
        }
        for claim in &removal.claims {
            let before = done.failures.len();
            self.delete(Kind::Claim, claim, &mut done).await;
            if let Some(failed) = done.failures.get(before)
                && matches!(failed.failure, ApiFailure::Refused(_) | ApiFailure::Unsure { .. })
            {
                let text = format!("failed to delete claim {claim}: {}", failed.failure);
                done.tell(true, "FailedDelete", text);
            }
        }
        done
    }

    /// Deletes an object as the plan saw it: another of its name, or a newer version, is left alone.
    pub(super) async fn delete(&self, kind: Kind, name: &str, done: &mut Done) {
        let seen = self.seen(kind, name);
        let uid = seen.uid.clone();
        let (namespace, of) = (self.namespace.clone(), name.to_owned());
        match self.cluster.delete(kind, namespace, of, seen).await {
            Ok(Some(object)) => done.made.push(object),
            Ok(None) => done.gone.push((kind, name.to_owned(), uid)),
            Err(failure) => done.failed(kind, name, Step::Delete, failure),
        }
    }
}
