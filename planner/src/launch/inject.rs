//! What a new pod is given.

use kruise_api::clone_set::names::{CONTAINER_BARRIER, CONTAINER_PRIORITY};
use serde_json::{Value, json};

use super::{ORDERED, PRIORITY, config_map, key};
use crate::letters::spell;
use crate::task::fnv64;

/// Longest name that is made of a generateName and a suffix, as the API server makes it.
const PREFIX: usize = 58;
/// Letters of the suffix.
const SUFFIX: usize = 5;

/// A priority that is no number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "container {container}: {CONTAINER_PRIORITY} is {value:?}; wanted is a whole number from -2147483647 to 2147483647"
)]
pub struct Refused {
    /// Name of the container.
    pub container: String,
    /// What it says.
    pub value: String,
}

/// The pod with a barrier in each container. None when its containers start together, or when it is of a shape that is not known here.
/// `seed` stands for chance: a pod that is to be named by the server gets its name from it, since the barriers speak of it.
///
/// # Errors
/// A priority that cannot be read.
pub fn inject(pod: &Value, seed: &str) -> Result<Option<Value>, Refused> {
    let Some(containers) = pod["spec"]["containers"].as_array() else {
        return Ok(None);
    };
    let shaped = |container: &Value| {
        container.is_object() && (container["env"].is_array() || container["env"].is_null())
    };
    if containers.len() < 2 || !containers.iter().all(shaped) {
        return Ok(None);
    }
    let priorities = priorities(pod, containers)?;
    let alike = priorities.windows(2).all(|pair| pair[0] == pair[1]);
    if alike {
        return Ok(None);
    }
    let Some(name) = name(pod, seed) else {
        return Ok(None);
    };
    let mut after = pod.clone();
    after["metadata"]["name"] = json!(name);
    let list = after["spec"]["containers"].as_array_mut();
    for (container, priority) in list.into_iter().flatten().zip(priorities) {
        let barrier = json!({
            "name": CONTAINER_BARRIER,
            "valueFrom": {"configMapKeyRef": {"name": config_map(&name), "key": key(priority)}},
        });
        // A webhook may be asked twice about one pod.
        let mut env = container["env"].as_array().cloned().unwrap_or_default();
        env.retain(|variable| variable["name"] != CONTAINER_BARRIER);
        env.push(barrier);
        container["env"] = json!(env);
    }
    Ok(Some(after))
}

fn priorities(pod: &Value, containers: &[Value]) -> Result<Vec<i32>, Refused> {
    if pod["metadata"]["annotations"][PRIORITY] == ORDERED {
        return Ok((0..).take(containers.len()).map(|place: i32| -place).collect());
    }
    containers.iter().map(priority).collect()
}

/// The last variable of a name counts, as for the kubelet.
fn priority(container: &Value) -> Result<i32, Refused> {
    let mut variables = container["env"].as_array().into_iter().flatten().rev();
    let Some(found) = variables.find(|variable| variable["name"] == CONTAINER_PRIORITY) else {
        return Ok(0);
    };
    let value = found["value"].as_str().unwrap_or_default();
    let read = value.parse().ok().filter(|number| *number != i32::MIN);
    read.ok_or_else(|| Refused {
        container: container["name"].as_str().unwrap_or_default().to_owned(),
        value: value.to_owned(),
    })
}

fn name(pod: &Value, seed: &str) -> Option<String> {
    let text = |field: &str| pod["metadata"][field].as_str().filter(|text| !text.is_empty());
    if let Some(name) = text("name") {
        return Some(name.to_owned());
    }
    let prefix: String = text("generateName")?.chars().take(PREFIX).collect();
    Some(format!("{prefix}{}", spell(fnv64(seed.as_bytes()), SUFFIX)))
}
