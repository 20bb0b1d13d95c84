//! Lets go of leases on content and of pins of images, also of those that were left behind.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kruise_api::reference::ImageRef;

use super::Engine;
use crate::puller::record::Record;
use crate::runtime::{LeaseId, Runtime};

/// Pause before leases that could not be dropped are looked for again.
const SWEEP_PAUSE: Duration = Duration::from_secs(30);

/// A clock that is set forward ends pins no later than this.
const PIN_LOOK_EVERY: Duration = Duration::from_secs(600);

/// Something about leases and pins that was done beside the tasks.
#[derive(Debug)]
pub(super) enum Chore {
    /// Leases that are there.
    Found(BTreeSet<LeaseId>),
    /// A lease was let go, or could not be.
    Dropped(bool),
    /// It is time to look.
    Look,
    /// It is time to see whose pin is over.
    Unpin,
    /// When the next one is; none of them is left, or the runtime did not answer.
    Unpinned(Result<Option<Timestamp>, ()>),
}

impl Engine {
    /// Lets go of the lease of a task that has ended, unless others want the same image. With `now`, what it held is collected.
    pub(super) fn release(&mut self, record: &Record, now: bool) {
        let lease = record.lease();
        let is_shared = (self.tasks.values()).any(|task| {
            task.record.end.is_none() && task.record.id != record.id && task.record.lease() == lease
        });
        if is_shared {
            return;
        }
        if let Ok(image) = ImageRef::parse(&record.work.image) {
            self.shared.books.close(&image);
        }
        self.drop_lease(lease, now);
    }

    pub(super) fn drop_lease(&mut self, lease: LeaseId, now: bool) {
        let Some(runtime) = self.shared.link.borrow().runtime().map(Arc::clone) else {
            return;
        };
        if runtime.content().is_some() {
            self.chores
                .spawn(async move { Chore::Dropped(drop_lease(&runtime, &lease, now).await) });
        }
    }

    /// Finds leases that no task needs any more: of tasks that ended while the runtime was away, or of another life of this agent.
    pub(super) fn chore(&mut self, chore: Chore) {
        match chore {
            Chore::Dropped(true) => {}
            Chore::Dropped(false) => {
                self.chores.spawn(async {
                    tokio::time::sleep(SWEEP_PAUSE).await;
                    Chore::Look
                });
            }
            Chore::Look => {
                let Some(runtime) = self.shared.link.borrow().runtime().map(Arc::clone) else {
                    return;
                };
                self.chores.spawn(async move {
                    let Some(content) = runtime.content() else {
                        return Chore::Dropped(true);
                    };
                    content.leases().await.map_or(Chore::Dropped(false), Chore::Found)
                });
            }
            Chore::Unpin => self.look_for_pins(),
            Chore::Unpinned(Ok(None)) => {}
            Chore::Unpinned(Ok(Some(next))) => self.unpin_at(next),
            Chore::Unpinned(Err(())) => self.unpin_in(SWEEP_PAUSE),
            Chore::Found(leases) => {
                let open = self.tasks.values().filter(|task| task.record.end.is_none());
                let needed: BTreeSet<LeaseId> = open.map(|task| task.record.lease()).collect();
                for lease in leases.difference(&needed) {
                    tracing::info!(%lease, "lease of no task let go");
                    self.drop_lease(lease.clone(), false);
                }
            }
        }
    }
}

impl Engine {
    /// Looks for pins that are over when this one is, or earlier if the wall clock jumps.
    pub(super) fn unpin_at(&mut self, until: Timestamp) {
        let left = until.duration_since(self.shared.clock.now_wall());
        let left = Duration::try_from(left).unwrap_or_default();
        self.unpin_in(left.min(PIN_LOOK_EVERY).max(Duration::from_millis(100)));
    }

    pub(super) fn unpin_in(&mut self, pause: Duration) {
        let chore = async move {
            tokio::time::sleep(pause).await;
            Chore::Unpin
        };
        let next = self.chores.spawn(chore);
        if let Some(last) = self.unpin.replace(next) {
            last.abort();
        }
    }

    fn look_for_pins(&mut self) {
        let Some(runtime) = self.shared.link.borrow().runtime().map(Arc::clone) else {
            return;
        };
        let now = self.shared.clock.now_wall();
        self.chores.spawn(async move {
            let Some(content) = runtime.content() else {
                return Chore::Unpinned(Ok(None));
            };
            let next = content.unpin(now).await;
            Chore::Unpinned(next.map_err(|error| tracing::info!(%error, "pins not looked at yet")))
        });
    }
}

async fn drop_lease(runtime: &Arc<dyn Runtime>, lease: &LeaseId, now: bool) -> bool {
    let Some(content) = runtime.content() else {
        return true;
    };
    content
        .drop_lease(lease, now)
        .await
        .inspect_err(|error| tracing::info!(%lease, %error, "lease not dropped yet"))
        .is_ok()
}
