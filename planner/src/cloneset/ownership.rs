//! Pods that come to the set or go from it, and claims that nobody of the set uses any more.

use std::collections::{BTreeMap, BTreeSet};

use super::action::{Action, OwnerChange, PodPatch};
use super::draft::Draft;
use super::facts::Facts;
use super::pod::PodView;

impl Facts<'_> {
    /// Takes matching pods that refer to the set, lets go of those that do not match any more, and puts claims in order.
    pub(super) fn settle_ownership(&self, draft: &mut Draft) {
        for (pods, owners, reason) in [
            (&self.adopted, OwnerChange::Claim, "Adopted"),
            (&self.released, OwnerChange::Release, "Released"),
        ] {
            for pod in pods {
                draft.act(Action::PatchPod {
                    pod: pod.name.clone(),
                    patch: PodPatch {
                        owners: Some(owners),
                        ..PodPatch::default()
                    },
                    reason,
                });
            }
        }
        if self.snapshot.claims.is_empty() {
            return;
        }
        self.settle_claims(draft);
    }

    /// A pod that is not of the set any more, or that has ended, keeps its claims for as long as it is there. With reuse, claims of pods that
    /// are gone or going wait for the next pod.
    fn settle_claims(&self, draft: &mut Draft) {
        let reuse = self.spec.scale_strategy.enable_pvc_reuse;
        let in_use: BTreeSet<&str> = self
            .members
            .iter()
            .filter_map(|member| self.id_of(member.view))
            .collect();
        let others = self.other_pods();
        let inactive: BTreeSet<&str> = self.inactive.iter().map(|pod| pod.name.as_str()).collect();
        for (claim, id) in self.own_claims().filter(|(_, id)| !in_use.contains(id)) {
            match others.get(id) {
                Some(pod) if reuse && inactive.contains(pod.name.as_str()) => {}
                Some(pod) => draft.act(Action::PatchClaim {
                    claim: claim.name.clone(),
                    pod: pod.name.clone(),
                    pod_uid: pod.uid.clone(),
                    reason: "HandedToPod",
                }),
                None if reuse => {}
                None => draft.act(Action::DeleteClaim {
                    claim: claim.name.clone(),
                    pod: None,
                    reason: "PodGone",
                }),
            }
        }
    }

    /// Pods by instance id that are in view and not members.
    fn other_pods(&self) -> BTreeMap<&str, &PodView> {
        let members: BTreeSet<&str> = self
            .members
            .iter()
            .map(|member| member.view.name.as_str())
            .collect();
        self.snapshot
            .pods
            .iter()
            .filter(|pod| !members.contains(pod.name.as_str()))
            .filter_map(|pod| Some((self.id_of(pod)?, *pod)))
            .collect()
    }
}
