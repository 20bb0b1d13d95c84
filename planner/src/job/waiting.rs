//! Why nodes of a job have not got their turn.

use std::fmt;
use std::time::Duration;

use kruise_api::ids::NodeName;

use super::snapshot::NodeTrouble;

/// One reason, for people: in the inspection service, in `kruisectl` and in conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitingOn {
    /// A field of the spec cannot be acted on.
    InvalidSpec {
        /// Path of the field.
        field: &'static str,
        /// What is wrong and what is accepted.
        message: String,
    },
    /// A feature gate is off.
    SwitchedOff {
        /// Which.
        gate: &'static str,
    },
    /// parallelism is 0.
    Paused,
    /// As many nodes pull as may.
    WindowFull {
        /// Nodes that hold an order.
        in_flight: usize,
        /// How many may.
        parallelism: u32,
        /// Nodes that wait for a slot.
        pending: usize,
    },
    /// A new leader holds slots back for agents that may still be pulling for an earlier one.
    Reserved {
        /// How many agents.
        agents: usize,
        /// For at most this long.
        left: Duration,
    },
    /// A node has no agent that is attached.
    AgentAway {
        /// Which.
        node: NodeName,
        /// For how long.
        since: Duration,
    },
    /// Nodes are passed over for now.
    Deferred {
        /// Why.
        why: Deferral,
        /// The first of them.
        node: NodeName,
        /// How many.
        nodes: usize,
    },
    /// The cluster's caps leave no room.
    Capped {
        /// For people.
        cap: String,
        /// Nodes that the window would take.
        nodes: usize,
    },
    /// All nodes have ended; they are asked again after this long.
    NextRound {
        /// How long.
        left: Duration,
    },
    /// More nodes of the kind above.
    MoreAway {
        /// How many.
        nodes: usize,
    },
    /// No node is selected, but nodes exist that are too young.
    YoungNodes,
    /// No node is selected.
    NoNodes,
}

/// Why a node whose agent is there is passed over. It holds no slot, and no clock runs but the job's own deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deferral {
    /// The node speaks against it.
    Trouble(NodeTrouble),
    /// It is cordoned, and the job leaves cordoned nodes alone.
    Cordoned,
    /// It is younger than the job wants.
    TooYoung,
    /// None of the pods that the job waits for is Ready on it.
    PodsNotReady,
}

impl Deferral {
    /// A word that does not change.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Trouble(NodeTrouble::NotReady) => "NodeNotReady",
            Self::Trouble(NodeTrouble::DiskPressure) => "NodeDiskPressure",
            Self::Trouble(NodeTrouble::NetworkUnavailable) => "NodeNetworkUnavailable",
            Self::Cordoned => "NodeCordoned",
            Self::TooYoung => "NodeTooYoung",
            Self::PodsNotReady => "PodsNotReady",
        }
    }

    /// For people.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Trouble(NodeTrouble::NotReady) => "not Ready",
            Self::Trouble(NodeTrouble::DiskPressure) => "short of disk",
            Self::Trouble(NodeTrouble::NetworkUnavailable) => "its network is not set up",
            Self::Cordoned => "cordoned",
            Self::TooYoung => "younger than the job wants",
            Self::PodsNotReady => "none of the pods that the job waits for is Ready there",
        }
    }
}

impl WaitingOn {
    /// A word that does not change, for tools.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::InvalidSpec { .. } => "InvalidSpec",
            Self::SwitchedOff { .. } => "FeatureGateDisabled",
            Self::Paused => "Paused",
            Self::WindowFull { .. } => "WindowFull",
            Self::Reserved { .. } => "Reserved",
            Self::AgentAway { .. } | Self::MoreAway { .. } => "AgentAway",
            Self::Deferred { why, .. } => why.word(),
            Self::Capped { .. } => "Capped",
            Self::NextRound { .. } => "NextRound",
            Self::YoungNodes => "YoungNodes",
            Self::NoNodes => "NoNodes",
        }
    }

    /// How many nodes it is about.
    #[must_use]
    pub fn nodes(&self) -> usize {
        match self {
            Self::WindowFull { pending, .. } => *pending,
            Self::Reserved { agents, .. } => *agents,
            Self::AgentAway { .. } => 1,
            Self::MoreAway { nodes } | Self::Deferred { nodes, .. } | Self::Capped { nodes, .. } => *nodes,
            _ => 0,
        }
    }
}

impl fmt::Display for WaitingOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidSpec { field, message } => write!(f, "{field}: {message}"),
            Self::SwitchedOff { gate } => write!(f, "feature-gate {gate} is not enabled"),
            Self::Paused => f.write_str("paused: parallelism is 0"),
            Self::WindowFull {
                in_flight,
                parallelism,
                pending,
            } => {
                write!(
                    f,
                    "window full ({in_flight} of {parallelism} pulling), {pending} waiting for their turn"
                )
            }
            Self::Reserved { agents, left } => write!(
                f,
                "{agents} agent(s) not yet attached to the new leader may still be pulling; slots kept for at most {} s",
                left.as_secs()
            ),
            Self::AgentAway { node, since } => {
                write!(f, "{node}: no agent attached for {} s", since.as_secs())
            }
            Self::Deferred { why, node, nodes: 1 } => write!(f, "{node}: {}", why.text()),
            Self::Deferred { why, node, nodes } => {
                write!(f, "{node} and {} more: {}", nodes - 1, why.text())
            }
            Self::Capped { cap, nodes } => {
                write!(
                    f,
                    "the cluster allows {cap} at once, {nodes} waiting for their turn"
                )
            }
            Self::NextRound { left } => write!(
                f,
                "all nodes have ended; they are asked again in {} min",
                left.as_secs().div_ceil(60)
            ),
            Self::MoreAway { nodes } => write!(f, "{nodes} more node(s) without an attached agent"),
            Self::YoungNodes => f.write_str("no node selected yet: new nodes are not ready"),
            Self::NoNodes => f.write_str("no node is selected"),
        }
    }
}
