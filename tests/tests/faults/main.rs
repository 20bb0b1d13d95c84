//! Killed, paused and cut-off parts, on a real cluster, one after the other.
#![allow(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests measure real time, tell figures, and end where a promise is broken"
)]

mod agent_killed;
mod bad_objects;
mod clone_set;
mod cut_off;
mod disk_full;
mod foreign;
#[path = "../judge.rs"]
mod judge;
mod killed_at_writes;
mod leader_killed;
mod leader_stopped;
mod managers;
mod managers_away;
mod one_way;
mod registry_faults;
mod restart_killed;
mod runtime_away;
mod runtime_restart;
mod taken_over;
mod upgrade;

/// How often a fault is repeated: a few times normally, in full number in `cargo xtask test soak`.
fn rounds(normal: usize, soak: usize) -> usize {
    if std::env::var_os("KRUISE_SOAK").is_some() {
        soak
    } else {
        normal
    }
}

/// How long a fault lasts: ten minutes in `cargo xtask test soak`.
fn held(normal: std::time::Duration) -> std::time::Duration {
    if std::env::var_os("KRUISE_SOAK").is_some() {
        std::time::Duration::from_secs(600)
    } else {
        normal
    }
}
