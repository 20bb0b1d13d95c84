//! Nodes and pods with only the fields that we read: smaller to parse than the whole, and with fewer fields that could be of an odd shape.

use std::borrow::Cow;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kruise_api::ids::NodeName;
use kruise_planner::job::{NodeTrouble, PodPhase, PodView};
use kube::Resource;
use kube::core::ObjectMeta;
use serde::Deserialize;

use super::super::objects::{Incomplete, NodeObject, Ready};

/// A Node.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct NodeLite {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: NodeSpec,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct NodeSpec {
    #[serde(default)]
    unschedulable: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct NodeStatus {
    #[serde(default)]
    conditions: Option<Vec<NodeCondition>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeCondition {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    status: String,
    /// As text: a time that cannot be read must not stop the watch.
    #[serde(default)]
    last_transition_time: Option<String>,
}

impl TryFrom<NodeLite> for NodeObject {
    type Error = Incomplete;

    fn try_from(node: NodeLite) -> Result<Self, Incomplete> {
        let conditions = node.status.conditions.unwrap_or_default();
        let is_true = |kind: &str| {
            conditions
                .iter()
                .any(|condition| condition.kind == kind && condition.status == "True")
        };
        let pressure = match () {
            () if is_true("DiskPressure") => Some(NodeTrouble::DiskPressure),
            () if is_true("NetworkUnavailable") => Some(NodeTrouble::NetworkUnavailable),
            () => None,
        };
        let ready = conditions
            .into_iter()
            .find(|condition| condition.kind == "Ready")
            .map(|condition| Ready {
                is_true: condition.status == "True",
                since: condition
                    .last_transition_time
                    .and_then(|text| text.parse::<Timestamp>().ok())
                    .unwrap_or_default(),
            });
        Ok(Self {
            cordoned: node.spec.unschedulable == Some(true),
            pressure,
            ..Self::from_parts(node.metadata, ready)?
        })
    }
}

/// A Pod.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct PodLite {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: PodSpec,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec {
    #[serde(default)]
    node_name: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodStatus {
    #[serde(default)]
    phase: Option<String>,
    #[serde(default)]
    conditions: Option<Vec<NodeCondition>>,
    #[serde(default)]
    container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerStatus {
    #[serde(default)]
    restart_count: i32,
}

/// What a pod asks for its deletion.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

impl PodLite {
    /// Name of the pod.
    pub(super) fn name(&self) -> String {
        self.metadata.name.clone().unwrap_or_default()
    }

    /// Node that it was bound to.
    pub(super) fn bound_to(&self) -> Option<NodeName> {
        self.spec
            .node_name
            .as_deref()
            .filter(|name| !name.is_empty())
            .map(NodeName::from)
    }

    /// As jobs see it, on the node that it sits on; none once it has ended or is leaving.
    pub(super) fn view(&self) -> Option<PodView> {
        let ended = matches!(self.status.phase.as_deref(), Some("Succeeded" | "Failed"));
        if ended || self.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let mut conditions = self.status.conditions.iter().flatten();
        let ready = conditions.find(|condition| condition.kind == "Ready" && condition.status == "True");
        let time = |text: &String| text.parse::<Timestamp>().ok();
        Some(PodView {
            name: self.name(),
            node: self.bound_to()?,
            phase: match self.status.phase.as_deref() {
                Some("Running") => PodPhase::Running,
                Some("Unknown") => PodPhase::Unknown,
                _ => PodPhase::Pending,
            },
            ready: ready.is_some(),
            ready_since: ready.and_then(|ready| ready.last_transition_time.as_ref().and_then(time)),
            deletion_cost: self.deletion_cost(),
            restarts: self
                .status
                .container_statuses
                .iter()
                .flatten()
                .map(|container| container.restart_count)
                .max()
                .unwrap_or(0),
            created: self
                .metadata
                .creation_timestamp
                .as_ref()
                .map(|time| time.0)
                .unwrap_or_default(),
        })
    }

    /// What cannot be read counts as none, as in Kubernetes.
    fn deletion_cost(&self) -> i32 {
        let annotations = self.metadata.annotations.as_ref();
        annotations
            .and_then(|annotations| annotations.get(DELETION_COST))
            .filter(|cost| !cost.starts_with('+') && (*cost == "0" || !cost.starts_with('0')))
            .and_then(|cost| cost.parse().ok())
            .unwrap_or(0)
    }
}

macro_rules! resource_like {
    ($lite:ty, $whole:ty) => {
        impl Resource for $lite {
            type DynamicType = ();
            type Scope = <$whole as Resource>::Scope;

            fn kind((): &()) -> Cow<'_, str> {
                <$whole>::kind(&())
            }

            fn group((): &()) -> Cow<'_, str> {
                <$whole>::group(&())
            }

            fn version((): &()) -> Cow<'_, str> {
                <$whole>::version(&())
            }

            fn plural((): &()) -> Cow<'_, str> {
                <$whole>::plural(&())
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

resource_like!(NodeLite, Node);
resource_like!(PodLite, Pod);
