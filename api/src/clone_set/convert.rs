//! Between the two versions, without loss.
//!
//! Each direction has a plain conversion, which is upstream's apart from what upstream loses by mistake. What the other version has
//! no place for is *parked* in an annotation ([`names::CONVERSION_PARKED`]) and comes back with the next conversion, unless somebody
//! changed those parts meanwhile. Ordinary objects park nothing: what is left out means its default, and an empty
//! `inPlaceUpdateStrategy` means the same as none.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::strategy::{InPlaceUpdateStrategy, RollingUpdate, UpdateStrategy, policies, types};
use super::{CloneSet, CloneSetSpec, ScaleStrategy, UpdatePolicy, names, v1alpha1};

/// Keys of the annotations that are fields in v1beta1.
const IMAGE_ANNOTATIONS: [&str; 3] = [
    names::PREDOWNLOAD_PARALLELISM,
    names::PREDOWNLOAD_TIMEOUT,
    names::PREDOWNLOAD_MIN_UPDATED_READY,
];

/// The parts in which the versions differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Parts<S, U> {
    scale_strategy: S,
    update_strategy: U,
    /// The three image annotations.
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    /// The label that is a field in v1beta1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exclude_label: Option<String>,
}

type Older = Parts<v1alpha1::ScaleStrategy, v1alpha1::UpdateStrategy>;
type Newer = Parts<ScaleStrategy, UpdateStrategy>;

/// The set as v1beta1.
#[must_use]
pub fn to_v1beta1(from: &v1alpha1::CloneSet) -> CloneSet {
    let mut metadata = from.metadata.clone();
    let spec = from.spec.clone();
    let older = Older {
        scale_strategy: spec.scale_strategy,
        update_strategy: spec.update_strategy,
        annotations: image_annotations(&metadata),
        exclude_label: exclude_label(&metadata),
    };
    let newer = cross(&mut metadata, &older, newer, self::older, normal_older);
    put(&mut metadata, newer.annotations, newer.exclude_label);
    CloneSet {
        metadata,
        spec: CloneSetSpec {
            replicas: spec.replicas,
            selector: spec.selector,
            template: spec.template,
            volume_claim_templates: spec.volume_claim_templates,
            scale_strategy: newer.scale_strategy,
            update_strategy: newer.update_strategy,
            revision_history_limit: spec.revision_history_limit,
            min_ready_seconds: spec.min_ready_seconds,
            lifecycle: spec.lifecycle,
            progress_deadline_seconds: spec.progress_deadline_seconds,
        },
        status: from.status.clone(),
    }
}

/// The set as v1alpha1.
#[must_use]
pub fn to_v1alpha1(from: &CloneSet) -> v1alpha1::CloneSet {
    let mut metadata = from.metadata.clone();
    let spec = from.spec.clone();
    let newer = Newer {
        scale_strategy: spec.scale_strategy,
        update_strategy: spec.update_strategy,
        annotations: image_annotations(&metadata),
        exclude_label: exclude_label(&metadata),
    };
    let older = cross(&mut metadata, &newer, older, self::newer, normal_newer);
    put(&mut metadata, older.annotations, older.exclude_label);
    v1alpha1::CloneSet {
        metadata,
        spec: v1alpha1::CloneSetSpec {
            replicas: spec.replicas,
            selector: spec.selector,
            template: spec.template,
            volume_claim_templates: spec.volume_claim_templates,
            scale_strategy: older.scale_strategy,
            update_strategy: older.update_strategy,
            revision_history_limit: spec.revision_history_limit,
            min_ready_seconds: spec.min_ready_seconds,
            lifecycle: spec.lifecycle,
            progress_deadline_seconds: spec.progress_deadline_seconds,
        },
        status: from.status.clone(),
    }
}

/// Goes one way: takes back what was parked if it still fits, else converts plainly and parks what the way back would lose.
fn cross<A, B>(
    metadata: &mut ObjectMeta,
    from: &A,
    there: impl Fn(&A) -> B,
    back: impl Fn(&B) -> A,
    normal: impl Fn(&A) -> A,
) -> B
where
    A: PartialEq + Serialize,
    B: DeserializeOwned,
{
    let parked = metadata
        .annotations
        .as_mut()
        .and_then(|annotations| annotations.remove(names::CONVERSION_PARKED));
    if parked.is_some() {
        drop_empty(&mut metadata.annotations);
    }
    let parked = parked.and_then(|text| serde_json::from_str::<B>(&text).ok());
    // Somebody may have changed the object since: what was parked then says no longer what it stood for.
    if let Some(parked) = parked.filter(|parked| normal(&back(parked)) == normal(from)) {
        return parked;
    }
    let to = there(from);
    if normal(&back(&to)) != normal(from)
        && let Ok(text) = serde_json::to_string(from)
    {
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.insert(names::CONVERSION_PARKED.to_owned(), text);
    }
    to
}

fn newer(older: &Older) -> Newer {
    let exclude = older.exclude_label.as_deref() == Some("true");
    let scale = &older.scale_strategy;
    let strategy = &older.update_strategy;
    let update_strategy = if strategy.kind == types::ON_DELETE {
        UpdateStrategy {
            kind: types::ON_DELETE.to_owned(),
            rolling_update: None,
        }
    } else {
        UpdateStrategy {
            kind: types::ROLLING_UPDATE.to_owned(),
            rolling_update: Some(rolling_update(strategy, &older.annotations)),
        }
    };
    Newer {
        scale_strategy: ScaleStrategy {
            pods_to_delete: scale.pods_to_delete.clone(),
            max_unavailable: scale.max_unavailable.clone(),
            enable_pvc_reuse: !scale.disable_pvc_reuse,
            exclude_preparing_delete: exclude,
        },
        update_strategy,
        annotations: older.annotations.clone(),
        exclude_label: older.exclude_label.clone(),
    }
}

fn rolling_update(
    strategy: &v1alpha1::UpdateStrategy,
    annotations: &BTreeMap<String, String>,
) -> RollingUpdate {
    let policy = UpdatePolicy::named(&strategy.kind);
    let text = |key: &str| annotations.get(key).filter(|text| !text.is_empty());
    let number = |key: &str| text(key).and_then(|text| text.parse::<i32>().ok());
    let mut in_place = strategy.in_place_update_strategy.clone().unwrap_or_default();
    // A field that is there wins over the annotation of the same meaning.
    if in_place.image_pre_download_parallelism.is_none() {
        in_place.image_pre_download_parallelism = text(names::PREDOWNLOAD_PARALLELISM).map(|text| {
            text.parse()
                .map_or_else(|_| IntOrString::String(text.clone()), IntOrString::Int)
        });
    }
    in_place.image_pre_download_timeout_seconds = in_place
        .image_pre_download_timeout_seconds
        .or(number(names::PREDOWNLOAD_TIMEOUT));
    in_place.image_pre_download_min_updated_ready_pods = in_place
        .image_pre_download_min_updated_ready_pods
        .or(number(names::PREDOWNLOAD_MIN_UPDATED_READY));
    RollingUpdate {
        partition: strategy.partition.clone(),
        max_unavailable: strategy.max_unavailable.clone(),
        max_surge: strategy.max_surge.clone(),
        pod_update_policy: policy.name().to_owned(),
        paused: strategy.paused,
        priority_strategy: strategy.priority_strategy.clone(),
        scatter_strategy: strategy.scatter_strategy.clone(),
        in_place_update_strategy: in_place_of(policy, in_place),
    }
}

/// In-place policies have an `inPlaceUpdateStrategy`, as defaulting gives them one; for ReCreate an empty one is none.
fn in_place_of(policy: UpdatePolicy, in_place: InPlaceUpdateStrategy) -> Option<InPlaceUpdateStrategy> {
    (policy.is_in_place() || in_place != InPlaceUpdateStrategy::default()).then_some(in_place)
}

fn older(newer: &Newer) -> Older {
    let scale = &newer.scale_strategy;
    let mut annotations = newer.annotations.clone();
    let rolling = newer.update_strategy.rolling_update.clone();
    let kind = match (&rolling, newer.update_strategy.is_on_delete()) {
        (_, true) => types::ON_DELETE,
        (Some(rolling), false) => UpdatePolicy::named(&rolling.pod_update_policy).name(),
        (None, false) => policies::RE_CREATE,
    };
    let rolling = rolling.unwrap_or_default();
    let in_place = rolling.in_place_update_strategy.map(|in_place| {
        annotate(&in_place, &mut annotations);
        // An empty one becomes absent; one that held image settings stays, as upstream leaves it.
        (in_place != InPlaceUpdateStrategy::default()).then(|| InPlaceUpdateStrategy {
            grace_period_seconds: in_place.grace_period_seconds,
            ..Default::default()
        })
    });
    Older {
        scale_strategy: v1alpha1::ScaleStrategy {
            pods_to_delete: scale.pods_to_delete.clone(),
            max_unavailable: scale.max_unavailable.clone(),
            disable_pvc_reuse: !scale.enable_pvc_reuse,
        },
        update_strategy: v1alpha1::UpdateStrategy {
            kind: kind.to_owned(),
            partition: rolling.partition,
            max_unavailable: rolling.max_unavailable,
            max_surge: rolling.max_surge,
            paused: rolling.paused,
            priority_strategy: rolling.priority_strategy,
            scatter_strategy: rolling.scatter_strategy,
            in_place_update_strategy: in_place.flatten(),
        },
        annotations,
        exclude_label: if scale.exclude_preparing_delete {
            Some("true".to_owned())
        } else {
            newer.exclude_label.clone()
        },
    }
}

/// Writes the image settings as annotations; one that is not set leaves its annotation alone.
fn annotate(in_place: &InPlaceUpdateStrategy, annotations: &mut BTreeMap<String, String>) {
    let parallelism = in_place
        .image_pre_download_parallelism
        .as_ref()
        .map(|value| match value {
            IntOrString::Int(number) => number.to_string(),
            IntOrString::String(text) => text.clone(),
        });
    let number = |value: Option<i32>| value.map(|number| number.to_string());
    let values = [
        parallelism,
        number(in_place.image_pre_download_timeout_seconds),
        number(in_place.image_pre_download_min_updated_ready_pods),
    ];
    for (key, value) in IMAGE_ANNOTATIONS.into_iter().zip(values) {
        if let Some(value) = value {
            annotations.insert(key.to_owned(), value);
        }
    }
}

/// What two equal objects have in common, however they are written: defaults are filled in.
fn normal_older(older: &Older) -> Older {
    let mut older = older.clone();
    fill(&mut older.update_strategy.kind, policies::RE_CREATE);
    let in_place = &mut older.update_strategy.in_place_update_strategy;
    if in_place.as_ref() == Some(&InPlaceUpdateStrategy::default()) {
        *in_place = None;
    }
    older
}

/// The same for v1beta1.
fn normal_newer(newer: &Newer) -> Newer {
    let mut newer = newer.clone();
    fill(&mut newer.update_strategy.kind, types::ROLLING_UPDATE);
    if let Some(rolling) = &mut newer.update_strategy.rolling_update {
        fill(&mut rolling.pod_update_policy, policies::RE_CREATE);
        let in_place = rolling.in_place_update_strategy.take().unwrap_or_default();
        rolling.in_place_update_strategy =
            in_place_of(UpdatePolicy::named(&rolling.pod_update_policy), in_place);
    }
    newer
}

fn fill(text: &mut String, default: &str) {
    if text.is_empty() {
        default.clone_into(text);
    }
}

fn image_annotations(metadata: &ObjectMeta) -> BTreeMap<String, String> {
    let all = metadata.annotations.iter().flatten();
    all.filter(|(key, _)| IMAGE_ANNOTATIONS.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

fn exclude_label(metadata: &ObjectMeta) -> Option<String> {
    metadata
        .labels
        .as_ref()?
        .get(names::EXCLUDE_PREPARING_DELETE)
        .cloned()
}

/// Makes the metadata say what the parts say.
fn put(metadata: &mut ObjectMeta, annotations: BTreeMap<String, String>, label: Option<String>) {
    if image_annotations(metadata) != annotations {
        let all = metadata.annotations.get_or_insert_default();
        all.retain(|key, _| !IMAGE_ANNOTATIONS.contains(&key.as_str()));
        all.extend(annotations);
        drop_empty(&mut metadata.annotations);
    }
    if exclude_label(metadata) != label {
        let all = metadata.labels.get_or_insert_default();
        all.remove(names::EXCLUDE_PREPARING_DELETE);
        all.extend(label.map(|label| (names::EXCLUDE_PREPARING_DELETE.to_owned(), label)));
        drop_empty(&mut metadata.labels);
    }
}

fn drop_empty(map: &mut Option<BTreeMap<String, String>>) {
    if map.as_ref().is_some_and(BTreeMap::is_empty) {
        *map = None;
    }
}

#[cfg(test)]
mod tests;
