//! The API server as the controller uses it.

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference, Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kruise_api::container_recreate_request::{ContainerRecreateRequest, keys};
use kruise_api::ids::ObjectKey;
use kruise_planner::restart::{EventNote, Write, lock, strip};
use kruise_planner::task::fnv64;
use kube::api::{DeleteParams, Patch, PostParams, Preconditions, PropagationPolicy};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Resource};
use serde_json::{Value, json};

use super::state::{Told, key_of};
use crate::kubeapi::{self, ApiFailure, Broken, Guarded, failure, patch_params};

/// Component of events about containers, as OpenKruise names its agent's part.
const POD_COMPONENT: &str = "kruise-daemon-crr";
/// Component of events about requests.
const REQUEST_COMPONENT: &str = "containerrecreaterequest-controller";
/// Seconds after which a watch ends and goes on where it was.
const WATCH_SECONDS: u32 = 50;
/// Objects per page of a list.
const PAGE: u32 = 250;
/// Longest part of an object's name in an event's name, which has a limit of 253 characters.
const EVENT_NAME_PREFIX: usize = 230;

type Request = ContainerRecreateRequest;

/// What the controller needs of the world.
pub(super) trait Cluster: Send + Sync + 'static {
    /// Time of the API server.
    fn now(&self) -> Timestamp;
    /// All requests.
    fn requests(&self) -> BoxStream<'static, Told<Request>>;
    /// All pods, stripped.
    fn pods(&self) -> BoxStream<'static, Told<Pod>>;
    /// Does a write and returns the request that it made, if it made one.
    fn write(
        &self,
        object: Request,
        write: Write,
        report: Option<String>,
    ) -> BoxFuture<'static, Result<Option<Request>, ApiFailure>>;
    /// A request as it is now; none when it does not exist.
    fn fetch(&self, key: ObjectKey) -> BoxFuture<'static, Result<Option<Request>, ApiFailure>>;
    /// Tells an event.
    fn record(
        &self,
        object: Request,
        pod_uid: String,
        node: String,
        note: EventNote,
    ) -> BoxFuture<'static, Result<(), ApiFailure>>;
}

/// The cluster behind [`crate::kubeapi::Api`].
#[derive(Clone, Debug)]
pub(super) struct KubeCluster {
    api: kubeapi::Api,
}

impl KubeCluster {
    pub(super) fn new(api: kubeapi::Api) -> Self {
        Self { api }
    }

    fn writable<K>(&self, namespace: &str) -> Result<Api<K>, ApiFailure>
    where
        K: Resource<Scope = kube::core::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        let client = self.api.writer().map_err(|_| ApiFailure::NotLeading)?;
        Ok(Api::namespaced(client, namespace))
    }

    async fn patch(
        &self,
        object: &Request,
        body: Value,
        status: bool,
    ) -> Result<Option<Request>, ApiFailure> {
        let key = key_of(&object.metadata);
        let requests: Api<Request> = self.writable(&key.namespace)?;
        let (params, patch) = (patch_params(), Patch::Merge(body));
        let patched = if status {
            requests.patch_status(&key.name, &params, &patch).await
        } else {
            requests.patch(&key.name, &params, &patch).await
        };
        patched.map(Some).map_err(|error| failure(&error))
    }

    /// Adds or removes the request as a holder of the pod's readiness lock.
    async fn lock(
        &self,
        object: &Request,
        change: impl Fn(&Pod) -> Option<Vec<PodCondition>>,
    ) -> Result<Option<Request>, ApiFailure> {
        let namespace = key_of(&object.metadata).namespace;
        let name = &object.spec.pod_name;
        let readable: Api<Pod> = Api::namespaced(self.api.reader(), &namespace);
        let pod = readable.get_opt(name).await.map_err(|error| failure(&error))?;
        let Some(pod) = pod else { return Ok(None) };
        let Some(conditions) = change(&pod) else {
            return Ok(None);
        };
        let version = pod.metadata.resource_version;
        let body = json!({"metadata": {"resourceVersion": version}, "status": {"conditions": conditions}});
        let pods: Api<Pod> = self.writable(&namespace)?;
        pods.patch_status(name, &patch_params(), &Patch::Merge(body))
            .await
            .map_err(|error| failure(&error))?;
        Ok(None)
    }

    async fn delete(&self, object: &Request) -> Result<Option<Request>, ApiFailure> {
        let key = key_of(&object.metadata);
        let requests: Api<Request> = self.writable(&key.namespace)?;
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            preconditions: Some(Preconditions {
                uid: object.metadata.uid.clone(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        requests
            .delete(&key.name, &params)
            .await
            .map_err(|error| failure(&error))?;
        Ok(None)
    }

    async fn carry_out(
        &self,
        object: Request,
        write: Write,
        report: Option<String>,
    ) -> Result<Option<Request>, ApiFailure> {
        let version = object.metadata.resource_version.clone();
        match write {
            Write::Admit { labels, annotations } => {
                let body = json!({"metadata": {"resourceVersion": version, "labels": labels, "annotations": annotations}});
                self.patch(&object, body, false).await
            }
            Write::AddFinalizer => {
                let mut finalizers = object.metadata.finalizers.clone().unwrap_or_default();
                finalizers.push(keys::UNREADY_ACQUIRED.to_owned());
                let body = json!({"metadata": {"resourceVersion": version, "finalizers": finalizers}});
                self.patch(&object, body, false).await
            }
            Write::Lock(holder) => {
                let now = self.api.now();
                self.lock(&object, |pod| lock::acquire(pod, &holder, now)).await
            }
            Write::Unlock(holder) => {
                let now = self.api.now();
                self.lock(&object, |pod| lock::release(pod, &holder, now)).await
            }
            Write::Status(status) => {
                let body = json!({"metadata": {"resourceVersion": version}, "status": status});
                self.patch(&object, body, true).await
            }
            Write::Clean { .. } => {
                let body = clean(&object, report);
                self.patch(&object, body, false).await
            }
            Write::Delete => self.delete(&object).await,
        }
    }
}

/// The metadata of a request that is over.
fn clean(object: &Request, report: Option<String>) -> Value {
    let mut metadata = json!({
        "resourceVersion": object.metadata.resource_version,
        "labels": {keys::ACTIVE: null},
    });
    let finalizers = object.metadata.finalizers.clone().unwrap_or_default();
    if finalizers.iter().any(|name| name == keys::UNREADY_ACQUIRED) {
        let others: Vec<String> = finalizers
            .into_iter()
            .filter(|name| name != keys::UNREADY_ACQUIRED)
            .collect();
        metadata["finalizers"] = json!(others);
    }
    if let Some(report) = report {
        metadata["annotations"] = json!({keys::RESTART_REPORT: report});
    }
    json!({ "metadata": metadata })
}

/// Events of a watch by what they mean. An object that cannot be read is told about and left out: it must not stop the others.
fn told<K>(api: Api<Guarded<K>>, complain: impl Fn(&Broken) + Send + 'static) -> BoxStream<'static, Told<K>>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Send + 'static,
    K: serde::de::DeserializeOwned,
{
    let config = watcher::Config::default().timeout(WATCH_SECONDS).page_size(PAGE);
    let read = move |guard: Guarded<K>| {
        let read = guard.0.inspect_err(|broken| complain(broken));
        read.ok().map(Box::new)
    };
    watcher(api, config)
        .default_backoff()
        .filter_map(move |event| {
            let told = match event {
                Ok(watcher::Event::Init) => Some(Told::Begin),
                Ok(watcher::Event::InitApply(object) | watcher::Event::Apply(object)) => {
                    read(object).map(Told::Object)
                }
                Ok(watcher::Event::InitDone) => Some(Told::Complete),
                Ok(watcher::Event::Delete(object)) => read(object).map(Told::Gone),
                Err(error) => {
                    let absent = is_absent(&error);
                    tracing::warn!(kind = %K::kind(&()), %error, "watch failed; it begins again");
                    absent.then_some(Told::Absent)
                }
            };
            futures::future::ready(told)
        })
        .boxed()
}

/// Whether the kind is not installed, or may not be read: there is nothing to wait for.
fn is_absent(error: &watcher::Error) -> bool {
    let source = match error {
        watcher::Error::InitialListFailed(source) | watcher::Error::WatchStartFailed(source) => source,
        _ => return false,
    };
    matches!(source, kube::Error::Api(status) if matches!(status.code, 403 | 404))
}

impl Cluster for KubeCluster {
    fn now(&self) -> Timestamp {
        self.api.now()
    }

    fn requests(&self) -> BoxStream<'static, Told<Request>> {
        let api = self.api.clone();
        told(Api::all(self.api.reader()), move |broken| {
            api.complain::<Request>(broken);
        })
    }

    fn pods(&self) -> BoxStream<'static, Told<Pod>> {
        let log = |broken: &Broken| {
            tracing::error!(
                name = broken.metadata.name,
                error = broken.error,
                "a pod cannot be read"
            );
        };
        told::<Pod>(Api::all(self.api.reader()), log)
            .map(|told| match told {
                Told::Object(pod) => Told::Object(Box::new(strip(*pod))),
                Told::Gone(pod) => Told::Gone(Box::new(strip(*pod))),
                other => other,
            })
            .boxed()
    }

    fn write(
        &self,
        object: Request,
        write: Write,
        report: Option<String>,
    ) -> BoxFuture<'static, Result<Option<Request>, ApiFailure>> {
        let cluster = self.clone();
        async move { cluster.carry_out(object, write, report).await }.boxed()
    }

    fn fetch(&self, key: ObjectKey) -> BoxFuture<'static, Result<Option<Request>, ApiFailure>> {
        let requests: Api<Request> = Api::namespaced(self.api.reader(), &key.namespace);
        async move { requests.get_opt(&key.name).await.map_err(|error| failure(&error)) }.boxed()
    }

    fn record(
        &self,
        object: Request,
        pod_uid: String,
        node: String,
        note: EventNote,
    ) -> BoxFuture<'static, Result<(), ApiFailure>> {
        let cluster = self.clone();
        async move {
            let namespace = key_of(&object.metadata).namespace;
            let events: Api<Event> = cluster.writable(&namespace)?;
            let event = event_object(&object, pod_uid, node, note, cluster.api.now());
            match events.create(&PostParams::default(), &event).await {
                // Another leader, or an earlier try of ours, has told the same.
                Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
                Err(error) => Err(failure(&error)),
                Ok(_) => Ok(()),
            }
        }
        .boxed()
    }
}

/// An event whose name follows from what it tells, so that the same news is told once.
fn event_object(object: &Request, pod_uid: String, node: String, note: EventNote, now: Timestamp) -> Event {
    let key = key_of(&object.metadata);
    let uid = object.metadata.uid.clone().unwrap_or_default();
    let told = fnv64(format!("{uid} {:?} {} {}", note.container, note.reason, note.message).as_bytes());
    let (involved, component, host) = match &note.container {
        Some(container) => {
            let pod = ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(object.spec.pod_name.clone()),
                uid: Some(pod_uid),
                field_path: Some(format!("spec.containers{{{container}}}")),
                ..ObjectReference::default()
            };
            (pod, POD_COMPONENT, Some(node))
        }
        None => {
            let request = ObjectReference {
                api_version: Some(Request::api_version(&()).into_owned()),
                kind: Some(Request::kind(&()).into_owned()),
                name: Some(key.name.clone()),
                uid: Some(uid),
                ..ObjectReference::default()
            };
            (request, REQUEST_COMPONENT, None)
        }
    };
    let prefix: String = involved
        .name
        .iter()
        .flat_map(|name| name.chars())
        .take(EVENT_NAME_PREFIX)
        .collect();
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{prefix}.{told:016x}")),
            namespace: Some(key.namespace.clone()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            namespace: Some(key.namespace),
            ..involved
        },
        type_: Some(if note.warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(note.reason.to_owned()),
        message: Some(note.message),
        source: Some(EventSource {
            component: Some(component.to_owned()),
            host: host.clone(),
        }),
        reporting_component: Some(component.to_owned()),
        reporting_instance: host,
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        count: Some(1),
        ..Event::default()
    }
}

#[cfg(test)]
pub(super) fn event_for_tests(object: &Request, note: EventNote) -> Event {
    event_object(
        object,
        "u1".to_owned(),
        "node1".to_owned(),
        note,
        Timestamp::UNIX_EPOCH,
    )
}
