//! Who may attach as an agent, and who may look inside.

use std::time::Duration;

use anyhow::{Context, Result};
use kruise_proto::dispatch::dispatch_service_client::DispatchServiceClient;
use kruise_proto::dispatch::{AttachRequest, Hello, attach_request};
use kruise_tests::product::{Forward, NAMESPACE, Product};
use kruise_tests::wait::{Seen, not_yet, wait_for};
use tonic::{Code, Request, Status};

/// Tries to attach as the agent of `node`, and answers how that ends.
async fn attach(product: &Product, pod: &str, token: Option<&str>, node: &str) -> Result<Status> {
    // One connection each: a stranger's is closed, and with it kubectl's forwarding.
    let forward = Forward::to(product, pod)?;
    let channel = forward.channel(&product.trust_bundle().await?).await?;
    let hello = Hello {
        node_name: node.to_owned(),
        agent_version: "test".into(),
        ..Hello::default()
    };
    let hello = AttachRequest {
        message: Some(attach_request::Message::Hello(hello)),
    };
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    sender.send(hello).await?;
    let mut request = Request::new(tokio_stream_of(receiver));
    if let Some(token) = token {
        request
            .metadata_mut()
            .insert("authorization", format!("Bearer {token}").parse()?);
    }
    let mut client = DispatchServiceClient::new(channel);
    let answer = tokio::time::timeout(Duration::from_secs(20), client.attach(request)).await?;
    let mut stream = match answer {
        Err(status) => return Ok(status),
        Ok(response) => response.into_inner(),
    };
    match tokio::time::timeout(Duration::from_secs(20), stream.message()).await? {
        Err(status) => Ok(status),
        Ok(message) => anyhow::bail!("attached: {message:?}"),
    }
}

fn tokio_stream_of<T>(mut receiver: tokio::sync::mpsc::Receiver<T>) -> impl futures::Stream<Item = T> {
    futures::stream::poll_fn(move |context| receiver.poll_recv(context))
}

/// A token of an agent's account, bound to the agent's pod of a node, as the kubelet asks for it.
async fn agent_token(product: &Product, node: &str, audience: &str) -> Result<String> {
    let pod = product.daemon_pod(node).await?.metadata;
    let (name, uid) = (pod.name.context("name")?, pod.uid.context("uid")?);
    let arguments = [
        "create",
        "token",
        "kruise-daemon",
        "-n",
        NAMESPACE,
        "--audience",
        audience,
        "--bound-object-kind",
        "Pod",
        "--bound-object-name",
        &name,
        "--bound-object-uid",
        &uid,
    ];
    Ok(product.cluster.kubectl(&arguments)?.trim().to_owned())
}

fn unbound_token(product: &Product, account: &str, audience: &str) -> Result<String> {
    let arguments = [
        "create",
        "token",
        account,
        "-n",
        NAMESPACE,
        "--audience",
        audience,
    ];
    Ok(product.cluster.kubectl(&arguments)?.trim().to_owned())
}

/// The same claims under a signature that nobody made.
fn with_another_signature(token: &str) -> String {
    let (claims, signature) = token.rsplit_once('.').unwrap_or((token, ""));
    let forged: String = signature
        .chars()
        .map(|c| if c == 'A' { 'B' } else { 'A' })
        .collect();
    format!("{claims}.{forged}")
}

#[tokio::test]
async fn strangers_are_refused_and_logged() -> Result<()> {
    let product = Product::attach("identity").await?;
    let leader = product.leader().await?;
    let other_audience = agent_token(&product, "node1", "kruise-inspect").await?;
    let other_account = unbound_token(&product, "kruise-viewer", "kruise-manager")?;
    let unbound = unbound_token(&product, "kruise-daemon", "kruise-manager")?;
    let of_node1 = agent_token(&product, "node1", "kruise-manager").await?;
    let forged = with_another_signature(&of_node1);
    let cases: [(&str, Option<&str>, &str, Code, &str); 6] = [
        ("no token", None, "node1", Code::Unauthenticated, "TOKEN_MISSING"),
        (
            "garbage",
            Some("garbage"),
            "node1",
            Code::Unauthenticated,
            "TOKEN_INVALID",
        ),
        (
            "forged signature",
            Some(&forged),
            "node1",
            Code::Unauthenticated,
            "TOKEN_INVALID",
        ),
        (
            "other audience",
            Some(&other_audience),
            "node1",
            Code::Unauthenticated,
            "WRONG_AUDIENCE",
        ),
        (
            "other account",
            Some(&other_account),
            "node1",
            Code::PermissionDenied,
            "NOT_AN_AGENT",
        ),
        (
            "another node's token",
            Some(&of_node1),
            "node2",
            Code::PermissionDenied,
            "NODE_MISMATCH",
        ),
    ];
    for (what, token, node, code, reason) in cases {
        let status = attach(&product, &leader.pod, token, node).await?;
        assert_eq!(status.code(), code, "{what}: {status:?}");
        let log = format!("a refusal with {reason} in the leader's log");
        wait_for(&log, Duration::from_secs(10), async || {
            let text = product.logs(&leader.pod)?;
            if text.contains(reason) {
                Ok(Seen::Done(()))
            } else {
                not_yet("not there")
            }
        })
        .await?;
    }
    let status = attach(&product, &leader.pod, Some(&unbound), "node1").await?;
    assert_eq!(
        status.code(),
        Code::PermissionDenied,
        "a token that is bound to no pod: {status:?}"
    );
    let log = product.logs(&leader.pod)?;
    for secret in [&of_node1, &other_audience, &other_account, &unbound] {
        assert!(!log.contains(secret.as_str()), "a token is in the log");
    }
    product.leave().await
}
