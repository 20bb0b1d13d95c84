//! Everything that the controller keeps in memory: requests, their pods, what agents say. None of it is truth.
//!
//! [`State::apply`] takes events one by one; [`State::settle`] then plans each pod that was touched once and returns what is to be done: orders
//! first, writes afterwards, so that nothing new is begun on a node when the end of a request is being stored.

mod entry;
mod planning;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kruise_api::container_recreate_request::ContainerRecreateRequest;
use kruise_api::ids::{NodeName, ObjectKey, TaskId};
use kruise_planner::restart::facts::TaskFacts;
use kruise_planner::restart::{EventNote, OrderPlan, Write, request_of};
use kruise_proto::restart::task_facts;

use super::metrics::RestartMetrics;
use crate::engine::guests::GuestNode;
use crate::kubeapi::ApiFailure;
use entry::{Entry, Retry};

/// One moment on both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    /// This process' monotonic clock.
    pub(super) mono: Duration,
    /// The API server's time.
    pub(super) wall: Timestamp,
}

/// What a watch tells.
#[derive(Debug)]
pub(super) enum Told<T> {
    /// A list begins: what does not come up in it is gone.
    Begin,
    /// Part of the list, or made or changed.
    Object(Box<T>),
    /// The list is complete.
    Complete,
    /// Gone.
    Gone(Box<T>),
    /// The kind does not exist here, or may not be read.
    Absent,
}

/// What happened.
#[derive(Debug)]
pub(super) enum Event {
    Requests(Told<ContainerRecreateRequest>),
    Pods(Told<Pod>),
    Node(NodeName, GuestNode),
    /// A write has ended; with the object that it made, if it made one.
    Written {
        uid: String,
        result: Result<Option<Box<ContainerRecreateRequest>>, ApiFailure>,
    },
    /// A request read on its own; none when it does not exist.
    Fetched {
        uid: String,
        result: Result<Option<Box<ContainerRecreateRequest>>, ApiFailure>,
    },
}

/// What is to be done, in this order.
#[derive(Debug, PartialEq)]
pub(super) enum Effect {
    /// All objects have been read.
    Ready,
    /// Begin to watch pods: there is a request.
    WatchPods,
    /// A node shall hold this order.
    Order {
        node: NodeName,
        task: TaskId,
        order: Box<OrderPlan>,
        pod: String,
        requested_by: String,
    },
    /// A node shall forget this task.
    Forget { node: NodeName, task: TaskId },
    /// One write; its end comes back as [`Event::Written`].
    Write {
        object: Box<ContainerRecreateRequest>,
        write: Box<Write>,
        /// For [`Write::Clean`]: the report as it shall stand in the annotation.
        report: Option<String>,
    },
    /// Read one request; comes back as [`Event::Fetched`].
    Fetch { uid: String, key: ObjectKey },
    /// Tell an event.
    Record {
        object: Box<ContainerRecreateRequest>,
        pod_uid: String,
        node: String,
        note: EventNote,
    },
}

/// State of one leadership.
#[derive(Debug)]
pub(super) struct State {
    metrics: RestartMetrics,
    requests: BTreeMap<String, Entry>,
    by_pod: BTreeMap<ObjectKey, BTreeSet<String>>,
    pods: BTreeMap<ObjectKey, Pod>,
    nodes: BTreeMap<NodeName, GuestNode>,
    /// What a list that runs has not named yet.
    unlisted_requests: Option<BTreeSet<String>>,
    unlisted_pods: Option<BTreeSet<ObjectKey>>,
    requests_read: bool,
    pods_watched: bool,
    pods_read: bool,
    told_ready: bool,
    dirty: BTreeSet<ObjectKey>,
    timers: BTreeMap<ObjectKey, Duration>,
    orders: Vec<Effect>,
    writes: Vec<Effect>,
}

impl State {
    pub(super) fn new(metrics: RestartMetrics) -> Self {
        Self {
            metrics,
            requests: BTreeMap::new(),
            by_pod: BTreeMap::new(),
            pods: BTreeMap::new(),
            nodes: BTreeMap::new(),
            unlisted_requests: None,
            unlisted_pods: None,
            requests_read: false,
            pods_watched: false,
            pods_read: false,
            told_ready: false,
            dirty: BTreeSet::new(),
            timers: BTreeMap::new(),
            orders: Vec::new(),
            writes: Vec::new(),
        }
    }

    /// Takes one event. What follows from it comes out of the next [`Self::settle`].
    pub(super) fn apply(&mut self, event: Event, now: Now) {
        match event {
            Event::Requests(told) => self.request(told),
            Event::Pods(told) => self.pod(told),
            Event::Node(name, node) => self.node(&name, &node, now),
            Event::Written { uid, result } => self.written(&uid, result, now),
            Event::Fetched { uid, result } => self.fetched(&uid, result, now),
        }
    }

    fn request(&mut self, told: Told<ContainerRecreateRequest>) {
        match told {
            Told::Begin => self.unlisted_requests = Some(self.requests.keys().cloned().collect()),
            Told::Object(object) => {
                let uid = object.metadata.uid.clone().unwrap_or_default();
                if let Some(unlisted) = &mut self.unlisted_requests {
                    unlisted.remove(&uid);
                }
                self.store(uid, *object);
            }
            Told::Complete => {
                for uid in self.unlisted_requests.take().unwrap_or_default() {
                    self.remove(&uid);
                }
                self.requests_read = true;
            }
            Told::Gone(object) => self.remove(object.metadata.uid.as_deref().unwrap_or_default()),
            Told::Absent => self.requests_read = true,
        }
    }

    fn pod(&mut self, told: Told<Pod>) {
        match told {
            Told::Begin => self.unlisted_pods = Some(self.pods.keys().cloned().collect()),
            Told::Object(pod) => {
                let key = key_of(&pod.metadata);
                if let Some(unlisted) = &mut self.unlisted_pods {
                    unlisted.remove(&key);
                }
                if self.by_pod.contains_key(&key) {
                    self.dirty.insert(key.clone());
                }
                self.pods.insert(key, *pod);
            }
            Told::Complete => {
                for key in self.unlisted_pods.take().unwrap_or_default() {
                    self.pods.remove(&key);
                    self.dirty.insert(key);
                }
                self.pods_read = true;
            }
            Told::Gone(pod) => {
                let key = key_of(&pod.metadata);
                let same = |old: &Pod| old.metadata.uid == pod.metadata.uid;
                if self.pods.get(&key).is_some_and(same) {
                    self.pods.remove(&key);
                }
                self.dirty.insert(key);
            }
            Told::Absent => self.pods_read = true,
        }
    }

    /// Takes a request as it is now, unless a newer one is known.
    fn store(&mut self, uid: String, object: ContainerRecreateRequest) {
        let key = ObjectKey::new(
            object.metadata.namespace.clone().unwrap_or_default(),
            object.spec.pod_name.clone(),
        );
        self.by_pod.entry(key.clone()).or_default().insert(uid.clone());
        let task = kruise_planner::restart::task_id(&uid);
        let facts = self
            .nodes
            .iter()
            .find_map(|(_, node)| node.tasks.get(&task).and_then(task_facts));
        match self.requests.get_mut(&uid) {
            Some(entry) => entry.update(object),
            None => {
                self.requests.insert(uid, Entry::new(key.clone(), object, facts));
            }
        }
        self.dirty.insert(key);
    }

    fn remove(&mut self, uid: &str) {
        let Some(entry) = self.requests.remove(uid) else {
            return;
        };
        if let Some(uids) = self.by_pod.get_mut(&entry.pod) {
            uids.remove(uid);
            if uids.is_empty() {
                self.by_pod.remove(&entry.pod);
            }
        }
        // What an agent still does for it is carried through and concerns nobody any more.
        let task = kruise_planner::restart::task_id(uid);
        let holders = self
            .nodes
            .iter()
            .filter(|(_, node)| node.tasks.contains_key(&task));
        let mut nodes: BTreeSet<NodeName> = holders.map(|(name, _)| name.clone()).collect();
        nodes.extend(entry.ordered.map(|(node, _)| node));
        for node in nodes {
            self.orders.push(Effect::Forget {
                node,
                task: task.clone(),
            });
        }
        self.dirty.insert(entry.pod);
    }

    /// What an agent holds and says.
    fn node(&mut self, name: &NodeName, node: &GuestNode, now: Now) {
        let old = self.nodes.insert(name.clone(), node.clone()).unwrap_or_default();
        for (task, status) in &node.tasks {
            let Some(uid) = request_of(task) else { continue };
            let Some(entry) = self.requests.get_mut(uid) else {
                // Of a request that is gone.
                if old.tasks.get(task) != Some(status) {
                    self.orders.push(Effect::Forget {
                        node: name.clone(),
                        task: task.clone(),
                    });
                }
                continue;
            };
            if let Some(facts) = task_facts(status) {
                entry.hear(facts, now);
                self.dirty.insert(entry.pod.clone());
            }
        }
        if old.attached != node.attached {
            let on_node = |entry: &&Entry| entry.ordered.as_ref().is_some_and(|(node, _)| node == name);
            let touched: Vec<_> = self
                .requests
                .values()
                .filter(on_node)
                .map(|entry| entry.pod.clone())
                .collect();
            self.dirty.extend(touched);
            let waiting = self
                .requests
                .values()
                .filter(|entry| entry.ordered.is_none() && !entry.is_over());
            let waiting: Vec<_> = waiting.map(|entry| entry.pod.clone()).collect();
            self.dirty.extend(waiting);
        }
    }

    fn written(
        &mut self,
        uid: &str,
        result: Result<Option<Box<ContainerRecreateRequest>>, ApiFailure>,
        now: Now,
    ) {
        let Some(entry) = self.requests.get_mut(uid) else {
            return;
        };
        entry.busy = false;
        self.dirty.insert(entry.pod.clone());
        match result {
            Ok(object) => {
                entry.retry = Retry::default();
                if let Some(object) = object {
                    entry.update(*object);
                }
            }
            Err(ApiFailure::Conflict | ApiFailure::Gone) => {
                entry.busy = true;
                let key = key_of(&entry.object.metadata);
                self.writes.push(Effect::Fetch {
                    uid: uid.to_owned(),
                    key,
                });
            }
            Err(error) => {
                tracing::warn!(request = %key_of(&entry.object.metadata), %error, "a write came to nothing; trying again");
                entry.retry.failed(&error, now);
            }
        }
    }

    fn fetched(
        &mut self,
        uid: &str,
        result: Result<Option<Box<ContainerRecreateRequest>>, ApiFailure>,
        now: Now,
    ) {
        let Some(entry) = self.requests.get_mut(uid) else {
            return;
        };
        entry.busy = false;
        self.dirty.insert(entry.pod.clone());
        match result {
            Ok(Some(object)) if object.metadata.uid.as_deref() == Some(uid) => {
                // The pod may have been what conflicted; a little patience lets its watch catch up.
                entry.retry.failed(&ApiFailure::Conflict, now);
                entry.update(*object);
            }
            Ok(_) => self.remove(uid),
            Err(error) => entry.retry.failed(&error, now),
        }
    }

    /// Plans what was touched or is due, and returns what is to be done.
    pub(super) fn settle(&mut self, now: Now) -> Vec<Effect> {
        let mut effects = Vec::new();
        let active = self.requests.values().any(|entry| !entry.is_settled());
        if active && !std::mem::replace(&mut self.pods_watched, true) {
            effects.push(Effect::WatchPods);
        }
        if self.requests_read && (self.pods_read || !self.pods_watched) {
            let due: Vec<ObjectKey> = self
                .timers
                .iter()
                .filter(|(_, at)| **at <= now.mono)
                .map(|(key, _)| key.clone())
                .collect();
            self.dirty.extend(due);
            while let Some(key) = self.dirty.pop_first() {
                self.plan_pod(&key, now);
            }
        }
        effects.append(&mut self.orders);
        effects.append(&mut self.writes);
        // Agents may attach once what they shall hold is known.
        let read = self.requests_read && (self.pods_read || !self.pods_watched);
        if read && !std::mem::replace(&mut self.told_ready, true) {
            effects.push(Effect::Ready);
        }
        effects
    }

    /// When to settle again if nothing happens before, by the monotonic clock.
    pub(super) fn next_wake(&self) -> Option<Duration> {
        self.timers.values().min().copied()
    }

    fn facts_of(&self, uid: &str) -> Option<&TaskFacts> {
        self.requests.get(uid)?.facts.as_ref()
    }
}

/// Namespace and name.
pub(super) fn key_of(meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> ObjectKey {
    ObjectKey::new(
        meta.namespace.clone().unwrap_or_default(),
        meta.name.clone().unwrap_or_default(),
    )
}
