//! Series about each CloneSet, under the names of OpenKruise's own exporter, so that dashboards made for it go on.
//!
//! Only the leader follows sets, so only it has them.

use kruise_api::clone_set::{CloneSet, UpdatePolicy, conditions};
use kruise_planner::cloneset::Limits;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// What a condition may be; each is a series, and the one that holds is 1.
const STATUSES: [&str; 3] = ["true", "false", "unknown"];

const POLICIES: [UpdatePolicy; 3] = [
    UpdatePolicy::ReCreate,
    UpdatePolicy::InPlaceIfPossible,
    UpdatePolicy::InPlaceOnly,
];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Set {
    namespace: String,
    cloneset: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Condition {
    namespace: String,
    cloneset: String,
    condition: String,
    status: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Strategy {
    namespace: String,
    cloneset: String,
    r#type: &'static str,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Series {
    created: Family<Set, Gauge>,
    labels: Family<Set, Gauge>,
    generation: Family<Set, Gauge>,
    wanted: Family<Set, Gauge>,
    strategy: Family<Strategy, Gauge>,
    partition: Family<Set, Gauge>,
    max_unavailable: Family<Set, Gauge>,
    max_surge: Family<Set, Gauge>,
    observed: Family<Set, Gauge>,
    replicas: Family<Set, Gauge>,
    available: Family<Set, Gauge>,
    unavailable: Family<Set, Gauge>,
    updated: Family<Set, Gauge>,
    ready: Family<Set, Gauge>,
    updated_ready: Family<Set, Gauge>,
    conditions: Family<Condition, Gauge>,
}

impl Series {
    #[rustfmt::skip]
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("kruise_cloneset_created", "When a CloneSet was created, in Unix seconds", self.created.clone());
        registry.register("kruise_cloneset_labels", "1 for each CloneSet", self.labels.clone());
        registry.register("kruise_cloneset_metadata_generation", "Generation of a CloneSet", self.generation.clone());
        registry.register("kruise_cloneset_spec_replicas", "Pods that are wanted", self.wanted.clone());
        registry.register("kruise_cloneset_spec_strategy_type", "1 for the way in which pods are updated", self.strategy.clone());
        registry.register("kruise_cloneset_spec_strategy_partition", "Pods that the partition keeps on the old revision", self.partition.clone());
        registry.register("kruise_cloneset_spec_strategy_rollingupdate_max_unavailable", "Most pods that an update may take out of service", self.max_unavailable.clone());
        registry.register("kruise_cloneset_spec_strategy_rollingupdate_max_surge", "Most pods above the wanted number during an update", self.max_surge.clone());
        registry.register("kruise_cloneset_status_observed_generation", "Generation that the status is about", self.observed.clone());
        registry.register("kruise_cloneset_status_replicas", "Pods", self.replicas.clone());
        registry.register("kruise_cloneset_status_replicas_available", "Pods that have been ready for minReadySeconds", self.available.clone());
        registry.register("kruise_cloneset_status_replicas_unavailable", "Pods that are not available", self.unavailable.clone());
        registry.register("kruise_cloneset_status_replicas_updated", "Pods on the update revision", self.updated.clone());
        registry.register("kruise_cloneset_status_replicas_ready", "Pods that are ready", self.ready.clone());
        registry.register("kruise_cloneset_status_replicas_updated_ready", "Pods on the update revision that are ready", self.updated_ready.clone());
        registry.register("kruise_cloneset_status_condition", "Conditions of a CloneSet", self.conditions.clone());
    }

    /// Brings the series of a set up to date.
    pub(super) fn put(&self, set: &CloneSet) {
        let labels = Set::of(set);
        let put = |family: &Family<Set, Gauge>, value: i64| {
            family.get_or_create(&labels).set(value);
        };
        let meta = &set.metadata;
        let created = meta.creation_timestamp.as_ref().map(|time| time.0.as_second());
        put(&self.created, created.unwrap_or_default());
        put(&self.labels, 1);
        put(&self.generation, meta.generation.unwrap_or_default());
        let limits = Limits::of(&set.spec);
        put(&self.wanted, limits.replicas);
        put(&self.partition, limits.partition);
        put(&self.max_unavailable, limits.max_unavailable);
        put(&self.max_surge, limits.max_surge);
        let policy = set.spec.update_strategy.policy();
        for known in POLICIES {
            let strategy = labels.strategy(known);
            if known == policy {
                self.strategy.get_or_create(&strategy).set(1);
            } else {
                self.strategy.remove(&strategy);
            }
        }
        let status = set.status.clone().unwrap_or_default();
        put(&self.observed, status.observed_generation.unwrap_or_default());
        put(&self.replicas, status.replicas.into());
        put(&self.available, status.available_replicas.into());
        put(
            &self.unavailable,
            (status.replicas - status.available_replicas).max(0).into(),
        );
        put(&self.updated, status.updated_replicas.into());
        put(&self.ready, status.ready_replicas.into());
        put(&self.updated_ready, status.updated_ready_replicas.into());
        for condition in &status.conditions {
            for status in STATUSES {
                let holds = condition.status.eq_ignore_ascii_case(status);
                let labels = labels.condition(&condition.kind, status);
                self.conditions.get_or_create(&labels).set(i64::from(holds));
            }
        }
    }

    /// A set is gone.
    pub(super) fn gone(&self, namespace: &str, name: &str) {
        let labels = Set {
            namespace: namespace.to_owned(),
            cloneset: name.to_owned(),
        };
        for family in self.plain() {
            family.remove(&labels);
        }
        for policy in POLICIES {
            self.strategy.remove(&labels.strategy(policy));
        }
        for condition in [
            conditions::FAILED_SCALE,
            conditions::FAILED_UPDATE,
            conditions::PROGRESSING,
        ] {
            for status in STATUSES {
                self.conditions.remove(&labels.condition(condition, status));
            }
        }
    }

    /// No set is followed.
    pub(super) fn clear(&self) {
        for family in self.plain() {
            family.clear();
        }
        self.strategy.clear();
        self.conditions.clear();
    }

    fn plain(&self) -> [&Family<Set, Gauge>; 14] {
        [
            &self.created,
            &self.labels,
            &self.generation,
            &self.wanted,
            &self.partition,
            &self.max_unavailable,
            &self.max_surge,
            &self.observed,
            &self.replicas,
            &self.available,
            &self.unavailable,
            &self.updated,
            &self.ready,
            &self.updated_ready,
        ]
    }
}

impl Set {
    fn of(set: &CloneSet) -> Self {
        Self {
            namespace: set.metadata.namespace.clone().unwrap_or_default(),
            cloneset: set.metadata.name.clone().unwrap_or_default(),
        }
    }

    fn strategy(&self, policy: UpdatePolicy) -> Strategy {
        Strategy {
            namespace: self.namespace.clone(),
            cloneset: self.cloneset.clone(),
            r#type: policy.name(),
        }
    }

    fn condition(&self, condition: &str, status: &'static str) -> Condition {
        Condition {
            namespace: self.namespace.clone(),
            cloneset: self.cloneset.clone(),
            condition: condition.to_owned(),
            status,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set() -> CloneSet {
        let object = json!({
            "metadata": {"name": "web", "namespace": "shop", "generation": 3, "creationTimestamp": "1970-01-01T00:01:40Z"},
            "spec": {"replicas": 10, "selector": {}, "template": {}, "updateStrategy": {"rollingUpdate": {
                "partition": "50%", "maxUnavailable": 2, "podUpdatePolicy": "InPlaceIfPossible"}}},
            "status": {"observedGeneration": 2, "replicas": 10, "availableReplicas": 7, "readyReplicas": 8, "updatedReplicas": 5,
                "updatedReadyReplicas": 4, "conditions": [{"type": "Progressing", "status": "True"}]}});
        serde_json::from_value(object).expect("a set")
    }

    fn lines(registry: &Registry) -> Vec<String> {
        let mut text = String::new();
        prometheus_client::encoding::prometheus_text::encode(&mut text, registry).expect("text");
        text.lines()
            .filter(|line| !line.starts_with('#'))
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn each_set_has_its_series_until_it_is_gone() {
        let (series, mut registry) = (Series::default(), Registry::default());
        series.register(&mut registry);
        series.put(&set());
        let told = lines(&registry);
        let of = r#"{namespace="shop",cloneset="web"}"#;
        for (name, value) in [
            ("created", 100),
            ("labels", 1),
            ("metadata_generation", 3),
            ("spec_replicas", 10),
            ("spec_strategy_partition", 5),
            ("spec_strategy_rollingupdate_max_unavailable", 2),
            ("spec_strategy_rollingupdate_max_surge", 0),
            ("status_observed_generation", 2),
            ("status_replicas", 10),
            ("status_replicas_available", 7),
            ("status_replicas_unavailable", 3),
            ("status_replicas_updated", 5),
            ("status_replicas_ready", 8),
            ("status_replicas_updated_ready", 4),
        ] {
            let line = format!("kruise_cloneset_{name}{of} {value}");
            assert!(told.contains(&line), "{line}: {told:#?}");
        }
        for line in [
            r#"kruise_cloneset_spec_strategy_type{namespace="shop",cloneset="web",type="InPlaceIfPossible"} 1"#,
            r#"kruise_cloneset_status_condition{namespace="shop",cloneset="web",condition="Progressing",status="true"} 1"#,
            r#"kruise_cloneset_status_condition{namespace="shop",cloneset="web",condition="Progressing",status="false"} 0"#,
        ] {
            assert!(told.iter().any(|known| known == line), "{line}: {told:#?}");
        }
        series.gone("shop", "web");
        assert_eq!(lines(&registry), Vec::<String>::new());
        series.put(&set());
        series.clear();
        assert_eq!(lines(&registry), Vec::<String>::new());
    }
}
