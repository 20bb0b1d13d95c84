//! Which revisions there are, which one is wanted, and which one a pod is on.

use std::collections::{BTreeMap, BTreeSet};

use kruise_api::clone_set::{CloneSet, names};
use serde_json::Value;

use super::action::Action;
use super::draft::Draft;
use super::pod::RevisionKey;
use super::snapshot::{CloneSetSnapshot, RevisionView};
use crate::revision::{self, short_hash as short};

/// A hash clash with this many other revisions is no accident any more; the last name is taken as it is.
const MAX_COLLISIONS: i32 = 32;

/// The revisions of a set.
#[derive(Debug)]
pub(super) struct Revisions<'a> {
    /// Name of the revision of the template.
    pub(super) update: String,
    /// Its number.
    pub(super) update_number: i64,
    /// Its data.
    pub(super) update_data: Value,
    /// The object, unless it has yet to be created.
    pub(super) update_view: Option<&'a RevisionView>,
    /// What pods of it are known by.
    pub(super) update_key: RevisionKey,
    /// Name of the revision that pods come from.
    pub(super) current: String,
    /// As the status will say.
    pub(super) collision_count: i32,
    /// Hash of the claim templates.
    pub(super) claim_template_hash: String,
    /// By number, oldest first.
    own: Vec<&'a RevisionView>,
    by_key: BTreeMap<RevisionKey, &'a RevisionView>,
}

impl<'a> Revisions<'a> {
    /// Finds the revision of the template, or says how to get it.
    pub(super) fn find(snapshot: &CloneSetSnapshot<'a>, draft: &mut Draft) -> Self {
        let set = snapshot.set;
        let uid = set.metadata.uid.as_deref().unwrap_or_default();
        let mut own: Vec<&RevisionView> = snapshot
            .revisions
            .iter()
            .copied()
            .filter(|revision| revision.controller.as_deref().is_none_or(|owner| owner == uid))
            .collect();
        own.sort_by(|a, b| (a.number, a.created, &a.name).cmp(&(b.number, b.created, &b.name)));
        let status = set.status.as_ref();
        let mut found = Self {
            update: String::new(),
            update_key: RevisionKey::of(""),
            update_number: 1,
            update_data: revision::data(&set.spec.template),
            update_view: None,
            current: String::new(),
            collision_count: status.and_then(|status| status.collision_count).unwrap_or(0),
            claim_template_hash: revision::claim_template_hash(set.spec.volume_claim_templates.as_ref()),
            by_key: own
                .iter()
                .map(|revision| (RevisionKey::of(&revision.name), *revision))
                .collect(),
            own,
        };
        found.choose_update(snapshot, draft);
        found.update_key = RevisionKey::of(&found.update);
        let known = status.map(|status| status.current_revision.as_str());
        found.current = known
            .filter(|name| found.own.iter().any(|revision| revision.name == *name))
            .unwrap_or(&found.update)
            .to_owned();
        found
    }

    fn choose_update(&mut self, snapshot: &CloneSetSnapshot<'a>, draft: &mut Draft) {
        let newest = self.own.last().map_or(0, |revision| revision.number);
        let equal = self.equal();
        let Some(equal) = equal else {
            self.update_number = newest + 1;
            return self.create(snapshot, draft);
        };
        self.take(equal);
        if equal.number == newest {
            return;
        }
        // An older template is wanted again: its revision becomes the newest.
        self.update_number = newest + 1;
        let hash = equal.annotations.get(names::CLAIM_TEMPLATE_HASH);
        let annotations = if hash == Some(&self.claim_template_hash) {
            BTreeMap::new()
        } else {
            let hash = self.claim_template_hash.clone();
            BTreeMap::from([(names::CLAIM_TEMPLATE_HASH.to_owned(), hash)])
        };
        draft.act(Action::PatchRevision {
            revision: equal.name.clone(),
            number: Some(self.update_number),
            labels: BTreeMap::new(),
            annotations,
            reason: "WantedAgain",
        });
    }

    /// The newest revision of the template: by its bytes, or, if somebody else wrote them in another form, by what they mean.
    fn equal(&self) -> Option<&'a RevisionView> {
        let newest_first = || self.own.iter().rev().copied();
        let wanted = revision::template_of(&self.update_data);
        newest_first()
            .find(|known| revision::equal(&known.data, &self.update_data))
            .or_else(|| {
                newest_first().find(|known| {
                    let known = revision::template_of(&known.data);
                    matches!((&known, &wanted), (Some(a), Some(b)) if revision::same_template(a, b))
                })
            })
    }

    fn take(&mut self, view: &'a RevisionView) {
        self.update.clone_from(&view.name);
        self.update_number = view.number;
        self.update_view = Some(view);
    }

    /// Another revision of the same name raises the collision count; one with the same data is the one we want.
    fn create(&mut self, snapshot: &CloneSetSnapshot<'a>, draft: &mut Draft) {
        let set_name = name_of(snapshot.set);
        loop {
            let hash = revision::hash(&self.update_data, self.collision_count);
            let name = revision::name(set_name, &hash);
            let clash = snapshot
                .revisions
                .iter()
                .copied()
                .find(|revision| revision.name == name);
            match clash {
                Some(same) if revision::equal(&same.data, &self.update_data) => return self.take(same),
                Some(_) if self.collision_count < MAX_COLLISIONS => self.collision_count += 1,
                _ => {
                    draft.act(Action::CreateRevision {
                        revision: name.clone(),
                        number: self.update_number,
                        hash,
                        claim_template_hash: self.claim_template_hash.clone(),
                        reason: "NewTemplate",
                    });
                    self.update = name;
                    return;
                }
            }
        }
    }

    /// Whether there is nothing to roll out.
    pub(super) fn is_settled(&self) -> bool {
        self.current == self.update
    }

    /// The hash in the name of the update revision.
    pub(super) fn update_hash(&self) -> &str {
        short(&self.update)
    }

    /// The revision that a label means.
    pub(super) fn of_key(&self, key: RevisionKey) -> Option<&'a RevisionView> {
        self.by_key.get(&key).copied()
    }

    /// Data of a revision, that of the template included.
    pub(super) fn data(&self, key: RevisionKey) -> Option<&Value> {
        if key == self.update_key {
            return Some(&self.update_data);
        }
        self.of_key(key).map(|revision| &revision.data)
    }

    /// Deletes what nobody uses beyond the limit, lowest numbers first.
    pub(super) fn trim(
        &self,
        limit: usize,
        pods: impl Iterator<Item = Option<RevisionKey>>,
        draft: &mut Draft,
    ) {
        // With few revisions there is nothing to count.
        if self.own.len() <= limit {
            return;
        }
        let live: BTreeSet<RevisionKey> = pods.flatten().collect();
        let unused: Vec<&&RevisionView> = self
            .own
            .iter()
            .filter(|revision| {
                revision.name != self.current
                    && revision.name != self.update
                    && !live.contains(&RevisionKey::of(&revision.name))
            })
            .collect();
        let surplus = unused.len().saturating_sub(limit);
        for revision in &unused[..surplus] {
            draft.act(Action::DeleteRevision {
                revision: revision.name.clone(),
                reason: "HistoryLimit",
            });
        }
    }
}

/// Name of the set; empty only before the API server has seen it.
pub(super) fn name_of(set: &CloneSet) -> &str {
    set.metadata.name.as_deref().unwrap_or_default()
}
