//! Agents that were let in and are to be out: within a minute by promise, at once in fact.

use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kruise_proto::dispatch::dispatch_service_client::DispatchServiceClient;
use kruise_proto::dispatch::{AttachRequest, Heartbeat, Hello, attach_request};
use kruise_tests::cluster::netns_file;
use kruise_tests::net::spawn_in_namespace;
use kruise_tests::product::{NAMESPACE, Product};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::json;
use tonic::Request;

use crate::call::{Answer, channel};
use crate::forge::{Key, Parts};
use crate::ghost::{ACCOUNT, AUDIENCE, Ghost};
use crate::leader::{Target, all_attached, inside, refusals};

/// What was promised.
const PROMISED: Duration = Duration::from_secs(60);

/// An agent that attached, and the thread that waits for its end.
pub(crate) struct Attached {
    thread: JoinHandle<Result<(Answer, Instant)>>,
}

impl Attached {
    /// Attaches and answers once the agent is let in.
    pub(crate) fn attach(product: &Product, target: &Target, node: &str, token: &str) -> Result<Self> {
        let (tell, told) = mpsc::channel();
        let (target, node, token) = (target.clone(), node.to_owned(), token.to_owned());
        let namespace = netns_file(&product.cluster.layout().control_plane());
        let thread = spawn_in_namespace(&namespace, move || {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?
                .block_on(stay(&target, node, &token, tell))
        });
        match told.recv_timeout(Duration::from_secs(20)) {
            Ok(()) => Ok(Self { thread }),
            Err(_) => anyhow::bail!("not let in: {:?}", thread.join().map_err(|_| "panicked")),
        }
    }

    /// How the stream ended, and how long after `since`.
    pub(crate) fn end(self, since: Instant) -> Result<(Answer, Duration)> {
        let ended = self
            .thread
            .join()
            .map_err(|_| anyhow::anyhow!("the agent's thread panicked"))?;
        let (answer, at) = ended?;
        Ok((answer, at.saturating_duration_since(since)))
    }
}

/// Stays attached with a heartbeat every second, and answers how it ended and when.
async fn stay(
    target: &Target,
    node: String,
    token: &str,
    tell: mpsc::Sender<()>,
) -> Result<(Answer, Instant)> {
    let hello = attach_request::Message::Hello(Hello {
        node_name: node,
        agent_version: "test".into(),
        ..Hello::default()
    });
    let beats = futures::stream::unfold(0_u64, |stamp| async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let beat = Heartbeat {
            stamp: stamp + 1,
            ..Heartbeat::default()
        };
        Some((attach_request::Message::Heartbeat(beat), stamp + 1))
    });
    let messages = futures::stream::iter([hello])
        .chain(beats)
        .map(|message| AttachRequest {
            message: Some(message),
        });
    let mut request = Request::new(messages);
    request
        .metadata_mut()
        .insert("authorization", format!("Bearer {token}").parse()?);
    let mut client = DispatchServiceClient::new(channel(target).await?);
    let mut answers = client.attach(request).await?.into_inner();
    answers.message().await?.context("no Welcome")?;
    tell.send(()).ok();
    loop {
        match answers.message().await {
            Ok(Some(_)) => {}
            Ok(None) => anyhow::bail!("the stream ended without a status"),
            Err(status) => return Ok((Answer::of(&status), Instant::now())),
        }
    }
}

/// Lets a ghost's agent in, does something about it, and tells how long it took until the agent was out.
async fn out_after(
    product: &Product,
    target: &Target,
    name: &str,
    deed: impl AsyncFnOnce(&Ghost) -> Result<()>,
    reason: &str,
) -> Result<Duration> {
    let ghost = Ghost::rise(product, name).await?;
    let token = ghost.token(AUDIENCE).await?;
    let agent = Attached::attach(product, target, &ghost.node, &token)?;
    let since = Instant::now();
    deed(&ghost).await?;
    let (answer, took) = agent.end(since)?;
    assert_eq!(answer.reason, reason, "{name}: {answer:?}");
    println!("{name}: out with {reason} after {took:.1?}");
    Ok(took)
}

#[tokio::test]
async fn whose_pod_or_node_is_gone_is_out() -> Result<()> {
    let product = Product::attach("cut-off").await?;
    all_attached(&product, PROMISED).await?;
    let target = Target::leader(&product).await?;
    let before = product.logs(&target.pod)?;
    let pods: Api<Pod> = Api::namespaced(product.client.clone(), NAMESPACE);
    let all = [
        out_after(
            &product,
            &target,
            "pod-deleted",
            async |ghost| ghost.delete_pod().await,
            "TOKEN_INVALID",
        )
        .await?,
        out_after(
            &product,
            &target,
            "pod-told-to-end",
            async |ghost| {
                // Its kubelet never says that it has ended.
                let grace = DeleteParams::default().grace_period(3);
                pods.delete(&ghost.pod.name, &grace).await?;
                Ok(())
            },
            "TOKEN_INVALID",
        )
        .await?,
        out_after(
            &product,
            &target,
            "pod-evicted",
            async |ghost| ghost.fail_pod().await,
            "TOKEN_INVALID",
        )
        .await?,
        out_after(
            &product,
            &target,
            "node-deleted",
            async |ghost| ghost.delete_node().await,
            "NODE_GONE",
        )
        .await?,
        out_after(
            &product,
            &target,
            "node-made-again",
            async |ghost| ghost.make_node_again().await,
            "NODE_GONE",
        )
        .await?,
    ];
    assert!(all.iter().all(|took| *took <= PROMISED), "{all:?}");
    let log = product.logs(&target.pod)?;
    for (reason, count) in [("TOKEN_INVALID", 3), ("NODE_GONE", 2)] {
        assert!(
            refusals(&log, reason) >= refusals(&before, reason) + count,
            "{reason} is not in the log"
        );
    }
    product.leave().await
}

#[tokio::test]
async fn whose_token_ends_without_a_new_one_is_out() -> Result<()> {
    const LIFE: i64 = 6;
    let product = Product::attach("expiry").await?;
    let target = Target::leader(&product).await?;
    let ghost = Ghost::rise(&product, "expiring").await?;
    let real = Parts::of(&ghost.token(AUDIENCE).await?)?;
    let end = Timestamp::now().as_second() + LIFE;
    let short = Key::of(&product.cluster)?.sign(&real.header, &real.with("/exp", json!(end))?)?;
    let agent = Attached::attach(&product, &target, &ghost.node, &short)?;
    let (answer, took) = agent.end(Instant::now())?;
    assert_eq!(answer.reason, "TOKEN_EXPIRED", "{answer:?}");
    println!("out {took:.1?} after it was let in with a token of {LIFE} s");
    assert!(took <= Duration::from_secs(10), "{took:?}");
    drop(ghost);
    product.leave().await
}

/// Puts the agents' account back, whatever happened.
struct Banned<'a> {
    product: &'a Product,
    account: ServiceAccount,
}

impl Banned<'_> {
    async fn forgive(&self) -> Result<()> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.product.client.clone(), NAMESPACE);
        accounts.create(&PostParams::default(), &self.account).await?;
        // Tokens of the old account are worth nothing any more, and kubelets would keep them for most of an hour.
        let pods: Api<Pod> = Api::namespaced(self.product.client.clone(), NAMESPACE);
        let agents = ListParams::default().labels("control-plane=daemon");
        pods.delete_collection(&DeleteParams::default().grace_period(1), &agents)
            .await?;
        all_attached(self.product, Duration::from_secs(90)).await
    }
}

#[tokio::test]
async fn whose_account_is_deleted_is_out_and_stays_out() -> Result<()> {
    let product = Product::attach("ban").await?;
    all_attached(&product, PROMISED).await?;
    let target = Target::leader(&product).await?;
    let ghost = Ghost::rise(&product, "banned").await?;
    let token = ghost.token(AUDIENCE).await?;
    let agent = Attached::attach(&product, &target, &ghost.node, &token)?;
    let accounts: Api<ServiceAccount> = Api::namespaced(product.client.clone(), NAMESPACE);
    let mut account = accounts.get(ACCOUNT).await?;
    account.metadata.uid = None;
    account.metadata.resource_version = None;
    let banned = Banned {
        product: &product,
        account,
    };
    let since = Instant::now();
    accounts.delete(ACCOUNT, &DeleteParams::default()).await?;
    let ended = agent.end(since);
    let header = vec![format!("Bearer {token}").into_bytes()];
    let method = crate::call::Method::Attach(ghost.node.clone());
    let again = inside(&product, async || {
        crate::call::call(&target, &method, &header).await
    });
    drop(ghost);
    banned.forgive().await?;
    let (answer, took) = ended?;
    assert_eq!(answer.reason, "TOKEN_INVALID", "{answer:?}");
    println!("banned: out after {took:.1?}");
    assert!(took <= PROMISED, "{took:?}");
    assert_eq!(again?.reason, "TOKEN_INVALID");
    product.leave().await
}
