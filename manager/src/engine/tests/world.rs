//! A leader's state with a small cluster around it: what is sent to agents and written to the API is kept, and answered by the tests.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kruise_api::ids::{Epoch, JobUid, NodeName, ObjectKey, TaskId};
use kruise_api::image_pull_job::ImagePullJobStatus;
use kruise_planner::job::JobEvent;
use kruise_proto::dispatch::{Ack, Cancel, Hello, Order, Refusal, order};
use kruise_proto::task::{Phase, Reason, TaskStatus};
use serde_json::{Value, json};

use crate::engine::config::EngineConfig;
use crate::engine::event::{
    Attach, AttachRefused, CloseReason, Effect, Event, ImageWrite, JobWrite, Now, SecretAnswer,
    SecretRequest, SessionId, ToAgent,
};
use crate::engine::objects::{JobObject, Listing, NodeImageObject, NodeObject, Ready};
use crate::engine::ports::ApiFailure;
use crate::engine::state::EngineState;
use crate::engine::vitals::Vitals;

/// What a node's agent has been told on its present stream.
#[derive(Default)]
pub(super) struct Told {
    pub(super) generation: u64,
    pub(super) orders: BTreeMap<String, Order>,
    pub(super) cancels: Vec<Cancel>,
    pub(super) saved: Vec<String>,
    pub(super) probes: Vec<String>,
    pub(super) closed: Option<CloseReason>,
    pub(super) sets: usize,
}

pub(super) struct World {
    pub(super) state: EngineState,
    pub(super) now: Now,
    pub(super) jobs: BTreeMap<JobUid, JobObject>,
    pub(super) nodes: BTreeMap<NodeName, NodeObject>,
    version: u64,
    sessions: BTreeMap<NodeName, SessionId>,
    next_session: u64,
    pub(super) vitals: BTreeMap<NodeName, Arc<Vitals>>,
    pub(super) told: BTreeMap<SessionId, Told>,
    pub(super) images: BTreeMap<NodeName, NodeImageObject>,
    pub(super) image_writes: VecDeque<(NodeName, ImageWrite)>,
    pub(super) writes: VecDeque<(JobUid, JobWrite)>,
    pub(super) fetches: VecDeque<JobUid>,
    pub(super) secret_reads: VecDeque<Vec<SecretRequest>>,
    pub(super) pod_watches: Vec<(JobUid, u64, String)>,
    pub(super) events: Vec<JobEvent>,
    /// Reasons of the events on NodeImages.
    pub(super) told_events: Vec<&'static str>,
    /// Whether agents that attach answer questions.
    pub(super) probing: bool,
    /// Messages to agents and writes in the order in which they came out.
    pub(super) order_of_effects: Vec<&'static str>,
}

pub(super) fn start() -> Now {
    Now {
        mono: Duration::from_secs(1_000),
        wall: Timestamp::from_second(2_000_000_000).expect("a time"),
    }
}

pub(super) fn config() -> EngineConfig {
    EngineConfig {
        creation_delay: Duration::ZERO,
        ..EngineConfig::default()
    }
}

pub(super) fn node_object(name: &str) -> NodeObject {
    let since = Timestamp::from_second(1_000_000_000).expect("a time");
    NodeObject {
        name: name.into(),
        uid: format!("uid-{name}").as_str().into(),
        labels: BTreeMap::new(),
        created: since,
        deleting: false,
        ready: Some(Ready {
            is_true: true,
            since: since + SignedDuration::from_secs(60),
        }),
        cordoned: false,
        pressure: None,
    }
}

pub(super) fn job_object(name: &str, spec: &Value) -> JobObject {
    let mut spec = spec.clone();
    spec.as_object_mut()
        .expect("an object")
        .entry("image")
        .or_insert(json!("nginx:1"));
    JobObject {
        uid: format!("uid-{name}").as_str().into(),
        key: ObjectKey::new("ns", name),
        version: "1".into(),
        generation: 1,
        deleting: false,
        finalizers: Vec::new(),
        created: Timestamp::UNIX_EPOCH,
        annotations: BTreeMap::new(),
        controller: None,
        spec: serde_json::from_value(spec).expect("a spec"),
        status: None,
    }
}

impl World {
    /// A leader with `nodes` nodes whose agents begin only now, and one job "a", both listed.
    pub(super) fn new(nodes: usize, spec: &Value) -> Self {
        let mut world = Self::empty();
        for i in 1..=nodes {
            let node = node_object(&format!("node{i}"));
            world.nodes.insert(node.name.clone(), node);
        }
        let job = job_object("a", spec);
        world.jobs.insert(job.uid.clone(), job);
        world.list();
        world.event(Event::AgentNodes(BTreeSet::new()));
        world
    }

    pub(super) fn empty() -> Self {
        let now = start();
        Self {
            state: EngineState::new(config(), Epoch(7), now, Default::default()),
            now,
            jobs: BTreeMap::new(),
            nodes: BTreeMap::new(),
            version: 1,
            sessions: BTreeMap::new(),
            next_session: 1,
            vitals: BTreeMap::new(),
            told: BTreeMap::new(),
            images: BTreeMap::new(),
            image_writes: VecDeque::new(),
            writes: VecDeque::new(),
            fetches: VecDeque::new(),
            secret_reads: VecDeque::new(),
            pod_watches: Vec::new(),
            events: Vec::new(),
            told_events: Vec::new(),
            probing: false,
            order_of_effects: Vec::new(),
        }
    }

    /// Another leader takes over: everything in memory is gone, the objects stay.
    pub(super) fn fail_over(&mut self) {
        self.state = EngineState::new(config(), Epoch(8), self.now, Default::default());
        self.sessions.clear();
        self.told.clear();
        self.writes.clear();
        self.image_writes.clear();
        self.fetches.clear();
        self.secret_reads.clear();
        self.list();
    }

    /// Both lists, as a new leader reads them.
    pub(super) fn list(&mut self) {
        self.event(Event::NodeImages(Listing::Begin));
        for image in self.images.values().cloned().collect::<Vec<_>>() {
            self.event(Event::NodeImages(Listing::Listed(image)));
        }
        self.event(Event::NodeImages(Listing::Complete));
        self.event(Event::Nodes(Listing::Begin));
        for node in self.nodes.values().cloned().collect::<Vec<_>>() {
            self.event(Event::Nodes(Listing::Listed(node)));
        }
        self.event(Event::Nodes(Listing::Complete));
        self.event(Event::Jobs(Listing::Begin));
        for job in self.jobs.values().cloned().collect::<Vec<_>>() {
            self.event(Event::Jobs(Listing::Listed(job)));
        }
        self.event(Event::Jobs(Listing::Complete));
    }

    pub(super) fn event(&mut self, event: Event) {
        let effects = self.state.step(event, self.now);
        self.take(effects);
    }

    pub(super) fn settle(&mut self) {
        let effects = self.state.settle(self.now);
        self.take(effects);
    }

    fn take(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send { session, message } => self.deliver(session, message),
                Effect::Write { job, write, .. } => {
                    self.order_of_effects.push("write");
                    self.writes.push_back((job, write));
                }
                Effect::WriteImage { node, write, .. } => self.image_writes.push_back((node, write)),
                Effect::Fetch { job, .. } => self.fetches.push_back(job),
                Effect::ReadSecrets(requests) => self.secret_reads.push_back(requests),
                Effect::WatchPods {
                    job, watch, selector, ..
                } => self.pod_watches.push((job, watch, selector)),
                Effect::UnwatchPods { watch } => self.pod_watches.retain(|(_, number, _)| *number != watch),
                Effect::Publish(_) => {}
            }
        }
    }

    fn deliver(&mut self, session: SessionId, message: ToAgent) {
        let told = self.told.entry(session).or_default();
        match message {
            ToAgent::Set(set) => {
                assert_eq!(set.generation, told.generation + 1);
                told.generation = set.generation;
                told.sets += 1;
                told.orders = set
                    .orders
                    .into_iter()
                    .map(|order| (order.task_id.clone(), order))
                    .collect();
                self.order_of_effects.push("set");
            }
            ToAgent::Delta(delta) => {
                assert_eq!(delta.generation, told.generation + 1);
                told.generation = delta.generation;
                for cancel in delta.cancel {
                    assert!(
                        told.orders.remove(&cancel.task_id).is_some(),
                        "cancel of an unknown task"
                    );
                    told.cancels.push(cancel);
                }
                for order in delta.add {
                    let old = told.orders.insert(order.task_id.clone(), order);
                    assert!(old.is_none(), "an order was given twice");
                }
                self.order_of_effects.push("delta");
            }
            ToAgent::Saved(ack) => {
                for id in &ack.task_ids {
                    told.orders.remove(id);
                }
                told.saved.extend(ack.task_ids);
            }
            ToAgent::Probe(probe) => told.probes.extend(probe.images),
            ToAgent::Close(reason) => told.closed = Some(reason),
        }
    }

    pub(super) fn attach(&mut self, node: &str) {
        self.attach_with(node, Vec::new()).expect("let in");
    }

    /// Attaches with tasks and acknowledges the set.
    pub(super) fn attach_with(&mut self, node: &str, tasks: Vec<TaskStatus>) -> Result<(), AttachRefused> {
        self.try_attach(node, &format!("uid-{node}"), tasks)?;
        self.ack(node);
        Ok(())
    }

    pub(super) fn try_attach(
        &mut self,
        node: &str,
        uid: &str,
        tasks: Vec<TaskStatus>,
    ) -> Result<(), AttachRefused> {
        let hello = Hello {
            node_name: node.into(),
            answers_probes: self.probing,
            tasks,
            ..Hello::default()
        };
        self.say_hello(uid, hello)
    }

    pub(super) fn say_hello(&mut self, uid: &str, hello: Hello) -> Result<(), AttachRefused> {
        let node = hello.node_name.clone();
        let node = node.as_str();
        let session = SessionId(self.next_session);
        self.next_session += 1;
        let vitals = Arc::new(Vitals::new(self.now.mono, None, None));
        let attach = Attach {
            session,
            node: node.into(),
            node_uid: uid.into(),
            peer: "10.0.0.1".into(),
            hello,
            vitals: Arc::clone(&vitals),
        };
        self.state.attach(attach, self.now)?;
        self.sessions.insert(node.into(), session);
        self.vitals.insert(node.into(), vitals);
        self.told.entry(session).or_default();
        self.settle();
        Ok(())
    }

    /// Attaches as an agent that has obeyed this epoch.
    pub(super) fn attach_after(&mut self, node: &str, epoch: Epoch) -> Result<(), AttachRefused> {
        let hello = Hello {
            node_name: node.into(),
            highest_epoch: epoch.0,
            ..Hello::default()
        };
        self.say_hello(&format!("uid-{node}"), hello)
    }

    pub(super) fn session(&self, node: &str) -> SessionId {
        self.sessions[&NodeName::from(node)]
    }

    pub(super) fn detach(&mut self, node: &str) {
        let session = self.session(node);
        self.event(Event::Detached { session });
    }

    pub(super) fn told(&self, node: &str) -> &Told {
        &self.told[&self.session(node)]
    }

    /// Orders that a node's agent has.
    pub(super) fn orders(&self, node: &str) -> Vec<String> {
        self.told(node).orders.keys().cloned().collect()
    }

    /// Nodes with an order, by name.
    pub(super) fn pulling(&self) -> Vec<String> {
        self.sessions
            .iter()
            .filter(|(_, session)| self.told.get(session).is_some_and(|told| !told.orders.is_empty()))
            .map(|(node, _)| node.to_string())
            .collect()
    }

    pub(super) fn ack(&mut self, node: &str) {
        self.ack_with(node, Refusal::Unspecified);
    }

    pub(super) fn ack_with(&mut self, node: &str, refusal: Refusal) {
        let session = self.session(node);
        let generation = self.told[&session].generation;
        let epoch = self.state.epoch().0;
        let ack = Ack {
            epoch,
            generation,
            refusal: refusal.into(),
            message: String::new(),
        };
        self.event(Event::Ack { session, ack });
    }

    pub(super) fn report(&mut self, node: &str, phase: Phase) {
        let id = self.orders(node).first().expect("has an order").clone();
        self.report_task(node, status(&id, phase));
    }

    pub(super) fn report_task(&mut self, node: &str, status: TaskStatus) {
        let session = self.session(node);
        self.event(Event::Report {
            session,
            status: Box::new(status),
        });
    }

    pub(super) fn fail(&mut self, node: &str, reason: Reason) {
        let id = self.orders(node).first().expect("has an order").clone();
        let status = TaskStatus {
            reason: reason.into(),
            message: "why".into(),
            ..status(&id, Phase::Failed)
        };
        self.report_task(node, status);
    }

    pub(super) fn pass(&mut self, seconds: u64) {
        self.now.mono += Duration::from_secs(seconds);
        self.now.wall += SignedDuration::from_secs(seconds.try_into().expect("small"));
        self.settle();
    }

    /// Lets time pass with an answered heartbeat of every attached agent.
    pub(super) fn pass_alive(&mut self, seconds: u64) {
        self.now.mono += Duration::from_secs(seconds);
        self.now.wall += SignedDuration::from_secs(seconds.try_into().expect("small"));
        for vitals in self.vitals.values() {
            vitals.answer(self.now.mono);
        }
        self.settle();
    }

    pub(super) fn job(&self, name: &str) -> &JobObject {
        &self.jobs[&JobUid::new(format!("uid-{name}"))]
    }

    pub(super) fn status(&self) -> &ImagePullJobStatus {
        self.job("a").status.as_ref().expect("written")
    }

    /// Does the oldest write as the API server would. The watch does not tell of it.
    pub(super) fn finish_write(&mut self) {
        let (uid, write) = self.writes.pop_front().expect("a write");
        let result = self.apply_write(&uid, &write);
        self.event(Event::Written { job: uid, result });
    }

    pub(super) fn finish_writes(&mut self) {
        while !self.writes.is_empty() {
            self.finish_write();
        }
    }

    /// What the API server makes of a write.
    pub(super) fn apply_write(
        &mut self,
        uid: &JobUid,
        write: &JobWrite,
    ) -> Result<Option<JobObject>, ApiFailure> {
        let Some(job) = self.jobs.get_mut(uid) else {
            return Err(ApiFailure::Gone);
        };
        match write {
            JobWrite::Status {
                version,
                patch,
                event,
                ..
            } => {
                if *version != job.version {
                    return Err(ApiFailure::Conflict);
                }
                let mut status = serde_json::to_value(&job.status).expect("json");
                merge(&mut status, patch);
                job.status = serde_json::from_value(status).expect("a status");
                self.events.extend(event.clone());
            }
            JobWrite::Finalizers { version, finalizers } => {
                if *version != job.version {
                    return Err(ApiFailure::Conflict);
                }
                job.finalizers.clone_from(finalizers);
            }
            JobWrite::Delete => {
                self.jobs.remove(uid);
                return Ok(None);
            }
        }
        self.version += 1;
        job.version = self.version.to_string();
        Ok(Some(job.clone()))
    }

    pub(super) fn fail_write(&mut self, failure: ApiFailure) {
        let (uid, _) = self.writes.pop_front().expect("a write");
        self.event(Event::Written {
            job: uid,
            result: Err(failure),
        });
    }

    pub(super) fn finish_fetch(&mut self) {
        let uid = self.fetches.pop_front().expect("a read");
        let object = self.jobs.get(&uid).cloned();
        self.event(Event::Fetched {
            job: uid,
            result: Ok(object),
        });
    }

    /// Somebody edits a job; the watch tells.
    pub(super) fn edit(&mut self, name: &str, change: impl FnOnce(&mut JobObject)) {
        self.edit_unseen(name, change);
        self.watch(name);
    }

    pub(super) fn edit_unseen(&mut self, name: &str, change: impl FnOnce(&mut JobObject)) {
        self.version += 1;
        let job = self
            .jobs
            .get_mut(&JobUid::new(format!("uid-{name}")))
            .expect("a job");
        job.version = self.version.to_string();
        job.generation += 1;
        change(job);
    }

    /// The watch tells of a job as it is now.
    pub(super) fn watch(&mut self, name: &str) {
        let job = self.job(name).clone();
        self.event(Event::Jobs(Listing::Applied(job)));
    }

    pub(super) fn delete(&mut self, name: &str) {
        let uid = JobUid::new(format!("uid-{name}"));
        self.jobs.remove(&uid);
        self.event(Event::Jobs(Listing::Deleted(uid)));
    }

    pub(super) fn answer_secrets(&mut self, answer: impl Fn() -> SecretAnswer) {
        let requests = self.secret_reads.pop_front().expect("a read of secrets");
        let answers = requests
            .into_iter()
            .map(|request| (request.job, answer()))
            .collect();
        self.event(Event::Secrets(answers));
    }

    pub(super) fn summary(&self) -> kruise_proto::inspect::JobSummary {
        self.state
            .summaries(&Default::default())
            .into_iter()
            .next()
            .expect("a job")
    }

    pub(super) fn slots(&self) -> usize {
        let tasks = self.state.matching_tasks(&Default::default());
        tasks
            .iter()
            .filter(|task| !is_final(task.status.as_ref().expect("set")))
            .count()
    }
}

pub(super) fn is_final(status: &TaskStatus) -> bool {
    matches!(status.phase(), Phase::Succeeded | Phase::Failed)
}

pub(super) fn status(id: &str, phase: Phase) -> TaskStatus {
    TaskStatus {
        task_id: id.to_owned(),
        phase: phase.into(),
        image: "docker.io/library/nginx:1".into(),
        ..TaskStatus::default()
    }
}

/// Id of the task of job "a" in a round.
pub(super) fn task_id(node: &str, image: &str, round: u32) -> TaskId {
    let image = kruise_api::reference::ImageRef::parse(image).expect("valid");
    kruise_planner::task::pull_task_id(
        &"uid-a".into(),
        &format!("uid-{node}").as_str().into(),
        &image,
        round,
    )
}

pub(super) fn credentials(order: &Order) -> usize {
    match &order.work {
        Some(order::Work::PullImage(pull)) => pull.credentials.len(),
        _ => 0,
    }
}

/// RFC 7386, written from its pseudo code so that the patches are judged by something else than what makes them.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let target = target.as_object_mut().expect("made one");
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key).or_insert(Value::Null), value);
        }
    }
}
