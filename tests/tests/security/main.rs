//! Forged identities, hostile clients and secrets that must not leak, on a real cluster, one after the other.
#![allow(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests measure real time, tell figures, and end where a promise is broken"
)]

mod call;
mod canary;
mod cut_off;
mod forge;
mod ghost;
mod hostile;
mod leader;
mod matrix;
mod wire;
