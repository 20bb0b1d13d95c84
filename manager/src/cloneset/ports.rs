//! What the controller needs of the world, as small traits, so that tests stand in for a cluster.

use std::fmt;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kruise_api::clone_set::CloneSet;
use kruise_api::reference::ImageRef;
use kruise_proto::dispatch::Credential;
use serde_json::Value;

use super::event::{Event, Seen};
use super::objects::Object;
use super::space::Kind;
use crate::kubeapi::ApiFailure;

/// How a patch is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// JSON merge patch of the object.
    Merge,
    /// JSON merge patch of the status subresource.
    MergeStatus,
    /// Strategic merge patch of the object: lists by key.
    Strategic,
    /// Strategic merge patch of the status subresource.
    StrategicStatus,
    /// Strategic merge patch of the resize subresource.
    Resize,
}

/// Writes and single reads. Every patch and deletion is bound to a UID, and to a version where the plan rests on it.
pub(crate) trait Requests: Send + Sync + 'static {
    /// Creates an object from its JSON.
    fn create(
        &self,
        kind: Kind,
        namespace: String,
        body: Value,
    ) -> BoxFuture<'static, Result<Object, CreateFailure>>;
    /// Patches an object. The body names UID and version.
    fn patch(
        &self,
        kind: Kind,
        namespace: String,
        name: String,
        way: Way,
        body: Value,
    ) -> BoxFuture<'static, Result<Object, ApiFailure>>;
    /// Deletes an object. Answers it when it stays for a while.
    fn delete(
        &self,
        kind: Kind,
        namespace: String,
        name: String,
        seen: Seen,
    ) -> BoxFuture<'static, Result<Option<Object>, ApiFailure>>;
    /// The object as the API server has it now; none when it does not exist.
    fn find(
        &self,
        kind: Kind,
        namespace: String,
        name: String,
    ) -> BoxFuture<'static, Result<Option<Object>, ApiFailure>>;
    /// A whole pod as the API server has it now.
    fn pod(&self, namespace: String, name: String) -> BoxFuture<'static, Result<Option<Pod>, ApiFailure>>;
    /// What a pod logs in with at the registry of an image. The error is for people.
    fn log_ins(
        &self,
        namespace: String,
        pod: String,
        image: ImageRef,
    ) -> BoxFuture<'static, Result<Vec<Credential>, String>>;
    /// Tells an event about a set.
    fn record(&self, set: &CloneSet, event: Told) -> BoxFuture<'static, Result<(), ApiFailure>>;
    /// Tells an event about a pod.
    fn record_of_pod(&self, pod: PodName, event: Told) -> BoxFuture<'static, Result<(), ApiFailure>>;
}

/// Why an object was not created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CreateFailure {
    /// Somebody holds the name.
    Exists,
    /// Anything else.
    Other(ApiFailure),
}

/// A pod that an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodName {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

impl fmt::Display for PodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// An event to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    /// Warning rather than Normal.
    pub(crate) warning: bool,
    /// For programs.
    pub(crate) reason: &'static str,
    /// For people.
    pub(crate) message: String,
}

/// Watches. Each begins with a list that is as new as the moment of the call, heals itself, and never ends.
pub(crate) trait Watches: Send + Sync + 'static {
    /// All objects of a kind.
    fn follow(&self, kind: Kind) -> BoxStream<'static, Event>;
    /// Labels of nodes.
    fn nodes(&self) -> BoxStream<'static, Event>;
}

/// All of it, and the API server's time.
pub(crate) trait Cluster: Requests + Watches {
    /// Time of the API server.
    fn now(&self) -> Timestamp;
}
