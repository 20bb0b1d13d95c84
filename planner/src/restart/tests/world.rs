//! A pod with containers web and agent, and requests about it.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStateRunning, ContainerStatus, Pod};
use kruise_api::container_recreate_request::{
    ContainerRecreateRequest, ContainerRecreateRequestSpec, ContainerRecreateRequestStatus,
    RecreateContainer, RecreateStrategy, StatusContext, keys,
};

use super::super::facts::{ContainerFacts, Exit, Step, Successor, TaskFacts};
use super::super::*;

pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).expect("in range")
}

pub(super) fn pod() -> Pod {
    let json = serde_json::json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u1"},
        "spec": {
            "nodeName": "node1", "restartPolicy": "Always", "terminationGracePeriodSeconds": 7,
            "containers": [{"name": "web"}, {"name": "agent"}],
        },
        "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.7"}]},
    });
    let mut pod: Pod = serde_json::from_value(json).expect("a pod");
    let status = pod.status.as_mut().expect("a status");
    status.container_statuses = Some(vec![
        status_of("web", "w1", 0, true),
        status_of("agent", "a1", 0, true),
    ]);
    pod
}

pub(super) fn status_of(name: &str, id: &str, restart_count: i32, ready: bool) -> ContainerStatus {
    ContainerStatus {
        name: name.to_owned(),
        container_id: Some(format!("containerd://{id}")),
        restart_count,
        ready,
        state: Some(ContainerState {
            running: Some(ContainerStateRunning::default()),
            ..ContainerState::default()
        }),
        ..ContainerStatus::default()
    }
}

pub(super) fn set_status(pod: &mut Pod, new: ContainerStatus) {
    let statuses = pod
        .status
        .as_mut()
        .and_then(|status| status.container_statuses.as_mut());
    let mut statuses = statuses.into_iter().flatten();
    if let Some(status) = statuses.find(|status| status.name == new.name) {
        *status = new;
    }
}

/// A request as a webhook lets it in.
pub(super) fn request(uid: &str, created: i64, containers: &[(&str, &str)]) -> ContainerRecreateRequest {
    let container = |(name, id): &(&str, &str)| RecreateContainer {
        name: (*name).to_owned(),
        status_context: Some(StatusContext {
            container_id: format!("containerd://{id}"),
            restart_count: 0,
        }),
        ..RecreateContainer::default()
    };
    let mut request = ContainerRecreateRequest::new(
        uid,
        ContainerRecreateRequestSpec {
            pod_name: "p".to_owned(),
            containers: containers.iter().map(container).collect(),
            strategy: Some(RecreateStrategy {
                termination_grace_period_seconds: Some(7),
                ..RecreateStrategy::default()
            }),
            ..ContainerRecreateRequestSpec::default()
        },
    );
    let meta = &mut request.metadata;
    meta.namespace = Some("ns".to_owned());
    meta.uid = Some(uid.to_owned());
    meta.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(created)));
    meta.labels = Some(
        [
            (keys::POD_UID, "u1"),
            (keys::NODE_NAME, "node1"),
            (keys::ACTIVE, "true"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into(),
    );
    request
}

pub(super) fn strategy(request: &mut ContainerRecreateRequest) -> &mut RecreateStrategy {
    request.spec.strategy.get_or_insert_default()
}

/// One request with everything around it.
#[derive(Clone)]
pub(super) struct World {
    pub(super) request: ContainerRecreateRequest,
    pub(super) pod: Option<Pod>,
    pub(super) facts: Option<TaskFacts>,
    pub(super) agent: AgentView,
    pub(super) memory: Memory,
    pub(super) now: i64,
}

impl World {
    pub(super) fn new(containers: &[(&str, &str)]) -> Self {
        Self {
            request: request("r1", 0, containers),
            pod: Some(pod()),
            facts: None,
            agent: AgentView::Attached,
            memory: Memory::default(),
            now: 0,
        }
    }

    pub(super) fn plan(&mut self) -> RequestPlan {
        let view = RequestView {
            object: &self.request,
            facts: self.facts.as_ref(),
            dispatched: self.facts.is_some(),
            memory: &self.memory,
        };
        let snapshot = PodSnapshot {
            requests: &[view],
            pod: self.pod.as_ref(),
            agent: self.agent,
            virtual_node: false,
            now: at(self.now),
        };
        let plan = plan(&snapshot).requests.remove("r1").expect("planned");
        self.memory.head_since = plan.head_since.or(self.memory.head_since);
        plan
    }

    /// Plans and does the write, which must keep all promises.
    pub(super) fn step(&mut self) -> RequestPlan {
        let plan = self.plan();
        if let Some(Write::Status(status)) = &plan.write {
            let names: Vec<_> = self
                .request
                .spec
                .containers
                .iter()
                .map(|container| container.name.as_str())
                .collect();
            check::step(self.request.status.as_ref(), status, &names).expect("a lawful write");
            self.request.status = Some((**status).clone());
            self.memory.last_write = Some(at(self.now));
        }
        plan
    }

    pub(super) fn status(&self) -> &ContainerRecreateRequestStatus {
        self.request.status.as_ref().expect("a status")
    }

    /// Phase, isKilled and message of each container.
    pub(super) fn states(&self) -> Vec<(String, bool, String)> {
        let states = self.status().container_recreate_states.iter();
        states
            .map(|state| {
                (
                    format!("{:?}", state.phase),
                    state.is_killed,
                    state.message.clone(),
                )
            })
            .collect()
    }
}

pub(super) fn waiting(name: &str, id: &str) -> ContainerFacts {
    ContainerFacts {
        bound: Some(id.to_owned()),
        ..ContainerFacts::new(name)
    }
}

pub(super) fn stopped(name: &str, id: &str, code: i32) -> ContainerFacts {
    ContainerFacts {
        step: Step::Stopped,
        killed: true,
        stop_began: Some(at(1)),
        exit: Some(Exit {
            code,
            finished_at: Some(at(2)),
        }),
        ..waiting(name, id)
    }
}

pub(super) fn running(name: &str, id: &str, new: &str) -> ContainerFacts {
    ContainerFacts {
        step: Step::Running,
        successor: Some(Successor {
            id: new.to_owned(),
            restart_count: 1,
            started_at: Some(at(2) + SignedDuration::from_millis(500)),
            settled: true,
        }),
        ..stopped(name, id, 137)
    }
}

pub(super) fn facts(containers: Vec<ContainerFacts>) -> Option<TaskFacts> {
    Some(TaskFacts {
        containers,
        refused: String::new(),
    })
}

pub(super) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
