//! Plans of the leader.

use kruise_api::container_recreate_request::{Phase, keys};

use super::super::facts::{ContainerFacts, Step};
use super::super::lock::{self, Holder};
use super::super::*;
use super::world::*;

fn order(plan: &RequestPlan) -> &OrderPlan {
    match &plan.intent {
        Intent::Order(order) => order,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_restart_of_one_container_costs_three_writes() {
    let mut world = World::new(&[("web", "w1")]);
    let plan = world.step();
    assert_eq!(
        order(&plan).targets[0].id,
        "w1",
        "dispatched in the same step as the first write"
    );
    assert_eq!(order(&plan).pod_ips, ["10.0.0.7"]);
    assert_eq!(world.status().phase, Phase::Recreating);
    assert_eq!(world.states(), [("Pending".to_owned(), false, String::new())]);
    world.facts = facts(vec![stopped("web", "w1", 137)]);
    let plan = world.step();
    assert_eq!(plan.write, None, "no write of its own for the stop");
    assert_eq!(
        plan.events[0].message,
        "Stopping container web by ContainerRecreateRequest r1"
    );
    world.facts = facts(vec![running("web", "w1", "w2")]);
    assert_eq!(
        world.step().write,
        None,
        "runs, and the kubelet does not call it ready yet"
    );
    set_status(
        world.pod.as_mut().expect("a pod"),
        status_of("web", "w2", 1, true),
    );
    world.now = 3;
    world.step();
    assert_eq!(world.status().phase, Phase::Completed);
    assert_eq!(world.status().message, None);
    assert_eq!(world.states(), [("Succeeded".to_owned(), true, String::new())]);
    assert_eq!(
        world.status().container_status_snapshot[0].container_id,
        "containerd://w2"
    );
    let plan = world.step();
    assert_eq!(plan.write, Some(Write::Clean { report: true }));
    assert_eq!(plan.intent, Intent::Forget, "the end is stored");
    world.request.metadata.labels = None;
    assert_eq!(world.step().write, None);
}

#[test]
fn states_by_what_agent_and_kubelet_say() {
    type Row = (
        &'static str,
        ContainerFacts,
        fn(&mut World),
        (&'static str, bool, &'static str),
    );
    let rows: [Row; 10] = [
        (
            "same instance",
            waiting("web", "w1"),
            |_| {},
            ("Pending", false, ""),
        ),
        (
            "hook runs",
            ContainerFacts {
                step: Step::Hook,
                hook_began: Some(at(0)),
                ..waiting("web", "w1")
            },
            |_| {},
            ("Pending", false, ""),
        ),
        (
            "missing",
            ContainerFacts {
                step: Step::Missing,
                ..ContainerFacts::new("web")
            },
            |_| {},
            ("Pending", false, ""),
        ),
        (
            "stopped",
            stopped("web", "w1", 137),
            |_| {},
            ("Recreating", true, ""),
        ),
        (
            "not ready",
            running("web", "w1", "w2"),
            |_| {},
            ("Recreating", true, ""),
        ),
        (
            "restarted by somebody else",
            ContainerFacts {
                killed: false,
                elsewhere: true,
                stop_began: None,
                ..running("web", "w1", "w2")
            },
            |world| {
                set_status(
                    world.pod.as_mut().expect("a pod"),
                    status_of("web", "w2", 1, true),
                );
            },
            ("Succeeded", false, ""),
        ),
        (
            "not long enough",
            {
                let mut facts = running("web", "w1", "w2");
                facts.successor.as_mut().expect("known").settled = false;
                facts
            },
            |world| {
                set_status(
                    world.pod.as_mut().expect("a pod"),
                    status_of("web", "w2", 1, true),
                );
            },
            ("Recreating", true, ""),
        ),
        (
            "crashes",
            stopped("web", "w1", 1),
            |world| {
                let json = serde_json::json!({"name": "web", "image": "", "imageID": "", "ready": false, "restartCount": 1,
                    "containerID": "containerd://w2", "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}});
                set_status(
                    world.pod.as_mut().expect("a pod"),
                    serde_json::from_value(json).expect("a status"),
                );
            },
            ("Recreating", true, "CrashLoopBackOff: back-off 10s"),
        ),
        (
            "never again",
            stopped("web", "w1", 137),
            |world| {
                world
                    .pod
                    .as_mut()
                    .and_then(|pod| pod.spec.as_mut())
                    .expect("a spec")
                    .restart_policy = Some("Never".to_owned());
            },
            (
                "Failed",
                true,
                "container stopped; restartPolicy forbids a restart",
            ),
        ),
        (
            "could not be stopped",
            ContainerFacts {
                step: Step::Failed,
                error: "no answer".to_owned(),
                ..waiting("web", "w1")
            },
            |_| {},
            ("Failed", false, "kill container error: no answer"),
        ),
    ];
    for (name, told, change, (phase, killed, message)) in rows {
        // A second container keeps the request from being over.
        let mut world = World::new(&[("web", "w1"), ("agent", "a1")]);
        strategy(&mut world.request).failure_policy = Some("Ignore".to_owned());
        world.step();
        world.facts = facts(vec![told, waiting("agent", "a1")]);
        change(&mut world);
        world.now = 60;
        world.step();
        assert_eq!(
            world.states()[0],
            (phase.to_owned(), killed, message.to_owned()),
            "{name}"
        );
        assert_eq!(world.status().phase, Phase::Recreating, "{name}");
    }
}

#[test]
fn exit_code_zero_is_final_only_with_on_failure() {
    for (policy, code, want) in [
        ("OnFailure", 0, "Failed"),
        ("OnFailure", 1, "Recreating"),
        ("Always", 0, "Recreating"),
    ] {
        let mut world = World::new(&[("web", "w1"), ("agent", "a1")]);
        strategy(&mut world.request).failure_policy = Some("Ignore".to_owned());
        world
            .pod
            .as_mut()
            .and_then(|pod| pod.spec.as_mut())
            .expect("a spec")
            .restart_policy = Some(policy.to_owned());
        world.facts = facts(vec![stopped("web", "w1", code), waiting("agent", "a1")]);
        world.step();
        assert_eq!(world.states()[0].0, want, "{policy} {code}");
    }
}

#[test]
fn ends_that_are_not_as_asked() {
    type Change = fn(&mut World);
    let gone: Change = |world| world.pod = None;
    let another: Change = |world| world.pod.as_mut().expect("a pod").metadata.uid = Some("u2".to_owned());
    let leaving: Change = |world| {
        let pod = world.pod.as_mut().expect("a pod");
        pod.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(1)));
    };
    let deadline: Change = |world| {
        world.request.spec.active_deadline_seconds = Some(3);
        world.now = 3;
    };
    let refused: Change = |world| {
        world.facts = facts(Vec::new());
        world.facts.as_mut().expect("told").refused =
            "failed to find runtime service: no containerd here".to_owned();
    };
    let no_node: Change = |world| world.agent = AgentView::NoNode;
    for (change, message) in [
        (gone, "pod has gone"),
        (another, "pod has gone"),
        (leaving, "pod has gone"),
        (deadline, "recreating has exceeded the activeDeadlineSeconds"),
        (refused, "failed to find runtime service: no containerd here"),
        (no_node, "failed to get Node node1: not found"),
    ] {
        let mut world = World::new(&[("web", "w1"), ("agent", "a1")]);
        world.step();
        world.facts = facts(vec![stopped("web", "w1", 137), waiting("agent", "a1")]);
        world.now = 3;
        change(&mut world);
        let plan = world.step();
        assert_eq!(
            plan.intent,
            Intent::Freeze,
            "{message}: nothing new is begun before the end is stored"
        );
        assert_eq!(world.status().message.as_deref(), Some(message));
        for (phase, _, text) in world.states() {
            assert_eq!((phase.as_str(), text.as_str()), ("Failed", message));
        }
        let before = world.status().clone();
        world.pod = Some(pod());
        world.now = 9;
        world.step();
        assert_eq!(
            *world.status(),
            before,
            "{message}: nothing changes after the end"
        );
    }
}

#[test]
fn a_failed_stop_ends_the_request_or_is_passed_over() {
    let failed = ContainerFacts {
        step: Step::Failed,
        error: "x".to_owned(),
        ..waiting("web", "w1")
    };
    for (policy, over) in [("Fail", true), ("Ignore", false)] {
        let mut world = World::new(&[("web", "w1"), ("agent", "a1")]);
        strategy(&mut world.request).failure_policy = Some(policy.to_owned());
        world.step();
        world.facts = facts(vec![failed.clone(), waiting("agent", "a1")]);
        world.step();
        assert_eq!(world.status().completion_time.is_some(), over);
        if over {
            assert_eq!(world.status().message, None);
            assert_eq!(world.states()[1].2, "not executed: container web failed");
        }
    }
}

#[test]
fn an_ordered_request_lets_one_container_go_at_a_time() {
    let mut world = World::new(&[("web", "w1"), ("agent", "a1")]);
    strategy(&mut world.request).ordered_recreate = true;
    assert_eq!(order(&world.step()).released, 1);
    world.facts = facts(vec![running("web", "w1", "w2"), waiting("agent", "a1")]);
    assert_eq!(order(&world.step()).released, 1, "runs, not ready");
    set_status(
        world.pod.as_mut().expect("a pod"),
        status_of("web", "w2", 1, true),
    );
    assert_eq!(order(&world.step()).released, 2, "without waiting for a write");
    let mut world = World::new(&[("web", "w1"), ("agent", "a1")]);
    assert_eq!(order(&world.step()).released, 2);
}

#[test]
fn silence_ends_it_after_a_minute_unless_the_agent_has_taken_it() {
    for taken in [false, true] {
        for agent in [AgentView::Away, AgentView::Attached] {
            let mut world = World::new(&[("web", "w1")]);
            world.agent = agent;
            world.step();
            world.facts = taken.then(|| facts(vec![waiting("web", "w1")]).expect("some"));
            world.now = 59;
            world.step();
            assert_eq!(world.status().phase, Phase::Recreating);
            world.now = 60;
            world.step();
            let message = world.status().message.as_deref();
            assert_eq!(
                message,
                (!taken).then_some("daemon has not responded for a long time"),
                "{agent:?}"
            );
        }
    }
}

#[test]
fn drain_first() {
    let mut world = World::new(&[("web", "w1")]);
    strategy(&mut world.request).unready_grace_period_seconds = Some(2);
    let pod = world.pod.as_mut().expect("a pod");
    let gate =
        serde_json::from_value(serde_json::json!([{"conditionType": "KruisePodReady"}])).expect("gates");
    pod.spec.as_mut().expect("a spec").readiness_gates = Some(gate);
    assert_eq!(world.step().write, Some(Write::AddFinalizer));
    world.request.metadata.finalizers = Some(vec![keys::UNREADY_ACQUIRED.to_owned()]);
    let holder = Holder::request("ns/r1");
    assert_eq!(world.step().write, Some(Write::Lock(holder.clone())));
    let pod = world.pod.as_mut().expect("a pod");
    let conditions = lock::acquire(pod, &holder, at(0));
    pod.status.as_mut().expect("a status").conditions = conditions;
    world.step();
    assert!(world.status().drained_since().is_some());
    world.now = 2;
    assert_eq!(world.step().intent, Intent::Freeze, "2 s and a little");
    world.now = 3;
    assert!(matches!(world.step().intent, Intent::Order(_)));
    world.pod.as_mut().expect("a pod").metadata.uid = Some("u2".to_owned());
    world.step();
    assert_eq!(
        world.step().write,
        Some(Write::Clean { report: false }),
        "a pod that is gone needs no release"
    );
    world.pod.as_mut().expect("a pod").metadata.uid = Some("u1".to_owned());
    assert_eq!(world.step().write, Some(Write::Unlock(holder)));
}

#[test]
fn without_a_gate_there_is_nothing_to_wait_for() {
    let mut world = World::new(&[("web", "w1")]);
    strategy(&mut world.request).unready_grace_period_seconds = Some(600);
    let plan = world.step();
    assert_eq!(plan.events[0].reason, "NoReadinessGate");
    assert!(world.status().drained_since().is_some(), "clients look for it");
    assert!(matches!(world.step().intent, Intent::Order(_)));
}

#[test]
fn a_request_that_no_webhook_has_seen_is_completed_by_the_leader() {
    let mut world = World::new(&[("web", "w1")]);
    world.request.metadata.labels = None;
    world.request.spec.containers[0].status_context = None;
    let plan = world.step();
    assert_eq!(order(&plan).targets[0].id, "w1");
    let Some(Write::Admit { labels, annotations }) = plan.write else {
        panic!("{:?}", plan.write);
    };
    assert_eq!(labels[keys::POD_UID], "u1");
    assert_eq!(
        annotations[keys::ADMITTED],
        r#"[{"name":"web","containerID":"containerd://w1","restartCount":0}]"#
    );
    world.memory.admitted = plan.admitted;
    set_status(
        world.pod.as_mut().expect("a pod"),
        status_of("web", "w2", 1, true),
    );
    assert_eq!(order(&world.step()).targets[0].id, "w1", "settled once");
    world.request.metadata.labels = Some(labels);
    world.request.metadata.annotations = Some(annotations);
    world.memory = Memory::default();
    let plan = world.step();
    assert_eq!(
        order(&plan).targets[0].id,
        "w1",
        "another leader goes by the annotation"
    );
    assert_eq!(plan.write, None, "its beginning is not worth a write yet");
    world.facts = facts(vec![running("web", "w1", "w2")]);
    world.now = 3;
    world.step();
    assert_eq!(world.status().phase, Phase::Completed);
}

#[test]
fn what_may_not_be_is_told_once_the_watch_had_time() {
    let mut world = World::new(&[("nope", "w1")]);
    world.request.metadata.labels = None;
    world.request.spec.containers[0].status_context = None;
    assert_eq!(world.step().write, None, "a watch may lag");
    world.now = 2;
    world.step();
    assert_eq!(
        world.status().message.as_deref(),
        Some("container nope not found in Pod")
    );
    assert_eq!(world.states()[0].0, "Failed");
}

#[test]
fn what_openkruise_has_stopped_is_not_stopped_again() {
    let mut world = World::new(&[("web", "w1")]);
    strategy(&mut world.request).force_recreate = true;
    assert!(order(&world.step()).targets[0].force);
    let json = serde_json::json!({"phase": "Recreating",
        "containerRecreateStates": [{"name": "web", "phase": "Recreating", "isKilled": true}]});
    world.request.status = Some(serde_json::from_value(json).expect("a status"));
    assert!(!order(&world.step()).targets[0].force);
}

#[test]
fn a_finished_request_goes_when_its_time_has_come() {
    let mut world = World::new(&[("web", "w1")]);
    world.request.spec.ttl_seconds_after_finished = Some(20);
    world.pod = None;
    world.now = 5;
    world.step();
    world.request.metadata.labels = None;
    world.now = 24;
    assert_eq!(world.step().write, None);
    world.now = 25;
    assert_eq!(world.step().write, Some(Write::Delete));
}
