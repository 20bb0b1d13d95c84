//! End to end on a real cluster, side by side: each test in a namespace of its own, none of them disturbing the others.
#![allow(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests measure real time, tell figures, and end where a promise is broken"
)]

mod bad_input;
mod budget;
mod cancel;
mod clone_set;
mod identity;
mod inspection;
mod jobs;
#[path = "../judge.rs"]
mod judge;
mod launch_order;
mod list_job;
mod long_download;
mod neighbours;
mod node_image;
mod private_registry;
mod restart;
mod restart_workload;
mod rights;
mod window;
