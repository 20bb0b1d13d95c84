//! Revisions, pre-download jobs and the set itself.

use kruise_planner::cloneset::Action;

use super::super::body;
use super::super::event::Step;
use super::super::ports::{CreateFailure, Way};
use super::super::space::Kind;
use super::{Carrier, Done, no_body};
use crate::kubeapi::ApiFailure;

impl Carrier {
    /// Stores the revision of the template. Answers whether the rest of the plan may rest on it.
    pub(super) async fn store_revisions(&mut self, actions: &[Action]) -> bool {
        for action in actions {
            let mut done = Done::default();
            match action {
                Action::CreateRevision {
                    revision,
                    number,
                    hash,
                    claim_template_hash,
                    ..
                } => {
                    let result = match self.pass.revisions.get(revision) {
                        Some(data) => {
                            let body = body::controller_revision(
                                &self.pass.set,
                                data,
                                revision,
                                *number,
                                hash,
                                claim_template_hash,
                            );
                            self.create(Kind::Revision, body).await
                        }
                        None => Err(CreateFailure::Other(no_body("spec.template"))),
                    };
                    match result {
                        Ok(object) => done.made.push(object),
                        Err(CreateFailure::Exists) => {
                            done.failed(Kind::Revision, revision, Step::Keep, ApiFailure::Conflict);
                        }
                        Err(CreateFailure::Other(failure)) => {
                            done.failed(Kind::Revision, revision, Step::Keep, failure);
                        }
                    }
                }
                Action::PatchRevision { revision, .. } => {
                    self.patch_revision(action, revision, &mut done).await;
                }
                _ => {}
            }
            if !self.take(done) {
                return false;
            }
        }
        true
    }

    /// The rest, one after the other: there are few of these.
    pub(super) async fn keep_all(&mut self, actions: Vec<Action>) {
        let mut jobs_are_there = true;
        for action in actions {
            if self.deposed() {
                return;
            }
            let mut done = Done::default();
            match &action {
                Action::CreateImagePullJob { job, content, .. } => {
                    let body = body::image_pull_job(&self.pass.set, job, content);
                    match self.create(Kind::Job, body).await {
                        Ok(object) => {
                            done.made.push(object);
                            let text = format!("created ImagePullJob {job} for image {}", content.image);
                            done.tell(false, "CreatedImagePullJob", text);
                        }
                        Err(CreateFailure::Exists) => {}
                        Err(CreateFailure::Other(failure)) => {
                            jobs_are_there = false;
                            let text = format!("failed to create ImagePullJob {job}: {failure}");
                            done.tell(true, "FailedCreateImagePullJob", text);
                            done.failed(Kind::Job, job, Step::Keep, failure);
                        }
                    }
                }
                Action::PatchRevision { revision, .. } if jobs_are_there => {
                    self.patch_revision(&action, revision, &mut done).await;
                }
                Action::DeleteImagePullJob { job, .. } => self.delete(Kind::Job, job, &mut done).await,
                Action::DeleteRevision { revision, .. } => {
                    self.delete(Kind::Revision, revision, &mut done).await;
                }
                Action::PatchCloneSet { pods_to_delete, .. } => {
                    self.empty_list(pods_to_delete, &mut done).await;
                }
                _ => {}
            }
            self.take(done);
        }
    }

    async fn patch_revision(&self, action: &Action, revision: &str, done: &mut Done) {
        let Some(body) = body::revision_patch(&self.seen(Kind::Revision, revision), action) else {
            return;
        };
        match self.patch(Kind::Revision, revision, Way::Merge, body).await {
            Ok(object) => done.made.push(object),
            Err(failure) => done.failed(Kind::Revision, revision, Step::Keep, failure),
        }
    }

    async fn empty_list(&mut self, left: &[String], done: &mut Done) {
        let name = self.pass.set.metadata.name.clone().unwrap_or_default();
        let body = body::pods_to_delete(&self.pass.set, left);
        match self.patch(Kind::Set, &name, Way::Merge, body).await {
            Ok(object) => {
                // The status of this pass was made for the version before.
                self.pass.status = None;
                done.made.push(object);
            }
            Err(failure) => done.failed(Kind::Set, &name, Step::Keep, failure),
        }
    }
}
