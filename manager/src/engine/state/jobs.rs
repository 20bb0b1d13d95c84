//! Jobs as the engine holds them: the newest known object, and what is remembered between plans.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kruise_api::ids::{JobUid, NodeName, ObjectKey, TaskId};
use kruise_planner::job::{Counters, JobMemory, PodView};

use super::super::event::{Change, Effect, Now};
use super::super::objects::{JobObject, Listing};
use super::super::ports::ApiFailure;
use super::EngineState;
use super::orders::PullOrder;
use super::secrets::SecretBlock;

/// A watch that has not caught up with our own write after this long is doubted: the object is read on its own.
const WATCH_PATIENCE: Duration = Duration::from_secs(5);
/// First and longest pause after a request that failed.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_LONGEST: Duration = Duration::from_secs(60);

/// One job.
#[derive(Debug)]
pub(crate) struct JobEntry {
    /// The newest version known: from the watch, or the answer to our own write.
    pub(crate) object: JobObject,
    /// Since when the object is ahead of the watch.
    pub(crate) ahead_since: Option<Duration>,
    pub(crate) memory: JobMemory,
    pub(crate) pods: Pods,
    /// Pods that nodes wait for.
    pub(crate) awaited: Pods,
    /// What its tasks were ordered to do, as of the last plan.
    pub(crate) order: Option<Arc<PullOrder>>,
    /// Orders that the cluster's caps kept back in the last plan.
    pub(crate) capped: usize,
    pub(crate) busy: Option<Busy>,
    pub(crate) retry: Retry,
    pub(crate) secrets: Option<SecretBlock>,
    /// When the job's deadline ends orders, by the monotonic clock.
    pub(crate) deadline: Option<Duration>,
    pub(crate) timer: Option<Duration>,
    /// Not planned again before, by the monotonic clock: a plan looks at every node.
    pub(crate) rests_until: Option<Duration>,
    /// As of the last plan, for inspection.
    pub(crate) counters: Counters,
    pub(crate) waiting: Vec<Waiting>,
    /// When the planner wants to look again.
    pub(crate) wake: Option<Timestamp>,
    pub(crate) complete: bool,
    /// Bytes (done, total) of tasks that have ended and left the table under this leader.
    pub(crate) ended_bytes: (u64, u64),
    /// When a summary was last told to watchers because of progress alone.
    pub(crate) told: Option<Duration>,
}

/// The request that is under way.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Busy {
    /// A status that contains these results.
    Status { results: Vec<(NodeName, TaskId)> },
    /// The finalizers.
    Finalizers,
    /// Its deletion.
    Deletion,
    /// A read, asked for when this version was known.
    Fetch { known: String },
}

/// Why nodes wait, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// A word that does not change.
    pub(crate) word: &'static str,
    pub(crate) text: String,
    pub(crate) nodes: usize,
}

/// Pods that bear on a job.
#[derive(Debug, Default)]
pub(crate) enum Pods {
    /// Not watched: no selector, or the job is over.
    #[default]
    Unwatched,
    /// Watched; none until the first list.
    Watched {
        watch: u64,
        selector: String,
        pods: Option<Vec<PodView>>,
    },
}

impl Pods {
    /// As the watch told last; none before it has told anything, or without a watch.
    pub(crate) fn known(&self) -> Option<&[PodView]> {
        match self {
            Self::Watched { pods, .. } => pods.as_deref(),
            Self::Unwatched => None,
        }
    }

    /// Ends the watch, if there is one.
    pub(crate) fn end(&mut self) -> Option<Effect> {
        match std::mem::take(self) {
            Self::Watched { watch, .. } => Some(Effect::UnwatchPods { watch }),
            Self::Unwatched => None,
        }
    }
}

/// Pause after requests that failed.
#[derive(Debug, Default)]
pub(crate) struct Retry {
    failures: u32,
    until: Option<Duration>,
}

impl Retry {
    pub(crate) fn succeeded(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn failed(&mut self, now: Now, at_least: Duration) {
        let pause = (RETRY_FIRST * 2_u32.saturating_pow(self.failures.min(10))).min(RETRY_LONGEST);
        self.failures = self.failures.saturating_add(1);
        self.until = Some(now.mono + pause.max(at_least));
    }

    /// Gives what was asked for some time to show.
    pub(crate) fn rest(&mut self, now: Now, span: Duration) {
        self.until = Some(now.mono + span);
    }

    /// Until when no request is made.
    pub(crate) fn pause(&self, now: Now) -> Option<Duration> {
        self.until.filter(|until| *until > now.mono)
    }
}

impl JobEntry {
    fn new(object: JobObject, now: Now) -> Self {
        Self {
            object,
            ahead_since: None,
            memory: JobMemory {
                last_write: Some(now.wall),
                ..JobMemory::default()
            },
            pods: Pods::default(),
            awaited: Pods::default(),
            order: None,
            capped: 0,
            busy: None,
            retry: Retry::default(),
            secrets: None,
            deadline: None,
            timer: None,
            rests_until: None,
            counters: Counters::default(),
            waiting: Vec::new(),
            wake: None,
            complete: false,
            ended_bytes: (0, 0),
            told: None,
        }
    }
}

/// All jobs by UID.
#[derive(Debug, Default)]
pub(crate) struct JobTable {
    entries: BTreeMap<JobUid, JobEntry>,
    by_key: BTreeMap<ObjectKey, JobUid>,
    unlisted: Option<BTreeSet<JobUid>>,
    complete: bool,
}

impl JobTable {
    pub(crate) fn get(&self, uid: &JobUid) -> Option<&JobEntry> {
        self.entries.get(uid)
    }

    pub(crate) fn get_mut(&mut self, uid: &JobUid) -> Option<&mut JobEntry> {
        self.entries.get_mut(uid)
    }

    pub(crate) fn uid(&self, key: &ObjectKey) -> Option<&JobUid> {
        self.by_key.get(key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&JobUid, &JobEntry)> {
        self.entries.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut JobEntry> {
        self.entries.values_mut()
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    fn remove(&mut self, uid: &JobUid) -> Option<JobEntry> {
        let entry = self.entries.remove(uid)?;
        if self.by_key.get(&entry.object.key) == Some(uid) {
            self.by_key.remove(&entry.object.key);
        }
        Some(entry)
    }

    /// How many jobs are in which phase.
    pub(crate) fn phases(&self) -> JobPhases {
        let mut phases = JobPhases::default();
        let real = self.entries.values();
        for entry in real.filter(|entry| !entry.object.is_of_node_image()) {
            match entry {
                _ if entry.object.is_complete() => phases.complete += 1,
                _ if entry.counters.active > 0 => phases.pulling += 1,
                _ => phases.waiting += 1,
            }
        }
        phases
    }
}

/// How many jobs are in which phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JobPhases {
    pub(crate) pulling: usize,
    pub(crate) waiting: usize,
    pub(crate) complete: usize,
}

impl EngineState {
    pub(super) fn job_listing(&mut self, listing: Listing<JobObject, JobUid>, now: Now) {
        match listing {
            Listing::Begin => {
                let real = self.jobs.entries.iter();
                let real = real.filter(|(_, entry)| !entry.object.is_of_node_image());
                self.jobs.unlisted = Some(real.map(|(uid, _)| uid.clone()).collect());
            }
            Listing::Listed(job) => {
                if let Some(unlisted) = &mut self.jobs.unlisted {
                    unlisted.remove(&job.uid);
                }
                self.take_job(job, now);
            }
            Listing::Applied(job) => self.take_job(job, now),
            Listing::Complete => {
                self.jobs.complete = true;
                for uid in self.jobs.unlisted.take().into_iter().flatten() {
                    self.job_gone(&uid);
                }
                self.touch_active_jobs();
            }
            Listing::Deleted(uid) => self.job_gone(&uid),
        }
    }

    /// Takes an object that may be older than what is known.
    pub(super) fn take_job(&mut self, object: JobObject, now: Now) {
        if let Some(held) = self.jobs.get_mut(&object.uid) {
            if !object.is_as_new_as(&held.object) {
                let doubted = held
                    .ahead_since
                    .is_some_and(|since| since + WATCH_PATIENCE <= now.mono);
                if doubted && held.busy.is_none() {
                    self.fetch(&object.uid);
                }
                return;
            }
            held.ahead_since = None;
        }
        self.store_job(object, now);
    }

    /// Takes an object that is known to be the newest.
    pub(super) fn store_job(&mut self, object: JobObject, now: Now) {
        let uid = object.uid.clone();
        let other = self
            .jobs
            .by_key
            .get(&object.key)
            .filter(|other| **other != uid)
            .cloned();
        if let Some(other) = other {
            self.job_gone(&other);
        }
        match self.jobs.get_mut(&uid) {
            Some(held) if held.object == object => return,
            Some(held) => held.object = object,
            None => {
                self.jobs.by_key.insert(object.key.clone(), uid.clone());
                self.jobs.entries.insert(uid.clone(), JobEntry::new(object, now));
            }
        }
        self.drop_saved(&uid);
        self.dirty.insert(uid);
    }

    /// The object is gone: nobody wants its tasks.
    pub(super) fn job_gone(&mut self, uid: &JobUid) {
        self.set_timer(uid, None);
        let Some(entry) = self.jobs.remove(uid) else {
            return;
        };
        self.dirty.remove(uid);
        self.secrets_wanted.remove(uid);
        self.release_guests(uid, &[]);
        let mut entry = entry;
        self.effects
            .extend([entry.pods.end(), entry.awaited.end()].into_iter().flatten());
        let nodes: Vec<NodeName> = self.tasks.of_job(uid).map(|(node, _)| node.clone()).collect();
        for node in nodes {
            self.drop_task(uid, &node, entry.object.key.to_string(), "job deleted");
        }
        self.publish(Change::JobGone {
            job: entry.object.key.to_string(),
        });
    }

    /// Reads the object on its own.
    pub(super) fn fetch(&mut self, uid: &JobUid) {
        if let Some(entry) = self.jobs.get_mut(uid) {
            entry.busy = Some(Busy::Fetch {
                known: entry.object.version.clone(),
            });
            let key = entry.object.key.clone();
            self.effects.push(Effect::Fetch {
                job: uid.clone(),
                key,
            });
        }
    }

    pub(super) fn fetched(&mut self, uid: &JobUid, result: Result<Option<JobObject>, ApiFailure>, now: Now) {
        let Some(entry) = self.jobs.get_mut(uid) else {
            return;
        };
        let mut overtaken = false;
        if let Some(Busy::Fetch { known }) = &entry.busy {
            overtaken = *known != entry.object.version;
            entry.busy = None;
        }
        match result {
            // The watch has told of something newer while the answer was under way. It will not tell of it again.
            Ok(Some(object)) if overtaken && object.uid == *uid && !object.is_as_new_as(&entry.object) => {
                self.fetch(uid);
            }
            Ok(Some(object)) => {
                // Even when its version is lower: a restored database goes back, and what the server says now is so.
                entry.ahead_since = None;
                let same = object.uid == *uid;
                self.store_job(object, now);
                if !same {
                    self.job_gone(uid);
                }
            }
            Ok(None) | Err(ApiFailure::Gone) => self.job_gone(uid),
            Err(_) => entry.retry.failed(now, Duration::ZERO),
        }
        if self.jobs.get(uid).is_some() {
            self.dirty.insert(uid.clone());
        }
    }

    pub(super) fn pods(&mut self, job: &JobUid, number: u64, told: Vec<PodView>) {
        let Some(entry) = self.jobs.get_mut(job) else {
            return;
        };
        for held in [&mut entry.pods, &mut entry.awaited] {
            if let Pods::Watched { watch, pods, .. } = held
                && *watch == number
            {
                *pods = Some(told);
                self.dirty.insert(job.clone());
                return;
            }
        }
    }
}
