//! Starts containers of pods in the order that they ask for: writes the keys that their barriers wait for, as long as this replica leads.
//!
//! What comes next is decided by [`kruise_planner::launch::step`]. Pods that wait are Pending, so only such pods are watched. The keys of a pod
//! are read once per leadership and known from then on, since nobody takes one away.

mod cluster;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kruise_planner::launch::{Step, barriers, config_map, key, step};
use tokio::sync::watch;

use crate::kubeapi::{Api, ApiFailure};
use crate::leader::{LeaderState, Leadership};

use cluster::{Cluster, KubeCluster, Told};

/// Between two tries of a pod whose write or read failed.
const AGAIN: Duration = Duration::from_secs(1);

/// Starts the controller, which follows the leadership as long as the process lives.
pub fn spawn(api: Api, leadership: &Leadership) {
    let cluster = Arc::new(KubeCluster::new(api));
    tokio::spawn(run(cluster, leadership.subscribe()));
}

async fn run(cluster: Arc<dyn Cluster>, mut leadership: watch::Receiver<LeaderState>) {
    loop {
        let leads = |state: &LeaderState| matches!(state, LeaderState::Leader { .. });
        if leadership.wait_for(leads).await.is_err() {
            return;
        }
        tokio::select! {
            () = lead(cluster.as_ref()) => {}
            ended = leadership.wait_for(|state| !leads(state)) => if ended.is_err() { return },
        }
    }
}

/// One leadership. Pods take turns: a step is one or two small writes, and only pods that are being started need any.
async fn lead(cluster: &dyn Cluster) {
    let mut launches = Launches::default();
    let mut told = cluster.pending();
    loop {
        let retry = async {
            match launches.failed.is_empty() {
                true => std::future::pending().await,
                false => tokio::time::sleep(AGAIN).await,
            }
        };
        let pods = tokio::select! {
            told = told.next() => match told {
                Some(Told::Is(pod)) => vec![*pod],
                Some(Told::Gone(uid)) => {
                    launches.forget(&uid);
                    continue;
                }
                None => return,
            },
            () = retry => std::mem::take(&mut launches.failed).into_values().collect(),
        };
        for pod in pods {
            launches.go_on(cluster, pod).await;
        }
    }
}

/// What is known of pods that are being started.
#[derive(Debug, Default)]
struct Launches {
    /// Keys of their ConfigMaps, by UID.
    keys: BTreeMap<String, BTreeSet<String>>,
    /// Pods to be tried again, by UID, as they were seen last.
    failed: BTreeMap<String, Pod>,
}

impl Launches {
    fn forget(&mut self, uid: &str) {
        self.keys.remove(uid);
        self.failed.remove(uid);
    }

    async fn go_on(&mut self, cluster: &dyn Cluster, pod: Pod) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        self.failed.remove(&uid);
        if barriers(&pod).is_empty() {
            return;
        }
        match self.advance(cluster, &pod, &uid).await {
            // The watch ends with the leadership; a pod that is gone is told by it.
            Ok(()) | Err(ApiFailure::NotLeading | ApiFailure::Gone) => {}
            Err(error) => {
                let name = pod.metadata.name.as_deref().unwrap_or_default();
                tracing::warn!(pod = name, %error, "the next containers of a pod could not be let start; trying again");
                // What is there is not certain any more.
                self.keys.remove(&uid);
                self.failed.insert(uid, pod);
            }
        }
    }

    async fn advance(&mut self, cluster: &dyn Cluster, pod: &Pod, uid: &str) -> Result<(), ApiFailure> {
        if step(pod, &BTreeSet::new()) == Step::Nothing {
            return Ok(());
        }
        let known = self.keys.get(uid).cloned();
        let keys = match known {
            Some(keys) => keys,
            None => cluster.keys(pod).await?,
        };
        let next = step(pod, &keys);
        self.keys.insert(uid.to_owned(), keys.clone());
        match next {
            Step::Nothing | Step::Wait => Ok(()),
            Step::Add { priority, last } => {
                cluster.add(pod, &key(priority), keys.is_empty()).await?;
                let all = self.keys.entry(uid.to_owned()).or_default();
                all.insert(key(priority));
                let map = config_map(pod.metadata.name.as_deref().unwrap_or_default());
                tracing::debug!(map, priority, "containers may start");
                if last { cluster.complete(pod).await } else { Ok(()) }
            }
            Step::Complete => cluster.complete(pod).await,
        }
    }
}
