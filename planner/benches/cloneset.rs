//! How long a plan for a CloneSet takes, by the number of its pods. Prints one JSON document; run by `cargo xtask bench cloneset`.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark reads the clock and prints"
)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;

use jiff::{SignedDuration, Timestamp};
use kruise_api::clone_set::{CloneSet, names};
use kruise_planner::cloneset::{Gates, Phase, Play, PodView, Readiness, Writes, plan};
use serde_json::{Value, json};

const SIZES: [usize; 2] = [1_000, 10_000];
const BATCHES: usize = 9;
/// Pods that are planned for in a batch.
const BATCH_PODS: usize = 200_000;
const UID: &str = "7d6f59b2-fec9-433f-953a-0cbd79727cac";

/// What a pass finds to do.
#[derive(Clone, Copy)]
enum Case {
    /// Nothing.
    Settled,
    /// A new image, a tenth of the pods at a time, in place.
    InPlace,
    /// The same with weights, scattering and hooks.
    InPlaceOrdered,
    /// A new image, a tenth of the pods at a time, by making pods again.
    ReCreate,
    /// Half of the pods are too many.
    Shrink,
    /// Half of the pods are missing.
    Grow,
}

const CASES: [(Case, &str); 6] = [
    (Case::Settled, "noOp"),
    (Case::InPlace, "inPlace"),
    (Case::InPlaceOrdered, "inPlaceOrdered"),
    (Case::ReCreate, "reCreate"),
    (Case::Shrink, "scaleDown"),
    (Case::Grow, "scaleUp"),
];

fn template(image: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": image, "env": [{"name": "A", "value": "b"}]}]}
    })
}

fn set(case: Case, pods: usize) -> CloneSet {
    let replicas = match case {
        Case::Shrink => pods / 2,
        Case::Grow => pods * 2,
        _ => pods,
    };
    let policy = if matches!(case, Case::ReCreate) {
        "ReCreate"
    } else {
        "InPlaceIfPossible"
    };
    let mut spec = json!({
        "replicas": replicas,
        "selector": {"matchLabels": {"app": "web"}},
        "template": template("app:1"),
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"podUpdatePolicy": policy, "maxUnavailable": "10%"}},
    });
    if matches!(case, Case::InPlaceOrdered) {
        let rolling = &mut spec["updateStrategy"]["rollingUpdate"];
        rolling["priorityStrategy"] = json!({"weightPriority": [{"weight": 50, "matchSelector": {"matchLabels": {"track": "canary"}}}]});
        rolling["scatterStrategy"] = json!([{"key": "zone", "value": "a"}]);
        spec["lifecycle"] = json!({"inPlaceUpdate": {"labelsHandler": {"hook": "on"}}});
    }
    let mut set = CloneSet::new("web", serde_json::from_value(spec).expect("spec"));
    set.metadata.uid = Some(UID.to_owned());
    set.metadata.generation = Some(1);
    set
}

fn pod(index: usize, revision: &str, now: Timestamp) -> PodView {
    let name = format!("web-{index:05}");
    let zone = ["a", "b", "c"][index % 3];
    let track = if index.is_multiple_of(10) {
        "canary"
    } else {
        "stable"
    };
    let labels = [
        ("app", "web"),
        (names::INSTANCE_ID, &name[4..]),
        (names::REVISION, revision),
        (
            names::TEMPLATE_HASH,
            revision.rsplit('-').next().unwrap_or_default(),
        ),
        (names::LIFECYCLE_STATE, "Normal"),
        ("zone", zone),
        ("track", track),
        ("hook", "on"),
    ];
    let mut pod = PodView {
        uid: format!("uid-{index}"),
        controller: Some(UID.to_owned()),
        owners: vec![UID.to_owned()],
        labels: labels.into_iter().collect(),
        phase: Phase::Running,
        node: Some(format!("node-{}", index % 500)),
        ready: Readiness::Ready {
            since: now
                .checked_sub(SignedDuration::from_secs(
                    3600 + i64::try_from(index % 97).unwrap_or(0),
                ))
                .ok(),
        },
        containers_ready: true,
        in_place_gate: true,
        in_place_ready: Some(true),
        name,
        ..PodView::default()
    };
    pod.read_labels();
    pod
}

fn play(case: Case, pods: usize) -> Play {
    let now = Timestamp::from_second(1_800_000_000).expect("a time");
    let mut play = Play {
        set: set(case, pods),
        pods: Vec::new(),
        claims: Vec::new(),
        revisions: Vec::new(),
        jobs: Vec::new(),
        requests: Vec::new(),
        nodes: BTreeMap::new(),
        writes: Writes::default(),
        gates: Gates::default(),
        now,
    };
    let replicas = play.set.spec.replicas.replace(0);
    play.step();
    play.set.spec.replicas = replicas;
    let revision = play.revisions[0].name.clone();
    play.pods = (0..pods).map(|index| pod(index, &revision, now)).collect();
    if matches!(case, Case::InPlace | Case::InPlaceOrdered | Case::ReCreate) {
        play.set.spec.template = template("app:2");
    }
    if matches!(case, Case::Settled) {
        play.step();
    }
    play
}

/// Processor time that this thread has used, in milliseconds. Unlike the clock it says the same on a busy machine.
fn used(start: Instant) -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = stat
        .split_whitespace()
        .next()
        .and_then(|used| used.parse::<f64>().ok());
    nanoseconds.map_or_else(
        || start.elapsed().as_secs_f64() * 1000.0,
        |used| used / 1_000_000.0,
    )
}

/// Milliseconds of a plan, the median and the least of some batches, and how much it does. A batch is as long for few pods as for many, and long
/// beside the steps in which the kernel counts.
fn measure(case: Case, pods: usize) -> (f64, f64, usize) {
    let play = play(case, pods);
    let snapshot = play.snapshot();
    let start = Instant::now();
    let plans = u32::try_from(BATCH_PODS / pods).unwrap_or(1);
    let mut times: Vec<f64> = (0..BATCHES)
        .map(|_| {
            let before = used(start);
            for _ in 0..plans {
                black_box(plan(black_box(&snapshot)));
            }
            (used(start) - before) / f64::from(plans)
        })
        .collect();
    times.sort_by(f64::total_cmp);
    (times[BATCHES / 2], times[0], plan(&snapshot).actions.len())
}

fn main() {
    let mut report = serde_json::Map::new();
    for (case, name) in CASES {
        let mut figures = serde_json::Map::new();
        let mut medians = Vec::new();
        for pods in SIZES {
            let (median, fastest, actions) = measure(case, pods);
            medians.push(median);
            figures.insert(
                pods.to_string(),
                json!({"medianMs": rounded(median), "fastestMs": rounded(fastest), "actions": actions}),
            );
        }
        figures.insert("ratio".to_owned(), json!(rounded(medians[1] / medians[0])));
        report.insert(name.to_owned(), Value::Object(figures));
    }
    println!("{}", Value::Object(report));
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
