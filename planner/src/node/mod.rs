//! Decisions of the node agent.
//!
//! - [`fence`]: which orders an agent takes, and from whom.
//! - [`contact`]: how long it works without hearing from a leader, and when it dials again.
//! - [`attempt`]: how often and how long a pull is tried.
//! - [`stall`]: whether bytes still arrive.
//! - [`queue`] and [`pace`]: who may call the runtime next, and how hard one registry may be asked.
//! - [`guard`]: whether an image is small enough for its job and for its node.
//! - [`reason`]: what a runtime's words mean, and what of them may be shown.
//! - [`bytes`]: how far a pull is, from what lies in the content store.
//!
//! Time comes in as a [`std::time::Duration`] of the agent's monotonic clock; nothing here compares the clocks of two machines.

pub mod attempt;
pub mod bytes;
pub mod contact;
pub mod fence;
pub mod guard;
pub mod pace;
pub mod queue;
pub mod reason;
pub mod stall;
