//! The controller's memory and its transitions, synchronous and without IO; tests drive it event by event.

mod explain;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kruise_planner::cloneset::{Action, CloneSetPlan, CloneSetSnapshot, Gates, Writes, gate_timeout, plan};

use super::downtime::Downtimes;
use super::event::{Effect, Event, Now, Outcome, Pass};
use super::holds::Holds;
use super::metrics::CloneSetMetrics;
use super::objects::{Object, SetObject};
use super::pulls::{Pulls, Setting};
use super::space::{Concerned, Kind, Space};
use super::store::Kept;

/// Least time between two writes of a status while there is still something to do for the set.
const STATUS_EVERY: Duration = Duration::from_secs(1);
/// Rest between two plans of a set, for each of its pods: some fifty times what planning takes, so that news of ten thousand pods that come
/// one by one cost no square of their number.
const REST_PER_POD: Duration = Duration::from_micros(50);
/// Least and most rest between two plans of a set: news come in bursts, and one plan for all of them is as good.
const REST: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));
/// Time after which an answer to a single read that did not help is asked for again.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// What is remembered of a set.
#[derive(Debug, Default)]
struct SetState {
    /// Something has changed since its last plan.
    dirty: bool,
    /// A plan of it is being carried out.
    running: bool,
    /// Not to be planned before.
    rest_until: Duration,
    /// To be planned then, whatever happens.
    wake: Option<Duration>,
    status_written: Option<Duration>,
    holds: Holds,
    /// Objects that are being asked for, because nobody knows what they are like now.
    unseen: BTreeSet<(Kind, String)>,
}

/// All sets and everything that bears on them.
#[derive(Debug)]
pub(crate) struct State {
    gates: Gates,
    metrics: CloneSetMetrics,
    spaces: BTreeMap<String, Space>,
    sets: BTreeMap<String, SetState>,
    nodes: BTreeMap<String, BTreeMap<String, String>>,
    pulls: Pulls,
    downtimes: Downtimes,
    /// Kinds whose first list is complete.
    listed: BTreeSet<Kind>,
    follows_all: bool,
    follows_nodes: bool,
    /// Reads to repeat, and when.
    again: Vec<(Duration, Kind, String, String)>,
    /// When own writes are looked at next, and whether there may be some.
    check_at: Duration,
    unconfirmed: bool,
}

/// Between two looks at own writes that the watch has not told.
const CHECK_EVERY: Duration = Duration::from_secs(1);

impl State {
    pub(crate) fn new(gates: Gates, metrics: CloneSetMetrics) -> Self {
        metrics.series.clear();
        Self {
            gates,
            pulls: Pulls::new(metrics.waits.clone()),
            downtimes: Downtimes::new(metrics.clone()),
            metrics,
            spaces: BTreeMap::new(),
            sets: BTreeMap::new(),
            nodes: BTreeMap::new(),
            listed: BTreeSet::new(),
            follows_all: false,
            follows_nodes: false,
            again: Vec::new(),
            check_at: Duration::ZERO,
            unconfirmed: false,
        }
    }

    /// Takes something in.
    pub(crate) fn apply(&mut self, event: Event, now: Now) {
        match event {
            Event::Begin(kind) => {
                for space in self.spaces.values_mut() {
                    space.begin(kind);
                }
            }
            Event::Told { namespace, object } => self.put(&namespace, object, None, now),
            Event::Complete(kind) => self.complete(kind),
            Event::Deleted {
                kind,
                namespace,
                name,
                uid,
            } => self.gone(kind, &namespace, &name, &uid, true),
            Event::Node { name, labels } => {
                match labels {
                    Some(labels) => self.nodes.insert(name, labels),
                    None => self.nodes.remove(&name),
                };
            }
            Event::Agent(name, node) => {
                self.downtimes.agent(&name, &node);
                for set in self.pulls.agent(&name, &node, now) {
                    self.touch_set(&set);
                }
            }
            Event::NotAsked { task, problem } => {
                if let Some(set) = self.pulls.problem(&task, problem, now) {
                    self.touch_set(&set);
                }
            }
            Event::Done(outcome) => self.done(outcome, now),
            Event::Found {
                kind,
                namespace,
                name,
                result,
            } => match result {
                Ok(found) => self.found(kind, &namespace, &name, found, now),
                Err(_) => self.again.push((now.mono + ASK_AGAIN, kind, namespace, name)),
            },
        }
    }

    fn put(&mut self, namespace: &str, object: Object, own_since: Option<Duration>, now: Now) {
        if object.uid().is_empty() {
            return;
        }
        if let Object::Set(set) = &object {
            self.metrics.series.put(&set.set);
        }
        let space = self.spaces.entry(namespace.to_owned()).or_default();
        if let Object::Pod(pod) = &object
            && space
                .pods
                .get(pod.name())
                .is_none_or(|known| known.version() < pod.version())
        {
            self.downtimes.see(namespace, pod, now);
        }
        let concerned = space.put(object, own_since);
        self.touch(namespace, &concerned);
    }

    fn gone(&mut self, kind: Kind, namespace: &str, name: &str, uid: &str, by_watch: bool) {
        let Some(space) = self.spaces.get_mut(namespace) else {
            return;
        };
        let concerned = space.gone(kind, name, uid, by_watch);
        if kind == Kind::Pod {
            self.downtimes.gone(uid);
        }
        if kind == Kind::Set {
            self.metrics.series.gone(namespace, name);
            self.sets.remove(uid);
            return;
        }
        self.touch(namespace, &concerned);
    }

    fn complete(&mut self, kind: Kind) {
        for space in self.spaces.values_mut() {
            space.complete(kind);
        }
        if kind == Kind::Set {
            // Sets that went while nobody watched have no news of their own.
            self.metrics.series.clear();
            for set in self.spaces.values().flat_map(|space| space.sets.iter()) {
                self.metrics.series.put(&set.set);
            }
        }
        self.listed.insert(kind);
        let uids: BTreeSet<String> = self
            .spaces
            .values()
            .flat_map(|space| space.sets.iter())
            .map(|set| set.uid().to_owned())
            .collect();
        self.sets.retain(|uid, _| uids.contains(uid));
        for uid in uids {
            self.sets.entry(uid).or_default().dirty = true;
        }
    }

    fn touch_set(&mut self, uid: &str) {
        if let Some(state) = self.sets.get_mut(uid) {
            state.dirty = true;
        }
    }

    fn touch(&mut self, namespace: &str, concerned: &Concerned) {
        let Some(space) = self.spaces.get(namespace) else {
            return;
        };
        let known = space.sets.iter().map(Kept::uid);
        for uid in known.filter(|uid| concerned.all || concerned.uids.contains(*uid)) {
            self.sets.entry(uid.to_owned()).or_default().dirty = true;
        }
    }

    fn done(&mut self, outcome: Outcome, now: Now) {
        self.unconfirmed |= !outcome.made.is_empty();
        let namespace = outcome.namespace.clone();
        let made: BTreeSet<Kind> = outcome.made.iter().map(Object::kind).collect();
        for object in outcome.made {
            self.put(&namespace, object, Some(now.mono), now);
        }
        for (kind, name, uid) in outcome.gone {
            self.gone(kind, &namespace, &name, &uid, false);
        }
        let Some(state) = self.sets.get_mut(&outcome.set) else {
            return;
        };
        self.metrics.failed(outcome.failures.len());
        state.running = false;
        state.dirty = true;
        if outcome.status_written {
            state.status_written = Some(now.mono);
        }
        for kind in made {
            state.holds.kept(kind);
        }
        state
            .holds
            .pass_ended(&outcome.tried, &outcome.failures, now.wall);
        for (kind, name) in outcome.unsure {
            state.unseen.insert((kind, name.clone()));
            self.again.push((now.mono, kind, namespace.clone(), name));
        }
    }

    fn found(&mut self, kind: Kind, namespace: &str, name: &str, found: Option<Object>, now: Now) {
        if let Some(object) = found {
            self.put(namespace, object, Some(now.mono), now);
            if let Some(space) = self.spaces.get_mut(namespace) {
                space.confirm(kind, name);
            }
        } else if let Some(uid) = self.spaces.get(namespace).and_then(|space| space.uid(kind, name)) {
            self.gone(kind, namespace, name, &uid, false);
        }
        let key = (kind, name.to_owned());
        let Some(space) = self.spaces.get(namespace) else {
            return;
        };
        for set in space.sets.iter() {
            if let Some(state) = self.sets.get_mut(set.uid())
                && state.unseen.remove(&key)
            {
                state.dirty = true;
            }
        }
    }

    /// What is to be done now.
    pub(crate) fn settle(&mut self, now: Now) -> Vec<Effect> {
        let mut effects = self.pulls.take_unwanted();
        effects.append(&mut self.downtimes.settle(now));
        self.metrics.follows(self.sets.len());
        self.ask_again(now, &mut effects);
        if !self.listed.contains(&Kind::Set) || self.sets.is_empty() {
            return effects;
        }
        if !self.follows_all {
            self.follows_all = true;
            effects.push(Effect::WatchAll);
        }
        if Kind::followed(&self.gates).any(|kind| !self.listed.contains(&kind)) {
            return effects;
        }
        let due: Vec<(String, String, String)> = self
            .spaces
            .iter()
            .flat_map(|(namespace, space)| space.sets.iter().map(move |set| (namespace, set)))
            .filter(|(_, set)| self.sets.get(set.uid()).is_some_and(|state| state.is_due(now)))
            .map(|(namespace, set)| (namespace.clone(), set.name().to_owned(), set.uid().to_owned()))
            .collect();
        for (namespace, name, uid) in due {
            self.plan(&namespace, &name, &uid, now, &mut effects);
        }
        self.pulls.keep_sets(|uid| self.sets.contains_key(uid));
        self.downtimes.keep_sets(|uid| self.sets.contains_key(uid));
        effects.append(&mut self.pulls.take_unwanted());
        self.metrics.waits_for_images(self.pulls.count());
        effects
    }

    fn ask_again(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self.check_at <= now.mono {
            self.check_at = now.mono + CHECK_EVERY;
            self.unconfirmed = false;
            for (namespace, space) in &mut self.spaces {
                self.unconfirmed |= space.has_unconfirmed();
                let late = space.unconfirmed(now.mono);
                let asks = late
                    .into_iter()
                    .map(|(kind, name)| (now.mono, kind, namespace.clone(), name));
                self.again.extend(asks);
            }
        }
        self.again.retain(|(at, kind, namespace, name)| {
            let due = *at <= now.mono;
            if due {
                effects.push(Effect::Find {
                    kind: *kind,
                    namespace: namespace.clone(),
                    name: name.clone(),
                });
            }
            !due
        });
    }

    fn plan(&mut self, namespace: &str, name: &str, uid: &str, now: Now, effects: &mut Vec<Effect>) {
        let (Some(space), Some(state)) = (self.spaces.get(namespace), self.sets.get_mut(uid)) else {
            return;
        };
        let Some(set) = space.sets.get(name) else {
            return;
        };
        if set.spreads_pods() && !self.follows_nodes {
            self.follows_nodes = true;
            effects.push(Effect::WatchNodes);
        }
        state.dirty = false;
        state.wake = None;
        let writes = state.holds.writes(&state.unseen, now.wall);
        let reports = self.gates.pull_gate.then(|| self.pulls.reports(uid, now));
        let mut snapshot = snapshot(space, set, &self.nodes, &writes, self.gates, now);
        snapshot.pulls = reports.as_ref();
        let plan = plan(&snapshot);
        self.metrics.planned();
        let pods = u32::try_from(snapshot.pods.len()).unwrap_or(u32::MAX);
        state.rest_until = now.mono + REST_PER_POD.saturating_mul(pods).clamp(REST.0, REST.1);
        state.wake = plan.wake_after(now.wall).map(|after| now.mono + after);
        let mut plan = plan;
        let later = [state.drop_held(&mut plan, now), state.status_due(&plan, now)];
        let may_write_status = later[1].is_none();
        state.wake = state.wake.into_iter().chain(later.into_iter().flatten()).min();
        let write_status = plan.write_status && may_write_status;
        let trace = self.metrics.traces.of_update(Some(uid), &set.set.spec.template);
        if let Some(trace) = trace {
            self.downtimes.trace(uid, trace);
        }
        // Jobs for the same images come first, so that the pulls of both are one.
        let makes_jobs = |action: &Action| matches!(action, Action::CreateImagePullJob { .. });
        if self.gates.pull_gate && !plan.actions.iter().any(makes_jobs) {
            let setting = Setting {
                namespace,
                name,
                traceparent: trace.map(|trace| trace.to_string()).unwrap_or_default(),
                timeout: gate_timeout(&set.set),
            };
            let wishes = super::targets::wishes(space, &snapshot, uid, &plan.pulls);
            state.dirty |= self.pulls.wish(uid, &setting, wishes, now, effects);
        }
        let quiet = self.pulls.wake(uid, now);
        state.wake = state.wake.into_iter().chain(quiet).min();
        if plan.actions.is_empty() && !write_status && plan.events.is_empty() {
            return;
        }
        let events = state.holds.fresh_events(plan.events.clone(), now.mono);
        if plan.actions.is_empty() && !write_status && events.is_empty() {
            return;
        }
        state.running = true;
        let pass = pass(space, &snapshot, set, plan, write_status, events);
        effects.push(Effect::Pass(pass));
    }

    /// When to settle again, if nothing happens before.
    pub(crate) fn next_wake(&self, now: Now) -> Option<Duration> {
        let sets = self
            .sets
            .values()
            .filter(|state| !state.running)
            .filter_map(SetState::due_at);
        let asks = self.again.iter().map(|(at, ..)| *at);
        let check = self.unconfirmed.then_some(self.check_at);
        sets.chain(asks)
            .chain(check)
            .chain(self.downtimes.next_wake())
            .min()
            .map(|at| at.max(now.mono))
    }
}

impl SetState {
    fn due_at(&self) -> Option<Duration> {
        if self.dirty {
            return Some(self.rest_until);
        }
        self.wake.map(|wake| wake.max(self.rest_until))
    }

    /// When a status that is to be written may be, if not now: it waits for its back-off after a failure, and, while there is more to do,
    /// for others to come.
    fn status_due(&self, plan: &CloneSetPlan, now: Now) -> Option<Duration> {
        let held = self
            .holds
            .kept_until(Kind::Set)
            .and_then(|until| moment(until, now));
        let paced = (!plan.actions.is_empty())
            .then(|| self.status_written.map(|written| written + STATUS_EVERY))
            .flatten();
        let at = held.into_iter().chain(paced).max()?;
        (plan.write_status && at > now.mono).then_some(at)
    }

    /// Takes out of a plan what failed lately and is not to be tried yet, and says when it is. Without its revision nothing is done at all.
    fn drop_held(&self, plan: &mut CloneSetPlan, now: Now) -> Option<Duration> {
        let revision = self
            .holds
            .kept_until(Kind::Revision)
            .and_then(|until| moment(until, now));
        let job = self
            .holds
            .kept_until(Kind::Job)
            .and_then(|until| moment(until, now));
        let before = plan.actions.len();
        if revision.is_some() {
            let stored = |action: &Action| {
                matches!(
                    action,
                    Action::CreateRevision { .. } | Action::PatchRevision { .. }
                )
            };
            if plan.actions.iter().any(stored) {
                plan.actions.clear();
            }
        } else if job.is_some() {
            plan.actions.retain(|action| match action {
                Action::CreateImagePullJob { .. } | Action::DeleteImagePullJob { .. } => false,
                Action::PatchRevision { labels, .. } => labels.is_empty(),
                _ => true,
            });
        }
        (plan.actions.len() < before).then(|| revision.or(job)).flatten()
    }

    fn is_due(&self, now: Now) -> bool {
        !self.running && self.due_at().is_some_and(|at| at <= now.mono)
    }
}

/// A time of the API server by this process' clock; none when it has passed.
fn moment(at: Timestamp, now: Now) -> Option<Duration> {
    let left = Duration::try_from(at.duration_since(now.wall)).ok()?;
    (!left.is_zero()).then(|| now.mono + left)
}

fn snapshot<'a>(
    space: &'a Space,
    set: &'a SetObject,
    nodes: &'a BTreeMap<String, BTreeMap<String, String>>,
    writes: &'a Writes,
    gates: Gates,
    now: Now,
) -> CloneSetSnapshot<'a> {
    CloneSetSnapshot {
        set: &set.set,
        pods: space.pods_for(set),
        claims: space.claims.iter().collect(),
        revisions: space.revisions_for(set),
        jobs: space.jobs_for(set),
        requests: space.requests_for(set),
        nodes,
        pulls: None,
        writes,
        gates,
        now: now.wall,
    }
}

fn pass(
    space: &Space,
    snapshot: &CloneSetSnapshot<'_>,
    set: &SetObject,
    plan: CloneSetPlan,
    write_status: bool,
    events: Vec<kruise_planner::cloneset::PlanEvent>,
) -> Pass {
    Pass {
        set: Arc::new(set.set.clone()),
        seen: super::targets::seen(space, snapshot, &plan.actions),
        revisions: super::targets::revisions(snapshot, &plan),
        status: write_status.then(|| super::body::status(&set.set, &plan.status)),
        gates: snapshot.gates,
        actions: plan.actions,
        events,
    }
}
