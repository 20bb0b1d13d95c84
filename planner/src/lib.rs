//! Every decision of the system, as pure functions over snapshots.
//!
//! Nothing here does IO, reads a clock, draws random numbers or depends on hash order: time and generators are arguments. The
//! same snapshot therefore gives the same plan, in a test, in `kruisectl` and in production.
//!
//! - [`cloneset`]: which pods of a CloneSet to create, delete and update, and why no more.
//! - [`image_list_job`]: which jobs an ImageListPullJob needs, and how it stands.
//! - [`inplace`]: whether a pod can be changed in place, what to write to it, and whether it is done.
//! - [`job`]: which nodes of an ImagePullJob get an order now, what its status says, when to look again.
//! - [`launch`]: the order in which containers of a pod are started.
//! - [`letters`]: the letters of names that are made up.
//! - [`lease`]: leader election, as steps over observations of the Lease.
//! - [`node_image`]: which tags of a NodeImage are requests, and how they are answered.
//! - [`node`]: what an agent may do: fencing, contact lease, retries, reasons of failures, bytes.
//! - [`revision`]: bytes, hash and name of a template's ControllerRevision.

#![warn(missing_docs)]

pub mod cloneset;
pub mod image_list_job;
pub mod inplace;
pub mod job;
pub mod launch;
pub mod lease;
pub mod letters;
pub mod node;
pub mod node_image;
pub mod restart;
pub mod revision;
pub mod task;

#[cfg(test)]
mod model;
