//! What the agent remembers of a restart, over restarts of its own as well.

use jiff::Timestamp;
use kruise_api::ids::TaskId;
use kruise_planner::restart::facts::{ContainerFacts, Step};
use kruise_planner::restart::node::{Rules, Target};
use kruise_planner::task::Phase;
use kruise_proto::dispatch::RestartContainers;
use kruise_proto::restart::{order_parts, status_message};
use kruise_proto::task::{self, TaskStatus};
use serde::{Deserialize, Serialize};

/// One task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) id: TaskId,
    pub(crate) work: Work,
    /// In the order of the targets.
    pub(crate) facts: Vec<ContainerFacts>,
    /// Why it cannot be done at all; empty if it can.
    #[serde(default)]
    pub(crate) refused: String,
    /// When the manager took it back, if it has. What had begun by then is remembered for a while.
    #[serde(default)]
    pub(crate) dropped: Option<Timestamp>,
}

/// What was ordered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) requested_by: String,
    pub(crate) pod: String,
    pub(crate) pod_uid: String,
    pub(crate) pod_ips: Vec<String>,
    pub(crate) runtime: String,
    pub(crate) targets: Vec<Target>,
    pub(crate) rules: Rules,
}

impl From<RestartContainers> for Work {
    fn from(message: RestartContainers) -> Self {
        let (targets, rules) = order_parts(&message);
        Self {
            requested_by: message.requested_by,
            pod: message.pod,
            pod_uid: message.pod_uid,
            pod_ips: message.pod_ips,
            runtime: message.runtime,
            targets,
            rules,
        }
    }
}

impl Record {
    /// Taken just now.
    pub(crate) fn new(id: TaskId, work: Work) -> Self {
        let facts = work
            .targets
            .iter()
            .map(|target| ContainerFacts::new(target.name.clone()))
            .collect();
        Self {
            id,
            work,
            facts,
            refused: String::new(),
            dropped: None,
        }
    }

    /// Whether a hook or stop has been begun whose end nobody has seen.
    pub(crate) fn is_underway(&self) -> bool {
        self.facts
            .iter()
            .any(|facts| matches!(facts.step, Step::Hook | Step::Stopping))
    }

    /// Whether anything was done: then it must not be done again.
    pub(crate) fn has_begun(&self) -> bool {
        self.facts.iter().any(ContainerFacts::has_begun)
    }

    /// As it is told to others.
    pub(crate) fn status(&self) -> TaskStatus {
        let phase = if self.refused.is_empty() {
            Phase::Waiting
        } else {
            Phase::Failed
        };
        TaskStatus {
            task_id: self.id.to_string(),
            phase: task::Phase::from(phase).into(),
            message: self.refused.clone(),
            restart: Some(status_message(
                &self.work.requested_by,
                &self.work.pod,
                &self.facts,
            )),
            ..TaskStatus::default()
        }
    }
}
