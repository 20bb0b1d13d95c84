//! Between v1alpha1 and v1beta1. Metadata travel as they are; two annotations of the older version are fields of the newer one.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::{ContainerRecreateRequest, ContainerRecreateRequestStatus, ContainerSnapshot, Phase};
use super::{conditions, keys, v1alpha1};

/// Text of the condition that stands for the annotation.
const GRACE_MESSAGE: &str = "Pod has been forced to not-ready for unreadyGracePeriodSeconds drain";

/// The condition PreRecreateGrace, true since then.
#[must_use]
pub fn grace_condition(since: Timestamp) -> Condition {
    Condition {
        type_: conditions::PRE_RECREATE_GRACE.to_owned(),
        status: "True".to_owned(),
        reason: conditions::PRE_RECREATE_GRACE.to_owned(),
        message: GRACE_MESSAGE.to_owned(),
        last_transition_time: Time(since),
        observed_generation: None,
    }
}

/// To the stored version. What an annotation says that cannot be read is left out; its text stays.
#[must_use]
pub fn to_v1beta1(older: v1alpha1::ContainerRecreateRequest) -> ContainerRecreateRequest {
    let annotation = |key| {
        let annotations = older.metadata.annotations.as_ref()?;
        annotations.get(key).filter(|text| !text.is_empty())
    };
    let snapshot: Vec<ContainerSnapshot> = annotation(keys::SYNC_CONTAINER_STATUSES)
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let grace = annotation(keys::UNREADY_ACQUIRED)
        .and_then(|text| text.parse::<Timestamp>().ok())
        .map(grace_condition);
    let status = older.status.map(|status| ContainerRecreateRequestStatus {
        phase: status.phase,
        completion_time: status.completion_time,
        message: status.message,
        container_recreate_states: status.container_recreate_states,
        container_status_snapshot: Vec::new(),
        conditions: Vec::new(),
    });
    let told = !snapshot.is_empty() || grace.is_some();
    let status = status
        .or_else(|| told.then(|| ContainerRecreateRequestStatus::new(Phase::Pending)))
        .map(|status| ContainerRecreateRequestStatus {
            container_status_snapshot: snapshot,
            conditions: grace.into_iter().collect(),
            ..status
        });
    ContainerRecreateRequest {
        metadata: older.metadata,
        spec: older.spec,
        status,
    }
}

/// To the older version. Conditions but PreRecreateGrace have no place there.
#[must_use]
pub fn to_v1alpha1(newer: ContainerRecreateRequest) -> v1alpha1::ContainerRecreateRequest {
    let mut metadata = newer.metadata;
    let Some(status) = newer.status else {
        return v1alpha1::ContainerRecreateRequest {
            metadata,
            spec: newer.spec,
            status: None,
        };
    };
    if !status.container_status_snapshot.is_empty() {
        let text = serde_json::to_string(&status.container_status_snapshot)
            .expect("a snapshot holds text, numbers and flags only");
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.insert(keys::SYNC_CONTAINER_STATUSES.to_owned(), text);
    }
    if let Some(grace) = status.drained_since() {
        let text = whole_seconds(grace.last_transition_time.0);
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.insert(keys::UNREADY_ACQUIRED.to_owned(), text);
    }
    let status = v1alpha1::ContainerRecreateRequestStatus {
        phase: status.phase,
        completion_time: status.completion_time,
        message: status.message,
        container_recreate_states: status.container_recreate_states,
    };
    v1alpha1::ContainerRecreateRequest {
        metadata,
        spec: newer.spec,
        status: Some(status),
    }
}

/// As the API server writes times.
fn whole_seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second())
        .unwrap_or(time)
        .to_string()
}
