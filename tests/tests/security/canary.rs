//! Pull secrets with words in them that can be nothing else: they open the registry, follow a rotation, and turn up nowhere.

mod debug;
mod places;

use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use kruise_tests::product::{Job, Outcome, Product, kill_daemon, manager_process};
use kruise_tests::registry::{Access, Front};
use kruise_tests::wait::{Seen, not_yet, wait_for};
use kube::api::{Api, Patch, PatchParams};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::leader::all_attached;
use debug::Debugging;

/// Long enough that nothing else looks like it.
struct Words {
    user: String,
    first: String,
    second: String,
    wrong: String,
}

impl Words {
    fn new(run: &str) -> Self {
        let word = |what: &str| format!("canary-{what}-{run}-tweet-tweet");
        Self {
            user: word("user"),
            first: word("first-password"),
            second: word("second-password"),
            wrong: word("wrong-password"),
        }
    }

    /// Everything that must be nowhere: the words, and the forms in which they travel.
    fn needles(&self) -> Vec<String> {
        let mut needles = vec![
            self.user.clone(),
            self.first.clone(),
            self.second.clone(),
            self.wrong.clone(),
        ];
        for password in [&self.first, &self.second, &self.wrong] {
            // Without the end, which depends on what follows.
            let whole = STANDARD.encode(format!("{}:{password}", self.user));
            needles.push(whole[..40].to_owned());
            needles.push(STANDARD.encode(password)[..28].to_owned());
        }
        needles
    }
}

async fn write_secret(product: &Product, host: &str, user: &str, password: &str) -> Result<()> {
    let auth = STANDARD.encode(format!("{user}:{password}"));
    let logins = json!({"auths": {host: {"username": user, "password": password, "auth": auth}}});
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": "canary"},
        "stringData": {".dockerconfigjson": logins.to_string()},
    });
    let secrets: Api<Secret> = Api::namespaced(product.client.clone(), &product.namespace);
    let params = PatchParams::apply("kruise-tests").force();
    secrets.patch("canary", &params, &Patch::Apply(secret)).await?;
    Ok(())
}

/// A job on some nodes, with the secret or without.
async fn job(product: &Product, name: &str, image: &str, nodes: &[&str], secret: bool) -> Result<Job> {
    let mut spec: Value = json!({"parallelism": 1, "selector": {"names": nodes}});
    if secret {
        spec["pullSecrets"] = json!(["canary"]);
    }
    Job::create(product, name, image, spec).await
}

/// Ends in failure on one node, for want of a login.
async fn denied(job: &Job) -> Result<()> {
    let status = job.complete(Duration::from_secs(60)).await?;
    let reasons: Vec<&str> = status
        .failures
        .iter()
        .map(|failure| failure.reason.as_str())
        .collect();
    anyhow::ensure!(
        (status.succeeded, reasons.as_slice()) == (0, &["Denied"]),
        "{}: {:?}",
        job.name,
        status.failures
    );
    Ok(())
}

async fn succeeded(job: &Job, nodes: i32) -> Result<()> {
    let status = job.complete(Duration::from_secs(150)).await?;
    anyhow::ensure!(
        (status.succeeded, status.failed) == (nodes, 0),
        "{}: {:?}",
        job.name,
        status.failures
    );
    Ok(())
}

/// Waits until a node has fetched so many bytes of a blob and is not done.
async fn on_its_way(front: &Front, node: &str, bytes: u64) -> Result<()> {
    let blob = |access: &&Access| access.is_blob() && access.node.as_deref() == Some(node);
    wait_for("a pull to be on its way", Duration::from_secs(30), async || {
        let most = front
            .log()
            .iter()
            .filter(blob)
            .map(|access| access.bytes)
            .max()
            .unwrap_or(0);
        if most > bytes {
            Ok(Seen::Done(()))
        } else {
            not_yet(format!("{most} bytes"))
        }
    })
    .await
}

#[tokio::test]
async fn secrets_open_what_they_are_for_and_leave_no_trace() -> Result<()> {
    let product = Product::attach("canary").await?;
    let run = product.namespace.rsplit('-').next().unwrap_or_default();
    let words = Words::new(run);
    let debugging = Debugging::begin(&product)?;
    all_attached(&product, Duration::from_secs(60)).await?;
    let used = pulls(&product, &words).await;
    let found = match used {
        Ok(()) => places::search(&product, &words.needles()).await,
        Err(error) => Err(error),
    };
    let dumpable = places::processes_are_closed(&product).await;
    debugging.end()?;
    all_attached(&product, Duration::from_secs(90)).await?;
    let report = found?;
    println!("{report}");
    assert!(report.hits.is_empty(), "{report}");
    dumpable?;
    product.leave().await
}

async fn pulls(product: &Product, words: &Words) -> Result<()> {
    product.push_new_image(1, 6 << 20).await?;
    let front = Front::start(&product.cluster).await?;
    front.require_login(&words.user, &words.first);
    let (host, image) = (front.host(), product.new_image_at(&front.host()));
    denied(&job(product, "without", &image, &["node1"], false).await?).await?;
    write_secret(product, &host, &words.user, &words.wrong).await?;
    denied(&job(product, "wrong", &image, &["node1"], true).await?).await?;

    // Both ends of the stream die in the middle of a pull that uses the secret.
    write_secret(product, &host, &words.user, &words.first).await?;
    front.limit_each(1 << 20);
    let crash = job(product, "crash", &image, &["node1"], true).await?;
    on_its_way(&front, "node1", 1 << 20).await?;
    kill_daemon(product, "node1").await?;
    let leader = product.leader().await?;
    manager_process(product, &leader.pod)
        .await?
        .signal(Signal::KILL)?;
    succeeded(&crash, 1).await?;

    // Rotated while the first node pulls: the next node's try is by the new one.
    let rotation = job(product, "rotation", &image, &["node2", "node3"], true).await?;
    let first = wait_for("the first node's turn", Duration::from_secs(30), async || {
        let log = front.log();
        let busy = |node: &str| {
            log.iter().any(|access| {
                access.is_blob() && access.node.as_deref() == Some(node) && access.bytes > 2 << 20
            })
        };
        match ["node2", "node3"].into_iter().find(|node| busy(node)) {
            Some(node) => Ok(Seen::Done(node)),
            None => not_yet("nobody"),
        }
    })
    .await
    .context("rotation")?;
    front.require_login(&words.user, &words.second);
    write_secret(product, &host, &words.user, &words.second).await?;
    succeeded(&rotation, 2).await?;
    println!("rotated while {first} was pulling; the other node used the new password");

    let secrets: Api<Secret> = Api::namespaced(product.client.clone(), &product.namespace);
    secrets.delete("canary", &Default::default()).await?;
    // Always asks the registry, so that what the nodes have is of no use; and a secret that is gone starts nothing.
    let gone = json!({
        "parallelism": 1, "selector": {"names": ["node1"]}, "pullSecrets": ["canary"], "imagePullPolicy": "Always",
    });
    front.clear_log();
    let gone = Job::create(product, "gone", &image, gone).await?;
    let names_it = |status: &Outcome| status.conditions.iter().any(|one| one.type_ == "SecretMissing");
    gone.until("the job to miss its secret", Duration::from_secs(20), names_it)
        .await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let status = gone.status().await?;
    anyhow::ensure!(
        (status.succeeded, status.active) == (0, 0),
        "a deleted secret was used: {status:?}"
    );
    anyhow::ensure!(front.log().is_empty(), "a try was started: {:?}", front.log());
    gone.delete().await?;
    Ok(())
}
