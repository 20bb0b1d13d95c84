//! Thousands of agents in one process, for measurements of the control plane.
//!
//! Each is the real agent's own code: session, fence, contact lease, puller. Only three things are played: the container runtime
//! ([`runtime`]), whose pulls take as long as the name of the image says ([`script`]) and whose containers come back a second after a stop, the
//! journal, which keeps nothing, and the address that it dials from. What goes over the wire is TLS, HTTP/2 and gRPC on real sockets.
//!
//! ```text
//!   cargo xtask bench ── Request, Answer (lines of JSON) ──▶ fleet agents ══ TLS, one connection per agent ══▶ kruise-manager
//!        │                                                                                              or ▶ fleet floor
//!        └── nodes, pods and tokens for them ([`nodes`], [`tokens`]) ──▶ API server
//! ```
//!
//! `fleet floor` is a server that speaks the same protocol and does nothing else: what it costs is what sockets, TLS and HTTP/2 cost, and a
//! manager cannot be better than that.

#[cfg(feature = "fleet")]
pub mod agents;
#[cfg(feature = "fleet")]
mod containers;
pub mod control;
#[cfg(feature = "fleet")]
pub mod floor;
pub mod kubelet;
pub mod nodes;
pub mod pods;
#[cfg(feature = "fleet")]
mod runtime;
mod script;
pub mod tokens;

pub use script::image;
