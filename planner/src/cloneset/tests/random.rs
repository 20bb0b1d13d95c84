//! Whatever the set and its pods look like, the promises hold and the set comes to what is wanted.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::world::{World, waits};
use crate::cloneset::*;
use kruise_api::clone_set::names;

fn number_or_percent(most: i32) -> impl Strategy<Value = Value> {
    prop_oneof![
        3 => (0..=most).prop_map(|number| json!(number)),
        1 => prop::sample::select(vec!["0%", "1%", "20%", "33%", "50%", "99%", "100%"]).prop_map(|text| json!(text)),
    ]
}

fn limits() -> impl Strategy<Value = Value> {
    let unavailable = prop::option::weighted(0.8, number_or_percent(5));
    (number_or_percent(8), unavailable, number_or_percent(3), 0..3_u8, any::<bool>()).prop_map(
        |(partition, unavailable, surge, policy, paused)| {
            let policy = ["ReCreate", "InPlaceIfPossible", "InPlaceOnly"][usize::from(policy)];
            let mut rolling = json!({"partition": partition, "podUpdatePolicy": policy, "paused": paused && policy == "ReCreate"});
            if let Some(unavailable) = unavailable {
                rolling["maxUnavailable"] = unavailable;
            }
            if policy != "InPlaceOnly" {
                rolling["maxSurge"] = surge;
            }
            rolling
        },
    )
}

fn lifecycle() -> impl Strategy<Value = Value> {
    let hook = |name: &'static str| {
        prop::option::of(any::<bool>()).prop_map(move |mark| {
            mark.map(|mark| json!({"labelsHandler": {format!("hook/{name}"): "on"}, "markPodNotReady": mark}))
        })
    };
    (hook("delete"), hook("update"), hook("normal")).prop_map(|(delete, update, normal)| {
        let mut hooks = serde_json::Map::new();
        for (key, hook) in [
            ("preDelete", delete),
            ("inPlaceUpdate", update),
            ("preNormal", normal),
        ] {
            if let Some(hook) = hook {
                hooks.insert(key.to_owned(), hook);
            }
        }
        Value::Object(hooks)
    })
}

fn spec() -> impl Strategy<Value = Value> {
    let scale = prop::option::weighted(0.2, number_or_percent(4));
    (
        0..9_i32,
        limits(),
        prop::option::weighted(0.4, lifecycle()),
        prop::sample::select(vec![0, 0, 10]),
        scale,
        any::<bool>(),
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.3),
    )
        .prop_map(
            |(replicas, rolling, lifecycle, min_ready, scale, reuse, exclude, claims)| {
                let mut spec = json!({
                    "replicas": replicas,
                    "minReadySeconds": min_ready,
                    "scaleStrategy": {"enablePVCReuse": reuse, "excludePreparingDelete": exclude},
                    "updateStrategy": {"rollingUpdate": rolling},
                });
                if let Some(lifecycle) = lifecycle {
                    spec["lifecycle"] = lifecycle;
                }
                if let Some(scale) = scale {
                    spec["scaleStrategy"]["maxUnavailable"] = scale;
                }
                if claims {
                    spec["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": {}}]);
                }
                spec
            },
        )
}

/// What is so about a pod.
#[derive(Clone, Debug)]
struct Odd {
    revision: usize,
    ready: u8,
    state: u8,
    marked: bool,
    hooks: u8,
    gone: u8,
    node: bool,
    cost: i32,
}

fn odd() -> impl Strategy<Value = Odd> {
    (
        0..2_usize,
        0..6_u8,
        prop_oneof![5 => Just(2_u8), 2 => 0..7_u8],
        prop::bool::weighted(0.15),
        0..8_u8,
        prop_oneof![8 => Just(0_u8), 1 => 1..4_u8],
        prop::bool::weighted(0.9),
        -2..3_i32,
    )
        .prop_map(|(revision, ready, state, marked, hooks, gone, node, cost)| Odd {
            revision,
            ready,
            state,
            marked,
            hooks,
            gone,
            node,
            cost,
        })
}

fn add(world: &mut World, index: usize, odd: &Odd) {
    const STATES: [&str; 7] = [
        "",
        "PreparingNormal",
        "Normal",
        "PreparingUpdate",
        "Updating",
        "Updated",
        "PreparingDelete",
    ];
    let now = world.play.now;
    let pod = world.pod(&format!("web-{index:05}"), odd.revision);
    let state = STATES[usize::from(odd.state)];
    pod.set_label(
        names::LIFECYCLE_STATE,
        Some(state).filter(|state| !state.is_empty()),
    );
    if odd.marked {
        pod.set_label(names::SPECIFIED_DELETE, Some("false"));
    }
    for (bit, name) in ["delete", "update", "normal"].iter().enumerate() {
        if odd.hooks & (1 << bit) != 0 {
            pod.set_label(&format!("hook/{name}"), Some("on"));
        }
    }
    match odd.ready {
        0 => pod.ready = Readiness::NotReady,
        1 => pod.ready = Readiness::Ready { since: Some(now) },
        _ => {}
    }
    if state == "Updating" {
        pod.in_place_ready = Some(false);
        pod.ready = Readiness::NotReady;
        pod.in_place.unfinished = vec!["main".to_owned()];
    }
    match odd.gone {
        1 => pod.terminating = true,
        2 => pod.phase = Phase::Failed,
        3 => pod.phase = Phase::Unknown,
        _ => {}
    }
    if !odd.node {
        pod.node = None;
        pod.phase = Phase::Pending;
        pod.ready = Readiness::Absent;
    }
    pod.deletion_cost = odd.cost;
}

fn world() -> impl Strategy<Value = World> {
    (
        spec(),
        prop::collection::vec(odd(), 0..12),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(spec, pods, rollback, settled, short)| {
            let mut world = if settled {
                World::settled(spec)
            } else {
                World::new(spec)
            };
            world.play.gates.partition_rollback = rollback;
            world.play.gates.short_hash = short;
            for (index, odd) in pods.iter().enumerate() {
                add(&mut world, index, odd);
            }
            world
        })
}

/// The user's controller: takes hooks away where a pod waits for that, and puts them back.
fn user(world: &mut World) -> bool {
    let mut moved = false;
    for pod in &mut world.play.pods {
        let before = pod.labels.clone();
        match pod.state {
            LifecycleState::PreparingDelete => pod.set_label("hook/delete", None),
            LifecycleState::PreparingUpdate => pod.set_label("hook/update", None),
            LifecycleState::Updated => pod.set_label("hook/update", Some("on")),
            LifecycleState::PreparingNormal => pod.set_label("hook/normal", Some("on")),
            _ => {}
        }
        moved |= pod.labels != before;
    }
    moved
}

/// Plays until nothing moves any more.
fn play_out(world: &mut World) -> CloneSetPlan {
    for _ in 0..400 {
        let step = world.step();
        let ended = world.play.pods.len();
        world.play.pods.retain(|pod| pod.phase != Phase::Failed);
        let moved = user(world) || world.play.pods.len() != ended;
        if step.settled && !moved {
            return step.plan;
        }
    }
    panic!("does not settle: {:#?}\n{:#?}", world.plan(), world.play.set.spec);
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 4000, ..ProptestConfig::default() })]

    /// From any state, with everybody well, the set comes to what is wanted, and then nothing is written any more.
    #[test]
    fn every_set_comes_to_what_is_wanted(mut world in world()) {
        let end = play_out(&mut world);
        let spec = world.play.set.spec.clone();
        let limits = Limits::of(&spec);
        let total = i64::try_from(world.play.pods.len()).unwrap();
        prop_assert!(end.actions.is_empty() && !end.write_status);
        let blocked = limits.scale_limit == Some(0);
        if !blocked {
            prop_assert!(total >= limits.replicas, "{total} pods, {:#?}", end);
        }
        let held = waits(&end, Reason::DeletionBudget).is_some() || waits(&end, Reason::MaxUnavailable).is_some();
        let stuck = limits.max_unavailable == 0 && limits.max_surge == 0;
        // A pod that has prepared goes on doing so while the update is paused, and uses the budget.
        let prepares = world.play.pods.iter().any(|pod| pod.state == LifecycleState::PreparingUpdate);
        if !stuck && !blocked && !prepares {
            prop_assert!(!held, "{:#?}\n{:#?}", end, spec);
            prop_assert_eq!(total, limits.replicas, "{:#?}\n{:#?}", end, spec);
            if !limits.paused {
                let updated = i64::from(end.status.updated_replicas);
                let expected = i64::from(end.status.expected_updated_replicas);
                let settled = end.current_revision == end.update_revision;
                prop_assert!(updated >= expected || settled, "{updated} of {expected} {:#?}", end);
            }
            prop_assert_eq!(i64::from(end.status.available_replicas), total, "{:#?}", end);
        }
    }

    /// The promises hold for whatever state a set is found in.
    #[test]
    fn promises_hold_in_any_state(world in world()) {
        world.plan();
    }
}
