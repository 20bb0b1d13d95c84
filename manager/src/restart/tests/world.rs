//! A controller with an API server and agents that tests play.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kruise_api::container_recreate_request::{ContainerRecreateRequest, keys};
use kruise_api::ids::{NodeName, TaskId};
use kruise_planner::restart::facts::{ContainerFacts, Exit, Step, Successor};
use kruise_planner::restart::{OrderPlan, Write, check, task_id};
use kruise_proto::restart::status_message;
use kruise_proto::task::TaskStatus;
use serde_json::{Value, json};

use super::super::metrics::RestartMetrics;
use super::super::state::{Effect, Event, Now, State, Told};
use crate::engine::guests::GuestNode;
use crate::kubeapi::ApiFailure;

/// A leader with an API server that stores what is written and tells it back.
pub(super) struct World {
    pub(super) state: State,
    pub(super) stored: BTreeMap<String, ContainerRecreateRequest>,
    pub(super) pod: Pod,
    pub(super) node: GuestNode,
    pub(super) orders: BTreeMap<TaskId, OrderPlan>,
    pub(super) writes: Vec<&'static str>,
    pub(super) events: Vec<String>,
    pub(super) ready: bool,
    /// Whether the watch tells of a write before the write's own answer is there.
    pub(super) watch_is_first: bool,
    /// The next writes fail in these ways.
    pub(super) failures: Vec<ApiFailure>,
    pub(super) mono: u64,
    version: u64,
}

pub(super) fn node_name() -> NodeName {
    NodeName::from("node1")
}

fn pod() -> Pod {
    let json = json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u1", "resourceVersion": "1"},
        "spec": {"nodeName": "node1", "restartPolicy": "Always", "containers": [{"name": "web"}]},
        "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.7"}], "containerStatuses": [status("w1", 0, true)]},
    });
    serde_json::from_value(json).expect("a pod")
}

pub(super) fn status(id: &str, count: i32, ready: bool) -> Value {
    json!({"name": "web", "image": "", "imageID": "", "containerID": format!("containerd://{id}"),
        "restartCount": count, "ready": ready, "state": {"running": {}}})
}

impl World {
    /// A leader that has read what there is.
    pub(super) fn new() -> Self {
        let mut world = Self {
            state: State::new(RestartMetrics::default()),
            stored: BTreeMap::new(),
            pod: pod(),
            node: GuestNode {
                attached: true,
                tasks: BTreeMap::new(),
            },
            orders: BTreeMap::new(),
            writes: Vec::new(),
            events: Vec::new(),
            ready: false,
            watch_is_first: false,
            failures: Vec::new(),
            mono: 0,
            version: 10,
        };
        world.lead();
        world
    }

    /// Another leader, with nothing but the API server to go by. Agents attach once it is ready.
    pub(super) fn lead(&mut self) {
        self.state = State::new(RestartMetrics::default());
        self.ready = false;
        self.orders.clear();
        self.step(Event::Requests(Told::Begin));
        for request in self.stored.clone().into_values() {
            self.step(Event::Requests(Told::Object(Box::new(request))));
        }
        self.step(Event::Requests(Told::Complete));
        if self.ready {
            self.attach();
        }
    }

    pub(super) fn attach(&mut self) {
        self.step(Event::Node(node_name(), self.node.clone()));
    }

    pub(super) fn now(&self) -> Now {
        Now {
            mono: Duration::from_millis(self.mono),
            wall: Timestamp::from_millisecond(1_800_000_000_000 + i64::try_from(self.mono).expect("small"))
                .expect("in range"),
        }
    }

    pub(super) fn wait(&mut self, millis: u64) {
        self.mono += millis;
        self.settle();
    }

    /// Somebody makes a request, as kubectl does: with nothing filled in.
    pub(super) fn create(&mut self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut json = json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "ContainerRecreateRequest",
            "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": self.next(),
                "creationTimestamp": Timestamp::from_second(self.now().wall.as_second()).expect("in range").to_string()},
            "spec": {"podName": "p", "containers": [{"name": "web"}]},
        });
        change(&mut json);
        let request: ContainerRecreateRequest = serde_json::from_value(json).expect("a request");
        self.stored.insert(name.to_owned(), request.clone());
        self.step(Event::Requests(Told::Object(Box::new(request))));
    }

    pub(super) fn delete(&mut self, name: &str) {
        let request = self.stored.remove(name).expect("there");
        self.step(Event::Requests(Told::Gone(Box::new(request))));
    }

    fn next(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    pub(super) fn step(&mut self, event: Event) {
        self.state.apply(event, self.now());
        self.settle();
    }

    fn settle(&mut self) {
        for effect in self.state.settle(self.now()) {
            self.perform(effect);
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Ready => {
                self.ready = true;
                self.attach();
            }
            Effect::WatchPods => {
                self.step(Event::Pods(Told::Begin));
                let pod = Box::new(self.pod.clone());
                self.step(Event::Pods(Told::Object(pod)));
                self.step(Event::Pods(Told::Complete));
            }
            Effect::Order { task, order, .. } => {
                self.orders.insert(task, *order);
            }
            Effect::Forget { task, .. } => {
                self.orders.remove(&task);
                self.node.tasks.remove(&task);
            }
            Effect::Write {
                object,
                write,
                report,
            } => self.write(&object, *write, report),
            Effect::Fetch { uid, .. } => {
                let result = Ok(self.stored.get(&uid).cloned().map(Box::new));
                self.step(Event::Fetched { uid, result });
            }
            Effect::Record { note, .. } => self.events.push(note.message),
        }
    }

    fn write(&mut self, object: &ContainerRecreateRequest, write: Write, report: Option<String>) {
        let uid = object.metadata.uid.clone().expect("a uid");
        if let Some(failure) = self.failures.pop() {
            self.step(Event::Written {
                uid,
                result: Err(failure),
            });
            return;
        }
        let Some(mut stored) = self.stored.get(&uid).cloned() else {
            self.step(Event::Written {
                uid,
                result: Err(ApiFailure::Gone),
            });
            return;
        };
        if stored.metadata.resource_version != object.metadata.resource_version {
            self.step(Event::Written {
                uid,
                result: Err(ApiFailure::Conflict),
            });
            return;
        }
        self.writes.push(match write {
            Write::Admit { labels, annotations } => {
                stored.metadata.labels.get_or_insert_default().extend(labels);
                stored
                    .metadata
                    .annotations
                    .get_or_insert_default()
                    .extend(annotations);
                "admit"
            }
            Write::Status(status) => {
                let containers = stored.spec.containers.iter();
                let names: Vec<_> = containers.map(|container| container.name.as_str()).collect();
                check::step(stored.status.as_ref(), &status, &names).expect("a lawful write");
                stored.status = Some(*status);
                "status"
            }
            Write::Clean { .. } => {
                stored
                    .metadata
                    .labels
                    .get_or_insert_default()
                    .remove(keys::ACTIVE);
                if let Some(report) = report {
                    let annotations = stored.metadata.annotations.get_or_insert_default();
                    annotations.insert(keys::RESTART_REPORT.to_owned(), report);
                }
                "clean"
            }
            Write::Delete => {
                self.writes.push("delete");
                self.step(Event::Written {
                    uid: uid.clone(),
                    result: Ok(None),
                });
                return self.delete(&uid);
            }
            Write::AddFinalizer | Write::Lock(_) | Write::Unlock(_) => "lock",
        });
        stored.metadata.resource_version = Some(self.next());
        self.stored.insert(uid.clone(), stored.clone());
        let mut news = [
            Event::Written {
                uid,
                result: Ok(Some(Box::new(stored.clone()))),
            },
            Event::Requests(Told::Object(Box::new(stored))),
        ];
        if self.watch_is_first {
            news.reverse();
        }
        for event in news {
            self.step(event);
        }
    }

    /// The agent says how far it is.
    pub(super) fn report(&mut self, name: &str, facts: ContainerFacts) {
        let task = task_id(name);
        let status = TaskStatus {
            task_id: task.to_string(),
            restart: Some(status_message("ns/r", "ns/p", &[facts])),
            ..TaskStatus::default()
        };
        self.node.tasks.insert(task, status);
        self.attach();
    }

    /// The kubelet says what runs.
    pub(super) fn kubelet(&mut self, id: &str, count: i32, ready: bool) {
        let status = serde_json::from_value(status(id, count, ready)).expect("a status");
        self.pod.status.as_mut().expect("a status").container_statuses = Some(vec![status]);
        self.step(Event::Pods(Told::Object(Box::new(self.pod.clone()))));
    }

    pub(super) fn order(&self, name: &str) -> Option<&OrderPlan> {
        self.orders.get(&task_id(name))
    }

    pub(super) fn phase(&self, name: &str) -> String {
        let status = self.stored[name].status.as_ref();
        status.map_or_else(String::new, |status| format!("{:?}", status.phase))
    }
}

pub(super) fn taken(id: &str) -> ContainerFacts {
    ContainerFacts {
        bound: Some(id.to_owned()),
        ..ContainerFacts::new("web")
    }
}

pub(super) fn stopped(id: &str) -> ContainerFacts {
    let at = |second: i64| Timestamp::from_second(1_800_000_000 + second).ok();
    ContainerFacts {
        step: Step::Stopped,
        killed: true,
        stop_began: at(1),
        exit: Some(Exit {
            code: 137,
            finished_at: at(2),
        }),
        ..taken(id)
    }
}

pub(super) fn back(id: &str, new: &str) -> ContainerFacts {
    ContainerFacts {
        step: Step::Running,
        successor: Some(Successor {
            id: new.to_owned(),
            restart_count: 1,
            started_at: Timestamp::from_second(1_800_000_003).ok(),
            settled: true,
        }),
        ..stopped(id)
    }
}

/// What an agent tells whose clock is off by so many seconds.
pub(super) fn skewed(mut facts: ContainerFacts, seconds: i64) -> ContainerFacts {
    let off = |time: &mut Option<Timestamp>| {
        *time = time.map(|time| time + SignedDuration::from_secs(seconds));
    };
    off(&mut facts.stop_began);
    if let Some(exit) = &mut facts.exit {
        off(&mut exit.finished_at);
    }
    if let Some(successor) = &mut facts.successor {
        off(&mut successor.started_at);
    }
    facts
}
