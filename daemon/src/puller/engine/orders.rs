//! Takes orders and cancels tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kruise_api::ids::TaskId;
use kruise_api::reference::ImageRef;
use kruise_planner::node::attempt::Limits;
use kruise_planner::task::{Phase, Progress, Reason};
use kruise_proto::dispatch::Credential;
use tokio::sync::watch;

use super::Engine;
use super::task::{Task, Working};
use crate::metrics::Outcome;
use crate::puller::here::is_here;
use crate::puller::order::{Order, Policy, Terms, Work};
use crate::puller::record::{End, Failed, Record};
use crate::puller::worker::{Spec, Worker};
use crate::puller::{MAX_TASKS, Refused, Welcome};

impl Engine {
    /// Takes all of it or nothing: removals first, then the journal, then work.
    pub(super) async fn take(
        &mut self,
        welcome: Welcome,
        add: Vec<Order>,
        cancel: Vec<TaskId>,
    ) -> Result<(), Refused> {
        if self.suspended.is_some_and(|lost| welcome <= lost) {
            return Err(Refused::ContactLost);
        }
        self.check(&add, &cancel)?;
        self.taken = self.taken.max(welcome);
        for id in cancel.iter().filter(|id| !is_here(id)) {
            self.forget(id);
        }
        let wanted: Vec<(TaskId, Vec<_>)> = add.into_iter().map(|order| self.note_order(order)).collect();
        self.store().await;
        for (id, credentials) in wanted {
            self.start(&id, credentials);
            self.publish(&id);
        }
        self.count();
        Ok(())
    }

    fn check(&self, add: &[Order], cancel: &[TaskId]) -> Result<(), Refused> {
        let cancelled: BTreeSet<&TaskId> = cancel.iter().collect();
        let held = self.tasks.iter().filter(|(id, _)| !cancelled.contains(id));
        let mut images: BTreeMap<&TaskId, String> = held
            .map(|(id, task)| (id, canonical(&task.record.work.image)))
            .collect();
        for order in add {
            // No manager makes such ids, and none may take a caller's pull over.
            if is_here(&order.id) {
                return Err(Refused::Conflict(order.id.clone()));
            }
            let image = order
                .work
                .as_ref()
                .map(|work| canonical(&work.image))
                .unwrap_or_default();
            if *images.entry(&order.id).or_insert_with(|| image.clone()) != image {
                return Err(Refused::Conflict(order.id.clone()));
            }
        }
        if images.len() > MAX_TASKS {
            return Err(Refused::TooMany(images.len()));
        }
        Ok(())
    }

    /// Writes an order into the books. One that is known may bring new limits and log-ins; the rest stays as it was taken.
    pub(super) fn note_order(&mut self, order: Order) -> (TaskId, Vec<Credential>) {
        let Order {
            id,
            work,
            credentials,
        } = order;
        if let Some(task) = self.tasks.get_mut(&id) {
            if let Some(work) = work {
                task.record.work.limits = work.limits;
                task.record.work.terms = work.terms;
            }
            return (id, credentials);
        }
        let (wall, now) = (self.shared.clock.now_wall(), self.shared.clock.now_mono());
        let refusal = unusable(work.as_ref());
        let record = Record::new(id.clone(), work.unwrap_or_else(unknown_work), wall);
        tracing::info!(task = %id, image = record.work.image, by = record.work.requested_by, traceparent = record.work.traceparent, "task taken");
        let mut task = Task::new(record, now);
        if let Some(failed) = refusal {
            tracing::info!(task = %id, reason = %failed.reason, message = failed.message, "task failed");
            self.metrics.ended(Outcome::Failed(failed.reason));
            task.record.failure = Some(failed);
            task.record.end = Some(End {
                time: wall,
                image_id: None,
                already_present: false,
                progress: Progress::default(),
                pinned: None,
            });
        }
        self.tasks.insert(id.clone(), task);
        (id, credentials)
    }

    /// Lets a task be worked on, if there is anything left to do.
    pub(super) fn start(&mut self, id: &TaskId, credentials: Vec<Credential>) {
        let Some(task) = self.tasks.get_mut(id).filter(|task| task.record.end.is_none()) else {
            return;
        };
        let spec = Spec {
            work: task.record.work.clone(),
            credentials,
        };
        if let Some(worker) = &task.worker {
            worker.spec.send_replace(spec);
            return;
        }
        let Ok(image) = ImageRef::parse(&task.record.work.image) else {
            return;
        };
        let (sender, spec) = watch::channel(spec);
        self.last_number += 1;
        let worker = Worker {
            shared: Arc::clone(&self.shared),
            task: id.clone(),
            number: self.last_number,
            image,
            lease: task.record.lease(),
            since: (task.record.taken, task.record.bytes_fetched),
            spent: (task.record.spent, task.as_of),
            tries: task.record.tries,
            spec,
            notes: self.notes.0.clone(),
        };
        task.live.phase = Phase::Waiting;
        task.worker = Some(Working {
            abort: self.workers.spawn(worker.run()),
            number: self.last_number,
            spec: sender,
        });
    }

    /// Cancels a task, or drops its result. No failure is booked.
    pub(super) fn forget(&mut self, id: &TaskId) {
        let Some(mut task) = self.tasks.remove(id) else {
            return;
        };
        if task.record.end.is_none() {
            tracing::info!(task = %id, "task cancelled");
            task.halt(self.shared.clock.now_mono());
            self.metrics.ended(Outcome::Cancelled);
            self.release(&task.record, true);
        }
        self.board.send_modify(|board| {
            board.0.remove(id);
        });
    }
}

fn canonical(image: &str) -> String {
    ImageRef::parse(image).map_or_else(|_| image.to_owned(), |image| image.canonical().to_owned())
}

/// Why an order ends at once.
fn unusable(work: Option<&Work>) -> Option<Failed> {
    let Some(work) = work else {
        let message =
            "this agent does not know the kind of work that was ordered; it is older than the manager";
        return Some(Failed {
            reason: Reason::Unsupported,
            message: message.to_owned(),
        });
    };
    let error = ImageRef::parse(&work.image).err()?;
    Some(Failed {
        reason: Reason::InvalidReference,
        message: error.to_string(),
    })
}

fn unknown_work() -> Work {
    Work {
        image: String::new(),
        policy: Policy::IfNotPresent,
        limits: Limits::new(None, 0, None),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        requested_by: String::new(),
        traceparent: String::new(),
        terms: Terms::default(),
    }
}
