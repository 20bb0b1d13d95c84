//! What becomes of an agent after it was let in: whether its pod, its node and its account still exist.

use std::sync::Arc;
use std::time::Duration;

use super::AuthError;
use super::directory::{Directory, Look};
use super::review::{Place, Reviewer};
use crate::clock::Monotonic;
use crate::kubeapi::Api;

/// How often the API server is asked about an agent of which the watches tell nothing. With the time that an answer takes this stays below the
/// minute within which a banned agent is out.
const ASK_AGAIN: Duration = Duration::from_secs(40);

/// Follows what one agent is bound to.
pub(super) struct Follower {
    pub(super) api: Api,
    pub(super) clock: Monotonic,
    pub(super) directory: Arc<Directory>,
    pub(super) reviewer: Arc<Reviewer>,
}

impl Follower {
    /// Until the pod, the node or the account is gone, and which.
    pub(super) async fn ended(self, place: Place) -> AuthError {
        let mut was_there = false;
        loop {
            match self
                .directory
                .look(&place.subject(), self.clock.now(), self.api.now())
            {
                Look::Alive(alive) => {
                    was_there = true;
                    alive.changed(self.api.now()).await;
                    continue;
                }
                Look::Gone(error) => return error,
                // UIDs do not come back.
                Look::Absent(error) if was_there => return error,
                Look::Absent(_) | Look::Unsure => tokio::time::sleep(ASK_AGAIN).await,
            }
            let look = self
                .directory
                .look(&place.subject(), self.clock.now(), self.api.now());
            if matches!(look, Look::Absent(_) | Look::Unsure) {
                match self.reviewer.check_place(&place).await {
                    // Nobody can tell: a leader that the API server does not answer leads no longer than its lease.
                    Ok(()) | Err(AuthError::Backend { .. }) => {}
                    Err(error) => return error,
                }
            }
        }
    }
}
