//! Hundreds of objects with anything anywhere: each is answered, and the server is well afterwards.

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Map, Number};

use super::*;

const COUNT: u64 = 600;

/// Whole objects of every kind, to have something that can be broken.
fn wholes() -> Vec<(&'static str, Value)> {
    let selector = json!({"names": ["a"], "matchLabels": {"a": "b"}, "matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]});
    let job = json!({"image": "nginx:1", "pullSecrets": ["s"], "selector": selector, "podSelector": {"matchLabels": {"a": "b"}},
        "parallelism": 3, "pullPolicy": {"timeoutSeconds": 1, "backoffLimit": 1}, "imagePullPolicy": "Always",
        "completionPolicy": {"type": "Always", "activeDeadlineSeconds": 9, "ttlSecondsAfterFinished": 9},
        "sandboxConfig": {"labels": {"a": "b"}, "annotations": {"a": "b"}}});
    let mut list = job.clone();
    list["images"] = json!(["nginx:1", "redis"]);
    let tag = json!({"tag": "1", "createdAt": "2026-01-01T00:00:00Z", "version": 1, "imagePullPolicy": "Always",
        "ownerReferences": [{"kind": "ImagePullJob"}],
        "pullPolicy": {"timeoutSeconds": 1, "backoffLimit": 1, "ttlSecondsAfterFinished": 1}});
    let image =
        json!({"images": {"nginx": {"pullSecrets": [{"name": "s", "namespace": "n"}], "tags": [tag]}}});
    let recreate = json!({"podName": "web-0", "containers": [{"name": "app"}], "activeDeadlineSeconds": 5, "ttlSecondsAfterFinished": 5,
        "strategy": {"failurePolicy": "Fail", "orderedRecreate": true, "unreadyGracePeriodSeconds": 1, "minStartedSeconds": 1}});
    let set = json!({"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "updateStrategy": {"type": "InPlaceIfPossible",
        "partition": "50%", "maxUnavailable": 1, "priorityStrategy": {"orderPriority": [{"orderedKey": "k"}]}},
        "scaleStrategy": {"podsToDelete": ["p"]}, "lifecycle": {"preDelete": {"labelsHandler": {"a": "b"}}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}});
    let pod = json!({"readinessGates": [{"conditionType": "x"}], "containers": []});
    [
        (Hook::ImageJob.path(), job),
        (Hook::ImageList.path(), list),
        (Hook::NodeImageDefaults.path(), image.clone()),
        (Hook::NodeImage.path(), image),
        (Hook::Recreate.path(), recreate),
        (Hook::Pod.path(), pod),
        (Hook::CloneSetDefaults.path(), set.clone()),
        (Hook::CloneSet.path(), set.clone()),
        (convert::PATH, set),
    ]
    .into_iter()
    .map(|(path, spec)| {
        let object = json!({"apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet", "spec": spec, "status": {"desired": 1},
            "metadata": {"name": "x", "namespace": "n", "labels": {"a": "b"}, "creationTimestamp": "2026-01-01T00:00:00Z",
                "annotations": {"pull.kruise.io/priority": "5", "apps.kruise.io/image-predownload-parallelism": "3"},
                "ownerReferences": [{"apiVersion": "apps.kruise.io/v1", "controller": true}]}});
        (path, object)
    })
    .collect()
}

/// Something that does not belong there.
fn odd(random: &mut StdRng) -> Value {
    match random.random_range(0..14) {
        0 => Value::Null,
        1 => json!(-1),
        2 => json!(i64::MAX),
        3 => json!(u64::MAX),
        4 => Value::Number(Number::from_f64(1e300).expect("finite")),
        5 => json!(""),
        6 => json!("\u{0}\u{202e}é%"),
        7 => json!("x".repeat(100_000)),
        8 => json!("99999999999999999999%"),
        9 => json!([]),
        10 => json!(vec![json!({"name": "x"}); 2_000]),
        11 => json!({"": {"": ""}}),
        12 => json!(true),
        _ => (0..100).fold(json!(1), |inner, _| json!({"d": inner})),
    }
}

/// Puts something odd, or nothing, at one to three places.
fn break_it(value: &mut Value, random: &mut StdRng) {
    for _ in 0..random.random_range(1..=3) {
        let odd = odd(random);
        *somewhere(value, random) = odd;
    }
}

fn somewhere<'a>(value: &'a mut Value, random: &mut StdRng) -> &'a mut Value {
    let count = match value {
        Value::Object(fields) => fields.len(),
        Value::Array(items) => items.len(),
        _ => 0,
    };
    if count == 0 || random.random_range(0..4) == 0 {
        return value;
    }
    let index = random.random_range(0..count);
    match value {
        Value::Object(fields) => somewhere(fields.values_mut().nth(index).expect("counted"), random),
        Value::Array(items) => somewhere(&mut items[index], random),
        other => other,
    }
}

#[tokio::test]
async fn every_malformed_object_is_answered() {
    let (mut client, _stop, _) = served(None).await;
    let wholes = wholes();
    let mut answers: BTreeMap<u16, usize> = BTreeMap::new();
    let mut denied = 0;
    for seed in 0..COUNT {
        let mut random = StdRng::seed_from_u64(seed);
        let (path, whole) = &wholes[random.random_range(0..wholes.len())];
        let mut object = whole.clone();
        break_it(&mut object, &mut random);
        let old = if random.random() {
            whole.clone()
        } else {
            Value::Null
        };
        let body = if *path == convert::PATH {
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
                "request": {"uid": "u", "desiredAPIVersion": "apps.kruise.io/v1beta1", "objects": [object]}})
        } else {
            review("v1beta1", &object, &old)
        };
        let (status, answer) = client.post(path, body.to_string().into_bytes()).await;
        *answers.entry(status).or_default() += 1;
        let answer: Map<String, Value> = serde_json::from_slice(&answer).unwrap_or_else(|_| {
            json!({"text": String::from_utf8_lossy(&answer)})
                .as_object()
                .expect("made")
                .clone()
        });
        let response = answer.get("response").cloned().unwrap_or_default();
        if response["allowed"] == false {
            denied += 1;
            let message = response["status"]["message"].as_str().unwrap_or_default();
            assert!(!message.is_empty(), "seed {seed}: {response}");
        }
        assert!(
            status == 200 || answer.contains_key("text"),
            "seed {seed}: {status}"
        );
    }
    assert!(denied > COUNT / 4, "{denied} denied, {answers:?}");
    // It still answers, and rightly.
    let good = review("v1beta1", &job(&json!({"image": "a"})), &Value::Null);
    let answer = client.review(Hook::ImageJob.path(), &good).await;
    assert_eq!(answer["response"]["allowed"], true);
}
