//! CloneSet: a number of equal pods that can be updated in place.
//!
//! [`CloneSet`] is v1beta1, the version that is stored and that everything inside works with; [`v1alpha1`] is the older form, and
//! [`convert`] goes between the two without loss.

pub mod convert;
pub mod defaults;
pub mod limit;
pub mod names;
pub mod restart;
mod spec;
mod status;
mod strategy;
pub mod v1alpha1;
pub mod validation;

pub use spec::{
    CloneSet, CloneSetSpec, DEFAULT_REPLICAS, DEFAULT_REVISION_HISTORY_LIMIT, Lifecycle, LifecycleHook,
    NO_PROGRESS_DEADLINE, ScaleStrategy, TemplateError,
};
pub use status::{CloneSetCondition, CloneSetStatus, RestartStatus, conditions, reasons};
pub use strategy::{
    DEFAULT_MAX_UNAVAILABLE, InPlaceUpdateStrategy, OrderPriority, PriorityStrategy, RollingUpdate,
    ScatterTerm, UpdatePolicy, UpdateStrategy, WeightPriority, policies, types,
};

#[cfg(test)]
mod tests;
