//! What the actions of a plan speak of, taken from the snapshot that it was made from.

use std::collections::BTreeMap;
use std::sync::Arc;

use kruise_api::ids::JobUid;
use kruise_planner::cloneset::{Action, CloneSetPlan, CloneSetSnapshot, PullWish};
use kruise_planner::revision;
use serde_json::Value;

use super::event::Seen;
use super::pulls::Wish;
use super::space::{Kind, Space};
use super::store::Kept as _;

/// UIDs and versions of objects that actions change.
pub(super) fn seen(
    space: &Space,
    snapshot: &CloneSetSnapshot<'_>,
    actions: &[Action],
) -> BTreeMap<(Kind, String), Seen> {
    let pods: BTreeMap<&str, Seen> = snapshot
        .pods
        .iter()
        .map(|pod| (pod.name.as_str(), of(&pod.uid, &pod.resource_version)))
        .collect();
    let claims: BTreeMap<&str, Seen> = snapshot
        .claims
        .iter()
        .map(|claim| (claim.name.as_str(), of(&claim.uid, &claim.resource_version)))
        .collect();
    let revisions: BTreeMap<&str, Seen> = snapshot
        .revisions
        .iter()
        .map(|revision| {
            (
                revision.name.as_str(),
                of(&revision.uid, &revision.resource_version),
            )
        })
        .collect();
    let target = |action: &Action| {
        let (kind, name, known) = match action {
            Action::DeletePod { pod, .. }
            | Action::UpdateInPlace { pod, .. }
            | Action::Recreate { pod, .. }
            | Action::PatchPod { pod, .. }
            | Action::CreateContainerRecreateRequest { pod, .. } => (Kind::Pod, pod, &pods),
            Action::DeleteClaim { claim, .. } | Action::PatchClaim { claim, .. } => {
                (Kind::Claim, claim, &claims)
            }
            Action::PatchRevision { revision, .. } | Action::DeleteRevision { revision, .. } => {
                (Kind::Revision, revision, &revisions)
            }
            Action::DeleteImagePullJob { job, .. } => {
                let uid = space.uid(Kind::Job, job)?;
                return Some(((Kind::Job, job.clone()), of(&uid, "")));
            }
            Action::CreatePod { .. }
            | Action::CreateClaim { .. }
            | Action::CreateImagePullJob { .. }
            | Action::CreateRevision { .. }
            | Action::PatchCloneSet { .. } => return None,
        };
        Some(((kind, name.clone()), known.get(name.as_str())?.clone()))
    };
    actions.iter().filter_map(target).collect()
}

fn of(uid: &str, version: &str) -> Seen {
    Seen {
        uid: uid.to_owned(),
        version: version.to_owned(),
    }
}

/// Data of the revisions that pods may come from or go to. The one of the template may not be stored yet.
pub(super) fn revisions(
    snapshot: &CloneSetSnapshot<'_>,
    plan: &CloneSetPlan,
) -> BTreeMap<String, Arc<Value>> {
    let needed = plan.actions.iter().any(|action| {
        matches!(
            action,
            Action::CreatePod { .. } | Action::UpdateInPlace { .. } | Action::CreateRevision { .. }
        )
    });
    if !needed {
        return BTreeMap::new();
    }
    let stored = snapshot
        .revisions
        .iter()
        .map(|revision| (revision.name.clone(), Arc::new(revision.data.clone())));
    let mut all: BTreeMap<String, Arc<Value>> = stored.collect();
    all.entry(plan.update_revision.clone())
        .or_insert_with(|| Arc::new(revision::data(&snapshot.set.spec.template)));
    all
}

/// What pods wish, with what their revisions say of the images and which jobs may bring them.
pub(super) fn wishes(
    space: &Space,
    snapshot: &CloneSetSnapshot<'_>,
    set: &str,
    wishes: &[PullWish],
) -> Vec<Wish> {
    let hash = kruise_planner::revision::short_hash;
    let jobs: Vec<(&str, JobUid)> = space
        .jobs
        .iter()
        .filter(|job| job.controller.as_deref() == Some(set) && !job.object.terminating)
        .filter_map(|job| Some((job.object.revision_hash.as_deref()?, JobUid::from(job.uid()))))
        .collect();
    let one = |wish: &PullWish| {
        let revision = snapshot
            .revisions
            .iter()
            .find(|known| known.name == wish.revision);
        let own = jobs
            .iter()
            .filter(|(made_for, _)| hash(made_for) == hash(&wish.revision));
        Wish {
            wish: wish.clone(),
            always: wish
                .images
                .iter()
                .filter_map(|image| {
                    Some((
                        image.clone(),
                        is_always(revision.map(|known| &known.data), image)?,
                    ))
                })
                .collect(),
            behind: own.map(|(_, uid)| uid.clone()).collect(),
        }
    };
    wishes.iter().map(one).collect()
}

/// Whether the kubelet will ask the registry for an image of a template. None for one that it never pulls. What the template leaves out is Always for
/// main containers of CloneSets.
fn is_always(data: Option<&Value>, image: &str) -> Option<bool> {
    let containers = data.and_then(|data| data.pointer("/spec/template/spec/containers")?.as_array());
    let container = containers.and_then(|all| all.iter().find(|container| container["image"] == image));
    match container.and_then(|container| container["imagePullPolicy"].as_str()) {
        Some("Never") => None,
        Some("IfNotPresent") => Some(false),
        _ => Some(true),
    }
}
