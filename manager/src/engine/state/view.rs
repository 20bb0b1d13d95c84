//! What people see: rows of agents and tasks, summaries of jobs, and the changes that watchers are told.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use kruise_api::ids::{JobUid, NodeName, ObjectKey};
use kruise_planner::job::Counters;
use kruise_proto::convert::{to_duration, to_timestamp};
use kruise_proto::inspect::{self, SyncState};
use kruise_proto::task::Progress;

use super::super::event::{Change, Now};
use super::EngineState;
use super::jobs::JobEntry;
use super::tasks::Task;

/// Least time between two summaries of a job that tell of bytes alone.
const SUMMARY_INTERVAL: Duration = Duration::from_millis(900);

/// Which tasks are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TaskFilter {
    /// "namespace/name"; all when none.
    pub(crate) job: Option<String>,
    pub(crate) node: Option<NodeName>,
}

impl TaskFilter {
    pub(crate) fn takes(&self, job: &str, node: &str) -> bool {
        self.takes_job(job) && self.node.as_ref().is_none_or(|wanted| wanted.as_str() == node)
    }

    pub(crate) fn takes_job(&self, job: &str) -> bool {
        self.job.as_ref().is_none_or(|wanted| wanted == job)
    }
}

/// Some agents, and where to go on.
#[derive(Debug, PartialEq)]
pub(crate) struct AgentPage {
    pub(crate) agents: Vec<inspect::Agent>,
    pub(crate) next: Option<String>,
}

/// Some tasks, and where to go on.
#[derive(Debug, PartialEq)]
pub(crate) struct TaskPage {
    pub(crate) tasks: Vec<inspect::Task>,
    pub(crate) next: Option<String>,
}

impl EngineState {
    /// Agents by node name, from behind `after` on: all that have attached to this leader, and all that could.
    pub(crate) fn agent_page(&self, after: &str, size: usize, now: Now) -> AgentPage {
        let range = (Bound::Excluded(NodeName::new(after)), Bound::Unbounded);
        let known: BTreeSet<&NodeName> = self
            .nodes
            .views()
            .range(range.clone())
            .map(|(name, _)| name)
            .take(size + 1)
            .collect();
        let attached = self.agents.range(range).map(|(name, _)| name).take(size + 1);
        let names: Vec<&NodeName> = known
            .into_iter()
            .chain(attached)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        let next = (names.len() > size).then(|| names[size - 1].to_string());
        AgentPage {
            agents: names
                .into_iter()
                .take(size)
                .map(|name| self.agent_row(name, now))
                .collect(),
            next,
        }
    }

    /// One agent and its tasks.
    pub(crate) fn agent(&self, name: &NodeName, now: Now) -> Option<(inspect::Agent, Vec<inspect::Task>)> {
        if !self.agents.contains_key(name) && !self.nodes.views().contains_key(name) {
            return None;
        }
        let filter = TaskFilter {
            job: None,
            node: Some(name.clone()),
        };
        Some((self.agent_row(name, now), self.matching_tasks(&filter)))
    }

    fn agent_row(&self, name: &NodeName, now: Now) -> inspect::Agent {
        let tasks = u32::try_from(self.tasks.count_of_node(name)).unwrap_or(u32::MAX);
        let Some(agent) = self.agents.get(name) else {
            return inspect::Agent {
                node_name: name.to_string(),
                node_uid: self.nodes.uid(name).map(ToString::to_string).unwrap_or_default(),
                sync_state: SyncState::NotSent.into(),
                tasks,
                ..inspect::Agent::default()
            };
        };
        let state = match &agent.session {
            None => SyncState::NotSent,
            Some(session)
                if session.stale || session.set_due.is_some() || agent.generation != agent.acknowledged =>
            {
                SyncState::Stale
            }
            Some(_) => SyncState::Synced,
        };
        let (runtime, disk) = agent.vitals.node();
        inspect::Agent {
            node_name: name.to_string(),
            node_uid: agent.node_uid.to_string(),
            sync_state: state.into(),
            desired_generation: agent.generation.0,
            acknowledged_generation: agent.acknowledged.0,
            version: agent.version.clone(),
            runtime,
            disk,
            last_seen_ago: Some(to_duration(now.mono.saturating_sub(agent.vitals.last_heard()))),
            attached_since: agent.session.as_ref().map(|_| to_timestamp(agent.attached_since)),
            tasks,
            boot_id: agent.boot_id.clone(),
            peer: agent.peer.clone(),
        }
    }

    /// Tasks by job and node, from behind `after` on.
    pub(crate) fn task_page(&self, filter: &TaskFilter, after: &str, size: usize) -> TaskPage {
        let token = |task: &inspect::Task| format!("{} {}", task.job, task.node_name);
        let mut tasks = self.matching_tasks(filter);
        tasks.retain(|task| token(task).as_str() > after);
        let next = (tasks.len() > size).then(|| token(&tasks[size - 1]));
        tasks.truncate(size);
        TaskPage { tasks, next }
    }

    /// All tasks that match, sorted by job and node.
    pub(crate) fn matching_tasks(&self, filter: &TaskFilter) -> Vec<inspect::Task> {
        let mut tasks: Vec<inspect::Task> = self
            .tasks
            .iter()
            .filter_map(|(uid, node, task)| {
                let job = self.jobs.get(uid)?.object.key.to_string();
                filter
                    .takes(&job, node.as_str())
                    .then(|| self.task_row(job, node, task))
            })
            .collect();
        tasks.sort_by_cached_key(|task| format!("{} {}", task.job, task.node_name));
        tasks
    }

    fn task_row(&self, job: String, node: &NodeName, task: &Task) -> inspect::Task {
        let agent = self
            .agents
            .get(node)
            .filter(|agent| agent.node_uid == task.node_uid);
        inspect::Task {
            node_name: node.to_string(),
            job,
            status: Some(task.status.clone()),
            attached: agent.is_some_and(|agent| agent.session.is_some()),
        }
    }

    /// Summaries of the jobs that match.
    pub(crate) fn summaries(&self, filter: &TaskFilter) -> Vec<inspect::JobSummary> {
        let wanted = |entry: &JobEntry| filter.takes_job(&entry.object.key.to_string());
        self.jobs
            .iter()
            .filter(|(_, entry)| wanted(entry))
            .map(|(uid, entry)| self.summary(uid, entry))
            .collect()
    }

    /// Plans the one job of a filter again.
    pub(crate) fn touch(&mut self, filter: &TaskFilter) {
        let key = filter.job.as_deref().and_then(|job| job.split_once('/'));
        let uid = key
            .and_then(|(namespace, name)| self.jobs.uid(&ObjectKey::new(namespace, name)))
            .cloned();
        self.dirty.extend(uid);
    }

    /// Whether a job of this name is known.
    pub(crate) fn knows_job(&self, key: &ObjectKey) -> bool {
        self.jobs.uid(key).is_some()
    }

    pub(super) fn summary(&self, uid: &JobUid, entry: &JobEntry) -> inspect::JobSummary {
        let complete = entry.object.is_complete();
        let counters = if complete || entry.counters == Counters::default() {
            stored_counters(entry)
        } else {
            entry.counters
        };
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        inspect::JobSummary {
            job: entry.object.key.to_string(),
            desired: number(counters.desired),
            active: number(counters.active),
            succeeded: number(counters.succeeded),
            failed: number(counters.failed),
            complete,
            waiting_on: if complete {
                Vec::new()
            } else {
                entry.waiting.iter().map(|waiting| waiting.text.clone()).collect()
            },
            progress: Some(self.bytes(uid, entry)),
        }
    }

    /// Bytes of all tasks of a job under this leader whose total is known.
    pub(super) fn bytes(&self, uid: &JobUid, entry: &JobEntry) -> Progress {
        let (done, total) = entry.ended_bytes;
        let mut sum = Progress {
            bytes_done: done,
            bytes_total: total,
            ..Progress::default()
        };
        let known = self
            .tasks
            .of_job(uid)
            .filter_map(|(_, task)| Some((task, task.status.progress?)));
        for (task, progress) in known.filter(|(_, progress)| progress.bytes_total > 0) {
            sum.bytes_done = sum.bytes_done.saturating_add(progress.bytes_done);
            sum.bytes_total = sum.bytes_total.saturating_add(progress.bytes_total);
            if !task.phase().is_final() {
                sum.bytes_per_second = sum.bytes_per_second.saturating_add(progress.bytes_per_second);
            }
        }
        sum.bytes_known = sum.bytes_total > 0;
        sum
    }

    pub(super) fn publish_task(&mut self, uid: &JobUid, node: &NodeName) {
        if !self.observed {
            return;
        }
        if let (Some(entry), Some(task)) = (self.jobs.get(uid), self.tasks.get(uid, node)) {
            let row = self.task_row(entry.object.key.to_string(), node, task);
            self.publish(Change::Task(Arc::new(row)));
        }
    }

    pub(super) fn publish_job(&mut self, uid: &JobUid) {
        if !self.observed {
            return;
        }
        if let Some(entry) = self.jobs.get(uid) {
            let summary = self.summary(uid, entry);
            self.publish(Change::Job(Arc::new(summary)));
        }
    }

    /// A summary after progress of one task: those of many nodes together make one message a second.
    pub(super) fn publish_progress(&mut self, uid: &JobUid, now: Now) {
        let Some(entry) = self.jobs.get_mut(uid).filter(|_| self.observed) else {
            return;
        };
        if entry.told.is_none_or(|told| now.mono >= told + SUMMARY_INTERVAL) {
            entry.told = Some(now.mono);
            self.publish_job(uid);
        }
    }
}

/// Counters as stored in the object.
fn stored_counters(entry: &JobEntry) -> Counters {
    let number = |count: i32| usize::try_from(count).unwrap_or(0);
    entry
        .object
        .status
        .as_ref()
        .map(|status| Counters {
            desired: number(status.desired),
            active: number(status.active),
            succeeded: number(status.succeeded),
            failed: number(status.failed),
        })
        .unwrap_or_default()
}
