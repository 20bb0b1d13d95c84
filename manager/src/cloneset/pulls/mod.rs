//! Images that pods wait for before they are changed in place: which are asked for where, and what agents say of them.
//!
//! Wishes come with each plan of a set and stand until the next one. For each image on each node there is one question, an order to the agent to make the
//! image present; whether a pod may go on is then decided by [`kruise_planner::cloneset::gate_state`]. None of it is stored: a new leader asks again,
//! and agents that have the image, or part of it, lose nothing by that.

mod entry;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kruise_api::ids::{JobUid, NodeName, TaskId};
use kruise_planner::cloneset::{
    PullReport, PullState, PullWish, gate_state, gate_wake, is_gate_task, of_all,
};

use prometheus_client::metrics::histogram::Histogram;

use super::event::{Effect, Now, PullAsk};
use crate::engine::guests::GuestNode;
use entry::{Entry, Link};

/// One image on one node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) node: NodeName,
    /// As the template writes it.
    pub(crate) image: String,
    /// The kubelet will ask the registry in any case, so a look at the node's store tells nothing.
    pub(crate) always: bool,
}

/// What the images of a pod depend on beside the wish itself.
#[derive(Clone, Debug)]
pub(super) struct Setting<'a> {
    pub(super) namespace: &'a str,
    /// Name of the set.
    pub(super) name: &'a str,
    /// Most time that a pod waits for an image that comes slowly.
    pub(super) timeout: Duration,
    /// The trace of the update; empty if nobody traces it.
    pub(super) traceparent: String,
}

/// A wish with what the controller knows about its revision.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub(super) wish: PullWish,
    /// By image; those that are never pulled are left out.
    pub(super) always: BTreeMap<String, bool>,
    /// Jobs that may bring the images.
    pub(super) behind: Vec<JobUid>,
}

/// A pod that waits.
#[derive(Debug, PartialEq, Eq)]
struct Waiting {
    revision: String,
    keys: Vec<Key>,
}

/// What one set waits for.
#[derive(Debug, Default)]
struct Wanted {
    timeout: Duration,
    pods: BTreeMap<String, Waiting>,
    images: BTreeMap<Key, Entry>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Pulls {
    waits: Histogram,
    nodes: BTreeMap<NodeName, Link>,
    /// By the UID of the set.
    sets: BTreeMap<String, Wanted>,
    by_task: BTreeMap<TaskId, (String, Key)>,
    /// Orders that nobody wants any more.
    unwanted: Vec<Effect>,
}

impl Pulls {
    /// Tells how long each image was waited for.
    pub(super) fn new(waits: Histogram) -> Self {
        Self {
            waits,
            nodes: BTreeMap::new(),
            sets: BTreeMap::new(),
            by_task: BTreeMap::new(),
            unwanted: Vec::new(),
        }
    }

    /// What an agent says. UIDs of the sets that it concerns.
    pub(super) fn agent(&mut self, name: &NodeName, node: &GuestNode, now: Now) -> BTreeSet<String> {
        let mut touched = BTreeSet::new();
        let link = self.nodes.entry(name.clone()).or_insert(Link {
            attached: false,
            since: now.mono,
        });
        if link.attached != node.attached {
            *link = Link {
                attached: node.attached,
                since: now.mono,
            };
            let on_node = |wanted: &Wanted| wanted.images.keys().any(|key| key.node == *name);
            let sets = self.sets.iter().filter(|(_, wanted)| on_node(wanted));
            touched.extend(sets.map(|(uid, _)| uid.clone()));
        }
        for (task, status) in node.tasks.iter().filter(|(task, _)| is_gate_task(task)) {
            let Some((set, key)) = self.by_task.get(task) else {
                // Of an earlier leader, or of a wish that is gone.
                self.unwanted.push(Effect::Release {
                    node: name.clone(),
                    task: task.clone(),
                });
                continue;
            };
            let entry = self
                .sets
                .get_mut(set)
                .and_then(|wanted| wanted.images.get_mut(key));
            let Some(entry) = entry else { continue };
            let was_present = entry.is_present();
            if entry.hear(status, now) {
                touched.insert(set.clone());
            }
            if !was_present && entry.is_present() {
                self.waits.observe(entry.waited(now).as_secs_f64());
            }
        }
        touched
    }

    /// An agent could not be asked. The set that it concerns.
    pub(super) fn problem(&mut self, task: &TaskId, problem: String, now: Now) -> Option<String> {
        let (set, key) = self.by_task.get(task)?;
        let entry = self.sets.get_mut(set)?.images.get_mut(key)?;
        entry.stuck(problem, now);
        Some(set.clone())
    }

    /// Of each pod of a set that waits, how far its images are.
    pub(super) fn reports(&self, set: &str, now: Now) -> BTreeMap<String, PullReport> {
        let Some(wanted) = self.sets.get(set) else {
            return BTreeMap::new();
        };
        let report = |waiting: &Waiting| PullReport {
            revision: waiting.revision.clone(),
            state: self.state_of(wanted, waiting, now),
        };
        let pods = wanted.pods.iter();
        pods.map(|(pod, waiting)| (pod.clone(), report(waiting)))
            .collect()
    }

    fn state_of(&self, wanted: &Wanted, waiting: &Waiting, now: Now) -> PullState {
        let entries = waiting
            .keys
            .iter()
            .filter_map(|key| Some((key, wanted.images.get(key)?)));
        of_all(
            entries
                .map(|(key, entry)| gate_state(&entry.facts(self.nodes.get(&key.node), wanted.timeout, now))),
        )
    }

    /// Takes the wishes of a new plan of a set, in place of those of the last one. Whether the set is to be planned again at once, since a pod need not
    /// wait.
    pub(super) fn wish(
        &mut self,
        set: &str,
        setting: &Setting<'_>,
        wishes: Vec<Wish>,
        now: Now,
        effects: &mut Vec<Effect>,
    ) -> bool {
        if wishes.is_empty() && !self.sets.contains_key(set) {
            return false;
        }
        let names: BTreeSet<String> = wishes.iter().map(|wish| wish.wish.pod.clone()).collect();
        let mut free = false;
        for wish in wishes {
            free |= wish.always.is_empty();
            self.ask(set, setting, wish, now, effects);
        }
        self.forget_pods(set, &names, now);
        self.sweep(set);
        free
    }

    fn ask(&mut self, set: &str, setting: &Setting<'_>, wish: Wish, now: Now, effects: &mut Vec<Effect>) {
        let wanted = self.sets.entry(set.to_owned()).or_default();
        wanted.timeout = setting.timeout;
        let node = NodeName::from(wish.wish.node.as_str());
        let keys = wish.always.iter().map(|(image, always)| Key {
            node: node.clone(),
            image: image.clone(),
            always: *always,
        });
        let keys: Vec<Key> = keys.collect();
        for key in &keys {
            let entry = wanted
                .images
                .entry(key.clone())
                .or_insert_with(|| Entry::new(set, key, now));
            let old = entry.task.clone();
            if !entry.is_to_be_asked(set, key, &wish.behind, now) {
                continue;
            }
            if old != entry.task && self.by_task.remove(&old).is_some() {
                self.unwanted.push(Effect::Release {
                    node: key.node.clone(),
                    task: old,
                });
            }
            self.by_task
                .insert(entry.task.clone(), (set.to_owned(), key.clone()));
            effects.push(Effect::Ask(PullAsk {
                task: entry.task.clone(),
                node: key.node.clone(),
                image: key.image.clone(),
                always: key.always,
                namespace: setting.namespace.to_owned(),
                set: setting.name.to_owned(),
                pod: wish.wish.pod.clone(),
                timeout: setting.timeout,
                behind: wish.behind.clone(),
                traceparent: setting.traceparent.clone(),
            }));
        }
        let waiting = Waiting {
            revision: wish.wish.revision,
            keys,
        };
        wanted.pods.insert(wish.wish.pod, waiting);
    }

    /// Pods that wish nothing any more. What has been found out about one is kept as long as it counts.
    fn forget_pods(&mut self, set: &str, wishing: &BTreeSet<String>, now: Now) {
        let Some(wanted) = self.sets.get(set) else { return };
        let gone: Vec<String> = wanted
            .pods
            .iter()
            .filter(|(pod, _)| !wishing.contains(*pod))
            .filter(|(_, waiting)| {
                let mut kept = waiting.keys.iter().filter_map(|key| wanted.images.get(key));
                !kept.any(|entry| entry.still_counts(now))
            })
            .map(|(pod, _)| pod.clone())
            .collect();
        if let Some(wanted) = self.sets.get_mut(set) {
            for pod in gone {
                wanted.pods.remove(&pod);
            }
        }
    }

    /// Takes back what no pod waits for.
    fn sweep(&mut self, set: &str) {
        let Some(wanted) = self.sets.get_mut(set) else {
            return;
        };
        let used: BTreeSet<&Key> = wanted.pods.values().flat_map(|waiting| &waiting.keys).collect();
        let gone: Vec<Key> = wanted
            .images
            .keys()
            .filter(|key| !used.contains(key))
            .cloned()
            .collect();
        for key in gone {
            if let Some(entry) = wanted.images.remove(&key) {
                self.by_task.remove(&entry.task);
                self.unwanted.push(Effect::Release {
                    node: key.node,
                    task: entry.task,
                });
            }
        }
        if wanted.pods.is_empty() {
            self.sets.remove(set);
        }
    }

    /// Sets that are gone want nothing.
    pub(super) fn keep_sets(&mut self, is_there: impl Fn(&str) -> bool) {
        let gone: Vec<String> = self.sets.keys().filter(|set| !is_there(set)).cloned().collect();
        for set in gone {
            if let Some(wanted) = self.sets.get_mut(&set) {
                wanted.pods.clear();
            }
            self.sweep(&set);
        }
    }

    /// Orders to take back.
    pub(super) fn take_unwanted(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.unwanted)
    }

    /// When a set is to be planned again although nothing is heard.
    pub(super) fn wake(&self, set: &str, now: Now) -> Option<Duration> {
        let wanted = self.sets.get(set)?;
        let left = wanted.images.iter().filter_map(|(key, entry)| {
            gate_wake(&entry.facts(self.nodes.get(&key.node), wanted.timeout, now))
        });
        left.min().map(|left| now.mono + left)
    }

    /// Images that are waited for, over all sets.
    pub(super) fn count(&self) -> usize {
        self.sets.values().map(|wanted| wanted.images.len()).sum()
    }
}
