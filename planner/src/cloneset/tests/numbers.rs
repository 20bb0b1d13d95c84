//! The limits, and the ten numbers.

use serde_json::{Value, json};

use super::line::{line, rolling};
use super::world::World;
use crate::cloneset::*;

/// Replicas, fields of rollingUpdate; partition, maxUnavailable, maxSurge.
pub(super) fn limit_cases() -> Vec<(i32, Value, [i64; 3])> {
    vec![
        (10, json!({}), [0, 2, 0]),
        (4, json!({}), [0, 1, 0]),
        (4, json!({"maxSurge": 1}), [0, 0, 1]),
        (0, json!({}), [0, 0, 0]),
        (10, json!({"partition": "99%"}), [9, 2, 0]),
        (10, json!({"partition": "100%"}), [10, 2, 0]),
        (10, json!({"partition": "1%"}), [1, 2, 0]),
        (1, json!({"partition": "1%"}), [1, 1, 0]),
        (1, json!({"partition": "99%"}), [1, 1, 0]),
        (2, json!({"partition": "51%"}), [1, 1, 0]),
        (10, json!({"partition": 10}), [10, 2, 0]),
        (10, json!({"partition": 50}), [10, 2, 0]),
        (10, json!({"partition": "150%"}), [10, 2, 0]),
        (10, json!({"partition": "x"}), [10, 2, 0]),
        (10, json!({"partition": "33.3%"}), [4, 2, 0]),
        (5, json!({"maxUnavailable": "30%"}), [0, 2, 0]),
        (5, json!({"maxUnavailable": "30%", "maxSurge": "30%"}), [0, 1, 2]),
        (
            5,
            json!({"maxUnavailable": "30%", "maxSurge": "30%", "paused": true}),
            [0, 2, 2],
        ),
        (1000, json!({"maxUnavailable": "33.3%"}), [0, 333, 0]),
        (10, json!({"maxUnavailable": "200%"}), [0, 20, 0]),
        (10, json!({"maxUnavailable": "x"}), [0, 0, 0]),
        (10, json!({"maxSurge": "5%"}), [0, 2, 1]),
    ]
}

#[test]
fn limits() {
    for (replicas, fields, wanted) in limit_cases() {
        let spec: kruise_api::clone_set::CloneSetSpec = serde_json::from_value({
            let mut spec = rolling(replicas, fields.clone());
            spec["selector"] = json!({});
            spec["template"] = json!({});
            spec
        })
        .unwrap();
        let limits = Limits::of(&spec);
        let found = [limits.partition, limits.max_unavailable, limits.max_surge];
        assert_eq!(found, wanted, "{replicas} {fields}");
    }
    let without = kruise_api::clone_set::CloneSetSpec {
        replicas: Some(3),
        ..Default::default()
    };
    assert_eq!(
        Limits::of(&without).max_unavailable,
        1,
        "a marked pod of a small OnDelete set is deleted"
    );
}

/// What it shows, spec, pods, numbers in the order of their names in the documents.
type Case = (&'static str, Value, &'static str, [i64; 10]);

pub(super) fn number_cases() -> Vec<Case> {
    let re = |replicas, mut fields: Value| {
        fields["podUpdatePolicy"] = json!("ReCreate");
        rolling(replicas, fields)
    };
    let mut scale_limit = re(10, json!({}));
    scale_limit["scaleStrategy"] = json!({"maxUnavailable": 3});
    let mut exclude = re(3, json!({}));
    exclude["scaleStrategy"] = json!({"excludePreparingDelete": true});
    // updateNum updateMaxUnavailable useSurge useSurgeOld up upOld upLimit down downOld deleteReady
    vec![
        (
            "nothing to do",
            re(3, json!({})),
            "n n n",
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ),
        (
            "from nothing, all new",
            re(3, json!({})),
            "",
            [0, 0, 0, 0, 3, 0, 3, 0, 0, 0],
        ),
        (
            "from nothing, some old",
            re(5, json!({"partition": 3})),
            "",
            [0, 0, 0, 0, 5, 3, 5, 0, 0, 0],
        ),
        (
            "all to be updated",
            re(5, json!({})),
            "o o o o o",
            [5, 1, 0, 0, 0, 0, 0, 0, 0, 0],
        ),
        (
            "a partition",
            re(5, json!({"partition": 3})),
            "o o o o o",
            [2, 1, 0, 0, 0, 0, 0, 0, 0, 0],
        ),
        (
            "a raised partition",
            re(5, json!({"partition": 3})),
            "o o n n n",
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ),
        (
            "surge",
            re(5, json!({"maxSurge": 1})),
            "o o o o o",
            [5, 1, 1, 0, 1, 0, 1, 0, 0, 0],
        ),
        (
            "surge made",
            re(5, json!({"maxSurge": 1})),
            "o o o o o n",
            [4, 2, 1, 0, 0, 0, 0, 0, 0, 0],
        ),
        (
            "one missing, old",
            re(5, json!({"partition": 3})),
            "o o n n",
            [0, 0, 0, 0, 1, 1, 1, 0, 0, 0],
        ),
        (
            "one missing, new",
            re(5, json!({"partition": 3})),
            "o o o n",
            [0, 0, 0, 0, 1, 0, 1, 0, 0, 0],
        ),
        (
            "too many",
            re(3, json!({})),
            "n n n n n",
            [0, 0, 0, 0, 0, 0, 0, 2, 0, 3],
        ),
        (
            "too many, old and new",
            re(3, json!({"partition": 1})),
            "o o o n n",
            [0, 0, 0, 0, 0, 0, 0, 2, 2, 3],
        ),
        (
            "one marked",
            re(5, json!({})),
            "n n n n nm",
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        ),
        (
            "one marked, one broken",
            re(5, json!({})),
            "n n n n! nm",
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ),
        (
            "marked with surge",
            re(5, json!({"maxUnavailable": 0, "maxSurge": 1})),
            "n n n n nm",
            [0, 0, 1, 0, 1, 0, 1, 0, 0, 0],
        ),
        (
            "marked old with surge",
            re(5, json!({"maxUnavailable": 0, "maxSurge": 1, "partition": 5})),
            "o o o o om",
            [0, 0, 1, 1, 1, 1, 1, 0, 0, 0],
        ),
        (
            "marked with surge while paused",
            re(5, json!({"maxUnavailable": 0, "maxSurge": 1, "paused": true})),
            "n n n n nm",
            [0, 0, 1, 0, 1, 0, 1, 0, 0, 0],
        ),
        (
            "no update surge while paused",
            re(5, json!({"maxSurge": 1, "paused": true})),
            "o o o o o",
            [5, 1, 0, 0, 0, 0, 0, 0, 0, 0],
        ),
        (
            "creation limited",
            scale_limit.clone(),
            "n n! n!",
            [0, 0, 0, 0, 7, 0, 1, 0, 0, 0],
        ),
        (
            "creation stopped",
            scale_limit,
            "n! n! n!",
            [0, 0, 0, 0, 7, 0, 0, 0, 0, 0],
        ),
        (
            "one leaving",
            re(3, json!({})),
            "n n n nl",
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ),
        (
            "one leaving, not counted",
            exclude,
            "n n nl",
            [0, 0, 0, 0, 1, 0, 1, 0, 0, 0],
        ),
        (
            "leaving ones are taken off before shrinking",
            re(2, json!({})),
            "n n n nl",
            [0, 0, 0, 0, 0, 0, 0, 1, 0, 2],
        ),
        (
            "in place with surge needs none",
            rolling(5, json!({"partition": 3, "maxUnavailable": 1, "maxSurge": 1})),
            "o o o o o",
            [2, 1, 0, 0, 0, 0, 0, 0, 0, 0],
        ),
        (
            "in place without maxUnavailable needs surge",
            rolling(5, json!({"partition": 3, "maxUnavailable": 0, "maxSurge": 1})),
            "o o o o o",
            [2, 0, 1, 0, 1, 0, 1, 0, 0, 0],
        ),
        (
            "a missing pod takes from the budget",
            re(5, json!({})),
            "o o o o",
            [4, 0, 0, 0, 1, 0, 1, 0, 0, 0],
        ),
        (
            "preparing counts as new when scaled",
            rolling(5, json!({"partition": 4})),
            "o o o op",
            [0, 0, 0, 0, 1, 1, 1, 0, 0, 0],
        ),
    ]
}

#[test]
fn numbers() {
    for (name, spec, pods, wanted) in number_cases() {
        let mut world = World::new(spec);
        line(&mut world, pods);
        let n = world.plan().numbers;
        let found = [
            n.update_num,
            n.update_max_unavailable,
            n.use_surge,
            n.use_surge_old_revision,
            n.scale_up_num,
            n.scale_up_num_old_revision,
            n.scale_up_limit,
            n.scale_down_num,
            n.scale_down_num_old_revision,
            n.delete_ready_limit,
        ];
        assert_eq!(found, wanted, "{name}: {n:?}");
    }
}

#[test]
fn a_raised_partition_moves_pods_back_only_with_the_gate() {
    for (gate, wanted) in [(false, 0), (true, -1)] {
        let mut world = World::new(rolling(5, json!({"partition": 3})));
        world.play.gates.partition_rollback = gate;
        line(&mut world, "o o n n n");
        assert_eq!(world.plan().numbers.update_num, wanted);
    }
}
