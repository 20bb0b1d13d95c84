//! Containers of the runtime that plays one, with a kubelet that starts them again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::SignedDuration;
use kruise_planner::node::reason::Code;
use kruise_planner::restart::facts::Exit;
use kruise_planner::restart::node::{Instance, State};

use super::RuntimeError;
use super::containers::{Containers, Seen};
use crate::clock::Clock;

/// How containers of a pod behave.
#[derive(Clone, Debug)]
pub struct Behaviour {
    /// Time from a stop to its end.
    pub stop: Duration,
    /// Time until the kubelet starts it again; none never does.
    pub back: Option<Duration>,
    /// A stop fails in this way.
    pub error: Option<String>,
    /// The preStop handler, as the kubelet notes it.
    pub pre_stop: Option<String>,
    /// How long a command runs.
    pub exec: Duration,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            stop: Duration::from_millis(50),
            back: Some(Duration::from_millis(500)),
            error: None,
            pre_stop: None,
            exec: Duration::ZERO,
        }
    }
}

/// What was done to containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// A command was run in this instance.
    Exec(String),
    /// This instance was told to stop, with so much time.
    Stop(String, Duration),
    /// This instance was started.
    Started(String),
}

#[derive(Debug, Default)]
struct Pods {
    pods: BTreeMap<String, Vec<(String, u32, Instance)>>,
    behaviour: BTreeMap<String, Behaviour>,
    /// The instance before, of each container: the kubelet keeps it until the next one ends.
    ended: BTreeMap<String, Instance>,
    deeds: Vec<Deed>,
}

/// Containers of all pods.
#[derive(Clone, Debug)]
pub struct FakePods {
    clock: Clock,
    state: Arc<Mutex<Pods>>,
}

impl FakePods {
    /// None.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            state: Arc::default(),
        }
    }

    /// Starts a container; its first instance is called `NAME-0`.
    pub fn start(&self, pod_uid: &str, name: &str, behaviour: Behaviour) {
        self.lock().behaviour.insert(key(pod_uid, name), behaviour);
        self.begin(pod_uid, name, 0);
    }

    /// What was done so far.
    #[must_use]
    pub fn deeds(&self) -> Vec<Deed> {
        self.lock().deeds.clone()
    }

    /// Instances that were told to stop.
    #[must_use]
    pub fn stopped(&self) -> Vec<String> {
        let stopped = |deed| match deed {
            Deed::Stop(id, _) => Some(id),
            _ => None,
        };
        self.deeds().into_iter().filter_map(stopped).collect()
    }

    /// Ends an instance as a crash does.
    pub fn crash(&self, pod_uid: &str, name: &str) {
        self.end(pod_uid, name, 1);
    }

    fn lock(&self) -> MutexGuard<'_, Pods> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, pod_uid: &str, name: &str, count: u32) {
        let id = format!("{name}-{count}");
        let instance = Instance {
            id: id.clone(),
            state: State::Running,
            restart_count: count,
            started_at: Some(self.clock.now_wall() - SignedDuration::from_secs(1)),
            exit: None,
        };
        let mut state = self.lock();
        state.deeds.push(Deed::Started(id));
        let pod = state.pods.entry(pod_uid.to_owned()).or_default();
        let before = pod.iter().find(|(other, ..)| other == name);
        let before = before.map(|(_, _, instance)| instance.clone());
        pod.retain(|(other, ..)| other != name);
        pod.push((name.to_owned(), count, instance));
        if let Some(before) = before {
            state.ended.insert(key(pod_uid, name), before);
        }
    }

    fn end(&self, pod_uid: &str, name: &str, code: i32) {
        let now = self.clock.now_wall();
        let mut state = self.lock();
        let back = state
            .behaviour
            .get(&key(pod_uid, name))
            .and_then(|behaviour| behaviour.back);
        let pod = state.pods.entry(pod_uid.to_owned()).or_default();
        let Some((_, count, instance)) = pod.iter_mut().find(|(other, ..)| other == name) else {
            return;
        };
        if instance.state == State::Exited {
            return;
        }
        instance.state = State::Exited;
        instance.exit = Some(Exit {
            code,
            finished_at: Some(now),
        });
        let (kubelet, pod_uid, name, next) = (self.clone(), pod_uid.to_owned(), name.to_owned(), *count + 1);
        if let Some(back) = back {
            tokio::spawn(async move {
                tokio::time::sleep(back).await;
                kubelet.begin(&pod_uid, &name, next);
            });
        }
    }

    fn place_of(&self, id: &str) -> Option<(String, String)> {
        let state = self.lock();
        state.pods.iter().find_map(|(uid, pod)| {
            let found = pod.iter().find(|(_, _, instance)| instance.id == id)?;
            Some((uid.clone(), found.0.clone()))
        })
    }

    fn behaviour(&self, id: &str) -> Option<(String, String, Behaviour)> {
        let (uid, name) = self.place_of(id)?;
        let behaviour = self.lock().behaviour.get(&key(&uid, &name)).cloned();
        Some((uid, name, behaviour.unwrap_or_default()))
    }
}

fn key(pod_uid: &str, name: &str) -> String {
    format!("{pod_uid}/{name}")
}

fn not_found(call: &'static str) -> RuntimeError {
    RuntimeError {
        call,
        code: Code::NotFound,
        text: "no such container".to_owned(),
    }
}

impl Containers for FakePods {
    fn of_pod(&self, pod_uid: &str) -> BoxFuture<'_, Result<Vec<Seen>, RuntimeError>> {
        let pod_uid = pod_uid.to_owned();
        async move {
            let state = self.lock();
            let pod = state.pods.get(&pod_uid).cloned().unwrap_or_default();
            let seen = |(name, _, instance): (String, u32, Instance)| Seen {
                pre_stop: state
                    .behaviour
                    .get(&key(&pod_uid, &name))
                    .and_then(|behaviour| behaviour.pre_stop.clone()),
                ports: None,
                name,
                instance: Instance {
                    started_at: None,
                    exit: None,
                    ..instance
                },
            };
            Ok(pod.into_iter().map(seen).collect())
        }
        .boxed()
    }

    fn in_full(&self, instance: &Instance) -> BoxFuture<'_, Result<Instance, RuntimeError>> {
        let id = instance.id.clone();
        async move {
            let state = self.lock();
            let mut all = state.pods.values().flatten();
            let found = all.find(|(_, _, instance)| instance.id == id);
            let mut ended = state.ended.values();
            found
                .map(|(_, _, instance)| instance.clone())
                .or_else(|| ended.find(|instance| instance.id == id).cloned())
                .ok_or_else(|| not_found("ContainerStatus"))
        }
        .boxed()
    }

    fn stop(&self, id: &str, grace: Duration) -> BoxFuture<'_, Result<(), RuntimeError>> {
        let id = id.to_owned();
        async move {
            self.lock().deeds.push(Deed::Stop(id.clone(), grace));
            let Some((uid, name, behaviour)) = self.behaviour(&id) else {
                return Ok(());
            };
            if let Some(text) = behaviour.error {
                return Err(RuntimeError {
                    call: "StopContainer",
                    code: Code::Other,
                    text,
                });
            }
            tokio::time::sleep(behaviour.stop.min(grace)).await;
            self.end(&uid, &name, 137);
            Ok(())
        }
        .boxed()
    }

    fn exec(
        &self,
        id: &str,
        _command: Vec<String>,
        limit: Duration,
    ) -> BoxFuture<'_, Result<(i32, String), RuntimeError>> {
        let id = id.to_owned();
        async move {
            self.lock().deeds.push(Deed::Exec(id.clone()));
            let (.., behaviour) = self.behaviour(&id).ok_or_else(|| not_found("ExecSync"))?;
            tokio::time::sleep(behaviour.exec.min(limit)).await;
            Ok((0, String::new()))
        }
        .boxed()
    }
}
