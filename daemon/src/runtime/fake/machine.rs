//! Containers that play: they stop at once, and start again if so told.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kruise_planner::node::reason::Code;
use kruise_proto::node::Image;

use crate::runtime::RuntimeError;
use crate::runtime::machine::{Container, Machine, Sandbox, Times};

/// When every container of the play was stopped.
const STOPPED_AT: i64 = 1_000_000_000;

#[derive(Debug, Default)]
struct State {
    images: Vec<Image>,
    containers: Vec<(Container, Times)>,
    sandboxes: Vec<Sandbox>,
    stopped: Vec<(String, Duration)>,
    again: Option<Duration>,
    away: bool,
}

/// What a machine has beside the pulls.
#[derive(Debug, Default)]
pub struct FakeMachine(Mutex<State>);

impl FakeMachine {
    /// Images that are listed.
    pub fn images(&self, images: Vec<Image>) {
        self.lock().images = images;
    }

    /// Containers that are there.
    pub fn containers(&self, containers: Vec<Container>) {
        let containers = containers
            .into_iter()
            .map(|container| (container, Times::default()));
        self.lock().containers = containers.collect();
    }

    /// One sandbox more.
    pub fn sandbox(&self, id: &str, pod: &str) {
        self.lock().sandboxes.push(Sandbox {
            id: id.to_owned(),
            pod: pod.to_owned(),
        });
    }

    /// Stopped containers have a successor that starts after this time by their own account; none have none.
    pub fn starts_again(&self, after: Option<Duration>) {
        self.lock().again = after;
    }

    /// Lets every call fail, or no longer.
    pub fn away(&self, away: bool) {
        self.lock().away = away;
    }

    /// What was stopped, with which grace period.
    #[must_use]
    pub fn stopped(&self) -> Vec<(String, Duration)> {
        self.lock().stopped.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call<T>(
        &self,
        call: &'static str,
        answer: impl FnOnce(&mut State) -> T,
    ) -> BoxFuture<'_, Result<T, RuntimeError>>
    where
        T: Send + 'static,
    {
        let mut state = self.lock();
        let answer = if state.away {
            Err(RuntimeError {
                call,
                code: Code::Away,
                text: "connection refused".into(),
            })
        } else {
            Ok(answer(&mut state))
        };
        std::future::ready(answer).boxed()
    }
}

impl Machine for FakeMachine {
    fn images(&self) -> BoxFuture<'_, Result<Vec<Image>, RuntimeError>> {
        self.call("ListImages", |state| state.images.clone())
    }

    fn containers(&self, of: Option<(&str, &str)>) -> BoxFuture<'_, Result<Vec<Container>, RuntimeError>> {
        self.call("ListContainers", |state| {
            let all = state.containers.iter().map(|(container, _)| container);
            let wanted = all.filter(|container| {
                of.is_none_or(|(uid, name)| container.pod_uid == uid && container.name == name)
            });
            wanted.cloned().collect()
        })
    }

    fn sandboxes(&self) -> BoxFuture<'_, Result<Vec<Sandbox>, RuntimeError>> {
        self.call("ListPodSandbox", |state| state.sandboxes.clone())
    }

    fn times(&self, id: &str) -> BoxFuture<'_, Result<Option<Times>, RuntimeError>> {
        self.call("ContainerStatus", |state| {
            let mut all = state.containers.iter();
            all.find(|(container, _)| container.id == id)
                .map(|(_, times)| *times)
        })
    }

    fn stop(&self, id: &str, grace: Duration) -> BoxFuture<'_, Result<(), RuntimeError>> {
        self.call("StopContainer", |state| {
            state.stopped.push((id.to_owned(), grace));
            let again = state.again;
            let Some((old, times)) = state
                .containers
                .iter_mut()
                .find(|(container, _)| container.id == id)
            else {
                return;
            };
            old.running = false;
            (times.finished, times.exit_code) = (STOPPED_AT, 143);
            if let Some(after) = again {
                let successor = Container {
                    id: format!("{id}-again"),
                    running: true,
                    created: old.created + 1,
                    ..old.clone()
                };
                let started = STOPPED_AT + i64::try_from(after.as_nanos()).unwrap_or(i64::MAX);
                let times = Times {
                    started,
                    ..Times::default()
                };
                state.containers.push((successor, times));
            }
        })
    }
}
