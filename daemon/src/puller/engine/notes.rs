//! Takes in what workers tell.

use kruise_api::ids::TaskId;

use super::Engine;
use super::task::Task;
use crate::metrics::Outcome;
use crate::puller::record::End;
use crate::puller::worker::Note;

impl Engine {
    /// Takes in a note, unless it is of a worker that was dropped.
    pub(super) async fn hear(&mut self, id: &TaskId, number: u64, note: Note) {
        let current = |task: &&mut Task| task.worker.as_ref().is_some_and(|worker| worker.number == number);
        let Some(task) = self.tasks.get_mut(id).filter(current) else {
            return;
        };
        let (wall, now) = (self.shared.clock.now_wall(), self.shared.clock.now_mono());
        match note {
            Note::Reading(reading) => {
                task.read(reading);
            }
            Note::Begin(answer) => {
                task.begin(wall, now);
                self.store().await;
                let _ = answer.send(());
            }
            Note::Failed { tries, failed, pause } => {
                tracing::info!(task = %id, reason = %failed.reason, message = failed.message, ?pause, "attempt failed");
                self.metrics.failed(failed.reason);
                task.retry(tries, failed, pause, now);
                self.store().await;
            }
            Note::Present {
                image_id,
                reading,
                pin,
            } => {
                if let Some(reading) = reading {
                    task.read(reading);
                }
                if let Some(pinned) = pin.filter(|pinned| pinned.supported) {
                    self.unpin_at(pinned.until);
                }
                self.end(id, Some(image_id), pin.map(|pinned| pinned.supported))
                    .await;
            }
            Note::Ended { tries, failed } => {
                tracing::info!(task = %id, reason = %failed.reason, message = failed.message, "task failed");
                self.metrics.failed(failed.reason);
                task.record.tries = tries;
                task.record.failure = Some(failed);
                self.end(id, None, None).await;
            }
        }
        self.publish(id);
        self.count();
    }

    /// Books the end of a task: with an image it succeeded.
    async fn end(&mut self, id: &TaskId, image_id: Option<String>, pinned: Option<bool>) {
        let (wall, now) = (self.shared.clock.now_wall(), self.shared.clock.now_mono());
        let Some(task) = self.tasks.get_mut(id) else {
            return;
        };
        task.rest(now);
        task.worker = None;
        let succeeded = image_id.is_some();
        let already_present = succeeded && task.record.tries.begun == 0;
        let record = &mut task.record;
        if succeeded {
            tracing::info!(task = %id, image = record.work.image, took = ?record.pull_time, already_present, "image present");
        }
        let outcome = match &record.failure {
            _ if already_present => Outcome::Present,
            Some(failed) if !succeeded => Outcome::Failed(failed.reason),
            _ => Outcome::Succeeded,
        };
        self.metrics.ended(outcome);
        if outcome == Outcome::Succeeded {
            let size = task.live.progress.bytes_total;
            self.metrics.pulled(record.pull_time, size);
        }
        record.end = Some(End {
            time: wall,
            image_id,
            already_present,
            progress: task.live.progress,
            pinned,
        });
        let record = record.clone();
        self.store().await;
        // A success leaves nothing behind that would have to be collected at once: the image holds it all.
        self.release(&record, !succeeded);
    }
}
