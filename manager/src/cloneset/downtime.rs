//! How long containers are down while pods change in place: watched, asked, remembered.
//!
//! The watch tells which instances a pod had when it went out of service and which it has when its change is done. The runtime's own times
//! are asked of the node's agent by an order that stops nothing; without an answer in time the whole seconds of the status count. All of it
//! is memory of this leadership: a new leader begins anew, and says nothing of a change whose beginning it has not seen.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::SignedDuration;
use kruise_api::ids::{NodeName, TaskId};
use kruise_planner::cloneset::PodView;
use kruise_planner::inplace::{
    Downtime, Gap, Run, Source, Swaps, is_answered, is_swap_task, percentile, question, swap_task_id, swaps,
};
use kruise_planner::restart::facts::TaskFacts;
use kruise_proto::convert::to_duration;
use kruise_proto::dispatch::{Order, order};
use kruise_proto::inspect;
use kruise_proto::restart::{order_message, task_facts};

use super::event::{Effect, Now};
use super::metrics::CloneSetMetrics;
use super::ports::{PodName, Told};
use crate::engine::guests::GuestNode;
use crate::telemetry::{Parent, Place, Span};

/// An agent that has not said it by then is waited for no longer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Revisions of one set that are remembered, the latest.
const REVISIONS: usize = 3;
/// Pods of one revision that are remembered.
const PODS: usize = 20_000;
/// Pods that are named when somebody asks.
const NAMED: usize = 100;

/// A pod that is out of service for a change.
#[derive(Debug)]
struct Watched {
    /// As its label says.
    revision: Option<String>,
    /// Whether the change has been written to it.
    changed: bool,
    before: Vec<Run>,
    last: Vec<Run>,
}

/// A pod whose change is done.
#[derive(Debug)]
struct Done {
    pod: PodName,
    set: String,
    revision: String,
    swaps: Swaps,
}

/// An agent was asked.
#[derive(Debug)]
struct Asked {
    done: Done,
    node: NodeName,
    until: Duration,
}

/// What was measured of one revision of a set.
#[derive(Debug, Default)]
struct Measured {
    revision: String,
    /// By the name of the pod: its longest gap.
    longest: BTreeMap<String, Gap>,
    /// Pods with a container of which nobody can say how long it was down.
    unknown: BTreeSet<String>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Downtimes {
    /// By UID.
    pods: BTreeMap<String, Watched>,
    asked: BTreeMap<TaskId, Asked>,
    attached: BTreeSet<NodeName>,
    /// By the UID of the set; the latest revision last.
    sets: BTreeMap<String, Vec<Measured>>,
    effects: Vec<Effect>,
    /// By the UID of the set: the trace of its update, if anybody traces it.
    traces: BTreeMap<String, Parent>,
    /// Containers that were down, to be told as spans.
    untold: Vec<(Parent, PodName, Gap)>,
    metrics: CloneSetMetrics,
}

impl Downtimes {
    pub(super) fn new(metrics: CloneSetMetrics) -> Self {
        Self {
            metrics,
            ..Self::default()
        }
    }

    /// The trace that what happens to pods of a set belongs to.
    pub(super) fn trace(&mut self, set: &str, parent: Parent) {
        self.traces.insert(set.to_owned(), parent);
    }

    /// A newer version of a pod than any before.
    pub(super) fn see(&mut self, namespace: &str, pod: &PodView, now: Now) {
        if pod.in_place_ready != Some(false) || pod.terminating {
            // Back in service: an instance that did not run at the last look may be known to its agent all the same.
            if let Some(watched) = self.pods.remove(&pod.uid)
                && watched.changed
                && !pod.terminating
            {
                self.done(namespace, pod, &watched, now);
            }
            return;
        }
        let runs = &pod.in_place.runs;
        let watched = self.pods.entry(pod.uid.clone()).or_insert_with(|| Watched {
            revision: pod.revision.clone(),
            changed: false,
            before: runs.clone(),
            last: Vec::new(),
        });
        watched.last.clone_from(runs);
        if watched.revision != pod.revision {
            // From here on instances are those of the new revision; one that was swapped for a revision that did not last is not counted.
            watched.revision.clone_from(&pod.revision);
            watched.before.clone_from(runs);
            watched.changed = true;
        }
        let found = swaps(&watched.before, runs);
        let all_run = found.direct.iter().all(|swap| swap.runs);
        if watched.changed && pod.in_place.is_finished() && !found.is_empty() && all_run {
            // What comes now is about no change any more.
            if let Some(watched) = self.pods.get_mut(&pod.uid) {
                watched.changed = false;
            }
            self.found(namespace, pod, found, now);
        }
    }

    /// A pod is gone.
    pub(super) fn gone(&mut self, uid: &str) {
        self.pods.remove(uid);
    }

    fn done(&mut self, namespace: &str, pod: &PodView, watched: &Watched, now: Now) {
        let found = swaps(&watched.before, &watched.last);
        if !found.is_empty() && watched.revision == pod.revision {
            self.found(namespace, pod, found, now);
        }
    }

    /// Asks the agent if it is there, and takes the status at its word if not.
    fn found(&mut self, namespace: &str, pod: &PodView, swaps: Swaps, now: Now) {
        let (Some(set), Some(revision)) = (pod.controller.clone(), pod.revision.clone()) else {
            return;
        };
        let name = PodName {
            namespace: namespace.to_owned(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
        };
        let node = pod.node.as_deref().map(NodeName::from);
        let node = node.filter(|node| self.attached.contains(node));
        let asks = node.and_then(|node| Some((question(node.as_str(), &pod.uid, &swaps)?, node)));
        let done = Done {
            pod: name,
            set,
            revision,
            swaps,
        };
        let Some((plan, node)) = asks else {
            self.conclude(&done, None);
            return;
        };
        let task = swap_task_id(&pod.uid, &done.swaps);
        let title = format!("{namespace}/{}", pod.name);
        let message = order_message(&plan, title.clone(), title);
        self.effects.push(Effect::Question {
            node: node.clone(),
            order: Box::new(Order {
                task_id: task.to_string(),
                work: Some(order::Work::RestartContainers(message)),
            }),
        });
        let until = now.mono + ANSWER_WITHIN;
        self.asked.insert(task, Asked { done, node, until });
    }

    /// What an agent says.
    pub(super) fn agent(&mut self, name: &NodeName, node: &GuestNode) {
        if node.attached {
            self.attached.insert(name.clone());
        } else {
            self.attached.remove(name);
        }
        for (task, status) in node.tasks.iter().filter(|(task, _)| is_swap_task(task)) {
            let Some(asked) = self.asked.get(task) else {
                // Of an earlier leader, or answered too late.
                self.release(name.clone(), task.clone());
                continue;
            };
            let facts = task_facts(status).filter(|facts| is_answered(&asked.done.swaps, facts));
            if let Some(facts) = facts {
                self.answered(task, Some(&facts));
            }
        }
    }

    fn answered(&mut self, task: &TaskId, facts: Option<&TaskFacts>) {
        if let Some(asked) = self.asked.remove(task) {
            self.release(asked.node, task.clone());
            self.conclude(&asked.done, facts);
        }
    }

    fn release(&mut self, node: NodeName, task: TaskId) {
        self.effects.push(Effect::Release { node, task });
    }

    /// Tells and remembers what is known.
    fn conclude(&mut self, done: &Done, facts: Option<&TaskFacts>) {
        let downtime = Downtime::of(&done.swaps, facts);
        self.metrics.down(&downtime.gaps);
        let text = format!(
            "updated in place to revision {}: {}",
            done.revision,
            downtime.text()
        );
        tracing::info!(pod = %done.pod, revision = done.revision, "{text}");
        self.effects.push(Effect::Tell {
            pod: done.pod.clone(),
            event: Told {
                warning: false,
                reason: "InPlaceUpdated",
                message: text,
            },
        });
        if let Some(parent) = self.traces.get(&done.set) {
            let spans = downtime.gaps.iter();
            let spans = spans.map(|gap| (*parent, done.pod.clone(), gap.clone()));
            self.untold.extend(spans);
        }
        let measured = self.revision(&done.set, &done.revision);
        if !downtime.unknown.is_empty() {
            measured.unknown.insert(done.pod.name.clone());
        }
        if let Some(gap) = downtime.longest()
            && measured.longest.len() < PODS
        {
            measured.longest.insert(done.pod.name.clone(), gap.clone());
        }
    }

    fn revision(&mut self, set: &str, revision: &str) -> &mut Measured {
        let all = self.sets.entry(set.to_owned()).or_default();
        let place = all.iter().position(|measured| measured.revision == revision);
        let measured = place.map_or_else(
            || Measured {
                revision: revision.to_owned(),
                ..Measured::default()
            },
            |place| all.remove(place),
        );
        if all.len() >= REVISIONS {
            all.remove(0);
        }
        all.push(measured);
        let latest = all.len() - 1;
        &mut all[latest]
    }

    /// Gives up on agents that do not answer. What is to be done.
    pub(super) fn settle(&mut self, now: Now) -> Vec<Effect> {
        let late = self.asked.iter().filter(|(_, asked)| asked.until <= now.mono);
        let late: Vec<TaskId> = late.map(|(task, _)| task.clone()).collect();
        for task in late {
            self.answered(&task, None);
        }
        for (parent, pod, gap) in std::mem::take(&mut self.untold) {
            self.metrics.traces.tell(span(parent, &pod, &gap, now));
        }
        std::mem::take(&mut self.effects)
    }

    pub(super) fn next_wake(&self) -> Option<Duration> {
        let now = (!self.effects.is_empty()).then_some(Duration::ZERO);
        self.asked.values().map(|asked| asked.until).chain(now).min()
    }

    /// Sets that are gone are forgotten.
    pub(super) fn keep_sets(&mut self, is_there: impl Fn(&str) -> bool) {
        self.sets.retain(|set, _| is_there(set));
        self.traces.retain(|set, _| is_there(set));
    }

    /// What was measured of a set, the latest revision first.
    pub(super) fn told(&self, set: &str) -> Vec<inspect::InPlaceDowntime> {
        let all = self.sets.get(set).into_iter().flatten().rev();
        all.map(Measured::told).collect()
    }
}

/// As long as it was measured, and over when it is known: the clocks of two machines are never compared.
fn span(parent: Parent, pod: &PodName, gap: &Gap, now: Now) -> Span {
    let took = SignedDuration::try_from(gap.span).unwrap_or_default();
    Span {
        parent,
        place: Place::Below(format!("down {} {}", pod.uid, gap.container)),
        name: "container down".into(),
        start: now.wall.saturating_sub(took).unwrap_or(now.wall),
        end: now.wall,
        about: vec![
            ("k8s.namespace.name", pod.namespace.clone()),
            ("k8s.pod.name", pod.name.clone()),
            ("k8s.container.name", gap.container.clone()),
        ],
        error: None,
    }
}

impl Measured {
    fn told(&self) -> inspect::InPlaceDowntime {
        let mut gaps: Vec<(&String, &Gap)> = self.longest.iter().collect();
        gaps.sort_by(|(name, gap), (other_name, other)| {
            other.span.cmp(&gap.span).then_with(|| name.cmp(other_name))
        });
        let sorted: Vec<Duration> = gaps.iter().rev().map(|(_, gap)| gap.span).collect();
        let share = |hundredths| percentile(&sorted, hundredths).map(to_duration);
        let is_rough = |gap: &Gap| gap.source == Source::Status;
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        inspect::InPlaceDowntime {
            revision: self.revision.clone(),
            pods: count(gaps.len()),
            pods_in_whole_seconds: count(gaps.iter().filter(|(_, gap)| is_rough(gap)).count()),
            pods_not_known: count(self.unknown.len()),
            p50: share(50),
            p90: share(90),
            longest: share(100),
            slowest: gaps
                .iter()
                .take(NAMED)
                .map(|(name, gap)| inspect::PodDowntime {
                    pod: (*name).clone(),
                    container: gap.container.clone(),
                    gap: Some(to_duration(gap.span)),
                    in_whole_seconds: is_rough(gap),
                })
                .collect(),
        }
    }
}
