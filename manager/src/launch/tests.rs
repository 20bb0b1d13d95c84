use std::sync::{Mutex, PoisonError};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use serde_json::{Value, json};

use super::*;

/// A cluster that writes down what is asked of it.
#[derive(Default)]
struct Fake {
    log: Mutex<Vec<String>>,
    stored: BTreeSet<String>,
    /// Writes that fail first.
    failing: Mutex<u32>,
}

impl Fake {
    fn note(&self, what: String) -> Result<(), ApiFailure> {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        if *failing > 0 {
            *failing -= 1;
            return Err(ApiFailure::Unsure {
                detail: "away".to_owned(),
                retry_after: None,
            });
        }
        self.log.lock().unwrap_or_else(PoisonError::into_inner).push(what);
        Ok(())
    }

    fn log(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Cluster for Fake {
    fn pending(&self) -> BoxStream<'static, Told> {
        futures::stream::pending().boxed()
    }

    fn keys(&self, _pod: &Pod) -> BoxFuture<'static, Result<BTreeSet<String>, ApiFailure>> {
        let told = self.note("read".to_owned()).map(|()| self.stored.clone());
        std::future::ready(told).boxed()
    }

    fn add(&self, _pod: &Pod, key: &str, first: bool) -> BoxFuture<'static, Result<(), ApiFailure>> {
        let what = if first { "create" } else { "add" };
        std::future::ready(self.note(format!("{what} {key}"))).boxed()
    }

    fn complete(&self, _pod: &Pod) -> BoxFuture<'static, Result<(), ApiFailure>> {
        std::future::ready(self.note("complete".to_owned())).boxed()
    }
}

/// Three containers, one after the other, of which these are ready.
fn pod(ready: &[bool]) -> Pod {
    let container = |index: usize| {
        json!({"name": format!("c{index}"), "env": [{"name": "KRUISE_CONTAINER_BARRIER", "valueFrom": {
            "configMapKeyRef": {"name": "p-barrier", "key": format!("p_{}", -i64::try_from(index).expect("few"))}}}]})
    };
    let statuses: Vec<Value> = ready
        .iter()
        .enumerate()
        .map(|(index, ready)| json!({"name": format!("c{index}"), "ready": ready, "image": "", "imageID": "", "restartCount": 0}))
        .collect();
    let pod = json!({
        "metadata": {"name": "p", "namespace": "n", "uid": "u"},
        "spec": {"containers": [container(0), container(1), container(2)]},
        "status": {"phase": "Pending", "containerStatuses": statuses},
    });
    serde_json::from_value(pod).expect("a pod")
}

#[tokio::test]
async fn keys_come_one_by_one_and_are_read_once() {
    let (fake, mut launches) = (Fake::default(), Launches::default());
    for (ready, wanted) in [
        (&[][..], &["read", "create p_0"][..]),
        (&[false, false, false], &[]),
        (&[true, false, false], &["add p_-1"]),
        (&[true, false, false], &[]),
        (&[true, true, false], &["add p_-2", "complete"]),
    ] {
        launches.go_on(&fake, pod(ready)).await;
        assert_eq!(fake.log(), wanted, "{ready:?}");
    }
}

#[tokio::test]
async fn a_new_leader_goes_on_from_what_is_stored() {
    let fake = Fake {
        stored: ["p_0".to_owned()].into(),
        ..Fake::default()
    };
    let mut launches = Launches::default();
    launches.go_on(&fake, pod(&[true])).await;
    assert_eq!(fake.log(), ["read", "add p_-1"]);
}

#[tokio::test]
async fn what_failed_is_tried_again_from_what_is_stored() {
    let (fake, mut launches) = (Fake::default(), Launches::default());
    *fake.failing.lock().expect("not poisoned") = 1;
    launches.go_on(&fake, pod(&[])).await;
    assert_eq!(launches.failed.len(), 1);
    let again = std::mem::take(&mut launches.failed);
    for pod in again.into_values() {
        launches.go_on(&fake, pod).await;
    }
    assert_eq!(fake.log(), ["read", "create p_0"]);
    assert!(launches.failed.is_empty());
    launches.forget("u");
    assert!(launches.keys.is_empty());
}

#[tokio::test]
async fn other_pods_cost_nothing() {
    let (fake, mut launches) = (Fake::default(), Launches::default());
    let mut plain = pod(&[]);
    for container in plain.spec.iter_mut().flat_map(|spec| &mut spec.containers) {
        container.env = None;
    }
    launches.go_on(&fake, plain).await;
    assert_eq!(fake.log(), Vec::<String>::new());
    assert!(launches.keys.is_empty());
}
