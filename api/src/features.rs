//! Feature gates: upstream's names, upstream's text form, and an honest answer about what is built here.

use std::collections::BTreeMap;

use crate::nearest::nearest;

/// How far a gate has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Off unless asked for; `AllAlpha` speaks of these.
    Alpha,
    /// `AllBeta` speaks of these.
    Beta,
}

/// What a gate does in this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Switches something here.
    Built,
    /// Accepted so that manifests stay portable; the behaviour has no switch here.
    Inert,
    /// Belongs to a feature that this program does not have. Set to true it is an error, never silently accepted.
    Absent,
}

/// One known gate.
#[derive(Clone, Copy, Debug)]
pub struct Gate {
    /// Name as upstream spells it.
    pub name: &'static str,
    /// Alpha or beta.
    pub stage: Stage,
    /// Value when nobody says anything.
    pub default: bool,
    /// What it does here.
    pub standing: Standing,
}

const fn gate(name: &'static str, stage: Stage, default: bool, standing: Standing) -> Gate {
    Gate {
        name,
        stage,
        default,
        standing,
    }
}

/// Every gate that upstream knows, and our own, sorted by name.
pub const GATES: &[Gate] = {
    use Stage::{Alpha, Beta};
    use Standing::{Absent, Built, Inert};
    &[
        gate("CloneSetEventHandlerOptimization", Alpha, false, Inert),
        gate("CloneSetPartitionRollback", Alpha, false, Built),
        gate("CloneSetShortHash", Alpha, false, Built),
        gate("DaemonSetPruneIneligibleNodes", Alpha, false, Absent),
        gate("DaemonWatchingPod", Beta, true, Inert),
        gate("DefaultHostNetworkHostPortsInPodTemplates", Alpha, false, Absent),
        gate("DeletionProtectionForCRDCascadingGate", Alpha, false, Absent),
        gate("EnableExternalCerts", Alpha, false, Absent),
        gate("EnablePodProbeMarkerOnServerless", Alpha, false, Absent),
        gate("EnableSortSidecarContainerByName", Alpha, false, Absent),
        gate("EnhancedLivenessProbe", Alpha, false, Absent),
        gate("ForceDeleteTimeoutExpectationGate", Alpha, false, Inert),
        gate("ImagePullJobGate", Alpha, true, Built),
        gate("InPlacePodVerticalScaling", Alpha, false, Absent),
        gate("InPlacePullGate", Beta, true, Built),
        gate("InPlaceUpdateEnvFromMetadata", Beta, true, Inert),
        gate("InPlaceWorkloadVerticalScaling", Alpha, false, Built),
        gate("KruiseDaemon", Beta, true, Built),
        gate("KruisePodReadinessGate", Alpha, false, Absent),
        gate("PodIndexLabel", Beta, true, Inert),
        gate("PodProbeMarkerGate", Beta, true, Inert),
        gate("PodUnavailableBudgetDeleteGate", Beta, true, Inert),
        gate("PodUnavailableBudgetUpdateGate", Alpha, false, Absent),
        gate("PodWebhook", Beta, true, Built),
        gate("PreDownloadImageForDaemonSetUpdate", Alpha, false, Absent),
        gate("PreDownloadImageForInPlaceUpdate", Alpha, false, Built),
        gate("PreparingUpdateAsUpdate", Alpha, false, Inert),
        gate("RecreatePodWhenChangeVCTInCloneSetGate", Alpha, false, Built),
        gate("ResourceDistributionGate", Beta, false, Absent),
        gate("ResourcesDeletionProtection", Beta, false, Absent),
        gate("SidecarSetPatchPodMetadataDefaultsAllowed", Alpha, false, Absent),
        gate("SidecarTerminator", Alpha, false, Absent),
        gate("StatefulSetAutoDeletePVC", Beta, true, Inert),
        gate("StatefulSetAutoResizePVCGate", Alpha, false, Absent),
        gate("StatefulSetStartOrdinal", Alpha, false, Absent),
        gate("TemplateNoDefaults", Alpha, false, Absent),
        gate("WorkloadSpread", Beta, true, Inert),
    ]
};

/// Why a text of gates is refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum GateError {
    /// No such gate.
    #[error("feature gate {name:?} is not known{}", did_you_mean(.nearest))]
    Unknown {
        /// As written.
        name: String,
        /// The gate that was probably meant.
        nearest: Option<&'static str>,
    },
    /// Neither `true` nor `false`.
    #[error("feature gate {name} is {value:?}; accepted are true and false")]
    NotBool {
        /// Gate.
        name: String,
        /// As written.
        value: String,
    },
    /// Without `=`.
    #[error(
        "{text:?} is no feature gate setting; the form is NAME=true or NAME=false, several separated by commas"
    )]
    Form {
        /// As written.
        text: String,
    },
    /// Asked for a feature that is not there.
    #[error(
        "feature gate {name} is true, but this version does not have that feature; leave it out or set it to false"
    )]
    Absent {
        /// Gate.
        name: &'static str,
    },
}

fn did_you_mean(nearest: &Option<&'static str>) -> String {
    nearest.map_or_else(
        || "; the reference page of feature gates lists all".to_owned(),
        |name| format!("; did you mean {name}?"),
    )
}

/// Values of all gates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureGates {
    values: BTreeMap<&'static str, bool>,
    /// Those that were set by their own name.
    named: BTreeMap<&'static str, bool>,
}

impl Default for FeatureGates {
    fn default() -> Self {
        Self {
            values: GATES.iter().map(|gate| (gate.name, gate.default)).collect(),
            named: BTreeMap::new(),
        }
    }
}

impl FeatureGates {
    /// Reads `A=true,B=false`. Spaces around names and values are ignored, the last value of a name wins, and a named gate wins
    /// over `AllAlpha` and `AllBeta`, which touch built gates only.
    ///
    /// # Errors
    /// See [`GateError`].
    pub fn parse(text: &str) -> Result<Self, GateError> {
        Self::read(text, false)
    }

    /// The same for what is worked out offline: a gate may be true whose feature this program does not have.
    ///
    /// # Errors
    /// See [`GateError`].
    pub fn parse_known(text: &str) -> Result<Self, GateError> {
        Self::read(text, true)
    }

    fn read(text: &str, absent_too: bool) -> Result<Self, GateError> {
        let mut named = BTreeMap::new();
        let mut groups = BTreeMap::new();
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let (name, value) = item.split_once('=').ok_or_else(|| GateError::Form {
                text: item.to_owned(),
            })?;
            let (name, value) = (name.trim(), value.trim());
            let value = parse_bool(name, value)?;
            match name {
                "AllAlpha" | "AllBeta" => {
                    groups.insert(name, value);
                }
                _ => {
                    named.insert(find(name)?.name, value);
                }
            }
        }
        Self::resolve(&groups, &named, absent_too)
    }

    fn resolve(
        groups: &BTreeMap<&str, bool>,
        named: &BTreeMap<&'static str, bool>,
        absent_too: bool,
    ) -> Result<Self, GateError> {
        let mut values = Self::default();
        for gate in GATES {
            let group = match gate.stage {
                Stage::Alpha => groups.get("AllAlpha"),
                Stage::Beta => groups.get("AllBeta"),
            };
            if let (Some(value), Standing::Built) = (group, gate.standing) {
                values.values.insert(gate.name, *value);
            }
            if let Some(value) = named.get(gate.name) {
                if *value && gate.standing == Standing::Absent && !absent_too {
                    return Err(GateError::Absent { name: gate.name });
                }
                values.values.insert(gate.name, *value);
                values.named.insert(gate.name, *value);
            }
        }
        // Without the agent nothing can be pulled.
        if !values.enabled("KruiseDaemon") {
            values.values.insert("ImagePullJobGate", false);
        }
        Ok(values)
    }

    /// Value of a gate; false for a name that is not known.
    #[must_use]
    pub fn enabled(&self, name: &str) -> bool {
        self.values.get(name).copied().unwrap_or(false)
    }

    /// What was said about a gate by its own name; none when nobody said anything, and when `AllAlpha` or `AllBeta` did.
    #[must_use]
    pub fn said(&self, name: &str) -> Option<bool> {
        self.named.get(name).copied()
    }

    /// Gates that are set and have no effect here, for a line in the log.
    #[must_use]
    pub fn inert(&self) -> Vec<&'static str> {
        GATES
            .iter()
            .filter(|gate| gate.standing == Standing::Inert && self.enabled(gate.name) != gate.default)
            .map(|gate| gate.name)
            .collect()
    }
}

fn parse_bool(name: &str, value: &str) -> Result<bool, GateError> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "t" | "1" => Ok(true),
        "false" | "f" | "0" => Ok(false),
        _ => Err(GateError::NotBool {
            name: name.to_owned(),
            value: value.to_owned(),
        }),
    }
}

fn find(name: &str) -> Result<&'static Gate, GateError> {
    GATES
        .iter()
        .find(|gate| gate.name == name)
        .ok_or_else(|| GateError::Unknown {
            name: name.to_owned(),
            nearest: nearest(name, GATES.iter().map(|gate| gate.name)),
        })
}

#[cfg(test)]
mod tests {
    use super::{FeatureGates, GateError};

    #[test]
    fn charts_default_is_accepted() {
        let gates = FeatureGates::parse("ImagePullJobGate=true").expect("valid");
        assert!(gates.enabled("ImagePullJobGate"));
        assert_eq!(FeatureGates::parse(""), Ok(FeatureGates::default()));
    }

    #[test]
    fn a_slip_names_the_nearest_gate() {
        let error = FeatureGates::parse("ImagePulJobGate=true").expect_err("unknown");
        assert_eq!(
            error.to_string(),
            "feature gate \"ImagePulJobGate\" is not known; did you mean ImagePullJobGate?"
        );
    }

    #[test]
    fn a_feature_that_is_not_there_is_refused_only_when_wanted() {
        assert_eq!(
            FeatureGates::parse("SidecarTerminator=true"),
            Err(GateError::Absent {
                name: "SidecarTerminator"
            })
        );
        assert!(FeatureGates::parse("SidecarTerminator=false").is_ok());
        let offline = FeatureGates::parse_known("SidecarTerminator=true").expect("known");
        assert!(offline.enabled("SidecarTerminator"));
        assert!(FeatureGates::parse("AllAlpha=true,AllBeta=true").is_ok());
    }

    #[test]
    fn groups_lose_against_names_whatever_the_order() {
        let gates = FeatureGates::parse("ImagePullJobGate=true, AllAlpha=false").expect("valid");
        assert!(gates.enabled("ImagePullJobGate"));
        assert!(
            !FeatureGates::parse("AllAlpha=false")
                .expect("valid")
                .enabled("ImagePullJobGate")
        );
    }

    #[test]
    fn what_is_said_by_name_is_told_from_what_groups_say() {
        let gates = FeatureGates::parse("AllAlpha=true,ImagePullJobGate=false").expect("valid");
        assert_eq!(gates.said("ImagePullJobGate"), Some(false));
        assert_eq!(gates.said("PreDownloadImageForInPlaceUpdate"), None);
        assert!(gates.enabled("PreDownloadImageForInPlaceUpdate"));
    }

    #[test]
    fn no_agent_means_no_pull_jobs() {
        assert!(
            !FeatureGates::parse("KruiseDaemon=false")
                .expect("valid")
                .enabled("ImagePullJobGate")
        );
    }

    #[test]
    fn bad_forms_are_named() {
        assert!(matches!(
            FeatureGates::parse("PodWebhook"),
            Err(GateError::Form { .. })
        ));
        assert!(matches!(
            FeatureGates::parse("PodWebhook=yes"),
            Err(GateError::NotBool { .. })
        ));
    }

    #[test]
    fn gates_are_sorted_and_unique() {
        let names: Vec<_> = super::GATES.iter().map(|gate| gate.name).collect();
        let mut sorted = names.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(names, sorted);
    }
}
