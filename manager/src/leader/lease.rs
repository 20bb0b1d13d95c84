//! The Lease object to the planner's record and back.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kruise_api::ids::Epoch;
use kruise_api::names::{LEASE_ADDRESS, LEASE_EPOCH};
use kruise_planner::lease::{Purpose, Record, Seen, Write};
use kube::core::ObjectMeta;

use super::Peer;

/// What election needs of a Lease. Fields that are missing or make no sense read as empty or zero.
pub(super) fn seen(lease: &Lease) -> Seen {
    let spec = lease.spec.clone().unwrap_or_default();
    let annotation = |key: &str| lease.metadata.annotations.as_ref().and_then(|all| all.get(key));
    let seconds = spec
        .lease_duration_seconds
        .and_then(|seconds| u64::try_from(seconds).ok())
        .unwrap_or(0);
    Seen {
        version: lease.metadata.resource_version.clone().unwrap_or_default(),
        record: Record {
            holder: spec.holder_identity.unwrap_or_default(),
            duration: Duration::from_secs(seconds),
            epoch: Epoch(
                annotation(LEASE_EPOCH)
                    .and_then(|text| text.parse().ok())
                    .unwrap_or(0),
            ),
            address: annotation(LEASE_ADDRESS).cloned().unwrap_or_default(),
            transitions: spec.lease_transitions.unwrap_or(0),
        },
    }
}

/// The object that a write puts there: `base` (the latest version known) with the fields of election replaced, so that what others
/// wrote into it stays. The times are for people.
pub(super) fn written(
    base: Option<&Lease>,
    name: &str,
    namespace: &str,
    write: &Write,
    wall: Timestamp,
) -> Lease {
    let mut lease = base.cloned().unwrap_or_else(|| fresh(name, namespace));
    lease.metadata.managed_fields = None;
    lease.metadata.resource_version.clone_from(&write.precondition);
    let annotations = lease.metadata.annotations.get_or_insert_default();
    annotations.insert(LEASE_EPOCH.to_owned(), write.record.epoch.to_string());
    if write.record.address.is_empty() {
        annotations.remove(LEASE_ADDRESS);
    } else {
        annotations.insert(LEASE_ADDRESS.to_owned(), write.record.address.clone());
    }
    let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
    let seconds = i32::try_from(write.record.duration.as_secs()).unwrap_or(i32::MAX);
    spec.holder_identity = Some(write.record.holder.clone());
    spec.lease_duration_seconds = Some(seconds);
    spec.lease_transitions = Some(write.record.transitions);
    spec.renew_time = Some(MicroTime(wall));
    if write.purpose != Purpose::Renew {
        spec.acquire_time = Some(MicroTime(wall));
    }
    lease
}

/// The replica that a record names: the pod's name without the random part.
pub(super) fn peer(record: &Record) -> Peer {
    let name = record
        .holder
        .rsplit_once('_')
        .map_or(record.holder.as_str(), |(pod, _)| pod);
    Peer {
        name: name.to_owned(),
        address: record.address.clone(),
    }
}

fn fresh(name: &str, namespace: &str) -> Lease {
    let labels = [
        ("app.kubernetes.io/name", "kruise"),
        ("app.kubernetes.io/part-of", "kruise"),
    ];
    Lease {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            labels: Some(BTreeMap::from(
                labels.map(|(key, value)| (key.to_owned(), value.to_owned())),
            )),
            ..ObjectMeta::default()
        },
        spec: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(purpose: Purpose) -> Write {
        Write {
            precondition: Some("7".into()),
            purpose,
            record: Record {
                holder: "pod-a_00ff".into(),
                duration: Duration::from_secs(15),
                epoch: Epoch(1_700_000_000_000),
                address: "10.0.0.1:9877".into(),
                transitions: 2,
            },
        }
    }

    #[test]
    fn what_is_written_reads_the_same_and_keeps_what_others_wrote() {
        let mut base = fresh("l", "ns");
        base.metadata.annotations = Some(BTreeMap::from([("theirs".to_owned(), "x".to_owned())]));
        let first = Timestamp::UNIX_EPOCH;
        let lease = written(Some(&base), "l", "ns", &write(Purpose::Acquire), first);
        assert_eq!(
            seen(&lease),
            Seen {
                version: "7".into(),
                record: write(Purpose::Acquire).record
            }
        );
        assert_eq!(
            lease
                .metadata
                .annotations
                .as_ref()
                .and_then(|all| all.get("theirs"))
                .map(String::as_str),
            Some("x")
        );
        let later = Timestamp::from_second(60).expect("in range");
        let renewed = written(Some(&lease), "l", "ns", &write(Purpose::Renew), later);
        let spec = renewed.spec.expect("written");
        assert_eq!(
            (spec.acquire_time, spec.renew_time),
            (Some(MicroTime(first)), Some(MicroTime(later)))
        );
    }

    #[test]
    fn a_bare_lease_reads_as_held_by_nobody() {
        let record = seen(&Lease::default()).record;
        assert_eq!(
            (record.holder.as_str(), record.duration, record.epoch),
            ("", Duration::ZERO, Epoch(0))
        );
    }

    #[test]
    fn peers_are_pods() {
        assert_eq!(peer(&write(Purpose::Renew).record).name, "pod-a");
        assert_eq!(
            peer(&Record {
                holder: "plain".into(),
                ..write(Purpose::Renew).record
            })
            .name,
            "plain"
        );
    }
}
