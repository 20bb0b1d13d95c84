//! All that the controller remembers, with its transitions.
//!
//! Guarantees: one plan per list is carried out at a time; after one that failed the list rests, longer each time; nothing here is truth.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use kruise_api::ids::JobUid;
use kruise_planner::image_list_job::{
    ChildView, ListMemory, ListPlan, ListSnapshot, Refusal, outcome_of, plan,
};

use super::objects::{ChildObject, ListObject};
use crate::engine::objects::Listing;
use crate::kubeapi::ApiFailure;

/// First and longest pause after a request that failed.
const RETRY_FIRST: i64 = 1;
const RETRY_LONGEST: i64 = 60;
/// A job that the server will not take is offered again after this long.
const REFUSED_PAUSE: SignedDuration = SignedDuration::from_secs(60);

/// A plan to be carried out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Work {
    pub(crate) list: ListObject,
    pub(crate) plan: ListPlan,
}

/// What came of a plan.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) list: JobUid,
    /// The list as its last write left it.
    pub(crate) object: Option<ListObject>,
    pub(crate) wrote_status: bool,
    pub(crate) created: Vec<ChildObject>,
    pub(crate) deleted: Vec<JobUid>,
    /// The image whose job could not be made, and why.
    pub(crate) refused: Option<(String, String)>,
    /// What ended the work before its time.
    pub(crate) failure: Option<ApiFailure>,
}

#[derive(Debug)]
struct Entry {
    object: ListObject,
    memory: ListMemory,
    busy: bool,
    failures: u32,
    /// No plan before.
    rest_until: Option<Timestamp>,
    wake: Option<Timestamp>,
}

/// State of one leadership.
#[derive(Debug)]
pub(crate) struct State {
    switched_off: Option<&'static str>,
    lists: BTreeMap<JobUid, Entry>,
    children: BTreeMap<JobUid, ChildObject>,
    unlisted: [Option<BTreeSet<JobUid>>; 2],
    complete: [bool; 2],
    dirty: BTreeSet<JobUid>,
}

const LISTS: usize = 0;
const CHILDREN: usize = 1;

impl State {
    pub(crate) fn new(switched_off: Option<&'static str>) -> Self {
        Self {
            switched_off,
            lists: BTreeMap::new(),
            children: BTreeMap::new(),
            unlisted: [None, None],
            complete: [false, false],
            dirty: BTreeSet::new(),
        }
    }

    pub(crate) fn lists(&mut self, listing: Listing<ListObject, JobUid>, now: Timestamp) {
        match listing {
            Listing::Begin => self.unlisted[LISTS] = Some(self.lists.keys().cloned().collect()),
            Listing::Listed(list) | Listing::Applied(list) => {
                if let Some(unlisted) = &mut self.unlisted[LISTS] {
                    unlisted.remove(&list.uid);
                }
                self.take_list(list, now);
            }
            Listing::Complete => {
                self.complete[LISTS] = true;
                for uid in self.unlisted[LISTS].take().into_iter().flatten() {
                    self.forget_list(&uid);
                }
                self.dirty.extend(self.lists.keys().cloned());
            }
            Listing::Deleted(uid) => self.forget_list(&uid),
        }
    }

    pub(crate) fn children(&mut self, listing: Listing<ChildObject, JobUid>) {
        match listing {
            Listing::Begin => self.unlisted[CHILDREN] = Some(self.children.keys().cloned().collect()),
            Listing::Listed(child) | Listing::Applied(child) => {
                if let Some(unlisted) = &mut self.unlisted[CHILDREN] {
                    unlisted.remove(&child.view.uid);
                }
                self.take_child(child);
            }
            Listing::Complete => {
                self.complete[CHILDREN] = true;
                for uid in self.unlisted[CHILDREN].take().into_iter().flatten() {
                    self.child_gone(&uid);
                }
                self.dirty.extend(self.lists.keys().cloned());
            }
            Listing::Deleted(uid) => self.child_gone(&uid),
        }
    }

    fn take_list(&mut self, list: ListObject, now: Timestamp) {
        self.dirty.insert(list.uid.clone());
        match self.lists.get_mut(&list.uid) {
            Some(entry) if is_older(&list.version, &entry.object.version) => {}
            Some(entry) => {
                if entry.object.generation != list.generation {
                    // What was done under another template does not count.
                    entry.memory.ended.clear();
                    entry.rest_until = None;
                }
                entry.object = list;
            }
            None => {
                let memory = ListMemory {
                    last_write: Some(now),
                    ..ListMemory::default()
                };
                let entry = Entry {
                    memory,
                    busy: false,
                    failures: 0,
                    rest_until: None,
                    wake: None,
                    object: list,
                };
                self.lists.insert(entry.object.uid.clone(), entry);
            }
        }
    }

    fn forget_list(&mut self, uid: &JobUid) {
        self.lists.remove(uid);
        self.dirty.remove(uid);
    }

    fn take_child(&mut self, child: ChildObject) {
        let older = self
            .children
            .get(&child.view.uid)
            .is_some_and(|held| is_older(&child.version, &held.version));
        if !older {
            self.dirty.insert(child.list.clone());
            self.children.insert(child.view.uid.clone(), child);
        }
    }

    fn child_gone(&mut self, uid: &JobUid) {
        let Some(child) = self.children.remove(uid) else {
            return;
        };
        self.dirty.insert(child.list.clone());
        if let Some(entry) = self.lists.get_mut(&child.list) {
            let object = &entry.object;
            let outcome = outcome_of(&object.spec, &object.annotations, &child.view);
            entry.memory.ended.extend(outcome);
        }
    }

    /// Plans what was touched or is due.
    pub(crate) fn settle(&mut self, now: Timestamp) -> Vec<Work> {
        if self.complete != [true, true] {
            return Vec::new();
        }
        let due = |entry: &Entry| {
            [entry.wake, entry.rest_until]
                .into_iter()
                .flatten()
                .any(|at| at <= now)
        };
        let due = self.lists.iter().filter(|(_, entry)| due(entry));
        let due: Vec<JobUid> = due.map(|(uid, _)| uid.clone()).collect();
        self.dirty.extend(due);
        let dirty = std::mem::take(&mut self.dirty);
        dirty.iter().filter_map(|uid| self.plan(uid, now)).collect()
    }

    fn plan(&mut self, uid: &JobUid, now: Timestamp) -> Option<Work> {
        let entry = self.lists.get_mut(uid)?;
        if entry.busy || entry.rest_until.is_some_and(|until| until > now) {
            return None;
        }
        entry.rest_until = None;
        let children: Vec<ChildView> = self
            .children
            .values()
            .filter(|child| child.list == *uid)
            .map(|child| child.view.clone())
            .collect();
        let object = &entry.object;
        let plan = plan(&ListSnapshot {
            uid,
            key: &object.key,
            generation: object.generation,
            deleting: object.deleting,
            legacy_finalizer: object.has_legacy_finalizer(),
            annotations: &object.annotations,
            spec: &object.spec,
            status: object.status.as_ref(),
            children: &children,
            memory: &entry.memory,
            switched_off: self.switched_off,
            now,
        });
        entry.wake = plan.wake;
        let nothing = plan.create.is_empty()
            && plan.patch.is_empty()
            && plan.delete.is_empty()
            && plan.write.is_none()
            && !plan.strip_finalizer
            && !plan.expire;
        if nothing {
            return None;
        }
        entry.busy = true;
        Some(Work {
            list: entry.object.clone(),
            plan,
        })
    }

    /// Takes the end of a plan's work.
    pub(crate) fn done(&mut self, done: Done, now: Timestamp) {
        for child in done.created {
            self.take_child(child);
        }
        for uid in done.deleted {
            // Of one that we deleted ourselves nothing is to be remembered.
            self.children.remove(&uid);
        }
        let Some(entry) = self.lists.get_mut(&done.list) else {
            return;
        };
        entry.busy = false;
        self.dirty.insert(done.list.clone());
        if done.wrote_status {
            entry.memory.last_write = Some(now);
            entry.memory.ended.clear();
        }
        if let Some((image, message)) = done.refused {
            let refusal = Refusal {
                generation: entry.object.generation,
                message,
                until: now.checked_add(REFUSED_PAUSE).unwrap_or(Timestamp::MAX),
            };
            entry.memory.refused.insert(image, refusal);
        }
        match &done.failure {
            None => entry.failures = 0,
            Some(failure) => {
                tracing::warn!(list = %entry.object.key, %failure, "work on a list was cut short");
                let pause = RETRY_FIRST
                    .saturating_mul(1_i64 << entry.failures.min(6))
                    .min(RETRY_LONGEST);
                entry.failures = entry.failures.saturating_add(1);
                let until = now.checked_add(SignedDuration::from_secs(pause));
                entry.rest_until = Some(until.unwrap_or(Timestamp::MAX));
            }
        }
        if let Some(object) = done.object {
            self.take_list(object, now);
        }
    }

    /// When to settle again if nothing happens before.
    pub(crate) fn next_wake(&self) -> Option<Timestamp> {
        let of = |entry: &Entry| match entry.rest_until {
            Some(until) => Some(until),
            None => entry.wake,
        };
        self.lists
            .values()
            .filter(|entry| !entry.busy)
            .filter_map(of)
            .min()
    }

    /// How many lists there are, and how many of them are not over.
    pub(crate) fn count(&self) -> (usize, usize) {
        let active = self.lists.values().filter(|entry| {
            let status = entry.object.status.as_ref();
            status.is_none_or(|status| status.completion_time.is_none())
        });
        (self.lists.len(), active.count())
    }
}

/// Versions are numbers that grow; texts that are no numbers count as new.
fn is_older(version: &str, than: &str) -> bool {
    match (version.parse::<u64>(), than.parse::<u64>()) {
        (Ok(mine), Ok(theirs)) => mine < theirs,
        _ => false,
    }
}
