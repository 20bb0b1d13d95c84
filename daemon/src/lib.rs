//! The node agent: pulls images over CRI on the order of the manager, and reports true bytes.
//!
//! It has no Kubernetes rights and no Kubernetes client; all it knows of the cluster comes over one stream to the manager.
//!
//! ```text
//!   manager ◀── session (dials, fence, contact lease) ──▶ puller (tasks, journal) ──▶ runtime (CRI, content store)
//!                                                            │
//!                     node service (unix socket), http ◀── board, view, metrics
//! ```
//!
//! Every task of the process: the session (run by `run`), the engine of [`puller`] with one worker per task in work, the
//! supervisor of [`runtime`], and the two servers. All channels between them are bounded, or hold only the latest state.

pub mod agent;
pub mod args;
pub mod clock;
pub mod credentials;
mod errors;
pub mod http;
pub mod journal;
pub mod logs;
pub mod metrics;
pub mod node_api;
mod progress;
pub mod puller;
pub mod restart;
pub mod run;
pub mod runtime;
pub mod session;
