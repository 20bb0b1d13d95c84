//! Lifecycle hooks: who holds a pod, and what changes with its state.

use jiff::Timestamp;
use kruise_api::clone_set::{LifecycleHook, names};

use super::action::{PodConditionPatch, PodPatch};
use super::pod::{LifecycleState, NotReadyKey, PodView};

/// Whether a hook holds a pod: any of its finalizers is there or any of its labels has exactly the value.
pub(super) fn is_hooked(hook: Option<&LifecycleHook>, pod: &PodView) -> bool {
    hook.is_some_and(|hook| {
        hook.finalizers_handler
            .iter()
            .any(|finalizer| pod.finalizers.contains(finalizer))
            || hook
                .labels_handler
                .iter()
                .any(|(key, value)| pod.labels.has(key, value))
    })
}

/// Whether all of a hook is there: true for one without handlers, false for none.
pub(super) fn is_all_hooked(hook: Option<&LifecycleHook>, pod: &PodView) -> bool {
    hook.is_some_and(|hook| {
        hook.finalizers_handler
            .iter()
            .all(|finalizer| pod.finalizers.contains(finalizer))
            && hook
                .labels_handler
                .iter()
                .all(|(key, value)| pod.labels.has(key, value))
    })
}

/// A time as Kubernetes writes it: UTC, whole seconds.
pub(super) fn rfc3339(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

impl PodPatch {
    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn state(&mut self, state: LifecycleState, stamp: &str) {
        self.lifecycle_state = Some(state.label());
        self.labels
            .insert(names::LIFECYCLE_STATE.to_owned(), Some(state.label().to_owned()));
        self.annotations
            .insert(names::LIFECYCLE_TIMESTAMP.to_owned(), Some(stamp.to_owned()));
    }

    /// Puts a hook's labels and finalizers on the pod again.
    pub(super) fn put_back(&mut self, hook: &LifecycleHook, pod: &PodView) {
        let missing = hook
            .labels_handler
            .iter()
            .filter(|(key, value)| !pod.labels.has(key, value));
        self.labels
            .extend(missing.map(|(key, value)| (key.clone(), Some(value.clone()))));
        let finalizers = hook
            .finalizers_handler
            .iter()
            .filter(|name| !pod.finalizers.contains(name));
        self.finalizers.extend(finalizers.cloned());
    }

    /// Holds the pod not ready under a key, if it has the gate for that.
    pub(super) fn hold_not_ready(&mut self, pod: &PodView, key: NotReadyKey) {
        if !pod.kruise_gate || pod.not_ready_keys.contains(&key) {
            return;
        }
        let mut keys = pod.not_ready_keys.clone();
        keys.push(key);
        self.pod_ready(keys);
        if pod.ready != super::pod::Readiness::Absent && pod.containers_ready {
            self.conditions.push(PodConditionPatch {
                kind: "Ready",
                status: "False",
                reason: "ReadinessGatesNotReady",
                message: String::new(),
            });
        }
    }

    /// Takes a key away again, whatever the hooks say now: one that stays would keep the pod from ever being ready.
    pub(super) fn let_ready(&mut self, pod: &PodView, key: &NotReadyKey) {
        if !pod.not_ready_keys.contains(key) {
            return;
        }
        let keys = pod
            .not_ready_keys
            .iter()
            .filter(|held| *held != key)
            .cloned()
            .collect();
        self.pod_ready(keys);
    }

    /// A pod with the gate is ready for the first time once somebody says so.
    pub(super) fn begin_ready(&mut self, pod: &PodView) {
        let told = |patch: &PodConditionPatch| patch.kind == names::KRUISE_POD_READY;
        if pod.kruise_gate && pod.kruise_ready.is_none() && !self.conditions.iter().any(told) {
            self.pod_ready(pod.not_ready_keys.clone());
        }
    }

    fn pod_ready(&mut self, mut keys: Vec<NotReadyKey>) {
        keys.sort();
        keys.dedup();
        let message = if keys.is_empty() {
            String::new()
        } else {
            serde_json::to_string(&keys).unwrap_or_default()
        };
        self.conditions.push(PodConditionPatch {
            kind: names::KRUISE_POD_READY,
            status: if keys.is_empty() { "True" } else { "False" },
            reason: "",
            message,
        });
    }

    /// Labels to set, for those who want one of a certain key.
    pub(super) fn set_label(&mut self, key: &str, value: &str) {
        self.labels.insert(key.to_owned(), Some(value.to_owned()));
    }
}
