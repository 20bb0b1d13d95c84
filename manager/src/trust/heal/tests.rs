//! The healer against an API server in this process.

use super::*;
use crate::kubeapi::fake::{FakeApi, Fault};
use crate::leader::{LeaderState, Leadership};

const MAP: &str = "/api/v1/namespaces/ns/configmaps/kruise-manager-ca";
const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/v";
const CRD: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/c";

fn server() -> FakeApi {
    let server = FakeApi::default();
    server.put(
        MAP,
        json!({"metadata": {"name": "kruise-manager-ca"}, "data": {"ca.crt": "PEM\n"}}),
    );
    server.put(
        HOOKS,
        json!({"metadata": {"name": "v"}, "webhooks": [
            {"name": "a", "clientConfig": {"service": {"name": "s"}}, "newField": {"kept": true}},
            {"name": "b", "clientConfig": {"url": "https://elsewhere", "caBundle": "dGhlaXJz"}},
            {"name": "c", "clientConfig": {"service": {"name": "s"}, "caBundle": "b2xk"}}]}),
    );
    server.put(
        CRD,
        json!({"metadata": {"name": "c"}, "spec": {"conversion": {"strategy": "Webhook",
            "webhook": {"clientConfig": {"service": {"name": "s"}}}}}}),
    );
    server
}

fn healer(server: &FakeApi) -> Healer {
    let api = Api::over(server, Leadership::fixed(LeaderState::Follower { leader: None }));
    let targets = vec![
        Target::Mutating("not-installed".into()),
        Target::Validating("v".into()),
        Target::Definition("c".into()),
    ];
    Healer::new(api, "ns".into(), "kruise-manager-ca".into(), targets)
}

#[tokio::test(start_paused = true)]
async fn missing_and_foreign_authorities_are_replaced_and_nothing_else() {
    let server = server();
    let healer = healer(&server);
    assert!(!healer.was_in_order());
    assert_eq!(healer.pass().await, "");
    assert!(healer.was_in_order());
    let hooks = server.object(HOOKS).expect("there");
    assert_eq!(hooks["webhooks"][0]["clientConfig"]["caBundle"], "UEVNCg==");
    assert_eq!(hooks["webhooks"][0]["newField"]["kept"], true);
    assert_eq!(hooks["webhooks"][1]["clientConfig"]["caBundle"], "dGhlaXJz");
    assert_eq!(hooks["webhooks"][2]["clientConfig"]["caBundle"], "UEVNCg==");
    let crd = server.object(CRD).expect("there");
    assert_eq!(
        crd["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"],
        "UEVNCg=="
    );
    assert_eq!(healer.pass().await, "");
    assert_eq!(server.writes().len(), 2, "in order: nothing is written");
}

#[tokio::test(start_paused = true)]
async fn a_reset_is_mended_within_ten_seconds() {
    let server = server();
    let stop = CancellationToken::new();
    tokio::spawn(healer(&server).run(stop.clone()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut reset = server.object(HOOKS).expect("there");
    reset["webhooks"][0]["clientConfig"]["caBundle"] = json!("");
    server.put(HOOKS, reset);
    tokio::time::sleep(Duration::from_secs(9)).await;
    let hooks = server.object(HOOKS).expect("there");
    assert_eq!(hooks["webhooks"][0]["clientConfig"]["caBundle"], "UEVNCg==");
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_left_to_the_next_look_and_a_missing_right_is_said() {
    let server = server();
    let healer = healer(&server);
    server.fail_next("PUT /apis/admissionregistration", Fault::Refuse(409));
    server.fail_next("PUT /apis/apiextensions", Fault::Refuse(403));
    let problem = healer.pass().await;
    assert!(problem.contains("Definition(\"c\")"), "{problem}");
    assert!(healer.was_in_order(), "waiting does not bring the right");
    assert_eq!(healer.pass().await, "");
    let hooks = server.object(HOOKS).expect("there");
    assert_eq!(hooks["webhooks"][0]["clientConfig"]["caBundle"], "UEVNCg==");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_without_a_bundle_or_over_cert_manager() {
    let server = server();
    server.put(MAP, json!({"metadata": {"name": "kruise-manager-ca"}}));
    let healer = healer(&server);
    assert!(healer.pass().await.contains("empty"));
    assert!(!healer.was_in_order());
    assert!(server.writes().is_empty());
    server.put(
        MAP,
        json!({"metadata": {"name": "kruise-manager-ca"}, "data": {"ca.crt": "PEM\n"}}),
    );
    for path in [HOOKS, CRD] {
        let mut object = server.object(path).expect("there");
        object["metadata"]["annotations"] = json!({"cert-manager.io/inject-ca-from": "ns/kruise"});
        server.put(path, object);
    }
    assert_eq!(healer.pass().await, "");
    assert!(server.writes().is_empty());
}
