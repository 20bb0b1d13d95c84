//! How far the change of a pod is, judged by what the kubelet and the agent report.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use kruise_api::clone_set::names;
use kruise_api::quantity;
use kruise_api::reference::ImageRef;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Options;
use super::state::{Grace, State};
use crate::revision::{self, fnv1a_of_text};

/// How far the change of a pod is. All empty for one that is done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Revision of a change that waits for its grace period, and when that is over; none means at once.
    pub grace: Option<(String, Option<Timestamp>)>,
    /// Containers that have not come to their new state.
    pub unfinished: Vec<String>,
    /// A batch is left to be written; these containers of the present one are not ready yet.
    pub next: Option<Vec<String>>,
}

impl Progress {
    /// Whether nothing of the change is left to do.
    #[must_use]
    pub const fn is_finished(&self) -> bool {
        self.grace.is_none() && self.unfinished.is_empty() && self.next.is_none()
    }
}

/// Annotation that is written for the node: what each container was started from.
#[derive(Debug, Default, Deserialize)]
struct RuntimeContainers {
    #[serde(default)]
    containers: Vec<RuntimeContainer>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RuntimeContainer {
    name: String,
    #[serde(rename = "containerID")]
    container_id: String,
    hashes: Hashes,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Hashes {
    plain_hash: u64,
    extracted_env_from_metadata_hash: u64,
}

/// How far the change of a pod is.
#[must_use]
pub fn progress(pod: &Pod, options: Options) -> Progress {
    let state = State::of(pod);
    let grace = Grace::of(pod).map(|grace| {
        let ends = grace.ends(state.as_ref());
        (grace.revision, ends)
    });
    let Some(state) = state else {
        return Progress {
            grace,
            ..Progress::default()
        };
    };
    let next = state.has_next().then(|| {
        let required = state.pre_check_before_next.clone().unwrap_or_default();
        let mut waits = required.containers_required_ready;
        waits.retain(|name| !status(pod, name).is_some_and(|status| status.ready));
        waits
    });
    Progress {
        grace,
        unfinished: unfinished(pod, &state, options),
        next,
    }
}

/// Containers that have not come to the state that was written last.
#[must_use]
pub fn unfinished(pod: &Pod, state: &State, options: Options) -> Vec<String> {
    let runtime = runtime_containers(pod);
    let containers: Vec<&Container> = pod.spec.iter().flat_map(|spec| &spec.containers).collect();
    let names = |fails: &dyn Fn(&Container) -> bool| -> Vec<String> {
        let failing = containers.iter().filter(|container| fails(container));
        failing.map(|container| container.name.clone()).collect()
    };
    if state.update_env_from_metadata {
        let stale = names(&|container| !env_is_current(pod, container, runtime.as_ref()));
        if !stale.is_empty() {
            return stale;
        }
    }
    if options.vertical_scaling && state.update_resources {
        let differing = names(&|container| !resources_are_current(pod, container));
        if !differing.is_empty() {
            return differing;
        }
    }
    if let Some(runtime) = &runtime
        && names(&|container| !plain_is_current(pod, container, runtime)).is_empty()
    {
        return Vec::new();
    }
    let records = state.last_container_statuses.iter().flatten();
    records
        .filter(|(name, record)| !image_has_changed(pod, name, &record.image_id))
        .map(|(name, _)| name.clone())
        .collect()
}

fn runtime_containers(pod: &Pod) -> Option<BTreeMap<String, RuntimeContainer>> {
    let text = pod
        .metadata
        .annotations
        .as_ref()?
        .get(names::RUNTIME_CONTAINERS)?;
    let all: RuntimeContainers = serde_json::from_str(text).ok()?;
    Some(
        all.containers
            .into_iter()
            .map(|container| (container.name.clone(), container))
            .collect(),
    )
}

fn status<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    statuses.iter().find(|status| status.name == name)
}

/// What the agent says of the very container that runs; of an earlier one it says nothing.
fn running<'a>(
    pod: &Pod,
    name: &str,
    runtime: &'a BTreeMap<String, RuntimeContainer>,
) -> Option<&'a RuntimeContainer> {
    let found = runtime.get(name)?;
    let running = status(pod, name)?.container_id.as_ref()?;
    (found.container_id == *running).then_some(found)
}

fn env_is_current(
    pod: &Pod,
    container: &Container,
    runtime: Option<&BTreeMap<String, RuntimeContainer>>,
) -> bool {
    let found = runtime.and_then(|runtime| running(pod, &container.name, runtime));
    found.is_some_and(|found| {
        found.hashes.extracted_env_from_metadata_hash == u64::from(env_hash(pod, container))
    })
}

/// What a variable with this field path gets from the pod. None for paths of other fields.
fn read_from<'a>(pod: &'a Pod, path: &str) -> Option<&'a str> {
    let (map, rest) = match path.strip_prefix("metadata.labels") {
        Some(rest) => (pod.metadata.labels.as_ref(), rest),
        None => (
            pod.metadata.annotations.as_ref(),
            path.strip_prefix("metadata.annotations")?,
        ),
    };
    let key = rest.strip_prefix("['")?.strip_suffix("']")?;
    Some(map.and_then(|map| map.get(key)).map_or("", String::as_str))
}

/// Hash of the variables that read labels and annotations of the pod.
fn env_hash(pod: &Pod, container: &Container) -> u32 {
    let mut variables: Vec<(&str, &str)> = container
        .env
        .iter()
        .flatten()
        .filter_map(|variable| {
            let source = variable.value_from.as_ref()?.field_ref.as_ref()?;
            Some((variable.name.as_str(), read_from(pod, &source.field_path)?))
        })
        .collect();
    if variables.is_empty() {
        return fnv1a_of_text("null");
    }
    variables.sort_unstable();
    let list: Vec<Value> = variables
        .into_iter()
        .map(|(name, value)| {
            let mut fields = Map::new();
            fields.insert("name".to_owned(), name.into());
            if !value.is_empty() {
                fields.insert("value".to_owned(), value.into());
            }
            Value::Object(fields)
        })
        .collect();
    fnv1a_of_text(&revision::canonical_text(&json!(list)))
}

/// The hash by which the kubelet (1.31 and newer) tells whether a container has to be restarted. With an older kubelet it does not fit, and
/// the image reports decide.
fn plain_is_current(pod: &Pod, container: &Container, runtime: &BTreeMap<String, RuntimeContainer>) -> bool {
    let text = revision::canonical_text(&json!({"image": container.image, "name": container.name}));
    running(pod, &container.name, runtime)
        .is_some_and(|found| found.hashes.plain_hash == u64::from(fnv1a_of_text(&text)))
}

fn resources_are_current(pod: &Pod, container: &Container) -> bool {
    let Some(status) = status(pod, &container.name) else {
        return false;
    };
    type Amounts = BTreeMap<String, Option<i128>>;
    let amounts = |resources: Option<&k8s_openapi::api::core::v1::ResourceRequirements>| -> [Amounts; 2] {
        let read =
            |map: Option<&BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>| {
                let all = map.into_iter().flatten();
                all.map(|(name, quantity)| (name.clone(), quantity::amount(&quantity.0)))
                    .collect()
            };
        let limits = resources.and_then(|resources| resources.limits.as_ref());
        let requests = resources.and_then(|resources| resources.requests.as_ref());
        [read(limits), read(requests)]
    };
    amounts(status.resources.as_ref()) == amounts(container.resources.as_ref())
}

/// Whether the kubelet reports another image than the one before the change, or the very one that is wanted.
fn image_has_changed(pod: &Pod, name: &str, before: &str) -> bool {
    let Some(status) = status(pod, name) else {
        return false;
    };
    if !same_id(&status.image_id, before) {
        return true;
    }
    let wanted = pod
        .spec
        .iter()
        .flat_map(|spec| &spec.containers)
        .find(|container| container.name == name)
        .and_then(|container| container.image.as_deref());
    wanted.is_some_and(|wanted| same_image(&status.image, wanted) || same_id(&status.image_id, wanted))
}

/// Whether two reports of a running image mean the same content. The same digest under another name is the same.
fn same_id(a: &str, b: &str) -> bool {
    let digest = |id: &str| id.rsplit_once('@').map(|(_, digest)| digest.to_owned());
    a == b || digest(a).is_some_and(|digest_a| Some(digest_a) == digest(b))
}

/// Whether two references mean the same image, however they are written.
fn same_image(a: &str, b: &str) -> bool {
    match (ImageRef::parse(a), ImageRef::parse(b)) {
        (Ok(a), Ok(b)) => a.canonical() == b.canonical(),
        _ => a == b,
    }
}
