//! The limits of a spec as numbers of pods.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kruise_api::clone_set::limit::{LimitError, Rounding, is_percent, scaled};
use kruise_api::clone_set::{CloneSetSpec, DEFAULT_MAX_UNAVAILABLE};

/// The limits of a spec as numbers of pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Pods that are wanted.
    pub replicas: i64,
    /// Pods to leave on older revisions. All, when the field is not readable: to update nothing is what can be taken back.
    pub partition: i64,
    /// Most pods that may be unavailable.
    pub max_unavailable: i64,
    /// Most pods above the wanted number, as the field says.
    pub max_surge: i64,
    /// Most pods that may be unavailable while pods are added.
    pub scale_limit: Option<i64>,
    /// Whether updates are held back.
    pub paused: bool,
    /// Fields that are not readable, with what they are.
    pub unreadable: Vec<Unreadable>,
}

/// A field that is not readable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Path of the field.
    pub field: &'static str,
    /// What is wrong, and what is done instead.
    pub message: String,
}

impl Limits {
    /// Reads the limits of a spec. Percentages of the surge and the partition are rounded up, that of maxUnavailable down when surge is in
    /// use and up otherwise.
    #[must_use]
    pub fn of(spec: &CloneSetSpec) -> Self {
        let rolling = spec.update_strategy.rolling_update.as_ref();
        let replicas = spec.wanted();
        let mut reader = Reader {
            replicas,
            unreadable: Vec::new(),
        };
        let partition = reader.partition(rolling.and_then(|rolling| rolling.partition.as_ref()));
        let surge = rolling.and_then(|rolling| rolling.max_surge.as_ref());
        let max_surge = reader.limit("maxSurge", surge, Rounding::Up).unwrap_or(0);
        let paused = spec.update_strategy.is_paused();
        let rounding = if max_surge > 0 && !paused {
            Rounding::Down
        } else {
            Rounding::Up
        };
        let default = IntOrString::String(DEFAULT_MAX_UNAVAILABLE.to_owned());
        let unavailable = rolling.and_then(|rolling| rolling.max_unavailable.as_ref());
        let max_unavailable = reader
            .limit("maxUnavailable", Some(unavailable.unwrap_or(&default)), rounding)
            .unwrap_or(0);
        let scale = spec.scale_strategy.max_unavailable.as_ref();
        let scale_limit = reader.limit("scaleStrategy.maxUnavailable", scale, Rounding::Up);
        Self {
            replicas: replicas.into(),
            partition,
            max_unavailable,
            max_surge,
            scale_limit,
            paused,
            unreadable: reader.unreadable,
        }
    }

    /// Whether the partition can be read.
    #[must_use]
    pub fn partition_readable(&self) -> bool {
        self.unreadable.iter().all(|field| field.field != PARTITION)
    }
}

const PARTITION: &str = "partition";

struct Reader {
    replicas: i32,
    unreadable: Vec<Unreadable>,
}

impl Reader {
    fn limit(&mut self, field: &'static str, value: Option<&IntOrString>, rounding: Rounding) -> Option<i64> {
        match scaled(value?, self.replicas, rounding) {
            Ok(number) => Some(number.max(0)),
            Err(error) => Some(self.problem(field, &error, "counts as 0", 0)),
        }
    }

    /// A percentage below 100 % leaves at least one pod to update, and one above 0 at least one old pod.
    fn partition(&mut self, value: Option<&IntOrString>) -> i64 {
        let replicas = i64::from(self.replicas);
        let Some(value) = value else { return 0 };
        let number = match scaled(value, self.replicas, Rounding::Up) {
            Ok(number) => number,
            Err(error) => return self.problem(PARTITION, &error, "no pod is updated", replicas),
        };
        let whole = matches!(value, IntOrString::String(text) if text == "100%");
        let number = if replicas > 1 && is_percent(value) && !whole && number == replicas {
            replicas - 1
        } else {
            number
        };
        number.clamp(0, replicas)
    }

    fn problem(&mut self, field: &'static str, error: &LimitError, so: &str, number: i64) -> i64 {
        self.unreadable.push(Unreadable {
            field,
            message: format!("{error}; {so}"),
        });
        number
    }
}
