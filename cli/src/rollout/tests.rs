//! The commands against an API server of a few lines.

use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::{Value, json};

use super::status::{Pace, Standing, standing};
use super::*;
use crate::args::Format;

const DOCUMENT: &str = include_str!("../../../docs/cloneset.md");

fn template(image: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": image}]},
    })
}

fn owner() -> Value {
    json!([{"apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet", "name": "web", "uid": "u", "controller": true}])
}

fn revision(number: i64, hash: &str, image: &str, cause: Option<&str>) -> Value {
    let mut template = template(image);
    template["$patch"] = "replace".into();
    json!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision",
        "metadata": {
            "name": format!("web-{hash}"), "ownerReferences": owner(),
            "annotations": cause.map(|cause| json!({"kubernetes.io/change-cause": cause})),
        },
        "revision": number,
        "data": {"spec": {"template": template}},
    })
}

fn pod(name: &str, hash: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "ownerReferences": owner(), "labels": {"controller-revision-hash": hash}},
    })
}

fn set(strategy: &Value) -> Value {
    json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet",
        "metadata": {"name": "web", "namespace": "default", "uid": "u", "resourceVersion": "7", "generation": 4},
        "spec": {
            "replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template("web:3"),
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": strategy},
        },
        "status": {
            "observedGeneration": 4, "replicas": 3, "updatedReplicas": 1, "updatedAvailableReplicas": 1,
            "expectedUpdatedReplicas": 3, "currentRevision": "web-two", "updateRevision": "web-three",
        },
    })
}

/// What the API server holds, and what it was sent.
#[derive(Default)]
struct Store {
    set: Value,
    pods: Vec<Value>,
    patches: Vec<Value>,
    /// So many patches are refused as if somebody had been quicker.
    conflicts: usize,
}

fn status(code: u16, reason: &str) -> (u16, Value) {
    let status =
        json!({"kind": "Status", "status": "Failure", "reason": reason, "message": reason, "code": code});
    (code, status)
}

impl Store {
    fn answer(&mut self, method: &Method, path: &str, body: &[u8]) -> (u16, Value) {
        let mut parts = path.rsplit('/');
        let last = parts.next().unwrap_or_default();
        let list = |items: Value| json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items});
        match (last, parts.next()) {
            ("web", Some("clonesets")) if *method == Method::PATCH => {
                let patch: Value = serde_json::from_slice(body).expect("JSON");
                assert_eq!(
                    patch["metadata"]["resourceVersion"], "7",
                    "guarded by the version read"
                );
                if self.conflicts > 0 {
                    self.conflicts -= 1;
                    return status(409, "Conflict");
                }
                self.patches.push(patch);
                (200, self.set.clone())
            }
            ("web", Some("clonesets")) if !self.set.is_null() => (200, self.set.clone()),
            ("pods", _) => (200, list(json!(self.pods))),
            (name, Some("pods")) => {
                let pod = self.pods.iter().find(|pod| pod["metadata"]["name"] == name);
                pod.map_or_else(|| status(404, "NotFound"), |pod| (200, pod.clone()))
            }
            ("controllerrevisions", _) => (
                200,
                list(json!([
                    revision(3, "three", "web:3", None),
                    revision(1, "one", "web:1", Some("first")),
                    revision(2, "two", "web:2", Some("faster search")),
                ])),
            ),
            _ => status(404, "NotFound"),
        }
    }
}

fn target(strategy: &Value) -> (Target, Arc<Mutex<Store>>) {
    let store = Arc::new(Mutex::new(Store {
        set: set(strategy),
        pods: vec![
            pod("web-a", "web-three"),
            pod("web-b", "web-two"),
            pod("web-c", "two"),
        ],
        ..Store::default()
    }));
    let shared = Arc::clone(&store);
    let service = tower::service_fn(move |request: Request<Body>| {
        let shared = Arc::clone(&shared);
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            let mut store = shared.lock().expect("not poisoned");
            let (code, answer) = store.answer(&parts.method, parts.uri.path(), &body);
            let mut response = Response::new(Body::from(answer.to_string().into_bytes()));
            *response.status_mut() = http::StatusCode::from_u16(code)?;
            Ok::<_, tower::BoxError>(response)
        }
    });
    let cluster = Cluster {
        client: kube::Client::new(service, "default"),
        namespace: "default".to_owned(),
        system: "kruise-system".to_owned(),
        server: Some("127.0.0.1:9".to_owned()),
    };
    (Target::of(cluster, "web".to_owned()), store)
}

fn spec_written(store: &Mutex<Store>) -> Value {
    let mut store = store.lock().expect("not poisoned");
    assert!(store.patches.len() <= 1, "one write");
    store
        .patches
        .pop()
        .map(|patch| patch["spec"].clone())
        .unwrap_or_default()
}

#[tokio::test]
async fn the_document_shows_what_history_prints() {
    let (target, _) = target(&json!({}));
    let text = history::told(&target, None, Format::Table).await.unwrap();
    assert!(
        DOCUMENT.contains(text.trim_end()),
        "docs/cloneset.md does not show:\n{text}"
    );
    let one = history::told(&target, Some(1), Format::Table).await.unwrap();
    assert!(one.contains("image: web:1") && !one.contains("$patch"), "{one}");
    assert!(history::told(&target, Some(9), Format::Table).await.is_err());
}

#[tokio::test]
async fn undo_goes_to_the_one_before_or_to_the_one_named() {
    let (target, store) = target(&json!({"paused": true}));
    let image =
        |image: &str| json!({"template": {"spec": {"containers": [{"name": "main", "image": image}]}}});
    let said = undo::undone(&target, 0, false).await.unwrap();
    assert!(
        said.starts_with("clone/web goes to revision 2 (web-two); it is paused"),
        "{said}"
    );
    assert_eq!(spec_written(&store), image("web:2"));
    undo::undone(&target, 1, true).await.unwrap();
    assert_eq!(spec_written(&store), Value::Null, "a dry run writes nothing");
    store.lock().unwrap().conflicts = 2;
    undo::undone(&target, 1, false).await.unwrap();
    assert_eq!(spec_written(&store), image("web:1"));
    let said = undo::undone(&target, 3, false).await.unwrap();
    assert!(said.contains("its template is that already"), "{said}");
    assert_eq!(spec_written(&store), Value::Null);
    let error = undo::undone(&target, 9, false).await.unwrap_err();
    assert!(
        crate::exit::chain(&error).contains("there are 1, 2, 3"),
        "{error:#}"
    );
}

#[tokio::test]
async fn a_set_that_changes_all_the_time_is_left_alone() {
    let (target, store) = target(&json!({}));
    store.lock().unwrap().conflicts = usize::MAX;
    let error = switch::switched(&target, true).await.unwrap_err();
    assert!(error.to_string().contains("nothing is done"), "{error:#}");
}

#[tokio::test]
async fn pause_and_resume_write_only_what_changes() {
    let (running, store) = target(&json!({}));
    assert_eq!(
        switch::switched(&running, true).await.unwrap(),
        "clone/web paused\n"
    );
    let paused = |paused: bool| json!({"updateStrategy": {"rollingUpdate": {"paused": paused}}});
    assert_eq!(spec_written(&store), paused(true));
    switch::switched(&running, false).await.unwrap();
    assert_eq!(spec_written(&store), Value::Null);
    let (stopped, store) = target(&json!({"paused": true}));
    assert_eq!(
        switch::switched(&stopped, false).await.unwrap(),
        "clone/web resumed\n"
    );
    assert_eq!(spec_written(&store), paused(false));
    store.lock().unwrap().set["spec"]["updateStrategy"] = json!({"type": "OnDelete"});
    assert!(
        switch::switched(&stopped, true)
            .await
            .unwrap_err()
            .to_string()
            .contains("OnDelete")
    );
}

#[tokio::test]
async fn a_restart_makes_pods_again_only_where_they_do_not_change_in_place() {
    let read = |strategy: Value| serde_json::from_value::<CloneSet>(set(&strategy)).unwrap();
    let in_place = read(json!({"podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": "50%"}));
    assert_eq!(switch::in_place_budget(&in_place, None), Some(2));
    assert_eq!(switch::in_place_budget(&in_place, Some(1)), Some(1));
    assert_eq!(switch::in_place_budget(&read(json!({})), None), None);
    let (target, store) = target(&json!({}));
    let now = "2026-01-31T12:00:00Z".parse().unwrap();
    assert_eq!(
        switch::made_again(&target, now).await.unwrap(),
        "clone/web restarts\n"
    );
    let annotation = &spec_written(&store)["template"]["metadata"]["annotations"];
    assert_eq!(
        annotation["kubectl.kubernetes.io/restartedAt"],
        "2026-01-31T12:00:00Z"
    );
}

#[tokio::test]
async fn scaling_down_names_pods_and_lowers_the_number_in_one_write() {
    let (target, store) = target(&json!({}));
    store.lock().unwrap().set["spec"]["scaleStrategy"] = json!({"podsToDelete": ["web-c"]});
    let pods = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let said = scale_down::scaled(&target, pods(&["web-b", "web-a", "web-b"]))
        .await
        .unwrap();
    assert_eq!(said, "clone/web from 3 to 1 pods; web-a, web-b to be deleted\n");
    assert_eq!(
        spec_written(&store),
        json!({"replicas": 1, "scaleStrategy": {"podsToDelete": ["web-c", "web-a", "web-b"]}})
    );
    store.lock().unwrap().pods.push(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "alien"},
    }));
    for (name, says) in [
        ("web-c", "podsToDelete already"),
        ("alien", "is not of"),
        ("web-x", "pod web-x"),
        ("", "give names"),
    ] {
        let error = scale_down::scaled(&target, pods(&[name])).await.unwrap_err();
        assert!(crate::exit::chain(&error).contains(says), "{name}: {error:#}");
    }
    store.lock().unwrap().set["spec"]["replicas"] = 1.into();
    let error = scale_down::scaled(&target, pods(&["web-a", "web-b"]))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("wants 1 pods"), "{error:#}");
    assert_eq!(spec_written(&store), Value::Null);
}

#[test]
fn the_status_decides_when_a_rollout_is_done() {
    let stands = |change: Value, strategy: Value| {
        let mut set = set(&strategy);
        for (key, value) in change.as_object().unwrap() {
            set["status"][key] = value.clone();
        }
        standing(&serde_json::from_value(set).unwrap())
    };
    let none = || json!({});
    let all = json!({"updatedReplicas": 3, "updatedAvailableReplicas": 3});
    for (change, strategy, wanted) in [
        (
            json!({"observedGeneration": 3}),
            none(),
            "goes the manager has not seen the last change yet",
        ),
        (none(), none(), "goes 1 of 3 pods updated, 1 of them available"),
        (
            none(),
            json!({"paused": true}),
            "goes 1 of 3 pods updated, 1 of them available (paused)",
        ),
        (
            json!({"updatedReplicas": 3}),
            none(),
            "goes 1 of 3 updated pods available",
        ),
        (
            json!({"updatedReplicas": 3, "updatedAvailableReplicas": 3, "replicas": 4}),
            none(),
            "goes 1 pods have yet to go",
        ),
        (all, none(), "done done: all 3 pods are on web-three"),
        (
            json!({"expectedUpdatedReplicas": 1}),
            json!({"partition": 2}),
            "done done: 1 of 3 pods are on web-three; the partition keeps the others",
        ),
        (
            json!({"conditions": [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "too slow"}]}),
            none(),
            "failed failed: too slow",
        ),
    ] {
        let text = match stands(change, strategy) {
            Standing::Done(text) => format!("done {text}"),
            Standing::Failed(text) => format!("failed {text}"),
            Standing::Goes(text) => format!("goes {text}"),
        };
        assert_eq!(text, wanted);
    }
}

#[test]
fn time_left_is_told_only_when_it_was_measured() {
    use std::time::Duration;
    let mut pace = Pace::default();
    let mut at = |seconds, done| {
        pace.look("web-three", Duration::from_secs(seconds), done);
        pace.left(10).map(|left| left.as_secs())
    };
    // What was there before, then the first one: nobody knows when its turn began.
    assert_eq!([at(0, 2), at(5, 3), at(6, 3)], [None, None, None]);
    // Two pods in ten seconds, five to go.
    assert_eq!(at(15, 5), Some(25));
    assert_eq!(at(40, 10), None);
    pace.look("web-four", Duration::from_secs(41), 1);
    assert_eq!(pace.left(10), None);
}

#[tokio::test]
async fn a_watch_ends_with_the_rollout_or_with_its_set() {
    let (target, store) = target(&json!({}));
    for (key, value) in [("updatedReplicas", 3), ("updatedAvailableReplicas", 3)] {
        store.lock().unwrap().set["status"][key] = value.into();
    }
    assert_eq!(status::watch(&target).await.unwrap(), Code::Success);
    assert_eq!(status::once(&target).await.unwrap(), Code::Success);
    store.lock().unwrap().set = Value::Null;
    assert!(status::watch(&target).await.is_err(), "it never was there");
}
