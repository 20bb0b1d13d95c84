//! The store against an API server in this process.

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::*;
use crate::kubeapi::fake::{FakeApi, Fault};
use crate::leader::LeaderState;

const SECRET: &str = "/api/v1/namespaces/ns/secrets/kruise-webhook-certs";
const MAP: &str = "/api/v1/namespaces/ns/configmaps/kruise-manager-ca";

fn server() -> FakeApi {
    let server = FakeApi::default();
    server.put(
        SECRET,
        json!({"metadata": {"name": "kruise-webhook-certs"}, "data": {"theirs": "eA=="}}),
    );
    server.put(MAP, json!({"metadata": {"name": "kruise-manager-ca"}}));
    server
}

fn guard(leads: bool) -> Leadership {
    Leadership::fixed(if leads {
        let since = tokio::time::Instant::now();
        LeaderState::Leader {
            epoch: kruise_api::ids::Epoch(1),
            since,
        }
    } else {
        LeaderState::Follower { leader: None }
    })
}

fn store(server: &FakeApi, leads: bool, policy: Policy) -> Store {
    let leadership = guard(leads);
    let settings = Settings {
        namespace: "ns".into(),
        secret: "kruise-webhook-certs".into(),
        configmap: "kruise-manager-ca".into(),
        policy,
    };
    let api = Api::over(server, leadership.clone());
    Store::new(
        settings,
        api,
        leadership,
        Serving::default(),
        ServeMetrics::default(),
    )
}

fn secret(server: &FakeApi, key: &str) -> Option<String> {
    let value = server.object(SECRET).expect("there")["data"][key].clone();
    if value.is_null() {
        return None;
    }
    let bytes: ByteString = serde_json::from_value(value).ok()?;
    String::from_utf8(bytes.0).ok()
}

fn bundle(server: &FakeApi) -> String {
    server.object(MAP).expect("there")["data"]["ca.crt"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_follower_fills_empty_objects_and_serves() {
    let server = server();
    let mut store = store(&server, false, Policy::default());
    store.pass().await.expect("in order");
    assert!(store.serving.is_ready());
    assert_eq!(
        secret(&server, "ca.crt").as_deref(),
        Some(bundle(&server).as_str())
    );
    assert_eq!(
        secret(&server, "theirs").as_deref(),
        Some("x"),
        "keys of others stay"
    );
    assert_eq!(server.writes(), [format!("PUT {SECRET}"), format!("PUT {MAP}")]);
    store.pass().await.expect("in order");
    assert_eq!(server.writes().len(), 2, "nothing to write at rest");
}

#[tokio::test(start_paused = true)]
async fn replicas_that_start_together_end_with_one_authority() {
    let server = server();
    let mut stores: Vec<Store> = (0..5).map(|_| store(&server, false, Policy::default())).collect();
    let passes = stores
        .iter_mut()
        .map(|store| async { store.pass().await.map(|()| store.loaded.clone()) });
    let loaded = futures::future::join_all(passes).await;
    let served = loaded
        .into_iter()
        .map(|loaded| loaded.expect("in order").expect("loaded").certificate);
    for certificate in served {
        assert_eq!(Some(certificate), secret(&server, "tls.crt"));
    }
    assert_eq!(material::facts_of_all(&bundle(&server)).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_write_of_unknown_outcome_is_looked_at_again() {
    let server = server();
    server.fail_next(&format!("PUT {SECRET}"), Fault::ApplyThenFail(500));
    let mut store = store(&server, false, Policy::default());
    store.pass().await.expect_err("told so");
    let made = secret(&server, "ca.crt");
    store.pass().await.expect("in order");
    assert_eq!(secret(&server, "ca.crt"), made, "not made twice");
}

#[tokio::test(start_paused = true)]
async fn missing_objects_are_named_with_the_remedy() {
    for (path, words) in [
        (SECRET, "kubectl -n ns create secret generic kruise-webhook-certs"),
        (MAP, "kubectl -n ns create configmap kruise-manager-ca"),
    ] {
        let server = server();
        server.remove(path);
        let mut store = store(&server, true, Policy::default());
        let error = store.pass().await.expect_err("missing").to_string();
        assert!(error.contains(words), "{error}");
        assert!(server.writes().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_by_another_replica_is_served_after_the_next_look() {
    let server = server();
    let mut one = store(&server, false, Policy::default());
    let mut two = store(&server, false, Policy::default());
    one.pass().await.expect("in order");
    two.pass().await.expect("in order");
    // Somebody empties the Secret, as one does after a key got lost.
    server.put(SECRET, json!({"metadata": {"name": "kruise-webhook-certs"}}));
    one.pass().await.expect("in order");
    two.pass().await.expect("in order");
    assert_eq!(one.loaded, two.loaded);
    assert_eq!(
        two.loaded.map(|pair| pair.certificate),
        secret(&server, "tls.crt")
    );
    assert_eq!(
        secret(&server, "ca.crt"),
        Some(bundle(&server)),
        "the lost authority is not trusted any more"
    );
}

#[tokio::test(start_paused = true)]
async fn a_rotation_keeps_both_trusted_and_ends_with_the_new_one() {
    let server = server();
    let policy = Policy {
        authority: Duration::from_secs(6_000),
        leaf: Duration::from_secs(900),
        overlap: Duration::from_secs(300),
        back_date: Duration::ZERO,
    };
    let mut leader = store(&server, true, policy);
    leader.pass().await.expect("in order");
    let first = secret(&server, "ca.crt").expect("made");
    let mut sizes = Vec::new();
    for _ in 0..130 {
        tokio::time::advance(Duration::from_secs(30)).await;
        leader.pass().await.expect("in order");
        let served = leader.loaded.clone().expect("loaded");
        let signer = secret(&server, "ca.crt").expect("made");
        assert!(material::fits(&signer, &served));
        let trusted: Vec<_> = material::facts_of_all(&bundle(&server))
            .into_iter()
            .map(|facts| facts.id)
            .collect();
        assert!(trusted.contains(&material::facts_of(&signer).expect("one").id));
        sizes.push(trusted.len());
    }
    assert_ne!(secret(&server, "ca.crt"), Some(first));
    sizes.dedup();
    assert_eq!(sizes, [1, 2, 1], "alone, overlapping, alone");
    assert_eq!(secret(&server, "next-ca.key"), None, "no key is left behind");
}

#[tokio::test(start_paused = true)]
async fn certificates_of_others_are_served_and_left_alone() {
    let server = server();
    let policy = Policy::default();
    let now = store(&server, false, policy).api.now();
    let authority = material::make_authority(&policy, now).expect("made");
    let leaf = material::make_leaf(&authority, &["x.svc".to_owned()], &policy, now).expect("made");
    let data = |leaf: &Pair| -> Value {
        let bytes = |text: &str| serde_json::to_value(ByteString(text.as_bytes().to_vec())).expect("base64");
        json!({"ca.crt": bytes(&authority.certificate), "tls.crt": bytes(&leaf.certificate), "tls.key": bytes(&leaf.key)})
    };
    server.put(SECRET, json!({"metadata": {"name": "s"}, "data": data(&leaf)}));
    let mut replica = store(&server, true, policy);
    replica.pass().await.expect("in order");
    assert!(replica.serving.is_ready());
    assert_eq!(server.writes(), [format!("PUT {MAP}")]);
    let unfit = Pair {
        key: authority.key.clone(),
        ..leaf
    };
    server.put(SECRET, json!({"metadata": {"name": "s"}, "data": data(&unfit)}));
    let error = replica.pass().await.expect_err("unfit").to_string();
    assert!(error.contains("belong to somebody else"), "{error}");
    assert!(replica.serving.is_ready(), "what was loaded is served on");
}

#[tokio::test(start_paused = true)]
async fn certificates_of_half_a_minute_come_to_rest_and_never_end_in_use() {
    let server = server();
    let policy = Policy {
        authority: Duration::from_secs(90),
        leaf: Duration::from_secs(30),
        overlap: Duration::from_secs(15),
        ..Policy::default()
    };
    let mut leader = store(&server, true, policy);
    let mut most = 0;
    for _ in 0..60 {
        leader.pass().await.expect("at rest");
        let served = leader.loaded.clone().expect("loaded");
        let life = material::facts_of(&served.certificate)
            .expect("a certificate")
            .life;
        assert!(!life.is_over(leader.api.now()));
        most = most.max(material::facts_of_all(&bundle(&server)).len());
        tokio::time::advance(Duration::from_secs(5)).await;
    }
    assert!(most <= 3, "{most} trusted at once");
}

#[tokio::test(start_paused = true)]
async fn what_is_good_is_served_even_when_nothing_can_be_written() {
    let server = server();
    let policy = Policy {
        leaf: Duration::from_secs(900),
        ..Policy::default()
    };
    let mut leader = store(&server, true, policy);
    leader.pass().await.expect("in order");
    tokio::time::advance(Duration::from_secs(600)).await;
    // As after a restart, but with the clock of this test.
    (leader.serving, leader.loaded) = (Serving::default(), None);
    server.fail_next("PUT", Fault::Refuse(403));
    leader.pass().await.expect_err("it may not write");
    assert!(leader.serving.is_ready());
}
