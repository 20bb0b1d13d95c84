//! CloneSets, with real pods: every promise about pods is judged by a witness that sees each version of each of them.

mod claims;
mod downtime;
mod hooks;
mod pull_gate;
mod restarts;
mod scaling;
mod updates;

use std::time::Duration;

const TWO_MINUTES: Duration = Duration::from_secs(120);
