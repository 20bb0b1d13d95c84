//! Who is let in, and what is refused with which words.

use k8s_openapi::api::core::v1::Pod;

use super::super::admission::{Subject, check_spec, create, node_label, update};
use super::super::*;

fn pod() -> Pod {
    serde_norway::from_str(
        "
metadata: {name: p, namespace: ns, uid: u1}
spec:
  nodeName: node1
  terminationGracePeriodSeconds: 7
  initContainers:
  - {name: setup}
  - {name: mesh, restartPolicy: Always}
  containers:
  - {name: web, ports: [{name: http, containerPort: 80}], lifecycle: {preStop: {httpGet: {port: http}}}}
  - {name: agent, lifecycle: {preStop: {sleep: {seconds: 2}}}}
  - {name: idle}
  ephemeralContainers: [{name: debug}]
status:
  phase: Running
  initContainerStatuses:
  - {name: setup, image: i, imageID: '', ready: true, restartCount: 0, containerID: 'containerd://s'}
  - {name: mesh, image: i, imageID: '', ready: true, restartCount: 1, containerID: 'containerd://m'}
  containerStatuses:
  - {name: web, image: i, imageID: '', ready: true, restartCount: 3, containerID: 'containerd://w'}
  - {name: agent, image: i, imageID: '', ready: true, restartCount: 0, containerID: 'containerd://a'}
  - {name: idle, image: i, imageID: '', ready: false, restartCount: 0}
",
    )
    .expect("a pod")
}

fn request(containers: &[&str]) -> ContainerRecreateRequest {
    let container = |name: &&str| RecreateContainer {
        name: (*name).to_owned(),
        ..RecreateContainer::default()
    };
    ContainerRecreateRequest::new(
        "r",
        ContainerRecreateRequestSpec {
            pod_name: "p".to_owned(),
            containers: containers.iter().map(container).collect(),
            ..ContainerRecreateRequestSpec::default()
        },
    )
}

fn admit(request: &ContainerRecreateRequest, pod: &Pod) -> Result<ContainerRecreateRequest, String> {
    let subject = Subject {
        pod: Some(pod),
        node_exists: true,
        virtual_node: false,
    };
    create(request, &subject).map_err(|denied| denied.to_string())
}

#[test]
fn what_the_system_owns_is_filled_in() {
    let admitted = admit(&request(&["web", "agent", "mesh"]), &pod()).expect("fine");
    let labels = admitted.metadata.labels.expect("labels");
    assert_eq!(labels[keys::POD_UID], "u1");
    assert_eq!(labels[keys::NODE_NAME], "node1");
    assert_eq!(labels[keys::ACTIVE], "true");
    let strategy = admitted.spec.strategy.expect("a strategy");
    assert_eq!(strategy.failure_policy.as_deref(), Some("Fail"));
    assert_eq!(strategy.termination_grace_period_seconds, Some(7));
    let [web, agent, mesh] = admitted.spec.containers.as_slice() else {
        panic!("three containers");
    };
    let context = web.status_context.as_ref().expect("an instance");
    assert_eq!(
        (context.container_id.as_str(), context.restart_count),
        ("containerd://w", 3)
    );
    assert_eq!(web.ports.len(), 1, "ports only where a hook asks for them");
    assert!(agent.ports.is_empty());
    assert_eq!(
        agent.pre_stop,
        Some(PreStop::default()),
        "a sleep arrives as an empty hook"
    );
    assert_eq!(
        mesh.status_context.as_ref().expect("an instance").bare_id(),
        Some("m"),
        "native sidecars are taken"
    );
}

#[test]
fn specs_that_are_refused() {
    type Change = fn(&mut ContainerRecreateRequestSpec);
    let rows: [(Change, &str); 6] = [
        (|spec| spec.pod_name.clear(), "podName can not be empty"),
        (|spec| spec.containers.clear(), "containers list can not be null"),
        (
            |spec| spec.active_deadline_seconds = Some(2),
            "activeDeadlineSeconds can not be less than 3s",
        ),
        (
            |spec| {
                spec.strategy
                    .get_or_insert_default()
                    .termination_grace_period_seconds = Some(-1);
            },
            "terminationGracePeriodSeconds must be non-negative integer",
        ),
        (
            |spec| spec.strategy.get_or_insert_default().unready_grace_period_seconds = Some(-1),
            "unreadyGracePeriodSeconds must be non-negative integer",
        ),
        (
            |spec| spec.strategy.get_or_insert_default().failure_policy = Some("Retry".to_owned()),
            "unknown failurePolicy Retry",
        ),
    ];
    for (change, text) in rows {
        let mut request = request(&["web"]);
        change(&mut request.spec);
        let denied = check_spec(&request.spec).expect_err(text);
        assert_eq!((denied.code, denied.message.as_str()), (400, text));
        assert_eq!(admit(&request, &pod()).expect_err(text), text);
    }
}

#[test]
fn pods_that_are_refused() {
    type Change = fn(&mut Pod);
    let rows: [(Change, &str); 3] = [
        (
            |pod| pod.status.as_mut().expect("a status").phase = Some("Succeeded".to_owned()),
            "not allowed to recreate containers in an inactive Pod",
        ),
        (
            |pod| {
                pod.metadata.deletion_timestamp =
                    Some(serde_json::from_str("\"2026-01-01T00:00:00Z\"").expect("a time"));
            },
            "not allowed to recreate containers in an inactive Pod",
        ),
        (
            |pod| pod.spec.as_mut().expect("a spec").node_name = None,
            "not allowed to recreate containers in a pending Pod",
        ),
    ];
    for (change, text) in rows {
        let mut pod = pod();
        change(&mut pod);
        assert_eq!(admit(&request(&["web"]), &pod).expect_err(text), text);
    }
    let mut ending = pod();
    let status = ending.status.as_mut().expect("a status");
    status.phase = Some("Succeeded".to_owned());
    status.conditions = Some(vec![
        serde_json::from_str(r#"{"type":"SidecarTerminated","status":"True"}"#).expect("a condition"),
    ]);
    assert!(
        admit(&request(&["web"]), &ending).is_ok(),
        "sidecars of a pod that has ended"
    );
    let nowhere = Subject {
        pod: None,
        node_exists: true,
        virtual_node: false,
    };
    let denied = create(&request(&["web"]), &nowhere).expect_err("no pod");
    assert_eq!(denied.to_string(), "no found Pod named p");
    let pod = pod();
    let gone = Subject {
        pod: Some(&pod),
        node_exists: false,
        virtual_node: false,
    };
    let denied = create(&request(&["web"]), &gone).expect_err("no node");
    assert!(denied.to_string().starts_with("failed to get Node node1"));
}

#[test]
fn containers_that_are_refused() {
    for (names, text) in [
        (["web", "web"], "can not recreate web multi times"),
        (["web", "nope"], "container nope not found in Pod"),
        (["web", "debug"], "container debug not found in Pod"),
        (["web", "setup"], "not found setup containerStatus in Pod Status"),
        (
            ["web", "idle"],
            "no containerID in idle containerStatus, maybe the container has not been initialized",
        ),
    ] {
        assert_eq!(admit(&request(&names), &pod()).expect_err(text), text);
    }
    let mut own = request(&["web"]);
    own.spec.containers[0].status_context = Some(StatusContext::default());
    assert!(admit(&own, &pod()).expect_err("read-only").contains("read-only"));
}

#[test]
fn only_what_it_is_about_may_not_change() {
    let old = super::running();
    let mut new = old.clone();
    new.status = None;
    new.metadata.labels.as_mut().expect("labels").remove(keys::ACTIVE);
    assert_eq!(update(&old, &new), Ok(()));
    new.metadata
        .labels
        .as_mut()
        .expect("labels")
        .insert(keys::POD_UID.to_owned(), "other".to_owned());
    assert_eq!(update(&old, &new).expect_err("fixed").code, 403);
    let mut new = old.clone();
    new.spec.active_deadline_seconds = Some(60);
    assert_eq!(update(&old, &new).expect_err("fixed").code, 403);
}

#[test]
fn long_names_of_nodes_fit_into_a_label() {
    let (a, b) = ("n".repeat(80), format!("{}x", "n".repeat(79)));
    assert_eq!(node_label("node1"), "node1");
    assert_eq!(node_label(&a).len(), 63);
    assert_ne!(node_label(&a), node_label(&b));
}
