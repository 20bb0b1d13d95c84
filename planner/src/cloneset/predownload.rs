//! Has new images pulled onto nodes ahead of a rollout.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::LocalObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kruise_api::clone_set::limit::{Rounding, is_percent, scaled};
use kruise_api::clone_set::{CloneSet, InPlaceUpdateStrategy, names};
use serde_json::Value;

use super::action::{Action, JobContent};
use super::draft::Draft;
use super::facts::Facts;
use super::pod::RevisionKey;
use super::reason::Reason;
use super::snapshot::PreDownload;
use super::way::Way;

/// Annotation of a revision: the rollout for which jobs were made, so that the next one to the same revision makes them again.
pub const ROLLOUT: &str = "apps.kruise.io/predownload-rollout";

const DEFAULT_PARALLELISM: i32 = 1;
const DEFAULT_TIMEOUT_SECONDS: i32 = 300;
/// How long the pull gate waits for an image when the set does not say.
pub const DEFAULT_GATE_TIMEOUT: Duration = Duration::from_secs(600);
const BACKOFF_LIMIT: i32 = 1;
const TTL_SECONDS: i32 = 600;
/// With so few pods pre-download takes longer than it saves.
const TOO_FEW_PODS: i64 = 3;
/// Longest name of an object.
const MAX_NAME: usize = 253;

/// What the set says about pre-download, fields before annotations.
#[derive(Clone, Copy, Debug, Default)]
struct Settings {
    any: bool,
    parallelism: i32,
    timeout_seconds: i32,
    min_updated_ready: i64,
}

/// How long the pull gate of a set waits for an image: the time-out of its pre-download, where it has one.
#[must_use]
pub fn gate_timeout(set: &CloneSet) -> Duration {
    let rolling = set.spec.update_strategy.rolling_update.as_ref();
    let field = rolling
        .and_then(|rolling| rolling.in_place_update_strategy.as_ref())
        .and_then(|fields| fields.image_pre_download_timeout_seconds);
    let annotation = set.metadata.annotations.as_ref();
    let annotation = annotation.and_then(|all| all.get(names::PREDOWNLOAD_TIMEOUT)?.parse().ok());
    let seconds = field
        .or(annotation)
        .and_then(|seconds| u64::try_from(seconds).ok());
    seconds
        .filter(|seconds| *seconds > 0)
        .map_or(DEFAULT_GATE_TIMEOUT, Duration::from_secs)
}

impl Facts<'_> {
    /// Makes jobs for a rollout that is worth it, and takes away those that nobody wants any more. Never holds up scaling or updating.
    pub(super) fn pre_download(&self, draft: &mut Draft) {
        if self.snapshot.gates.pre_download == PreDownload::Never {
            return;
        }
        self.drop_outdated_jobs(draft);
        if self.revisions.is_settled() {
            return;
        }
        let settings = self.settings(draft);
        let asked_for = settings.any || self.snapshot.gates.pre_download == PreDownload::Always;
        if !asked_for || self.was_made() {
            return;
        }
        let status = self.snapshot.set.status.as_ref();
        let ready = status
            .filter(|status| status.update_revision == self.revisions.update)
            .map_or(0, |status| i64::from(status.updated_ready_replicas));
        if settings.min_updated_ready > ready {
            let text = format!(
                "{ready} pods are updated and ready, {} are asked for",
                settings.min_updated_ready
            );
            return draft.wait(Reason::PreDownload, text);
        }
        if let Some(why) = self.not_worth_it() {
            draft.events.push(super::plan::PlanEvent {
                warning: false,
                reason: "SkippedImagePreDownload",
                message: format!("revision {}: {why}", self.revisions.update),
            });
            return;
        }
        self.make_jobs(settings, draft);
    }

    /// Jobs of revisions that are not being rolled out. Only those made here: they carry the hash of a revision.
    fn drop_outdated_jobs(&self, draft: &mut Draft) {
        let settled = self.revisions.is_settled();
        for job in self.snapshot.jobs.iter().filter(|job| !job.terminating) {
            let Some(hash) = &job.revision_hash else { continue };
            if settled || hash != self.revisions.update_hash() {
                draft.act(Action::DeleteImagePullJob {
                    job: job.name.clone(),
                    reason: if settled { "RolloutDone" } else { "Superseded" },
                });
            }
        }
    }

    /// The rollout that is going on.
    fn rollout(&self) -> String {
        let revisions = &self.revisions;
        format!(
            "{}/{}/{}",
            revisions.current, revisions.update, revisions.update_number
        )
    }

    /// Whether jobs of this rollout were made. A label without the annotation is OpenKruise's: then they were made for the rollout that was
    /// going on when the set was taken over.
    fn was_made(&self) -> bool {
        self.revisions.update_view.is_some_and(|view| {
            view.labels.contains_key(names::PREDOWNLOAD_CREATED)
                && view
                    .annotations
                    .get(ROLLOUT)
                    .is_none_or(|rollout| *rollout == self.rollout())
        })
    }

    fn not_worth_it(&self) -> Option<String> {
        let limits = &self.limits;
        let everything_at_once = limits.partition == 0 && limits.max_unavailable >= limits.replicas;
        let no = |text: &str| Some(text.to_owned());
        if self.spec.update_strategy.is_on_delete() || !self.policy.is_in_place() {
            return no("pods are not updated in place");
        }
        if limits.replicas <= TOO_FEW_PODS {
            return no("the set has three pods or fewer");
        }
        if !limits.partition_readable() {
            return no("the partition is not readable");
        }
        if everything_at_once {
            return no("all pods are updated at once");
        }
        match self.ways.get(
            Some(RevisionKey::of(&self.revisions.current)),
            self.revisions.update_key,
        ) {
            Way::Impossible { why } => Some(format!("not possible in place: {why}")),
            Way::InPlace { .. } => None,
        }
    }

    fn make_jobs(&self, settings: Settings, draft: &mut Draft) {
        for (container, image) in self.new_images() {
            let job = job_name(&self.revisions.update, &container);
            if self.snapshot.jobs.iter().any(|known| known.name == job) {
                continue;
            }
            draft.act(Action::CreateImagePullJob {
                job,
                content: Box::new(self.job_content(container, image, settings)),
                reason: "PreDownload",
            });
        }
        draft.act(Action::PatchRevision {
            revision: self.revisions.update.clone(),
            number: None,
            labels: BTreeMap::from([(names::PREDOWNLOAD_CREATED.to_owned(), "true".to_owned())]),
            annotations: BTreeMap::from([(ROLLOUT.to_owned(), self.rollout())]),
            reason: "PreDownloadCreated",
        });
    }

    /// Main containers whose image the current template does not have under the same name.
    fn new_images(&self) -> Vec<(String, String)> {
        let images = |data: Option<&Value>| -> Vec<(String, String)> {
            let containers = data.and_then(|data| data.pointer("/spec/template/spec/containers")?.as_array());
            let image = |container: &Value| {
                let text = |key: &str| Some(container.get(key)?.as_str()?.to_owned());
                Some((text("name")?, text("image")?))
            };
            containers.into_iter().flatten().filter_map(image).collect()
        };
        let old = images(self.revisions.data(RevisionKey::of(&self.revisions.current)));
        let mut new = images(Some(&self.revisions.update_data));
        new.retain(|container| !old.contains(container));
        new
    }

    fn job_content(&self, container: String, image: String, settings: Settings) -> JobContent {
        let template = &self.spec.template;
        let map = |path: &str| -> BTreeMap<String, String> {
            let entries = template
                .pointer(path)
                .and_then(Value::as_object)
                .into_iter()
                .flatten();
            entries
                .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
                .collect()
        };
        let hash = self.revisions.update_hash().to_owned();
        let mut labels = map("/metadata/labels");
        labels.insert(names::REVISION_HASH.to_owned(), hash.clone());
        let mut pod_selector = self.spec.selector.clone();
        pod_selector
            .match_expressions
            .get_or_insert_default()
            .push(LabelSelectorRequirement {
                key: names::REVISION.to_owned(),
                operator: "NotIn".to_owned(),
                values: Some(vec![self.revisions.update.clone(), hash]),
            });
        let secrets = template
            .pointer("/spec/imagePullSecrets")
            .and_then(Value::as_array);
        let secret = |secret: &Value| {
            let name = secret.get("name")?.as_str()?.to_owned();
            Some(LocalObjectReference { name })
        };
        JobContent {
            container,
            image,
            labels,
            annotations: map("/metadata/annotations"),
            pod_selector,
            parallelism: settings.parallelism,
            timeout_seconds: settings.timeout_seconds,
            backoff_limit: BACKOFF_LIMIT,
            ttl_seconds_after_finished: TTL_SECONDS,
            pull_secrets: secrets.into_iter().flatten().filter_map(secret).collect(),
        }
    }

    fn settings(&self, draft: &mut Draft) -> Settings {
        let rolling = self.spec.update_strategy.rolling_update.as_ref();
        let none = InPlaceUpdateStrategy::default();
        let fields = rolling
            .and_then(|rolling| rolling.in_place_update_strategy.as_ref())
            .unwrap_or(&none);
        let mut reader = Reader {
            facts: self,
            draft,
            any: false,
        };
        let parallelism = reader.integer(
            names::PREDOWNLOAD_PARALLELISM,
            fields.image_pre_download_parallelism.as_ref(),
        );
        let timeout = fields.image_pre_download_timeout_seconds.map(IntOrString::Int);
        let timeout = reader.integer(names::PREDOWNLOAD_TIMEOUT, timeout.as_ref());
        let min_ready = fields
            .image_pre_download_min_updated_ready_pods
            .map(IntOrString::Int);
        let min_ready = reader.share(names::PREDOWNLOAD_MIN_UPDATED_READY, min_ready.as_ref());
        Settings {
            any: reader.any,
            parallelism: parallelism.unwrap_or(DEFAULT_PARALLELISM),
            timeout_seconds: timeout
                .filter(|seconds| *seconds > 0)
                .unwrap_or(DEFAULT_TIMEOUT_SECONDS),
            min_updated_ready: min_ready.unwrap_or(0),
        }
    }
}

/// Reads settings: a field that can be read, else an annotation that can be read, else nothing.
struct Reader<'f, 'a> {
    facts: &'f Facts<'a>,
    draft: &'f mut Draft,
    any: bool,
}

impl Reader<'_, '_> {
    fn integer(&mut self, key: &str, field: Option<&IntOrString>) -> Option<i32> {
        self.read(key, field, |value| match value {
            IntOrString::Int(number) => Some(*number),
            IntOrString::String(text) => text.parse().ok(),
        })
    }

    /// A number of pods or a percentage of the wanted ones, rounded up.
    fn share(&mut self, key: &str, field: Option<&IntOrString>) -> Option<i64> {
        let wanted = self.facts.spec.wanted();
        self.read(key, field, |value| match value {
            IntOrString::String(text) if !is_percent(value) => text.parse().ok(),
            value => scaled(value, wanted, Rounding::Up).ok(),
        })
    }

    fn read<T>(
        &mut self,
        key: &str,
        field: Option<&IntOrString>,
        read: impl Fn(&IntOrString) -> Option<T>,
    ) -> Option<T> {
        let annotations = self.facts.snapshot.set.metadata.annotations.as_ref();
        let annotation = annotations
            .and_then(|annotations| annotations.get(key))
            .filter(|text| !text.is_empty())
            .map(|text| IntOrString::String(text.clone()));
        for value in field.into_iter().chain(annotation.as_ref()) {
            self.any = true;
            if let Some(number) = read(value) {
                return Some(number);
            }
            let text = match value {
                IntOrString::Int(number) => number.to_string(),
                IntOrString::String(text) => text.clone(),
            };
            self.draft.warn(
                "InvalidImagePreDownload",
                format!("{key}: {text:?} is not readable and counts as absent"),
            );
        }
        None
    }
}

/// Name of a job: that of the revision and of the container; cut, with a hash of all of it, when it would be too long.
fn job_name(revision: &str, container: &str) -> String {
    let name = format!("{revision}-{container}");
    if name.len() <= MAX_NAME {
        return name;
    }
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    let suffix = format!("-{hash:08x}");
    let mut cut = MAX_NAME - suffix.len();
    while !name.is_char_boundary(cut) {
        cut -= 1;
    }
    format!("{}{suffix}", &name[..cut])
}
