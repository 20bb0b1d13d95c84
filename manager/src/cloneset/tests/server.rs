//! An API server in memory: versions, preconditions, patches, watches that may lag, and faults on demand.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kruise_api::clone_set::CloneSet;
use kruise_api::reference::ImageRef;
use kruise_planner::cloneset::Gates;
use kruise_proto::dispatch::Credential;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::super::event::{Event, Seen};
use super::super::objects::Object;
use super::super::ports::{Cluster, CreateFailure, PodName, Requests, Told, Watches, Way};
use super::super::space::Kind;
use super::merge;
use crate::kubeapi::ApiFailure;

pub(super) const NAMESPACE: &str = "ns";

/// What happens to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is done and answered.
    Fine,
    /// It is refused with this text.
    Refused(&'static str),
    /// It is done, and the answer is lost.
    DoneUnanswered,
    /// It is not done, and nothing is answered.
    Lost,
}

type Decide = Box<dyn FnMut(&str) -> Fate + Send>;
type Key = (Kind, String);

/// One change of an object.
pub(super) struct Change<'a> {
    /// A write of the controller, not of a user or a kubelet.
    pub(super) by_controller: bool,
    pub(super) kind: Kind,
    pub(super) before: Option<&'a Value>,
    pub(super) after: Option<&'a Value>,
}

type Witness = Box<dyn FnMut(&Change<'_>) + Send>;

/// A watch: its kind, the version that its list was made at, and where its news go.
type Watcher = (Kind, u64, mpsc::UnboundedSender<Event>);

#[derive(Default)]
struct Inner {
    objects: BTreeMap<Key, Value>,
    version: u64,
    uids: u64,
    log: Vec<String>,
    told: Vec<Told>,
    watchers: Vec<Watcher>,
    /// News that watches have not told yet, with their versions.
    held: Option<Vec<(u64, Kind, Event)>>,
    /// The write under way is the controller's.
    by_controller: bool,
    witness: Option<Witness>,
    fate: Option<Decide>,
}

/// An API server in memory. Cheap to clone.
#[derive(Clone)]
pub(super) struct Server {
    inner: Arc<Mutex<Inner>>,
    began: tokio::time::Instant,
}

impl Server {
    pub(super) fn new() -> Self {
        Self {
            inner: Arc::default(),
            began: tokio::time::Instant::now(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What becomes of writes, each told as `VERB kind name`.
    pub(super) fn fate(&self, decide: impl FnMut(&str) -> Fate + Send + 'static) {
        self.lock().fate = Some(Box::new(decide));
    }

    /// Watches say nothing from now on; what they have to tell is told at once when they speak again.
    pub(super) fn silence(&self, silent: bool) {
        let mut inner = self.lock();
        if silent {
            inner.held = Some(Vec::new());
        } else {
            for (version, kind, event) in inner.held.take().unwrap_or_default() {
                inner.tell(version, kind, &event);
            }
        }
    }

    /// Who is shown each change from now on.
    pub(super) fn witness(&self, witness: impl FnMut(&Change<'_>) + Send + 'static) {
        self.lock().witness = Some(Box::new(witness));
    }

    /// Writes of the controller so far.
    pub(super) fn log(&self) -> Vec<String> {
        self.lock().log.clone()
    }

    /// Events on sets so far, by reason.
    pub(super) fn told(&self) -> Vec<Told> {
        self.lock().told.clone()
    }

    /// All objects of a kind, by name.
    pub(super) fn all(&self, kind: Kind) -> Vec<Value> {
        let inner = self.lock();
        let of_kind = inner.objects.iter().filter(|((of, _), _)| *of == kind);
        of_kind.map(|(_, object)| object.clone()).collect()
    }

    pub(super) fn get(&self, kind: Kind, name: &str) -> Option<Value> {
        self.lock().objects.get(&(kind, name.to_owned())).cloned()
    }

    /// Stores an object as a user or a kubelet would.
    pub(super) fn put(&self, kind: Kind, object: Value) -> Value {
        let now = self.time();
        self.lock().create(kind, object, now).expect("a free name")
    }

    /// Changes an object as a user or a kubelet would.
    pub(super) fn change(&self, kind: Kind, name: &str, change: impl FnOnce(&mut Value)) {
        let mut inner = self.lock();
        let Some(mut object) = inner.objects.get(&(kind, name.to_owned())).cloned() else {
            return;
        };
        let before = object.clone();
        change(&mut object);
        if object != before {
            let spec_changed = object["spec"] != before["spec"];
            inner.store(kind, object, spec_changed);
        }
    }

    /// Takes an object away as a kubelet or a user would.
    pub(super) fn remove(&self, kind: Kind, name: &str) {
        self.lock().remove(kind, name);
    }

    pub(super) fn time(&self) -> Timestamp {
        let start = Timestamp::from_second(1_750_000_000).expect("in range");
        let passed = SignedDuration::try_from(self.began.elapsed()).expect("short");
        start.saturating_add(passed).expect("in range")
    }

    fn decide(&self, what: String) -> Fate {
        let mut inner = self.lock();
        let fate = inner.fate.as_mut().map_or(Fate::Fine, |decide| decide(&what));
        inner.log.push(what);
        fate
    }

    /// A write of the controller: takes a little time, and may go wrong.
    fn write<T: Send + 'static>(
        &self,
        what: String,
        write: impl FnOnce(&mut Inner) -> Result<T, ApiFailure> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, ApiFailure>> {
        let server = self.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(3)).await;
            let unsure = || ApiFailure::Unsure {
                detail: "no answer".to_owned(),
                retry_after: None,
            };
            match server.decide(what) {
                Fate::Fine => server.lock().by_controller(write),
                Fate::Refused(text) => Err(ApiFailure::Refused(text.to_owned())),
                Fate::DoneUnanswered => {
                    server.lock().by_controller(write)?;
                    Err(unsure())
                }
                Fate::Lost => Err(unsure()),
            }
        }
        .boxed()
    }
}

impl Inner {
    fn by_controller<T>(&mut self, write: impl FnOnce(&mut Self) -> T) -> T {
        self.by_controller = true;
        let done = write(self);
        self.by_controller = false;
        done
    }

    fn show(&mut self, kind: Kind, before: Option<&Value>, after: Option<&Value>) {
        let by_controller = self.by_controller;
        if let Some(witness) = &mut self.witness {
            witness(&Change {
                by_controller,
                kind,
                before,
                after,
            });
        }
    }

    /// A watch tells what came after its list.
    fn tell(&mut self, version: u64, kind: Kind, event: &Event) {
        self.watchers.retain(|(of, listed, watcher)| {
            *of != kind || *listed >= version || watcher.send(copy(event)).is_ok()
        });
    }

    fn news(&mut self, kind: Kind, event: Event) {
        match &mut self.held {
            Some(held) => held.push((self.version, kind, event)),
            None => self.tell(self.version, kind, &event),
        }
    }

    fn create(&mut self, kind: Kind, mut object: Value, now: Timestamp) -> Option<Value> {
        let name = object["metadata"]["name"].as_str().expect("a name").to_owned();
        if self.objects.contains_key(&(kind, name)) {
            return None;
        }
        self.uids += 1;
        object["metadata"]["uid"] = format!("uid-{}", self.uids).into();
        object["metadata"]["namespace"] = NAMESPACE.into();
        object["metadata"]["creationTimestamp"] = json!(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        Some(self.store(kind, object, true))
    }

    fn store(&mut self, kind: Kind, mut object: Value, spec_changed: bool) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        if kind == Kind::Set && spec_changed {
            let generation = object["metadata"]["generation"].as_i64().unwrap_or(0);
            object["metadata"]["generation"] = (generation + 1).into();
        }
        let name = object["metadata"]["name"].as_str().expect("a name").to_owned();
        let before = self.objects.insert((kind, name), object.clone());
        self.show(kind, before.as_ref(), Some(&object));
        self.news(
            kind,
            Event::Told {
                namespace: NAMESPACE.to_owned(),
                object: typed(kind, &object),
            },
        );
        object
    }

    fn remove(&mut self, kind: Kind, name: &str) {
        if let Some(object) = self.objects.remove(&(kind, name.to_owned())) {
            self.version += 1;
            self.show(kind, Some(&object), None);
            self.news(
                kind,
                Event::Deleted {
                    kind,
                    namespace: NAMESPACE.to_owned(),
                    name: name.to_owned(),
                    uid: object["metadata"]["uid"].as_str().expect("a uid").to_owned(),
                },
            );
        }
    }

    fn checked(&self, kind: Kind, name: &str, uid: &Value, version: &Value) -> Result<Value, ApiFailure> {
        let object = self
            .objects
            .get(&(kind, name.to_owned()))
            .ok_or(ApiFailure::Gone)?;
        let fits = |wanted: &Value, field: &str| {
            wanted.as_str().is_none_or(str::is_empty) || *wanted == object["metadata"][field]
        };
        if fits(uid, "uid") && fits(version, "resourceVersion") {
            Ok(object.clone())
        } else {
            Err(ApiFailure::Conflict)
        }
    }

    fn patch(&mut self, kind: Kind, name: &str, way: Way, body: &Value) -> Result<Object, ApiFailure> {
        let meta = &body["metadata"];
        assert!(meta["uid"].is_string(), "every patch names the UID: {body}");
        let before = self.checked(kind, name, &meta["uid"], &meta["resourceVersion"])?;
        let mut object = before.clone();
        match way {
            Way::Merge | Way::MergeStatus => merge::merge(&mut object, body),
            Way::Strategic | Way::StrategicStatus | Way::Resize => merge::strategic(&mut object, body),
        }
        let of_status = matches!(way, Way::MergeStatus | Way::StrategicStatus);
        let (keep, other) = if of_status {
            ("spec", "status")
        } else {
            ("status", "spec")
        };
        assert!(
            way == Way::Resize || body.get(other).is_some() || body.get(keep).is_none(),
            "{body}"
        );
        object[keep] = before[keep].clone();
        if of_status {
            for field in ["finalizers", "ownerReferences"] {
                assert!(
                    meta.get(field).is_none(),
                    "a write of the status does not carry {field}"
                );
            }
        }
        let spec_changed = object["spec"] != before["spec"];
        Ok(typed(kind, &self.store(kind, object, spec_changed)))
    }

    /// A pod that has a node stays until its kubelet lets it go.
    fn delete(&mut self, kind: Kind, name: &str, seen: &Seen) -> Result<Option<Object>, ApiFailure> {
        let (uid, version) = (json!(seen.uid), json!(seen.version));
        let mut object = self.checked(kind, name, &uid, &version)?;
        if kind == Kind::Pod && object["spec"]["nodeName"].is_string() {
            object["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z".into();
            return Ok(Some(typed(kind, &self.store(kind, object, false))));
        }
        self.remove(kind, name);
        Ok(None)
    }
}

fn copy(event: &Event) -> Event {
    match event {
        Event::Told { namespace, object } => Event::Told {
            namespace: namespace.clone(),
            object: object.clone(),
        },
        Event::Deleted {
            kind,
            namespace,
            name,
            uid,
        } => Event::Deleted {
            kind: *kind,
            namespace: namespace.clone(),
            name: name.clone(),
            uid: uid.clone(),
        },
        other => unreachable!("not news: {other:?}"),
    }
}

fn typed(kind: Kind, object: &Value) -> Object {
    fn read<T: serde::de::DeserializeOwned>(object: &Value) -> T {
        T::deserialize(object).unwrap_or_else(|error| panic!("{error}: {object}"))
    }
    match kind {
        Kind::Set => Object::from(read::<CloneSet>(object)),
        Kind::Pod => Object::pod(&read::<Pod>(object), &Gates::default()),
        Kind::Claim => Object::from(read::<k8s_openapi::api::core::v1::PersistentVolumeClaim>(object)),
        Kind::Revision => Object::from(read::<k8s_openapi::api::apps::v1::ControllerRevision>(object)),
        Kind::Job => Object::from(read::<kruise_api::image_pull_job::ImagePullJob>(object)),
        Kind::Request => Object::from(read::<
            kruise_api::container_recreate_request::ContainerRecreateRequest,
        >(object)),
    }
}

impl Requests for Server {
    fn create(
        &self,
        kind: Kind,
        _namespace: String,
        body: Value,
    ) -> BoxFuture<'static, Result<Object, CreateFailure>> {
        let now = self.time();
        let what = format!(
            "create {kind:?} {}",
            body["metadata"]["name"].as_str().expect("a name")
        );
        let made = self.write(what, move |inner| Ok(inner.create(kind, body, now)));
        async move {
            match made.await {
                Ok(Some(object)) => Ok(typed(kind, &object)),
                Ok(None) => Err(CreateFailure::Exists),
                Err(failure) => Err(CreateFailure::Other(failure)),
            }
        }
        .boxed()
    }

    fn patch(
        &self,
        kind: Kind,
        _namespace: String,
        name: String,
        way: Way,
        body: Value,
    ) -> BoxFuture<'static, Result<Object, ApiFailure>> {
        let what = format!("patch {kind:?} {name} {way:?}");
        self.write(what, move |inner| inner.patch(kind, &name, way, &body))
    }

    fn delete(
        &self,
        kind: Kind,
        _namespace: String,
        name: String,
        seen: Seen,
    ) -> BoxFuture<'static, Result<Option<Object>, ApiFailure>> {
        let what = format!("delete {kind:?} {name}");
        self.write(what, move |inner| inner.delete(kind, &name, &seen))
    }

    fn find(
        &self,
        kind: Kind,
        _namespace: String,
        name: String,
    ) -> BoxFuture<'static, Result<Option<Object>, ApiFailure>> {
        let found = self.get(kind, &name).map(|object| typed(kind, &object));
        async move { Ok(found) }.boxed()
    }

    fn pod(&self, _namespace: String, name: String) -> BoxFuture<'static, Result<Option<Pod>, ApiFailure>> {
        let found = self.get(Kind::Pod, &name);
        async move { Ok(found.map(|pod| serde_json::from_value(pod).expect("a pod"))) }.boxed()
    }

    fn log_ins(
        &self,
        _: String,
        _: String,
        _: ImageRef,
    ) -> BoxFuture<'static, Result<Vec<Credential>, String>> {
        async { Ok(Vec::new()) }.boxed()
    }

    fn record_of_pod(&self, _pod: PodName, event: Told) -> BoxFuture<'static, Result<(), ApiFailure>> {
        self.lock().told.push(event);
        async { Ok(()) }.boxed()
    }

    fn record(&self, _set: &CloneSet, event: Told) -> BoxFuture<'static, Result<(), ApiFailure>> {
        self.lock().told.push(event);
        async { Ok(()) }.boxed()
    }
}

impl Watches for Server {
    fn follow(&self, kind: Kind) -> BoxStream<'static, Event> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let listed: Vec<Event> = self
            .all(kind)
            .into_iter()
            .map(|object| Event::Told {
                namespace: NAMESPACE.to_owned(),
                object: typed(kind, &object),
            })
            .collect();
        {
            let mut inner = self.lock();
            let listed = inner.version;
            inner.watchers.push((kind, listed, sender));
        }
        let list = std::iter::once(Event::Begin(kind))
            .chain(listed)
            .chain([Event::Complete(kind)]);
        let news = futures::stream::unfold(receiver, |mut receiver| async move {
            Some((receiver.recv().await?, receiver))
        });
        futures::stream::iter(list).chain(news).boxed()
    }

    fn nodes(&self) -> BoxStream<'static, Event> {
        futures::stream::pending().boxed()
    }
}

impl Cluster for Server {
    fn now(&self) -> Timestamp {
        self.time()
    }
}
