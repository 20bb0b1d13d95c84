//! In which order pods are updated.

use serde_json::{Value, json};

use super::line::rolling;
use super::world::{World, pods_of};
use crate::cloneset::scatter::spread;

/// Fields of rollingUpdate, labels of pods a, b, c, ... as `key=value`, and the order.
pub(super) fn cases() -> Vec<(&'static str, Value, Vec<&'static str>, &'static str)> {
    let weights = |terms: &[(i32, &str)]| {
        let terms: Vec<Value> = terms
            .iter()
            .map(|(weight, label)| {
                let (key, value) = label.split_once('=').unwrap();
                json!({"weight": weight, "matchSelector": {"matchLabels": {key: value}}})
            })
            .collect();
        json!({"priorityStrategy": {"weightPriority": terms}})
    };
    let keys = |keys: &[&str]| {
        let keys: Vec<Value> = keys.iter().map(|key| json!({"orderedKey": key})).collect();
        json!({"priorityStrategy": {"orderPriority": keys}})
    };
    let scatter = |terms: &[&str]| {
        let terms: Vec<Value> = terms
            .iter()
            .map(|label| {
                let (key, value) = label.split_once('=').unwrap();
                json!({"key": key, "value": value})
            })
            .collect();
        json!({"scatterStrategy": terms})
    };
    vec![
        ("by name at last", json!({}), vec!["", "", ""], "a b c"),
        (
            "heavier first",
            weights(&[(10, "t=x"), (90, "t=y")]),
            vec!["t=x", "t=y", ""],
            "b a c",
        ),
        (
            "weights add up",
            weights(&[(60, "t=x"), (40, "u=y"), (30, "v=z")]),
            vec!["t=x", "u=y v=z", ""],
            "b a c",
        ),
        (
            "number at the end, higher first",
            keys(&["i"]),
            vec!["i=sts-2", "i=sts-10", "i=none"],
            "b a c",
        ),
        (
            "first key wins",
            keys(&["i", "j"]),
            vec!["j=9", "i=1", "j=3 i=2"],
            "c b a",
        ),
        (
            "a pod without a key comes last",
            keys(&["i"]),
            vec!["", "i=1", "i=2"],
            "c b a",
        ),
        (
            "spread",
            scatter(&["t=x"]),
            vec!["t=x", "t=x", "", "", "", ""],
            "a c d e f b",
        ),
        (
            "spread of three",
            scatter(&["t=x"]),
            vec!["t=x", "t=x", "t=x", "", "", ""],
            "a d e b f c",
        ),
        (
            "spread of one does nothing",
            scatter(&["t=x"]),
            vec!["", "", "t=x", ""],
            "a b c d",
        ),
        (
            "a term that nobody matches",
            scatter(&["t=z"]),
            vec!["t=x", "", ""],
            "a b c",
        ),
    ]
}

#[test]
fn orders() {
    for (name, mut fields, labels, wanted) in cases() {
        fields["maxUnavailable"] = json!("100%");
        let mut world = World::new(rolling(i32::try_from(labels.len()).unwrap(), fields));
        for (index, labels) in labels.iter().enumerate() {
            let letter = char::from(b'a' + u8::try_from(index).unwrap());
            let pod = world.pod(&format!("web-{letter}"), 0);
            for label in labels.split_whitespace() {
                let (key, value) = label.split_once('=').unwrap();
                pod.set_label(key, Some(value));
            }
        }
        let order: Vec<String> = pods_of(&world.plan(), "UpdateInPlace")
            .iter()
            .map(|pod| pod.replace("web-", ""))
            .collect();
        assert_eq!(order.join(" "), wanted, "{name}");
    }
}

#[test]
fn a_spread_loses_and_doubles_nobody() {
    for chosen in 0..12 {
        for others in 0..12 {
            for extra in 0..4 {
                let order: Vec<usize> = (0..chosen + others).collect();
                let mut spread = spread(
                    &order,
                    |index| index < chosen,
                    chosen + extra,
                    chosen + others + extra + 3,
                );
                if chosen > 1 && others > 1 {
                    assert_eq!(spread.last(), Some(&(chosen - 1)), "the last one comes last");
                }
                spread.sort_unstable();
                assert_eq!(spread, order);
            }
        }
    }
}
