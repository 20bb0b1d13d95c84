//! The controller's ports over the real API server.

mod watches;

use std::fmt;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{
    Event as KubeEvent, EventSource, ObjectReference, PersistentVolumeClaim, Pod, Secret,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kruise_api::clone_set::CloneSet;
use kruise_api::container_recreate_request::ContainerRecreateRequest;
use kruise_api::image_pull_job::ImagePullJob;
use kruise_api::reference::ImageRef;
use kruise_planner::cloneset::Gates;
use kruise_planner::task::fnv64;
use kruise_proto::dispatch::Credential;
use kube::api::{DeleteParams, Patch, PostParams, Preconditions, PropagationPolicy};
use kube::core::ObjectMeta;
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::event::{Event, Seen};
use super::objects::Object;
use super::ports::{Cluster, CreateFailure, PodName, Requests, Told, Watches, Way};
use super::space::Kind;
use crate::engine::matching;
use crate::kubeapi::{ApiFailure, FIELD_MANAGER, failure, patch_params};

/// Component of our events, as OpenKruise names its controller.
const EVENT_COMPONENT: &str = "cloneset-controller";
/// Longest part of an object's name in an event's name, which has a limit of 253 characters.
const EVENT_NAME_PREFIX: usize = 230;

/// The cluster behind [`crate::kubeapi::Api`].
#[derive(Clone, Debug)]
pub(super) struct KubeCluster {
    api: crate::kubeapi::Api,
    gates: Gates,
}

/// Kinds that requests are made of.
trait Known:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()>
    + Clone
    + fmt::Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    fn object(self, gates: &Gates) -> Object;
}

impl Known for Pod {
    fn object(self, gates: &Gates) -> Object {
        Object::pod(&self, gates)
    }
}

macro_rules! known {
    ($($kind:ty),*) => {$(
        impl Known for $kind {
            fn object(self, _: &Gates) -> Object {
                Object::from(self)
            }
        }
    )*};
}

known!(
    CloneSet,
    PersistentVolumeClaim,
    ControllerRevision,
    ImagePullJob,
    ContainerRecreateRequest
);

/// Calls a method with the type that belongs to a kind.
macro_rules! for_kind {
    ($kind:expr, $self:ident.$method:ident($($argument:expr),*)) => {
        match $kind {
            Kind::Set => $self.$method::<CloneSet>($($argument),*).boxed(),
            Kind::Pod => $self.$method::<Pod>($($argument),*).boxed(),
            Kind::Claim => $self.$method::<PersistentVolumeClaim>($($argument),*).boxed(),
            Kind::Revision => $self.$method::<ControllerRevision>($($argument),*).boxed(),
            Kind::Job => $self.$method::<ImagePullJob>($($argument),*).boxed(),
            Kind::Request => $self.$method::<ContainerRecreateRequest>($($argument),*).boxed(),
        }
    };
}

impl KubeCluster {
    pub(super) fn new(api: crate::kubeapi::Api, gates: Gates) -> Self {
        Self { api, gates }
    }

    fn writable<K: Known>(&self, namespace: &str) -> Result<Api<K>, ApiFailure> {
        let client = self.api.writer().map_err(|_| ApiFailure::NotLeading)?;
        Ok(Api::namespaced(client, namespace))
    }

    async fn create_one<K: Known>(self, namespace: String, body: Value) -> Result<Object, CreateFailure> {
        let api: Api<K> = self.writable(&namespace).map_err(CreateFailure::Other)?;
        let object: K = serde_json::from_value(body)
            .map_err(|error| CreateFailure::Other(ApiFailure::Refused(error.to_string())))?;
        let params = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        match api.create(&params, &object).await {
            Ok(made) => Ok(made.object(&self.gates)),
            Err(kube::Error::Api(status)) if status.is_already_exists() => Err(CreateFailure::Exists),
            Err(error) => Err(CreateFailure::Other(failure(&error))),
        }
    }

    async fn patch_one<K: Known>(
        self,
        namespace: String,
        name: String,
        way: Way,
        body: Value,
    ) -> Result<Object, ApiFailure> {
        let api: Api<K> = self.writable(&namespace)?;
        let params = patch_params();
        let patched = match way {
            Way::Merge => api.patch(&name, &params, &Patch::Merge(body)).await,
            Way::MergeStatus => api.patch_status(&name, &params, &Patch::Merge(body)).await,
            Way::Strategic => api.patch(&name, &params, &Patch::Strategic(body)).await,
            Way::StrategicStatus => api.patch_status(&name, &params, &Patch::Strategic(body)).await,
            Way::Resize => {
                let patch = Patch::Strategic(body);
                api.patch_subresource("resize", &name, &params, &patch).await
            }
        };
        Ok(patched.map_err(|error| failure(&error))?.object(&self.gates))
    }

    async fn delete_one<K: Known>(
        self,
        namespace: String,
        name: String,
        seen: Seen,
    ) -> Result<Option<Object>, ApiFailure> {
        if seen.uid.is_empty() {
            // Nothing is deleted by its name alone.
            return Err(ApiFailure::Conflict);
        }
        let api: Api<K> = self.writable(&namespace)?;
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            preconditions: Some(Preconditions {
                uid: Some(seen.uid),
                resource_version: Some(seen.version).filter(|version| !version.is_empty()),
            }),
            ..DeleteParams::default()
        };
        let answer = api
            .delete(&name, &params)
            .await
            .map_err(|error| failure(&error))?;
        Ok(answer.left().map(|object| object.object(&self.gates)))
    }

    async fn find_one<K: Known>(self, namespace: String, name: String) -> Result<Option<Object>, ApiFailure> {
        let api: Api<K> = Api::namespaced(self.api.reader(), &namespace);
        let found = api.get_opt(&name).await.map_err(|error| failure(&error))?;
        Ok(found.map(|object| object.object(&self.gates)))
    }
}

impl KubeCluster {
    /// The secrets that the pod names, those of its service account among them, which the API server puts into each pod.
    async fn log_ins_of(
        &self,
        namespace: &str,
        pod: &str,
        image: &ImageRef,
    ) -> Result<Vec<Credential>, String> {
        let pods: Api<Pod> = Api::namespaced(self.api.reader(), namespace);
        let found = pods
            .get_opt(pod)
            .await
            .map_err(|error| format!("pod {pod} cannot be read now: {error}"))?;
        let spec = found.and_then(|pod| pod.spec).unwrap_or_default();
        let mut secrets = Vec::new();
        for name in spec.image_pull_secrets.unwrap_or_default() {
            let name = name.name;
            let api: Api<Secret> = Api::namespaced(self.api.reader(), namespace);
            match api.get_opt(&name).await {
                Ok(Some(secret)) => secrets.push((name, secret)),
                // As the kubelet does: it goes on without.
                Ok(None) => tracing::debug!(pod, secret = name, "a pull secret does not exist"),
                Err(error) => return Err(format!("pull secret {name} cannot be read now: {error}")),
            }
        }
        let named = secrets.iter().map(|(name, secret)| (name.as_str(), secret));
        matching(image, named).map_err(|problem| problem.to_string())
    }
}

impl Requests for KubeCluster {
    fn create(
        &self,
        kind: Kind,
        namespace: String,
        body: Value,
    ) -> BoxFuture<'static, Result<Object, CreateFailure>> {
        let cluster = self.clone();
        for_kind!(kind, cluster.create_one(namespace, body))
    }

    fn patch(
        &self,
        kind: Kind,
        namespace: String,
        name: String,
        way: Way,
        body: Value,
    ) -> BoxFuture<'static, Result<Object, ApiFailure>> {
        let cluster = self.clone();
        for_kind!(kind, cluster.patch_one(namespace, name, way, body))
    }

    fn delete(
        &self,
        kind: Kind,
        namespace: String,
        name: String,
        seen: Seen,
    ) -> BoxFuture<'static, Result<Option<Object>, ApiFailure>> {
        let cluster = self.clone();
        for_kind!(kind, cluster.delete_one(namespace, name, seen))
    }

    fn find(
        &self,
        kind: Kind,
        namespace: String,
        name: String,
    ) -> BoxFuture<'static, Result<Option<Object>, ApiFailure>> {
        let cluster = self.clone();
        for_kind!(kind, cluster.find_one(namespace, name))
    }

    fn pod(&self, namespace: String, name: String) -> BoxFuture<'static, Result<Option<Pod>, ApiFailure>> {
        let pods: Api<Pod> = Api::namespaced(self.api.reader(), &namespace);
        async move { pods.get_opt(&name).await.map_err(|error| failure(&error)) }.boxed()
    }

    fn log_ins(
        &self,
        namespace: String,
        pod: String,
        image: ImageRef,
    ) -> BoxFuture<'static, Result<Vec<Credential>, String>> {
        let cluster = self.clone();
        async move { cluster.log_ins_of(&namespace, &pod, &image).await }.boxed()
    }

    fn record(&self, set: &CloneSet, event: Told) -> BoxFuture<'static, Result<(), ApiFailure>> {
        self.tell(reference(set), event)
    }

    fn record_of_pod(&self, pod: PodName, event: Told) -> BoxFuture<'static, Result<(), ApiFailure>> {
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(pod.name),
            namespace: Some(pod.namespace),
            uid: Some(pod.uid),
            ..ObjectReference::default()
        };
        self.tell(about, event)
    }
}

impl KubeCluster {
    fn tell(&self, about: ObjectReference, event: Told) -> BoxFuture<'static, Result<(), ApiFailure>> {
        let cluster = self.clone();
        let object = event_object(about, event, self.api.now());
        async move {
            let namespace = object.metadata.namespace.clone().unwrap_or_default();
            let client = cluster.api.writer().map_err(|_| ApiFailure::NotLeading)?;
            let events: Api<KubeEvent> = Api::namespaced(client, &namespace);
            match events.create(&PostParams::default(), &object).await {
                // Another leader, or an earlier try of ours, has told the same.
                Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
                Err(error) => Err(failure(&error)),
                Ok(_) => Ok(()),
            }
        }
        .boxed()
    }
}

impl Watches for KubeCluster {
    fn follow(&self, kind: Kind) -> BoxStream<'static, Event> {
        watches::follow(&self.api, kind, self.gates)
    }

    fn nodes(&self) -> BoxStream<'static, Event> {
        watches::nodes(self.api.reader())
    }
}

impl Cluster for KubeCluster {
    fn now(&self) -> Timestamp {
        self.api.now()
    }
}

fn reference(set: &CloneSet) -> ObjectReference {
    ObjectReference {
        api_version: Some(CloneSet::api_version(&()).into_owned()),
        kind: Some(CloneSet::kind(&()).into_owned()),
        name: set.metadata.name.clone(),
        namespace: set.metadata.namespace.clone(),
        uid: set.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

/// An event whose name follows from what it tells and of which object, so that the same news is told once.
fn event_object(about: ObjectReference, event: Told, now: Timestamp) -> KubeEvent {
    let uid = about.uid.as_deref().unwrap_or_default();
    let minute = now.as_second() / 60;
    let told = fnv64(format!("{uid} {} {} {minute}", event.reason, event.message).as_bytes());
    let name = about.name.as_deref().unwrap_or_default();
    let prefix: String = name.chars().take(EVENT_NAME_PREFIX).collect();
    KubeEvent {
        metadata: ObjectMeta {
            name: Some(format!("{prefix}.{told:016x}")),
            namespace: about.namespace.clone(),
            ..ObjectMeta::default()
        },
        involved_object: about,
        type_: Some(if event.warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(event.reason.to_owned()),
        message: Some(event.message),
        source: Some(EventSource {
            component: Some(EVENT_COMPONENT.to_owned()),
            host: None,
        }),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        count: Some(1),
        ..KubeEvent::default()
    }
}
