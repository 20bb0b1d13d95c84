//! The webhooks over real TLS, as the API server calls them.

mod client;
mod malformed;

use std::collections::BTreeMap;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use kruise_api::admission::Denied;
use kruise_api::clone_set::validation::PodRef;
use serde_json::json;

use super::*;
use crate::clock::Monotonic;
use client::Client;

/// One pod on one node.
struct OnePod;

impl Lookup for OnePod {
    fn pod<'a>(&'a self, _: &'a str, name: &'a str) -> BoxFuture<'a, Result<Option<Pod>, Denied>> {
        let pod = json!({"metadata": {"name": "web-0", "namespace": "n", "uid": "pod-uid"},
            "spec": {"nodeName": "node-1", "containers": [{"name": "app", "image": "i"}], "terminationGracePeriodSeconds": 7},
            "status": {"phase": "Running", "containerStatuses": [
                {"name": "app", "containerID": "containerd://abc", "image": "i", "imageID": "x", "ready": true, "restartCount": 2}]}});
        let found = match name {
            "web-0" => Ok(Some(serde_json::from_value(pod).expect("a pod"))),
            "slow" => return std::future::pending().boxed(),
            "broken" => Err(Denied {
                code: 500,
                message: "cannot read the pod: the API server is away".into(),
            }),
            _ => Ok(None),
        };
        std::future::ready(found).boxed()
    }

    fn pods<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Vec<PodRef>, Denied>> {
        let pod = PodRef {
            name: "web-0".into(),
            terminating: false,
            controller: Some("set-uid".into()),
        };
        std::future::ready(Ok(vec![pod])).boxed()
    }

    fn node<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<BTreeMap<String, String>>, Denied>> {
        std::future::ready(Ok((name == "node-1").then(BTreeMap::new))).boxed()
    }
}

/// A server, and a client that trusts its authority.
async fn served(switched_off: Option<&'static str>) -> (Client, CancellationToken, WebhookMetrics) {
    let serving = Serving::default();
    let authority = crate::trust::renew_for_tests(&serving, "localhost");
    let metrics = WebhookMetrics::default();
    let deps = Deps {
        serving,
        lookup: Arc::new(OnePod),
        switched_off,
        gates: FeatureGates::parse(&switched_off.map_or_else(String::new, |gate| format!("{gate}=false")))
            .expect("known"),
        time: ServerClock::new(Monotonic::tokio()),
        metrics: metrics.clone(),
        traces: Traces::default(),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let stop = CancellationToken::new();
    tokio::spawn(serve(listener, deps, stop.clone()));
    (Client::connect(address, &authority).await, stop, metrics)
}

fn review(version: &str, object: &Value, old: &Value) -> Value {
    let operation = if old.is_null() { "CREATE" } else { "UPDATE" };
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "review-uid", "operation": operation, "namespace": "n",
        "resource": {"group": "apps.kruise.io", "version": version, "resource": "x"},
        "object": object, "oldObject": old}})
}

fn job(spec: &Value) -> Value {
    json!({"apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob", "metadata": {"name": "a"}, "spec": spec})
}

fn applied(object: &Value, answer: &Value) -> Value {
    let response = &answer["response"];
    assert_eq!(response["allowed"], true, "{answer}");
    let mut object = object.clone();
    if let Some(patch) = response["patch"].as_str() {
        use base64::Engine;
        let text = base64::prelude::BASE64_STANDARD.decode(patch).expect("base64");
        let patch: json_patch::Patch = serde_json::from_slice(&text).expect("a patch");
        json_patch::patch(&mut object, &patch).expect("fits");
    }
    object
}

#[tokio::test]
async fn a_good_job_passes_a_bad_one_is_denied_and_an_odd_one_is_warned_of() {
    let (mut client, _stop, metrics) = served(None).await;
    let path = Hook::ImageJob.path();
    for (spec, allowed, words) in [
        (json!({"image": "nginx"}), true, ""),
        (
            json!({"image": "nginx", "parallelism": "10%"}),
            false,
            "spec.parallelism",
        ),
        (json!({"image": 5}), false, "spec.image: invalid type"),
        (
            json!({"image": "nginx", "selector": {"names": []}}),
            true,
            "no node gets",
        ),
    ] {
        let answer = client
            .review(path, &review("v1beta1", &job(&spec), &Value::Null))
            .await;
        let response = &answer["response"];
        assert_eq!(
            (&response["uid"], &response["allowed"]),
            (&json!("review-uid"), &json!(allowed)),
            "{answer}"
        );
        assert!(answer.to_string().contains(words), "{answer}");
        assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
    }
    let mut text = prometheus_client::registry::Registry::default();
    metrics.register(&mut text);
    let mut page = String::new();
    prometheus_client::encoding::prometheus_text::encode(&mut page, &text).expect("written");
    for line in [
        "controller_runtime_webhook_requests_total{webhook=\"/validate-apps-kruise-io-imagepulljob\",code=\"200\"} 4",
        "kruise_webhook_denials_total{webhook=\"/validate-apps-kruise-io-imagepulljob\"} 2",
        "controller_runtime_webhook_requests_in_flight{webhook=\"/validate-apps-kruise-io-imagepulljob\"} 0",
    ] {
        assert!(page.contains(line), "{line} in:\n{page}");
    }
}

#[tokio::test]
async fn a_closed_gate_denies_with_openkruises_words() {
    let (mut client, _stop, _) = served(Some("KruiseDaemon")).await;
    for hook in [Hook::ImageJob, Hook::Recreate, Hook::NodeImage] {
        let object = json!({"metadata": {"name": "a"}, "spec": {"image": "nginx", "images": {}, "podName": "p", "containers": []}});
        let answer = client
            .review(hook.path(), &review("v1beta1", &object, &Value::Null))
            .await;
        let status = &answer["response"]["status"];
        assert_eq!(status["code"], 403, "{hook:?} {answer}");
        assert_eq!(
            status["message"], "feature-gate KruiseDaemon is not enabled",
            "{hook:?}"
        );
    }
}

#[tokio::test]
async fn a_request_to_restart_is_completed_in_both_versions_and_fixed_afterwards() {
    let (mut client, _stop, _) = served(None).await;
    let path = Hook::Recreate.path();
    for version in ["v1alpha1", "v1beta1"] {
        let object = json!({"apiVersion": format!("apps.kruise.io/{version}"), "kind": "ContainerRecreateRequest",
            "metadata": {"name": "r", "namespace": "n"}, "spec": {"podName": "web-0", "containers": [{"name": "app"}]}});
        let answer = client.review(path, &review(version, &object, &Value::Null)).await;
        let stored = applied(&object, &answer);
        let container = &stored["spec"]["containers"][0];
        assert_eq!(
            container["statusContext"],
            json!({"containerID": "containerd://abc", "restartCount": 2})
        );
        assert_eq!(stored["spec"]["strategy"]["failurePolicy"], "Fail");
        assert_eq!(stored["spec"]["strategy"]["terminationGracePeriodSeconds"], 7);
        assert_eq!(
            stored["metadata"]["labels"]["crr.apps.kruise.io/node-name"],
            "node-1"
        );
        let answer = client.review(path, &review(version, &stored, &stored)).await;
        assert_eq!(applied(&stored, &answer), stored);
        let mut edited = stored.clone();
        edited["spec"]["activeDeadlineSeconds"] = json!(60);
        let answer = client.review(path, &review(version, &edited, &stored)).await;
        assert_eq!(answer["response"]["status"]["code"], 403, "{answer}");
    }
}

#[tokio::test]
async fn reads_that_fail_or_hang_are_answered() {
    let (mut client, _stop, _) = served(None).await;
    let path = Hook::Recreate.path();
    let ask = |pod: &str| {
        let object =
            json!({"metadata": {"name": "r"}, "spec": {"podName": pod, "containers": [{"name": "app"}]}});
        review("v1beta1", &object, &Value::Null)
    };
    let answer = client.review(path, &ask("broken")).await;
    assert_eq!(answer["response"]["status"]["code"], 500, "{answer}");
    let answer = client.review(path, &ask("nobody")).await;
    assert_eq!(
        answer["response"]["status"]["message"],
        "no found Pod named nobody"
    );
    let (status, _) = client.post(path, ask("slow").to_string().into_bytes()).await;
    assert_eq!(status, 504);
}

#[tokio::test]
async fn node_images_are_completed() {
    let (mut client, _stop, _) = served(None).await;
    let object = json!({"apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage", "metadata": {"name": "n"},
        "spec": {"images": {"nginx": {"tags": [{"tag": "2"}, {"tag": "1"}]}}}});
    let answer = client
        .review(
            Hook::NodeImageDefaults.path(),
            &review("v1beta1", &object, &Value::Null),
        )
        .await;
    let stored = applied(&object, &answer);
    let tags = &stored["spec"]["images"]["nginx"]["tags"];
    assert_eq!((&tags[0]["tag"], &tags[1]["tag"]), (&json!("1"), &json!("2")));
    assert!(tags[0]["createdAt"].is_string());
    let answer = client
        .review(Hook::NodeImage.path(), &review("v1beta1", &stored, &Value::Null))
        .await;
    assert_eq!(answer["response"]["allowed"], true, "{answer}");
}

fn set(version: &str, spec: &Value) -> Value {
    let mut object = json!({"apiVersion": format!("apps.kruise.io/{version}"), "kind": "CloneSet",
        "metadata": {"name": "web", "namespace": "n", "uid": "set-uid"},
        "spec": {"selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}});
    for (key, value) in spec.as_object().expect("fields") {
        object["spec"][key] = value.clone();
    }
    object
}

#[tokio::test]
async fn clone_sets_are_completed_in_both_versions_and_stay_complete() {
    let (mut client, _stop, _) = served(None).await;
    for (version, partition) in [
        ("v1alpha1", "/spec/updateStrategy/partition"),
        ("v1beta1", "/spec/updateStrategy/rollingUpdate/partition"),
    ] {
        let object = set(version, &json!({}));
        let path = Hook::CloneSetDefaults.path();
        let answer = client.review(path, &review(version, &object, &Value::Null)).await;
        let stored = applied(&object, &answer);
        assert_eq!(stored["spec"]["replicas"], 1);
        assert_eq!(stored.pointer(partition), Some(&json!(0)), "{stored}");
        let container = &stored["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["imagePullPolicy"], "Always");
        let answer = client.review(path, &review(version, &stored, &stored)).await;
        assert!(answer["response"]["patch"].is_null(), "{answer}");
        let path = Hook::CloneSet.path();
        let answer = client.review(path, &review(version, &stored, &Value::Null)).await;
        assert_eq!(answer["response"]["allowed"], true, "{answer}");
        // A change that cannot be made in place, of a set that allows no other.
        let mut strict = stored.clone();
        let policy = if version == "v1alpha1" {
            "type"
        } else {
            "podUpdatePolicy"
        };
        let strategy = partition.trim_end_matches("/partition");
        strict.pointer_mut(strategy).expect("there")[policy] = json!("InPlaceOnly");
        let mut other = strict.clone();
        other["spec"]["template"]["spec"]["hostname"] = json!("x");
        let answer = client.review(path, &review(version, &other, &strict)).await;
        let status = &answer["response"]["status"];
        assert_eq!(status["code"], 403, "{answer}");
        assert!(status["message"].to_string().contains("hostname"), "{status}");
    }
}

#[tokio::test]
async fn a_clone_set_that_cannot_be_is_denied_with_every_field() {
    let (mut client, _stop, _) = served(None).await;
    let path = Hook::CloneSet.path();
    let object = set(
        "v1beta1",
        &json!({"replicas": -1, "progressDeadlineSeconds": -5,
        "scaleStrategy": {"podsToDelete": ["stranger"]}}),
    );
    let answer = client
        .review(path, &review("v1beta1", &object, &Value::Null))
        .await;
    let status = &answer["response"]["status"];
    assert_eq!(
        (&status["code"], &status["reason"]),
        (&json!(422), &json!("Invalid")),
        "{answer}"
    );
    for field in ["spec.replicas", "spec.progressDeadlineSeconds", "podsToDelete"] {
        assert!(status["message"].to_string().contains(field), "{field}: {status}");
    }
    let mut labelled = object.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    let answer = client.review(path, &review("v1beta1", &labelled, &object)).await;
    assert_eq!(answer["response"]["allowed"], true, "labels may change: {answer}");
}

#[tokio::test]
async fn what_is_no_review_gets_a_text() {
    let (mut client, _stop, _) = served(None).await;
    let path = Hook::ImageJob.path();
    for (body, words) in [
        (&b"\xff\xfe"[..], "no JSON"),
        (b"", "no JSON"),
        (b"[1]", "no AdmissionReview"),
        (b"{\"request\": {\"uid\": 5}}", "request.uid"),
    ] {
        let (status, text) = client.post(path, body.to_vec()).await;
        assert_eq!(status, 400);
        let text = String::from_utf8_lossy(&text);
        assert!(text.contains(words), "{words}: {text}");
    }
    let (status, text) = client.post(convert::PATH, b"{}".to_vec()).await;
    assert!(
        status == 400 && String::from_utf8_lossy(&text).contains("ConversionReview"),
        "{text:?}"
    );
    let (status, _) = client.post("/elsewhere", Vec::new()).await;
    assert_eq!(status, 404);
    let (status, _) = client.post(path, vec![b' '; MAX_BODY + 1]).await;
    assert_eq!(status, 413);
}

#[tokio::test]
async fn a_new_certificate_is_used_without_a_restart_and_the_end_waits_for_requests() {
    let serving = Serving::default();
    let first = crate::trust::renew_for_tests(&serving, "localhost");
    let deps = Deps {
        serving: serving.clone(),
        lookup: Arc::new(OnePod),
        switched_off: None,
        gates: FeatureGates::default(),
        time: ServerClock::new(Monotonic::tokio()),
        metrics: WebhookMetrics::default(),
        traces: Traces::default(),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let stop = CancellationToken::new();
    let ended = tokio::spawn(serve(listener, deps, stop.clone()));
    let mut old = Client::connect(address, &first).await;
    let second = crate::trust::renew_for_tests(&serving, "localhost");
    let mut new = Client::connect(address, &second).await;
    let good = review("v1beta1", &job(&json!({"image": "a"})), &Value::Null);
    for client in [&mut old, &mut new] {
        let answer = client.review(Hook::ImageJob.path(), &good).await;
        assert_eq!(answer["response"]["allowed"], true);
    }
    stop.cancel();
    ended.await.expect("ends");
}
