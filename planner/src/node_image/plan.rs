//! The status of a NodeImage, and tags whose time is over.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kruise_api::node_image::{
    FAKE_LABEL, ImageStatus, ImageTag, NodeImageSpec, NodeImageStatus, TagStatus, belongs_to_jobs, phases,
    reference,
};
use kruise_api::reference::ImageRef;

use super::requests::stored;
use crate::job::times::{earliest, later};

/// Least time between two writes that only tell of progress.
const STEP_INTERVAL: Duration = Duration::from_secs(30);
/// A NodeImage whose node does not exist is deleted after this long.
const ORPHANED: Duration = Duration::from_mins(10);

/// A NodeImage with what came of its requests, at one moment.
#[derive(Clone, Debug)]
pub struct NodeImageSnapshot<'a> {
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
    /// When it was made.
    pub created: Timestamp,
    /// What is wanted.
    pub spec: &'a NodeImageSpec,
    /// As stored.
    pub status: Option<&'a NodeImageStatus>,
    /// How requests stand, by name and tag.
    pub answers: &'a BTreeMap<(String, String), Answer>,
    /// Whether its node does not exist.
    pub node_gone: bool,
    /// When this leader last wrote the status.
    pub last_write: Option<Timestamp>,
    /// Time of the API server.
    pub now: Timestamp,
}

/// How a request stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing runs yet.
    Waiting,
    /// The runtime is at it; percent of the bytes, at most 99.
    Pulling {
        /// 0 while unknown.
        percent: u8,
    },
    /// Present and whole.
    Succeeded {
        /// Digest or id on the node.
        image_id: String,
    },
    /// Failed for good.
    Failed {
        /// Why.
        message: String,
    },
}

/// What to do for a NodeImage now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeImagePlan {
    /// What a write would say.
    pub status: NodeImageStatus,
    /// Whether to write it now.
    pub write: bool,
    /// To be told with the write.
    pub events: Vec<TagEvent>,
    /// The spec without the tags whose time to live has run out; none when all stay.
    pub spec: Option<NodeImageSpec>,
    /// The NodeImage itself is to be deleted: its node is gone.
    pub delete: bool,
    /// When to plan again if nothing happens before.
    pub wake: Option<Timestamp>,
}

/// An event on a NodeImage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagEvent {
    /// Warning rather than Normal.
    pub warning: bool,
    /// PullImageSucceed or PullImageFailed.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

/// Decides what to do for a NodeImage now. Pure.
///
/// Promises: an answer is of the version that it answers; one that is final stays as it is until the version changes; what is only progress is written at most
/// twice a minute; statuses of tags that are not in the spec go away.
#[must_use]
pub fn plan(snapshot: &NodeImageSnapshot<'_>) -> NodeImagePlan {
    let orphan = snapshot.node_gone && !snapshot.labels.contains_key(FAKE_LABEL);
    let expires = later(snapshot.created, ORPHANED);
    let previous = snapshot.status.cloned().unwrap_or_default();
    if orphan && expires <= snapshot.now {
        return NodeImagePlan {
            status: previous,
            delete: true,
            ..NodeImagePlan::default()
        };
    }
    let (status, events) = status(snapshot, &previous);
    let (spec, next_expiry) = without_expired(snapshot);
    let mut plan = NodeImagePlan {
        events,
        spec,
        wake: earliest([next_expiry, Some(expires).filter(|_| orphan)]),
        ..NodeImagePlan::default()
    };
    if status != previous {
        let step = snapshot
            .last_write
            .map(|last| later(last, STEP_INTERVAL))
            .filter(|at| *at > snapshot.now);
        plan.write = step.is_none() || says_something_new(&previous, &status);
        if !plan.write {
            plan.wake = earliest([plan.wake, step]);
        }
    }
    plan.status = status;
    plan
}

/// Whether there is an answer to a request that had none, or an end: people wait for those.
fn says_something_new(before: &NodeImageStatus, after: &NodeImageStatus) -> bool {
    let told = |name: &str, tag: &TagStatus| {
        let tags = before.image_statuses.get(name).map(|image| &image.tags);
        tags.into_iter()
            .flatten()
            .find(|old| old.tag == tag.tag && old.version == tag.version)
            .map(TagStatus::is_final)
    };
    let mut tags = after
        .image_statuses
        .iter()
        .flat_map(|(name, image)| image.tags.iter().map(move |tag| (name, tag)));
    before.desired != after.desired
        || tags.any(|(name, tag)| match told(name, tag) {
            None => true,
            Some(was_final) => tag.is_final() && !was_final,
        })
}

fn status(snapshot: &NodeImageSnapshot<'_>, previous: &NodeImageStatus) -> (NodeImageStatus, Vec<TagEvent>) {
    let mut status = NodeImageStatus {
        first_sync_status: previous.first_sync_status.clone(),
        ..NodeImageStatus::default()
    };
    let mut events = Vec::new();
    for (name, image) in &snapshot.spec.images {
        let mut tags: Vec<TagStatus> = Vec::with_capacity(image.tags.len());
        for tag in &image.tags {
            status.desired = status.desired.saturating_add(1);
            let stored = stored(snapshot.status, name, tag);
            let told = tag_status(snapshot, name, tag, stored);
            events.extend(event(name, &told, stored));
            tags.extend(told);
        }
        tags.sort_by(|a, b| a.tag.cmp(&b.tag));
        if !tags.is_empty() {
            status.image_statuses.insert(name.clone(), ImageStatus { tags });
        }
    }
    for tag in status.image_statuses.values().flat_map(|image| &image.tags) {
        let counter = match tag.phase.as_str() {
            phases::SUCCEEDED => &mut status.succeeded,
            phases::FAILED => &mut status.failed,
            phases::PULLING => &mut status.pulling,
            _ => &mut status.waiting,
        };
        *counter = counter.saturating_add(1);
    }
    (status, events)
}

/// None for a tag that jobs own and that nobody has answered: those jobs have their own statuses.
fn tag_status(
    snapshot: &NodeImageSnapshot<'_>,
    name: &str,
    tag: &ImageTag,
    stored: Option<&TagStatus>,
) -> Option<TagStatus> {
    if let Some(stored) = stored.filter(|stored| stored.is_final()) {
        return Some(stored.clone());
    }
    if belongs_to_jobs(tag) {
        return stored.cloned();
    }
    let answer = match ImageRef::parse(&reference(name, &tag.tag)) {
        Err(error) => Answer::Failed {
            message: format!("InvalidReference: {error}"),
        },
        Ok(_) => snapshot
            .answers
            .get(&(name.to_owned(), tag.tag.clone()))
            .cloned()
            .unwrap_or(Answer::Waiting),
    };
    let (phase, progress) = match &answer {
        Answer::Waiting => (phases::WAITING, 0),
        Answer::Pulling { percent } => (phases::PULLING, i32::from((*percent).min(99))),
        Answer::Succeeded { .. } => (phases::SUCCEEDED, 100),
        Answer::Failed { .. } => (phases::FAILED, 0),
    };
    let ended = matches!(answer, Answer::Succeeded { .. } | Answer::Failed { .. });
    let (image_id, message) = match answer {
        Answer::Succeeded { image_id } if !image_id.is_empty() => {
            (format!("{name}@{image_id}"), String::new())
        }
        Answer::Failed { message } => (String::new(), message.chars().take(1024).collect()),
        _ => (String::new(), String::new()),
    };
    let began = stored.and_then(|stored| stored.start_time.clone());
    Some(TagStatus {
        tag: tag.tag.clone(),
        phase: phase.to_owned(),
        progress,
        start_time: Some(began.unwrap_or(Time(snapshot.now))),
        completion_time: ended.then_some(Time(snapshot.now)),
        version: tag.version,
        image_id,
        message,
    })
}

fn event(name: &str, told: &Option<TagStatus>, stored: Option<&TagStatus>) -> Option<TagEvent> {
    let told = told.as_ref().filter(|told| told.is_final())?;
    if stored.is_some_and(TagStatus::is_final) {
        return None;
    }
    let image = reference(name, &told.tag);
    let warning = told.phase == phases::FAILED;
    let message = if warning {
        format!("Image {image}: {}", told.message)
    } else {
        let took = match (&told.start_time, &told.completion_time) {
            (Some(start), Some(end)) => end.0.duration_since(start.0).as_secs(),
            _ => 0,
        };
        format!("Image {image} is present, elapsed time {took} s")
    };
    Some(TagEvent {
        warning,
        reason: if warning {
            "PullImageFailed"
        } else {
            "PullImageSucceed"
        },
        message,
    })
}

/// The spec without the tags whose time to live after their end is over, if there are any; and when the next one's will be.
fn without_expired(snapshot: &NodeImageSnapshot<'_>) -> (Option<NodeImageSpec>, Option<Timestamp>) {
    let mut spec = snapshot.spec.clone();
    let (mut expired, mut next) = (false, None);
    for (name, image) in &mut spec.images {
        image.tags.retain(|tag| {
            // Only what is stored counts: nobody could read an answer that goes with its question.
            let end = stored(snapshot.status, name, tag)
                .filter(|_| !belongs_to_jobs(tag))
                .filter(|stored| stored.is_final())
                .and_then(|stored| stored.completion_time.clone());
            let ttl = tag
                .pull_policy
                .as_ref()
                .and_then(|policy| policy.ttl_seconds_after_finished);
            let Some(at) = end
                .zip(ttl)
                .map(|(end, ttl)| later(end.0, Duration::from_secs(u64::try_from(ttl).unwrap_or(0))))
            else {
                return true;
            };
            let over = at <= snapshot.now;
            expired |= over;
            if !over {
                next = earliest([next, Some(at)]);
            }
            !over
        });
    }
    spec.images.retain(|_, image| !image.tags.is_empty());
    (expired.then_some(spec), next)
}
