//! Lets go of leases on content, also of those that were left behind.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use crate::runtime::{LeaseId, Runtime};

/// Pause before leases that could not be dropped are looked for again.
const SWEEP_PAUSE: Duration = Duration::from_secs(30);

/// Something about leases that was done beside the tasks.
#[derive(Debug)]
pub(super) enum Chore {
    /// Leases that are there.
    Found(BTreeSet<LeaseId>),
    /// A lease was let go, or could not be.
    Dropped(bool),
    /// It is time to look.
    Look,
}

impl Engine {
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
