//! Nodes and pods with only the fields that we read: smaller to parse than the whole, and with fewer fields that could be of an odd shape.

use std::borrow::Cow;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kruise_api::ids::NodeName;
use kube::Resource;
use kube::core::ObjectMeta;
use serde::Deserialize;

use super::super::objects::{Incomplete, NodeObject, Ready};

/// A Node.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct NodeLite {
    metadata: ObjectMeta,
    #[serde(default)]
    status: NodeStatus,
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
        Self::from_parts(node.metadata, ready)
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
struct PodStatus {
    #[serde(default)]
    phase: Option<String>,
}

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

    /// Node that it sits on, unless it has ended or is leaving.
    pub(super) fn node(&self) -> Option<NodeName> {
        let ended = matches!(self.status.phase.as_deref(), Some("Succeeded" | "Failed"));
        self.bound_to()
            .filter(|_| !ended && self.metadata.deletion_timestamp.is_none())
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
