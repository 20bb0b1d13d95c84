//! Names of pods and claims to create.

use std::collections::{BTreeMap, BTreeSet};

use super::action::Action;
use super::draft::Draft;
use super::facts::Facts;
use super::ids::{fnv1a, instance_id};
use super::numbers::Numbers;
use super::reason::Reason;

/// An instance id that a new pod gets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Slot {
    id: String,
    seq: Option<i64>,
}

impl Facts<'_> {
    /// Creates pods, those of the current revision first in the order of their ids, each after its claims.
    pub(super) fn create(&self, numbers: &Numbers, draft: &mut Draft) {
        let count = usize::try_from(numbers.scale_up_limit).unwrap_or(0);
        let templates = self.claim_template_names();
        let mut slots = self.slots(count, &templates, draft);
        slots.sort_unstable();
        let on_current = usize::try_from(numbers.scale_up_num_old_revision).unwrap_or(0);
        let missing = (self.limits.replicas - i64::try_from(self.members.len()).unwrap_or(i64::MAX)).max(0);
        let missing = usize::try_from(missing).unwrap_or(0);
        let existing: BTreeSet<&str> = self.own_claims().map(|(claim, _)| claim.name.as_str()).collect();
        draft.actions.reserve(slots.len() * (1 + templates.len()));
        for (index, slot) in slots.into_iter().enumerate() {
            let pod = format!("{}-{}", self.name, slot.id);
            for template in &templates {
                let claim = claim_name(template, self.name, &slot.id);
                if !existing.contains(claim.as_str()) {
                    draft.act(Action::CreateClaim {
                        claim,
                        template: template.clone(),
                        pod: pod.clone(),
                        instance_id: slot.id.clone(),
                        instance_seq: slot.seq,
                        reason: "ForPod",
                    });
                }
            }
            let revision = if index < on_current {
                &self.revisions.current
            } else {
                &self.revisions.update
            };
            draft.act(Action::CreatePod {
                pod,
                revision: revision.clone(),
                instance_id: slot.id,
                instance_seq: slot.seq,
                reason: if index < missing { "ScaleUp" } else { "Surge" },
            });
        }
    }

    /// Ids of claims that wait for a pod, then new ones. Whatever anybody holds a name of is passed over.
    fn slots(&self, count: usize, templates: &[String], draft: &mut Draft) -> Vec<Slot> {
        let mut slots = self.freed(count, templates, draft);
        let held = self.held_names();
        let is_held = |name: &str| held.binary_search(&fnv1a(name.as_bytes())).is_ok();
        let mut number = self.last_number;
        while slots.len() < count {
            number += 1;
            let id = instance_id(self.uid, number);
            let taken = is_held(&format!("{}-{id}", self.name))
                || templates
                    .iter()
                    .any(|template| is_held(&claim_name(template, self.name, &id)));
            if !taken {
                slots.push(Slot {
                    id,
                    seq: Some(number),
                });
            }
        }
        slots
    }

    /// Names that anybody holds, as sorted hashes: two of one hash would only cost a number.
    fn held_names(&self) -> Vec<u64> {
        let pods = self.snapshot.pods.iter().map(|pod| pod.name.as_str());
        let claims = self.snapshot.claims.iter().map(|claim| claim.name.as_str());
        let mut held: Vec<u64> = pods.chain(claims).map(|name| fnv1a(name.as_bytes())).collect();
        held.sort_unstable();
        held
    }

    /// Ids whose claims wait for a pod, in order.
    fn freed(&self, count: usize, templates: &[String], draft: &mut Draft) -> Vec<Slot> {
        if !self.spec.scale_strategy.enable_pvc_reuse {
            return Vec::new();
        }
        let in_use: BTreeSet<&str> = self
            .snapshot
            .pods
            .iter()
            .filter_map(|pod| self.id_of(pod))
            .collect();
        let pods: BTreeSet<&str> = self.snapshot.pods.iter().map(|pod| pod.name.as_str()).collect();
        let mut free: BTreeMap<&str, Option<i64>> = BTreeMap::new();
        for (claim, id) in self.own_claims() {
            let pod = format!("{}-{id}", self.name);
            if !in_use.contains(id) && !pods.contains(pod.as_str()) {
                let seq = free.entry(id).or_default();
                *seq = (*seq).max(claim.instance_seq);
            }
        }
        let own: BTreeSet<&str> = self.own_claims().map(|(claim, _)| claim.name.as_str()).collect();
        let blocked = |id: &str| {
            templates.iter().any(|template| {
                let name = claim_name(template, self.name, id);
                self.snapshot.claims.iter().any(|claim| claim.name == name) && !own.contains(name.as_str())
            })
        };
        let (free, stuck): (Vec<_>, Vec<_>) = free.into_iter().partition(|(id, _)| !blocked(id));
        if !stuck.is_empty() {
            let ids: Vec<&str> = stuck.iter().map(|(id, _)| *id).collect();
            draft.wait(
                Reason::TerminatingClaims,
                format!(
                    "a claim of instance id {} is being deleted or is somebody else's",
                    ids.join(", ")
                ),
            );
        }
        free.into_iter()
            .take(count)
            .map(|(id, seq)| Slot {
                id: id.to_owned(),
                seq,
            })
            .collect()
    }

    fn claim_template_names(&self) -> Vec<String> {
        let templates = self
            .spec
            .volume_claim_templates
            .as_ref()
            .and_then(serde_json::Value::as_array);
        let name =
            |template: &serde_json::Value| Some(template.pointer("/metadata/name")?.as_str()?.to_owned());
        templates.into_iter().flatten().filter_map(name).collect()
    }
}

fn claim_name(template: &str, set: &str, id: &str) -> String {
    format!("{template}-{set}-{id}")
}
