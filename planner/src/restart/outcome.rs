//! What a plan answers.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kruise_api::container_recreate_request::{ContainerRecreateRequest, ContainerRecreateRequestStatus};

use super::lock::Holder;
use super::node::{Rules, Target};

/// Texts that clients look for.
pub mod texts {
    /// The pod is gone, is going, or is another one by now.
    pub const POD_GONE: &str = "pod has gone";
    /// No agent has taken the request in time.
    pub const NO_ANSWER: &str = "daemon has not responded for a long time";
    /// activeDeadlineSeconds has passed.
    pub const DEADLINE: &str = "recreating has exceeded the activeDeadlineSeconds";
    /// The kubelet will not start it again.
    pub const NO_RESTART: &str = "container stopped; restartPolicy forbids a restart";
    /// Ids of another runtime than the node's, or none that can be read.
    pub const NO_RUNTIME: &str = "failed to find runtime service";
}

/// What shall be done about one pod's requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodPlan {
    /// One entry per request.
    pub requests: BTreeMap<String, RequestPlan>,
    /// When to look again at the latest.
    pub wake: Option<Timestamp>,
}

/// What shall be done about one request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestPlan {
    /// What its agent shall hold.
    pub intent: Intent,
    /// The next write.
    pub write: Option<Write>,
    /// What is told.
    pub events: Vec<EventNote>,
    /// As a webhook would have made it, to be remembered until that is stored.
    pub admitted: Option<Box<ContainerRecreateRequest>>,
    /// Since when it is its turn.
    pub head_since: Option<Timestamp>,
    /// Why nothing more happens, for people; empty when it is over.
    pub waiting: String,
}

/// What an agent shall hold for a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Intent {
    /// Nothing, and what it has may be forgotten: the end is stored, or the request is gone.
    #[default]
    Forget,
    /// What it has, if anything, and begin nothing new.
    Freeze,
    /// This order.
    Order(OrderPlan),
}

/// An order to an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderPlan {
    /// Node that the pod is on.
    pub node: String,
    /// UID of the pod.
    pub pod_uid: String,
    /// Addresses of the pod, for its hooks.
    pub pod_ips: Vec<String>,
    /// Runtime of the ids.
    pub runtime: String,
    /// The instances.
    pub targets: Vec<Target>,
    /// How to go about it.
    pub rules: Rules,
    /// How many of them, from the first on, may be stopped.
    pub released: usize,
}

/// A write on a request or on its pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Labels and annotations that a webhook would have set.
    Admit {
        /// Labels to be set.
        labels: BTreeMap<String, String>,
        /// Annotations to be set.
        annotations: BTreeMap<String, String>,
    },
    /// The finalizer that guards the readiness lock.
    AddFinalizer,
    /// Take the pod out of service.
    Lock(Holder),
    /// Let the pod go.
    Unlock(Holder),
    /// The status.
    Status(Box<ContainerRecreateRequestStatus>),
    /// After the end: the active label, the finalizer, and the report in their place.
    Clean {
        /// Whether the report is known to the leader.
        report: bool,
    },
    /// The request itself.
    Delete,
}

/// Something to be told about a container, or about the request when no container is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventNote {
    /// Which container of the pod; none for the request itself.
    pub container: Option<String>,
    /// CamelCase.
    pub reason: &'static str,
    /// Whether it is a warning.
    pub warning: bool,
    /// For people.
    pub message: String,
}
