//! A real Kubernetes cluster on one machine, and what tests need to drive it.
//!
//! [`cluster::Cluster`] brings a cluster up, attaches to one that is up and takes it down; every
//! component in it is a process that a test may stop, kill, pause and start again
//! ([`cluster::Component`]). Around it stand the observers and the saboteurs: the API server's audit log
//! as counters ([`audit`]), the runtime's event stream ([`events`]), a registry front that misbehaves on
//! request ([`registry::Front`]), a TCP proxy that does ([`net::TcpProxy`]), small file systems
//! ([`disk`]), and an image builder that needs no Docker ([`registry::ImageSpec`]).
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this crate measures real time on real processes; nothing here decides anything"
)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "test support: a broken test bed ends the test, loudly"
)]

pub mod audit;
pub mod bed;
pub mod cluster;
pub mod cmd;
mod container;
pub mod disk;
#[cfg(feature = "cluster")]
pub mod events;
pub mod fleet;
pub mod net;
pub mod node_login;
pub mod process;
#[cfg(feature = "cluster")]
pub mod product;
pub mod registry;
pub mod tools;
pub mod wait;

pub use cluster::{Cluster, Options};
pub use wait::wait_for;
