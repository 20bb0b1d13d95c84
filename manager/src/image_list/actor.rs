//! The controller's task.
//!
//! Tasks and channels: the task owns the state and never waits for the network; `told` brings what watches and finished work tell, bounded. Both end
//! with the leadership.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use kruise_api::ids::JobUid;
use kruise_planner::image_list_job::{ListEvent, NewChild};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::objects::{ChildObject, ListObject};
use super::ports::Lists;
use super::state::{Done, State, Work};
use crate::engine::merge::merge_patch;
use crate::engine::objects::Listing;
use crate::kubeapi::ApiFailure;
use crate::leader::LeaderState;

/// News that wait for the controller.
const TOLD: usize = 256;
/// Longest sleep: the floor in case that the API server's clock was set.
const LONGEST_NAP: Duration = Duration::from_secs(60);
const SHORTEST_NAP: Duration = Duration::from_millis(5);

/// Families of the controller. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct ListMetrics {
    lists: Gauge,
    active: Gauge,
    writes: Counter,
}

impl ListMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("kruise_image_list_jobs", "ImageListPullJobs", self.lists.clone());
        registry.register(
            "kruise_image_list_jobs_active",
            "ImageListPullJobs that are not over",
            self.active.clone(),
        );
        registry.register(
            "kruise_image_list_status_writes",
            "Writes of ImageListPullJob status",
            self.writes.clone(),
        );
    }
}

enum Told {
    Lists(Listing<ListObject, JobUid>),
    Children(Listing<ChildObject, JobUid>),
    Done(Box<Done>),
}

pub(super) struct Actor {
    pub(super) lists: Arc<dyn Lists>,
    pub(super) leadership: watch::Receiver<LeaderState>,
    pub(super) metrics: ListMetrics,
    pub(super) switched_off: Option<&'static str>,
}

impl Actor {
    /// Works whenever this replica leads.
    pub(super) async fn run(mut self) {
        loop {
            let leads = matches!(&*self.leadership.borrow_and_update(), LeaderState::Leader { .. });
            if leads {
                self.lead().await;
            } else if self.leadership.changed().await.is_err() {
                return;
            }
        }
    }

    async fn lead(&mut self) {
        let (tell, mut told) = mpsc::channel(TOLD);
        let mut tasks = JoinSet::new();
        follow(&mut tasks, &tell, self.lists.lists().map(Told::Lists));
        follow(&mut tasks, &tell, self.lists.children().map(Told::Children));
        let mut state = State::new(self.switched_off);
        loop {
            let nap = state.next_wake().map_or(LONGEST_NAP, |at| {
                let left = Duration::try_from(at.duration_since(self.lists.now()));
                left.unwrap_or(Duration::ZERO).clamp(SHORTEST_NAP, LONGEST_NAP)
            });
            tokio::select! {
                // All are cancel-safe: a message is either taken or still there.
                _ = self.leadership.changed() => return,
                Some(news) = told.recv() => take(&mut state, news, self.lists.now()),
                () = tokio::time::sleep(nap) => {}
            }
            while let Ok(news) = told.try_recv() {
                take(&mut state, news, self.lists.now());
            }
            for work in state.settle(self.lists.now()) {
                let (lists, tell, metrics) = (Arc::clone(&self.lists), tell.clone(), self.metrics.clone());
                tasks.spawn(async move {
                    let done = carry_out(&*lists, work).await;
                    if done.wrote_status {
                        metrics.writes.inc();
                    }
                    drop(tell.send(Told::Done(Box::new(done))).await);
                });
            }
            while tasks.try_join_next().is_some() {}
            let (all, active) = state.count();
            self.metrics.lists.set(i64::try_from(all).unwrap_or(i64::MAX));
            self.metrics.active.set(i64::try_from(active).unwrap_or(i64::MAX));
        }
    }
}

fn follow(
    tasks: &mut JoinSet<()>,
    tell: &mpsc::Sender<Told>,
    events: impl futures::Stream<Item = Told> + Send + 'static,
) {
    let tell = tell.clone();
    tasks.spawn(async move {
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            if tell.send(event).await.is_err() {
                return;
            }
        }
    });
}

fn take(state: &mut State, news: Told, now: Timestamp) {
    match news {
        Told::Lists(listing) => state.lists(listing, now),
        Told::Children(listing) => state.children(listing),
        Told::Done(done) => state.done(*done, now),
    }
}

/// Does what a plan says: jobs first, one by one, so that a server that refuses is asked once; then the status.
pub(super) async fn carry_out(lists: &dyn Lists, work: Work) -> Done {
    let Work { mut list, plan } = work;
    let mut done = Done {
        list: list.uid.clone(),
        object: None,
        wrote_status: false,
        created: Vec::new(),
        deleted: Vec::new(),
        refused: None,
        failure: None,
    };
    if plan.expire {
        done.failure = lists.delete(list).await.err();
        return done;
    }
    if plan.strip_finalizer {
        match lists.strip_finalizer(list.clone()).await {
            Ok(object) => {
                list = object.clone();
                done.object = Some(object);
            }
            Err(failure) => {
                done.failure = Some(failure);
                return done;
            }
        }
    }
    create(lists, &list, plan.create, &mut done).await;
    for patch in plan.patch {
        if let Err(failure) = lists.patch(list.clone(), patch).await {
            done.failure.get_or_insert(failure);
        }
    }
    for (uid, name) in plan.delete {
        match lists.delete_child(list.clone(), uid.clone(), name).await {
            Ok(()) => done.deleted.push(uid),
            Err(failure) => drop(done.failure.get_or_insert(failure)),
        }
    }
    // A status that was planned before a job was refused is made anew with that in it.
    if plan.write.is_some() && done.failure.is_none() && done.refused.is_none() {
        write_status(lists, &list, &plan.status, &mut done).await;
    }
    if !done.created.is_empty() {
        tell(lists, &list, ListEvent::created(done.created.len())).await;
    }
    if !done.deleted.is_empty() {
        tell(lists, &list, ListEvent::deleted(done.deleted.len())).await;
    }
    done
}

async fn create(lists: &dyn Lists, list: &ListObject, children: Vec<NewChild>, done: &mut Done) {
    for child in children {
        let (canonical, image) = (child.image.clone(), child.spec.image.clone());
        match lists.create(list.clone(), child).await {
            Ok(child) => done.created.push(child),
            Err(ApiFailure::Refused(message)) => {
                tell(lists, list, ListEvent::failed(&image, &message)).await;
                done.refused = Some((canonical, message));
                break;
            }
            Err(failure) => {
                done.failure = Some(failure);
                break;
            }
        }
    }
}

async fn write_status(
    lists: &dyn Lists,
    list: &ListObject,
    status: &kruise_api::image_list_pull_job::ImageListPullJobStatus,
    done: &mut Done,
) {
    let json = |status| serde_json::to_value(status).expect("a status has only text keys");
    let stored = list.status.as_ref().map_or(Value::Null, json);
    let Some(patch) = merge_patch(&stored, &json(status)) else {
        return;
    };
    match lists.write_status(list.clone(), patch).await {
        Ok(object) => {
            done.object = Some(object);
            done.wrote_status = true;
        }
        Err(failure) => done.failure = Some(failure),
    }
}

async fn tell(lists: &dyn Lists, list: &ListObject, event: ListEvent) {
    if let Err(error) = lists.record(list.clone(), event).await {
        tracing::warn!(list = %list.key, %error, "an event was not told");
    }
}
