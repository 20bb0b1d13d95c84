//! How long a container was down while its pod changed in place: from the end of one instance to the start of the next.
//!
//! The status of a pod tells both moments in whole seconds. Its agent can ask the runtime, which knows nanoseconds and keeps an instance
//! that has ended until the next one ends. What neither can tell is said to be unknown, never guessed: a container that was restarted
//! more than once in between has no one gap.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kruise_api::container_recreate_request::split_id;
use kruise_api::ids::TaskId;

use crate::restart::OrderPlan;
use crate::restart::facts::{Step, TaskFacts};
use crate::restart::node::{Rules, Target};
use crate::task::fnv64;

/// Begins the ids of questions to agents.
const PREFIX: &str = "swap/";

/// The instance of a container that the status of a pod tells about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Name in the pod.
    pub name: String,
    /// Its id, with the runtime's name.
    pub id: String,
    /// How often the kubelet has restarted the container by then.
    pub restart_count: i32,
    /// When it started; none while it does not run.
    pub started_at: Option<Timestamp>,
    /// The instance before: id and end.
    pub last: Option<(String, Timestamp)>,
}

/// What the status of a pod tells of its main containers.
#[must_use]
pub fn runs(pod: &Pod) -> Vec<Run> {
    let statuses = pod
        .status
        .as_ref()
        .and_then(|status| status.container_statuses.as_ref());
    statuses.into_iter().flatten().filter_map(run).collect()
}

fn run(status: &ContainerStatus) -> Option<Run> {
    let state = status.state.as_ref();
    let running = state.and_then(|state| state.running.as_ref());
    let ended = status
        .last_state
        .as_ref()
        .and_then(|last| last.terminated.as_ref());
    Some(Run {
        name: status.name.clone(),
        id: status.container_id.clone().filter(|id| !id.is_empty())?,
        restart_count: status.restart_count,
        started_at: running.and_then(|running| Some(running.started_at.as_ref()?.0)),
        last: ended.and_then(|ended| Some((ended.container_id.clone()?, ended.finished_at.as_ref()?.0))),
    })
}

/// One instance of a container came in the place of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swap {
    /// Name in the pod.
    pub container: String,
    /// The instance before, with the runtime's name.
    pub old_id: String,
    /// The one that came directly after it.
    pub new_id: String,
    /// How often the kubelet had restarted the container before.
    pub restart_count: u32,
    /// The gap in whole seconds, by the status of the pod.
    pub by_status: Option<Duration>,
    /// Whether the new one runs by now.
    pub runs: bool,
}

/// What has changed between two looks at a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swaps {
    /// Containers with one new instance.
    pub direct: Vec<Swap>,
    /// Containers that were restarted more than once, so that nothing can be said.
    pub unclear: Vec<String>,
}

impl Swaps {
    /// Whether no container has another instance.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.direct.is_empty() && self.unclear.is_empty()
    }
}

/// Which containers have another instance than before.
#[must_use]
pub fn swaps(before: &[Run], after: &[Run]) -> Swaps {
    let mut swaps = Swaps::default();
    for new in after {
        let Some(old) = before.iter().find(|old| old.name == new.name && old.id != new.id) else {
            continue;
        };
        let follows = new.last.as_ref().is_none_or(|(id, _)| *id == old.id);
        let once = old.restart_count.checked_add(1) == Some(new.restart_count);
        let Some(restart_count) = u32::try_from(old.restart_count).ok().filter(|_| follows && once) else {
            swaps.unclear.push(new.name.clone());
            continue;
        };
        let ended = new.last.as_ref().map(|(_, ended)| *ended);
        swaps.direct.push(Swap {
            container: new.name.clone(),
            old_id: old.id.clone(),
            new_id: new.id.clone(),
            restart_count,
            by_status: between(ended, new.started_at),
            runs: new.started_at.is_some(),
        });
    }
    swaps
}

/// None where one of the two is not known, or the clock of the node was set back in between.
fn between(ended: Option<Timestamp>, started: Option<Timestamp>) -> Option<Duration> {
    Duration::try_from(started?.duration_since(ended?)).ok()
}

/// Identity of the question to the agent about these swaps.
#[must_use]
pub fn swap_task_id(pod_uid: &str, swaps: &Swaps) -> TaskId {
    let ids: Vec<&str> = swaps.direct.iter().map(|swap| swap.new_id.as_str()).collect();
    let content = fnv64(ids.join(" ").as_bytes());
    TaskId::new(format!("{PREFIX}{pod_uid}/{content:016x}"))
}

/// Whether a task is a question of this kind.
#[must_use]
pub fn is_swap_task(task: &TaskId) -> bool {
    task.as_str().starts_with(PREFIX)
}

/// The question: an order about the old instances that stops none of them, since none is released. None when there is nothing to ask.
#[must_use]
pub fn question(node: &str, pod_uid: &str, swaps: &Swaps) -> Option<OrderPlan> {
    let (runtime, _) = split_id(&swaps.direct.first()?.old_id)?;
    let target = |swap: &Swap| {
        let (of, id) = split_id(&swap.old_id)?;
        (of == runtime).then(|| Target {
            name: swap.container.clone(),
            id: id.to_owned(),
            restart_count: swap.restart_count,
            force: false,
        })
    };
    Some(OrderPlan {
        node: node.to_owned(),
        pod_uid: pod_uid.to_owned(),
        pod_ips: Vec::new(),
        runtime: runtime.to_owned(),
        targets: swaps.direct.iter().filter_map(target).collect(),
        rules: Rules {
            fail_fast: true,
            min_started: Duration::ZERO,
            grace: Duration::ZERO,
        },
        released: 0,
    })
}

/// The gap as the runtime has seen it. None when the agent speaks of other instances, or does not know one of the two moments.
#[must_use]
pub fn by_runtime(swap: &Swap, facts: &TaskFacts) -> Option<Duration> {
    let facts = facts.of(&swap.container)?;
    let successor = facts.successor.as_ref()?;
    let is = |full: &str, id: &str| split_id(full).is_some_and(|(_, own)| own == id);
    let same = is(&swap.old_id, facts.bound.as_ref()?) && is(&swap.new_id, &successor.id);
    let ended = facts.exit.as_ref()?.finished_at;
    between(ended, successor.started_at).filter(|_| same)
}

/// Whether the agent has said all that it will say.
#[must_use]
pub fn is_answered(swaps: &Swaps, facts: &TaskFacts) -> bool {
    let over = |swap: &Swap| {
        let facts = facts.of(&swap.container);
        facts.is_none_or(|facts| {
            let started = facts
                .successor
                .as_ref()
                .and_then(|successor| successor.started_at);
            started.is_some() || matches!(facts.step, Step::Missing | Step::Failed)
        })
    };
    !facts.refused.is_empty() || swaps.direct.iter().all(over)
}

/// Who knows how long a container was down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The runtime, by the agent.
    Runtime,
    /// The status of the pod, in whole seconds: the true gap may be up to a second shorter or longer.
    Status,
}

/// How long one container was down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Name in the pod.
    pub container: String,
    /// From the end of the old instance to the start of the new one.
    pub span: Duration,
    /// Who says so.
    pub source: Source,
}

/// How long the containers of one pod were down in one change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Downtime {
    /// Containers whose gap is known.
    pub gaps: Vec<Gap>,
    /// Those whose gap is not.
    pub unknown: Vec<String>,
}

impl Downtime {
    /// What is known, with the agent's facts if there are some.
    #[must_use]
    pub fn of(swaps: &Swaps, facts: Option<&TaskFacts>) -> Self {
        let mut downtime = Self {
            gaps: Vec::new(),
            unknown: swaps.unclear.clone(),
        };
        for swap in &swaps.direct {
            let exact = facts.and_then(|facts| by_runtime(swap, facts));
            let found = exact
                .map(|span| (span, Source::Runtime))
                .or_else(|| Some((swap.by_status?, Source::Status)));
            match found {
                Some((span, source)) => downtime.gaps.push(Gap {
                    container: swap.container.clone(),
                    span,
                    source,
                }),
                None => downtime.unknown.push(swap.container.clone()),
            }
        }
        downtime
    }

    /// The longest gap.
    #[must_use]
    pub fn longest(&self) -> Option<&Gap> {
        self.gaps.iter().max_by_key(|gap| gap.span)
    }

    /// For people: `main was down for 0.412 s`.
    #[must_use]
    pub fn text(&self) -> String {
        let gaps = self.gaps.iter().map(|gap| match gap.source {
            Source::Runtime => format!("{} was down for {:.3} s", gap.container, gap.span.as_secs_f64()),
            Source::Status => format!(
                "{} was down for {} s, give or take one: only whole seconds are known",
                gap.container,
                gap.span.as_secs()
            ),
        });
        let unknown = self
            .unknown
            .iter()
            .map(|name| format!("nobody can say how long {name} was down"));
        gaps.chain(unknown).collect::<Vec<_>>().join("; ")
    }
}

/// Shares of a collection of spans: the smallest one that so many hundredths are not above.
#[must_use]
pub fn percentile(sorted: &[Duration], hundredths: usize) -> Option<Duration> {
    let rank = (sorted.len() * hundredths).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}
