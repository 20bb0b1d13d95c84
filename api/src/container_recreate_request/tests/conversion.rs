//! Both versions say the same.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;

use super::super::conversion::{grace_condition, to_v1alpha1, to_v1beta1};
use super::super::*;

fn phase() -> impl Strategy<Value = Phase> {
    prop::sample::select(vec![
        Phase::Pending,
        Phase::Recreating,
        Phase::Succeeded,
        Phase::Failed,
        Phase::Completed,
    ])
}

prop_compose! {
    fn state()(name in "[a-z]{1,8}", phase in phase(), message in "[ -~]{0,12}", is_killed: bool)
        -> ContainerRecreateState {
        ContainerRecreateState { name, phase, message, is_killed }
    }
}

prop_compose! {
    fn snapshot()(name in "[a-z]{1,8}", ready: bool, restart_count in 0..9_i32, id in "[a-f0-9]{0,8}")
        -> ContainerSnapshot {
        ContainerSnapshot { name, ready, restart_count, container_id: id }
    }
}

prop_compose! {
    fn status()(
        phase in phase(),
        completed in prop::option::of(0..4_000_000_000_i64),
        message in prop::option::of("[ -~]{1,12}"),
        states in prop::collection::vec(state(), 0..4),
        snapshots in prop::collection::vec(snapshot(), 0..4),
        drained in prop::option::of(0..4_000_000_000_i64),
    ) -> ContainerRecreateRequestStatus {
        let time = |second| Timestamp::from_second(second).expect("in range");
        ContainerRecreateRequestStatus {
            phase,
            completion_time: completed.map(|second| Time(time(second))),
            message,
            container_recreate_states: states,
            container_status_snapshot: snapshots,
            conditions: drained.map(|second| grace_condition(time(second))).into_iter().collect(),
        }
    }
}

prop_compose! {
    fn request()(
        name in "[a-z]{1,8}",
        annotations in prop::collection::btree_map("[a-z]{1,8}", "[ -~]{0,8}", 0..3),
        pod in "[a-z]{1,8}",
        containers in prop::collection::vec("[a-z]{1,8}", 1..4),
        ordered: bool,
        deadline in prop::option::of(3..100_i64),
        status in prop::option::of(status()),
    ) -> ContainerRecreateRequest {
        let container = |name| RecreateContainer { name, ..RecreateContainer::default() };
        let mut request = ContainerRecreateRequest::new(&name, ContainerRecreateRequestSpec {
            pod_name: pod,
            containers: containers.into_iter().map(container).collect(),
            strategy: Some(RecreateStrategy { ordered_recreate: ordered, ..RecreateStrategy::default() }),
            active_deadline_seconds: deadline,
            ttl_seconds_after_finished: None,
        });
        request.metadata.annotations = Some(annotations);
        request.status = status;
        request
    }
}

proptest! {
    /// What the newer version says survives the way to the older one and back, but for annotations that then stand beside the fields.
    #[test]
    fn round_trip(request in request()) {
        let mut back = to_v1beta1(to_v1alpha1(request.clone()));
        let annotations = back.metadata.annotations.as_mut().expect("kept");
        annotations.remove(keys::SYNC_CONTAINER_STATUSES);
        annotations.remove(keys::UNREADY_ACQUIRED);
        prop_assert_eq!(back, request);
    }

    /// The older version survives as it is: nothing of it is rewritten.
    #[test]
    fn round_trip_of_the_older_version(request in request()) {
        let older = to_v1alpha1(request);
        prop_assert_eq!(to_v1alpha1(to_v1beta1(older.clone())), older);
    }

    /// Whatever text stands in an annotation stays there, and only what can be read becomes a field.
    #[test]
    fn odd_annotations_do_no_harm(text in "[ -~]{0,16}") {
        let mut older = to_v1alpha1(super::running());
        let annotations = older.metadata.annotations.get_or_insert_default();
        annotations.insert(keys::SYNC_CONTAINER_STATUSES.to_owned(), text.clone());
        annotations.insert(keys::UNREADY_ACQUIRED.to_owned(), text.clone());
        let newer = to_v1beta1(older);
        prop_assert_eq!(newer.metadata.annotations.expect("kept")[keys::UNREADY_ACQUIRED].clone(), text);
    }
}

#[test]
fn annotations_of_the_older_version_are_fields_of_the_newer() {
    let mut older = to_v1alpha1(super::running());
    let annotations = older.metadata.annotations.get_or_insert_default();
    annotations.insert(
        keys::SYNC_CONTAINER_STATUSES.to_owned(),
        r#"[{"name":"main","ready":true,"restartCount":2,"containerID":"containerd://45dc"}]"#.to_owned(),
    );
    annotations.insert(
        keys::UNREADY_ACQUIRED.to_owned(),
        "2026-11-30T16:58:15Z".to_owned(),
    );
    let status = to_v1beta1(older).status.expect("a status");
    assert_eq!(
        status.container_status_snapshot[0].container_id,
        "containerd://45dc"
    );
    let grace = status.drained_since().expect("drained");
    assert_eq!(grace.last_transition_time.0.to_string(), "2026-11-30T16:58:15Z");
    assert_eq!(
        grace.message,
        "Pod has been forced to not-ready for unreadyGracePeriodSeconds drain"
    );
}
