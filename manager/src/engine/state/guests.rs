//! Orders of other controllers, as part of each node's set.

use std::collections::{BTreeMap, BTreeSet};

use kruise_api::ids::{JobUid, NodeName, TaskId};
use kruise_api::reference::ImageRef;
use kruise_proto::dispatch::{Order, order};
use kruise_proto::task::TaskStatus;

use super::super::guests::{Guest, GuestChange, GuestNews};
use super::super::objects::JobObject;
use super::EngineState;

/// Why a task is taken back, for people.
const OVER: &str = "over";

/// Orders by node, and what is to be told about them.
#[derive(Debug, Default)]
pub(super) struct GuestOrders {
    /// Whether the controller is still reading its objects.
    waiting: bool,
    by_node: BTreeMap<NodeName, BTreeMap<TaskId, Order>>,
    news: Vec<GuestNews>,
    /// Orders that wait for the slot of a job on their node.
    queued: BTreeMap<(NodeName, TaskId), Vec<JobUid>>,
}

/// Whether a task is another controller's.
fn is_guest(task: &TaskId) -> bool {
    Guest::of(task).is_some()
}

/// Image of an order that pulls one.
fn image_of(order: &Order) -> Option<&str> {
    match &order.work {
        Some(order::Work::PullImage(pull)) => Some(&pull.image),
        _ => None,
    }
}

/// Whether a job pulls this image, given by its canonical reference.
fn is_of(job: &JobObject, image: &str) -> bool {
    ImageRef::parse(&job.spec.image).is_ok_and(|own| own.canonical() == image)
}

impl GuestOrders {
    pub(super) fn detached(&mut self, node: &NodeName) {
        self.news.push(GuestNews::Detached(node.clone()));
    }
}

impl EngineState {
    /// Lets no agent in before the controller has said that it is ready.
    pub(crate) fn await_guests(&mut self) {
        self.guests.waiting = true;
    }

    pub(super) fn guests_are_ready(&self) -> bool {
        !self.guests.waiting
    }

    /// What happened since the last call.
    pub(crate) fn take_guest_news(&mut self) -> Vec<GuestNews> {
        std::mem::take(&mut self.guests.news)
    }

    pub(super) fn guest(&mut self, change: GuestChange) {
        match change {
            GuestChange::Ready => self.guests.waiting = false,
            GuestChange::Hold { node, order, behind } => self.hold_guest(node, *order, behind),
            GuestChange::Forget { node, task } => self.forget_guest(&node, &task),
        }
    }

    fn hold_guest(&mut self, node: NodeName, order: Order, mut behind: Vec<JobUid>) {
        let id = TaskId::new(order.task_id.as_str());
        let image = image_of(&order).unwrap_or_default().to_owned();
        behind.retain(|job| self.may_bring(job, &image));
        let orders = self.guests.by_node.entry(node.clone()).or_default();
        orders.insert(id.clone(), order);
        let key = (node, id);
        if behind.is_empty() {
            self.guests.queued.remove(&key);
            self.release_guest(key);
            return;
        }
        let known = behind.iter().filter(|job| self.jobs.get(job).is_some());
        self.dirty.extend(known.cloned());
        self.guests.queued.insert(key, behind);
    }

    /// Whether a job is of this image and not over, or is not known yet.
    fn may_bring(&self, job: &JobUid, image: &str) -> bool {
        self.jobs.get(job).is_none_or(|entry| {
            let object = &entry.object;
            is_of(object, image) && !object.is_complete() && !object.deleting
        })
    }

    /// An order goes out with the next message to its node.
    fn release_guest(&mut self, (node, id): (NodeName, TaskId)) {
        if let Some(session) = self
            .agents
            .get_mut(&node)
            .and_then(|agent| agent.session.as_mut())
        {
            session.cancel.remove(&id);
            session.guests.insert(id);
            self.unsynced.insert(node);
        }
    }

    /// A job has been planned, or is gone: orders whose node has its slot, or will get none, wait no longer.
    pub(super) fn release_guests(&mut self, job: &JobUid, pending: &[NodeName]) {
        let mut free = Vec::new();
        let object = self.jobs.get(job).map(|entry| &entry.object);
        let by_node = &self.guests.by_node;
        for (key, behind) in &mut self.guests.queued {
            if !behind.contains(job) {
                continue;
            }
            let order = by_node.get(&key.0).and_then(|orders| orders.get(&key.1));
            let image = order.and_then(image_of).unwrap_or_default();
            if pending.contains(&key.0) && object.is_some_and(|object| is_of(object, image)) {
                continue;
            }
            behind.retain(|other| other != job);
            if behind.is_empty() {
                free.push(key.clone());
            }
        }
        for key in free {
            self.guests.queued.remove(&key);
            self.release_guest(key);
        }
    }

    /// Tells a job that is about to be planned on which nodes orders wait that it may bring.
    pub(super) fn mark_urgent(&mut self, job: &JobUid) {
        let waiting = self
            .guests
            .queued
            .iter()
            .filter(|(_, behind)| behind.contains(job));
        let nodes: BTreeSet<NodeName> = waiting.map(|((node, _), _)| node.clone()).collect();
        if let Some(entry) = self.jobs.get_mut(job) {
            entry.memory.urgent = nodes;
        }
    }

    fn forget_guest(&mut self, node: &NodeName, task: &TaskId) {
        if let Some(orders) = self.guests.by_node.get_mut(node) {
            orders.remove(task);
            if orders.is_empty() {
                self.guests.by_node.remove(node);
            }
        }
        self.guests.queued.remove(&(node.clone(), task.clone()));
        if let Some(session) = self.agents.get_mut(node).and_then(|agent| agent.session.as_mut()) {
            session.guests.remove(task);
            if session.told.contains(task) {
                session.cancel.insert(task.clone(), OVER);
            }
            session.saved.push(task.clone());
            self.unsynced.insert(node.clone());
        }
        self.guests
            .news
            .push(GuestNews::Forgotten(node.clone(), task.clone()));
    }

    /// An agent has attached with these tasks.
    pub(super) fn guests_attached(&mut self, node: &NodeName, tasks: &[TaskStatus]) {
        let guests = tasks
            .iter()
            .filter(|status| is_guest(&TaskId::new(status.task_id.as_str())))
            .cloned()
            .collect();
        self.guests.news.push(GuestNews::Attached(node.clone(), guests));
    }

    /// Takes a report if it is about another controller's task. Whether it is.
    pub(super) fn guest_report(&mut self, node: &NodeName, status: &TaskStatus) -> bool {
        let is_guest = is_guest(&TaskId::new(status.task_id.as_str()));
        if is_guest {
            self.guests
                .news
                .push(GuestNews::Reported(node.clone(), Box::new(status.clone())));
        }
        is_guest
    }

    /// All orders of a node.
    pub(super) fn guest_orders(&self, node: &NodeName) -> Vec<Order> {
        let orders = self.guests.by_node.get(node).into_iter().flatten();
        let ready = orders.filter(|(id, _)| !self.guests.queued.contains_key(&(node.clone(), (*id).clone())));
        ready.map(|(_, order)| order.clone()).collect()
    }

    /// Orders that the next delta of a node adds.
    pub(super) fn take_guest_adds(&mut self, node: &NodeName) -> Vec<Order> {
        let Some(session) = self.agents.get_mut(node).and_then(|agent| agent.session.as_mut()) else {
            return Vec::new();
        };
        let added = std::mem::take(&mut session.guests);
        let orders = self.guests.by_node.get(node);
        added.iter().filter_map(|id| orders?.get(id).cloned()).collect()
    }
}
