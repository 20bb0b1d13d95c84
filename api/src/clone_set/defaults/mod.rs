//! Defaults, as the mutating webhook sets them.

mod template;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};

pub use template::{PullDefault, fill_template};

use super::strategy::{DEFAULT_MAX_UNAVAILABLE, policies, types};
use super::{
    CloneSet, DEFAULT_REPLICAS, DEFAULT_REVISION_HISTORY_LIMIT, InPlaceUpdateStrategy, UpdatePolicy, v1alpha1,
};
use crate::features::FeatureGates;

/// What is done about the pod template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateDefaults {
    /// It stays as it was written.
    Leave,
    /// Kubernetes' defaults are filled in.
    Fill {
        /// Ports of a template in the host's network get the host port that Kubernetes gives them.
        host_ports: bool,
    },
}

impl TemplateDefaults {
    /// On an update only a template that changed is filled in: else an upgrade of this program could begin a rollout.
    #[must_use]
    pub fn of(gates: &FeatureGates, stored: Option<&Value>, template: &Value) -> Self {
        if gates.enabled("TemplateNoDefaults") || stored == Some(template) {
            return Self::Leave;
        }
        Self::Fill {
            host_ports: gates.enabled("DefaultHostNetworkHostPortsInPodTemplates"),
        }
    }

    fn apply(self, template: &mut Value, claims: Option<&mut Value>) {
        let Self::Fill { host_ports } = self else { return };
        fill_template(template, PullDefault::Always, host_ports);
        for claim in claims.and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(claim) = claim.as_object_mut() {
                let status = claim.entry("status").or_insert_with(|| json!({}));
                if let Some(status) = status.as_object_mut() {
                    status.entry("phase").or_insert_with(|| "Pending".into());
                }
            }
        }
    }
}

/// Sets what a v1beta1 set leaves out.
pub fn fill(set: &mut CloneSet, template: TemplateDefaults) {
    let spec = &mut set.spec;
    spec.replicas.get_or_insert(DEFAULT_REPLICAS);
    spec.revision_history_limit
        .get_or_insert(DEFAULT_REVISION_HISTORY_LIMIT);
    template.apply(&mut spec.template, spec.volume_claim_templates.as_mut());
    let update = &mut spec.update_strategy;
    if update.kind.is_empty() {
        types::ROLLING_UPDATE.clone_into(&mut update.kind);
    }
    if update.kind != types::ROLLING_UPDATE {
        return;
    }
    let rolling = update.rolling_update.get_or_insert_default();
    if rolling.pod_update_policy.is_empty() {
        policies::RE_CREATE.clone_into(&mut rolling.pod_update_policy);
    }
    limits(
        &mut rolling.partition,
        &mut rolling.max_unavailable,
        &mut rolling.max_surge,
    );
    in_place(&rolling.pod_update_policy, &mut rolling.in_place_update_strategy);
}

/// Sets what a v1alpha1 set leaves out.
pub fn fill_v1alpha1(set: &mut v1alpha1::CloneSet, template: TemplateDefaults) {
    let spec = &mut set.spec;
    spec.replicas.get_or_insert(DEFAULT_REPLICAS);
    spec.revision_history_limit
        .get_or_insert(DEFAULT_REVISION_HISTORY_LIMIT);
    template.apply(&mut spec.template, spec.volume_claim_templates.as_mut());
    let update = &mut spec.update_strategy;
    if update.kind.is_empty() {
        policies::RE_CREATE.clone_into(&mut update.kind);
    }
    limits(
        &mut update.partition,
        &mut update.max_unavailable,
        &mut update.max_surge,
    );
    in_place(&update.kind, &mut update.in_place_update_strategy);
}

fn limits(
    partition: &mut Option<IntOrString>,
    max_unavailable: &mut Option<IntOrString>,
    max_surge: &mut Option<IntOrString>,
) {
    partition.get_or_insert(IntOrString::Int(0));
    max_unavailable.get_or_insert_with(|| IntOrString::String(DEFAULT_MAX_UNAVAILABLE.to_owned()));
    max_surge.get_or_insert(IntOrString::Int(0));
}

fn in_place(policy: &str, strategy: &mut Option<InPlaceUpdateStrategy>) {
    if UpdatePolicy::named(policy).is_in_place() {
        strategy.get_or_insert_default();
    }
}

#[cfg(test)]
mod tests;
