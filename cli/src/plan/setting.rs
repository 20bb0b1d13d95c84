//! One set with everything that bears on it, ready to be planned for.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kruise_api::clone_set::CloneSet;
use kruise_api::clone_set::defaults::{TemplateDefaults, fill};
use kruise_planner::cloneset::{
    ClaimView, Gates, JobView, Play, PodView, RecreateView, RevisionView, Writes,
};
use kruise_planner::{job, revision};

use super::objects::{Objects, node_labels};

/// Picks what bears on one set.
pub(super) fn play(set: &CloneSet, objects: &Objects, gates: Gates, now: Timestamp) -> Play {
    let set = completed(set, objects);
    let uid = set.metadata.uid.clone().unwrap_or_default();
    let here = |meta: &ObjectMeta| namespace(meta) == namespace(&set.metadata);
    let pods = objects.pods.iter().filter(|pod| here(&pod.metadata));
    let claims = objects.claims.iter().filter(|claim| here(&claim.metadata));
    let revisions = objects
        .revisions
        .iter()
        .filter(|revision| here(&revision.metadata) && may_concern(revision, &set));
    let jobs = objects
        .jobs
        .iter()
        .filter(|job| here(&job.metadata) && controller(&job.metadata) == Some(&uid));
    let requests = objects.requests.iter().filter(|request| here(&request.metadata));
    Play {
        pods: pods.map(|pod| PodView::of(pod, &gates)).collect(),
        claims: claims.map(ClaimView::of).collect(),
        revisions: revisions.map(RevisionView::of).collect(),
        jobs: jobs.map(JobView::of).collect(),
        requests: requests.map(RecreateView::of).collect(),
        nodes: node_labels(&objects.nodes),
        writes: Writes::default(),
        set,
        gates,
        now,
    }
}

fn namespace(meta: &ObjectMeta) -> &str {
    meta.namespace.as_deref().unwrap_or("default")
}

fn controller(meta: &ObjectMeta) -> Option<&String> {
    let mut owners = meta.owner_references.iter().flatten();
    owners
        .find(|owner| owner.controller == Some(true))
        .map(|owner| &owner.uid)
}

/// Whether a revision may be one of the set's, or hold a name that it wants.
fn may_concern(revision: &ControllerRevision, set: &CloneSet) -> bool {
    let labels = revision.metadata.labels.clone().unwrap_or_default();
    controller(&revision.metadata).is_some()
        || job::matches_labels(&labels, &set.spec.selector).unwrap_or(false)
}

/// The set as the API server would have it: files written by hand have no UID and no defaults.
fn completed(set: &CloneSet, objects: &Objects) -> CloneSet {
    let mut set = set.clone();
    if set.metadata.uid.is_none() {
        let name = set.metadata.name.clone().unwrap_or_default();
        set.metadata.uid = Some(uid_by_name(&name, objects).unwrap_or(name));
    }
    let mut filled = set.clone();
    let template = TemplateDefaults::of(
        &kruise_api::features::FeatureGates::default(),
        None,
        &filled.spec.template,
    );
    fill(&mut filled, template);
    // A template that a revision has as it stands was stored so: defaults would only make it another one.
    let stored = |template: &serde_json::Value| {
        let data = objects.revisions.iter().filter_map(|known| known.data.as_ref());
        let mut known = data.filter_map(|data| revision::template_of(&data.0));
        known.any(|known| revision::same_template(&known, template))
    };
    if !stored(&filled.spec.template) {
        filled.spec.template = set.spec.template;
    }
    filled
}

/// UID by which pods refer to a CloneSet of this name.
fn uid_by_name(name: &str, objects: &Objects) -> Option<String> {
    let pods = objects.pods.iter().map(|pod| &pod.metadata);
    let revisions = objects.revisions.iter().map(|revision| &revision.metadata);
    pods.chain(revisions)
        .flat_map(|meta| meta.owner_references.iter().flatten())
        .find(|owner| owner.kind == "CloneSet" && owner.name == name)
        .map(|owner| owner.uid.clone())
}
