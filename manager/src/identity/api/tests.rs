//! Tokens of all sorts against an API server in this process.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use kruise_api::names::INSPECT_AUDIENCE;
use serde_json::{Value, json};

use super::super::token::unsigned;
use super::*;
use crate::kubeapi::fake::{FakeApi, Fault};
use crate::leader::{LeaderState, Leadership};

const REVIEWS_PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS_PATH: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const NODE_PATH: &str = "/api/v1/nodes/node1";
const POD_PATH: &str = "/api/v1/namespaces/kruise-system/pods/kruise-daemon-x";
const AGENT: &str = "system:serviceaccount:kruise-system:kruise-daemon";
const EXTRA: &str = "authentication.kubernetes.io/";

/// A token whose claims tell the server below what to say.
fn token(audience: &str, user: &str, expires_in: i64, extra: &[(&str, &str)]) -> String {
    let now = i64::try_from(crate::clock::wall_unix_ms() / 1_000).expect("in range");
    let extra: BTreeMap<String, Vec<String>> = extra
        .iter()
        .map(|(key, value)| (format!("{EXTRA}{key}"), vec![(*value).to_owned()]))
        .collect();
    unsigned(&json!({"aud": [audience], "exp": now + expires_in, "sub": user, "extra": extra}))
}

const BOUND: [(&str, &str); 4] = [
    ("node-name", "node1"),
    ("node-uid", "n-1"),
    ("pod-name", "kruise-daemon-x"),
    ("pod-uid", "p-1"),
];

fn agent_token() -> String {
    token(AGENT_AUDIENCE, AGENT, 3600, &BOUND)
}

/// Believes every token whose signature is the one of [`unsigned`], for the audiences it says.
fn review(body: &Value) -> Value {
    let token = body["spec"]["token"].as_str().unwrap_or_default();
    let wanted = body["spec"]["audiences"].clone();
    let payload = token.split('.').nth(1).unwrap_or_default();
    let bytes = base64::Engine::decode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, payload);
    let claims: Value = serde_json::from_slice(&bytes.unwrap_or_default()).unwrap_or(Value::Null);
    let status = if token.ends_with(".c2lnbmF0dXJl") && claims["aud"] == wanted {
        let user =
            json!({"username": claims["sub"], "groups": ["system:authenticated"], "extra": claims["extra"]});
        json!({"authenticated": true, "audiences": wanted, "user": user})
    } else {
        json!({"authenticated": false, "error": "invalid bearer token"})
    };
    json!({"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "metadata": {}, "spec": {}, "status": status})
}

fn server() -> FakeApi {
    let server = FakeApi::default();
    server.put(NODE_PATH, json!({"metadata": {"name": "node1", "uid": "n-1"}}));
    server.respond(REVIEWS_PATH, review);
    server.respond(ACCESS_PATH, |body| {
        let attributes = &body["spec"]["resourceAttributes"];
        let allowed = body["spec"]["user"] == "reader"
            && attributes["group"] == "inspect.kruise.io"
            && attributes["verb"] == "get";
        json!({"kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {}, "spec": {}, "status": {"allowed": allowed}})
    });
    server
}

fn verifier(server: &FakeApi) -> ApiVerifier {
    let api = Api::over(server, Leadership::fixed(LeaderState::Follower { leader: None }));
    let settings = Settings {
        namespace: "kruise-system".into(),
        service_account: "kruise-daemon".into(),
        reviews_per_second: 100,
    };
    ApiVerifier::new(settings, api, Monotonic::tokio())
}

/// Reviews so far.
fn asked(server: &FakeApi) -> usize {
    server.writes().len()
}

#[tokio::test(start_paused = true)]
async fn an_agent_is_its_node_and_lives_as_long_as_its_token() {
    let server = server();
    let agent = verifier(&server).agent(&agent_token()).await.expect("an agent");
    assert_eq!(
        (agent.node_name.as_str(), agent.node_uid.as_str()),
        ("node1", "n-1")
    );
    assert_eq!(
        (agent.pod_name.as_str(), agent.pod_uid.as_str()),
        ("kruise-daemon-x", "p-1")
    );
    assert!(agent.valid_for > Duration::from_secs(3590) && agent.valid_for <= Duration::from_secs(3600));
}

#[tokio::test(start_paused = true)]
async fn forged_and_foreign_tokens_are_refused_by_reason() {
    let forged = agent_token().replace(".c2lnbmF0dXJl", ".Zm9yZ2Vk");
    let other_account = token(
        AGENT_AUDIENCE,
        "system:serviceaccount:default:kruise-daemon",
        60,
        &BOUND,
    );
    let user = token(AGENT_AUDIENCE, "kruise-daemon", 60, &BOUND);
    let longer = token(AGENT_AUDIENCE, &format!("{AGENT}2"), 60, &BOUND);
    let unbound = token(AGENT_AUDIENCE, AGENT, 60, &[]);
    let gone = token(AGENT_AUDIENCE, AGENT, 60, &BOUND[2..]);
    for (name, token, reason) in [
        ("forged", forged, "TOKEN_INVALID"),
        ("no token at all", "xyz".to_owned(), "TOKEN_INVALID"),
        (
            "for the API server",
            token("https://kubernetes.default.svc", AGENT, 60, &BOUND),
            "WRONG_AUDIENCE",
        ),
        (
            "for people",
            token(INSPECT_AUDIENCE, AGENT, 60, &BOUND),
            "WRONG_AUDIENCE",
        ),
        (
            "expired",
            token(AGENT_AUDIENCE, AGENT, -1, &BOUND),
            "TOKEN_EXPIRED",
        ),
        ("another account", other_account, "NOT_AN_AGENT"),
        ("a user of that name", user, "NOT_AN_AGENT"),
        ("an account whose name begins alike", longer, "NOT_AN_AGENT"),
        ("not bound to a pod", unbound, "NOT_AN_AGENT"),
        ("of a pod that is gone", gone, "TOKEN_INVALID"),
    ] {
        let server = server();
        let error = verifier(&server).agent(&token).await.expect_err(name);
        assert_eq!(error.reason(), reason, "{name}: {error}");
        assert!(
            token.len() < 5 || !error.to_string().contains(&token),
            "the token does not show"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_older_api_server_is_asked_for_pod_and_node() {
    let server = server();
    server.put(POD_PATH, json!({"metadata": {"name": "kruise-daemon-x", "uid": "p-1"}, "spec": {"nodeName": "node1", "containers": []}}));
    server.put(NODE_PATH, json!({"metadata": {"name": "node1", "uid": "n-7"}}));
    let token = token(AGENT_AUDIENCE, AGENT, 60, &BOUND[2..]);
    let agent = verifier(&server).agent(&token).await.expect("an agent");
    assert_eq!(
        (agent.node_name.as_str(), agent.node_uid.as_str()),
        ("node1", "n-7")
    );
    server.put(POD_PATH, json!({"metadata": {"name": "kruise-daemon-x", "uid": "p-2"}, "spec": {"nodeName": "node1", "containers": []}}));
    let error = verifier(&server).agent(&token).await.expect_err("made again");
    assert_eq!(error.to_string(), "the token is not valid: its pod is gone");
}

#[tokio::test(start_paused = true)]
async fn answers_are_remembered_for_half_a_minute_and_refusals_for_ten_seconds() {
    let server = server();
    let verifier = verifier(&server);
    let good = agent_token();
    let bad = good.replace(".c2lnbmF0dXJl", ".Zm9yZ2Vk");
    for _ in 0..5 {
        verifier.agent(&good).await.expect("an agent");
        verifier.agent(&bad).await.expect_err("forged");
    }
    assert_eq!(asked(&server), 2);
    tokio::time::advance(Duration::from_secs(11)).await;
    verifier.agent(&bad).await.expect_err("forged");
    assert_eq!(asked(&server), 3);
    tokio::time::advance(Duration::from_secs(20)).await;
    verifier.agent(&good).await.expect("an agent");
    assert_eq!(asked(&server), 4);
    // One that ends sooner is out when it ends: five seconds from now, half a minute having passed on the paused clock.
    let short = token(AGENT_AUDIENCE, AGENT, 31 + 5, &BOUND);
    verifier.agent(&short).await.expect("an agent");
    tokio::time::advance(Duration::from_secs(6)).await;
    let error = verifier.agent(&short).await.expect_err("ended");
    assert_eq!(error.reason(), "TOKEN_EXPIRED");
}

#[tokio::test(start_paused = true)]
async fn a_removed_pod_is_out_within_a_minute() {
    let server = server();
    let verifier = verifier(&server);
    let token = agent_token();
    verifier.agent(&token).await.expect("an agent");
    server.respond(
        REVIEWS_PATH,
        |_| json!({"kind": "TokenReview", "metadata": {}, "spec": {}, "status": {"error": "pod not found"}}),
    );
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(
        verifier
            .agent(&agent_token())
            .await
            .expect_err("removed")
            .reason(),
        "TOKEN_INVALID"
    );
}

#[tokio::test(start_paused = true)]
async fn trouble_of_the_api_server_is_no_refusal_and_is_not_remembered() {
    let server = server();
    let verifier = verifier(&server);
    for fault in [Fault::Refuse(500), Fault::Refuse(403), Fault::Hang] {
        server.fail_next("POST", fault);
        let error = verifier.agent(&agent_token()).await.expect_err("trouble");
        assert!(matches!(error, AuthError::Backend { .. }), "{error:?}");
    }
    verifier.agent(&agent_token()).await.expect("at the next try");
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_tokens_is_cut_to_the_rate() {
    let server = server();
    let verifier = verifier(&server);
    let refused = AtomicUsize::new(0);
    for n in 0..300 {
        let token = token(AGENT_AUDIENCE, AGENT, 3600 + n, &BOUND);
        if let Err(AuthError::Backend { retry_after, .. }) = verifier.agent(&token).await {
            assert!(retry_after > Duration::ZERO);
            refused.fetch_add(1, Ordering::Relaxed);
        }
    }
    // Each is asked about twice: who it is, and whether its node is still the same.
    assert_eq!((server.requests().len(), refused.into_inner()), (100, 250));
}

#[tokio::test(start_paused = true)]
async fn people_need_the_right() {
    let server = server();
    let verifier = verifier(&server);
    let reader = verifier
        .person(&token(INSPECT_AUDIENCE, "reader", 60, &[]))
        .await
        .expect("a person");
    let other = verifier
        .person(&token(INSPECT_AUDIENCE, "other", 60, &[]))
        .await
        .expect("a person");
    assert_eq!(verifier.allowed(&reader, "agents", "get").await, Ok(()));
    assert_eq!(verifier.allowed(&reader, "agents", "get").await, Ok(()));
    assert_eq!(asked(&server), 3, "remembered");
    for (person, verb) in [(&reader, "watch"), (&other, "get")] {
        let error = verifier
            .allowed(person, "agents", verb)
            .await
            .expect_err("forbidden");
        assert_eq!(error.reason(), "FORBIDDEN");
    }
    let wrong = verifier
        .person(&agent_token())
        .await
        .expect_err("an agent's token is for agents");
    assert_eq!(wrong.reason(), "WRONG_AUDIENCE");
    let opaque = verifier
        .person("opaque")
        .await
        .expect_err("any form is asked about");
    assert_eq!((opaque.reason(), asked(&server)), ("TOKEN_INVALID", 6));
}

mod local;
