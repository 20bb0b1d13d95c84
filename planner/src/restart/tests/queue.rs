//! Several requests on one pod.

use super::super::facts::TaskFacts;
use super::super::*;
use super::world::*;
use kruise_api::container_recreate_request::{ContainerRecreateRequest, Phase};

fn plan_all(requests: &[ContainerRecreateRequest], told: &[Option<TaskFacts>], now: i64) -> PodPlan {
    let (pod, memory) = (pod(), Memory::default());
    let views: Vec<_> = requests
        .iter()
        .zip(told)
        .map(|(object, facts)| RequestView {
            object,
            facts: facts.as_ref(),
            dispatched: facts.is_some(),
            memory: &memory,
        })
        .collect();
    plan(&PodSnapshot {
        requests: &views,
        pod: Some(&pod),
        agent: AgentView::Attached,
        virtual_node: false,
        now: at(now),
    })
}

#[test]
fn three_requests_of_one_pod_run_one_after_the_other() {
    let mut requests = vec![
        request("c", 2, &[("web", "w1")]),
        request("a", 1, &[("web", "w1")]),
        request("b", 1, &[("web", "w1")]),
    ];
    let mut told = vec![None, None, None];
    let mut finished = Vec::new();
    for now in 2..20 {
        let plan = plan_all(&requests, &told, now);
        let running: Vec<_> = plan
            .requests
            .iter()
            .filter(|(_, plan)| matches!(plan.intent, Intent::Order(_)))
            .map(|(uid, _)| uid.clone())
            .collect();
        assert!(running.len() <= 1, "{running:?}");
        for (index, request) in requests.iter_mut().enumerate() {
            let uid = request.metadata.uid.clone().expect("uid");
            if let Some(Write::Status(status)) = &plan.requests[&uid].write {
                check::step(request.status.as_ref(), status, &["web"]).expect("lawful");
                if status.phase == Phase::Completed {
                    finished.push(uid.clone());
                    assert_eq!(
                        running.len(),
                        usize::from(finished.len() < 3),
                        "the next begins in the same step"
                    );
                }
                request.status = Some((**status).clone());
            }
            if running.contains(&uid) {
                // The kubelet has not restarted anything: pod status names w1 as ready, and so does the agent as the successor.
                told[index] = facts(vec![running_facts()]);
            }
        }
    }
    assert_eq!(finished, ["a", "b", "c"]);
}

fn running_facts() -> super::super::facts::ContainerFacts {
    running("web", "w0", "w1")
}

#[test]
fn followers_wait_in_phase_pending_and_time_out_by_their_deadline_only() {
    let mut follower = request("b", 1, &[("web", "w1")]);
    let leader = request("a", 0, &[("web", "w1")]);
    let plan = plan_all(&[leader.clone(), follower.clone()], &[None, None], 1);
    let Some(Write::Status(status)) = &plan.requests["b"].write else {
        panic!("no status");
    };
    assert_eq!(status.phase, Phase::Pending);
    follower.status = Some((**status).clone());
    let told = [facts(vec![waiting("web", "w1")]), None];
    let plan = plan_all(&[leader.clone(), follower.clone()], &told, 500);
    assert_eq!(
        plan.requests["b"].write, None,
        "waiting for one's turn is no silence of the agent"
    );
    follower.spec.active_deadline_seconds = Some(10);
    let plan = plan_all(&[leader, follower], &told, 500);
    let Some(Write::Status(status)) = &plan.requests["b"].write else {
        panic!("no status");
    };
    assert_eq!(status.message.as_deref(), Some(texts::DEADLINE));
    assert_eq!(plan.requests["b"].intent, Intent::Freeze);
}

#[test]
fn one_that_runs_is_never_overtaken() {
    let older = request("a", 0, &[("web", "w1")]);
    let mut running = request("b", 1, &[("agent", "a1")]);
    running.status =
        Some(serde_json::from_value(serde_json::json!({"phase": "Recreating"})).expect("a status"));
    let plan = plan_all(&[older, running], &[None, None], 2);
    assert!(matches!(plan.requests["b"].intent, Intent::Order(_)));
    assert_eq!(plan.requests["a"].intent, Intent::Freeze);
}
