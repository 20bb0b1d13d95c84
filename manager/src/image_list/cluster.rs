//! The controller's ports over the real API server.

use futures::FutureExt;
use futures::StreamExt;
use futures::stream::BoxStream;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kruise_api::ids::JobUid;
use kruise_api::image_list_pull_job::{ImageListPullJob, REVISION_LABEL};
use kruise_api::image_pull_job::ImagePullJob;
use kruise_api::names;
use kruise_planner::image_list_job::{ChildPatch, ListEvent, NewChild};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use kube::core::{NamespaceResourceScope, ObjectMeta};
use kube::runtime::watcher::watcher;
use kube::{Api, Resource};
use serde_json::{Value, json};

use super::objects::{ChildObject, ListObject};
use super::ports::{Answer, Lists};
use crate::engine::cluster::watches;
use crate::engine::objects::Listing;
use crate::kubeapi::{ApiFailure, Guarded, failure, patch_params};

/// Component of our events, as OpenKruise names its controller.
const EVENT_COMPONENT: &str = "imagelistpulljob-controller";
/// Longest part of a list's name in an event's name, which has a limit of 253 characters.
const EVENT_NAME_PREFIX: usize = 230;

#[derive(Clone, Debug)]
pub(super) struct KubeLists {
    api: crate::kubeapi::Api,
}

impl KubeLists {
    pub(super) fn new(api: crate::kubeapi::Api) -> Self {
        Self { api }
    }

    fn writable<K>(&self, namespace: &str) -> Result<Api<K>, ApiFailure>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        let client = self.api.writer().map_err(|_| ApiFailure::NotLeading)?;
        Ok(Api::namespaced(client, namespace))
    }
}

impl Lists for KubeLists {
    fn lists(&self) -> BoxStream<'static, Listing<ListObject, JobUid>> {
        let api: Api<Guarded<ImageListPullJob>> = Api::all(self.api.reader());
        let kube = self.api.clone();
        let convert = move |guard: Guarded<ImageListPullJob>| match guard.0 {
            Ok(list) => ListObject::try_from(list).map(Some),
            Err(broken) => {
                kube.complain::<ImageListPullJob>(&broken);
                Ok(None)
            }
        };
        watches::listing(watcher(api, watches::config()), convert).boxed()
    }

    fn children(&self) -> BoxStream<'static, Listing<ChildObject, JobUid>> {
        let api: Api<Guarded<ImagePullJob>> = Api::all(self.api.reader());
        let convert = |guard: Guarded<ImagePullJob>| match guard.0 {
            Ok(job) => ChildObject::read(job),
            // The engine tells its writer.
            Err(_) => Ok(None),
        };
        let config = watches::config().labels(REVISION_LABEL);
        watches::listing(watcher(api, config), convert).boxed()
    }

    fn create(&self, list: ListObject, child: NewChild) -> Answer<ChildObject> {
        let cluster = self.clone();
        async move {
            let jobs: Api<ImagePullJob> = cluster.writable(&list.key.namespace)?;
            let name = child.name.clone();
            let job = match jobs.create(&PostParams::default(), &new_job(&list, child)).await {
                Ok(job) => job,
                // An earlier try of ours, whose answer was lost, or one that is on its way out.
                Err(kube::Error::Api(status)) if status.is_already_exists() => {
                    jobs.get(&name).await.map_err(|error| failure(&error))?
                }
                Err(error) => return Err(failure(&error)),
            };
            if job.metadata.deletion_timestamp.is_some() {
                return Err(ApiFailure::Conflict);
            }
            match ChildObject::read(job) {
                Ok(Some(child)) if child.list == list.uid => Ok(child),
                Ok(_) => Err(ApiFailure::Refused(format!(
                    "an ImagePullJob {name:?} exists that is not this list's"
                ))),
                Err(detail) => Err(ApiFailure::Unsure {
                    detail,
                    retry_after: None,
                }),
            }
        }
        .boxed()
    }

    fn patch(&self, list: ListObject, patch: ChildPatch) -> Answer<()> {
        let cluster = self.clone();
        async move {
            let jobs: Api<ImagePullJob> = cluster.writable(&list.key.namespace)?;
            // The spec as a whole, so that a field that the list has no more goes away. The UID makes it fail on another job of that name.
            let body = json!([
                {"op": "test", "path": "/metadata/uid", "value": patch.uid},
                {"op": "add", "path": "/spec", "value": patch.spec},
            ]);
            let operations = serde_json::from_value(body).expect("a JSON patch");
            let params = PatchParams::default();
            jobs.patch(&patch.name, &params, &Patch::<()>::Json(operations))
                .await
                .map_err(|error| failure(&error))?;
            let metadata = json!({"metadata": {
                "uid": patch.uid,
                "labels": {REVISION_LABEL: patch.revision},
                "annotations": patch.annotations,
            }});
            jobs.patch(&patch.name, &patch_params(), &Patch::Merge(metadata))
                .await
                .map_err(|error| failure(&error))?;
            Ok(())
        }
        .boxed()
    }

    fn delete_child(&self, list: ListObject, uid: JobUid, name: String) -> Answer<()> {
        let cluster = self.clone();
        async move {
            let jobs: Api<ImagePullJob> = cluster.writable(&list.key.namespace)?;
            delete(&jobs, &name, &uid).await
        }
        .boxed()
    }

    fn delete(&self, list: ListObject) -> Answer<()> {
        let cluster = self.clone();
        async move {
            let lists: Api<ImageListPullJob> = cluster.writable(&list.key.namespace)?;
            delete(&lists, &list.key.name, &list.uid).await
        }
        .boxed()
    }

    fn strip_finalizer(&self, list: ListObject) -> Answer<ListObject> {
        let cluster = self.clone();
        async move {
            let lists: Api<ImageListPullJob> = cluster.writable(&list.key.namespace)?;
            let stay: Vec<_> = list
                .finalizers
                .iter()
                .filter(|name| *name != names::LEGACY_FINALIZER)
                .collect();
            let body = json!({"metadata": {"resourceVersion": list.version, "finalizers": stay}});
            let patched = lists
                .patch(&list.key.name, &patch_params(), &Patch::Merge(body))
                .await;
            read(patched.map_err(|error| failure(&error))?)
        }
        .boxed()
    }

    fn write_status(&self, list: ListObject, patch: Value) -> Answer<ListObject> {
        let cluster = self.clone();
        async move {
            let lists: Api<ImageListPullJob> = cluster.writable(&list.key.namespace)?;
            let body = json!({"metadata": {"resourceVersion": list.version}, "status": patch});
            let patched = lists
                .patch_status(&list.key.name, &patch_params(), &Patch::Merge(body))
                .await;
            read(patched.map_err(|error| failure(&error))?)
        }
        .boxed()
    }

    fn record(&self, list: ListObject, event: ListEvent) -> Answer<()> {
        let cluster = self.clone();
        async move {
            let events: Api<Event> = cluster.writable(&list.key.namespace)?;
            let object = event_object(&list, &event, cluster.api.now());
            match events.create(&PostParams::default(), &object).await {
                // Told before.
                Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
                Err(error) => Err(failure(&error)),
                Ok(_) => Ok(()),
            }
        }
        .boxed()
    }

    fn now(&self) -> Timestamp {
        self.api.now()
    }
}

async fn delete<K>(api: &Api<K>, name: &str, uid: &JobUid) -> Result<(), ApiFailure>
where
    K: Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let params = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        preconditions: Some(Preconditions {
            uid: Some(uid.to_string()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match api.delete(name, &params).await.map_err(|error| failure(&error)) {
        // Another object has the name by now, or none: the one that was meant is gone.
        Err(ApiFailure::Gone | ApiFailure::Conflict) | Ok(_) => Ok(()),
        Err(failure) => Err(failure),
    }
}

fn read(list: ImageListPullJob) -> Result<ListObject, ApiFailure> {
    ListObject::try_from(list).map_err(|detail| ApiFailure::Unsure {
        detail,
        retry_after: None,
    })
}

fn new_job(list: &ListObject, child: NewChild) -> ImagePullJob {
    let mut job = ImagePullJob::new(&child.name, child.spec);
    job.metadata.namespace = Some(list.key.namespace.clone());
    job.metadata.labels = Some([(REVISION_LABEL.to_owned(), child.revision)].into());
    job.metadata.annotations = Some(child.annotations).filter(|annotations| !annotations.is_empty());
    job.metadata.owner_references = Some(vec![OwnerReference {
        api_version: ImageListPullJob::api_version(&()).into_owned(),
        kind: ImageListPullJob::kind(&()).into_owned(),
        name: list.key.name.clone(),
        uid: list.uid.to_string(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }]);
    job
}

/// An event whose name follows from what it tells and from the version of the list that it is about, so that the same news is told once.
fn event_object(list: &ListObject, event: &ListEvent, now: Timestamp) -> Event {
    let about = format!("{} {} {} {}", list.uid, list.version, event.reason, event.message);
    let told = kruise_planner::task::fnv64(about.as_bytes());
    let prefix: String = list.key.name.chars().take(EVENT_NAME_PREFIX).collect();
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{prefix}.{told:016x}")),
            namespace: Some(list.key.namespace.clone()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some(ImageListPullJob::api_version(&()).into_owned()),
            kind: Some(ImageListPullJob::kind(&()).into_owned()),
            name: Some(list.key.name.clone()),
            namespace: Some(list.key.namespace.clone()),
            uid: Some(list.uid.to_string()),
            ..ObjectReference::default()
        },
        type_: Some(if event.warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(event.reason.to_owned()),
        message: Some(event.message.chars().take(1000).collect()),
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
