//! Tags that are requests, as jobs of one node.

use jiff::Timestamp;
use kruise_api::ids::{JobUid, NodeName};
use kruise_api::image_pull_job::{
    CompletionPolicy, ImagePullJobSpec, ImagePullJobStatus, NodeSelector, Outcomes,
};
use kruise_api::node_image::{
    ImageSpec, ImageTag, NodeImageSpec, NodeImageStatus, TagStatus, belongs_to_jobs, reference,
};
use kruise_api::reference::ImageRef;

use crate::task::fnv64;

/// A tag of a NodeImage that asks for a pull.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Name of the image, as in the spec.
    pub name: String,
    /// Tag or digest.
    pub tag: String,
    /// Number of the request.
    pub version: i64,
    /// Stands in for the UID of a job.
    pub job: JobUid,
    /// When the request was made.
    pub created: Option<Timestamp>,
    /// What a job would say.
    pub spec: ImagePullJobSpec,
    /// Secrets to log in with, by namespace and name.
    pub secrets: Vec<(String, String)>,
    /// What the status of a job would say, from that of the NodeImage.
    pub status: ImagePullJobStatus,
}

/// The requests of a NodeImage. Those whose reference cannot be read are left out; [`super::plan`] answers them.
#[must_use]
pub fn requests(
    uid: &str,
    node: &NodeName,
    spec: &NodeImageSpec,
    status: Option<&NodeImageStatus>,
) -> Vec<Request> {
    let tags = spec
        .images
        .iter()
        .flat_map(|(name, image)| image.tags.iter().map(move |tag| (name, image, tag)));
    tags.filter(|(_, _, tag)| !belongs_to_jobs(tag))
        .filter_map(|(name, image, tag)| {
            let canonical = ImageRef::parse(&reference(name, &tag.tag)).ok()?;
            Some(Request {
                name: name.clone(),
                tag: tag.tag.clone(),
                version: tag.version,
                job: job_uid(uid, name, &tag.tag),
                created: tag.created_at.as_ref().map(|time| time.0),
                spec: job_spec(node, name, image, tag),
                secrets: image
                    .pull_secrets
                    .iter()
                    .filter_map(|secret| Some((secret.namespace.clone()?, secret.name.clone()?)))
                    .collect(),
                status: job_status(&canonical, tag, stored(status, name, tag)),
            })
        })
        .collect()
}

fn job_uid(uid: &str, name: &str, tag: &str) -> JobUid {
    JobUid::new(format!(
        "nodeimage-{uid}-{:016x}",
        fnv64(format!("{name} {tag}").as_bytes())
    ))
}

/// The stored answer to this very request.
pub(super) fn stored<'a>(
    status: Option<&'a NodeImageStatus>,
    name: &str,
    tag: &ImageTag,
) -> Option<&'a TagStatus> {
    status?
        .image_statuses
        .get(name)?
        .tags
        .iter()
        .find(|stored| stored.tag == tag.tag && stored.version == tag.version)
}

fn job_spec(node: &NodeName, name: &str, image: &ImageSpec, tag: &ImageTag) -> ImagePullJobSpec {
    let policy = tag.pull_policy.clone().unwrap_or_default();
    ImagePullJobSpec {
        image: reference(name, &tag.tag),
        selector: Some(NodeSelector {
            names: Some(vec![node.to_string()]),
            ..NodeSelector::default()
        }),
        pull_policy: policy.of_job(),
        completion_policy: CompletionPolicy {
            active_deadline_seconds: policy.active_deadline_seconds,
            ..CompletionPolicy::default()
        },
        sandbox_config: image.sandbox_config.clone(),
        // Left out means what the field says, not "always" as in OpenKruise.
        image_pull_policy: tag
            .image_pull_policy
            .clone()
            .filter(|policy| !policy.is_empty())
            .unwrap_or_else(|| "IfNotPresent".to_owned()),
        ..ImagePullJobSpec::default()
    }
}

/// Another version is another round.
fn job_status(image: &ImageRef, tag: &ImageTag, stored: Option<&TagStatus>) -> ImagePullJobStatus {
    let round = tag.version.saturating_add(1).clamp(1, i64::from(i32::MAX));
    ImagePullJobStatus {
        start_time: stored.and_then(|stored| stored.start_time.clone()),
        completion_time: stored
            .filter(|stored| stored.is_final())
            .and_then(|stored| stored.completion_time.clone().or(stored.start_time.clone())),
        outcomes: Some(Outcomes {
            round: i32::try_from(round).unwrap_or(i32::MAX),
            image: image.canonical().to_owned(),
            ..Outcomes::default()
        }),
        ..ImagePullJobStatus::default()
    }
}
