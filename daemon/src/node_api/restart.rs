//! RestartContainer: stops the one instance that was named and waits until the kubelet has started its successor.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kruise_proto::convert;
use kruise_proto::node::restart_container_response::Stage;
use kruise_proto::node::{RestartContainerRequest, RestartContainerResponse};
use tokio::sync::mpsc;
use tonic::Status;

use super::refuse;
use crate::clock::Clock;
use crate::runtime::Runtime;
use crate::runtime::machine::{Container, Machine, Times};

/// See the contract.
const MAX_GRACE: Duration = Duration::from_secs(3600);
const START_TIMES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15 * 60));
const START_TIMEOUT: Duration = Duration::from_secs(120);
const SHORTEST_ID: usize = 4;
const LONGEST_ID: usize = 128;
/// Grace period of a container whose pod does not tell, as the kubelet has it.
const GRACE: Duration = Duration::from_secs(30);
/// Time beyond the grace period for the runtime to kill and clean up.
const KILL: Duration = Duration::from_secs(30);
/// How often the runtime is asked for the successor.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Restarts at once.
const MOST: usize = 16;

/// Containers that are being restarted.
#[derive(Clone, Debug, Default)]
pub(super) struct UnderWay(Arc<Mutex<BTreeSet<String>>>);

/// A container's place among those; given back when it is dropped.
struct Place {
    all: UnderWay,
    id: String,
}

impl UnderWay {
    fn enter(&self, id: &str) -> Result<Place, Status> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MOST {
            return Err(refuse::too_many("restarts", MOST));
        }
        if !all.insert(id.to_owned()) {
            return Err(refuse::under_way(id));
        }
        Ok(Place {
            all: self.clone(),
            id: id.to_owned(),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.all
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.id);
    }
}

/// A restart that may begin.
pub(super) struct Restart {
    runtime: Arc<dyn Runtime>,
    clock: Clock,
    old: Container,
    grace: Duration,
    start_timeout: Duration,
    _place: Place,
}

type Stages = mpsc::Sender<Result<RestartContainerResponse, Status>>;

impl Restart {
    /// Finds the container and checks that it may be stopped.
    pub(super) async fn new(
        runtime: Arc<dyn Runtime>,
        clock: Clock,
        under_way: &UnderWay,
        request: RestartContainerRequest,
    ) -> Result<Self, Status> {
        let id = container_id(&request.container_id)?;
        let time = |time: &Option<prost_types::Duration>,
                    field: &str,
                    (least, most): (Duration, Duration),
                    bounds: &str| {
            let Some(time) = time else { return Ok(None) };
            let time = convert::from_duration(time).filter(|time| (least..=most).contains(time));
            time.map(Some).ok_or_else(|| refuse::out_of_bounds(field, bounds))
        };
        let grace = time(
            &request.grace_period,
            "grace_period",
            (Duration::ZERO, MAX_GRACE),
            "at most 1 h",
        )?;
        let start_timeout = time(
            &request.start_timeout,
            "start_timeout",
            START_TIMES,
            "from 1 s to 15 min",
        )?;
        let old = find(machine(&runtime)?, id).await?;
        if !old.running {
            return Err(refuse::not_running(&old.id));
        }
        if old.pod_uid.is_empty() {
            return Err(refuse::not_managed(&old.id));
        }
        Ok(Self {
            grace: grace.or(old.grace).unwrap_or(GRACE).min(MAX_GRACE),
            start_timeout: start_timeout.unwrap_or(START_TIMEOUT),
            _place: under_way.enter(&old.id)?,
            runtime,
            clock,
            old,
        })
    }

    /// Goes all the way, whether somebody listens or not.
    pub(super) async fn run(self, stages: Stages) {
        if let Err(status) = self.stages(&stages).await {
            tracing::warn!(
                container = self.old.id,
                error = status.message(),
                "restart of a container failed"
            );
            let _ = stages.send(Err(status)).await;
        }
    }

    async fn stages(&self, stages: &Stages) -> Result<(), Status> {
        let machine = machine(&self.runtime)?;
        let mut told = RestartContainerResponse {
            stage: Stage::Stopping.into(),
            container_id: self.old.id.clone(),
            container: self.old.name.clone(),
            pod: self.old.pod.clone(),
            grace_period: Some(convert::to_duration(self.grace)),
            ..RestartContainerResponse::default()
        };
        let _ = stages.send(Ok(told.clone())).await;
        tracing::info!(container = self.old.id, name = self.old.name, pod = self.old.pod, grace = ?self.grace, "container is stopped on the word of a caller");
        let began = self.clock.now_mono();
        let limit = self.grace.saturating_add(KILL);
        match tokio::time::timeout(limit, machine.stop(&self.old.id, self.grace)).await {
            Ok(stopped) => stopped.map_err(|error| refuse::runtime(&error))?,
            Err(_) => return Err(refuse::stop_timeout(&self.old.id, limit)),
        }
        let stopped = self.clock.now_mono();
        // A container that is gone altogether has no exit code any more.
        let end = machine
            .times(&self.old.id)
            .await
            .ok()
            .flatten()
            .unwrap_or_default();
        told.set_stage(Stage::Stopped);
        told.stop_time = Some(convert::to_duration(stopped.saturating_sub(began)));
        told.exit_code = end.exit_code;
        let _ = stages.send(Ok(told.clone())).await;
        let new = self.successor(machine, stopped).await?;
        let measured = new
            .times
            .started
            .checked_sub(end.finished)
            .filter(|_| end.finished > 0);
        let down = measured.and_then(|nanos| u64::try_from(nanos).ok()).map_or_else(
            // The runtime did not write it down: what was seen from here.
            || self.clock.now_mono().saturating_sub(stopped),
            Duration::from_nanos,
        );
        tracing::info!(
            container = self.old.id,
            successor = new.id,
            ?down,
            "container was started again"
        );
        told.set_stage(Stage::Started);
        told.new_container_id = new.id;
        told.down_time = Some(convert::to_duration(down));
        let _ = stages.send(Ok(told)).await;
        Ok(())
    }

    /// Waits until another container of the same name has run in the same pod.
    async fn successor(&self, machine: &dyn Machine, since: Duration) -> Result<Successor, Status> {
        let end = since.saturating_add(self.start_timeout);
        while self.clock.now_mono() < end {
            // A runtime that is away for a moment is asked again.
            let found = machine
                .containers(Some((&self.old.pod_uid, &self.old.name)))
                .await
                .unwrap_or_default();
            let successors = found
                .into_iter()
                .filter(|found| found.id != self.old.id && found.created > self.old.created);
            if let Some(found) = successors.min_by_key(|found| found.created)
                && let Ok(Some(times)) = machine.times(&found.id).await
                && times.started > 0
            {
                return Ok(Successor { id: found.id, times });
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Err(refuse::not_started_again(
            &self.old.name,
            &self.old.pod,
            self.start_timeout,
        ))
    }
}

struct Successor {
    id: String,
    times: Times,
}

fn machine(runtime: &Arc<dyn Runtime>) -> Result<&dyn Machine, Status> {
    runtime.machine().ok_or_else(|| {
        let error = crate::runtime::RuntimeError {
            call: "StopContainer",
            code: kruise_planner::node::reason::Code::Unavailable,
            text: "this runtime has no containers".to_owned(),
        };
        refuse::runtime(&error)
    })
}

/// Also in the form in which a pod's status has it, with the runtime's name in front.
fn container_id(text: &str) -> Result<&str, Status> {
    let id = text.split_once("://").map_or(text, |(_, id)| id).trim();
    let fits = (SHORTEST_ID..=LONGEST_ID).contains(&id.len());
    let plain = id
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if fits && plain {
        Ok(id)
    } else {
        Err(refuse::invalid_container_id())
    }
}

async fn find(machine: &dyn Machine, id: &str) -> Result<Container, Status> {
    let all = machine
        .containers(None)
        .await
        .map_err(|error| refuse::runtime(&error))?;
    let mut found: Vec<Container> = all
        .into_iter()
        .filter(|container| container.id.starts_with(id))
        .collect();
    if let Some(exact) = found.iter().position(|container| container.id == id) {
        return Ok(found.swap_remove(exact));
    }
    if found.len() > 1 {
        let ids: Vec<String> = found.into_iter().map(|container| container.id).collect();
        return Err(refuse::ambiguous(id, &ids));
    }
    if let Some(only) = found.pop() {
        return Ok(only);
    }
    let sandboxes = machine
        .sandboxes()
        .await
        .map_err(|error| refuse::runtime(&error))?;
    match sandboxes.into_iter().find(|sandbox| sandbox.id.starts_with(id)) {
        Some(sandbox) => Err(refuse::is_sandbox(id, &sandbox.pod)),
        None => Err(refuse::container_not_found(id)),
    }
}
