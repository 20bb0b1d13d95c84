//! The controller over an API server in memory, with a kubelet that takes its time.

mod explain;
mod merge;
mod restarts;
mod rollouts;
mod seeds;
mod server;
mod traced;
mod trouble;
mod world;
