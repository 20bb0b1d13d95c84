//! Requests to restart containers in place are made.

use futures::FutureExt;
use kruise_api::container_recreate_request::run::{RunName, request};
use kruise_planner::cloneset::{Action, run_options};
use serde_json::json;

use super::super::event::{Failed, Step};
use super::super::ports::CreateFailure;
use super::super::space::Kind;
use super::{Carrier, Done, side_by_side};
use crate::kubeapi::ApiFailure;

impl Carrier {
    pub(super) async fn restart_all(&mut self, actions: Vec<Action>) {
        if self.deposed() {
            return;
        }
        let tries = actions.iter().map(|action| self.restart_one(action).boxed());
        for done in side_by_side(tries.collect()).await {
            self.take(done);
        }
    }

    /// The pod is read for the names of its containers: others than the template's may have been put into it.
    async fn restart_one(&self, action: &Action) -> Done {
        let mut done = Done::default();
        let Action::CreateContainerRecreateRequest {
            request: name,
            pod,
            run,
            containers,
            ordered,
            ..
        } = action
        else {
            return done;
        };
        let Some(run) = RunName::of(run) else {
            return done;
        };
        let seen = self.seen(Kind::Pod, pod);
        let read = self.cluster.pod(self.namespace.clone(), pod.clone()).await;
        let found = match read {
            Ok(Some(found)) if found.metadata.uid.as_ref() == Some(&seen.uid) => found,
            Ok(_) => {
                done.failed(Kind::Pod, pod, Step::Restart, ApiFailure::Gone);
                return done;
            }
            Err(failure) => {
                done.failed(Kind::Pod, pod, Step::Restart, failure);
                return done;
            }
        };
        let body = json!(request(&run, &found, &run_options(containers, *ordered)));
        match self.create(Kind::Request, body).await {
            Ok(object) => done.made.push(object),
            // Of an earlier leader, of a try of ours whose answer was lost, or of kruisectl with the same run: look how it went.
            Err(CreateFailure::Exists) => done.unsure.push((Kind::Request, name.clone())),
            Err(CreateFailure::Other(failure)) => {
                if matches!(failure, ApiFailure::Unsure { .. }) {
                    done.unsure.push((Kind::Request, name.clone()));
                }
                if failure != ApiFailure::NotLeading {
                    let text = format!("failed to create ContainerRecreateRequest {name}: {failure}");
                    done.tell(true, "FailedRestart", text);
                }
                // The pod is what is left alone for a while.
                done.failures.push(Failed {
                    kind: Kind::Pod,
                    name: pod.clone(),
                    step: Step::Restart,
                    failure,
                });
            }
        }
        done
    }
}
