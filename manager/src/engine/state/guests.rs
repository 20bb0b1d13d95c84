//! Orders of other controllers, as part of each node's set.

use std::collections::BTreeMap;

use kruise_api::ids::{NodeName, TaskId};
use kruise_planner::restart;
use kruise_proto::dispatch::Order;
use kruise_proto::task::TaskStatus;

use super::super::guests::{GuestChange, GuestNews};
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
}

/// Whether a task is another controller's.
fn is_guest(task: &TaskId) -> bool {
    restart::request_of(task).is_some()
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
            GuestChange::Hold { node, order } => {
                let id = TaskId::new(order.task_id.as_str());
                let orders = self.guests.by_node.entry(node.clone()).or_default();
                orders.insert(id.clone(), *order);
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
            GuestChange::Forget { node, task } => self.forget_guest(&node, &task),
        }
    }

    fn forget_guest(&mut self, node: &NodeName, task: &TaskId) {
        if let Some(orders) = self.guests.by_node.get_mut(node) {
            orders.remove(task);
            if orders.is_empty() {
                self.guests.by_node.remove(node);
            }
        }
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
        let orders = self.guests.by_node.get(node).into_iter();
        orders.flat_map(BTreeMap::values).cloned().collect()
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
