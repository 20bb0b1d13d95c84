//! Which jobs there should be, and which there are.

use std::collections::{BTreeMap, BTreeSet};

use kruise_api::ids::JobUid;
use kruise_api::image_list_pull_job::{ImageListPullJobSpec, ImageOutcome};
use kruise_api::image_pull_job::{ImagePullJobSpec, options};
use kruise_api::reference::{ImageRef, ReferenceError};

use super::snapshot::{ChildView, ListSnapshot};
use crate::task::fnv64;

/// Longest part of a list's name in the name of a job, which has a limit of 253 characters.
const NAME_PREFIX: usize = 230;

/// A job to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct NewChild {
    /// Follows from list, image and template, so that making it twice makes one.
    pub name: String,
    /// Canonical reference of its image.
    pub image: String,
    /// Value of the label that names the template.
    pub revision: String,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// What it says.
    pub spec: ImagePullJobSpec,
}

/// A job to be brought in line with an edited list, without taking anything back.
#[derive(Clone, Debug, PartialEq)]
pub struct ChildPatch {
    /// Which.
    pub uid: JobUid,
    /// Its name.
    pub name: String,
    /// As it should be.
    pub spec: ImagePullJobSpec,
    /// Value of the label that names the template.
    pub revision: String,
    /// All annotations about pulling that it should have, and none for those that it should not.
    pub annotations: BTreeMap<String, Option<String>>,
}

/// An image of the list, and what there is of it.
#[derive(Clone, Debug)]
pub(super) struct Image<'a> {
    pub(super) raw: &'a str,
    pub(super) canonical: String,
    /// The job in charge.
    pub(super) child: Option<&'a ChildView>,
    /// What is remembered of it from a job that exists no longer.
    pub(super) outcome: Option<&'a ImageOutcome>,
}

/// Short name of a template: what all jobs of a list have in common.
#[must_use]
pub fn revision(spec: &ImageListPullJobSpec) -> String {
    let json = serde_json::to_string(&spec.child("")).expect("a spec has only text keys");
    format!("{:x}", fnv64(json.as_bytes()) >> 24)
}

/// Name of the job of an image.
#[must_use]
pub fn child_name(list: &str, uid: &JobUid, canonical: &str, revision: &str) -> String {
    let told = fnv64(format!("{uid} {canonical} {revision}").as_bytes()) >> 24;
    let prefix: String = list.chars().take(NAME_PREFIX).collect();
    format!("{prefix}-{told:010x}")
}

/// The images of a list, each once, whatever its spelling, with the jobs that exist for them; and the jobs that are nobody's.
pub(super) fn match_up<'a>(
    snapshot: &ListSnapshot<'a>,
    revision: &str,
) -> Result<(Vec<Image<'a>>, Vec<&'a ChildView>), ReferenceError> {
    let mut by_image: BTreeMap<String, Vec<&ChildView>> = BTreeMap::new();
    let mut strays = Vec::new();
    for child in snapshot.children.iter().filter(|child| !child.deleting) {
        match ImageRef::parse(&child.spec.image) {
            Ok(image) => by_image
                .entry(image.canonical().to_owned())
                .or_default()
                .push(child),
            Err(_) => strays.push(child),
        }
    }
    let same_template = snapshot
        .status
        .is_some_and(|status| status.revision.as_deref() == Some(revision));
    let stored = snapshot.status.iter().flat_map(|status| &status.image_outcomes);
    let remembered: BTreeMap<String, &ImageOutcome> = stored
        .filter(|_| same_template)
        .chain(&snapshot.memory.ended)
        .filter_map(|outcome| Some((canonical(&outcome.image)?, outcome)))
        .collect();
    let mut images = Vec::new();
    let mut seen = BTreeSet::new();
    for raw in &snapshot.spec.images {
        let image = ImageRef::parse(raw)?;
        if !seen.insert(image.canonical().to_owned()) {
            continue;
        }
        let mut children = by_image.remove(image.canonical()).unwrap_or_default();
        // The best is one that need not be touched, then the newest: the others are left from edits.
        children.sort_by_key(|child| {
            (
                differs(snapshot, child),
                std::cmp::Reverse(child.created),
                &child.name,
            )
        });
        let mut children = children.into_iter();
        let child = children.next();
        strays.extend(children);
        images.push(Image {
            raw,
            outcome: remembered
                .get(image.canonical())
                .copied()
                .filter(|_| child.is_none()),
            canonical: image.canonical().to_owned(),
            child,
        });
    }
    strays.extend(by_image.into_values().flatten());
    Ok((images, strays))
}

fn canonical(image: &str) -> Option<String> {
    ImageRef::parse(image)
        .ok()
        .map(|image| image.canonical().to_owned())
}

/// Whether a job says something else than its list.
pub(super) fn differs(snapshot: &ListSnapshot<'_>, child: &ChildView) -> bool {
    says_otherwise(snapshot.spec, snapshot.annotations, child)
}

fn says_otherwise(
    spec: &ImageListPullJobSpec,
    annotations: &BTreeMap<String, String>,
    child: &ChildView,
) -> bool {
    child.spec != spec.child(&child.spec.image)
        || pull_annotations(&child.annotations) != pull_annotations(annotations)
}

/// What is to be remembered of a job that exists no longer: how it ended, if it was over and was what the list wants.
#[must_use]
pub fn outcome_of(
    spec: &ImageListPullJobSpec,
    annotations: &BTreeMap<String, String>,
    child: &ChildView,
) -> Option<ImageOutcome> {
    let progress = child.progress.filter(|progress| progress.complete)?;
    (!says_otherwise(spec, annotations, child)).then(|| ImageOutcome {
        image: child.spec.image.clone(),
        image_pull_job: child.name.clone(),
        desired: progress.desired,
        succeeded: progress.succeeded,
        failed: progress.failed,
    })
}

/// How a job that differs is brought in line; none when another one has to take its place: of one that is over nothing changes, and secrets are fixed.
pub(super) fn patch(snapshot: &ListSnapshot<'_>, child: &ChildView, revision: &str) -> Option<ChildPatch> {
    let over = child.progress.is_some_and(|progress| progress.complete);
    if over || child.spec.pull_secrets != snapshot.spec.pull_secrets {
        return None;
    }
    let gone = pull_annotations(&child.annotations)
        .into_keys()
        .map(|key| (key, None));
    let wanted = pull_annotations(snapshot.annotations)
        .into_iter()
        .map(|(key, value)| (key, Some(value)));
    Some(ChildPatch {
        uid: child.uid.clone(),
        name: child.name.clone(),
        spec: snapshot.spec.child(&child.spec.image),
        revision: revision.to_owned(),
        annotations: gone.chain(wanted).collect(),
    })
}

/// The job that an image should have.
pub(super) fn new_child(snapshot: &ListSnapshot<'_>, image: &Image<'_>, revision: &str) -> NewChild {
    NewChild {
        name: child_name(&snapshot.key.name, snapshot.uid, &image.canonical, revision),
        image: image.canonical.clone(),
        revision: revision.to_owned(),
        annotations: pull_annotations(snapshot.annotations),
        spec: snapshot.spec.child(image.raw),
    }
}

fn pull_annotations(annotations: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    annotations
        .iter()
        .filter(|(key, _)| key.starts_with(options::PREFIX))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}
