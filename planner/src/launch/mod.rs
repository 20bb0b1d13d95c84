//! The order in which containers of a pod are started: what a new pod is given for it, and which containers may start next.
//!
//! Every container waits for a key of a ConfigMap that is made for the pod: the kubelet starts it once the key is there. The keys come one
//! by one, each when the containers before it are ready. Names and forms are OpenKruise's.

mod inject;
mod step;
#[cfg(test)]
mod tests;

pub use inject::{Refused, inject};
pub use step::{Step, barriers, step};

/// Annotation of a pod: `Ordered` starts its containers one after the other, as they are listed.
pub const PRIORITY: &str = "apps.kruise.io/container-launch-priority";
/// The value.
pub const ORDERED: &str = "Ordered";
/// Annotation of a pod: nothing is left to be done for it.
pub const COMPLETED: &str = "apps.kruise.io/container-launch-priority-completed";

/// Name of a pod's ConfigMap.
#[must_use]
pub fn config_map(pod: &str) -> String {
    format!("{pod}-barrier")
}

/// Key of a priority.
#[must_use]
pub fn key(priority: i32) -> String {
    format!("p_{priority}")
}

/// Priority of a key: what follows its first two characters, 0 when that is no number.
#[must_use]
pub fn priority_of(key: &str) -> i32 {
    let number: String = key.chars().skip(2).collect();
    number.parse().unwrap_or(0)
}
