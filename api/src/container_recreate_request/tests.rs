mod admission;
mod conversion;

use super::*;

/// A request as OpenKruise stored it while it ran.
pub(super) fn running() -> ContainerRecreateRequest {
    serde_norway::from_str(
        "
apiVersion: apps.kruise.io/v1beta1
kind: ContainerRecreateRequest
metadata:
  name: crr
  namespace: vec
  labels:
    crr.apps.kruise.io/active: 'true'
    crr.apps.kruise.io/node-name: node3
    crr.apps.kruise.io/pod-uid: 38090446-e958-4469-865e-98614f04adfd
spec:
  podName: plain-pcb9w
  containers:
  - name: main
    statusContext:
      containerID: containerd://e8df21b314cba8ed
      restartCount: 1
  strategy:
    failurePolicy: Fail
    terminationGracePeriodSeconds: 30
  ttlSecondsAfterFinished: 600
status:
  phase: Recreating
  containerRecreateStates:
  - isKilled: true
    name: main
    phase: Recreating
",
    )
    .expect("a request")
}

#[test]
fn what_openkruise_stored_is_read_and_written_back_the_same() {
    let request = running();
    assert_eq!(
        request.spec.containers[0]
            .status_context
            .as_ref()
            .and_then(StatusContext::bare_id),
        Some("e8df21b314cba8ed")
    );
    let json = serde_json::to_value(&request).expect("json");
    assert_eq!(
        json["spec"]["containers"][0]["statusContext"]["containerID"],
        "containerd://e8df21b314cba8ed"
    );
    assert_eq!(json["status"]["containerRecreateStates"][0]["isKilled"], true);
    let strategy = json["spec"]["strategy"].as_object().expect("a strategy");
    assert_eq!(strategy.len(), 2, "what is unset is left out: {strategy:?}");
}

#[test]
fn ids_without_a_runtime_are_none() {
    assert_eq!(split_id("containerd://abc"), Some(("containerd", "abc")));
    for text in ["abc", "://abc", "containerd://", ""] {
        assert_eq!(split_id(text), None, "{text}");
    }
}
