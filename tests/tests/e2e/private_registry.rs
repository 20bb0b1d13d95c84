//! A registry that wants a log-in: what opens it, what a refusal says, and that new words are used as soon as there are any.

use std::time::Duration;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use kruise_tests::node_login::{self, DOCKER_HOST, PLUGIN_HOST};
use kruise_tests::product::{Job, Outcome, Product};
use kruise_tests::registry::Front;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

const A_MINUTE: Duration = Duration::from_secs(60);
const USER: &str = "robot";
const RIGHT: &str = "correct-horse-battery-staple";
const WRONG: &str = "tr0ub4dor-and-three-more";

/// Pull secret `registry`, of the type that `kubectl create secret docker-registry` makes.
async fn write_secret(product: &Product, host: &str, password: &str) -> Result<()> {
    let auth = STANDARD.encode(format!("{USER}:{password}"));
    let logins = json!({"auths": {host: {"username": USER, "password": password, "auth": auth}}});
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson", "metadata": {"name": "registry"},
        "stringData": {".dockerconfigjson": logins.to_string()},
    });
    let secrets: Api<Secret> = Api::namespaced(product.client.clone(), &product.namespace);
    let params = PatchParams::apply("kruise-tests").force();
    secrets.patch("registry", &params, &Patch::Apply(secret)).await?;
    Ok(())
}

/// A job for some nodes that asks the registry whatever the nodes have.
async fn outcome(product: &Product, name: &str, image: &str, nodes: &[&str], more: Value) -> Result<Outcome> {
    let mut spec = json!({
        "parallelism": 1, "selector": {"names": nodes}, "imagePullPolicy": "Always", "pullPolicy": {"backoffLimit": 0},
    });
    if let (Some(spec), Value::Object(more)) = (spec.as_object_mut(), more) {
        spec.extend(more);
    }
    let job = Job::create(product, name, image, spec).await?;
    job.complete(A_MINUTE).await
}

fn with_secret() -> Value {
    json!({"pullSecrets": ["registry"]})
}

fn succeeded(status: &Outcome, nodes: i32) {
    assert_eq!(
        (status.succeeded, status.failed),
        (nodes, 0),
        "{:?}",
        status.failures
    );
}

/// Nobody was let in, the reason says that it was for want of a log-in, and no word of the log-in is told: neither in the status nor in events.
fn refused(product: &Product, name: &str, status: &Outcome) -> Result<()> {
    assert_eq!((status.succeeded, status.failed), (0, 1), "{:?}", status.failures);
    let failure = &status.failures[0];
    assert_eq!(failure.reason, "Denied", "{failure:?}");
    let message = failure.message.to_lowercase();
    assert!(
        ["authorization failed", "401", "unauthorized", "authentication"]
            .iter()
            .any(|word| message.contains(word)),
        "the message does not name authentication: {failure:?}"
    );
    let namespace = product.namespace.as_str();
    let job = format!("imagepulljob/{name}");
    let shown = product
        .cluster
        .kubectl(&["get", &job, "-n", namespace, "-o", "yaml"])?;
    let events = product
        .cluster
        .kubectl(&["get", "events", "-n", namespace, "-o", "yaml"])?;
    for password in [RIGHT, WRONG] {
        let encoded = STANDARD.encode(format!("{USER}:{password}"));
        for needle in [password, &encoded[..20]] {
            assert!(!shown.contains(needle), "{needle} is in the job: {shown}");
            assert!(!events.contains(needle), "{needle} is in an event: {events}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_right_secret_pulls_a_wrong_one_says_denied_and_a_new_one_is_used_at_the_next_try() -> Result<()>
{
    let product = Product::attach("private").await?;
    product.push_new_image(2, 64 << 10).await?;
    let front = Front::start(&product.cluster).await?;
    front.require_login(USER, RIGHT);
    let (host, image) = (front.host(), product.new_image_at(&front.host()));

    let status = outcome(&product, "nobody", &image, &["node1"], json!({})).await?;
    refused(&product, "nobody", &status)?;
    write_secret(&product, &host, WRONG).await?;
    let status = outcome(&product, "wrong", &image, &["node1"], with_secret()).await?;
    refused(&product, "wrong", &status)?;
    write_secret(&product, &host, RIGHT).await?;
    let status = outcome(&product, "right", &image, &["node1", "node2"], with_secret()).await?;
    succeeded(&status, 2);

    // The registry's password changes, then the secret: what was right is refused, what is new opens, with nothing restarted.
    front.require_login(USER, WRONG);
    let status = outcome(&product, "outdated", &image, &["node3"], with_secret()).await?;
    refused(&product, "outdated", &status)?;
    write_secret(&product, &host, WRONG).await?;
    let status = outcome(&product, "rotated", &image, &["node3"], with_secret()).await?;
    succeeded(&status, 1);
    product.leave().await
}

/// The secret is put right while the first node of a job is refused: the second node's try is by the new one.
#[tokio::test]
async fn a_secret_that_is_put_right_counts_for_the_nodes_that_are_left() -> Result<()> {
    let product = Product::attach("private").await?;
    product.push_new_image(1, 64 << 10).await?;
    let front = Front::start(&product.cluster).await?;
    front.require_login(USER, RIGHT);
    let (host, image) = (front.host(), product.new_image_at(&front.host()));
    write_secret(&product, &host, WRONG).await?;
    let spec = json!({
        "parallelism": 0, "selector": {"names": ["node1", "node2"]}, "pullSecrets": ["registry"], "pullPolicy": {"backoffLimit": 0},
    });
    let job = Job::create(&product, "paused", &image, spec).await?;
    let set_parallelism = async |count: i32| -> Result<()> {
        let patch = json!({"spec": {"parallelism": count}}).to_string();
        let words = [
            "patch",
            "imagepulljob/paused",
            "-n",
            &product.namespace,
            "--type=merge",
            "-p",
            &patch,
        ];
        product.cluster.kubectl(&words).map(drop)
    };
    // One slot, and a registry that takes its time to refuse, so that the second node's turn comes after the pause.
    let slow = front
        .fault(
            kruise_tests::registry::Match::manifests(),
            kruise_tests::registry::Fault::Delay(Duration::from_secs(3)),
        )
        .times(1);
    set_parallelism(1).await?;
    job.until("the first node's turn", A_MINUTE, |status| status.active == 1)
        .await?;
    set_parallelism(0).await?;
    job.until("the first node to be refused", A_MINUTE, |status| {
        status.failed == 1
    })
    .await?;
    assert_eq!(slow.applied(), 1);
    write_secret(&product, &host, RIGHT).await?;
    set_parallelism(1).await?;
    let status = job.complete(A_MINUTE).await?;
    assert_eq!((status.succeeded, status.failed), (1, 1), "{:?}", status.failures);
    product.leave().await
}

/// Answers of a plug-in are kept for as long as they say, but not once a registry has refused them.
#[tokio::test]
async fn the_nodes_credential_provider_plug_in_opens_what_pull_secrets_do_not() -> Result<()> {
    let product = Product::attach("private").await?;
    product.push_new_image(1, 64 << 10).await?;
    let front = Front::start(&product.cluster).await?;
    // Another one in each run: the agent may still keep what it was told in the last.
    let right = format!("{RIGHT}-{}", product.namespace);
    front.require_login(USER, &right);
    let cluster = &product.cluster;
    cluster.route_registry(PLUGIN_HOST, &format!("http://{}", front.host()))?;
    let image = product.new_image_at(PLUGIN_HOST);

    let status = outcome(&product, "silent", &image, &["node1"], json!({})).await?;
    refused(&product, "silent", &status)?;
    node_login::plugin_says(cluster, "node1", USER, WRONG)?;
    let status = outcome(&product, "wrong", &image, &["node1"], json!({})).await?;
    refused(&product, "wrong", &status)?;
    node_login::plugin_says(cluster, "node1", USER, &right)?;
    let status = outcome(&product, "right", &image, &["node1"], json!({})).await?;
    succeeded(&status, 1);
    // What it said is kept: it is not asked again while the registry takes it.
    node_login::plugin_says(cluster, "node1", USER, WRONG)?;
    let status = outcome(&product, "kept", &image, &["node1"], json!({})).await?;
    succeeded(&status, 1);

    node_login::forget(cluster, "node1")?;
    cluster.unroute_registry(PLUGIN_HOST);
    product.leave().await
}

#[tokio::test]
async fn the_nodes_docker_configuration_comes_last_and_may_change() -> Result<()> {
    let product = Product::attach("private").await?;
    product.push_new_image(1, 64 << 10).await?;
    let front = Front::start(&product.cluster).await?;
    front.require_login(USER, RIGHT);
    let cluster = &product.cluster;
    cluster.route_registry(DOCKER_HOST, &format!("http://{}", front.host()))?;
    let image = product.new_image_at(DOCKER_HOST);

    node_login::docker_says(cluster, "node2", USER, WRONG)?;
    let status = outcome(&product, "wrong", &image, &["node2"], json!({})).await?;
    refused(&product, "wrong", &status)?;
    // A pull secret that fits is tried before what the node has.
    write_secret(&product, DOCKER_HOST, RIGHT).await?;
    let status = outcome(&product, "secret", &image, &["node2"], with_secret()).await?;
    succeeded(&status, 1);
    node_login::docker_says(cluster, "node2", USER, RIGHT)?;
    let status = outcome(&product, "right", &image, &["node2"], json!({})).await?;
    succeeded(&status, 1);

    node_login::forget(cluster, "node2")?;
    cluster.unroute_registry(DOCKER_HOST);
    product.leave().await
}
