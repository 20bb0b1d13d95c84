//! Containers restarted in place by a request.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kruise_api::container_recreate_request::{ContainerRecreateRequest, ContainerRecreateRequestStatus};
use kruise_tests::audit::{Counters, Mark, Request};
use kruise_tests::cluster::REGISTRY;
use kruise_tests::product::Product;
use kruise_tests::wait::{Seen, not_yet, wait_for};
use kube::api::{Api, PostParams};
use serde_json::json;

const A_MINUTE: Duration = Duration::from_secs(60);

fn pods(product: &Product) -> Api<Pod> {
    Api::namespaced(product.client.clone(), &product.namespace)
}

fn requests(product: &Product) -> Api<ContainerRecreateRequest> {
    Api::namespaced(product.client.clone(), &product.namespace)
}

/// A pod of two containers that do nothing and end when they are told to.
async fn two_containers(product: &Product, name: &str) -> Result<()> {
    let image = format!("{REGISTRY}/pause:3.10");
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [
            {"name": "main", "image": image}, {"name": "side", "image": image},
        ]},
    });
    pods(product)
        .create(&PostParams::default(), &serde_json::from_value(pod)?)
        .await?;
    wait_for("the pod to run", A_MINUTE, async || {
        let runs = restarts(product, name).await?;
        if runs.len() == 2 && runs.iter().all(|(_, _, ready)| *ready) {
            return Ok(Seen::Done(()));
        }
        not_yet(format!("{runs:?}"))
    })
    .await
}

/// Name, restarts and readiness of each container.
async fn restarts(product: &Product, name: &str) -> Result<Vec<(String, i32, bool)>> {
    let status = pods(product).get(name).await?.status.unwrap_or_default();
    let containers = status.container_statuses.unwrap_or_default();
    let one = |status: k8s_openapi::api::core::v1::ContainerStatus| {
        (status.name, status.restart_count, status.ready)
    };
    Ok(containers.into_iter().map(one).collect())
}

async fn ended(product: &Product, name: &str) -> Result<ContainerRecreateRequest> {
    wait_for("the request to end", A_MINUTE, async || {
        let request = requests(product).get(name).await?;
        let over = |status: &ContainerRecreateRequestStatus| status.completion_time.is_some();
        if request.status.as_ref().is_some_and(over) {
            return Ok(Seen::Done(request));
        }
        not_yet(format!("{:?}", request.status))
    })
    .await
}

/// The manager's writes on a request, for people.
fn writes_of(product: &Product, mark: Mark, name: &str) -> Result<Vec<String>> {
    let requests = Counters::since(&product.cluster, mark)?.requests.into_iter();
    let writes = requests.filter(|request| {
        request.agent.starts_with("kruise-manager")
            && request.resource.contains("containerrecreaterequests")
            && request.namespace == product.namespace
            && request.name == name
            && !request.is_read()
    });
    let line = |write: Request| {
        let Request {
            received,
            verb,
            resource,
            code,
            source,
            ..
        } = write;
        format!("{received} {verb} {resource} {code} from {source}")
    };
    Ok(writes.map(line).collect())
}

#[tokio::test]
async fn a_named_container_is_restarted_once_and_no_other() -> Result<()> {
    let product = Product::attach("restart").await?;
    two_containers(&product, "app").await?;
    let mark = Mark::now(&product.cluster)?;
    let request = json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "ContainerRecreateRequest", "metadata": {"name": "once"},
        "spec": {"podName": "app", "containers": [{"name": "main"}], "ttlSecondsAfterFinished": 600},
    });
    requests(&product)
        .create(&PostParams::default(), &serde_json::from_value(request)?)
        .await?;
    let request = ended(&product, "once").await?;
    let status = request.status.context("it has ended")?;
    assert_eq!(serde_json::to_value(status.phase)?, "Completed", "{status:?}");
    let expected = [("main".to_owned(), 1, true), ("side".to_owned(), 0, true)];
    assert_eq!(restarts(&product, "app").await?, expected);
    let took = status
        .completion_time
        .context("it has ended")?
        .0
        .duration_since(request.metadata.creation_timestamp.context("it was made")?.0);
    let writes = writes_of(&product, mark, "once")?;
    // What runs for longer tells every 10 s how far it is.
    let budget = 3 + usize::try_from(took.as_secs() / 10)?;
    assert!(writes.len() <= budget, "{took:#}:\n{}", writes.join("\n"));
    product.leave().await
}

#[tokio::test]
async fn a_request_for_what_does_not_exist_ends_and_says_so() -> Result<()> {
    let product = Product::attach("restart").await?;
    two_containers(&product, "app").await?;
    let request = json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "ContainerRecreateRequest", "metadata": {"name": "nowhere"},
        "spec": {"podName": "app", "containers": [{"name": "nobody"}]},
    });
    let refused = requests(&product)
        .create(&PostParams::default(), &serde_json::from_value(request)?)
        .await;
    let error = refused.expect_err("there is no such container").to_string();
    assert!(error.contains("nobody"), "{error}");
    let untouched = restarts(&product, "app").await?;
    assert!(
        untouched.iter().all(|(_, restarts, _)| *restarts == 0),
        "{untouched:?}"
    );
    product.leave().await
}
