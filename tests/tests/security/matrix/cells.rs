//! The cells, each with a cause of its own.

use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Secret, ServiceAccount};
use kruise_tests::product::{NAMESPACE, Product, viewer_token};
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use tonic::Code;

use crate::call::Method;
use crate::forge::{Key, Parts};
use crate::ghost::{ACCOUNT, AUDIENCE, Bound, Ghost, bound_pod, make_pod, token};

/// One attempt.
pub(crate) struct Cell {
    pub(crate) what: &'static str,
    pub(crate) method: Method,
    /// Values of the header `authorization`.
    pub(crate) authorization: Vec<Vec<u8>>,
    pub(crate) code: Code,
    pub(crate) reason: &'static str,
    /// What must be in no log.
    pub(crate) secrets: Vec<String>,
}

/// Real tokens of all sorts, and what they are bound to.
pub(crate) struct Tokens {
    /// An agent that may attach.
    pub(crate) ghost: Ghost,
    pub(crate) ghost_token: String,
    /// The agent's pod of node1.
    pub(crate) of_node1: String,
    pub(crate) of_node1_for_api: String,
    pub(crate) viewer: String,
    pod_gone: String,
    pod_failed: String,
    node_gone: String,
    node_again: String,
    for_people: String,
    viewer_account: String,
    manager_account: String,
    same_name_elsewhere: String,
    unbound: String,
    bound_to_secret: String,
    bound_to_node: String,
    stranger: String,
    viewer_for_api: String,
    node2_uid: String,
    secret: Bound,
    /// Ghosts of which part is gone.
    others: Vec<Ghost>,
}

impl Tokens {
    pub(crate) async fn gather(product: &Product) -> Result<Self> {
        let agent = bound_pod(&product.daemon_pod("node1").await?)?;
        let own = |account, audience, bound| token(product, NAMESPACE, account, audience, bound);
        let ghost = Ghost::rise(product, "alive").await?;
        let ghost_token = ghost.token(AUDIENCE).await?;
        let mut others = Vec::new();
        for name in ["pod-gone", "pod-failed", "node-gone", "node-again"] {
            others.push(Ghost::rise(product, name).await?);
        }
        let mut of_others = Vec::new();
        for ghost in &others {
            of_others.push(ghost.token(AUDIENCE).await?);
        }
        others[0].delete_pod().await?;
        others[1].fail_pod().await?;
        others[2].delete_node().await?;
        others[3].make_node_again().await?;
        // For the manager's watches.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let [pod_gone, pod_failed, node_gone, node_again] =
            <[String; 4]>::try_from(of_others).map_err(|_| anyhow::anyhow!("four ghosts"))?;
        let nodes: Api<Node> = Api::all(product.client.clone());
        let node2_uid = nodes.get("node2").await?.metadata.uid.context("uid")?;
        let node1 = nodes.get("node1").await?.metadata.uid.context("uid")?;
        let node1 = Bound {
            kind: "Node",
            name: "node1".into(),
            uid: node1,
        };
        let secret = make_secret(product).await?;
        Ok(Self {
            ghost_token,
            of_node1: own(ACCOUNT, AUDIENCE, Some(&agent)).await?,
            of_node1_for_api: own(ACCOUNT, "", Some(&agent)).await?,
            viewer: viewer_token(product)?,
            for_people: own(ACCOUNT, "kruise-inspect", Some(&agent)).await?,
            viewer_account: own("kruise-viewer", AUDIENCE, None).await?,
            manager_account: own("kruise-manager", AUDIENCE, None).await?,
            same_name_elsewhere: elsewhere(product).await?,
            unbound: own(ACCOUNT, AUDIENCE, None).await?,
            bound_to_secret: own(ACCOUNT, AUDIENCE, Some(&secret)).await?,
            bound_to_node: own(ACCOUNT, AUDIENCE, Some(&node1)).await?,
            stranger: token(product, &product.namespace, "default", "kruise-inspect", None).await?,
            viewer_for_api: own("kruise-viewer", "", None).await?,
            pod_gone,
            pod_failed,
            node_gone,
            node_again,
            node2_uid,
            secret,
            ghost,
            others,
        })
    }

    pub(crate) async fn leave(self, product: &Product) -> Result<()> {
        let secrets: Api<Secret> = Api::namespaced(product.client.clone(), NAMESPACE);
        secrets
            .delete(&self.secret.name, &DeleteParams::default())
            .await?;
        drop(self.others);
        Ok(())
    }
}

async fn make_secret(product: &Product) -> Result<Bound> {
    let secrets: Api<Secret> = Api::namespaced(product.client.clone(), NAMESPACE);
    let secret = serde_json::from_value(json!({"metadata": {"generateName": "matrix-"}}))?;
    let made = secrets.create(&PostParams::default(), &secret).await?.metadata;
    Ok(Bound {
        kind: "Secret",
        name: made.name.context("name")?,
        uid: made.uid.context("uid")?,
    })
}

/// A token of an account of the same name, bound to a pod, in a namespace of somebody else.
async fn elsewhere(product: &Product) -> Result<String> {
    let namespace = &product.namespace;
    let accounts: Api<ServiceAccount> = Api::namespaced(product.client.clone(), namespace);
    let account = serde_json::from_value(json!({"metadata": {"name": ACCOUNT}}))?;
    accounts.create(&PostParams::default(), &account).await?;
    let pod = make_pod(product, namespace, "agent", "node1", ACCOUNT).await?;
    token(product, namespace, ACCOUNT, AUDIENCE, Some(&pod)).await
}

/// Collects cells.
struct Cells {
    cells: Vec<Cell>,
    method: Method,
}

impl Cells {
    /// From here on another method.
    fn at(&mut self, method: Method) {
        self.method = method;
    }

    /// Raw values of the header.
    fn raw(&mut self, what: &'static str, values: &[&[u8]], code: Code, reason: &'static str) {
        self.cells.push(Cell {
            what,
            method: self.method.clone(),
            authorization: values.iter().map(|value| value.to_vec()).collect(),
            code,
            reason,
            secrets: Vec::new(),
        });
    }

    /// A token in its proper place.
    fn bearer(&mut self, what: &'static str, token: &str, code: Code, reason: &'static str) {
        self.raw(what, &[format!("Bearer {token}").as_bytes()], code, reason);
        let signature = token.rsplit('.').next().unwrap_or_default();
        let secrets = [token, signature].into_iter().filter(|part| part.len() > 20);
        let cell = self.cells.last_mut().expect("just pushed");
        cell.secrets = secrets.map(str::to_owned).collect();
    }

    fn unauthenticated(&mut self, what: &'static str, token: &str, reason: &'static str) {
        self.bearer(what, token, Code::Unauthenticated, reason);
    }

    fn denied(&mut self, what: &'static str, token: &str, reason: &'static str) {
        self.bearer(what, token, Code::PermissionDenied, reason);
    }
}

pub(crate) fn all(product: &Product, tokens: &Tokens) -> Result<Vec<Cell>> {
    let mut cells = Cells {
        cells: Vec::new(),
        method: Method::Attach("node1".into()),
    };
    headers(&mut cells, tokens);
    signatures(&mut cells, product, tokens)?;
    claims(&mut cells, product, tokens)?;
    real_ones(&mut cells, tokens);
    nodes(&mut cells, product, tokens)?;
    people(&mut cells, product, tokens)?;
    common(&mut cells, tokens);
    Ok(cells.cells)
}

/// Headers that hold no token, or too many.
fn headers(cells: &mut Cells, tokens: &Tokens) {
    let good = format!("Bearer {}", tokens.of_node1);
    let good = good.as_bytes();
    let basic = format!("Basic {}", tokens.of_node1);
    let mut missing =
        |what, values: &[&[u8]]| cells.raw(what, values, Code::Unauthenticated, "TOKEN_MISSING");
    missing("no header", &[]);
    missing("an empty header", &[b""]);
    missing("a scheme without a token", &[b"Bearer"]);
    missing("a scheme and a blank", &[b"Bearer "]);
    missing("a good token under another scheme", &[basic.as_bytes()]);
    missing("a good token without a scheme", &[tokens.of_node1.as_bytes()]);
    missing("bytes that are no text", &[b"Bearer \xff\xfe\xfd"]);
    missing("a good token, and a second header", &[good, b"Bearer x"]);
    missing("a second header, and a good token", &[b"Bearer x", good]);
    missing("the same good token twice", &[good, good]);
    cells.unauthenticated("a word", "garbage", "TOKEN_INVALID");
    cells.unauthenticated("three words with dots between them", "a.b.c", "TOKEN_INVALID");
    let long = "A".repeat(12 << 10);
    cells.unauthenticated("twelve kilobytes of one letter", &long, "TOKEN_INVALID");
    let four = format!("{}.x", tokens.of_node1);
    cells.unauthenticated("a good token with a fourth part", &four, "TOKEN_INVALID");
}

/// Good claims under signatures of others.
fn signatures(cells: &mut Cells, product: &Product, tokens: &Tokens) -> Result<()> {
    let cluster = &product.cluster;
    let good = Parts::of(&tokens.of_node1)?;
    let (own, other) = (Key::of(cluster)?, Key::new()?);
    let claims = &good.claims;
    let mut invalid = |what, token: String| cells.unauthenticated(what, &token, "TOKEN_INVALID");
    let mut flipped = tokens.of_node1.clone();
    let last = if flipped.pop() == Some('A') { 'Q' } else { 'A' };
    flipped.push(last);
    invalid("a signature with another last letter", flipped);
    let text = tokens.of_node1.trim_end_matches(&good.signature).to_owned();
    invalid("a signature cut away", text);
    invalid("algorithm none", good.unsigned());
    invalid(
        "algorithm HS256 with the public key as the secret",
        good.confused(cluster)?,
    );
    invalid(
        "ES256 under a header that says RS256",
        own.sign(&good.header_with("alg", json!("RS256")), claims)?,
    );
    invalid(
        "ES256 under a header that says ES384",
        own.sign(&good.header_with("alg", json!("ES384")), claims)?,
    );
    invalid(
        "another key under the name of the right one",
        other.sign(&good.header, claims)?,
    );
    invalid(
        "another key under a name of its own",
        other.sign(&good.header_with("kid", json!("mine")), claims)?,
    );
    invalid(
        "another key without a name",
        other.sign(&json!({"alg": "ES256"}), claims)?,
    );
    let jwk = json!({"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"});
    invalid(
        "another key that the header brings along",
        other.sign(&good.header_with("jwk", jwk), claims)?,
    );
    invalid(
        "another key that the header says where to fetch",
        other.sign(&good.header_with("jku", json!("http://10.90.0.1/keys")), claims)?,
    );
    invalid(
        "the right key, and an extension that must be understood",
        own.sign(&good.header_with("crit", json!(["exp"])), claims)?,
    );
    let swapped = good.with("/kubernetes.io/node/name", json!("node2"))?;
    invalid(
        "another node's name under the old signature",
        good.swapped(&swapped),
    );
    let later = good.with("/exp", json!(now() + 99_999))?;
    invalid("a later end under the old signature", good.swapped(&later));
    Ok(())
}

fn now() -> i64 {
    Timestamp::now().as_second()
}

/// The right key, and claims that are not so. Only the API server can sign these; should it ever, or leak its key, they are worth nothing.
fn claims(cells: &mut Cells, product: &Product, tokens: &Tokens) -> Result<()> {
    let good = Parts::of(&tokens.of_node1)?;
    let key = Key::of(&product.cluster)?;
    let sign = |claims: &Value| key.sign(&good.header, claims);
    let with = |pointer: &str, value: Value| sign(&good.with(pointer, value)?);
    cells.unauthenticated(
        "ended a second ago",
        &with("/exp", json!(now() - 1))?,
        "TOKEN_EXPIRED",
    );
    cells.unauthenticated(
        "ended a day ago",
        &with("/exp", json!(now() - 86_400))?,
        "TOKEN_EXPIRED",
    );
    cells.unauthenticated("never ends", &sign(&good.without("exp"))?, "TOKEN_INVALID");
    cells.unauthenticated(
        "begins in an hour",
        &with("/nbf", json!(now() + 3_600))?,
        "TOKEN_INVALID",
    );
    let issuer = with("/iss", json!("https://issuer.invalid"))?;
    cells.unauthenticated("another issuer", &issuer, "TOKEN_INVALID");
    cells.unauthenticated("no issuer", &sign(&good.without("iss"))?, "TOKEN_INVALID");
    cells.unauthenticated("no audience", &sign(&good.without("aud"))?, "WRONG_AUDIENCE");
    let longer = with("/aud", json!(["kruise-manager2", "kruise-manage"]))?;
    cells.unauthenticated("audiences that are almost right", &longer, "WRONG_AUDIENCE");
    let pod = with(
        "/kubernetes.io/pod/uid",
        json!("00000000-0000-0000-0000-000000000000"),
    )?;
    cells.unauthenticated("a pod of another UID", &pod, "TOKEN_INVALID");
    let account = with(
        "/kubernetes.io/serviceaccount/uid",
        json!("00000000-0000-0000-0000-000000000000"),
    )?;
    cells.unauthenticated("an account of another UID", &account, "TOKEN_INVALID");
    let admin = with("/sub", json!("system:admin"))?;
    cells.denied("an administrator by name", &admin, "NOT_AN_AGENT");
    let odd = with("/kubernetes.io", json!("node1"))?;
    cells.unauthenticated("claims of another shape", &odd, "TOKEN_INVALID");
    Ok(())
}

/// Real tokens that were issued for something else, or for what is no more.
fn real_ones(cells: &mut Cells, tokens: &Tokens) {
    cells.unauthenticated(
        "an agent's, for people's audience",
        &tokens.for_people,
        "WRONG_AUDIENCE",
    );
    cells.unauthenticated(
        "an agent's, for the API server",
        &tokens.of_node1_for_api,
        "WRONG_AUDIENCE",
    );
    cells.unauthenticated("a viewer's", &tokens.viewer, "WRONG_AUDIENCE");
    cells.denied(
        "the viewer's account, for agents' audience",
        &tokens.viewer_account,
        "NOT_AN_AGENT",
    );
    cells.denied(
        "the manager's own account",
        &tokens.manager_account,
        "NOT_AN_AGENT",
    );
    cells.denied(
        "an account of the same name in another namespace",
        &tokens.same_name_elsewhere,
        "NOT_AN_AGENT",
    );
    cells.denied(
        "the agents' account, bound to nothing",
        &tokens.unbound,
        "NOT_AN_AGENT",
    );
    cells.denied(
        "the agents' account, bound to a secret",
        &tokens.bound_to_secret,
        "NOT_AN_AGENT",
    );
    cells.denied(
        "the agents' account, bound to a node only",
        &tokens.bound_to_node,
        "NOT_AN_AGENT",
    );
    cells.unauthenticated("of a pod that was deleted", &tokens.pod_gone, "TOKEN_INVALID");
    cells.unauthenticated("of a pod that was evicted", &tokens.pod_failed, "TOKEN_INVALID");
    cells.denied("of a node that was deleted", &tokens.node_gone, "NODE_GONE");
    cells.denied(
        "of a node that was made again under its name",
        &tokens.node_again,
        "NODE_GONE",
    );
}

/// An agent of one node that speaks for another.
fn nodes(cells: &mut Cells, product: &Product, tokens: &Tokens) -> Result<()> {
    let own = &tokens.of_node1;
    for (what, node) in [
        ("another node", "node2"),
        ("a node that does not exist", "node99"),
        ("no node at all", ""),
        ("its own node in capitals", "NODE1"),
        ("its own node and a zero byte", "node1\0"),
    ] {
        cells.at(Method::Attach(node.into()));
        cells.denied(what, own, "NODE_MISMATCH");
    }
    cells.at(Method::Attach(tokens.ghost.node.clone()));
    cells.denied("a stolen token, replayed for another node", own, "NODE_MISMATCH");
    let good = Parts::of(own)?;
    let moved = good.with(
        "/kubernetes.io/node",
        json!({"name": "node2", "uid": tokens.node2_uid}),
    )?;
    cells.at(Method::Attach("node2".into()));
    let moved = Key::of(&product.cluster)?.sign(&good.header, &moved)?;
    cells.denied(
        "the right key, and a node where its pod is not",
        &moved,
        "NODE_MISMATCH",
    );
    Ok(())
}

/// Those who want to look.
fn people(cells: &mut Cells, product: &Product, tokens: &Tokens) -> Result<()> {
    let viewer = Parts::of(&tokens.viewer)?;
    let (own, other) = (Key::of(&product.cluster)?, Key::new()?);
    let expired = own.sign(&viewer.header, &viewer.with("/exp", json!(now() - 1))?)?;
    let forged = other.sign(&viewer.header, &viewer.claims)?;
    cells.at(Method::AGENTS);
    cells.unauthenticated("an agent's token", &tokens.of_node1, "WRONG_AUDIENCE");
    cells.denied(
        "an agent's account, for people's audience",
        &tokens.for_people,
        "FORBIDDEN",
    );
    cells.denied("somebody without the right", &tokens.stranger, "FORBIDDEN");
    cells.unauthenticated(
        "a viewer's token for the API server",
        &tokens.viewer_for_api,
        "WRONG_AUDIENCE",
    );
    cells.unauthenticated("a viewer's token that has ended", &expired, "TOKEN_EXPIRED");
    cells.unauthenticated("a viewer's claims under another key", &forged, "TOKEN_INVALID");
    cells.raw("nobody", &[], Code::Unauthenticated, "TOKEN_MISSING");
    cells.at(Method::AGENT);
    cells.denied("somebody without the right", &tokens.stranger, "FORBIDDEN");
    cells.at(Method::TASKS);
    cells.denied("somebody without the right", &tokens.stranger, "FORBIDDEN");
    cells.unauthenticated("an agent's token", &tokens.of_node1, "WRONG_AUDIENCE");
    cells.at(Method::WATCH);
    cells.denied("somebody without the right", &tokens.stranger, "FORBIDDEN");
    cells.unauthenticated("an agent's token", &tokens.of_node1, "WRONG_AUDIENCE");
    Ok(())
}

/// Health, reflection, and what is not there at all.
fn common(cells: &mut Cells, tokens: &Tokens) {
    cells.at(Method::HEALTH);
    cells.raw("nobody", &[], Code::Unauthenticated, "TOKEN_MISSING");
    cells.unauthenticated("a word", "garbage", "TOKEN_INVALID");
    cells.denied("somebody without the right", &tokens.stranger, "FORBIDDEN");
    cells.unauthenticated(
        "an agent whose pod was deleted",
        &tokens.pod_gone,
        "TOKEN_INVALID",
    );
    cells.denied(
        "an agent whose node was made again",
        &tokens.node_again,
        "NODE_GONE",
    );
    cells.at(Method::REFLECT);
    cells.raw("nobody", &[], Code::Unauthenticated, "TOKEN_MISSING");
    cells.unauthenticated(
        "a token for the API server",
        &tokens.viewer_for_api,
        "WRONG_AUDIENCE",
    );
    cells.denied("somebody without the right", &tokens.stranger, "FORBIDDEN");
    cells.at(Method::UNKNOWN);
    cells.raw("nobody", &[], Code::Unauthenticated, "TOKEN_MISSING");
}
