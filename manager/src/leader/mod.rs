//! Who leads: the elector's driver and the guard that everything asks before it acts.
//!
//! The decisions are [`kruise_planner::lease`]; here are the requests, the timers and the clock.

mod guard;

pub use guard::{Control, LeaderState, Leadership, NotLeader, Peer};
