//! Networks of a cluster: entering its namespaces, carrying bytes into them, breaking its links.

pub mod forward;
mod namespace;

pub use namespace::{in_namespace, spawn_in_namespace};
