//! The table of tasks: who holds which order, and how far it is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kruise_api::ids::{JobUid, NodeName, NodeUid, TaskId};
use kruise_planner::job::{TaskOutcome, TaskState, TaskView};
use kruise_planner::task::{Phase, Progress};
use kruise_proto::convert::phase_from_number;
use kruise_proto::task::TaskStatus;

use super::orders::PullOrder;

/// A task of a job on a node.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) id: TaskId,
    /// The node that it was ordered from; another node may have come by the same name since.
    pub(crate) node_uid: NodeUid,
    /// Changed by [`TaskTable::set_stage`] only, once it is in the table.
    pub(crate) stage: Stage,
    /// What to do, without credentials.
    pub(crate) order: Arc<PullOrder>,
    /// As last reported.
    pub(crate) status: TaskStatus,
    /// When it was handed out; none for one that came with an agent.
    pub(crate) ordered: Option<Duration>,
    /// When its progress was last told to watchers.
    pub(crate) told: Duration,
}

/// Where a task stands for the leader.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Stage {
    /// Ordered or adopted; holds a slot. Goes to `Cancelling` by a plan, to `Ended` by a report, and away when its node's lease runs out.
    InFlight,
    /// Taken back; holds a slot until its agent has acknowledged that, or its node's lease runs out.
    Cancelling,
    /// Ended; stays until a stored status contains it.
    Ended {
        outcome: TaskOutcome,
        /// When the leader heard of it.
        since: Timestamp,
    },
}

impl Task {
    pub(crate) fn holds_slot(&self) -> bool {
        matches!(self.stage, Stage::InFlight | Stage::Cancelling)
    }

    pub(crate) fn phase(&self) -> Phase {
        phase_from_number(self.status.phase)
    }

    fn view(&self) -> TaskView {
        let state = match &self.stage {
            Stage::InFlight => {
                let progress = self.status.progress.map(Progress::from).unwrap_or_default();
                TaskState::InFlight {
                    phase: self.phase(),
                    progress,
                }
            }
            Stage::Cancelling => TaskState::Cancelling,
            Stage::Ended { outcome, .. } => TaskState::Ended(outcome.clone()),
        };
        TaskView {
            id: self.id.clone(),
            state,
        }
    }
}

/// All tasks; at most one per job and node.
#[derive(Debug, Default)]
pub(crate) struct TaskTable {
    by_job: BTreeMap<JobUid, BTreeMap<NodeName, Task>>,
    by_node: BTreeMap<NodeName, BTreeSet<JobUid>>,
    /// Tasks that hold a slot. Counted as they change, because it is asked for with each event.
    slots: usize,
}

impl TaskTable {
    /// Puts a task there, in place of an older one of the same job and node.
    pub(crate) fn insert(&mut self, job: &JobUid, node: &NodeName, task: Task) {
        self.slots += usize::from(task.holds_slot());
        let tasks = self.by_job.entry(job.clone()).or_default();
        let old = tasks.insert(node.clone(), task);
        self.slots -= usize::from(old.is_some_and(|old| old.holds_slot()));
        self.by_node.entry(node.clone()).or_default().insert(job.clone());
    }

    pub(crate) fn remove(&mut self, job: &JobUid, node: &NodeName) -> Option<Task> {
        let tasks = self.by_job.get_mut(job)?;
        let task = tasks.remove(node);
        self.slots -= usize::from(task.as_ref().is_some_and(Task::holds_slot));
        if tasks.is_empty() {
            self.by_job.remove(job);
        }
        if let Some(jobs) = self.by_node.get_mut(node) {
            jobs.remove(job);
            if jobs.is_empty() {
                self.by_node.remove(node);
            }
        }
        task
    }

    pub(crate) fn get(&self, job: &JobUid, node: &NodeName) -> Option<&Task> {
        self.by_job.get(job)?.get(node)
    }

    pub(crate) fn get_mut(&mut self, job: &JobUid, node: &NodeName) -> Option<&mut Task> {
        self.by_job.get_mut(job)?.get_mut(node)
    }

    /// Moves a task on.
    pub(crate) fn set_stage(&mut self, job: &JobUid, node: &NodeName, stage: Stage) {
        let task = self.by_job.get_mut(job).and_then(|tasks| tasks.get_mut(node));
        if let Some(task) = task {
            self.slots -= usize::from(task.holds_slot());
            task.stage = stage;
            self.slots += usize::from(task.holds_slot());
        }
    }

    /// How many tasks hold a slot.
    pub(crate) fn slots(&self) -> usize {
        debug_assert_eq!(
            self.slots,
            self.iter().filter(|(_, _, task)| task.holds_slot()).count()
        );
        self.slots
    }

    /// Tasks of a job by node.
    pub(crate) fn of_job(&self, job: &JobUid) -> impl Iterator<Item = (&NodeName, &Task)> {
        self.by_job.get(job).into_iter().flatten()
    }

    /// Tasks on a node by job.
    pub(crate) fn of_node(&self, node: &NodeName) -> impl Iterator<Item = (&JobUid, &Task)> {
        let jobs = self.by_node.get(node).into_iter().flatten();
        jobs.filter_map(|job| Some((job, self.get(job, self.by_node.get_key_value(node)?.0)?)))
    }

    pub(crate) fn count_of_node(&self, node: &NodeName) -> usize {
        self.by_node.get(node).map_or(0, BTreeSet::len)
    }

    /// All tasks, by job and node.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&JobUid, &NodeName, &Task)> {
        self.by_job
            .iter()
            .flat_map(|(job, tasks)| tasks.iter().map(move |(node, task)| (job, node, task)))
    }

    /// As the planner sees a job's tasks.
    pub(crate) fn views(&self, job: &JobUid) -> BTreeMap<NodeName, TaskView> {
        self.of_job(job)
            .map(|(node, task)| (node.clone(), task.view()))
            .collect()
    }

    /// Since when there is a result of a job that no written status contains.
    pub(crate) fn unsaved_since(&self, job: &JobUid) -> Option<Timestamp> {
        let since = |(_, task): (&NodeName, &Task)| match task.stage {
            Stage::Ended { since, .. } => Some(since),
            _ => None,
        };
        self.of_job(job).filter_map(since).min()
    }
}
