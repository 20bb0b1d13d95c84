//! One request as the controller holds it.

use std::collections::BTreeSet;
use std::time::Duration;

use kruise_api::container_recreate_request::{ContainerRecreateRequest, keys};
use kruise_api::ids::{NodeName, ObjectKey};
use kruise_planner::restart::facts::{Step, TaskFacts};
use kruise_planner::restart::{Memory, OrderPlan};

use super::Now;
use crate::kubeapi::ApiFailure;

/// First and longest pause after a request that failed.
const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_LONGEST: Duration = Duration::from_secs(30);

/// See the module.
#[derive(Debug)]
pub(super) struct Entry {
    /// Its pod's name.
    pub(super) pod: ObjectKey,
    /// The newest version known: from the watch, or the answer to our own write.
    pub(super) object: ContainerRecreateRequest,
    pub(super) facts: Option<TaskFacts>,
    pub(super) memory: Memory,
    /// What the engine was told that a node shall hold.
    pub(super) ordered: Option<(NodeName, OrderPlan)>,
    /// Whether a request to the API server is under way.
    pub(super) busy: bool,
    pub(super) retry: Retry,
    /// Events that were told: container and reason.
    pub(super) told: BTreeSet<(Option<String>, &'static str)>,
    /// Whether its end has been counted.
    pub(super) counted: bool,
    /// Why nothing more happens, as of the last plan.
    pub(super) waiting: String,
}

/// Pause after requests that failed.
#[derive(Debug, Default)]
pub(super) struct Retry {
    failures: u32,
    until: Option<Duration>,
}

impl Retry {
    pub(super) fn failed(&mut self, error: &ApiFailure, now: Now) {
        let pause = (RETRY_FIRST * 2_u32.saturating_pow(self.failures.min(10))).min(RETRY_LONGEST);
        self.failures = self.failures.saturating_add(1);
        let wished = match error {
            ApiFailure::Unsure {
                retry_after: Some(wished),
                ..
            } => *wished,
            // A conflict is over as soon as the newest version is known.
            ApiFailure::Conflict => {
                self.until = Some(now.mono + RETRY_FIRST / 4);
                return;
            }
            _ => Duration::ZERO,
        };
        self.until = Some(now.mono + pause.max(wished));
    }

    /// Until when no request is made.
    pub(super) fn pause(&self, now: Now) -> Option<Duration> {
        self.until.filter(|until| *until > now.mono)
    }
}

impl Entry {
    pub(super) fn new(pod: ObjectKey, object: ContainerRecreateRequest, facts: Option<TaskFacts>) -> Self {
        let counted = object
            .status
            .as_ref()
            .is_some_and(|status| status.completion_time.is_some());
        Self {
            pod,
            object,
            facts,
            memory: Memory::default(),
            ordered: None,
            busy: false,
            retry: Retry::default(),
            told: BTreeSet::new(),
            counted,
            waiting: String::new(),
        }
    }

    /// Takes a version, unless a newer one is known. Versions are numbers that grow; texts that are no numbers count as new.
    pub(super) fn update(&mut self, object: ContainerRecreateRequest) {
        let number = |object: &ContainerRecreateRequest| -> Option<u64> {
            object.metadata.resource_version.as_ref()?.parse().ok()
        };
        let older = number(&object)
            .zip(number(&self.object))
            .is_some_and(|(new, known)| new < known);
        if !older {
            self.object = object;
        }
    }

    /// Takes what the agent says.
    pub(super) fn hear(&mut self, facts: TaskFacts, now: Now) {
        for container in &facts.containers {
            if container.has_begun() || matches!(container.step, Step::Stopped | Step::Running) {
                let seen = &mut self.memory.stop_seen;
                seen.entry(container.name.clone()).or_insert(now.mono);
            }
        }
        self.facts = Some(facts);
    }

    pub(super) fn is_over(&self) -> bool {
        let status = self.object.status.as_ref();
        status.is_some_and(|status| status.completion_time.is_some())
    }

    /// Whether nothing but its deletion in time will happen, for which no pod is needed.
    pub(super) fn is_settled(&self) -> bool {
        let meta = &self.object.metadata;
        let active = meta
            .labels
            .as_ref()
            .is_some_and(|labels| labels.contains_key(keys::ACTIVE));
        let locked = meta
            .finalizers
            .as_ref()
            .is_some_and(|all| all.iter().any(|name| name == keys::UNREADY_ACQUIRED));
        self.is_over() && !active && !locked
    }
}
