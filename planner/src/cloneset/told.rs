//! An action in three words, for whoever shows it.

use super::action::Action;

/// An action in three words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told<'a> {
    /// Its type, as JSON has it.
    pub kind: &'static str,
    /// Name of the object that is written.
    pub name: &'a str,
    /// Why.
    pub reason: &'static str,
}

impl Action {
    /// The action in three words. The set itself, which needs no name, has an empty one.
    #[must_use]
    pub fn told(&self) -> Told<'_> {
        let told = |kind, name, reason| Told { kind, name, reason };
        match self {
            Self::CreatePod { pod, reason, .. } => told("CreatePod", pod, reason),
            Self::DeletePod { pod, reason } => told("DeletePod", pod, reason),
            Self::UpdateInPlace { pod, reason, .. } => told("UpdateInPlace", pod, reason),
            Self::Recreate { pod, reason, .. } => told("Recreate", pod, reason),
            Self::PatchPod { pod, reason, .. } => told("PatchPod", pod, reason),
            Self::CreateClaim { claim, reason, .. } => told("CreateClaim", claim, reason),
            Self::DeleteClaim { claim, reason, .. } => told("DeleteClaim", claim, reason),
            Self::PatchClaim { claim, reason, .. } => told("PatchClaim", claim, reason),
            Self::CreateImagePullJob { job, reason, .. } => told("CreateImagePullJob", job, reason),
            Self::DeleteImagePullJob { job, reason } => told("DeleteImagePullJob", job, reason),
            Self::CreateContainerRecreateRequest { request, reason, .. } => {
                told("CreateContainerRecreateRequest", request, reason)
            }
            Self::CreateRevision { revision, reason, .. } => told("CreateRevision", revision, reason),
            Self::PatchRevision { revision, reason, .. } => told("PatchRevision", revision, reason),
            Self::DeleteRevision { revision, reason } => told("DeleteRevision", revision, reason),
            Self::PatchCloneSet { reason, .. } => told("PatchCloneSet", "", reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_is_that_of_the_json() {
        for action in [
            Action::DeletePod {
                pod: "a".to_owned(),
                reason: "ScaleDown",
            },
            Action::PatchCloneSet {
                pods_to_delete: Vec::new(),
                reason: "PodsToDeleteDone",
            },
        ] {
            let json = serde_json::to_value(&action).expect("plain data");
            let told = action.told();
            assert_eq!(json["type"], told.kind);
            assert_eq!(json["reason"], told.reason);
            assert_eq!(json["pod"].as_str().unwrap_or_default(), told.name);
        }
    }
}
