//! Agents, two leaders and the Lease in one small model, of which every state within bounds is visited.
//!
//! The decisions are the real ones: [`crate::lease::Elector`], [`crate::node::fence`], [`crate::node::contact`] and [`crate::job::plan`]. What lies
//! between them (a session, a slot, a journal) is stated here once more, as small as it can be, and so is what must hold in each state.
//!
//! Time passes in ticks, which are seconds to the real parts. Three nodes pull one image for one job. Faults cost from a budget
//! ([`walk::Budget`]): a leader that is paused and wakes up, or killed; a node that is cut off; an agent that starts again, with its journal or without;
//! messages that are lost, doubled or overtaken; ticks that pass while messages are under way or agents do not dial.

mod agent;
mod invariants;
mod leader;
mod slots;
mod steps;
mod walk;
mod world;
