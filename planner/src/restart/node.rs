//! What an agent does about the containers of one request.
//!
//! The unit of work is to stop one instance. Which one is settled at the first look and never again, so that neither a repetition nor a
//! restart of the agent can reach its successor.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::facts::{ContainerFacts, Exit, Step, Successor};

/// Shortest time that a stop gives a container to end by itself.
pub const MIN_STOP: Duration = Duration::from_secs(2);

/// State of an instance in its runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Made, not started.
    Created,
    /// Runs.
    Running,
    /// Has ended.
    Exited,
    /// The runtime does not know.
    Unknown,
}

/// The newest instance of a container, as the runtime tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its id.
    pub id: String,
    /// Its state.
    pub state: State,
    /// As the kubelet has noted it on the instance.
    pub restart_count: u32,
    /// When it started.
    pub started_at: Option<Timestamp>,
    /// How it ended, if it has.
    pub exit: Option<Exit>,
}

/// What is ordered for one container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Name in the pod.
    pub name: String,
    /// The instance that the request is about.
    pub id: String,
    /// How often the kubelet had restarted it by then.
    pub restart_count: u32,
    /// Stop also what has come after it.
    pub force: bool,
}

/// What is ordered for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// A container that cannot be stopped ends the work.
    pub fail_fast: bool,
    /// A successor counts when it has run for longer than this.
    pub min_started: Duration,
    /// Time for hook and stop.
    pub grace: Duration,
}

/// Takes in what the runtime says of a container. Facts that have been settled stay as they are.
pub fn look(
    facts: &mut ContainerFacts,
    target: &Target,
    rules: &Rules,
    seen: Option<&Instance>,
    now: Timestamp,
) {
    if facts.step == Step::Failed {
        return;
    }
    let Some(seen) = seen else {
        // One that was stopped and cleared away waits for its successor.
        if facts.bound.is_none() || !(facts.killed || facts.elsewhere) {
            facts.step = Step::Missing;
        } else if facts.step == Step::Running {
            facts.step = Step::Stopped;
        }
        return;
    };
    let bound = bind(facts, target, seen);
    if seen.id == bound {
        same(facts, seen);
    } else {
        succeeded(facts, seen, rules, now);
    }
}

/// The instance that this is about.
fn bind(facts: &mut ContainerFacts, target: &Target, seen: &Instance) -> String {
    if let Some(bound) = &facts.bound {
        return bound.clone();
    }
    let bound = if target.force {
        seen.id.clone()
    } else {
        target.id.clone()
    };
    facts.bound = Some(bound.clone());
    bound
}

/// The instance is still the newest.
fn same(facts: &mut ContainerFacts, seen: &Instance) {
    if seen.state == State::Exited {
        facts.killed = true;
        facts.exit = seen.exit.or(facts.exit);
        facts.step = Step::Stopped;
    } else if matches!(facts.step, Step::Missing) {
        facts.step = Step::Waiting;
    }
}

/// There is a newer one.
fn succeeded(facts: &mut ContainerFacts, seen: &Instance, rules: &Rules, now: Timestamp) {
    if !facts.has_begun() && !facts.killed {
        facts.elsewhere = true;
    }
    let running = seen.state == State::Running;
    let ran = seen
        .started_at
        .and_then(|started| Duration::try_from(now.duration_since(started)).ok());
    facts.successor = Some(Successor {
        id: seen.id.clone(),
        restart_count: seen.restart_count,
        started_at: seen.started_at,
        settled: running && ran.is_some_and(|ran| ran > rules.min_started),
    });
    if facts.stop_began.is_some() {
        facts.killed = true;
    }
    facts.step = if running { Step::Running } else { Step::Stopped };
}

/// The container to be stopped next, if one is to be: they are stopped one after the other, in order, as far as the leader has let
/// them go.
#[must_use]
pub fn next(facts: &[ContainerFacts], rules: &Rules, released: usize) -> Option<usize> {
    for (index, container) in facts.iter().enumerate().take(released) {
        match container.step {
            Step::Waiting | Step::Hook | Step::Stopping => return Some(index),
            Step::Missing => return None,
            Step::Failed if rules.fail_fast => return None,
            Step::Failed | Step::Stopped | Step::Running => {}
        }
    }
    None
}

/// What is left of the grace for the stop itself, after a hook that began at `hook_began`: whole seconds count, and 2 s are always
/// there.
#[must_use]
pub fn stop_time(grace: Duration, hook_began: Option<Timestamp>, now: Timestamp) -> Duration {
    let spent = hook_began
        .and_then(|began| Duration::try_from(now.duration_since(began)).ok())
        .map_or(Duration::ZERO, |spent| Duration::from_secs(spent.as_secs()));
    grace.saturating_sub(spent).max(MIN_STOP)
}

/// Whether a hook is run: never without grace, never twice.
#[must_use]
pub fn runs_hook(facts: &ContainerFacts, grace: Duration) -> bool {
    !grace.is_zero() && !facts.has_begun()
}
