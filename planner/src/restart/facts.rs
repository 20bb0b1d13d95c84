//! What an agent knows of a restart, container by container.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// How far the restart of one container is on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Step {
    /// The instance still runs and nothing has been done about it.
    Waiting,
    /// There is no container of that name.
    Missing,
    /// The preStop hook runs.
    Hook,
    /// The runtime has been told to stop it.
    Stopping,
    /// It has ended, and no successor runs.
    Stopped,
    /// A successor runs.
    Running,
    /// It could not be stopped. Final.
    Failed,
}

/// How an instance ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Code of its process.
    pub code: i32,
    /// By the node's clock; none where the runtime does not tell.
    pub finished_at: Option<Timestamp>,
}

/// The instance that came after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Successor {
    /// Its id, without the runtime's name.
    pub id: String,
    /// How often the kubelet has restarted the container by now.
    pub restart_count: u32,
    /// By the node's clock; none while it has not started.
    pub started_at: Option<Timestamp>,
    /// Whether it has run for longer than was asked for, by the node's clock.
    pub settled: bool,
}

/// One container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerFacts {
    /// Name in the pod.
    pub name: String,
    /// How far it is.
    pub step: Step,
    /// The instance that this task is about, bound when the task was first taken.
    pub bound: Option<String>,
    /// Whether this task stopped it, or found it stopped.
    pub killed: bool,
    /// Whether somebody else had restarted it before.
    pub elsewhere: bool,
    /// Why its hook failed; empty if it did not.
    pub hook_error: String,
    /// Where its hook was asked again without TLS, and did well; empty if that was not so.
    #[serde(default)]
    pub hook_fallback: String,
    /// Why it could not be stopped; empty if it was.
    pub error: String,
    /// When the hook began, by the node's clock.
    pub hook_began: Option<Timestamp>,
    /// When the stop began, by the node's clock.
    pub stop_began: Option<Timestamp>,
    /// How it ended.
    pub exit: Option<Exit>,
    /// What came after it.
    pub successor: Option<Successor>,
}

impl ContainerFacts {
    /// Nothing has been done yet.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            step: Step::Waiting,
            bound: None,
            killed: false,
            elsewhere: false,
            hook_error: String::new(),
            hook_fallback: String::new(),
            error: String::new(),
            hook_began: None,
            stop_began: None,
            exit: None,
            successor: None,
        }
    }

    /// Whether hook or stop have been begun by this task.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.hook_began.is_some() || self.stop_began.is_some()
    }
}

/// A task as its agent tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskFacts {
    /// The containers, in the order of the request.
    pub containers: Vec<ContainerFacts>,
    /// Why the agent cannot do it at all; empty if it can.
    pub refused: String,
}

impl TaskFacts {
    /// Facts about one container.
    #[must_use]
    pub fn of(&self, name: &str) -> Option<&ContainerFacts> {
        self.containers.iter().find(|facts| facts.name == name)
    }
}
