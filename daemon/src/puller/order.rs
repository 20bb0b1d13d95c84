//! Orders as the agent understands them.

use std::collections::BTreeMap;
use std::time::Duration;

use kruise_api::ids::TaskId;
use kruise_planner::node::attempt::Limits;
use kruise_planner::node::guard::Guard;
use kruise_proto::convert;
use kruise_proto::dispatch::{self, pull_image};
use serde::{Deserialize, Serialize};

/// Longest trace that is carried through. W3C's form has 55 characters.
const MAX_TRACEPARENT: usize = 64;

/// When to fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Policy {
    /// Unless the image is present.
    IfNotPresent,
    /// In any case.
    Always,
}

/// What to do, without how to log in: this part may be written to disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// As ordered; it may be no reference at all.
    pub image: String,
    /// When to fetch.
    pub policy: Policy,
    /// How often and how long.
    pub limits: Limits,
    /// Go into the sandbox config of the runtime's call.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Go into the sandbox config of the runtime's call.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// For people, and for taking turns.
    #[serde(default)]
    pub requested_by: String,
    /// The trace that the pull is a part of, as W3C's `traceparent`; empty if nobody traces it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub traceparent: String,
    /// What of the order may change while the task is held.
    #[serde(default)]
    pub terms: Terms,
}

/// What may change while a task is held, beside its limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// Higher first.
    pub priority: u32,
    /// Among equals, lower first.
    pub queue_time: i64,
    /// Most compressed bytes; 0 is any size.
    pub max_size: u64,
    /// Space to be left free; without it nobody looks.
    pub guard: Option<Guard>,
    /// How long the image is kept from the kubelet's image collection after the end.
    pub pin_for: Option<Duration>,
}

/// One order.
#[derive(Clone, Debug)]
pub struct Order {
    /// Of the task.
    pub id: TaskId,
    /// None if the kind of work is one of a newer manager.
    pub work: Option<Work>,
    /// In the order to be tried. `Debug` shows nothing of them.
    pub credentials: Vec<dispatch::Credential>,
}

impl From<dispatch::Order> for Order {
    fn from(order: dispatch::Order) -> Self {
        let id = TaskId::new(order.task_id);
        match order.work {
            Some(dispatch::order::Work::PullImage(pull)) => {
                let (work, credentials) = read(pull);
                Self {
                    id,
                    work: Some(work),
                    credentials,
                }
            }
            // Restarts of containers go elsewhere; other kinds are those of a newer manager.
            Some(dispatch::order::Work::RestartContainers(_)) | None => Self {
                id,
                work: None,
                credentials: Vec::new(),
            },
        }
    }
}

fn read(pull: dispatch::PullImage) -> (Work, Vec<dispatch::Credential>) {
    let policy = match pull.policy() {
        pull_image::Policy::Unspecified | pull_image::Policy::IfNotPresent => Policy::IfNotPresent,
        pull_image::Policy::Always => Policy::Always,
    };
    let duration =
        |duration: Option<prost_types::Duration>| duration.as_ref().and_then(convert::from_duration);
    let limits = Limits::new(
        duration(pull.attempt_timeout),
        pull.backoff_limit,
        duration(pull.deadline),
    );
    let terms = Terms {
        priority: pull.priority,
        queue_time: pull.queue_time,
        max_size: pull.max_size_bytes,
        guard: pull.disk_guard.map(guard),
        pin_for: duration(pull.pin_for).filter(|time| !time.is_zero()),
    };
    let work = Work {
        image: pull.image,
        policy,
        limits,
        labels: pull.sandbox_labels.into_iter().collect(),
        annotations: pull.sandbox_annotations.into_iter().collect(),
        requested_by: pull.requested_by,
        traceparent: Some(pull.traceparent)
            .filter(|text| text.len() <= MAX_TRACEPARENT)
            .unwrap_or_default(),
        terms,
    };
    (work, pull.credentials)
}

fn guard(guard: dispatch::DiskGuard) -> Guard {
    let dispatch::DiskGuard {
        min_free_bytes,
        min_free_percent,
        unpack_percent,
    } = guard;
    Guard {
        min_free_bytes,
        min_free_percent,
        unpack_percent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_with_nothing_in_it_gets_the_defaults() {
        let order = dispatch::Order {
            task_id: "t".into(),
            work: Some(dispatch::order::Work::PullImage(dispatch::PullImage::default())),
        };
        let work = Order::from(order).work.expect("a pull");
        assert_eq!(work.policy, Policy::IfNotPresent);
        assert_eq!(work.limits, Limits::new(None, 0, None));
        assert_eq!(work.limits.attempt_timeout, Duration::from_secs(600));
        assert_eq!(work.terms, Terms::default());
    }

    #[test]
    fn terms_are_read() {
        let order = dispatch::Order {
            task_id: "t".into(),
            work: Some(dispatch::order::Work::PullImage(dispatch::PullImage {
                priority: 100,
                queue_time: 7,
                max_size_bytes: 9,
                disk_guard: Some(dispatch::DiskGuard {
                    min_free_bytes: 1,
                    min_free_percent: 2,
                    unpack_percent: 3,
                }),
                pin_for: Some(prost_types::Duration {
                    seconds: 60,
                    nanos: 0,
                }),
                ..Default::default()
            })),
        };
        let terms = Order::from(order).work.expect("a pull").terms;
        let want = Terms {
            priority: 100,
            queue_time: 7,
            max_size: 9,
            guard: Some(Guard {
                min_free_bytes: 1,
                min_free_percent: 2,
                unpack_percent: 3,
            }),
            pin_for: Some(Duration::from_secs(60)),
        };
        assert_eq!(terms, want);
    }

    #[test]
    fn work_of_a_newer_manager_is_seen_as_such() {
        assert!(
            Order::from(dispatch::Order {
                task_id: "t".into(),
                work: None
            })
            .work
            .is_none()
        );
    }
}
