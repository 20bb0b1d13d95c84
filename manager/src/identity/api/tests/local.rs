//! Tokens that are verified without asking anybody.

use std::time::Instant;

use super::super::super::directory::Pod;
use super::super::super::keys::signer::Signer;
use super::*;

const ISSUER: &str = "https://kubernetes.default.svc";
const DISCOVERY_PATH: &str = "/.well-known/openid-configuration";
const KEYS_PATH: &str = "/openid/v1/jwks";

fn now() -> i64 {
    i64::try_from(crate::clock::wall_unix_ms() / 1_000).expect("in range")
}

fn claims() -> Value {
    json!({
        "iss": ISSUER, "aud": [AGENT_AUDIENCE], "sub": AGENT, "exp": now() + 3600, "nbf": now(), "iat": now(),
        "kubernetes.io": {
            "namespace": "kruise-system",
            "serviceaccount": {"name": "kruise-daemon", "uid": "a-1"},
            "pod": {"name": "kruise-daemon-x", "uid": "p-1"},
            "node": {"name": "node1", "uid": "n-1"},
        },
    })
}

/// The claims with one of them changed.
fn with(pointer: &str, value: Value) -> Value {
    let mut claims = claims();
    *claims.pointer_mut(pointer).expect("it is there") = value;
    claims
}

fn pod() -> Pod {
    Pod {
        name: "kruise-daemon-x".into(),
        node: "node1".into(),
        ends: None,
        over: false,
    }
}

/// A verifier that knows the signer's key and the objects of [`claims`].
async fn informed(signer: &Signer) -> (FakeApi, ApiVerifier) {
    let server = server();
    server.put(DISCOVERY_PATH, json!({ "issuer": ISSUER }));
    server.put(KEYS_PATH, json!({"keys": [signer.public()]}));
    let verifier = verifier(&server);
    verifier.keyring.newest().await.expect("keys");
    {
        let mut tables = verifier.directory.tables();
        tables.pods.apply("p-1".into(), pod());
        tables.pods.end_list();
        tables.nodes.apply("n-1".into(), "node1".into());
        tables.nodes.end_list();
        tables.account.apply("a-1".into(), ());
        tables.account.end_list();
    }
    (server, verifier)
}

#[tokio::test(start_paused = true)]
async fn a_good_token_needs_no_request() {
    let signer = Signer::new("k");
    let (server, verifier) = informed(&signer).await;
    let before = server.requests().len();
    let agent = verifier.agent(&signer.token(&claims())).await.expect("an agent");
    assert_eq!(
        (agent.node_name.as_str(), agent.node_uid.as_str()),
        ("node1", "n-1")
    );
    assert!(agent.valid_for <= Duration::from_secs(3600) && agent.valid_for > Duration::from_secs(3590));
    assert_eq!(server.requests().len(), before);
}

#[tokio::test(start_paused = true)]
async fn what_is_plainly_wrong_is_refused_without_a_request() {
    let signer = Signer::new("k");
    let (server, verifier) = informed(&signer).await;
    let before = server.requests().len();
    let signed = |claims: Value| signer.token(&claims);
    let header = |header: Value| signer.token_with(&header, &claims());
    let good = signed(claims());
    for (name, token, reason) in [
        ("another key", Signer::new("k").token(&claims()), "TOKEN_INVALID"),
        ("unknown key", Signer::new("x").token(&claims()), "TOKEN_INVALID"),
        (
            "alg none",
            header(json!({"alg": "none", "kid": "k"})),
            "TOKEN_INVALID",
        ),
        (
            "alg HS256",
            header(json!({"alg": "HS256", "kid": "k"})),
            "TOKEN_INVALID",
        ),
        (
            "no signature",
            good.replace(&good[good.rfind('.').expect("parts") + 1..], ""),
            "TOKEN_INVALID",
        ),
        ("expired", signed(with("/exp", json!(now() - 1))), "TOKEN_EXPIRED"),
        (
            "not yet",
            signed(with("/nbf", json!(now() + 60))),
            "TOKEN_INVALID",
        ),
        ("no end", signed(with("/exp", json!(null))), "TOKEN_INVALID"),
        (
            "other audience",
            signed(with("/aud", json!(["kruise-inspect"]))),
            "WRONG_AUDIENCE",
        ),
        (
            "another account",
            signed(with("/sub", json!("system:serviceaccount:a:b"))),
            "NOT_AN_AGENT",
        ),
        (
            "no pod",
            signed(with("/kubernetes.io/pod", json!(null))),
            "NOT_AN_AGENT",
        ),
        (
            "pod of another node",
            {
                verifier
                    .directory
                    .tables()
                    .nodes
                    .apply("n-2".into(), "node2".into());
                signed(with(
                    "/kubernetes.io/node",
                    json!({"name": "node2", "uid": "n-2"}),
                ))
            },
            "NODE_MISMATCH",
        ),
    ] {
        let error = verifier.agent(&token).await.expect_err(name);
        assert_eq!(error.reason(), reason, "{name}: {error}");
    }
    assert_eq!(
        server.requests().len(),
        before,
        "not even for an unknown key so soon after the last fetch"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_not_known_is_asked_of_the_api_server() {
    let signer = Signer::new("k");
    let (server, verifier) = informed(&signer).await;
    for (name, claims) in [
        ("an older issuer", with("/iss", json!("https://old"))),
        ("no node in it", with("/kubernetes.io/node", json!(null))),
        ("a new pod", with("/kubernetes.io/pod/uid", json!("p-2"))),
        ("a new node", with("/kubernetes.io/node/uid", json!("n-2"))),
        (
            "an account made again",
            with("/kubernetes.io/serviceaccount/uid", json!("a-2")),
        ),
    ] {
        let before = asked(&server);
        let error = verifier.agent(&signer.token(&claims)).await.expect_err(name);
        assert_eq!(
            error.reason(),
            "TOKEN_INVALID",
            "{name}: by the word of the server"
        );
        assert_eq!(asked(&server), before + 1, "{name}");
    }
    verifier.directory.tables().nodes.doubt(verifier.clock.now());
    let before = asked(&server);
    verifier.agent(&signer.token(&claims())).await.expect_err("asked");
    assert_eq!(asked(&server), before + 1, "a watch has failed");
}

#[tokio::test(start_paused = true)]
async fn a_node_made_again_is_a_stranger_whatever_the_api_server_says_of_the_token() {
    let server = server();
    server.put(NODE_PATH, json!({"metadata": {"name": "node1", "uid": "n-2"}}));
    let error = verifier(&server)
        .agent(&agent_token())
        .await
        .expect_err("made again");
    assert_eq!(error.reason(), "NODE_GONE");
}

#[tokio::test(start_paused = true)]
async fn whoever_was_let_in_is_out_once_pod_node_or_account_is_gone() {
    let signer = Signer::new("k");
    type Change = fn(&mut super::super::super::directory::Tables);
    let changes: [(&str, Change, &str); 3] = [
        ("pod", |tables| tables.pods.remove("p-1"), "TOKEN_INVALID"),
        ("node", |tables| tables.nodes.remove("n-1"), "NODE_GONE"),
        ("account", |tables| tables.account.remove("a-1"), "TOKEN_INVALID"),
    ];
    for (name, change, reason) in changes {
        let (_server, verifier) = informed(&signer).await;
        let agent = verifier.agent(&signer.token(&claims())).await.expect("an agent");
        let ended = tokio::spawn(verifier.ended(&agent));
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert!(!ended.is_finished(), "{name}");
        change(&mut verifier.directory.tables());
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(ended.is_finished(), "{name}: at once");
        assert_eq!(ended.await.expect("no panic").reason(), reason, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_watches_it_takes_a_question_and_less_than_a_minute() {
    let server = server();
    server.put(POD_PATH, json!({"metadata": {"name": "kruise-daemon-x", "uid": "p-1"}, "spec": {"nodeName": "node1", "containers": []}}));
    server.put(
        "/api/v1/namespaces/kruise-system/serviceaccounts/kruise-daemon",
        json!({"metadata": {"name": "kruise-daemon", "uid": "a-1"}}),
    );
    let verifier = verifier(&server);
    let agent = verifier.agent(&agent_token()).await.expect("an agent");
    let ended = tokio::spawn(verifier.ended(&agent));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(!ended.is_finished());
    server.hang(true);
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!(!ended.is_finished(), "nobody can tell");
    server.hang(false);
    server.remove(POD_PATH);
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert!(ended.is_finished());
    assert_eq!(ended.await.expect("no panic"), AuthError::pod_gone());
}

#[tokio::test]
async fn ten_thousand_agents_are_verified_within_a_moment() {
    const AGENTS: usize = 10_000;
    let signer = Signer::new("k");
    let (server, verifier) = informed(&signer).await;
    let tokens: Vec<String> = (0..AGENTS)
        .map(|n| {
            let (pod, node) = (format!("pod-{n}"), format!("node-{n}"));
            let mut tables = verifier.directory.tables();
            let entry = Pod {
                name: pod.clone(),
                node: node.clone(),
                ..self::pod()
            };
            tables.pods.apply(pod.clone(), entry);
            tables.nodes.apply(node.clone(), node.clone());
            let mut claims = claims();
            claims["kubernetes.io"]["pod"] = json!({"name": pod, "uid": pod});
            claims["kubernetes.io"]["node"] = json!({"name": node, "uid": node});
            signer.token(&claims)
        })
        .collect();
    let before = server.requests().len();
    #[expect(clippy::disallowed_methods, reason = "real work is measured")]
    let began = Instant::now();
    for token in &tokens {
        verifier.agent(token).await.expect("an agent");
    }
    let took = began.elapsed();
    println!("{AGENTS} tokens verified in {took:?}, {:?} each", took / 10_000);
    assert_eq!(server.requests().len(), before);
    // Five times what an optimised build takes, because this one is not.
    assert!(took < Duration::from_secs(10), "{took:?}");
}
