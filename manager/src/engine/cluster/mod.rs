//! The engine's ports over the real API server.

mod lite;
pub(crate) mod watches;

use std::collections::BTreeSet;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kruise_api::ids::{JobUid, NodeName, NodeUid, ObjectKey};
use kruise_api::image_pull_job::ImagePullJob;
use kruise_api::node_image::NodeImage;
use kruise_planner::job::{JobEvent, PodView};
use kruise_planner::node_image::TagEvent;
use kruise_planner::task::fnv64;
use kube::api::{DeleteParams, ListParams, Patch, PostParams, Preconditions, PropagationPolicy};
use kube::core::ObjectMeta;
use kube::{Api, Resource};
use serde_json::json;

use super::event::{ImageWrite, JobWrite};
use super::objects::{JobObject, Listing, NodeImageObject};
use super::ports::{Agents, Cluster, Jobs, NodeImages, Secrets, Watches};
use crate::kubeapi::{ApiFailure, failure, patch_params};

/// Component of our events, as OpenKruise names its controller.
const EVENT_COMPONENT: &str = "imagepulljob-controller";
/// The same for NodeImages.
const IMAGE_COMPONENT: &str = "nodeimage-controller";
/// Label of the agents' pods, as OpenKruise has it.
const AGENT_PODS: &str = "control-plane=daemon";
const RUNNING: &str = "status.phase=Running";
const PAGE: u32 = 500;
/// Longest part of a job's name in an event's name, which has a limit of 253 characters.
const EVENT_NAME_PREFIX: usize = 230;

/// The cluster behind [`crate::kubeapi::Api`].
#[derive(Clone, Debug)]
pub(crate) struct KubeCluster {
    api: crate::kubeapi::Api,
    /// Namespace of the agents' pods.
    namespace: String,
}

impl KubeCluster {
    pub(crate) fn new(api: crate::kubeapi::Api, namespace: String) -> Self {
        Self { api, namespace }
    }

    fn writable<K>(&self, namespace: &str) -> Result<Api<K>, ApiFailure>
    where
        K: Resource<Scope = kube::core::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        let client = self.api.writer().map_err(|_| ApiFailure::NotLeading)?;
        Ok(Api::namespaced(client, namespace))
    }
}

impl Jobs for KubeCluster {
    fn write(
        &self,
        job: JobUid,
        key: ObjectKey,
        write: JobWrite,
    ) -> BoxFuture<'static, Result<Option<JobObject>, ApiFailure>> {
        let cluster = self.clone();
        async move {
            let jobs: Api<ImagePullJob> = cluster.writable(&key.namespace)?;
            let params = patch_params();
            let object = match write {
                JobWrite::Status { version, patch, .. } => {
                    let body = json!({"metadata": {"resourceVersion": version}, "status": patch});
                    jobs.patch_status(&key.name, &params, &Patch::Merge(body)).await
                }
                JobWrite::Finalizers { version, finalizers } => {
                    let body = json!({"metadata": {"resourceVersion": version, "finalizers": finalizers}});
                    jobs.patch(&key.name, &params, &Patch::Merge(body)).await
                }
                JobWrite::Delete => {
                    let params = DeleteParams {
                        propagation_policy: Some(PropagationPolicy::Background),
                        preconditions: Some(Preconditions {
                            uid: Some(job.to_string()),
                            resource_version: None,
                        }),
                        ..DeleteParams::default()
                    };
                    jobs.delete(&key.name, &params)
                        .await
                        .map_err(|error| failure(&error))?;
                    return Ok(None);
                }
            };
            read(object.map_err(|error| failure(&error))?).map(Some)
        }
        .boxed()
    }

    fn fetch(&self, key: ObjectKey) -> BoxFuture<'static, Result<Option<JobObject>, ApiFailure>> {
        let jobs: Api<ImagePullJob> = Api::namespaced(self.api.reader(), &key.namespace);
        async move {
            let object = jobs.get_opt(&key.name).await.map_err(|error| failure(&error))?;
            object.map(read).transpose()
        }
        .boxed()
    }

    fn record(
        &self,
        job: JobUid,
        key: ObjectKey,
        event: JobEvent,
    ) -> BoxFuture<'static, Result<(), ApiFailure>> {
        let cluster = self.clone();
        async move {
            let events: Api<Event> = cluster.writable(&key.namespace)?;
            let object = event_object(&job, &key, event, cluster.api.now());
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

impl NodeImages for KubeCluster {
    fn write_image(
        &self,
        node: NodeName,
        uid: NodeUid,
        write: ImageWrite,
    ) -> BoxFuture<'static, Result<Option<NodeImageObject>, ApiFailure>> {
        let cluster = self.clone();
        async move {
            let client = cluster.api.writer().map_err(|_| ApiFailure::NotLeading)?;
            let images: Api<NodeImage> = Api::all(client);
            let params = patch_params();
            let object = match write {
                ImageWrite::Status { version, patch, .. } => {
                    let body = json!({"metadata": {"resourceVersion": version}, "status": patch});
                    images
                        .patch_status(node.as_str(), &params, &Patch::Merge(body))
                        .await
                }
                ImageWrite::Spec { body } => images.patch(node.as_str(), &params, &Patch::Merge(body)).await,
                ImageWrite::Delete => {
                    let params = DeleteParams {
                        preconditions: Some(Preconditions {
                            uid: Some(uid.to_string()),
                            resource_version: None,
                        }),
                        ..DeleteParams::default()
                    };
                    images
                        .delete(node.as_str(), &params)
                        .await
                        .map_err(|error| failure(&error))?;
                    return Ok(None);
                }
            };
            let object = object.map_err(|error| failure(&error))?;
            let object = NodeImageObject::try_from(object).map_err(|error| ApiFailure::Unsure {
                detail: error.to_string(),
                retry_after: None,
            })?;
            Ok(Some(object))
        }
        .boxed()
    }

    fn record_image(
        &self,
        node: NodeName,
        uid: NodeUid,
        event: TagEvent,
    ) -> BoxFuture<'static, Result<(), ApiFailure>> {
        let cluster = self.clone();
        async move {
            // Events on objects without a namespace live in this one.
            let events: Api<Event> = cluster.writable("default")?;
            let object = image_event(&node, &uid, &event, cluster.api.now());
            match events.create(&PostParams::default(), &object).await {
                Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
                Err(error) => Err(failure(&error)),
                Ok(_) => Ok(()),
            }
        }
        .boxed()
    }
}

impl Secrets for KubeCluster {
    fn secret(
        &self,
        namespace: String,
        name: String,
    ) -> BoxFuture<'static, Result<Option<Secret>, ApiFailure>> {
        let secrets: Api<Secret> = Api::namespaced(self.api.reader(), &namespace);
        async move { secrets.get_opt(&name).await.map_err(|error| failure(&error)) }.boxed()
    }
}

impl Agents for KubeCluster {
    fn agent_nodes(&self) -> BoxFuture<'static, Result<BTreeSet<NodeName>, ApiFailure>> {
        let pods: Api<lite::PodLite> = Api::namespaced(self.api.reader(), &self.namespace);
        async move {
            let mut nodes = BTreeSet::new();
            let mut params = ListParams::default()
                .labels(AGENT_PODS)
                .fields(RUNNING)
                .limit(PAGE);
            loop {
                let page = pods.list(&params).await.map_err(|error| failure(&error))?;
                // One that is leaving may still be at work.
                nodes.extend(page.items.iter().filter_map(lite::PodLite::bound_to));
                match page.metadata.continue_.filter(|token| !token.is_empty()) {
                    Some(token) => params = params.continue_token(&token),
                    None => return Ok(nodes),
                }
            }
        }
        .boxed()
    }
}

impl Watches for KubeCluster {
    fn jobs(&self) -> BoxStream<'static, Listing<JobObject, JobUid>> {
        watches::jobs(self.api.clone())
    }

    fn node_images(&self) -> BoxStream<'static, Listing<NodeImageObject, NodeUid>> {
        watches::node_images(self.api.clone())
    }

    fn nodes(&self) -> BoxStream<'static, Listing<super::objects::NodeObject, NodeUid>> {
        watches::nodes(self.api.reader())
    }

    fn pods(&self, namespace: String, selector: String) -> BoxStream<'static, Vec<PodView>> {
        watches::pods(self.api.reader(), &namespace, &selector)
    }
}

impl Cluster for KubeCluster {
    fn now(&self) -> Timestamp {
        self.api.now()
    }
}

fn read(job: ImagePullJob) -> Result<JobObject, ApiFailure> {
    JobObject::try_from(job).map_err(|error| ApiFailure::Unsure {
        detail: error.to_string(),
        retry_after: None,
    })
}

/// An event whose name follows from what it tells, so that the same news is told once.
fn event_object(job: &JobUid, key: &ObjectKey, event: JobEvent, now: Timestamp) -> Event {
    let told = fnv64(format!("{job} {} {}", event.reason, event.message).as_bytes());
    let prefix: String = key.name.chars().take(EVENT_NAME_PREFIX).collect();
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{prefix}.{told:016x}")),
            namespace: Some(key.namespace.clone()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some(ImagePullJob::api_version(&()).into_owned()),
            kind: Some(ImagePullJob::kind(&()).into_owned()),
            name: Some(key.name.clone()),
            namespace: Some(key.namespace.clone()),
            uid: Some(job.to_string()),
            ..ObjectReference::default()
        },
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
        ..Event::default()
    }
}

fn image_event(node: &NodeName, uid: &NodeUid, event: &TagEvent, now: Timestamp) -> Event {
    let about = ObjectReference {
        api_version: Some(NodeImage::api_version(&()).into_owned()),
        kind: Some(NodeImage::kind(&()).into_owned()),
        name: Some(node.to_string()),
        uid: Some(uid.to_string()),
        ..ObjectReference::default()
    };
    // The same tag may be asked for again: the minute tells one answer from the next.
    let minute = now.as_second() / 60;
    let told = fnv64(format!("{uid} {minute} {} {}", event.reason, event.message).as_bytes());
    let prefix: String = node.as_str().chars().take(EVENT_NAME_PREFIX).collect();
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{prefix}.{told:016x}")),
            namespace: Some("default".to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: about,
        type_: Some(if event.warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(event.reason.to_owned()),
        message: Some(event.message.chars().take(1000).collect()),
        source: Some(EventSource {
            component: Some(IMAGE_COMPONENT.to_owned()),
            host: None,
        }),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        count: Some(1),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests;
