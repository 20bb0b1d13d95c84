//! Bringing a session up to date: the whole set when it is due, deltas otherwise, each with the next generation.

use std::time::Duration;

use kruise_api::ids::{JobUid, NodeName, TaskId};
use kruise_proto::dispatch::{Cancel, Credential, DesiredDelta, DesiredSet, Order, ResultAck};

use super::super::event::{Now, SecretAnswer, ToAgent};
use super::EngineState;
use super::agents::Sent;
use super::tasks::{Stage, Task};

/// Orders of one message.
#[derive(Default)]
struct Orders {
    orders: Vec<Order>,
    ids: Vec<TaskId>,
    jobs: Vec<JobUid>,
}

impl Orders {
    fn add_guests(&mut self, guests: Vec<Order>) {
        self.ids
            .extend(guests.iter().map(|order| TaskId::new(order.task_id.as_str())));
        self.orders.extend(guests);
    }
}

/// Credentials for one order.
enum Login<'a> {
    Known(&'a [Credential]),
    /// They are being read, or will be: nothing can be sent yet.
    Wait,
    /// The secret is gone: the order is void.
    Void,
}

impl EngineState {
    pub(super) fn sync(&mut self, node: &NodeName, now: Now) {
        let Some(session) = self.agents.get_mut(node).and_then(|agent| agent.session.as_mut()) else {
            return;
        };
        let id = session.id;
        let saved: Vec<String> = std::mem::take(&mut session.saved)
            .iter()
            .map(ToString::to_string)
            .collect();
        match session.set_due {
            Some(at) if at > now.mono => {
                self.unsynced.insert(node.clone());
            }
            Some(_) => self.send_set(node, now),
            None => self.send_delta(node, now),
        }
        self.send_questions(node);
        if !saved.is_empty() {
            self.send(id, ToAgent::Saved(ResultAck { task_ids: saved }));
        }
    }

    fn send_set(&mut self, node: &NodeName, now: Now) {
        let wanted: Vec<JobUid> = self.tasks.of_node(node).map(|(job, _)| job.clone()).collect();
        let (mut orders, mut dropped, mut wait) = (Orders::default(), Vec::new(), false);
        let Some(agent) = self.agents.get(node) else {
            return;
        };
        let lacks = agent.session.as_ref().map(|session| &session.lacks);
        let mut void = Vec::new();
        for job in wanted {
            let Some(task) = self
                .tasks
                .get(&job, node)
                .filter(|task| task.node_uid == agent.node_uid)
                .filter(|task| !lacks.is_some_and(|lacks| lacks.contains(&task.id)))
            else {
                continue;
            };
            if task.stage == Stage::Cancelling {
                dropped.push((job, task.id.clone()));
                continue;
            }
            match self.login(&job, task, now) {
                Login::Known(credentials) => self.add_order(&mut orders, &job, task, credentials, now),
                Login::Wait => wait = true,
                Login::Void => void.push(job),
            }
        }
        for job in void {
            self.remove_task(&job, node);
            self.dirty.insert(job);
        }
        if wait {
            self.want_secrets_of(node, now);
            return;
        }
        orders.add_guests(self.guest_orders(node));
        let (epoch, ordered) = (self.epoch.0, self.take_ordered(node, &orders.jobs));
        let Some(agent) = self.agents.get_mut(node) else {
            return;
        };
        let Some(session) = &mut agent.session else { return };
        agent.generation = agent.generation.next();
        session.set_due = None;
        session.add.clear();
        session.guests.clear();
        session.cancel.clear();
        session.told = orders.ids.into_iter().collect();
        session.unacknowledged.clear();
        session.unacknowledged.push_back(Sent {
            generation: agent.generation,
            dropped,
            ordered,
        });
        let (id, generation) = (session.id, agent.generation.0);
        self.send(
            id,
            ToAgent::Set(DesiredSet {
                epoch,
                generation,
                stamp: 0,
                orders: orders.orders,
            }),
        );
    }

    fn send_delta(&mut self, node: &NodeName, now: Now) {
        let Some(session) = self.agents.get_mut(node).and_then(|agent| agent.session.as_mut()) else {
            return;
        };
        let adds = std::mem::take(&mut session.add);
        let cancels = std::mem::take(&mut session.cancel);
        let mut orders = Orders::default();
        orders.add_guests(self.take_guest_adds(node));
        for job in adds {
            let Some(task) = self
                .tasks
                .get(&job, node)
                .filter(|task| task.stage == Stage::InFlight)
            else {
                continue;
            };
            match self.login(&job, task, now) {
                Login::Known(credentials) => self.add_order(&mut orders, &job, task, credentials, now),
                // Orders are handed out only with their secrets at hand, so that neither comes up; the slot is given back rather than lost.
                Login::Wait | Login::Void => {
                    self.remove_task(&job, node);
                    self.dirty.insert(job);
                }
            }
        }
        if orders.orders.is_empty() && cancels.is_empty() {
            return;
        }
        let dropped = self
            .tasks
            .of_node(node)
            .filter(|(_, task)| task.stage == Stage::Cancelling && cancels.contains_key(&task.id))
            .map(|(job, task)| (job.clone(), task.id.clone()))
            .collect();
        let cancel: Vec<Cancel> = cancels
            .iter()
            .map(|(task, why)| Cancel {
                task_id: task.to_string(),
                reason: (*why).to_owned(),
            })
            .collect();
        let (epoch, ordered) = (self.epoch.0, self.take_ordered(node, &orders.jobs));
        let Some(agent) = self.agents.get_mut(node) else {
            return;
        };
        let Some(session) = &mut agent.session else { return };
        agent.generation = agent.generation.next();
        session.told.retain(|task| !cancels.contains_key(task));
        session.told.extend(orders.ids);
        session.unacknowledged.push_back(Sent {
            generation: agent.generation,
            dropped,
            ordered,
        });
        let (id, generation) = (session.id, agent.generation.0);
        let delta = DesiredDelta {
            epoch,
            generation,
            stamp: 0,
            add: orders.orders,
            cancel,
        };
        self.send(id, ToAgent::Delta(delta));
    }

    fn add_order(
        &self,
        orders: &mut Orders,
        job: &JobUid,
        task: &Task,
        credentials: &[Credential],
        now: Now,
    ) {
        let deadline = self.jobs.get(job).and_then(|entry| entry.deadline);
        let left = deadline.map(|deadline| deadline.saturating_sub(now.mono));
        orders
            .orders
            .push(task.order.message(&task.id, left, credentials));
        orders.ids.push(task.id.clone());
        orders.jobs.push(job.clone());
    }

    /// When the orders of a message were handed out: told once, so that a set which repeats them counts nothing twice.
    fn take_ordered(&mut self, node: &NodeName, jobs: &[JobUid]) -> Vec<Duration> {
        jobs.iter()
            .filter_map(|job| self.tasks.get_mut(job, node)?.ordered.take())
            .collect()
    }

    /// Credentials that go with an order. One that has ended needs none: it is named so that the agent keeps its result.
    fn login(&self, job: &JobUid, task: &Task, now: Now) -> Login<'_> {
        let Some(entry) = self.jobs.get(job) else {
            return Login::Void;
        };
        if entry.object.spec.pull_secrets.is_empty() || task.stage != Stage::InFlight {
            return Login::Known(&[]);
        }
        match self.hand.get(job) {
            Some(SecretAnswer::Ready(credentials)) => Login::Known(credentials),
            Some(SecretAnswer::Problem(_)) => Login::Void,
            Some(SecretAnswer::Unavailable(_)) => Login::Wait,
            None if entry
                .secrets
                .as_ref()
                .is_some_and(|block| block.is_shut(now) && block.is_missing()) =>
            {
                Login::Void
            }
            None => Login::Wait,
        }
    }

    /// Notes whose secrets a node's set waits for. A job whose secrets could not be read a moment ago waits for its own pause first.
    fn want_secrets_of(&mut self, node: &NodeName, now: Now) {
        let mut later = None;
        for (job, task) in self.tasks.of_node(node) {
            let Some(entry) = self.jobs.get(job) else { continue };
            if task.stage != Stage::InFlight || entry.object.spec.pull_secrets.is_empty() {
                continue;
            }
            match entry.secrets.as_ref().filter(|block| block.is_shut(now)) {
                Some(block) => later = later.max(Some(block.until())),
                None => {
                    self.secrets_wanted.insert(job.clone());
                }
            }
        }
        if let Some(at) = later
            && let Some(session) = self.agents.get_mut(node).and_then(|agent| agent.session.as_mut())
        {
            session.set_due = Some(at);
            self.unsynced.insert(node.clone());
        }
    }
}
