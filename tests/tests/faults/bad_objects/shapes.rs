//! Objects with one field of an odd shape each.

use serde_json::{Value, json};

use self::Sort::{Either, Flag, List, Number, Object, Text};

/// A kind, an object of it that is in order, and the fields that are written wrong, with what they should be.
pub(crate) struct Kind {
    pub(super) kind: &'static str,
    pub(super) plural: &'static str,
    pub(super) cluster: bool,
    pub(super) spec: Value,
    pub(super) fields: &'static [(&'static str, Sort)],
}

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Text,
    Number,
    Flag,
    List,
    Object,
    /// A number or a text.
    Either,
}

/// Fields of both kinds of jobs.
const JOB: &[(&str, Sort)] = &[
    ("/selector", Object),
    ("/selector/names", List),
    ("/selector/names/0", Text),
    ("/pullPolicy", Object),
    ("/pullPolicy/timeoutSeconds", Number),
    ("/pullPolicy/backoffLimit", Number),
    ("/parallelism", Either),
    ("/completionPolicy", Object),
    ("/completionPolicy/type", Text),
    ("/completionPolicy/activeDeadlineSeconds", Number),
    ("/completionPolicy/ttlSecondsAfterFinished", Number),
    ("/pullSecrets", List),
    ("/pullSecrets/0", Text),
    ("/imagePullPolicy", Text),
    ("/sandboxConfig", Object),
    ("/sandboxConfig/labels", Object),
    ("/sandboxConfig/labels/a", Text),
    ("", Object),
];

const NODE_IMAGE: &[(&str, Sort)] = &[
    ("/images", Object),
    ("/images/nowhere.invalid~1a", Object),
    ("/images/nowhere.invalid~1a/tags", List),
    ("/images/nowhere.invalid~1a/tags/0", Object),
    ("/images/nowhere.invalid~1a/tags/0/tag", Text),
    ("/images/nowhere.invalid~1a/tags/0/version", Number),
    ("/images/nowhere.invalid~1a/tags/0/pullPolicy", Object),
    (
        "/images/nowhere.invalid~1a/tags/0/pullPolicy/timeoutSeconds",
        Number,
    ),
    ("/images/nowhere.invalid~1a/pullSecrets", List),
    ("/images/nowhere.invalid~1a/pullSecrets/0/name", Text),
];

const REQUEST: &[(&str, Sort)] = &[
    ("/podName", Text),
    ("/containers", List),
    ("/containers/0", Object),
    ("/containers/0/name", Text),
    ("/containers/0/preStop", Object),
    ("/containers/0/preStop/exec/command", List),
    ("/strategy", Object),
    ("/strategy/failurePolicy", Text),
    ("/strategy/orderedRecreate", Flag),
    ("/strategy/minStartedSeconds", Number),
    ("/activeDeadlineSeconds", Number),
    ("/ttlSecondsAfterFinished", Number),
];

const SET: &[(&str, Sort)] = &[
    ("/replicas", Number),
    ("/selector", Object),
    ("/selector/matchLabels", Object),
    ("/minReadySeconds", Number),
    ("/revisionHistoryLimit", Number),
    ("/scaleStrategy", Object),
    ("/scaleStrategy/podsToDelete", List),
    ("/scaleStrategy/enablePVCReuse", Flag),
    ("/updateStrategy", Object),
    ("/updateStrategy/type", Text),
    ("/updateStrategy/rollingUpdate", Object),
    ("/updateStrategy/rollingUpdate/partition", Either),
    ("/updateStrategy/rollingUpdate/paused", Flag),
    ("/lifecycle", Object),
    ("/lifecycle/preDelete", Object),
    ("/lifecycle/preDelete/labelsHandler", Object),
];

fn job(name: &str, images: &Value) -> Value {
    json!({
        name: images, "selector": {"names": ["nobody"]}, "parallelism": 1, "pullSecrets": ["none"],
        "pullPolicy": {"timeoutSeconds": 600, "backoffLimit": 1}, "imagePullPolicy": "IfNotPresent",
        "completionPolicy": {"type": "Always", "activeDeadlineSeconds": 3600, "ttlSecondsAfterFinished": 3600},
        "sandboxConfig": {"labels": {"a": "b"}},
    })
}

fn node_image() -> Value {
    json!({"images": {"nowhere.invalid/a": {
        "tags": [{"tag": "1", "version": 1, "pullPolicy": {"timeoutSeconds": 600}}],
        "pullSecrets": [{"namespace": "a", "name": "b"}],
    }}})
}

fn request() -> Value {
    json!({
        "podName": "nobody", "containers": [{"name": "main", "preStop": {"exec": {"command": ["a"]}}}],
        "strategy": {"failurePolicy": "Fail", "orderedRecreate": true, "minStartedSeconds": 1},
        "activeDeadlineSeconds": 60, "ttlSecondsAfterFinished": 3600,
    })
}

fn set() -> Value {
    let pod = json!({"containers": [{"name": "a", "image": "nowhere.invalid/a:1"}]});
    json!({
        "replicas": 0, "selector": {"matchLabels": {"app": "bad"}}, "minReadySeconds": 1, "revisionHistoryLimit": 3,
        "template": {"metadata": {"labels": {"app": "bad"}}, "spec": pod},
        "scaleStrategy": {"podsToDelete": ["a"], "enablePVCReuse": true},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0, "maxUnavailable": 1, "paused": true}},
        "lifecycle": {"preDelete": {"labelsHandler": {"a": "b"}, "markPodNotReady": false}},
    })
}

pub(super) fn kinds() -> [Kind; 5] {
    let one = |kind, plural, spec, fields| Kind {
        kind,
        plural,
        cluster: plural == "nodeimages",
        spec,
        fields,
    };
    let image = json!("nowhere.invalid/a:1");
    [
        one("ImagePullJob", "imagepulljobs", job("image", &image), JOB),
        one(
            "ImageListPullJob",
            "imagelistpulljobs",
            job("images", &json!([image])),
            JOB,
        ),
        one("NodeImage", "nodeimages", node_image(), NODE_IMAGE),
        one(
            "ContainerRecreateRequest",
            "containerrecreaterequests",
            request(),
            REQUEST,
        ),
        one("CloneSet", "clonesets", set(), SET),
    ]
}

/// What is written in place of what should be there, by what it is.
fn odd_values() -> Vec<(Sort, Value)> {
    let mut deep = json!({});
    for _ in 0..60 {
        deep = json!({"a": deep});
    }
    vec![
        (Text, json!("")),
        (Text, json!("no such thing \u{202e}\u{1f4a9}")),
        (Text, json!("x".repeat(300_000))),
        (Number, json!(-1)),
        (Number, json!(i64::MAX)),
        (Number, json!(1e300)),
        (Flag, json!(true)),
        (List, json!([])),
        (List, json!([[[]], null, -1])),
        (Object, json!({"a": {"b": [null]}})),
        (Object, deep),
    ]
}

/// An object that is written, and the field that its condition must name, if it must.
pub(super) struct Bad {
    pub(super) kind: usize,
    pub(super) name: String,
    pub(super) object: Value,
    /// The last part of the field's path, when what is in it is of another type than belongs there.
    pub(super) names: Option<String>,
}

pub(super) fn objects(kinds: &[Kind]) -> Vec<Bad> {
    let mut all = Vec::new();
    for (index, kind) in kinds.iter().enumerate() {
        for (field, right) in kind.fields {
            for (sort, value) in odd_values() {
                let mut spec = kind.spec.clone();
                *spec.pointer_mut(field).expect("the field is there") = value;
                let name = format!("bad-{}", all.len());
                let object = json!({
                    "apiVersion": "apps.kruise.io/v1beta1", "kind": kind.kind,
                    "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "bad-objects"}},
                    "spec": spec,
                });
                let fits =
                    sort == *right || *right == Sort::Either && matches!(sort, Sort::Text | Sort::Number);
                // Of a list's or map's own item, the list or the map is named.
                let last = field
                    .rsplit('/')
                    .find(|part| part.parse::<usize>().is_err() && !part.contains('~'));
                let last = last.filter(|part| !part.is_empty()).unwrap_or("spec");
                all.push(Bad {
                    kind: index,
                    name,
                    object,
                    names: (!fits).then(|| last.to_owned()),
                });
            }
        }
    }
    all
}
