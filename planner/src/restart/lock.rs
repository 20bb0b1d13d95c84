//! The readiness lock of a pod: condition KruisePodReady is False while its message names at least one holder.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kruise_api::container_recreate_request::keys;
use serde::{Deserialize, Serialize};

/// Reason that the kubelet gives for a pod whose gates are not open.
const NOT_READY_REASON: &str = "ReadinessGatesNotReady";

/// Who keeps a pod out of service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Holder {
    /// Kind of the holder.
    #[serde(rename = "userAgent")]
    pub user_agent: String,
    /// Which one: `NAMESPACE/NAME`.
    pub key: String,
}

impl Holder {
    /// A request.
    #[must_use]
    pub fn request(key: impl Into<String>) -> Self {
        Self {
            user_agent: keys::LOCK_AGENT.to_owned(),
            key: key.into(),
        }
    }
}

/// Whether the pod can be taken out of service.
#[must_use]
pub fn has_gate(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.readiness_gates.as_ref());
    gates
        .into_iter()
        .flatten()
        .any(|gate| gate.condition_type == keys::POD_READY)
}

/// Who holds the pod.
#[must_use]
pub fn holders(pod: &Pod) -> Vec<Holder> {
    condition(pod, keys::POD_READY)
        .and_then(|condition| condition.message.as_deref())
        .and_then(|message| serde_json::from_str(message).ok())
        .unwrap_or_default()
}

/// Whether this holder keeps the pod out of service.
#[must_use]
pub fn is_held_by(pod: &Pod, holder: &Holder) -> bool {
    let is_true = condition(pod, keys::POD_READY).is_some_and(|condition| condition.status == "True");
    !is_true && holders(pod).contains(holder)
}

/// All conditions of the pod with this holder added; none if it has no gate, or is held by it already.
#[must_use]
pub fn acquire(pod: &Pod, holder: &Holder, now: Timestamp) -> Option<Vec<PodCondition>> {
    if !has_gate(pod) || is_held_by(pod, holder) {
        return None;
    }
    let mut held = holders(pod);
    held.push(holder.clone());
    let mut conditions = write(pod, held, now);
    // The kubelet does the same a moment later; until then the pod would go on being served.
    let containers_ready = conditions
        .iter()
        .any(|condition| condition.type_ == "ContainersReady" && condition.status == "True");
    if containers_ready {
        set(&mut conditions, "Ready", "False", now, |ready| {
            ready.reason = Some(NOT_READY_REASON.to_owned());
        });
    }
    Some(conditions)
}

/// All conditions of the pod without this holder; none if it does not hold it.
#[must_use]
pub fn release(pod: &Pod, holder: &Holder, now: Timestamp) -> Option<Vec<PodCondition>> {
    let held = holders(pod);
    if !has_gate(pod) || !held.contains(holder) {
        return None;
    }
    Some(write(
        pod,
        held.into_iter().filter(|other| other != holder).collect(),
        now,
    ))
}

fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == kind)
}

fn write(pod: &Pod, mut held: Vec<Holder>, now: Timestamp) -> Vec<PodCondition> {
    held.sort();
    held.dedup();
    let status = if held.is_empty() { "True" } else { "False" };
    let message = serde_json::to_string(&held).expect("holders are text");
    let mut conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.clone())
        .unwrap_or_default();
    set(&mut conditions, keys::POD_READY, status, now, |condition| {
        condition.message = Some(message);
    });
    conditions
}

fn set(
    conditions: &mut Vec<PodCondition>,
    kind: &str,
    status: &str,
    now: Timestamp,
    change: impl FnOnce(&mut PodCondition),
) {
    let index = conditions.iter().position(|condition| condition.type_ == kind);
    let index = index.unwrap_or_else(|| {
        conditions.push(PodCondition {
            type_: kind.to_owned(),
            ..PodCondition::default()
        });
        conditions.len() - 1
    });
    let condition = &mut conditions[index];
    if condition.status != status {
        status.clone_into(&mut condition.status);
        condition.last_transition_time = Some(Time(now));
    }
    change(condition);
}
