//! The controller over a cluster in this process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use jiff::{SignedDuration, Timestamp};
use kruise_api::ids::{Epoch, JobUid, ObjectKey};
use kruise_planner::image_list_job::{ChildPatch, ChildProgress, ChildView, ListEvent, NewChild};
use serde_json::Value;
use tokio::sync::broadcast;
use tokio_stream::wrappers::BroadcastStream;

use super::actor::{Actor, ListMetrics};
use super::objects::{ChildObject, ListObject};
use super::ports::{Answer, Lists};
use crate::engine::objects::Listing;
use crate::kubeapi::ApiFailure;
use crate::leader::{Control, LeaderState, Leadership};

#[derive(Default)]
struct Held {
    lists: BTreeMap<JobUid, ListObject>,
    children: BTreeMap<JobUid, ChildObject>,
    events: Vec<ListEvent>,
    version: u64,
    writes: usize,
    refuse: bool,
}

#[derive(Clone)]
struct Fake {
    held: Arc<Mutex<Held>>,
    lists: broadcast::Sender<Listing<ListObject, JobUid>>,
    children: broadcast::Sender<Listing<ChildObject, JobUid>>,
    begun: tokio::time::Instant,
}

impl Fake {
    fn new() -> Self {
        Self {
            held: Arc::default(),
            lists: broadcast::channel(64).0,
            children: broadcast::channel(64).0,
            begun: tokio::time::Instant::now(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_version(&self) -> String {
        let mut held = self.lock();
        held.version += 1;
        held.writes += 1;
        held.version.to_string()
    }

    fn make(&self, spec: &str) {
        let list = ListObject {
            uid: "list".into(),
            key: ObjectKey::new("ns", "list"),
            version: self.next_version(),
            generation: 1,
            deleting: false,
            finalizers: Vec::new(),
            annotations: BTreeMap::new(),
            spec: serde_json::from_str(spec).expect("a spec"),
            status: None,
        };
        self.put(list);
    }

    fn put(&self, list: ListObject) {
        self.lock().lists.insert(list.uid.clone(), list.clone());
        drop(self.lists.send(Listing::Applied(list)));
    }

    fn edit(&self, spec: &str) {
        let version = self.next_version();
        let mut list = self.list().expect("there");
        list.spec = serde_json::from_str(spec).expect("a spec");
        list.generation += 1;
        list.version = version;
        self.put(list);
    }

    fn list(&self) -> Option<ListObject> {
        self.lock().lists.values().next().cloned()
    }

    fn put_child(&self, mut child: ChildObject) {
        child.version = self.next_version();
        self.lock().children.insert(child.view.uid.clone(), child.clone());
        drop(self.children.send(Listing::Applied(child)));
    }

    fn finish(&self, image: &str, succeeded: i32, failed: i32) {
        let mut child = self.child(image).expect("there");
        child.view.progress = Some(ChildProgress {
            complete: true,
            desired: succeeded + failed,
            active: 0,
            succeeded,
            failed,
        });
        self.put_child(child);
    }

    fn remove_child(&self, image: &str) {
        let uid = self.child(image).expect("there").view.uid;
        self.lock().children.remove(&uid);
        drop(self.children.send(Listing::Deleted(uid)));
    }

    fn child(&self, image: &str) -> Option<ChildObject> {
        let held = self.lock();
        let mut children = held.children.values();
        children.find(|child| child.view.spec.image == image).cloned()
    }

    fn images(&self) -> Vec<String> {
        let held = self.lock();
        let mut images: Vec<_> = held
            .children
            .values()
            .map(|child| child.view.spec.image.clone())
            .collect();
        images.sort();
        images
    }

    fn events(&self) -> Vec<String> {
        let held = self.lock();
        let text = |event: &ListEvent| format!("{}: {}", event.reason, event.message);
        held.events.iter().map(text).collect()
    }
}

fn listed<T: Clone + Send + 'static>(
    objects: Vec<T>,
    changes: &broadcast::Sender<Listing<T, JobUid>>,
) -> BoxStream<'static, Listing<T, JobUid>> {
    let changes =
        BroadcastStream::new(changes.subscribe()).filter_map(|change| std::future::ready(change.ok()));
    let list: Vec<_> = std::iter::once(Listing::Begin)
        .chain(objects.into_iter().map(Listing::Listed))
        .chain([Listing::Complete])
        .collect();
    futures::stream::iter(list).chain(changes).boxed()
}

fn ready<T: Send + 'static>(result: Result<T, ApiFailure>) -> Answer<T> {
    std::future::ready(result).boxed()
}

impl Lists for Fake {
    fn lists(&self) -> BoxStream<'static, Listing<ListObject, JobUid>> {
        listed(self.lock().lists.values().cloned().collect(), &self.lists)
    }

    fn children(&self) -> BoxStream<'static, Listing<ChildObject, JobUid>> {
        listed(self.lock().children.values().cloned().collect(), &self.children)
    }

    fn create(&self, list: ListObject, child: NewChild) -> Answer<ChildObject> {
        if self.lock().refuse {
            return ready(Err(ApiFailure::Refused("not like this".into())));
        }
        let object = ChildObject {
            list: list.uid,
            version: String::new(),
            view: ChildView {
                uid: child.name.as_str().into(),
                name: child.name,
                deleting: false,
                created: self.now(),
                annotations: child.annotations,
                spec: child.spec,
                progress: None,
            },
        };
        let uid = object.view.uid.clone();
        self.put_child(object);
        ready(Ok(self.lock().children[&uid].clone()))
    }

    fn patch(&self, _: ListObject, patch: ChildPatch) -> Answer<()> {
        let mut child = self.lock().children[&patch.uid].clone();
        child.view.spec = patch.spec;
        self.put_child(child);
        ready(Ok(()))
    }

    fn delete_child(&self, _: ListObject, uid: JobUid, _: String) -> Answer<()> {
        self.next_version();
        self.lock().children.remove(&uid);
        drop(self.children.send(Listing::Deleted(uid)));
        ready(Ok(()))
    }

    fn delete(&self, list: ListObject) -> Answer<()> {
        self.lock().lists.remove(&list.uid);
        drop(self.lists.send(Listing::Deleted(list.uid)));
        ready(Ok(()))
    }

    fn strip_finalizer(&self, mut list: ListObject) -> Answer<ListObject> {
        list.finalizers.clear();
        list.version = self.next_version();
        self.put(list.clone());
        ready(Ok(list))
    }

    fn write_status(&self, list: ListObject, patch: Value) -> Answer<ListObject> {
        let Some(mut stored) = self.list() else {
            return ready(Err(ApiFailure::Gone));
        };
        if stored.version != list.version {
            return ready(Err(ApiFailure::Conflict));
        }
        let mut status = serde_json::to_value(&stored.status).expect("json");
        crate::engine::tests::world::merge(&mut status, &patch);
        stored.status = serde_json::from_value(status).expect("a status");
        stored.version = self.next_version();
        self.put(stored.clone());
        ready(Ok(stored))
    }

    fn record(&self, _: ListObject, event: ListEvent) -> Answer<()> {
        self.lock().events.push(event);
        ready(Ok(()))
    }

    fn now(&self) -> Timestamp {
        let begun = Timestamp::from_second(2_000_000_000).expect("a time");
        begun + SignedDuration::try_from(self.begun.elapsed()).expect("short")
    }
}

fn start(fake: &Fake) -> Control {
    let state = LeaderState::Leader {
        epoch: Epoch(1),
        since: tokio::time::Instant::now(),
    };
    let (leadership, control) = Leadership::settable(state);
    let actor = Actor {
        lists: Arc::new(fake.clone()),
        leadership: leadership.subscribe(),
        metrics: ListMetrics::default(),
        switched_off: None,
    };
    tokio::spawn(actor.run());
    control
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn from_the_list_to_its_end() {
    let fake = Fake::new();
    let _control = start(&fake);
    fake.make(
        r#"{"images":["a:1","b:1"],"completionPolicy":{"type":"Always","ttlSecondsAfterFinished":30}}"#,
    );
    pass(1).await;
    assert_eq!(fake.images(), ["a:1", "b:1"]);
    assert_eq!(fake.events(), ["SuccessfulCreate: Create 2 ImagePullJob"]);
    let writes = fake.lock().writes;
    pass(300).await;
    assert_eq!(fake.lock().writes, writes, "at rest nothing is written");
    fake.finish("a:1", 2, 0);
    fake.remove_child("a:1");
    pass(20).await;
    assert_eq!(fake.images(), ["b:1"], "what is done gets no job again");
    fake.finish("b:1", 1, 1);
    pass(20).await;
    let status = fake.list().expect("there").status.expect("written");
    assert!(status.completion_time.is_some());
    assert_eq!((status.completed, status.succeeded), (2, 1));
    pass(30).await;
    assert!(fake.list().is_none(), "its time to live has run out");
}

#[tokio::test(start_paused = true)]
async fn an_edit_changes_adds_and_removes() {
    let fake = Fake::new();
    let _control = start(&fake);
    fake.make(r#"{"images":["a:1","b:1"]}"#);
    pass(1).await;
    let before = fake.child("b:1").expect("there").view.uid;
    fake.edit(r#"{"images":["b:1","c:1"],"parallelism":7}"#);
    pass(5).await;
    assert_eq!(fake.images(), ["b:1", "c:1"]);
    let child = fake.child("b:1").expect("there").view;
    assert_eq!(child.uid, before, "it is changed in place");
    assert_eq!(child.spec, fake.list().expect("there").spec.child("b:1"));
    assert_eq!(
        fake.events()[1..],
        [
            "SuccessfulCreate: Create 1 ImagePullJob",
            "SuccessfulDelete: Delete 1 ImagePullJob"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_refused_job_is_told_and_tried_again() {
    let fake = Fake::new();
    fake.lock().refuse = true;
    let _control = start(&fake);
    fake.make(r#"{"images":["a:1","b:1"]}"#);
    pass(5).await;
    let conditions = fake.list().expect("there").status.expect("written").conditions;
    assert_eq!(
        (conditions[0].status.as_str(), conditions[0].reason.as_str()),
        ("False", "ChildRefused")
    );
    assert!(
        fake.events()[0].starts_with("FailedCreate: ImagePullJob for a:1 was not created: not like this")
    );
    fake.lock().refuse = false;
    pass(70).await;
    assert_eq!(fake.images(), ["a:1", "b:1"]);
    let conditions = fake.list().expect("there").status.expect("written").conditions;
    assert_eq!(conditions[0].status, "True");
}

#[tokio::test(start_paused = true)]
async fn another_leader_makes_nothing_twice() {
    let fake = Fake::new();
    let control = start(&fake);
    fake.make(r#"{"images":["a:1"]}"#);
    pass(1).await;
    control.set(LeaderState::Follower { leader: None });
    pass(1).await;
    fake.edit(r#"{"images":["a:1","b:1"]}"#);
    pass(60).await;
    assert_eq!(fake.images(), ["a:1"], "who does not lead does nothing");
    let _next = start(&fake);
    pass(1).await;
    assert_eq!(fake.images(), ["a:1", "b:1"]);
    assert_eq!(
        fake.events().last().map(String::as_str),
        Some("SuccessfulCreate: Create 1 ImagePullJob")
    );
}
