//! Pods and their claims are made: a few first, then twice as many each time, so that a refusal costs few requests.

use futures::FutureExt;
use kruise_planner::cloneset::Action;

use super::super::body;
use super::super::event::Step;
use super::super::ports::CreateFailure;
use super::super::space::Kind;
use super::{AT_ONCE, Carrier, Done, no_body, side_by_side};
use crate::kubeapi::ApiFailure;

/// A pod to make, and its claims.
#[derive(Debug)]
pub(super) struct Creation {
    pub(super) claims: Vec<Action>,
    pub(super) pod: Action,
}

impl Carrier {
    /// Makes pods until something fails.
    pub(super) async fn create_all(&mut self, creations: Vec<Creation>) {
        let mut rest = creations.as_slice();
        let mut batch = 1;
        while !rest.is_empty() && !self.deposed() {
            let (now, later) = rest.split_at(batch.min(rest.len()));
            rest = later;
            let tries = now.iter().map(|creation| self.create_one(creation).boxed());
            let done = side_by_side(tries.collect()).await;
            let mut went_well = true;
            for done in done {
                went_well &= self.take(done);
            }
            if !went_well {
                return;
            }
            batch = (batch * 2).min(AT_ONCE * 4);
        }
    }

    async fn create_one(&self, creation: &Creation) -> Done {
        let mut done = Done::default();
        for claim in &creation.claims {
            self.create_claim(claim, &mut done).await;
            if !done.is_ok() {
                return done;
            }
        }
        let Action::CreatePod {
            pod,
            revision,
            instance_id,
            instance_seq,
            ..
        } = &creation.pod
        else {
            return done;
        };
        let new = body::NewPod {
            name: pod,
            revision,
            instance_id,
            instance_seq: *instance_seq,
            short_hash: self.pass.gates.short_hash,
            now: self.now,
        };
        let data = self.pass.revisions.get(revision);
        match data.and_then(|data| body::pod(&self.pass.set, data, new)) {
            Some(body) => {
                let result = self.create(Kind::Pod, body).await;
                self.created(Kind::Pod, pod, result, &mut done);
            }
            None => done.failed(
                Kind::Pod,
                pod,
                Step::Create,
                no_body(&format!("the template of revision {revision}")),
            ),
        }
        done
    }

    async fn create_claim(&self, action: &Action, done: &mut Done) {
        let Action::CreateClaim {
            claim,
            template,
            instance_id,
            instance_seq,
            ..
        } = action
        else {
            return;
        };
        match body::claim(&self.pass.set, claim, template, instance_id, *instance_seq) {
            Some(body) => {
                let result = self.create(Kind::Claim, body).await;
                self.created(Kind::Claim, claim, result, done);
            }
            None => done.failed(
                Kind::Claim,
                claim,
                Step::Create,
                no_body(&format!("claim template {template}")),
            ),
        }
    }

    fn created(&self, kind: Kind, name: &str, result: Result<super::Object, CreateFailure>, done: &mut Done) {
        match result {
            Ok(object) => {
                done.made.push(object);
                if kind == Kind::Pod {
                    done.tell(false, "SuccessfulCreate", format!("succeed to create pod {name}"));
                }
            }
            // Somebody was faster, perhaps an earlier leader, or we were and did not hear of it: look before the next plan.
            Err(CreateFailure::Exists) => done.failed(kind, name, Step::Create, ApiFailure::Conflict),
            Err(CreateFailure::Other(failure)) => {
                let what = if kind == Kind::Pod { "pod" } else { "claim" };
                if failure != ApiFailure::NotLeading {
                    done.tell(
                        true,
                        "FailedCreate",
                        format!("failed to create {what} {name}: {failure}"),
                    );
                }
                done.failed(kind, name, Step::Create, failure);
            }
        }
    }
}
