//! Why nodes of a job have not got their turn.

use std::fmt;
use std::time::Duration;

use kruise_api::ids::NodeName;

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
            Self::MoreAway { nodes } => write!(f, "{nodes} more node(s) without an attached agent"),
            Self::YoungNodes => f.write_str("no node selected yet: new nodes are not ready"),
            Self::NoNodes => f.write_str("no node is selected"),
        }
    }
}
