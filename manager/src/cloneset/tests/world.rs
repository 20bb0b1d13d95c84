//! A set, its controller, and a kubelet.

use std::sync::Arc;
use std::time::Duration;

use kruise_api::clone_set::names;
use kruise_api::ids::Epoch;
use kruise_planner::cloneset::Gates;
use serde_json::{Value, json};

use super::super::actor::Actor;
use super::super::handle::{self, CloneSetHandle};
use super::super::metrics::CloneSetMetrics;
use super::super::space::Kind;
use super::server::Server;
use crate::clock::Monotonic;
use crate::leader::{LeaderState, Leadership};

/// A kubelet looks around so often.
const TICK: Duration = Duration::from_millis(50);
/// A world that has not come to rest by then never will.
const PATIENCE: Duration = Duration::from_secs(600);

/// Annotation of a pod whose containers are being restarted.
pub(super) const DOWN: &str = "test/down";

pub(super) struct World {
    pub(super) server: Server,
    /// Of the controller that leads.
    pub(super) handle: CloneSetHandle,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Drop for World {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// A set `web` with this many pods of this image, with these changes to its spec.
pub(super) fn set(replicas: i32, image: &str, spec: &Value) -> Value {
    let mut set = json!({
        "apiVersion": "apps.kruise.io/v1beta1",
        "kind": "CloneSet",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "main", "image": image}]},
            },
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {
                "podUpdatePolicy": "InPlaceIfPossible", "partition": 0, "maxUnavailable": 1, "maxSurge": 0,
            }},
        },
    });
    super::merge::merge(&mut set["spec"], spec);
    set
}

impl World {
    /// A controller that leads, and a kubelet.
    pub(super) fn new() -> Self {
        let server = Server::new();
        let mut world = Self {
            server,
            handle: handle::channel().0,
            tasks: Vec::new(),
        };
        world.lead();
        let kubelet = world.server.clone();
        world.tasks.push(tokio::spawn(async move {
            loop {
                tokio::time::sleep(TICK).await;
                for pod in kubelet.all(Kind::Pod) {
                    tend(&kubelet, &pod);
                }
            }
        }));
        world
    }

    /// Another controller begins to lead; one that did is gone.
    pub(super) fn lead(&mut self) {
        self.start(LeaderState::Leader {
            epoch: Epoch(1),
            since: tokio::time::Instant::now(),
        });
    }

    /// Another controller begins that does not lead; the one that did is gone.
    pub(super) fn follow(&mut self) {
        self.start(LeaderState::Follower { leader: None });
    }

    fn start(&mut self, state: LeaderState) {
        for task in self.tasks.drain(..self.tasks.len().min(1)) {
            task.abort();
        }
        let leadership = Leadership::fixed(state);
        let (handle, questions) = handle::channel();
        self.handle = handle;
        let actor = Actor {
            cluster: Arc::new(self.server.clone()),
            leadership: leadership.subscribe(),
            clock: Monotonic::tokio(),
            gates: Gates::default(),
            metrics: CloneSetMetrics::default(),
            nodes: None,
            questions,
        };
        let task = tokio::spawn(async move {
            // Kept as long as the controller runs: its end would be the end of the process.
            let _leadership = leadership;
            actor.run().await;
        });
        self.tasks.insert(0, task);
    }

    pub(super) fn pods(&self) -> Vec<Value> {
        self.server.all(Kind::Pod)
    }

    pub(super) fn names(&self) -> Vec<String> {
        let pods = self.pods();
        pods.iter().map(|pod| text(&pod["metadata"]["name"])).collect()
    }

    pub(super) fn status(&self) -> Value {
        self.server.get(Kind::Set, "web").expect("the set")["status"].clone()
    }

    pub(super) fn change_spec(&self, spec: &Value) {
        self.server.change(Kind::Set, "web", |set| {
            super::merge::merge(&mut set["spec"], spec);
        });
    }

    /// Waits until it is so, while `always` holds at each look.
    pub(super) async fn until(&self, what: &str, done: impl Fn(&Self) -> bool, always: impl Fn(&Self)) {
        let began = tokio::time::Instant::now();
        while !done(self) {
            assert!(
                began.elapsed() < PATIENCE,
                "not in {PATIENCE:?}: {what}; status {}; log {:#?}",
                self.status(),
                self.server.log()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
            always(self);
        }
    }

    /// Waits until the status says that all pods are there, updated and available.
    pub(super) async fn settled(&self, replicas: i64, always: impl Fn(&Self)) {
        let done = |world: &Self| {
            let set = world.server.get(Kind::Set, "web").expect("the set");
            let status = &set["status"];
            let counters = [
                "replicas",
                "readyReplicas",
                "availableReplicas",
                "updatedReplicas",
            ];
            status["observedGeneration"] == set["metadata"]["generation"]
                && counters.iter().all(|counter| status[*counter] == replicas)
                && status["currentRevision"] == status["updateRevision"]
                && world.pods().len() == usize::try_from(replicas).expect("few")
        };
        self.until(&format!("{replicas} pods up to date"), done, always)
            .await;
    }
}

pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub(super) fn image_of(pod: &Value) -> String {
    text(&pod["spec"]["containers"][0]["image"])
}

pub(super) fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready") == Some("True") && pod["metadata"]["deletionTimestamp"].is_null()
}

fn condition<'p>(pod: &'p Value, kind: &str) -> Option<&'p str> {
    let conditions = pod["status"]["conditions"].as_array()?;
    conditions.iter().find(|one| one["type"] == kind)?["status"].as_str()
}

/// One step of a kubelet, and of the scheduler.
fn tend(server: &Server, pod: &Value) {
    let name = text(&pod["metadata"]["name"]);
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        server.remove(Kind::Pod, &name);
        return;
    }
    let now = server.time().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    server.change(Kind::Pod, &name, |pod| {
        pod["spec"]["nodeName"] = "node".into();
        pod["status"]["phase"] = "Running".into();
        let image = image_of(pod);
        let running = format!("sha256:{image}");
        let before = &pod["status"]["containerStatuses"][0];
        let restarts = match before["imageID"].as_str() {
            Some(id) if id != running => before["restartCount"].as_i64().unwrap_or(0) + 1,
            _ => before["restartCount"].as_i64().unwrap_or(0),
        };
        let last = match before["containerID"].as_str() {
            // Down for as long as this kubelet takes from one look to the next, which is nothing in whole seconds.
            Some(id) if id != format!("containerd://{name}-{restarts}") => json!({"terminated": {
                "exitCode": 0, "containerID": id, "finishedAt": &now,
            }}),
            _ => before["lastState"].clone(),
        };
        let started = match before["state"]["running"]["startedAt"].as_str() {
            Some(started) if before["restartCount"] == restarts => started.to_owned(),
            _ => now.clone(),
        };
        pod["status"]["containerStatuses"] = json!([{
            "name": "main", "image": image, "imageID": running, "ready": true, "restartCount": restarts,
            "containerID": format!("containerd://{name}-{restarts}"), "state": {"running": {"startedAt": started}},
            "lastState": last,
        }]);
        set_condition(pod, "ContainersReady", true, &now);
        let up = pod["metadata"]["annotations"][DOWN].is_null();
        let gate = condition(pod, names::IN_PLACE_READY) == Some("True") && up;
        set_condition(pod, "Ready", gate, &now);
    });
}

fn set_condition(pod: &mut Value, kind: &str, is: bool, now: &str) {
    let status = if is { "True" } else { "False" };
    let conditions = &mut pod["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let conditions = conditions.as_array_mut().expect("a list");
    match conditions.iter_mut().find(|one| one["type"] == kind) {
        Some(one) if one["status"] == status => {}
        Some(one) => *one = json!({"type": kind, "status": status, "lastTransitionTime": now}),
        None => conditions.push(json!({"type": kind, "status": status, "lastTransitionTime": now})),
    }
}
