//! Listeners: gRPC over TLS, and plain HTTP for the kubelet and Prometheus.
//!
//! # What a stranger can do
//! Open a connection, finish a TLS handshake within 5 s, send requests, and be told UNAUTHENTICATED. A connection on which no
//! request was authenticated is closed after 8 s, and one second after its first refusal. Handshakes and
//! connections are bounded: addresses get their turns at handshakes one after the other, however many connections each of them opens, and when
//! too many connections make us wait, the oldest of those goes.
//!
//! A connection that makes hundreds of calls a second, or whose agent breaks the protocol, is closed however good its token.
//!
//! Health and reflection want a token as well. The agents' and people's services verify theirs themselves, before they answer.

mod accept;
mod auth;
mod connection;
mod failures;
pub mod grpc;
mod http;
mod services;
mod turns;

pub use accept::Limits;
pub use connection::PeerInfo;
pub use http::{Check, Health, serve_http};
pub use services::{Reporter, ServingStatus, common_services};
