//! Networks of a cluster: entering its namespaces, carrying bytes into them, breaking its links.

pub mod forward;
mod hooks;
mod link;
mod namespace;
mod proxy;
mod stream;

pub use hooks::Hooks;
pub use namespace::{in_namespace, spawn_in_namespace};
pub use proxy::{Direction, TcpProxy};
