//! Which pods, nodes and account an agent's token may be bound to at this moment, kept up to date by watches.
//!
//! Every replica watches, not only the leader: a new leader has to know thousands of agents within seconds, and a follower has the same
//! answers as a leader for those who ask it.
//!
//! Only what is here counts as an answer. What is not here may be too new for the watch ([`Look::Absent`]), and a watch that fails tells
//! nothing ([`Look::Unsure`]): then the API server is to be asked.

mod table;
pub(super) mod watch;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::AuthError;
use table::Table;

/// How long the answers of a watch are not taken for the truth after it failed, unless it has listed everything since.
const DOUBTED: Duration = Duration::from_secs(60);

/// An agent's pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pod {
    pub(super) name: String,
    /// Empty before it is bound to one.
    pub(super) node: String,
    /// When its time to end by itself is over: the end of a pod that is being deleted, whatever its node says.
    pub(super) ends: Option<Timestamp>,
    /// Whether all of its containers have ended for good.
    pub(super) over: bool,
}

/// What a token is bound to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject<'a> {
    pub(super) pod_name: &'a str,
    pub(super) pod_uid: &'a str,
    pub(super) node_name: &'a str,
    pub(super) node_uid: &'a str,
    /// None when only pod and node are asked about.
    pub(super) account_uid: Option<&'a str>,
}

/// What is known about a subject.
#[derive(Debug)]
pub(super) enum Look {
    /// All of it exists.
    Alive(Alive),
    /// Part of it is known to be over, or another one.
    Gone(AuthError),
    /// Part of it is not known here: it is gone, or too new.
    Absent(AuthError),
    /// The watches tell nothing at this moment.
    Unsure,
}

/// How to hear that a subject has changed.
#[derive(Clone, Debug)]
pub(super) struct Alive {
    changes: [CancellationToken; 3],
    ends: Option<Timestamp>,
}

impl Alive {
    /// Until any part has changed, or the pod's time is over. `now` is the API server's time.
    pub(super) async fn changed(self, now: Timestamp) {
        let [pod, node, account] = &self.changes;
        let over = async {
            match self.ends {
                Some(end) => {
                    let left = Duration::try_from(end.duration_since(now)).unwrap_or_default();
                    // The clocks need not agree to the millisecond; a look that comes too early would come again at once.
                    tokio::time::sleep(left + Duration::from_millis(100)).await;
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // Any of them will do.
            () = pod.cancelled() => {}
            () = node.cancelled() => {}
            () = account.cancelled() => {}
            () = over => {}
        }
    }
}

/// Pods, nodes and the account, each by UID.
#[derive(Debug, Default)]
pub(super) struct Directory {
    tables: Mutex<Tables>,
}

#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) pods: Table<Pod>,
    /// By name.
    pub(super) nodes: Table<String>,
    pub(super) account: Table<()>,
}

impl Directory {
    pub(super) fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether everything has been listed once.
    pub(super) fn is_complete(&self) -> bool {
        let tables = self.tables();
        tables.pods.is_complete() && tables.nodes.is_complete() && tables.account.is_complete()
    }

    /// What is known about a subject. `mono` is this process' clock, `wall` the API server's.
    pub(super) fn look(&self, subject: &Subject<'_>, mono: Duration, wall: Timestamp) -> Look {
        let tables = self.tables();
        if !(tables.pods.is_sure(mono) && tables.nodes.is_sure(mono) && tables.account.is_sure(mono)) {
            return Look::Unsure;
        }
        let Some(pod) = tables.pods.get(subject.pod_uid) else {
            return Look::Absent(AuthError::pod_gone());
        };
        let Some(node) = tables.nodes.get(subject.node_uid) else {
            return Look::Absent(AuthError::node_gone(subject.node_name));
        };
        let account = match subject.account_uid {
            Some(uid) => tables.account.get(uid),
            None => tables.account.first(),
        };
        let Some(account) = account else {
            return Look::Absent(AuthError::account_gone());
        };
        if pod.value.over || pod.value.ends.is_some_and(|end| end <= wall) {
            return Look::Gone(AuthError::pod_gone());
        }
        if pod.value.name != subject.pod_name || pod.value.node != subject.node_name {
            return Look::Gone(AuthError::NodeMismatch {
                token_node: pod.value.node.clone(),
                claimed: subject.node_name.to_owned(),
            });
        }
        if node.value != subject.node_name {
            return Look::Gone(AuthError::node_gone(subject.node_name));
        }
        Look::Alive(Alive {
            changes: [pod.changed.clone(), node.changed.clone(), account.changed.clone()],
            ends: pod.value.ends,
        })
    }

    /// Whether a node of this name and UID exists; none when that is not known.
    pub(super) fn has_node(&self, name: &str, uid: &str, mono: Duration) -> Option<bool> {
        let tables = self.tables();
        let node = tables.nodes.get(uid).filter(|_| tables.nodes.is_sure(mono))?;
        Some(node.value == name)
    }
}

#[cfg(test)]
mod tests;
