//! What a plan is made from.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kruise_api::container_recreate_request::{
    ContainerRecreateRequest, ContainerRecreateRequestStatus, keys,
};

use super::facts::TaskFacts;

/// Everything about one pod.
#[derive(Clone, Copy, Debug)]
pub struct PodSnapshot<'a> {
    /// All requests that name the pod, whatever state they are in.
    pub requests: &'a [RequestView<'a>],
    /// The pod that has the name now.
    pub pod: Option<&'a Pod>,
    /// Its node's agent.
    pub agent: AgentView,
    /// Whether its node is a virtual one.
    pub virtual_node: bool,
    /// Time of the API server.
    pub now: Timestamp,
}

/// A node's agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentView {
    /// It has a stream.
    Attached,
    /// It has none.
    Away,
    /// There is no such node.
    NoNode,
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct RequestView<'a> {
    /// As stored.
    pub object: &'a ContainerRecreateRequest,
    /// What the agent has told; none until it has taken the task.
    pub facts: Option<&'a TaskFacts>,
    /// Whether the agent is to hold the task, as of the last plan.
    pub dispatched: bool,
    /// What the leader remembers.
    pub memory: &'a Memory,
}

/// What the leader remembers of a request. All of it may be lost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// The request as a webhook would have made it, while that is being stored.
    pub admitted: Option<Box<ContainerRecreateRequest>>,
    /// Since when it is its turn.
    pub head_since: Option<Timestamp>,
    /// When its status was last sent to be written.
    pub last_write: Option<Timestamp>,
    /// When stops were first heard of, by the leader's own clock.
    pub stop_seen: BTreeMap<String, Duration>,
    /// When successors were first seen ready, by the leader's own clock.
    pub ready_seen: BTreeMap<String, Duration>,
}

impl<'a> RequestView<'a> {
    /// Its UID.
    #[must_use]
    pub fn uid(&self) -> &'a str {
        self.object.metadata.uid.as_deref().unwrap_or_default()
    }

    pub(super) fn name(&self) -> &'a str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    pub(super) fn key(&self) -> String {
        let namespace = self.object.metadata.namespace.as_deref().unwrap_or_default();
        format!("{namespace}/{}", self.name())
    }

    pub(super) fn created(&self) -> Timestamp {
        self.object
            .metadata
            .creation_timestamp
            .as_ref()
            .map_or(Timestamp::UNIX_EPOCH, |time| time.0)
    }

    pub(super) fn status(&self) -> Option<&'a ContainerRecreateRequestStatus> {
        self.object.status.as_ref()
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.completed().is_some()
    }

    pub(super) fn completed(&self) -> Option<Timestamp> {
        self.status()?.completion_time.as_ref().map(|time| time.0)
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.object.metadata.deletion_timestamp.is_some()
    }

    pub(super) fn label(&self, key: &str) -> Option<&'a str> {
        self.object.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    pub(super) fn annotation(&self, key: &str) -> Option<&'a str> {
        self.object
            .metadata
            .annotations
            .as_ref()?
            .get(key)
            .map(String::as_str)
    }

    pub(super) fn has_finalizer(&self) -> bool {
        let finalizers = self.object.metadata.finalizers.as_ref();
        finalizers.is_some_and(|all| all.iter().any(|name| name == keys::UNREADY_ACQUIRED))
    }

    /// Whether somebody has completed it when it was made, or the leader has since.
    pub(super) fn is_admitted(&self) -> bool {
        self.label(keys::POD_UID).is_some()
    }
}
