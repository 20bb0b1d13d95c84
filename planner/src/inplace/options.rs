//! Switches that bear on changes in place.

use kruise_api::features::FeatureGates;

/// Switches that bear on changes in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Labels and annotations that a container reads by its environment restart it.
    pub env_from_metadata: bool,
    /// CPU and memory change in place.
    pub vertical_scaling: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            env_from_metadata: true,
            vertical_scaling: false,
        }
    }
}

impl Options {
    /// What the gates say.
    #[must_use]
    pub fn of(gates: &FeatureGates) -> Self {
        Self {
            // A container is restarted for its environment by the agent.
            env_from_metadata: gates.enabled("InPlaceUpdateEnvFromMetadata") && gates.enabled("KruiseDaemon"),
            vertical_scaling: gates.enabled("InPlaceWorkloadVerticalScaling"),
        }
    }
}
