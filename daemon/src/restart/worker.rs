//! Works on one task: looks at its pod's containers, begins what may be begun, and tells.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kruise_api::ids::TaskId;
use kruise_planner::node::reason::Code;
use kruise_planner::restart::facts::{ContainerFacts, Step};
use kruise_planner::restart::node::{self, Instance, State};
use tokio::sync::watch;

use super::Shared;
use super::book::Control;
use super::hook::{self, Hook};
use super::record::Work;
use crate::runtime::containers::Seen;
use crate::runtime::{Link, Runtime, RuntimeError};

/// Between two looks while something is about to happen, and when nothing has for a while.
const SOON: Duration = Duration::from_millis(150);
const LATER: Duration = Duration::from_secs(1);
/// So many looks without news make it the slower pace.
const QUIET_LOOKS: u32 = 400;
/// Between two tries when the runtime is away.
const AWAY: Duration = Duration::from_secs(1);
/// Tries of a stop while the runtime is away; it names the instance, so that a repetition does no harm.
const STOP_TRIES: u32 = 30;

/// Works until the manager has taken the task back and nothing of it runs.
pub(super) async fn run(shared: Arc<Shared>, id: TaskId, control: watch::Receiver<Control>) {
    let Some((work, facts)) = shared.read(&id).await else {
        return;
    };
    let turn = shared.pod(&work.pod_uid);
    Worker {
        shared,
        id,
        work,
        facts,
        control,
        turn,
        full: BTreeMap::new(),
        asked: BTreeSet::new(),
        quiet: 0,
    }
    .run()
    .await;
}

struct Worker {
    shared: Arc<Shared>,
    id: TaskId,
    work: Work,
    facts: Vec<ContainerFacts>,
    control: watch::Receiver<Control>,
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Instances with their times, by id: asked for once per state.
    full: BTreeMap<String, Instance>,
    /// Instances whose end was asked for when they were not the newest any more.
    asked: BTreeSet<String>,
    quiet: u32,
}

impl Worker {
    async fn run(mut self) {
        loop {
            let control = *self.control.borrow_and_update();
            let underway = self.underway();
            if !control.wanted && underway.is_none() && self.shared.leave(&self.id).await {
                return;
            }
            let Some((runtime, name)) = self.runtime().await else {
                return;
            };
            if name != self.work.runtime && !self.facts.iter().any(ContainerFacts::has_begun) {
                let text = format!(
                    "failed to find runtime service: no runtime named {:?} on this node, but {name:?}",
                    self.work.runtime
                );
                self.refuse(&text).await;
                continue;
            }
            let seen = match self.look(&*runtime).await {
                Ok(seen) => seen,
                Err(error) => {
                    tracing::info!(task = %self.id, %error, "containers cannot be listed; trying on");
                    tokio::time::sleep(AWAY).await;
                    continue;
                }
            };
            let next = self.underway().or_else(|| {
                let released = if control.wanted { control.released } else { 0 };
                node::next(&self.facts, &self.work.rules, released)
            });
            match next {
                Some(index) => self.act(index, seen, runtime).await,
                None => self.rest().await,
            }
        }
    }

    /// What was begun before this agent was started.
    fn underway(&self) -> Option<usize> {
        self.facts
            .iter()
            .position(|facts| matches!(facts.step, Step::Hook | Step::Stopping))
    }

    /// The runtime and its name, as soon as it is there. None when the agent ends.
    async fn runtime(&mut self) -> Option<(Arc<dyn Runtime>, String)> {
        let mut link = self.shared.link.clone();
        loop {
            if let Link::Up { runtime, info, .. } = &*link.borrow_and_update() {
                return Some((Arc::clone(runtime), info.name.clone()));
            }
            link.changed().await.ok()?;
        }
    }

    /// Looks at all containers and keeps what is new.
    async fn look(&mut self, runtime: &dyn Runtime) -> Result<Vec<Seen>, RuntimeError> {
        let Some(containers) = runtime.containers() else {
            return Ok(Vec::new());
        };
        let seen = containers.of_pod(&self.work.pod_uid).await?;
        let mut facts = self.facts.clone();
        let targets = self.work.targets.clone();
        for (facts, target) in facts.iter_mut().zip(&targets) {
            let instance = seen.iter().find(|seen| seen.name == target.name);
            let instance = match instance {
                Some(seen) => Some(self.in_full(runtime, &seen.instance).await?),
                None => None,
            };
            let now = self.shared.clock.now_wall();
            node::look(facts, target, &self.work.rules, instance.as_ref(), now);
            self.look_back(facts, runtime).await;
        }
        self.keep(facts).await;
        Ok(seen)
    }

    /// An instance may have ended and been followed between two looks, or before the first: its end is asked for once.
    async fn look_back(&mut self, facts: &mut ContainerFacts, runtime: &dyn Runtime) {
        let Some(bound) = facts.bound.clone().filter(|_| facts.step == Step::Running) else {
            return;
        };
        if facts.exit.is_none() && self.asked.insert(bound.clone()) {
            facts.exit = self.exit(&bound, runtime).await;
        }
    }

    async fn in_full(
        &mut self,
        runtime: &dyn Runtime,
        instance: &Instance,
    ) -> Result<Instance, RuntimeError> {
        let told = matches!(instance.state, State::Running | State::Exited);
        let Some(containers) = runtime.containers().filter(|_| told) else {
            return Ok(instance.clone());
        };
        if let Some(full) = self
            .full
            .get(&instance.id)
            .filter(|full| full.state == instance.state)
        {
            return Ok(full.clone());
        }
        match containers.in_full(instance).await {
            Ok(full) => {
                self.full.insert(full.id.clone(), full.clone());
                Ok(full)
            }
            // Cleared away between the two calls.
            Err(error) if error.code == Code::NotFound => Ok(instance.clone()),
            Err(error) => Err(error),
        }
    }

    /// Facts that are new go to disk, then to whoever looks.
    async fn keep(&mut self, facts: Vec<ContainerFacts>) {
        if facts == self.facts {
            self.quiet = self.quiet.saturating_add(1);
            return;
        }
        self.quiet = 0;
        self.facts = facts;
        self.shared.write(&self.id, &self.facts).await;
    }

    async fn change(&mut self, index: usize, change: impl FnOnce(&mut ContainerFacts)) {
        let mut facts = self.facts.clone();
        change(&mut facts[index]);
        self.keep(facts).await;
    }

    async fn refuse(&mut self, text: &str) {
        tracing::warn!(task = %self.id, text, "restart cannot be done here");
        self.shared.refuse(&self.id, text).await;
        // Nothing is to be done until the manager takes it back.
        let _ = self.control.wait_for(|control| !control.wanted).await;
    }

    /// Ends one instance, if it still is the one.
    async fn act(&mut self, index: usize, seen: Vec<Seen>, runtime: Arc<dyn Runtime>) {
        let turn = Arc::clone(&self.turn);
        let contended = turn.try_lock().is_err();
        let _turn = turn.lock().await;
        let wanted = *self.control.borrow();
        let begun = self.facts[index].has_begun();
        let seen = if contended {
            // Another request of the pod had its turn meanwhile.
            match self.look(&*runtime).await {
                Ok(seen) => seen,
                Err(_) => return,
            }
        } else {
            seen
        };
        let still = matches!(
            self.facts[index].step,
            Step::Waiting | Step::Hook | Step::Stopping
        );
        if !still || !(begun || (wanted.wanted && index < wanted.released)) {
            return;
        }
        let name = self.facts[index].name.clone();
        let Some(found) = seen.into_iter().find(|seen| seen.name == name) else {
            return;
        };
        self.hook(index, &found, &*runtime).await;
        self.stop(index, &*runtime).await;
    }

    async fn hook(&mut self, index: usize, found: &Seen, runtime: &dyn Runtime) {
        let grace = self.work.rules.grace;
        if !node::runs_hook(&self.facts[index], grace) {
            return;
        }
        let Some(text) = &found.pre_stop else { return };
        let now = self.shared.clock.now_wall();
        self.change(index, |facts| {
            facts.step = Step::Hook;
            facts.hook_began = Some(now);
        })
        .await;
        let ended = match Hook::parse(text, found.ports.as_deref()) {
            Ok(hook) => {
                let run = hook::run(&hook, &found.instance.id, &self.work.pod_ips, grace, runtime);
                match tokio::time::timeout(grace, run).await {
                    Ok(ended) => ended,
                    Err(_) => Err(format!("preStop hook had not ended after {} s", grace.as_secs())),
                }
            }
            Err(error) => Err(error),
        };
        match ended {
            Ok(None) => {}
            Ok(Some(place)) => self.change(index, |facts| facts.hook_fallback = place).await,
            Err(error) => {
                tracing::warn!(task = %self.id, container = found.name, error, "preStop hook failed; the container is stopped all the same");
                self.change(index, |facts| {
                    facts.hook_error = error.chars().take(1024).collect();
                })
                .await;
            }
        }
    }

    async fn stop(&mut self, index: usize, runtime: &dyn Runtime) {
        let now = self.shared.clock.now_wall();
        self.change(index, |facts| {
            facts.step = Step::Stopping;
            facts.stop_began.get_or_insert(now);
        })
        .await;
        let Some(id) = self.facts[index].bound.clone() else {
            return;
        };
        let span = node::stop_time(self.work.rules.grace, self.facts[index].hook_began, now);
        tracing::info!(task = %self.id, container = self.facts[index].name, id, seconds = span.as_secs(), "stopping");
        let ended = self.try_stop(&id, span, runtime).await;
        let exit = self.exit(&id, runtime).await;
        self.change(index, |facts| match ended {
            Ok(()) => {
                facts.step = Step::Stopped;
                facts.killed = true;
                facts.exit = exit.or(facts.exit);
            }
            Err(error) => {
                facts.step = Step::Failed;
                facts.error = error.to_string().chars().take(1024).collect();
            }
        })
        .await;
    }

    /// A runtime that is away for a moment gets the same request again.
    async fn try_stop(&self, id: &str, span: Duration, first: &dyn Runtime) -> Result<(), RuntimeError> {
        let mut tries = 0;
        let mut later: Option<Arc<dyn Runtime>> = None;
        loop {
            let runtime = later.as_deref().unwrap_or(first);
            let Some(containers) = runtime.containers() else {
                return Ok(());
            };
            match containers.stop(id, span).await {
                Err(error) if matches!(error.code, Code::Away | Code::Unavailable) && tries < STOP_TRIES => {
                    tries += 1;
                    tracing::info!(task = %self.id, %error, "the runtime is away; stopping again");
                    tokio::time::sleep(AWAY).await;
                    later = self.shared.link.borrow().runtime().cloned().or(later);
                }
                other => return other,
            }
        }
    }

    async fn exit(&self, id: &str, runtime: &dyn Runtime) -> Option<kruise_planner::restart::facts::Exit> {
        let instance = Instance {
            id: id.to_owned(),
            state: State::Exited,
            restart_count: 0,
            started_at: None,
            exit: None,
        };
        runtime.containers()?.in_full(&instance).await.ok()?.exit
    }

    /// Until the next look, or until the manager says something.
    async fn rest(&mut self) {
        let pause = if self.quiet < QUIET_LOOKS { SOON } else { LATER };
        // Whether something was said or the pause is over makes no difference; an end of the agent ends this task with it.
        let _ = tokio::time::timeout(pause, self.control.changed()).await;
    }
}

impl Shared {
    async fn read(&self, id: &TaskId) -> Option<(Work, Vec<ContainerFacts>)> {
        let book = self.book.lock().await;
        let record = &book.tasks.get(id)?.record;
        Some((record.work.clone(), record.facts.clone()))
    }

    async fn write(&self, id: &TaskId, facts: &[ContainerFacts]) {
        let mut book = self.book.lock().await;
        if let Some(task) = book.tasks.get_mut(id) {
            task.record.facts = facts.to_vec();
        }
        book.store().await;
        self.publish(&book, id);
    }

    async fn refuse(&self, id: &TaskId, text: &str) {
        let mut book = self.book.lock().await;
        if let Some(task) = book.tasks.get_mut(id) {
            text.clone_into(&mut task.record.refused);
        }
        book.store().await;
        self.publish(&book, id);
    }

    /// A worker that is wanted no more leaves. False if it is wanted again.
    async fn leave(&self, id: &TaskId) -> bool {
        let mut book = self.book.lock().await;
        let Some(task) = book.tasks.get_mut(id) else {
            return true;
        };
        if task.control.borrow().wanted {
            return false;
        }
        task.working = false;
        for gone in book.sweep(self.clock.now_wall()) {
            self.unpublish(&gone);
        }
        book.store().await;
        true
    }
}
