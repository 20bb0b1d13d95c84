//! Telling the writer of an object that it cannot be read: a condition that names the field, and an event.
//!
//! The condition is Progressing, which the controllers of our kinds write anew when the object is readable again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kruise_planner::task::fnv64;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::object::HasStatus;
use kube::{Api as Objects, Resource};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::guarded::Broken;
use super::{Api, ApiFailure, failure};

const CONDITION: &str = "Progressing";
const REASON: &str = "Unreadable";
/// Longest text, as of conditions and events.
const LONGEST: usize = 1000;
/// Longest part of an object's name in an event's name, which has a limit of 253 characters.
const EVENT_NAME_PREFIX: usize = 230;
/// Who writes many such objects at once shall not have the API server busy with them.
const AT_ONCE: usize = 4;
const TRIES: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Objects that are remembered as told; then all are forgotten, and told once more.
const REMEMBERED: usize = 10_000;

/// What has been told, so that our own write of it is not answered by another one.
#[derive(Clone, Debug)]
pub(super) struct Complaints {
    /// Hash of the last text, by the object's UID.
    told: Arc<Mutex<BTreeMap<String, u64>>>,
    permits: Arc<Semaphore>,
}

impl Default for Complaints {
    fn default() -> Self {
        Self {
            told: Arc::default(),
            permits: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }
}

impl Complaints {
    /// Whether this is news; it counts as told from now on.
    fn is_news(&self, uid: &str, text: &str) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() >= REMEMBERED {
            told.clear();
        }
        let hash = fnv64(text.as_bytes());
        told.insert(uid.to_owned(), hash) != Some(hash)
    }

    fn forget(&self, uid: &str) {
        self.told
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(uid);
    }
}

/// An object and what to tell of it.
#[derive(Clone, Debug)]
struct Complaint {
    resource: ApiResource,
    metadata: ObjectMeta,
    text: String,
    /// For the object's status, without times.
    status: Value,
}

/// How something is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Means {
    Condition,
    Event,
}

impl Api {
    /// Logs that an object cannot be read, and tells its writer, in the background.
    pub(crate) fn complain<K>(&self, broken: &Broken)
    where
        K: Resource<DynamicType = ()> + HasStatus,
        K::Status: Default + Serialize,
    {
        let (namespace, name) = (&broken.metadata.namespace, &broken.metadata.name);
        tracing::error!(kind = %K::kind(&()), namespace, name, error = broken.error, "an object cannot be read");
        let text: String = format!(
            "{}; nothing is done about this object until it is mended",
            broken.error
        )
        .chars()
        .take(LONGEST)
        .collect();
        let uid = broken.metadata.uid.clone().unwrap_or_default();
        let leaves = broken.metadata.deletion_timestamp.is_some();
        if leaves || is_told(&broken.status, &text) || !self.complaints.is_news(&uid, &text) {
            return;
        }
        let complaint = Complaint {
            resource: ApiResource::erase::<K>(&()),
            metadata: broken.metadata.clone(),
            text,
            status: whole(&broken.status, &K::Status::default()),
        };
        let api = self.clone();
        tokio::spawn(async move {
            let _permit = api.complaints.permits.clone().acquire_owned().await;
            if let Err(error) = api.tell(&complaint).await {
                tracing::warn!(%error, uid, "it could not be told that an object cannot be read");
                api.complaints.forget(&uid);
            }
        });
    }

    async fn tell(&self, complaint: &Complaint) -> Result<(), ApiFailure> {
        let condition = self.retried(complaint, Means::Condition).await;
        let event = self.retried(complaint, Means::Event).await;
        // Without a place for conditions, or under a rule that refuses the whole object, the event is what is left.
        match condition {
            Err(ApiFailure::Refused(reason)) => {
                tracing::debug!(reason, "no condition on an object that cannot be read");
                event
            }
            other => other.and(event),
        }
    }

    /// Again after a pause while nobody knows whether it was done.
    async fn retried(&self, complaint: &Complaint, means: Means) -> Result<(), ApiFailure> {
        let mut pause = FIRST_PAUSE;
        for _ in 1..TRIES {
            match self.once(complaint, means).await {
                Err(ApiFailure::Unsure { retry_after, .. }) => {
                    tokio::time::sleep(retry_after.unwrap_or(pause)).await;
                    pause *= 2;
                }
                // Somebody wrote it meanwhile, or it is gone: a watch tells.
                Err(ApiFailure::Conflict | ApiFailure::Gone) => return Err(ApiFailure::Conflict),
                other => return other,
            }
        }
        self.once(complaint, means).await
    }

    async fn once(&self, complaint: &Complaint, means: Means) -> Result<(), ApiFailure> {
        match means {
            Means::Condition => self.condition(complaint).await,
            Means::Event => self.event(complaint).await,
        }
    }

    async fn condition(&self, complaint: &Complaint) -> Result<(), ApiFailure> {
        let client = self.writer().map_err(|_| ApiFailure::NotLeading)?;
        let name = complaint.metadata.name.as_deref().unwrap_or_default();
        let objects: Objects<DynamicObject> = match &complaint.metadata.namespace {
            Some(namespace) => Objects::namespaced_with(client, namespace, &complaint.resource),
            None => Objects::all_with(client, &complaint.resource),
        };
        let mut status = complaint.status.clone();
        status["conditions"] = json!([{
            "type": CONDITION, "status": "False", "reason": REASON, "message": complaint.text,
            "lastTransitionTime": in_seconds(self.now()),
        }]);
        let body =
            json!({"metadata": {"resourceVersion": complaint.metadata.resource_version}, "status": status});
        objects
            .patch_status(name, &PatchParams::default(), &Patch::Merge(body))
            .await
            .map_err(|error| failure(&error))?;
        Ok(())
    }

    async fn event(&self, complaint: &Complaint) -> Result<(), ApiFailure> {
        let client = self.writer().map_err(|_| ApiFailure::NotLeading)?;
        let event = event(complaint, self.now());
        let namespace = event.metadata.namespace.clone().unwrap_or_default();
        let events: Objects<Event> = Objects::namespaced(client, &namespace);
        match events.create(&PostParams::default(), &event).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            Err(error) => Err(failure(&error)),
            Ok(_) => Ok(()),
        }
    }
}

/// Whether the status says so already, as an earlier leader has written.
fn is_told(status: &Value, text: &str) -> bool {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == CONDITION && condition["message"] == text)
}

/// Fields that a status must have and that this one lacks, so that the CRD takes what is written.
fn whole(status: &Value, empty: &impl Serialize) -> Value {
    let mut fields = serde_json::to_value(empty).unwrap_or_else(|_| json!({}));
    if let (Some(fields), Some(there)) = (fields.as_object_mut(), status.as_object()) {
        fields.retain(|name, _| !there.contains_key(name));
    }
    fields
}

/// As the API server writes times.
fn in_seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second())
        .unwrap_or(time)
        .to_string()
}

/// An event whose name follows from what it tells, so that the same news is told once.
fn event(complaint: &Complaint, now: Timestamp) -> Event {
    let meta = &complaint.metadata;
    let (name, uid) = (
        meta.name.clone().unwrap_or_default(),
        meta.uid.clone().unwrap_or_default(),
    );
    let told = fnv64(format!("{uid} {REASON} {}", complaint.text).as_bytes());
    let prefix: String = name.chars().take(EVENT_NAME_PREFIX).collect();
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{prefix}.{told:016x}")),
            // Events on objects without a namespace live in this one.
            namespace: Some(meta.namespace.clone().unwrap_or_else(|| "default".to_owned())),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some(complaint.resource.api_version.clone()),
            kind: Some(complaint.resource.kind.clone()),
            name: Some(name),
            namespace: meta.namespace.clone(),
            uid: Some(uid),
            ..ObjectReference::default()
        },
        type_: Some("Warning".to_owned()),
        reason: Some(REASON.to_owned()),
        message: Some(complaint.text.clone()),
        source: Some(EventSource {
            component: Some(format!("{}-controller", complaint.resource.kind.to_lowercase())),
            host: None,
        }),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        count: Some(1),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use kruise_api::image_pull_job::ImagePullJob;

    use super::*;
    use crate::kubeapi::fake::FakeApi;
    use crate::leader::{LeaderState, Leadership};

    const PATH: &str = "/apis/apps.kruise.io/v1beta1/namespaces/ns/imagepulljobs/a";

    fn broken(server: &FakeApi) -> Broken {
        let object = server.object(PATH).expect("it is there");
        let guarded: super::super::Guarded<ImagePullJob> = serde_json::from_value(object).expect("metadata");
        *guarded.0.expect_err("not readable")
    }

    fn leading(server: &FakeApi) -> Api {
        let since = tokio::time::Instant::now();
        let epoch = kruise_api::ids::Epoch(1);
        Api::over(server, Leadership::fixed(LeaderState::Leader { epoch, since }))
    }

    async fn settled(server: &FakeApi, writes: usize) {
        let all = async {
            while server.writes().len() < writes {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), all)
            .await
            .expect("written");
        // What is still on its way would be written too: time stands still until nothing else is left to do.
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(server.writes().len(), writes, "{:?}", server.writes());
    }

    fn put(server: &FakeApi) {
        server.put(
            PATH,
            json!({"metadata": {"name": "a", "namespace": "ns", "uid": "u"}, "spec": {"image": 5}}),
        );
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_told_once_by_a_condition_and_an_event() {
        let server = FakeApi::default();
        put(&server);
        let api = leading(&server);
        let found = broken(&server);
        api.complain::<ImagePullJob>(&found);
        api.complain::<ImagePullJob>(&found);
        settled(&server, 2).await;
        let status = &server.object(PATH).expect("it is there")["status"];
        assert_eq!((&status["desired"], &status["active"]), (&json!(0), &json!(0)));
        let condition = &status["conditions"][0];
        assert_eq!(condition["type"], "Progressing");
        assert_eq!(condition["reason"], "Unreadable");
        let message = condition["message"].as_str().expect("a text");
        assert!(message.starts_with("spec.image: invalid type"), "{message}");
        // The next leader knows nothing of this, but sees that it has been told.
        leading(&server).complain::<ImagePullJob>(&broken(&server));
        settled(&server, 2).await;
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_lead_tells_nothing_and_may_try_again_later() {
        let server = FakeApi::default();
        put(&server);
        let (leadership, control) = Leadership::settable(LeaderState::Follower { leader: None });
        let api = Api::over(&server, leadership);
        api.complain::<ImagePullJob>(&broken(&server));
        settled(&server, 0).await;
        control.set(LeaderState::Leader {
            epoch: kruise_api::ids::Epoch(1),
            since: tokio::time::Instant::now(),
        });
        api.complain::<ImagePullJob>(&broken(&server));
        settled(&server, 2).await;
    }
}
