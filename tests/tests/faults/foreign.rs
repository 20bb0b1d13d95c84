//! Pods of others: made one after the other by a client that knows nothing of the product, and timed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kruise_tests::cluster::REGISTRY;
use kruise_tests::product::Product;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::json;
use tokio::task::JoinHandle;

/// Between two pods.
const PACE: Duration = Duration::from_millis(200);
/// What the webhook for pods may take, and what a request may take without it on a busy machine.
const WITH_WEBHOOK: Duration = Duration::from_secs(3);
const WITHOUT: Duration = Duration::from_secs(2);
/// Half of the pods that no webhook is about must be made this fast: a webhook that hangs would show in all of them.
const TYPICAL: Duration = Duration::from_millis(300);

/// Whether the product has any business with a pod, as its webhook is told by a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Plain,
    /// As pods of CloneSets are, but nobody's.
    Labelled,
}

/// Makes pods until it is told to stop.
#[derive(Debug)]
pub(crate) struct Foreign {
    stop: Arc<AtomicBool>,
    plain: JoinHandle<Result<Vec<Duration>>>,
    labelled: JoinHandle<Result<Vec<Duration>>>,
}

impl Foreign {
    pub(crate) fn start(product: &Product) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let run = |sort| tokio::spawn(make(product.clone(), sort, stop.clone()));
        Self {
            plain: run(Sort::Plain),
            labelled: run(Sort::Labelled),
            stop,
        }
    }

    /// Every pod was made, in the time that is allowed. Answers what is to be told of it.
    pub(crate) async fn were_all_made(self) -> Result<String> {
        self.stop.store(true, Ordering::Relaxed);
        let mut plain = self.plain.await.context("the maker panicked")??;
        let mut labelled = self.labelled.await.context("the maker panicked")??;
        plain.sort();
        labelled.sort();
        let middle = |times: &[Duration]| times.get(times.len() / 2).copied().unwrap_or_default();
        let most = |times: &[Duration]| times.last().copied().unwrap_or_default();
        let told = format!(
            "{} pods in {:.0?} at most (half of them in {:.0?}); {} with the webhook's label in {:.0?} at most (half in {:.0?})",
            plain.len(),
            most(&plain),
            middle(&plain),
            labelled.len(),
            most(&labelled),
            middle(&labelled),
        );
        anyhow::ensure!(plain.len() > 3 && labelled.len() > 3, "{told}");
        // A pod that no webhook is about shows what the machine takes at worst, a disk that stalls for example.
        anyhow::ensure!(middle(&plain) <= TYPICAL, "{told}");
        anyhow::ensure!(
            most(&labelled) <= WITH_WEBHOOK + WITHOUT.max(most(&plain)),
            "{told}"
        );
        Ok(told)
    }
}

async fn make(product: Product, sort: Sort, stop: Arc<AtomicBool>) -> Result<Vec<Duration>> {
    let pods: Api<Pod> = Api::namespaced(product.client.clone(), &product.namespace);
    let labels = match sort {
        Sort::Plain => json!({"app": "foreign"}),
        Sort::Labelled => json!({"app": "foreign", "apps.kruise.io/cloneset-instance-id": "nobodys"}),
    };
    // A gate keeps it from nodes: whether it was made is the question, not whether it runs.
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"generateName": "foreign-", "labels": labels},
        "spec": {
            "schedulingGates": [{"name": "tests.kruise.io/never"}],
            "containers": [{"name": "main", "image": format!("{REGISTRY}/pause:3.10")}],
        },
    }))?;
    let mut pace = tokio::time::interval(PACE);
    let mut times = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        pace.tick().await;
        let began = Instant::now();
        let made = pods.create(&PostParams::default(), &pod).await;
        let took = began.elapsed();
        let made =
            made.with_context(|| format!("{sort:?} pod {} was not made after {took:.1?}", times.len()))?;
        times.push(took);
        let name = made.metadata.name.context("a pod has a name")?;
        pods.delete(&name, &DeleteParams::default().grace_period(0))
            .await
            .with_context(|| format!("{sort:?} pod {name} was not deleted"))?;
    }
    Ok(times)
}
