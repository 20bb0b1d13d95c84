//! The QoS class that a pod of a template gets.

use std::collections::BTreeMap;

use kruise_api::quantity::amount;
use serde_json::Value;

/// QoS class of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QosClass {
    Guaranteed,
    Burstable,
    BestEffort,
}

type Amounts = BTreeMap<&'static str, i128>;

/// The class of a pod with this spec. CPU and memory count, amounts of 0 do not, and a request that is left out is the limit, as the API
/// server makes it.
pub(super) fn class(spec: &Value) -> QosClass {
    let whole_pod = &spec["resources"];
    if whole_pod.is_object()
        && (!amounts(whole_pod, "limits").is_empty() || !amounts(whole_pod, "requests").is_empty())
    {
        return of([whole_pod].into_iter());
    }
    let lists = ["initContainers", "containers"];
    of(lists
        .into_iter()
        .flat_map(|list| spec[list].as_array().into_iter().flatten())
        .map(|container| &container["resources"]))
}

fn of<'a>(all: impl Iterator<Item = &'a Value>) -> QosClass {
    let (mut any, mut guaranteed, mut some) = (false, true, false);
    for resources in all {
        some = true;
        let limits = amounts(resources, "limits");
        let mut requests = limits.clone();
        requests.extend(amounts(resources, "requests"));
        any |= !requests.is_empty();
        guaranteed &= limits.len() == 2 && requests == limits;
    }
    match (any, guaranteed && some) {
        (false, _) => QosClass::BestEffort,
        (true, true) => QosClass::Guaranteed,
        (true, false) => QosClass::Burstable,
    }
}

fn amounts(resources: &Value, kind: &str) -> Amounts {
    let one = |name: &'static str| {
        let value = &resources[kind][name];
        let amount = match value {
            Value::String(text) => amount(text),
            Value::Number(number) => amount(&number.to_string()),
            _ => None,
        };
        amount.filter(|amount| *amount != 0).map(|amount| (name, amount))
    };
    ["cpu", "memory"].into_iter().filter_map(one).collect()
}
