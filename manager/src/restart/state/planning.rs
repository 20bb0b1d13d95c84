//! From requests, pod and agent to a plan, and what becomes of the plan.

use std::time::Duration;

use jiff::Timestamp;
use kruise_api::container_recreate_request::Phase;
use kruise_api::ids::{NodeName, ObjectKey};
use kruise_planner::restart::{
    AgentView, EventNote, Intent, OrderPlan, PodSnapshot, RequestPlan, RequestView, Write, plan, report,
    task_id,
};

use super::{Effect, Now, State, key_of};

/// Longest time between two looks at a pod that waits for a time: the floor in case that the API server's clock was set.
const LONGEST_NAP: Duration = Duration::from_secs(60);

impl State {
    pub(super) fn plan_pod(&mut self, key: &ObjectKey, now: Now) {
        self.timers.remove(key);
        let Some(uids) = self.by_pod.get(key) else {
            return;
        };
        let entries = uids.iter().filter_map(|uid| self.requests.get(uid));
        let views: Vec<RequestView<'_>> = entries
            .map(|entry| RequestView {
                object: &entry.object,
                facts: entry.facts.as_ref(),
                dispatched: entry.ordered.is_some(),
                memory: &entry.memory,
            })
            .collect();
        let pod = self.pods.get(key);
        let node = pod.and_then(|pod| pod.spec.as_ref()?.node_name.as_deref());
        let attached = node.is_some_and(|node| {
            self.nodes
                .get(&NodeName::from(node))
                .is_some_and(|node| node.attached)
        });
        let made = plan(&PodSnapshot {
            requests: &views,
            pod,
            agent: if attached {
                AgentView::Attached
            } else {
                AgentView::Away
            },
            virtual_node: false,
            now: now.wall,
        });
        let mut wake = made.wake.map(|at| mono_of(at, now));
        for (uid, plan) in made.requests {
            let again = self.carry_out(&uid, plan, now);
            wake = wake.into_iter().chain(again).min();
        }
        if let Some(at) = wake {
            self.timers.insert(key.clone(), at);
        }
    }

    /// Does what a plan wants. When to look again, if something has to wait.
    fn carry_out(&mut self, uid: &str, plan: RequestPlan, now: Now) -> Option<Duration> {
        let entry = self.requests.get_mut(uid)?;
        if plan.head_since.is_some() {
            entry.memory.head_since = plan.head_since;
        }
        if plan.admitted.is_some() {
            entry.memory.admitted = plan.admitted;
        }
        entry.waiting = plan.waiting;
        self.send(uid, plan.intent);
        self.tell(uid, plan.events);
        let write = plan.write?;
        let entry = self.requests.get_mut(uid)?;
        if entry.busy {
            return None;
        }
        if let Some(until) = entry.retry.pause(now) {
            return Some(until);
        }
        self.note_ready(uid, &write, now);
        self.write(uid, write, now);
        None
    }

    /// Brings what the agent shall hold up to date.
    fn send(&mut self, uid: &str, intent: Intent) {
        let Some(entry) = self.requests.get_mut(uid) else {
            return;
        };
        let task = task_id(uid);
        match intent {
            Intent::Freeze => {
                let Some((node, order)) = &mut entry.ordered else {
                    return;
                };
                if std::mem::replace(&mut order.released, 0) != 0 {
                    let (node, order) = (node.clone(), order.clone());
                    self.order(uid, node, order);
                }
            }
            Intent::Order(order) => {
                let node = NodeName::from(order.node.as_str());
                let known = entry
                    .ordered
                    .as_ref()
                    .is_some_and(|(held_by, held)| *held_by == node && held.released == order.released);
                if !known {
                    self.order(uid, node, order);
                }
            }
            Intent::Forget => {
                let mut nodes: Vec<NodeName> =
                    entry.ordered.take().map(|(node, _)| node).into_iter().collect();
                let named = self
                    .nodes
                    .iter()
                    .filter(|(_, node)| node.tasks.contains_key(&task));
                nodes.extend(named.map(|(name, _)| name.clone()));
                nodes.sort();
                nodes.dedup();
                for node in nodes {
                    // Told once: what an agent still names after that is told with its next Hello.
                    if let Some(known) = self.nodes.get_mut(&node) {
                        known.tasks.remove(&task);
                    }
                    self.orders.push(Effect::Forget {
                        node,
                        task: task.clone(),
                    });
                }
            }
        }
    }

    fn order(&mut self, uid: &str, node: NodeName, order: OrderPlan) {
        let Some(entry) = self.requests.get_mut(uid) else {
            return;
        };
        entry.ordered = Some((node.clone(), order.clone()));
        self.orders.push(Effect::Order {
            node,
            task: task_id(uid),
            order: Box::new(order),
            pod: entry.pod.to_string(),
            requested_by: key_of(&entry.object.metadata).to_string(),
        });
    }

    fn tell(&mut self, uid: &str, notes: Vec<EventNote>) {
        let Some(entry) = self.requests.get_mut(uid) else {
            return;
        };
        let spec = self.pods.get(&entry.pod);
        let pod_uid = spec.and_then(|pod| pod.metadata.uid.clone()).unwrap_or_default();
        let node = entry.ordered.as_ref().map(|(node, _)| node.to_string());
        for note in notes {
            if !entry.told.insert((note.container.clone(), note.reason)) {
                continue;
            }
            self.writes.push(Effect::Record {
                object: Box::new(entry.object.clone()),
                pod_uid: pod_uid.clone(),
                node: node.clone().unwrap_or_default(),
                note,
            });
        }
    }

    /// When successors were first seen ready is when they were first written so.
    fn note_ready(&mut self, uid: &str, write: &Write, now: Now) {
        let Some(entry) = self.requests.get_mut(uid) else {
            return;
        };
        let Write::Status(status) = write else { return };
        for state in &status.container_recreate_states {
            if state.phase == Phase::Succeeded {
                entry
                    .memory
                    .ready_seen
                    .entry(state.name.clone())
                    .or_insert(now.mono);
            }
        }
        if status.completion_time.is_some() && !std::mem::replace(&mut entry.counted, true) {
            for state in &status.container_recreate_states {
                self.metrics.ended(state.phase == Phase::Succeeded);
            }
            if let Some(facts) = &entry.facts {
                self.metrics.reported(&report(facts, &entry.memory));
            }
        }
    }

    fn write(&mut self, uid: &str, write: Write, now: Now) {
        let report = match &write {
            Write::Clean { report: true } => {
                self.facts_of(uid)
                    .zip(self.requests.get(uid))
                    .map(|(facts, entry)| {
                        serde_json::to_string(&report(facts, &entry.memory))
                            .expect("a report is text and numbers")
                    })
            }
            _ => None,
        };
        let Some(entry) = self.requests.get_mut(uid) else {
            return;
        };
        entry.busy = true;
        // Noted now and not with the answer: a watch may tell of the write before its answer is there.
        if matches!(write, Write::Status(_)) {
            entry.memory.last_write = Some(now.wall);
        }
        self.metrics.wrote();
        self.writes.push(Effect::Write {
            object: Box::new(entry.object.clone()),
            write: Box::new(write),
            report,
        });
    }
}

/// A moment of the API server's clock on the monotonic one, cut to the longest nap.
fn mono_of(at: Timestamp, now: Now) -> Duration {
    let left = Duration::try_from(at.duration_since(now.wall)).unwrap_or(Duration::ZERO);
    now.mono + left.min(LONGEST_NAP)
}
