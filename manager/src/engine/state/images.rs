//! NodeImages: their requests become jobs of one node, and what comes of those jobs goes into their statuses.
//!
//! Such a job is in the table of jobs like any other, so that window, secrets, caps and adoption hold for it; only its writes go here. A status that is stored comes
//! back as the job's own, which is what lets its agent forget the result.
//!
//! A NodeImage with the fake label stands for a node that does not exist.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use kruise_api::ids::{JobUid, NodeName, NodeUid, ObjectKey};
use kruise_api::node_image::FAKE_LABEL;
use kruise_planner::job::JobPlan;
use kruise_planner::node_image::{self, Answer, NodeImagePlan, NodeImageSnapshot, Request};
use kruise_planner::task::Phase;
use serde_json::{Value, json};

use super::super::event::{Effect, ImageWrite, Now};
use super::super::merge::merge_patch;
use super::super::objects::{JobObject, Listing, NodeImageObject, NodeObject, Ready};
use super::super::ports::ApiFailure;
use super::jobs::Retry;
use super::tasks::Stage;
use super::{EngineState, mono_of};
use kruise_planner::job::TaskOutcome;

/// Namespace of the names by which people see the jobs of NodeImages. The names hold a slash, which those of real objects cannot.
const NAMESPACE: &str = "nodeimage";
const REFUSED_PAUSE: Duration = Duration::from_secs(30);

/// One NodeImage.
#[derive(Debug)]
struct Entry {
    object: NodeImageObject,
    /// Its jobs, with the tag that each is about.
    requests: BTreeMap<JobUid, (String, String)>,
    /// How jobs ended that have no task: by a deadline, for want of an agent, or because the image was there.
    ended: BTreeMap<JobUid, Answer>,
    busy: bool,
    retry: Retry,
    last_write: Option<Timestamp>,
    /// When it is looked at again; also among the table's timers.
    wake: Option<Duration>,
}

/// All NodeImages by the name of their node.
#[derive(Debug, Default)]
pub(super) struct ImageTable {
    entries: BTreeMap<NodeName, Entry>,
    dirty: BTreeSet<NodeName>,
    timers: BTreeSet<(Duration, NodeName)>,
    unlisted: Option<BTreeSet<NodeName>>,
    complete: bool,
}

impl ImageTable {
    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// When a NodeImage is looked at again.
    pub(super) fn next_wake(&self) -> Option<Duration> {
        self.timers.first().map(|(at, _)| *at)
    }

    fn set_timer(&mut self, name: &NodeName, at: Option<Duration>) {
        let Some(entry) = self.entries.get_mut(name) else {
            return;
        };
        if let Some(old) = std::mem::replace(&mut entry.wake, at) {
            self.timers.remove(&(old, name.clone()));
        }
        if let Some(at) = at {
            self.timers.insert((at, name.clone()));
        }
    }

    /// Those that are due are to be looked at.
    fn pass_time(&mut self, now: Now) {
        while let Some((at, name)) = self.timers.first().cloned()
            && at <= now.mono
        {
            self.set_timer(&name, None);
            self.dirty.insert(name);
        }
    }
}

impl EngineState {
    pub(super) fn image_listing(&mut self, listing: Listing<NodeImageObject, NodeUid>, now: Now) {
        match listing {
            Listing::Begin => self.images.unlisted = Some(self.images.entries.keys().cloned().collect()),
            Listing::Listed(image) | Listing::Applied(image) => {
                if let Some(unlisted) = &mut self.images.unlisted {
                    unlisted.remove(&image.name);
                }
                self.take_image(image, now);
            }
            Listing::Complete => {
                self.images.complete = true;
                for name in self.images.unlisted.take().into_iter().flatten() {
                    self.image_gone(&name);
                }
                self.touch_active_jobs();
            }
            Listing::Deleted(uid) => {
                let name = self
                    .images
                    .entries
                    .iter()
                    .find(|(_, entry)| entry.object.uid == uid)
                    .map(|(name, _)| name.clone());
                if let Some(name) = name {
                    self.image_gone(&name);
                }
            }
        }
    }

    fn take_image(&mut self, image: NodeImageObject, now: Now) {
        let name = image.name.clone();
        let other = self
            .images
            .entries
            .get(&name)
            .is_some_and(|entry| entry.object.uid != image.uid);
        if other {
            self.image_gone(&name);
        }
        if image.deleting {
            return self.image_gone(&name);
        }
        match self.images.entries.get_mut(&name) {
            Some(entry) if !image.is_as_new_as(&entry.object) => return,
            Some(entry) => entry.object = image,
            None => {
                let entry = Entry {
                    object: image,
                    requests: BTreeMap::new(),
                    ended: BTreeMap::new(),
                    busy: false,
                    retry: Retry::default(),
                    last_write: None,
                    wake: None,
                };
                self.images.entries.insert(name.clone(), entry);
            }
        }
        self.refresh_fake(&name, now);
        self.refresh_requests(&name, now);
        self.images.dirty.insert(name);
    }

    fn image_gone(&mut self, name: &NodeName) {
        self.images.set_timer(name, None);
        let Some(entry) = self.images.entries.remove(name) else {
            return;
        };
        self.images.dirty.remove(name);
        for job in entry.requests.keys() {
            self.job_gone(job);
        }
        if let Some(change) = self.nodes.remove_fake(name) {
            self.after_node_change(name, &change);
        }
    }

    /// Brings the jobs of a NodeImage in line with its tags.
    fn refresh_requests(&mut self, name: &NodeName, now: Now) {
        let Some(entry) = self.images.entries.get_mut(name) else {
            return;
        };
        let object = &entry.object;
        let wanted = node_image::requests(object.uid.as_str(), name, &object.spec, object.status.as_ref());
        let jobs: Vec<JobObject> = wanted.iter().map(|request| job_object(object, request)).collect();
        let requests: BTreeMap<JobUid, (String, String)> = wanted
            .into_iter()
            .map(|request| (request.job, (request.name, request.tag)))
            .collect();
        let old = std::mem::replace(&mut entry.requests, requests);
        let gone: Vec<JobUid> = old
            .into_keys()
            .filter(|job| !entry.requests.contains_key(job))
            .collect();
        entry.ended.retain(|job, _| entry.requests.contains_key(job));
        for job in gone {
            self.job_gone(&job);
        }
        for job in jobs {
            // Another version is another request: how the last one ended does not matter.
            let round = |job: &JobObject| job.status.as_ref().and_then(|status| status.outcomes.clone());
            let before = self.jobs.get(&job.uid).map(|held| round(&held.object));
            if before.is_some_and(|before| before != round(&job))
                && let Some(entry) = self.images.entries.get_mut(name)
            {
                entry.ended.remove(&job.uid);
            }
            self.store_job(job, now);
        }
    }

    /// What a plan of such a job means for its NodeImage.
    pub(super) fn note_request(&mut self, uid: &JobUid, plan: &JobPlan) {
        let Some(entry) = self.jobs.get(uid) else { return };
        let name = node_of(&entry.object);
        let Some(image) = self.images.entries.get_mut(&name) else {
            return;
        };
        // One whose node does not exist selects nothing, and waits.
        if plan.complete && plan.counters.desired > 0 && !entry.object.is_complete() {
            let answer = if plan.counters.failed > 0 {
                let why = plan.status.failures.first();
                Answer::Failed {
                    message: why.map_or_else(String::new, |why| format!("{}: {}", why.reason, why.message)),
                }
            } else {
                Answer::Succeeded {
                    image_id: String::new(),
                }
            };
            image.ended.insert(uid.clone(), answer);
        }
        self.images.dirty.insert(name);
    }

    /// A task has moved on: its NodeImage may want to say so.
    pub(super) fn note_image_progress(&mut self, job: &JobUid) {
        let of_image = self.jobs.get(job).filter(|entry| entry.object.is_of_node_image());
        if let Some(name) = of_image.map(|entry| node_of(&entry.object)) {
            self.images.dirty.insert(name);
        }
    }

    /// Plans the NodeImages that were touched or are due.
    pub(super) fn settle_images(&mut self, now: Now) {
        self.images.pass_time(now);
        for name in std::mem::take(&mut self.images.dirty) {
            self.plan_image(&name, now);
        }
    }

    fn plan_image(&mut self, name: &NodeName, now: Now) {
        let Some(entry) = self.images.entries.get(name) else {
            return;
        };
        if entry.busy {
            // Looked at again after that.
            return;
        }
        if let Some(until) = entry.retry.pause(now) {
            return self.images.set_timer(name, Some(until));
        }
        let answers: BTreeMap<(String, String), Answer> = entry
            .requests
            .iter()
            .filter_map(|(job, tag)| Some((tag.clone(), self.answer(name, job, entry)?)))
            .collect();
        let object = &entry.object;
        let plan = node_image::plan(&NodeImageSnapshot {
            labels: &object.labels,
            created: object.created,
            spec: &object.spec,
            status: object.status.as_ref(),
            answers: &answers,
            node_gone: self.nodes.uid(name).is_none(),
            last_write: entry.last_write,
            now: now.wall,
        });
        let write = image_write(object, &plan);
        let uid = object.uid.clone();
        self.images.set_timer(name, plan.wake.map(|at| mono_of(at, now)));
        let Some(entry) = self.images.entries.get_mut(name) else {
            return;
        };
        if let Some(write) = write {
            entry.busy = true;
            self.writes.push(Effect::WriteImage {
                node: name.clone(),
                uid,
                write,
            });
        }
    }

    /// How a request stands.
    fn answer(&self, node: &NodeName, job: &JobUid, image: &Entry) -> Option<Answer> {
        let Some(task) = self.tasks.get(job, node) else {
            return image.ended.get(job).cloned();
        };
        let percent = task.status.progress.map_or(0, |progress| {
            progress
                .bytes_done
                .saturating_mul(100)
                .checked_div(progress.bytes_total)
                .map_or(0, |percent| u8::try_from(percent).unwrap_or(99))
        });
        Some(match (&task.stage, task.phase()) {
            (
                Stage::Ended {
                    outcome: TaskOutcome::Succeeded,
                    ..
                },
                _,
            ) => Answer::Succeeded {
                image_id: digest(&task.status.image_id).to_owned(),
            },
            (
                Stage::Ended {
                    outcome: TaskOutcome::Failed { reason, message },
                    ..
                },
                _,
            ) => Answer::Failed {
                message: format!("{reason}: {message}"),
            },
            (_, Phase::Pulling | Phase::Unpacking) => Answer::Pulling { percent },
            _ => Answer::Waiting,
        })
    }

    pub(super) fn image_written(
        &mut self,
        name: &NodeName,
        result: Result<Option<NodeImageObject>, ApiFailure>,
        now: Now,
    ) {
        let Some(entry) = self.images.entries.get_mut(name) else {
            return;
        };
        entry.busy = false;
        self.images.dirty.insert(name.clone());
        match result {
            Ok(object) => {
                entry.retry.succeeded();
                entry.last_write = Some(now.wall);
                if let Some(object) = object {
                    self.take_image(object, now);
                }
            }
            // The watch tells before long what is so now.
            Err(ApiFailure::Conflict | ApiFailure::NotLeading) => entry.retry.failed(now, Duration::ZERO),
            Err(ApiFailure::Gone) => self.image_gone(name),
            Err(ApiFailure::Refused(detail)) => {
                tracing::error!(node = %name, detail, "the API server refuses a write on a NodeImage");
                entry.retry.failed(now, REFUSED_PAUSE);
            }
            Err(ApiFailure::Unsure { detail, retry_after }) => {
                tracing::warn!(node = %name, detail, "a write on a NodeImage may or may not have been done");
                entry.retry.failed(now, retry_after.unwrap_or(Duration::ZERO));
            }
        }
    }

    /// A node that stands and falls with its NodeImage.
    pub(super) fn refresh_fake(&mut self, name: &NodeName, now: Now) {
        let fake = self
            .images
            .entries
            .get(name)
            .filter(|entry| entry.object.labels.contains_key(FAKE_LABEL))
            .map(|entry| fake_node(&entry.object));
        let change = match fake {
            Some(node) => self.nodes.apply_fake(node, now.wall),
            None => self.nodes.remove_fake(name),
        };
        if let Some(change) = change {
            self.after_node_change(name, &change);
        }
    }
}

/// As the node of the NodeImage's name would be. Nobody answers on it.
fn fake_node(image: &NodeImageObject) -> NodeObject {
    NodeObject {
        name: image.name.clone(),
        uid: image.uid.clone(),
        labels: image.labels.clone(),
        created: image.created,
        deleting: false,
        ready: Some(Ready {
            is_true: true,
            since: Timestamp::MAX,
        }),
        cordoned: false,
        pressure: None,
    }
}

/// The job that a request comes to.
fn job_object(image: &NodeImageObject, request: &Request) -> JobObject {
    let mut spec = request.spec.clone();
    // By namespace and name, since those of a NodeImage may be of any.
    spec.pull_secrets = request
        .secrets
        .iter()
        .map(|(namespace, name)| format!("{namespace}/{name}"))
        .collect();
    JobObject {
        uid: request.job.clone(),
        key: ObjectKey::new(
            NAMESPACE,
            format!("{}/{}:{}", image.name, request.name, request.tag),
        ),
        version: image.version.clone(),
        generation: 1,
        deleting: false,
        finalizers: Vec::new(),
        created: request.created.unwrap_or(image.created),
        annotations: BTreeMap::new(),
        controller: None,
        spec,
        status: Some(request.status.clone()),
    }
}

/// Node of a NodeImage's job.
fn node_of(job: &JobObject) -> NodeName {
    let name = job.key.name.split('/').next();
    NodeName::new(name.unwrap_or_default())
}

/// What a plan wants written, the status first.
fn image_write(object: &NodeImageObject, plan: &NodeImagePlan) -> Option<ImageWrite> {
    let version = object.version.clone();
    if plan.delete {
        return Some(ImageWrite::Delete);
    }
    if plan.write {
        let json = |status| serde_json::to_value(status).expect("a status has only text keys");
        let stored = object.status.as_ref().map_or(Value::Null, json);
        return merge_patch(&stored, &json(&plan.status)).map(|patch| ImageWrite::Status {
            version,
            patch,
            events: plan.events.clone(),
        });
    }
    let spec = plan.spec.as_ref()?;
    let json = |spec| serde_json::to_value(spec).expect("a spec has only text keys");
    let patch = merge_patch(&json(&object.spec), &json(spec))?;
    Some(ImageWrite::Spec {
        body: json!({"metadata": {"resourceVersion": version}, "spec": patch}),
    })
}

/// The digest in "name@digest", or the whole text.
fn digest(image_id: &str) -> &str {
    image_id.rsplit_once('@').map_or(image_id, |(_, digest)| digest)
}
